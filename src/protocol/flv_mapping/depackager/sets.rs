//! NAL units of H.264 and H.265 as encoders send them over RTMP, and their parameter sets.
//!
//! A configuration record gives the size of NAL unit lengths and the parameter sets. Some encoders send start codes
//! instead of lengths, send no record, or change their parameter sets in band without a new record. The in-band sets
//! then make the configuration; they also stay in the frames.

use bytes::Bytes;
use media::codec::{h264, h265};
use media::nal::{self, AnnexB, Nals};
use media::{Codec, CodecConfig};

use crate::protocol::parameter_sets::{Coding, Sets};

/// Maximum total size in bytes of a track's parameter sets. A decoder configuration record cannot hold more.
const SETS_BYTES_MAX: usize = media::codec::CONFIG_BYTES_MAX;
/// Maximum number of parameter sets taken from one frame.
const SETS_OF_FRAME_MAX: usize = 64;

impl Coding {
    const fn of(codec: Codec) -> Option<Self> {
        match codec {
            Codec::H264 => Some(Self::H264),
            Codec::H265 => Some(Self::H265),
            Codec::Av1
            | Codec::Vp9
            | Codec::Vp8
            | Codec::Aac
            | Codec::Opus
            | Codec::Mp3
            | Codec::Ac3
            | Codec::Eac3
            | Codec::Flac
            | Codec::G711(_) => None,
        }
    }

    fn is_picture(self, nal: &[u8]) -> bool {
        match self {
            Self::H264 => h264::is_picture(nal),
            Self::H265 => h265::is_picture(nal),
        }
    }

    /// Returns the nal_unit_type of sequence and picture parameter sets.
    const fn kinds(self) -> [u8; 2] {
        match self {
            Self::H264 => [h264::NAL_SPS, h264::NAL_PPS],
            Self::H265 => [h265::NAL_SPS, h265::NAL_PPS],
        }
    }
}

/// The NAL units and parameter sets of one track.
#[derive(Debug)]
pub(super) struct ParameterSets {
    coding: Coding,
    /// Size in bytes of a NAL unit length as the publisher sends it: 1, 2 or 4.
    length_size: u8,
    /// True if frames have had start codes.
    annex_b: bool,
    sets: Sets,
    /// True if the sets differ from the last configuration returned.
    changed: bool,
}

impl ParameterSets {
    /// Starts without sets, as for a track without a record. `None` if the codec has no NAL units.
    pub(super) fn new(codec: Codec) -> Option<Self> {
        let coding = Coding::of(codec)?;
        Some(Self { coding, length_size: 4, annex_b: false, sets: Sets::new(), changed: false })
    }

    /// Starts again with the sets of a record.
    pub(super) fn begin(&mut self, config: &CodecConfig) {
        self.sets.clear();
        match config {
            CodecConfig::H264(config) => {
                self.length_size = config.length_size;
                self.take(config.parameter_sets());
            }
            CodecConfig::H265(config) => {
                self.length_size = config.length_size;
                self.take(config.parameter_sets());
            }
            CodecConfig::Av1(_)
            | CodecConfig::Vp9(_)
            | CodecConfig::Vp8(_)
            | CodecConfig::Aac(_)
            | CodecConfig::Opus(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => {}
        }
        self.changed = false;
    }

    /// True if the sets are of this codec.
    pub(super) fn is_of(&self, codec: Codec) -> bool {
        Coding::of(codec) == Some(self.coding)
    }

    /// Gives the NAL units of a frame 4-byte lengths, and takes its parameter sets. `None` if it contains no slice of a
    /// picture.
    pub(super) fn frame(&mut self, payload: Bytes) -> Result<Option<Bytes>, nal::Error> {
        let payload = self.with_lengths(payload)?;
        self.take(Nals::new(&payload, 4).flatten());
        let has_picture = Nals::new(&payload, 4).flatten().any(|nal| self.coding.is_picture(nal));
        Ok(has_picture.then_some(payload))
    }

    /// Takes the parameter sets of a header that consists of NAL units with start codes instead of a record.
    pub(super) fn header(&mut self, header: &[u8]) {
        self.take(AnnexB::new(header));
    }

    /// Converts a frame to 4-byte lengths. A start code looks like a length of 1, but lengths must lead exactly to
    /// the end of the payload, which start codes do only by chance: start codes are tried if lengths do not fit. Once
    /// a frame has had start codes, they are tried first.
    fn with_lengths(&mut self, payload: Bytes) -> Result<Bytes, nal::Error> {
        if self.annex_b && begins_with_start_code(&payload) {
            return Ok(nal::to_lengths(&payload));
        }
        nal::to_four_byte_lengths(payload.clone(), self.length_size).or_else(|error| {
            if !begins_with_start_code(&payload) {
                return Err(error);
            }
            self.annex_b = true;
            Ok(nal::to_lengths(&payload))
        })
    }

    fn take<'a>(&mut self, nals: impl Iterator<Item = &'a [u8]>) {
        let sets = nals.filter_map(|nal| Some((self.coding.set_key(nal)?, nal)));
        let found: Vec<((u8, u32), &[u8])> = sets.take(SETS_OF_FRAME_MAX).collect();
        let is_new = |(key, nal): &((u8, u32), &[u8])| self.sets.get(key).is_none_or(|known| known != nal);
        if !found.iter().any(is_new) {
            return;
        }
        let [sps, _] = self.coding.kinds();
        if found.iter().any(|one| one.0.0 == sps && is_new(one)) {
            // Pictures now refer to the new sequence parameter set. Older ones that this frame does not repeat are
            // dropped, because a decoder could use them by mistake.
            self.sets.retain(|key, _| key.0 != sps || found.iter().any(|(found, _)| found == key));
        }
        self.sets.extend(found.into_iter().map(|(key, nal)| (key, Bytes::copy_from_slice(nal))));
        if self.sets.values().map(Bytes::len).sum::<usize>() > SETS_BYTES_MAX {
            self.sets.clear();
        }
        self.changed = true;
    }

    /// Returns the configuration of the sets, if it has changed and suffices for a decoder.
    pub(super) fn new_config(&mut self) -> Option<CodecConfig> {
        let has = |kind| self.sets.keys().any(|key| key.0 == kind);
        if !self.changed || !self.coding.kinds().into_iter().all(has) {
            return None;
        }
        self.changed = false;
        self.coding.config(&self.sets).ok()
    }
}

/// True if the bytes begin with a start code: at least two zeros, and a one (H.264 §B.1.1).
pub(super) fn begins_with_start_code(bytes: &[u8]) -> bool {
    let zeros = bytes.iter().position(|&byte| byte != 0).unwrap_or(0);
    zeros >= 2 && bytes.get(zeros) == Some(&1)
}

#[cfg(test)]
pub(super) mod tests;
