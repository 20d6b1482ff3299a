//! The ES descriptor in `esds` (ISO/IEC 14496-14 §5.6, ISO/IEC 14496-1 §7.2.6), which describes AAC and MP3.
//!
//! ```text
//! ES_Descriptor(3): ES_ID(16) flags(8)
//!   DecoderConfigDescriptor(4): objectTypeIndication(8) streamType(6) 0 1 bufferSizeDB(24) maxBitrate(32) avgBitrate(32)
//!     DecoderSpecificInfo(5): AudioSpecificConfig
//!   SLConfigDescriptor(6): 2
//! ```

use wire::Reader;

use crate::Error;
use crate::boxes::{short_in, version_and_flags};
use crate::writer::BitRate;
use crate::writer::out::Out;

const ES: u8 = 3;
const DECODER_CONFIG: u8 = 4;
const DECODER_SPECIFIC_INFO: u8 = 5;
const SL_CONFIG: u8 = 6;
/// Flag streamDependenceFlag of an ES_Descriptor.
const FLAG_DEPENDENCE: u8 = 0x80;
/// Flag URL_Flag of an ES_Descriptor.
const FLAG_URL: u8 = 0x40;
/// Flag OCRstreamFlag of an ES_Descriptor.
const FLAG_OCR: u8 = 0x20;
/// streamType 5 (audio), with upStream 0 and the reserved bit.
const AUDIO_STREAM: u8 = 0x15;
/// Maximum number of bytes of a length field (ISO/IEC 14496-1 §8.3.3).
const LENGTH_BYTES_MAX: usize = 4;

/// objectTypeIndication of MPEG-4 AAC.
pub(crate) const OBJECT_TYPE_AAC: u8 = 0x40;
/// objectTypeIndications of MPEG-2 AAC: Main, LC, SSR.
pub(crate) const OBJECT_TYPES_AAC_MPEG2: core::ops::RangeInclusive<u8> = 0x66..=0x68;
/// objectTypeIndication of ISO/IEC 13818-3 audio.
pub(crate) const OBJECT_TYPE_MPEG2_AUDIO: u8 = 0x69;
/// objectTypeIndication of ISO/IEC 11172-3 audio.
pub(crate) const OBJECT_TYPE_MPEG1_AUDIO: u8 = 0x6b;

/// Description of a track in an ES descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Esds<'a> {
    /// objectTypeIndication.
    pub(crate) object_type: u8,
    /// DecoderSpecificInfo; empty if absent.
    pub(crate) info: &'a [u8],
}

impl<'a> Esds<'a> {
    /// Parses the payload of the box.
    pub(crate) fn read(payload: &'a [u8]) -> Result<Self, Error> {
        let short = short_in(b"esds");
        let mut reader = Reader::new(payload);
        version_and_flags(&mut reader).map_err(&short)?;
        let mut es = descriptor(&mut reader, ES)?.ok_or(Error::Invalid("ES_Descriptor"))?;
        es.u16().map_err(&short)?;
        let flags = es.u8().map_err(&short)?;
        if flags & FLAG_DEPENDENCE != 0 {
            es.u16().map_err(&short)?;
        }
        if flags & FLAG_URL != 0 {
            let length = es.u8().map_err(&short)?;
            es.take(length.into()).map_err(&short)?;
        }
        if flags & FLAG_OCR != 0 {
            es.u16().map_err(&short)?;
        }
        let config = descriptor(&mut es, DECODER_CONFIG)?;
        let mut config = config.ok_or(Error::Invalid("DecoderConfigDescriptor"))?;
        let object_type = config.u8().map_err(&short)?;
        config.take(12).map_err(&short)?;
        let info = descriptor(&mut config, DECODER_SPECIFIC_INFO)?;
        Ok(Self { object_type, info: info.map(|mut info| info.rest()).unwrap_or_default() })
    }
}

/// Returns the next descriptor with this tag; others before it are skipped.
fn descriptor<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<Option<Reader<'a>>, Error> {
    let short = short_in(b"esds");
    while !reader.is_empty() {
        let found = reader.u8().map_err(&short)?;
        let length = length(reader)?;
        let body = reader.sub(length).map_err(&short)?;
        if found == tag {
            return Ok(Some(body));
        }
    }
    Ok(None)
}

/// Reads a sizeOfInstance: seven bits per byte. The highest bit of a byte is set if another byte follows.
fn length(reader: &mut Reader<'_>) -> Result<usize, Error> {
    let mut length = 0;
    for _ in 0..LENGTH_BYTES_MAX {
        let byte = reader.u8().map_err(short_in(b"esds"))?;
        length = length << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Ok(length);
        }
    }
    Err(Error::Invalid("sizeOfInstance"))
}

/// Writes the payload of the box after its version and flags.
pub(crate) fn write(out: &mut Out, track: u32, object_type: u8, info: &[u8], rate: BitRate) {
    let info_bytes = if info.is_empty() { 0 } else { descriptor_bytes(info.len()) };
    let config_bytes = 13usize.saturating_add(info_bytes);
    let es_bytes = 3usize.saturating_add(descriptor_bytes(config_bytes)).saturating_add(descriptor_bytes(1));
    head(out, ES, es_bytes);
    // ES_ID is 0 or the lower bits of track_ID (ISO/IEC 14496-14 §5.6.1).
    out.u16(u16::try_from(track & 0xffff).unwrap_or(0)).u8(0);
    head(out, DECODER_CONFIG, config_bytes);
    out.u8(object_type).u8(AUDIO_STREAM).u24(rate.buffer_bytes).u32(rate.max).u32(rate.average);
    if !info.is_empty() {
        head(out, DECODER_SPECIFIC_INFO, info.len());
        out.bytes(info);
    }
    head(out, SL_CONFIG, 1);
    out.u8(2);
}

/// Returns the length of a descriptor with a payload of `bytes`. Length fields are always written with four bytes,
/// because many readers require that.
const fn descriptor_bytes(bytes: usize) -> usize {
    bytes.saturating_add(1 + LENGTH_BYTES_MAX)
}

fn head(out: &mut Out, tag: u8, bytes: usize) {
    out.u8(tag);
    for shift in [21, 14, 7, 0] {
        let seven = u8::try_from(bytes >> shift & 0x7f).unwrap_or(0);
        out.u8(if shift == 0 { seven } else { seven | 0x80 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(info: &[u8]) -> Vec<u8> {
        let mut out = Out::new();
        out.u32(0);
        write(&mut out, 1, OBJECT_TYPE_AAC, info, BitRate { buffer_bytes: 6, max: 7, average: 8 });
        out.into_bytes().to_vec()
    }

    #[test]
    fn descriptors_are_read_as_they_are_written() {
        for info in [&[][..], &[0x11, 0x90], &[7; 300]] {
            let bytes = written(info);
            assert_eq!(Esds::read(&bytes), Ok(Esds { object_type: OBJECT_TYPE_AAC, info }));
        }
    }

    #[test]
    fn short_lengths_and_optional_fields_are_read() {
        // All optional fields: stream dependence, a URL of two bytes, and OCR; then an unknown
        // descriptor.
        let bytes = [
            &[0, 0, 0, 0, 3, 32, 0, 1, 0xe0, 0, 2, 2, b'a', b'b', 0, 3, 0x70, 1, 9][..],
            &[4, 17, 0x6b, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2, 1, 2],
        ]
        .concat();
        assert_eq!(Esds::read(&bytes), Ok(Esds { object_type: 0x6b, info: &[1, 2] }));
    }

    #[test]
    fn m_20_descriptors_that_lie() {
        let bytes = written(&[0x11, 0x90]);
        for end in 0..bytes.len() - 6 {
            assert!(Esds::read(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(
            Esds::read(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            Err(Error::Invalid("sizeOfInstance"))
        );
        assert_eq!(Esds::read(&[0, 0, 0, 0]), Err(Error::Invalid("ES_Descriptor")));
    }
}
