use super::clock::PCR_INTERVAL_MAX;
use super::*;
use crate::{Demuxer, Event, Packet, Pes};

fn unit<'a>(kind: Kind, dts: u64, payload: &'a [&'a [u8]]) -> Unit<'a> {
    Unit { kind, number: 0, pts: dts, dts, random_access: false, payload }
}

fn packets(bytes: &[u8]) -> Vec<Packet<'_>> {
    bytes.chunks(PACKET_BYTES).map(|packet| Packet::read(packet.try_into().unwrap()).unwrap()).collect()
}

fn both() -> Muxer {
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    muxer
}

/// Returns every PCR with its PID.
fn clocks(bytes: &[u8]) -> Vec<(Pid, u64)> {
    let pcr = |packet: &Packet<'_>| Some((packet.pid, packet.adaptation?.pcr?.base));
    packets(bytes).iter().filter_map(pcr).collect()
}

#[test]
fn every_size_is_cut_into_whole_packets_that_read_the_same() {
    let mut muxer = both();
    let mut demuxer = Demuxer::new();
    for size in (1..1500).chain([65_512, 65_513, 65_514, 65_530, 100_000]) {
        let body: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let (start, end) = body.split_at(size / 3);
        let payload = [start, end];
        let dts = 3600 * size as u64;
        let unit = Unit { pts: dts + 9, random_access: size % 9 == 0, ..unit(Kind::Video, dts, &payload) };
        let bytes = muxer.write(&unit);
        assert_eq!(bytes.len() % PACKET_BYTES, 0);
        let mut input = &bytes[..];
        let mut pes = Vec::new();
        while let Some(event) = demuxer.read(&mut input) {
            pes.extend(if let Event::Pes(one) = event { Some(one) } else { None });
        }
        demuxer.finish();
        while let Some(Event::Pes(one)) = demuxer.read(&mut &[][..]) {
            pes.push(one);
        }
        let [pes] = &pes[..] else { panic!("{size}: {}", pes.len()) };
        assert_eq!((pes.pts, pes.dts), (Some(dts + 9), Some(dts)));
        assert_eq!((pes.random_access, pes.bounded), (size % 9 == 0, size < 65_523), "{size}");
        assert_eq!(pes.payload, body);
    }
    assert_eq!((demuxer.stats().gaps, demuxer.stats().packets_invalid), (0, 0));
}

#[test]
fn counters_go_on_over_everything() {
    let mut muxer = both();
    let mut bytes = Vec::new();
    for n in 0..200u64 {
        if n == 100 {
            muxer.set_streams(Some(StreamKind::H265), Some(StreamKind::AacAdts));
        }
        if n % 5 == 0 {
            bytes.extend_from_slice(&muxer.write(&unit(Kind::Video, n * 2000, &[&[1; 700]])));
        }
        bytes.extend_from_slice(&muxer.write(&unit(Kind::Audio, n * 2000, &[&[2; 100]])));
    }
    let mut last = BTreeMap::new();
    for packet in packets(&bytes) {
        let step = u8::from(packet.payload.is_some_and(|payload| !payload.is_empty()));
        if let Some(before) = last.insert(packet.pid, packet.continuity) {
            assert_eq!((before + step) & 0x0f, packet.continuity, "{packet:?}");
        }
    }
    assert_eq!(last.len(), 4);
}

#[test]
fn the_clock_is_its_lead_before_a_frame_and_never_falls() {
    let mut muxer = both();
    // The audio stream has sent nothing yet. It may lag by the maximum that is allowed.
    let first = muxer.write(&unit(Kind::Video, 126_000, &[&[1]]));
    assert_eq!(clocks(&first), [(VIDEO_PID, 126_000 - LATE_MAX)]);
    assert_eq!(clocks(&muxer.write(&unit(Kind::Audio, 129_000, &[&[1]]))), []);
    let second = clocks(&muxer.write(&unit(Kind::Video, 129_600, &[&[1]])));
    assert_eq!(second.last(), Some(&(VIDEO_PID, 129_600 - PCR_LEAD)));
    // At 25 frames per second, every second frame has a PCR.
    assert_eq!(clocks(&muxer.write(&unit(Kind::Video, 133_200, &[&[1]]))), []);
    let _ = muxer.write(&unit(Kind::Audio, 135_000, &[&[1]]));
    let third = muxer.write(&unit(Kind::Video, 136_800, &[&[1]]));
    assert_eq!(clocks(&third), [(VIDEO_PID, 136_800 - PCR_LEAD)]);
    // A unit that is earlier than the last one has no PCR.
    assert_eq!(clocks(&muxer.write(&unit(Kind::Video, 129_000, &[&[1]]))), []);
    // The clock is earlier than the DTS: before the wrap at a DTS of 0, and 0 at a DTS that equals the lead.
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), None);
    let first = clocks(&muxer.write(&unit(Kind::Video, 0, &[&[1]])));
    assert_eq!(first, [(VIDEO_PID, CLOCK_MASK + 1 - PCR_LEAD)]);
    let next = muxer.write(&unit(Kind::Video, PCR_LEAD, &[&[1]]));
    assert_eq!(clocks(&next).last(), Some(&(VIDEO_PID, 0)));
}

#[test]
fn the_clock_never_pauses_for_more_than_a_tenth_of_a_second() {
    // Five video frames per second; rare video frames with audio frames of 1024 samples at 44.1 kHz; only audio
    // frames of 60 ms.
    let cases: [&[(Kind, u64)]; 3] =
        [&[(Kind::Video, 18_000)], &[(Kind::Video, 450_000), (Kind::Audio, 2089)], &[(Kind::Audio, 5400)]];
    for case in cases {
        let mut muxer = both();
        if case.iter().all(|(kind, _)| *kind == Kind::Audio) {
            muxer.set_streams(None, Some(StreamKind::Opus { channels: 2 }));
        }
        let mut bytes = Vec::new();
        for now in 0..900_000 {
            for &(kind, step) in case {
                if now % step == 0 {
                    bytes.extend_from_slice(&muxer.write(&unit(kind, 126_000 + now, &[&[1; 200]])));
                }
            }
        }
        let clocks = clocks(&bytes);
        assert!(clocks.iter().all(|clock| clock.0 == clocks[0].0), "one PID has the clock");
        let steps: Vec<u64> = clocks.windows(2).map(|two| two[1].1 - two[0].1).collect();
        assert!(steps.iter().all(|&step| step > 0 && step <= PCR_INTERVAL_MAX), "{case:?} {steps:?}");
    }
}

#[test]
fn tables_come_with_key_frames_and_ten_times_a_second() {
    let mut muxer = both();
    let mut with_tables = Vec::new();
    for n in 0..30u64 {
        let unit = Unit { random_access: n == 10, ..unit(Kind::Video, n * 3000, &[&[1]]) };
        let bytes = muxer.write(&unit);
        if packets(&bytes)[0].pid == Pid::PAT {
            assert_eq!(packets(&bytes)[1].pid, PMT_PID);
            with_tables.push(n);
        }
    }
    assert_eq!(with_tables, [0, 3, 6, 9, 10, 13, 16, 19, 22, 25, 28]);
    assert!(Muxer::new().write(&unit(Kind::Video, 0, &[&[1]])).is_empty());
}

#[test]
fn a_program_of_many_streams_has_them_all_on_pids_of_their_own() {
    let mut muxer = Muxer::new();
    let number = |kind, number| StreamNumber { kind, number };
    let streams: Vec<_> = (0..5)
        .flat_map(|n| {
            let opus = StreamKind::Opus { channels: 2 };
            [(number(Kind::Audio, n), opus), (number(Kind::Video, n), StreamKind::H265)]
        })
        .collect();
    muxer.set_program(streams);
    let second = Unit { number: 1, ..unit(Kind::Video, 3000, &[&[7; 300]]) };
    let bytes = [muxer.write(&unit(Kind::Video, 0, &[&[1]])), muxer.write(&second)].concat();
    let mut demuxer = Demuxer::new();
    let mut input = &bytes[..];
    let mut seen = Vec::new();
    while let Some(event) = demuxer.read(&mut input) {
        match event {
            Event::Program(map) => assert_eq!(map.streams.len(), PROGRAM_STREAMS_MAX),
            Event::Pes(pes) => seen.push((pes.stream.pid, pes.payload.len())),
            Event::Splice(_) => {}
        }
    }
    demuxer.finish();
    while let Some(event) = demuxer.read(&mut input) {
        if let Event::Pes(pes) = event {
            seen.push((pes.stream.pid, pes.payload.len()));
        }
    }
    seen.sort_unstable_by_key(|(_, length)| *length);
    assert_eq!(seen, [(VIDEO_PID, 1), (Pid::new(MORE_VIDEO_PID + 1), 300)]);
    // The tables must be written, but only with a unit that every receiver gets.
    muxer.begin();
    assert_eq!(
        packets(&muxer.write(&Unit { dts: 3001, pts: 3001, ..second }))[0].pid,
        Pid::new(MORE_VIDEO_PID + 1)
    );
    assert_eq!(packets(&muxer.write(&unit(Kind::Video, 3002, &[&[1]])))[0].pid, Pid::PAT);
    // A unit of a track that the program lacks is not written.
    assert!(muxer.write(&Unit { number: 9, ..second }).is_empty());
}

/// Duration of an AAC frame at 48 kHz in ticks of 90 kHz.
const FRAME: u64 = 1920;

/// Reads the PES packets of a complete stream.
fn read(bytes: &[u8]) -> Vec<Pes> {
    let mut demuxer = Demuxer::new();
    let mut input = bytes;
    let mut seen = Vec::new();
    let mut take = |event| {
        if let Event::Pes(pes) = event {
            seen.push(pes);
        }
    };
    std::iter::from_fn(|| demuxer.read(&mut input)).for_each(&mut take);
    demuxer.finish();
    std::iter::from_fn(|| demuxer.read(&mut &[][..])).for_each(take);
    let stats = demuxer.stats();
    assert_eq!((stats.gaps, stats.packets_invalid, stats.pes_cut, stats.pes_damaged), (0, 0, 0, 0));
    seen
}

/// Checks the continuity counters of every PID. Returns the smallest distance between a DTS and the last PCR before
/// it, and the longest distance between two successive PCRs.
fn check(bytes: &[u8]) -> (i64, u64) {
    let mut last = BTreeMap::new();
    let (mut clock, mut nearest, mut longest) = (None, i64::MAX, 0);
    for packet in packets(bytes) {
        let step = u8::from(packet.payload.is_some_and(|payload| !payload.is_empty()));
        if let Some(before) = last.insert(packet.pid, packet.continuity) {
            assert_eq!((before + step) & 0x0f, packet.continuity, "{packet:?}");
        }
        if let Some(pcr) = packet.adaptation.and_then(|field| field.pcr) {
            longest = longest.max(clock.map_or(0, |clock| u64::try_from(signed(clock, pcr.base)).unwrap()));
            clock = Some(pcr.base);
        }
        let is_pes = packet.unit_start && packet.pid != Pid::PAT && packet.pid != PMT_PID;
        if let (true, Some(clock)) = (is_pes, clock) {
            let head = PesHeader::read(packet.payload.unwrap()).unwrap();
            nearest = nearest.min(signed(clock, head.dts.or(head.pts).unwrap()));
        }
    }
    (nearest, longest)
}

/// Makes a program with only audio: `frames` frames of `bytes` bytes each.
fn sound(packing: Packing, frames: u64, bytes: usize) -> Vec<u8> {
    let mut muxer = Muxer::with_packing(packing);
    muxer.set_streams(None, Some(StreamKind::AacAdts));
    let frame = vec![7; bytes];
    let mut out = Vec::new();
    for n in 0..frames {
        out.extend_from_slice(&muxer.pack(&unit(Kind::Audio, 126_000 + n * FRAME, &[&frame]), FRAME));
    }
    out.extend_from_slice(&muxer.flush());
    out
}

#[test]
fn several_audio_frames_share_a_packet_of_the_size_that_is_allowed() {
    let cases = [
        (Packing::LIVE, 178, 4),
        (Packing::LIVE, 348, 3),
        (Packing::LIVE, 700, 1),
        (Packing::SEGMENT, 348, 8),
    ];
    for (packing, bytes, frames) in cases {
        let out = sound(packing, 100, bytes);
        let seen = read(&out);
        let total: usize = seen.iter().map(|pes| pes.payload.len()).sum();
        assert_eq!(total, 100 * bytes, "nothing is lost");
        let (last, whole) = seen.split_last().unwrap();
        assert!(whole.iter().all(|pes| pes.payload.len() == frames * bytes), "{packing:?} {bytes}");
        assert!(last.payload.len() <= frames * bytes);
        let times: Vec<u64> = seen.iter().map(|pes| pes.pts.unwrap()).collect();
        let step = FRAME * frames as u64;
        assert!(times.windows(2).all(|two| two[1] - two[0] == step), "the first frame's time");
        assert!(step <= packing.audio_wait + FRAME || frames == 1);
        let (nearest, longest) = check(&out);
        assert!(
            nearest >= i64::try_from(PCR_LEAD).unwrap() && longest <= PCR_INTERVAL_MAX,
            "{nearest} {longest}"
        );
    }
}

#[test]
fn a_packet_goes_with_the_frame_that_fills_it() {
    let mut muxer = Muxer::with_packing(Packing::LIVE);
    muxer.set_streams(None, Some(StreamKind::AacAdts));
    let mut pack = |n: u64| muxer.pack(&unit(Kind::Audio, 126_000 + n * FRAME, &[&[7; 348]]), FRAME);
    let goes: Vec<u64> = (0..12).filter(|n| !pack(*n).is_empty()).collect();
    assert_eq!(goes, [2, 5, 8, 11]);
}

#[test]
fn sound_costs_little_more_than_its_bytes() {
    // Audio of 64 and 128 kb/s at 48 kHz. Columns: packing; size of a frame with its ADTS header; maximum overhead in
    // percent of these bytes.
    let cases = [
        (Packing::SEGMENT, 178, 6),
        (Packing::SEGMENT, 348, 9),
        (Packing::LIVE, 178, 7),
        (Packing::LIVE, 348, 9),
    ];
    for (packing, bytes, percent) in cases {
        let frames = 2812;
        let all = sound(packing, frames, bytes).len() as u64;
        let payload = frames * bytes as u64;
        assert!(all * 100 <= payload * (100 + percent), "{packing:?} {bytes}: {}", all * 100 / payload);
    }
}

#[test]
fn video_and_sound_cost_little_more_than_their_bytes() {
    // Video of 2 Mb/s at 25 frames per second, with key frames every 2 s, and audio of 128 kb/s.
    for packing in [Packing::SEGMENT, Packing::LIVE] {
        let mut muxer = Muxer::with_packing(packing);
        muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
        let (picture, frame) = (vec![1; 10_000], vec![2; 348]);
        let (mut bytes, mut payload) = (0, 0);
        for n in 0..45_000 {
            let now = n * 240;
            if now % 3600 == 0 {
                let random_access = now % 180_000 == 0;
                bytes += muxer.write(&Unit { random_access, ..unit(Kind::Video, now, &[&picture]) }).len();
                payload += picture.len();
            }
            if now % FRAME == 0 {
                bytes += muxer.pack(&unit(Kind::Audio, now, &[&frame]), FRAME).len();
                payload += frame.len();
            }
        }
        assert!(bytes * 1000 <= payload * 1040, "{packing:?}: {}", bytes * 1000 / payload);
    }
}

#[test]
fn what_is_not_one_after_the_other_shares_no_packet() {
    let mut muxer = Muxer::with_packing(Packing::SEGMENT);
    muxer.set_streams(None, Some(StreamKind::AacAdts));
    let mut pack = |dts: u64, duration| muxer.pack(&unit(Kind::Audio, dts, &[&[7; 50]]), duration);
    // Successive frames whose timestamps were rounded down to milliseconds are held for a common PES packet.
    assert!([0, 1890, 3780, 5760].iter().all(|dts| pack(126_000 + dts, FRAME).is_empty()));
    let times = |bytes: &[u8]| read(bytes).iter().map(|pes| pes.pts.unwrap() - 126_000).collect::<Vec<_>>();
    // A frame is missing before this one, so the four held frames are sent without it.
    assert_eq!(read(&pack(126_000 + 5 * FRAME, FRAME))[0].payload.len(), 200);
    // A frame of unknown duration is sent at once, after the held frames.
    let mut known = Muxer::with_packing(Packing::SEGMENT);
    known.set_streams(None, Some(StreamKind::AacAdts));
    assert!(known.pack(&unit(Kind::Audio, 126_000, &[&[7; 50]]), FRAME).is_empty());
    assert_eq!(times(&known.pack(&unit(Kind::Audio, 126_000 + FRAME, &[&[7; 50]]), 0)), [0, FRAME]);
}

#[test]
fn sound_that_ends_does_not_stay_behind_the_video() {
    let mut muxer = Muxer::with_packing(Packing::LIVE);
    muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    let _ = muxer.write(&unit(Kind::Video, 126_000, &[&[1]]));
    assert!(muxer.pack(&unit(Kind::Audio, 126_000, &[&[7; 50]]), FRAME).is_empty());
    let mut bytes = Vec::new();
    (1..5)
        .for_each(|n| bytes.extend_from_slice(&muxer.write(&unit(Kind::Video, 126_000 + n * 3600, &[&[1]]))));
    assert_eq!(packets(&bytes).iter().filter(|packet| packet.pid == AUDIO_PID).count(), 1);
}

#[test]
fn no_unit_comes_behind_its_time_however_late_its_stream_is() {
    for packing in [Packing::NONE, Packing::LIVE, Packing::SEGMENT] {
        for lag in [0, 9_000, 18_000, 31_000, 63_000, 80_000] {
            for burst in [1, 16] {
                if lag + (burst + 2) * FRAME + packing.audio_wait > LATE_MAX {
                    continue;
                }
                let mut muxer = Muxer::with_packing(packing);
                muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
                let mut out = Vec::new();
                let mut sound = 0;
                for n in 0..500 {
                    let dts = 200_000 + n * 3600;
                    let key = Unit { random_access: n % 50 == 0, ..unit(Kind::Video, dts, &[&[1; 900]]) };
                    out.extend_from_slice(&muxer.write(&key));
                    // The audio lags from the start and arrives in bursts, as if it were demultiplexed from another
                    // stream's packets.
                    let until = (n * 3600).saturating_sub(lag) / FRAME / burst * burst;
                    while sound < until {
                        let dts = 200_000 + sound * FRAME;
                        out.extend_from_slice(&muxer.pack(&unit(Kind::Audio, dts, &[&[7; 170]]), FRAME));
                        sound += 1;
                    }
                }
                let (nearest, longest) = check(&out);
                assert!(nearest >= 0, "{packing:?} {lag} {burst}: {nearest}");
                assert!(longest <= PCR_INTERVAL_MAX, "{packing:?} {lag} {burst}: {longest}");
            }
        }
    }
}

/// Makes a video of 20 s with audio that lags behind it and comes in bursts of 16 frames.
fn lagging(lag: u64) -> Vec<u8> {
    let mut muxer = both();
    let (mut out, mut sound) = (Vec::new(), 0);
    for n in 0..500 {
        out.extend_from_slice(&muxer.write(&unit(Kind::Video, 200_000 + n * 3600, &[&[1; 900]])));
        while sound < (n * 3600).saturating_sub(lag) / FRAME / 16 * 16 {
            out.extend_from_slice(&muxer.write(&unit(Kind::Audio, 200_000 + sound * FRAME, &[&[7; 170]])));
            sound += 1;
        }
    }
    out
}

#[test]
fn the_clock_runs_evenly_once_it_knows_how_late_the_sound_is() {
    let out = lagging(40_000);
    let late = out.len() / 2 / PACKET_BYTES * PACKET_BYTES;
    let all = packets(&out[late..]);
    let is_clock_alone = |packet: &&Packet<'_>| packet.payload.is_none();
    assert_eq!(all.iter().filter(is_clock_alone).count(), 0);
    let steps: Vec<u64> = clocks(&out[late..]).windows(2).map(|two| two[1].1 - two[0].1).collect();
    assert!(steps.len() > 100 && steps.iter().all(|step| (1..=PCR_INTERVAL_MAX).contains(step)), "{steps:?}");
}

#[test]
fn a_second_track_of_sound_that_lags_holds_the_clock_within_a_packet_too() {
    let mut muxer = Muxer::with_packing(Packing::SEGMENT);
    let kind = |number| (StreamNumber { kind: Kind::Audio, number }, StreamKind::AacAdts);
    muxer.set_program([kind(0), kind(1)]);
    let (mut out, mut second) = (Vec::new(), 0);
    for n in 0..1000 {
        out.extend_from_slice(&muxer.pack(&unit(Kind::Audio, 200_000 + n * FRAME, &[&[7; 90]]), FRAME));
        while second + 25 < n / 25 * 25 {
            let unit = Unit { number: 1, ..unit(Kind::Audio, 200_000 + second * FRAME, &[&[8; 90]]) };
            out.extend_from_slice(&muxer.write(&unit));
            second += 1;
        }
    }
    let (nearest, longest) = check(&out);
    assert!(nearest >= 0 && longest <= PCR_INTERVAL_MAX, "{nearest} {longest}");
}

#[test]
fn a_stream_that_falls_silent_holds_the_clock_for_a_second() {
    let mut muxer = both();
    let mut clock = Vec::new();
    for n in 0..100 {
        let dts = 200_000 + n * 3600;
        let mut bytes = muxer.write(&unit(Kind::Video, dts, &[&[1]])).to_vec();
        if n < 20 {
            bytes.extend_from_slice(&muxer.write(&unit(Kind::Audio, dts, &[&[1]])));
        }
        clock.extend(clocks(&bytes).last().map(|(_, clock)| (n, dts - clock)));
    }
    assert!(clock.iter().all(|(n, behind)| *n == 0 || *behind <= LATE_MAX + 3600), "{clock:?}");
    assert!(clock.iter().all(|(n, behind)| *n < 50 || *behind == PCR_LEAD), "{clock:?}");
}

#[test]
fn a_receiver_may_be_handed_the_tables_behind_those_of_the_others_or_before_the_next() {
    let mut muxer = Muxer::with_packing(Packing::LIVE);
    muxer.set_streams(None, Some(StreamKind::AacAdts));
    let mut next = 0;
    let mut write = |muxer: &mut Muxer| {
        next += FRAME;
        muxer.write(&unit(Kind::Audio, 126_000 + next, &[&[1; 90]]))
    };
    let before = [muxer.tables(), write(&mut muxer), write(&mut muxer)].concat();
    let behind = [muxer.tables(), write(&mut muxer)].concat();
    muxer.begin();
    let again = [muxer.tables(), write(&mut muxer)].concat();
    for (bytes, tables) in [(&before, 2), (&behind, 1), (&again, 2)] {
        let of = |pid| {
            packets(bytes).iter().filter(|packet| packet.pid == pid).map(|p| p.continuity).collect::<Vec<_>>()
        };
        assert_eq!((of(Pid::PAT).len(), of(PMT_PID).len()), (tables, tables));
        assert!(of(Pid::PAT).iter().all(|counter| *counter == of(Pid::PAT)[0]), "copies");
        assert_eq!(packets(bytes)[0].pid, Pid::PAT);
        assert_eq!(read(bytes).len(), if tables == 2 && bytes == &before { 2 } else { 1 });
    }
    assert_eq!(packets(&behind)[0].continuity, packets(&before)[0].continuity);
    assert_eq!(packets(&again)[0].continuity, packets(&before)[0].continuity + 1);
}

#[test]
fn what_is_held_of_a_stream_that_changes_comes_before_the_new_tables() {
    let mut muxer = Muxer::with_packing(Packing::SEGMENT);
    muxer.set_streams(None, Some(StreamKind::AacAdts));
    let mut bytes = muxer.write(&unit(Kind::Audio, 126_000, &[&[1]])).to_vec();
    assert!(muxer.pack(&unit(Kind::Audio, 126_000 + FRAME, &[&[7; 50]]), FRAME).is_empty());
    muxer.set_streams(None, Some(StreamKind::Ac3));
    bytes.extend_from_slice(&muxer.write(&unit(Kind::Audio, 126_000 + 2 * FRAME, &[&[1]])));
    let pids: Vec<Pid> = packets(&bytes).iter().map(|packet| packet.pid).collect();
    assert_eq!(pids, [Pid::PAT, PMT_PID, AUDIO_PID, AUDIO_PID, Pid::PAT, PMT_PID, AUDIO_PID]);
    assert_eq!(read(&bytes)[1].payload.len(), 50);
    // Memory does not grow even if the streams change with every frame.
    for n in 0..100 {
        muxer.set_streams(None, Some(if n % 2 == 0 { StreamKind::AacAdts } else { StreamKind::Ac3 }));
        let bytes = muxer.pack(&unit(Kind::Audio, 126_000 + n * FRAME, &[&[7; 50]]), FRAME);
        assert!(n == 0 || bytes.is_empty() == (n % 2 == 0), "{n}");
        assert!(muxer.past.len() <= PACKET_BYTES);
    }
}

#[test]
fn decode_times_grow_while_a_clock_stands_still_and_follow_one_that_is_set_back() {
    let mut muxer = both();
    let mut bytes = Vec::new();
    for (video, audio) in
        [(90_000, 90_000), (93_600, 93_600), (93_600, 93_600), (93_600, 93_590), (3_600, 3_600)]
    {
        bytes.extend_from_slice(&muxer.write(&unit(Kind::Video, video, &[&[1; 700]])));
        bytes.extend_from_slice(&muxer.write(&unit(Kind::Audio, audio, &[&[2; 700]])));
    }
    let times = |is_video: bool| -> Vec<u64> {
        let own = read(&bytes).into_iter().filter(|pes| pes.stream.kind.is_video() == is_video);
        own.map(|pes| pes.dts.or(pes.pts).unwrap()).collect()
    };
    assert_eq!(times(true), [90_000, 93_600, 93_601, 93_602, 3_600]);
    assert_eq!(times(false), [90_000, 93_600, 93_601, 93_602, 3_600]);
}
