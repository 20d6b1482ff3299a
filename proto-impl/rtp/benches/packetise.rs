//! Cost of splitting a frame into payloads, and of reassembling it, compared with copying its bytes:
//!
//! ```text
//! cargo bench -p millstream-rtp --bench packetise
//! ```
//!
//! Rounds alternate between the three measurements, so that a busy machine affects all of them. Values are the
//! minimum, median and maximum of the rounds.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a bench has a clock, prints, and stops at what it did not expect"
)]

use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use media::codec::{Codec, CodecConfig, opus, vp8};
use media::nal;
use rtp::payload::{Depacketizer, Format, Packetizer, Part, Payloads};

/// Size of a payload in bytes: 1200 minus the header, the mid and the GCM tag.
const PAYLOAD_BYTES: usize = 1160;
/// Number of frames in a measurement.
const BATCH: usize = 200;
const ROUNDS: usize = 200;

fn main() {
    let video = CodecConfig::Vp8(vp8::Config::default());
    let audio = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
    println!("ns a frame, min/median/max of {ROUNDS} rounds of {BATCH}");
    for (name, codec, format, config, unit) in [
        ("H.264, 10 KB", Codec::H264, Format::H264, &video, nals(&[0x41, 0x9a], 10_000)),
        ("H.264, 100 KB", Codec::H264, Format::H264, &video, nals(&[0x65, 0x88], 100_000)),
        ("H.265, 10 KB", Codec::H265, Format::H265, &video, nals(&[2, 1, 0x80], 10_000)),
        ("AV1, 10 KB", Codec::Av1, Format::Av1, &video, obu(10_000)),
        ("VP8, 10 KB", Codec::Vp8, Format::Vp8, &video, vec![1; 10_000]),
        ("VP9, 10 KB", Codec::Vp9, Format::Vp9, &video, vec![1; 10_000]),
        ("Opus, 160 B", Codec::Opus, Format::Opus, &audio, vec![0xfc; 160]),
    ] {
        Bench { codec, format, config, unit }.run(name);
    }
}

fn nals(head: &[u8], bytes: usize) -> Vec<u8> {
    let mut out = BytesMut::new();
    nal::put_with_length(&[head, &vec![0x5a; bytes]].concat(), &mut out);
    out.to_vec()
}

fn obu(bytes: usize) -> Vec<u8> {
    let mut out = BytesMut::from(&[0x32][..]);
    media::codec::av1::put_leb128(bytes, &mut out);
    out.extend_from_slice(&vec![0x30; bytes]);
    out.to_vec()
}

struct Bench<'a> {
    codec: Codec,
    format: Format,
    config: &'a CodecConfig,
    unit: Vec<u8>,
}

impl Bench<'_> {
    fn run(&self, name: &str) {
        let packets = self.packets();
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            figures[0].push(self.packetise());
            figures[1].push(self.depacketise(&packets));
            figures[2].push(self.copy());
        }
        let text = figures.map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            format!("{:6.0}/{:6.0}/{:6.0}", rounds[0], rounds[ROUNDS / 2], rounds[ROUNDS - 1])
        });
        println!(
            "  {name:14} {:3} packets   packetise {}   put together {}   copy {}",
            packets.len(),
            text[0],
            text[1],
            text[2]
        );
    }

    fn packets(&self) -> Vec<Bytes> {
        let mut payloads = Payloads::new();
        let mut packetizer = Packetizer::new(self.codec, PAYLOAD_BYTES).unwrap();
        packetizer.packetize(self.config, false, &self.unit, &mut payloads).unwrap();
        payloads.take().collect()
    }

    fn packetise(&self) -> f64 {
        let mut payloads = Payloads::new();
        let mut packetizer = Packetizer::new(self.codec, PAYLOAD_BYTES).unwrap();
        timed(|| {
            packetizer.packetize(self.config, false, black_box(&self.unit), &mut payloads).unwrap();
            payloads.take().for_each(|payload| drop(black_box(payload)));
        })
    }

    fn depacketise(&self, packets: &[Bytes]) -> f64 {
        let mut depacketizer = Depacketizer::new(self.format.clone()).unwrap();
        let mut timestamp = 0u32;
        timed(|| {
            timestamp = timestamp.wrapping_add(3000);
            for (n, payload) in packets.iter().enumerate() {
                let part = Part { timestamp, marker: n + 1 == packets.len(), gap: false, payload };
                depacketizer.handle_part(black_box(&part)).unwrap();
            }
            drop(black_box(depacketizer.poll_frame().unwrap()));
        })
    }

    fn copy(&self) -> f64 {
        timed(|| drop(black_box(Bytes::copy_from_slice(black_box(&self.unit)))))
    }
}

fn timed(mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..BATCH {
        step();
    }
    start.elapsed().as_nanos() as f64 / BATCH as f64
}
