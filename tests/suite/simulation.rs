//! Tests the whole server on a virtual clock: publishers, players on other workers, the loss and return of a publisher,
//! pushes, and drains, over connections with delays and resets. A seed determines each run, down to every byte.
//!
//! `MILLSTREAM_SEEDS=1000` runs more seeds.

mod damaged;
mod desired;
mod random;
mod records;
mod rooms;
mod streams;
mod viewers;
mod wall;

use netsim::{MediaSource, Trace, ms, secs};

use crate::support::world::Over;
use crate::support::{SimId, World};

fn seeds(default: u64) -> u64 {
    std::env::var("MILLSTREAM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn source(seed: u64) -> MediaSource {
    MediaSource::new(&crypto::Seed::from_number(seed))
        .gop(30)
        .sizes(3000, 200)
        .reordering(seed.is_multiple_of(2))
}

/// Runs a publisher, three viewers and a push. The publisher is lost and returns, then all clients leave.
fn loss_and_return(seed: u64) -> Trace {
    let mut world = World::new(seed, 3, &[]);
    let created = world.request("POST /live/rest/v2/broadcasts/create", r#"{"streamId":"s"}"#);
    world.run_until("the record", secs(2), |world| world.answer(created).is_some());
    let push = r#"{"rtmpUrl":"rtmp://127.0.0.1:1935/copies/s"}"#;
    let added = world.request("POST /live/rest/v2/broadcasts/s/rtmp-endpoint", push);
    world.run_until("the endpoint", secs(2), |world| world.answer(added).is_some());
    assert!(world.answer(added).unwrap().contains(r#""success":true"#));

    let publisher = world.publish("live", "s", source(seed));
    world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
    // Immediately after Publish.Start, players on all workers find the stream.
    let viewers: Vec<_> = (0..3).map(|_| world.play("live", "s")).collect();
    world.run_until("the viewers", secs(2), |world| viewers.iter().all(|&viewer| world.is_ready(viewer)));
    let copy = {
        let mut copy = None;
        world.run_until("the copy", secs(8), |world| {
            let id = *copy.get_or_insert_with(|| world.play("copies", "s"));
            if world.rejection(id).is_some() {
                copy = None;
            }
            world.is_ready(id)
        });
        copy.unwrap()
    };
    let more = ms(1500 + world.random().below(2000));
    world.run_for(more);
    let late = world.play("live", "s");
    world.run_for(ms(500));

    // A second publisher is refused while the first is live.
    let second = world.publish("live", "s", source(seed + 1));
    world.run_until("the refusal", secs(2), |world| world.rejection(second).is_some());

    // The first publisher is cut off, and returns within the grace period. The seed chooses its new worker.
    let rest = world.source_of(publisher);
    world.reset(publisher);
    let outage = ms(world.random().below(3000));
    world.run_for(outage);
    let returned = world.publish("live", "s", rest);
    world.run_until("the second grant", secs(2), |world| world.is_ready(returned));
    world.run_for(secs(3));
    for viewer in viewers.iter().chain([&late, &copy]) {
        assert!(!world.is_closed(*viewer), "{}: a viewer was dropped", world.trace());
        let (verifier, falls) = world.seen(*viewer);
        let (video, audio) = (verifier.video(), verifier.audio());
        assert!(video.received > 60 && audio.received > 90, "{}: {verifier:?}", world.trace());
        let order =
            (verifier.corrupt(), video.reordered, video.duplicated, audio.reordered, audio.duplicated, falls);
        assert_eq!(order, (0, 0, 0, 0, 0, 0), "{}", world.trace());
        // Units in flight when the connection was cut are lost, and so are frames up to the next key frame.
        assert!(video.lost <= 40 && audio.lost <= 80, "{}: {verifier:?}", world.trace());
    }
    goodbye(&mut world, returned, &viewers);
    world.trace()
}

fn goodbye(world: &mut World, publisher: SimId, viewers: &[SimId]) {
    world.close(publisher);
    world.run_until("the viewers' end", secs(2), |world| {
        viewers.iter().all(|&viewer| world.is_closed(viewer))
    });
    let status = world.request("GET /live/rest/v2/broadcasts/s", "");
    world.run_until("the status", secs(2), |world| world.answer(status).is_some());
    let answer = world.answer(status).unwrap();
    assert!(answer.contains(r#""status":"finished""#) && answer.contains(r#""zombi":false"#), "{answer}");
    world.run_until("all connections to end", secs(20), |world| world.connections() == 0);
    assert_eq!(world.retained_bytes(), 0, "{}: rings outlive their streams", world.trace());
}

#[test]
fn a_publisher_lost_and_back_keeps_its_viewers_over_many_seeds() {
    let seeds = seeds(60);
    for seed in 0..seeds {
        loss_and_return(seed);
    }
    println!("{seeds} seeds");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [1, 2, 3] {
        let trace = loss_and_return(seed);
        assert!(trace.events() > 1000, "{trace}");
        assert_eq!(trace, loss_and_return(seed));
    }
}

#[test]
fn m_22_a_publisher_gone_dark_is_noticed_and_its_viewers_are_told() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2, &[]);
        let publisher = world.publish("live", "s", source(seed));
        world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        let viewer = world.play("live", "s");
        world.run_for(secs(2));
        world.go_dark(publisher);
        // The limits are 10 s of silence and 5 s of grace.
        world.run_until("the end", secs(20), |world| world.is_closed(viewer));
        assert!(world.rejection(viewer).is_none());
        // A publisher that has stopped sending is replaced immediately by a new one.
        let publisher = world.publish("live", "s", source(seed));
        world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        world.run_for(secs(1));
        world.go_dark(publisher);
        world.run_for(ms(4500));
        let next = world.publish("live", "s", source(seed + 1));
        world.run_until("the new publisher", secs(2), |world| world.is_ready(next));
    }
}

#[test]
fn a_publisher_that_does_not_come_back_ends_its_stream_after_the_grace() {
    let mut world = World::new(4, 2, &[("publisherGraceMs", "2000")]);
    let publisher = world.publish("live", "s", source(4));
    world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
    let viewer = world.play("live", "s");
    world.run_for(secs(1));
    world.reset(publisher);
    world.run_for(ms(1500));
    assert!(!world.is_closed(viewer), "in grace viewers stay");
    world.run_until("the end", secs(2), |world| world.is_closed(viewer));
    let offline = world.play("live", "s");
    world.run_until("the refusal", secs(2), |world| world.rejection(offline).is_some());
    assert_eq!(world.rejection(offline), Some("NetStream.Play.StreamNotFound"));
}

#[test]
fn a_slow_viewer_gets_the_end_of_its_frame_and_then_a_clean_goodbye() {
    for seed in 0..20 {
        let mut world = World::new(seed, 2, &[]);
        let publisher = world.publish("live", "s", source(seed));
        world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        // The stream has 1 Mb/s, and the viewer's path 400 kb/s with small buffers, so a frame is always partly sent.
        let viewer = world.play_slowly("live", "s", 400_000, 3000);
        world.run_for(secs(4));
        world.close(publisher);
        world.run_until("the end", secs(10), |world| world.is_closed(viewer));
        let (verifier, _) = world.seen(viewer);
        assert_eq!(verifier.corrupt(), 0, "{}: a frame was cut", world.trace());
        assert!(world.said_goodbye(viewer), "{}: the goodbye fell into a frame", world.trace());
    }
}

/// Returns the numbers of the video frames that a viewer has received.
fn frames(world: &World, viewer: SimId) -> Vec<u64> {
    let video = world.got(viewer).iter().filter(|unit| unit.is_video);
    video.map(|unit| unit.seen.unwrap().counter).collect()
}

/// Starts a publisher, then a viewer over SRT when the last key frame is six seconds old.
fn six_seconds_late(seed: u64) -> (World, SimId, SimId) {
    let mut world = World::new(seed, 2, &[]);
    let publisher = world.publish("live", "s", source(seed).gop(300));
    world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
    world.run_for(secs(6));
    let viewer = world.watch_over(Over::Srt, "live", "s");
    (world, publisher, viewer)
}

/// Checks that the GOP with which a viewer starts is not sent in a single burst. A path with twice the stream's rate
/// would lose most of the burst.
#[test]
fn a_viewer_over_srt_on_a_slow_line_gets_all_that_it_begins_with() {
    for seed in 0..20 {
        let (mut world, publisher, viewer) = six_seconds_late(seed);
        world.slow_down(viewer, 2_000_000, 0);
        world.run_for(secs(8));
        let got = frames(&world, viewer);
        let gaps = got.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        let sent = world.sent(publisher).iter().filter(|unit| unit.seen.is_video).count();
        assert!(got.len() + 30 > sent && gaps == 0, "{seed}: {} of {sent} frames, {gaps} gaps", got.len());
    }
}

#[test]
fn what_a_viewer_over_srt_is_still_to_get_when_its_stream_ends_goes_at_once() {
    for seed in 0..20 {
        let (mut world, publisher, viewer) = six_seconds_late(seed);
        world.run_until("a frame", secs(2), |world| !world.got(viewer).is_empty());
        world.run_for(ms(100));
        let has = frames(&world, viewer).len();
        world.close(publisher);
        world.run_until("the end", secs(2), |world| world.is_closed(viewer));
        let sent = world.sent(publisher).iter().filter(|unit| unit.seen.is_video).count();
        let got = frames(&world, viewer).len();
        assert!(has < sent / 2 && got + 1 >= sent, "{seed}: {has}, then {got} of {sent} frames");
    }
}

#[test]
fn c_07_a_drain_tells_everyone_and_ends() {
    for seed in 0..10 {
        let mut world = World::new(seed, 3, &[]);
        let publisher = world.publish("live", "s", source(seed));
        world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        let viewer = world.play("live", "s");
        world.run_for(secs(1));
        world.drain();
        world.run_until("the exit", secs(10), |world| world.has_exited());
        // The server's last packets are still in transit.
        world.run_for(ms(100));
        assert!(world.is_closed(viewer) && world.is_closed(publisher), "{}", world.trace());
        assert_eq!(world.connections(), 0);
    }
}
