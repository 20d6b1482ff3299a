//! A session: a description in, a description out, then datagrams, events and media.
//!
//! ```text
//!     datagram -> transport (ICE, DTLS, SRTP) -> reception (sources, repair, frames) -> Event::Frame
//!     Peer::send -> senders (numbers, repair) -> SRTP -> datagrams
//!                   feedback (reports, NACK, PLI, arrival times) both ways
//! ```

mod data;
mod feedback;
mod sending;
mod setup;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crypto::{Random, Seed};
use ice::Path;
use rtp::history::PacketLog;
use rtp::report::ReportSchedule;
use rtp::{NtpAnchor, Ssrc};
use wire::Datagrams;

pub use sending::Queued;

use data::Data;
use feedback::Reports;
use sending::Sending;
use setup::Negotiation;

use crate::config::{Config, IceMode};
use crate::error::Error;
use crate::event::{CloseReason, Event};
use crate::negotiate::{Section, SectionId};
use crate::receive::Reception;
use crate::send::{HEAD_BYTES_MAX, Sender, SentUnit};
use crate::stats::Stats;
use crate::transport::{Agent, Opened, Transport};

/// Events that wait for the owner; datagrams beyond are dropped before they are looked at.
const EVENTS_MAX: usize = 1024;
/// Room for events that an idle session keeps.
const EVENTS_KEPT: usize = 16;
/// RTCP packets that wait to be sent; the oldest are given up.
const RTCP_MAX: usize = 32;

/// A WebRTC session with a peer. See the module.
#[derive(Debug)]
pub struct Peer {
    config: Arc<Config>,
    anchor: NtpAnchor,
    seed: Seed,
    random: Random,
    negotiation: Negotiation,
    transport: Transport,
    reception: Option<Box<Reception>>,
    /// Data channels, once they are negotiated.
    data: Option<Box<Data>>,
    sending: Sending,
    reports: Reports,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Peer {
    /// Before any description. `anchor` is the wall clock, for reports; no two peers have the same seed.
    ///
    /// # Errors
    ///
    /// [`Error::NoFingerprint`] when the configuration has no identity.
    pub fn new(now: Instant, config: Arc<Config>, anchor: NtpAnchor, seed: Seed) -> Result<Self, Error> {
        let identity = config.dtls.identity.as_ref().ok_or(Error::NoFingerprint)?;
        let digest = bytes::Bytes::copy_from_slice(identity.fingerprint().digest());
        let fingerprint =
            sdp::Fingerprint::new(sdp::HashFunction::Sha256, digest).ok_or(Error::NoFingerprint)?;
        let ice_seed = seed.derive("ice", 0);
        let agent = match &config.ice {
            IceMode::Lite { config, .. } => {
                Agent::Lite(Box::new(ice::LiteAgent::new(now, Arc::clone(config), &ice_seed)))
            }
            IceMode::Full(config) => {
                Agent::Full(Box::new(ice::Agent::new(now, Arc::clone(config), &ice_seed)))
            }
        };
        let mut random = seed.derive("webrtc", 0).random();
        let transport = Transport::new(agent, Arc::clone(&config.dtls), seed.derive("transport", 0));
        let [_, _, _, _, a, b, c, d] = random.u64().to_be_bytes();
        let negotiation = Negotiation::new(fingerprint, &mut random);
        Ok(Self {
            anchor,
            negotiation,
            transport,
            reception: None,
            data: None,
            sending: Sending::default(),
            reports: Reports::new(Ssrc(u32::from_be_bytes([a, b, c, d]))),
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
            seed,
            random,
        })
    }

    /// A datagram that came by `path`; it is opened in place.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) {
        if self.events.len() >= EVENTS_MAX {
            self.stats.no_room += 1;
            return;
        }
        let opened = self.transport.handle_datagram(now, path, datagram);
        self.take_transport_events(now);
        match opened {
            Opened::Rtp(packet) => {
                if let Some(reception) = &mut self.reception {
                    reception.handle_packet(now, packet, &mut self.events);
                }
            }
            Opened::Rtcp(compound) => self.handle_rtcp(now, compound),
            Opened::Nothing => self.take_packets(now),
        }
        self.flush_feedback(now);
    }

    /// The deadline has passed, or not; both are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.transport.handle_timeout(now);
        self.take_transport_events(now);
        if let Some(reception) = &mut self.reception {
            reception.handle_timeout(now, &mut self.events);
        }
        if let Some(data) = &mut self.data {
            data.handle_timeout(now);
        }
        // A sender that needs it reads the log when it is drained; one whose track is gone never does.
        self.sending.pacer.may_send(now);
        if self.reports.schedule.as_mut().is_some_and(|schedule| schedule.poll(now)) {
            self.report(now);
        }
        self.flush_feedback(now);
    }

    /// From now on data channels are accepted in offers of the peer, and offered in ours.
    pub const fn take_data(&mut self) {
        self.negotiation.takes_data = true;
    }

    /// Sends a unit of a track, in the section's first format. It was sampled at `sampled`: the same clock for all sections,
    /// so that lips stay in step. False for a section that does not send.
    pub fn send(&mut self, section: SectionId, unit: &SentUnit, sampled: Instant) -> bool {
        self.sending.send(section, unit, sampled)
    }

    /// Begins a section `span` ticks before the live edge, which has the timestamp `edge` on the clock of its
    /// track. Those ticks are squeezed into `squeezed`, so that a viewer who joins late shows them at once.
    pub fn begin_behind(&mut self, section: SectionId, edge: u32, span: u32, squeezed: u32) {
        if let Some(sender) = self.sending.of(section) {
            sender.begin_behind(edge, span, squeezed);
        }
    }

    /// Forgets what waits to be sent there: the owner goes on at another place of the stream.
    pub fn skip(&mut self, section: SectionId) {
        if let Some(sender) = self.sending.of(section) {
            sender.skip();
        }
    }

    /// The stream that a section carries leaves: what waits there is forgotten. Another one may follow, in its own format
    /// ([`Peer::occupy`]), with a key frame; numbers and timestamps go on.
    pub fn vacate(&mut self, now: Instant, section: SectionId) {
        if let Some(sender) = self.sending.of(section) {
            sender.vacate(now);
        }
    }

    /// Forgets the units that wait in a section of video, but for the rest of one whose first packets have left. The peer sees no
    /// gap in the sequence numbers; the owner goes on with a key frame. The number of units that are left out.
    pub fn drop_unbegun(&mut self, section: SectionId, log: &PacketLog) -> u64 {
        let sender = self.sending.of(section).filter(|sender| sender.is_video());
        sender.map_or(0, |sender| sender.drop_unbegun(log))
    }

    /// Switches a section to another track that shows the same; `first` is its first unit, a key
    /// frame. Packets of the former track that still wait are left out.
    pub fn switch(&mut self, section: SectionId, first: &SentUnit) {
        if let Some(sender) = self.sending.of(section) {
            sender.switch(first);
        }
    }

    /// The rate that the path to the peer carries, in bits per second, as far as it was tried: half as much again as what is sent, if
    /// nothing speaks against it. `None` before anything is known, and of a peer that tells nothing.
    #[must_use]
    pub fn estimate(&self, now: Instant) -> Option<u64> {
        self.sending.bandwidth.estimate(now)
    }

    /// Bits per second that this viewer's video may have now, packet heads included: the rate of the path, less the rates of
    /// audio and repairs in the last second, less a margin of a twentieth. While a queue stands on the path the budget is
    /// smaller, so that the queue drains.
    ///
    /// `None` while nothing is known that bounds it: before the first feedback, on a path that has carried all that was sent,
    /// and for a peer that tells nothing. A budget of 0 means audio alone.
    ///
    /// The value moves with each feedback of the peer, some ten times a second, and falls at once behind a cut. The rate of the
    /// path at most doubles in a second, and rises by a fourteenth in a second near what the path carried before. Ask for each
    /// picture, together with [`Peer::queued`]: a picture for which there is no room is best left out before it is queued, for
    /// [`Peer::send`] leaves nothing out. Always have something to send, a key frame at least: the path is measured by it.
    #[must_use]
    pub fn video_budget(&self, now: Instant) -> Option<u64> {
        self.sending.video_budget(now)
    }

    /// Video that waits for the pacer. It changes with each call of [`Peer::send`] and each drain.
    #[must_use]
    pub fn queued(&self, now: Instant) -> Queued {
        self.sending.queued(now)
    }

    /// Whether queues on the path grew within the last second, or nothing is heard of what is sent.
    #[must_use]
    pub fn is_congested(&self, now: Instant) -> bool {
        self.sending.bandwidth.is_congested(now)
    }

    /// The share of what is sent that is lost of late, in thousandths.
    #[must_use]
    pub const fn loss(&self) -> u16 {
        self.sending.bandwidth.loss()
    }

    /// Tries whether the path carries so many bits per second: packets of late are sent once more for a fifth of a second.
    /// The result is in [`Peer::estimate`] a little later. False where that is not possible, under way, or known to be too
    /// much: the path is congested.
    pub fn probe(&mut self, now: Instant, bits: u64) -> bool {
        self.transport.media_path().is_some() && self.sending.probe(now, bits)
    }

    /// Asks the peer for a key frame of a layer, at most twice a second. False for a section that has none.
    pub fn request_key_frame(&mut self, now: Instant, section: SectionId, layer: u8) -> bool {
        let reception = self.reception.as_mut();
        let asked = reception.is_some_and(|reception| reception.request_key_frame(section, layer));
        self.flush_feedback(now);
        asked
    }

    /// Ends the session; a connected peer is notified: that our sources end (BYE), and the session (`close_notify`).
    pub fn close(&mut self, now: Instant) {
        self.leave();
        self.transport.close(now, CloseReason::Local);
        self.take_transport_events(now);
    }

    /// The next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front().or_else(|| self.data.as_mut()?.poll_event());
        if self.events.is_empty() && self.events.capacity() > EVENTS_KEPT {
            self.events = VecDeque::new();
        }
        event
    }

    /// Fills `out`, which is empty, with datagrams for the path that comes back. `log` gives the packets of what a section
    /// sends. To be called until there is none.
    pub fn poll_transmit<'l>(
        &mut self,
        now: Instant,
        log: impl Fn(SectionId) -> Option<&'l PacketLog>,
        out: &mut Datagrams,
    ) -> Option<Path> {
        if let Some(data) = &mut self.data {
            data.pump(now, &mut self.transport);
        }
        if let Some(path) = self.transport.poll_transmit(now, out) {
            return Some(path);
        }
        let path = self.transport.media_path()?;
        let pace = self.sending.pace(now);
        let keys = self.transport.outbound()?;
        while let Some(packet) = self.reports.rtcp.front_mut() {
            if !out.has_room(packet.len().saturating_add(keys.profile().rtcp_overhead())) {
                return Some(path);
            }
            if keys.protect_rtcp(packet).is_ok() {
                out.push(&[], packet);
            }
            self.reports.rtcp.pop_front();
        }
        self.sending.fill(now, pace, keys, &self.anchor, &log, out);
        (!out.is_empty()).then_some(path)
    }

    /// Whether [`Peer::poll_transmit`] would give nothing, whatever the time: until there is input or another unit.
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.transport.is_settled()
            && self.reports.rtcp.is_empty()
            && self.sending.is_idle()
            && self.data.as_ref().is_none_or(|data| data.is_idle())
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.transport.is_closed() {
            return None;
        }
        let schedule = self.reports.schedule.as_ref().map(ReportSchedule::poll_timeout);
        let reception = self.reception.as_ref().and_then(|reception| reception.poll_timeout());
        let data = self.data.as_ref().and_then(|data| data.poll_timeout());
        [self.transport.poll_timeout(), schedule, reception, self.sending.poll_timeout(), data]
            .into_iter()
            .flatten()
            .min()
    }

    /// The negotiated sections.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.negotiation.sections
    }

    /// Our name for the port's table (`ice::Demux::insert`).
    #[must_use]
    pub fn local_fragment(&self) -> &str {
        self.transport.agent().local().ufrag()
    }

    /// The peer's user name fragment; another one in a later description restarts ICE.
    #[must_use]
    pub fn remote_fragment(&self) -> &str {
        &self.negotiation.remote_fragment
    }

    /// The path that media takes, once it can be sent.
    #[must_use]
    pub fn media_path(&self) -> Option<Path> {
        self.transport.media_path()
    }

    /// Bytes of a payload that fit a datagram of ours, whatever is agreed on: what a [`crate::Track`] is made for.
    #[must_use]
    pub const fn payload_bytes_max(config: &Config) -> usize {
        config.datagram_bytes_max.saturating_sub(HEAD_BYTES_MAX)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.transport = self.transport.stats();
        // Behind the end what is left is what was.
        stats.profile = self.transport.profile().or(stats.profile);
        stats.handshake = self.transport.handshake().or(stats.handshake);
        stats.round_trip = self.reports.round_trip;
        if let Some(reception) = &self.reception {
            stats.unknown_sources = reception.unknown;
            stats.too_many_sources = reception.too_many_sources;
            stats.malformed += reception.malformed;
            stats.received = reception.stats().collect();
        }
        self.sending.fill_stats(&mut stats);
        stats
    }

    /// Bytes that are held, as far as they can be seen: what waits in order or for the rest of a frame is not among them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let rtcp: usize = self.reports.rtcp.iter().map(Vec::capacity).sum();
        let senders = self.sending.senders.capacity().saturating_mul(size_of::<Sender>());
        let sections = self.negotiation.sections.capacity().saturating_mul(size_of::<Section>());
        let reception = self.reception.as_ref().map_or(0, |_| size_of::<Reception>());
        let bandwidth = self.sending.bandwidth.held_bytes();
        let data = self.data.as_ref().map_or(0, |data| data.held_bytes());
        [size_of::<Self>(), self.transport.held_bytes(), rtcp, senders, sections, reception, bandwidth, data]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    fn take_transport_events(&mut self, now: Instant) {
        while let Some(event) = self.transport.poll_event() {
            if event == Event::Connected {
                self.reports.schedule = Some(ReportSchedule::new(now));
                self.stats.profile = self.transport.profile();
                self.stats.handshake = self.transport.handshake();
                if let Some(data) = &mut self.data {
                    data.connect(now);
                }
            }
            if matches!(event, Event::Closed(_)) {
                // State that is no longer needed is freed without waiting for the owner; the counters stay.
                self.stats = self.stats();
                self.reception = None;
                self.end_data();
                self.sending.end();
                self.reports.rtcp.clear();
                self.reports.schedule = None;
            }
            self.events.push_back(event);
        }
    }
}
