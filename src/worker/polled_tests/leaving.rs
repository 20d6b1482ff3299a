//! Requests to a worker that admits no new viewers.

use super::*;
use crate::mail::{Laddered, MainTrack};

const THERE: [u8; 4] = [192, 0, 2, 1];
const NEW: [u8; 4] = [192, 0, 2, 2];

impl Pair {
    fn leave(&mut self) {
        self.workers[1].handle_mail(self.now, ToWorker::Leaving(true));
    }

    fn status(&mut self, target: &str, from: [u8; 4]) -> String {
        let (bytes, _) = self.get(target, from);
        String::from_utf8_lossy(&bytes).split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Adds two renditions of `show`, each with one segment.
    fn renditions_of(&mut self, show: &str) {
        let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
        for (number, id) in [(8, "low"), (9, "high")] {
            for worker in &mut self.workers {
                let main = Some(MainTrack { key: StreamKey::new("live", show), folder: String::new() });
                let mail = ToWorker::StreamUp {
                    stream: StreamId(number),
                    key: StreamKey::new("live", id),
                    source: WorkerId(0),
                    ingest: Ingest::PULL,
                    details: StreamDetails { main, ..StreamDetails::default() },
                    settings: std::sync::Arc::clone(&settings),
                };
                worker.handle_mail(self.now, mail);
            }
            let ladder = Some(Box::new(Laddered { main: show.into(), rung: None }));
            let blob = plain_blob(StreamId(number), &format!("{id}1.m4s"));
            self.publish_blob(Blob { ladder, viewers: Some("hls"), ..blob });
        }
    }
}

/// Tested for a main track with a stream of its own, and for one without.
#[test]
fn c_20_viewers_of_renditions_are_served_on_in_each_rendition_and_newcomers_in_none() {
    for show in ["virtual", "cam"] {
        let mut pair = Pair::new();
        pair.renditions_of(show);
        assert_eq!(pair.status("/live/streams/low1.m4s", THERE), "200", "{show}");
        pair.leave();
        for target in ["/live/streams/low1.m4s", "/live/streams/high1.m4s"] {
            assert_eq!(pair.status(target, THERE), "200", "{show} {target}");
            assert_eq!(pair.status(target, NEW), "503", "{show} {target}");
        }
    }
}

#[test]
fn c_20_no_stream_is_begun_for_a_newcomer_and_what_is_a_file_is_served() {
    let mut pair = Pair::new();
    let server = SessionSettings { fetches_any: true, ..SessionSettings::default() };
    pair.workers[1].handle_mail(pair.now, ToWorker::Server(std::sync::Arc::new(server)));
    pair.leave();
    assert_eq!(pair.status("/live/streams/elsewhere.m3u8", NEW), "503");
    assert_eq!((&pair.wanted[..], pair.workers[1].polled.awaited()), (&[][..], 0));
    assert!(pair.get("/live/streams/file.mp4", NEW).1);
}

#[test]
fn c_20_pictures_of_streams_are_for_newcomers_too() {
    let mut pair = Pair::new();
    let set = [("generatePreview", "true")];
    let settings = std::sync::Arc::new(AppSettings::of(crate::protocol::schema(), "live", &set).unwrap());
    pair.workers[1].handle_mail(pair.now, ToWorker::App(settings));
    pair.leave();
    let waits = pair.ask("/live/previews/cam.png", NEW);
    assert_eq!((pair.answer(waits), pair.sinks.len()), ((Vec::new(), false), 1), "it is made");
    assert_eq!(pair.status("/live/streams/cam.m3u8", NEW), "503");
}
