//! The stamp of a unit: its number and its sending time (`docs/bench.md`).
//!
//! A stamp consists of a UUID of 16 bytes and of the two numbers in 16 hexadecimal digits each. It contains no zero
//! bytes, so that no NAL unit needs emulation prevention (H.264 §7.4.1).

use bytes::Bytes;
use flv::amf0::Value;
use flv::data::Data;
use media::nal::Nals;

/// The identifier before every stamp: `6d696c6c-7374-4d65-a16d-2d62656e6368`.
pub const UUID: [u8; 16] = *b"millstMe\xa1m-bench";
/// The identifier before padding: `6d696c6c-7374-4d65-a16d-2d7061646469`.
const PADDING_UUID: [u8; 16] = *b"millstMe\xa1m-paddi";
/// Name of the data message that carries a stamp if the media cannot.
pub const AMF_NAME: &str = "onMillstreamStamp";

/// Digits of each number.
const DIGITS: usize = 16;
const TEXT_BYTES: usize = 2 * DIGITS;
/// Bytes of UUID and digits.
const PAYLOAD_BYTES: u8 = 48;
/// Bytes of the SEI NAL unit with only a stamp, including its length field.
const SEI_BYTES: usize = 56;
/// NAL unit type 6, `nal_ref_idc` 0 (H.264 §7.4.1).
const SEI: u8 = 6;
/// Mask for the type in a NAL unit's first byte.
const NAL_TYPE_MASK: u8 = 0x1f;
/// `payloadType` of `user_data_unregistered` (H.264 §D.1.1).
const USER_DATA_UNREGISTERED: u8 = 5;
/// `rbsp_trailing_bits` on a byte boundary.
const TRAILING_BITS: u8 = 0x80;
/// `id_syn_ele` 4, instance 0, no alignment: the first byte of a `data_stream_element` (ISO/IEC 14496-3
/// Table 4.10). Count and data follow on whole bytes.
const DATA_STREAM_ELEMENT: u8 = 0x80;
/// Maximum number of NAL units examined before the slices: delimiter, parameter sets, other SEI.
const NALS_MAX: usize = 8;
/// Longest SEI that is searched, in bytes.
const SEI_BYTES_MAX: usize = 4096;

/// Largest part of a payload's size in one byte; a smaller byte ends the size (H.264 §7.3.2.3.1).
const SIZE_STEP: usize = 255;

/// Makes a padding message of `user_data_unregistered` of about `bytes`, filled from `ones`; empty if `bytes` is too
/// small. A filler NAL unit would suit decoders, but servers may drop those.
fn padding(bytes: usize, ones: &[u8]) -> Vec<u8> {
    let Some(rest) = bytes.checked_sub(2 + PADDING_UUID.len()) else { return Vec::new() };
    // Of 256 bytes, one belongs to the size field.
    let ones = ones.get(..rest - rest / (SIZE_STEP + 1)).unwrap_or(ones);
    let size = PADDING_UUID.len() + ones.len();
    let mut message = vec![USER_DATA_UNREGISTERED];
    message.resize(message.len() + size / SIZE_STEP, 0xff);
    message.push(u8::try_from(size % SIZE_STEP).unwrap_or(0));
    message.extend_from_slice(&PADDING_UUID);
    message.extend_from_slice(ones);
    message
}

/// Position of the participant's number (the source) in [`Stamp::sequence`], in bits.
const SOURCE_SHIFT: u32 = 48;

/// Number and time of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the unit, from 0, counted separately for video and audio, in the lower 48 bits; the upper 16 bits
    /// are the participant's number.
    pub sequence: u64,
    /// Time of handing the unit to the kernel, in nanoseconds of Unix time.
    pub unix_nanos: u64,
}

impl Stamp {
    /// Returns the first number of a participant's units.
    pub(super) fn first_of(source: usize) -> u64 {
        u64::try_from(source).unwrap_or(0) << SOURCE_SHIFT
    }

    /// Returns the number of the participant.
    pub(super) fn source(self) -> usize {
        usize::try_from(self.sequence >> SOURCE_SHIFT).unwrap_or(0)
    }

    /// Returns the 32 digits.
    #[must_use]
    pub fn text(self) -> String {
        format!("{:016x}{:016x}", self.sequence, self.unix_nanos)
    }

    /// Returns the SEI NAL unit, after its 4-byte length.
    #[must_use]
    pub fn sei(self) -> Vec<u8> {
        self.padded_sei(0, &[])
    }

    /// Returns the SEI NAL unit with a padding message of about `bytes`, filled from `ones`; no padding if `bytes` is
    /// too small.
    pub(super) fn padded_sei(self, bytes: usize, ones: &[u8]) -> Vec<u8> {
        let padding = padding(bytes, ones);
        let mut nal = Vec::with_capacity(SEI_BYTES + padding.len());
        nal.extend_from_slice(&[0, 0, 0, 0, SEI, USER_DATA_UNREGISTERED, PAYLOAD_BYTES]);
        nal.extend_from_slice(&UUID);
        nal.extend_from_slice(self.text().as_bytes());
        nal.extend_from_slice(&padding);
        nal.push(TRAILING_BITS);
        let length = u32::try_from(nal.len() - 4).unwrap_or(0).to_be_bytes();
        if let Some(head) = nal.first_chunk_mut() {
            *head = length;
        }
        nal
    }

    /// Returns the `data_stream_element` to put before a raw data block of AAC.
    #[must_use]
    pub fn aac_element(self) -> Vec<u8> {
        let mut element = vec![DATA_STREAM_ELEMENT, PAYLOAD_BYTES];
        element.extend_from_slice(&UUID);
        element.extend_from_slice(self.text().as_bytes());
        element
    }

    /// Returns the stamp as a data message.
    #[must_use]
    pub fn message(self) -> Bytes {
        Data { name: AMF_NAME.to_owned(), values: vec![Value::string(self.text())] }.write()
    }

    /// Finds the stamp in the NAL units of a video frame.
    #[must_use]
    pub fn in_nals(payload: &[u8]) -> Option<Self> {
        Nals::new(payload, 4)
            .take(NALS_MAX)
            .map_while(Result::ok)
            .filter(|nal| nal.first().is_some_and(|head| head & NAL_TYPE_MASK == SEI))
            .find_map(Self::in_sei)
    }

    /// Finds the stamp at the start of a raw data block of AAC.
    #[must_use]
    pub fn in_aac(payload: &[u8]) -> Option<Self> {
        Self::behind_uuid(payload.strip_prefix(&[DATA_STREAM_ELEMENT, PAYLOAD_BYTES])?)
    }

    /// Parses the data message; `None` for any other message.
    #[must_use]
    pub fn in_message(body: &[u8]) -> Option<Self> {
        let data = Data::read(body).ok().filter(|data| data.name == AMF_NAME)?;
        Self::read(data.values.first()?.as_str()?.as_bytes())
    }

    /// Finds the stamp in an SEI. The UUID may be anywhere, since a server may insert messages before it.
    fn in_sei(nal: &[u8]) -> Option<Self> {
        let nal = nal.get(..nal.len().min(SEI_BYTES_MAX))?;
        let at = nal.windows(UUID.len()).position(|window| window == UUID)?;
        Self::behind_uuid(nal.get(at..)?)
    }

    fn behind_uuid(bytes: &[u8]) -> Option<Self> {
        Self::read(bytes.strip_prefix(&UUID)?.get(..TEXT_BYTES)?)
    }

    fn read(text: &[u8]) -> Option<Self> {
        let (sequence, time) = std::str::from_utf8(text).ok()?.split_at_checked(DIGITS)?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { sequence: number(sequence)?, unix_nanos: number(time)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp { sequence: 77, unix_nanos: 1_795_000_000_123_456_789 };

    #[test]
    fn a_stamp_is_found_where_it_was_put() {
        let picture = [&[0, 0, 0, 2, 9, 0xf0][..], &STAMP.sei(), &[0, 0, 0, 2, 0x65, 0x88]].concat();
        assert_eq!(Stamp::in_nals(&picture), Some(STAMP));
        assert_eq!(Stamp::in_aac(&[&STAMP.aac_element()[..], &[0x21, 7]].concat()), Some(STAMP));
        assert_eq!(Stamp::in_message(&STAMP.message()), Some(STAMP));
        assert_eq!(Stamp::in_message(&flv::data::wrap(&STAMP.message())), Some(STAMP));
    }

    #[test]
    fn padding_is_a_message_of_about_the_size() {
        let ones = [0xff; 70_000];
        for bytes in [0, 17, 18, 19, 254, 255, 256, 273, 274, 600, 9000, 60_000] {
            let nal = STAMP.padded_sei(bytes, &ones);
            let length = usize::try_from(u32::from_be_bytes(nal[..4].try_into().unwrap())).unwrap();
            assert_eq!((length, Stamp::in_nals(&nal)), (nal.len() - 4, Some(STAMP)));
            assert!(!nal.windows(3).skip(3).any(|three| three[..2] == [0, 0] && three[2] < 4), "{bytes}");
            let added = &nal[SEI_BYTES - 1..nal.len() - 1];
            assert_eq!((added.is_empty(), nal.last()), (bytes < 18, Some(&0x80)), "{bytes}");
            let Some((kind, size)) = added.split_first() else { continue };
            assert!(added.len().abs_diff(bytes) < 2, "{bytes}: {}", added.len());
            let steps = size.iter().take_while(|byte| **byte == 0xff).count();
            // The bytes of the size precede the payload.
            let payload = steps * 255 + usize::from(size[steps]);
            assert_eq!((*kind, steps + 1 + payload), (5, size.len()), "{bytes}");
        }
    }

    #[test]
    fn documented_bytes() {
        let sei = STAMP.sei();
        assert_eq!(sei.len(), 4 + 52);
        assert_eq!(sei[..7], [0, 0, 0, 52, 6, 5, 48]);
        assert!(!sei[4..].contains(&0), "needs no emulation prevention");
        let uuid: String = UUID.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(include_str!("../../docs/bench.md").replace('-', "").contains(&uuid));
        assert!(include_str!("../../docs/bench.md").contains(AMF_NAME));
        assert_eq!(STAMP.aac_element().len(), 50);
    }

    #[test]
    fn what_has_no_stamp_gives_none() {
        assert_eq!(Stamp::in_nals(&[0, 0, 0, 2, 0x65, 0x88]), None);
        assert_eq!(Stamp::in_aac(&[0x21, 1, 2]), None);
        assert_eq!(Stamp::in_message(&Data::metadata(Vec::new()).write()), None);
        let mut other = STAMP.sei();
        other[8] ^= 1;
        assert_eq!(Stamp::in_nals(&other), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..60) {
            let _ = (Stamp::in_nals(&bytes), Stamp::in_aac(&bytes), Stamp::in_message(&bytes));
            let sei = STAMP.sei();
            let _ = Stamp::in_nals(&sei[..cut.min(sei.len())]);
            let _ = Stamp::in_aac(&STAMP.aac_element()[..cut.min(50)]);
        }
    }
}
