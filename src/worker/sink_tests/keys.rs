//! Requests for key frames: merged, passed on to the publisher, and repeated.

use super::*;

#[test]
fn requests_for_key_frames_are_merged_and_reach_the_publisher() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0), video(1)]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    let viewers: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    viewers.iter().for_each(|viewer| rig.play(viewer, Handle::ONLY, Selection::DEFAULT));
    let asked = |rig: &Rig| {
        let replies = rig.publisher.1.replies();
        replies.into_iter().filter(|reply| reply.contains("KeyFrameNeeded")).collect::<Vec<_>>()
    };
    assert_eq!(asked(&rig), [""; 0], "there is one in the ring");
    let ask = |track| Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameNeeded(track));
    for _ in 0..5 {
        viewers.iter().for_each(|viewer| rig.say(viewer, ask(None)));
    }
    assert_eq!(asked(&rig).len(), 1);
    // A key frame of another track is a separate request.
    rig.say(&viewers[0], ask(TrackId::nth(TrackKind::Video, 1)));
    assert_eq!(asked(&rig).len(), 1);
    rig.now.mono += Duration::from_millis(499);
    rig.say(&viewers[0], ask(None));
    assert_eq!(asked(&rig).len(), 0);
    rig.now.mono += Duration::from_millis(1);
    rig.say(&viewers[0], ask(None));
    assert_eq!((asked(&rig).len(), rig.worker.turn.meter.stats.key_frames_asked), (1, 3));
    // A sink that is about to begin requests a key frame if the newest key frame is old.
    let soon = Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameSoon(Some(TrackId::VIDEO)));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    rig.now.mono += Duration::from_millis(1999);
    rig.say(&viewers[0], soon);
    assert_eq!(asked(&rig).len(), 0);
    rig.now.mono += Duration::from_millis(1);
    let soon = Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameSoon(None));
    rig.say(&viewers[0], soon);
    assert_eq!(asked(&rig).len(), 1);
    // Selecting a track that has no key frame requests one implicitly.
    rig.now.mono += Duration::from_millis(500);
    let second =
        Selection { video: Pick::Only(TrackId::nth(TrackKind::Video, 1).unwrap()), ..Selection::DEFAULT };
    rig.say(&viewers[0], Event::Subscription(Handle::ONLY, SubscriptionEvent::Select(second)));
    assert_eq!(asked(&rig).len(), 1);
}

#[test]
fn a_request_for_a_key_frame_is_repeated_until_the_key_frame_comes() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0)]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection::DEFAULT);
    let needed = |rig: &Rig| {
        let replies = rig.publisher.1.replies();
        replies.into_iter().filter(|reply| reply.contains("KeyFrameNeeded")).count()
    };
    rig.say(&viewer, Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameNeeded(None)));
    assert_eq!(needed(&rig), 1);
    // The request was lost: frames arrive every 20 ms, none of them a key frame.
    let mut again = Vec::new();
    for frame in 1..=1200 {
        rig.publish(TrackId::VIDEO, false, b"delta", &tracks);
        if needed(&rig) > 0 {
            again.push(frame * 20);
        }
    }
    assert_eq!(again, [1000, 3000, 7000, 15_000, 23_000]);
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    for _ in 0..1000 {
        rig.publish(TrackId::VIDEO, false, b"delta", &tracks);
    }
    assert_eq!(needed(&rig), 0, "it has come");
    // Without viewers the request is dropped.
    rig.say(&viewer, Event::Subscription(Handle::ONLY, SubscriptionEvent::KeyFrameNeeded(None)));
    assert_eq!(needed(&rig), 1);
    rig.say(&viewer, Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
    for _ in 0..100 {
        rig.publish(TrackId::VIDEO, false, b"delta", &tracks);
    }
    assert_eq!(needed(&rig), 0);
}
