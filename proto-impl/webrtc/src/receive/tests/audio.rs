//! Tests of a publisher's audio: redundant packets, lost packets, and packets with an unexpected format.

use crypto::Seed;
use media::codec::Codec;
use rtp::extension::{AudioLevel, Extension, ExtensionMap, Extensions};
use rtp::{Csrcs, ExtensionBlock, Header};
use sdp::Direction;

use super::super::*;
use crate::negotiate::offered_formats;

const OPUS: u8 = 111;
const RED: u8 = 63;
const FRAME_TICKS: u32 = 960;

struct Bench {
    reception: Reception,
    events: VecDeque<Event>,
    now: Instant,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::with(ExtensionMap::new())
    }

    fn with(extensions: ExtensionMap) -> Self {
        let now = netsim::Clock::new().now();
        let local = offered_formats(Codec::Opus, OPUS).remove(0);
        let section = Section {
            id: SectionId(0),
            mid: "0".to_owned(),
            kind: MediaKind::Audio,
            direction: Direction::RecvOnly,
            // The peer does not retransmit packets.
            formats: vec![SectionFormat {
                remote: sdp::Format { feedback: Vec::new(), ..local.clone() },
                local,
                rtx: None,
                red: PayloadType::new(RED),
            }],
            extensions,
            reduced_size: true,
            msid: None,
            layers: Vec::new(),
            remote_sources: Vec::new(),
            local_source: None,
        };
        let reception =
            Reception::new(now, &[section], Wishes { bitrate_max: 20_000_000, spatial_layers: false });
        Self { reception, events: VecDeque::new(), now, start: now }
    }

    /// Handles a frame of a source, with extensions.
    fn packet_with(&mut self, extension: Option<ExtensionBlock<'_>>, ssrc: u32, number: u16) {
        let header = Header {
            marker: false,
            payload_type: PayloadType::new(OPUS).unwrap(),
            sequence_number: SequenceNumber(number),
            timestamp: u32::from(number) * FRAME_TICKS,
            ssrc: Ssrc(ssrc),
            csrcs: Csrcs::default(),
            extension,
        };
        let mut bytes = Vec::new();
        Packet { header, payload: &frame(number), padding: 0 }.write(&mut bytes);
        self.reception.handle_packet(self.now, &bytes, &mut self.events);
    }

    fn packet(&mut self, payload_type: u8, number: u16, payload: &[u8]) {
        let header = Header {
            marker: false,
            payload_type: PayloadType::new(payload_type).unwrap(),
            sequence_number: SequenceNumber(number),
            timestamp: u32::from(number) * FRAME_TICKS,
            ssrc: Ssrc(1),
            csrcs: Csrcs::default(),
            extension: None,
        };
        let mut bytes = Vec::new();
        Packet { header, payload, padding: 0 }.write(&mut bytes);
        self.reception.handle_packet(self.now, &bytes, &mut self.events);
    }

    /// Handles the frame with this number, in a packet with `blocks` previous frames.
    fn redundant(&mut self, number: u16, blocks: u16) {
        let mut payload = Vec::new();
        for back in (1..=blocks.min(number)).rev() {
            payload.extend_from_slice(&head(OPUS, u32::from(back) * FRAME_TICKS, 2));
        }
        payload.push(OPUS);
        for back in (0..=blocks.min(number)).rev() {
            payload.extend_from_slice(&frame(number - back));
        }
        self.packet(RED, number, &payload);
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.reception.handle_timeout(self.now, &mut self.events);
    }

    /// Returns the numbers of the frames; the number is in both the content and the timestamp of each.
    fn frames(&mut self) -> Vec<u32> {
        let number = |event| {
            let Event::Frame { frame, .. } = event else { return None };
            let number = frame.timestamp / FRAME_TICKS;
            assert_eq!(frame.payload[..], u16::try_from(number).unwrap().to_be_bytes());
            Some(number)
        };
        self.events.drain(..).filter_map(number).collect()
    }
}

fn head(payload_type: u8, ticks: u32, length: u32) -> [u8; 4] {
    (1 << 31 | u32::from(payload_type) << 24 | ticks << 10 | length).to_be_bytes()
}

fn frame(number: u16) -> [u8; 2] {
    number.to_be_bytes()
}

#[test]
fn lost_frames_come_from_the_packets_behind_them() {
    let mut bench = Bench::new();
    bench.redundant(5, 1);
    assert_eq!(bench.frames(), [5], "before the first one nothing is missing");
    bench.redundant(6, 1);
    // The frames are passed on immediately, without waiting for retransmissions.
    bench.redundant(8, 1);
    assert_eq!(bench.frames(), [6, 7, 8]);
    // Two consecutive packets are lost, and late packets contain nothing new.
    bench.redundant(11, 2);
    bench.redundant(10, 2);
    bench.packet(OPUS, 9, &frame(9));
    bench.packet(OPUS, 12, &frame(12));
    assert_eq!(bench.frames(), [9, 10, 11, 12]);
    // Three packets are lost, and the next one repeats only two of them. The receiver waits for the
    // third as long as it may hold frames back.
    bench.redundant(16, 2);
    assert_eq!(bench.frames(), []);
    bench.wait(100);
    assert_eq!(bench.frames(), [14, 15, 16]);
    let (_, _, stats) = bench.reception.stats().next().unwrap();
    assert_eq!((stats.recovered, stats.lost, bench.reception.malformed), (3, 3, 0));
}

/// Returns the number of frames that arrive, and the maximum delay of a frame after the time of its packet.
fn run(seed: u64, loss: f64, blocks: u16) -> (usize, u64) {
    const FRAMES: u16 = 3000;
    let mut bench = Bench::new();
    let mut random = Seed::from_number(seed).derive("loss", 0).random();
    let (mut came, mut latest) = (0, 0);
    for number in 0..FRAMES {
        if number == 0 || !random.chance(loss) {
            bench.redundant(number, blocks);
        }
        let at = u64::try_from((bench.now - bench.start).as_millis()).unwrap();
        let frames = bench.frames();
        let late = |of: &u32| at.saturating_sub(u64::from(*of) * 20);
        latest = frames.iter().map(late).max().unwrap_or(0).max(latest);
        came += frames.len();
        bench.wait(20);
    }
    (came * 1000 / usize::from(FRAMES), latest)
}

#[test]
fn what_is_lost_is_made_good() {
    for (loss, blocks, least) in
        [(0.05, 0, 930), (0.05, 1, 995), (0.1, 1, 985), (0.2, 1, 950), (0.2, 2, 985), (0.35, 2, 940)]
    {
        for seed in 0..3 {
            let (came, latest) = run(seed, loss, blocks);
            println!("{loss} lost, {blocks} earlier frames: {came}/1000 come, {latest} ms late at most");
            assert!(came >= least && latest <= 140, "{loss} {blocks} {seed}: {came} {latest}");
        }
    }
}

#[test]
fn what_is_no_redundant_packet_harms_nothing() {
    let nested = [&head(RED, 960, 1)[..], &[RED, 1, 2]].concat();
    let long = [&head(OPUS, 960, 1023)[..], &[OPUS, 1]].concat();
    let many = [&head(OPUS, 960, 0).repeat(200)[..], &[OPUS, 1]].concat();
    for (payload, malformed) in
        [(&[0x80 | OPUS, 0][..], 1), (&nested, 0), (&long, 1), (&many, 1), (&[RED], 0), (&[OPUS], 0)]
    {
        let mut bench = Bench::new();
        bench.redundant(1, 1);
        bench.packet(RED, 2, payload);
        bench.redundant(3, 0);
        bench.wait(100);
        assert_eq!((bench.frames(), bench.reception.malformed), (vec![1, 3], malformed), "{payload:?}");
    }
    // Repeated frames with false times: one from long ago, and one with the packet's own time.
    let mut bench = Bench::new();
    bench.redundant(20, 1);
    let lies = [&head(OPUS, 16_000, 2)[..], &head(OPUS, 0, 2), &[OPUS], &frame(4), &frame(21), &frame(21)];
    bench.packet(RED, 21, &lies.concat());
    assert_eq!(bench.frames(), [20, 21]);
}

#[test]
fn any_bytes_are_harmless() {
    let mut random = Seed::from_number(63).random();
    let mut bench = Bench::new();
    for number in 0..5000 {
        let length = usize::try_from(random.below(40)).unwrap();
        let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        bench.packet(RED, number, &bytes);
        bench.wait(20);
        let frames = bench.events.drain(..).filter(|event| matches!(event, Event::Frame { .. })).count();
        assert!(frames <= 1 + rtp::payload::RED_BLOCKS_MAX, "{frames}");
    }
}

/// Checks packets with audio levels. The key for encrypted levels (RFC 6904) is never negotiated, so
/// encrypted levels are ignored.
#[test]
fn levels_of_packets_become_a_loudness_where_they_were_agreed_on() {
    for is_agreed in [true, false] {
        let mut wire = ExtensionMap::new();
        wire.insert(Extension::AudioLevel, 1);
        let mut bench = Bench::with(if is_agreed { wire } else { ExtensionMap::new() });
        let mut told = Vec::new();
        for number in 0..400 {
            let level = AudioLevel { voice: true, level: if number < 100 { 25 } else { 127 } };
            let mut block = Vec::new();
            let extension =
                wire.write(&Extensions { audio_level: Some(level), ..Extensions::default() }, &mut block);
            bench.packet_with(extension, 1, number);
            bench.wait(20);
            let levels = bench.events.drain(..).filter_map(|event| {
                if let Event::AudioLevel { section, level } = event { Some((section, level)) } else { None }
            });
            told.extend(levels);
        }
        told.iter().for_each(|(section, _)| assert_eq!(*section, SectionId(0)));
        let levels: Vec<u8> = told.iter().map(|(_, level)| *level).collect();
        assert_eq!(!levels.is_empty(), is_agreed);
        if is_agreed {
            assert!(levels.iter().min().unwrap().abs_diff(25) <= 3, "{levels:?}");
            assert_eq!(levels.last(), Some(&127));
        }
    }
}
