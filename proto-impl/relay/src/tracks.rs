//! Frame with the tracks of a stream.

use std::sync::Arc;

use bytes::Bytes;
use media::codec::{self, g711, mp3};
use media::{Codec, CodecConfig, Rendition, TRACKS_MAX, Timescale, Track, TrackId, Tracks};
use wire::{Reader, Writer};

use crate::Error;
use crate::frame::{self, kind, put_name, read_name};

/// Maximum length of metadata in bytes. Longer metadata is not sent.
const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Bits that state which optional parts of a track follow.
mod part {
    pub(super) const EXTRA: u8 = 1;
    pub(super) const LABEL: u8 = 2;
    pub(super) const LANGUAGE: u8 = 4;
    pub(super) const RENDITION: u8 = 8;
}

/// Makes the frame with these tracks. Tracks that this server has derived from others are left out.
#[must_use]
pub fn tracks_frame(tracks: &Tracks) -> Bytes {
    let mut out = Writer::new();
    let published = || tracks.iter().filter(|track| !track.id.is_derived());
    out.u32(tracks.epoch).u8(u8::try_from(published().count()).unwrap_or(u8::MAX));
    for track in published() {
        put_track(&mut out, track);
    }
    let metadata = tracks.metadata.as_ref().filter(|metadata| metadata.len() <= METADATA_BYTES_MAX);
    put_bytes(&mut out, metadata.map_or(&[], |metadata| metadata));
    frame::frame(kind::TRACKS, &out.take())
}

fn put_track(out: &mut Writer, track: &Track) {
    let given = |is_there: bool, part: u8| if is_there { part } else { 0 };
    let parts = given(track.extra.is_some(), part::EXTRA)
        | given(track.label.is_some(), part::LABEL)
        | given(track.language.is_some(), part::LANGUAGE)
        | given(track.rendition.is_some(), part::RENDITION);
    out.u8(track.id.number()).u32(track.epoch).u32(track.timescale.ticks()).u8(parts);
    put_config(out, &track.config);
    if let Some(extra) = &track.extra {
        put_bytes(out, extra);
    }
    for text in [&track.label, &track.language].into_iter().flatten() {
        put_name(out, text);
    }
    if let Some(Rendition { group, width, height, bit_rate }) = &track.rendition {
        out.u8(*group).u32(*width).u32(*height).u32(*bit_rate);
    }
}

/// Appends the codec and its record. Codecs without a record have other fields instead.
fn put_config(out: &mut Writer, config: &CodecConfig) {
    out.u8(codec_number(config.codec()));
    match config {
        CodecConfig::Mp3(mp3) => {
            let mut told = Writer::new();
            told.u32(mp3.sample_rate).u8(mp3.channels);
            put_bytes(out, &told.take());
        }
        CodecConfig::G711(g711) => put_bytes(out, &[g711.channels]),
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => put_bytes(out, config.record()),
    }
}

/// Appends bytes after their length.
fn put_bytes(out: &mut Writer, bytes: &[u8]) {
    out.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).bytes(bytes);
}

fn read_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    let length = usize::try_from(reader.u32()?).map_err(|_| Error::Invalid("length"))?;
    Ok(reader.take(length)?)
}

/// Position of a codec in [`Codec::ALL`]. New codecs are only appended there, so positions do not
/// change.
fn codec_number(codec: Codec) -> u8 {
    let place = Codec::ALL.iter().position(|known| *known == codec);
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)
}

/// Reads the body of a frame of tracks.
pub(crate) fn read(body: &[u8]) -> Result<Tracks, Error> {
    let mut reader = Reader::new(body);
    let epoch = reader.u32()?;
    let count = usize::from(reader.u8()?);
    if count > TRACKS_MAX {
        return Err(Error::Invalid("number of tracks"));
    }
    let mut tracks = Tracks::new(epoch, []);
    for _ in 0..count {
        let track = read_track(&mut reader)?;
        if tracks.get(track.id).is_some() {
            return Err(Error::Invalid("track"));
        }
        tracks.put(track);
    }
    let metadata = read_bytes(&mut reader)?;
    if metadata.len() > METADATA_BYTES_MAX {
        return Err(Error::Invalid("metadata"));
    }
    tracks.metadata = (!metadata.is_empty()).then(|| Bytes::copy_from_slice(metadata));
    Ok(tracks)
}

fn read_track(reader: &mut Reader<'_>) -> Result<Track, Error> {
    let id =
        TrackId::from_number(reader.u8()?).filter(|id| !id.is_derived()).ok_or(Error::Invalid("track"))?;
    let epoch = reader.u32()?;
    let timescale = Timescale::new(reader.u32()?);
    let parts = reader.u8()?;
    let config = read_config(reader)?;
    let mut track = Track { epoch, ..Track::new(id, config, timescale) };
    // The id of a published track must match its kind.
    if TrackId::nth(track.kind(), id.index()) != Some(id) {
        return Err(Error::Invalid("kind of track"));
    }
    if parts & part::EXTRA != 0 {
        let extra = read_bytes(reader)?;
        if extra.len() > codec::CONFIG_BYTES_MAX {
            return Err(Error::Invalid("parameter sets"));
        }
        track.extra = Some(Bytes::copy_from_slice(extra));
    }
    if parts & part::LABEL != 0 {
        track.label = Some(Arc::from(read_name(reader)?));
    }
    if parts & part::LANGUAGE != 0 {
        track.language = Some(Arc::from(read_name(reader)?));
    }
    if parts & part::RENDITION != 0 {
        let (group, width, height) = (reader.u8()?, reader.u32()?, reader.u32()?);
        track.rendition = Some(Rendition { group, width, height, bit_rate: reader.u32()? });
    }
    Ok(track)
}

fn read_config(reader: &mut Reader<'_>) -> Result<CodecConfig, Error> {
    let number = usize::from(reader.u8()?);
    let codec = *Codec::ALL.get(number).ok_or(Error::Invalid("codec"))?;
    let record = read_bytes(reader)?;
    if record.len() > codec::CONFIG_BYTES_MAX {
        return Err(Error::Invalid("parameter sets"));
    }
    if let Some(config) = CodecConfig::read(codec, Bytes::copy_from_slice(record))? {
        return Ok(config);
    }
    let mut told = Reader::new(record);
    let channels = |told: &mut Reader<'_>| match told.u8()? {
        channels @ 1..=2 => Ok(channels),
        _ => Err(Error::Invalid("channels")),
    };
    match codec {
        Codec::G711(law) => Ok(CodecConfig::G711(g711::Config { law, channels: channels(&mut told)? })),
        Codec::Mp3 => match told.u32()? {
            0 => Err(Error::Invalid("sample rate")),
            sample_rate => Ok(CodecConfig::Mp3(mp3::Config { sample_rate, channels: channels(&mut told)? })),
        },
        Codec::H264
        | Codec::H265
        | Codec::Av1
        | Codec::Vp9
        | Codec::Vp8
        | Codec::Aac
        | Codec::Opus
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac => Err(Error::Invalid("parameter sets")),
    }
}
