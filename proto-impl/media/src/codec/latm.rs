//! AAC in LATM with LOAS synchronization (ISO/IEC 14496-3 §1.7), which DVB and ISDB use instead of ADTS.
//!
//! Only streams of one program with one layer are supported, with AAC LC or HE-AAC; other streams are refused.
//! LATM frames are not byte-aligned, so each frame is copied.

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};
use wire::BitReader;

use super::{Error, aac};

/// Syncword of AudioSyncStream, eleven bits.
const SYNC: u32 = 0x2b7;
/// Length of the syncword and the length field.
pub const SYNC_BYTES: usize = 3;
/// Maximum number of frames in one element: numSubFrames has six bits.
const FRAMES_MAX: u32 = 64;
/// audioObjectType of AAC LC.
const LC: u32 = 2;

/// Returns the length of the AudioSyncStream at the start of `bytes` (§1.7.2).
pub fn element_bytes(bytes: &[u8]) -> Result<usize, Error> {
    let mut bits = BitReader::new(bytes.get(..SYNC_BYTES).unwrap_or(bytes));
    if bits.bits(11)? != SYNC {
        return Err(Error::Invalid("LOAS syncword"));
    }
    Ok(SYNC_BYTES.saturating_add(usize::try_from(bits.bits(13)?).unwrap_or(0)))
}

/// StreamMuxConfig of the following elements.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mux {
    config: aac::Config,
    frames: u32,
}

/// Reader of elements. It keeps the last configuration.
#[derive(Debug, Default)]
pub struct Reader {
    mux: Option<Mux>,
}

/// Minimum length of the fields after the AudioSpecificConfig in a StreamMuxConfig: their length if all of them are
/// zero.
const CONFIG_TAIL_BYTES: usize = 2;
/// Value of syncExtensionType for SBR (§1.6.2.1).
const SYNC_SBR: u32 = 0x2b7;
/// Value of syncExtensionType for PS; this extension follows that of SBR (§1.6.2.1).
const SYNC_PS: u32 = 0x548;

impl Reader {
    /// Creates a reader at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reader with a StreamMuxConfig signalled out of band, in a session description (RFC 6416 §7.3).
    /// Fields missing at the end are taken as zero, because GStreamer reserves too little room for them if the
    /// AudioSpecificConfig is not a short one.
    pub fn of_config(stream_mux_config: &[u8]) -> Result<Self, Error> {
        let padded = [stream_mux_config, &[0; CONFIG_TAIL_BYTES]].concat();
        read_mux(&mut BitReader::new(&padded)).map(|mux| Self { mux: Some(mux) })
    }

    /// Configuration of the frames that were read last.
    #[must_use]
    pub const fn config(&self) -> Option<&aac::Config> {
        match &self.mux {
            Some(mux) => Some(&mux.config),
            None => None,
        }
    }

    /// Reads the frames of an AudioSyncStream that has [`element_bytes`] bytes. There are none before the first
    /// configuration.
    pub fn read(&mut self, element: &[u8]) -> Result<Vec<Bytes>, Error> {
        self.read_element(element.get(SYNC_BYTES..).unwrap_or_default(), true)
    }

    /// Reads an audioMuxElement without synchronization. `config_present` is muxConfigPresent of the transport.
    pub fn read_element(&mut self, element: &[u8], config_present: bool) -> Result<Vec<Bytes>, Error> {
        let mut bits = BitReader::new(element);
        // Read useSameStreamMux.
        if config_present && !bits.bit()? {
            self.mux = None;
            self.mux = Some(read_mux(&mut bits)?);
        }
        let Some(mux) = &self.mux else { return Ok(Vec::new()) };
        (0..mux.frames).map(|_| read_frame(&mut bits)).collect()
    }
}

/// Reads PayloadLengthInfo and PayloadMux (§1.7.3.1) of one program with one layer.
fn read_frame(bits: &mut BitReader<'_>) -> Result<Bytes, Error> {
    let mut length = 0u32;
    loop {
        let byte = bits.bits(8)?;
        length = length.saturating_add(byte);
        if byte != 0xff {
            break;
        }
    }
    take(bits, usize::try_from(length).unwrap_or(usize::MAX).saturating_mul(8))
}

/// Reads the next `count` bits as byte-aligned data.
fn take(bits: &mut BitReader<'_>, count: usize) -> Result<Bytes, Error> {
    // Checks that all bytes are present before anything is allocated.
    bits.clone().skip(count)?;
    let mut out = BytesMut::with_capacity(count.div_ceil(8));
    for _ in 0..count / 8 {
        out.put_u8(u8::try_from(bits.bits(8)?).unwrap_or(0));
    }
    let left = u32::try_from(count % 8).unwrap_or(0);
    if left > 0 {
        out.put_u8(u8::try_from(bits.bits(left)? << (8 - left)).unwrap_or(0));
    }
    Ok(out.freeze())
}

/// Reads a StreamMuxConfig (§1.7.3.1).
fn read_mux(bits: &mut BitReader<'_>) -> Result<Mux, Error> {
    let version = bits.bit()?;
    if version && bits.bit()? {
        return Err(Error::Invalid("audioMuxVersionA"));
    }
    if version {
        // Skip taraBufferFullness.
        read_value(bits)?;
    }
    let same_time = bits.bit()?;
    let frames = bits.bits(6)? + 1;
    let programs = bits.bits(4)?;
    let layers = bits.bits(3)?;
    if !same_time || frames > FRAMES_MAX || programs > 0 || layers > 0 {
        return Err(Error::Invalid("several programs or layers"));
    }
    let length = if version { Some(usize::try_from(read_value(bits)?).unwrap_or(usize::MAX)) } else { None };
    let mut inner = bits.clone();
    let before = inner.remaining();
    read_specific_config(&mut inner)?;
    let own = before.saturating_sub(inner.remaining());
    let config = aac::Config::read(take(bits, length.unwrap_or(own).max(own))?)?;
    // frameLengthType: AAC only uses type 0, with variable length.
    if bits.bits(3)? != 0 {
        return Err(Error::Invalid("frameLengthType"));
    }
    // Skip latmBufferFullness.
    bits.skip(8)?;
    if bits.bit()? {
        skip_other_data(bits, version)?;
    }
    if bits.bit()? {
        // Skip crcCheckSum.
        bits.skip(8)?;
    }
    Ok(Mux { config, frames })
}

/// Skips otherDataLenBits. Other data that follows the frames is ignored.
fn skip_other_data(bits: &mut BitReader<'_>, version: bool) -> Result<(), Error> {
    if version {
        read_value(bits)?;
        return Ok(());
    }
    while bits.bit()? {
        bits.skip(8)?;
    }
    Ok(bits.skip(8)?)
}

/// Reads a LatmGetValue.
fn read_value(bits: &mut BitReader<'_>) -> Result<u32, Error> {
    let bytes = bits.bits(2)? + 1;
    Ok(bits.bits(8 * bytes)?)
}

/// Reads an AudioSpecificConfig (§1.6.2.1) of AAC LC, with or without SBR and PS. The length of the
/// AudioSpecificConfig is not stated, so its end can only be found by reading all of its fields.
fn read_specific_config(bits: &mut BitReader<'_>) -> Result<(), Error> {
    let mut object_type = read_type_and_rate(bits, true)?;
    let channels = bits.bits(4)?;
    if matches!(object_type, 5 | 29) {
        object_type = read_type_and_rate(bits, false)?;
    }
    if object_type != LC || channels == 0 {
        return Err(Error::Invalid("kind of AAC"));
    }
    // GASpecificConfig: frameLengthFlag, dependsOnCoreCoder with its delay, extensionFlag.
    if bits.bit()? {
        return Err(Error::Invalid("frameLengthFlag"));
    }
    if bits.bit()? {
        bits.skip(14)?;
    }
    bits.skip(1)?;
    skip_sync_extensions(bits)
}

/// Skips the extensions that signal SBR and PS. No valid frameLengthType of AAC looks like such an extension.
fn skip_sync_extensions(bits: &mut BitReader<'_>) -> Result<(), Error> {
    let is_next = |bits: &BitReader<'_>, kind| bits.clone().bits(11).is_ok_and(|next| next == kind);
    if !is_next(bits, SYNC_SBR) {
        return Ok(());
    }
    bits.skip(11 + 5)?;
    if !bits.bit()? {
        return Ok(());
    }
    if bits.bits(4)? == 15 {
        bits.skip(24)?;
    }
    if is_next(bits, SYNC_PS) {
        bits.skip(11 + 1)?;
    }
    Ok(())
}

/// Reads audioObjectType and samplingFrequency. After the channels of HE-AAC these fields are in the opposite
/// order.
fn read_type_and_rate(bits: &mut BitReader<'_>, type_first: bool) -> Result<u32, Error> {
    let read_type = |bits: &mut BitReader<'_>| bits.bits(5);
    let first = if type_first { read_type(bits)? } else { 0 };
    if bits.bits(4)? == 15 {
        bits.skip(24)?;
    }
    Ok(if type_first { first } else { read_type(bits)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes bits for tests.
    #[derive(Default)]
    struct Bits(Vec<bool>);

    impl Bits {
        fn put(mut self, count: u32, value: u32) -> Self {
            self.0.extend((0..count).rev().map(|n| value >> n & 1 == 1));
            self
        }

        fn bytes(&self) -> Vec<u8> {
            let byte = |bits: &[bool]| {
                bits.iter().zip((0..8).rev()).fold(0, |byte, (bit, n)| byte | u8::from(*bit) << n)
            };
            self.0.chunks(8).map(byte).collect()
        }

        fn element(&self) -> Vec<u8> {
            let body = self.bytes();
            let mut head = Self::default().put(11, SYNC).put(13, u32::try_from(body.len()).unwrap()).bytes();
            head.extend(body);
            head
        }
    }

    /// Returns a version 0 mux with an AudioSpecificConfig of 48 kHz stereo AAC LC, and its last fields.
    fn mux() -> Bits {
        Bits::default()
            .put(1, 0)
            .put(1, 0)
            .put(1, 1)
            .put(6, 0)
            .put(4, 0)
            .put(3, 0)
            .put(16, 0x1190)
            .put(3, 0)
            .put(8, 0xff)
    }

    fn frame(bits: Bits, payload: &[u8]) -> Bits {
        let bits = bits.put(8, u32::try_from(payload.len()).unwrap());
        payload.iter().fold(bits, |bits, &byte| bits.put(8, u32::from(byte)))
    }

    #[test]
    fn frames_are_read_at_any_bit_and_the_configuration_stays() {
        let first = frame(mux().put(1, 0).put(1, 0), b"frame").element();
        let same = frame(Bits::default().put(1, 1), b"next").element();
        assert_eq!(element_bytes(&first), Ok(first.len()));
        let mut reader = Reader::new();
        assert_eq!(reader.read(&same), Ok(vec![]), "not before a configuration");
        assert_eq!(reader.read(&first), Ok(vec![Bytes::from_static(b"frame")]));
        let config = reader.config().unwrap();
        assert_eq!((config.object_type, config.sample_rate, config.channel_configuration), (2, 48_000, 2));
        assert_eq!(config.record, [0x11, 0x90][..]);
        assert_eq!(reader.read(&same), Ok(vec![Bytes::from_static(b"next")]));
        // A mux that announces other data and a CRC is read, too.
        let other = frame(mux().put(1, 1).put(1, 1).put(8, 0).put(1, 0).put(8, 0).put(1, 1).put(8, 7), b"x")
            .element();
        assert_eq!(reader.read(&other), Ok(vec![Bytes::from_static(b"x")]));
    }

    #[test]
    fn version_one_tells_the_length_and_he_aac_is_taken() {
        // A mux of version 1 with two frames of HE-AAC: 24 kHz, extended by SBR to 48 kHz.
        let config = Bits::default().put(5, 5).put(4, 6).put(4, 2).put(4, 3).put(5, 2).put(3, 0);
        let mut bits =
            Bits::default().put(1, 0).put(2, 2).put(2, 0).put(8, 9).put(1, 1).put(6, 1).put(4, 0).put(3, 0);
        bits = bits.put(2, 0).put(8, u32::try_from(config.0.len()).unwrap());
        bits.0.extend(&config.0);
        let bits = bits.put(3, 0).put(8, 0xff).put(1, 0).put(1, 0);
        let element = frame(frame(bits, b"one"), b"two").element();
        let mut reader = Reader::new();
        assert_eq!(reader.read(&element), Ok(vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")]));
        let config = reader.config().unwrap();
        assert_eq!((config.object_type, config.sample_rate), (5, 24_000));
    }

    #[test]
    fn configurations_of_gstreamer_lack_their_end_and_say_that_there_is_no_sbr() {
        let described = [0x40, 0x00, 0x23, 0x20, 0xad, 0xca, 0x00];
        let reader = Reader::of_config(&described).unwrap();
        let config = reader.config().unwrap();
        assert_eq!((config.object_type, config.sample_rate, config.channel_configuration), (2, 48_000, 2));
        for end in 0..4 {
            assert!(Reader::of_config(&described[..end]).is_err(), "{end}");
        }
        // An AudioSpecificConfig of AAC LC that signals SBR and PS at its end.
        let bits =
            Bits::default().put(15, 0x2000).put(16, 0x1190).put(11, SYNC_SBR).put(5, 5).put(1, 1).put(4, 3);
        let bits = bits.put(11, SYNC_PS).put(1, 1).put(3, 0).put(8, 0xff).put(2, 0);
        assert_eq!(Reader::of_config(&bits.bytes()).unwrap().config().unwrap().channel_configuration, 2);
    }

    #[test]
    fn m_20_elements_that_lie_are_refused() {
        let whole = frame(mux().put(1, 0).put(1, 0), b"frame").element();
        for end in 0..whole.len() {
            assert!(Reader::new().read(&whole[..end]).is_err(), "{end}");
        }
        assert!(element_bytes(&[0x56, 0xe0]).is_err() && element_bytes(&[0x47, 0, 0]).is_err());
        // Not supported: several programs in one mux, and AAC ELD.
        let programs =
            Bits::default().put(2, 0).put(1, 1).put(6, 0).put(4, 1).put(30, 0).put(30, 0).element();
        assert!(Reader::new().read(&programs).is_err());
        let eld = Bits::default().put(2, 0).put(1, 1).put(13, 0).put(5, 31).put(30, 0).put(30, 0).element();
        assert!(Reader::new().read(&eld).is_err());
        // The frame's length exceeds the element.
        let long = mux().put(2, 0).put(8, 255).put(8, 255).put(8, 1).element();
        assert!(Reader::new().read(&long).is_err());
    }
}
