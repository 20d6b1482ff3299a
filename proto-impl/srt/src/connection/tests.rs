//! Tests of the internals: numbers that wrap, and sizes.

use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;
use netsim::{Clock, ms};
use wire::Datagrams;

use super::*;
use crate::endpoint::{Endpoint, Route};
use crate::seq::Seq;

/// Two ends without a network: each datagram is delivered at once, or lost.
struct Ends {
    clock: Clock,
    port: Endpoint<()>,
    caller: Connection,
    listener: Option<Connection>,
    random: Random,
    loss: f64,
    /// Number of microseconds by which the caller's clock is slow from now on.
    slow_us: u32,
    received: Vec<u32>,
    skipped: u32,
}

impl Ends {
    fn new(first_seq: Seq, config: Config) -> Self {
        Self::between(first_seq, config.clone(), config)
    }

    fn between(first_seq: Seq, caller: Config, listener: Config) -> Self {
        let (clock, config) = (Clock::new(), Arc::new(listener));
        let seed = Seed::from_number(4);
        let mut caller = Connection::caller(clock.now(), caller.into(), SocketId(1), "a/b", &seed);
        let State::Calling(call) = &mut caller.state else { panic!("no call") };
        call.first_seq = first_seq;
        let port = Endpoint::new(clock.now(), &seed);
        let mut ends = Self {
            clock,
            port,
            caller,
            listener: None,
            random: seed.random(),
            loss: 0.0,
            slow_us: 0,
            received: Vec::new(),
            skipped: 0,
        };
        let is_connected = |ends: &Self| {
            ends.caller.is_connected() && ends.listener.as_ref().is_some_and(Connection::is_connected)
        };
        for _ in 0..100 {
            if !is_connected(&ends) {
                ends.turn(&config);
            }
        }
        assert!(is_connected(&ends));
        ends
    }

    /// Advances both ends by a millisecond.
    fn turn(&mut self, config: &Arc<Config>) {
        self.clock.advance(ms(1));
        let now = self.clock.now();
        let from = "127.0.0.1:9".parse().unwrap();
        for datagram in drain(&mut self.caller, now) {
            let datagram = slowed(&datagram, self.slow_us);
            let mut reply = Vec::new();
            match self.port.route(now, from, &datagram, &mut reply) {
                Route::Session(()) if self.random.chance(self.loss) => {}
                Route::Session(()) => self.listener.as_mut().unwrap().handle_datagram(now, &datagram),
                Route::New(incoming) => {
                    self.port.insert(SocketId(2), from, incoming.peer_socket(), ());
                    let mut listener =
                        Connection::incoming(now, *incoming, SocketId(2), &Seed::from_number(5));
                    listener.accept(now, Arc::clone(config));
                    self.listener = Some(listener);
                }
                Route::Reply | Route::Drop(_) => self.caller.handle_datagram(now, &reply),
            }
        }
        let Some(listener) = &mut self.listener else { return };
        for datagram in drain(listener, now) {
            self.caller.handle_datagram(now, &datagram);
        }
        while self.caller.poll_event().is_some() {}
        while let Some(event) = listener.poll_event() {
            match event {
                Event::Payload(payload) => {
                    self.received.push(u32::from_be_bytes(payload[..].try_into().unwrap()));
                }
                Event::Skipped(count) => self.skipped += count,
                Event::Connected(_) | Event::Closed(_) => {}
            }
        }
        if let State::Connected(link) = &self.caller.state {
            link.sending.buffer.check_invariants();
        }
    }
}

fn drain(connection: &mut Connection, now: Instant) -> Vec<Bytes> {
    if connection.poll_timeout().is_some_and(|at| at <= now) {
        connection.handle_timeout(now);
    }
    let (mut out, mut all) = (Datagrams::new(), Vec::new());
    while connection.has_transmit(now) && connection.poll_transmit(now, &mut out) {
        all.extend((0..out.len()).map(|n| Bytes::copy_from_slice(out.get(n))));
        out.clear();
    }
    all
}

/// Copies a datagram with its timestamp moved back by `slow_us`.
fn slowed(datagram: &[u8], slow_us: u32) -> Bytes {
    let mut datagram = datagram.to_vec();
    let timestamp: &mut [u8; 4] = (&mut datagram[8..12]).try_into().unwrap();
    *timestamp = u32::from_be_bytes(*timestamp).wrapping_sub(slow_us).to_be_bytes();
    datagram.into()
}

fn payloads(datagrams: &[Bytes]) -> usize {
    datagrams.iter().filter(|datagram| datagram[0] & 0x80 == 0).count()
}

#[test]
fn no_more_waits_than_our_window_and_no_more_is_on_its_way_than_the_peer_has_room_for() {
    let narrow = Config { flow_window: crate::config::FLOW_WINDOW_MIN, ..Config::default() };
    let send = |connection: &mut Connection, now| {
        (0..100).filter(|n: &u8| connection.send(now, vec![*n].into()).is_ok()).count()
    };
    let mut ends = Ends::between(Seq::new(7), narrow.clone(), Config::default());
    assert_eq!(send(&mut ends.caller, ends.clock.now()), 32);
    let mut ends = Ends::between(Seq::new(7), Config::default(), narrow);
    let now = ends.clock.now();
    assert_eq!(send(&mut ends.caller, now), 100);
    assert_eq!(payloads(&drain(&mut ends.caller, now)), 32);
    let mut acknowledge = |next: u32, room_packets| {
        let State::Connected(link) = &mut ends.caller.state else { panic!("not connected") };
        let figures = crate::packet::AckFigures {
            rtt_us: 1000,
            rtt_var_us: 100,
            room_packets,
            rate_packets: 0,
            bandwidth_packets: 0,
            rate_bytes: 0,
        };
        let ack = crate::packet::Ack { next: Seq::new(next), figures: Some(figures) };
        let control = Control::Ack(next, ack);
        link.handle_packet(now, Packet::Control { timestamp: 0, to: SocketId(1), control }, 44);
        payloads(&drain(&mut ends.caller, now))
    };
    assert_eq!(acknowledge(7 + 32, 5), 5, "the peer holds the others");
    assert_eq!(acknowledge(7 + 37, 0), 2, "something goes on, so that an acknowledgement comes");
    assert_eq!(acknowledge(7 + 39, 1000), 32, "more than it said at first is no more room");
}

#[test]
fn a_peer_whose_clock_goes_apart_from_ours_is_held_as_long_as_before() {
    let config = Arc::new(Config::default());
    let mut ends = Ends::new(Seq::new(7), Config::default());
    let drift_us = [3000, 5000].map(|slow_us| {
        ends.slow_us = slow_us;
        // Enough packets for two estimates. The second estimate only covers the time after the
        // drift has changed.
        for n in 0..22_000_u32 {
            if n % 5 == 0 {
                let now = ends.clock.now();
                ends.caller.send(now, n.to_be_bytes().to_vec().into()).unwrap();
            }
            (0..10).for_each(|_| ends.turn(&config));
        }
        ends.listener.as_ref().unwrap().stats().us_drift
    });
    // Both estimates are a millisecond too short: the clocks were first compared by the handshake, which took a
    // millisecond.
    assert_eq!(drift_us, [2000, 4000]);
}

#[test]
fn s_08_sequence_numbers_wrap_under_loss() {
    for encrypted in [false, true] {
        let passphrase = encrypted.then(|| crate::Passphrase::new("0123456789").unwrap());
        let config = Config { passphrase, latency: ms(200), ..Config::default() };
        let mut ends = Ends::new(Seq::new(0x7fff_ffff - 500), config.clone());
        let config = Arc::new(config);
        ends.loss = 0.1;
        for n in 0..3000_u32 {
            let now = ends.clock.now();
            ends.caller.send(now, n.to_be_bytes().to_vec().into()).unwrap();
            ends.turn(&config);
        }
        (0..1000).for_each(|_| ends.turn(&config));
        assert_eq!((ends.received.len(), ends.skipped), (3000, 0));
        assert!(ends.received.is_sorted());
    }
}

#[test]
fn s_06_a_connection_before_media_is_small() {
    let inline = size_of::<Connection>() + size_of::<Link>();
    assert!(inline <= 2048, "{inline}");
    let mut ends = Ends::new(Seq::new(7), Config::default());
    let State::Connected(link) = &ends.caller.state else { panic!("not connected") };
    assert_eq!((link.sending.buffer.len(), link.receiving.buffer.bytes()), (0, 0));
    // All media is delivered, and the send buffer is empty again.
    let config = Arc::new(Config::default());
    for n in 0..2000_u32 {
        let now = ends.clock.now();
        ends.caller.send(now, n.to_be_bytes().to_vec().into()).unwrap();
        ends.turn(&config);
    }
    (0..1500).for_each(|_| ends.turn(&config));
    assert_eq!((ends.received.len(), ends.caller.queued_bytes()), (2000, 0));
}

/// The memory of a viewer's connection, by part; docs/benchmarks.md has the table.
#[test]
fn s_06_a_connection_that_plays_is_small() {
    let viewer = Config { receives: false, adapts: true, ..Config::default() };
    let mut ends = Ends::between(Seq::new(7), Config::default(), viewer);
    let config = Arc::new(Config::default());
    let payload = Bytes::from(vec![0x47; 1316]);
    // 30 frames a second of 1 Mb/s, and a key frame of eight times the size every two seconds.
    let mut largest = 0;
    for turn in 0..10_000 {
        let now = ends.clock.now();
        if turn % 33 == 0 {
            let packets = if turn % 1980 == 0 { 22 } else { 3 };
            let listener = ends.listener.as_mut().unwrap();
            (0..packets).for_each(|_| listener.send(now, payload.clone()).unwrap());
        }
        ends.turn(&config);
        let State::Connected(link) = &ends.listener.as_ref().unwrap().state else { panic!("not connected") };
        largest = largest.max(link.sending.buffer.held_bytes());
    }
    let State::Connected(link) = &ends.listener.as_ref().unwrap().state else { panic!("not connected") };
    let congestion = link.sending.congestion.as_ref().unwrap();
    let parts = [
        ("connection", size_of::<Connection>(), 560),
        ("link", size_of::<Link>(), 1400),
        ("congestion control", size_of_val(&**congestion) + congestion.held_bytes(), 1000),
        ("settings", size_of::<Config>(), 250),
        ("entries of sent packets", link.sending.buffer.held_bytes(), 1000),
        ("entries of sent packets, most", largest, 2000),
    ];
    for (part, bytes, most) in parts {
        println!("{part}: {bytes}");
        assert!(bytes <= most, "{part}: {bytes}");
    }
}

#[test]
fn a_datagram_that_would_have_a_key_derived_is_known_before() {
    let passphrase = crate::Passphrase::new("0123456789").unwrap();
    let config = Config { passphrase: Some(passphrase.clone()), ..Config::default() };
    let ends = Ends::new(Seq::new(7), config);
    let foreign = SessionKeys::draw(&passphrase, crate::KeyLength::Bytes16, Seed::from_number(9).random());
    let listener = ends.listener.as_ref().unwrap();
    let derives = |control: &Control<'_>| {
        let mut datagram = Vec::new();
        ControlWriter { timestamp: 0, to: SocketId(2) }.write(control, &mut datagram);
        listener.derives(ends.clock.now() + ms(5000), &datagram)
    };
    assert!(derives(&Control::User(extension::KM_REQUEST, &foreign.message())));
    assert!(!derives(&Control::User(extension::KM_RESPONSE, &foreign.message())));
    assert!(!derives(&Control::KeepAlive));
    assert!(!listener.derives(ends.clock.now() + ms(5000), &[0xff]));
}

#[test]
fn most_acknowledgements_leave_nothing_to_say() {
    let config = Arc::new(Config::default());
    let mut ends = Ends::new(Seq::new(7), Config::default());
    let (mut acks, mut answered) = (0, 0);
    for n in 0..3000_u32 {
        let now = ends.clock.now();
        if n % 5 == 0 {
            ends.caller.send(now, n.to_be_bytes().to_vec().into()).unwrap();
            assert!(ends.caller.has_transmit(now), "a packet");
        }
        let before = ends.caller.stats().pkt_recv_ack;
        ends.turn(&config);
        if ends.caller.stats().pkt_recv_ack > before {
            acks += 1;
            let now = ends.clock.now();
            answered += u32::from(ends.caller.has_transmit(now));
            assert_eq!(ends.caller.is_quiet(now), !ends.caller.has_transmit(now));
        }
    }
    assert!(!ends.listener.as_ref().unwrap().is_quiet(ends.clock.now()), "messages wait for their time");
    ends.caller.close(ends.clock.now(), CloseReason::Peer);
    assert!(!ends.caller.is_quiet(ends.clock.now()), "an end is an event");
    assert!(acks > 200, "{acks}");
    assert!(answered * 4 < acks, "{answered} of {acks}");
    assert_eq!(ends.received.len(), 600 - 24, "the last ones are held for the latency");
}

#[test]
fn what_nobody_takes_moves_no_deadline_and_what_is_sent_hides_none() {
    let mut ends = Ends::new(Seq::new(7), Config::default());
    let now = ends.clock.now();
    ends.caller.send(now, vec![1; 4].into()).unwrap();
    let datagrams = drain(&mut ends.caller, now);
    let listener = ends.listener.as_mut().unwrap();
    datagrams.iter().for_each(|datagram| listener.handle_datagram(now, datagram));
    assert_eq!(listener.poll_event(), None, "it is held for the latency");
    // Meanwhile the owner only calls `poll_transmit`, and only after the packet's delivery time. The deadline must
    // still be the delivery time, although it has passed.
    let late = now + ms(200);
    listener.poll_transmit(late, &mut Datagrams::new());
    assert_eq!(listener.poll_event(), None);
    assert!(listener.poll_timeout().is_some_and(|at| at <= late));
    // Now the owner handles deadlines but polls no events, like an owner that waits for a decision. No deadline may
    // then remain in the past.
    for n in 0..1000 {
        let at = late + ms(n);
        if listener.poll_timeout().is_some_and(|due| due <= at) {
            listener.handle_timeout(at);
            listener.poll_transmit(at, &mut Datagrams::new());
            assert!(listener.poll_timeout().is_some_and(|due| due > at), "a deadline that stays");
        }
    }
    assert!(matches!(listener.poll_event(), Some(Event::Payload(_))));
}

#[test]
fn s_06_who_takes_nothing_holds_nothing() {
    for receives in [true, false] {
        let mut ends = Ends::new(Seq::new(7), Config { receives, ..Config::default() });
        let now = ends.clock.now();
        let State::Connected(link) = &mut ends.listener.as_mut().unwrap().state else {
            panic!("not connected")
        };
        let far = link.receiving.buffer.base().plus(20_000);
        let head = crate::packet::DataHead {
            seq: far,
            position: crate::packet::POSITION_SOLO,
            in_order: false,
            key: crate::packet::KeyFlag::Clear,
            retransmitted: false,
            message: 1,
            timestamp: 0,
            to: SocketId(2),
        };
        link.handle_packet(now, Packet::Data(head, b"x"), 17);
        let drop = Control::DropRequest(0, far.plus(1), far.plus(2));
        link.handle_packet(now, Packet::Control { timestamp: 0, to: SocketId(2), control: drop }, 24);
        assert_eq!(
            link.receiving.buffer.end().ahead_of(link.receiving.buffer.base()),
            Some(if receives { 20_003 } else { 0 })
        );
        assert_eq!(link.receiving.losses.len(), usize::from(receives));
    }
}
