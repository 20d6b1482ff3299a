//! H.265 (RFC 7798) without decoding order numbers: single NAL units, aggregation packets and fragmentation units.
//!
//! ```text
//! NAL unit header   F(1) Type(6) LayerId(6) TID(3)
//! AP                header(48) { size(16) NAL unit } ...
//! FU                header(49) FU header: S(1) E(1) Type(6), a fragment
//! ```

use bytes::{BufMut, BytesMut};
use media::codec::{CodecConfig, h265};
use media::nal;
use wire::Reader;

use super::frames::{Assemble, Ending};
use super::h264::close_nal;
use super::{Error, Payloads, fragments};

/// RFC 7798 §4.4.2.
const AP: u8 = 48;
/// RFC 7798 §4.4.3.
const FU: u8 = 49;
/// Bytes of a NAL unit header.
const HEAD_BYTES: usize = 2;
/// Payload header and FU header.
const FU_BYTES: usize = 3;
/// A size in an aggregation packet.
const SIZE_BYTES: usize = 2;
/// S and E of the FU header.
const FU_START: u8 = 0x80;
const FU_END: u8 = 0x40;
/// The type in the first byte of a header.
const TYPE: u8 = 0x7e;

/// Small NAL units that follow each other, and may go in one packet.
#[derive(Debug, Default)]
struct Aggregate<'a> {
    nals: Vec<&'a [u8]>,
    bytes: usize,
}

impl<'a> Aggregate<'a> {
    fn add(&mut self, nal: &'a [u8], max: usize, out: &mut Payloads) {
        let bytes = SIZE_BYTES.saturating_add(nal.len());
        if self.bytes.saturating_add(bytes).saturating_add(HEAD_BYTES) > max {
            self.flush(out);
        }
        self.nals.push(nal);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn flush(&mut self, out: &mut Payloads) {
        if let [nal] = self.nals.as_slice() {
            out.push(&[nal]);
        } else if !self.nals.is_empty() {
            // The lowest layer and the lowest temporal id of them (RFC 7798 §4.4.2).
            let heads = || self.nals.iter().filter_map(|nal| nal.first_chunk::<HEAD_BYTES>());
            let layer_of = |[first, second]: [u8; 2]| u16::from_be_bytes([first & 1, second]) >> 3;
            let layer = heads().map(|head| layer_of(*head)).min().unwrap_or(0);
            let temporal = heads().map(|head| head[1] & 7).min().unwrap_or(1);
            let forbidden = heads().fold(0, |bit, head| bit | (head[0] & 0x80));
            let [high, low] = ((u16::from(AP) << 9) | (layer << 3)).to_be_bytes();
            out.bytes.put_slice(&[high | forbidden, low | temporal]);
            for nal in &self.nals {
                out.bytes.put_u16(u16::try_from(nal.len()).unwrap_or(u16::MAX));
                out.bytes.put_slice(nal);
            }
            out.push(&[]);
        }
        self.nals.clear();
        self.bytes = 0;
    }
}

/// See [`super::Packetizer::packetize`].
pub(super) fn packetize(
    config: &CodecConfig,
    key_frame: bool,
    unit: &[u8],
    max: usize,
    out: &mut Payloads,
) -> Result<(), Error> {
    let max = max.min(usize::from(u16::MAX));
    let mut aggregate = Aggregate::default();
    let brings_sets =
        || nal::Nals::new(unit, 4).flatten().any(|nal| h265::nal_type(nal) == Some(h265::NAL_SPS));
    if let CodecConfig::H265(config) = config
        && key_frame
        && !brings_sets()
    {
        config.parameter_sets().for_each(|set| add(set, max, &mut aggregate, out));
    }
    for nal in nal::Nals::new(unit, 4) {
        add(nal.map_err(|_| Error::BadUnit)?, max, &mut aggregate, out);
    }
    aggregate.flush(out);
    Ok(())
}

fn add<'a>(nal: &'a [u8], max: usize, aggregate: &mut Aggregate<'a>, out: &mut Payloads) {
    let Some((&[first, second], body)) = nal.split_first_chunk::<HEAD_BYTES>() else { return };
    let kind = (first >> 1) & 0x3f;
    if matches!(kind, h265::NAL_AUD | h265::NAL_FILLER) {
        return;
    }
    if nal.len() <= max {
        return aggregate.add(nal, max, out);
    }
    aggregate.flush(out);
    for (piece, start, end) in fragments::equal(body, max.saturating_sub(FU_BYTES)) {
        let flags = if start { FU_START } else { 0 } | if end { FU_END } else { 0 };
        out.push(&[&[(first & !TYPE) | (FU << 1), second, flags | kind], piece]);
    }
}

/// See [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// Where the length of the NAL unit stands that comes in fragments.
    fragmented: Option<usize>,
}

impl Assemble for Depacketizer {
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let mut reader = Reader::new(payload);
        let kind = (reader.u16()? >> 9) & 0x3f;
        if kind == u16::from(FU) {
            return self.append_fragment(payload, frame);
        }
        if self.fragmented.is_some() {
            return Err(Error::Malformed("FU that never ends"));
        }
        match kind {
            0..=47 => nal::put_with_length(payload, frame),
            48 => {
                while !reader.is_empty() {
                    let size = usize::from(reader.u16()?);
                    let nal = reader.take(size)?;
                    if nal.len() < HEAD_BYTES || h265::nal_type(nal).is_none_or(|kind| kind >= AP) {
                        return Err(Error::Malformed("NAL unit in aggregation packet"));
                    }
                    nal::put_with_length(nal, frame);
                }
            }
            50 => return Err(Error::Unsupported("PACI")),
            _ => return Err(Error::Malformed("NAL unit type")),
        }
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, after_gap: bool) -> Ending {
        if self.fragmented.take().is_some() {
            return Ending::Broken;
        }
        let mut key_frame = false;
        let mut first_picture = None;
        for nal in nal::Nals::new(frame, 4).flatten() {
            key_frame |= h265::is_key(nal);
            if first_picture.is_none() && h265::is_picture(nal) {
                first_picture = Some(h265::begins_picture(nal));
            }
        }
        match first_picture {
            None => Ending::NoPicture,
            Some(false) if after_gap => Ending::Broken,
            Some(_) => Ending::Whole { key_frame },
        }
    }

    fn reset(&mut self) {
        self.fragmented = None;
    }
}

impl Depacketizer {
    fn append_fragment(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let mut reader = Reader::new(payload);
        let (first, second, header) = (reader.u8()?, reader.u8()?, reader.u8()?);
        if header & FU_START != 0 {
            if self.fragmented.is_some() {
                return Err(Error::Malformed("FU that never ends"));
            }
            let kind = header & 0x3f;
            if kind >= AP {
                return Err(Error::Malformed("NAL unit in FU"));
            }
            self.fragmented = Some(frame.len());
            frame.put_u32(0);
            frame.put_slice(&[(first & !TYPE) | (kind << 1), second]);
        }
        let at = self.fragmented.ok_or(Error::Malformed("FU without its start"))?;
        frame.put_slice(reader.rest());
        if header & FU_END != 0 {
            self.fragmented = None;
            close_nal(frame, at);
        }
        Ok(())
    }
}
