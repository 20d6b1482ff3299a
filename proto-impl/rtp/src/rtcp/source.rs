//! Source descriptions and BYE (RFC 3550 §6.5, §6.6).

use wire::{Reader, Truncated};

use super::take_chunks;
use crate::number::Ssrc;

/// Item type that ends a source's items.
const END: u8 = 0;
/// Item type of the canonical name.
pub(crate) const CNAME: u8 = 1;

/// Source description (SDES).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDescription<'a> {
    sources: u8,
    body: &'a [u8],
}

/// An item of a source description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// SSRC of the described source.
    pub ssrc: Ssrc,
    /// Item type; 1 is the canonical name.
    pub kind: u8,
    /// Text of the item: UTF-8 if the peer follows the RFC.
    pub text: &'a [u8],
}

impl<'a> SourceDescription<'a> {
    pub(super) const fn new(sources: u8, body: &'a [u8]) -> Self {
        Self { sources, body }
    }

    /// Iterates over the items of all sources; ends at a malformed one.
    pub fn items(&self) -> impl Iterator<Item = Item<'a>> + 'a {
        let mut walk = Walk { reader: Reader::new(self.body), sources: self.sources, ssrc: None };
        core::iter::from_fn(move || walk.item().ok().flatten())
    }

    /// Returns the canonical name of a source.
    #[must_use]
    pub fn cname(&self, ssrc: Ssrc) -> Option<&'a [u8]> {
        self.items().find(|item| item.ssrc == ssrc && item.kind == CNAME).map(|item| item.text)
    }
}

struct Walk<'a> {
    reader: Reader<'a>,
    sources: u8,
    ssrc: Option<Ssrc>,
}

impl<'a> Walk<'a> {
    fn item(&mut self) -> Result<Option<Item<'a>>, Truncated> {
        // Each iteration consumes at least one byte, or ends the loop.
        loop {
            let Some(ssrc) = self.ssrc else {
                let Some(left) = self.sources.checked_sub(1) else {
                    return Ok(None);
                };
                self.sources = left;
                self.ssrc = Some(Ssrc(self.reader.u32()?));
                continue;
            };
            let kind = self.reader.u8()?;
            if kind == END {
                // Zeros pad the chunk to a whole number of words.
                let over = self.reader.position() % 4;
                self.reader.take((4 - over) % 4)?;
                self.ssrc = None;
                continue;
            }
            let length = usize::from(self.reader.u8()?);
            return Ok(Some(Item { ssrc, kind, text: self.reader.take(length)? }));
        }
    }
}

/// End of sources (BYE). The caller must check that the sources belong to the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bye<'a> {
    ssrcs: &'a [[u8; 4]],
    /// Reason for leaving, if given.
    pub reason: Option<&'a [u8]>,
}

impl<'a> Bye<'a> {
    pub(super) fn read(count: u8, r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let ssrcs = take_chunks(r, count.into())?;
        // A truncated reason does not invalidate the BYE.
        let reason = r.u8().and_then(|length| r.take(length.into())).ok();
        Ok(Self { ssrcs, reason })
    }

    /// Iterates over the sources that leave.
    pub fn ssrcs(&self) -> impl Iterator<Item = Ssrc> + 'a {
        self.ssrcs.iter().map(|word| Ssrc(u32::from_be_bytes(*word)))
    }
}
