//! Converts segments to access units: MPEG-TS, or fragmented MP4 with the audio beside the video or in files of
//! its own.

use std::sync::Arc;

use ::hls::{Rendition, SegmentKind};
use bytes::Bytes;
use media::{AccessUnit, ClockNews, Tracks};

use crate::mail::Grant;
use crate::protocol::usable::Supply;
use crate::protocol::{mp4_mapping, ts};

/// The kind of the segments.
#[derive(Debug)]
enum Kind {
    /// No segment has arrived yet.
    Unknown,
    Ts(Box<ts::Depackager>),
    Mp4(Box<mp4_mapping::Depackager>),
}

/// The access units of fetched segments.
#[derive(Debug)]
pub(super) struct Units {
    grant: Grant,
    has_audio_beside: bool,
    kind: Kind,
    /// The last initialization section of each rendition, to restart after a loss.
    indexes: [Bytes; 2],
}

/// Returns the number of the depackager's input for a rendition.
const fn input_of(rendition: Rendition) -> usize {
    match rendition {
        Rendition::Main => 0,
        Rendition::Audio => 1,
    }
}

impl Units {
    /// Makes units that continue the stream at the position that the permission to publish (`grant`) states.
    pub(super) fn new(grant: &Grant, has_audio_beside: bool) -> Self {
        let indexes = [Bytes::new(), Bytes::new()];
        Self { grant: grant.clone(), has_audio_beside, kind: Kind::Unknown, indexes }
    }

    /// Begins a segment.
    ///
    /// # Errors
    /// The reason it cannot be carried.
    pub(super) fn begin(
        &mut self,
        rendition: Rendition,
        kind: SegmentKind,
        discontinuity: bool,
    ) -> Result<(), String> {
        match (&mut self.kind, kind) {
            (_, SegmentKind::Ts) if self.has_audio_beside => {
                return Err("audio beside MPEG-TS is not carried".to_owned());
            }
            (Kind::Ts(depackager), SegmentKind::Ts) if discontinuity => depackager.lost(),
            (Kind::Mp4(depackager), SegmentKind::Fmp4) => {
                if discontinuity && rendition == Rendition::Main {
                    // The clock may change here, so units before the discontinuity do not wait for units after it.
                    depackager.finish();
                }
                if depackager.begin_segment(input_of(rendition)).is_err() {
                    self.begin_again(rendition)?;
                }
            }
            (Kind::Ts(_), SegmentKind::Ts) => {}
            (Kind::Unknown, SegmentKind::Ts) => {
                self.kind = Kind::Ts(Box::new(ts::Depackager::new(&self.grant)));
            }
            (Kind::Unknown, SegmentKind::Fmp4) => {
                let inputs = if self.has_audio_beside { 2 } else { 1 };
                self.kind = Kind::Mp4(Box::new(mp4_mapping::Depackager::new(&self.grant, inputs)));
            }
            (Kind::Ts(_), SegmentKind::Fmp4) | (Kind::Mp4(_), SegmentKind::Ts) => {
                return Err("the container of the segments has changed".to_owned());
            }
        }
        Ok(())
    }

    /// Takes the initialization section of the segments that follow.
    ///
    /// # Errors
    /// The reason it cannot be read.
    pub(super) fn index(&mut self, rendition: Rendition, bytes: &Bytes) -> Result<(), String> {
        if let Some(index) = self.indexes.get_mut(input_of(rendition)) {
            *index = bytes.clone();
        }
        self.begin_again(rendition)
    }

    /// Takes a piece of a segment.
    ///
    /// # Errors
    /// The reason it cannot be read.
    pub(super) fn media(&mut self, rendition: Rendition, bytes: &Bytes) -> Result<(), String> {
        match &mut self.kind {
            Kind::Unknown => Ok(()),
            Kind::Ts(depackager) => {
                depackager.handle(bytes);
                Ok(())
            }
            Kind::Mp4(depackager) => {
                depackager.handle(input_of(rendition), bytes).map_err(|error| error.to_string())
            }
        }
    }

    /// Handles a gap in the media.
    ///
    /// # Errors
    /// The reason the following media could not be read.
    pub(super) fn lost(&mut self, rendition: Rendition) -> Result<(), String> {
        match &mut self.kind {
            Kind::Unknown => Ok(()),
            Kind::Ts(depackager) => {
                depackager.lost();
                Ok(())
            }
            Kind::Mp4(_) => self.begin_again(rendition),
        }
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self) {
        match &mut self.kind {
            Kind::Unknown => {}
            Kind::Ts(depackager) => depackager.finish(),
            Kind::Mp4(depackager) => depackager.finish(),
        }
    }

    /// Returns the next unit and the tracks that decode it.
    pub(super) fn poll_unit(&mut self) -> Option<(AccessUnit, Arc<Tracks>)> {
        match &mut self.kind {
            Kind::Unknown => None,
            Kind::Ts(depackager) => depackager.poll_unit(),
            Kind::Mp4(depackager) => depackager.poll_unit(),
        }
    }

    /// Returns a fault of the stream's clocks that was not taken yet.
    pub(super) fn take_clock_news(&mut self) -> Option<ClockNews> {
        match &mut self.kind {
            Kind::Unknown => None,
            Kind::Ts(depackager) => depackager.take_clock_news(),
            Kind::Mp4(depackager) => depackager.take_clock_news(),
        }
    }

    /// Returns the number of unusable units since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Unknown => 0,
            Kind::Ts(depackager) => depackager.take_dropped(),
            Kind::Mp4(depackager) => depackager.take_dropped(),
        }
    }

    /// Returns what the stream has supplied so far: nothing usable, only announcements, audio alone, or frames.
    pub(super) fn supply(&self) -> Supply {
        match &self.kind {
            Kind::Unknown => Supply::Nothing,
            Kind::Ts(depackager) => depackager.supply(),
            Kind::Mp4(depackager) => depackager.supply(),
        }
    }

    /// Reads a rendition again, beginning with its initialization section.
    fn begin_again(&mut self, rendition: Rendition) -> Result<(), String> {
        let input = input_of(rendition);
        let (Kind::Mp4(depackager), Some(index)) = (&mut self.kind, self.indexes.get(input)) else {
            return Ok(());
        };
        depackager.begin_again(input);
        depackager.handle(input, index).map_err(|error| error.to_string())?;
        depackager.begin_segment(input).map_err(|error| error.to_string())
    }
}
