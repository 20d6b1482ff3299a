//! Tests that only negotiated feedback is sent.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test")]

use std::time::Duration;

use dtls::Identity;
use media::codec::Codec;
use rtp::rtcp::{Compound, Dlrr, FirEntry, ReportBlock, Rtcp};
use rtp::{Csrcs, Header, Packet, PayloadType, SequenceNumber};
use sdp::{Description, Direction, MediaKind};

use super::*;
use crate::negotiate::{MediaPreference, offered_formats};
use crate::receive::Wishes;

/// Wishes of a peer without layers.
const WISHES: Wishes = Wishes { bitrate_max: 20_000_000, spatial_layers: false };

const PUBLISHER: Ssrc = Ssrc(5);

struct Bench {
    now: Instant,
    peer: Peer,
    number: u16,
}

impl Bench {
    /// Creates a peer that has answered an offer of video in both directions. The offer consists of
    /// the lines for which `keep` returns true.
    fn new(keep: impl Fn(&str) -> bool) -> Self {
        let now = netsim::Clock::new().now();
        let identity = Arc::new(Identity::self_signed(&Seed::from_number(1)).unwrap());
        let new = |ice, seed| {
            let config = Arc::new(Config::new(ice, Arc::clone(&identity)));
            let anchor = NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
            Peer::new(now, config, anchor, Seed::from_number(seed)).unwrap()
        };
        let preference = || MediaPreference {
            direction: Direction::SendRecv,
            formats: offered_formats(Codec::H264, 96),
            msid: None,
        };
        let mut publisher = new(IceMode::Full(Arc::default()), 2);
        let offer = publisher.offer(&[(MediaKind::Video, preference())]).unwrap().write();
        let kept: String = offer.split_inclusive("\r\n").filter(|line| keep(line.trim_end())).collect();
        let mut peer = new(IceMode::Lite { config: Arc::default(), addresses: Vec::new() }, 3);
        let offer = Description::read(kept.as_bytes()).unwrap();
        peer.handle_offer(now, &offer, |_, _| Some(preference())).unwrap();
        // Simulates the end of the handshake, before which no feedback is sent.
        peer.reports.schedule = Some(ReportSchedule::new(now));
        Self { now, peer, number: 0 }
    }

    /// Creates a peer without these feedback types.
    fn without(feedback: &[&str]) -> Self {
        Self::new(|line| !line.starts_with("a=rtcp-fb:") || !feedback.iter().any(|name| line.ends_with(name)))
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.peer.handle_timeout(self.now);
    }

    /// Sends the publisher's next packet, which is not a key frame.
    fn delta(&mut self) {
        self.number += 1;
        let header = Header {
            marker: true,
            payload_type: PayloadType::new(96).unwrap(),
            sequence_number: SequenceNumber(self.number),
            timestamp: u32::from(self.number) * 3000,
            ssrc: PUBLISHER,
            csrcs: Csrcs::default(),
            extension: None,
        };
        let mut bytes = Vec::new();
        Packet { header, payload: &[0x41, 0x9a, 0x84, 0], padding: 0 }.write(&mut bytes);
        let reception = self.peer.reception.as_mut().unwrap();
        reception.handle_packet(self.now, &bytes, &mut self.peer.events);
    }

    /// Simulates the loss of a packet from the publisher.
    fn lose(&mut self) {
        self.number += 1;
        self.delta();
    }

    fn rtcp(&mut self, write: impl FnOnce(&mut Compound)) {
        let mut compound = Compound::new(1200);
        write(&mut compound);
        self.peer.handle_rtcp(self.now, &compound.into_bytes());
    }

    /// Returns the parts of each compound packet that the peer sends.
    fn sent(&mut self) -> Vec<Vec<String>> {
        let name = |part: Rtcp<'_>| match part {
            Rtcp::Pli(pli) => format!("pli {}", pli.media.value()),
            Rtcp::Fir(fir) => {
                let entries: Vec<FirEntry> = fir.entries().collect();
                let [FirEntry { ssrc, sequence }] = entries[..] else { panic!("{entries:?}") };
                format!("fir {} {sequence}", ssrc.value())
            }
            Rtcp::Nack(nack) => format!("nack {}", nack.numbers().next().unwrap().value()),
            Rtcp::Remb(remb) => {
                let ssrcs: Vec<u32> = remb.ssrcs().map(Ssrc::value).collect();
                format!("remb {} {ssrcs:?}", remb.bitrate)
            }
            Rtcp::ReceiverReport(report) => format!("report {}", report.blocks().count()),
            Rtcp::SenderReport(report) => format!("report {}", report.blocks().count()),
            Rtcp::SourceDescription(_) => "names".to_owned(),
            Rtcp::ExtendedReport(report) => format!("report extended {}", report.blocks().count()),
            other => format!("{other:?}"),
        };
        let parts =
            |bytes: Vec<u8>| rtp::rtcp::packets(&bytes).map(|part| name(part.unwrap())).collect::<Vec<_>>();
        self.peer.reports.rtcp.drain(..).map(parts).collect()
    }

    /// Returns the feedback that the peer sends, without reports.
    fn feedback(&mut self) -> Vec<String> {
        self.sent()
            .into_iter()
            .flatten()
            .filter(|part| !part.starts_with("report") && part != "names")
            .collect()
    }
}

#[test]
fn key_frames_are_asked_for_by_the_message_that_was_agreed_on() {
    for (without, asked) in [
        (&[][..], ["pli 5", "pli 5", "pli 5"].as_slice()),
        (&["ccm fir"], &["pli 5", "pli 5", "pli 5"]),
        // RFC 5104 §4.3.1.1: each command has the next number.
        (&["nack pli"], &["fir 5 0", "fir 5 1", "fir 5 2"]),
        (&["nack pli", "ccm fir"], &[]),
    ] {
        let mut bench = Bench::without(&[without, &[" nack", "goog-remb"]].concat());
        let mut sent = Vec::new();
        bench.delta();
        for _ in 0..3 {
            bench.peer.request_key_frame(bench.now, SectionId(0), 0);
            sent.extend(bench.feedback());
            // Requests are repeated at increasing intervals while no key frame arrives.
            bench.wait(2000);
            sent.extend(bench.feedback());
        }
        assert_eq!(sent, asked, "{without:?}");
    }
}

#[test]
fn lost_packets_are_asked_for_where_the_peer_repeats_them() {
    for (without, asked) in [(&[][..], &["nack 2"][..]), (&[" nack"], &[])] {
        let mut bench = Bench::without(&[without, &["nack pli", "ccm fir", "goog-remb"]].concat());
        bench.delta();
        bench.lose();
        bench.wait(10);
        assert_eq!(bench.feedback(), asked);
    }
}

/// Checks RFC 5506: feedback is preceded by a report, unless the peer accepts feedback alone.
#[test]
fn feedback_goes_alone_where_the_peer_takes_that() {
    for (alone, parts) in [(true, &["nack 2"][..]), (false, &["report 0", "names", "nack 2"])] {
        let mut bench = Bench::new(|line| alone || line != "a=rtcp-rsize");
        bench.delta();
        bench.sent();
        bench.lose();
        bench.wait(10);
        let nack = bench.sent().into_iter().find(|parts| parts.iter().any(|part| part.starts_with("nack")));
        assert_eq!(nack.unwrap(), parts, "{alone}");
    }
}

#[test]
fn the_rate_is_told_where_that_was_agreed_on() {
    // A sender that is sent arrival times estimates the rate itself, so it is sent no REMB.
    let cases = [
        (&["transport-cc"][..], &["remb 2000000 [5]"][..]),
        (&["transport-cc", "goog-remb"], &[]),
        (&[], &[]),
    ];
    for (without, told) in cases {
        let mut bench = Bench::without(&[without, &["nack pli", "ccm fir", " nack"]].concat());
        bench.delta();
        bench.peer.report(bench.now);
        assert_eq!(bench.feedback(), told);
    }
}

/// Checks that a publisher with a target rate (REMB) learns of a queue before the next report, if its frames
/// arrive later and later.
#[test]
fn a_queue_is_told_at_once() {
    let mut bench = Bench::without(&["transport-cc", "nack pli", "ccm fir", " nack"]);
    let told = |bench: &mut Bench| -> Vec<u64> {
        let sent = bench.feedback();
        let rates =
            sent.iter().filter_map(|part| part.strip_prefix("remb ")?.split(' ').next()?.parse().ok());
        rates.collect()
    };
    for (late_ms, is_told) in [(0, false), (60, true)] {
        bench.peer.report(bench.now);
        told(&mut bench);
        let mut heard = Vec::new();
        // Less than a second of frames, each delayed more than the one before.
        for _ in 0..15 {
            bench.delta();
            bench.wait(33 + late_ms / 2);
            heard.extend(told(&mut bench));
        }
        assert_eq!(heard.iter().any(|bits| *bits < 500_000), is_told, "{late_ms}: {heard:?}");
    }
}

#[test]
fn a_lost_packet_is_asked_for_again_after_the_round_trip_that_was_measured() {
    for round_trip in [200, 400] {
        let mut bench = Bench::without(&["nack pli", "ccm fir", "goog-remb"]);
        bench.delta();
        let sent = bench.peer.anchor.at(bench.now).middle();
        bench.now += Duration::from_millis(round_trip);
        let ssrc = bench.peer.sending.senders[0].ssrc();
        let block = ReportBlock {
            ssrc,
            fraction_lost: 0,
            cumulative_lost: 0,
            highest_sequence: 0,
            jitter: 0,
            last_sender_report: sent,
            delay_since_report: 0,
        };
        bench.rtcp(|compound| {
            compound.receiver_reports(PUBLISHER, &[block]);
        });
        bench.lose();
        let mut asked = Vec::new();
        for ms in 0..100 {
            if bench.feedback().iter().any(|part| part == "nack 2") {
                asked.push(ms * 10);
            }
            bench.wait(10);
        }
        let apart = asked[1] - asked[0];
        // The requests may be further apart: by a quarter of the round trip, and by the variation of the
        // path.
        let most = round_trip * 5 / 4 + 20;
        assert!((round_trip..=most).contains(&apart), "{round_trip}: {asked:?}");
    }
}

/// Checks RFC 3611 §4.5: ignores answers to other receivers, answers without a request, and delays over a
/// minute.
#[test]
fn a_round_trip_is_believed_only_of_an_answer_to_us() {
    let mut bench = Bench::without(&[]);
    let (ours, asked) = (bench.peer.reports.ssrc, bench.peer.anchor.at(bench.now));
    bench.now += Duration::from_millis(150);
    let answer = |ssrc, waited_ms| Dlrr::new(ssrc, asked, Duration::from_millis(waited_ms));
    for (answer, measured) in [
        (answer(Ssrc(99), 50), None),
        (Dlrr { last_reference: 0, ..answer(ours, 0) }, None),
        (answer(ours, 900), None),
        (Dlrr { last_reference: 77, ..answer(ours, 0) }, None),
        (answer(ours, 50), Some(100)),
    ] {
        bench.rtcp(|compound| {
            compound.delays(PUBLISHER, &[answer]);
        });
        let round_trip = bench.peer.stats().round_trip.map(|time| time.as_millis());
        assert_eq!(round_trip.map(|ms| ms.next_multiple_of(10)), measured, "{answer:?}");
    }
}

#[test]
fn a_goodbye_ends_a_source() {
    let mut bench = Bench::without(&["nack pli", "ccm fir", " nack"]);
    bench.delta();
    assert_eq!(bench.peer.stats().received.len(), 1);
    bench.rtcp(|compound| {
        compound.bye(&[Ssrc(6)]);
    });
    assert_eq!(bench.peer.stats().received.len(), 1, "another one's");
    bench.rtcp(|compound| {
        compound.bye(&[PUBLISHER]);
    });
    assert_eq!(bench.peer.stats().received.len(), 0);
    bench.peer.report(bench.now);
    assert!(bench.sent().iter().flatten().all(|part| part != "report 1" && !part.starts_with("remb")));
}

/// Checks that arrival times are not reported to a peer whose answer accepts the sequence numbers but not the
/// feedback.
#[test]
fn arrivals_are_told_where_that_was_agreed_on() {
    let bench = Bench::without(&[]);
    let mut sections = bench.peer.negotiation.sections.clone();
    assert!(Reception::new(bench.now, &sections, WISHES).arrivals().is_some());
    for format in &mut sections[0].formats {
        format.remote.feedback.retain(|feedback| *feedback != sdp::Feedback::TransportCc);
    }
    assert!(Reception::new(bench.now, &sections, WISHES).arrivals().is_none());
}

#[test]
fn packets_are_sent_again_where_that_was_agreed_on() {
    for (without, again) in [(&[][..], true), (&[" nack"], false)] {
        let mut bench = Bench::without(without);
        let media = bench.peer.sending.senders[0].ssrc();
        bench.rtcp(|compound| {
            compound.nack(PUBLISHER, media, &[SequenceNumber(1)]);
        });
        assert_eq!(bench.peer.sending.senders[0].has_waiting(), again);
    }
}

/// Checks that a viewer's estimates are limited to a range, and affect only what this viewer receives.
#[test]
fn estimates_from_nothing_to_everything_are_bounded() {
    let mut bench = Bench::without(&[]);
    assert_eq!((bench.peer.video_budget(bench.now), bench.peer.estimate(bench.now)), (None, None));
    for (told, estimate) in [(0, 50_000), (1, 50_000), (3_000_000, 3_000_000), (1 << 60, 1_000_000_000)] {
        bench.rtcp(|compound| {
            compound.remb(PUBLISHER, told, &[Ssrc(1)]);
        });
        assert_eq!(bench.peer.estimate(bench.now), Some(estimate), "{told}");
        let budget = bench.peer.video_budget(bench.now);
        assert!(budget.is_none_or(|budget| budget <= estimate), "{told}: {budget:?}");
    }
}

/// Checks that a storm of key frame requests and NACKs causes only one key frame per half second, and a
/// limited list of packets to retransmit.
#[test]
fn storms_of_requests_are_bounded() {
    let mut bench = Bench::without(&[]);
    let media = bench.peer.sending.senders[0].ssrc();
    let mut wanted = 0;
    for round in 0..100u16 {
        bench.rtcp(|compound| {
            (0..50).for_each(|_| {
                compound.pli(rtp::rtcp::Pli { sender: PUBLISHER, media });
            });
        });
        let numbers: Vec<SequenceNumber> = (0..200).map(|n| SequenceNumber(round * 600 + n)).collect();
        bench.rtcp(|compound| {
            compound.nack(PUBLISHER, media, &numbers);
        });
        bench.wait(20);
        while let Some(event) = bench.peer.poll_event() {
            wanted += u32::from(matches!(event, Event::KeyFrameWanted { .. }));
        }
    }
    assert!((3..=5).contains(&wanted), "{wanted}");
    assert!(bench.peer.held_bytes() < 64 << 10, "{}", bench.peer.held_bytes());
}

/// Checks that feedback from one datagram is evaluated for a limited number of packets only, even if it
/// reports more.
#[test]
fn x_13_feedback_about_a_hundred_thousand_packets_in_a_datagram_is_not_read_to_its_end() {
    // A part that reports 8191 lost packets in one run.
    let part = [0x8f, 205, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0x1f, 0xff, 0, 0, 0, 0, 0x1f, 0xff, 0, 0];
    let mut bench = Bench::without(&[]);
    bench.peer.handle_rtcp(bench.now, &part.repeat(2));
    assert_eq!(bench.peer.stats().malformed, 0);
    bench.peer.handle_rtcp(bench.now, &part.repeat(45));
    assert_eq!(bench.peer.stats().malformed, 43);
}

#[test]
fn a_section_that_is_sent_is_settled_once_and_before_its_first_unit() {
    let mut bench = Bench::new(|_| true);
    let section = bench.peer.sections()[0].clone();
    let number = |at: usize| section.formats[at].payload_type();
    let (first, last) = (number(0), number(section.formats.len() - 1));
    assert!(section.formats.len() > 1);
    assert!(!bench.peer.settle(bench.now, SectionId(9), last), "there is none");
    assert!(!bench.peer.settle(bench.now, section.id, PayloadType::new(127).unwrap()));
    assert!(bench.peer.settle(bench.now, section.id, last));
    let settled = bench.peer.sections()[0].clone();
    assert_eq!(settled.formats, [section.formats[section.formats.len() - 1].clone()]);
    assert_eq!(settled.local_source, section.local_source);
    assert!(!bench.peer.settle(bench.now, section.id, first), "it was forgotten");
    // After a unit was sent in the first format, no other format can be chosen.
    let mut bench = Bench::new(|_| true);
    let unit = LoggedUnit {
        packets: PacketLog::new().next_id()..PacketLog::new().next_id(),
        timestamp: 0,
        bytes: 0,
    };
    assert!(bench.peer.send(section.id, &unit, bench.now));
    assert!(!bench.peer.settle(bench.now, section.id, last));
    assert!(bench.peer.settle(bench.now, section.id, first));
}
