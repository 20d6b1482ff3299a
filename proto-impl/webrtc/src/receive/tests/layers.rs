//! Tests of pictures with spatial layers, and of their dependency descriptors.

use media::codec::Codec;
use rtp::dependency::{Descriptor, Indication, Structure, Template};
use rtp::extension::{Extension, ExtensionMap, Extensions};
use rtp::{Csrcs, Header};
use sdp::Direction;

use super::super::*;
use crate::negotiate::offered_formats;

const VP9: u8 = 98;
const RTX: u8 = 99;
const SSRC: u32 = 7;

/// Two layers, of which the upper one refers to the lower one in key pictures alone: the templates are key and later
/// frames of the lower layer, then of the upper one.
fn structure() -> Structure {
    use Indication::{NotPresent, Switch};
    let template = |spatial, indications: [Indication; 2]| Template {
        spatial,
        temporal: 0,
        indications: indications.into(),
        references: Vec::new(),
        chains: Vec::new(),
    };
    let templates = vec![
        template(0, [Switch, Switch]),
        template(0, [Switch, NotPresent]),
        template(1, [NotPresent, Switch]),
    ];
    Structure::new(0, templates, Vec::new(), vec![(320, 180), (640, 360)]).unwrap()
}

struct Bench {
    reception: Reception,
    events: VecDeque<Event>,
    now: Instant,
    extensions: ExtensionMap,
    number: u16,
    /// The number of the highest layer.
    top: u8,
}

impl Bench {
    fn new(spatial_layers: bool) -> Self {
        let mut extensions = ExtensionMap::new();
        assert!(extensions.insert(Extension::DependencyDescriptor, 12));
        let local = offered_formats(Codec::Vp9, VP9).remove(0);
        let format = SectionFormat { remote: local.clone(), local, rtx: PayloadType::new(RTX), red: None };
        let section = Section {
            id: SectionId(0),
            mid: "0".to_owned(),
            kind: MediaKind::Video,
            direction: Direction::RecvOnly,
            formats: vec![format],
            extensions,
            reduced_size: true,
            msid: None,
            layers: Vec::new(),
            remote_sources: Vec::new(),
            local_source: None,
        };
        let now = netsim::Clock::new().now();
        let wishes = Wishes { bitrate_max: 20_000_000, spatial_layers };
        let reception = Reception::new(now, &[section], wishes);
        Self { reception, events: VecDeque::new(), now, extensions, number: 0, top: u8::from(spatial_layers) }
    }

    /// Makes the packet of one layer: a frame of VP9 in flexible mode, with its descriptor.
    fn packet(&mut self, timestamp: u32, key: bool, spatial: u8, payload_type: u8) -> Vec<u8> {
        self.number = self.number.wrapping_add(1);
        let template_id = if spatial > 0 { 2 } else { u8::from(!key) };
        let structure = (key && spatial == 0).then(|| Box::new(structure()));
        let descriptor = Descriptor {
            first: true,
            last: true,
            template_id,
            frame_number: self.number,
            structure,
            ..Descriptor::default()
        };
        let mut value = Vec::new();
        assert!(descriptor.write(&mut value));
        let values = Extensions { dependency_descriptor: Some(&value), ..Extensions::default() };
        let (p, references) = if key { (0, &[][..]) } else { (0x40, &[2][..]) };
        let first = if key && spatial == 0 { 0x82 } else { 0x86 };
        let d = u8::from(key && spatial > 0);
        let payload = [&[0x3c | p, spatial << 1 | d][..], references, &[first, b'a' + spatial]].concat();
        let is_repair = payload_type == RTX;
        let original = if is_repair { self.number.to_be_bytes().to_vec() } else { Vec::new() };
        let mut block = Vec::new();
        let header = Header {
            marker: spatial == 1,
            payload_type: PayloadType::new(payload_type).unwrap(),
            sequence_number: SequenceNumber(self.number),
            timestamp,
            ssrc: Ssrc(if is_repair { SSRC + 1 } else { SSRC }),
            csrcs: Csrcs::default(),
            extension: self.extensions.write(&values, &mut block),
        };
        let mut bytes = Vec::new();
        Packet { header, payload: &[&original[..], &payload].concat(), padding: 0 }.write(&mut bytes);
        bytes
    }

    fn handle(&mut self, packet: &[u8]) {
        self.reception.handle_packet(self.now, packet, &mut self.events);
    }

    /// Returns the frames that have come as text: the layer, K for key frames, and the letters of the layers in them.
    fn frames(&mut self) -> String {
        let text = |event| {
            let Event::Frame { frame, .. } = event else { return None };
            let letters = frame.payload.iter().filter(|byte| byte.is_ascii_lowercase());
            let letters: String = letters.map(|byte| char::from(*byte)).collect();
            let (layer, key) = (frame.layer, if frame.key_frame { "K" } else { "" });
            let size = (frame.key_frame && layer.top > 0).then_some((320 << layer.index, 180 << layer.index));
            assert_eq!((layer.size, layer.index <= layer.top), (size, true), "{layer:?}");
            assert_eq!(layer.top, self.top, "{layer:?}");
            Some(format!("{}{key}{letters} ", layer.index))
        };
        self.events.drain(..).filter_map(text).collect()
    }
}

#[test]
fn each_spatial_layer_is_a_frame_whatever_the_order_of_the_packets() {
    let mut bench = Bench::new(true);
    let mut packets = Vec::new();
    for n in 0..3 {
        packets.extend([0, 1].map(|spatial| bench.packet(n * 3000, n == 0, spatial, VP9)));
    }
    // The upper layer of the key picture comes last; the packets after it wait.
    for at in [0, 3, 2, 5, 4] {
        bench.handle(&packets[at]);
    }
    assert_eq!(bench.frames(), "");
    bench.handle(&packets[1]);
    assert_eq!(bench.frames(), "1Kab 0Ka 1b 0a 1b 0a ");
    // A lost packet is repaired: its descriptor comes with the retransmission.
    let repaired = bench.packet(9000, false, 0, RTX);
    let upper = bench.packet(9000, false, 1, VP9);
    bench.handle(&upper);
    assert_eq!(bench.frames(), "");
    bench.handle(&repaired);
    assert_eq!(bench.frames(), "1b 0a ");
    assert_eq!(bench.reception.malformed, 0);
}

#[test]
fn without_the_wish_a_picture_is_one_frame() {
    let mut bench = Bench::new(false);
    for n in 0..2 {
        for spatial in [0, 1] {
            let packet = bench.packet(n * 3000, n == 0, spatial, VP9);
            bench.handle(&packet);
        }
    }
    assert_eq!(bench.frames(), "0Kab 0ab ");
}

#[test]
fn a_picture_whose_marker_is_lost_keeps_its_descriptors() {
    let mut bench = Bench::new(true);
    let mut packets = Vec::new();
    for n in 0..4 {
        packets.extend([0, 1].map(|spatial| bench.packet(n * 3000, n == 0 || n == 2, spatial, VP9)));
    }
    for (at, packet) in packets.iter_mut().enumerate() {
        if at == 3 {
            // The marker: the next picture's first packet ends this one.
            packet[1] &= 0x7f;
        }
        bench.handle(packet);
    }
    assert_eq!(bench.frames(), "1Kab 0Ka 1b 0a 1Kab 0Ka 1b 0a ");
}

#[test]
fn layers_continue_after_a_restart() {
    let mut bench = Bench::new(true);
    let key = [0, 1].map(|spatial| bench.packet(0, true, spatial, VP9));
    key.iter().for_each(|packet| bench.handle(packet));
    assert_eq!(bench.frames(), "1Kab 0Ka ");
    // The source restarts far away. Its first packets only show that it does.
    bench.number = 30_000;
    for n in 0..30 {
        for spatial in [0, 1] {
            let packet = bench.packet(900_000 + n * 3000, n % 10 == 0, spatial, VP9);
            bench.handle(&packet);
        }
    }
    let gop = format!("1Kab 0Ka {}", "1b 0a ".repeat(9));
    assert_eq!(bench.frames(), gop.repeat(2));
}

#[test]
fn a_spatial_layer_that_begins_later_is_requested() {
    let mut bench = Bench::new(true);
    bench.top = 0;
    let single = |bench: &mut Bench, n: u32, key: bool| {
        let mut packet = bench.packet(n * 3000, key, 0, VP9);
        packet[1] |= 0x80;
        bench.handle(&packet);
    };
    let is_requested = |bench: &mut Bench| {
        bench.now += Duration::from_secs(5);
        !bench.reception.poll_requests(bench.now).key_frames.is_empty()
    };
    single(&mut bench, 0, true);
    single(&mut bench, 1, false);
    assert!(!is_requested(&mut bench));
    for spatial in [0, 1] {
        let packet = bench.packet(6000, false, spatial, VP9);
        bench.handle(&packet);
    }
    assert!(is_requested(&mut bench));
    bench.events.clear();
    bench.top = 1;
    for spatial in [0, 1] {
        let packet = bench.packet(9000, true, spatial, VP9);
        bench.handle(&packet);
    }
    assert_eq!(bench.frames(), "1Kab 0Ka ");
    assert!(!is_requested(&mut bench));
}
