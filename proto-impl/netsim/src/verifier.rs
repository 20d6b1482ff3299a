//! Receiver of the units of a [`crate::MediaSource`]. Checks their integrity and order, and counts missing
//! units.

use std::collections::BTreeSet;

use wire::Reader;

use crate::media_source::{KIND_AUDIO, KIND_INTER, KIND_KEY, MAGIC, stamp_checksum};

/// Error for a payload that no [`crate::MediaSource`] made, or that was changed in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The payload has no stamp.
    #[error("no stamp")]
    NoStamp,
    /// The payload is shorter than its stamp states.
    #[error("truncated")]
    Truncated,
    /// The checksum differs.
    #[error("checksum differs")]
    Checksum,
}

/// Received unit, as described by its stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// True if the unit is video; otherwise it is audio.
    pub is_video: bool,
    /// True if decoding can start here.
    pub key_frame: bool,
    /// Index of the unit within its kind, from 0.
    pub counter: u64,
    /// Decode time from the source in milliseconds.
    pub dts_ms: u64,
}

impl Seen {
    /// Reads the stamp of an access unit and checks that the unit is whole.
    pub fn read(payload: &[u8]) -> Result<Self, Corrupt> {
        read_stamp(payload)
    }
}

/// Counters of a kind of unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whole units, each counted once.
    pub received: u64,
    /// Missing units between the first and the last received.
    pub lost: u64,
    /// Units received after a unit with a higher number.
    pub reordered: u64,
    /// Units that were received more than once.
    pub duplicated: u64,
    /// Number of the first received unit.
    pub first: Option<u64>,
    /// Highest received number.
    pub last: Option<u64>,
}

/// Counts the units that a subscriber receives. The subscriber may join at any time: units before its first
/// one do not count as lost.
#[derive(Debug, Default)]
pub struct Verifier {
    video: Lane,
    audio: Lane,
    corrupt: u64,
}

impl Verifier {
    /// Creates a verifier that has received nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles the payload of an access unit. Other data, such as parameter sets, may precede the stamp.
    pub fn feed(&mut self, payload: &[u8]) -> Result<Seen, Corrupt> {
        let seen = read_stamp(payload).inspect_err(|_| self.corrupt += 1)?;
        let lane = if seen.is_video { &mut self.video } else { &mut self.audio };
        lane.count(seen.counter);
        Ok(seen)
    }

    /// Counters of video.
    #[must_use]
    pub const fn video(&self) -> Counts {
        self.video.counts
    }

    /// Counters of audio.
    #[must_use]
    pub const fn audio(&self) -> Counts {
        self.audio.counts
    }

    /// Number of refused payloads.
    #[must_use]
    pub const fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// True if all received units are whole, in order and without a gap.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.corrupt == 0 && self.video.is_clean() && self.audio.is_clean()
    }
}

#[derive(Debug, Default)]
struct Lane {
    counts: Counts,
    missing: BTreeSet<u64>,
}

impl Lane {
    fn count(&mut self, counter: u64) {
        self.counts.first.get_or_insert(counter);
        match self.counts.last {
            Some(last) if counter <= last => {
                // A unit before the first received one is late. It is neither missing nor a duplicate.
                if self.missing.remove(&counter) || self.counts.first.is_some_and(|first| counter < first) {
                    self.counts.reordered += 1;
                    self.counts.received += 1;
                } else {
                    self.counts.duplicated += 1;
                }
            }
            Some(last) => {
                self.missing.extend(last.saturating_add(1)..counter);
                self.counts.received += 1;
                self.counts.last = Some(counter);
            }
            None => {
                self.counts.received += 1;
                self.counts.last = Some(counter);
            }
        }
        self.counts.lost = u64::try_from(self.missing.len()).unwrap_or(u64::MAX);
    }

    const fn is_clean(&self) -> bool {
        self.counts.lost == 0 && self.counts.reordered == 0 && self.counts.duplicated == 0
    }
}

fn read_stamp(payload: &[u8]) -> Result<Seen, Corrupt> {
    let at = payload.windows(MAGIC.len()).position(|w| w == MAGIC).ok_or(Corrupt::NoStamp)?;
    let mut reader = Reader::new(payload.get(at + MAGIC.len()..).unwrap_or_default());
    let truncated = |_| Corrupt::Truncated;
    let head = reader.take(41).map_err(truncated)?;
    let sum = reader.take(16).map_err(truncated)?;
    let mut fields = Reader::new(head);
    let kind = fields.u8().map_err(truncated)?;
    let counter = hex(fields.take(16).map_err(truncated)?)?;
    let dts_ms = hex(fields.take(16).map_err(truncated)?)?;
    let length = hex(fields.take(8).map_err(truncated)?)?;
    let filler = reader.take(usize::try_from(length).unwrap_or(usize::MAX)).map_err(truncated)?;
    if !reader.is_empty() || sum != stamp_checksum(head, filler) {
        return Err(Corrupt::Checksum);
    }
    match kind {
        KIND_KEY | KIND_INTER => Ok(Seen { is_video: true, key_frame: kind == KIND_KEY, counter, dts_ms }),
        KIND_AUDIO => Ok(Seen { is_video: false, key_frame: true, counter, dts_ms }),
        _ => Err(Corrupt::Checksum),
    }
}

fn hex(digits: &[u8]) -> Result<u64, Corrupt> {
    let text = std::str::from_utf8(digits).map_err(|_| Corrupt::Checksum)?;
    u64::from_str_radix(text, 16).map_err(|_| Corrupt::Checksum)
}

#[cfg(test)]
mod tests {
    use crypto::Seed;

    use super::*;
    use crate::{MediaSource, SyntheticUnit};

    fn units(n: usize) -> Vec<SyntheticUnit> {
        MediaSource::new(&Seed::from_number(9)).gop(10).take(n).collect()
    }

    #[test]
    fn what_arrives_whole_and_in_order_is_clean() {
        let mut verifier = Verifier::new();
        for unit in units(500).iter().skip(100) {
            let seen = verifier.feed(&unit.payload).unwrap();
            assert_eq!(
                (seen.is_video, seen.key_frame, seen.dts_ms),
                (unit.is_video, unit.key_frame, unit.dts_ms)
            );
        }
        assert!(verifier.is_clean());
        assert_eq!(verifier.video().received + verifier.audio().received, 400);
    }

    #[test]
    fn gaps_doubles_and_overtaking_are_told_apart() {
        let video: Vec<SyntheticUnit> =
            MediaSource::new(&Seed::from_number(9)).sizes(100, 0).take(10).collect();
        let mut verifier = Verifier::new();
        for n in [2, 3, 6, 5, 6, 8, 1] {
            verifier.feed(&video[n].payload).unwrap();
        }
        let want =
            Counts { received: 6, lost: 2, reordered: 2, duplicated: 1, first: Some(2), last: Some(8) };
        assert_eq!((verifier.video(), verifier.is_clean()), (want, false));
    }

    #[test]
    fn every_changed_byte_behind_the_start_is_found() {
        let unit = &MediaSource::new(&Seed::from_number(9)).sizes(0, 60).next_unit().payload;
        for at in 1..unit.len() {
            let mut bytes = unit.to_vec();
            bytes[at] ^= 1;
            assert!(Verifier::new().feed(&bytes).is_err(), "byte {at}");
        }
        for length in 0..unit.len() {
            assert!(Verifier::new().feed(&unit[..length]).is_err(), "length {length}");
        }
        let mut verifier = Verifier::new();
        assert_eq!(verifier.feed(b"x"), Err(Corrupt::NoStamp));
        assert_eq!((verifier.corrupt(), verifier.is_clean()), (1, false));
    }
}
