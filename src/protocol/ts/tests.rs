mod beginning;
mod languages;
mod splices;

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use media::codec::{aac, ac3, flac, h264, h265, mp3, opus};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, TrackKind, Tracks, nal};
use mpegts::{
    CLOCK_MASK, Demuxer, Event, Kind, Muxer, PACKET_BYTES, PMT_PID, Packet, Pes, Pid, StreamKind, Unit, ZERO,
};

use super::*;
use crate::config::AppSettings;
use crate::hub::{Entry, FormatKey, Packager, Selection};
use crate::mail::Grant;
use crate::types::StreamId;

/// x264, 640x360, constrained baseline 3.0.
const SPS: &[u8] = &[
    0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00,
    0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48,
];
const PPS: &[u8] = &[0x68, 0xcb, 0x83, 0xcb, 0x20];
/// x265 at 320x180 through ffmpeg, without its SEI.
const HVCC: &[u8] = include_bytes!("../../../fuzz/corpus/hevc_config/x265_320x180");
const STREAMINFO: &[u8] = include_bytes!("../../../fuzz/corpus/vp9_config/streaminfo");
const AUD: &[u8] = &h264::AUD;
const IDR: &[u8] = &[0x65, 0x88, 0x84, 1];
const INTER: &[u8] = &[0x41, 0x9a, 2, 3];

fn ingest_at(position: media::Position) -> Depackager {
    let settings = Arc::new(AppSettings::defaults("live").unwrap());
    Depackager::new(&Grant { stream: StreamId(1), position, epoch: 0, zero_ms: 0, settings, standby: false })
}

fn ingest() -> Depackager {
    ingest_at(media::Position::default())
}

fn h264_config() -> CodecConfig {
    CodecConfig::H264(h264::Config::of_sets(&[SPS], &[PPS]).unwrap())
}

fn aac_config() -> CodecConfig {
    CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap())
}

fn tracks(
    epoch: u32,
    timescale: Timescale,
    video: Option<CodecConfig>,
    audio: Option<CodecConfig>,
) -> Arc<Tracks> {
    let track = |id, config: Option<CodecConfig>| {
        config.map(|config| Track { epoch, ..Track::new(id, config, timescale) })
    };
    let both = [track(TrackId::VIDEO, video), track(TrackId::AUDIO, audio)];
    Arc::new(Tracks::new(epoch, both.into_iter().flatten()))
}

fn lengths(nals: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::new();
    nals.iter().for_each(|nal| nal::put_with_length(nal, &mut out));
    out.freeze()
}

fn annex_b(nals: &[&[u8]]) -> Bytes {
    nal::to_annex_b(&lengths(nals)).unwrap()
}

fn unit(track: TrackId, dts: i64, pts: i64, key_frame: bool, payload: &Bytes) -> AccessUnit {
    AccessUnit { track, dts, pts, key_frame, config_epoch: 1, payload: payload.clone() }
}

/// Makes a packager that writes the packets of every unit without waiting for further units.
fn out() -> Packager {
    packager(TsPackage::at_once())
}

fn packager(package: TsPackage) -> Packager {
    Packager::new(FormatKey::new("ts", 0), Some(Box::new(package)), &Arc::default(), 0)
}

fn package(out: &mut Packager, tracks: &Arc<Tracks>, unit: AccessUnit) -> Vec<u8> {
    out.push(&Entry::new(Instant::now(), 0, unit, Arc::clone(tracks)));
    out.newest().slices().concat()
}

fn units(ingest: &mut Depackager) -> Vec<AccessUnit> {
    std::iter::from_fn(|| ingest.poll_unit()).map(|(unit, _)| unit).collect()
}

/// Returns the parts of each unit that tests compare.
fn seen(units: &[AccessUnit]) -> Vec<(TrackId, i64, i64, bool, &Bytes)> {
    units.iter().map(|unit| (unit.track, unit.dts, unit.pts, unit.key_frame, &unit.payload)).collect()
}

/// A publisher's PES packets, as any muxer would send them.
struct Publisher {
    muxer: Muxer,
    ingest: Depackager,
}

impl Publisher {
    fn new(video: Option<StreamKind>, audio: Option<StreamKind>) -> Self {
        let mut muxer = Muxer::new();
        muxer.set_streams(video, audio);
        Self { muxer, ingest: ingest() }
    }

    fn send(
        &mut self,
        kind: Kind,
        dts: u64,
        pts: u64,
        random_access: bool,
        payload: &[u8],
    ) -> Vec<AccessUnit> {
        let (dts, pts) = (dts + ZERO, pts + ZERO);
        let bytes = self.muxer.write(&Unit { kind, number: 0, pts, dts, random_access, payload: &[payload] });
        self.ingest.handle(&bytes);
        units(&mut self.ingest)
    }

    fn video(&mut self, dts: u64, nals: &[&[u8]]) -> Vec<AccessUnit> {
        self.send(Kind::Video, dts, dts, false, &annex_b(nals))
    }

    fn audio(&mut self, dts: u64, payload: &[u8]) -> Vec<AccessUnit> {
        self.send(Kind::Audio, dts, dts, false, payload)
    }
}

#[test]
fn units_come_back_as_they_went_for_every_codec_and_to_the_tick() {
    // The configuration record written by ffmpeg allows parameter sets in band as well; the one made here does not.
    let sets = h265::Config::read(Bytes::from_static(HVCC)).unwrap();
    let sets: Vec<&[u8]> = sets.parameter_sets().collect();
    let hevc = CodecConfig::H265(h265::Config::of_sets(&sets[..1], &sets[1..2], &sets[2..]).unwrap());
    let video = [(h264_config(), lengths(&[IDR]), lengths(&[INTER])), {
        (hevc, lengths(&[&[38, 1, 0xaf, 7]]), lengths(&[&[2, 1, 0xd0, 7]]))
    }];
    for (n, (audio_config, frame)) in sounds().iter().enumerate() {
        let (config, key, inter) = &video[n % 2];
        let mut given = Vec::new();
        for n in 0..200i64 {
            let (dts, key_frame) = (n * 3003, n % 50 == 0);
            let payload = if key_frame { key } else { inter };
            given.push(unit(TrackId::VIDEO, dts, dts + n % 3 * 3003, key_frame, payload));
            given.push(unit(TrackId::AUDIO, dts + 7, dts + 7, false, frame));
        }
        let tracks = tracks(1, TICKS, Some(config.clone()), Some(audio_config.clone()));
        let mut out = out();
        let mut ingest = ingest();
        let mut got = Vec::new();
        for unit in &given {
            let bytes = package(&mut out, &tracks, unit.clone());
            assert!(!bytes.is_empty() && bytes.len().is_multiple_of(PACKET_BYTES));
            // A unit is complete with its last packet: nothing waits for the next unit.
            for piece in bytes.chunks(1316) {
                ingest.handle(piece);
            }
            let came = units(&mut ingest);
            // The first video frame waits for the first audio frame.
            assert!(came.len() == 1 || unit.dts < 10, "{audio_config:?}");
            got.extend(came);
        }
        assert_eq!(seen(&got), seen(&given));
        let found = ingest.tracks();
        let configs = |tracks: &Tracks| tracks.iter().map(|track| track.config.clone()).collect::<Vec<_>>();
        assert_eq!(configs(found), configs(&tracks));
        let stats: Stats = ingest.stats();
        assert_eq!((stats.bad, stats.dropped, stats.demux.gaps), (0, 0, 0));
    }
}

/// Audio frames of 48 kHz that need no configuration, each with the configuration they imply.
fn sounds() -> [(CodecConfig, Bytes); 5] {
    let mp3_frame = [&[0xff, 0xfb, 0x94, 0x64][..], &[0; 380]].concat();
    let ac3_frame = [&[0x0b, 0x77, 1, 2, 20, 0x40][..], &[5; 762]].concat();
    let eac3_frame = [&[0x0b, 0x77, 0x01, 0x7f, 0x30, 0x80][..], &[5; 762]].concat();
    let mp3_config = mp3::Config::of_frame(&mp3_frame).unwrap();
    [
        (aac_config(), Bytes::from_static(b"\x21\x10raw")),
        (CodecConfig::Mp3(mp3_config), mp3_frame.into()),
        (CodecConfig::Ac3(ac3::Config), ac3_frame.into()),
        (CodecConfig::Eac3(ac3::Config), eac3_frame.into()),
        (CodecConfig::Opus(opus::Config::of_channels(2).unwrap()), Bytes::from_static(b"\xfcopus")),
    ]
}

#[test]
fn frames_that_share_a_packet_keep_their_times_and_wait_for_a_tenth_of_a_second_at_most() {
    for (config, frame) in sounds() {
        let (samples, rate) = config.samples_of(&frame).unwrap();
        let duration = i64::try_from(samples * 90_000 / u64::from(rate)).unwrap();
        let tracks = tracks(1, TICKS, Some(h264_config()), Some(config.clone()));
        let (mut out, mut ingest) = (packager(TsPackage::live()), ingest());
        let (mut given, mut got, mut longest) = (Vec::new(), Vec::new(), 0);
        for n in 0..200 {
            let (dts, key_frame) = (n * 3600, n % 50 == 0);
            let payload = lengths(&[if key_frame { IDR } else { INTER }]);
            given.push(unit(TrackId::VIDEO, dts, dts, key_frame, &payload));
            let sound = (n * 3600 + duration - 1) / duration..((n + 1) * 3600 + duration - 1) / duration;
            // The audio has a pause.
            for dts in sound.filter(|n| *n != 100).map(|n| n * duration) {
                given.push(unit(TrackId::AUDIO, dts, dts, false, &frame));
            }
        }
        for unit in &given {
            let bytes = package(&mut out, &tracks, unit.clone());
            assert!(bytes.len().is_multiple_of(PACKET_BYTES));
            ingest.handle(&bytes);
            let came = units(&mut ingest);
            longest = came.iter().map(|came| unit.dts - came.dts).max().unwrap_or(0).max(longest);
            got.extend(came);
        }
        out.finish();
        ingest.handle(&out.tail().map(|tail| tail.slices().concat()).unwrap_or_default());
        got.extend(units(&mut ingest));
        let of = |units: &[AccessUnit], track| {
            let units = units.iter().filter(|unit| unit.track == track).cloned();
            units.collect::<Vec<_>>()
        };
        assert_eq!(seen(&of(&got, TrackId::VIDEO)), seen(&of(&given, TrackId::VIDEO)));
        let (sent, came) = (of(&given, TrackId::AUDIO), of(&got, TrackId::AUDIO));
        assert_eq!(seen(&came), seen(&sent), "{config:?}");
        assert!(longest <= 9000, "{config:?}: {longest}");
        let stats: Stats = ingest.stats();
        assert_eq!((stats.bad, stats.dropped, stats.demux.gaps), (0, 0, 0));
    }
}

#[test]
fn a_viewer_who_joins_anywhere_gets_the_tables_first_and_misses_nothing() {
    let frame = Bytes::from_static(&[0x21; 170]);
    for video in [None, Some(h264_config())] {
        let tracks = tracks(1, TICKS, video.clone(), Some(aac_config()));
        let mut out = packager(TsPackage::live());
        let mut entries = Vec::new();
        for n in 0..150 {
            if video.is_some() && n % 2 == 0 {
                let payload = lengths(&[if n % 50 == 0 { IDR } else { INTER }]);
                entries.push(unit(TrackId::VIDEO, n * 1920, n * 1920, n % 50 == 0, &payload));
            }
            entries.push(unit(TrackId::AUDIO, n * 1920, n * 1920, false, &frame));
        }
        let mut bytes = Vec::new();
        let mut preludes = Vec::new();
        for (n, unit) in entries.iter().enumerate() {
            bytes.push(package(&mut out, &tracks, unit.clone()));
            preludes.push(out.prelude(n as u64).unwrap().slices().concat());
        }
        let tables = bytes.iter().flat_map(|bytes| bytes.chunks(PACKET_BYTES));
        let tables = tables.filter(|packet| packet[1] & 0x1f == 0 && packet[2] == 0).count();
        assert!((7..=10).contains(&tables), "every 400 ms of 3.2 s: {tables}");
        for begin in 0..entries.len() - 8 {
            if video.is_some() && !entries[begin].key_frame {
                continue;
            }
            let first = bytes[begin..].iter().position(|bytes| !bytes.is_empty()).unwrap() + begin;
            let stream = [&preludes[first][..], &bytes[first..].concat()].concat();
            let packet =
                |n: usize| Packet::read(stream[n * PACKET_BYTES..][..PACKET_BYTES].try_into().unwrap());
            assert_eq!((packet(0).unwrap().pid, packet(1).unwrap().pid), (Pid::PAT, PMT_PID));
            let mut last = std::collections::BTreeMap::new();
            for packet in (0..stream.len() / PACKET_BYTES).map(|n| packet(n).unwrap()) {
                let before = last.insert(packet.pid, packet);
                // A copy of a packet has the same continuity counter.
                let is_next = |before: Packet<'_>| {
                    let step = u8::from(packet.payload.is_some_and(|payload| !payload.is_empty()));
                    before == packet || (before.continuity + step) & 0x0f == packet.continuity
                };
                assert!(before.is_none_or(is_next), "{begin}: {packet:?}");
            }
            let mut ingest = ingest();
            ingest.handle(&stream);
            ingest.finish();
            let came = units(&mut ingest);
            assert_eq!((ingest.stats().demux.gaps, ingest.stats().bad), (0, 0));
            for track in [TrackId::VIDEO, TrackId::AUDIO] {
                let due = entries[begin..].iter().filter(|unit| unit.track == track).count();
                let got = came.iter().filter(|unit| unit.track == track).count();
                // The last frames still wait; a few may be from before the viewer joined.
                assert!(got + 4 > due && got < due + 4, "{begin}: {got} of {due}");
            }
        }
    }
}

#[test]
fn milliseconds_become_ticks_exactly_and_the_zero_is_that_of_ffmpeg() {
    let tracks = tracks(1, Timescale::MILLISECONDS, Some(h264_config()), None);
    let mut out = out();
    let mut demuxer = Demuxer::new();
    for ms in [0, 33, 67, 100_000_000] {
        let bytes = package(&mut out, &tracks, unit(TrackId::VIDEO, ms, ms + 40, true, &lengths(&[IDR])));
        let mut input = &bytes[..];
        let pes: Vec<Pes> = std::iter::from_fn(|| demuxer.read(&mut input)).filter_map(pes).collect();
        let ticks = u64::try_from(ms).unwrap() * 90 + ZERO;
        assert_eq!((pes[0].dts, pes[0].pts), (Some(ticks & CLOCK_MASK), Some((ticks + 3600) & CLOCK_MASK)));
    }
}

fn pes(event: Event) -> Option<Pes> {
    match event {
        Event::Program(_) => None,
        Event::Pes(pes) => Some(pes),
        Event::Splice(_) => None,
    }
}

#[test]
fn a_picture_goes_out_with_a_delimiter_and_a_key_frame_with_its_sets() {
    let tracks = tracks(1, TICKS, Some(h264_config()), None);
    let payload_of = |key, nals: &[&[u8]]| {
        let bytes = package(&mut out(), &tracks, unit(TrackId::VIDEO, 0, 0, key, &lengths(nals)));
        let mut demuxer = Demuxer::new();
        let mut input = &bytes[..];
        let pes: Vec<Pes> = std::iter::from_fn(|| demuxer.read(&mut input)).filter_map(pes).collect();
        assert_eq!((pes.len(), pes[0].random_access, pes[0].aligned), (1, key, true));
        pes[0].payload.clone()
    };
    assert_eq!(payload_of(true, &[IDR]), annex_b(&[AUD, SPS, PPS, IDR]));
    assert_eq!(payload_of(false, &[INTER]), annex_b(&[AUD, INTER]));
    // Encoders may leave delimiters and parameter sets in their frames, which RTMP passes on; the output has each
    // once.
    assert_eq!(
        payload_of(true, &[&[9, 0x10], SPS, PPS, &[6, 5, 0], IDR]),
        annex_b(&[AUD, SPS, PPS, &[6, 5, 0], IDR])
    );
}

#[test]
fn what_cannot_be_carried_is_left_out_and_counters_stay_right_over_epochs() {
    let flac = CodecConfig::Flac(flac::Config::read(Bytes::from_static(STREAMINFO)).unwrap());
    let eld = aac::Config::read(Bytes::from_static(&[0xf8, 0xe6, 0x40])).unwrap();
    let mut out = out();
    let mut bytes = Vec::new();
    let audio_configs =
        [Some(aac_config()), Some(flac), None, Some(CodecConfig::Aac(eld)), Some(aac_config())];
    let mut sizes = Vec::new();
    for (epoch, audio_config) in audio_configs.into_iter().enumerate() {
        let epoch = u32::try_from(epoch).unwrap();
        let tracks = tracks(epoch, TICKS, Some(h264_config()), audio_config);
        for n in 0..3 {
            let dts = i64::from(epoch) * 9000 + n * 3000;
            let video = unit(TrackId::VIDEO, dts, dts, n == 0 && epoch == 0, &lengths(&[IDR]));
            bytes.extend(package(&mut out, &tracks, video));
            let audio =
                package(&mut out, &tracks, unit(TrackId::AUDIO, dts, dts, false, &Bytes::from_static(b"x")));
            sizes.push(audio.len());
            bytes.extend(audio);
            assert!(
                package(&mut out, &tracks, unit(TrackId::DATA, dts, dts, false, &Bytes::new())).is_empty()
            );
        }
    }
    assert_eq!(
        sizes.iter().map(|size| size / PACKET_BYTES).collect::<Vec<_>>(),
        [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    );
    let mut demuxer = Demuxer::new();
    let mut input = &bytes[..];
    let events: Vec<Event> = std::iter::from_fn(|| demuxer.read(&mut input)).collect();
    let streams = |event: &Event| match event {
        Event::Program(map) => Some(map.streams.len()),
        Event::Pes(_) | Event::Splice(_) => None,
    };
    assert_eq!(events.iter().filter_map(streams).collect::<Vec<_>>(), [2, 1, 2]);
    assert_eq!((demuxer.stats().gaps, demuxer.stats().pes), (0, 21));
    // The clock is never after the media sent with it, and never long before it.
    for packet in bytes.chunks(PACKET_BYTES) {
        let packet = Packet::read(packet.try_into().unwrap()).unwrap();
        assert!(
            packet
                .adaptation
                .is_none_or(|field| field.pcr.is_none_or(|pcr| pcr.base >= ZERO - mpegts::LATE_MAX))
        );
    }
}

#[test]
fn a_program_of_two_of_each_is_carried_both_ways() {
    let video = |n| {
        let id = TrackId::nth(TrackKind::Video, n).unwrap();
        Track { epoch: 1, ..Track::new(id, h264_config(), TICKS) }
    };
    let audio = |n| {
        let id = TrackId::nth(TrackKind::Audio, n).unwrap();
        Track { epoch: 1, ..Track::new(id, aac_config(), TICKS) }
    };
    let tracks = Arc::new(Tracks::new(1, [video(0), video(1), audio(0), audio(1)]));
    let key = FormatKey { selection: Selection::ALL, ..FormatKey::new("ts", 0) };
    let mut out = Packager::new(key, Some(Box::new(TsPackage::at_once())), &tracks, 0);
    let mut ingest = ingest();
    let mut got = Vec::new();
    let mut sent = Vec::new();
    for n in 0..6 {
        for track in tracks.iter() {
            let is_video = track.kind() == TrackKind::Video;
            let payload = if is_video { lengths(&[IDR]) } else { Bytes::from_static(b"x") };
            let unit =
                AccessUnit { config_epoch: 1, ..unit(track.id, n * 3000, n * 3000, is_video, &payload) };
            ingest.handle(&package(&mut out, &tracks, unit.clone()));
            sent.push(unit);
            got.extend(units(&mut ingest));
        }
    }
    assert_eq!(seen(&got), seen(&sent));
    assert_eq!(
        ingest.tracks().iter().map(|track| track.id).collect::<Vec<_>>(),
        tracks.iter().map(|track| track.id).collect::<Vec<_>>()
    );
}

#[test]
fn parameter_sets_become_the_tracks_and_new_ones_an_epoch() {
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    assert_eq!(publisher.video(0, &[AUD, INTER]), []);
    assert_eq!(publisher.video(3000, &[AUD, IDR]), [], "without parameter sets");
    let key = publisher.video(6000, &[AUD, SPS, PPS, &[6, 1, 1, 0x80], &[12, 0xff, 0x80], IDR]);
    assert_eq!(key[0].payload, lengths(&[&[6, 1, 1, 0x80], IDR]));
    assert_eq!((key[0].dts, key[0].key_frame, key[0].config_epoch), (6000, true, 1));
    assert_eq!(publisher.ingest.tracks().video().unwrap().config, h264_config());
    let again = publisher.video(9000, &[AUD, SPS, PPS, IDR]);
    assert_eq!(again[0].config_epoch, 1);
    let pps = [0x68, 0xcb, 0x83, 0xcb, 0x21];
    let other = publisher.video(12_000, &[AUD, SPS, &pps, IDR]);
    assert_eq!(other[0].config_epoch, 2);
    assert_eq!(publisher.video(15_000, &[AUD, INTER])[0].config_epoch, 2);
    // Parameter sets in a packet of their own wait for their picture.
    assert_eq!(publisher.video(18_000, &[AUD, SPS, PPS]), []);
    assert_eq!(publisher.video(18_000, &[IDR])[0].config_epoch, 3);
    assert_eq!(publisher.ingest.stats().dropped, 2);
}

#[test]
fn units_that_mean_nothing_cost_themselves_and_not_their_picture() {
    let after = &[0xb4, 0xbb][..];
    // A slice that does not begin a picture.
    let rest = &[0x65, 0x44, 0x84, 2][..];
    let voids: [&[u8]; 10] = [
        &[0x60, 1, 2],
        &[0x7e, 1, 2],
        &[0x7f, 1, 2],
        &[0, 9],
        &[0x1e, 9],
        &[0x1f, 9],
        &[0x65],
        &[0x41],
        &[0x67],
        &[6],
    ];
    for void in voids {
        for at in 0..3 {
            let mut publisher = Publisher::new(Some(StreamKind::H264), None);
            publisher.video(0, &[AUD, SPS, PPS, IDR]);
            let mut nals = vec![AUD, IDR, rest];
            nals.insert(at + 1, void);
            let came = publisher.video(3000, &nals);
            assert_eq!((came.len(), &came[0].payload), (1, &lengths(&[IDR, rest])), "{void:?} {at}");
            // Start codes with nothing between them are not units.
            let bytes = [&annex_b(&nals)[..], &[0, 0, 1, 0, 0, 1, 0, 0, 0, 1]].concat();
            let came = publisher.send(Kind::Video, 6000, 6000, false, &bytes);
            assert_eq!(came[0].payload, lengths(&[IDR, rest]), "{void:?} {at}");
        }
    }
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    publisher.video(0, &[AUD, SPS, PPS, IDR]);
    let came = publisher.video(3000, &[AUD, INTER, &[10], &[11], after]);
    assert_eq!(came[0].payload, lengths(&[INTER, &[10], &[11], after]), "units of a head alone by right");
}

#[test]
fn a_recovery_point_is_a_key_frame_when_the_muxer_says_so() {
    let recovery: &[u8] = &[6, 6, 1, 0xc4, 0x80];
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    let payload = annex_b(&[AUD, recovery, INTER]);
    publisher.video(0, &[SPS, PPS]);
    assert_eq!(publisher.send(Kind::Video, 0, 0, false, &payload), []);
    assert_eq!(publisher.send(Kind::Video, 3000, 3000, true, &annex_b(&[AUD, INTER])), []);
    let units = publisher.send(Kind::Video, 6000, 6000, true, &payload);
    assert!(units[0].key_frame);
    assert!(!publisher.video(9000, &[AUD, recovery, INTER])[0].key_frame);
    // H.265: CRA and IDR pictures are key frames.
    let sets = h265::Config::read(Bytes::from_static(HVCC)).unwrap();
    let sets: Vec<&[u8]> = sets.parameter_sets().collect();
    let mut publisher = Publisher::new(Some(StreamKind::H265), None);
    for (slice, key) in [(21, true), (1, false), (20, true)] {
        let slice: &[u8] = &[slice << 1, 1, 0xaf, 7];
        let came = publisher.video(0, &[&[&h265::AUD[..]], &sets[..], &[slice]].concat());
        assert_eq!((came[0].key_frame, &came[0].payload), (key, &lengths(&[slice])));
    }
    assert_eq!(publisher.ingest.tracks().video().unwrap().config.picture_size(), Some((320, 180)));
}

#[test]
fn several_pictures_in_a_packet_are_separated() {
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    let second: &[u8] = &[0x41, 0x40, 9];
    publisher.video(0, &[AUD, SPS, PPS, IDR]);
    publisher.video(1800, &[AUD, INTER]);
    // Pictures are separated at a delimiter and at the first macroblock; another slice of the same picture begins no
    // new one.
    let units = publisher.send(
        Kind::Video,
        3600,
        5400,
        false,
        &annex_b(&[AUD, INTER, second, AUD, INTER, INTER, second]),
    );
    let times: Vec<(i64, i64)> = units.iter().map(|unit| (unit.dts, unit.pts)).collect();
    assert_eq!(times, [(3600, 5400), (5400, 7200), (7200, 9000)]);
    assert_eq!(units[0].payload, lengths(&[INTER, second]));
    let units = publisher.video(9000, &[AUD, INTER, AUD, INTER]);
    assert_eq!(units.iter().map(|unit| unit.dts).collect::<Vec<_>>(), [9000, 10_800]);
}

/// Makes packets of 188 bytes by hand, from PES packets with or without a time, and without a length as usual for
/// video.
fn pieces(parts: &[(Option<u64>, &[u8])]) -> Depackager {
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), None);
    let mut ingest = ingest();
    for (dts, payload) in parts {
        let (dts_told, time) = (dts.is_some(), dts.unwrap_or(0) + ZERO);
        let unit = Unit {
            kind: Kind::Video,
            number: 0,
            pts: time,
            dts: time,
            random_access: false,
            payload: &[payload],
        };
        let mut bytes = muxer.write(&unit).to_vec();
        if !dts_told {
            // The PTS flag is removed; its five bytes are then stuffing.
            let at = bytes.windows(4).position(|bytes| bytes == [0, 0, 1, 0xe0]).unwrap();
            bytes[at + 7] = 0;
        }
        ingest.handle(&bytes);
    }
    ingest.finish();
    ingest
}

#[test]
fn a_picture_in_several_packets_is_reassembled() {
    let big = [&[0x65, 0x88][..], &[7; 62_000]].concat();
    let start = annex_b(&[AUD, SPS, PPS, &big]);
    let mut ingest = pieces(&[
        (Some(0), &start),
        (None, &[8; 500]),
        (None, &[9; 40]),
        (Some(3000), &annex_b(&[AUD, INTER])),
    ]);
    let units = units(&mut ingest);
    assert_eq!(units.iter().map(|unit| unit.dts).collect::<Vec<_>>(), [0, 3000]);
    assert_eq!(units[0].payload, lengths(&[&[&big[..], &[8; 500], &[9; 40]].concat()]));
    assert_eq!(ingest.stats().bad, 0);
}

#[test]
fn small_packets_of_one_picture_are_waited_for_once_they_were_seen() {
    let slice: &[u8] = &[0x41, 0x40, 9];
    let key = annex_b(&[AUD, SPS, PPS, IDR]);
    let (first, rest) = (annex_b(&[AUD, INTER]), annex_b(&[slice]));
    let parts: [(Option<u64>, &[u8]); 6] = [
        (Some(0), &key),
        (None, &rest),
        (Some(3000), &first),
        (None, &rest),
        (Some(6000), &first),
        (None, &rest),
    ];
    let mut ingest = pieces(&parts);
    let units = units(&mut ingest);
    assert_eq!(units[0].payload, lengths(&[IDR]), "the first one had gone");
    assert!(units[1..].iter().all(|unit| unit.payload == lengths(&[INTER, slice])));
    assert_eq!((units.len(), ingest.stats().bad), (3, 1));
}

#[test]
fn audio_frames_are_split_and_joined_and_timed_from_their_packet() {
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = |size: usize| [&config.adts(size).unwrap()[..], &vec![5; size]].concat();
    let stream: Vec<u8> = (0..7).flat_map(|n| frame(100 + n)).collect();
    let mut publisher = Publisher::new(None, Some(StreamKind::AacAdts));
    // The first packet has three frames and a piece of the fourth; the second the rest of it and two more frames;
    // the third the last frame.
    let cuts = [0, 3 * 108 + 50, 6 * 110 - 3, stream.len()];
    let mut units = Vec::new();
    for (n, cut) in cuts.windows(2).enumerate() {
        // The PTS is the time of the first frame that begins in the packet: 0, 4, 6; with rounding errors of a tick.
        let pts = [0, 4, 6][n] * 1920 + n as u64;
        units.extend(publisher.audio(pts, &stream[cut[0]..cut[1]]));
    }
    let times: Vec<i64> = units.iter().map(|unit| unit.dts).collect();
    assert_eq!(times, [0, 1920, 3840, 5760, 7681, 9601, 11_522]);
    assert_eq!(
        units.iter().map(|unit| unit.payload.len()).collect::<Vec<_>>(),
        (100..107).collect::<Vec<_>>()
    );
    assert_eq!(publisher.ingest.stats().bad, 0);
    // At 44.1 kHz, a frame is not a whole number of ticks of 90 kHz. The rounding errors must not add up.
    let config = aac::Config::read(Bytes::from_static(&[0x12, 0x10])).unwrap();
    let many: Vec<u8> = (0..200).flat_map(|_| [&config.adts(3).unwrap()[..], b"raw"].concat()).collect();
    let units = Publisher::new(None, Some(StreamKind::AacAdts)).audio(0, &many);
    assert_eq!(units.last().unwrap().dts, (199 * 1024 * 90_000 + 22_050) / 44_100);
}

#[test]
fn audio_resynchronises_after_a_loss() {
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(50).unwrap()[..], &[0xff; 50]].concat();
    let mut publisher = Publisher::new(None, Some(StreamKind::AacAdts));
    let torn = [&frame[20..], &frame, &frame].concat();
    assert_eq!(publisher.audio(0, &torn).len(), 2);
    assert_eq!(publisher.ingest.stats().bad, 1);
    // Noise is dropped; it is not kept in the hope of a frame.
    for n in 0..50 {
        assert_eq!(publisher.audio(n * 1000, &[0xff; 3000]), []);
    }
    // MPEG audio of layer II is not supported; layer III (MP3) is.
    let mut publisher = Publisher::new(None, Some(StreamKind::MpegAudio { mpeg2: false }));
    assert_eq!(publisher.audio(0, &[&[0xff, 0xfd, 0x94, 0x64][..], &[0; 300]].concat()), []);
    assert_eq!(publisher.ingest.stats().bad, 1);
    assert_eq!(publisher.ingest.why_bad(), Some("MPEG audio of layer II (MP2) is not carried"));
    assert!(publisher.ingest.tracks().is_empty());
}

#[test]
fn t_05_a_program_that_changes_changes_the_tracks() {
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(5).unwrap()[..], b"audio"].concat();
    publisher.video(0, &[AUD, SPS, PPS, IDR]);
    publisher.audio(0, &frame);
    assert_eq!(publisher.ingest.tracks().epoch, 2);
    publisher.muxer.set_streams(Some(StreamKind::H265), None);
    let cra: &[u8] = &[42, 1, 0xaf];
    let sets = h265::Config::read(Bytes::from_static(HVCC)).unwrap();
    assert_eq!(publisher.video(3000, &[&[2, 1, 0xd0]]), []);
    assert_eq!(publisher.ingest.tracks().audio(), None);
    let nals: Vec<&[u8]> = sets.parameter_sets().chain([cra]).collect();
    let units = publisher.video(6000, &nals);
    assert_eq!(units.len(), 1);
    let codec = publisher.ingest.tracks().video().map(|track| track.config.codec());
    let epoch = publisher.ingest.tracks().video().unwrap().epoch;
    assert_eq!((codec, units[0].config_epoch), (Some(media::Codec::H265), epoch));
}

#[test]
fn t_07_the_wrap_is_no_jump_and_a_jump_is_repaired() {
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    let end = CLOCK_MASK + 1 - ZERO;
    let mut times = Vec::new();
    for dts in [end - 3600, end, end + 3600, 900_000_000, 900_003_600, 100, 3700] {
        let key: Vec<&[u8]> = if times.is_empty() { vec![AUD, SPS, PPS, IDR] } else { vec![AUD, INTER] };
        times.push(publisher.video(dts, &key)[0].dts);
    }
    assert_eq!(times, [0, 3600, 7200, 10_800, 14_400, 18_000, 21_600]);
    let Some(media::ClockNews::Fault(fault)) = publisher.ingest.take_clock_news() else { panic!("no fault") };
    assert_eq!((fault.fault, fault.count), (media::ClockFault::Jump, 2));
    // A publisher that returns continues after its predecessor.
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    publisher.ingest = ingest_at(media::Position { dts_ms: 1000, started: true });
    assert_eq!(publisher.video(0, &[AUD, SPS, PPS, IDR])[0].dts, 93_600);
}

#[test]
fn t_08_a_lost_packet_costs_one_unit() {
    let tracks = tracks(1, TICKS, Some(h264_config()), Some(aac_config()));
    let mut out = out();
    let (key, inter) = (lengths(&[&[IDR, &[1; 2000]].concat()]), lengths(&[&[INTER, &[1; 900]].concat()]));
    let mut bytes = Vec::new();
    for n in 0..20 {
        let payload = if n == 0 { &key } else { &inter };
        bytes.extend(package(&mut out, &tracks, unit(TrackId::VIDEO, n * 3000, n * 3000, n == 0, payload)));
        let audio = Bytes::from_static(&[3; 300]);
        bytes.extend(package(&mut out, &tracks, unit(TrackId::AUDIO, n * 3000, n * 3000, false, &audio)));
    }
    let packets = bytes.len() / PACKET_BYTES;
    for lost in 40..packets {
        let mut ingest = ingest();
        for (n, packet) in bytes.chunks(PACKET_BYTES).enumerate() {
            if n != lost {
                ingest.handle(packet);
            }
        }
        let came = units(&mut ingest).len();
        assert!((39..=40).contains(&came), "{lost}: {came}");
    }
}

#[test]
fn the_first_units_wait_until_all_tracks_are_known_but_not_for_long() {
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(5).unwrap()[..], b"audio"].concat();
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    assert_eq!(publisher.video(0, &[AUD, SPS, PPS, IDR]), []);
    assert_eq!(publisher.video(3000, &[AUD, INTER]), []);
    let units = publisher.audio(1920, &frame);
    assert_eq!(
        units.iter().map(|unit| (unit.dts, unit.config_epoch)).collect::<Vec<_>>(),
        [(0, 1), (3000, 1), (1920, 2)]
    );
    assert_eq!(publisher.video(6000, &[AUD, INTER]).len(), 1);
    // Audio is announced and never arrives.
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    assert_eq!(publisher.video(0, &[AUD, SPS, PPS, IDR]), []);
    assert_eq!(publisher.video(87_000, &[AUD, INTER]), []);
    assert_eq!(publisher.video(90_000, &[AUD, INTER]).len(), 3);
    assert_eq!(publisher.video(93_000, &[AUD, INTER]).len(), 1);
    // The units are also released if the stream ends.
    let mut publisher = Publisher::new(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    publisher.video(0, &[AUD, SPS, PPS, IDR]);
    publisher.ingest.finish();
    assert_eq!(self::units(&mut publisher.ingest).len(), 1);
}

#[test]
fn a_picture_holds_little_more_than_its_bytes() {
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    let filler = [&[12][..], &[0xff; 100_000]].concat();
    let mut got = publisher.video(0, &[AUD, SPS, PPS, IDR, &filler]);
    got.extend(publisher.video(3000, &[AUD, INTER, AUD, INTER, AUD, INTER, &filler]));
    publisher.ingest.finish();
    got.extend(units(&mut publisher.ingest));
    assert_eq!(got.len(), 4);
    for unit in got {
        let bytes = unit.payload.len();
        let room = unit.payload.try_into_mut().unwrap().capacity();
        assert!(room <= 2 * bytes, "{room} for {bytes}");
    }
}

#[test]
fn pictures_without_dts_get_decode_times_from_their_order() {
    // Shown 0, 3, 1, 2, 6, 4, 5, ...: of each three pictures, the one that is shown last arrives first.
    let shown = |n: u64| match n % 3 {
        _ if n == 0 => 0,
        1 => n + 2,
        2 => n - 1,
        _ => n - 1,
    };
    let mut publisher = Publisher::new(Some(StreamKind::H264), None);
    let mut times = Vec::new();
    for n in 0..60 {
        let nals: Vec<&[u8]> = if n == 0 { vec![AUD, SPS, PPS, IDR] } else { vec![AUD, INTER] };
        times.extend(publisher.video(shown(n) * 3600, &nals).iter().map(|unit| (unit.dts, unit.pts)));
    }
    assert_eq!(times.len(), 60);
    assert!(times.iter().all(|(dts, pts)| dts <= pts), "{times:?}");
    // The delay learnt from the first reordered pictures holds for all that follow.
    assert!(times.iter().skip(6).is_sorted_by(|(a, _), (b, _)| a < b), "{times:?}");
    let late: Vec<(u64, i64)> =
        times.iter().map(|(_, pts)| *pts).enumerate().map(|(n, pts)| (n as u64, pts)).collect();
    assert!(late.iter().skip(6).all(|(n, pts)| pts.cast_unsigned() == shown(*n) * 3600), "{late:?}");
    // After a single packet with a DTS, the decode times of the stream itself are used.
    publisher.send(Kind::Video, 70 * 3600, 72 * 3600, false, &annex_b(&[AUD, INTER]));
    let next = publisher.video(71 * 3600, &[AUD, INTER]);
    assert_eq!((next[0].dts, next[0].pts), (71 * 3600, 71 * 3600));
}
