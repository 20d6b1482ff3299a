//! RTP header extensions of a source's packets. An extension block is built once; only a few of its bytes
//! change from packet to packet.
//!
//! A source that retransmits lost packets under the same sequence number and key must repeat their
//! headers unchanged, so its blocks carry only the section's mid, which does not change.

use std::ops::Range;

use rtp::extension::{AbsSendTime, AudioLevel, Extension, ExtensionMap, Extensions, PlayoutDelay};
use rtp::{ExtensionBlock, NtpTime};

use crate::negotiate::Section;

/// Longest mid that packets carry, limited by the space reserved next to the payload.
const MID_BYTES_MAX: usize = 16;
/// Longest mid that leaves room for the fields that are only sent occasionally.
const MID_BYTES_SHORT: usize = 6;
/// Size of the longest block: a short mid with all fields, or a long mid with the transport-wide sequence
/// number.
pub(crate) const BLOCK_BYTES_MAX: usize = 24;

/// Values of an extension block that differ from packet to packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamps {
    /// Transport-wide sequence number.
    pub(crate) number: Option<u16>,
    /// Departure time of the packet.
    pub(crate) sent: Option<NtpTime>,
}

/// An extension block, and the places of its variable fields.
#[derive(Debug, Default)]
struct Block {
    profile: u16,
    bytes: Vec<u8>,
    number: Option<Range<usize>>,
    sent: Option<Range<usize>>,
}

impl Block {
    fn new(map: &ExtensionMap, values: &Extensions<'_>) -> Self {
        let mut bytes = Vec::new();
        let Some(block) = map.write(values, &mut bytes) else { return Self::default() };
        let (profile, range) = (block.profile, |extension| map.range_of(extension, block));
        let (number, sent) = (range(Extension::TransportCc), range(Extension::AbsSendTime));
        Self { profile, bytes, number, sent }
    }

    fn stamped(&mut self, stamps: Stamps) -> Option<ExtensionBlock<'_>> {
        let mut put = |range: &Option<Range<usize>>, value: &[u8]| {
            if let Some(to) = range.clone().and_then(|range| self.bytes.get_mut(range)) {
                to.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
            }
        };
        if let Some(number) = stamps.number {
            put(&self.number, &number.to_be_bytes());
        }
        if let Some(sent) = stamps.sent {
            let [_, time @ ..] = AbsSendTime::of(sent).value().to_be_bytes();
            put(&self.sent, &time);
        }
        (!self.bytes.is_empty()).then_some(ExtensionBlock { profile: self.profile, bytes: &self.bytes })
    }
}

/// Extension blocks for the packets of a source.
#[derive(Debug)]
pub(crate) struct Heads {
    map: ExtensionMap,
    mid: String,
    /// Block with the section's mid and the playout delay requested from players.
    named: Block,
    /// Block without the mid.
    plain: Block,
    delay: Option<PlayoutDelay>,
    /// Level of the audio; `None` to send no level.
    level: Option<AudioLevel>,
    /// True if the delay was requested during the session; it is then sent with the first packet of
    /// each unit.
    repeats_delay: bool,
    is_roomy: bool,
    /// True if some packets carry their capture time.
    tells: bool,
    /// Block built for a single packet, with its capture time.
    once: Block,
}

impl Heads {
    /// Creates the blocks for a section; `delay` is the playout delay requested from its player.
    pub(crate) fn new(section: &Section, delay: Option<PlayoutDelay>) -> Self {
        let is_free = section.formats.first().is_some_and(|format| format.has_free_heads());
        let mut map = section.extensions;
        if !is_free {
            map = ExtensionMap::new();
            if let Some(id) = section.extensions.id(Extension::Mid) {
                map.insert(Extension::Mid, id);
            }
        }
        // An unusually long mid is omitted.
        let mid = Some(section.mid.as_str()).filter(|mid| mid.len() <= MID_BYTES_MAX).unwrap_or_default();
        let is_roomy = mid.len() <= MID_BYTES_SHORT;
        let tells = is_roomy && map.id(Extension::AbsCaptureTime).is_some();
        let mut heads = Self {
            map,
            mid: mid.to_owned(),
            named: Block::default(),
            plain: Block::default(),
            delay: delay.filter(|_| is_roomy),
            level: None,
            repeats_delay: false,
            is_roomy,
            tells,
            once: Block::default(),
        };
        heads.named = Block::new(&heads.map, &heads.values(true));
        heads.plain = Block::new(&heads.map, &heads.values(false));
        heads
    }

    /// True if packets carry a transport-wide sequence number.
    pub(crate) const fn are_numbered(&self) -> bool {
        self.plain.number.is_some()
    }

    /// True if packets carry their departure time.
    pub(crate) const fn are_timed(&self) -> bool {
        self.plain.sent.is_some()
    }

    /// True if packets may carry their capture time.
    pub(crate) const fn tell_capture_times(&self) -> bool {
        self.tells
    }

    /// Requests another playout delay. From now on, the first packet of each unit carries the request,
    /// because any single packet may be lost.
    pub(crate) fn request_delay(&mut self, delay: PlayoutDelay) {
        if self.is_roomy && self.map.id(Extension::PlayoutDelay).is_some() {
            (self.delay, self.repeats_delay) = (Some(delay), true);
            self.named = Block::new(&self.map, &self.values(true));
        }
    }

    /// Sets the level of the audio in the following packets, if the peer supports levels.
    pub(crate) fn set_level(&mut self, level: AudioLevel) {
        if self.is_roomy && self.level != Some(level) && self.map.id(Extension::AudioLevel).is_some() {
            self.level = Some(level);
            self.named = Block::new(&self.map, &self.values(true));
            self.plain = Block::new(&self.map, &self.values(false));
        }
    }

    /// The playout delay requested during the session, if any.
    pub(crate) fn requested_delay(&self) -> Option<PlayoutDelay> {
        self.delay.filter(|_| self.repeats_delay)
    }

    #[cfg(test)]
    pub(crate) const fn map(&self) -> ExtensionMap {
        self.map
    }

    fn values(&self, named: bool) -> Extensions<'_> {
        let has = |extension| self.map.id(extension).is_some();
        let numbered = has(Extension::TransportCc);
        Extensions {
            mid: Some(self.mid.as_str()).filter(|mid| named && !mid.is_empty()),
            transport_sequence: numbered.then_some(0),
            abs_send_time: has(Extension::AbsSendTime).then(|| AbsSendTime::new(0)),
            playout_delay: self.delay.filter(|_| named),
            audio_level: self.level,
            ..Extensions::default()
        }
    }

    /// Returns the extension block of a packet, with the section's mid if `named`. `captured` is set for
    /// packets that carry their capture time.
    pub(crate) fn block(
        &mut self,
        named: bool,
        stamps: Stamps,
        captured: Option<NtpTime>,
    ) -> Option<ExtensionBlock<'_>> {
        if captured.is_some() {
            self.once =
                Block::new(&self.map, &Extensions { abs_capture_time: captured, ..self.values(named) });
            return self.once.stamped(stamps);
        }
        if named { self.named.stamped(stamps) } else { self.plain.stamped(stamps) }
    }
}
