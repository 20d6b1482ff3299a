//! Sinks of a ladder, i.e. of several renditions of one programme. They begin on request, if there is more than one
//! rendition.

use super::*;

/// A description of a rendition of `cam`.
fn rung_blob(name: &str) -> Blob {
    let rung = Some(crate::mail::Rung { sink: "ladder", ..crate::mail::Rung::default() });
    let ladder = Some(Box::new(crate::mail::Laddered { main: "cam".into(), rung }));
    Blob { ladder, ..plain_blob(STREAM, name) }
}

#[test]
fn a_ladder_is_begun_by_a_request_if_it_has_more_than_one_rendition() {
    let mut pair = Pair::new();
    let (from, master) = ([192, 0, 2, 1], "/live/streams/cam_adaptive.m3u8");
    assert!(pair.get(master, from).1, "one rendition: nobody waits");
    let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
    let main = crate::mail::MainTrack { key: StreamKey::new("live", "cam"), folder: String::new() };
    for (number, id) in [(8, "cam_low"), (9, "cam_adaptive")] {
        for worker in &mut pair.workers {
            let mail = ToWorker::StreamUp {
                stream: StreamId(number),
                key: StreamKey::new("live", id),
                source: WorkerId(1),
                ingest: Ingest::PULL,
                details: StreamDetails {
                    main: (number == 8).then(|| main.clone()),
                    ..StreamDetails::default()
                },
                settings: std::sync::Arc::clone(&settings),
            };
            worker.handle_mail(pair.now, mail);
        }
        if number == 8 {
            let waits = pair.ask(master, from);
            assert_eq!(pair.answer(waits), (Vec::new(), false));
            assert_eq!(pair.sinks, ["ladder"]);
            pair.workers[1].handle_path(pair.now, waits, PathId::default(), PathEvent::Broken("reset"));
        }
    }
    // When the blob of the first rendition is published, the worker of the second rendition begins
    // its sink, but only once.
    let begun = |pair: &Pair| pair.workers[1].polled.held_sinks();
    assert_eq!(begun(&pair), 0);
    for name in [".ladder/cam/cam/0", ".ladder/cam/cam/1"] {
        pair.publish_blob(rung_blob(name));
        assert_eq!(begun(&pair), 1);
    }
    assert!(pair.get("/live/streams/.ladder/cam/cam/0", from).0.starts_with(b"HTTP/1.1 404 "));
    // The stream of the second rendition has ended. Only one rendition is left, so the requested name is again that of
    // a single stream's playlist.
    for worker in &mut pair.workers {
        let stream = StreamId(8);
        worker.handle_mail(pair.now, ToWorker::StreamDown { stream, end: StreamEnd::Stopped });
    }
    pair.sinks.clear();
    let waits = pair.ask(master, from);
    assert_eq!((pair.answer(waits), pair.sinks.as_slice()), ((Vec::new(), false), &["hls"][..]));
}

#[test]
fn what_is_made_of_several_videos_is_waited_for_where_there_are_several() {
    let mut pair = Pair::new();
    let set = [("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")];
    let settings = std::sync::Arc::new(AppSettings::of(crate::protocol::schema(), "live", &set).unwrap());
    for worker in &mut pair.workers {
        worker.handle_mail(pair.now, ToWorker::App(std::sync::Arc::clone(&settings)));
        let mail = ToWorker::StreamUp {
            stream: StreamId(8),
            key: StreamKey::new("live", "two"),
            source: WorkerId(0),
            ingest: Ingest::PULL,
            details: StreamDetails { videos: 2, ..StreamDetails::default() },
            settings: std::sync::Arc::clone(&settings),
        };
        worker.handle_mail(pair.now, mail);
    }
    let from = [192, 0, 2, 1];
    for (name, of_ladder) in [
        ("ll-hls/{id}/{id}__master_adaptive.m3u8", true),
        ("{id}/{id}_adaptive.mpd", true),
        ("ll-hls/{id}/{id}__master.m3u8", false),
        ("{id}/{id}.mpd", false),
    ] {
        for (id, answered) in [("cam", of_ladder), ("two", false), ("nobody", true)] {
            pair.sinks.clear();
            let path = format!("/live/streams/{}", name.replace("{id}", id));
            let waits = pair.ask(&path, from);
            assert_eq!(pair.answer(waits), (Vec::new(), answered), "{path}");
            if id != "nobody" {
                assert_eq!(pair.sinks.is_empty(), answered, "{path} {:?}", pair.sinks);
            }
            pair.workers[1].handle_path(pair.now, waits, PathId::default(), PathEvent::Broken("reset"));
        }
    }
}
