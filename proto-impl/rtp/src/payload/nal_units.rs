//! NAL units in packets: alone, several in one packet, one in several. H.264 and H.265 differ only in their heads.

use bytes::{BufMut, BytesMut};
use media::codec::CodecConfig;
use media::nal;
use wire::Reader;

use super::frames::{Assemble, Ending};
use super::{Error, Payloads, fragments};

/// A size in an aggregation packet.
const SIZE_BYTES: usize = 2;
/// The longest head of a NAL unit.
const HEAD_BYTES_MAX: usize = 2;
/// The header of a fragment: `S` and `E`, then the type.
const FU_BYTES: usize = 1;
const FU_START: u8 = 0x80;
const FU_END: u8 = 0x40;

/// A head, of which the first [`NalFormat::HEAD_BYTES`] count.
pub(super) type Head = [u8; HEAD_BYTES_MAX];

/// The structure of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Single,
    Aggregate,
    Fragment,
}

/// The codec-specific part of NAL unit payloads.
pub(super) trait NalFormat: Default {
    /// Bytes of the head of a NAL unit, which is also that of a payload.
    const HEAD_BYTES: usize;

    /// The parameter sets of a track of this codec; none of another's.
    fn parameter_sets(config: &CodecConfig) -> impl Iterator<Item = &[u8]>;
    /// Whether it is a sequence parameter set.
    fn is_sps(nal: &[u8]) -> bool;
    /// Delimiters and filling say nothing that the packets do not.
    fn says_nothing(nal: &[u8]) -> bool;
    /// Whether it is (a slice of) a picture; the first slice of one; one that a decoder can start at.
    fn is_picture(nal: &[u8]) -> bool;
    fn begins_picture(nal: &[u8]) -> bool;
    fn is_key(nal: &[u8]) -> bool;

    /// The head of a packet with these NAL units.
    fn aggregate_head(nals: &[&[u8]]) -> Head;
    /// The head of the packets with the fragments of a NAL unit, and its type.
    fn fragment_head(nal: Head) -> (Head, u8);
    /// The head of the NAL unit that comes in such fragments; `None` for types that do not.
    fn fragmented_head(payload: Head, kind: u8) -> Option<Head>;
    /// The structure of a payload by its head.
    fn form(payload: &[u8]) -> Result<Form, Error>;
}

/// Small NAL units that follow each other, and may go in one packet.
struct Aggregate<'a, 'o> {
    nals: Vec<&'a [u8]>,
    bytes: usize,
    max: usize,
    out: &'o mut Payloads,
}

/// See [`super::Packetizer::packetize`].
pub(super) fn packetize<F: NalFormat>(
    config: &CodecConfig,
    key_frame: bool,
    unit: &[u8],
    max: usize,
    out: &mut Payloads,
) -> Result<(), Error> {
    // No aggregate may be larger than its 16-bit sizes can say.
    let max = max.min(usize::from(u16::MAX));
    let mut aggregate = Aggregate { nals: Vec::new(), bytes: 0, max, out };
    if key_frame && !nal::Nals::new(unit, 4).flatten().any(F::is_sps) {
        F::parameter_sets(config).for_each(|set| aggregate.add::<F>(set));
    }
    for nal in nal::Nals::new(unit, 4) {
        aggregate.add::<F>(nal.map_err(|_| Error::BadUnit)?);
    }
    aggregate.flush::<F>();
    Ok(())
}

impl<'a> Aggregate<'a, '_> {
    fn add<F: NalFormat>(&mut self, nal: &'a [u8]) {
        let Some((head, body)) = split_head::<F>(nal).filter(|_| !F::says_nothing(nal)) else { return };
        if nal.len() > self.max {
            self.flush::<F>();
            return self.fragment::<F>(head, body);
        }
        let bytes = SIZE_BYTES.saturating_add(nal.len());
        if self.bytes.saturating_add(bytes).saturating_add(F::HEAD_BYTES) > self.max {
            self.flush::<F>();
        }
        self.nals.push(nal);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn flush<F: NalFormat>(&mut self) {
        if let [nal] = self.nals.as_slice() {
            self.out.push(&[nal]);
        } else if !self.nals.is_empty() {
            let head = F::aggregate_head(&self.nals);
            self.out.bytes.put_slice(head.get(..F::HEAD_BYTES).unwrap_or_default());
            for nal in &self.nals {
                self.out.bytes.put_u16(u16::try_from(nal.len()).unwrap_or(u16::MAX));
                self.out.bytes.put_slice(nal);
            }
            self.out.push(&[]);
        }
        self.nals.clear();
        self.bytes = 0;
    }

    fn fragment<F: NalFormat>(&mut self, head: Head, body: &[u8]) {
        let (head, kind) = F::fragment_head(head);
        let head = head.get(..F::HEAD_BYTES).unwrap_or_default();
        let room = self.max.saturating_sub(F::HEAD_BYTES + FU_BYTES);
        for (piece, first, last) in fragments::equal(body, room) {
            let flags = if first { FU_START } else { 0 } | if last { FU_END } else { 0 };
            self.out.push(&[head, &[flags | kind], piece]);
        }
    }
}

/// The head of a NAL unit or payload, and what is behind it.
fn split_head<F: NalFormat>(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (head, body) = bytes.split_at_checked(F::HEAD_BYTES)?;
    let mut out = Head::default();
    out.get_mut(..F::HEAD_BYTES)?.copy_from_slice(head);
    Some((out, body))
}

/// See [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer<F> {
    /// Offset of the length of the NAL unit that arrives in fragments.
    fragmented: Option<usize>,
    format: std::marker::PhantomData<F>,
}

impl<F: NalFormat> Assemble for Depacketizer<F> {
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let form = F::form(payload)?;
        if form != Form::Fragment && self.fragmented.is_some() {
            return Err(Error::Malformed("fragments that never end"));
        }
        match form {
            Form::Single => nal::put_with_length(payload, frame),
            Form::Aggregate => {
                let mut reader = Reader::new(payload.get(F::HEAD_BYTES..).unwrap_or_default());
                while !reader.is_empty() {
                    let size = usize::from(reader.u16()?);
                    let nal = reader.take(size)?;
                    if F::form(nal) != Ok(Form::Single) {
                        return Err(Error::Malformed("NAL unit among several"));
                    }
                    nal::put_with_length(nal, frame);
                }
            }
            Form::Fragment => return self.append_fragment(payload, frame),
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
            key_frame |= F::is_key(nal);
            if first_picture.is_none() && F::is_picture(nal) {
                first_picture = Some(F::begins_picture(nal));
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

impl<F: NalFormat> Depacketizer<F> {
    fn append_fragment(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let (head, behind) = split_head::<F>(payload).ok_or(Error::Malformed("fragment"))?;
        let (&header, piece) = behind.split_first().ok_or(Error::Malformed("fragment"))?;
        if header & FU_START != 0 {
            // A NAL unit in a single fragment is forbidden (RFC 6184 §5.8, RFC 7798 §4.4.3), and taken: it is whole.
            if self.fragmented.is_some() {
                return Err(Error::Malformed("fragments that never end"));
            }
            let head = F::fragmented_head(head, header & !(FU_START | FU_END))
                .ok_or(Error::Malformed("NAL unit in fragments"))?;
            self.fragmented = Some(frame.len());
            frame.put_u32(0);
            frame.put_slice(head.get(..F::HEAD_BYTES).unwrap_or_default());
        }
        let at = self.fragmented.ok_or(Error::Malformed("fragment without its start"))?;
        frame.put_slice(piece);
        if header & FU_END != 0 {
            self.fragmented = None;
            close_nal(frame, at);
        }
        Ok(())
    }
}

/// Writes the length of the NAL unit that began behind `at` and ends here.
fn close_nal(frame: &mut BytesMut, at: usize) {
    let length = frame.len().saturating_sub(at).saturating_sub(4);
    if let Some(place) = frame.get_mut(at..at.saturating_add(4)) {
        place.copy_from_slice(&u32::try_from(length).unwrap_or(0).to_be_bytes());
    }
}
