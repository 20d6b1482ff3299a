//! AV1 (RTP Payload Format for AV1 1.0 §4): packets consist of elements, which are OBUs without size fields.
//!
//! ```text
//! aggregation header   Z(1) Y(1) W(2) N(1) 0(3)
//!    Z                 the first element continues one in the previous packet
//!    Y                 the last element continues in the next packet
//!    W                 number of elements, the last of which has no length; 0: each has one
//! ```

use alloc::vec::Vec;

use bytes::{BufMut, BytesMut};
use media::codec::av1;
use wire::Reader;

use super::frames::{Assemble, Ending};
use super::layers::Segment;
use super::{Error, FRAME_BYTES_MAX, Payloads, fragments};

const Z: u8 = 0x80;
const Y: u8 = 0x40;
/// N bit: first packet of a coded video sequence.
const N: u8 = 0x08;
/// Maximum number of elements that W can count.
const ELEMENTS_MAX: u8 = 3;
/// Maximum number of parts of a unit that are distinguished. A unit with more of them is not divided.
const SEGMENTS_MAX: usize = 16;
/// obu_has_size_field.
const HAS_SIZE: u8 = 0x02;
/// obu_extension_flag.
const HAS_EXTENSION: u8 = 0x04;

/// An OBU being written: its header without the size field, then its body.
struct Element<'a> {
    head: &'a [u8],
    body: &'a [u8],
}

impl<'a> Element<'a> {
    const fn len(&self) -> usize {
        self.head.len().saturating_add(self.body.len())
    }

    /// Takes the first `count` bytes, in two parts: from the header and from the body.
    fn take(&mut self, count: usize) -> [&'a [u8]; 2] {
        let (head, head_left) = self.head.split_at(count.min(self.head.len()));
        let from_body = count.saturating_sub(head.len()).min(self.body.len());
        let (body, body_left) = self.body.split_at(from_body);
        (self.head, self.body) = (head_left, body_left);
        [head, body]
    }
}

/// Packetizes a temporal unit; see [`super::Packetizer::packetize`].
pub(super) fn packetize(key_frame: bool, unit: &[u8], max: usize, out: &mut Payloads) -> Result<(), Error> {
    let mut reader = Reader::new(unit);
    let mut obus = Vec::new();
    while !reader.is_empty() {
        let obu = av1::read_obu(&mut reader).map_err(|_| Error::BadUnit)?;
        // Omits OBUs that are useless to a receiver (§5): delimiters, tile lists, padding.
        if !matches!(obu.kind, av1::OBU_TEMPORAL_DELIMITER | av1::OBU_TILE_LIST | av1::OBU_PADDING) {
            obus.push((obu.head_without_size(), obu.body));
        }
    }
    let elements: Vec<_> = obus.iter().map(|(head, body)| Element { head, body }).collect();
    let bytes: usize = elements.iter().map(Element::len).sum();
    // In addition to the aggregation header, each packet may contain two element lengths.
    let room = fragments::equal_size(bytes, max.saturating_sub(1)).max(1).saturating_add(1).min(max);
    write_packets(elements, room, key_frame, out);
    Ok(())
}

/// Fills packets of `room` bytes with the elements, in order.
fn write_packets(elements: Vec<Element<'_>>, room: usize, key_frame: bool, out: &mut Payloads) {
    let mut elements = elements.into_iter().peekable();
    let mut current = elements.next();
    let mut continues = false;
    let mut sequence = if key_frame { N } else { 0 };
    while current.is_some() {
        let at = out.bytes.len();
        out.bytes.put_u8(0);
        let mut head = if continues { Z } else { 0 } | core::mem::take(&mut sequence);
        continues = false;
        let mut count = 0u8;
        while let Some(element) = &mut current {
            count += 1;
            let left = room.saturating_sub(out.bytes.len() - at);
            let length = element.len();
            let behind = left.saturating_sub(length).saturating_sub(av1::leb128_bytes(length));
            // Another element may follow if there is room for its first byte, too.
            if count < ELEMENTS_MAX && elements.peek().is_some() && behind > 1 && length < left {
                av1::put_leb128(length, &mut out.bytes);
                element.take(length).iter().for_each(|piece| out.bytes.put_slice(piece));
                current = elements.next();
                continue;
            }
            element.take(left).iter().for_each(|piece| out.bytes.put_slice(piece));
            if element.len() > 0 {
                continues = true;
                head |= Y;
            } else {
                current = elements.next();
            }
            break;
        }
        if let Some(place) = out.bytes.get_mut(at) {
            *place = head | (count << 4);
        }
        out.push(&[]);
    }
}

/// Depacketizer of AV1; see [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// The element that continues in the next packet.
    open: Option<BytesMut>,
    first: Option<u8>,
    sequence_header: bool,
    /// True if the first frame of the unit is a key frame; `None` before the first frame.
    key: Option<bool>,
    /// Parts of the unit: its spatial layers, and what belongs to all of them.
    segments: Vec<Segment>,
    /// The unit has too many parts.
    undivided: bool,
}

impl Assemble for Depacketizer {
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let mut reader = Reader::new(payload);
        let head = reader.u8()?;
        if (head & Z != 0) != self.open.is_some() {
            return Err(Error::Malformed("continuation of an OBU"));
        }
        let wanted = (head >> 4) & 3;
        let mut count = 0u8;
        while !reader.is_empty() {
            count = count.saturating_add(1);
            let length = if wanted > 0 && count == wanted {
                reader.remaining()
            } else {
                av1::read_leb128(&mut reader).map_err(|_| Error::Malformed("OBU element length"))?
            };
            let element = reader.take(length)?;
            let goes_on = reader.is_empty() && head & Y != 0;
            self.take_element(element, goes_on, frame)?;
        }
        if count < wanted {
            return Err(Error::Malformed("number of OBU elements"));
        }
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, after_gap: bool) -> Ending {
        let mut segments = core::mem::take(&mut self.segments);
        let ending = self.end_layers(frame, &mut segments, after_gap);
        segments.clear();
        // Keeps the allocation.
        self.segments = segments;
        ending
    }

    fn end_layers(&mut self, _frame: &mut BytesMut, layers: &mut Vec<Segment>, after_gap: bool) -> Ending {
        if self.open.take().is_some() {
            return Ending::Broken;
        }
        // A unit that contains only a sequence header is combined with the frame after it.
        let Some(first) = self.first.take() else { return Ending::NoPicture };
        let key_frame = self.key.take() == Some(true) && self.sequence_header;
        self.sequence_header = false;
        self.undivided = false;
        layers.append(&mut self.segments);
        match first {
            // At least part of the frame header is lost.
            av1::OBU_TILE_GROUP if after_gap => Ending::Broken,
            _ => Ending::Whole { key_frame },
        }
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn pending_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, BytesMut::len)
    }
}

impl Depacketizer {
    fn take_element(&mut self, element: &[u8], goes_on: bool, frame: &mut BytesMut) -> Result<(), Error> {
        match (self.open.take(), goes_on) {
            (None, false) => self.put_obu(element, frame),
            (None, true) => {
                self.open = Some(element.into());
                Ok(())
            }
            (Some(mut open), goes_on) => {
                open.extend_from_slice(element);
                if goes_on {
                    self.open = Some(open);
                    return Ok(());
                }
                self.put_obu(&open, frame)
            }
        }
    }

    /// Appends a complete OBU with its size field.
    fn put_obu(&mut self, element: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let mut reader = Reader::new(element);
        let head = reader.u8()?;
        if head & 0x80 != 0 {
            return Err(Error::Malformed("obu_forbidden_bit"));
        }
        let extension = if head & HAS_EXTENSION != 0 { Some(reader.u8()?) } else { None };
        let body = if head & HAS_SIZE != 0 {
            // A sender should omit the size, but need not (§4.5).
            let length = av1::read_leb128(&mut reader).map_err(|_| Error::Malformed("obu_size"))?;
            reader.take(length)?
        } else {
            reader.rest()
        };
        let kind = (head >> 3) & 0x0f;
        if matches!(kind, av1::OBU_TEMPORAL_DELIMITER | av1::OBU_TILE_LIST | av1::OBU_PADDING) {
            return Ok(());
        }
        if frame.len().saturating_add(body.len()) > FRAME_BYTES_MAX {
            return Err(Error::FrameTooLarge);
        }
        self.sequence_header |= kind == av1::OBU_SEQUENCE_HEADER;
        // show_existing_frame(1), frame_type(2): the former is 0 and the latter is KEY_FRAME (AV1 §5.9.2).
        let is_header = matches!(kind, av1::OBU_FRAME | av1::OBU_FRAME_HEADER);
        let is_key = is_header && body.first().is_some_and(|byte| byte & 0xe0 == 0);
        if is_header && self.key.is_none() {
            self.key = Some(is_key);
        }
        let start = frame.len();
        if self.first.is_none() && is_picture(kind) {
            self.first = Some(kind);
        }
        frame.put_u8(head | HAS_SIZE);
        frame.extend(extension);
        av1::put_leb128(body.len(), frame);
        frame.put_slice(body);
        // temporal_id(3), spatial_id(2) (§5.3.3). Without an extension, a frame is of the lowest layer.
        let layer = extension.map_or(0, |ids| ids >> 3 & 3);
        let spatial =
            (is_picture(kind) || extension.is_some() && kind != av1::OBU_SEQUENCE_HEADER).then_some(layer);
        self.put_segment(spatial, is_key, start, frame.len());
        Ok(())
    }

    /// Adds an OBU to the layer of the OBU before it, or as a layer of its own. The units of streams with a single layer
    /// have one or two segments.
    fn put_segment(&mut self, spatial: Option<u8>, is_key: bool, start: usize, end: usize) {
        let continues = self.segments.last().is_some_and(|last| last.spatial == spatial);
        self.undivided |= !continues && self.segments.len() >= SEGMENTS_MAX;
        if self.undivided {
            let is_key = self.segments.first().is_some_and(|first| first.is_key);
            self.segments.clear();
            self.segments.push(Segment { spatial: Some(0), inter_layer: true, is_key, start: 0, bytes: end });
        } else if let Some(last) = self.segments.last_mut().filter(|_| continues) {
            last.is_key |= is_key;
            last.bytes = end.saturating_sub(last.start);
        } else {
            // The header of a frame does not tell whether it is predicted from a lower layer.
            let bytes = end.saturating_sub(start);
            self.segments.push(Segment { spatial, inter_layer: true, is_key, start, bytes });
        }
    }
}

const fn is_picture(kind: u8) -> bool {
    matches!(
        kind,
        av1::OBU_FRAME_HEADER | av1::OBU_TILE_GROUP | av1::OBU_FRAME | av1::OBU_REDUNDANT_FRAME_HEADER
    )
}
