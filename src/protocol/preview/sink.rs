//! The sink that makes pictures of a stream's key frames, one job at a time: a newer key frame replaces one that
//! still waits for its job.
//!
//! A failure is stored like a picture, as an empty blob. If no decoder accepts a key frame, or the decoding process
//! crashes or hangs on it, requests for the picture start no new attempt until the blob expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::{Track, TrackKind};
use picture::{Error, Format as FileFormat, Request, Shape};

use super::settings::PreviewSettings;
use super::{NAME, ROOT, stream_of};
use crate::hub::{AsPublished, Delivery, Entry, Fit, Pick, Selection};
use crate::jobs::{Job, JobDone, JobId, KEY_FRAME_BYTES_MAX, NoPicture, PictureWork, Work};
use crate::mail::{Blob, Obsolete, Packed, Progress};
use crate::protocol::sinks::{Params, SinkKind, SinkOrder};
use crate::protocol::{
    About, Context, Event, Format, FormatKind, OrderEvent, Reply, Session, SubscriptionEvent,
    SubscriptionNews, Timers, UnitSink,
};
use crate::types::{Handle, Now, StreamId, StreamKey};

/// Maximum time from a request to a key frame.
const KEY_FRAME_WAIT: Duration = Duration::from_secs(10);
/// Pause after a key frame that no decoder accepts.
const REFUSED: Duration = Duration::from_secs(30);
/// Pause after a key frame on which the decoding process has crashed or hung.
const DIED: Duration = Duration::from_secs(60);
/// Maximum number of times that the pause [`DIED`] is doubled, for a stream with a picture per period.
const DOUBLINGS_MAX: u32 = 6;
/// Minimum time for which a periodically made picture is served, because key frames may be that far apart.
const BETWEEN_KEY_FRAMES: Duration = Duration::from_secs(60);

/// The kind of sink that makes PNG.
pub(super) static PNG: SinkKind = SinkKind {
    name: "preview-png",
    is_enabled: |app| PreviewSettings::of(app).makes(FileFormat::Png),
    stream_of: |_, name| stream_of(name, FileFormat::Png),
    begins_with_stream: |app, _| PreviewSettings::of(app).makes_by_period(FileFormat::Png),
    begin: |now, order, _| Box::new(PreviewSink::new(now, order, FileFormat::Png)),
    ..KIND
};

/// The kind of sink that makes JPEG.
pub(super) static JPEG: SinkKind = SinkKind {
    name: "preview-jpg",
    is_enabled: |app| PreviewSettings::of(app).makes(FileFormat::Jpeg),
    stream_of: |_, name| stream_of(name, FileFormat::Jpeg),
    begins_with_stream: |app, _| PreviewSettings::of(app).makes_by_period(FileFormat::Jpeg),
    begin: |now, order, _| Box::new(PreviewSink::new(now, order, FileFormat::Jpeg)),
    ..KIND
};

/// The common part of the kinds that make PNG and JPEG.
const KIND: SinkKind = SinkKind {
    name: NAME,
    is_enabled: |_| false,
    stream_of: |_, _| None,
    root: Some(&ROOT),
    file_of: |_, _| None,
    kept_at: |_, _, _| None,
    forgets: |_, _, _| None,
    begins_with_stream: |_, _| false,
    is_outdated: |_, _| false,
    part_of: |_, _| None,
    ladder: None,
    is_glance: true,
    viewers: |_| NAME,
    params: Params::NONE,
    begin: |now, order, _| Box::new(PreviewSink::new(now, order, FileFormat::Jpeg)),
};

/// Format of units as published: the default video, or the audio of streams that have only audio.
static FORMAT: FormatKind = FormatKind {
    name: NAME,
    counted_as: None,
    is_enabled: |_| true,
    selection: Selection::DEFAULT,
    package: |_| Some(Box::new(AsPublished(fit))),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// Every track fits, because no track is transcoded only for a picture. A video that can be decoded is preferred.
fn fit(track: &Track) -> Fit {
    let is_video = track.kind() == TrackKind::Video;
    if is_video && !picture::can_decode(&track.config) { Fit::Rarely } else { Fit::Well }
}

/// The pictures that a sink makes.
#[derive(Debug)]
struct Plan {
    /// Name of the sink's kind.
    maker: &'static str,
    name: Arc<str>,
    shape: Shape,
    period: Duration,
    /// True if the sink continues after the first picture.
    is_by_period: bool,
}

#[derive(Debug)]
struct PreviewSink {
    stream: StreamId,
    key: StreamKey,
    plan: Plan,
    /// The version of the last blob. The first one is taken from the wall clock, so that versions differ from those of
    /// an earlier stream of the same name.
    version: u64,
    attached: bool,
    /// The newest key frame, until a job takes it.
    waiting: Option<Request>,
    is_job_under_way: bool,
    /// Time before which no key frame is taken.
    next: Instant,
    /// The time until which the first key frame must arrive.
    until: Instant,
    /// Number of consecutive key frames on which the decoding process has crashed or hung.
    deaths: u32,
    /// True if the reason for missing pictures was logged.
    is_reason_told: bool,
    blob: Option<Box<Blob>>,
    closing: Option<String>,
    is_over: bool,
}

impl PreviewSink {
    fn new(now: Now, order: &SinkOrder, format: FileFormat) -> Self {
        let settings = PreviewSettings::of(&order.settings);
        Self {
            stream: order.stream,
            key: order.key.clone(),
            plan: Plan {
                maker: order.kind,
                name: ROOT.blob(&format!("{}.{}", order.key.id, format.ending())).into(),
                shape: settings.shape(format),
                period: settings.period,
                is_by_period: settings.makes_by_period(format),
            },
            version: now.wall_ms << 16,
            attached: false,
            waiting: None,
            is_job_under_way: false,
            next: now.mono,
            until: now.mono + KEY_FRAME_WAIT,
            deaths: 0,
            is_reason_told: false,
            blob: None,
            closing: None,
            is_over: false,
        }
    }

    /// True if the sink makes no more pictures.
    const fn is_ending(&self) -> bool {
        self.is_over || self.closing.is_some()
    }

    /// True if a key frame would be used.
    fn wants(&self, now: Now) -> bool {
        let is_settled = !self.plan.is_by_period && self.is_job_under_way;
        !self.is_ending() && !is_settled && now.mono >= self.next
    }

    fn take(&mut self, now: Now, entry: &Entry) {
        let Some(track) = entry.tracks.get(entry.unit.track) else { return };
        if !picture::can_decode(&track.config) {
            return self.settle(now, Err(NoPicture::Refused(Error::Codec)));
        }
        if entry.unit.payload.len() > KEY_FRAME_BYTES_MAX {
            return self.settle(now, Err(NoPicture::Refused(Error::Message)));
        }
        let (config, payload) = (track.config.clone(), entry.unit.payload.clone());
        self.waiting = Some(Request { config, payload, shape: self.plan.shape });
        self.next = now.mono + self.plan.period;
    }

    /// Publishes a picture. If none could be made, publishes an empty blob, which prevents further attempts for a
    /// while.
    fn settle(&mut self, now: Now, made: Result<Bytes, NoPicture>) {
        let (bytes, fresh) = match made {
            Ok(bytes) => {
                self.deaths = 0;
                self.is_reason_told = false;
                let fresh = if self.plan.is_by_period {
                    self.plan.period.max(BETWEEN_KEY_FRAMES)
                } else {
                    self.plan.period
                };
                (bytes, fresh)
            }
            Err(reason) => {
                let pause = self.pause_after(&reason);
                if !std::mem::replace(&mut self.is_reason_told, true) {
                    tracing::info!(key = %self.key, %reason, "stream has no preview");
                }
                self.next = now.mono + pause.max(self.plan.period);
                (Bytes::new(), pause)
            }
        };
        self.version = self.version.wrapping_add(1);
        self.blob = Some(Box::new(Blob {
            stream: self.stream,
            app: Arc::clone(&self.key.app),
            name: Arc::clone(&self.plan.name),
            version: self.version,
            content_type: self.plan.shape.format.media_type(),
            viewers: None,
            progress: Progress::ENDED,
            is_needed: false,
            maker: self.plan.maker,
            obsolete: Obsolete::default(),
            calendar: None,
            fresh_until: Some(now.mono + fresh),
            ladder: None,
            bytes,
            packed: Packed::default(),
        }));
        if !self.plan.is_by_period {
            self.closing.get_or_insert_with(|| "the picture is made".to_owned());
        }
    }

    fn pause_after(&mut self, reason: &NoPicture) -> Duration {
        match reason {
            NoPicture::Refused(_) => REFUSED,
            NoPicture::Died(_) => {
                let doublings = self.deaths.min(DOUBLINGS_MAX);
                self.deaths = self.deaths.saturating_add(1);
                DIED.saturating_mul(1 << doublings)
            }
            NoPicture::Unavailable(_) => self.plan.period,
        }
    }
}

impl UnitSink for PreviewSink {
    fn has_room(&self) -> bool {
        true
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        if !self.wants(ctx.now) {
            return;
        }
        let entry = unit.entry;
        match entry.kind {
            Some(TrackKind::Video) if entry.unit.key_frame => self.take(ctx.now, entry),
            Some(TrackKind::Audio) if unit.chosen.of_kind(TrackKind::Video).next().is_none() => {
                let none = NoPicture::Unavailable("it has no video".to_owned());
                self.settle(ctx.now, Err(none));
            }
            Some(TrackKind::Video | TrackKind::Audio | TrackKind::Data) | None => {}
        }
    }
}

impl Session for PreviewSink {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Job(JobDone { outcome, .. }) => {
                self.is_job_under_way = false;
                self.settle(ctx.now, outcome.picture());
            }
            Reply::Subscription(_, SubscriptionNews::Ended(_)) => self.close(ctx, "the stream ended"),
            Reply::Subscription(_, SubscriptionNews::Verdict(Err(_))) => self.close(ctx, "no stream"),
            Reply::Subscription(..)
            | Reply::Publication(..)
            | Reply::Request(_)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        if self.is_over {
            return;
        }
        self.closing.get_or_insert_with(|| reason.to_owned());
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let select = Selection { data: Pick::None, ..Selection::DEFAULT };
            let format = Format::new(&FORMAT, 0).select(select);
            return Some(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
        }
        if let Some(blob) = self.blob.take() {
            return Some(Event::Order(OrderEvent::Blob(blob)));
        }
        if let Some(reason) = self.closing.take() {
            self.is_over = true;
            return Some(Event::Closed(reason));
        }
        if self.is_over {
            return None;
        }
        let request = self.waiting.take_if(|_| !self.is_job_under_way)?;
        self.is_job_under_way = true;
        let work = Work::Picture(Box::new(PictureWork(request)));
        Some(Event::Job(Job { id: JobId(0), app: None, work }))
    }

    fn about(&self) -> About {
        About { protocol: NAME, is_media: false, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}

impl Timers for PreviewSink {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if self.poll_timeout().is_some_and(|until| until <= ctx.now.mono) {
            self.settle(ctx.now, Err(NoPicture::Unavailable("no key frame has come".to_owned())));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let is_awaited = !self.plan.is_by_period && !self.is_job_under_way && self.waiting.is_none();
        (is_awaited && !self.is_ending()).then_some(self.until)
    }
}
