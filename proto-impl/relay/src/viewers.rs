//! The viewers of a copy: the body of a frame.

use bytes::Bytes;
use wire::{Reader, Writer};

use crate::Error;
use crate::frame::{frame, kind, put_name, read_name};

/// Ways of watching that are counted apart.
const COUNTS_MAX: usize = 16;

/// Viewers by the way that they watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Viewers {
    /// Viewers of ways without a count of their own.
    pub connected: u32,
    /// The names of the other ways, and their viewers. If there are more than sixteen, the rest is left out.
    pub counted: Vec<(String, u32)>,
}

impl Viewers {
    /// The viewers that are counted under a name.
    #[must_use]
    pub fn counted(&self, name: &str) -> u32 {
        self.counted.iter().find(|(counted, _)| counted == name).map_or(0, |(_, count)| *count)
    }

    /// Counts viewers in, under the name of the way that they watch.
    pub fn count(&mut self, name: &str, viewers: u32) {
        match self.counted.iter_mut().find(|(counted, _)| counted == name) {
            Some((_, count)) => *count = count.saturating_add(viewers),
            None if viewers > 0 => self.counted.push((name.to_owned(), viewers)),
            None => {}
        }
    }

    /// Counts the viewers of another copy in.
    pub fn add(&mut self, other: &Self) {
        self.connected = self.connected.saturating_add(other.connected);
        other.counted.iter().for_each(|(name, viewers)| self.count(name, *viewers));
    }

    pub(crate) fn frame(&self) -> Bytes {
        let mut out = Writer::new();
        let told = self.counted.iter().take(COUNTS_MAX);
        out.u32(self.connected).u8(u8::try_from(told.len()).unwrap_or(u8::MAX));
        for (name, count) in told {
            put_name(&mut out, name);
            out.u32(*count);
        }
        frame(kind::VIEWERS, &out.take())
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let connected = reader.u32()?;
        let count = usize::from(reader.u8()?);
        if count > COUNTS_MAX {
            return Err(Error::Invalid("number of counts"));
        }
        let counted = (0..count).map(|_| Ok((read_name(reader)?, reader.u32()?)));
        Ok(Self { connected, counted: counted.collect::<Result<_, Error>>()? })
    }
}
