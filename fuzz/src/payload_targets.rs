//! Payloads of RTP packets.

use bytes::Bytes;
use media::codec::{Codec, CodecConfig, g711, vp8};
use rtp::dependency::{Dependencies, SPATIAL_LAYERS_MAX};
use rtp::payload::{
    Continuity, Depacketizer, FRAME_BYTES_MAX, Format, Frame, Mpeg4Generic, Packetizer, Part, Payloads,
};

/// Maximum size of the payloads into which frames are packetised again.
const PAYLOAD_BYTES: usize = 100;
/// Least first byte with which a frame of each spatial layer is output; and the flag of a dependency descriptor.
const LAYERED: u8 = 192;
const DESCRIPTOR: u8 = 0x10;

fn format(choice: u8) -> (Format, Option<Codec>) {
    let latm = Bytes::from_static(&[0x40, 0x00, 0x23, 0x20, 0x3f, 0xc0]);
    match choice % 12 {
        0 => (Format::H264, Some(Codec::H264)),
        1 => (Format::H265, Some(Codec::H265)),
        2 => (Format::Vp8, Some(Codec::Vp8)),
        3 => (Format::Vp9, Some(Codec::Vp9)),
        4 => (Format::Av1, Some(Codec::Av1)),
        5 => (Format::Opus, Some(Codec::Opus)),
        6 => (Format::G711, Some(Codec::G711(g711::Law::A))),
        7 => (Format::Mp3, None),
        8 => (Format::Mpeg4Generic(Mpeg4Generic::AAC_HBR), Some(Codec::Aac)),
        9 => {
            let odd =
                Mpeg4Generic { size_length: 6, index_length: 2, index_delta_length: 2, unit_ticks: 160 };
            (Format::Mpeg4Generic(odd), None)
        }
        10 => (Format::Mp4aLatm { config: Some(latm), clock_rate: 48_000 }, None),
        _ => (Format::Mp4aLatm { config: None, clock_rate: 48_000 }, None),
    }
}

/// Depacketises frames. The first byte chooses the format. Then packets follow: a byte with marker, gap and
/// timestamp step, a byte with the length, and the payload. Each frame is packetised and read again. From 192 on, the
/// first byte asks for a frame of each spatial layer; payloads of a bare step are then dependency descriptors.
pub fn depack(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let (format, codec) = format(choice);
    let mut depacketizer = Depacketizer::new(format.clone()).expect("a known configuration");
    let mut dependencies = (choice >= LAYERED).then(Dependencies::new);
    if dependencies.is_some() {
        depacketizer = depacketizer.with_layers();
    }
    let mut continuity = codec.and_then(Continuity::new);
    let mut timestamp = 0u32;
    let mut given = 0usize;
    while let [flags, length, behind @ ..] = rest {
        let (payload, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        timestamp = timestamp.wrapping_add(u32::from(flags >> 2 & 3) * 1000);
        if let Some(dependencies) = dependencies.as_mut().filter(|_| flags & DESCRIPTOR != 0) {
            if let Ok(layer) = dependencies.handle(payload) {
                assert_eq!(layer.needed_by & !layer.sent, 0);
                depacketizer.note_layer(timestamp, layer);
            }
            continue;
        }
        let part = Part { timestamp, marker: flags & 1 != 0, gap: flags & 2 != 0, payload };
        if let Some(continuity) = &mut continuity {
            let missing = u64::from(flags >> 1 & 1);
            assert!(continuity.handle_packet(missing, timestamp, part.marker, payload) || missing > 0);
        }
        let before = depacketizer.stats();
        let malformed = depacketizer.handle_part(&part).is_err();
        assert_eq!(depacketizer.stats().malformed, before.malformed + u64::from(malformed));
        given += payload.len();
        // Each NAL unit gains a length of four bytes, each OBU a size field.
        assert!(depacketizer.pending_bytes() <= (8 * given + 64).min(FRAME_BYTES_MAX + 512));
        while let Some(frame) = depacketizer.poll_frame() {
            assert!(
                frame.layer.index <= frame.layer.top && usize::from(frame.layer.top) < SPATIAL_LAYERS_MAX
            );
            let frame = Frame::new(frame.timestamp, frame.key_frame, frame.payload);
            if let Some(codec) = codec {
                is_stable(&format, codec, &frame);
            }
        }
    }
}

/// Checks that a frame no longer changes after it was packetised and read once.
fn is_stable(format: &Format, codec: Codec, frame: &Frame) {
    let Some(once) = again(format, codec, frame) else { return };
    assert_eq!(again(format, codec, &once).as_ref(), Some(&once), "{codec}");
}

fn again(format: &Format, codec: Codec, frame: &Frame) -> Option<Frame> {
    let config = CodecConfig::Vp8(vp8::Config::default());
    let mut payloads = Payloads::new();
    let mut packetizer = Packetizer::new(codec, PAYLOAD_BYTES)?;
    packetizer.packetize(&config, frame.key_frame, &frame.payload, &mut payloads).ok()?;
    let packets: Vec<Bytes> = payloads.take().collect();
    let mut depacketizer = Depacketizer::new(format.clone()).ok()?;
    for (n, payload) in packets.iter().enumerate() {
        assert!(codec == Codec::Opus || payload.len() <= PAYLOAD_BYTES);
        let marker = n + 1 == packets.len();
        let part = Part { timestamp: frame.timestamp, marker, gap: false, payload };
        depacketizer.handle_part(&part).expect("what is written is read");
    }
    depacketizer.poll_frame()
}
