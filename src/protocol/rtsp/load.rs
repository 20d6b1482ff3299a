//! A publisher for the load generator: a clip cut into packets as for the server's viewers, sent interleaved or, if the
//! URL says so, as datagrams. [`RtspMux`] makes the packets for other senders.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ::rtsp::{Client, ClientEvent, CloseReason, Ports, TrackSetup};
use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use media::TrackKind;
use sdp::Attribute;
use wire::{Datagrams, SendQueue};

use super::announce::Announcement;
use super::package::{self, RtspPackage, channel_of};
use super::pairs::{Ask, Opened, Pairs, path_of};
use super::settings::Carriage;
use super::url::RtspUrl;
use crate::protocol::publisher::{FlvMux, LoadPublisher, PublisherEvent};
use crate::protocol::pull::{ClientDatagrams, ClientStream, Patience};
use crate::protocol::{PathId, Remote, To};

impl From<Ask> for PublisherEvent {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::Open(wanted) => Self::OpenPath(wanted),
            Ask::Close(path) => Self::ClosePath(path),
        }
    }
}

/// FLV bodies as RTP packets in interleaved frames, on the channels that the server's viewers have.
#[derive(Debug)]
pub struct RtspMux {
    mux: FlvMux<RtspPackage>,
    description: String,
}

impl RtspMux {
    /// Makes a mux for a stream with these parameter sets.
    #[must_use]
    pub fn new(now: Instant, heads: &[(TagKind, Bytes)]) -> Self {
        let mux = with_heads(now, heads);
        let mut description = Announcement::of(mux.tracks().iter()).description;
        for (index, media) in description.media.iter_mut().enumerate() {
            media.attributes.push(Attribute::Control(format!("trackID={index}")));
        }
        Self { mux, description: description.write() }
    }

    /// Returns the description of the stream (SDP).
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the frames of a unit; `None` for parameter sets and for data.
    pub fn frames(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: &Bytes) -> Option<Bytes> {
        Some(self.mux.unit(now, kind, timestamp, body)?.1.bytes()?.slices().concat().into())
    }
}

fn with_heads(now: Instant, heads: &[(TagKind, Bytes)]) -> FlvMux<RtspPackage> {
    let mut mux = FlvMux::new(RtspPackage::default());
    for (kind, body) in heads {
        mux.unit(now, *kind, 0, body);
    }
    mux
}

/// A packet to send as a datagram.
#[derive(Debug)]
struct Packet {
    path: PathId,
    to: SocketAddr,
    head: Bytes,
    payload: Bytes,
}

/// The publisher.
#[derive(Debug)]
pub(super) struct RtspLoad {
    url: RtspUrl,
    timeout: Duration,
    seed: Seed,
    mux: FlvMux<RtspPackage>,
    announcement: Announcement,
    /// The RTSP client; `None` while its sockets are being opened.
    machine: Option<Box<Client>>,
    pairs: Pairs,
    /// Local ports, by section.
    ports: Vec<Ports>,
    /// Ports of the server to send to, by section.
    server: Vec<Option<Ports>>,
    /// The server's address. A server given by name must be on this machine.
    host: IpAddr,
    media: SendQueue,
    waiting: VecDeque<Packet>,
    events: VecDeque<PublisherEvent>,
}

impl RtspLoad {
    /// Makes a publisher. `heads` are the parameter sets of the clip; the tracks that RTP can carry are announced.
    pub(super) fn new(
        now: Instant,
        url: &RtspUrl,
        patience: Patience,
        seed: Seed,
        heads: &[(TagKind, Bytes)],
    ) -> Self {
        let mux = with_heads(now, heads);
        let announcement = Announcement::of(mux.tracks().iter());
        let host = url.host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut new = Self {
            url: url.clone(),
            timeout: patience.handshake,
            seed,
            mux,
            server: vec![None; announcement.tracks.len()],
            announcement,
            machine: None,
            pairs: Pairs::new(host),
            ports: Vec::new(),
            host,
            media: SendQueue::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
        };
        match url.carriage {
            Some(Carriage::Datagrams) => new.open_next(now),
            Some(Carriage::Interleaved | Carriage::Either) | None => {
                new.announce(now, &new.announcement.interleaved());
            }
        }
        new
    }

    fn announce(&mut self, now: Instant, setups: &[TrackSetup]) {
        let how = (&self.url, self.timeout);
        let machine = self.announcement.publish(now, how, &[], self.seed.clone(), setups);
        self.machine = Some(Box::new(machine));
    }

    /// Opens the next pair of sockets; when all are open, sets up the tracks.
    fn open_next(&mut self, now: Instant) {
        if self.ports.len() < self.announcement.tracks.len() {
            self.pairs.open(self.ports.len(), None);
            self.events.extend(self.pairs.take_asks::<PublisherEvent>());
            return;
        }
        let setups: Vec<TrackSetup> =
            self.ports.iter().enumerate().map(|(section, ports)| TrackSetup::udp(section, *ports)).collect();
        self.announce(now, &setups);
    }

    /// Returns the path and the destination of a datagram with a packet of this channel.
    fn datagram_way(&self, channel: u8) -> Option<(PathId, SocketAddr)> {
        let section = self.announcement.tracks.iter().position(|track| channel_of(*track) == channel & !1)?;
        let is_rtcp = channel & 1 == 1;
        let ports = (*self.server.get(section)?)?;
        let port = if is_rtcp { ports.rtcp } else { ports.rtp };
        Some((path_of(section, is_rtcp), SocketAddr::new(self.host, port)))
    }
}

impl ClientStream for RtspLoad {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some(machine) = &mut self.machine
            && let Err(error) = machine.handle_bytes(now, bytes)
        {
            tracing::debug!(%error, "server of a publisher broke the protocol");
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(machine) = &mut self.machine {
            machine.poll_transmit(out);
        }
        out.append(&mut self.media);
    }
}

impl ClientDatagrams for RtspLoad {
    fn handle_local(&mut self, now: Instant, path: PathId, local: Option<SocketAddr>) {
        let opened = self.pairs.opened(path, local.map(|local| local.port()));
        self.events.extend(self.pairs.take_asks::<PublisherEvent>());
        match opened {
            Opened::NotYet => {}
            Opened::Pair(_, ports) => {
                self.ports.push(ports);
                self.open_next(now);
            }
            Opened::Failed => self.events.push_back(PublisherEvent::Closed("no ports are free".to_owned())),
        }
    }

    fn handle_datagram(&mut self, _now: Instant, _path: PathId, _from: SocketAddr, _datagram: &mut [u8]) {
        // A load client ignores the packets of its UDP paths.
    }

    fn poll_datagrams(&mut self, _now: Instant, out: &mut Datagrams) -> To {
        let Some((path, to)) = self.waiting.front().map(|packet| (packet.path, packet.to)) else {
            return To::PEER;
        };
        while let Some(packet) = self.waiting.front().filter(|packet| packet.path == path)
            && out.has_room(packet.head.len().saturating_add(packet.payload.len()))
        {
            out.push(&packet.head, &packet.payload);
            self.waiting.pop_front();
        }
        To { path, remote: Some(Remote::of(to)), last: false }
    }
}

impl LoadPublisher for RtspLoad {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn carries(&self, kind: TagKind) -> bool {
        let kind = match kind {
            TagKind::Video => TrackKind::Video,
            TagKind::Audio => TrackKind::Audio,
            TagKind::Data | TagKind::Other(_) => return false,
        };
        let announced = |id| self.announcement.tracks.contains(&id);
        self.mux.tracks().iter().any(|track| track.kind() == kind && announced(track.id))
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

    fn send(&mut self, now: Instant, kind: TagKind, timestamp: u32, body: Bytes) {
        let Some((_, item)) = self.mux.unit(now, kind, timestamp, &body) else { return };
        for frame in item.bytes().into_iter().flat_map(package::frames) {
            match self.datagram_way(frame.channel) {
                Some((path, to)) => {
                    let (head, payload) = frame.into_packet();
                    self.waiting.push_back(Packet { path, to, head, payload });
                }
                None => {
                    self.media.push(frame.head);
                    self.media.push(frame.payload);
                }
            }
        }
    }

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        while self.events.is_empty() {
            match self.machine.as_mut()?.poll_event()? {
                ClientEvent::SetUp { track, transport } => {
                    if let Some(server) = self.server.get_mut(track) {
                        *server = transport.server_ports;
                    }
                }
                ClientEvent::Ready { .. } => self.events.push_back(PublisherEvent::Ready),
                ClientEvent::Rejected { status, reason } => {
                    self.events.push_back(PublisherEvent::Closed(format!("RTSP {} {reason}", status.code())));
                }
                ClientEvent::Closed(reason) => {
                    self.events.push_back(PublisherEvent::Closed(reason.to_string()));
                }
                ClientEvent::Described(_)
                | ClientEvent::NotInterleaved
                | ClientEvent::Interleaved(_)
                | ClientEvent::Announced(_)
                | ClientEvent::Redirect { .. } => {}
            }
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.as_ref().and_then(|machine| machine.poll_timeout())
    }

    fn close(&mut self, now: Instant) {
        if let Some(machine) = &mut self.machine {
            machine.close(now, CloseReason::Requested);
        }
    }
}
