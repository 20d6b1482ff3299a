//! A transcoder as a session: it receives the units of a published track and publishes those of the derived one.
//!
//! 1. Units are held until the helper threads have processed the earlier ones.
//! 2. A job takes the transcoder and the held units to a helper thread.
//! 3. The job returns the transcoder and the units made. If the transcoder does not return, because too many jobs
//!    wait or the job panicked, a new one begins; the lost units are a gap like any other. If a transcoder cannot be
//!    made, the session closes.

use std::collections::VecDeque;
use std::sync::Arc;

use media::{AccessUnit, Track, TrackId, TrackKind, Tracks};
use transcode::{Target, Transcoder};

use super::UNITS;
use crate::hub::{Delivery, Selection};
use crate::jobs::{Compute, Job, JobDone, JobId, Outcome, Work};
use crate::protocol::{
    About, Context, Event, Format, PublicationEvent, Reply, Session, SubscriptionEvent, SubscriptionNews,
    UnitSink,
};
use crate::types::Handle;

/// Maximum number of units that wait for a helper thread: more than a second of audio in any codec.
const HELD_MAX: usize = 64;

/// A unit and the tracks it arrived with.
type Held = (Arc<Tracks>, AccessUnit);

/// The location of the transcoder.
#[derive(Debug)]
enum State {
    /// The transcoder is in this session; `None` if the next job must create one.
    Here(Option<Box<Transcoder>>),
    /// The transcoder is with a job on a helper thread.
    Away,
}

/// The producer of a transcoded track.
#[derive(Debug)]
pub(super) struct Producer {
    from: TrackId,
    target: Target,
    attached: bool,
    state: State,
    held: VecDeque<Held>,
    made: VecDeque<AccessUnit>,
    /// Time of the last published unit.
    last: Option<i64>,
    closing: Option<String>,
}

impl Producer {
    pub(super) fn new(from: &Track, target: Target) -> Self {
        Self {
            from: from.id,
            target,
            attached: false,
            state: State::Here(None),
            held: VecDeque::new(),
            made: VecDeque::new(),
            last: None,
            closing: None,
        }
    }

    /// Makes a job of the held units, unless an earlier job still has the transcoder.
    fn job(&mut self) -> Option<Event> {
        if self.held.is_empty() {
            return None;
        }
        let State::Here(transcoder) = &mut self.state else { return None };
        let (transcoder, from, target) = (transcoder.take(), self.from, self.target);
        self.state = State::Away;
        let held = std::mem::take(&mut self.held);
        let work = Work::Compute(Compute::new(move || transcode(transcoder, from, target, held)));
        Some(Event::Job(Job { id: JobId(0), app: None, work }))
    }

    fn done(&mut self, ctx: &Context<'_>, done: &JobDone) {
        let mut result = None;
        if let Outcome::Computed(computed) = &done.outcome {
            result = computed.take::<Result<Done, transcode::Error>>();
        }
        match result {
            Some(Ok(Done { transcoder, made })) => {
                self.state = State::Here(Some(transcoder));
                // A new transcoder may repeat units that the previous one has made.
                let is_new = |unit: &AccessUnit| self.last.is_none_or(|last| unit.pts > last);
                self.made.extend(made.into_iter().filter(is_new));
                self.last = self.made.back().map(|unit| unit.pts).or(self.last);
            }
            Some(Err(error)) => self.close(ctx, &error.to_string()),
            None => self.state = State::Here(None),
        }
    }
}

/// The result of a transcoding job.
struct Done {
    transcoder: Box<Transcoder>,
    made: Vec<AccessUnit>,
}

/// Transcodes held units, on a helper thread.
fn transcode(
    transcoder: Option<Box<Transcoder>>,
    from: TrackId,
    target: Target,
    held: VecDeque<Held>,
) -> Result<Done, transcode::Error> {
    let mut transcoder = match transcoder {
        Some(transcoder) => transcoder,
        None => Box::new(Transcoder::new(target)?),
    };
    let mut made = Vec::new();
    for (tracks, unit) in held {
        if let Some(track) = tracks.get(from) {
            transcoder.handle_unit(track, &unit);
            made.extend(std::iter::from_fn(|| transcoder.poll_unit()));
        }
    }
    Ok(Done { transcoder, made })
}

impl UnitSink for Producer {
    fn has_room(&self) -> bool {
        self.held.len() < HELD_MAX
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        self.held.push_back((Arc::clone(&unit.entry.tracks), unit.entry.unit.clone()));
    }
}

impl Session for Producer {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Job(done) = &reply {
            self.done(ctx, done);
        } else if let Reply::Subscription(_, SubscriptionNews::Ended(_)) = reply {
            self.close(ctx, "the stream ended");
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.closing.get_or_insert_with(|| reason.to_owned());
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let format = Format::new(&UNITS, 0).select(Selection::only(TrackKind::Audio, self.from));
            return Some(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
        }
        if let Some(unit) = self.made.pop_front() {
            let tracks = Arc::new(Tracks::default());
            return Some(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
        }
        self.job().or_else(|| self.closing.take().map(Event::Closed))
    }

    fn about(&self) -> About {
        About { protocol: "transcoder", is_media: false, is_authenticated: true }
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}
