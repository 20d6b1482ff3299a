//! H.264 (RFC 6184): single NAL units, STAP-A and FU-A, which is packetization-mode 1.
//!
//! ```text
//! NAL unit header   F(1) NRI(2) Type(5)
//! STAP-A            header(24) { size(16) NAL unit } ...
//! FU-A              indicator(28) header: S(1) E(1) R(1) Type(5), a fragment
//! ```

use bytes::{BufMut, BytesMut};
use media::codec::{CodecConfig, h264};
use media::nal;
use wire::Reader;

use super::frames::{Assemble, Ending};
use super::{Error, Payloads, fragments};

/// RFC 6184 §5.7.1.
const STAP_A: u8 = 24;
/// RFC 6184 §5.8.
const FU_A: u8 = 28;
/// FU indicator and FU header.
const FU_BYTES: usize = 2;
/// A size in an aggregation packet.
const SIZE_BYTES: usize = 2;
/// S and E of the FU header.
const FU_START: u8 = 0x80;
const FU_END: u8 = 0x40;
/// F and NRI of a NAL unit header.
const F_NRI: u8 = 0xe0;
const NRI: u8 = 0x60;
const F: u8 = 0x80;

/// Small NAL units that follow each other, and may go in one packet.
#[derive(Debug, Default)]
struct Aggregate<'a> {
    nals: Vec<&'a [u8]>,
    bytes: usize,
}

impl<'a> Aggregate<'a> {
    fn add(&mut self, nal: &'a [u8], max: usize, out: &mut Payloads) {
        let bytes = SIZE_BYTES.saturating_add(nal.len());
        if self.bytes.saturating_add(bytes).saturating_add(1) > max {
            self.flush(out);
        }
        self.nals.push(nal);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn flush(&mut self, out: &mut Payloads) {
        if let [nal] = self.nals.as_slice() {
            out.push(&[nal]);
        } else if !self.nals.is_empty() {
            // The forbidden bit of any, the importance of the most important (RFC 6184 §5.7).
            let heads = || self.nals.iter().filter_map(|nal| nal.first());
            let forbidden = heads().fold(0, |bit, head| bit | (head & F));
            let importance = heads().map(|head| head & NRI).max().unwrap_or(0);
            out.bytes.put_u8(forbidden | importance | STAP_A);
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
    // No aggregate may be larger than its 16-bit sizes can say.
    let max = max.min(usize::from(u16::MAX));
    let mut aggregate = Aggregate::default();
    let brings_sets = || nal::Nals::new(unit, 4).flatten().any(|nal| h264::nal_type(nal) == h264::NAL_SPS);
    if let CodecConfig::H264(config) = config
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
    let Some((&head, body)) = nal.split_first() else { return };
    // Delimiters and filling say nothing that the packets do not.
    if matches!(h264::nal_type(nal), h264::NAL_AUD | h264::NAL_FILLER) {
        return;
    }
    if nal.len() <= max {
        return aggregate.add(nal, max, out);
    }
    aggregate.flush(out);
    for (piece, first, last) in fragments::equal(body, max.saturating_sub(FU_BYTES)) {
        let flags = if first { FU_START } else { 0 } | if last { FU_END } else { 0 };
        out.push(&[&[(head & F_NRI) | FU_A, flags | h264::nal_type(nal)], piece]);
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
        let kind = h264::nal_type(payload);
        if kind == FU_A {
            return self.append_fragment(payload, frame);
        }
        if self.fragmented.is_some() {
            return Err(Error::Malformed("FU-A that never ends"));
        }
        match kind {
            1..=23 => nal::put_with_length(payload, frame),
            STAP_A => {
                let mut reader = Reader::new(payload);
                reader.u8()?;
                while !reader.is_empty() {
                    let size = usize::from(reader.u16()?);
                    let nal = reader.take(size)?;
                    if !matches!(h264::nal_type(nal), 1..=23) {
                        return Err(Error::Malformed("NAL unit in STAP-A"));
                    }
                    nal::put_with_length(nal, frame);
                }
            }
            25..=27 | 29 => return Err(Error::Unsupported("interleaved mode")),
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
            let kind = h264::nal_type(nal);
            key_frame |= kind == h264::NAL_IDR || (kind == h264::NAL_SEI && h264::is_recovery_point(nal));
            if first_picture.is_none() && h264::is_picture(nal) {
                first_picture = Some(h264::begins_picture(nal));
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
        let (indicator, header) = (reader.u8()?, reader.u8()?);
        let start = header & FU_START != 0;
        if start {
            // A NAL unit in a single fragment is forbidden (RFC 6184 §5.8), and taken: it is whole.
            if self.fragmented.is_some() {
                return Err(Error::Malformed("FU-A that never ends"));
            }
            let head = (indicator & F_NRI) | (header & !F_NRI);
            if !matches!(head & 0x1f, 1..=23) {
                return Err(Error::Malformed("NAL unit in FU-A"));
            }
            self.fragmented = Some(frame.len());
            frame.put_u32(0);
            frame.put_u8(head);
        }
        let at = self.fragmented.ok_or(Error::Malformed("FU-A without its start"))?;
        frame.put_slice(reader.rest());
        if header & FU_END != 0 {
            self.fragmented = None;
            close_nal(frame, at);
        }
        Ok(())
    }
}

/// Writes the length of the NAL unit that began behind `at` and ends here.
pub(super) fn close_nal(frame: &mut BytesMut, at: usize) {
    let length = frame.len().saturating_sub(at).saturating_sub(4);
    if let Some(place) = frame.get_mut(at..at.saturating_add(4)) {
        place.copy_from_slice(&u32::try_from(length).unwrap_or(0).to_be_bytes());
    }
}
