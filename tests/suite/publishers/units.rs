//! Generator of the table's media: synthetic units with the timestamps of a publisher's clocks.

use bytes::Bytes;
use crypto::Seed;
use netsim::publisher::Publisher;
use netsim::{MediaSource, Seen};

/// Length of a row's media, in seconds.
pub const SECONDS: i64 = 20;
/// Frames per second, and frames per GOP.
pub const FPS: u64 = 25;
pub const GOP: u64 = 50;

/// A unit that a publisher is to send. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct Unit {
    pub is_video: bool,
    pub key: bool,
    /// Number among the units of its kind. The publisher also writes it into the payload, where viewers read it.
    pub number: u64,
    /// True time of the unit. The publisher also writes it into the payload.
    pub sampled: i64,
    /// Time of sending, counted from the server's consent.
    pub at: i64,
    /// Timestamp before the protocol wraps it.
    pub raw: u64,
    /// True if the unit's timestamp is wrong while its neighbours' are right.
    pub is_outlier: bool,
    /// Offset from the timestamp to the presentation time.
    pub cts: i64,
    /// NAL units with lengths of four bytes, or a raw frame of AAC.
    pub payload: Bytes,
}

impl Unit {
    /// Returns the index of the unit's track among those of a publisher.
    pub const fn track(&self) -> usize {
        if self.is_video { 0 } else { 1 }
    }

    /// Returns the only NAL unit of a picture.
    pub fn nal(&self) -> &[u8] {
        &self.payload[4..]
    }
}

/// A clean publisher of two tracks for a row, whose clock does not wrap by itself.
pub fn clean() -> Publisher {
    Publisher { bits: 40, seconds: SECONDS, ..Publisher::clean() }
}

/// Returns the source of a row's media.
pub fn source() -> MediaSource {
    MediaSource::new(&Seed::from_number(36)).fps(FPS).gop(GOP).sizes(300, 60)
}

/// Returns the units of a publisher in the order in which they are sent.
pub fn units(publisher: &Publisher, source: &mut MediaSource) -> Vec<Unit> {
    let (mut previous, mut last) = ([-1; 2], [0; 2]);
    let mut units = Vec::new();
    loop {
        let unit = source.next_unit();
        let sampled = unit.dts_ms.cast_signed();
        if sampled >= publisher.seconds * 1000 {
            break;
        }
        let track = usize::from(!unit.is_video);
        if publisher.is_mute(track, sampled) {
            continue;
        }
        // The jitter is a few milliseconds, and depends on the sampling time.
        let jitter = (sampled * 7 + 3) % (publisher.jitter + 1);
        last[track] = publisher.stalled(sampled + publisher.delays[track] + jitter).max(last[track]);
        let (raw, is_outlier) = publisher.stamp(track, sampled, previous[track]);
        previous[track] = sampled;
        units.push(Unit {
            is_video: unit.is_video,
            key: unit.key_frame,
            number: Seen::read(&unit.payload).unwrap().counter,
            sampled,
            at: last[track],
            raw,
            is_outlier,
            cts: unit.cts_ms.into(),
            payload: unit.payload,
        });
    }
    units.sort_by_key(|unit| (unit.at, unit.sampled));
    units
}

/// Returns the parameter sets of the video: SPS and PPS.
pub fn sets() -> [Bytes; 2] {
    let record = MediaSource::video_config();
    let sps_end = 8 + usize::from(u16::from_be_bytes([record[6], record[7]]));
    [record.slice(8..sps_end), record.slice(sps_end + 3..)]
}

/// Creates a Main profile SPS (H.264 §7.3.2.1.1). The size is in macroblocks.
pub fn sps(width: u32, height: u32) -> Bytes {
    let ue = |value: u32| {
        let digits = u32::BITS - (value + 1).leading_zeros();
        let code = (0..digits).rev().map(move |at| (value + 1) >> at & 1 == 1);
        (1..digits).map(|_| false).chain(code)
    };
    let mut bits: Vec<bool> = [0, 0, 0, 4, 1].into_iter().flat_map(ue).collect();
    // The flag gaps_in_frame_num_value_allowed.
    bits.push(false);
    bits.extend([width - 1, height - 1].into_iter().flat_map(ue));
    // The flags frame_mbs_only and direct_8x8_inference, then no cropping, no VUI, and the stop bit.
    bits.extend([true, true, false, false, true]);
    let bytes = bits
        .chunks(8)
        .map(|byte| byte.iter().enumerate().fold(0, |all, (at, bit)| all | u8::from(*bit) << (7 - at)));
    [0x67, 77, 0x40, 30].into_iter().chain(bytes).collect()
}

/// Returns the header of an ADTS frame (ISO/IEC 13818-7 §6.2) of AAC-LC, 48 kHz, stereo.
pub fn adts(payload: usize) -> [u8; 7] {
    let length = payload + 7;
    [0xff, 0xf1, 0x4c, 0x80 | (length >> 11) as u8, (length >> 3) as u8, (length << 5) as u8 | 0x1f, 0xfc]
}
