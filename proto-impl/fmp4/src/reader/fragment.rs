//! Movie fragments (ISO/IEC 14496-12 §8.8): a `moof` as runs of samples in file order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;
use wire::{Reader, Truncated};

use super::movie::{Defaults, Movie};
use super::tables::Row;
use crate::Error;
use crate::boxes::{child, children, required, short_in, version_and_flags};

/// Maximum number of runs in one fragment. Muxers write a few for each track; muxers that interleave write some
/// hundred.
pub const RUNS_MAX: usize = 16 * 1024;
/// Flags of `tfhd` (§8.8.7.1).
const TFHD_BASE_DATA_OFFSET: u32 = 0x01;
const TFHD_SAMPLE_DESCRIPTION_INDEX: u32 = 0x02;
const TFHD_DEFAULT_DURATION: u32 = 0x08;
const TFHD_DEFAULT_SIZE: u32 = 0x10;
const TFHD_DEFAULT_FLAGS: u32 = 0x20;
const TFHD_DEFAULT_BASE_IS_MOOF: u32 = 0x02_0000;
/// Flags of `trun` (§8.8.8.1).
const TRUN_DATA_OFFSET: u32 = 0x001;
const TRUN_FIRST_SAMPLE_FLAGS: u32 = 0x004;
const TRUN_DURATION: u32 = 0x100;
const TRUN_SIZE: u32 = 0x200;
const TRUN_FLAGS: u32 = 0x400;
const TRUN_COMPOSITION: u32 = 0x800;
/// sample_is_non_sync_sample (§8.8.3.1).
const NON_SYNC: u32 = 0x01_0000;

/// A track run (§8.8.8), decoded lazily.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Index of the track in the movie.
    pub(super) track: usize,
    /// Offset of the next sample.
    offset: u64,
    dts: i64,
    left: u32,
    flags: u32,
    defaults: Defaults,
    first_flags: Option<u32>,
    entries: Bytes,
}

impl Run {
    /// Returns the next sample.
    pub(super) fn next(&mut self) -> Result<Option<Row>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let mut reader = Reader::new(&self.entries);
        let entry = entry(&mut reader, self.flags).map_err(short_in(b"trun"))?;
        self.entries = self.entries.slice_ref(reader.rest());
        let duration = entry.duration.unwrap_or(self.defaults.duration);
        let size = entry.size.unwrap_or(self.defaults.size);
        let flags = self.first_flags.take().or(entry.flags).unwrap_or(self.defaults.flags);
        let row = Row {
            offset: self.offset,
            size,
            dts: self.dts,
            duration,
            composition: entry.composition,
            sync: flags & NON_SYNC == 0,
        };
        self.offset = self.offset.checked_add(size.into()).ok_or(Error::Invalid("data offset"))?;
        self.dts = self.dts.checked_add(duration.into()).ok_or(Error::Invalid("decode time"))?;
        Ok(Some(row))
    }

    /// Returns the end of the run as a file offset and as a decode time. Samples without a size or duration of their
    /// own have the default.
    fn end(&self) -> Result<(u64, i64), Error> {
        let count = u64::from(self.left);
        let sum = |field: u32, default: u32, value: fn(&Entry) -> Option<u32>| {
            if self.flags & field == 0 {
                return Ok(count * u64::from(default));
            }
            let mut reader = Reader::new(&self.entries);
            let mut sum = 0u64;
            for _ in 0..count {
                let entry = entry(&mut reader, self.flags).map_err(short_in(b"trun"))?;
                sum += u64::from(value(&entry).unwrap_or(default));
            }
            Ok::<u64, Error>(sum)
        };
        let bytes = sum(TRUN_SIZE, self.defaults.size, |entry| entry.size)?;
        let ticks = sum(TRUN_DURATION, self.defaults.duration, |entry| entry.duration)?;
        let offset = self.offset.checked_add(bytes).ok_or(Error::Invalid("data offset"))?;
        let dts = i64::try_from(ticks).ok().and_then(|ticks| self.dts.checked_add(ticks));
        Ok((offset, dts.ok_or(Error::Invalid("decode time"))?))
    }
}

/// Fields of one sample in a run.
#[derive(Debug, Default)]
struct Entry {
    duration: Option<u32>,
    size: Option<u32>,
    flags: Option<u32>,
    /// Composition time offset, signed in both versions, as in `ctts`.
    composition: i32,
}

fn entry(reader: &mut Reader<'_>, flags: u32) -> Result<Entry, Truncated> {
    let mut field = |flag| if flags & flag == 0 { Ok(None) } else { reader.u32().map(Some) };
    Ok(Entry {
        duration: field(TRUN_DURATION)?,
        size: field(TRUN_SIZE)?,
        flags: field(TRUN_FLAGS)?,
        composition: field(TRUN_COMPOSITION)?.unwrap_or(0).cast_signed(),
    })
}

/// Track fragment header (§8.8.7).
#[derive(Debug)]
struct Header {
    track: u32,
    base: Option<u64>,
    base_is_moof: bool,
    duration: Option<u32>,
    size: Option<u32>,
    flags: Option<u32>,
    description: Option<u32>,
}

fn header(tfhd: &Bytes) -> Result<Header, Truncated> {
    let mut reader = Reader::new(tfhd);
    let (_, flags) = version_and_flags(&mut reader)?;
    let track = reader.u32()?;
    let base = if flags & TFHD_BASE_DATA_OFFSET == 0 { None } else { Some(reader.u64()?) };
    let mut field = |flag| if flags & flag == 0 { Ok(None) } else { reader.u32().map(Some) };
    Ok(Header {
        track,
        base,
        base_is_moof: flags & TFHD_DEFAULT_BASE_IS_MOOF != 0,
        description: field(TFHD_SAMPLE_DESCRIPTION_INDEX)?,
        duration: field(TFHD_DEFAULT_DURATION)?,
        size: field(TFHD_DEFAULT_SIZE)?,
        flags: field(TFHD_DEFAULT_FLAGS)?,
    })
}

/// Reads baseMediaDecodeTime from `tfdt` (§8.8.12).
fn decode_time(tfdt: &Bytes) -> Result<i64, Error> {
    let mut reader = Reader::new(tfdt);
    let (version, _) = version_and_flags(&mut reader).map_err(short_in(b"tfdt"))?;
    let time = if version == 0 { reader.u32().map(u64::from) } else { reader.u64() };
    i64::try_from(time.map_err(short_in(b"tfdt"))?).map_err(|_| Error::Invalid("baseMediaDecodeTime"))
}

/// Reads the runs of a `moof` that begins at `moof_at`, ordered by their place in the file. Advances the decode times
/// of the tracks in `movie` to the end of the fragment.
pub(super) fn read(moof: &Bytes, moof_at: u64, movie: &mut Movie) -> Result<VecDeque<Run>, Error> {
    let mut runs = Vec::new();
    // End of the previous track fragment's media. A track fragment without a base offset begins there (§8.8.7.1).
    let mut end = moof_at;
    for traf in children(moof) {
        let traf = traf?;
        if traf.kind.0 == *b"traf" {
            end = track_fragment(&traf.body, moof_at, end, movie, &mut runs)?;
        }
    }
    runs.sort_by_key(|run: &Run| run.offset);
    Ok(runs.into())
}

/// Reads a `traf`, and returns the offset at which its media ends.
fn track_fragment(
    traf: &Bytes,
    moof_at: u64,
    previous_end: u64,
    movie: &mut Movie,
    runs: &mut Vec<Run>,
) -> Result<u64, Error> {
    let header = header(&required(traf, b"tfhd", "traf without tfhd")?).map_err(short_in(b"tfhd"))?;
    if child(traf, b"senc")?.is_some() {
        return Err(Error::Encrypted { track: header.track });
    }
    let fallback = if header.base_is_moof { moof_at } else { previous_end };
    let base = header.base.unwrap_or(fallback);
    let trex = movie.defaults(header.track);
    if header.description.unwrap_or(trex.description) > 1 {
        return Err(Error::Unsupported("tracks with several sample entries"));
    }
    let defaults = Defaults {
        duration: header.duration.unwrap_or(trex.duration),
        size: header.size.unwrap_or(trex.size),
        flags: header.flags.unwrap_or(trex.flags),
        ..trex
    };
    let index = movie.index_of(header.track);
    let known = index.and_then(|index| movie.time_mut(index)).map_or(0, |time| *time);
    let mut dts = child(traf, b"tfdt")?.map_or(Ok(known), |tfdt| decode_time(&tfdt))?;
    let mut end = base;
    for trun in children(traf) {
        let trun = trun?;
        if trun.kind.0 != *b"trun" {
            continue;
        }
        let place = Place { track: index.unwrap_or(usize::MAX), base, end, dts };
        let run = track_run(&trun.body, &place, defaults)?;
        (end, dts) = run.end()?;
        if index.is_some() && run.left > 0 {
            if runs.len() >= RUNS_MAX {
                return Err(Error::Unsupported("fragments of so many runs"));
            }
            runs.push(run);
        }
    }
    if let Some(time) = index.and_then(|index| movie.time_mut(index)) {
        *time = dts;
    }
    Ok(end)
}

/// Position from which a run's data offset is derived.
#[derive(Debug)]
struct Place {
    track: usize,
    base: u64,
    /// Offset at which the previous run ended.
    end: u64,
    dts: i64,
}

fn track_run(trun: &Bytes, place: &Place, defaults: Defaults) -> Result<Run, Error> {
    let short = short_in(b"trun");
    let mut reader = Reader::new(trun);
    let (_, flags) = version_and_flags(&mut reader).map_err(&short)?;
    let left = reader.u32().map_err(&short)?;
    let offset = if flags & TRUN_DATA_OFFSET == 0 {
        place.end
    } else {
        let offset = reader.u32().map_err(&short)?.cast_signed();
        place.base.checked_add_signed(offset.into()).ok_or(Error::Invalid("data_offset"))?
    };
    let first_flags =
        if flags & TRUN_FIRST_SAMPLE_FLAGS == 0 { None } else { Some(reader.u32().map_err(&short)?) };
    let fields = [TRUN_DURATION, TRUN_SIZE, TRUN_FLAGS, TRUN_COMPOSITION];
    let entry_bytes = fields.into_iter().filter(|field| flags & field != 0).count() * 4;
    let bytes = usize::try_from(left).unwrap_or(usize::MAX).saturating_mul(entry_bytes);
    let entries = trun.slice_ref(reader.take(bytes).map_err(&short)?);
    Ok(Run { track: place.track, offset, dts: place.dts, left, flags, defaults, first_flags, entries })
}
