//! A WebRTC session: negotiates descriptions, then exchanges datagrams, events and media.
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
use rtp::extension::{AudioLevel, PlayoutDelay};
use rtp::history::{LoggedUnit, PacketLog};
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
use crate::send::{HEAD_BYTES_MAX, Sender};
use crate::stats::Stats;
use crate::transport::{Agent, Opened, Transport};

/// Maximum number of events queued for the owner; while full, datagrams are dropped unread.
const EVENTS_MAX: usize = 1024;
/// Capacity for events that an idle session keeps allocated.
const EVENTS_KEPT: usize = 16;
/// Maximum number of RTCP packets waiting to be sent; beyond it, the oldest are dropped.
const RTCP_MAX: usize = 32;

/// A WebRTC session with a peer, described in the module.
#[derive(Debug)]
pub struct Peer {
    config: Arc<Config>,
    anchor: NtpAnchor,
    seed: Seed,
    random: Random,
    negotiation: Negotiation,
    transport: Transport,
    reception: Option<Box<Reception>>,
    /// Data channels; `None` until they are negotiated.
    data: Option<Box<Data>>,
    sending: Sending,
    reports: Reports,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Peer {
    /// Creates a session without descriptions. `anchor` provides the wall clock for RTCP reports. The seed must
    /// be different for every peer.
    ///
    /// # Errors
    ///
    /// [`Error::NoFingerprint`] if the configuration has no identity.
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

    /// Handles a datagram received on `path`, and decrypts it in place.
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

    /// Handles an expired deadline. Calling it early is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.transport.handle_timeout(now);
        self.take_transport_events(now);
        if let Some(reception) = &mut self.reception {
            reception.handle_timeout(now, &mut self.events);
        }
        if let Some(data) = &mut self.data {
            data.handle_timeout(now);
        }
        self.sending.handle_timeout(now);
        if self.reports.schedule.as_mut().is_some_and(|schedule| schedule.poll(now)) {
            self.report(now);
        }
        self.flush_feedback(now);
    }

    /// Accepts data channels in the peer's offers and includes them in ours, from now on.
    pub const fn take_data(&mut self) {
        self.negotiation.takes_data = true;
    }

    /// Queues a unit of a track, in the section's first format. `sampled` is its sampling time on a clock
    /// common to all sections, so that audio and video stay in sync. Returns false if the section does not
    /// send.
    pub fn send(&mut self, section: SectionId, unit: &LoggedUnit, sampled: Instant) -> bool {
        self.sending.send(section, unit, sampled)
    }

    /// Starts a section with a unit that is older than the live edge of its track. `edge` is the
    /// track's timestamp of the live edge now. Until the section has caught up, timestamps follow
    /// the times at which units leave, so that the viewer's player shows units when they arrive.
    pub fn begin_behind(&mut self, now: Instant, section: SectionId, edge: u32) {
        if let Some(sender) = self.sending.of(section) {
            sender.begin_behind(now, edge);
        }
    }

    /// Requests a playout delay from the section's player, from the next unit on, if the section is video and
    /// its player supports the extension. Does nothing if the configuration sets a delay.
    pub fn request_playout_delay(&mut self, section: SectionId, delay: PlayoutDelay) {
        if self.config.playout_delay.is_none()
            && let Some(sender) = self.sending.of(section)
        {
            sender.request_playout_delay(delay);
        }
    }

    /// Sets the level of the section's audio from now on (RFC 6464), if [`Config::audio_levels`] is set and the
    /// peer supports levels. Packets before the first call carry no level.
    pub fn set_audio_level(&mut self, section: SectionId, level: AudioLevel) {
        if self.config.audio_levels
            && let Some(sender) = self.sending.of(section)
        {
            sender.set_audio_level(level);
        }
    }

    /// Drops the queued units of a section, because its owner continues at another point of the stream.
    pub fn skip(&mut self, section: SectionId) {
        if let Some(sender) = self.sending.of(section) {
            sender.skip();
        }
    }

    /// Ends the stream that a section carries, and drops its queued units. Another stream may follow, in its
    /// own format ([`Peer::occupy`]), starting with a key frame; sequence numbers and timestamps continue.
    pub fn vacate(&mut self, now: Instant, section: SectionId) {
        if let Some(sender) = self.sending.of(section) {
            sender.vacate(now);
        }
    }

    /// Drops the queued units of a video section, except for the rest of a unit whose first packets have left.
    /// The peer sees no gap in the sequence numbers; the owner must continue with a key frame. Returns the
    /// number of dropped units.
    pub fn drop_unbegun(&mut self, section: SectionId, log: &PacketLog) -> u64 {
        let sender = self.sending.of(section).filter(|sender| sender.is_video());
        sender.map_or(0, |sender| sender.drop_unbegun(log))
    }

    /// Switches a section to another track with the same content, starting with the key frame `first`. Queued
    /// packets of the former track are dropped.
    pub fn switch(&mut self, section: SectionId, first: &LoggedUnit) {
        if let Some(sender) = self.sending.of(section) {
            sender.switch(first);
        }
    }

    /// Returns the playout delay that [`Peer::request_playout_delay`] requested from the section's player.
    #[must_use]
    pub fn requested_playout_delay(&self, section: SectionId) -> Option<PlayoutDelay> {
        let sender = self.sending.senders.iter().find(|sender| sender.section == section)?;
        sender.requested_playout_delay()
    }

    /// Returns the latest playout delay that the peer requested for its video.
    #[must_use]
    pub fn playout_delay(&self) -> Option<PlayoutDelay> {
        self.reception.as_ref()?.playout_delay
    }

    /// Returns the estimated rate of the path to the peer, in bits per second, limited to what was tested:
    /// one and a half times the rate sent. `None` before the first feedback, and for peers without feedback.
    #[must_use]
    pub fn estimate(&self, now: Instant) -> Option<u64> {
        self.sending.bandwidth.estimate(now)
    }

    /// Returns the bits per second available to this viewer's video now, packet headers included: the rate of
    /// the path, minus the rates of audio and retransmissions in the last second, minus a margin of a
    /// twentieth. The budget is reduced while there is a queue on the path, so that the queue drains.
    ///
    /// `None` while no limit is known: before the first feedback, on a path that has carried everything so far,
    /// and for a peer without feedback. A budget of 0 means audio only.
    ///
    /// The value changes with each feedback of the peer, about ten times a second, and drops immediately when
    /// the path's rate drops. The path's rate at most doubles within a second, and grows by a fourteenth per
    /// second near the rate that it carried before. Query the budget for each picture, together with
    /// [`Peer::queued`]. A picture that exceeds the budget should be dropped before it is queued, since
    /// [`Peer::send`] drops nothing. Always send something, at least a key frame, because the path is measured
    /// with the packets sent.
    #[must_use]
    pub fn video_budget(&self, now: Instant) -> Option<u64> {
        self.sending.video_budget(now)
    }

    /// Returns the video that waits for the pacer. Changes with each call of [`Peer::send`] and with each
    /// drain.
    #[must_use]
    pub fn queued(&self, now: Instant) -> Queued {
        self.sending.queued(now)
    }

    /// True if queues on the path grew within the last second, or the peer's feedback is missing.
    #[must_use]
    pub fn is_congested(&self, now: Instant) -> bool {
        self.sending.bandwidth.is_congested(now)
    }

    /// Returns the recent packet loss, in thousandths of the packets sent.
    #[must_use]
    pub const fn loss(&self) -> u16 {
        self.sending.bandwidth.loss()
    }

    /// Returns a rate in bits per second that is worth a [`Peer::probe`]: packets arrive closer together than a
    /// path of the estimated rate would allow, so its capacity may have grown. `None` without such a hint.
    #[must_use]
    pub fn hint(&self) -> Option<u64> {
        self.sending.bandwidth.hint()
    }

    /// Starts a probe of whether the path carries this many bits per second. For a fifth of a second, waiting
    /// video leaves at this rate; if there is too little of it, recent packets are sent again as padding.
    /// [`Peer::estimate`] shows the result shortly afterwards. Returns false if a probe is impossible or
    /// already running, or if the path is congested.
    pub fn probe(&mut self, now: Instant, bits: u64) -> bool {
        self.transport.media_path().is_some() && self.sending.probe(now, bits)
    }

    /// Requests a key frame of a layer from the peer, at most twice a second. Returns false if the section does
    /// not receive video.
    pub fn request_key_frame(&mut self, now: Instant, section: SectionId, layer: u8) -> bool {
        let reception = self.reception.as_mut();
        let asked = reception.is_some_and(|reception| reception.request_key_frame(section, layer));
        self.flush_feedback(now);
        asked
    }

    /// Ends the session. A connected peer receives BYE for our sources, and `close_notify` for the session.
    pub fn close(&mut self, now: Instant) {
        self.leave();
        self.transport.close(now, CloseReason::Local);
        self.take_transport_events(now);
    }

    /// Returns the next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front().or_else(|| self.data.as_mut()?.poll_event());
        if self.events.is_empty() && self.events.capacity() > EVENTS_KEPT {
            self.events = VecDeque::new();
        }
        event
    }

    /// Fills `out`, which must be empty, with datagrams for the returned path. `log` returns the packet log of
    /// a section's track. Must be called until it returns `None`.
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

    /// True if [`Peer::poll_transmit`] will return nothing until there is new input or another unit.
    #[must_use]
    pub fn has_nothing_to_send(&self) -> bool {
        self.transport.is_settled()
            && self.reports.rtcp.is_empty()
            && self.sending.is_idle()
            && self.data.as_ref().is_none_or(|data| data.is_idle())
    }

    /// Returns the next deadline.
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

    /// Our ICE user name fragment, for the port's table (`ice::Demux::insert`).
    #[must_use]
    pub fn local_fragment(&self) -> &str {
        self.transport.agent().local().ufrag()
    }

    /// The peer's ICE user name fragment. A different one in a later description restarts ICE.
    #[must_use]
    pub fn remote_fragment(&self) -> &str {
        &self.negotiation.remote_fragment
    }

    /// Returns the path that media takes; `None` while media cannot be sent.
    #[must_use]
    pub fn media_path(&self) -> Option<Path> {
        self.transport.media_path()
    }

    /// Returns the maximum payload size for [`crate::Track::new`], in bytes. Such a payload fits into a datagram,
    /// whatever is negotiated.
    #[must_use]
    pub const fn payload_bytes_max(config: &Config) -> usize {
        config.datagram_bytes_max.saturating_sub(HEAD_BYTES_MAX)
    }

    /// Returns the session's figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.transport = self.transport.stats();
        // A closed transport reports nothing, so the last values are kept.
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

    /// Returns the bytes of memory held, as far as known: packets waiting for reordering or for the rest of a
    /// frame are not included.
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
                // Frees state that is no longer needed without waiting for the owner; the counters are kept.
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
