//! The bytes of an RDB file: lengths, strings, and the checksum over all bytes.

use std::io::{self, BufReader, Read};

use super::packed;

/// Maximum length of a string that is kept, in bytes. It applies to the compressed and to the uncompressed size.
pub(super) const STRING_BYTES_MAX: usize = 8 << 20;
/// Maximum length of a key's name, in bytes. Keys with longer names are not wanted.
const KEY_BYTES_MAX: usize = 1 << 10;
/// Number of bytes skipped at a time.
const SKIPPED_AT_ONCE: usize = 8 << 10;

/// The polynomial of the checksum (CRC-64 of Jones), reflected.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
const TABLE: [u64; 256] = table();

/// A length, or the encoding of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Bytes(u64),
    /// An integer of this many bytes.
    Integer(usize),
    Compressed,
}

/// An RDB file, read from beginning to end.
#[derive(Debug)]
pub(super) struct Input<R> {
    inner: BufReader<R>,
    sum: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner: BufReader::with_capacity(64 << 10, inner), sum: 0 }
    }

    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> io::Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a length, which has one of four forms, or the encoding of a string.
    pub(super) fn encoded(&mut self) -> io::Result<Length> {
        let first = self.byte()?;
        match (first >> 6, first & 0x3f) {
            (0, length) => Ok(Length::Bytes(length.into())),
            (1, high) => Ok(Length::Bytes(u16::from_be_bytes([high, self.byte()?]).into())),
            (2, 0) => self.array().map(|bytes| Length::Bytes(u32::from_be_bytes(bytes).into())),
            (2, 1) => self.array().map(|bytes| Length::Bytes(u64::from_be_bytes(bytes))),
            (3, 0) => Ok(Length::Integer(1)),
            (3, 1) => Ok(Length::Integer(2)),
            (3, 2) => Ok(Length::Integer(4)),
            (3, 3) => Ok(Length::Compressed),
            _ => Err(damaged()),
        }
    }

    pub(super) fn length(&mut self) -> io::Result<u64> {
        match self.encoded()? {
            Length::Bytes(length) => Ok(length),
            Length::Integer(_) | Length::Compressed => Err(damaged()),
        }
    }

    /// Reads a string of up to [`STRING_BYTES_MAX`].
    pub(super) fn string(&mut self) -> io::Result<Vec<u8>> {
        match self.encoded()? {
            Length::Bytes(length) => self.take(length),
            Length::Integer(size) => self.integer(size),
            Length::Compressed => {
                let (packed, whole) = (self.length()?, self.length()?);
                let packed = self.take(packed)?;
                let whole = usize::try_from(whole).ok().filter(|whole| *whole <= STRING_BYTES_MAX);
                packed::unpacked(&packed, whole.ok_or_else(too_long)?).ok_or_else(damaged)
            }
        }
    }

    /// Reads the name of a key. Returns `None` if it is longer than the name of any wanted key.
    pub(super) fn string_or_skip(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.encoded()? {
            Length::Bytes(length) if length > u64::try_from(KEY_BYTES_MAX).unwrap_or(0) => {
                self.skip(length).map(|()| None)
            }
            Length::Bytes(length) => self.take(length).map(Some),
            Length::Integer(size) => self.integer(size).map(Some),
            Length::Compressed => {
                let (packed, whole) = (self.length()?, self.length()?);
                let whole = usize::try_from(whole).ok().filter(|whole| *whole <= KEY_BYTES_MAX);
                match whole {
                    Some(whole) => packed::unpacked(&self.take(packed)?, whole).map(Some).ok_or_else(damaged),
                    None => self.skip(packed).map(|()| None),
                }
            }
        }
    }

    fn integer(&mut self, size: usize) -> io::Result<Vec<u8>> {
        let number = match size {
            1 => i8::from_le_bytes(self.array()?).into(),
            2 => i16::from_le_bytes(self.array()?).into(),
            _ => i32::from_le_bytes(self.array()?),
        };
        Ok(number.to_string().into_bytes())
    }

    pub(super) fn skip_string(&mut self) -> io::Result<()> {
        match self.encoded()? {
            Length::Bytes(length) => self.skip(length),
            Length::Integer(size) => self.skip(u64::try_from(size).unwrap_or(0)),
            Length::Compressed => {
                let (packed, _) = (self.length()?, self.length()?);
                self.skip(packed)
            }
        }
    }

    pub(super) fn skip_strings(&mut self, count: u64) -> io::Result<()> {
        (0..count).try_for_each(|_| self.skip_string())
    }

    pub(super) fn skip_lengths(&mut self, count: u64) -> io::Result<()> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    pub(super) fn skip(&mut self, mut count: u64) -> io::Result<()> {
        let mut bytes = [0; SKIPPED_AT_ONCE];
        while count > 0 {
            let part = usize::try_from(count).unwrap_or(usize::MAX).min(SKIPPED_AT_ONCE);
            self.fill(bytes.get_mut(..part).ok_or_else(damaged)?)?;
            count -= u64::try_from(part).unwrap_or(count);
        }
        Ok(())
    }

    /// Verifies the checksum that follows the last opcode. A server that was configured to write no checksum
    /// writes zero.
    pub(super) fn check_end(&mut self) -> io::Result<()> {
        let sum = self.sum;
        let written = self.array().map(u64::from_le_bytes)?;
        if written == 0 || written == sum { Ok(()) } else { Err(damaged()) }
    }

    /// Reads `length` bytes, which must not exceed the limit. Memory is allocated for the data that arrives, not
    /// for the announced length.
    fn take(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|length| *length <= STRING_BYTES_MAX);
        let length = length.ok_or_else(too_long)?;
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let from = bytes.len();
            bytes.resize(length.min(from + SKIPPED_AT_ONCE), 0);
            self.fill(bytes.get_mut(from..).ok_or_else(damaged)?)?;
        }
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let cut = |error: io::Error| {
            let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
            if is_short { io::Error::new(error.kind(), "the file ends too early") } else { error }
        };
        self.inner.read_exact(bytes).map_err(cut)?;
        self.sum = sum_of(self.sum, bytes);
        Ok(())
    }
}

pub(super) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file is damaged")
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a value is longer than any record; the rest is not read")
}

/// Adds `bytes` to a checksum.
pub(super) fn sum_of(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        let [low, ..] = sum.to_le_bytes();
        TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0) ^ (sum >> 8)
    })
}

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut rest: &mut [u64] = &mut table;
    let mut byte = 0;
    while let Some((entry, behind)) = rest.split_first_mut() {
        let (mut value, mut bit) = (byte, 0);
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        *entry = value;
        rest = behind;
        byte += 1;
    }
    table
}
