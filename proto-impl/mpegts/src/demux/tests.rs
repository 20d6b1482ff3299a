use std::time::Duration;

use super::*;
use crate::{AUDIO_PID, CLOCK_MASK, Kind, Muxer, StreamKind, Unit, VIDEO_PID};
use proptest::prelude::*;

const PACKET: usize = PACKET_BYTES;

/// Makes a transport stream of `count` video frames of `size` bytes, each followed by an audio frame, at 25
/// per second.
fn stream(count: u64, size: usize) -> Vec<u8> {
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    (0..count).flat_map(|n| [video(&mut muxer, n, size), audio(&mut muxer, n)].concat()).collect()
}

fn video(muxer: &mut Muxer, n: u64, size: usize) -> Bytes {
    let body = vec![u8::try_from(n % 251).unwrap(); size];
    let dts = 126_000 + n * 3600;
    let payload: [&[u8]; 2] = [&[0, 0, 0, 1], &body];
    let random_access = n.is_multiple_of(25);
    muxer.write(&Unit {
        kind: Kind::Video,
        number: 0,
        pts: dts + 7200,
        dts,
        random_access,
        payload: &payload,
    })
}

fn audio(muxer: &mut Muxer, n: u64) -> Bytes {
    let dts = 126_000 + n * 3600;
    muxer.write(&Unit {
        kind: Kind::Audio,
        number: 0,
        pts: dts,
        dts,
        random_access: true,
        payload: &[&[7; 300]],
    })
}

fn read(demuxer: &mut Demuxer, mut bytes: &[u8]) -> Vec<Event> {
    std::iter::from_fn(|| demuxer.read(&mut bytes)).collect()
}

fn read_all(bytes: &[u8]) -> (Vec<Event>, Stats) {
    let mut demuxer = Demuxer::new();
    let mut events = read(&mut demuxer, bytes);
    demuxer.finish();
    events.extend(read(&mut demuxer, &[]));
    (events, demuxer.stats())
}

fn pes_of(events: &[Event], pid: Pid) -> Vec<&Pes> {
    events.iter().filter_map(pes).filter(|pes| pes.stream.pid == pid).collect()
}

fn pes(event: &Event) -> Option<&Pes> {
    match event {
        Event::Program(_) => None,
        Event::Pes(pes) => Some(pes),
        Event::Splice(_) => None,
    }
}

/// Returns the indices of the packets of a PID in the stream.
fn places(bytes: &[u8], pid: Pid) -> Vec<usize> {
    let of = |packet: &[u8]| Packet::read(packet.try_into().unwrap()).unwrap().pid == pid;
    bytes.chunks(PACKET).enumerate().filter(|(_, packet)| of(packet)).map(|(n, _)| n).collect()
}

fn without(bytes: &[u8], place: usize) -> Vec<u8> {
    [&bytes[..place * PACKET], &bytes[(place + 1) * PACKET..]].concat()
}

#[test]
fn any_cut_gives_the_same_events() {
    let bytes = stream(60, 70_000);
    let (whole, stats) = read_all(&bytes);
    assert_eq!((pes_of(&whole, VIDEO_PID).len(), pes_of(&whole, AUDIO_PID).len()), (60, 60));
    assert_eq!((stats.pes, stats.gaps, stats.pes_damaged), (120, 0, 0));
    for cut in [1, 100, 188, 1316, 1456, 70_001] {
        let mut demuxer = Demuxer::new();
        let mut events: Vec<Event> = bytes.chunks(cut).flat_map(|piece| read(&mut demuxer, piece)).collect();
        demuxer.finish();
        events.extend(read(&mut demuxer, &[]));
        assert_eq!(events, whole, "cut {cut}");
    }
}

#[test]
fn packets_of_any_size_in_datagrams_of_any_cut_give_the_same_events() {
    let bytes = stream(8, 1000);
    let whole = read_all(&bytes).0;
    assert_eq!(pes_of(&whole, VIDEO_PID).len(), 8);
    for (before, behind) in [(0, 0), (4, 0), (0, 16)] {
        let framed = |packet| [&[9; 4][..before], packet, &[0x33; 16][..behind]].concat();
        let framed: Vec<u8> = bytes.chunks(PACKET).flat_map(framed).collect();
        for cut in 1..=2000 {
            let mut demuxer = Demuxer::new();
            let mut events: Vec<Event> =
                framed.chunks(cut).flat_map(|piece| read(&mut demuxer, piece)).collect();
            demuxer.finish();
            events.extend(read(&mut demuxer, &[]));
            assert_eq!(events, whole, "{} bytes, cut {cut}", PACKET + before + behind);
            assert_eq!((demuxer.stats().gaps, demuxer.stats().pes_damaged), (0, 0));
        }
    }
}

#[test]
fn a_frame_with_a_length_comes_with_its_last_packet() {
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), None);
    let mut demuxer = Demuxer::new();
    for n in 0..300 {
        let events = read(&mut demuxer, &video(&mut muxer, n, 1000 + usize::try_from(n).unwrap()));
        assert_eq!(pes_of(&events, VIDEO_PID).len(), 1, "{n}");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "an epoch; time is virtual from here on")]
fn a_frame_without_a_length_arrived_with_its_last_bytes_and_not_with_the_next() {
    let (mut muxer, mut demuxer, began) = (Muxer::new(), Demuxer::new(), Instant::now());
    muxer.set_streams(Some(StreamKind::H264), None);
    let mut arrivals = Vec::new();
    for n in 0..4 {
        // The demuxer does not yet trust that a stuffed packet is the last one.
        let bytes = video(&mut muxer, n, 70_000);
        let (first, rest) = bytes.split_at(PACKET * 20);
        for (piece, ms) in [(first, 0), (rest, 30)] {
            demuxer.arrive(began + Duration::from_millis(n * 100 + ms));
            arrivals.extend(read(&mut demuxer, piece).iter().filter_map(pes).filter_map(|pes| pes.arrived));
        }
    }
    let wanted: Vec<Instant> = (0..3).map(|n| began + Duration::from_millis(n * 100 + 30)).collect();
    assert_eq!(arrivals, wanted);
}

#[test]
fn a_frame_without_a_length_comes_with_its_filled_last_packet_once_that_is_trusted() {
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), None);
    let mut demuxer = Demuxer::new();
    let mut got = Vec::new();
    for n in 0..20 {
        let events = read(&mut demuxer, &video(&mut muxer, n, 70_000));
        got.push(pes_of(&events, VIDEO_PID).len());
    }
    // The demuxer learns that the fourth PES packet ended in stuffing when the fifth begins. So the fifth is the
    // first one that is output at once.
    assert_eq!(got, [0, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(demuxer.stats().pes_cut, 0);
}

#[test]
fn a_muxer_that_fills_in_the_middle_is_not_trusted_twice() {
    let bytes = stream(40, 70_000);
    let mut packets: Vec<Vec<u8>> = bytes.chunks(PACKET).map(<[u8]>::to_vec).collect();
    // In the 20th frame a packet in the middle is split into two stuffed ones, and the later counters are
    // corrected.
    let video = places(&bytes, VIDEO_PID);
    let middle = video[19 * (video.len() / 40) + 50];
    let payload = packets[middle][4..].to_vec();
    let filled = |part: &[u8]| {
        let length = 183 - part.len();
        let mut packet = packets[middle][..4].to_vec();
        packet[3] = 0x30 | (packet[3] & 0x0f);
        packet.extend([u8::try_from(length).unwrap(), 0]);
        packet.extend(vec![0xff; length - 1]);
        packet.extend(part);
        packet
    };
    let halves = [filled(&payload[..92]), filled(&payload[92..])];
    packets.splice(middle..=middle, halves);
    let mut counter = 0;
    let has_payload = |packet: &Vec<u8>| packet[3] & 0x10 != 0;
    let of_video = |packet: &&mut Vec<u8>| packet[1] & 0x1f == 1 && packet[2] == 0 && has_payload(packet);
    for packet in packets.iter_mut().filter(of_video) {
        packet[3] = packet[3] & 0xf0 | counter;
        counter = (counter + 1) & 0x0f;
    }
    let (events, stats) = read_all(&packets.concat());
    assert_eq!((stats.pes_cut, stats.gaps, stats.pes_damaged), (1, 0, 0));
    let video = pes_of(&events, VIDEO_PID);
    assert_eq!(video.len(), 40);
    let short: Vec<usize> = (0..40).filter(|&n| video[n].payload.len() != 70_004).collect();
    assert_eq!(short, [19], "one was handed on too early, and only one");
    assert!(video[20].discontinuity);
}

#[test]
fn t_02_a_byte_inserted_every_ten_packets_costs_frames_and_not_the_stream() {
    let bytes = stream(100, 1000);
    let whole = (bytes.len() / PACKET) as u64;
    // Inserts any byte, and the worst one: the sync byte, which looks like the start of a packet.
    for (byte, lost_max) in [(0, 1), (0x47, whole / 10 + whole / 50)] {
        let mut torn = Vec::new();
        for (n, packet) in bytes.chunks(PACKET).enumerate() {
            torn.extend_from_slice(packet);
            if n % 10 == 9 {
                torn.push(byte);
            }
        }
        let (events, stats) = read_all(&torn);
        assert!(stats.sync_losses >= 80, "{stats:?}");
        let good = stats.packets - stats.packets_invalid;
        // With the byte 0, at most the very last packet is lost: no packet that would confirm it follows.
        assert!(good + lost_max >= whole, "{good} of {whole}: {stats:?}");
        let torn = 100 - pes_of(&events, VIDEO_PID).len();
        assert!(torn <= if byte == 0 { 50 } else { 90 }, "{torn}: {stats:?}");
    }
}

#[test]
fn t_05_a_pid_that_becomes_another_stream_is_that_stream() {
    let mut muxer = Muxer::new();
    let mut demuxer = Demuxer::new();
    let mut events = Vec::new();
    for (n, kind) in [StreamKind::H264, StreamKind::H265, StreamKind::H265].into_iter().enumerate() {
        muxer.set_streams(Some(kind), None);
        for n in (n as u64 * 3)..(n as u64 * 3 + 3) {
            events.extend(read(&mut demuxer, &video(&mut muxer, n, 500)));
        }
    }
    let programs: Vec<u8> = events.iter().filter_map(version).collect();
    assert_eq!(programs, [0, 1]);
    let kinds: Vec<StreamKind> = pes_of(&events, VIDEO_PID).iter().map(|pes| pes.stream.kind).collect();
    assert_eq!(kinds, [[StreamKind::H264; 3], [StreamKind::H265; 3], [StreamKind::H265; 3]].concat());
}

fn version(event: &Event) -> Option<u8> {
    match event {
        Event::Program(map) => Some(map.version),
        Event::Pes(_) | Event::Splice(_) => None,
    }
}

#[test]
fn t_06_a_packet_without_an_end_is_dropped_at_its_limit() {
    let mut bytes = stream(1, 100);
    let video = places(&bytes, VIDEO_PID)[0];
    // A frame of 9 MiB, which exceeds the limit and is dropped, and a frame of a valid size, which is read.
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
    let _ = self::video(&mut muxer, 0, 100);
    let _ = audio(&mut muxer, 0);
    assert!(video > 0);
    bytes.extend_from_slice(&self::video(&mut muxer, 1, 9 * 1024 * 1024));
    bytes.extend_from_slice(&self::video(&mut muxer, 2, 100));
    let mut demuxer = Demuxer::new();
    let mut got = Vec::new();
    for piece in bytes.chunks(1316) {
        got.extend(read(&mut demuxer, piece));
        let held: usize = demuxer.streams.iter().map(Assembly::held).sum();
        assert!(held <= PES_BYTES_MAX);
    }
    let stats = demuxer.stats();
    assert_eq!((stats.pes_oversized, stats.pes_damaged, stats.gaps), (1, 0, 0));
    let sizes: Vec<usize> = pes_of(&got, VIDEO_PID).iter().map(|pes| pes.payload.len()).collect();
    assert_eq!(sizes, [104, 104]);
}

#[test]
fn t_07_times_have_33_bits_and_an_announced_jump_is_no_gap() {
    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), None);
    let mut bytes = Vec::new();
    for (n, dts) in [CLOCK_MASK - 1800, CLOCK_MASK + 1801, 900_000_000].into_iter().enumerate() {
        let unit =
            Unit { kind: Kind::Video, number: 0, pts: dts, dts, random_access: n == 0, payload: &[&[1; 50]] };
        bytes.extend_from_slice(&muxer.write(&unit));
    }
    // The last packet gets another counter, and its discontinuity flag announces this.
    let last = *places(&bytes, VIDEO_PID).last().unwrap() * PACKET;
    bytes[last + 3] ^= 0x08;
    bytes[last + 5] |= 0x80;
    let (events, stats) = read_all(&bytes);
    let video = pes_of(&events, VIDEO_PID);
    let times: Vec<u64> = video.iter().filter_map(|pes| pes.pts).collect();
    assert_eq!(times, [CLOCK_MASK - 1800, 1800, 900_000_000]);
    assert_eq!(video.iter().map(|pes| pes.discontinuity).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((stats.gaps, stats.pes_damaged), (0, 0));
}

#[test]
fn t_08_a_lost_packet_costs_its_frame_and_no_other() {
    for size in [1000, 70_000] {
        let bytes = stream(12, size);
        let whole = read_all(&bytes).0;
        let video = places(&bytes, VIDEO_PID);
        for &place in video.iter().skip(video.len() / 2).take(9) {
            let (events, stats) = read_all(&without(&bytes, place));
            let lost = pes_of(&whole, VIDEO_PID).len() - pes_of(&events, VIDEO_PID).len();
            assert_eq!((lost, stats.gaps), (1, 1), "{size} {place}");
            for pes in pes_of(&events, VIDEO_PID) {
                assert_eq!(pes.payload.len(), size + 4);
                assert!(pes.payload[5..].iter().all(|byte| *byte == pes.payload[4]));
            }
            assert_eq!(pes_of(&events, AUDIO_PID), pes_of(&whole, AUDIO_PID));
        }
    }
}

#[test]
fn t_08_packets_that_come_twice_are_taken_once() {
    let bytes = stream(10, 3000);
    let twice: Vec<u8> = bytes.chunks(PACKET).flat_map(|packet| [packet, packet].concat()).collect();
    let (events, stats) = read_all(&twice);
    assert_eq!(events, read_all(&bytes).0);
    assert!(stats.duplicates > 100 && stats.gaps == 0, "{stats:?}");
    // After fifteen lost packets, the counter looks like that of a repetition, but the bytes differ.
    let places = places(&bytes, VIDEO_PID);
    let gone = &places[20..35];
    let kept = bytes.chunks(PACKET).enumerate().filter(|(n, _)| !gone.contains(n));
    let kept: Vec<u8> = kept.flat_map(|(_, packet)| packet.to_vec()).collect();
    assert_eq!(read_all(&kept).1.gaps, 1);
}

#[test]
fn scrambled_and_foreign_packets_are_counted_and_passed_over() {
    let mut bytes = stream(4, 100);
    for place in places(&bytes, AUDIO_PID) {
        bytes[place * PACKET + 3] |= 0x80;
    }
    let (events, stats) = read_all(&bytes);
    assert_eq!((pes_of(&events, VIDEO_PID).len(), pes_of(&events, AUDIO_PID).len()), (4, 0));
    assert_eq!(stats.scrambled, 8);

    let mut muxer = Muxer::new();
    muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::Other(0x86)));
    let bytes = [video(&mut muxer, 0, 10), audio(&mut muxer, 0)].concat();
    let (events, stats) = read_all(&bytes);
    assert!(pes_of(&events, AUDIO_PID).is_empty());
    assert_eq!(stats.others, [(0x86, 2)]);
}

proptest! {
    #[test]
    fn noise_and_torn_streams_are_held_within_bounds(
        seed in prop::collection::vec((any::<u16>(), any::<u8>()), 0..60),
        noise in prop::collection::vec(any::<u8>(), 0..800),
    ) {
        let mut bytes = stream(6, 600);
        for (at, byte) in seed {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        bytes.extend(noise);
        let (events, stats) = read_all(&bytes);
        prop_assert!(events.len() < 100);
        prop_assert!(stats.packets <= (bytes.len() / PACKET) as u64);
    }
}
