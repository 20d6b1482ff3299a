//! Configurations of codecs, and NAL units.

use flv::Bytes;
use flv::media::codec::{aac, h264, h265, mp3, opus};
use flv::media::{Codec, CodecConfig, nal};
use pyo3::prelude::*;
use std::borrow::Cow;

use crate::Error;
use crate::value::Payload;

value! {
    /// The configuration of a codec, as containers carry it.
    "millstream" Config {
        /// Name of the codec.
        codec: String,
        /// Codec string of RFC 6381, as in manifests and `MediaSource.isTypeSupported`.
        rfc6381: Option<String>,
        /// Decoder configuration record.
        record: Payload,
        /// Width and height in pixels.
        size: Option<(u32, u32)>,
        /// Samples per second.
        sample_rate: Option<u32>,
        /// Number of channels.
        channels: Option<u8>,
    }
}

impl From<&CodecConfig> for Config {
    fn from(config: &CodecConfig) -> Self {
        let sound = config.sound();
        Self {
            codec: config.codec().to_string(),
            rfc6381: config.rfc6381(),
            record: Payload(config.record().clone()),
            size: config.picture_size(),
            sample_rate: sound.map(|(rate, _)| rate),
            channels: sound.map(|(_, channels)| channels),
        }
    }
}

impl Config {
    /// Reads a decoder configuration record. `None` for codecs without one.
    pub(crate) fn of_record(codec: Codec, record: Bytes) -> PyResult<Option<Self>> {
        let config = CodecConfig::read(codec, record).map_err(|error| Error::new_err(error.to_string()))?;
        Ok(config.as_ref().map(Self::from))
    }

    /// Makes the configuration of a unit of a transport stream. `None` if the unit has none.
    pub(crate) fn of_unit(kind: mpegts::StreamKind, unit: &[u8]) -> PyResult<Option<Self>> {
        use mpegts::StreamKind;
        let config = match kind {
            StreamKind::H264 => {
                let sets = |number| nal::AnnexB::new(unit).filter(move |nal| h264::nal_type(nal) == number);
                let (sps, pps): (Vec<_>, Vec<_>) =
                    (sets(h264::NAL_SPS).collect(), sets(h264::NAL_PPS).collect());
                if sps.is_empty() || pps.is_empty() {
                    return Ok(None);
                }
                h264::Config::of_sets(&sps, &pps).map(CodecConfig::H264)
            }
            StreamKind::H265 => {
                let sets =
                    |number| nal::AnnexB::new(unit).filter(move |nal| h265::nal_type(nal) == Some(number));
                let [vps, sps, pps] = [h265::NAL_VPS, h265::NAL_SPS, h265::NAL_PPS]
                    .map(|number| sets(number).collect::<Vec<_>>());
                if vps.is_empty() || sps.is_empty() || pps.is_empty() {
                    return Ok(None);
                }
                h265::Config::of_sets(&vps, &sps, &pps).map(CodecConfig::H265)
            }
            StreamKind::AacAdts => {
                aac::Adts::read(unit).and_then(|adts| aac::Config::of_adts(&adts)).map(CodecConfig::Aac)
            }
            StreamKind::MpegAudio { .. } => mp3::Config::of_frame(unit).map(CodecConfig::Mp3),
            StreamKind::Opus { channels } => opus::Config::of_channels(channels).map(CodecConfig::Opus),
            _ => return Ok(None),
        };
        config.map(|config| Some(Self::from(&config))).map_err(|error| Error::new_err(error.to_string()))
    }
}

/// Divides H.264 or H.265 into its NAL units: at start codes, or by lengths of `length_size` bytes.
#[pyfunction]
#[pyo3(signature = (data, length_size=None))]
pub(crate) fn nal_units(data: Cow<'_, [u8]>, length_size: Option<u8>) -> PyResult<Vec<Payload>> {
    let Some(length_size) = length_size else {
        return Ok(nal::AnnexB::new(&data).map(Payload::copy).collect());
    };
    let units = nal::Nals::new(&data, length_size).map(|unit| unit.map(Payload::copy));
    units.collect::<Result<_, _>>().map_err(|error| Error::new_err(error.to_string()))
}
