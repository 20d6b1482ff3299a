//! Sample entries (`stsd`, ISO/IEC 14496-12 §8.5.2 and §12), parsed to a codec configuration.

use bytes::Bytes;
use media::CodecConfig;
use media::codec::{aac, ac3, av1, flac, h264, h265, mp3, opus, vp8, vp9};
use wire::{Reader, Truncated};

use crate::boxes::{Child, child, children, required, short_in};
use crate::esds::{
    Esds, OBJECT_TYPE_AAC, OBJECT_TYPE_MPEG1_AUDIO, OBJECT_TYPE_MPEG2_AUDIO, OBJECT_TYPES_AAC_MPEG2,
};
use crate::{Error, FourCc};

/// Length of the common fields of a sample entry: reserved, data_reference_index (§8.5.2.2).
const ENTRY_BYTES: usize = 8;
/// Length of a VisualSampleEntry after width and height (§12.1.3.2).
const VISUAL_TAIL_BYTES: usize = 50;
/// Additional length of version 1 of QuickTime's sound description (QuickTime File Format, "Sound Sample
/// Descriptions").
const SOUND_V1_BYTES: usize = 16;
/// Additional length of version 2 of QuickTime's sound description.
const SOUND_V2_BYTES: usize = 36;

/// The first sample entry of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) config: CodecConfig,
    /// Width and height in a visual entry.
    pub(super) size: Option<(u32, u32)>,
    /// Average bits per second from `btrt` or `esds`; 0 when unknown.
    pub(super) bit_rate: u32,
}

/// Parses the payload of `stsd`. The inner `Err` contains the type of an unsupported entry.
pub(super) fn read(stsd: &Bytes, track: u32) -> Result<Result<Entry, FourCc>, Error> {
    let short = short_in(b"stsd");
    let mut reader = Reader::new(stsd);
    let version = reader.u8().map_err(&short)?;
    reader.u24().map_err(&short)?;
    let count = reader.u32().map_err(&short)?;
    let entries = stsd.slice_ref(reader.rest());
    let first = if count == 0 { None } else { children(&entries).next().transpose()? };
    let Child { kind, body } = first.ok_or(Error::Invalid("stsd"))?;
    let config = match &kind.0 {
        b"encv" | b"enca" => return Err(Error::Encrypted { track }),
        b"avc1" | b"avc3" | b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" | b"av01" | b"vp09" | b"vp08" => {
            visual(kind, &body)?
        }
        b"mp4a" | b".mp3" | b"Opus" | b"ac-3" | b"ec-3" | b"fLaC" => {
            let Some(entry) = audio(kind, &body, version)? else { return Ok(Err(kind)) };
            entry
        }
        _ => return Ok(Err(kind)),
    };
    Ok(Ok(config))
}

/// Parses a VisualSampleEntry (§12.1.3).
fn visual(kind: FourCc, body: &Bytes) -> Result<Entry, Error> {
    let mut reader = Reader::new(body);
    let (width, height) = visual_size(&mut reader).map_err(short_in(&kind.0))?;
    let boxes = body.slice_ref(reader.rest());
    let record = |name: &'static [u8; 4], text| required(&boxes, name, text);
    let config = match &kind.0 {
        // Sample entries of H.264 (ISO/IEC 14496-15 §5.4.2.1).
        b"avc1" | b"avc3" => CodecConfig::H264(h264::Config::read(record(b"avcC", "avcC")?)?),
        // Sample entry of AV1 (AV1 in ISOBMFF §2.2).
        b"av01" => CodecConfig::Av1(av1::Config::read(record(b"av1C", "av1C")?)?),
        // Sample entries of VP9 and VP8 (VP Codec ISO Media File Format Binding §2.1).
        b"vp09" => CodecConfig::Vp9(vp9::Config::read(record(b"vpcC", "vpcC")?)?),
        b"vp08" => CodecConfig::Vp8(vp8::Config::read(child(&boxes, b"vpcC")?.unwrap_or_default())?),
        // Sample entries of H.265 (ISO/IEC 14496-15 §8.4.1.1). Dolby Vision contains an H.265 stream that can be
        // decoded without the Dolby Vision data.
        _ => CodecConfig::H265(h265::Config::read(record(b"hvcC", "hvcC")?)?),
    };
    let size = (width > 0 && height > 0).then_some((width.into(), height.into()));
    Ok(Entry { config, size, bit_rate: bit_rate(&boxes)? })
}

fn visual_size(reader: &mut Reader<'_>) -> Result<(u16, u16), Truncated> {
    reader.take(ENTRY_BYTES + 16)?;
    let size = (reader.u16()?, reader.u16()?);
    reader.take(VISUAL_TAIL_BYTES)?;
    Ok(size)
}

/// Fields of an AudioSampleEntry (§12.2.3.2).
#[derive(Debug, Clone, Copy)]
struct Sound {
    channels: u16,
    /// Sample rate in Hz; 0 if it does not fit its field.
    sample_rate: u32,
}

/// Parses an AudioSampleEntry; `None` if its coding is unsupported.
fn audio(kind: FourCc, body: &Bytes, stsd_version: u8) -> Result<Option<Entry>, Error> {
    let mut reader = Reader::new(body);
    let sound = sound(&mut reader, stsd_version).map_err(short_in(&kind.0))?;
    let boxes = body.slice_ref(reader.rest());
    let config = match &kind.0 {
        // Sample entry of Opus (Encapsulation of Opus in ISO Base Media File Format §4.3).
        b"Opus" => CodecConfig::Opus(opus::Config::of_dops(&required(&boxes, b"dOps", "dOps")?)?),
        // Sample entry of FLAC (Encapsulation of FLAC in ISO Base Media File Format §3.3).
        b"fLaC" => CodecConfig::Flac(flac::Config::of_dfla(&required(&boxes, b"dfLa", "dfLa")?)?),
        // Sample entries of AC-3 and E-AC-3 (ETSI TS 102 366 §F.2 and §F.5). The boxes with the parameters (`dac3`,
        // `dec3`) are not read, because every syncframe repeats their contents.
        b"ac-3" => CodecConfig::Ac3(ac3::Config),
        b"ec-3" => CodecConfig::Eac3(ac3::Config),
        b".mp3" => CodecConfig::Mp3(mp3_of(sound)?),
        _ => {
            // QuickTime puts the box into `wave`.
            let wave = child(&boxes, b"wave")?;
            let inner = wave.map(|wave| child(&wave, b"esds")).transpose()?.flatten();
            let esds = inner.map_or_else(|| required(&boxes, b"esds", "esds"), Ok)?;
            let esds_read = Esds::read(&esds)?;
            match esds_read.object_type {
                OBJECT_TYPE_MPEG1_AUDIO | OBJECT_TYPE_MPEG2_AUDIO => CodecConfig::Mp3(mp3_of(sound)?),
                kind if kind == OBJECT_TYPE_AAC || OBJECT_TYPES_AAC_MPEG2.contains(&kind) => {
                    CodecConfig::Aac(aac::Config::read(Bytes::copy_from_slice(esds_read.info))?)
                }
                _ => return Ok(None),
            }
        }
    };
    Ok(Some(Entry { config, size: None, bit_rate: bit_rate(&boxes)? }))
}

fn sound(reader: &mut Reader<'_>, stsd_version: u8) -> Result<Sound, Truncated> {
    reader.take(ENTRY_BYTES)?;
    let version = reader.u16()?;
    reader.take(6)?;
    let channels = reader.u16()?;
    reader.take(6)?;
    let sample_rate = reader.u32()? >> 16;
    // In a `stsd` of version 1, an entry of version 1 is that of the standard, not that of QuickTime, and has no
    // further fields (§12.2.3.2).
    match version {
        1 if stsd_version == 0 => drop(reader.take(SOUND_V1_BYTES)?),
        2 if stsd_version == 0 => drop(reader.take(SOUND_V2_BYTES)?),
        _ => {}
    }
    Ok(Sound { channels, sample_rate })
}

fn mp3_of(sound: Sound) -> Result<mp3::Config, Error> {
    let channels = u8::try_from(sound.channels).ok().filter(|channels| (1..=2).contains(channels));
    let sample_rate = Some(sound.sample_rate).filter(|rate| *rate > 0);
    let (Some(channels), Some(sample_rate)) = (channels, sample_rate) else {
        return Err(Error::Invalid("sample rate or channels of MP3"));
    };
    Ok(mp3::Config { sample_rate, channels })
}

/// Returns avgBitrate of a BitRateBox (§8.5.2.2).
fn bit_rate(boxes: &Bytes) -> Result<u32, Error> {
    let Some(btrt) = child(boxes, b"btrt")? else { return Ok(0) };
    let mut reader = Reader::new(&btrt);
    reader.take(8).and_then(|_| reader.u32()).map_err(short_in(b"btrt"))
}
