//! A publisher for the load generator: it publishes like a push, but the load generator's messages instead of a
//! stream's.

use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use rtmp::{CloseReason, MediaKind, MediaMessage};
use wire::SendQueue;

use super::publishing::{Published, Publishing};
use super::url::RtmpUrl;
use crate::protocol::publisher::{LoadPublisher, PublisherEvent};
use crate::protocol::pull::{ClientDatagrams, ClientStream, Patience};

/// The publisher.
#[derive(Debug)]
pub(super) struct RtmpLoad(Publishing);

impl RtmpLoad {
    pub(super) fn new(now: Instant, url: &RtmpUrl, patience: Patience, seed: Seed) -> Self {
        Self(Publishing::new(now, super::patient_config(url, patience), seed))
    }
}

impl ClientStream for RtmpLoad {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        self.0.handle_bytes(now, bytes);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.0.poll_transmit(out);
    }
}

impl LoadPublisher for RtmpLoad {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }

    fn handle_end(&mut self, _now: Instant) {
        // Nothing to do: RTMP has no datagrams beside its byte stream.
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.handle_timeout(now);
    }

    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes) {
        let kind = match kind {
            TagKind::Audio => MediaKind::Audio,
            TagKind::Video => MediaKind::Video,
            TagKind::Data | TagKind::Other(_) => MediaKind::Data,
        };
        self.0.client.send(now, &MediaMessage { message_stream: 0, kind, timestamp, payload: body });
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        Some(match self.0.poll_event()? {
            Published::Ready { .. } => PublisherEvent::Ready,
            Published::Closed(reason) => PublisherEvent::Closed(reason),
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.0.client.close(now, CloseReason::Requested);
    }
}
