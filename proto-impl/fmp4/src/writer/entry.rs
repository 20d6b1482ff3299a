//! Writing sample entries (`stsd`, ISO/IEC 14496-12 §8.5.2 and §12).

use bytes::Bytes;
use media::CodecConfig;
use media::codec::{aac, ac3, mp3, opus};

use super::Description;
use super::out::Out;
use super::protection::{self, entry_kind};
use crate::Error;
use crate::esds::{self, OBJECT_TYPE_AAC, OBJECT_TYPE_MPEG1_AUDIO, OBJECT_TYPE_MPEG2_AUDIO};

/// 72 dpi in 16.16, the resolution required by the standard.
const RESOLUTION: u32 = 0x48_0000;
/// VPCodecConfigurationBox for a stream with unknown parameters: version 1, profile 0, 8 bits 4:2:0, colours
/// unspecified.
const VPCC_UNKNOWN: [u8; 12] = [1, 0, 0, 0, 0, 10, 0x82, 2, 2, 2, 0, 0];
/// MP3 with a sample rate in Hz below this is MPEG-2 audio.
const MPEG1_RATE_MIN: u32 = 32_000;

/// Writes the sample entry of a track.
pub(super) fn write(out: &mut Out, track: &Description) -> Result<(), Error> {
    let in_band = |is: &'static [u8; 4], not: &'static [u8; 4]| if track.in_band { is } else { not };
    match &track.config {
        CodecConfig::H264(config) => visual(out, track, in_band(b"avc3", b"avc1"), b"avcC", &config.record),
        CodecConfig::H265(config) => visual(out, track, in_band(b"hev1", b"hvc1"), b"hvcC", &config.record),
        CodecConfig::Av1(config) => visual(out, track, b"av01", b"av1C", &config.record),
        CodecConfig::Vp9(config) => visual(out, track, b"vp09", b"vpcC", &config.record),
        CodecConfig::Vp8(config) if config.record.is_empty() => {
            visual(out, track, b"vp08", b"vpcC", &VPCC_UNKNOWN);
        }
        CodecConfig::Vp8(config) => visual(out, track, b"vp08", b"vpcC", &config.record),
        CodecConfig::Aac(config) => aac(out, track, config),
        CodecConfig::Mp3(config) => mp3(out, track, *config),
        CodecConfig::Opus(config) => {
            let dops = config.dops()?;
            let sound = Sound { channels: config.channels, sample_rate: opus::SAMPLE_RATE };
            audio(out, track, b"Opus", sound, |out| {
                out.boxed(b"dOps", |out| {
                    out.bytes(&dops);
                });
            });
        }
        CodecConfig::Flac(config) => {
            let sound = Sound { channels: config.channels, sample_rate: config.sample_rate };
            audio(out, track, b"fLaC", sound, |out| {
                out.boxed(b"dfLa", |out| {
                    out.bytes(&config.dfla());
                });
            });
        }
        CodecConfig::Ac3(_) => dolby(out, track, b"ac-3", b"dac3")?,
        CodecConfig::Eac3(_) => dolby(out, track, b"ec-3", b"dec3")?,
        CodecConfig::G711(_) => return Err(Error::Codec(track.config.codec())),
    }
    Ok(())
}

/// Writes a VisualSampleEntry (§12.1.3) with one box of parameters.
fn visual(out: &mut Out, track: &Description, kind: &[u8; 4], name: &[u8; 4], record: &[u8]) {
    let (width, height) = track.picture_size().unwrap_or((0, 0));
    let side = |side| u16::try_from(side).unwrap_or(u16::MAX);
    out.boxed(&entry_kind(track, *kind), |out| {
        // data_reference_index is 1: the media is in this file.
        out.zeros(6).u16(1).zeros(16).u16(side(width)).u16(side(height));
        // compressorname is empty, depth is 24, and pre_defined is -1.
        out.u32(RESOLUTION).u32(RESOLUTION).u32(0).u16(1).zeros(32).u16(24).u16(u16::MAX);
        out.boxed(name, |out| {
            out.bytes(record);
        });
        if let Some(colour) = track.colour {
            out.boxed(b"colr", |out| {
                out.bytes(b"nclx").u16(colour.primaries).u16(colour.transfer).u16(colour.matrix);
                out.u8(if colour.full_range { 0x80 } else { 0 });
            });
        }
        if let Some((width, height)) = track.pixel_aspect {
            out.boxed(b"pasp", |out| {
                out.u32(width).u32(height);
            });
        }
        bit_rate(out, track);
        protection::write_entry(out, track, *kind);
    });
}

/// Channels and sample rate of an AudioSampleEntry.
#[derive(Debug, Clone, Copy)]
struct Sound {
    channels: u8,
    sample_rate: u32,
}

/// Writes an AudioSampleEntry (§12.2.3) with the boxes that `boxes` writes.
fn audio(out: &mut Out, track: &Description, kind: &[u8; 4], sound: Sound, boxes: impl FnOnce(&mut Out)) {
    out.boxed(&entry_kind(track, *kind), |out| {
        out.zeros(6).u16(1).zeros(8).u16(sound.channels.into()).u16(16).u32(0);
        // Sample rate as 16.16. If it does not fit, 0 is written; readers then take the rate from the
        // codec's own box.
        out.u16(u16::try_from(sound.sample_rate).unwrap_or(0)).u16(0);
        boxes(out);
        bit_rate(out, track);
        protection::write_entry(out, track, *kind);
    });
}

fn aac(out: &mut Out, track: &Description, config: &aac::Config) {
    let channels = config.channels().unwrap_or(2);
    let sound = Sound { channels, sample_rate: config.sample_rate };
    with_esds(out, track, sound, OBJECT_TYPE_AAC, &config.record);
}

fn mp3(out: &mut Out, track: &Description, config: mp3::Config) {
    let object_type =
        if config.sample_rate < MPEG1_RATE_MIN { OBJECT_TYPE_MPEG2_AUDIO } else { OBJECT_TYPE_MPEG1_AUDIO };
    let sound = Sound { channels: config.channels, sample_rate: config.sample_rate };
    with_esds(out, track, sound, object_type, &Bytes::new());
}

/// Writes an MP4AudioSampleEntry (ISO/IEC 14496-14 §5.6).
fn with_esds(out: &mut Out, track: &Description, sound: Sound, object_type: u8, info: &Bytes) {
    let rate = track.bit_rate.unwrap_or_default();
    audio(out, track, b"mp4a", sound, |out| {
        out.full(b"esds", 0, 0, |out| esds::write(out, track.id, object_type, info, rate));
    });
}

/// Writes an entry of AC-3 or E-AC-3 (ETSI TS 102 366 §F.2, §F.5). The first unit contains its parameters.
fn dolby(out: &mut Out, track: &Description, kind: &[u8; 4], name: &[u8; 4]) -> Result<(), Error> {
    let told = ac3::Description::of_unit(&track.first_unit)?;
    let sound = Sound { channels: told.channels, sample_rate: told.sample_rate };
    audio(out, track, kind, sound, |out| {
        out.boxed(name, |out| {
            out.bytes(&told.record);
        });
    });
    Ok(())
}

/// Writes a BitRateBox (§8.5.2.2).
fn bit_rate(out: &mut Out, track: &Description) {
    if let Some(rate) = track.bit_rate {
        out.boxed(b"btrt", |out| {
            out.u32(rate.buffer_bytes).u32(rate.max).u32(rate.average);
        });
    }
}
