//! Pulls: streams that this server fetches from another one. A session is one attempt; its supervisor is control.
//!
//! 1. The connection is there: the [`Client`] of the protocol asks for the stream ([`PullState::Preparing`]).
//! 2. The first picture or sound: the session publishes, and reads no further before the verdict.
//! 3. The grant says where the stream stands; tags become units from there on.
//! 4. No media for 4 s, an end, or a fault of the server: [`PullState::Lost`] and the end. The stream waits in control.
//!
//! A protocol is a [`Client`] more. The server is not trusted: what it sends is bounded as a publisher's is, and one that
//! sends faster than its own timestamps allow is read no faster than they do.

mod http_flv;
mod rtmp;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use flv::file::{Tag, TagKind};
use wire::SendQueue;

use crate::mail::{
    self, Departure, Grant, Now, PullOrder, PullSource, PullState, Refusal, StreamEnd, StreamKey,
};
use crate::protocol::tags::{Ingest, Outcome};
use crate::protocol::{CONNECT_TIMEOUT, Context, Event, PublishAsk, Session};
use http_flv::HttpFlv;
use rtmp::Rtmp;

/// From the connection to the first picture or sound.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two frames of a stream that flows (robustness.md §5).
const STALL_TIMEOUT: Duration = Duration::from_secs(4);
/// What came before the first picture or sound: metadata.
const HELD_TAGS_MAX: usize = 16;
/// Larger metadata is not held.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// Bodies without sense, in a row.
const BAD_MAX: u32 = 100;
/// How far a server may be ahead of real time: what it has kept for new viewers comes at once.
const AHEAD_MAX: Duration = Duration::from_secs(10);
/// A clock that runs fast by less than a fiftieth is never held back.
const DRIFT: u32 = 50;
/// Characters of a server's words that are passed on.
const REASON_CHARS_MAX: usize = 200;

/// What a [`Client`] has.
#[derive(Debug, PartialEq)]
enum Said {
    /// A tag of the stream.
    Tag(Tag),
    /// The end, with the reason.
    Ended(String),
}

/// The protocol of a pull.
trait Client: Debug + Send {
    /// The connection is there.
    fn begin(&mut self, now: Instant);
    /// Bytes of the server.
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]);
    /// The connection is gone. What came before is still polled.
    fn handle_end(&mut self, now: Instant);
    /// A deadline may have passed.
    fn handle_timeout(&mut self, now: Instant);
    /// The next thing.
    fn poll(&mut self) -> Option<Said>;
    /// Moves what is to be sent.
    fn poll_transmit(&mut self, out: &mut SendQueue);
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Say goodbye.
    fn close(&mut self, now: Instant);
    /// For logs and counters.
    fn name(&self) -> &'static str;
}

/// Where an attempt stands.
#[derive(Debug)]
enum Stage {
    Connecting {
        until: Instant,
    },
    /// The stream is asked for; no picture or sound yet.
    Preparing {
        until: Instant,
    },
    /// Control is asked whether it may publish.
    Asked,
    /// The stream flows.
    Live {
        ingest: Box<Ingest>,
        stall: Instant,
        pace: Pace,
    },
    Over,
}

/// One attempt of a pull.
#[derive(Debug)]
pub(crate) struct PullSession {
    key: StreamKey,
    client: Box<dyn Client>,
    stage: Stage,
    held: VecDeque<Tag>,
    bad: u32,
    events: VecDeque<Event>,
}

impl PullSession {
    pub(crate) fn new(now: Now, order: &PullOrder, seed: Seed) -> Self {
        let client: Box<dyn Client> = match &order.source {
            PullSource::Rtmp { app, tc_url, name } => Box::new(Rtmp::new(app, tc_url, name, seed)),
            PullSource::HttpFlv { authority, target } => Box::new(HttpFlv::new(authority, target)),
        };
        Self {
            key: order.key.clone(),
            client,
            stage: Stage::Connecting { until: now.mono + CONNECT_TIMEOUT },
            held: VecDeque::new(),
            bad: 0,
            events: VecDeque::new(),
        }
    }

    /// Takes what the client has, until there is an event or it must wait.
    fn drain_client(&mut self, now: Instant) {
        while self.events.is_empty() && self.wants_tags(now) {
            match self.client.poll() {
                Some(Said::Tag(tag)) => self.take(now, tag),
                Some(Said::Ended(reason)) => self.end(&reason),
                None => return,
            }
        }
    }

    fn wants_tags(&self, now: Instant) -> bool {
        match &self.stage {
            Stage::Preparing { .. } => true,
            Stage::Live { pace, .. } => pace.held_until.is_none_or(|until| until <= now),
            Stage::Connecting { .. } | Stage::Asked | Stage::Over => false,
        }
    }

    fn take(&mut self, now: Instant, tag: Tag) {
        match &mut self.stage {
            Stage::Preparing { .. } => self.hold(tag),
            Stage::Live { .. } => self.ingest(now, &tag),
            Stage::Connecting { .. } | Stage::Asked | Stage::Over => {}
        }
    }

    /// Keeps what comes before the grant; the first picture or sound asks for it.
    fn hold(&mut self, tag: Tag) {
        let is_media = matches!(tag.kind, TagKind::Audio | TagKind::Video);
        if matches!(tag.kind, TagKind::Other(_)) || (!is_media && tag.body.len() > HELD_BYTES_MAX) {
            return;
        }
        if self.held.len() >= HELD_TAGS_MAX {
            self.held.pop_front();
        }
        self.held.push_back(tag);
        if is_media {
            self.stage = Stage::Asked;
            self.events.push_back(Event::Publish(PublishAsk {
                key: self.key.clone(),
                ingest: mail::Ingest::Pull,
                user_agent: String::new(),
                params: Vec::new(),
                via: Vec::new(),
            }));
        }
    }

    fn ingest(&mut self, now: Instant, tag: &Tag) {
        let Stage::Live { ingest, stall, pace } = &mut self.stage else { return };
        let outcome = match tag.kind {
            TagKind::Video => ingest.video(tag.timestamp, &tag.body),
            TagKind::Audio => ingest.audio(tag.timestamp, &tag.body),
            TagKind::Data => ingest.data(tag.timestamp, &tag.body),
            TagKind::Other(_) => Outcome::Taken,
        };
        let is_media = tag.kind != TagKind::Data;
        if is_media && matches!(outcome, Outcome::Unit(_) | Outcome::Dropped) {
            *stall = now + STALL_TIMEOUT;
        }
        match outcome {
            Outcome::Unit(unit) => {
                self.bad = 0;
                if is_media && let Some(until) = pace.note(now, unit.dts) {
                    *stall = until + STALL_TIMEOUT;
                }
                let tracks = Arc::clone(ingest.tracks());
                self.events.push_back(Event::Unit { unit, tracks });
            }
            Outcome::Taken => {}
            Outcome::Dropped => self.events.push_back(Event::UnitsDropped(1)),
            Outcome::Bad => {
                self.events.push_back(Event::UnitsDropped(1));
                self.bad = self.bad.saturating_add(1);
                if self.bad > BAD_MAX {
                    self.end("the server sends nonsense");
                }
            }
            Outcome::Unsupported(what) => self.end(&what),
        }
    }

    /// The first reason counts.
    fn end(&mut self, reason: &str) {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.held = VecDeque::new();
        let state = match stage {
            Stage::Over => return,
            Stage::Live { .. } => PullState::Lost(reason.clone()),
            Stage::Connecting { .. } | Stage::Preparing { .. } | Stage::Asked => {
                PullState::Failed(reason.clone())
            }
        };
        // Before the news, so that control knows where the stream stands when it thinks of the next attempt.
        self.events.push_back(Event::Unpublished(Departure::Lost));
        self.events.push_back(Event::Pull(state));
        self.events.push_back(Event::Closed(reason));
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Connecting { until } | Stage::Preparing { until } => Some(*until),
            Stage::Live { stall, pace, .. } => {
                Some(pace.held_until.map_or(*stall, |until| until.min(*stall)))
            }
            Stage::Asked | Stage::Over => None,
        }
    }
}

impl Session for PullSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        self.client.handle_bytes(ctx.now.mono, bytes);
    }

    fn handle_connected(&mut self, ctx: &Context<'_>) {
        if matches!(self.stage, Stage::Connecting { .. }) {
            self.stage = Stage::Preparing { until: ctx.now.mono + PREPARE_TIMEOUT };
            self.client.begin(ctx.now.mono);
            self.events.push_back(Event::Pull(PullState::Preparing));
        }
    }

    fn handle_hangup(&mut self, ctx: &Context<'_>, error: Option<&str>) {
        if matches!(self.stage, Stage::Connecting { .. }) {
            self.end(error.unwrap_or("the server closed the connection"));
        } else {
            self.client.handle_end(ctx.now.mono);
        }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let now = ctx.now.mono;
        match &mut self.stage {
            Stage::Connecting { until } if *until <= now => self.end("connect timed out"),
            Stage::Preparing { until } if *until <= now => self.end("no media came"),
            Stage::Live { stall, .. } if *stall <= now => self.end("frozen: no media for 4 s"),
            Stage::Live { pace, .. } if pace.held_until.is_some_and(|until| until <= now) => {
                pace.held_until = None;
            }
            Stage::Connecting { .. }
            | Stage::Preparing { .. }
            | Stage::Asked
            | Stage::Live { .. }
            | Stage::Over => {}
        }
        self.client.handle_timeout(now);
    }

    fn wants_bytes(&self) -> bool {
        match &self.stage {
            Stage::Connecting { .. } | Stage::Preparing { .. } => true,
            Stage::Live { pace, .. } => pace.held_until.is_none(),
            Stage::Asked | Stage::Over => false,
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        self.drain_client(ctx.now.mono);
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.client.poll_transmit(out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if matches!(self.stage, Stage::Over) {
            return None;
        }
        [self.deadline(), self.client.poll_timeout()].into_iter().flatten().min()
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        if !matches!(self.stage, Stage::Asked) {
            return;
        }
        match verdict {
            Ok(grant) => {
                let now = ctx.now.mono;
                let ingest = Box::new(Ingest::new(&grant));
                self.stage = Stage::Live { ingest, stall: now + STALL_TIMEOUT, pace: Pace::default() };
                for tag in std::mem::take(&mut self.held) {
                    self.ingest(now, &tag);
                }
            }
            Err(refusal) => self.end(&format!("refused here: {refusal:?}")),
        }
    }

    fn end_publish(&mut self, ctx: &Context<'_>, _end: StreamEnd) {
        self.close(ctx, "the stream was ended");
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.client.close(ctx.now.mono);
        self.end(reason);
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    fn protocol(&self) -> &'static str {
        self.client.name()
    }
}

/// Keeps a file that is sent as fast as it can be from going through the hub faster than it is to be seen.
#[derive(Debug, Default)]
struct Pace {
    /// A moment and the media time that belonged to it, in milliseconds.
    base: Option<(Instant, i64)>,
    /// Nothing is taken before.
    held_until: Option<Instant>,
}

impl Pace {
    /// A unit of this time goes out. Gives the moment until which nothing more is taken.
    fn note(&mut self, now: Instant, dts_ms: i64) -> Option<Instant> {
        let (since, from) = *self.base.get_or_insert((now, dts_ms));
        let elapsed = now.saturating_duration_since(since);
        let allowed = elapsed + elapsed / DRIFT;
        let media = Duration::from_millis(u64::try_from(dts_ms.saturating_sub(from)).unwrap_or(0));
        let ahead = media.saturating_sub(allowed);
        if ahead.is_zero() {
            self.base = Some((now, dts_ms));
        }
        self.held_until = now.checked_add(ahead.saturating_sub(AHEAD_MAX)).filter(|until| *until > now);
        self.held_until
    }
}

#[cfg(test)]
mod tests;
