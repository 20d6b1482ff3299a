//! The sample tables of a plain file (ISO/IEC 14496-12 §8.6 and §8.7), decoded lazily and never expanded.

use bytes::Bytes;
use wire::Reader;

use crate::Error;
use crate::boxes::{child, required, short_in, version_and_flags};

/// A table with entries of fixed size.
#[derive(Debug, Clone, Default)]
struct Table {
    entries: Bytes,
    entry_bytes: usize,
}

impl Table {
    /// Reads the number of entries and the entries. Fails if the box is too short for them.
    fn read(body: &Bytes, kind: &'static [u8; 4], entry_bytes: usize) -> Result<Self, Error> {
        let mut reader = Reader::new(body);
        let short = short_in(kind);
        version_and_flags(&mut reader).map_err(&short)?;
        let count = reader.u32().map_err(&short)?;
        Self::of(body, reader, count, kind, entry_bytes)
    }

    fn of(
        body: &Bytes,
        mut reader: Reader<'_>,
        count: u32,
        kind: &'static [u8; 4],
        entry_bytes: usize,
    ) -> Result<Self, Error> {
        let bytes = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(entry_bytes);
        let entries = body.slice_ref(reader.take(bytes).map_err(short_in(kind))?);
        Ok(Self { entries, entry_bytes })
    }

    /// Returns entry `index`, counted from 0.
    fn get(&self, index: usize) -> Option<Reader<'_>> {
        let at = index.checked_mul(self.entry_bytes)?;
        let end = at.checked_add(self.entry_bytes)?;
        self.entries.get(at..end).map(Reader::new)
    }

    /// Returns the first two 32-bit fields of an entry.
    fn pair(&self, index: usize) -> Option<(u32, u32)> {
        let mut entry = self.get(index)?;
        Some((entry.u32().ok()?, entry.u32().ok()?))
    }

    fn u32(&self, index: usize) -> Option<u32> {
        self.get(index)?.u32().ok()
    }

    const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A run-length coded table of sample counts and values: `stts` or `ctts`.
#[derive(Debug, Clone, Default)]
struct Runs {
    table: Table,
    next: usize,
    left: u32,
    value: u32,
}

impl Runs {
    const fn of(table: Table) -> Self {
        Self { table, next: 0, left: 0, value: 0 }
    }

    /// Returns the value for the next sample; `None` after the last run.
    fn next(&mut self) -> Option<u32> {
        while self.left == 0 {
            (self.left, self.value) = self.table.pair(self.next)?;
            self.next = self.next.saturating_add(1);
        }
        self.left -= 1;
        Some(self.value)
    }
}

/// Sizes of samples (§8.7.3).
#[derive(Debug, Clone)]
enum Sizes {
    /// `stsz` with one size for all samples.
    Same { size: u32, count: u32 },
    /// `stsz`, or `stz2` with fields of 8 or 16 bits.
    Each(Table),
    /// `stz2` with fields of 4 bits: two per byte, the first in the upper half.
    Nibbles { table: Table, count: u32 },
}

impl Sizes {
    fn read(stbl: &Bytes) -> Result<Self, Error> {
        if let Some(stsz) = child(stbl, b"stsz")? {
            let short = short_in(b"stsz");
            let mut reader = Reader::new(&stsz);
            version_and_flags(&mut reader).map_err(&short)?;
            let (size, count) = (reader.u32().map_err(&short)?, reader.u32().map_err(&short)?);
            return if size > 0 {
                Ok(Self::Same { size, count })
            } else {
                Table::of(&stsz, reader, count, b"stsz", 4).map(Self::Each)
            };
        }
        let short = short_in(b"stz2");
        let stz2 = required(stbl, b"stz2", "a track without stsz and stz2")?;
        let mut reader = Reader::new(&stz2);
        version_and_flags(&mut reader).map_err(&short)?;
        let bits = reader.u32().map_err(&short)? & 0xff;
        let count = reader.u32().map_err(&short)?;
        match bits {
            4 => {
                let table = Table::of(&stz2, reader, count.div_ceil(2), b"stz2", 1)?;
                Ok(Self::Nibbles { table, count })
            }
            8 => Table::of(&stz2, reader, count, b"stz2", 1).map(Self::Each),
            16 => Table::of(&stz2, reader, count, b"stz2", 2).map(Self::Each),
            _ => Err(Error::Invalid("stz2 field_size")),
        }
    }

    /// Returns the size of sample `index`, counted from 0; `None` after the last sample.
    fn get(&self, index: u32) -> Option<u32> {
        let at = usize::try_from(index).ok()?;
        match self {
            Self::Same { size, count } => (index < *count).then_some(*size),
            Self::Each(table) => {
                let mut entry = table.get(at)?;
                Some(entry.rest().iter().fold(0, |size, byte| size << 8 | u32::from(*byte)))
            }
            Self::Nibbles { table, count } => {
                let byte = table.get(at / 2)?.u8().ok()?;
                let size = if at % 2 == 0 { byte >> 4 } else { byte & 0x0f };
                (index < *count).then_some(size.into())
            }
        }
    }
}

/// A sample as described by the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) dts: i64,
    pub(super) duration: u32,
    /// Composition offset: presentation time − decode time, in ticks.
    pub(super) composition: i32,
    pub(super) sync: bool,
}

/// Iteration over the samples of a track, in decoding order.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    sizes: Sizes,
    durations: Runs,
    compositions: Runs,
    /// `stsc`: runs of chunks with equal numbers of samples.
    chunks: Table,
    /// `stco` or `co64`: offsets of chunks.
    offsets: Table,
    /// `stss`: numbers of the sync samples; `None` if all samples are sync samples.
    syncs: Option<Table>,
    /// Index of the next sample.
    sample: u32,
    /// Index of the next chunk, counted from 0.
    chunk: u32,
    /// Index of the `stsc` run that contains the next chunk, or of an earlier run.
    chunk_run: usize,
    left_in_chunk: u32,
    /// Offset of the next sample in the chunk.
    offset: u64,
    dts: i64,
    duration: u32,
    next_sync: usize,
}

impl Walk {
    /// Reads the tables in `stbl`.
    pub(super) fn read(stbl: &Bytes) -> Result<Self, Error> {
        let stts = required(stbl, b"stts", "a track without stts")?;
        let ctts = child(stbl, b"ctts")?;
        let ctts = ctts.map(|ctts| Table::read(&ctts, b"ctts", 8)).transpose()?.unwrap_or_default();
        let syncs = child(stbl, b"stss")?.map(|stss| Table::read(&stss, b"stss", 4)).transpose()?;
        let offsets = match child(stbl, b"stco")? {
            Some(stco) => Table::read(&stco, b"stco", 4)?,
            None => Table::read(&required(stbl, b"co64", "a track without stco and co64")?, b"co64", 8)?,
        };
        Ok(Self {
            sizes: Sizes::read(stbl)?,
            durations: Runs::of(Table::read(&stts, b"stts", 8)?),
            compositions: Runs::of(ctts),
            chunks: Table::read(&required(stbl, b"stsc", "a track without stsc")?, b"stsc", 12)?,
            offsets,
            syncs,
            sample: 0,
            chunk: 0,
            chunk_run: 0,
            left_in_chunk: 0,
            offset: 0,
            dts: 0,
            duration: 0,
            next_sync: 0,
        })
    }

    /// True if the tables contain no samples, as in fragmented files.
    pub(super) const fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the next sample. Sync sample numbers in `stss` must increase (§8.6.2.3); a number that
    /// does not is skipped.
    pub(super) fn next(&mut self) -> Result<Option<Row>, Error> {
        let Some(size) = self.sizes.get(self.sample) else { return Ok(None) };
        if self.left_in_chunk == 0 && !self.enter_chunk()? {
            return Ok(None);
        }
        self.left_in_chunk -= 1;
        // The last duration is repeated if the runs end early.
        self.duration = self.durations.next().unwrap_or(self.duration);
        // Offsets of both versions are read as signed: QuickTime writes negative ones in version 0.
        let composition = self.compositions.next().unwrap_or(0).cast_signed();
        let row = Row {
            offset: self.offset,
            size,
            dts: self.dts,
            duration: self.duration,
            composition,
            sync: self.is_sync(),
        };
        self.offset = self.offset.checked_add(size.into()).ok_or(Error::Invalid("chunk offset"))?;
        self.dts = self.dts.checked_add(self.duration.into()).ok_or(Error::Invalid("decode time"))?;
        self.sample = self.sample.checked_add(1).ok_or(Error::Invalid("sample count"))?;
        Ok(Some(row))
    }

    /// Enters the next chunk. Returns false if there is none.
    fn enter_chunk(&mut self) -> Result<bool, Error> {
        let index = usize::try_from(self.chunk).unwrap_or(usize::MAX);
        let Some(mut offset) = self.offsets.get(index) else { return Ok(false) };
        self.offset = if offset.remaining() == 8 { offset.u64() } else { offset.u32().map(u64::from) }
            .map_err(short_in(b"stco"))?;
        // first_chunk counts from 1.
        let number = self.chunk.checked_add(1).ok_or(Error::Invalid("chunk count"))?;
        while self.chunks.u32(self.chunk_run.saturating_add(1)).is_some_and(|first| first <= number) {
            self.chunk_run += 1;
        }
        let mut run = self.chunks.get(self.chunk_run).ok_or(Error::Invalid("stsc"))?;
        let short = short_in(b"stsc");
        run.u32().map_err(&short)?;
        self.left_in_chunk = run.u32().map_err(&short)?;
        if self.left_in_chunk == 0 {
            return Err(Error::Invalid("samples_per_chunk"));
        }
        if run.u32().map_err(&short)? != 1 {
            return Err(Error::Unsupported("tracks with several sample entries"));
        }
        self.chunk = number;
        Ok(true)
    }

    fn is_sync(&mut self) -> bool {
        let Some(syncs) = &self.syncs else { return true };
        // Samples are counted from 1 in `stss`.
        let number = self.sample.saturating_add(1);
        while let Some(sync) = syncs.u32(self.next_sync)
            && sync <= number
        {
            self.next_sync += 1;
            if sync == number {
                return true;
            }
        }
        false
    }
}
