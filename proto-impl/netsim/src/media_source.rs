//! Media of a publisher without an encoder: valid access units. Each contains a stamp that identifies it.
//!
//! The stamp is in ASCII, so that no NAL unit needs emulation prevention (H.264 §7.4.1):
//!
//! ```text
//! "MSYN" kind(1) counter(16 hex) dts_ms(16 hex) filler length(8 hex) checksum(16 hex) filler
//! ```
//!
//! The checksum covers the bytes between the magic and the checksum, and the filler. [`crate::Verifier`] reads the
//! stamp.

use bytes::{Bytes, BytesMut};
use crypto::Seed;

use crate::trace::checksum;

pub(crate) const MAGIC: &[u8; 4] = b"MSYN";
/// Number of samples of an AAC frame (ISO/IEC 14496-3 §4.5.1.1).
const AAC_SAMPLES: u64 = 1024;
const AAC_RATE: u64 = 48_000;

/// Value of `kind` in the stamp of a key frame.
pub(crate) const KIND_KEY: u8 = b'K';
pub(crate) const KIND_INTER: u8 = b'V';
pub(crate) const KIND_AUDIO: u8 = b'A';

/// Synthetic access unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticUnit {
    /// True if the unit is video; otherwise it is audio.
    pub is_video: bool,
    /// True if decoding can start here. True for all audio.
    pub key_frame: bool,
    /// Decode time in milliseconds, from 0.
    pub dts_ms: u64,
    /// Presentation time minus decode time in milliseconds.
    pub cts_ms: u32,
    /// Payload of the unit. For H.264, NAL units with 4-byte lengths; for AAC, a single raw frame.
    pub payload: Bytes,
}

/// Endless source of units in the order of their decode times.
#[derive(Debug)]
pub struct MediaSource {
    filler: Filler,
    fps: u64,
    gop: u64,
    video_bytes: usize,
    audio_bytes: usize,
    reordering: bool,
    layers: bool,
    frames: u64,
    audio_frames: u64,
    first_number: u64,
}

impl MediaSource {
    /// Creates a source with 30 frames per second, a key frame every 2 s, about 1 Mb/s, and 48 kHz stereo audio of 128
    /// kb/s.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        let state = seed.derive("netsim media", 0).random().u64();
        Self {
            filler: Filler(state),
            fps: 30,
            gop: 60,
            video_bytes: 4000,
            audio_bytes: 340,
            reordering: false,
            layers: false,
            frames: 0,
            audio_frames: 0,
            first_number: 0,
        }
    }

    /// Sets the counter in the stamp of the first unit of each kind, to distinguish several sources in one simulation.
    #[must_use]
    pub const fn numbered_from(mut self, number: u64) -> Self {
        self.first_number = number;
        self
    }

    /// Sets the number of frames per second.
    #[must_use]
    pub fn fps(mut self, fps: u64) -> Self {
        self.fps = fps.max(1);
        self
    }

    /// Sets the number of frames from a key frame to the next.
    #[must_use]
    pub fn gop(mut self, frames: u64) -> Self {
        self.gop = frames.max(1);
        self
    }

    /// Sets the mean length in bytes of a video frame other than a key frame, and of an audio frame. Video lengths
    /// vary by half, and key frames are eight times as long. 0 disables video or audio.
    #[must_use]
    pub const fn sizes(mut self, video_bytes: usize, audio_bytes: usize) -> Self {
        self.video_bytes = video_bytes;
        self.audio_bytes = audio_bytes;
        self
    }

    /// True if the source has audio.
    #[must_use]
    pub const fn has_audio(&self) -> bool {
        self.audio_bytes > 0
    }

    /// Enables presentation times as if there were two B-frames between any two reference frames.
    #[must_use]
    pub const fn reordering(mut self, on: bool) -> Self {
        self.reordering = on;
        self
    }

    /// Marks the frames with odd numbers in their GOP as not used for reference (`nal_ref_idc` 0, H.264 §7.4.1), as
    /// with two temporal layers.
    #[must_use]
    pub const fn layers(mut self, on: bool) -> Self {
        self.layers = on;
        self
    }

    /// `AVCDecoderConfigurationRecord` (ISO/IEC 14496-15 §5.3.3.1.2) of Main profile, level 3.0, 640x360.
    #[must_use]
    pub fn video_config() -> Bytes {
        let (sps, pps) = (sps(), pps());
        let mut record = vec![1];
        record.extend_from_slice(sps.get(1..4).unwrap_or_default());
        // lengthSizeMinusOne = 3, one SPS.
        record.extend_from_slice(&[0xff, 0xe1]);
        for (count, set) in [(None, sps), (Some(1), pps)] {
            record.extend(count);
            record.extend_from_slice(&u16::try_from(set.len()).unwrap_or(0).to_be_bytes());
            record.extend_from_slice(&set);
        }
        record.into()
    }

    /// `AudioSpecificConfig` (ISO/IEC 14496-3 §1.6.2.1): AAC-LC (2), 48 kHz (index 3), 2 channels.
    #[must_use]
    pub const fn audio_config() -> Bytes {
        Bytes::from_static(&[0x11, 0x90])
    }

    /// Makes the next unit.
    pub fn next_unit(&mut self) -> SyntheticUnit {
        let (video, audio) =
            (self.frames * 1000 / self.fps, self.audio_frames * AAC_SAMPLES * 1000 / AAC_RATE);
        if self.audio_bytes > 0 && (self.video_bytes == 0 || audio < video) {
            return self.audio_frame(audio);
        }
        self.frame(video)
    }

    fn frame(&mut self, dts_ms: u64) -> SyntheticUnit {
        let number = self.frames;
        self.frames += 1;
        let key_frame = number.is_multiple_of(self.gop);
        let mean = if key_frame { self.video_bytes.saturating_mul(8) } else { self.video_bytes };
        let kind = if key_frame { KIND_KEY } else { KIND_INTER };
        let is_free = self.layers && number % self.gop % 2 == 1;
        // nal_ref_idc 3 or 0, type 5 or 1; first_mb_in_slice 0, slice_type 7 (I) or 5 (P), pic_parameter_set_id 0.
        let start: [u8; 2] = match (key_frame, is_free) {
            (true, _) => [0x65, 0x88],
            (false, false) => [0x61, 0x9a],
            (false, true) => [0x01, 0x9a],
        };
        let nal = self.stamped(&start, kind, self.first_number + number, dts_ms, mean);
        let mut payload = BytesMut::with_capacity(nal.len().saturating_add(4));
        payload.extend_from_slice(&u32::try_from(nal.len()).unwrap_or(0).to_be_bytes());
        payload.extend_from_slice(&nal);
        SyntheticUnit {
            is_video: true,
            key_frame,
            dts_ms,
            cts_ms: self.cts_ms(number),
            payload: payload.freeze(),
        }
    }

    fn audio_frame(&mut self, dts_ms: u64) -> SyntheticUnit {
        let number = self.audio_frames;
        self.audio_frames += 1;
        // id_syn_ele 1: a channel pair.
        let payload = self.stamped(&[0x21], KIND_AUDIO, self.first_number + number, dts_ms, self.audio_bytes);
        SyntheticUnit { is_video: false, key_frame: true, dts_ms, cts_ms: 0, payload: payload.into() }
    }

    fn stamped(&mut self, start: &[u8], kind: u8, counter: u64, dts_ms: u64, mean: usize) -> Vec<u8> {
        let half = u64::try_from(mean / 2).unwrap_or(0);
        let size = usize::try_from(half + self.filler.below(half.saturating_mul(2).max(1))).unwrap_or(mean);
        let filler = self.filler.bytes(size);
        let head = stamp_head(kind, counter, dts_ms, filler.len());
        let mut unit = start.to_vec();
        unit.extend_from_slice(MAGIC);
        unit.extend_from_slice(&head);
        unit.extend_from_slice(&stamp_checksum(&head, &filler));
        unit.extend_from_slice(&filler);
        unit
    }

    /// Presentation time minus decode time of a frame in milliseconds. The decode order is I P B B P B B; each P frame
    /// is presented after the two B frames that follow it.
    fn cts_ms(&self, number: u64) -> u32 {
        if !self.reordering {
            return 0;
        }
        let frame = 1000 / self.fps;
        let frames = match number % self.gop {
            0 => 1,
            n if (n - 1).is_multiple_of(3) => 3,
            _ => 0,
        };
        u32::try_from(frames * frame).unwrap_or(0)
    }
}

impl Iterator for MediaSource {
    type Item = SyntheticUnit;

    fn next(&mut self) -> Option<SyntheticUnit> {
        Some(self.next_unit())
    }
}

/// Writes the part of a stamp that follows the magic: kind, counter, time and filler length.
pub(crate) fn stamp_head(kind: u8, counter: u64, dts_ms: u64, filler: usize) -> Vec<u8> {
    format!("{}{counter:016x}{dts_ms:016x}{filler:08x}", char::from(kind)).into_bytes()
}

/// Checksum of a stamp as 16 hexadecimal digits.
pub(crate) fn stamp_checksum(head: &[u8], filler: &[u8]) -> Vec<u8> {
    let both = [checksum(head), checksum(filler)].map(u64::to_be_bytes).concat();
    format!("{:016x}", checksum(&both)).into_bytes()
}

/// Generator of filler bytes. It is `SplitMix64`, which is fast: an hour of media needs many bytes.
#[derive(Debug)]
struct Filler(u64);

impl Filler {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Makes bytes from 0x40 to 0x7f. They contain no zero byte and therefore no start code.
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(n.saturating_add(8));
        while bytes.len() < n {
            bytes.extend(self.next().to_be_bytes().map(|b| b & 0x3f | 0x40));
        }
        bytes.truncate(n);
        bytes
    }
}

/// Sequence parameter set (H.264 §7.3.2.1.1): Main profile, 40 x 23 macroblocks, the lowest 8 lines cropped.
fn sps() -> Vec<u8> {
    let mut bits = Bits::default();
    for ue in [0, 0] {
        bits.ue(ue); // seq_parameter_set_id, log2_max_frame_num_minus4
    }
    for ue in [0, 4, 1] {
        bits.ue(ue); // pic_order_cnt_type, log2_max_pic_order_cnt_lsb_minus4, max_num_ref_frames
    }
    bits.flag(false); // gaps_in_frame_num_value_allowed
    bits.ue(39); // pic_width_in_mbs_minus1
    bits.ue(22); // pic_height_in_map_units_minus1
    bits.flag(true); // frame_mbs_only
    bits.flag(true); // direct_8x8_inference
    bits.flag(true); // frame_cropping
    for ue in [0, 0, 0, 4] {
        bits.ue(ue); // left, right, top, bottom, in units of 2 lines
    }
    bits.flag(false); // vui_parameters_present
    // NAL header, profile_idc 77, constraint_set1, level_idc 30.
    bits.finish(&[0x67, 77, 0x40, 30])
}

/// Picture parameter set (H.264 §7.3.2.2): CAVLC, a single slice group, a single reference.
fn pps() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.ue(0); // pic_parameter_set_id
    bits.ue(0); // seq_parameter_set_id
    bits.flag(false); // entropy_coding_mode
    bits.flag(false); // bottom_field_pic_order_in_frame_present
    for ue in [0, 0, 0] {
        bits.ue(ue); // num_slice_groups_minus1, num_ref_idx_l0 and l1_default_active_minus1
    }
    for _ in 0..3 {
        bits.flag(false); // weighted_pred, weighted_bipred_idc (2 bits)
    }
    for _ in 0..3 {
        bits.ue(0); // pic_init_qp_minus26, pic_init_qs_minus26, chroma_qp_index_offset: se(0) is ue(0)
    }
    for _ in 0..3 {
        bits.flag(false); // deblocking_filter_control_present, constrained_intra_pred, redundant_pic_cnt_present
    }
    bits.finish(&[0x68])
}

/// Writes the bits of a parameter set. These parameter sets contain no zero byte, so they need no emulation
/// prevention.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn flag(&mut self, bit: bool) {
        self.0.push(bit);
    }

    /// Writes ue(v) (H.264 §9.1).
    fn ue(&mut self, value: u32) {
        let code = value + 1;
        let digits = u32::BITS - code.leading_zeros();
        self.0.extend((1..digits).map(|_| false));
        self.0.extend((0..digits).rev().map(|at| code >> at & 1 == 1));
    }

    /// Appends `rbsp_trailing_bits` and returns `start` followed by the bits.
    fn finish(mut self, start: &[u8]) -> Vec<u8> {
        self.flag(true);
        let bytes = self.0.chunks(8).map(|byte| {
            byte.iter().enumerate().fold(0u8, |all, (at, bit)| all | (u8::from(*bit) << (7 - at)))
        });
        start.iter().copied().chain(bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_sets_are_what_a_real_reader_takes() {
        let config = media::codec::h264::Config::read(MediaSource::video_config()).unwrap();
        assert!(format!("{config:?}").contains("640"), "{config:?}");
        assert_eq!(media::codec::h264::picture_size(&sps()), Ok((640, 360)));
        let audio = media::codec::aac::Config::read(MediaSource::audio_config()).unwrap();
        assert!(format!("{audio:?}").contains("48000"), "{audio:?}");
    }

    #[test]
    fn units_rise_in_time_and_key_frames_come_on_their_beat() {
        let source = MediaSource::new(&Seed::from_number(1)).gop(30).reordering(true);
        let units: Vec<SyntheticUnit> = source.take(1000).collect();
        assert!(units.windows(2).all(|w| w[0].dts_ms <= w[1].dts_ms));
        let video: Vec<&SyntheticUnit> = units.iter().filter(|u| u.is_video).collect();
        assert!(video.iter().enumerate().all(|(n, u)| u.key_frame == (n % 30 == 0)));
        let mut pts: Vec<u64> = video.iter().map(|u| u.dts_ms + u64::from(u.cts_ms)).collect();
        pts.sort_unstable();
        pts.dedup();
        assert!(pts.len() * 100 > video.len() * 95, "present times differ");
        assert!(video[0].payload.len() > 4 * video[1].payload.len());
    }

    #[test]
    fn no_unit_holds_a_start_code_and_the_seed_decides() {
        let take = |seed| MediaSource::new(&Seed::from_number(seed)).take(200).collect::<Vec<_>>();
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
        for unit in take(3) {
            let nal = if unit.is_video { &unit.payload[4..] } else { &unit.payload[..] };
            assert!(!nal.contains(&0));
        }
    }

    #[test]
    fn either_kind_may_be_left_out() {
        assert!(MediaSource::new(&Seed::from_number(1)).sizes(100, 0).take(50).all(|u| u.is_video));
        assert!(MediaSource::new(&Seed::from_number(1)).sizes(0, 100).take(50).all(|u| !u.is_video));
    }
}
