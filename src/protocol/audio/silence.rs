//! Silence as a session: it publishes silent audio in step with a video track, whose units it receives only for their
//! times.

use std::collections::VecDeque;
use std::sync::Arc;

use media::{AccessUnit, Timescale, Track, TrackId, TrackKind, Tracks};
use transcode::SAMPLE_RATE;

use super::UNITS;
use crate::hub::{Delivery, Selection};
use crate::protocol::{
    About, Context, Event, Format, PublicationEvent, Reply, Session, SubscriptionEvent, SubscriptionNews,
    UnitSink,
};
use crate::types::Handle;

/// Milliseconds of video without audio after which silence begins. Before that, the publisher's audio may still begin.
const WAIT_MS: i64 = 1000;

/// The producer of silence.
#[derive(Debug)]
pub(super) struct Producer {
    from: TrackId,
    attached: bool,
    /// Time of the first unit in milliseconds.
    first_ms: Option<i64>,
    silence: transcode::Silence,
    made: VecDeque<AccessUnit>,
    closing: Option<String>,
}

impl Producer {
    pub(super) fn new(from: &Track) -> Self {
        Self {
            from: from.id,
            attached: false,
            first_ms: None,
            silence: transcode::Silence::default(),
            made: VecDeque::new(),
            closing: None,
        }
    }
}

impl UnitSink for Producer {
    fn has_room(&self) -> bool {
        true
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        let entry = unit.entry;
        let first = *self.first_ms.get_or_insert(entry.dts_ms);
        let Some(track) = entry.tracks.get(self.from) else { return };
        if entry.dts_ms.saturating_sub(first) >= WAIT_MS {
            self.silence.advance(track.timescale.convert(entry.unit.dts, Timescale::new(SAMPLE_RATE)));
            self.made.extend(std::iter::from_fn(|| self.silence.poll_unit()));
        }
    }
}

impl Session for Producer {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Subscription(_, SubscriptionNews::Ended(_)) = reply {
            self.close(ctx, "the stream ended");
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.closing.get_or_insert_with(|| reason.to_owned());
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let format = Format::new(&UNITS, 0).select(Selection::only(TrackKind::Video, self.from));
            return Some(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
        }
        if let Some(unit) = self.made.pop_front() {
            let tracks = Arc::new(Tracks::default());
            return Some(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
        }
        self.closing.take().map(Event::Closed)
    }

    fn about(&self) -> About {
        About { protocol: "silence", is_media: false, is_authenticated: true }
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}
