//! The settings of previews, and the sink without a worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use picture::{Error, Format, Shape};

use super::settings::PreviewSettings;
use super::{sink, stream_of};
use crate::config::AppSettings;
use crate::hub::Blobs;
use crate::jobs::{JobDone, JobId, NoPicture, Outcome};
use crate::mail::{Blob, SessionSettings, StreamDetails};
use crate::protocol::sinks::SinkOrder;
use crate::protocol::{Apps, Context, Event, OrderEvent, Reply, Session, registry};
use crate::types::{Now, StreamId, StreamKey};

fn app(given: &[(&str, &str)]) -> AppSettings {
    AppSettings::of(registry::schema(), "live", given).unwrap()
}

/// A sink, driven by hand.
struct Rig {
    session: Box<dyn Session>,
    now: Now,
    began: Instant,
}

impl Rig {
    fn new(given: &[(&str, &str)]) -> Self {
        let began = Instant::now();
        let now = Now { mono: began, wall_ms: 1_000_000 };
        let order = SinkOrder {
            stream: StreamId(1),
            kind: sink::PNG.name,
            key: StreamKey::new("live", "s"),
            settings: Arc::new(app(given)),
            details: StreamDetails::default(),
            recording: None,
        };
        let session = (sink::PNG.begin)(now, &order, Seed::from_number(1));
        Self { session, now, began }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut dyn Session, &Context<'_>) -> T) -> T {
        let (apps, server, blobs) = (Apps::default(), SessionSettings::default(), Blobs::new());
        let ctx = Context { now: self.now, apps: &apps, server: &server, blobs: &blobs, draining: false };
        act(&mut *self.session, &ctx)
    }

    /// Answers a job, and returns the blob that follows and whether the sink has ended.
    fn answer(&mut self, made: Result<Bytes, NoPicture>) -> (Blob, bool) {
        let done = JobDone { id: JobId(0), outcome: Outcome::Picture(made) };
        self.with(|session, ctx| session.handle_reply(ctx, Reply::Job(done)));
        let mut events = self.events();
        let Some(Event::Order(OrderEvent::Blob(blob))) = events.first() else { panic!("{events:?}") };
        let blob = (**blob).clone();
        (blob, matches!(events.pop(), Some(Event::Closed(_))))
    }

    fn events(&mut self) -> Vec<Event> {
        let events = |session: &mut dyn Session, ctx: &Context<'_>| {
            std::iter::from_fn(|| session.poll_event(ctx)).take(10).collect::<Vec<_>>()
        };
        self.with(events).into_iter().filter(|event| !matches!(event, Event::Subscription(..))).collect()
    }

    fn fresh_for(&self, blob: &Blob) -> Duration {
        blob.fresh_until.unwrap() - self.began
    }
}

#[test]
fn what_is_set_is_read() {
    let settings = app(&[
        ("previewQuality", "40"),
        ("previewHeight", "90"),
        ("preview.width", "100"),
        ("createPreviewPeriod", "7000"),
        ("generatePreview", "true"),
        ("previewFormat", "webp"),
        ("preview.onRequest", "false"),
    ]);
    let settings = PreviewSettings::of(&settings);
    let shape = Shape { format: Format::Jpeg, width: 100, height: 90, quality: 40 };
    assert_eq!((settings.shape(Format::Jpeg), settings.period), (shape, Duration::from_secs(7)));
    assert!(settings.makes(Format::Jpeg) && !settings.makes(Format::Png));
    let plain = app(&[]);
    let plain = PreviewSettings::of(&plain);
    assert!(plain.makes(Format::Png) && !plain.makes_by_period(Format::Png));
    let extreme = app(&[
        ("previewQuality", "0"),
        ("previewHeight", "5000"),
        ("createPreviewPeriod", "10"),
        ("previewFormat", "gif"),
        ("generatePreview", "true"),
    ]);
    let extreme = PreviewSettings::of(&extreme);
    let shape = Shape { format: Format::Png, width: 320, height: 1920, quality: 1 };
    assert_eq!((extreme.shape(Format::Png), extreme.period), (shape, Duration::from_secs(1)));
    assert!(extreme.makes_by_period(Format::Png));
    for (key, value) in [("previewQuality", "101"), ("preview.width", "5000"), ("previewHeight", "-1")] {
        let error = AppSettings::of(registry::schema(), "live", &[(key, value)]).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn the_stream_is_that_of_the_name() {
    assert_eq!(stream_of("../previews/s.png", Format::Png), Some("s"));
    assert_eq!(stream_of("../previews/a.b.jpg", Format::Jpeg), Some("a.b"));
    for other in [
        "../previews/s.jpg",
        "../previews/.png",
        "../previews/x/s.png",
        "previews/s.png",
        "s.png",
        "../previews/spng",
    ] {
        assert_eq!(stream_of(other, Format::Png), None, "{other}");
    }
}

#[test]
fn a_picture_on_request_is_one_and_ends_the_sink_once() {
    let mut rig = Rig::new(&[]);
    assert!(rig.events().is_empty());
    let (blob, is_over) = rig.answer(Ok(Bytes::from_static(b"picture")));
    assert_eq!((&*blob.name, &*blob.bytes, is_over), ("../previews/s.png", &b"picture"[..], true));
    assert_eq!(rig.fresh_for(&blob), Duration::from_secs(5));
    assert!(rig.events().is_empty(), "its end is said once");
    rig.with(|session, ctx| session.close(ctx, "again"));
    assert!(rig.events().is_empty());
}

#[test]
fn what_cannot_be_had_is_not_tried_again_at_once() {
    for (reason, seconds) in [
        (NoPicture::Refused(Error::Profile), 30),
        (NoPicture::Died("signal".to_owned()), 60),
        (NoPicture::Unavailable("busy".to_owned()), 5),
    ] {
        let mut rig = Rig::new(&[]);
        rig.events();
        let (blob, _) = rig.answer(Err(reason));
        assert_eq!((blob.bytes.len(), rig.fresh_for(&blob)), (0, Duration::from_secs(seconds)));
    }
    // For periodically made pictures, each crash of the decoding process doubles the pause. A picture resets the pause.
    let mut rig = Rig::new(&[("generatePreview", "true")]);
    rig.events();
    for seconds in [60, 120, 240] {
        let (blob, is_over) = rig.answer(Err(NoPicture::Died("signal".to_owned())));
        assert_eq!((rig.fresh_for(&blob), is_over), (Duration::from_secs(seconds), false));
    }
    rig.answer(Ok(Bytes::from_static(b"picture")));
    let (blob, _) = rig.answer(Err(NoPicture::Died("signal".to_owned())));
    assert_eq!(rig.fresh_for(&blob), Duration::from_secs(60));
}

#[test]
fn a_request_does_not_wait_forever_for_a_key_frame() {
    let mut rig = Rig::new(&[]);
    rig.events();
    let until = rig.with(|session, _| session.timers().unwrap().poll_timeout()).unwrap();
    rig.now.mono = until;
    rig.with(|session, ctx| session.timers().unwrap().handle_timeout(ctx));
    let events = rig.events();
    assert!(matches!(&events[..], [Event::Order(OrderEvent::Blob(_)), Event::Closed(_)]), "{events:?}");
    assert_eq!(rig.with(|session, _| session.timers().unwrap().poll_timeout()), None);
}
