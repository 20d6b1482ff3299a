//! Simulations with lost, delayed and duplicated datagrams.

use netsim::{ms, secs};
use sdp::Direction;

use crate::harness::{AUDIO, End, Studio, VIDEO, both_connected, seeds, session};

/// Checks all patterns of losses among the first datagrams of the handshake, on either side.
#[test]
fn d_11_any_of_the_first_eight_datagrams_may_be_lost() {
    for pattern in 0..256u64 {
        for client in [true, false] {
            let name = if client { "client" } else { "server" };
            let mut pair = session(pattern, Direction::SendOnly);
            let swallow = move |is_stun: bool, n: u64| !is_stun && n < 8 && pattern >> n & 1 == 1;
            let end = if client { &mut pair.a } else { &mut pair.b };
            end.swallow = Some(Box::new(swallow));
            // If all eight datagrams of one side are lost, there may be too little time for the handshake.
            let over = |a: &End, b: &End| pattern == 255 && a.closed.is_some() && b.closed.is_some();
            let took = pair.run_until(secs(15), |a, b| both_connected(a, b) || over(a, b));
            assert!(took.is_ok_and(|took| took <= secs(11)), "pattern {pattern:08b} of the {name}: {took:?}");
            assert!(pair.a.held_most.max(pair.b.held_most) < 80 << 10);
        }
    }
}

/// Checks that a viewer receives the last picture before a pause, although no later packet reveals its loss.
#[test]
fn the_last_picture_before_a_pause_is_repaired() {
    for seed in seeds(20) {
        for lost in [ms(5), ms(45), ms(90)] {
            let mut pair = session(seed, Direction::RecvOnly).links(|link| link.latency(ms(20)));
            pair.run_until(secs(15), both_connected).unwrap();
            pair.b.studio = Some(Studio::new(pair.clock.now(), secs(3), seed));
            pair.run_for(secs(3) - lost).unwrap();
            pair = pair.links(|link| link.loss(1.0));
            pair.run_for(lost).unwrap();
            pair = pair.links(|link| link.loss(0.0));
            pair.run_for(ms(900)).unwrap();
            let (made, video) = (pair.b.studio.as_ref().unwrap().made[1], pair.a.verifier.video());
            assert_eq!(video.received, made, "seed {seed}, {lost:?} lost");
            let resent = pair.b.peer.stats().resent[1].1.resent;
            assert!(lost > ms(5) || resent == 0, "{resent} packets sent again that had arrived");
            let before = pair.b.sent;
            pair.run_for(secs(5)).unwrap();
            assert!(pair.b.sent - before < 40, "seed {seed}: {} datagrams in a pause", pair.b.sent - before);
        }
    }
}

/// Checks that any of the first six connectivity checks may be lost. Seven consecutive losses would fail a pair (RFC
/// 8489 §6.2.1).
#[test]
fn any_of_the_first_six_checks_may_be_lost() {
    for pattern in 0..64u64 {
        for client in [true, false] {
            let mut pair = session(pattern, Direction::SendOnly);
            let swallow = move |is_stun: bool, n: u64| is_stun && n < 6 && pattern >> n & 1 == 1;
            let end = if client { &mut pair.a } else { &mut pair.b };
            end.swallow = Some(Box::new(swallow));
            let took = pair.run_until(secs(15), both_connected);
            assert!(took.is_ok(), "pattern {pattern:06b}, {client}: {took:?}");
        }
    }
}

/// Checks 10 % loss in each direction: all sessions connect, and nothing grows without limit.
#[test]
fn with_a_tenth_lost_everybody_connects() {
    let mut slowest = ms(0);
    for seed in seeds(200) {
        let mut pair = session(seed, Direction::SendOnly).links(|link| link.loss(0.1).jitter(ms(5)));
        let took =
            pair.run_until(secs(15), both_connected).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        slowest = slowest.max(took);
        assert!(pair.a.held_most.max(pair.b.held_most) < 80 << 10, "seed {seed}");
        let now = pair.clock.now();
        pair.a.close(now);
        pair.run_for(secs(40)).unwrap();
        assert!(pair.a.closed.is_some() && pair.b.closed.is_some(), "seed {seed}");
        assert!(pair.b.peer.held_bytes() < 4096, "seed {seed}: {}", pair.b.peer.held_bytes());
    }
    println!("slowest {slowest:?}");
}

/// Checks retransmissions over ten seconds, with 10 % loss and a round trip of 60 ms.
#[test]
fn what_is_lost_is_repaired() {
    let (mut made, mut missing) = (0, 0);
    for seed in seeds(10) {
        let mut pair = session(seed, Direction::SendOnly).links(|link| link.latency(ms(30)));
        pair.run_until(secs(15), both_connected).unwrap();
        pair = pair.links(|link| link.loss(0.1));
        pair.a.studio = Some(Studio::new(pair.clock.now(), secs(10), seed));
        pair.run_for(secs(12)).unwrap();
        let studio = pair.a.studio.as_ref().unwrap();
        let (video, audio) = (pair.b.verifier.video(), pair.b.verifier.audio());
        assert_eq!((video.reordered, audio.reordered, pair.b.verifier.corrupt()), (0, 0, 0), "seed {seed}");
        assert_eq!((video.duplicated, audio.duplicated), (0, 0), "seed {seed}");
        made += studio.made[0] + studio.made[1];
        missing += studio.made[0] + studio.made[1] - video.received - audio.received;
    }
    println!("{missing} of {made} frames missing");
    // The target for packets is one lost in a thousand; a frame has five packets.
    assert!(missing * 200 <= made, "{missing} of {made}");
}

/// Checks 2 % loss with round trips of 500 ms and 700 ms: the server learns the round trip from the
/// publisher's answers, and waits for retransmissions of video. The publisher keeps packets for a second,
/// which allows only one retransmission of each packet. Audio is not held for that long.
#[test]
fn a_far_publisher_is_repaired() {
    for (latency, missing_max) in [(150, [3, 3]), (250, [45, 10]), (350, [45, 10])] {
        for seed in seeds(5) {
            let mut pair = session(seed, Direction::SendOnly).links(|link| link.latency(ms(latency)));
            pair.run_until(secs(15), both_connected).unwrap();
            pair = pair.links(|link| link.loss(0.02));
            pair.a.studio = Some(Studio::new(pair.clock.now(), secs(22), seed));
            pair.run_for(secs(28)).unwrap();
            let made = pair.a.studio.as_ref().unwrap().made;
            let (video, audio) = (pair.b.verifier.video(), pair.b.verifier.audio());
            let missing = [made[0] - audio.received, made[1] - video.received];
            println!("{latency} ms each way, seed {seed}: {missing:?} of {made:?} frames missing");
            let measured = pair.b.peer.stats().round_trip.unwrap();
            assert!(measured.abs_diff(ms(2 * latency)) < ms(20), "{measured:?}");
            let fits = missing.iter().zip(missing_max).all(|(missing, most)| *missing <= most);
            assert!(fits, "{latency}, seed {seed}: {missing:?}");
            // Delay compared with the first frame.
            let mut sound = pair.b.came.iter().filter(|frame| frame.section == AUDIO);
            let first = sound.next().unwrap();
            let late = sound.map(|frame| {
                let sampled = ms(u64::from(frame.timestamp.wrapping_sub(first.timestamp) / 48));
                (frame.at - first.at).saturating_sub(sampled)
            });
            let late = late.max().unwrap();
            println!("audio is {late:?} late at most");
            // The receiver holds audio for at most half a second; the remaining delay is the time
            // that audio waits at the sender.
            assert!(late <= ms(600), "{latency}, seed {seed}: {late:?}");
        }
    }
}

/// Checks that losses are also repaired for a viewer, over a path with jitter, reordered and duplicated
/// packets.
#[test]
fn a_viewer_is_repaired_too() {
    for seed in seeds(5) {
        let mut pair = session(seed, Direction::RecvOnly)
            .links(|link| link.latency(ms(30)).jitter(ms(15)).reorder(0.05).duplicate(0.02));
        pair.run_until(secs(15), both_connected).unwrap();
        pair = pair.links(|link| link.loss(0.05));
        pair.b.studio = Some(Studio::new(pair.clock.now(), secs(10), seed));
        pair.run_for(secs(12)).unwrap();
        let made = pair.b.studio.as_ref().unwrap().made;
        let (video, audio) = (pair.a.verifier.video(), pair.a.verifier.audio());
        assert_eq!((video.reordered, video.duplicated, pair.a.verifier.corrupt()), (0, 0, 0), "seed {seed}");
        let missing = made[0] + made[1] - video.received - audio.received;
        assert!(missing * 100 <= made[0] + made[1], "seed {seed}: {missing} of {made:?}");
    }
}

/// Checks that packets of a viewer's source no longer carry the mid once the peer has reported about the
/// source. RTX packets keep it, because Firefox would otherwise drop them.
#[test]
fn repairs_have_the_name_of_their_section() {
    let mut pair = session(3, Direction::RecvOnly);
    pair.run_until(secs(15), both_connected).unwrap();
    pair = pair.links(|link| link.loss(0.05));
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(10), 3));
    pair.b.wire = Some(Vec::new());
    pair.run_for(secs(12)).unwrap();
    let section = pair.b.peer.sections().iter().find(|section| section.id == VIDEO).unwrap();
    let source = section.local_source.unwrap();
    let count = |ssrc: u32, named: bool| {
        let packets = pair.b.wire.iter().flatten().filter(|(_, datagram)| datagram[0] >> 6 == 2);
        let headers = packets.filter_map(|(_, datagram)| Some(rtp::Packet::read(datagram).ok()?.header));
        let of_source = headers.filter(|header| header.ssrc.value() == ssrc);
        of_source.filter(|header| section.extensions.read(header.extension).mid.is_some() == named).count()
    };
    assert!(count(source.ssrc, true) > 0 && count(source.ssrc, false) > 100);
    let repair = source.rtx.unwrap();
    assert!(count(repair, true) > 10 && count(repair, false) == 0, "{}", count(repair, false));
}

/// Checks 33 % loss in each direction, where retransmissions may take as much capacity as the stream.
#[test]
fn where_a_third_is_lost_most_is_repaired() {
    let (mut made, mut came) = (0, 0);
    for seed in seeds(2) {
        let mut pair = session(seed, Direction::RecvOnly);
        pair.run_until(secs(15), both_connected).unwrap();
        pair = pair.links(|link| link.loss(0.35));
        pair.b.studio = Some(Studio::new(pair.clock.now(), secs(20), seed));
        pair.run_for(secs(22)).unwrap();
        assert!((250..450).contains(&pair.b.peer.loss()), "{}", pair.b.peer.loss());
        made += pair.b.studio.as_ref().unwrap().made[1];
        came += pair.a.verifier.video().received;
    }
    println!("{came} of {made} frames");
    assert!(came * 10 >= made * 7, "{came} of {made}");
}

/// Checks the estimates of the path's capacity and loss, with feedback and without.
#[test]
fn what_the_path_carries_is_estimated() {
    let mut pair = session(1, Direction::RecvOnly).links(|link| link.rate(20_000_000));
    pair.run_until(secs(15), both_connected).unwrap();
    // 1.6 Mb/s; the first key frame has shown that the path has more capacity.
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(30), 1));
    pair.run_for(secs(5)).unwrap();
    let now = pair.clock.now();
    let estimate = pair.b.peer.estimate(now).unwrap();
    assert!((1_500_000..3_500_000).contains(&estimate), "{estimate}");
    assert_eq!((pair.b.peer.loss(), pair.b.peer.is_congested(now)), (0, false));
    // A probe determines whether the path carries more.
    assert!(pair.b.peer.probe(now, 5_000_000) && !pair.b.peer.probe(now, 5_000_000));
    pair.run_for(secs(1)).unwrap();
    let estimate = pair.b.peer.estimate(pair.clock.now()).unwrap();
    assert!((3_000_000..6_000_000).contains(&estimate), "{estimate}");
    assert_eq!(pair.a.verifier.video().duplicated, 0);
    // The path now carries less than half of the stream's rate.
    pair = pair.links(|link| link.rate(600_000));
    pair.run_for(secs(2)).unwrap();
    let estimate = pair.b.peer.estimate(pair.clock.now()).unwrap();
    assert!((200_000..900_000).contains(&estimate), "{estimate}");
    // The viewer sends no media, so it has no estimate and cannot probe.
    assert!(pair.a.peer.estimate(pair.clock.now()).is_none());
    let now = pair.clock.now();
    assert!(!pair.a.peer.probe(now, 1_000_000));
}

/// Checks an outage of three seconds, after which video resumes with the first key frame.
#[test]
fn after_a_blackout_video_resumes() {
    let mut pair = session(1, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    pair = pair.links(|link| link.blackout(now + secs(2), now + secs(5)));
    pair.a.studio = Some(Studio::new(now, secs(10), 1));
    pair.run_for(secs(12)).unwrap();
    assert!(pair.b.pictures_lost >= 1);
    let back = pair.b.came.iter().find(|frame| frame.at >= now + secs(5) && frame.key_frame);
    let late = back.map(|frame| frame.at - (now + secs(5)));
    assert!(late.is_some_and(|late| late <= secs(1) + ms(600)), "{late:?}");
}

/// Checks that a key frame is requested after an outage if no key frame is due soon.
#[test]
fn after_a_blackout_a_key_frame_is_asked_for() {
    let mut pair = session(1, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    pair = pair.links(|link| link.blackout(now + secs(2), now + secs(5)));
    pair.a.studio = Some(Studio::with_gop(now, secs(10), 1, 3000));
    pair.run_until(secs(5) + ms(700), |a, _| a.key_frames_wanted > 0).unwrap();
}

/// Checks that the first frames for a new viewer are spread over time together with the following stream, and
/// that the queue of a slow path does not grow beyond the usual.
#[test]
fn a_burst_of_frames_is_spread() {
    let mut pair = session(1, Direction::RecvOnly).links(|link| link.rate(8_000_000));
    pair.run_until(secs(5), both_connected).unwrap();
    let now = pair.clock.now();
    // A second of frames at once, because the source's clock began a second ago.
    pair.b.studio = Some(Studio::new(now.checked_sub(secs(1)).unwrap(), secs(6), 1));
    pair.run_for(secs(7)).unwrap();
    let made = pair.b.studio.as_ref().unwrap().made;
    assert_eq!([pair.a.verifier.audio().received, pair.a.verifier.video().received], made);
    assert_eq!(
        (
            pair.a.peer.stats().received.iter().map(|(_, _, of)| of.nacked).sum::<u64>(),
            pair.b.peer.stats().skipped
        ),
        (0, 0)
    );
}
