//! Tests with unencrypted packets: accepted and refused ones, and the requests that are sent.

mod audio;
mod layers;

use media::codec::Codec;
use rtp::extension::{Extension, ExtensionMap, Extensions};
use rtp::{Csrcs, Header};
use sdp::Direction;

use super::*;
use crate::negotiate::{SectionFormat, offered_formats};

/// Payload type of H.264.
const H264: u8 = 96;
/// Payload type of VP8.
const VP8: u8 = 100;
const RTX: u8 = 110;

struct Bench {
    reception: Reception,
    events: VecDeque<Event>,
    now: Instant,
    extensions: ExtensionMap,
}

impl Bench {
    fn new() -> Self {
        Self::with_layers(&[])
    }

    fn with_layers(layers: &[&str]) -> Self {
        let now = netsim::Clock::new().now();
        let mut extensions = ExtensionMap::new();
        let ids = [(Extension::TransportCc, 3), (Extension::Rid, 4), (Extension::RepairedRid, 5)];
        assert!(ids.into_iter().all(|(extension, id)| extensions.insert(extension, id)));
        let formats = [(Codec::H264, H264), (Codec::Vp8, VP8)].map(|(codec, number)| {
            let local = offered_formats(codec, number).remove(0);
            let rtx = (number == H264).then(|| PayloadType::new(RTX).unwrap());
            SectionFormat { remote: local.clone(), local, rtx, red: None }
        });
        let section = Section {
            id: SectionId(0),
            mid: "0".to_owned(),
            kind: MediaKind::Video,
            direction: Direction::RecvOnly,
            formats: formats.into(),
            extensions,
            reduced_size: true,
            msid: None,
            layers: layers.iter().map(|&layer| layer.to_owned()).collect(),
            remote_sources: Vec::new(),
            local_source: None,
        };
        Self {
            reception: Reception::new(
                now,
                &[section],
                Wishes { bitrate_max: 20_000_000, spatial_layers: false },
            ),
            events: VecDeque::new(),
            now,
            extensions,
        }
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.reception.handle_timeout(self.now, &mut self.events);
    }

    /// Handles a packet that contains a whole frame.
    fn packet(&mut self, payload_type: u8, ssrc: u32, number: u16, payload: &[u8]) {
        let values = Extensions { transport_sequence: Some(number), ..Extensions::default() };
        self.packet_with(&values, payload_type, ssrc, number, payload);
    }

    fn packet_with(
        &mut self,
        values: &Extensions<'_>,
        payload_type: u8,
        ssrc: u32,
        number: u16,
        payload: &[u8],
    ) {
        let mut block = Vec::new();
        let header = Header {
            marker: true,
            payload_type: PayloadType::new(payload_type).unwrap(),
            sequence_number: SequenceNumber(number),
            timestamp: u32::from(number) * 3000,
            ssrc: Ssrc(ssrc),
            csrcs: Csrcs::default(),
            extension: self.extensions.write(values, &mut block),
        };
        let mut bytes = Vec::new();
        Packet { header, payload, padding: if payload.is_empty() { 9 } else { 0 } }.write(&mut bytes);
        self.reception.handle_packet(self.now, &bytes, &mut self.events);
    }

    fn key_frame(&mut self, ssrc: u32, number: u16) {
        // An IDR slice, the first in its frame.
        self.packet(H264, ssrc, number, &[0x65, 0x88, 0x84, 0]);
    }

    fn delta(&mut self, ssrc: u32, number: u16) {
        self.packet(H264, ssrc, number, &[0x41, 0x9a, 0x84, 0]);
    }

    /// Returns the events as text: F for a format, K and D for frames, L for lost frames.
    fn events(&mut self) -> String {
        let letter = |event| match event {
            Event::Format { .. } => 'F',
            Event::Frame { frame, .. } => {
                if frame.key_frame {
                    'K'
                } else {
                    'D'
                }
            }
            Event::PictureLost { .. } => 'L',
            Event::Candidate(_)
            | Event::PathOpened(_)
            | Event::PathClosed(_)
            | Event::Connected
            | Event::KeyFrameWanted { .. }
            | Event::AudioLevel { .. }
            | Event::DataConnected
            | Event::ChannelOpened(_)
            | Event::ChannelAccepted(_)
            | Event::Message { .. }
            | Event::ChannelClosed(_)
            | Event::DataWritable
            | Event::DataClosed(_)
            | Event::Closed(_) => panic!("{event:?}"),
        };
        self.events.drain(..).map(letter).collect()
    }

    fn key_frames_wanted(&mut self) -> Vec<u32> {
        self.reception.poll_requests(self.now).key_frames.iter().map(|ssrc| ssrc.value()).collect()
    }
}

/// Checks that named layers are distinguished by rid, then by source, and that each layer has its own
/// retransmissions and requests.
#[test]
fn named_layers_are_received_beside_each_other() {
    const KEY: &[u8] = &[0x65, 0x88, 0x84, 0];
    const DELTA: &[u8] = &[0x41, 0x9a, 0x84, 0];
    let mut bench = Bench::with_layers(&["h", "l"]);
    let layers = |bench: &mut Bench| -> Vec<(u8, bool)> {
        let frame = |event| {
            if let Event::Frame { layer, frame, .. } = event { Some((layer, frame.key_frame)) } else { None }
        };
        bench.events.drain(..).filter_map(frame).collect()
    };
    let named = |rid| Extensions { rid: Some(rid), ..Extensions::default() };
    bench.packet_with(&named("l"), H264, 2, 10, KEY);
    bench.packet_with(&named("h"), H264, 1, 100, KEY);
    bench.packet_with(&named("other"), H264, 3, 7, KEY);
    bench.packet(H264, 4, 7, KEY);
    bench.delta(1, 101);
    bench.delta(2, 11);
    assert_eq!(layers(&mut bench), [(1, true), (0, true), (0, false), (1, false)]);
    assert_eq!(bench.reception.unknown, 2);
    // A packet of the lower layer is lost and retransmitted. The first packet of the RTX source names the
    // layer.
    bench.delta(2, 13);
    bench.delta(1, 102);
    assert_eq!(layers(&mut bench), [(0, false)]);
    let repaired = |number: u16| [&number.to_be_bytes()[..], DELTA].concat();
    let values = Extensions { repaired_rid: Some("l"), ..Extensions::default() };
    bench.packet_with(&values, RTX, 20, 5, &repaired(12));
    assert_eq!(layers(&mut bench), [(1, false), (1, false)]);
    bench.delta(2, 15);
    bench.packet(RTX, 20, 6, &repaired(14));
    assert_eq!(layers(&mut bench), [(1, false), (1, false)]);
    // The key frame is requested from the layer that needs it.
    assert!(bench.reception.request_key_frame(SectionId(0), 1));
    assert!(!bench.reception.request_key_frame(SectionId(0), 2));
    assert_eq!(bench.key_frames_wanted(), [2]);
    assert!(bench.reception.request_key_frame(SectionId(0), 0));
    assert_eq!(bench.key_frames_wanted(), [1]);
}

/// Checks that three simultaneous layers are not mixed, from a page that writes its own SSRC group.
#[test]
fn layers_are_not_mixed() {
    let mut bench = Bench::new();
    bench.key_frame(1, 10);
    bench.delta(1, 11);
    bench.key_frame(2, 10);
    assert_eq!(bench.events(), "FKDLFK");
    for number in 11..40 {
        bench.wait(33);
        bench.delta(1, number + 1);
        bench.delta(2, number);
    }
    assert_eq!(bench.events(), "D".repeat(29));
    assert!(bench.reception.sources.get(Ssrc(1)).unwrap().format.is_none(), "holds nothing");
    // The layer is paused: another takes its place, starting with a key frame.
    for number in 41..120 {
        bench.wait(33);
        bench.delta(1, number);
    }
    assert_eq!(bench.events(), format!("LF{}", "D".repeat(19)));
    assert_eq!(bench.key_frames_wanted(), [1]);
}

#[test]
fn a_source_that_begins_anew_is_taken_at_once() {
    let mut bench = Bench::new();
    bench.key_frame(1, 10);
    bench.packet(H264, 2, 700, &[]);
    assert_eq!(bench.events(), "FK", "padding takes nobody's place");
    bench.key_frame(2, 701);
    bench.delta(1, 11);
    bench.delta(2, 702);
    assert_eq!(bench.events(), "LFKD");
    // Retransmissions from an unannounced source are attributed to the current source.
    bench.delta(2, 704);
    bench.packet(RTX, 9, 1, &[&rtp::rtx::osn(SequenceNumber(703))[..], &[0x41, 0x9a, 0x84, 0]].concat());
    assert_eq!(bench.events(), "DD");
    bench.reception.handle_bye(Ssrc(2));
    bench.delta(1, 12);
    assert!(bench.events().starts_with('F'), "behind a goodbye any other is taken");
}

/// Checks that comfort noise does not count as lost packets: its payload type was not negotiated, but it uses
/// sequence numbers of the same source.
#[test]
fn what_has_no_format_is_no_loss() {
    let mut bench = Bench::new();
    bench.key_frame(1, 10);
    bench.packet(13, 1, 11, &[1]);
    bench.delta(1, 12);
    bench.wait(1000);
    assert_eq!(bench.events(), "FKD");
    bench.packet(13, 7, 1, &[1]);
    assert_eq!((bench.reception.unknown, bench.reception.sources.len()), (1, 1));
}

#[test]
fn padding_does_not_change_the_format() {
    let mut bench = Bench::new();
    bench.key_frame(1, 10);
    bench.packet(VP8, 1, 11, &[]);
    bench.delta(1, 12);
    assert_eq!(bench.events(), "FKD");
}

/// Checks the requests after the loss of the first key frame.
#[test]
fn a_key_frame_is_asked_for_until_it_comes() {
    let mut bench = Bench::new();
    let mut asked = Vec::new();
    for number in 0..90 {
        bench.delta(1, number);
        asked.extend(bench.key_frames_wanted());
        bench.wait(33);
    }
    // Requested immediately, then again after 500 ms, 1 s, ...
    assert_eq!(asked.len(), 3);
    // For a distant publisher, the interval includes the round trip that an answer takes.
    let mut far = Bench::new();
    far.reception.set_round_trip(Duration::from_millis(800));
    let mut asked_at = Vec::new();
    for number in 0..90 {
        far.delta(1, number);
        asked_at.extend((!far.key_frames_wanted().is_empty()).then_some(number));
        far.wait(33);
    }
    assert_eq!(asked_at, [0, 34]);
    bench.key_frame(1, 90);
    bench.wait(600);
    bench.delta(1, 91);
    assert_eq!(bench.key_frames_wanted(), [0; 0]);
    // A malformed frame counts as lost, too.
    bench.events();
    bench.packet(H264, 1, 92, &[0x78, 0, 9]);
    bench.wait(600);
    bench.delta(1, 93);
    assert_eq!((bench.events(), bench.key_frames_wanted()), ("LD".to_owned(), vec![1]));
}

/// Checks that arrival times are reported even if the peer has only an RTX source.
#[test]
fn arrivals_of_repairs_alone_are_told() {
    let mut bench = Bench::new();
    bench.packet(RTX, 9, 1, &[]);
    bench.wait(100);
    assert_eq!((bench.reception.sources.len(), bench.reception.any_source()), (0, None));
    assert!(bench.reception.has_arrivals(bench.now));
}

/// Checks that a sender report no longer applies after the sender restarts with its old SSRC and other
/// timestamps.
#[test]
fn a_restart_forgets_the_clock() {
    let mut bench = Bench::new();
    bench.key_frame(1, 10);
    let info = SenderInfo { ntp: rtp::NtpTime::new(1 << 40), rtp_timestamp: 30_000, packets: 1, octets: 1 };
    bench.reception.handle_sender_report(bench.now, Ssrc(1), &info);
    bench.delta(1, 11);
    for number in [30_000, 30_001, 30_002] {
        bench.key_frame(1, number);
    }
    let sampled: Vec<bool> = bench
        .events
        .iter()
        .filter_map(
            |event| if let Event::Frame { sampled, .. } = event { Some(sampled.is_some()) } else { None },
        )
        .collect();
    assert_eq!(sampled, [false, true, false, false]);
    assert_eq!(bench.events(), "FKDLFKK");
}

/// Checks that lost padding costs no key frame: pictures before and after the gap have consecutive numbers.
#[test]
fn lost_padding_is_no_lost_picture() {
    let mut bench = Bench::new();
    // Picture ids of 15 bits; the lowest bit of a picture's first byte is 0 in key frames.
    let picture = |id: u8, first: u8| [0x90, 0x80, 0x80, id, first, 1, 2];
    bench.packet(VP8, 1, 10, &picture(7, 0x50));
    bench.packet(VP8, 1, 11, &picture(8, 0x51));
    assert_eq!(bench.events(), "FKD");
    // Packets 12 and 13 were padding.
    bench.packet(VP8, 1, 14, &picture(9, 0x51));
    bench.wait(1500);
    assert_eq!((bench.events(), bench.key_frames_wanted()), ("D".to_owned(), vec![]));
    // Packet 15 was a picture.
    bench.packet(VP8, 1, 16, &picture(11, 0x51));
    bench.wait(1500);
    assert_eq!(bench.events(), "LD");
    assert_eq!(bench.key_frames_wanted(), [1]);
}

/// Checks that the loss of a picture's part is reported before further media arrives, as with a static picture: at once
/// if it cannot have been padding, otherwise after half a second.
#[test]
fn a_loss_before_silence_is_reported() {
    for (ends, waits) in [(true, true), (false, false)] {
        let mut bench = Bench::new();
        let picture = |id: u8, first: u8| [0x90, 0x80, 0x80, id, first, 1, 2];
        bench.packet(VP8, 1, 10, &picture(7, 0x50));
        if ends {
            bench.packet(VP8, 1, 11, &picture(8, 0x51));
        } else {
            // The packet has no picture id, so it proves nothing.
            bench.packet(VP8, 1, 11, &[0x10, 0x51, 1, 2]);
        }
        assert_eq!(bench.events(), "FKD");
        // Packet 12 is lost, and padding follows.
        bench.packet(VP8, 1, 13, &[]);
        bench.wait(1_000);
        assert_eq!(bench.events(), if waits { "" } else { "L" });
        bench.wait(500);
        assert_eq!(bench.events(), if waits { "L" } else { "" });
        assert_eq!(bench.key_frames_wanted(), [1]);
    }
}
