//! Publishers of the load generator: they speak as pushes do, and are handed bodies of FLV.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use flv::file::TagKind;
use media::Tracks;

use super::flv_mapping::{self, Outcome};
use super::pull::{ClientDatagrams, ClientStream};
use super::ts::TsPackage;
use super::{OpenPath, PathId};
use crate::config::AppSettings;
use crate::hub::{Chosen, Entry, Package, Parts, Selection};
use crate::mail::Grant;
use crate::types::StreamId;

/// An event of a publisher.
#[derive(Debug)]
pub enum PublisherEvent {
    /// The server consented.
    Ready,
    /// Wants another byte stream to the same server in place of the one it has had.
    Reconnect,
    /// Wants a UDP socket of its own beside its byte stream.
    OpenPath(OpenPath),
    /// Closes such a socket.
    ClosePath(PathId),
    /// The end, with the reason.
    Closed(String),
}

/// A client that publishes, over a byte stream, in datagrams, or over both.
pub trait LoadPublisher: Debug + Send {
    /// Its byte stream, if it has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream>;
    /// Its datagrams, if it has any.
    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams>;
    /// Whether it sends media of a kind, of the stream whose parameter sets it has.
    fn carries(&self, _kind: TagKind) -> bool {
        true
    }
    /// The byte stream of one that has datagrams, too, has ended.
    fn handle_end(&mut self, now: Instant);
    /// A deadline may have passed.
    fn handle_timeout(&mut self, now: Instant);
    /// Sends what the body of a tag of FLV holds.
    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes);
    /// The next event.
    fn poll_event(&mut self) -> Option<PublisherEvent>;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Says goodbye.
    fn close(&mut self, now: Instant);
}

/// Bodies of FLV as packets of MPEG-TS.
#[derive(Debug)]
pub struct TsMux(FlvMux<TsPackage>);

impl Default for TsMux {
    fn default() -> Self {
        Self::new()
    }
}

impl TsMux {
    /// Creates a muxer without parameter sets.
    #[must_use]
    pub fn new() -> Self {
        Self(FlvMux::new(TsPackage::at_once()))
    }

    /// The packets of a video or audio unit; `None` for parameter sets, which go with the video, and for data.
    pub fn packets(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: &Bytes) -> Option<Bytes> {
        Some(self.parts(now, kind, timestamp, body)?.slices().concat().into())
    }

    pub(super) fn parts(
        &mut self,
        now: Instant,
        kind: TagKind,
        timestamp: u32,
        body: &Bytes,
    ) -> Option<Parts> {
        self.0.unit(now, kind, timestamp, body).map(|(_, parts)| parts)
    }
}

/// Bodies of FLV in the format of a package.
#[derive(Debug)]
pub(super) struct FlvMux<P> {
    ingest: flv_mapping::Depackager,
    pub(super) package: P,
    chosen: Chosen,
}

impl<P: Package> FlvMux<P> {
    /// Creates a muxer without parameter sets.
    pub(super) fn new(package: P) -> Self {
        Self { ingest: flv_mapping::Depackager::new(&grant()), package, chosen: Chosen::default() }
    }

    /// A video or audio unit as itself and in the package's format; `None` for parameter sets and for data.
    pub(super) fn unit(
        &mut self,
        now: Instant,
        kind: TagKind,
        timestamp: u32,
        body: &Bytes,
    ) -> Option<(Entry, Parts)> {
        let outcome = match kind {
            TagKind::Video => self.ingest.video(timestamp, body),
            TagKind::Audio => self.ingest.audio(timestamp, body),
            TagKind::Data | TagKind::Other(_) => return None,
        };
        let Outcome::Unit(unit) = outcome else { return None };
        let tracks = self.ingest.tracks();
        if !Arc::ptr_eq(tracks, self.chosen.all()) {
            self.chosen.update(Selection::DEFAULT, tracks, &|track| self.package.fit(track));
        }
        let entry = Entry::new(now, 0, unit, Arc::clone(tracks));
        let parts = self.package.unit(&entry, &self.chosen);
        Some((entry, parts))
    }

    /// The tracks that parameter sets were taken for.
    pub(super) fn tracks(&self) -> &Arc<Tracks> {
        self.ingest.tracks()
    }
}

/// A stream's beginning, for the mappings.
pub(super) fn grant() -> Grant {
    #[allow(clippy::expect_used, reason = "the defaults are checked by a test of theirs")]
    let settings = Arc::new(AppSettings::defaults("bench").expect("the defaults of an application"));
    Grant { stream: StreamId(0), position: media::Position::default(), epoch: 0, zero_ms: 0, settings }
}
