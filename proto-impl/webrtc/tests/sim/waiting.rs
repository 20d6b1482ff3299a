//! Simulations of packets that wait for a viewer, because the test takes no datagrams from the
//! server.

use media::codec::{Codec, CodecConfig, opus};
use netsim::secs;
use rtp::SequenceNumber;
use rtp::history::LoggedUnit;
use sdp::Direction;
use webrtc::Track;
use wire::Datagrams;

use crate::harness::{AUDIO, both_connected, session};

/// Maximum number of waiting runs of packets. Consecutive units form a single run.
const RUNS: usize = 64;

#[test]
fn what_waits_for_a_viewer_is_bounded_and_the_oldest_is_given_up() {
    let mut pair = session(11, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    let mut track = Track::new(Codec::Opus, 1100).unwrap();
    let config = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
    let units: Vec<LoggedUnit> =
        (0..400).map(|n| track.push(now, &config, false, n * 960, &[7; 100]).unwrap()).collect();
    // Consecutive units form a single run, however many there are.
    for unit in &units[..200] {
        assert!(pair.b.peer.send(AUDIO, unit, now));
    }
    let before = numbers(&mut pair.b, &track, now);
    assert_eq!((before.len(), pair.b.peer.stats().skipped), (200, 0));
    // With every second unit left out, each unit is a separate run.
    for unit in units[200..].iter().step_by(2) {
        assert!(pair.b.peer.send(AUDIO, unit, now));
    }
    let left = numbers(&mut pair.b, &track, now);
    assert_eq!((left.len(), pair.b.peer.stats().skipped), (RUNS, 100 - RUNS as u64));
    // The dropped packets leave one gap in the sequence numbers, and there are no other gaps.
    assert_eq!(left[0], before[199].plus(2));
    assert!(left.windows(2).all(|pair| pair[1] == pair[0].plus(1)));
}

/// Returns the sequence numbers of the sent packets.
fn numbers(end: &mut crate::harness::End, track: &Track, now: std::time::Instant) -> Vec<SequenceNumber> {
    let mut out = Datagrams::new();
    let mut numbers = Vec::new();
    while end.peer.poll_transmit(now, |_| Some(track.log()), &mut out).is_some() {
        for n in 0..out.len() {
            let datagram = out.get(n);
            // RTP packets without RTCP (RFC 5761 §4).
            if datagram[0] >= 128 && !(192..224).contains(&datagram[1]) {
                numbers.push(SequenceNumber(u16::from_be_bytes([datagram[2], datagram[3]])));
            }
        }
        out.clear();
    }
    numbers
}
