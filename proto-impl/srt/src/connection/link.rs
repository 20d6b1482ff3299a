//! An established connection: the state that both directions share, and its deadlines.
//!
//! Times inside are microseconds since the start; timestamps are their lower 32 bits.
//!
//! There are two kinds of deadlines. Those of the receiving direction (delivery, acknowledgement, loss report) move
//! with the packets. All others (keep-alive, silence, too-late packets, probes, key messages) share one timer, the lazy
//! check: when it fires, it examines each of them, and is set to the earliest time at which one may be due.
//! Acknowledgements and packets do not move this timer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::arq::rtt::Rtt;
use crate::arq::tsbpd::Tsbpd;
use crate::cipher::{Refresh, SessionKeys};
use crate::config::{Config, HEAD_BYTES, PAYLOAD_MAX, UDP_HEAD_BYTES};
use crate::connection::call::key_field;
use crate::connection::clock::{Clock, micros};
use crate::connection::handshake_datagram;
use crate::connection::keying::Keying;
use crate::connection::liveness::{KEEP_ALIVE_US, Liveness};
use crate::connection::receive::ReceiveSide;
use crate::connection::send::SendSide;
use crate::event::{CloseReason, Connected};
use crate::filter::{FILTER_HEAD_BYTES, Fec, FilterReceiver, FilterSender};
use crate::handshake::{
    Handshake, HsExtension, SRT_VERSION, VERSION_5, address_field, extension, extension_field, flag, request,
    wire_latency, write_block, write_text,
};
use crate::incoming::Incoming;
use crate::packet::{Control, ControlWriter, Packet, SocketId};
use crate::seq::Seq;
use crate::stats::Stats;

/// Minimum age at which a packet is given up, even if the latency is shorter (libsrt: `SRT_TLPKTDROP_MINTHRESHOLD_MS`).
const TOO_LATE_MIN_US: i64 = 1_000_000;
/// Margin added to the age at which a packet is given up (libsrt: two intervals of ACK).
const TOO_LATE_MARGIN_US: i64 = 20_000;
/// Shortest time without an acknowledgement after which the last packet is retransmitted.
pub(super) const PROBE_MIN_US: i64 = 250_000;
/// Minimum time until the next lazy check, which the module describes.
pub(super) const CHECK_MIN_US: i64 = 1_000;
/// Shortest interval at which key messages are repeated.
const ANNOUNCE_MIN: Duration = Duration::from_millis(50);

/// The parameters agreed in the handshake, with which the connection starts.
#[derive(Debug)]
pub(super) struct Start {
    config: Arc<Config>,
    start: Instant,
    peer: SocketId,
    peer_version: u32,
    first_send: Seq,
    first_receive: Seq,
    mss: u32,
    peer_window: u32,
    receive_latency: Duration,
    send_latency: Duration,
    /// Arrival time of the peer's handshake, in microseconds since the start, and the timestamp that the handshake has.
    heard: (i64, u32),
    keys: Option<Box<SessionKeys>>,
    filter: Option<Fec>,
    response: Option<Bytes>,
}

impl Start {
    /// Creates the parameters for a listener. Each latency is the larger of the two proposals (draft-sharabayko-srt-01
    /// §4.3.1.2), and the answer contains the result. In both directions the first sequence number is the caller's.
    pub(super) fn of_incoming(
        incoming: &Incoming,
        config: &Arc<Config>,
        start: Instant,
        local: SocketId,
        keys: Option<Box<SessionKeys>>,
    ) -> Self {
        let asked = &incoming.handshake;
        let (peer_receive, peer_send) = incoming.wanted_latencies();
        let agreed = |ours: Duration, theirs: Duration| ours.max(theirs).min(config.latency_max);
        let receive_latency = agreed(config.latency, peer_send);
        let send_latency = agreed(config.peer_latency, peer_receive);
        let mut this = Self {
            config: Arc::clone(config),
            start,
            peer: asked.socket,
            peer_version: incoming.hs.version,
            first_send: asked.first_seq,
            first_receive: asked.first_seq,
            mss: asked.mss,
            peer_window: asked.flow_window,
            receive_latency,
            send_latency,
            heard: (micros(start, incoming.arrived), incoming.timestamp),
            keys,
            filter: None,
            response: None,
        };
        let mut extensions = Vec::new();
        let hs = HsExtension {
            version: SRT_VERSION,
            flags: flag::OURS,
            receive_latency_ms: wire_latency(receive_latency),
            send_latency_ms: wire_latency(send_latency),
        };
        hs.write(extension::HS_RESPONSE, &mut extensions);
        let mut field = extension_field::HS;
        if let Some(km) = incoming.km.as_deref().filter(|_| this.keys.is_some()) {
            write_block(extension::KM_RESPONSE, km, &mut extensions);
            field |= extension_field::KM;
        }
        if let Ok(Some(settings)) = incoming.agree_on_filter(&config.packet_filter) {
            this.filter = settings.complete();
            write_text(extension::FILTER, &settings.to_string(), &mut extensions);
            field |= extension_field::CONFIG;
        }
        let answer = Handshake {
            version: VERSION_5,
            encryption: this.keys.as_ref().map_or(0, |keys| key_field(keys.length().bytes())),
            extension: field,
            flow_window: config.flow_window,
            request: request::CONCLUSION,
            socket: local,
            peer_ip: address_field(incoming.from().ip()),
            ..*asked
        };
        let timestamp = crate::incoming::micros(start, incoming.arrived);
        this.response = Some(handshake_datagram(timestamp, asked.socket, &answer, &extensions));
        this
    }

    /// Creates the parameters for a caller from the listener's answer.
    pub(super) fn of_answer(
        config: &Arc<Config>,
        answer: &Handshake,
        hs: &HsExtension,
        start: Instant,
        timestamp: u32,
        first_send: Seq,
        keys: Option<Box<SessionKeys>>,
    ) -> Self {
        let ms = |ms: u16| Duration::from_millis(u64::from(ms)).min(config.latency_max);
        Self {
            config: Arc::clone(config),
            start,
            peer: answer.socket,
            peer_version: hs.version,
            first_send,
            first_receive: answer.first_seq,
            mss: answer.mss,
            peer_window: answer.flow_window,
            receive_latency: ms(hs.send_latency_ms),
            send_latency: ms(hs.receive_latency_ms),
            heard: (0, timestamp),
            keys,
            filter: None,
            response: None,
        }
    }

    /// Adds a packet filter to the parameters.
    pub(super) fn with_filter(self, filter: Option<Fec>) -> Self {
        Self { filter, ..self }
    }

    /// Returns the connection, and the listener's handshake answer to send; the answer is empty for a caller.
    pub(super) fn finish(mut self, now: Instant) -> (Link, Bytes) {
        let now_us = micros(self.start, now);
        if self.response.is_none() {
            self.heard.0 = now_us;
        }
        // The peer derives our clock from the answer's timestamp, so the timestamp must be the time at which the answer
        // is sent.
        let response = self.response.take().map(|response| restamp(&response, now_us)).unwrap_or_default();
        let mss_payload = self.mss.saturating_sub(UDP_HEAD_BYTES);
        let mss_payload = usize::try_from(mss_payload).unwrap_or(usize::MAX).saturating_sub(HEAD_BYTES);
        let filter_head = if self.filter.is_some() { FILTER_HEAD_BYTES } else { 0 };
        let packet_max = mss_payload.min(PAYLOAD_MAX).saturating_sub(filter_head);
        let window = usize::try_from(self.config.flow_window).unwrap_or(usize::MAX);
        let is_first = self.first_send == self.first_receive && response.is_empty();
        let mut link = Link {
            sending: SendSide::new(self.first_send, &self.config, self.peer_window, now_us),
            receiving: ReceiveSide::new(
                self.first_receive,
                window,
                self.config.buffer_bytes,
                Tsbpd::new(self.heard.0, self.heard.1, self.receive_latency),
                now_us,
            ),
            keying: Keying::new(self.keys),
            liveness: Liveness::new(now_us, response.clone(), is_first),
            rtt: Rtt::new(),
            stats: Stats::default(),
            agreed: Agreed {
                peer: self.peer,
                peer_version: self.peer_version,
                clock: Clock::new(self.start),
                receive_latency: self.receive_latency,
                send_latency: self.send_latency,
                too_late_us: too_late_us(self.send_latency),
                payload_max: self.config.payload_size.min(packet_max),
                peer_window: self.config.flow_window.min(self.peer_window),
                config: self.config,
            },
        };
        if let Some(filter) = self.filter {
            let (first_send, first_receive) = (self.first_send, self.first_receive);
            link.sending.filter = Some(Box::new(FilterSender::new(filter, first_send)));
            link.receiving.filter = Some(Box::new(FilterReceiver::new(filter, first_receive)));
        }
        (link, response)
    }
}

fn too_late_us(send_latency: Duration) -> u32 {
    let latency = i64::try_from(send_latency.as_micros()).unwrap_or(0);
    let limit = latency.max(TOO_LATE_MIN_US).saturating_add(TOO_LATE_MARGIN_US);
    u32::try_from(limit).unwrap_or(u32::MAX / 2)
}

/// Copies the datagram and replaces its timestamp.
fn restamp(datagram: &Bytes, now_us: i64) -> Bytes {
    let (Some(head), Some(rest)) = (datagram.get(..8), datagram.get(12..)) else { return datagram.clone() };
    [head, &stamp(now_us).to_be_bytes(), rest].concat().into()
}

/// Converts a time to the 32-bit timestamp of packets.
pub(super) const fn stamp(now_us: i64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "timestamps wrap")]
    let stamp = now_us as u32;
    stamp
}

/// Results of the handshake and our settings. They do not change during the connection.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) config: Arc<Config>,
    pub(super) peer: SocketId,
    peer_version: u32,
    clock: Clock,
    receive_latency: Duration,
    send_latency: Duration,
    too_late_us: u32,
    pub(super) payload_max: usize,
    /// Maximum number of packets in flight that both sides allow.
    pub(super) peer_window: u32,
}

/// An established connection, described in the module. Its halves are in [`super::receive`] and [`super::send`].
#[derive(Debug)]
pub(super) struct Link {
    pub(super) agreed: Agreed,
    pub(super) sending: SendSide,
    pub(super) receiving: ReceiveSide,
    pub(super) keying: Keying,
    pub(super) liveness: Liveness,
    pub(super) rtt: Rtt,
    pub(super) stats: Stats,
}

impl Link {
    pub(super) fn micros(&self, now: Instant) -> i64 {
        self.agreed.clock.micros(now)
    }

    pub(super) fn instant(&self, us: i64) -> Instant {
        self.agreed.clock.instant(us)
    }

    pub(super) fn writer(&self, now: Instant) -> ControlWriter {
        ControlWriter { timestamp: stamp(self.micros(now)), to: self.agreed.peer }
    }

    pub(super) fn connected(&self) -> Connected {
        Connected {
            receive_latency: self.agreed.receive_latency,
            send_latency: self.agreed.send_latency,
            encryption: self.keying.keys.as_ref().map(|keys| keys.length()),
            payload_max: self.agreed.payload_max,
            peer_version: self.agreed.peer_version,
        }
    }

    pub(super) const fn send_latency(&self) -> Duration {
        self.agreed.send_latency
    }

    pub(super) const fn latencies(&self) -> (Duration, Duration) {
        (self.agreed.receive_latency, self.agreed.send_latency)
    }

    /// Returns the stored handshake answer if the packet is a repeated conclusion. Does not change the connection.
    pub(super) fn response(&self, now: Instant, packet: &Packet<'_>) -> Option<Bytes> {
        let Packet::Control { control: Control::Handshake(body), .. } = packet else { return None };
        let handshake = Handshake::read(&mut wire::Reader::new(body)).ok()?;
        let repeated = handshake.request == request::CONCLUSION && handshake.socket == self.agreed.peer;
        let now_us = self.micros(now);
        let response = self.liveness.response(now_us).filter(|_| repeated)?;
        Some(restamp(response, now_us))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let at = self.liveness.check_us;
        let at = self.receiving.deadline_us().map_or(at, |us| us.min(at));
        let at = self.instant(at);
        Some(self.sending.pace_at.map_or(at, |pace_at| pace_at.min(at)))
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        let now_us = self.micros(now);
        self.heard_of(now_us);
        if self.sending.pace_at.is_some_and(|at| at <= now) {
            self.sending.pace_at = None;
        }
        if now_us >= self.liveness.check_us {
            return self.check(now, now_us);
        }
        None
    }

    /// True if no received packet waits to be delivered, acknowledged or reported as missing, and no packet to be sent
    /// is held back by pacing. The connection's deadline is then no earlier than before the last input.
    pub(super) fn is_quiet(&self) -> bool {
        self.receiving.is_quiet() && self.sending.pace_at.is_none()
    }

    /// Advances the time of the connection to `now_us`. Messages that are due by `now_us` may be delivered.
    pub(super) fn heard_of(&mut self, now_us: i64) {
        self.liveness.horizon_us = self.liveness.horizon_us.max(now_us);
        self.receiving.due_us = self.receiving.due_us.max(now_us);
    }

    fn check(&mut self, now: Instant, now_us: i64) -> Option<CloseReason> {
        let idle_us = i64::try_from(self.agreed.config.peer_idle.as_micros()).unwrap_or(i64::MAX / 4);
        if now_us.saturating_sub(self.liveness.heard_us) >= idle_us {
            return Some(CloseReason::Idle);
        }
        self.liveness.look(now_us);
        self.drop_too_late(now_us);
        if self.sending.buffer.in_flight() > 0
            && now_us.saturating_sub(self.sending.progress_us) >= self.sending.probe_pause_us
        {
            if self.sends_again() {
                self.sending.buffer.probe();
            }
            self.sending.progress_us = now_us;
            self.sending.probe_pause_us = self.sending.probe_pause_us.saturating_mul(2).min(KEEP_ALIVE_US);
        }
        self.announce_keys(now);
        let mut next = self.liveness.next_us(idle_us);
        if self.sending.buffer.in_flight() > 0 {
            next = next.min(self.sending.progress_us.saturating_add(self.sending.probe_pause_us));
        }
        if let Some(at) = self.keying.announce_at(now, self.announce_pause()) {
            next = next.min(self.micros(at));
        }
        self.liveness.check_us = next.max(now_us.saturating_add(CHECK_MIN_US));
        None
    }

    fn announce_pause(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt.us()).saturating_mul(3) / 2).max(ANNOUNCE_MIN)
    }

    pub(super) fn announce_keys(&mut self, now: Instant) {
        self.keying.announce(now, self.announce_pause());
    }

    pub(super) fn refresh(&self) -> Refresh {
        Refresh {
            packets: self.agreed.config.key_refresh_packets,
            announce: self.agreed.config.key_announce_packets,
        }
    }

    /// Age above which a packet is too late to be sent, in microseconds.
    pub(super) const fn too_late_us(&self) -> u32 {
        self.agreed.too_late_us
    }

    pub(super) const fn probe_us(&self) -> i64 {
        let rtt = self.rtt.us() as i64 + 4 * self.rtt.var_us() as i64 + 20_000;
        if rtt > PROBE_MIN_US { rtt } else { PROBE_MIN_US }
    }

    pub(super) const fn count_malformed(&mut self) {
        self.stats.pkt_recv_malformed = self.stats.pkt_recv_malformed.saturating_add(1);
    }

    pub(super) fn stats(&self) -> Stats {
        let capped = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let ms = |latency: Duration| u32::try_from(latency.as_millis()).unwrap_or(u32::MAX);
        let bandwidth = self.sending.bandwidth_packets.max(self.receiving.rate.bandwidth());
        Stats {
            ms_rtt: f64::from(self.rtt.us()) / 1000.0,
            ms_rtt_var: f64::from(self.rtt.var_us()) / 1000.0,
            mbps_bandwidth: f64::from(bandwidth) * 1500.0 * 8.0 / 1e6,
            pkt_flight_size: capped(self.sending.buffer.in_flight()),
            pkt_snd_buf: capped(self.sending.buffer.len()),
            byte_snd_buf: wide(self.sending.buffer.bytes()),
            ms_snd_buf: self.sending.buffer.age_us(stamp(self.liveness.horizon_us)) / 1000,
            pkt_rcv_buf: self.receiving.buffer.end().ahead_of(self.receiving.buffer.base()).unwrap_or(0),
            byte_rcv_buf: wide(self.receiving.buffer.bytes()),
            ms_rcv_tsb_pd_delay: ms(self.agreed.receive_latency),
            ms_snd_tsb_pd_delay: ms(self.agreed.send_latency),
            us_drift: self.receiving.tsbpd.drift_us(),
            km_refreshes: self.keying.keys.as_ref().map_or(0, |keys| keys.refreshes()),
            ..self.stats
        }
    }
}
