//! NAL units in packets: single, aggregated, and fragmented. H.264 and H.265 differ only in their headers.
//!
//! Some kinds of malformed input, which cameras send, cost only a NAL unit, not the picture: reserved types,
//! and sizes of 0 or trailing zeros in an aggregation packet. Start codes, which cannot occur within a NAL unit
//! (H.264 §7.4.1), divide a payload into several units. The last fragment may lack its end bit, because its
//! loss would be detected by the sequence numbers.

use alloc::vec::Vec;

use bytes::{BufMut, BytesMut};
use media::codec::CodecConfig;
use media::nal;
use wire::Reader;

use super::frames::{Assemble, Ending};
use super::{Error, Payloads, even, fragments};

/// Length of a size field in an aggregation packet.
const SIZE_BYTES: usize = 2;
/// Longest NAL unit header, in bytes.
const HEAD_BYTES_MAX: usize = 2;
/// Length of a fragment's FU header: `S` and `E` bits and the type.
const FU_BYTES: usize = 1;
const FU_START: u8 = 0x80;
const FU_END: u8 = 0x40;

/// NAL unit header; only the first [`NalFormat::HEAD_BYTES`] bytes are used.
pub(super) type Head = [u8; HEAD_BYTES_MAX];

/// Structure of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Single,
    Aggregate,
    Fragment,
    /// Reserved type; skipped.
    Reserved,
}

/// Codec-specific part of NAL unit payloads.
pub(super) trait NalFormat: Default {
    /// Length of a NAL unit header, which is also that of a payload header.
    const HEAD_BYTES: usize;

    /// Returns the parameter sets of a configuration of this codec; none for another codec.
    fn parameter_sets(config: &CodecConfig) -> impl Iterator<Item = &[u8]>;
    /// True if the NAL unit is a sequence parameter set.
    fn is_sps(nal: &[u8]) -> bool;
    /// True if the NAL unit carries no information: a delimiter or filler data.
    fn says_nothing(nal: &[u8]) -> bool;
    /// True if the NAL unit is a slice of a picture.
    fn is_picture(nal: &[u8]) -> bool;
    /// True if the NAL unit is the first slice of a picture.
    fn begins_picture(nal: &[u8]) -> bool;
    /// True if the NAL unit belongs to a random access point.
    fn is_key(nal: &[u8]) -> bool;

    /// Returns the payload header of an aggregation packet with these NAL units.
    fn aggregate_head(nals: &[&[u8]]) -> Head;
    /// Returns the payload header for fragments of a NAL unit, and the unit's type.
    fn fragment_head(nal: Head) -> (Head, u8);
    /// Returns the header of a NAL unit received in fragments.
    fn fragmented_head(payload: Head, kind: u8) -> Head;
    /// Returns the structure of a payload, from its header.
    fn form(payload: &[u8]) -> Result<Form, Error>;
}

/// Small consecutive NAL units that can be sent in one packet.
struct Aggregate<'a, 'o> {
    nals: Vec<&'a [u8]>,
    bytes: usize,
    max: usize,
    /// True if fragments have the maximum size; otherwise each NAL unit is divided into equal parts.
    even: bool,
    out: &'o mut Payloads,
}

/// Packetizes a unit; see [`super::Packetizer::packetize`]. With `added_max`, the fragments of all NAL units get a
/// common length. Padding may then add as many bytes as `added_max` leaves after the headers of additional packets.
pub(super) fn packetize<F: NalFormat>(
    config: &CodecConfig,
    key_frame: bool,
    unit: &[u8],
    max: usize,
    added_max: Option<&mut usize>,
    out: &mut Payloads,
) -> Result<(), Error> {
    // An aggregate must not exceed the range of its 16-bit sizes.
    let mut max = max.min(usize::from(u16::MAX));
    let has_sets = !key_frame || nal::Nals::new(unit, 4).flatten().any(F::is_sps);
    let even = added_max.is_some();
    if let Some(added_max) = added_max {
        let units = sets_and_units::<F>(config, has_sets, unit).flatten();
        let lengths = units.filter(|nal| is_sent::<F>(nal)).map(<[u8]>::len);
        let lengths: Vec<usize> = lengths.collect();
        let heads = (F::HEAD_BYTES + FU_BYTES, F::HEAD_BYTES);
        (max, *added_max) = even::common_length(&lengths, max, heads, *added_max);
    }
    divide::<F>(config, has_sets, unit, (max, even), out)
}

/// Appends payloads of at most `max` bytes; `even` as in [`Aggregate`].
pub(super) fn divide<F: NalFormat>(
    config: &CodecConfig,
    has_sets: bool,
    unit: &[u8],
    (max, even): (usize, bool),
    out: &mut Payloads,
) -> Result<(), Error> {
    let mut aggregate = Aggregate { nals: Vec::new(), bytes: 0, max, even, out };
    for nal in sets_and_units::<F>(config, has_sets, unit) {
        aggregate.add::<F>(nal?);
    }
    aggregate.flush::<F>();
    Ok(())
}

/// Iterates over the NAL units of `unit`. Unless `has_sets`, the parameter sets of `config` come first.
fn sets_and_units<'a, F: NalFormat>(
    config: &'a CodecConfig,
    has_sets: bool,
    unit: &'a [u8],
) -> impl Iterator<Item = Result<&'a [u8], Error>> {
    let sets = F::parameter_sets(config).filter(move |_| !has_sets).map(Ok);
    sets.chain(nal::Nals::new(unit, 4).map(|nal| nal.map_err(|_| Error::BadUnit)))
}

/// True if the NAL unit is sent; delimiters and filler data are not.
fn is_sent<F: NalFormat>(nal: &[u8]) -> bool {
    split_head::<F>(nal).is_some() && !F::says_nothing(nal)
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
        let size = if self.even { room } else { fragments::equal_size(body.len(), room) };
        for (piece, first, last) in fragments::pieces(body, size) {
            let flags = if first { FU_START } else { 0 } | if last { FU_END } else { 0 };
            self.out.push(&[head, &[flags | kind], piece]);
        }
    }
}

/// Splits a NAL unit or payload into its header and the rest.
fn split_head<F: NalFormat>(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (head, body) = bytes.split_at_checked(F::HEAD_BYTES)?;
    let mut out = Head::default();
    out.get_mut(..F::HEAD_BYTES)?.copy_from_slice(head);
    Some((out, body))
}

/// Depacketizer of H.264 and H.265; see [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer<F> {
    /// Offset of the length field of the NAL unit being received in fragments.
    fragmented: Option<usize>,
    format: core::marker::PhantomData<F>,
}

impl<F: NalFormat> Assemble for Depacketizer<F> {
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let form = if begins_with_start_code(payload) { Form::Single } else { F::form(payload)? };
        if form != Form::Fragment {
            self.close_fragmented(frame);
        }
        match form {
            Form::Single => put_units::<F>(payload, frame),
            Form::Aggregate => {
                let mut reader = Reader::new(payload.get(F::HEAD_BYTES..).unwrap_or_default());
                // A single zero byte at the end is not a size.
                while reader.remaining() > 1 || reader.peek().is_some_and(|byte| byte != 0) {
                    let size = usize::from(reader.u16()?);
                    put_units::<F>(reader.take(size)?, frame);
                }
            }
            Form::Fragment => return self.append_fragment(payload, frame),
            Form::Reserved => {}
        }
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, after_gap: bool) -> Ending {
        self.close_fragmented(frame);
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

    fn is_unfinished(&self) -> bool {
        self.fragmented.is_some()
    }

    fn continues(&self, payload: &[u8]) -> bool {
        let header = split_head::<F>(payload).and_then(|(_, behind)| behind.first().copied());
        self.is_unfinished()
            && F::form(payload) == Ok(Form::Fragment)
            && header.is_some_and(|header| header & FU_START == 0)
    }
}

impl<F: NalFormat> Depacketizer<F> {
    fn append_fragment(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let (head, behind) = split_head::<F>(payload).ok_or(Error::Malformed("fragment"))?;
        let (&header, piece) = behind.split_first().ok_or(Error::Malformed("fragment"))?;
        if header & FU_START != 0 {
            // A NAL unit in a single fragment is forbidden (RFC 6184 §5.8, RFC 7798 §4.4.3), but accepted,
            // because it is complete.
            self.close_fragmented(frame);
            let head = F::fragmented_head(head, header & !(FU_START | FU_END));
            self.fragmented = Some(frame.len());
            frame.put_u32(0);
            frame.put_slice(head.get(..F::HEAD_BYTES).unwrap_or_default());
        }
        if self.fragmented.is_none() {
            return Err(Error::Malformed("fragment without its start"));
        }
        frame.put_slice(piece);
        if header & FU_END != 0 {
            self.close_fragmented(frame);
        }
        Ok(())
    }

    /// Completes the NAL unit received in fragments: writes its length, splits it at start codes, or discards
    /// it.
    fn close_fragmented(&mut self, frame: &mut BytesMut) {
        let Some(at) = self.fragmented.take() else { return };
        let unit = frame.get(at.saturating_add(4)..).unwrap_or_default();
        if find_start_code(unit).is_none() && F::form(unit) == Ok(Form::Single) {
            let length = u32::try_from(unit.len()).unwrap_or(0);
            if let Some(place) = frame.get_mut(at..at.saturating_add(4)) {
                place.copy_from_slice(&length.to_be_bytes());
            }
        } else {
            let unit = frame.split_off(at);
            put_units::<F>(unit.get(4..).unwrap_or_default(), frame);
        }
    }
}

/// Appends the NAL units of a payload: one, or several separated by start codes.
fn put_units<F: NalFormat>(payload: &[u8], frame: &mut BytesMut) {
    let mut put = |nal: &[u8]| {
        if F::form(nal) == Ok(Form::Single) {
            nal::put_with_length(nal, frame);
        }
    };
    match find_start_code(payload) {
        None => put(payload),
        Some(at) => {
            let first = payload.get(..at).unwrap_or_default();
            // Removes the first byte of a four-byte start code.
            put(first.strip_suffix(&[0]).unwrap_or(first));
            nal::AnnexB::new(payload).for_each(put);
        }
    }
}

fn begins_with_start_code(payload: &[u8]) -> bool {
    payload.starts_with(&[0, 0, 1]) || payload.starts_with(&nal::START_CODE)
}

/// Returns the position of the first three-byte start code.
fn find_start_code(bytes: &[u8]) -> Option<usize> {
    // A byte above 1 cannot be part of a start code, so the next byte that could end a start code is three
    // bytes later.
    let mut at = 2usize;
    while let Some(&byte) = bytes.get(at) {
        let begin = at.saturating_sub(2);
        match byte {
            0 => at = at.saturating_add(1),
            1 if bytes.get(begin..at) == Some(&[0, 0]) => return Some(begin),
            _ => at = at.saturating_add(3),
        }
    }
    None
}
