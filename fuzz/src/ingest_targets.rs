//! Streams of publishers on their way to the hub: a pull over HTTP receives containers, and makes units of them.

use flv::file::{Header, TagHead, TagKind};
use mpegts::{CLOCK_MASK, Kind, Muxer, StreamKind, Unit};

use crate::pull::{Outcome, check, pull, reads};
use crate::splits::{head, pieces};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
/// Steps of a stream's clock that no encoder makes, in milliseconds.
const JUMPS: [i64; 8] = [-1, -40, -2_999, -3_001, 9_999, 10_001, 1 << 31, -(1 << 31)];

/// Pulls FLV. The first byte seeds the cuts. If it is even, a file follows as it is; if it is odd, tags follow:
/// kind, clock, length, body.
pub fn ingest_flv(data: &[u8]) {
    let Some((seed, bytes)) = head(data) else { return };
    let mut file = Header { audio: true, video: true }.write().to_vec();
    if seed & 1 == 0 {
        file.extend_from_slice(bytes);
    } else {
        steps(bytes).for_each(|step| file.extend(tag(&step)));
    }
    ingest(seed, &file);
}

/// Pulls a transport stream. The first byte seeds the cuts, and chooses the codecs in the tables. If it is even,
/// packets follow as they are; if it is odd, PES packets follow: kind, clock, length, payload.
pub fn ingest_ts(data: &[u8]) {
    let Some((seed, bytes)) = head(data) else { return };
    let mut muxer = Muxer::new();
    muxer.set_streams(video(seed), Some(audio(seed)));
    let mut stream = Vec::new();
    if seed & 1 == 0 {
        let kind = if video(seed).is_some() { Kind::Video } else { Kind::Audio };
        let unit = Unit { kind, number: 0, pts: 0, dts: 0, random_access: true, payload: &[b"\0\0\x01\x09"] };
        stream.extend_from_slice(&muxer.write(&unit));
        stream.extend_from_slice(bytes);
    } else {
        steps(bytes).for_each(|step| stream.extend_from_slice(&pes(&mut muxer, seed, &step)));
    }
    ingest(seed, &stream);
}

fn ingest(seed: u8, body: &[u8]) {
    let bytes = [ANSWER, body].concat();
    let outcome = pull(&[reads(&bytes)]);
    assert_eq!(outcome, pull(&[pieces(seed, &bytes)]), "the cuts changed the units");
    check(&outcome);
    is_bounded(&outcome, body.len());
}

/// Checks that units are not larger than the received bytes allow. Three-byte start codes, and lengths of fewer
/// than four bytes, become four-byte lengths.
fn is_bounded(outcome: &Outcome, came: usize) {
    let payload: usize = outcome.units.iter().map(|(unit, _)| unit.payload.len()).sum();
    assert!(payload <= 4 * came, "{payload} bytes of {came}");
    let tracks = outcome.units.iter().map(|(_, tracks)| tracks.bytes()).max().unwrap_or(0);
    assert!(tracks <= 4 * came, "{tracks} bytes of tracks");
}

struct Step<'a> {
    kind: u8,
    ms: i64,
    body: &'a [u8],
}

/// Returns the bodies in the input, each with its kind and its clock.
fn steps(bytes: &[u8]) -> impl Iterator<Item = Step<'_>> {
    let (mut rest, mut ms) = (bytes, 0_i64);
    std::iter::from_fn(move || {
        let (&[kind, clock, length], tail) = rest.split_first_chunk()?;
        ms += if clock < 0xf8 { i64::from(clock) } else { JUMPS[usize::from(clock & 7)] };
        // Short lengths are exact, long ones are multiples of 512.
        let length = usize::from(length);
        let length = if length < 0xc0 { length } else { (length - 0xbf) * 512 };
        let (body, tail) = tail.split_at(length.min(tail.len()));
        rest = tail;
        Some(Step { kind, ms, body })
    })
}

fn tag(step: &Step<'_>) -> Vec<u8> {
    let kind = match step.kind % 4 {
        0 => TagKind::Audio,
        1 | 2 => TagKind::Video,
        _ => TagKind::Data,
    };
    let size = u32::try_from(step.body.len()).expect("it is short");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "timestamps wrap")]
    let timestamp = step.ms as u32;
    let head = TagHead { kind, size, timestamp };
    [&head.write()[..], step.body, &head.trailer()].concat()
}

fn pes(muxer: &mut Muxer, seed: u8, step: &Step<'_>) -> bytes::Bytes {
    let kind = if step.kind & 1 == 1 && video(seed).is_some() { Kind::Video } else { Kind::Audio };
    let dts = (step.ms * 90).cast_unsigned() & CLOCK_MASK;
    let pts = dts + u64::from(step.kind >> 2) * 900;
    let random_access = step.kind & 2 != 0;
    muxer.write(&Unit { kind, number: 0, pts, dts, random_access, payload: &[step.body] })
}

const fn video(seed: u8) -> Option<StreamKind> {
    match seed >> 3 & 3 {
        0 | 1 => Some(StreamKind::H264),
        2 => Some(StreamKind::H265),
        _ => None,
    }
}

const fn audio(seed: u8) -> StreamKind {
    match seed >> 5 {
        0 => StreamKind::AacLatm,
        1 => StreamKind::Ac3,
        2 => StreamKind::Opus { channels: 2 },
        3 => StreamKind::MpegAudio { mpeg2: false },
        4 => StreamKind::Eac3,
        _ => StreamKind::AacAdts,
    }
}
