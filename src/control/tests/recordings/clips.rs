//! Clips of live streams.

use super::*;

#[test]
fn a_clip_is_a_recording_of_its_own_and_its_caller_hears_what_becomes_of_it() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_streams", "1")]);
    rig.publish("s", 0);
    let whole = rig.recording();
    let clip = "/live/rest/v2/broadcasts/s/clip?start=1700000000.5&end=1700000010";
    let asked = rig.send(Method::Post, clip, "");
    let order = rig.recording();
    let range = crate::mail::ClipRange { start_ms: 1_700_000_000_500, end_ms: 1_700_000_010_000 };
    assert_eq!((order.kind, order.clip, whole.clip), ("clip", Some(range), None));
    rig.begun(order.recording, "live/streams/s_1.mp4");
    let (status, body) = rig.answer(asked).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["success"]), (200, &serde_json::json!(true)), "{body}");
    rig.ended(order.recording, "live/streams/s_1.mp4");
    rig.over(order.recording, "the clip is complete");
    rig.finish(finished(100));
    let vods = rig.vods();
    assert_eq!((&vods[0]["vodId"], &vods[0]["streamId"]), (&answer["dataId"], &serde_json::json!("s")));
    // An empty clip fails with that reason and is not retried; the recording continues.
    let asked = rig.send(Method::Post, clip, "");
    let order = rig.recording();
    rig.over(order.recording, "nothing of that time is kept in memory");
    let (_, body) = rig.answer(asked).unwrap();
    assert!(body.contains("\"success\":false") && body.contains("nothing of that time"), "{body}");
    rig.take();
    rig.run_for(Duration::from_secs(60));
    assert!(rig.is_quiet());
}

#[test]
fn clips_that_make_no_sense_or_are_too_many_are_refused() {
    let mut rig = Rig::with(&[], &[]);
    rig.publish("s", 0);
    rig.take();
    let call = |rig: &mut Rig, id: &str, query: &str| {
        let target = format!("/live/rest/v2/broadcasts/{id}/clip?{query}");
        let (status, body) = rig.call(Method::Post, &target, "");
        assert_eq!(status, 200, "{body}");
        body
    };
    for query in [
        "",
        "start=1",
        "start=1&end=x",
        "start=2&end=1",
        "start=1&end=1",
        "start=-1&end=1",
        "start=NaN&end=1",
    ] {
        assert!(call(&mut rig, "s", query).contains("\"success\":false"), "{query}");
    }
    assert!(call(&mut rig, "none", "start=1&end=2").contains("the stream is not live"));
    assert!(rig.is_quiet());
    let orders: Vec<_> = (0..4)
        .map(|_| {
            rig.send(Method::Post, "/live/rest/v2/broadcasts/s/clip?start=1&end=2", "");
            rig.recording()
        })
        .collect();
    assert!(call(&mut rig, "s", "start=1&end=2").contains("too many clips"));
    rig.over(orders[0].recording, "nothing");
    rig.take();
    rig.send(Method::Post, "/live/rest/v2/broadcasts/s/clip?start=1&end=2", "");
    rig.recording();
}
