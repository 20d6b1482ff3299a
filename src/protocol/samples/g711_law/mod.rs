//! A derived track: G.711 A-law as μ-law (ITU-T G.711 tables 3 and 4), made on a helper thread.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use media::codec::g711::{Config, Law};
use media::{AccessUnit, CodecConfig, Track, TrackId, TrackKind, Tracks};
use std::sync::Arc;

use crate::config::AppSettings;
use crate::hub::{Delivery, Selection};
use crate::jobs::{Compute, Job, JobDone, JobId, Outcome, Work};
use crate::protocol::derived::Derivation;
use crate::protocol::{
    About, Context, Event, Format, FormatKind, PathEvent, PathId, Reply, Session, UnitSink,
};
use crate::types::Handle;

/// Units that wait for the helper thread; a few tenths of a second of audio.
const HELD_MAX: usize = 32;

/// The row of the registry.
pub(in crate::protocol) static DERIVATION: Derivation =
    Derivation { name: "g711-law", offer, begin: |_, from, _| Box::new(Transcoder::new(from.id)) };

/// Units as they are.
static FORMAT: FormatKind = FormatKind {
    name: "units",
    counted_as: None,
    is_enabled: |_| true,
    package: |_| None,
    is_given_up_by_close: false,
};

fn offer(from: &Track, _settings: &AppSettings) -> Option<Track> {
    let CodecConfig::G711(Config { law: Law::A, channels }) = from.config else { return None };
    let config = CodecConfig::G711(Config { law: Law::Mu, channels });
    Some(Track { config, ..from.clone() })
}

#[derive(Debug)]
struct Transcoder {
    from: TrackId,
    attached: bool,
    busy: bool,
    held: VecDeque<AccessUnit>,
    made: VecDeque<AccessUnit>,
    closing: Option<String>,
}

impl Transcoder {
    fn new(from: TrackId) -> Self {
        let (held, made) = (VecDeque::new(), VecDeque::new());
        Self { from, attached: false, busy: false, held, made, closing: None }
    }

    /// Hands what is held to a helper thread, one job at a time, so that units stay in order.
    fn job(&mut self) -> Option<Event> {
        if self.busy || self.held.is_empty() {
            return None;
        }
        self.busy = true;
        let units = std::mem::take(&mut self.held);
        let work = Work::Compute(Compute::new(move || units.into_iter().map(transcode).collect::<Vec<_>>()));
        Some(Event::Job(Job { id: JobId(0), work }))
    }

    fn done(&mut self, done: &JobDone) {
        self.busy = false;
        if let Outcome::Computed(computed) = &done.outcome
            && let Some(units) = computed.take::<Vec<AccessUnit>>()
        {
            self.made.extend(units);
        }
    }
}

/// The same audio with the same times.
fn transcode(unit: AccessUnit) -> AccessUnit {
    let payload: Vec<u8> = unit.payload.iter().map(|sample| mu_law(a_law(*sample))).collect();
    AccessUnit { payload: Bytes::from(payload), ..unit }
}

/// A sample of 13 bits out of A-law.
pub(crate) fn a_law(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (segment, low) = ((byte >> 4) & 7, i16::from(byte & 0x0f));
    let magnitude = match segment {
        0 => (low << 4) + 8,
        _ => ((low << 4) + 0x108) << (segment - 1),
    };
    if byte & 0x80 != 0 { magnitude } else { -magnitude }
}

/// μ-law of a sample.
pub(crate) fn mu_law(sample: i16) -> u8 {
    let sign = if sample < 0 { 0x80 } else { 0 };
    let magnitude = sample.unsigned_abs().min(32_635) + 0x84;
    let segment = 8 - u16::try_from(magnitude.leading_zeros()).unwrap_or(8);
    let low = (magnitude >> (segment + 3)) & 0x0f;
    !(sign | u8::try_from((segment << 4) | low).unwrap_or(0x7f))
}

impl UnitSink for Transcoder {
    fn has_room(&self) -> bool {
        self.held.len() < HELD_MAX
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        self.held.push_back(unit.entry.unit.clone());
    }

    fn end_units(&mut self, _ctx: &Context<'_>) {
        // The job follows when the worker asks for events.
    }
}

impl Session for Transcoder {
    fn handle_path(&mut self, _ctx: &Context<'_>, _path: PathId, _event: PathEvent<'_>) {
        // It has none.
    }

    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Job(done) => self.done(&done),
            Reply::SubscriptionEnded { .. } => self.close(ctx, "the stream ended"),
            Reply::Subscribe { .. }
            | Reply::TracksKnown { .. }
            | Reply::Publish { .. }
            | Reply::PublicationEnded { .. }
            | Reply::KeyFrameNeeded { .. }
            | Reply::Wanted { .. }
            | Reply::StreamBegun(_)
            | Reply::Rest(_)
            | Reply::Spawned { .. }
            | Reply::Message { .. }
            | Reply::SessionEnded(_)
            | Reply::Held(_)
            | Reply::Carries
            | Reply::Uncarried => {}
        }
    }

    fn handle_timeout(&mut self, _ctx: &Context<'_>) {
        // It waits for nothing but jobs.
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.closing.get_or_insert_with(|| reason.to_owned());
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let format = Format::new(&FORMAT, 0).select(Selection::only(TrackKind::Audio, self.from));
            return Some(Event::Attach { subscription: Handle::ONLY, format });
        }
        if let Some(unit) = self.made.pop_front() {
            let tracks = Arc::new(Tracks::default());
            return Some(Event::Unit { publication: Handle::ONLY, unit, tracks });
        }
        self.job().or_else(|| self.closing.take().map(Event::Closed))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn about(&self) -> About {
        About { protocol: "g711-law", is_media: false, is_authenticated: true }
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_stays_silence_and_loud_stays_loud() {
        // ITU-T G.711: the codes of positive and negative zero, and of full scale.
        assert_eq!((mu_law(a_law(0xd5)), mu_law(a_law(0x55))), (0xfe, 0x7e));
        assert_eq!((mu_law(a_law(0xaa)), mu_law(a_law(0x2a))), (0x80, 0x00));
    }
}
