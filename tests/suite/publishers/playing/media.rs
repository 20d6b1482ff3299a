//! Media of a segment: the units in it, with their timestamps.

use std::collections::BTreeMap;

use fmp4::{Limits, Reader};
use mpegts::Demuxer;
use netsim::Seen;

/// A unit of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    pub is_video: bool,
    /// Number in the mark that the publisher wrote into the unit's payload.
    pub number: u64,
    /// Timestamps in microseconds.
    pub dts: i64,
    pub pts: i64,
    /// Duration in microseconds, if the container states it.
    pub duration: Option<i64>,
}

/// Ticks of MPEG-TS per second.
const TS_TICKS: i64 = 90_000;
/// Length of a packet of MPEG-TS.
const TS_PACKET: usize = 188;
/// Microseconds of an AAC frame of 1024 samples at 48 kHz.
const FRAME_US: i64 = 21_333;

/// Reads a segment of MPEG-TS, and checks its packets: PAT and PMT come first, and no packet is missing.
pub fn of_transport_stream(bytes: &[u8]) -> Result<Vec<Unit>, String> {
    check_packets(bytes)?;
    let mut demuxer = Demuxer::new();
    let mut units = Vec::new();
    let mut rest = bytes;
    for is_end in [false, true] {
        if is_end {
            demuxer.finish();
        }
        while let Some(event) = demuxer.read(&mut rest) {
            let mpegts::Event::Pes(pes) = event else { continue };
            let Some(pts) = pes.pts else { return Err("a PES packet without a timestamp".to_owned()) };
            let us = |ticks: u64| ticks.cast_signed() * 1_000_000 / TS_TICKS;
            let (dts, pts) = (us(pes.dts.unwrap_or(pts)), us(pts));
            if pes.stream.kind.is_video() {
                units.push(unit(true, &pes.payload, (dts, pts), None)?);
            } else {
                frames(&pes.payload, pts, &mut units)?;
            }
        }
    }
    Ok(units)
}

fn unit(
    is_video: bool,
    payload: &[u8],
    (dts, pts): (i64, i64),
    duration: Option<i64>,
) -> Result<Unit, String> {
    let seen = Seen::read(payload).map_err(|_| format!("a damaged unit, video {is_video}, at {dts} us"))?;
    Ok(Unit { is_video, number: seen.counter, dts, pts, duration })
}

/// Reads the ADTS frames of a PES packet.
fn frames(mut payload: &[u8], pts: i64, units: &mut Vec<Unit>) -> Result<(), String> {
    let mut at = pts;
    while payload.len() > 7 && payload[0] == 0xff {
        let length =
            usize::from(payload[3] & 3) << 11 | usize::from(payload[4]) << 3 | usize::from(payload[5]) >> 5;
        let (frame, rest) = payload.split_at_checked(length).ok_or("an ADTS frame that is cut off")?;
        units.push(unit(false, &frame[7..], (at, at), None)?);
        (payload, at) = (rest, at + FRAME_US);
    }
    if payload.is_empty() { Ok(()) } else { Err("bytes after the last ADTS frame".to_owned()) }
}

fn check_packets(bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(TS_PACKET) {
        return Err(format!("{} bytes are no whole packets", bytes.len()));
    }
    let mut counters = BTreeMap::new();
    for (at, packet) in bytes.chunks(TS_PACKET).enumerate() {
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        if packet[0] != 0x47 || at == 0 && pid != 0 {
            return Err(format!("packet {at} begins with {:x?}", &packet[..4]));
        }
        let has_payload = packet[3] & 0x10 != 0;
        let counter = packet[3] & 15;
        let expected =
            counters.insert(pid, counter).map(|last| if has_payload { (last + 1) & 15 } else { last });
        if expected.is_some_and(|expected| expected != counter) {
            return Err(format!("packet {at} of PID {pid} has the counter {counter}, not {expected:?}"));
        }
    }
    Ok(())
}

/// Reads a segment of fragmented MP4 after its init segment.
pub fn of_fragments(init: &[u8], bytes: &[u8]) -> Result<Vec<Unit>, String> {
    let mut reader = Reader::new(Limits::default());
    let (mut scales, mut units) = (BTreeMap::new(), Vec::new());
    for (at, mut rest) in [init, bytes].into_iter().enumerate() {
        if at == 1 {
            reader.begin_segment().map_err(|error| error.to_string())?;
        }
        while let Some(event) = reader.read(&mut rest).map_err(|error| error.to_string())? {
            match event {
                fmp4::Event::Tracks { tracks, .. } => {
                    let scale = |track: &fmp4::Track| {
                        (
                            track.id,
                            (track.config.codec().kind() == media::TrackKind::Video, track.timescale.ticks()),
                        )
                    };
                    scales = tracks.iter().map(scale).collect();
                }
                fmp4::Event::Sample(sample) => {
                    let (is_video, scale) = scales[&sample.track];
                    let us = |ticks: i64| ticks * 1_000_000 / i64::from(scale);
                    let times = (us(sample.dts), us(sample.pts));
                    units.push(unit(is_video, &sample.payload, times, Some(us(sample.duration.into())))?);
                }
            }
        }
    }
    Ok(units)
}
