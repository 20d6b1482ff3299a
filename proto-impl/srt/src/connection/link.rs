//! An established connection: what both directions share, and its deadlines.
//!
//! Times inside are microseconds since the start; timestamps are their lower 32 bits.
//!
//! Deadlines of two kinds. Those of the receiving direction (delivery, acknowledgement, loss report) move with the
//! packets. Everything else, keep-alive, silence, too-late packets, probes, key messages, is looked at by one lazy check:
//! it fires, looks, and is armed again for the earliest that could happen. Acknowledgements and packets do not move it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::arq::losses::Losses;
use crate::arq::receive::ReceiveBuffer;
use crate::arq::rtt::Rtt;
use crate::arq::send::SendBuffer;
use crate::arq::tsbpd::Tsbpd;
use crate::cipher::{Refresh, SessionKeys};
use crate::config::{Config, HEAD_BYTES, UDP_HEAD_BYTES};
use crate::congestion::Congestion;
use crate::connection::call::key_field;
use crate::connection::handshake_datagram;
use crate::event::{CloseReason, Connected};
use crate::handshake::{
    Handshake, HsExtension, SRT_VERSION, VERSION_5, address_field, extension, extension_field, flag, request,
    wire_latency, write_block,
};
use crate::incoming::Incoming;
use crate::pacing::{Overhead, Pacer};
use crate::packet::{Control, ControlWriter, Packet, SocketId};
use crate::seq::Seq;
use crate::stats::Stats;

/// A keep-alive is sent after this time without sending (draft-sharabayko-srt-01 §3.2.3).
const KEEP_ALIVE_US: i64 = 1_000_000;
/// The answer to a conclusion is kept so long, for a caller that did not get it.
const RESPONSE_KEPT_US: i64 = 5_000_000;
/// A packet is given up after the latency, but not before this (libsrt: `SRT_TLPKTDROP_MINTHRESHOLD_MS`).
const TOO_LATE_MIN_US: i64 = 1_000_000;
/// The margin added to it (libsrt: two intervals of ACK).
const TOO_LATE_MARGIN_US: i64 = 20_000;
/// Without an acknowledgement for this long the last packet is retransmitted.
const PROBE_MIN_US: i64 = 250_000;
/// The check is not armed earlier than this.
pub(super) const CHECK_MIN_US: i64 = 1_000;
/// Key messages are not repeated faster.
const TELL_MIN: Duration = Duration::from_millis(50);
/// Payload of the largest packet there is.
pub(super) const PAYLOAD_MAX: usize = 1500 - 28 - HEAD_BYTES;

/// The parameters agreed in the handshake.
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
    /// When the peer's handshake came, and its timestamp.
    heard: (i64, u32),
    keys: Option<Box<SessionKeys>>,
    response: Option<Bytes>,
}

impl Start {
    /// For a listener: the latencies are the larger of both proposals (draft-sharabayko-srt-01 §4.3.1.2), and the answer
    /// repeats them. The first number is the caller's in both directions.
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

    /// For a caller: the parameters of the listener's answer.
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
            response: None,
        }
    }

    /// The connection, and the answer to send (empty for a caller).
    pub(super) fn finish(mut self, now: Instant) -> (Link, Bytes) {
        let now_us = micros(self.start, now);
        if self.response.is_none() {
            self.heard.0 = now_us;
        }
        // The answer's timestamp is the peer's idea of our clock: it must be that of its sending.
        let response = self.response.take().map(|response| restamp(&response, now_us)).unwrap_or_default();
        let mss_payload = self.mss.saturating_sub(UDP_HEAD_BYTES);
        let mss_payload = usize::try_from(mss_payload).unwrap_or(usize::MAX).saturating_sub(HEAD_BYTES);
        let window = usize::try_from(self.config.flow_window).unwrap_or(usize::MAX);
        let link = Link {
            peer: self.peer,
            peer_version: self.peer_version,
            start: self.start,
            receive_latency: self.receive_latency,
            send_latency: self.send_latency,
            payload_max: self.config.payload_size.min(mss_payload).min(PAYLOAD_MAX),
            peer_window: self.config.flow_window.min(self.peer_window),
            window: self.config.flow_window.min(self.peer_window),
            sender: SendBuffer::new(self.first_send),
            overhead: Overhead::new(self.config.overhead_percent),
            pacer: Pacer::new(self.config.max_bandwidth),
            congestion: None,
            pace_at: None,
            drops: Vec::new(),
            progress_us: now_us,
            probe_pause_us: PROBE_MIN_US,
            ackack: None,
            ackacks: 0,
            ackack_us: i64::MIN / 2,
            receiver: ReceiveBuffer::new(self.first_receive, window, self.config.buffer_bytes),
            losses: Losses::default(),
            tsbpd: Tsbpd::new(self.heard.0, self.heard.1, self.receive_latency),
            acks: Acks::new(self.first_receive),
            rate: Rate::default(),
            jump: None,
            skipped: 0,
            horizon_us: now_us,
            due_us: now_us,
            keys: self.keys,
            rtt: Rtt::new(),
            tell: None,
            reply: None,
            response: Some(response.clone()).filter(|response| !response.is_empty()),
            response_until_us: now_us.saturating_add(RESPONSE_KEPT_US),
            heard_us: now_us,
            spoken_us: now_us,
            keep_alive: self.first_send == self.first_receive && response.is_empty(),
            check_us: now_us.saturating_add(KEEP_ALIVE_US),
            stats: Stats::default(),
            bandwidth_packets: 0,
            config: self.config,
        };
        (link, response)
    }
}

/// A copy of the datagram with another timestamp.
fn restamp(datagram: &Bytes, now_us: i64) -> Bytes {
    let (Some(head), Some(rest)) = (datagram.get(..8), datagram.get(12..)) else { return datagram.clone() };
    [head, &stamp(now_us).to_be_bytes(), rest].concat().into()
}

/// Microseconds from `start`.
pub(super) fn micros(start: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(start).as_micros()).unwrap_or(i64::MAX / 4)
}

/// A time as a timestamp.
pub(super) const fn stamp(now_us: i64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "timestamps wrap")]
    let stamp = now_us as u32;
    stamp
}

/// Acknowledgements that we send.
#[derive(Debug)]
pub(super) struct Acks {
    pub(super) number: u32,
    pub(super) last: Seq,
    pub(super) last_us: i64,
    pub(super) confirmed: Seq,
    pub(super) due_us: Option<i64>,
    /// Numbers and times of those that may be answered.
    pub(super) sent: VecDeque<(u32, i64, Seq)>,
    pub(super) repeats: u32,
    pub(super) packets_since: u32,
    pub(super) light: bool,
}

impl Acks {
    const fn new(first: Seq) -> Self {
        Self {
            number: 0,
            last: first,
            last_us: 0,
            confirmed: first,
            due_us: None,
            sent: VecDeque::new(),
            repeats: 0,
            packets_since: 0,
            light: false,
        }
    }
}

/// The receive rate per second.
#[derive(Debug, Default)]
pub(super) struct Rate {
    pub(super) since_us: i64,
    pub(super) packets: u32,
    pub(super) bytes: u32,
    pub(super) packets_per_second: u32,
    pub(super) bytes_per_second: u32,
    /// Arrival of the first packet of a probing pair.
    pub(super) pair: Option<(Seq, i64)>,
    /// Smoothed time between the packets of a pair.
    pub(super) pair_us: u32,
}

/// See the module. Its halves are in [`super::receive`] and [`super::send`].
#[derive(Debug)]
pub(super) struct Link {
    pub(super) config: Arc<Config>,
    pub(super) peer: SocketId,
    peer_version: u32,
    start: Instant,
    receive_latency: Duration,
    send_latency: Duration,
    pub(super) payload_max: usize,
    /// Packets that both sides allow on the way.
    pub(super) peer_window: u32,
    /// The flow window, or the room that the peer announced last.
    pub(super) window: u32,

    pub(super) sender: SendBuffer,
    pub(super) overhead: Overhead,
    pub(super) pacer: Pacer,
    /// Once something was sent, where it is to be adapted.
    pub(super) congestion: Option<Box<Congestion>>,
    pub(super) pace_at: Option<Instant>,
    /// Packets given up, to be reported to the peer.
    pub(super) drops: Vec<(Seq, Seq)>,
    pub(super) progress_us: i64,
    pub(super) probe_pause_us: i64,
    pub(super) ackack: Option<u32>,
    pub(super) ackacks: u32,
    pub(super) ackack_us: i64,
    pub(super) bandwidth_packets: u32,

    pub(super) receiver: ReceiveBuffer,
    pub(super) losses: Losses,
    pub(super) tsbpd: Tsbpd,
    pub(super) acks: Acks,
    pub(super) rate: Rate,
    /// A packet that is out of reach: if its successors come too, the stream goes on there.
    pub(super) jump: Option<Seq>,
    pub(super) skipped: u32,
    /// The newest time that was heard of.
    pub(super) horizon_us: i64,
    /// The time up to which messages that are due may be delivered. It moves with what events follow on, and not with what is sent: messages that
    /// become due then have their deadline.
    pub(super) due_us: i64,

    pub(super) keys: Option<Box<SessionKeys>>,
    pub(super) rtt: Rtt,
    /// Key material to send, and to send back.
    pub(super) tell: Option<Bytes>,
    pub(super) reply: Option<Bytes>,
    response: Option<Bytes>,
    response_until_us: i64,
    pub(super) heard_us: i64,
    pub(super) spoken_us: i64,
    pub(super) keep_alive: bool,
    check_us: i64,
    pub(super) stats: Stats,
}

impl Link {
    pub(super) fn micros(&self, now: Instant) -> i64 {
        micros(self.start, now)
    }

    pub(super) fn instant(&self, us: i64) -> Instant {
        self.start + Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }

    pub(super) fn writer(&self, now: Instant) -> ControlWriter {
        ControlWriter { timestamp: stamp(self.micros(now)), to: self.peer }
    }

    pub(super) fn connected(&self) -> Connected {
        Connected {
            receive_latency: self.receive_latency,
            send_latency: self.send_latency,
            encryption: self.keys.as_ref().map(|keys| keys.length()),
            payload_max: self.payload_max,
            peer_version: self.peer_version,
        }
    }

    pub(super) const fn send_latency(&self) -> Duration {
        self.send_latency
    }

    pub(super) const fn latencies(&self) -> (Duration, Duration) {
        (self.receive_latency, self.send_latency)
    }

    /// The answer to a conclusion that is repeated. It changes nothing else.
    pub(super) fn response(&self, now: Instant, packet: &Packet<'_>) -> Option<Bytes> {
        let Packet::Control { control: Control::Handshake(body), .. } = packet else { return None };
        let handshake = Handshake::read(&mut wire::Reader::new(body)).ok()?;
        let repeated = handshake.request == request::CONCLUSION && handshake.socket == self.peer;
        let now_us = self.micros(now);
        let response = self.response.as_ref().filter(|_| repeated && now_us < self.response_until_us)?;
        Some(restamp(response, now_us))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let mut at = self.check_us;
        // A packet that is due already waits for its owner, not for a time.
        let delivery = self.next_delivery_us().filter(|us| *us > self.due_us);
        for us in [self.acks.due_us, self.losses.next_at(), delivery].into_iter().flatten() {
            at = at.min(us);
        }
        let at = self.instant(at);
        Some(self.pace_at.map_or(at, |pace_at| pace_at.min(at)))
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<CloseReason> {
        let now_us = self.micros(now);
        self.heard_of(now_us);
        if self.pace_at.is_some_and(|at| at <= now) {
            self.pace_at = None;
        }
        if now_us >= self.check_us {
            return self.check(now, now_us);
        }
        None
    }

    /// The time moves on, and events are polled next.
    pub(super) fn heard_of(&mut self, now_us: i64) {
        self.horizon_us = self.horizon_us.max(now_us);
        self.due_us = self.due_us.max(now_us);
    }

    fn check(&mut self, now: Instant, now_us: i64) -> Option<CloseReason> {
        let idle_us = i64::try_from(self.config.peer_idle.as_micros()).unwrap_or(i64::MAX / 4);
        if now_us.saturating_sub(self.heard_us) >= idle_us {
            return Some(CloseReason::Idle);
        }
        if now_us.saturating_sub(self.spoken_us) >= KEEP_ALIVE_US {
            self.keep_alive = true;
            self.spoken_us = now_us;
        }
        if now_us >= self.response_until_us {
            self.response = None;
        }
        self.drop_too_late(now_us);
        if self.sender.in_flight() > 0 && now_us.saturating_sub(self.progress_us) >= self.probe_pause_us {
            self.sender.probe();
            self.progress_us = now_us;
            self.probe_pause_us = self.probe_pause_us.saturating_mul(2).min(KEEP_ALIVE_US);
        }
        self.tell_keys(now);
        let mut next = self.heard_us.saturating_add(idle_us);
        next = next.min(self.spoken_us.saturating_add(KEEP_ALIVE_US));
        if self.sender.in_flight() > 0 {
            next = next.min(self.progress_us.saturating_add(self.probe_pause_us));
        }
        if let Some(at) = self.keys.as_ref().and_then(|keys| keys.tell_at(now, self.tell_pause())) {
            next = next.min(self.micros(at));
        }
        self.check_us = next.max(now_us.saturating_add(CHECK_MIN_US));
        None
    }

    /// Something may have to happen by then.
    pub(super) fn check_by(&mut self, us: i64) {
        self.check_us = self.check_us.min(us);
    }

    fn tell_pause(&self) -> Duration {
        Duration::from_micros(u64::from(self.rtt.us()).saturating_mul(3) / 2).max(TELL_MIN)
    }

    pub(super) fn tell_keys(&mut self, now: Instant) {
        let pause = self.tell_pause();
        if let Some(message) = self.keys.as_mut().and_then(|keys| keys.tell(now, pause)) {
            self.tell = Some(message);
        }
    }

    pub(super) fn refresh(&self) -> Refresh {
        Refresh { packets: self.config.key_refresh_packets, announce: self.config.key_announce_packets }
    }

    pub(super) fn too_late_us(&self) -> i64 {
        let latency = i64::try_from(self.send_latency.as_micros()).unwrap_or(0);
        latency.max(TOO_LATE_MIN_US).saturating_add(TOO_LATE_MARGIN_US)
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
        let bandwidth = self.bandwidth_packets.max(self.rate.bandwidth());
        Stats {
            ms_rtt: f64::from(self.rtt.us()) / 1000.0,
            ms_rtt_var: f64::from(self.rtt.var_us()) / 1000.0,
            mbps_bandwidth: f64::from(bandwidth) * 1500.0 * 8.0 / 1e6,
            pkt_flight_size: capped(self.sender.in_flight()),
            pkt_snd_buf: capped(self.sender.len()),
            byte_snd_buf: wide(self.sender.bytes()),
            ms_snd_buf: self.sender.age_us(stamp(self.horizon_us)) / 1000,
            pkt_rcv_buf: self.receiver.end().ahead_of(self.receiver.base()).unwrap_or(0),
            byte_rcv_buf: wide(self.receiver.bytes()),
            ms_rcv_tsb_pd_delay: ms(self.receive_latency),
            ms_snd_tsb_pd_delay: ms(self.send_latency),
            us_drift: self.tsbpd.drift_us(),
            km_refreshes: self.keys.as_ref().map_or(0, |keys| keys.refreshes()),
            ..self.stats
        }
    }
}
