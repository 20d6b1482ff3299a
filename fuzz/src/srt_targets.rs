//! SRT: packets, handshakes, key material, and two ends with a hostile network between them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use srt::handshake::{Extensions, Handshake};
use srt::packet::{ControlWriter, Packet};
use srt::{
    CloseReason, Config, Connection, Endpoint, Event, KeyMaterial, Passphrase, RejectReason, Route, SocketId,
    streamid,
};
use wire::{Datagrams, Reader};

use crate::http_targets::epoch;
use crate::srt_hostile::{PASSPHRASE, Seen};

/// Reads a datagram. After it is written, it must read the same.
pub fn srt_packet(data: &[u8]) {
    let Ok(packet) = Packet::read(data) else { return };
    let mut again = Vec::new();
    match &packet {
        Packet::Data(head, payload) => {
            again.extend_from_slice(&head.write());
            again.extend_from_slice(payload);
            assert_eq!(again, data, "a data packet has one spelling");
        }
        Packet::Control { timestamp, to, control } => {
            if let srt::packet::Control::Nak(losses) = control {
                assert!(losses.clone().count() <= data.len() / 4);
            }
            ControlWriter { timestamp: *timestamp, to: *to }.write(control, &mut again);
        }
    }
    assert_eq!(Packet::read(&again).as_ref(), Ok(&packet));
}

/// Reads a handshake as a port and as a caller do, and as a stream id. The first byte is the last byte of the
/// sender's address.
pub fn srt_handshake(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let now = epoch();
    let mut r = Reader::new(data);
    if let Ok(handshake) = Handshake::read(&mut r) {
        let mut again = Vec::new();
        handshake.write(&mut again);
        assert_eq!(Handshake::read(&mut Reader::new(&again)), Ok(handshake));
        if let Ok(Extensions { stream_id: Some(id), .. }) = Extensions::read(r) {
            assert!(!id.is_empty() && id.len() <= 512 && !id.chars().any(char::is_control));
            let _ = streamid::parse(&id);
        }
    }
    let mut packet = vec![0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    packet.extend_from_slice(data);
    // The secret depends on the input. With a fixed one, a fuzzer that sees both sides of a comparison would learn
    // the 32-bit cookie.
    let secret =
        data.iter().fold(1, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let mut port: Endpoint<u8> = Endpoint::new(now, &Seed::from_number(secret));
    let from = SocketAddr::from(([192, 0, 2, *first], 1));
    let mut reply = Vec::new();
    let route = port.route(now, from, &packet, &mut reply);
    assert!(reply.len() <= packet.len(), "amplification");
    assert!(!matches!(route, Route::New(_) | Route::Session(_)), "a cookie was guessed");
    let mut caller = Connection::caller(now, config(*first), SocketId(1), "live/a", &Seed::from_number(2));
    packet[15] = 1;
    caller.handle_datagram(now, &packet);
    caller.handle_datagram(now, &packet);
    settle(&mut caller, now);
}

/// Handles key material in the handshake of a listener, with and without a valid structure, and after the
/// handshake.
pub fn srt_km(data: &[u8]) {
    if let Ok(km) = KeyMaterial::read(data) {
        assert!([16, 24, 32].contains(&km.key_length().bytes()));
    }
    let mut ends = Ends::new(1);
    ends.connect();
    for subtype in [3, 4] {
        let body = srt::packet::Control::User(subtype, data);
        let mut out = Vec::new();
        ControlWriter { timestamp: 0, to: SocketId(2) }.write(&body, &mut out);
        for end in [Some(&mut ends.caller), ends.listener.as_mut()].into_iter().flatten() {
            end.handle_datagram(ends.now, &out);
            settle(end, ends.now);
            assert!(end.is_connected(), "a key message ended a connection");
        }
    }
    ends.pass_message(7);
}

/// Runs two ends. The first byte sets passphrases, a key that changes soon and a packet filter. Each further byte
/// is an operation: on the next datagram, on the clock, by the application, or a forgery.
pub fn srt_conn(data: &[u8]) {
    let Some((flags, operations)) = data.split_first() else { return };
    let mut ends = Ends::new(*flags);
    let mut operations = operations.iter().copied().take(2000);
    while let Some(operation) = operations.next() {
        if operation & 0x7f >= FORGERIES {
            ends.forge(operation, &mut operations);
            ends.check();
            continue;
        }
        let argument = if operation & 0x80 == 0 { 0 } else { operations.next().unwrap_or(0) };
        ends.operate(operation & 0x7f, argument);
        ends.check();
    }
    ends.finish();
}

/// Packet filters, chosen by the upper three bits of the flags.
const FILTERS: [&str; 8] = [
    "any",
    "off",
    "fec,cols:3",
    "fec,cols:3,rows:2,layout:even,arq:always",
    "fec,cols:2,rows:3,layout:staircase,arq:never",
    "fec,cols:4,rows:-2,layout:staircase",
    "fec,cols:5,rows:3,layout:even,arq:onreq",
    "fec,cols:255,rows:8,layout:staircase",
];

fn config(flags: u8) -> Arc<Config> {
    let passphrase = (flags & 1 != 0).then(|| Passphrase::new(PASSPHRASE).ok()).flatten();
    let (key_refresh_packets, key_announce_packets) =
        if flags & 2 == 0 { (1 << 24, 1 << 12) } else { (20, 5) };
    let max_bandwidth = (flags & 4 != 0).then_some(100_000);
    let (flow_window, buffer_bytes) = if flags & 8 == 0 { (25_600, 1 << 24) } else { (32, 2000) };
    let config = Config::default();
    Arc::new(Config {
        passphrase,
        key_refresh_packets,
        key_announce_packets,
        max_bandwidth,
        adapts: flags & 16 != 0,
        flow_window,
        buffer_bytes,
        packet_filter: FILTERS[usize::from(flags >> 5)].parse().expect("each is one"),
        ..config
    })
}

/// Takes all events and datagrams of a connection. There must be finitely many, and then no deadline in the past.
fn settle(connection: &mut Connection, now: Instant) {
    let mut out = Datagrams::new();
    for _ in 0..64 {
        while connection.poll_event().is_some() {}
        if !connection.poll_transmit(now, &mut out) {
            break;
        }
        out.clear();
    }
}

struct Ends {
    now: Instant,
    port: Endpoint<()>,
    config: Arc<Config>,
    caller: Connection,
    listener: Option<Connection>,
    /// Datagrams in flight, to the port and to the caller.
    to_port: Vec<Bytes>,
    to_caller: Vec<Bytes>,
    sent: u32,
    received: Option<u32>,
    closed: [bool; 2],
    damaged: bool,
    seen: Seen,
}

const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
/// First operation that is a forgery. The bit 8 says to which end it is sent, the lower bits its kind.
const FORGERIES: u8 = 0x70;
/// Maximum number of datagrams in flight in one direction.
const QUEUE_MAX: usize = 256;

impl Ends {
    fn new(flags: u8) -> Self {
        let (now, config) = (epoch(), config(flags));
        let caller =
            Connection::caller(now, Arc::clone(&config), SocketId(1), "live/a", &Seed::from_number(3));
        Self {
            now,
            port: Endpoint::new(now, &Seed::from_number(1)),
            caller,
            listener: None,
            to_port: Vec::new(),
            to_caller: Vec::new(),
            sent: 0,
            received: None,
            closed: [false; 2],
            damaged: false,
            seen: Seen::default(),
            config,
        }
    }

    fn connect(&mut self) {
        for _ in 0..8 {
            self.drain();
            (0..4).for_each(|_| self.deliver(true, 0));
            (0..4).for_each(|_| self.deliver(false, 0));
        }
    }

    fn pass_message(&mut self, count: u32) {
        (0..count).for_each(|_| self.send());
        for _ in 0..40 {
            self.operate(4, 20);
            (0..16).for_each(|_| self.deliver(true, 0));
            (0..16).for_each(|_| self.deliver(false, 0));
        }
        assert_eq!(self.received, Some(count - 1), "the stream stopped");
    }

    fn operate(&mut self, operation: u8, argument: u8) {
        let at = usize::from(argument);
        match operation % 14 {
            0..=2 => self.send(),
            3 => (0..4).for_each(|_| self.deliver(true, 0)),
            4 => {
                self.now += Duration::from_millis(u64::from(argument));
                self.timeouts();
            }
            5 => self.deliver(true, at),
            6 => self.deliver(false, at),
            7 => lose(&mut self.to_port, at),
            8 => lose(&mut self.to_caller, at),
            9 => double(&mut self.to_port, at),
            10 => double(&mut self.to_caller, at),
            11 => {
                self.damage(argument, true);
            }
            12 => {
                self.damage(argument, false);
            }
            _ => match argument {
                0 => self.caller.close(self.now, CloseReason::Local),
                1 => {
                    if let Some(listener) = &mut self.listener {
                        listener.close(self.now, CloseReason::Local);
                    }
                }
                2 => self.timeouts(),
                n => self.now += Duration::from_secs(u64::from(n) / 8),
            },
        }
        self.drain();
    }

    fn send(&mut self) {
        if self.caller.send(self.now, Bytes::copy_from_slice(&self.sent.to_be_bytes())).is_ok() {
            self.sent += 1;
        }
    }

    fn damage(&mut self, argument: u8, to_port: bool) {
        let queue = if to_port { &mut self.to_port } else { &mut self.to_caller };
        let Some(first) = queue.first_mut() else { return };
        let mut bytes = first.to_vec();
        let at = usize::from(argument) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << (argument % 8);
        }
        if argument & 0x40 != 0 {
            bytes.truncate(at);
        }
        *first = bytes.into();
        self.damaged = true;
    }

    /// Forges a datagram, which overtakes all datagrams in flight.
    fn forge(&mut self, operation: u8, bytes: &mut impl Iterator<Item = u8>) {
        let to_port = operation & 8 == 0;
        let forged = self.seen.forge(operation, if to_port { 2 } else { 1 }, bytes);
        self.damaged |= forged.harms_payload;
        let queue = if to_port { &mut self.to_port } else { &mut self.to_caller };
        queue.insert(0, forged.datagram.into());
        self.deliver(to_port, 0);
        self.drain();
    }

    fn timeouts(&mut self) {
        for connection in [Some(&mut self.caller), self.listener.as_mut()].into_iter().flatten() {
            // A timeout that comes early must be harmless.
            connection.handle_timeout(self.now);
        }
        self.drain();
        for connection in [Some(&self.caller), self.listener.as_ref()].into_iter().flatten() {
            assert!(connection.poll_timeout().is_none_or(|at| at > self.now), "a deadline that stays");
        }
    }

    fn deliver(&mut self, to_port: bool, at: usize) {
        let queue = if to_port { &mut self.to_port } else { &mut self.to_caller };
        if queue.is_empty() {
            return;
        }
        let datagram = queue.remove(at % queue.len());
        if !to_port {
            return self.caller.handle_datagram(self.now, &datagram);
        }
        let mut reply = Vec::new();
        match self.port.route(self.now, FROM, &datagram, &mut reply) {
            Route::Session(()) => {
                if let Some(listener) = &mut self.listener {
                    listener.handle_datagram(self.now, &datagram);
                }
            }
            Route::New(incoming) => {
                if self.port.insert(SocketId(2), FROM, incoming.peer_socket(), ()) {
                    let seed = Seed::from_number(4);
                    let mut listener = Connection::incoming(self.now, *incoming, SocketId(2), &seed);
                    listener.accept(self.now, Arc::clone(&self.config));
                    self.listener = Some(listener);
                } else {
                    incoming.reject(self.now, RejectReason::RESOURCE, &mut reply);
                }
            }
            Route::Reply | Route::Drop(_) => {}
        }
        assert!(reply.len() <= datagram.len(), "amplification");
        if !reply.is_empty() {
            self.to_caller.push(reply.into());
        }
    }

    fn drain(&mut self) {
        let mut out = Datagrams::new();
        let ends = [
            (Some(&mut self.caller), &mut self.to_port, 0),
            (self.listener.as_mut(), &mut self.to_caller, 1),
        ];
        for (connection, queue, index) in ends {
            let Some(connection) = connection else { continue };
            while let Some(event) = connection.poll_event() {
                assert!(!self.closed[index], "{event:?} after the end");
                match event {
                    Event::Closed(_) => self.closed[index] = true,
                    Event::Payload(payload) if index == 1 && !self.damaged => {
                        let number = u32::from_be_bytes(payload[..].try_into().unwrap_or_default());
                        assert!(number < self.sent && self.received.is_none_or(|last| last < number));
                        self.received = Some(number);
                    }
                    _ => {}
                }
            }
            let mut turns = 0;
            while connection.poll_transmit(self.now, &mut out) {
                for datagram in (0..out.len()).map(|n| out.get(n)) {
                    self.seen.note(datagram);
                    queue.push(Bytes::copy_from_slice(datagram));
                }
                out.clear();
                turns += 1;
                assert!(turns < 1000, "it never stops sending");
            }
            // A full network loses datagrams.
            queue.truncate(QUEUE_MAX);
        }
    }

    fn check(&self) {
        for connection in [Some(&self.caller), self.listener.as_ref()].into_iter().flatten() {
            let stats = connection.stats();
            assert!(connection.queued_bytes() <= self.config.buffer_bytes);
            assert!(stats.byte_rcv_buf <= self.config.buffer_bytes as u64);
            assert!(
                stats.pkt_rcv_buf <= self.config.flow_window && stats.pkt_snd_buf <= self.config.flow_window
            );
            assert!(stats.byte_retrans <= stats.byte_sent_unique / 4 + 64 * 1024);
        }
    }

    /// Lets time pass without datagrams. Both connections must then end.
    fn finish(&mut self) {
        (self.to_port, self.to_caller) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            let deadlines = [Some(&self.caller), self.listener.as_ref()].into_iter().flatten();
            let Some(at) = deadlines.filter_map(Connection::poll_timeout).min() else { break };
            self.now = self.now.max(at);
            self.timeouts();
        }
        assert!(self.closed[0], "the caller never ends");
        assert!(self.listener.is_none() || self.closed[1], "the listener never ends");
    }
}

fn lose(queue: &mut Vec<Bytes>, at: usize) {
    if !queue.is_empty() {
        queue.remove(at % queue.len());
    }
}

fn double(queue: &mut Vec<Bytes>, at: usize) {
    if let Some(datagram) = queue.get(at % queue.len().max(1)).cloned() {
        queue.push(datagram);
    }
}
