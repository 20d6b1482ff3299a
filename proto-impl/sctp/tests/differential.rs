//! Interoperability with another implementation, the crate `sctp-proto`, over a lossy path, with either end starting.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use netsim::{Clock, Link, ms, secs};
use sctp::{Association, ChannelId, Config, Event, Kind, Options, Reliability, Remote, Role};
use sctp_proto as other;

/// The other implementation, as a state machine.
struct Other {
    endpoint: other::Endpoint,
    association: Option<(other::AssociationHandle, other::Association)>,
    out: VecDeque<Bytes>,
    connected: bool,
    messages: Vec<(u16, u32, Bytes)>,
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), port)
}

impl Other {
    fn new() -> Self {
        let server = Arc::new(other::ServerConfig::default());
        let endpoint = other::Endpoint::new(Arc::default(), Some(server));
        Self { endpoint, association: None, out: VecDeque::new(), connected: false, messages: Vec::new() }
    }

    fn connect(&mut self) {
        self.association = Some(self.endpoint.connect(other::ClientConfig::default(), address(1)).unwrap());
    }

    fn handle(&mut self, now: Instant, packet: &[u8]) {
        match self.endpoint.handle(now, address(1), None, None, Bytes::copy_from_slice(packet)) {
            Some((_, other::DatagramEvent::NewAssociation(association))) => {
                let handle = other::AssociationHandle(0);
                self.association = Some((handle, association));
            }
            Some((_, other::DatagramEvent::AssociationEvent(event))) => {
                self.association.as_mut().unwrap().1.handle_event(event);
            }
            None => {}
        }
    }

    fn drain(&mut self, now: Instant) {
        let take = |out: &mut VecDeque<Bytes>, transmit: other::Transmit| {
            if let other::Payload::RawEncode(parts) = transmit.payload {
                out.extend(parts);
            }
        };
        while let Some(transmit) = self.endpoint.poll_transmit() {
            take(&mut self.out, transmit);
        }
        let Some((_, association)) = &mut self.association else { return };
        while let Some(event) = association.poll() {
            match event {
                other::Event::Connected => self.connected = true,
                other::Event::Stream(other::StreamEvent::Readable { id }) => {
                    let mut stream = association.stream(id).unwrap();
                    while let Ok(Some(chunks)) = stream.read() {
                        let mut bytes = vec![0; chunks.len()];
                        let length = chunks.read(&mut bytes).unwrap();
                        bytes.truncate(length);
                        self.messages.push((id, chunks.ppi as u32, bytes.into()));
                    }
                }
                _ => {}
            }
        }
        while let Some(transmit) = association.poll_transmit(now) {
            take(&mut self.out, transmit);
        }
    }

    fn timeout(&mut self) -> Option<Instant> {
        self.association.as_mut()?.1.poll_timeout()
    }
}

struct Pair {
    clock: Clock,
    ours: Association,
    other: Other,
    to_other: Link,
    to_ours: Link,
    events: Vec<Event>,
}

impl Pair {
    fn new(seed: u64, links: impl Fn(Link) -> Link) -> Self {
        let clock = Clock::new();
        let seeds = Seed::from_number(seed);
        let config = Arc::new(Config::default());
        let remote = Remote { message_bytes_max: 0, ..Remote::default() };
        let ours = Association::new(clock.now(), config, Role::Client, remote, &seeds);
        let link = |n| links(Link::new(&seeds.derive("link", n)));
        let (to_other, to_ours) = (link(1), link(2));
        Self { clock, ours, other: Other::new(), to_other, to_ours, events: Vec::new() }
    }

    /// Delivers all packets that are due now, and the answers to them.
    fn step(&mut self) {
        while self.send() {
            self.deliver();
        }
    }

    /// Returns true if something was sent or has arrived.
    fn send(&mut self) -> bool {
        let now = self.clock.now();
        let mut packet = Vec::new();
        while self.ours.poll_transmit(now, &mut packet) {
            self.to_other.send(now, Bytes::copy_from_slice(&packet));
        }
        self.other.drain(now);
        while let Some(packet) = self.other.out.pop_front() {
            self.to_ours.send(now, packet);
        }
        [self.to_ours.next_at(), self.to_other.next_at()].into_iter().flatten().any(|at| at <= now)
    }

    fn deliver(&mut self) {
        let now = self.clock.now();
        while let Some(packet) = self.to_other.poll_delivery(now) {
            self.other.handle(now, &packet);
            self.other.drain(now);
        }
        while let Some(packet) = self.to_ours.poll_delivery(now) {
            self.ours.handle_datagram(now, &packet);
        }
        self.events.extend(std::iter::from_fn(|| self.ours.poll_event()));
    }

    fn run_until(&mut self, limit: Duration, reached: impl Fn(&Self) -> bool) {
        let end = self.clock.elapsed() + limit;
        while !reached(self) {
            self.step();
            let now = self.clock.now();
            let deadlines = [
                self.to_other.next_at(),
                self.to_ours.next_at(),
                self.ours.poll_timeout(),
                self.other.timeout(),
            ];
            let next = deadlines.into_iter().flatten().min().unwrap().max(now + ms(1));
            self.clock.advance_to(next);
            assert!(self.clock.elapsed() <= end, "{:?}", self.ours.stats());
            if self.ours.poll_timeout().is_some_and(|at| at <= next) {
                self.ours.handle_timeout(next);
            }
            if self.other.timeout().is_some_and(|at| at <= next) {
                self.other.association.as_mut().unwrap().1.handle_timeout(next);
            }
        }
    }

    fn messages(&self) -> Vec<Bytes> {
        let payload = |event: &Event| match event {
            Event::Message { payload, .. } => Some(payload.clone()),
            _ => None,
        };
        self.events.iter().filter_map(payload).collect()
    }
}

fn message(n: usize, length: usize) -> Bytes {
    vec![u8::try_from(n % 256).unwrap(); length].into()
}

#[test]
fn either_end_may_begin_and_messages_go_both_ways() {
    for (ours, theirs) in [(true, false), (false, true)] {
        for loss in [0.0, 0.1] {
            for seed in 0..4 {
                let mut pair = Pair::new(seed, |link| link.latency(ms(20)).loss(loss).reorder(loss));
                let now = pair.clock.now();
                if ours {
                    pair.ours.connect(now);
                }
                if theirs {
                    pair.other.connect();
                }
                pair.run_until(secs(60), |pair| {
                    pair.other.connected && pair.events.contains(&Event::Connected)
                });
                exchange(&mut pair);
            }
        }
    }
}

fn exchange(pair: &mut Pair) {
    let now = pair.clock.now();
    let channel = pair.ours.open(now, "x", "", Options::default()).unwrap();
    let lengths: Vec<usize> = (0..40).map(|n| 1 + n * n * 37).collect();
    for (n, length) in lengths.iter().enumerate() {
        pair.ours.send(now, channel, Kind::Binary, message(n, *length)).unwrap();
    }
    pair.run_until(secs(600), |pair| pair.other.messages.len() == 41);
    // The first message is the request to open the channel.
    assert_eq!((pair.other.messages[0].0, pair.other.messages[0].1), (0, 50));
    for (n, length) in lengths.iter().enumerate() {
        assert_eq!(pair.other.messages[n + 1], (0, 53, message(n, *length)), "{n}");
    }
    // The other end acknowledges the channel, then the same amount is sent in the other direction.
    let (_, association) = pair.other.association.as_mut().unwrap();
    let mut stream = association.stream(0).unwrap();
    stream.write_sctp(&Bytes::from_static(&[2]), other::PayloadProtocolIdentifier::Dcep).unwrap();
    for (n, length) in lengths.iter().enumerate() {
        stream.write_sctp(&message(n, *length), other::PayloadProtocolIdentifier::Binary).unwrap();
    }
    pair.run_until(secs(600), |pair| pair.messages().len() == lengths.len());
    assert!(pair.events.contains(&Event::Accepted(channel)));
    let sent: Vec<Bytes> = lengths.iter().enumerate().map(|(n, length)| message(n, *length)).collect();
    assert_eq!(pair.messages(), sent);
}

#[test]
fn whole_messages_are_given_up() {
    for unordered in [false, true] {
        let mut pair = Pair::new(9, |link| link.latency(ms(20)).loss(0.2));
        let now = pair.clock.now();
        pair.ours.connect(now);
        pair.run_until(secs(60), |pair| pair.other.connected);
        let now = pair.clock.now();
        let options = Options { unordered, reliability: Reliability::Retransmits(0) };
        let channel = pair.ours.open(now, "x", "", options).unwrap();
        for n in 0..200 {
            pair.ours.send(now, channel, Kind::Binary, message(n, 3000)).unwrap();
        }
        pair.run_until(secs(600), |pair| pair.ours.stats().buffered.0 == 0);
        let got: Vec<usize> =
            pair.other.messages.iter().skip(1).map(|(_, _, payload)| usize::from(payload[0])).collect();
        assert!((20..200).contains(&got.len()), "{}", got.len());
        assert!(unordered || got.is_sorted(), "{got:?}");
        assert!(pair.other.messages.iter().skip(1).all(|(_, _, payload)| payload.len() == 3000));
    }
}

#[test]
fn a_channel_is_closed_at_both() {
    let mut pair = Pair::new(10, |link| link.latency(ms(20)));
    let now = pair.clock.now();
    pair.ours.connect(now);
    pair.run_until(secs(60), |pair| pair.other.connected);
    let now = pair.clock.now();
    let channel = pair.ours.open(now, "x", "", Options::default()).unwrap();
    pair.ours.send(now, channel, Kind::Text, "x".into()).unwrap();
    pair.ours.close_channel(now, channel);
    pair.run_until(secs(10), |pair| pair.other.messages.len() == 2);
    pair.run_until(secs(10), |pair| pair.events.contains(&Event::ChannelClosed(ChannelId(0))));
}
