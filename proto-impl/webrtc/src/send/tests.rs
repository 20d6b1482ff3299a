//! Tests of the sequence numbers of sent packets.

use std::sync::Arc;

use crypto::Seed;
use media::codec::{g711, opus};
use rtp::extension::{Extension, ExtensionMap};
use rtp::{NtpAnchor, Packet};
use sdp::Direction;
use srtp::{Inbound, MasterKey, Profile};

use super::*;
use crate::negotiate::{SectionFormat, offered_formats};

const PROFILE: Profile = Profile::AeadAes128Gcm;

struct Bench {
    now: Instant,
    is_g711: bool,
    track: Track,
    sender: Sender,
    keys: Outbound,
    anchor: NtpAnchor,
    bandwidth: BandwidthEstimator,
    prober: Prober,
    peer: Inbound,
}

impl Bench {
    fn new(codec: Codec, mid: &str) -> Self {
        Self::with(codec, mid, &[Extension::Mid], None)
    }

    /// Creates a bench with these extensions, whose ids count from 1. `red` is the payload type of the redundant
    /// format.
    fn with(codec: Codec, mid: &str, known: &[Extension], red: Option<u8>) -> Self {
        let mut extensions = ExtensionMap::new();
        assert!((1..).zip(known).all(|(id, extension)| extensions.insert(*extension, id)));
        let mut local = offered_formats(codec, 96).remove(0);
        local.feedback = vec![Feedback::TransportCc];
        if red.is_none() {
            local.feedback.push(Feedback::Nack);
        }
        let red = red.and_then(PayloadType::new);
        let section = Section {
            id: SectionId(0),
            mid: mid.to_owned(),
            kind: MediaKind::Audio,
            direction: Direction::SendOnly,
            formats: vec![SectionFormat { remote: local.clone(), local, rtx: None, red }],
            extensions,
            reduced_size: true,
            msid: None,
            layers: Vec::new(),
            remote_sources: Vec::new(),
            local_source: Some(SourcePair { ssrc: 7, rtx: None }),
        };
        let key = MasterKey::new(PROFILE, &[1; 16], &[2; 12]).unwrap();
        let now = netsim::Clock::new().now();
        let identity = dtls::Identity::self_signed(&Seed::from_number(1)).unwrap();
        let config = Config::new(crate::IceMode::Full(Arc::default()), Arc::new(identity));
        Self {
            now,
            is_g711: codec != Codec::Opus,
            track: Track::new(codec, 1146).unwrap(),
            sender: Sender::new(&section, &config, &mut Seed::from_number(1).random()).unwrap(),
            keys: Outbound::new(&key).unwrap(),
            anchor: NtpAnchor::new(now, Duration::from_secs(1_770_000_000)),
            bandwidth: BandwidthEstimator::new(),
            prober: Prober::default(),
            peer: Inbound::new(&key).unwrap(),
        }
    }

    fn push(&mut self, timestamp: u32, unit: &[u8]) {
        let config = if self.is_g711 {
            CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 })
        } else {
            CodecConfig::Opus(opus::Config::of_channels(2).unwrap())
        };
        let unit = self.track.push(self.now, &config, false, timestamp, unit).unwrap();
        self.sender.send(&unit, self.now);
    }

    fn fill(&mut self, out: &mut Datagrams) -> bool {
        let mut road = Road {
            keys: &mut self.keys,
            pacer: &mut Pacer::new(),
            bandwidth: &mut self.bandwidth,
            prober: &mut self.prober,
            outflow: &mut Outflow::default(),
            anchor: &self.anchor,
            out,
        };
        self.sender.fill(self.now, self.track.log(), &mut road)
    }

    /// Returns the number, timestamp and payload length of all sent packets.
    fn sent(&mut self) -> Vec<(u16, u32, usize)> {
        let mut out = Datagrams::new();
        let mut all = Vec::new();
        loop {
            out.clear();
            let done = self.fill(&mut out);
            for n in 0..out.len() {
                let mut bytes = out.get(n).to_vec();
                let length = self.peer.unprotect(&mut bytes).unwrap();
                let packet = Packet::read(&bytes[..length]).unwrap();
                let header = packet.header;
                all.push((header.sequence_number.value(), header.timestamp, packet.payload.len()));
                assert!(header.length() <= 12 + 4 + BLOCK_BYTES_MAX);
            }
            if done {
                return all;
            }
            assert!(!out.is_empty(), "what is not done has output");
        }
    }
}

/// Checks that packets that were dropped before sending, or are too large for any datagram, leave a gap in the
/// sequence numbers. Without it, the peer would assemble a frame from the remaining packets.
#[test]
fn what_is_left_out_is_seen_by_the_peer() {
    let mut bench = Bench::new(Codec::Opus, "0");
    bench.push(0, &[1; 100]);
    let first = bench.sent()[0].0;
    let numbers = |bench: &mut Bench| -> Vec<u16> {
        bench.sent().iter().map(|(number, _, _)| number.wrapping_sub(first)).collect()
    };
    bench.push(960, &[2; 100]);
    bench.now += Duration::from_secs(2);
    bench.push(1920, &[3; 100]);
    assert_eq!((numbers(&mut bench), bench.sender.skipped), (vec![2], 1), "gone");
    bench.push(2880, &[4; 70_000]);
    bench.push(3840, &[5; 100]);
    bench.push(4800, &[5; 100]);
    assert_eq!((numbers(&mut bench), bench.sender.skipped), (vec![4, 5], 2), "too large");
    bench.push(5760, &[6; 100]);
    bench.sender.skip();
    bench.push(6720, &[7; 100]);
    bench.sender.skip();
    bench.sender.skip();
    bench.push(7680, &[8; 100]);
    assert_eq!(numbers(&mut bench), [7], "skipped");
    // Numbers that were never sent are not retransmitted.
    bench.sender.handle_nack([6, 7].map(|ahead| SequenceNumber(first.wrapping_add(ahead))).into_iter());
    let mut out = Datagrams::new();
    assert!(bench.fill(&mut out));
    assert_eq!((out.len(), bench.sender.resend_stats().unknown), (1, 1));
}

/// Checks RFC 3551 §4.1: the timestamp of each packet is that of its first sample.
#[test]
fn a_long_unit_of_samples_keeps_its_time() {
    let mut bench = Bench::new(Codec::G711(g711::Law::A), "0");
    bench.push(0, &[0xd5; 3000]);
    let sent = bench.sent();
    let first = sent[0].1;
    let times: Vec<(u32, usize)> =
        sent.iter().map(|&(_, timestamp, bytes)| (timestamp.wrapping_sub(first), bytes)).collect();
    assert_eq!(times, [(0, 1146), (1146, 1146), (2292, 708)]);
}

/// Checks that a mid longer than the space beside the payload is left out of packets, although it is a valid
/// token (RFC 5888 §4).
#[test]
fn a_long_name_stays_out_of_packets() {
    for (mid, head) in
        [("0", 20), ("sixteen-letters!", 36), (&"m".repeat(17), 12), (&"m".repeat(300), 12), ("", 12)]
    {
        let mut bench = Bench::new(Codec::Opus, mid);
        let block = bench.sender.heads.block(true, Stamps::default(), None);
        assert_eq!(12 + block.map_or(0, |block| block.bytes.len() + 4), head, "{mid}");
    }
}

/// Checks that the redundancy of audio follows the share of lost packets.
#[test]
fn audio_is_redundant_while_packets_are_lost() {
    let mut bench = Bench::with(Codec::Opus, "0", &[], Some(63));
    for (round, loss, length) in [(0, 0, 100), (1, 20, 205), (2, 200, 309)] {
        bench.sender.set_loss(loss, false);
        let lengths: Vec<usize> = (0..4)
            .map(|n| {
                bench.push(960 * (round * 100 + n), &[1; 100]);
                bench.sent()[0].2
            })
            .collect();
        // The first packets cannot repeat those of the previous round, which are too old.
        assert_eq!(lengths[2..], [length; 2], "{loss}: {lengths:?}");
    }
}

/// Checks that transport-wide numbers increase by one, and that one packet per second has its capture time.
#[test]
fn packets_have_numbers_and_times() {
    let known = [Extension::TransportCc, Extension::AbsCaptureTime];
    let mut bench = Bench::with(Codec::Opus, "0", &known, Some(63));
    bench.bandwidth.number_packets(bench.now);
    let map = bench.sender.heads.map();
    let (mut numbers, mut times) = (Vec::new(), Vec::new());
    for n in 0..100u32 {
        bench.push(960 * n, &[1; 100]);
        let mut out = Datagrams::new();
        assert!(bench.fill(&mut out));
        let packet = Packet::read(out.get(0)).unwrap();
        let values = map.read(packet.header.extension);
        numbers.extend(values.transport_sequence);
        times.extend(values.abs_capture_time.map(|time| (n, time)));
        bench.now += Duration::from_millis(20);
    }
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let [(0, first), (50, second)] = times[..] else { panic!("{times:?}") };
    assert_eq!(second.since(first), Some(Duration::from_secs(1)));
}

/// Checks that with heavy loss, requested packets are sent twice, the second time a little later, except on a
/// full path.
#[test]
fn where_much_is_lost_what_is_asked_for_is_sent_twice() {
    for (loss, is_congested, times) in [(100, false, 1), (350, false, 2), (350, true, 1)] {
        let mut bench = Bench::new(Codec::Opus, "0");
        bench.push(0, &[1; 100]);
        let number = bench.sent()[0].0;
        bench.sender.set_loss(loss, is_congested);
        bench.sender.handle_nack(std::iter::once(SequenceNumber(number)));
        let mut again = Vec::new();
        for ms in 0..60u64 {
            let mut out = Datagrams::new();
            assert!(bench.fill(&mut out));
            again.extend((0..out.len()).map(|_| ms));
            bench.now += Duration::from_millis(1);
        }
        assert_eq!(again, [0, 15][..times], "{loss}");
        assert_eq!(bench.sender.resend_stats().resent, times as u64);
        assert!(!bench.sender.has_waiting() && bench.sender.poll_timeout(None).is_none());
    }
}

/// Checks that a packet from before the live edge is retransmitted with the timestamp with which it was first
/// sent, and a later packet with the timestamp of the track.
#[test]
fn what_is_sent_again_has_the_time_with_which_it_left() {
    let mut bench = Bench::new(Codec::Opus, "0");
    let (step, edge) = (960, 100_000);
    bench.sender.begin_behind(bench.now, edge);
    let mut left = Vec::new();
    for n in 0..90 {
        bench.push(edge - 50 * step + n * step, &[1; 100]);
        bench.now += Duration::from_millis(5);
        left.extend(bench.sent());
    }
    let offset = left.last().unwrap().1.wrapping_sub(edge + 39 * step);
    let of_track = |timestamp: u32| timestamp.wrapping_sub(offset);
    assert_eq!(of_track(left[0].1), edge + 5 * 48 - 30 * 48);
    assert!(left.windows(2).all(|pair| of_track(pair[0].1) < of_track(pair[1].1)));
    for (number, timestamp, _) in [left[0], left[30], left[89]] {
        bench.now += Duration::from_millis(100);
        bench.sender.handle_nack(std::iter::once(SequenceNumber(number)));
        let mut out = Datagrams::new();
        assert!(bench.fill(&mut out));
        // Read without a receiver, which would refuse a second packet with the same number. The
        // header is not encrypted.
        let again = Packet::read(out.get(0)).unwrap().header;
        assert_eq!((again.sequence_number.value(), again.timestamp), (number, timestamp));
    }
}

/// Checks repeated requests for everything: retransmissions stay within their share of the sent bytes, the
/// lists are limited, and no second copies are sent on a full path.
#[test]
fn requests_for_everything_have_their_share() {
    for (loss, is_congested, most) in [(0, true, 2), (350, true, 8), (350, false, 8)] {
        let mut bench = Bench::new(Codec::Opus, "0");
        let (mut sent, mut all) = (0u64, 0u64);
        bench.sender.set_loss(loss, is_congested);
        for n in 0..1500u32 {
            bench.push(960 * n, &[1; 400]);
            sent += 400;
            let asked = (0..u16::MAX).step_by(7).map(SequenceNumber);
            bench.sender.handle_nack(asked.clone());
            bench.sender.handle_nack(asked);
            assert!(
                bench.sender.repairs.asked.len() <= ASKED_MAX
                    && bench.sender.repairs.echoes.len() <= ECHOES_MAX
            );
            let mut out = Datagrams::new();
            while !bench.fill(&mut out) {
                all += (0..out.len()).map(|at| out.get(at).len() as u64).sum::<u64>();
                out.clear();
            }
            all += (0..out.len()).map(|at| out.get(at).len() as u64).sum::<u64>();
            bench.now += Duration::from_millis(20);
        }
        let again = bench.sender.resend_stats().resent_bytes;
        assert!(again <= sent * most / 8 + (64 << 10), "{loss} {is_congested}: {again} of {sent}");
        assert!(all >= sent && (!is_congested || bench.sender.repairs.echoes.is_empty()));
    }
}

/// Checks a path with a rate limit: retransmissions wait for the pacer as video does, and audio overtakes both.
#[test]
fn audio_passes_while_repairs_and_video_wait() {
    for is_video in [false, true] {
        let mut bench = Bench::new(Codec::Opus, "0");
        bench.sender.agreed.is_video = is_video;
        bench.push(0, &[1; 1000]);
        let first = bench.sent()[0].0;
        bench.push(960, &[2; 1000]);
        bench.sender.handle_nack(std::iter::once(SequenceNumber(first)));
        let mut pacer = Pacer::new();
        pacer.set_limit(Some(100_000));
        pacer.sent(bench.now, 10_000);
        let mut out = Datagrams::new();
        let mut road = Road {
            keys: &mut bench.keys,
            pacer: &mut pacer,
            bandwidth: &mut bench.bandwidth,
            prober: &mut bench.prober,
            outflow: &mut Outflow::default(),
            anchor: &bench.anchor,
            out: &mut out,
        };
        assert!(bench.sender.fill(bench.now, bench.track.log(), &mut road));
        assert_eq!((out.len(), bench.sender.has_waiting()), if is_video { (0, true) } else { (2, false) });
        assert_eq!(bench.sender.waiting_bytes(), if is_video { 1000 } else { 0 });
    }
}

/// Checks that a receiver that soon requests a key frame is sent the first packets again, as it may have
/// dropped them.
#[test]
fn the_first_packets_of_video_are_repeated_on_a_key_frame_request() {
    let mut bench = Bench::new(Codec::G711(g711::Law::A), "0");
    bench.sender.agreed.is_video = true;
    (0..3).for_each(|n| bench.push(n * 8000, &[1; 3000]));
    let first: Vec<u16> = bench.sent().iter().map(|packet| packet.0).collect();
    assert_eq!(first.len(), 9);
    bench.sender.handle_key_frame_request();
    let asked = bench.sender.repairs.asked.iter().map(|number| number.0);
    assert_eq!(asked.collect::<Vec<u16>>(), first[..4]);
    bench.now += Duration::from_millis(300);
    let mut out = Datagrams::new();
    assert!(bench.fill(&mut out) && out.len() == 4, "they are still there");
    assert!(bench.sender.poll_key_frame_request(bench.now), "the owner is asked all the same");
}

/// Checks that a key frame replaces waiting units: a unit in progress is completed, and dropped ones leave no
/// gap.
#[test]
fn what_was_not_begun_is_left_out_without_a_gap() {
    let mut bench = Bench::new(Codec::G711(g711::Law::A), "0");
    bench.track.marks = true;
    let drop = |bench: &mut Bench| bench.sender.drop_unbegun(bench.track.log());
    assert_eq!(drop(&mut bench), 0);
    bench.push(0, &[1; 200_000]);
    let mut out = Datagrams::new();
    assert!(!bench.fill(&mut out), "more than one drain");
    let began = out.len();
    for n in 1..4 {
        bench.push(n * 400_000, &[1; 3000]);
    }
    assert_eq!(drop(&mut bench), 3);
    let rest = 200_000_u64.div_ceil(1146) - began as u64;
    let waiting = bench.sender.waiting_bytes();
    assert!(waiting > (rest - 1) * 1146 && waiting <= rest * 1146, "{waiting}");
    bench.push(2_000_000, &[1; 100]);
    let sent = bench.sent();
    let number = |n: usize| sent[n].0;
    assert_eq!(sent.len() as u64, rest + 1);
    let first = Packet::read(out.get(began - 1)).unwrap().header.sequence_number.value();
    let expected: Vec<u16> = (1..).map(|n| first.wrapping_add(n)).take(sent.len() + 1).collect();
    assert!((0..sent.len()).all(|n| number(n) == expected[n]), "no gap");
    // No packet of these units has been sent.
    bench.push(2_400_000, &[1; 3000]);
    bench.push(2_800_000, &[1; 3000]);
    assert_eq!((drop(&mut bench), bench.sender.has_waiting(), bench.sender.skipped), (2, false, 0));
    bench.push(3_200_000, &[1; 100]);
    assert_eq!(bench.sent()[0].0, expected[sent.len()]);
}

/// Checks a switch to another rendition while units wait: the key frame needs none of them, so the peer sees a gap only
/// where a unit has left in part.
#[test]
fn a_switch_leaves_a_gap_only_within_a_unit() {
    for (begun, gap) in [(3000, 0), (200_000, 1)] {
        let mut bench = Bench::new(Codec::G711(g711::Law::A), "0");
        bench.track.marks = true;
        bench.push(0, &vec![1; begun]);
        let mut out = Datagrams::new();
        let is_done = bench.fill(&mut out);
        assert_eq!(is_done, gap == 0);
        let last = Packet::read(out.get(out.len() - 1)).unwrap().header.sequence_number.value();
        bench.push(400_000, &[1; 3000]);
        let config = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
        let unit = bench.track.push(bench.now, &config, true, 800_000, &[2; 100]).unwrap();
        bench.sender.switch(&unit);
        bench.sender.send(&unit, bench.now);
        let sent = bench.sent();
        assert_eq!((sent.len(), sent[0].0.wrapping_sub(last)), (1, 1 + gap), "{begun}");
    }
}

/// Checks another stream on the same source: sequence numbers continue, and timestamps advance by the elapsed
/// time, whatever the stream's clock.
#[test]
fn streams_share_a_source_in_turn() {
    for (first, passed) in [(5_000_000_u32, 20), (7, 40), (4_294_960_000, 1000)] {
        let mut bench = Bench::new(Codec::Opus, "0");
        for n in 0..3 {
            bench.push(960 * n, b"one");
        }
        let before = bench.sent();
        // This unit waits, and is dropped with the former stream.
        bench.push(960 * 3, b"gone");
        bench.sender.vacate(bench.now);
        bench.track = Track::new(Codec::Opus, 1146).unwrap();
        bench.now += Duration::from_millis(passed);
        bench.push(first, b"other");
        bench.push(first.wrapping_add(960), b"other");
        let after = bench.sent();
        let (last, next) = (before.last().unwrap(), after.first().unwrap());
        assert_eq!(after.len(), 2);
        // The dropped unit leaves a gap in both timestamps and sequence numbers.
        let ticks = 960 + u32::try_from(passed).unwrap() * 48;
        assert_eq!(next.1.wrapping_sub(last.1), ticks, "{first}");
        assert_eq!(next.0.wrapping_sub(last.0), 2);
        assert_eq!((after[1].1.wrapping_sub(next.1), after[1].0.wrapping_sub(next.0)), (960, 1));
    }
}

#[test]
fn a_source_takes_a_format_of_its_own_clock_alone() {
    let section = |codec| {
        let local = offered_formats(codec, 100).remove(0);
        Section {
            id: SectionId(0),
            mid: "0".to_owned(),
            kind: MediaKind::Audio,
            direction: Direction::SendOnly,
            formats: vec![SectionFormat { remote: local.clone(), local, rtx: None, red: None }],
            extensions: ExtensionMap::new(),
            reduced_size: true,
            msid: None,
            layers: Vec::new(),
            remote_sources: Vec::new(),
            local_source: None,
        }
    };
    let mut bench = Bench::new(Codec::Opus, "0");
    assert!(bench.sender.take_format(&section(Codec::Opus), None));
    assert_eq!(bench.sender.agreed.payload_type.number(), 100);
    assert!(!bench.sender.take_format(&section(Codec::G711(g711::Law::A)), None));
    assert_eq!(bench.sender.agreed.payload_type.number(), 100);
}

/// Pushes two packets of 20 ms. Returns the timestamps and payload lengths of the packets that leave.
fn two_sounds(bench: &mut Bench, at: u32) -> Vec<(u32, usize)> {
    for timestamp in [at, at + 960] {
        bench.push(timestamp, &[&[0xfc][..], &[7; 79]].concat());
    }
    bench.sent().iter().map(|(_, timestamp, bytes)| (*timestamp, *bytes)).collect()
}

#[test]
fn two_packets_of_audio_leave_as_one_unless_each_is_protected() {
    let mut bench = Bench::with(Codec::Opus, "0", &[Extension::Mid], Some(63));
    bench.track = Track::new(Codec::Opus, 1146).unwrap().join_audio();
    let together = two_sounds(&mut bench, 0);
    let [(first, bytes)] = together[..] else { panic!("{together:?}") };
    assert_eq!(bytes, 1 + 79 + 79);
    // The timestamp of the next packet follows both joined packets.
    let next = two_sounds(&mut bench, 1920);
    assert_eq!(next, [(first.wrapping_add(1920), 1 + 79 + 79)]);
    // With redundancy, each packet repeats the one before, so packets are not joined.
    bench.sender.set_loss(10, false);
    assert_eq!(two_sounds(&mut bench, 3840).len(), 2);

    // Without redundancy, the loss of a joined packet would lose the audio of two packets, so packets are not joined
    // while packets are lost.
    let mut bench = Bench::with(Codec::Opus, "0", &[Extension::Mid], None);
    bench.sender.agreed.nack = false;
    bench.track = Track::new(Codec::Opus, 1146).unwrap().join_audio();
    for (mended, packets) in [(0, 1), (10, 2), (0, 1)] {
        bench.sender.set_loss(mended, false);
        assert_eq!(two_sounds(&mut bench, 0).len(), packets, "{mended}");
    }

    // A peer that requests retransmissions gets packets with numbers of their own, so packets are not joined.
    let mut bench = Bench::new(Codec::Opus, "0");
    bench.track = Track::new(Codec::Opus, 1146).unwrap().join_audio();
    assert_eq!(two_sounds(&mut bench, 0).len(), 2);

    // The audio of a publisher is not joined.
    let mut bench = Bench::with(Codec::Opus, "0", &[Extension::Mid], Some(63));
    assert_eq!(two_sounds(&mut bench, 0).len(), 2);
}
