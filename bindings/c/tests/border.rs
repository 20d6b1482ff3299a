//! The exported functions as C calls them: null pointers and unknown ids are refused, and two ports talk to each other.

use std::ptr::{null, null_mut};

use millstream::srt_port::*;
use millstream::whip_port::*;
use millstream::{MillstreamAddress, MillstreamDatagram, MillstreamResult};

const fn address(port: u16) -> MillstreamAddress {
    MillstreamAddress { ip: [127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ip_length: 4, port }
}

const fn event() -> MillstreamSrtEvent {
    let kind = MillstreamSrtEventKind::Closed;
    MillstreamSrtEvent { kind, connection: 0, number: 0, data: null(), length: 0 }
}

const fn datagram() -> MillstreamDatagram {
    MillstreamDatagram { to: address(0), data: null(), length: 0 }
}

#[test]
fn null_is_refused_everywhere() {
    let (to, mut id, mut answer, mut length) = (address(1), 0, null(), 0);
    let (mut happened, mut sent) = (event(), datagram());
    // SAFETY: each pointer is null or that of a value that lives.
    unsafe {
        let srt = millstream_srt_new(0, null(), 0, 0);
        let whip = millstream_whip_new(0, 0, &raw const to);
        assert!(!srt.is_null() && !whip.is_null());
        assert!(
            millstream_srt_new(0, null(), 12, 0).is_null() && millstream_whip_new(0, 0, null()).is_null()
        );
        assert!(millstream_srt_new(0, b"short".as_ptr(), 5, 0).is_null());
        for refused in [
            millstream_srt_connect(null_mut(), 0, &raw const to, null(), 0, &raw mut id),
            millstream_srt_connect(srt, 0, null(), null(), 0, &raw mut id),
            millstream_srt_connect(srt, 0, &raw const to, null(), 0, null_mut()),
            millstream_srt_connect(srt, 0, &raw const to, null(), 1, &raw mut id),
            millstream_srt_handle_datagram(null_mut(), 0, &raw const to, null(), 0),
            millstream_srt_handle_datagram(srt, 0, null(), null(), 0),
            millstream_srt_handle_datagram(srt, 0, &raw const to, null(), 1),
            millstream_srt_handle_timeout(null_mut(), 0),
            millstream_srt_accept(null_mut(), 0, 1),
            millstream_srt_reject(null_mut(), 0, 1, 1403),
            millstream_srt_send(null_mut(), 0, 1, null(), 0),
            millstream_srt_send(srt, 0, 1, null(), 1),
            millstream_srt_close(null_mut(), 0, 1),
            millstream_srt_poll_event(null_mut(), &raw mut happened),
            millstream_srt_poll_event(srt, null_mut()),
            millstream_srt_poll_transmit(null_mut(), 0, &raw mut sent),
            millstream_srt_poll_transmit(srt, 0, null_mut()),
            millstream_whip_offer(null_mut(), 0, null(), 0, &raw mut id, &raw mut answer, &raw mut length),
            millstream_whip_offer(whip, 0, null(), 1, &raw mut id, &raw mut answer, &raw mut length),
            millstream_whip_offer(whip, 0, null(), 0, null_mut(), &raw mut answer, &raw mut length),
            millstream_whip_offer(whip, 0, null(), 0, &raw mut id, null_mut(), &raw mut length),
            millstream_whip_offer(whip, 0, null(), 0, &raw mut id, &raw mut answer, null_mut()),
            millstream_whip_handle_datagram(null_mut(), 0, &raw const to, null(), 0),
            millstream_whip_handle_datagram(whip, 0, null(), null(), 0),
            millstream_whip_handle_datagram(whip, 0, &raw const to, null(), 1),
            millstream_whip_handle_timeout(null_mut(), 0),
            millstream_whip_close(null_mut(), 0, 1),
            millstream_whip_poll_event(whip, null_mut()),
            millstream_whip_poll_transmit(whip, 0, null_mut()),
        ] {
            assert_eq!(refused, MillstreamResult::Null);
        }
        for unknown in [
            millstream_srt_accept(srt, 0, 7),
            millstream_srt_reject(srt, 0, 7, 1403),
            millstream_srt_send(srt, 0, 7, null(), 0),
            millstream_srt_close(srt, 0, 7),
            millstream_whip_close(whip, 0, 7),
        ] {
            assert_eq!(unknown, MillstreamResult::State);
        }
        let long = [b'a'; 513];
        for (stream_id, expected) in [
            (&b"\xff"[..], MillstreamResult::Argument),
            (&long[..], MillstreamResult::Argument),
            (&long[..512], MillstreamResult::Ok),
        ] {
            let (data, length) = (stream_id.as_ptr(), stream_id.len());
            let begun = millstream_srt_connect(srt, 0, &raw const to, data, length, &raw mut id);
            assert_eq!(begun, expected);
        }
        let bad = MillstreamAddress { ip_length: 5, ..to };
        let handled = millstream_srt_handle_datagram(srt, 0, &raw const bad, null(), 0);
        assert_eq!(handled, MillstreamResult::Argument);
        let offered =
            millstream_whip_offer(whip, 0, b"no".as_ptr(), 2, &raw mut id, &raw mut answer, &raw mut length);
        assert_eq!(offered, MillstreamResult::Argument);
        let long = [0; 4096];
        let handled = millstream_whip_handle_datagram(whip, 0, &raw const to, long.as_ptr(), long.len());
        assert_eq!(handled, MillstreamResult::Ok);
        assert_eq!(millstream_srt_poll_timeout(null_mut()), u64::MAX);
        assert_eq!(millstream_whip_poll_timeout(null_mut()), u64::MAX);
        millstream_srt_free(null_mut());
        millstream_whip_free(null_mut());
        millstream_srt_free(srt);
        millstream_whip_free(whip);
    }
}

/// A port, its address and its events.
struct End {
    srt: *mut MillstreamSrt,
    address: MillstreamAddress,
    events: Vec<(MillstreamSrtEventKind, u64, Vec<u8>)>,
}

impl End {
    fn new(port: u16) -> Self {
        let passphrase = b"correct horse battery";
        // SAFETY: the passphrase lives.
        let srt = unsafe { millstream_srt_new(5, passphrase.as_ptr(), passphrase.len(), 20) };
        Self { srt, address: address(port), events: Vec::new() }
    }

    /// Handles deadlines, carries the datagrams to another port, and takes the events of that port.
    fn carry(&self, now: u64, other: &mut Self) {
        let (mut out, mut happened) = (datagram(), event());
        // SAFETY: the handles are valid, and the data of a datagram and an event lives until the next call with its handle.
        unsafe {
            millstream_srt_handle_timeout(self.srt, now);
            while millstream_srt_poll_transmit(self.srt, now, &raw mut out) == MillstreamResult::Ok {
                let from = &raw const self.address;
                millstream_srt_handle_datagram(other.srt, now, from, out.data, out.length);
            }
            while millstream_srt_poll_event(other.srt, &raw mut happened) == MillstreamResult::Ok {
                let data = std::slice::from_raw_parts(happened.data, happened.length).to_vec();
                other.events.push((happened.kind, happened.connection, data));
            }
        }
    }

    fn count(&self, kind: MillstreamSrtEventKind) -> usize {
        self.events.iter().filter(|event| event.0 == kind).count()
    }

    fn last(&self) -> Option<MillstreamSrtEventKind> {
        self.events.last().map(|event| event.0)
    }
}

#[test]
fn two_ports_connect_send_and_close() {
    use MillstreamSrtEventKind::{Closed, Connected, Payload, Request};
    let (mut caller, mut listener) = (End::new(1), End::new(2));
    let (stream_id, mut id, mut now) = (b"cameras/one", 0, 5);
    // SAFETY: the handles are valid, and the other pointers those of values that live.
    unsafe {
        let to = &raw const listener.address;
        let begun = millstream_srt_connect(caller.srt, now, to, stream_id.as_ptr(), 11, &raw mut id);
        assert_eq!(begun, MillstreamResult::Ok);
        assert_eq!(millstream_srt_send(caller.srt, now, id, b"early".as_ptr(), 5), MillstreamResult::State);
        for _ in 0..400 {
            now += 5_000;
            caller.carry(now, &mut listener);
            listener.carry(now, &mut caller);
            if listener.last() == Some(Request) {
                let (_, request, data) = listener.events.pop().unwrap();
                assert_eq!(data, stream_id);
                assert_eq!(millstream_srt_accept(listener.srt, now, request), MillstreamResult::Ok);
            }
            if caller.last() == Some(Connected) {
                caller.events.clear();
                let sent = millstream_srt_send(caller.srt, now, id, b"payload".as_ptr(), 7);
                assert_eq!(sent, MillstreamResult::Ok);
            }
            if listener.last() == Some(Payload) {
                assert_eq!(listener.events.pop().unwrap().2, b"payload");
                assert_eq!(millstream_srt_close(caller.srt, now, id), MillstreamResult::Ok);
            }
        }
        assert_eq!((caller.last(), listener.last()), (Some(Closed), Some(Closed)));
        assert_eq!(millstream_srt_close(caller.srt, now, id), MillstreamResult::State);
        assert_eq!(millstream_srt_poll_timeout(caller.srt), u64::MAX);
        millstream_srt_free(caller.srt);
        millstream_srt_free(listener.srt);
    }
}

/// Begins connections of `caller`, and returns after this many microseconds in which the listener answers nobody.
fn call_and_wait(caller: &mut End, listener: &mut End, callers: usize, micros: u64) -> u64 {
    let (mut id, mut now) = (0, 5);
    for _ in 0..callers {
        // SAFETY: the handle is valid, and the other pointers those of values that live.
        let begun = unsafe {
            let to = &raw const listener.address;
            millstream_srt_connect(caller.srt, now, to, b"one".as_ptr(), 3, &raw mut id)
        };
        assert_eq!(begun, MillstreamResult::Ok);
    }
    while now < micros {
        now += 5_000;
        caller.carry(now, listener);
        listener.carry(now, caller);
    }
    now
}

/// A caller repeats its conclusion every 250 ms until it is answered.
#[test]
fn a_caller_that_repeats_its_request_is_one_request() {
    use MillstreamSrtEventKind::{Closed, Connected, Request};
    let (mut caller, mut listener) = (End::new(1), End::new(2));
    let mut now = call_and_wait(&mut caller, &mut listener, 1, 900_000);
    assert_eq!(listener.events.iter().map(|event| event.0).collect::<Vec<_>>(), [Request]);
    let request = listener.events[0].1;
    // SAFETY: the handles are valid.
    unsafe {
        assert_eq!(millstream_srt_close(listener.srt, now, request), MillstreamResult::State);
        assert_eq!(millstream_srt_accept(listener.srt, now, request), MillstreamResult::Ok);
        assert_eq!(millstream_srt_accept(listener.srt, now, request), MillstreamResult::State);
        for _ in 0..1000 {
            now += 5_000;
            caller.carry(now, &mut listener);
            listener.carry(now, &mut caller);
        }
        assert_eq!((caller.last(), listener.last()), (Some(Connected), Some(Connected)));
        assert_eq!((listener.count(Request), listener.count(Closed)), (1, 0));
        millstream_srt_free(caller.srt);
        millstream_srt_free(listener.srt);
    }
}

#[test]
fn a_caller_that_is_rejected_is_told_and_closed() {
    use MillstreamSrtEventKind::{Closed, Request};
    let (mut caller, mut listener) = (End::new(1), End::new(2));
    let now = call_and_wait(&mut caller, &mut listener, 1, 100_000);
    let request = listener.events[0].1;
    // SAFETY: the handles are valid.
    unsafe {
        assert_eq!(millstream_srt_reject(listener.srt, now, request, 1403), MillstreamResult::Ok);
        assert_eq!(millstream_srt_reject(listener.srt, now, request, 1403), MillstreamResult::State);
        listener.carry(now, &mut caller);
        caller.carry(now, &mut listener);
        assert_eq!((caller.last(), listener.last()), (Some(Closed), Some(Closed)));
        assert_eq!((listener.count(Request), listener.count(Closed)), (1, 1));
        assert_eq!(millstream_srt_poll_timeout(listener.srt), u64::MAX);
        millstream_srt_free(caller.srt);
        millstream_srt_free(listener.srt);
    }
}

#[test]
fn a_caller_that_is_not_answered_is_forgotten() {
    use MillstreamSrtEventKind::{Closed, Request};
    let (mut caller, mut listener) = (End::new(1), End::new(2));
    let now = call_and_wait(&mut caller, &mut listener, 1, 2_000_000);
    assert_eq!((listener.last(), listener.count(Closed)), (Some(Request), 0));
    let request = listener.events[0].1;
    // SAFETY: the handles are valid.
    unsafe {
        let deadline = millstream_srt_poll_timeout(listener.srt);
        assert!(
            (now..now + 1_100_000).contains(&deadline),
            "{deadline} is not about three seconds after the call"
        );
        listener.carry(deadline, &mut caller);
        // Events of a port are taken after datagrams for it; the caller has none any more.
        caller.carry(deadline, &mut listener);
        let ended = listener.events.iter().find(|event| event.0 == Closed).map(|event| event.1);
        assert_eq!(ended, Some(request));
        assert_eq!(millstream_srt_accept(listener.srt, deadline, request), MillstreamResult::State);
        millstream_srt_free(caller.srt);
        millstream_srt_free(listener.srt);
    }
}

#[test]
fn an_address_has_few_places_among_those_that_wait() {
    use MillstreamSrtEventKind::{Closed, Request};
    let (mut caller, mut listener, mut other) = (End::new(1), End::new(2), End::new(3));
    other.address.ip[3] = 9;
    call_and_wait(&mut caller, &mut listener, 20, 100_000);
    assert_eq!((listener.count(Request), caller.count(Closed)), (8, 12));
    listener.events.clear();
    call_and_wait(&mut other, &mut listener, 1, 100_000);
    assert_eq!(listener.count(Request), 1, "another address has its own");
    // SAFETY: the handles are valid.
    unsafe {
        millstream_srt_free(caller.srt);
        millstream_srt_free(listener.srt);
        millstream_srt_free(other.srt);
    }
}

/// Makes a caller and a listener that are connected. Returns their ids and the time.
fn connected(caller: &mut End, listener: &mut End) -> (u64, u64, u64) {
    use MillstreamSrtEventKind::{Connected, Request};
    let (mut id, mut accepted, mut now) = (0, 0, 5);
    // SAFETY: the handles are valid, and the other pointers those of values that live.
    unsafe {
        let to = &raw const listener.address;
        millstream_srt_connect(caller.srt, now, to, b"one".as_ptr(), 3, &raw mut id);
        while caller.last() != Some(Connected) || listener.last() != Some(Connected) {
            assert!(now < 10_000_000, "no connection");
            now += 5_000;
            caller.carry(now, listener);
            listener.carry(now, caller);
            if listener.last() == Some(Request) {
                accepted = listener.events.pop().unwrap().1;
                millstream_srt_accept(listener.srt, now, accepted);
            }
        }
    }
    (id, accepted, now)
}

/// A program that takes no events holds a bounded number of bytes: the connection ends, and says why.
#[test]
fn events_that_are_not_taken_end_their_connection() {
    use MillstreamSrtEventKind::{Closed, Overflow, Payload};
    let (mut caller, mut listener) = (End::new(1), End::new(2));
    let (id, accepted, mut now) = connected(&mut caller, &mut listener);
    listener.events.clear();
    let (payload, mut sent) = ([7; 1316], 0);
    let (mut out, mut happened) = (datagram(), event());
    // SAFETY: the handles are valid, and the data of a datagram and an event lives until the next call with its handle.
    unsafe {
        // 20 000 payloads of 1316 bytes are three times what a connection may hold.
        while sent < 20_000 && now < 60_000_000 {
            now += 5_000;
            for _ in 0..20 {
                let result = millstream_srt_send(caller.srt, now, id, payload.as_ptr(), payload.len());
                sent += usize::from(result == MillstreamResult::Ok);
            }
            for (from, to) in [(&caller, &listener), (&listener, &caller)] {
                millstream_srt_handle_timeout(from.srt, now);
                while millstream_srt_poll_transmit(from.srt, now, &raw mut out) == MillstreamResult::Ok {
                    let address = &raw const from.address;
                    millstream_srt_handle_datagram(to.srt, now, address, out.data, out.length);
                }
            }
        }
        let mut kinds = Vec::new();
        while millstream_srt_poll_event(listener.srt, &raw mut happened) == MillstreamResult::Ok {
            assert_eq!(happened.connection, accepted);
            kinds.push(happened.kind);
        }
        let payloads = kinds.iter().filter(|kind| **kind == Payload).count();
        assert!((5_000..6_400).contains(&payloads), "{payloads} payloads");
        assert_eq!(kinds[payloads..], [Overflow, Closed]);
        assert_eq!(millstream_srt_send(listener.srt, now, accepted, null(), 0), MillstreamResult::State);
        // The peer was told.
        while millstream_srt_poll_event(caller.srt, &raw mut happened) == MillstreamResult::Ok {}
        assert_eq!(happened.kind, Closed);
        millstream_srt_free(caller.srt);
        millstream_srt_free(listener.srt);
    }
}

/// A program that takes no events is told of the callers that still wait, and not of all that have given up.
#[test]
fn callers_of_whom_the_program_has_heard_nothing_leave_nothing_behind() {
    let listener = End::new(2);
    let (mut id, mut now) = (0, 5);
    let mut out = datagram();
    // SAFETY: the handles are valid, and the data of a datagram lives until the next call with its handle.
    unsafe {
        for round in 0..20 {
            let caller = End::new(100 + round);
            let to = &raw const listener.address;
            for _ in 0..4 {
                millstream_srt_connect(caller.srt, now, to, b"one".as_ptr(), 3, &raw mut id);
            }
            for _ in 0..800 {
                now += 5_000;
                for (from, to) in [(&caller, &listener), (&listener, &caller)] {
                    millstream_srt_handle_timeout(from.srt, now);
                    while millstream_srt_poll_transmit(from.srt, now, &raw mut out) == MillstreamResult::Ok {
                        let address = &raw const from.address;
                        millstream_srt_handle_datagram(to.srt, now, address, out.data, out.length);
                    }
                }
            }
            millstream_srt_free(caller.srt);
        }
        let mut happened = event();
        assert_eq!(millstream_srt_poll_event(listener.srt, &raw mut happened), MillstreamResult::Nothing);
        millstream_srt_free(listener.srt);
    }
}

/// One host can use all addresses of its /64 network.
#[test]
fn callers_of_one_network_of_ipv6_share_their_places() {
    use MillstreamSrtEventKind::Request;
    let mut listener = End::new(2);
    let mut callers: Vec<End> = (0..20).map(|_| End::new(1)).collect();
    for (at, caller) in (0..).zip(&mut callers) {
        let mut ip = [0; 16];
        (ip[0], ip[1], ip[15]) = (0x20, 0x01, at);
        // The last one is of another network.
        ip[7] = u8::from(at == 19);
        caller.address = MillstreamAddress { ip, ip_length: 16, port: 1 };
        call_and_wait(caller, &mut listener, 1, 50_000);
    }
    assert_eq!(listener.count(Request), 9);
    // SAFETY: the handles are valid.
    unsafe {
        callers.iter().for_each(|caller| millstream_srt_free(caller.srt));
        millstream_srt_free(listener.srt);
    }
}
