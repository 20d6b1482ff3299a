//! Measures the costs of a transcoder: its share of a core in real time, its memory and its delay. `cargo bench
//! --bench transcode`; docs/audio.md.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a program for people"
)]

use std::process::Command;

use bytes::Bytes;
use media::codec::g711;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId};
use transcode::{SAMPLE_RATE, Target, Transcoder};

/// Seconds of audio.
const SECONDS: i64 = 120;
/// Number of transcoders that exist together when memory is measured.
const MANY: usize = 100;

const OPUS: Target = Target::Opus(96_000);
const AAC: Target = Target::Aac(128_000);

fn track(config: CodecConfig, ticks: u32) -> Track {
    Track { epoch: 1, ..Track::new(TrackId::AUDIO, config, Timescale::new(ticks)) }
}

/// Makes audio between speech and music as A-law, which needs no encoder.
fn source() -> (Track, Vec<AccessUnit>) {
    let track = track(CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 2 }), 8000);
    let mut state = 1_u32;
    let mut byte = |at: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let tone = [0xa5, 0x95, 0xb5, 0x25, 0x15, 0x35][at / 9 % 6];
        if state >> 28 == 0 { (state >> 16) as u8 } else { tone }
    };
    let unit = |n: i64| {
        let payload: Bytes = (0..320).map(&mut byte).collect::<Vec<u8>>().into();
        let at = n * 160;
        AccessUnit { track: TrackId::AUDIO, dts: at, pts: at, key_frame: false, config_epoch: 1, payload }
    };
    (track, (0..SECONDS * 50).map(unit).collect())
}

fn run(target: Target, track: &Track, units: &[AccessUnit]) -> Vec<AccessUnit> {
    let mut transcoder = Transcoder::new(target).unwrap();
    let mut made = Vec::new();
    for unit in units {
        transcoder.handle_unit(track, unit);
        made.extend(std::iter::from_fn(|| transcoder.poll_unit()));
    }
    made
}

fn resident_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the mean and the maximum delay in milliseconds from the first sample of a unit to the unit's output.
/// Without transcoding, the delay is the length of a unit.
fn age_ms(target: Target, track: &Track, units: &[AccessUnit]) -> (f64, f64) {
    let mut transcoder = Transcoder::new(target).unwrap();
    let mut ages = Vec::new();
    for pair in units.windows(2) {
        transcoder.handle_unit(track, &pair[0]);
        let now = pair[1].pts as f64 * 1000.0 / f64::from(track.timescale.ticks());
        while let Some(unit) = transcoder.poll_unit() {
            ages.push(now - unit.pts as f64 * 1000.0 / f64::from(SAMPLE_RATE));
        }
    }
    let sum: f64 = ages.iter().sum();
    (sum / ages.len() as f64, ages.iter().copied().fold(0.0, f64::max))
}

/// Returns the CPU seconds of this thread.
fn cpu_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    told.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn report(name: &str, target: Target, track: &Track, units: &[AccessUnit]) {
    let before = resident_kb();
    let mut many = Vec::new();
    for _ in 0..MANY {
        let mut transcoder = Transcoder::new(target).unwrap();
        for unit in units.iter().take(100) {
            transcoder.handle_unit(track, unit);
            while transcoder.poll_unit().is_some() {}
        }
        many.push(transcoder);
    }
    let kilobytes = (resident_kb() - before) / MANY;
    let mut shares: Vec<f64> = (0..5)
        .map(|_| {
            let began = cpu_seconds();
            run(target, track, units);
            (cpu_seconds() - began) * 100.0 / SECONDS as f64
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    let (age, oldest) = age_ms(target, track, units);
    println!(
        "{name:<24} {:.2} % of a core (least {:.2}), {kilobytes} KB, {age:.0} ms behind, at most {oldest:.0}",
        shares[2], shares[0]
    );
}

/// The measured conversions. Each runs in a process of its own, because memory that one has freed would be reused
/// by the next.
const WAYS: [&str; 5] =
    ["AAC 48 kHz to Opus", "AAC 44.1 kHz to Opus", "Opus to AAC", "G.711 to Opus", "G.711 to AAC"];

fn main() {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let Some(way) = WAYS.iter().position(|way| *way == asked) else {
        for way in WAYS {
            Command::new(std::env::current_exe().unwrap()).arg(way).status().unwrap();
        }
        return;
    };
    let (alaw, units) = source();
    let opus = track(OPUS.config().unwrap(), SAMPLE_RATE);
    let aac = track(AAC.config().unwrap(), SAMPLE_RATE);
    // A stream that announces 44.1 kHz is decoded at that rate and resampled.
    let slow = media::codec::aac::Config::of_parts(2, 4, 2).unwrap();
    let slow = track(CodecConfig::Aac(slow), 44_100);
    match way {
        0 => report(WAYS[0], OPUS, &aac, &run(AAC, &alaw, &units)),
        1 => report(WAYS[1], OPUS, &slow, &run(AAC, &alaw, &units)),
        2 => report(WAYS[2], AAC, &opus, &run(OPUS, &alaw, &units)),
        3 => report(WAYS[3], OPUS, &alaw, &units),
        _ => report(WAYS[4], AAC, &alaw, &units),
    }
}
