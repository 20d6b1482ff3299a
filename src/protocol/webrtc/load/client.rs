//! A client of the load generator: its signalling, and its WebRTC peer, whose descriptions are signalled.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{CloseReason, Config, Event, IceMode, MediaPreference, Peer, SectionId};
use bytes::Bytes;
use crypto::Seed;
use ice::Path;
use rtp::NtpAnchor;
use rtp::history::PacketLog;
use sdp::{Description, MediaKind};
use wire::{Datagrams, SendQueue};

use super::signal::{Signal, SignalEvent};
use crate::protocol::pull::ClientStream;
use crate::protocol::webrtc::codecs::Codecs;
use crate::protocol::webrtc::negotiation;

/// Wall-clock time at the start, as RTCP reports state it. It need not be the real time, because only differences
/// matter.
const WALL_CLOCK: Duration = Duration::from_secs(1_800_000_000);
/// First bytes of RTP and RTCP (RFC 7983 §7), and the second bytes of RTCP (RFC 5761 §4).
const RTP_FIRST: std::ops::RangeInclusive<u8> = 128..=191;
const RTCP_SECOND: std::ops::RangeInclusive<u8> = 192..=223;

/// An event of a client.
#[derive(Debug, PartialEq)]
pub(super) enum ClientEvent {
    /// Media can be sent and received.
    Ready,
    /// The client needs a new byte stream.
    Reconnect,
    /// A complete frame of a section.
    Frame { section: SectionId, payload: Bytes },
    /// The server wants a key frame.
    KeyFrameWanted,
    /// The client has ended, for this reason.
    Closed(String),
}

/// A client that publishes or plays.
#[derive(Debug)]
pub(super) struct RtcClient {
    peer: Peer,
    signal: Signal,
    sections: Vec<(MediaKind, MediaPreference)>,
    /// Address at which the socket receives.
    local: Option<SocketAddr>,
    /// Number of received RTP packets.
    packets: u64,
    ended: bool,
    events: VecDeque<ClientEvent>,
}

impl RtcClient {
    /// Creates a client for a connection that is being opened. The client offers the sections; if there are none, it
    /// answers the server's offers. `None` if no keys could be generated.
    pub(super) fn new(
        now: Instant,
        signal: Signal,
        seed: Seed,
        sections: Vec<(MediaKind, MediaPreference)>,
    ) -> Option<Self> {
        let identity = dtls::Identity::self_signed(&seed.derive("identity", 0)).ok()?;
        let mut config = Config::new(IceMode::Full(Arc::default()), Arc::new(identity));
        (config.audio_levels, config.takes_changes) = (true, true);
        let mut peer = Peer::new(now, Arc::new(config), NtpAnchor::new(now, WALL_CLOCK), seed).ok()?;
        if sections.is_empty() {
            peer.take_data();
        }
        let (events, ended) = (VecDeque::new(), false);
        Some(Self { peer, signal, sections, local: None, packets: 0, ended, events })
    }

    /// True if media of a kind is offered.
    pub(super) fn offers(&self, kind: &MediaKind) -> bool {
        self.sections.iter().any(|(of, _)| of == kind)
    }

    /// Returns the media kind of a section.
    pub(super) fn kind_of(&self, section: SectionId) -> Option<&MediaKind> {
        self.peer.sections().iter().find(|own| own.id == section).map(|own| &own.kind)
    }

    /// Returns the section that sends media of a kind, if one was agreed on.
    pub(super) fn section_of(&self, kind: &MediaKind) -> Option<SectionId> {
        let mut sections = self.peer.sections().iter();
        sections.find(|own| own.kind == *kind && own.direction.sends()).map(|own| own.id)
    }

    /// Returns the peer, to send with.
    pub(super) const fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    /// Returns the number of RTP packets received so far.
    pub(super) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Stores the socket's address, and starts the signalling.
    pub(super) fn handle_local(&mut self, now: Instant, local: SocketAddr) {
        self.local = Some(local);
        match self.peer.add_local(now, local) {
            Ok(_) => self.signal.begin(),
            Err(error) => self.end(now, error.to_string()),
        }
        self.drain(now);
    }

    pub(super) fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        let Some(local) = self.local else { return };
        if let [first, second, ..] = datagram
            && RTP_FIRST.contains(first)
            && !RTCP_SECOND.contains(second)
        {
            self.packets = self.packets.saturating_add(1);
        }
        self.peer.handle_datagram(now, Path::udp(local, from), datagram);
        self.drain(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.peer.handle_timeout(now);
        self.signal.handle_timeout(now);
        self.drain(now);
    }

    /// Handles the end of the byte stream.
    pub(super) fn handle_end(&mut self, now: Instant) {
        self.signal.handle_end();
        self.drain(now);
    }

    /// Adds datagrams, and returns their destination.
    pub(super) fn poll_datagrams<'l>(
        &mut self,
        now: Instant,
        log: impl Fn(SectionId) -> Option<&'l PacketLog>,
        out: &mut Datagrams,
    ) -> Option<SocketAddr> {
        self.peer.poll_transmit(now, log, out).map(|path| path.remote)
    }

    pub(super) fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.peer.poll_timeout(), self.signal.poll_timeout()].into_iter().flatten().min()
    }

    /// Ends the session at the server; if the session is not set up yet, only drops what exists of it.
    pub(super) fn close(&mut self, now: Instant) {
        self.signal.close(now);
        self.drain(now);
    }

    fn offer(&mut self, now: Instant) {
        if self.sections.is_empty() {
            return self.end(now, "WebRTC carries nothing of the clip".to_owned());
        }
        match self.peer.offer(&self.sections) {
            Ok(offer) => self.signal.offer(now, &offer.write()),
            Err(error) => self.end(now, error.to_string()),
        }
    }

    fn answered(&mut self, now: Instant, answer: &[u8]) {
        let taken = match Description::read(answer) {
            Ok(answer) => self.peer.handle_answer(now, &answer).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = taken {
            self.end(now, format!("the answer: {why}"));
        }
    }

    fn offered(&mut self, now: Instant, offer: &[u8]) {
        let answer = match Description::read(offer) {
            Ok(offer) => self
                .peer
                .handle_offer(now, &offer, |_, media| negotiation::take(media, Codecs::ALL))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(answer) => self.signal.answer(now, &answer.write()),
            Err(why) => self.end(now, format!("the offer: {why}")),
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.signal.poll_event() {
            match event {
                SignalEvent::OfferWanted => self.offer(now),
                SignalEvent::Answer(answer) => self.answered(now, &answer),
                SignalEvent::Offer(offer) => self.offered(now, &offer),
                SignalEvent::Reconnect => self.events.push_back(ClientEvent::Reconnect),
                SignalEvent::Over => self.peer.close(now),
                SignalEvent::Closed(why) => self.end(now, why),
            }
        }
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => self.events.push_back(ClientEvent::Ready),
                Event::Frame { section, frame, .. } => {
                    self.events.push_back(ClientEvent::Frame { section, payload: frame.payload });
                }
                Event::Closed(reason) => self.end(now, closed_text(reason)),
                Event::KeyFrameWanted { .. } => self.events.push_back(ClientEvent::KeyFrameWanted),
                // The socket has a single path, and the load generator detects losses by the number that it stamps on
                // each unit of media.
                Event::Candidate(_)
                | Event::PathOpened(_)
                | Event::PathClosed(_)
                | Event::Format { .. }
                | Event::PictureLost { .. }
                | _ => {}
            }
        }
    }

    /// Closes the client and reports the reason. Does nothing if the client has ended before, or if its session is
    /// being ended, which was already reported.
    fn end(&mut self, now: Instant, why: String) {
        if !self.ended && !self.signal.is_over() {
            self.ended = true;
            self.peer.close(now);
            self.events.push_back(ClientEvent::Closed(why));
        }
    }
}

impl ClientStream for RtcClient {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        self.signal.handle_bytes(now, bytes);
        self.drain(now);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        self.signal.poll_transmit(out);
    }
}

fn closed_text(reason: CloseReason) -> String {
    match reason {
        CloseReason::Local => "closed".to_owned(),
        CloseReason::ConnectTimeout => "no path to the server".to_owned(),
        CloseReason::ConsentExpired => "the server answers no more".to_owned(),
        CloseReason::Peer => "the server ended the session".to_owned(),
        CloseReason::Handshake(why) => format!("DTLS: {why:?}"),
        _ => format!("{reason:?}"),
    }
}
