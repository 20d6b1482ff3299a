//! RTMP and RTMPS pulls: plays a stream of another server.

use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use flv::file::{Tag, TagKind};
use rtmp::{ClientConfig, ClientEvent, CloseReason, MediaKind};
use wire::SendQueue;

use super::url::RtmpUrl;
use crate::protocol::pull::{Client, ClientEvent as Event, ClientStream, Media, Patience, Start};

/// The client of one pull.
#[derive(Debug)]
pub(super) struct RtmpPull {
    config: Arc<ClientConfig>,
    seed: Seed,
    /// The RTMP client, made when the connection is open.
    machine: Option<Box<rtmp::Client>>,
}

impl RtmpPull {
    pub(super) fn new(url: &RtmpUrl, patience: Patience, seed: Seed) -> Self {
        let config = super::patient_config(url, patience);
        Self { config: Arc::new(config), seed, machine: None }
    }
}

impl ClientStream for RtmpPull {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some(machine) = &mut self.machine
            && let Err(error) = machine.handle_bytes(now, bytes)
        {
            tracing::debug!(%error, "server of a pull broke the protocol");
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(machine) = &mut self.machine {
            machine.poll_transmit(out);
        }
    }
}

impl Client for RtmpPull {
    fn begin(&mut self, start: &Start<'_>) {
        let machine = rtmp::Client::play(start.now, Arc::clone(&self.config), self.seed.clone());
        self.machine = Some(Box::new(machine));
    }

    fn handle_end(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.close(now, CloseReason::PeerClosed);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(now);
        }
    }

    fn poll(&mut self) -> Option<Event> {
        match self.machine.as_mut()?.poll_event()? {
            ClientEvent::Ready { .. } => Some(Event::Accepted),
            ClientEvent::Media(message) => {
                let kind = match message.kind {
                    MediaKind::Audio => TagKind::Audio,
                    MediaKind::Video => TagKind::Video,
                    MediaKind::Data => TagKind::Data,
                };
                let tag = Tag { kind, timestamp: message.timestamp, body: message.payload };
                Some(Event::Media(Media::Tag(tag)))
            }
            ClientEvent::Rejected { code, description } => {
                Some(Event::Ended(format!("{code}: {description}")))
            }
            ClientEvent::Closed(CloseReason::PeerClosed) => {
                Some(Event::Ended("the server ended the stream".to_owned()))
            }
            ClientEvent::Closed(reason) => Some(Event::Ended(reason.to_string())),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.as_ref().and_then(|machine| machine.poll_timeout())
    }

    fn close(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.close(now, CloseReason::Requested);
        }
    }

    fn name(&self) -> &'static str {
        "rtmp-pull"
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }
}
