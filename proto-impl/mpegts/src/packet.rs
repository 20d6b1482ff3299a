//! The transport packet: a header of four bytes, an optional adaptation field, optional payload (§2.4.3.2 to §2.4.3.5).

use bytes::{BufMut, BytesMut};
use wire::Reader;

use crate::{CLOCK_MASK, Error};

/// Length of a transport packet.
pub const PACKET_BYTES: usize = 188;
/// The first byte of every packet.
pub(crate) const SYNC_BYTE: u8 = 0x47;
/// Bytes after a packet's header: adaptation field and payload.
pub(crate) const BODY_BYTES: usize = PACKET_BYTES - 4;
/// Length of a PCR.
pub(crate) const PCR_BYTES: usize = 6;

/// discontinuity_indicator.
const FLAG_DISCONTINUITY: u8 = 0x80;
/// random_access_indicator.
const FLAG_RANDOM_ACCESS: u8 = 0x40;
/// PCR_flag.
const FLAG_PCR: u8 = 0x10;
/// OPCR_flag.
const FLAG_OPCR: u8 = 0x08;
/// splicing_point_flag.
const FLAG_SPLICE: u8 = 0x04;
/// transport_private_data_flag.
const FLAG_PRIVATE: u8 = 0x02;
/// adaptation_field_extension_flag.
const FLAG_EXTENSION: u8 = 0x01;

/// A packet identifier: 13 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(u16);

impl Pid {
    /// PID of the program association table.
    pub const PAT: Self = Self(0);
    /// PID of stuffing packets.
    pub const NULL: Self = Self(0x1fff);

    /// Creates a PID from the low 13 bits of `value`.
    #[must_use]
    pub const fn new(value: u16) -> Self {
        Self(value & 0x1fff)
    }

    /// Number of the PID.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// True if a PMT or an elementary stream may use the PID (table 2-3).
    #[must_use]
    pub const fn is_assignable(self) -> bool {
        self.0 >= 0x10 && self.0 < 0x1fff
    }
}

/// A program clock reference (§2.4.3.5): 33 bits at 90 kHz and 9 bits at 27 MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pcr {
    /// Ticks of 90 kHz.
    pub base: u64,
    /// Additional ticks of 27 MHz, below 300.
    pub extension: u16,
}

impl Pcr {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let (high, low) = (reader.u32()?, reader.u16()?);
        Ok(Self { base: (u64::from(high) << 1) | u64::from(low >> 15), extension: low & 0x1ff })
    }

    fn write(self, out: &mut BytesMut) {
        let bits = ((self.base & CLOCK_MASK) << 15) | 0x7e00 | u64::from(self.extension & 0x1ff);
        out.put_uint(bits, PCR_BYTES);
    }
}

/// The supported fields of an adaptation field (§2.4.3.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Adaptation {
    /// The clock or the continuity counter may jump here.
    pub discontinuity: bool,
    /// A decoder can start with the PES packet that begins here.
    pub random_access: bool,
    /// Program clock reference.
    pub pcr: Option<Pcr>,
    /// The field is longer than its contents: it stuffs the packet.
    pub stuffed: bool,
    /// The contents exceed the adaptation field and were ignored.
    pub malformed: bool,
}

impl Adaptation {
    /// Reads an adaptation field without its length byte.
    fn read(field: &[u8]) -> Self {
        if field.is_empty() {
            // An adaptation field of length zero: the length byte itself is one byte of stuffing.
            return Self { stuffed: true, ..Self::default() };
        }
        Self::read_flagged(field).unwrap_or_else(|_| Self { malformed: true, ..Self::default() })
    }

    fn read_flagged(field: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(field);
        let flags = reader.u8()?;
        let pcr = if flags & FLAG_PCR == 0 { None } else { Some(Pcr::read(&mut reader)?) };
        if flags & FLAG_OPCR != 0 {
            reader.take(PCR_BYTES)?;
        }
        if flags & FLAG_SPLICE != 0 {
            reader.take(1)?;
        }
        for flag in [FLAG_PRIVATE, FLAG_EXTENSION] {
            if flags & flag != 0 {
                let length = reader.u8()?;
                reader.take(usize::from(length))?;
            }
        }
        Ok(Self {
            discontinuity: flags & FLAG_DISCONTINUITY != 0,
            random_access: flags & FLAG_RANDOM_ACCESS != 0,
            pcr,
            stuffed: !reader.is_empty() || flags == 0,
            malformed: false,
        })
    }
}

/// A transport packet.
///
/// ```text
///  0        8 9 10 11            24 26 28    32
/// |0x47    |E|S|P|     PID      |SC|AF| CC  | adaptation field | payload ...
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// PID of the packet's stream.
    pub pid: Pid,
    /// transport_error_indicator: the packet contains errors.
    pub transport_error: bool,
    /// payload_unit_start_indicator: a PES packet or a section begins in the payload.
    pub unit_start: bool,
    /// The payload is encrypted.
    pub scrambled: bool,
    /// continuity_counter, 4 bits.
    pub continuity: u8,
    /// Adaptation field, if present.
    pub adaptation: Option<Adaptation>,
    /// Payload, if present.
    pub payload: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    /// Reads a packet that begins with the sync byte. An adaptation field that exceeds the packet is an
    /// error. If only its contents exceed the field, it is marked as malformed, because the start of the
    /// payload is still known.
    pub fn read(bytes: &'a [u8; PACKET_BYTES]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != SYNC_BYTE {
            return Err(Error::Invalid("sync_byte"));
        }
        let ids = reader.u16()?;
        let control = reader.u8()?;
        let has_payload = control & 0x10 != 0;
        let adaptation = if control & 0x20 != 0 {
            let length = reader.u8()?;
            Some(Adaptation::read(reader.take(usize::from(length))?))
        } else if has_payload {
            None
        } else {
            return Err(Error::Invalid("adaptation_field_control"));
        };
        let payload = reader.rest();
        Ok(Self {
            pid: Pid::new(ids),
            transport_error: ids & 0x8000 != 0,
            unit_start: ids & 0x4000 != 0,
            scrambled: control & 0xc0 != 0,
            continuity: control & 0x0f,
            adaptation,
            payload: has_payload.then_some(payload),
        })
    }
}

/// Header of a packet to write, with an adaptation field if needed, so that exactly `payload` bytes remain
/// after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) pid: Pid,
    pub(crate) unit_start: bool,
    pub(crate) continuity: u8,
    pub(crate) discontinuity: bool,
    pub(crate) random_access: bool,
    pub(crate) pcr: Option<Pcr>,
}

impl Head {
    /// Returns the number of payload bytes that fit after the header and fields.
    pub(crate) const fn room(&self) -> usize {
        if self.pcr.is_some() {
            BODY_BYTES - 2 - PCR_BYTES
        } else if self.has_flags() {
            BODY_BYTES - 2
        } else {
            BODY_BYTES
        }
    }

    const fn has_flags(&self) -> bool {
        self.discontinuity || self.random_access
    }

    /// Writes the header for `payload` bytes, which must not exceed [`Head::room`].
    pub(crate) fn write(&self, payload: usize, out: &mut BytesMut) {
        let field = BODY_BYTES.saturating_sub(payload);
        let start = if self.unit_start { 0x4000 } else { 0 };
        let control = if field > 0 { 0x20 } else { 0 } | if payload > 0 { 0x10 } else { 0 };
        out.put_u8(SYNC_BYTE);
        out.put_u16(start | self.pid.get());
        out.put_u8(control | (self.continuity & 0x0f));
        let Some(length) = field.checked_sub(1) else { return };
        // A field fills a packet of 188 bytes at most.
        out.put_u8(u8::try_from(length).unwrap_or(u8::MAX));
        let Some(mut stuffing) = length.checked_sub(1) else { return };
        let flag = |set, flag| if set { flag } else { 0 };
        out.put_u8(
            flag(self.discontinuity, FLAG_DISCONTINUITY)
                | flag(self.random_access, FLAG_RANDOM_ACCESS)
                | flag(self.pcr.is_some(), FLAG_PCR),
        );
        if let Some(pcr) = self.pcr {
            pcr.write(out);
            stuffing = stuffing.saturating_sub(PCR_BYTES);
        }
        out.put_bytes(0xff, stuffing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(head: [u8; 4], rest: &[u8]) -> [u8; PACKET_BYTES] {
        let mut bytes = [0xff; PACKET_BYTES];
        bytes[..4].copy_from_slice(&head);
        bytes[4..4 + rest.len()].copy_from_slice(rest);
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        let pcr = Some(Pcr { base: 0x1_2345_6789, extension: 299 });
        for (random_access, pcr) in [(false, None), (true, None), (false, pcr), (true, pcr)] {
            for cut in [0, 1, 2, 3, 100] {
                let head = Head {
                    pid: Pid::new(0x101),
                    unit_start: true,
                    continuity: 9,
                    discontinuity: false,
                    random_access,
                    pcr,
                };
                let room = head.room() - cut;
                let mut out = BytesMut::new();
                head.write(room, &mut out);
                out.put_bytes(7, room);
                let bytes: [u8; PACKET_BYTES] = out[..].try_into().unwrap();
                let read = Packet::read(&bytes).unwrap();
                assert_eq!((read.pid, read.unit_start, read.continuity), (Pid::new(0x101), true, 9));
                assert_eq!(read.payload, Some(&vec![7; room][..]));
                let adaptation = read.adaptation.unwrap_or_default();
                assert_eq!((adaptation.random_access, adaptation.pcr), (random_access, pcr));
                assert_eq!((adaptation.stuffed, adaptation.malformed), (cut > 0, false), "{cut}");
            }
        }
    }

    #[test]
    fn t_03_adaptation_fields_that_lie() {
        // A field longer than the packet is refused, with and without a payload.
        for control in [0x20, 0x30] {
            for length in [184, 200, 255] {
                assert!(Packet::read(&packet([0x47, 0, 0, control], &[length])).is_err(), "{length}");
            }
        }
        // The adaptation field takes the whole packet although a payload is announced: there is no payload.
        let bytes = packet([0x47, 0, 0, 0x30], &[183, 0]);
        assert_eq!(Packet::read(&bytes).unwrap().payload, Some(&[][..]));
        // A field without room for what its flags announce is marked as malformed. The payload begins where the field's
        // length says.
        for field in [&[1, 0x10][..], &[6, 0x10, 0, 0, 0, 0, 0], &[3, 0x02, 200, 0], &[1, 0x08], &[1, 0x01]] {
            let bytes = packet([0x47, 0, 0, 0x30], field);
            let read = Packet::read(&bytes).unwrap();
            let adaptation = read.adaptation.unwrap();
            assert!(adaptation.malformed && adaptation.pcr.is_none(), "{field:?}");
            assert_eq!(read.payload.unwrap().len(), 184 - field.len());
        }
        assert_eq!(
            Packet::read(&packet([0x47, 0, 0, 0], &[])),
            Err(Error::Invalid("adaptation_field_control"))
        );
    }
}
