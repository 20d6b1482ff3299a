//! The demultiplexer of a port, tested datagram by datagram.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;
use netsim::{Clock, ms, secs};
use srt::handshake::{Extensions, Handshake, MAGIC, address_field, request};
use srt::packet::{Ack, Control, ControlWriter, Packet};
use srt::{
    CloseReason, Config, Connection, DropReason, Endpoint, Event, Incoming, Passphrase, RejectReason, Route,
    Seq, SocketId,
};
use wire::{Datagrams, Reader};

use crate::harness::address;

const FROM: &str = "192.0.2.7:6000";

/// A port, and two requests of one caller to it. The second has a valid cookie.
fn questions(clock: &Clock, config: Config, stream_id: &str) -> (Endpoint<u32>, Bytes, Bytes) {
    let mut port: Endpoint<u32> = Endpoint::new(clock.now(), &Seed::from_number(1));
    let seed = Seed::from_number(2);
    let mut caller = Connection::caller(clock.now(), config.into(), SocketId(77), stream_id, &seed);
    let induction = transmit(clock, &mut caller);
    let mut reply = Vec::new();
    let route = port.route(clock.now(), address(FROM), &induction, &mut reply);
    assert!(matches!(route, Route::Reply) && reply.len() <= induction.len());
    caller.handle_datagram(clock.now(), &reply);
    (port, induction, transmit(clock, &mut caller))
}

fn transmit(clock: &Clock, connection: &mut Connection) -> Bytes {
    let mut out = Datagrams::new();
    assert!(connection.poll_transmit(clock.now(), &mut out));
    Bytes::copy_from_slice(out.get(0))
}

/// Copies a conclusion with some fields changed.
fn changed(conclusion: &[u8], change: impl FnOnce(&mut Handshake)) -> Vec<u8> {
    let mut r = Reader::new(&conclusion[16..]);
    let mut handshake = Handshake::read(&mut r).unwrap();
    change(&mut handshake);
    let mut out = conclusion[..16].to_vec();
    handshake.write(&mut out);
    out.extend_from_slice(r.rest());
    out
}

/// Routes a datagram. Returns the new caller, or the reason why the datagram was refused or dropped.
fn verdict(port: &mut Endpoint<u32>, clock: &Clock, datagram: &[u8]) -> Result<Box<Incoming>, String> {
    let mut reply = Vec::new();
    let route = port.route(clock.now(), address(FROM), datagram, &mut reply);
    assert!(reply.len() <= datagram.len());
    match route {
        Route::New(incoming) => Ok(incoming),
        Route::Drop(reason) => Err(format!("{reason:?}")),
        Route::Session(id) => Err(format!("session {id}")),
        Route::Reply => {
            let answer = Handshake::read(&mut Reader::new(&reply[16..])).unwrap();
            Err(format!("{}", answer.request))
        }
    }
}

/// A packet truncated at any byte is dropped. If it is truncated between two extensions, it is still a valid packet,
/// with fewer requests.
#[test]
fn s_01_truncated_packets_are_dropped() {
    let clock = Clock::new();
    let (mut port, induction, conclusion) = questions(&clock, Config::default(), "live/a");
    assert_eq!((induction.len(), conclusion.len()), (64, 92));
    let mut whole = Vec::new();
    for question in [&induction, &conclusion] {
        for length in 0..question.len() {
            match verdict(&mut port, &clock, &question[..length]) {
                Ok(incoming) => whole.push((length, incoming.stream_id().map(str::to_owned))),
                // If the cookie is valid and the head is complete, the caller gets a refusal, because an announced
                // extension is missing or damaged.
                Err(reason) if length >= 64 => assert_eq!(reason, "1004", "{length}"),
                Err(reason) => assert_eq!(reason, "Malformed", "{length}"),
            }
        }
    }
    // This part is valid alone: a head of 64 bytes, and SRT's own extension of 16. The stream id is missing.
    assert_eq!(whole, [(80, None)]);
    assert_eq!(verdict(&mut port, &clock, &[0x80; 1501]).unwrap_err(), "TooLong");
    assert!(port.is_empty());
}

#[test]
fn an_induction_is_answered_with_our_version_no_cipher_and_the_address_that_it_came_from() {
    let clock = Clock::new();
    let (mut port, induction, conclusion) = questions(&clock, Config::default(), "");
    let question = changed(&induction, |h| (h.encryption, h.peer_ip) = (4, [9; 16]));
    let mut reply = Vec::new();
    assert!(matches!(port.route(clock.now(), address(FROM), &question, &mut reply), Route::Reply));
    let Ok(Packet::Control { to: SocketId(77), control: Control::Handshake(body), .. }) =
        Packet::read(&reply)
    else {
        panic!("no handshake for the caller");
    };
    let answer = Handshake::read(&mut Reader::new(body)).unwrap();
    let cookie = Handshake::read(&mut Reader::new(&conclusion[16..])).unwrap().cookie;
    assert_eq!((answer.version, answer.encryption, answer.extension), (5, 0, MAGIC));
    assert_eq!((answer.peer_ip, answer.cookie), (address_field(address(FROM).ip()), cookie));
    let asked = Handshake::read(&mut Reader::new(&question[16..])).unwrap();
    assert_eq!((answer.first_seq, answer.mss, answer.request), (asked.first_seq, asked.mss, asked.request));
}

/// A connection that has ended leaves no state behind: its caller may call again and is not taken for the old one.
#[test]
fn a_connection_that_is_over_is_nobodys_and_its_caller_may_come_again() {
    let clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "");
    let incoming = verdict(&mut port, &clock, &conclusion).unwrap();
    let (from, peer) = (incoming.from(), incoming.peer_socket());
    assert!(port.insert(SocketId(5), from, peer, 42));
    assert_eq!((port.len(), port.is_empty()), (1, false));
    assert_eq!(port.remove(SocketId(5)), Some(42));
    assert!(port.insert(SocketId(5), from, SocketId(999), 43), "the id is free");
    // The conclusion of the same caller is treated as new, not as a repetition for the connection that uses the same
    // id now.
    assert!(verdict(&mut port, &clock, &conclusion).is_ok());
    // A second connection with the same peer socket id outlives the first.
    assert!(port.insert(SocketId(6), from, peer, 44) && port.insert(SocketId(7), from, peer, 45));
    assert_eq!(port.remove(SocketId(6)), Some(44));
    assert_eq!(verdict(&mut port, &clock, &conclusion).unwrap_err(), "session 45");
    assert_eq!(port.len(), 2);
}

/// Makes the conclusion of another caller at a port, and returns it as an incoming call.
fn called(port: &mut Endpoint<u32>, clock: &Clock, number: u32) -> Box<Incoming> {
    let seed = Seed::from_number(number.into());
    let mut caller =
        Connection::caller(clock.now(), Arc::new(Config::default()), SocketId(number), "s", &seed);
    let mut reply = Vec::new();
    port.route(clock.now(), address(FROM), &transmit(clock, &mut caller), &mut reply);
    caller.handle_datagram(clock.now(), &reply);
    verdict(port, clock, &transmit(clock, &mut caller)).unwrap()
}

#[test]
fn a_port_that_accepts_knows_the_connection_by_a_name_that_is_free() {
    let (clock, seed, config) = (Clock::new(), Seed::from_number(9), Arc::new(Config::default()));
    let port = || Endpoint::new(clock.now(), &Seed::from_number(1));
    let accept = |port: &mut Endpoint<u32>, number| {
        let incoming = called(port, &clock, number);
        let mut connection = port.accept(clock.now(), *incoming, Arc::clone(&config), number, &seed);
        assert!(matches!(connection.poll_event(), Some(Event::Connected(_))));
        assert!(connection.has_transmit(clock.now()), "the caller is answered");
        connection
    };
    let mut one = port();
    let (first, second) = (accept(&mut one, 70), accept(&mut one, 71));
    assert_ne!(first.local(), second.local());
    assert_eq!(one.len(), 2);
    let mut data = vec![0; 100];
    data[12..16].copy_from_slice(&second.local().0.to_be_bytes());
    assert_eq!(verdict(&mut one, &clock, &data).unwrap_err(), "session 71");
    // At another port, the random id that is drawn first is already in use.
    let mut other = port();
    assert!(other.insert(first.local(), address(FROM), SocketId(5), 5));
    assert_ne!(accept(&mut other, 70).local(), first.local());
    assert_eq!(one.remove(first.local()), Some(70));
}

#[test]
fn a_port_that_accepts_refuses_a_passphrase_that_does_not_fit() {
    let clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "s");
    let incoming = verdict(&mut port, &clock, &conclusion).unwrap();
    let passphrase = Some(Passphrase::new("correct horse").unwrap());
    let config = Arc::new(Config { passphrase, ..Config::default() });
    let mut connection = port.accept(clock.now(), *incoming, config, 1, &Seed::from_number(9));
    let refused = CloseReason::Refused(RejectReason::UNSECURE);
    assert_eq!(connection.poll_event(), Some(Event::Closed(refused)));
    assert!(connection.has_transmit(clock.now()), "the caller learns why");
    assert_eq!(port.remove(connection.local()), Some(1));
}

#[test]
fn names_of_sockets_are_not_0_and_have_30_bits() {
    let names = (0..1000).map(|n| SocketId::random(&Seed::from_number(n)).0);
    let names: std::collections::BTreeSet<u32> = names.collect();
    assert!(names.len() > 990 && names.iter().all(|name| (1..1 << 30).contains(name)));
}

#[test]
fn s_02_a_hundred_thousand_inductions_leave_nothing() {
    let clock = Clock::new();
    let (mut port, induction, _) = questions(&clock, Config::default(), "");
    let mut reply = Vec::new();
    for n in 0..100_000_u32 {
        let from = SocketAddr::from(([198, 51, 100, 1], u16::try_from(n % 60_000).unwrap()));
        reply.clear();
        assert!(matches!(port.route(clock.now(), from, &induction, &mut reply), Route::Reply));
        assert!(reply.len() <= induction.len());
    }
    assert!(port.is_empty());
}

#[test]
fn s_03_cookies_that_were_not_given_to_this_address_are_dropped() {
    let mut clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "");
    assert!(verdict(&mut port, &clock, &conclusion).is_ok());
    let mut reply = Vec::new();
    for other in ["192.0.2.7:6001", "192.0.2.8:6000"] {
        let route = port.route(clock.now(), address(other), &conclusion, &mut reply);
        assert!(matches!(route, Route::Drop(DropReason::Cookie)));
    }
    assert_eq!(verdict(&mut port, &clock, &changed(&conclusion, |h| h.cookie ^= 1)).unwrap_err(), "Cookie");
    // Our cookie differs from all those that libsrt would make. It makes them without a secret, so an attacker could
    // compute them.
    let good = Handshake::read(&mut Reader::new(&conclusion[16..])).unwrap().cookie;
    for minute in 0..100_000 {
        let [a, b, c, d, ..] = md5::compute(format!("192.0.2.7:6000:{minute}")).0;
        let cookies = [u32::from_be_bytes([a, b, c, d]), u32::from_le_bytes([a, b, c, d])];
        assert!(!cookies.contains(&good));
    }
    clock.advance(secs(120));
    assert_eq!(verdict(&mut port, &clock, &conclusion).unwrap_err(), "Cookie");
    assert!(reply.is_empty() && port.is_empty());
}

#[test]
fn s_04_handshakes_out_of_bounds_are_refused() {
    let clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "");
    let mut check = |change: &dyn Fn(&mut Handshake), wanted: Option<RejectReason>| {
        let got = verdict(&mut port, &clock, &changed(&conclusion, change));
        let wanted = wanted.map(|reason| (reason.code() + 1000).to_string());
        assert_eq!(got.err(), wanted);
    };
    for version in [0, 4, 6, u32::MAX] {
        check(&|h| h.version = version, Some(RejectReason::VERSION));
    }
    for mss in [0, 75, 1501, u32::MAX] {
        check(&|h| h.mss = mss, Some(RejectReason::ROGUE));
    }
    for window in [0, 1, 31, 1 << 31, u32::MAX] {
        check(&|h| h.flow_window = window, Some(RejectReason::ROGUE));
    }
    check(&|h| h.socket = SocketId(0), Some(RejectReason::ROGUE));
    check(&|h| h.extension = 0, Some(RejectReason::ROGUE));
    for (mss, window) in [(76, 32), (1500, i32::MAX.cast_unsigned())] {
        check(&|h| (h.mss, h.flow_window) = (mss, window), None);
    }
    for request in [0, 2, 5, 1000, 0x8000_0000, u32::MAX - 1] {
        let got = verdict(&mut port, &clock, &changed(&conclusion, |h| h.request = request));
        assert_eq!(got.unwrap_err(), "Malformed");
    }
}

#[test]
fn s_05_stream_ids_that_are_too_long_or_no_text_are_refused_with_1400() {
    let clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), &"x".repeat(600));
    assert_eq!(verdict(&mut port, &clock, &conclusion).unwrap().stream_id().unwrap().len(), 512);
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "a\0b");
    assert_eq!(verdict(&mut port, &clock, &conclusion).unwrap_err(), "2400");
}

#[test]
fn s_09_only_the_peer_speaks_for_a_socket() {
    let clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "");
    let incoming = verdict(&mut port, &clock, &conclusion).unwrap();
    assert!(port.insert(SocketId(5), incoming.from(), incoming.peer_socket(), 42));
    assert!(!port.insert(SocketId(5), incoming.from(), SocketId(1), 43), "in use");
    assert!(!port.insert(SocketId(0), incoming.from(), SocketId(1), 43), "nobody's name");
    let ack = Ack { next: Seq::new(1), figures: None };
    let controls = [
        Control::Shutdown,
        Control::KeepAlive,
        Control::Ack(1, ack),
        Control::AckAck(1),
        Control::DropRequest(0, Seq::new(1), Seq::new(2)),
        Control::User(3, &[0; 4]),
        Control::Handshake(&[0; 48]),
    ];
    let mut reply = Vec::new();
    for control in &controls {
        let mut datagram = Vec::new();
        ControlWriter { timestamp: 0, to: SocketId(5) }.write(control, &mut datagram);
        for other in ["192.0.2.7:6001", "192.0.2.8:6000", "[::ffff:192.0.2.9]:6000"] {
            let route = port.route(clock.now(), address(other), &datagram, &mut reply);
            assert!(matches!(route, Route::Drop(DropReason::WrongAddress)));
        }
        assert!(matches!(port.route(clock.now(), address(FROM), &datagram, &mut reply), Route::Session(42)));
    }
    assert_eq!(verdict(&mut port, &clock, &conclusion).unwrap_err(), "session 42", "repeated");
    assert_eq!(port.remove(SocketId(5)), Some(42));
    let mut data = vec![0; 100];
    data[15] = 5;
    assert_eq!(verdict(&mut port, &clock, &data).unwrap_err(), "UnknownSocket");
    assert!(reply.is_empty() && port.is_empty() && port.remove(SocketId(5)).is_none());
}

#[test]
fn s_29_who_guesses_socket_ids_ends_no_connection() {
    let clock = Clock::new();
    let (mut port, _, conclusion) = questions(&clock, Config::default(), "");
    let incoming = verdict(&mut port, &clock, &conclusion).unwrap();
    assert!(port.insert(SocketId(500), incoming.from(), incoming.peer_socket(), 42));
    let goodbye = |to: u32| {
        let mut datagram = Vec::new();
        ControlWriter { timestamp: 0, to: SocketId(to) }.write(&Control::Shutdown, &mut datagram);
        datagram
    };
    // A few shutdowns for sockets that no longer exist are normal.
    for to in 1..16 {
        assert_eq!(verdict(&mut port, &clock, &goodbye(to)).unwrap_err(), "UnknownSocket");
    }
    assert_eq!(verdict(&mut port, &clock, &goodbye(500)).unwrap_err(), "session 42");
    for to in 16..1000 {
        let route = verdict(&mut port, &clock, &goodbye(to)).unwrap_err();
        assert_eq!(route, if to == 500 { "Guessed" } else { "UnknownSocket" });
    }
    // All other packets of this address are still routed to the connection.
    let mut keep_alive = Vec::new();
    ControlWriter { timestamp: 0, to: SocketId(500) }.write(&Control::KeepAlive, &mut keep_alive);
    assert_eq!(verdict(&mut port, &clock, &keep_alive).unwrap_err(), "session 42");
    let mut reply = Vec::new();
    let mut bye_at = |port: &mut Endpoint<u32>, at| {
        matches!(port.route(at, address(FROM), &goodbye(500), &mut reply), Route::Session(42))
    };
    assert!(!bye_at(&mut port, clock.at(secs(60) - ms(1))));
    assert!(bye_at(&mut port, clock.at(secs(60))), "it is over");
    // After that minute, stray shutdowns are counted from the beginning.
    let late = clock.at(secs(61));
    assert!(matches!(port.route(late, address(FROM), &goodbye(1), &mut Vec::new()), Route::Drop(_)));
    assert!(bye_at(&mut port, late));
    // The stray shutdowns of an address are remembered for as long as it has a connection.
    for to in 1..16 {
        port.route(late, address(FROM), &goodbye(to), &mut Vec::new());
    }
    assert!(!bye_at(&mut port, late));
    assert!(port.insert(SocketId(501), address(FROM), SocketId(7), 43));
    assert_eq!(port.remove(SocketId(501)), Some(43));
    assert!(!bye_at(&mut port, late));
    assert_eq!(port.remove(SocketId(500)), Some(42));
    assert!(port.insert(SocketId(500), address(FROM), SocketId(8), 42));
    assert!(bye_at(&mut port, late), "nothing is kept of an address that has none");
}

#[test]
fn a_refusal_needs_no_connection_and_a_caller_is_what_it_says() {
    let clock = Clock::new();
    let config = Config { passphrase: crate::harness::passphrase("correct horse"), ..Config::default() };
    let (mut port, _, conclusion) = questions(&clock, config, "#!::r=live/a");
    let incoming = verdict(&mut port, &clock, &conclusion).unwrap();
    assert_eq!((incoming.stream_id(), incoming.is_encrypted()), (Some("#!::r=live/a"), true));
    assert_eq!(incoming.key_length(), Some(srt::KeyLength::Bytes16));
    assert_eq!(incoming.peer_version(), 0x01_05_03);
    let mut out = Vec::new();
    incoming.reject(clock.now(), RejectReason::NOTFOUND, &mut out);
    assert!(out.len() <= conclusion.len());
    let Ok(Packet::Control { to: SocketId(77), control: Control::Handshake(body), .. }) = Packet::read(&out)
    else {
        panic!("no handshake");
    };
    let mut r = Reader::new(body);
    assert_eq!(Handshake::read(&mut r).unwrap().request, 2404);
    assert_eq!(Extensions::read(r), Ok(Extensions::default()));
    assert_ne!(request::CONCLUSION, 2404);
}
