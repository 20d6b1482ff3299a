//! Viewers of a copy, as the body of a frame.

use bytes::Bytes;
use wire::{Reader, Writer};

use crate::Error;
use crate::frame::{frame, kind, put_name, read_name};

/// Maximum number of protocols whose viewers are counted separately.
const COUNTS_MAX: usize = 16;

/// Number of viewers by protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Viewers {
    /// Number of viewers of all protocols that are not in `counted`.
    pub connected: u32,
    /// Protocols whose viewers are counted separately, by name. Only the first sixteen are sent.
    pub counted: Vec<(String, u32)>,
}

impl Viewers {
    /// Returns the number of viewers counted under a protocol's name.
    #[must_use]
    pub fn counted(&self, name: &str) -> u32 {
        self.counted.iter().find(|(counted, _)| counted == name).map_or(0, |(_, count)| *count)
    }

    /// Adds viewers under the name of their protocol.
    pub fn count(&mut self, name: &str, viewers: u32) {
        match self.counted.iter_mut().find(|(counted, _)| counted == name) {
            Some((_, count)) => *count = count.saturating_add(viewers),
            None if viewers > 0 => self.counted.push((name.to_owned(), viewers)),
            None => {}
        }
    }

    /// Adds the viewers of another copy.
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
