//! Publishers for the load generator: they use the protocols as pushes do, and the load generator gives them FLV
//! bodies.

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
use crate::hub::{Chosen, Entry, Item, Package, Parts, Selection};
use crate::mail::Grant;
use crate::types::StreamId;

/// An event of a publisher.
#[derive(Debug)]
pub enum PublisherEvent {
    /// The server has accepted the request to publish.
    Ready,
    /// The publisher needs another byte stream to the same server, instead of the last one.
    Reconnect,
    /// The publisher needs a UDP socket of its own beside its byte stream.
    OpenPath(OpenPath),
    /// The publisher closes a UDP socket of its own.
    ClosePath(PathId),
    /// The server wants a key frame now.
    KeyFrameWanted,
    /// The publisher has ended, for this reason.
    Closed(String),
}

/// A client that publishes, over a byte stream, datagrams, or both.
pub trait LoadPublisher: Debug + Send {
    /// Returns the byte stream, if the publisher has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream>;
    /// Returns the datagram side, if the publisher has one.
    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams>;
    /// True if the publisher sends media of a kind, given its parameter sets.
    fn carries(&self, _kind: TagKind) -> bool {
        true
    }
    /// Notes that the byte stream has ended, for publishers that also use datagrams.
    fn handle_end(&mut self, now: Instant);
    /// Handles deadlines that have passed.
    fn handle_timeout(&mut self, now: Instant);
    /// Returns the voice, if the publisher is a participant of a room.
    fn voice(&mut self) -> Option<&mut dyn Voice> {
        None
    }
    /// Sends the content of an FLV tag's body.
    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes);
    /// Returns the next event.
    fn poll_event(&mut self) -> Option<PublisherEvent>;
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Closes the connection as its protocol requires.
    fn close(&mut self, now: Instant);
}

/// The voice of a participant of a room.
pub trait Voice {
    /// Starts or stops speaking.
    fn speak(&mut self, speaks: bool);
}

/// Converts FLV bodies to MPEG-TS packets.
#[derive(Debug)]
pub struct TsMux(FlvMux<TsPackage>);

impl Default for TsMux {
    fn default() -> Self {
        Self::new()
    }
}

impl TsMux {
    /// Makes a muxer without parameter sets.
    #[must_use]
    pub fn new() -> Self {
        Self(FlvMux::new(TsPackage::at_once()))
    }

    /// Returns the packets of a video or audio unit; `None` for parameter sets, which are sent with the video, and for
    /// data.
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
        self.0.unit(now, kind, timestamp, body)?.1.bytes().cloned()
    }
}

/// Converts FLV bodies to the format of a package.
#[derive(Debug)]
pub(super) struct FlvMux<P> {
    ingest: flv_mapping::Depackager,
    pub(super) package: P,
    chosen: Chosen,
}

impl<P: Package> FlvMux<P> {
    /// Makes a muxer without parameter sets.
    pub(super) fn new(package: P) -> Self {
        Self { ingest: flv_mapping::Depackager::new(&grant()), package, chosen: Chosen::default() }
    }

    /// Returns a video or audio unit, itself and in the package's format; `None` for parameter sets and for data.
    pub(super) fn unit(
        &mut self,
        now: Instant,
        kind: TagKind,
        timestamp: u32,
        body: &Bytes,
    ) -> Option<(Entry, Item)> {
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
        let item = self.package.unit(&entry, &self.chosen);
        Some((entry, item))
    }

    /// Returns the tracks described by the parameter sets so far.
    pub(super) fn tracks(&self) -> &Arc<Tracks> {
        self.ingest.tracks()
    }
}

/// Makes a grant for the beginning of a stream, because the mappings begin with a grant.
pub(super) fn grant() -> Grant {
    #[allow(clippy::expect_used, reason = "the defaults are checked by a test of theirs")]
    let settings = Arc::new(AppSettings::defaults("bench").expect("the defaults of an application"));
    Grant {
        stream: StreamId(0),
        position: media::Position::default(),
        epoch: 0,
        zero_ms: 0,
        settings,
        standby: false,
    }
}
