//! Sections in transport packets (§2.4.4): pointer field, reassembly, checksum.

use alloc::vec::Vec;

use bytes::{BufMut, BytesMut};
use media::crc32;
use wire::Reader;

use crate::Error;

/// Largest section of a PAT or PMT: section_length is at most 1021 (§2.4.4.3), after three bytes.
const SECTION_BYTES_MAX: usize = 1024;
/// Length of the header up to and including section_length.
const HEAD_BYTES: usize = 3;
/// Minimum section_length: the rest of the header, and the CRC.
const LENGTH_MIN: usize = 9;
/// table_id that marks stuffing instead of a section.
const TABLE_ID_STUFFING: u8 = 0xff;

/// A section with a valid CRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    pub(crate) table_id: u8,
    /// Program number, or transport stream id.
    pub(crate) id: u16,
    pub(crate) version: u8,
    /// True if the section is valid now; false if it will be valid next.
    pub(crate) current: bool,
    pub(crate) number: u8,
    pub(crate) body: &'a [u8],
}

impl<'a> Section<'a> {
    /// Parses a complete section, from its table_id to its CRC.
    fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if crc32(bytes) != 0 {
            return Err(Error::Crc);
        }
        let mut reader = Reader::new(bytes);
        let table_id = reader.u8()?;
        reader.u16()?;
        let id = reader.u16()?;
        let version = reader.u8()?;
        let number = reader.u8()?;
        reader.u8()?;
        let body = reader.remaining().checked_sub(4).ok_or(Error::Invalid("section_length"))?;
        Ok(Self {
            table_id,
            id,
            version: (version >> 1) & 0x1f,
            current: version & 1 != 0,
            number,
            body: reader.take(body)?,
        })
    }

    /// Writes the section with its CRC. It is the only section of its table.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        let start = out.len();
        let length = u16::try_from(self.body.len().saturating_add(LENGTH_MIN)).unwrap_or(u16::MAX);
        out.put_u8(self.table_id);
        out.put_u16(0xb000 | (length & 0x0fff));
        out.put_u16(self.id);
        out.put_u8(0xc0 | (self.version << 1) | u8::from(self.current));
        out.put_u16(u16::from(self.number) << 8);
        out.put_slice(self.body);
        let crc = crc32(out.get(start..).unwrap_or_default());
        out.put_u32(crc);
    }
}

/// Reassembles the sections of one PID.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// Maximum size of a section in bytes.
    largest: usize,
    held: Vec<u8>,
    /// True if a section is being received, or if the next one may begin directly after the last.
    open: bool,
    last: Option<u8>,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::with_largest(SECTION_BYTES_MAX)
    }
}

impl Assembler {
    /// Creates an assembler of sections of at most `largest` bytes.
    pub(crate) const fn with_largest(largest: usize) -> Self {
        Self { largest, held: Vec::new(), open: false, last: None }
    }

    /// Discards an incomplete section.
    pub(crate) fn reset(&mut self) {
        *self = Self::with_largest(self.largest);
    }

    /// Handles the payload of a packet. Calls `take` with each complete section, or with the error if the section is
    /// invalid.
    pub(crate) fn push(
        &mut self,
        continuity: u8,
        unit_start: bool,
        payload: &[u8],
        mut take: impl FnMut(Result<Section<'_>, Error>),
    ) {
        self.push_any(continuity, unit_start, payload, |bytes| take(bytes.and_then(Section::read)));
    }

    /// Like [`Self::push`], for sections of any syntax. Calls `take` with the bytes of each section, unchecked.
    pub(crate) fn push_any(
        &mut self,
        continuity: u8,
        unit_start: bool,
        payload: &[u8],
        mut take: impl FnMut(Result<&[u8], Error>),
    ) {
        let expected = self.last.map(|last| (last + 1) & 0x0f);
        if self.last == Some(continuity) && !unit_start {
            return;
        }
        self.last = Some(continuity);
        if expected.is_some_and(|expected| expected != continuity) {
            self.close();
        }
        if !unit_start {
            self.append(payload, &mut take);
            return;
        }
        let mut reader = Reader::new(payload);
        let pointer = reader.u8().map_or(0, usize::from);
        let Ok(tail) = reader.take(pointer) else {
            self.close();
            return take(Err(Error::Invalid("pointer_field")));
        };
        self.append(tail, &mut take);
        self.close();
        self.open = true;
        self.append(reader.rest(), &mut take);
    }

    fn close(&mut self) {
        self.held.clear();
        self.open = false;
    }

    fn append(&mut self, mut bytes: &[u8], take: &mut impl FnMut(Result<&[u8], Error>)) {
        while self.open && !bytes.is_empty() {
            if self.held.is_empty() && bytes.first() == Some(&TABLE_ID_STUFFING) {
                return self.close();
            }
            let want = self.length().map_or(HEAD_BYTES, |length| HEAD_BYTES + length);
            let missing = want.saturating_sub(self.held.len()).min(bytes.len());
            let Some((taken, rest)) = bytes.split_at_checked(missing) else { return };
            self.held.extend_from_slice(taken);
            bytes = rest;
            let Some(length) = self.length() else { continue };
            if !(LENGTH_MIN..=self.largest.saturating_sub(HEAD_BYTES)).contains(&length) {
                self.close();
                return take(Err(Error::Invalid("section_length")));
            }
            if self.held.len() == HEAD_BYTES + length {
                take(Ok(&self.held));
                self.held.clear();
            }
        }
    }

    /// Returns section_length once it was received.
    fn length(&self) -> Option<usize> {
        let [_, high, low] = *self.held.first_chunk::<HEAD_BYTES>()?;
        Some(usize::from(u16::from_be_bytes([high & 0x0f, low])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(body: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        Section { table_id: 2, id: 7, version: 3, current: true, number: 0, body }.write(&mut out);
        out.to_vec()
    }

    fn results(assembler: &mut Assembler, packets: &[(bool, Vec<u8>)]) -> Vec<Result<Vec<u8>, Error>> {
        let mut out = Vec::new();
        for (n, (start, payload)) in packets.iter().enumerate() {
            let continuity = u8::try_from(n % 16).unwrap();
            assembler.push(continuity, *start, payload, |result| {
                out.push(result.map(|section| section.body.to_vec()));
            });
        }
        out
    }

    #[test]
    fn sections_are_joined_and_several_share_a_packet() {
        let (first, second) = (section(&[1; 300]), section(&[2; 20]));
        let whole = [&first[..], &second, &[0xff; 30]].concat();
        for cut in [1, 2, 3, 50, 150, 183] {
            let mut packets = vec![(true, [&[0], &whole[..cut]].concat())];
            packets.extend(whole[cut..].chunks(184).map(|piece| (false, piece.to_vec())));
            let out = results(&mut Assembler::default(), &packets);
            assert_eq!(out, [Ok(vec![1; 300]), Ok(vec![2; 20])], "cut {cut}");
        }
        // The first section ends before the position that the pointer states; the second begins there.
        let packets = [
            (true, [&[0], &first[..183]].concat()),
            (true, [&[u8::try_from(first.len() - 183).unwrap()], &first[183..], &second].concat()),
        ];
        assert_eq!(results(&mut Assembler::default(), &packets), [Ok(vec![1; 300]), Ok(vec![2; 20])]);
    }

    #[test]
    fn t_01_sections_that_lie_are_refused() {
        let lengths = |length: u16| {
            let [high, low] = length.to_be_bytes();
            results(&mut Assembler::default(), &[(true, vec![0, 2, 0xb0 | high, low, 0, 0, 0, 0, 0])])
        };
        for length in [0, 1, 8, 1022, 4095] {
            assert_eq!(lengths(length), [Err(Error::Invalid("section_length"))], "{length}");
        }
        assert_eq!(lengths(1021), []);
        let pointer = results(&mut Assembler::default(), &[(true, vec![200, 1, 2, 3])]);
        assert_eq!(pointer, [Err(Error::Invalid("pointer_field"))]);
        let mut wrong = section(b"abc");
        wrong[9] ^= 1;
        assert_eq!(
            results(&mut Assembler::default(), &[(true, [&[0][..], &wrong].concat())]),
            [Err(Error::Crc)]
        );
    }

    #[test]
    fn t_01_a_section_over_a_hundred_packets_is_held_within_its_bound() {
        let mut endless = vec![(true, vec![0, 2, 0xb3, 0xfd])];
        endless.extend((0..100).map(|_| (false, vec![0; 184])));
        let mut assembler = Assembler::default();
        let out = results(&mut assembler, &endless);
        assert!(out.iter().all(Result::is_err) && assembler.held.len() <= SECTION_BYTES_MAX, "{out:?}");
        // A valid section may arrive slowly.
        let whole = [&[0][..], &section(&[5; 200])].concat();
        let slow: Vec<_> = whole.chunks(2).enumerate().map(|(n, piece)| (n == 0, piece.to_vec())).collect();
        assert!(slow.len() > 100);
        assert_eq!(results(&mut Assembler::default(), &slow), [Ok(vec![5; 200])]);
    }

    #[test]
    fn a_gap_drops_the_section_begun() {
        let whole = section(&[1; 300]);
        let mut assembler = Assembler::default();
        let mut out = 0;
        assembler.push(3, true, &[&[0], &whole[..183]].concat(), |_| out += 1);
        assembler.push(5, false, &whole[183..], |_| out += 1);
        assert_eq!(out, 0);
    }
}
