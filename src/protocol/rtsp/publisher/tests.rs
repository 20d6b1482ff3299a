//! A publisher over datagrams, on a network that loses some. Nothing repairs losses, so the received frames must be
//! complete, in order and on one clock, and the others must be counted.

use std::sync::Arc;

use crypto::Seed;
use media::codec::{aac, h264};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, TrackKind, Tracks};
use netsim::{Counts, Link, LinkStats, MediaSource, Verifier};

use super::*;
use crate::hub::{Chosen, Entry, Package};
use crate::protocol::publisher::grant;
use crate::protocol::rtsp::package::{self, RtspPackage, channel_of};
use crate::protocol::rtsp::viewer::Viewer;

/// The outcome of a stream.
#[derive(Debug)]
struct Outcome {
    video: Counts,
    audio: Counts,
    link: LinkStats,
    dropped: u64,
    /// The time of the end, in milliseconds from the beginning of the stream, and the reason.
    end: Option<(u128, &'static str)>,
}

/// Splits `seconds` of a stream into packets, sends them over a link, and reassembles the frames.
fn publish(seed: u64, seconds: u64, change: impl Fn(Link, Instant) -> Link) -> Outcome {
    let (seed, start) = (Seed::from_number(seed), Instant::now());
    let track = |id, config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) };
    let video = CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap());
    let audio = CodecConfig::Aac(aac::Config::read(MediaSource::audio_config()).unwrap());
    let tracks = Arc::new(Tracks::new(1, [track(TrackId::VIDEO, video), track(TrackId::AUDIO, audio)]));
    let chosen = Chosen::all_of(&tracks);
    let described = Viewer::new(start, &chosen);
    let formats = described.description().media.iter().map(|media| Source::of(&media.rtp_formats().next()?));
    let mut publisher = Publisher::new(start, &grant(), formats.collect());
    let (mut package, mut source) = (RtspPackage::default(), MediaSource::new(&seed));
    let mut link = change(Link::new(&seed), start);
    let (mut verifier, mut last) = (Verifier::new(), [i64::MIN; 2]);
    let (mut dropped, mut end, mut has_begun) = (0, None, false);
    let mut deliver = |now: Instant, link: &mut Link, publisher: &mut Publisher| -> Option<&'static str> {
        while let Some(datagram) = link.poll_delivery(now) {
            let [channel, packet @ ..] = &datagram[..] else { panic!("an empty datagram") };
            let section = usize::from(*channel & !1 == channel_of(TrackId::AUDIO));
            publisher.packet(now, section, channel & 1 == 1, packet);
        }
        if publisher.poll_timeout().is_some_and(|at| at <= now) {
            publisher.handle_timeout(now);
        }
        let mut events = Vec::new();
        let over = publisher.poll(now, &mut events);
        for event in events {
            if let Event::Publication(_, PublicationEvent::Unit { unit, tracks }) = event {
                let kind = tracks.get(unit.track).unwrap().kind();
                let seen = verifier.feed(&unit.payload).expect("half a unit was handed on");
                assert_eq!(seen.is_video, kind == TrackKind::Video);
                has_begun |= seen.is_video && seen.key_frame;
                assert!(has_begun || !seen.is_video, "the video begins with no key frame");
                let last = &mut last[usize::from(seen.is_video)];
                assert!(unit.dts > *last, "the clock goes back");
                *last = unit.dts;
            } else if let Event::Publication(_, PublicationEvent::UnitsDropped(units)) = event {
                dropped += units;
            } else if let Event::Publication(_, PublicationEvent::Fault(reason)) = event {
                // Key frames have many packets: if many are lost, no key frame arrives complete.
                assert!(reason.contains("no frame of its video"), "{reason}");
            } else {
                panic!("{event:?}");
            }
        }
        over.map(|end| end.reason)
    };
    let mut next = source.next_unit();
    for ms in 0..seconds * 1000 {
        let now = start + Duration::from_millis(ms);
        while next.dts_ms <= ms {
            let unit = std::mem::replace(&mut next, source.next_unit());
            let dts = i64::try_from(unit.dts_ms).unwrap();
            let unit = AccessUnit {
                track: if unit.is_video { TrackId::VIDEO } else { TrackId::AUDIO },
                dts,
                pts: dts + i64::from(unit.cts_ms),
                key_frame: unit.key_frame && unit.is_video,
                config_epoch: 1,
                payload: unit.payload,
            };
            let entry = Entry::new(now, 1_700_000_000_000 + ms, unit, Arc::clone(&tracks));
            for frame in package::frames(package.unit(&entry, &chosen).bytes().unwrap()) {
                let channel = frame.channel;
                let (head, payload) = frame.into_packet();
                link.send(now, [&[channel], &head[..], &payload[..]].concat().into());
            }
        }
        if let Some(reason) = deliver(now, &mut link, &mut publisher) {
            end = Some((now.duration_since(start).as_millis(), reason));
            break;
        }
    }
    Outcome { video: verifier.video(), audio: verifier.audio(), link: link.stats(), dropped, end }
}

impl Outcome {
    /// Checks that no frame arrived twice or out of order, and that the stream did not end.
    fn assert_sound(&self) {
        for counts in [self.video, self.audio] {
            assert_eq!((counts.reordered, counts.duplicated), (0, 0), "{self:?}");
        }
        assert!(self.audio.received > 500 && self.end.is_none(), "{self:?}");
    }
}

#[test]
fn n_02_n_03_n_04_n_05_delay_disorder_and_doubles_cost_an_rtsp_publisher_nothing() {
    let ms = Duration::from_millis;
    for seed in 0..8 {
        for delay in [10, 500] {
            let bad = publish(seed, 20, |link, _| {
                link.latency(ms(delay)).jitter(ms(20)).reorder(0.05).duplicate(0.2)
            });
            bad.assert_sound();
            assert!(bad.link.reordered > 50 && bad.link.duplicated > 50, "{:?}", bad.link);
            assert_eq!((bad.video.lost, bad.audio.lost), (0, 0), "{seed} {delay}: {bad:?}");
            // A key frame that is overtaken at the very beginning is not awaited; the next one is then the first.
            assert!(bad.dropped == 0 || bad.video.first == Some(60), "{seed} {delay}: {bad:?}");
        }
        // Packets are delayed for longer than the receiver waits for missing ones, so some are given up. The frames
        // that remain are complete.
        publish(seed, 20, |link, _| link.latency(ms(120)).jitter(ms(100)).reorder(0.2)).assert_sound();
    }
}

#[test]
fn n_01_what_is_lost_to_an_rtsp_publisher_is_left_out_and_counted() {
    for (loss, seed) in [0.01, 0.02, 0.05, 0.1, 0.2].into_iter().zip(0..) {
        let bad = publish(seed, 20, |link, _| link.latency(Duration::from_millis(20)).loss(loss));
        bad.assert_sound();
        assert!(bad.link.lost > 20 && (bad.video.lost > 5 || bad.video.received == 0), "{bad:?}");
        assert!(bad.video.received > 0 || loss > 0.04, "{bad:?}");
        assert!(bad.dropped > 0, "units that were cut by the loss are counted: {bad:?}");
        // Each audio unit is one packet, so the share of lost units is that of lost packets.
        let share = bad.audio.lost as f64 / (bad.audio.lost + bad.audio.received) as f64;
        assert!(share < loss * 2.0 + 0.01, "{loss}: {bad:?}");
    }
}

#[test]
fn n_06_fades_of_an_rtsp_publisher_are_gaps_and_nothing_else() {
    let bad = publish(3, 20, |link, _| link.fading(Duration::from_secs(5), Duration::from_millis(200)));
    bad.assert_sound();
    assert!(bad.link.faded > 20 && bad.audio.lost > 20 && bad.audio.lost < 60, "{bad:?}");
}

#[test]
fn n_07_an_rtsp_publisher_at_half_its_rate_loses_and_recovers() {
    let bad = publish(4, 30, |link, start| {
        let at = |seconds| start + Duration::from_secs(seconds);
        link.rate_between(at(5), at(15), 500_000)
    });
    bad.assert_sound();
    assert!(bad.link.overflowed + bad.link.lost > 50 && bad.video.lost > 20, "{bad:?}");
    assert!(bad.video.last >= Some(30 * 29), "it has the end of the stream: {bad:?}");
}

#[test]
fn n_08_n_11_an_rtsp_publisher_survives_six_seconds_of_darkness_and_ends_behind_ten() {
    let dark = |seconds| {
        publish(5, 40, |link, start| {
            let from = start + Duration::from_secs(10);
            link.blackout(from, from + Duration::from_secs(seconds))
        })
    };
    for seconds in [1, 3, 6] {
        let bad = dark(seconds);
        bad.assert_sound();
        assert!(bad.link.dark > 50 && bad.video.last >= Some(30 * 39), "{bad:?}");
    }
    for seconds in [15, 40] {
        let (at, reason) = dark(seconds).end.unwrap();
        assert_eq!((reason, at / 100), ("no packets", 199), "{seconds}");
    }
}

#[test]
fn n_10_no_packet_to_an_rtsp_viewer_is_larger_than_an_ethernet_frame_takes() {
    let whole = publish(6, 20, |link, _| link);
    whole.assert_sound();
    let narrow = publish(6, 20, |link, _| link.mtu(1 + 1380 + rtp::HEADER_BYTES));
    assert_eq!((narrow.link.too_big, narrow.video.lost), (0, 0), "{narrow:?}");
    // On a path with a small MTU, only audio packets that fit arrive.
    let small = publish(6, 20, |link, _| link.mtu(576));
    assert!(small.link.too_big > 50 && small.audio.received > 800 && small.end.is_none(), "{small:?}");
}

#[test]
fn reports_go_where_their_sections_go_every_five_seconds() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let description = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
        m=audio 0 RTP/AVP 0\r\nm=audio 0 RTP/AVP 8\r\nm=audio 0 RTP/AVP 0\r\n";
    let description = sdp::Description::read(description.as_bytes()).unwrap();
    let sources = description.media.iter().map(|media| Source::of(&media.rtp_formats().next()?));
    let mut publisher = Publisher::new(start, &grant(), sources.collect());
    assert_eq!(publisher.poll_timeout(), Some(at(5)));
    let packet = |payload_type| [0x80, payload_type, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, 1, 2, 3, 4];
    assert!(publisher.packet(start, 0, false, &packet(0)) && publisher.packet(start, 1, false, &packet(8)));
    assert!(!publisher.packet(start, 0, false, &packet(8)), "what was not described is not taken");
    publisher.handle_timeout(at(4));
    publisher.take_reports(|_, _| panic!("before five seconds"));
    publisher.handle_timeout(at(5));
    // Nothing was sent in the third section.
    let mut inside = Vec::new();
    publisher.take_reports(|section, report| {
        inside.push(section);
        assert!(rtp::rtcp::packets(&report).all(|part| part.is_ok()));
        section == 0
    });
    assert_eq!(inside, [0, 1]);
    assert_eq!(publisher.poll_report(|section| section == 0), None);
    assert_eq!(publisher.poll_report(|section| section == 1).map(|(section, _)| section), Some(1));
    assert_eq!(publisher.poll_report(|_| true), None);
    publisher.handle_timeout(at(9));
    assert_eq!(publisher.poll_report(|_| true), None);
    publisher.handle_timeout(at(10));
    assert!(publisher.poll_report(|_| true).is_some());
}

/// Makes a publisher with these sections; the stream continues at `position_ms`, if it is not new.
fn publisher(now: Instant, sections: &str, position_ms: Option<i64>) -> Publisher {
    let description =
        format!("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=s\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n{sections}");
    let description = sdp::Description::read(description.as_bytes()).unwrap();
    let sources = description.media.iter().map(|media| Source::of(&media.rtp_formats().next()?));
    let position = media::Position { dts_ms: position_ms.unwrap_or(0), started: position_ms.is_some() };
    Publisher::new(now, &Grant { position, ..grant() }, sources.collect())
}

const VP8: &str = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\n";
const PCMU: &str = "m=audio 0 RTP/AVP 0\r\n";

/// A packet with a key frame of VP8, or with audio in PCMU.
fn packet(payload_type: u8, ssrc: u8, number: u16, timestamp: u32) -> Vec<u8> {
    let key = [0x10, 0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 16, 0, 16, 0];
    let payload = if payload_type == 96 { &key[..] } else { &[0xff; 160] };
    let (number, timestamp) = (number.to_be_bytes(), timestamp.to_be_bytes());
    [&[0x80, 0x80 | payload_type], &number[..], &timestamp, &[0, 0, 0, ssrc], payload].concat()
}

#[test]
fn one_of_two_videos_is_enough() {
    let start = Instant::now();
    let mut publisher = publisher(start, &[VP8, VP8, PCMU].concat(), None);
    let (mut units, mut faults) = (0, Vec::new());
    for n in 0..40u16 {
        let now = start + Duration::from_millis(500) * u32::from(n);
        publisher.packet(now, 1, false, &packet(96, 2, n, u32::from(n) * 45_000));
        publisher.packet(now, 2, false, &packet(0, 3, n, u32::from(n) * 4_000));
        publisher.handle_timeout(now);
        let mut events = Vec::new();
        assert!(publisher.poll(now, &mut events).is_none());
        for event in events {
            if let Event::Publication(_, PublicationEvent::Fault(reason)) = event {
                faults.push(reason);
            } else if let Event::Publication(_, PublicationEvent::Unit { .. }) = event {
                units += 1;
            }
        }
    }
    assert!(units > 60 && faults.is_empty(), "{units} {faults:?}");
}

/// Returns the times in milliseconds of a returning publisher's video and audio. They arrive together, but reports of
/// these two sources, which precede all packets, say that the audio was sampled 900 ms earlier.
fn returning_after_reports_of(sources: [u32; 2]) -> [Vec<i64>; 2] {
    let start = Instant::now();
    let mut publisher = publisher(start, &[VP8, PCMU].concat(), Some(5_000));
    let mut report = |section: usize, ssrc, ms: u64, rtp_timestamp| {
        let ntp = rtp::NtpTime::new(1 << 63).plus(Duration::from_millis(ms));
        let info = rtp::rtcp::SenderInfo { ntp, rtp_timestamp, packets: 0, octets: 0 };
        let mut compound = rtp::rtcp::Compound::new(1200);
        assert!(compound.sender_report(rtp::Ssrc(ssrc), &info, &[]));
        publisher.packet(start, section, true, &compound.into_bytes());
    };
    report(0, sources[0], 1_900, 0);
    report(1, sources[1], 1_000, 0);
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..100u16 {
        let now = start + Duration::from_millis(20) * u32::from(n);
        publisher.packet(now, 0, false, &packet(96, 2, n, u32::from(n) * 1_800));
        publisher.packet(now, 1, false, &packet(0, 3, n, u32::from(n) * 160));
        let mut events = Vec::new();
        assert!(publisher.poll(now, &mut events).is_none());
        for event in events {
            let Event::Publication(_, PublicationEvent::Unit { unit, .. }) = event else { continue };
            assert!(unit.pts >= unit.dts);
            times[usize::from(unit.track == TrackId::AUDIO)].push(unit.dts / 90);
        }
    }
    assert!(times.iter().all(|times| times.len() > 90));
    times
}

#[test]
fn no_source_of_a_returning_publisher_begins_behind_its_predecessor() {
    let [video, audio] = returning_after_reports_of([2, 3]);
    for times in [&video, &audio] {
        assert!(times.iter().all(|ms| *ms > 5_000) && times.is_sorted(), "{times:?}");
    }
    assert_eq!(video.last().unwrap() - audio.last().unwrap(), 900, "behind the position, reports decide");
}

#[test]
fn reports_of_other_sources_before_the_first_packets_are_forgotten() {
    let [video, audio] = returning_after_reports_of([8, 9]);
    let apart = video.last().unwrap() - audio.last().unwrap();
    assert!(apart.abs() < 50, "{apart} ms");
}
