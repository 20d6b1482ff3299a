//! Limits on the formats of a stream: viewers have shares, and the server's own subscribers are not limited.

use super::*;

/// Adds a viewer of the network with this number, which selects two tracks that no other viewer selects together.
fn join_inventive(rig: &mut Rig, network: u8, choice: u8) -> bool {
    let only = |kind, number| Pick::Only(TrackId::nth(kind, number).unwrap());
    let (video, audio) = (only(TrackKind::Video, choice / 16), only(TrackKind::Audio, choice % 16));
    let actor = Actor::default();
    let conn = Conn::new(([192, 0, 2, network], 1).into(), Box::new(actor.clone()), rig.now.mono);
    let viewer = (rig.worker.conns.insert(conn).unwrap(), actor);
    rig.play(&viewer, Handle::ONLY, Selection { video, audio, ..Selection::DEFAULT });
    viewer.1.replies().last().unwrap().contains("Verdict(Ok")
}

#[test]
fn m_26_a_viewer_cannot_take_all_formats_of_a_stream() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0), a_law()]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    let accepted = (0..100).filter(|choice| join_inventive(&mut rig, 1, *choice)).count();
    assert_eq!(accepted, 8);
    assert!(join_inventive(&mut rig, 2, 200), "another network has a share of its own");
}

#[test]
fn m_26_sinks_producers_and_plain_viewers_are_served_beside_inventive_viewers() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0), a_law()]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    let accepted = (0..200).filter(|choice| join_inventive(&mut rig, *choice, *choice)).count();
    assert_eq!(accepted, 48);
    start_file_sink(&mut rig);
    rig.publish(TrackId::VIDEO, true, b"next", &tracks);
    rig.do_jobs();
    assert_eq!(rig.written().last().unwrap().1, b"next");
    // The default of each protocol is plain, though protocols have different ones.
    for format in Format::all() {
        let (viewer, name) = (rig.connect(), format.key().name);
        let (key, params, origin) = (StreamKey::new("live", "s"), Vec::new(), String::new());
        let ask = PlayAsk { key, format, params, origin, via: Vec::new(), takes_subtracks: false };
        assert!(format.is_plain(), "{name}");
        // Control decides about some protocols' viewers.
        rig.say(&viewer, Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask)));
        assert!(!viewer.1.replies().iter().any(|reply| reply.contains("Resources")), "{name}");
    }
    // G.711 is transcoded for a viewer that can decode Opus only.
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection { video: Pick::None, ..Selection::DEFAULT });
    assert!(viewer.1.replies().iter().any(|reply| reply.contains("Resources")), "nothing was full");
    let format = Format::find("webrtc", 0).unwrap();
    rig.worker
        .live
        .attach(&mut rig.worker.turn, &mut rig.worker.conns, viewer.0, Handle::ONLY, STREAM, format)
        .unwrap();
    for _ in 0..10 {
        rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
        rig.do_jobs();
    }
    let opus = (STREAM, TrackId::DERIVED);
    assert!(rig.worker.live.producers.contains_key(&opus), "its producer has found a place");
}

#[test]
fn a_derived_track_is_made_again_after_its_producer_has_failed() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [a_law()]));
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, derived_only());
    let producer = |rig: &Rig| rig.worker.live.producers.values().map(|producer| producer.conn).next();
    let first = producer(&rig).unwrap();
    rig.worker.remove(first, "failed", false);
    rig.jobs.clear();
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    assert_eq!(producer(&rig), None, "not at once: the next one may fail too");
    rig.now.mono += Duration::from_secs(10);
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    let second = producer(&rig).unwrap();
    assert_ne!(first, second);
    for _ in 0..10 {
        rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
        rig.do_jobs();
    }
    assert_eq!(rig.worker.live.streams[&STREAM].newest().unwrap().unit.track, TrackId::DERIVED);
}
