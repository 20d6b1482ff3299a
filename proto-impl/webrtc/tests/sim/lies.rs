//! Simulations of a viewer that sends false feedback: both the data sent to it and the memory used for it
//! remain limited.

use std::time::Instant;

use bytes::Bytes;
use netsim::{Clock, Input, Pair, Peer as Machine, ms, secs};
use sdp::{Description, Direction, MediaKind};
use webrtc::MediaPreference;

use crate::harness::{CLIENT, End, Manner, SERVER, Studio, both_connected, server_config, session};
use crate::liar::{Liar, Lie};

/// Time for which media is sent.
const LENGTH: std::time::Duration = secs(10);
/// Rate of a path with ample capacity, in bits per second.
const WIDE: u64 = 200_000_000;
const SEED: u64 = 3;

struct Outcome {
    /// Bytes that the server sent in [`LENGTH`].
    bytes: u64,
    /// Maximum memory that the viewer's session held, in bytes.
    held: usize,
    key_frames_wanted: u64,
}

impl Machine for Liar {
    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram(datagram) => self.handle_datagram(now, &mut datagram.to_vec()),
            Input::Timeout => self.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, _: Instant) -> Option<Bytes> {
        self.poll_transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}

fn watch<A: Machine>(mut pair: Pair<A, End>) -> Outcome {
    pair = pair.links(|link| link.latency(ms(20)).rate(WIDE).queue_bytes(4 << 20));
    let start = pair.clock.now();
    let before = pair.b_to_a.bottleneck_bytes().offered;
    pair.b.studio = Some(Studio::of_rendition(start, LENGTH, SEED, Manner::SendsAll));
    pair.run_for(LENGTH).unwrap();
    assert_eq!(pair.b.closed, None);
    Outcome {
        bytes: pair.b_to_a.bottleneck_bytes().offered - before,
        held: pair.b.held_most,
        key_frames_wanted: pair.b.key_frames_wanted,
    }
}

fn honest() -> Outcome {
    let mut pair = session(SEED, Direction::RecvOnly);
    pair.run_until(secs(15), both_connected).unwrap();
    watch(pair)
}

fn lied(lie: Lie) -> Outcome {
    let clock = Clock::new();
    let now = clock.now();
    let mut server = End::new(&clock, server_config(), SERVER, CLIENT, SEED);
    let mut liar = Liar::new(now, lie, CLIENT, crypto::Seed::from_number(SEED));
    let offer = Description::read(liar.offer(now).as_bytes()).unwrap();
    let answer = server.peer.handle_offer(now, &offer, |_, media| {
        let codec = if media.kind == MediaKind::Audio {
            media::codec::Codec::Opus
        } else {
            media::codec::Codec::H264
        };
        let formats = webrtc::offered_formats(codec, 96);
        Some(MediaPreference { direction: Direction::SendOnly, formats, msid: None })
    });
    liar.answered(now, &answer.unwrap().write(), SERVER);
    let mut pair = Pair::new(SEED, clock, liar, server).links(|link| link.latency(ms(20)));
    pair.run_until(secs(15), |liar, server| liar.is_connected() && server.connected).unwrap();
    watch(pair)
}

/// Limits for the bytes sent, in percent of those sent to an honest viewer.
const fn bounds(lie: Lie) -> (u64, u64) {
    match lie {
        // Retransmissions may add a quarter to the media, plus the initial budgets: 64 KiB for each of two
        // sections.
        Lie::NacksAll => (100, 130),
        // A path that loses half of the packets needs twice the data.
        Lie::HalfLost => (100, 200),
        // Audio continues even if the viewer claims that its path carries nothing.
        _ => (3, 101),
    }
}

/// a viewer with false feedback is sent at most what an honest one and its retransmissions require, and
/// at least a trickle; nothing grows without limit.
#[test]
fn x_13_a_viewer_whose_feedback_lies_is_sent_no_more_than_an_honest_one_and_its_repairs() {
    let honest = honest();
    println!("honest: {} bytes, {} held", honest.bytes, honest.held);
    for lie in Lie::ALL {
        let Outcome { bytes, held, key_frames_wanted } = lied(lie);
        let share = bytes * 100 / honest.bytes;
        println!(
            "{lie:?}: {share} % of an honest viewer's bytes, {held} held, {key_frames_wanted} key frames"
        );
        let (least, most) = bounds(lie);
        assert!((least..=most).contains(&share), "{lie:?}: {share} %");
        assert!(held < 80 << 10, "{lie:?}: {held} bytes are held");
        assert!(key_frames_wanted <= 2 * LENGTH.as_secs() + 1, "{lie:?}: {key_frames_wanted}");
    }
}
