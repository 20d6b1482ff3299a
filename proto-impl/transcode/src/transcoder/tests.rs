#![expect(clippy::cast_possible_truncation, reason = "signals are computed as f64 and sent as integers")]

use std::f64::consts::TAU;

use fdk_aac::enc::{AudioObjectType, BitRate, ChannelMode, Encoder as Fdk, EncoderParams, Transport};
use media::Timescale;
use media::codec::g711;

use super::*;
use crate::decoder::{Decoder, Pcm};
use crate::{CHANNELS, SAMPLE_RATE};

const AAC: Target = Target::Aac(128_000);
const OPUS: Target = Target::Opus(96_000);

/// A unit, and the state of its track.
type Sent = (Track, AccessUnit);

fn unit(ticks: i64, payload: Vec<u8>) -> AccessUnit {
    let payload = Bytes::from(payload);
    AccessUnit { track: TrackId::AUDIO, dts: ticks, pts: ticks, key_frame: false, config_epoch: 1, payload }
}

fn track(epoch: u32, config: CodecConfig, ticks: u32) -> Track {
    Track { epoch, ..Track::new(TrackId::AUDIO, config, Timescale::new(ticks)) }
}

/// Signal as a function of the time in seconds, from -1 to 1.
type Signal = fn(f64) -> f64;

/// Signal of a click of 2 ms every 0.3 s.
fn clicks(seconds: f64) -> f64 {
    let at = seconds % 0.3;
    if at < 0.002 { 0.8 * (TAU * 1500.0 * at).sin() } else { 0.0 }
}

/// Makes units of a signal like an encoder for RTMP: AAC of this rate, with times in milliseconds. The delay of the
/// encoder is subtracted from the times.
fn aac_units(rate: u32, mode: ChannelMode, epoch: u32, from: f64, seconds: f64, signal: Signal) -> Vec<Sent> {
    units_of(AudioObjectType::Mpeg4LowComplexity, rate, mode, epoch, from, seconds, signal)
}

fn units_of(
    kind: AudioObjectType,
    rate: u32,
    mode: ChannelMode,
    epoch: u32,
    from: f64,
    seconds: f64,
    signal: Signal,
) -> Vec<Sent> {
    let encoder = Fdk::new(EncoderParams {
        bit_rate: BitRate::Cbr(if rate < 32_000 { 48_000 } else { 128_000 }),
        sample_rate: rate,
        transport: Transport::Raw,
        channels: mode,
        audio_object_type: kind,
    })
    .unwrap();
    let info = encoder.info().unwrap();
    let record = &info.confBuf[..usize::try_from(info.confSize).unwrap()];
    let config = CodecConfig::Aac(aac::Config::read(Bytes::copy_from_slice(record)).unwrap());
    let track = track(epoch, config, 1000);
    let channels = usize::try_from(info.inputChannels).unwrap();
    let mut units = Vec::new();
    let length = i64::from(info.frameLength);
    let frames = (seconds * f64::from(rate)) as i64 / length;
    for n in 0..frames {
        let time = |sample: i64| from + (n * length + sample) as f64 / f64::from(rate);
        let sample = |at: i64| (signal(time(at)) * 32_767.0) as i16;
        let input: Vec<i16> = (0..length).flat_map(|at| vec![sample(at); channels]).collect();
        let mut payload = vec![0; 4096];
        let done = encoder.encode(&input, &mut payload).unwrap();
        payload.truncate(done.output_size);
        let ms = ((time(0) - f64::from(info.nDelay) / f64::from(rate)) * 1000.0).round() as i64;
        if ms >= 0 && !payload.is_empty() {
            units.push((track.clone(), unit(ms, payload)));
        }
    }
    units
}

fn opus_units(seconds: f64, signal: Signal) -> Vec<Sent> {
    let mut encoder = OPUS.encoder().unwrap();
    let delay = encoder.delay();
    let track = track(1, OPUS.config().unwrap(), 48_000);
    let packets = (seconds * 50.0) as i64;
    let packet = |n: i64| {
        let sample = |at: i64| signal((n * 960 + at) as f64 / 48_000.0) as f32;
        let samples: Vec<f32> = (0..960).flat_map(|at| [sample(at); CHANNELS]).collect();
        Some((track.clone(), unit(n * 960 - delay, encoder.encode(&samples).unwrap()?)))
    };
    (0..packets).filter_map(packet).filter(|(_, unit)| unit.pts >= 0).collect()
}

fn g711_units(law: g711::Law, seconds: f64, signal: Signal) -> Vec<Sent> {
    let track = track(1, CodecConfig::G711(g711::Config { law, channels: 1 }), 8000);
    // The value of each code. A sample gets the code with the nearest value.
    let codes: Vec<(u8, f32)> = (0..=255)
        .map(|code| {
            let mut pcm = Pcm::default();
            Decoder::new(&track.config).unwrap().decode(&[code], &mut pcm).unwrap();
            (code, pcm.samples[0])
        })
        .collect();
    let code = |value: f32| {
        let distance = |(_, sample): &&(u8, f32)| ((sample - value).abs() * 1e6) as i64;
        codes.iter().min_by_key(distance).unwrap().0
    };
    let packet = |n: i64| {
        let sample = |at: i64| code(signal((n * 160 + at) as f64 / 8000.0) as f32);
        (track.clone(), unit(n * 160, (0..160).map(sample).collect()))
    };
    (0..(seconds * 50.0) as i64).map(packet).collect()
}

/// Returns the output of a transcoder for these units.
fn transcoded(transcoder: &mut Transcoder, sent: &[Sent]) -> Vec<AccessUnit> {
    let mut made = Vec::new();
    for (track, unit) in sent {
        transcoder.handle_unit(track, unit);
        made.extend(std::iter::from_fn(|| transcoder.poll_unit()));
    }
    assert!(made.windows(2).all(|pair| pair[0].pts < pair[1].pts), "times rise");
    made
}

/// Decodes the output as a listener hears it. Returns the left channel and the time of its first sample in ticks.
fn heard(target: Target, made: &[AccessUnit]) -> (i64, Vec<f32>) {
    let mut decoder = Decoder::new(&target.config().unwrap()).unwrap();
    let (mut pcm, mut out) = (Pcm::default(), Vec::new());
    for unit in made {
        decoder.decode(&unit.payload, &mut pcm).unwrap();
        assert_eq!(pcm.rate, SAMPLE_RATE);
        out.extend(pcm.samples.chunks(CHANNELS).map(|frame| frame[0]));
    }
    (made[0].pts - i64::from(decoder.delay()), out)
}

/// Returns the number of samples by which the output is later than the signal: the shift at which both are most alike.
/// The search starts at `from`.
fn shift(heard: &(i64, Vec<f32>), from: f64, signal: Signal) -> i64 {
    let first = (from * 48_000.0) as i64;
    let sample = |at: i64| f64::from(heard.1[usize::try_from(at - heard.0).unwrap()]);
    let likeness = |shift: i64| -> f64 {
        (0..14_400).map(|n| signal((first + n) as f64 / 48_000.0) * sample(first + n + shift)).sum()
    };
    (-480..=480).max_by(|a, b| likeness(*a).total_cmp(&likeness(*b))).unwrap()
}

/// Returns the signal-to-noise ratio in dB of each step of a signal with known frequencies. The noise is the remainder
/// after the tone was subtracted.
fn ratios(heard: &(i64, Vec<f32>), steps: &[f64]) -> Vec<f64> {
    let ratio = |(n, frequency): (usize, &f64)| {
        // Only the middle of the step is measured.
        let first = (n as f64 + 0.3) * STEP * 48_000.0;
        let count = (STEP * 0.5 * 48_000.0) as i64;
        let (mut sine, mut cosine, mut all) = (0.0, 0.0, 0.0);
        for at in first as i64..first as i64 + count {
            let phase = TAU * frequency * at as f64 / 48_000.0;
            let got = f64::from(heard.1[usize::try_from(at - heard.0).unwrap()]);
            (sine, cosine, all) = (sine + got * phase.sin(), cosine + got * phase.cos(), all + got * got);
        }
        let power = 2.0 * (sine * sine + cosine * cosine) / count as f64;
        10.0 * (power / (all - power).max(1e-12)).log10()
    };
    steps.iter().enumerate().map(ratio).collect()
}

/// Duration of a tone of [`steps`] in seconds.
const STEP: f64 = 0.5;
/// Tones from low to high in Hz: the whole band, and the band of speech.
const WIDE: [f64; 8] = [110.0, 220.0, 440.0, 1000.0, 2000.0, 4000.0, 8000.0, 12_000.0];
const NARROW: [f64; 8] = [110.0, 220.0, 440.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0];

fn wide(seconds: f64) -> f64 {
    0.5 * (TAU * WIDE[(seconds / STEP) as usize % 8] * seconds).sin()
}

fn narrow(seconds: f64) -> f64 {
    0.5 * (TAU * NARROW[(seconds / STEP) as usize % 8] * seconds).sin()
}

#[test]
fn every_way_keeps_the_sound() {
    let stereo = |rate, signal| aac_units(rate, ChannelMode::Stereo, 1, 0.0, 4.2, signal);
    let ways: [(&str, Target, Vec<Sent>, &[f64]); 9] = [
        ("AAC 44.1 kHz to Opus", OPUS, stereo(44_100, wide), &WIDE),
        ("AAC 48 kHz to Opus", OPUS, stereo(48_000, wide), &WIDE),
        (
            "AAC 32 kHz, mono, to Opus",
            OPUS,
            aac_units(32_000, ChannelMode::Mono, 1, 0.0, 4.2, narrow),
            &NARROW,
        ),
        ("AAC 96 kHz to Opus", OPUS, stereo(96_000, wide), &WIDE),
        ("AAC 22.05 kHz to Opus", OPUS, stereo(22_050, narrow), &NARROW),
        ("Opus to AAC", AAC, opus_units(4.2, wide), &WIDE),
        ("A-law to Opus", OPUS, g711_units(g711::Law::A, 4.2, narrow), &NARROW),
        ("mu-law to Opus", OPUS, g711_units(g711::Law::Mu, 4.2, narrow), &NARROW),
        ("mu-law to AAC", AAC, g711_units(g711::Law::Mu, 4.2, narrow), &NARROW),
    ];
    for (name, target, sent, tones) in ways {
        let mut transcoder = Transcoder::new(target).unwrap();
        let made = transcoded(&mut transcoder, &sent);
        let ratios = ratios(&heard(target, &made), tones);
        let stats = transcoder.stats();
        println!("{name}: {:?} dB", ratios.iter().map(|ratio| ratio.round()).collect::<Vec<_>>());
        assert!(ratios.iter().all(|ratio| *ratio > 15.0), "{name}: {ratios:?}");
        assert_eq!((stats.damaged, stats.jumps, stats.stretched), (0, 0, 0), "{name}");
        assert_eq!(stats.encoded, u64::try_from(made.len()).unwrap());
    }
}

#[test]
fn every_way_keeps_the_place_of_the_sound() {
    let stereo = |rate| aac_units(rate, ChannelMode::Stereo, 1, 0.0, 3.0, clicks);
    let ways: [(&str, Target, Vec<Sent>); 6] = [
        ("AAC 44.1 kHz to Opus", OPUS, stereo(44_100)),
        ("AAC 48 kHz to Opus", OPUS, stereo(48_000)),
        ("AAC 48 kHz to AAC", AAC, stereo(48_000)),
        ("AAC 22.05 kHz to Opus", OPUS, stereo(22_050)),
        ("Opus to AAC", AAC, opus_units(3.0, clicks)),
        ("A-law to AAC", AAC, g711_units(g711::Law::A, 3.0, clicks)),
    ];
    for (name, target, sent) in ways {
        let made = transcoded(&mut Transcoder::new(target).unwrap(), &sent);
        let shift = shift(&heard(target, &made), 1.0, clicks);
        println!("{name}: {:.2} ms behind its times", shift as f64 / 48.0);
        assert!(shift.abs() <= 48, "{name}: {shift} samples");
    }
}

/// Returns whether the clicks around `at` seconds are within 8 ms of their correct time.
fn is_in_place(target: Target, made: &[AccessUnit], at: f64) -> bool {
    shift(&heard(target, made), at, clicks).abs() <= 48 * 8
}

#[test]
fn a_source_whose_clock_is_wrong_is_kept_in_step() {
    // The source's clock is off by 1 in 1000, in both directions, and by 1 in 5000. The clicks must stay at the times
    // of the timestamps.
    for (name, speed) in [("slow", 1.001), ("fast", 0.999), ("a little slow", 1.0002)] {
        let signal: Signal = match name {
            "slow" => |seconds| clicks(seconds * 1.001),
            "fast" => |seconds| clicks(seconds * 0.999),
            _ => |seconds| clicks(seconds * 1.0002),
        };
        let sent: Vec<Sent> = aac_units(44_100, ChannelMode::Stereo, 1, 0.0, 40.0, signal)
            .into_iter()
            .map(|(track, sent)| {
                let ms = (sent.pts as f64 * speed).round() as i64;
                (track, AccessUnit { dts: ms, pts: ms, ..sent })
            })
            .collect();
        let mut transcoder = Transcoder::new(OPUS).unwrap();
        let made = transcoded(&mut transcoder, &sent);
        assert!(transcoder.stats().stretched > 100 && transcoder.stats().jumps == 0, "{name}");
        assert!(is_in_place(OPUS, &made, 38.0), "{name}");
    }
}

#[test]
fn a_clock_that_trembles_changes_nothing() {
    let mut sent = aac_units(44_100, ChannelMode::Stereo, 1, 0.0, 10.0, clicks);
    for (n, (_, unit)) in sent.iter_mut().enumerate() {
        let off = [0, 17, -12, 30, -25, 4, -14][n % 7];
        (unit.pts, unit.dts) = (unit.pts + off, unit.dts + off);
    }
    let mut transcoder = Transcoder::new(OPUS).unwrap();
    let made = transcoded(&mut transcoder, &sent);
    assert_eq!((transcoder.stats().jumps, transcoder.stats().stretched), (0, 0));
    assert!(is_in_place(OPUS, &made, 8.0));
}

#[test]
fn gaps_become_silence_and_the_sound_behind_them_is_in_its_place() {
    for (target, mut sent) in [
        (OPUS, aac_units(44_100, ChannelMode::Stereo, 1, 0.0, 8.0, clicks)),
        (AAC, opus_units(8.0, clicks)),
        (AAC, g711_units(g711::Law::Mu, 8.0, clicks)),
    ] {
        let units = sent.len();
        // Removes an eighth of all units, five units, and a single unit.
        sent.drain(units / 2..units / 2 + units / 8);
        sent.drain(units / 4..units / 4 + 5);
        sent.remove(units / 8);
        let mut transcoder = Transcoder::new(target).unwrap();
        let made = transcoded(&mut transcoder, &sent);
        let ticks: Vec<i64> = made.windows(2).map(|pair| pair[1].pts - pair[0].pts).collect();
        let frames = i64::try_from(transcoder.encoder.frames()).unwrap();
        assert!(ticks.iter().all(|ticks| *ticks == frames), "no gap is left: {ticks:?}");
        assert!(is_in_place(target, &made, 3.0) && is_in_place(target, &made, 6.5));
    }
}

#[test]
fn a_source_that_jumps_far_ahead_is_followed_and_one_that_repeats_itself_is_heard_once() {
    let mut sent = opus_units(2.0, clicks);
    let again = sent[50..].to_vec();
    sent.extend(again);
    let later = opus_units(2.0, clicks);
    sent.extend(later.into_iter().map(|(track, sent)| {
        (track, AccessUnit { pts: sent.pts + 480_000_000, dts: sent.dts + 480_000_000, ..sent })
    }));
    let mut transcoder = Transcoder::new(AAC).unwrap();
    let made = transcoded(&mut transcoder, &sent);
    assert_eq!(transcoder.stats().jumps, 2);
    let (before, behind): (Vec<_>, Vec<_>) = made.into_iter().partition(|unit| unit.pts < 480_000_000 - 4096);
    assert!((88..=95).contains(&before.len()), "{}", before.len());
    assert!((88..=97).contains(&behind.len()), "{}", behind.len());
}

#[test]
fn another_rate_and_other_channels_go_on_within_a_second() {
    let mut sent = aac_units(44_100, ChannelMode::Stereo, 1, 0.0, 2.0, clicks);
    sent.extend(aac_units(48_000, ChannelMode::Mono, 2, 2.0, 2.0, clicks));
    sent.extend(aac_units(16_000, ChannelMode::Stereo, 3, 4.0, 2.0, clicks));
    let law = g711_units(g711::Law::A, 8.0, clicks);
    sent.extend(
        law.into_iter()
            .filter(|(_, unit)| unit.pts >= 48_000)
            .map(|(track, unit)| (Track { epoch: 4, ..track }, unit)),
    );
    let mut transcoder = Transcoder::new(OPUS).unwrap();
    let made = transcoded(&mut transcoder, &sent);
    for at in [1.0, 3.0, 5.0, 7.0] {
        assert!(is_in_place(OPUS, &made, at), "{at}");
    }
    assert_eq!(transcoder.stats().damaged, 0);
}

/// Makes a random number from a repeatable sequence.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap()
}

#[test]
fn m_20_damaged_units_end_nothing_and_the_sound_is_back_within_a_second() {
    let mut state = 7;
    for (target, mut sent) in [
        (OPUS, aac_units(48_000, ChannelMode::Stereo, 1, 0.0, 8.0, clicks)),
        (AAC, opus_units(8.0, clicks)),
        (AAC, g711_units(g711::Law::A, 8.0, clicks)),
    ] {
        let end = sent.len() / 2;
        for (n, (_, unit)) in sent[..end].iter_mut().enumerate() {
            let mut payload = unit.payload.to_vec();
            match n % 5 {
                0 => payload.truncate(random(&mut state) % payload.len()),
                1 => payload.iter_mut().for_each(|byte| *byte = random(&mut state).to_le_bytes()[0]),
                2 => payload.resize(random(&mut state) % 70_000, 0xff),
                3 => {
                    let at = random(&mut state) % payload.len();
                    payload[at] ^= 1 << (random(&mut state) % 8);
                }
                _ => {}
            }
            unit.payload = payload.into();
        }
        let made = transcoded(&mut Transcoder::new(target).unwrap(), &sent);
        assert!(is_in_place(target, &made, 5.0), "{target:?}");
    }
}

#[test]
fn m_20_configurations_that_lie_make_nothing_and_end_nothing() {
    let mut state = 3;
    let mut transcoder = Transcoder::new(OPUS).unwrap();
    let good = aac_units(48_000, ChannelMode::Stereo, 1, 0.0, 1.0, clicks);
    for epoch in 2..400 {
        let record: Vec<u8> =
            (0..2 + random(&mut state) % 12).map(|_| random(&mut state).to_le_bytes()[0]).collect();
        let config = match epoch % 3 {
            0 => aac::Config::read(record.into()).map(CodecConfig::Aac),
            1 => aac::Config::of_parts(
                2,
                u8::try_from(epoch % 13).unwrap(),
                u8::try_from(epoch % 7 + 1).unwrap(),
            )
            .map(CodecConfig::Aac),
            _ => {
                let mut record =
                    opus::Config::of_channels(u8::try_from(epoch % 8 + 1).unwrap()).unwrap().record.to_vec();
                let at = random(&mut state) % record.len();
                record[at] = random(&mut state).to_le_bytes()[0];
                opus::Config::read(record.into()).map(CodecConfig::Opus)
            }
        };
        let Ok(config) = config else { continue };
        for (n, (_, sent)) in good.iter().take(3).enumerate() {
            let at = i64::from(epoch) * 60 + i64::try_from(n).unwrap() * 20;
            transcoder.handle_unit(&track(epoch, config.clone(), 1000), &unit(at, sent.payload.to_vec()));
            while transcoder.poll_unit().is_some() {}
        }
    }
    let last = track(1000, good[0].0.config.clone(), 1000);
    let behind: Vec<Sent> = good
        .iter()
        .map(|(_, sent)| {
            (last.clone(), AccessUnit { pts: sent.pts + 60_000, dts: sent.dts + 60_000, ..sent.clone() })
        })
        .collect();
    assert!(transcoded(&mut transcoder, &behind).len() > 45);
}

/// Checks for drift, over an hour with `TRANSCODE_SECONDS=3600`.
#[test]
fn nothing_drifts() {
    let seconds = std::env::var("TRANSCODE_SECONDS").map_or(60.0, |text| text.parse().unwrap());
    for (target, sent) in [
        (OPUS, aac_units(44_100, ChannelMode::Stereo, 1, 0.0, seconds, clicks)),
        (AAC, opus_units(seconds, clicks)),
    ] {
        let mut transcoder = Transcoder::new(target).unwrap();
        let made = transcoded(&mut transcoder, &sent);
        let heard = heard(target, &made);
        let drift = shift(&heard, seconds - 2.0, clicks) - shift(&heard, 1.0, clicks);
        println!("{target:?}: {drift} samples in {seconds} s");
        assert!(drift.abs() <= 48 * 5);
    }
}

#[test]
fn he_aac_is_heard_with_its_high_frequencies_and_in_its_place() {
    for kind in [AudioObjectType::Mpeg4HeAac, AudioObjectType::Mpeg4HeAacV2] {
        let units = |signal| units_of(kind, 48_000, ChannelMode::Stereo, 1, 0.0, 4.2, signal);
        let made = transcoded(&mut Transcoder::new(OPUS).unwrap(), &units(narrow));
        let ratios = ratios(&heard(OPUS, &made), &NARROW);
        println!("{kind:?}: {:?} dB", ratios.iter().map(|ratio| ratio.round()).collect::<Vec<_>>());
        assert!(ratios.iter().all(|ratio| *ratio > 10.0), "{ratios:?}");
        let made = transcoded(&mut Transcoder::new(OPUS).unwrap(), &units(clicks));
        let shift = shift(&heard(OPUS, &made), 1.0, clicks);
        assert!(shift.abs() <= 240, "{kind:?}: {shift}");
        // The high tone is above half of the sample rate of the AAC-LC core. SBR adds such frequencies, so
        // they are not lost.
        let high: Signal = |seconds| 0.5 * (TAU * 10_000.0 * seconds).sin();
        let (_, heard) = heard(OPUS, &transcoded(&mut Transcoder::new(OPUS).unwrap(), &units(high)));
        let power: f32 = heard[48_000..96_000].iter().map(|sample| sample * sample).sum();
        assert!(power > 100.0, "{kind:?}: {power}");
    }
}
