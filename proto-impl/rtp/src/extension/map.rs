//! The header extensions of a session, and their ids.

use alloc::vec::Vec;
use core::ops::Range;

use super::kind::Extension;
use super::value::Extensions;
use super::{Elements, ONE_BYTE_PROFILE, TWO_BYTE_PROFILE};
use crate::header::ExtensionBlock;

/// Largest id in the one-byte form.
const ONE_BYTE_ID_MAX: u8 = 14;
/// Longest value in the one-byte form, in bytes.
const ONE_BYTE_VALUE_MAX: usize = 16;

/// Extension ids negotiated for a media section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtensionMap {
    /// Ids by position in [`Extension::ALL`]; 0 if not negotiated.
    ids: [u8; Extension::ALL.len()],
}

impl ExtensionMap {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the map for a section's `extmap` lines. Unknown extensions, and ids that cannot occur in a
    /// packet, are skipped.
    #[must_use]
    pub fn of<'e>(lines: impl IntoIterator<Item = &'e sdp::Extmap>) -> Self {
        let mut map = Self::new();
        for line in lines {
            if let (Some(extension), Ok(id)) = (Extension::from_uri(&line.uri), u8::try_from(line.id)) {
                map.insert(extension, id);
            }
        }
        map
    }

    /// Sets an id from 1 to 255. Returns false if it is 0 or already used by another extension.
    pub fn insert(&mut self, extension: Extension, id: u8) -> bool {
        let free = self.extension(id).is_none_or(|other| other == extension);
        if id == 0 || !free {
            return false;
        }
        if let Some(slot) = self.ids.get_mut(extension as usize) {
            *slot = id;
        }
        true
    }

    /// Returns the id of an extension; `None` if not negotiated.
    #[must_use]
    pub fn id(&self, extension: Extension) -> Option<u8> {
        self.ids.get(extension as usize).copied().filter(|&id| id != 0)
    }

    /// Returns the extension with an id; `None` if there is none.
    #[must_use]
    pub fn extension(&self, id: u8) -> Option<Extension> {
        Extension::ALL.into_iter().find(|&extension| id != 0 && self.id(extension) == Some(id))
    }

    /// Reads the values in a packet's extension block.
    #[must_use]
    pub fn read<'a>(&self, block: Option<ExtensionBlock<'a>>) -> Extensions<'a> {
        let mut extensions = Extensions::default();
        for (id, value) in block.into_iter().flat_map(Elements::of) {
            if let Some(extension) = self.extension(id) {
                extensions.take(extension, value);
            }
        }
        extensions
    }

    /// Writes a block of the values that have an id to `bytes`, which is cleared first. Uses the one-byte
    /// form if all values fit into it. The block's length depends only on which values are set and on the
    /// lengths of texts, so similar packets get blocks of equal length and can be sent together.
    #[must_use]
    pub fn write<'b>(&self, values: &Extensions<'_>, bytes: &'b mut Vec<u8>) -> Option<ExtensionBlock<'b>> {
        bytes.clear();
        let values = values.values();
        let elements = || {
            values
                .iter()
                .filter_map(|(extension, value)| Some((self.id(*extension)?, value.as_ref()?.bytes())))
        };
        let one_byte = |(id, value): (u8, &[u8])| {
            id <= ONE_BYTE_ID_MAX && (1..=ONE_BYTE_VALUE_MAX).contains(&value.len())
        };
        let small = elements().all(one_byte);
        for (id, value) in elements() {
            // A value too long for its length field is truncated; our own mids and rids have only a few
            // characters.
            let value = value.get(..value.len().min(usize::from(u8::MAX))).unwrap_or_default();
            let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
            if small {
                bytes.push(id << 4 | length.saturating_sub(1) & 0x0f);
            } else {
                bytes.extend_from_slice(&[id, length]);
            }
            bytes.extend_from_slice(value);
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let profile = if small { ONE_BYTE_PROFILE } else { TWO_BYTE_PROFILE };
        (!bytes.is_empty()).then_some(ExtensionBlock { profile, bytes })
    }

    /// Returns the position of an extension's value in a block. For blocks that are built once, and in which
    /// only this value changes.
    #[must_use]
    pub fn range_of(&self, extension: Extension, block: ExtensionBlock<'_>) -> Option<Range<usize>> {
        let id = self.id(extension)?;
        let mut elements = Elements::of(block);
        while let Some((found, value)) = elements.next() {
            if found == id {
                let end = elements.position();
                return Some(end.checked_sub(value.len())?..end);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::extension::{AbsSendTime, AudioLevel, PlayoutDelay};

    fn full() -> Extensions<'static> {
        Extensions {
            mid: Some("0"),
            rid: Some("hi"),
            repaired_rid: Some("hi"),
            audio_level: Some(AudioLevel { voice: true, level: 17 }),
            abs_send_time: Some(AbsSendTime::new(0xab_cdef)),
            transport_sequence: Some(65_535),
            playout_delay: Some(PlayoutDelay {
                min: Duration::from_millis(10),
                max: Duration::from_millis(40_950),
            }),
            video_orientation: Some(3),
            abs_capture_time: Some(crate::NtpTime::new(0x0123_4567_89ab_cdef)),
            dependency_descriptor: Some(&[0xc0, 0x12, 0x34]),
        }
    }

    fn map(first: u8) -> ExtensionMap {
        let mut map = ExtensionMap::new();
        for (id, extension) in (first..).zip(Extension::ALL) {
            assert!(map.insert(extension, id));
        }
        map
    }

    #[test]
    fn values_read_what_they_write_in_both_forms() {
        let mut bytes = Vec::new();
        let (small, large) = (map(1), map(100));
        for (map, profile) in [(small, ONE_BYTE_PROFILE), (large, TWO_BYTE_PROFILE)] {
            let block = map.write(&full(), &mut bytes).unwrap();
            assert_eq!((block.profile, block.bytes.len() % 4), (profile, 0));
            assert_eq!(map.read(Some(block)), full());
        }
        let long = Extensions { mid: Some("seventeen-letters"), ..full() };
        let block = small.write(&long, &mut bytes).unwrap();
        assert_eq!((block.profile, small.read(Some(block))), (TWO_BYTE_PROFILE, long));
        assert_eq!(small.write(&Extensions::default(), &mut bytes), None);
        assert_eq!(ExtensionMap::new().write(&full(), &mut bytes), None);
        assert_eq!(ExtensionMap::new().read(None), Extensions::default());
    }

    #[test]
    fn the_place_of_a_value_is_where_it_is_read() {
        let mut bytes = Vec::new();
        for map in [map(1), map(100)] {
            let block = map.write(&full(), &mut bytes).unwrap();
            let profile = block.profile;
            let range = map.range_of(Extension::TransportCc, block).unwrap();
            bytes[range].copy_from_slice(&[0x12, 0x34]);
            let read = map.read(Some(ExtensionBlock { profile, bytes: &bytes }));
            assert_eq!(read, Extensions { transport_sequence: Some(0x1234), ..full() });
        }
        let none = ExtensionBlock { profile: ONE_BYTE_PROFILE, bytes: &[] };
        assert_eq!(map(1).range_of(Extension::TransportCc, none), None);
    }

    #[test]
    fn packets_with_the_same_extensions_get_blocks_of_one_length() {
        let map = map(1);
        let mut bytes = Vec::new();
        let lengths: alloc::collections::BTreeSet<usize> = (0..2000u16)
            .map(|number| {
                let values = Extensions {
                    mid: Some("1"),
                    transport_sequence: Some(number.wrapping_mul(33)),
                    abs_send_time: Some(AbsSendTime::new(u32::from(number) << 9)),
                    ..Extensions::default()
                };
                map.write(&values, &mut bytes).unwrap().bytes.len()
            })
            .collect();
        assert_eq!(lengths.len(), 1);
    }

    #[test]
    fn ids_come_from_the_description() {
        let lines: Vec<sdp::Extmap> = [
            "1 urn:ietf:params:rtp-hdrext:ssrc-audio-level",
            "4 urn:ietf:params:rtp-hdrext:sdes:mid",
            "4 urn:3gpp:video-orientation",
            "300 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
            "9 urn:x",
        ]
        .map(|line| sdp::Extmap::read(line).unwrap())
        .into();
        let map = ExtensionMap::of(&lines);
        assert_eq!(map.extension(4), Some(Extension::Mid));
        assert_eq!((map.id(Extension::AudioLevel), map.id(Extension::Rid)), (Some(1), None));
        assert_eq!((map.id(Extension::VideoOrientation), map.extension(0)), (None, None));
        assert!(!ExtensionMap::new().insert(Extension::Mid, 0));
    }

    #[test]
    fn malformed_values_are_left_out() {
        let map = map(1);
        let block = |bytes| Some(ExtensionBlock { profile: ONE_BYTE_PROFILE, bytes });
        // The mid has a control character, and the transport-wide number only one byte: both are ignored. The
        // level is valid.
        let read = map.read(block(&[0x10, 7, 0x60, 1, 0x40, 0x85, 0, 0]));
        let level = Some(AudioLevel { voice: true, level: 5 });
        assert_eq!(read, Extensions { audio_level: level, ..Extensions::default() });
        assert_eq!(map.read(block(&[0x11, b'a', 0, 0])).mid, Some("a"));
    }

    proptest! {
        #[test]
        fn any_block_is_read(profile in prop::sample::select(vec![0xbede_u16, 0x1000, 0x1005, 7]), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let map = map(1);
            let read = map.read(Some(ExtensionBlock { profile, bytes: &bytes }));
            let mut again = Vec::new();
            let block = map.write(&read, &mut again);
            prop_assert_eq!(map.read(block), read);
        }
    }
}
