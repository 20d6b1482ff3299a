//! Splice information (ANSI/SCTE 35 2020): marks in a stream where the program leaves for a break and where
//! it returns.
//!
//! A section is forwarded as it was received. Only its pts_adjustment is changed, which is not encrypted even
//! in encrypted sections (§9.6).

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};
use wire::{BitReader, Reader, Truncated};

use crate::crc32;

/// Maximum size of a section: three bytes, and a section_length of at most 4093 (§9.6).
pub const SECTION_BYTES_MAX: usize = 4096;
/// Maximum number of events read from one section; a time_signal may have several segmentation descriptors.
pub const EVENTS_MAX: usize = 16;
/// Ticks per second of times and durations.
pub const TICKS_PER_SECOND: u32 = 90_000;

/// table_id of a splice_info_section.
const TABLE_ID: u8 = 0xfc;
/// Mask of the 33 bits of a time.
const TIME_MASK: u64 = (1 << 33) - 1;
/// Number of bytes that section_length does not count.
const HEAD_BYTES: usize = 3;
/// Position of encrypted_packet, encryption_algorithm and pts_adjustment.
const ADJUSTMENT_AT: usize = 4;
/// Value of splice_command_length that means unknown. Encoders of the first edition write it.
const LENGTH_UNKNOWN: u16 = 0xfff;
/// Values of splice_command_type (§9.6.1).
const NULL: u8 = 0x00;
const INSERT: u8 = 0x05;
const TIME_SIGNAL: u8 = 0x06;
const BANDWIDTH_RESERVATION: u8 = 0x07;
/// splice_descriptor_tag and identifier of a segmentation_descriptor (§10.3.3).
const TAG_SEGMENTATION: u8 = 0x02;
const CUEI: &[u8; 4] = b"CUEI";

/// Meaning of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The program leaves for a break.
    Out,
    /// The program returns from a break.
    In,
    /// Any other mark.
    Other,
    /// A previously announced event is cancelled.
    Cancel,
}

/// An event of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// splice_event_id or segmentation_event_id. A section without either has its [`checksum`] as the id, so
    /// that its repetitions have the same id.
    pub id: u32,
    /// Meaning of the event.
    pub kind: Kind,
    /// Duration in ticks of 90 kHz, as announced.
    pub duration: Option<u64>,
    /// True if the program returns by itself when the duration has passed.
    pub auto_return: bool,
}

/// A splice_info_section (§9.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Presentation time including pts_adjustment, 33 bits, in ticks of 90 kHz; `None` if the splice is
    /// immediate or the section is encrypted.
    pub pts: Option<u64>,
    /// Events of the section. Empty if the section only keeps the stream alive (splice_null,
    /// bandwidth_reservation).
    pub events: Vec<Event>,
}

impl Splice {
    /// Reads a section. `None` if the bytes are not splice information or have a wrong checksum.
    #[must_use]
    pub fn read(section: &[u8]) -> Option<Self> {
        if !is_section(section) {
            return None;
        }
        let checksum = checksum(section);
        let other = |id| Event { id, kind: Kind::Other, duration: None, auto_return: false };
        if is_encrypted(section)? {
            return Some(Self { pts: None, events: Vec::from([other(checksum)]) });
        }
        // The bytes between pts_adjustment and the checksum.
        let body = section.get(ADJUSTMENT_AT + 5..section.len().checked_sub(4)?)?;
        let Parts { command, mut rest, descriptors } = Parts::read(body).ok()?;
        let mut events = Vec::new();
        let time = match command {
            NULL | BANDWIDTH_RESERVATION => None,
            INSERT => {
                let (time, event) = insert_of(&mut rest).ok()?;
                events.push(event);
                time
            }
            TIME_SIGNAL => {
                let time = time_of(&mut rest).ok()?;
                segmentations(descriptors, &mut events);
                if events.is_empty() {
                    events.push(other(checksum));
                }
                time
            }
            _ => {
                events.push(other(checksum));
                None
            }
        };
        let pts = time.map(|time| time.wrapping_add(adjustment(section)) & TIME_MASK);
        Some(Self { pts, events })
    }
}

/// Returns true if the bytes are a whole splice_info_section with a correct checksum.
#[must_use]
pub fn is_section(bytes: &[u8]) -> bool {
    let Some([TABLE_ID, high, low]) = bytes.first_chunk::<HEAD_BYTES>() else { return false };
    let length = usize::from(u16::from_be_bytes([high & 0x0f, *low]));
    (ADJUSTMENT_AT + 5 + 7 + 4..=SECTION_BYTES_MAX).contains(&bytes.len())
        && bytes.len() == HEAD_BYTES + length
        && crc32(bytes) == 0
}

/// Returns the checksum that the section would have if its pts_adjustment were zero. All repetitions of a
/// section have the same value, even if their times were moved.
#[must_use]
pub fn checksum(section: &[u8]) -> u32 {
    adjusted(section, 0).last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Returns a copy of the section whose times are later by `by` ticks; this is done by changing its
/// pts_adjustment. `None` if the bytes are not a section.
#[must_use]
pub fn shifted(section: &[u8], by: u64) -> Option<Bytes> {
    is_section(section).then(|| adjusted(section, adjustment(section).wrapping_add(by) & TIME_MASK))
}

/// Returns a copy of the section in which the splice is at this presentation time. If the time is absent or
/// encrypted, the section is returned unchanged. `None` if the bytes are not a section.
#[must_use]
pub fn moved_to(section: &[u8], pts: u64) -> Option<Bytes> {
    match Splice::read(section)?.pts {
        Some(before) => shifted(section, pts.wrapping_sub(before)),
        None => Some(Bytes::copy_from_slice(section)),
    }
}

/// Returns a section with one splice_insert at time zero; [`moved_to`] sets another time. A duration is in
/// ticks of 90 kHz; when it has passed, the program returns by itself.
#[must_use]
pub fn insert(id: u32, kind: Kind, duration: Option<u64>) -> Bytes {
    inserted(id, kind, duration, true)
}

/// Returns a section like that of [`insert`], but with an immediate splice, which takes effect at the section's own
/// place in the stream.
#[must_use]
pub fn immediate(id: u32, kind: Kind, duration: Option<u64>) -> Bytes {
    inserted(id, kind, duration, false)
}

fn inserted(id: u32, kind: Kind, duration: Option<u64>, is_timed: bool) -> Bytes {
    let mut command = BytesMut::new();
    command.put_u32(id);
    if kind == Kind::Cancel {
        command.put_u8(0xff);
    } else {
        command.put_u8(0x7f);
        let is_out = if kind == Kind::Out { 0x80 } else { 0 };
        // program_splice_flag, event_id_compliance_flag and reserved bits.
        let is_immediate = if is_timed { 0 } else { 0x10 };
        command.put_u8(is_out | 0x40 | if duration.is_some() { 0x20 } else { 0 } | is_immediate | 0x0f);
        if is_timed {
            put_time(0xfe, 0, &mut command);
        }
        duration.into_iter().for_each(|duration| put_time(0xfe, duration & TIME_MASK, &mut command));
        // Write unique_program_id, avail_num and avails_expected.
        command.put_slice(&[0, 1, 0, 0]);
    }
    let mut out = BytesMut::new();
    let length = u16::try_from(command.len()).unwrap_or(0);
    out.put_u8(TABLE_ID);
    // No section syntax, not private, no stream access point; the length from protocol_version to the
    // checksum.
    out.put_u16(0x3000 | length.saturating_add(17));
    out.put_slice(&[0; 7]);
    // A tier of 0xfff, which means that the section is for all receivers.
    out.put_u8(0xff);
    out.put_u16(0xf000 | length);
    out.put_u8(INSERT);
    out.put_slice(&command);
    out.put_u16(0);
    let checksum = crc32(&out);
    out.put_u32(checksum);
    out.freeze()
}

/// Returns a copy of a section, for a stream whose timestamps have all been increased by
/// `later_ms`. Also works if the section's times are encrypted. Bytes that are not a section are
/// returned unchanged.
#[must_use]
pub fn moved_along(section: &Bytes, later_ms: i64) -> Bytes {
    let by = later_ms.saturating_mul(i64::from(TICKS_PER_SECOND / 1000)).cast_unsigned();
    shifted(section, by).unwrap_or_else(|| section.clone())
}

/// Writes a 33-bit time. Its top bit becomes the lowest bit of the first byte; the other bits of that byte
/// are those of `flags`.
fn put_time(flags: u8, time: u64, out: &mut BytesMut) {
    out.put_u8(flags | u8::from(time >> 32 & 1 == 1));
    out.put_u32(u32::try_from(time & 0xffff_ffff).unwrap_or(0));
}

fn is_encrypted(section: &[u8]) -> Option<bool> {
    Some(section.get(ADJUSTMENT_AT)? & 0x80 != 0)
}

fn adjustment(section: &[u8]) -> u64 {
    let bytes = section.get(ADJUSTMENT_AT..).and_then(|rest| rest.first_chunk::<5>());
    bytes.map_or(0, |[high, low @ ..]| u64::from(high & 1) << 32 | u64::from(u32::from_be_bytes(*low)))
}

fn adjusted(section: &[u8], adjustment: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(section.len());
    out.put_slice(section.get(..ADJUSTMENT_AT).unwrap_or_default());
    put_time(section.get(ADJUSTMENT_AT).map_or(0, |flags| flags & 0xfe), adjustment, &mut out);
    let end = section.len().saturating_sub(4);
    out.put_slice(section.get(ADJUSTMENT_AT + 5..end).unwrap_or_default());
    let checksum = crc32(&out);
    out.put_u32(checksum);
    out.freeze()
}

/// The unencrypted parts of a section after pts_adjustment.
struct Parts<'a> {
    command: u8,
    rest: Reader<'a>,
    descriptors: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Truncated> {
        let mut reader = Reader::new(body);
        // Skip cw_index and most of tier. The next 16 bits are the end of tier and splice_command_length.
        reader.u16()?;
        let length = reader.u16()? & 0x0fff;
        let command = reader.u8()?;
        if length == LENGTH_UNKNOWN {
            return Self::of_unknown_length(command, reader);
        }
        let rest = reader.sub(usize::from(length))?;
        let loop_length = reader.u16()?;
        let descriptors = reader.take(usize::from(loop_length))?;
        Ok(Self { command, rest, descriptors })
    }

    /// Parses a section with an unknown command length. The command ends where its last field ends.
    fn of_unknown_length(command: u8, mut reader: Reader<'a>) -> Result<Self, Truncated> {
        let all = reader.rest();
        let mut ahead = Reader::new(all);
        match command {
            INSERT => drop(insert_of(&mut ahead)?),
            TIME_SIGNAL => drop(time_of(&mut ahead)?),
            _ => {}
        }
        let loop_length = ahead.u16().unwrap_or(0);
        let descriptors = ahead.take(usize::from(loop_length)).unwrap_or_default();
        Ok(Self { command, rest: Reader::new(all), descriptors })
    }
}

/// Reads a splice_time (§9.9.1).
fn time_of(reader: &mut Reader<'_>) -> Result<Option<u64>, Truncated> {
    let first = reader.u8()?;
    if first & 0x80 == 0 {
        return Ok(None);
    }
    Ok(Some(u64::from(first & 1) << 32 | u64::from(reader.u32()?)))
}

/// Reads a splice_insert (§9.7.3).
fn insert_of(reader: &mut Reader<'_>) -> Result<(Option<u64>, Event), Truncated> {
    let id = reader.u32()?;
    if reader.u8()? & 0x80 != 0 {
        return Ok((None, Event { id, kind: Kind::Cancel, duration: None, auto_return: false }));
    }
    let flags = reader.u8()?;
    let [is_out, is_whole, has_duration, is_immediate] =
        [0x80, 0x40, 0x20, 0x10].map(|flag| flags & flag != 0);
    let mut time = None;
    if is_whole && !is_immediate {
        time = time_of(reader)?;
    }
    if !is_whole {
        let components = reader.u8()?;
        for _ in 0..components {
            reader.u8()?;
            if !is_immediate {
                let own = time_of(reader)?;
                time = time.or(own);
            }
        }
    }
    let (mut duration, mut auto_return) = (None, false);
    if has_duration {
        let first = reader.u8()?;
        auto_return = first & 0x80 != 0;
        duration = Some(u64::from(first & 1) << 32 | u64::from(reader.u32()?));
    }
    // Skip unique_program_id, avail_num and avails_expected.
    reader.u32()?;
    let kind = if is_out { Kind::Out } else { Kind::In };
    Ok((time, Event { id, kind, duration, auto_return }))
}

/// Reads the segmentation descriptors of a loop (§10.3.3). Unreadable descriptors are skipped.
fn segmentations(descriptors: &[u8], events: &mut Vec<Event>) {
    let mut reader = Reader::new(descriptors);
    while let (Ok(tag), Ok(length)) = (reader.u8(), reader.u8()) {
        let Ok(body) = reader.take(usize::from(length)) else { return };
        let segmentation = body.strip_prefix(CUEI).filter(|_| tag == TAG_SEGMENTATION);
        if let Some(event) = segmentation.and_then(|body| segmentation_of(body).ok())
            && events.len() < EVENTS_MAX
        {
            events.push(event);
        }
    }
}

fn segmentation_of(body: &[u8]) -> Result<Event, Truncated> {
    let mut reader = Reader::new(body);
    let id = reader.u32()?;
    if reader.u8()? & 0x80 != 0 {
        return Ok(Event { id, kind: Kind::Cancel, duration: None, auto_return: false });
    }
    let flags = reader.u8()?;
    if flags & 0x80 == 0 {
        let components = reader.u8()?;
        reader.take(usize::from(components).saturating_mul(6))?;
    }
    let mut duration = None;
    if flags & 0x40 != 0 {
        let mut bits = BitReader::new(reader.take(5)?);
        duration = Some(u64::from(bits.bits(8)?) << 32 | u64::from(bits.bits(32)?));
    }
    reader.u8()?;
    let upid = reader.u8()?;
    reader.take(usize::from(upid))?;
    Ok(Event { id, kind: segmentation_kind(reader.u8()?), duration, auto_return: false })
}

/// Returns the meaning of a segmentation_type_id (table 23). Breaks, advertisements, placement opportunities
/// and ad blocks begin with an even number and end with the odd number after it.
const fn segmentation_kind(id: u8) -> Kind {
    match id {
        0x22 | 0x30 | 0x32 | 0x34 | 0x36 | 0x38 | 0x3a | 0x44 | 0x46 => Kind::Out,
        0x23 | 0x31 | 0x33 | 0x35 | 0x37 | 0x39 | 0x3b | 0x45 | 0x47 => Kind::In,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `SCTE 35 2020 §14.1`: time_signal with a provider placement opportunity.
    const SIGNAL: &str = "fc3034000000000000fffff00506fe72bd0050001e021c435545494800008e7fcf0001a599b00808000000002ca0a18a3402009ac9d17e";
    /// `SCTE 35 2020 §14.2`: splice_insert.
    const INSERTED: &str = "fc302f000000000000fffff014054800008f7feffe7369c02efe0052ccf500000000000a0008435545490000013562dba30a";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// Makes a section with this command and without descriptors.
    fn section(command: u8, body: &[u8], length: u16) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.put_u8(TABLE_ID);
        out.put_u16(0x3000 | u16::try_from(body.len() + 17).unwrap());
        out.put_slice(&[0, 0, 0, 0, 0, 0, 0, 0xff]);
        out.put_u16(0xf000 | length);
        out.put_u8(command);
        out.put_slice(body);
        out.put_u16(0);
        let checksum = crc32(&out);
        out.put_u32(checksum);
        out.to_vec()
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        let event =
            Event { id: 0x4800_008e, kind: Kind::Out, duration: Some(0x1a5_99b0), auto_return: false };
        let signal = Splice { pts: Some(0x72bd_0050), events: vec![event] };
        assert_eq!(Splice::read(&bytes(SIGNAL)), Some(signal));
        let event = Event { id: 0x4800_008f, kind: Kind::Out, duration: Some(0x52_ccf5), auto_return: true };
        let inserted = Splice { pts: Some(0x7369_c02e), events: vec![event] };
        assert_eq!(Splice::read(&bytes(INSERTED)), Some(inserted));
    }

    #[test]
    fn times_wrap_at_33_bits_and_a_section_is_moved_by_its_adjustment() {
        for pts in [0, 1, 0x7369_c02e, TIME_MASK] {
            let moved = moved_to(&bytes(INSERTED), pts).unwrap();
            assert_eq!(Splice::read(&moved).unwrap().pts, Some(pts));
            assert_eq!(moved.len(), bytes(INSERTED).len());
            assert_eq!(
                &moved[ADJUSTMENT_AT + 5..moved.len() - 4],
                &bytes(INSERTED)[ADJUSTMENT_AT + 5..moved.len() - 4]
            );
        }
        let later = shifted(&bytes(INSERTED), TIME_MASK).unwrap();
        assert_eq!(Splice::read(&later).unwrap().pts, Some(0x7369_c02d), "one tick before");
        assert_eq!((shifted(b"no section", 1), moved_to(b"", 1)), (None, None));
        let later = |ms| moved_along(&Bytes::from(bytes(INSERTED)), ms);
        assert_eq!(Some(later(-1000)), shifted(&bytes(INSERTED), TIME_MASK + 1 - 90_000));
        assert_eq!(Splice::read(&later(2)).unwrap().pts, Some(0x7369_c02e + 180));
        assert_eq!(moved_along(&Bytes::from_static(b"no section"), 1), "no section");
    }

    #[test]
    fn encrypted_sections_are_one_mark_and_keep_all_bytes_but_the_adjustment() {
        let mut encrypted = bytes(INSERTED);
        encrypted[ADJUSTMENT_AT] |= 0x80;
        encrypted[ADJUSTMENT_AT + 5] = 0xff;
        let end = encrypted.len() - 4;
        let checksum = crc32(&encrypted[..end]);
        encrypted[end..].copy_from_slice(&checksum.to_be_bytes());
        let splice = Splice::read(&encrypted).unwrap();
        let event = Event { id: checksum, kind: Kind::Other, duration: None, auto_return: false };
        assert_eq!(splice, Splice { pts: None, events: vec![event] });
        assert_eq!(moved_to(&encrypted, 7).unwrap(), encrypted);
        let later = shifted(&encrypted, 7).unwrap();
        assert_eq!((later[ADJUSTMENT_AT], adjustment(&later)), (0x80, 7));
        assert_eq!(later[ADJUSTMENT_AT + 5..end], encrypted[ADJUSTMENT_AT + 5..end]);
        assert_eq!(Splice::read(&later).unwrap(), splice, "a repetition is the same mark");
    }

    #[test]
    fn commands_that_say_nothing_have_no_events_and_unknown_ones_are_marks() {
        let events = |command, body: &[u8]| {
            let length = u16::try_from(body.len()).unwrap();
            Splice::read(&section(command, body, length)).unwrap().events
        };
        assert_eq!(events(NULL, b""), []);
        assert_eq!(events(BANDWIDTH_RESERVATION, b""), []);
        assert_eq!(events(0xff, b"CUEIprivate")[0].kind, Kind::Other);
        assert_eq!(events(TIME_SIGNAL, &[0x7f])[0].kind, Kind::Other);
        let private = section(0xff, b"CUEIprivate", 11);
        let later = Splice::read(&shifted(&private, 9).unwrap()).unwrap();
        assert_eq!(later.events[0].id, Splice::read(&private).unwrap().events[0].id);
        assert_ne!(later.events[0].id, events(0xff, b"CUEIanother")[0].id);
        let cancel = Splice::read(&insert(9, Kind::Cancel, None)).unwrap();
        assert_eq!((cancel.pts, cancel.events[0].id, cancel.events[0].kind), (None, 9, Kind::Cancel));
    }

    #[test]
    fn a_command_without_a_length_ends_where_it_says() {
        for (hex, end) in [(SIGNAL, 5), (INSERTED, 20)] {
            let mut old = bytes(hex);
            (old[11], old[12]) = (0xff, 0xff);
            let at = old.len() - 4;
            let checksum = crc32(&old[..at]);
            old[at..].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(Splice::read(&old), Splice::read(&bytes(hex)), "{end} bytes");
        }
    }

    #[test]
    fn splices_of_components_and_immediate_ones_are_read() {
        let program = [0, 0, 0, 5, 0x7f, 0x80 | 0x40 | 0x10, 0, 1, 0, 0];
        let splice = Splice::read(&section(INSERT, &program, 10)).unwrap();
        assert_eq!((splice.pts, splice.events[0].kind), (None, Kind::Out));
        let parts = [0, 0, 0, 5, 0x7f, 0, 2, 1, 0x7f, 2, 0xfe, 0, 0, 0, 9, 0, 1, 0, 0];
        let splice = Splice::read(&section(INSERT, &parts, 19)).unwrap();
        assert_eq!((splice.pts, splice.events[0].kind), (Some(9), Kind::In));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (kind, duration) in [(Kind::Out, None), (Kind::Out, Some(TIME_MASK)), (Kind::In, None)] {
            let moved = moved_to(&insert(77, kind, duration), 90_000).unwrap();
            let event = Event { id: 77, kind, duration, auto_return: duration.is_some() };
            assert_eq!(Splice::read(&moved), Some(Splice { pts: Some(90_000), events: vec![event] }));
            let immediate = immediate(77, kind, duration);
            assert_eq!(Splice::read(&immediate), Some(Splice { pts: None, events: vec![event] }));
            assert_eq!(moved_to(&immediate, 90_000), Some(immediate));
        }
    }

    #[test]
    fn t_17_sections_that_lie_are_none_and_events_are_capped() {
        for hex in [SIGNAL, INSERTED] {
            let whole = bytes(hex);
            assert!((0..whole.len()).all(|end| Splice::read(&whole[..end]).is_none()));
            assert_eq!(Splice::read(&[&whole[..], b"x"].concat()), None);
        }
        // Wrong lengths within the section cause no panic, even if the checksum is correct.
        let mut lies = bytes(SIGNAL);
        for at in 11..lies.len() - 4 {
            for value in [0, 1, 0x7f, 0xff] {
                let before = std::mem::replace(&mut lies[at], value);
                let end = lies.len() - 4;
                let checksum = crc32(&lies[..end]);
                lies[end..].copy_from_slice(&checksum.to_be_bytes());
                let _ = Splice::read(&lies);
                lies[at] = before;
            }
        }
        let descriptor = [&[2, 15][..], CUEI, &[0, 0, 0, 1, 0x7f, 0xbf, 0, 0, 0x34, 0, 0]].concat();
        let mut events = Vec::new();
        segmentations(&descriptor.repeat(100), &mut events);
        assert_eq!(events.len(), EVENTS_MAX);
    }

    proptest! {
        #[test]
        fn any_command_is_read_without_harm(
            command in prop_oneof![Just(INSERT), Just(TIME_SIGNAL), any::<u8>()],
            body in proptest::collection::vec(any::<u8>(), 0..80),
            length in prop_oneof![Just(LENGTH_UNKNOWN), 0u16..100],
            pts in 0..=TIME_MASK,
        ) {
            let section = section(command, &body, length);
            prop_assert!(is_section(&section));
            if let Some(splice) = Splice::read(&section) {
                prop_assert!(splice.events.len() <= EVENTS_MAX);
                let moved = moved_to(&section, pts).unwrap();
                prop_assert_eq!(Splice::read(&moved).unwrap().pts, splice.pts.map(|_| pts));
            }
        }
    }
}
