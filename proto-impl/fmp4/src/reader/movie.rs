//! The index of a file, `moov` (ISO/IEC 14496-12 §8.2): its tracks, their sample tables, and the defaults of fragments.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use media::{CodecConfig, Timescale};
use wire::{Reader, Truncated};

use super::entry;
use super::tables::Walk;
use crate::boxes::{child, children, required, short_in, version_and_flags};
use crate::{Error, FourCc};

/// Longest language tag accepted, in bytes.
const LANGUAGE_BYTES_MAX: usize = 64;
/// Code for an undetermined language (ISO 639-2).
const UNDETERMINED: &str = "und";
/// media_time of an edit without media (§8.6.6.3).
const EMPTY_EDIT: i64 = -1;

/// A track of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// track_ID.
    pub id: u32,
    /// Codec and parameter sets of the track.
    pub config: CodecConfig,
    /// Timescale of the timestamps.
    pub timescale: Timescale,
    /// Language: a BCP 47 tag (`elng`), else three letters of ISO 639-2 (`mdhd`). `None` if undetermined.
    pub language: Option<Arc<str>>,
    /// Shift of the track's media times by its edit list, in ticks: an empty edit delays them, a media time of the
    /// first edit advances them (§8.6.6). The times of samples include it.
    pub shift: i64,
    /// Width and height from the sample entry.
    pub size: Option<(u32, u32)>,
    /// Average bits per second according to the file; 0 when unknown.
    pub bit_rate: u32,
}

/// Defaults for the samples of fragments (`trex`, §8.8.3).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Defaults {
    pub(super) description: u32,
    pub(super) duration: u32,
    pub(super) size: u32,
    pub(super) flags: u32,
}

/// A parsed `moov`.
#[derive(Debug, Default)]
pub(super) struct Movie {
    pub(super) tracks: Vec<Track>,
    /// Sample entry types of the unsupported tracks.
    pub(super) others: Vec<FourCc>,
    /// Decode time at which each track's next fragment begins if that fragment has no `tfdt`.
    times: Vec<i64>,
    /// Defaults by track_ID. Includes unsupported tracks.
    defaults: Vec<(u32, Defaults)>,
}

impl Movie {
    /// Parses the payload of a `moov`. Also returns the sample tables, each with the index of its track.
    pub(super) fn read(moov: &Bytes, tracks_max: usize) -> Result<(Self, Vec<(usize, Walk)>), Error> {
        let mut movie = Self::default();
        let mvhd = required(moov, b"mvhd", "moov without mvhd")?;
        let scale = timescale(&mvhd).map_err(short_in(b"mvhd"))?;
        let mvex = child(moov, b"mvex")?;
        let mut walks = Vec::new();
        for trak in children(moov) {
            let trak = trak?;
            if trak.kind.0 != *b"trak" {
                continue;
            }
            if movie.tracks.len().saturating_add(movie.others.len()) >= tracks_max {
                return Err(Error::TooManyTracks { max: tracks_max });
            }
            if let Some(walk) = movie.add(&trak.body, scale, mvex.is_some())? {
                walks.push((movie.tracks.len().saturating_sub(1), walk));
            }
        }
        for trex in mvex.iter().flat_map(children) {
            let trex = trex?;
            if trex.kind.0 == *b"trex" && movie.defaults.len() < tracks_max {
                movie.defaults.push(read_trex(&trex.body).map_err(short_in(b"trex"))?);
            }
        }
        Ok((movie, walks))
    }

    /// Adds a track. Returns its sample tables if it has samples.
    fn add(&mut self, trak: &Bytes, movie_scale: u32, fragmented: bool) -> Result<Option<Walk>, Error> {
        let tkhd = required(trak, b"tkhd", "trak without tkhd")?;
        let id = track_id(&tkhd).map_err(short_in(b"tkhd"))?;
        if id == 0 || self.index_of(id).is_some() {
            return Err(Error::Invalid("track_ID"));
        }
        let mdia = required(trak, b"mdia", "trak without mdia")?;
        let mdhd = required(&mdia, b"mdhd", "mdia without mdhd")?;
        let ticks = timescale(&mdhd).map_err(short_in(b"mdhd"))?;
        if ticks == 0 {
            return Err(Error::Invalid("timescale"));
        }
        let timescale = Timescale::new(ticks);
        let minf = required(&mdia, b"minf", "mdia without minf")?;
        let stbl = required(&minf, b"stbl", "minf without stbl")?;
        let entry = match entry::read(&required(&stbl, b"stsd", "stbl without stsd")?, id)? {
            Ok(entry) => entry,
            Err(kind) => {
                self.others.push(kind);
                return Ok(None);
            }
        };
        let edits = child(trak, b"edts")?.map(|edts| child(&edts, b"elst")).transpose()?.flatten();
        let shift = match edits {
            Some(elst) => shift(&elst, Timescale::new(movie_scale), timescale)?,
            None => 0,
        };
        let language = language(&mdia, &mdhd)?;
        let (config, size, bit_rate) = (entry.config, entry.size, entry.bit_rate);
        self.tracks.push(Track { id, config, timescale, language, shift, size, bit_rate });
        self.times.push(0);
        // Some fragmented files have no tables at all.
        if fragmented && child(&stbl, b"stsz")?.is_none() && child(&stbl, b"stz2")?.is_none() {
            return Ok(None);
        }
        Ok(Some(Walk::read(&stbl)?).filter(|walk| !walk.is_empty()))
    }

    pub(super) fn index_of(&self, id: u32) -> Option<usize> {
        self.tracks.iter().position(|track| track.id == id)
    }

    pub(super) fn defaults(&self, id: u32) -> Defaults {
        self.defaults.iter().find(|(of, _)| *of == id).map(|(_, defaults)| *defaults).unwrap_or_default()
    }

    pub(super) fn time_mut(&mut self, index: usize) -> Option<&mut i64> {
        self.times.get_mut(index)
    }
}

/// Reads `timescale` of `mvhd` (§8.2.2) or `mdhd` (§8.4.2). Both have the field at the same offset.
fn timescale(header: &Bytes) -> Result<u32, Truncated> {
    let mut reader = Reader::new(header);
    let (version, _) = version_and_flags(&mut reader)?;
    reader.take(if version == 1 { 16 } else { 8 })?;
    reader.u32()
}

/// Returns the duration of the movie (`mvhd`, §8.2.2) in milliseconds, from the first bytes of the payload of a `moov`.
///
/// # Errors
/// The box does not begin with its header.
pub fn movie_duration_ms(moov: &[u8]) -> Result<u64, Error> {
    const MVHD_BYTES_MAX: usize = 128;
    let begin = Bytes::copy_from_slice(moov.get(..MVHD_BYTES_MAX).unwrap_or(moov));
    let first = children(&begin).next().ok_or(Error::Invalid("moov without mvhd"))??;
    if first.kind.0 != *b"mvhd" {
        return Err(Error::Invalid("moov without mvhd"));
    }
    let scale = timescale(&first.body).map_err(short_in(b"mvhd"))?.max(1);
    let mut reader = Reader::new(&first.body);
    let read = |reader: &mut Reader<'_>| {
        let (version, _) = version_and_flags(reader)?;
        reader.take(if version == 1 { 20 } else { 12 })?;
        if version == 1 { reader.u64() } else { reader.u32().map(u64::from) }
    };
    let ticks = read(&mut reader).map_err(short_in(b"mvhd"))?;
    Ok(u64::try_from(u128::from(ticks) * 1000 / u128::from(scale)).unwrap_or(u64::MAX))
}

/// Reads track_ID of `tkhd` (§8.3.2).
fn track_id(tkhd: &Bytes) -> Result<u32, Truncated> {
    // The track id follows the two times, at the same offset as the timescale in `mvhd` and `mdhd`.
    timescale(tkhd)
}

/// Returns the language: from `elng` (§8.4.6), else from the three five-bit letters of `mdhd`.
fn language(mdia: &Bytes, mdhd: &Bytes) -> Result<Option<Arc<str>>, Error> {
    if let Some(elng) = child(mdia, b"elng")? {
        let tag = elng.get(4..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
        let is_tag = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        if !tag.is_empty() && tag.len() <= LANGUAGE_BYTES_MAX && tag.iter().all(is_tag) {
            return Ok(core::str::from_utf8(tag).ok().map(Arc::from));
        }
    }
    let packed = packed_language(mdhd).map_err(short_in(b"mdhd"))?;
    let letter = |shift: u16| char::from(u8::try_from(packed >> shift & 0x1f).unwrap_or(0) | 0x60);
    let tag: String = [10, 5, 0].map(letter).into_iter().collect();
    let is_tag = tag.bytes().all(|byte| byte.is_ascii_lowercase());
    Ok((is_tag && tag != UNDETERMINED).then(|| tag.into()))
}

fn packed_language(mdhd: &Bytes) -> Result<u16, Truncated> {
    let mut reader = Reader::new(mdhd);
    let (version, _) = version_and_flags(&mut reader)?;
    reader.take(if version == 1 { 28 } else { 16 })?;
    reader.u16()
}

/// Returns the shift that an edit list (§8.6.6) gives to the start of a track: empty edits, then the first edit with
/// media. Cuts by later edits are ignored.
fn shift(elst: &Bytes, movie: Timescale, track: Timescale) -> Result<i64, Error> {
    let mut reader = Reader::new(elst);
    let short = short_in(b"elst");
    let (version, _) = version_and_flags(&mut reader).map_err(&short)?;
    let count = reader.u32().map_err(&short)?;
    let mut delay = 0i64;
    for _ in 0..count {
        let (duration, media_time) = edit(&mut reader, version).map_err(&short)?;
        if media_time == EMPTY_EDIT {
            let duration = i64::try_from(duration).map_err(|_| Error::Invalid("segment_duration"))?;
            delay = delay.checked_add(movie.convert(duration, track)).ok_or(Error::Invalid("elst"))?;
            continue;
        }
        if media_time < 0 {
            return Err(Error::Invalid("media_time"));
        }
        return delay.checked_sub(media_time).ok_or(Error::Invalid("media_time"));
    }
    Ok(delay)
}

/// Reads segment_duration and media_time of an edit.
fn edit(reader: &mut Reader<'_>, version: u8) -> Result<(u64, i64), Truncated> {
    let edit = if version == 1 {
        (reader.u64()?, reader.u64()?.cast_signed())
    } else {
        (reader.u32()?.into(), reader.u32()?.cast_signed().into())
    };
    // Skip media_rate.
    reader.take(4)?;
    Ok(edit)
}

fn read_trex(trex: &Bytes) -> Result<(u32, Defaults), Truncated> {
    let mut reader = Reader::new(trex);
    version_and_flags(&mut reader)?;
    let id = reader.u32()?;
    let [description, duration, size, flags] = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
    Ok((id, Defaults { description, duration, size, flags }))
}
