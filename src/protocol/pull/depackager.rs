//! Converts streams of other servers, as FLV tags, MPEG-TS packets or MP4 files, to access units.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flv::file::TagKind;
use media::{AccessUnit, ClockNews, TrackKind, Tracks};

use super::Media;
use crate::mail::Grant;
use crate::protocol::usable::Supply;
use crate::protocol::{flv_mapping, mp4_mapping, ts};

/// The result of converting a piece of the stream.
#[derive(Debug)]
pub(super) enum Output {
    /// A unit for the hub. `ms` is its time if it is video or audio.
    Unit {
        /// The unit.
        unit: AccessUnit,
        /// The tracks of the stream, which are needed to decode the unit.
        tracks: Arc<Tracks>,
        /// Time of the unit on the stream's clock, in milliseconds.
        ms: Option<i64>,
    },
    /// Units that could not be used.
    Dropped {
        /// The number of units.
        units: u64,
        /// True if the dropped units were video or audio.
        media: bool,
    },
    /// A clock fault that was corrected.
    Clock(ClockNews),
    /// A malformed piece.
    Bad,
    /// The stream is not supported, for this reason.
    Unsupported(String),
    /// Audio that is not supported was left out, for this reason.
    LeftOut(String),
}

/// The depackager for the kind of container.
#[derive(Debug)]
pub(super) enum Depackager {
    Tags(Box<flv_mapping::Depackager>),
    Ts(Box<ts::Depackager>),
    Mp4(Box<mp4_mapping::Depackager>),
}

impl Depackager {
    /// Starts a stream whose times continue at the position in `grant`, the permission to publish. `skip` is the
    /// duration to skip at the beginning of a file.
    pub(super) fn new(grant: &Grant, first: Option<&Media>, skip: Duration) -> Self {
        match first {
            Some(Media::Payload(_) | Media::Lost) => Self::Ts(Box::new(ts::Depackager::new(grant))),
            Some(Media::Mp4(_) | Media::Mp4Index { .. }) => {
                Self::Mp4(Box::new(mp4_mapping::Depackager::new(grant, 1).beginning_at(skip)))
            }
            Some(Media::Tag(_)) | None => Self::Tags(Box::new(flv_mapping::Depackager::new(grant))),
        }
    }

    /// Returns what the source has supplied so far: nothing usable, only announcements, audio alone, or frames.
    pub(super) fn supply(&self) -> Supply {
        match self {
            Self::Tags(ingest) => ingest.supply(),
            Self::Ts(ingest) => ingest.supply(),
            Self::Mp4(ingest) => ingest.supply(),
        }
    }

    /// True while the beginning of a file is being skipped.
    pub(super) fn skips(&self) -> bool {
        match self {
            Self::Tags(_) | Self::Ts(_) => false,
            Self::Mp4(ingest) => ingest.skips(),
        }
    }

    /// Returns the fault of the last malformed piece; `None` if there was none.
    pub(super) fn why_bad(&self) -> Option<&'static str> {
        match self {
            Self::Tags(ingest) => Some(ingest.why_bad()).filter(|why| !why.is_empty()),
            Self::Ts(ingest) => ingest.why_bad(),
            Self::Mp4(_) => None,
        }
    }

    pub(super) fn take(&mut self, media: &Media, out: &mut Vec<Output>) {
        match (self, media) {
            (Self::Tags(ingest), Media::Tag(tag)) => {
                let outcome = match tag.kind {
                    TagKind::Video => ingest.video(tag.timestamp, &tag.body),
                    TagKind::Audio => ingest.audio(tag.timestamp, &tag.body),
                    TagKind::Data => ingest.data(tag.timestamp, &tag.body),
                    TagKind::Other(_) => return,
                };
                outcome_of(outcome, tag.kind, ingest.tracks(), out);
            }
            (Self::Ts(ingest), Media::Payload(payload)) => {
                ingest.handle(payload);
                drain(|| ingest.poll_unit(), out);
                dropped(ingest.take_dropped(), out);
            }
            (Self::Ts(ingest), Media::Lost) => ingest.lost(),
            (Self::Mp4(ingest), Media::Mp4(piece)) => {
                let read = ingest.handle(0, piece);
                drain(|| ingest.poll_unit(), out);
                dropped(ingest.take_dropped(), out);
                unreadable(read, out);
            }
            (Self::Mp4(ingest), Media::Mp4Index { index, media_at }) => {
                unreadable(ingest.begin_behind(0, index, *media_at), out);
            }
            // A server sends pieces of one container only. Pieces of another container are ignored.
            (Self::Tags(_), Media::Payload(_) | Media::Lost | Media::Mp4(_) | Media::Mp4Index { .. })
            | (Self::Ts(_), Media::Tag(_) | Media::Mp4(_) | Media::Mp4Index { .. })
            | (Self::Mp4(_), Media::Tag(_) | Media::Payload(_) | Media::Lost) => {}
        }
    }

    /// Sets the arrival time of the following pieces. Pieces of files have no arrival time.
    pub(super) fn arrive(&mut self, now: Instant) {
        match self {
            Self::Tags(ingest) => ingest.arrive(now),
            Self::Ts(ingest) => ingest.arrive(now),
            Self::Mp4(_) => {}
        }
    }

    /// Takes the next clock fault.
    pub(super) fn take_clock_news(&mut self) -> Option<ClockNews> {
        match self {
            Self::Tags(ingest) => ingest.take_clock_news(),
            Self::Ts(ingest) => ingest.take_clock_news(),
            Self::Mp4(ingest) => ingest.take_clock_news(),
        }
    }

    /// Ends the stream: emits the units that were held back until more of the stream would arrive.
    pub(super) fn finish(&mut self, out: &mut Vec<Output>) {
        match self {
            Self::Tags(_) => {}
            Self::Ts(ingest) => {
                ingest.finish();
                drain(|| ingest.poll_unit(), out);
            }
            Self::Mp4(ingest) => {
                ingest.finish();
                drain(|| ingest.poll_unit(), out);
            }
        }
    }
}

fn drain(mut next: impl FnMut() -> Option<(AccessUnit, Arc<Tracks>)>, out: &mut Vec<Output>) {
    while let Some((unit, tracks)) = next() {
        out.push(output(unit, &tracks));
    }
}

fn unreadable(read: Result<(), fmp4::Error>, out: &mut Vec<Output>) {
    if let Err(error) = read {
        out.push(Output::Unsupported(error.to_string()));
    }
}

fn dropped(units: u64, out: &mut Vec<Output>) {
    if units > 0 {
        out.push(Output::Dropped { units, media: true });
    }
}

fn outcome_of(outcome: flv_mapping::Outcome, kind: TagKind, tracks: &Arc<Tracks>, out: &mut Vec<Output>) {
    match outcome {
        flv_mapping::Outcome::Unit(unit) => out.push(output(unit, tracks)),
        flv_mapping::Outcome::Taken => {}
        flv_mapping::Outcome::Dropped => out.push(Output::Dropped { units: 1, media: kind != TagKind::Data }),
        flv_mapping::Outcome::Bad => out.push(Output::Bad),
        flv_mapping::Outcome::Unsupported(what) => out.push(Output::Unsupported(what)),
        flv_mapping::Outcome::LeftOut(what) => out.push(Output::LeftOut(what)),
        flv_mapping::Outcome::Several(several) => {
            several.into_iter().for_each(|one| outcome_of(one, kind, tracks, out));
        }
    }
}

fn output(unit: AccessUnit, tracks: &Arc<Tracks>) -> Output {
    let ms = time_of(&unit, tracks);
    Output::Unit { unit, tracks: Arc::clone(tracks), ms }
}

/// Returns the time of a unit in milliseconds, if it is video or audio.
pub(super) fn time_of(unit: &AccessUnit, tracks: &Tracks) -> Option<i64> {
    let track = tracks.get(unit.track).filter(|track| track.kind() != TrackKind::Data)?;
    Some(track.timescale.to_ms(unit.dts))
}
