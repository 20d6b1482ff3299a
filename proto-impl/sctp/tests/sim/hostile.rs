//! Simulations of hostile peers, which send handmade packets to an association.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use netsim::{Clock, ms, secs};
use sctp::{Association, ChannelId, CloseReason, Config, Event, Kind, Options, Remote, Role};

const OURS: u32 = 0x0102_0304;
const FIRST: u32 = 0xffff_ff00;

/// A handmade peer, and the association to which it sends.
struct Raw {
    clock: Clock,
    association: Association,
    /// Verification tag of the association.
    theirs: u32,
    /// Next TSN of the peer.
    tsn: u32,
    /// Received chunks: type, flags, value.
    got: Vec<(u8, u8, Vec<u8>)>,
    events: Vec<Event>,
}

fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![kind, flags];
    out.extend(u16::try_from(value.len() + 4).unwrap().to_be_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn packet(tag: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut out = [5000u16.to_be_bytes(), 5000u16.to_be_bytes()].concat();
    out.extend(tag.to_be_bytes());
    out.extend([0; 4]);
    chunks.iter().for_each(|chunk| out.extend(chunk));
    sctp::seal(&mut out);
    out
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn halves(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn init(window: u32) -> Vec<u8> {
    let fixed = [words(&[OURS, window]), halves(&[100, 100]), words(&[FIRST])].concat();
    // The parameters that announce partial reliability (RFC 3758) and the chunk types `RE-CONFIG` and `FORWARD TSN`.
    [fixed, vec![0xc0, 0, 0, 4, 0x80, 8, 0, 6, 0x82, 0xc0, 0, 0]].concat()
}

fn data(tsn: u32, flags: u8, stream: u16, ssn: u16, ppid: u32, payload: &[u8]) -> Vec<u8> {
    let head = [words(&[tsn]), halves(&[stream, ssn]), words(&[ppid])].concat();
    chunk(0, flags, &[&head, payload].concat())
}

fn open(label: &[u8]) -> Vec<u8> {
    let head = [&[3, 0, 1, 0, 0, 0, 0, 0][..], &u16::try_from(label.len()).unwrap().to_be_bytes(), &[0, 0]];
    [&head.concat(), label].concat()
}

fn sack(cumulative: u32, window: u32, gaps: &[(u16, u16)]) -> Vec<u8> {
    let counts = halves(&[u16::try_from(gaps.len()).unwrap(), 0]);
    let gaps: Vec<u8> = gaps.iter().flat_map(|(first, last)| halves(&[*first, *last])).collect();
    chunk(3, 0, &[words(&[cumulative, window]), counts, gaps].concat())
}

impl Raw {
    fn new(config: Config) -> Self {
        let clock = Clock::new();
        let seed = Seed::from_number(5);
        let remote = Remote::default();
        let association = Association::new(clock.now(), Arc::new(config), Role::Client, remote, &seed);
        Self { clock, association, theirs: 0, tsn: FIRST, got: Vec::new(), events: Vec::new() }
    }

    fn connected(config: Config, window: u32) -> Self {
        let mut raw = Self::new(config);
        raw.give(0, &[chunk(1, 0, &init(window))]);
        let (_, _, answer) = raw.take(2).remove(0);
        raw.theirs = u32::from_be_bytes(answer[..4].try_into().unwrap());
        let cookie = cookie_of(&answer);
        raw.say(&[chunk(10, 0, &cookie)]);
        assert_eq!((raw.take(11).len(), raw.events.as_slice()), (1, &[Event::Connected][..]));
        raw.events.clear();
        raw
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn give(&mut self, tag: u32, chunks: &[Vec<u8>]) {
        let now = self.now();
        self.association.handle_datagram(now, &packet(tag, chunks));
        self.drain();
    }

    fn say(&mut self, chunks: &[Vec<u8>]) {
        self.give(self.theirs, chunks);
    }

    fn drain(&mut self) {
        let now = self.now();
        let mut out = Vec::new();
        self.events.extend(std::iter::from_fn(|| self.association.poll_event()));
        while self.association.poll_transmit(now, &mut out) {
            let mut rest = &out[12..];
            while rest.len() >= 4 {
                let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
                self.got.push((rest[0], rest[1], rest[4..length].to_vec()));
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
            }
        }
    }

    fn wait(&mut self, time: std::time::Duration) {
        let end = self.clock.elapsed() + time;
        while let Some(at) = self.association.poll_timeout().filter(|at| self.clock.offset(*at) <= end) {
            self.clock.advance_to(at);
            let now = self.now();
            self.association.handle_timeout(now);
            self.drain();
        }
        let rest = end.saturating_sub(self.clock.elapsed());
        self.clock.advance(rest);
    }

    /// Takes the received chunks of one type.
    fn take(&mut self, kind: u8) -> Vec<(u8, u8, Vec<u8>)> {
        let (found, rest) =
            std::mem::take(&mut self.got).into_iter().partition(|(found, _, _)| *found == kind);
        self.got = rest;
        found
    }

    fn data(&mut self, flags: u8, stream: u16, ssn: u16, ppid: u32, payload: &[u8]) {
        let tsn = self.tsn;
        self.tsn = tsn.wrapping_add(1);
        self.say(&[data(tsn, flags, stream, ssn, ppid, payload)]);
    }

    /// Opens channel 1, whose next sequence number is 1.
    fn open(&mut self) {
        self.data(3, 1, 0, 50, &open(b"x"));
        assert!(matches!(self.events[..], [Event::Opened(_)]));
        self.events.clear();
        self.got.clear();
    }

    fn received(&self) -> usize {
        self.association.stats().buffered.1
    }

    fn closed(&self) -> Option<CloseReason> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(*reason),
            _ => None,
        })
    }
}

fn cookie_of(answer: &[u8]) -> Vec<u8> {
    let mut rest = &answer[16..];
    loop {
        let (kind, length) = (&rest[..2], usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        if kind == [0, 7] {
            return rest[4..length].to_vec();
        }
        rest = &rest[length.next_multiple_of(4)..];
    }
}

#[test]
fn d_20_a_flood_of_requests_leaves_nothing_behind() {
    let mut raw = Raw::new(Config::default());
    let before = format!("{:?}", raw.association);
    for _ in 0..1000 {
        raw.give(0, &[chunk(1, 0, &init(100_000))]);
    }
    let answers = raw.take(2);
    assert_eq!((answers.len(), raw.association.poll_timeout()), (1000, None));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "all of them are one");
    // The state is the same as before. Numbers are not compared, because the packet counters have changed.
    let numbers = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    assert_eq!(numbers(&format!("{:?}", raw.association)), numbers(&before));
    // The number of waiting answers is limited, even if they are never sent.
    let now = raw.now();
    (0..1000).for_each(|_| raw.association.handle_datagram(now, &packet(0, &[chunk(1, 0, &init(100_000))])));
    raw.drain();
    assert_eq!(raw.take(2).len(), sctp::CONTROL_CHUNKS_MAX);
}

#[test]
fn d_20_cookies_are_not_forged_and_do_not_live_for_ever() {
    let mut raw = Raw::new(Config::default());
    raw.give(0, &[chunk(1, 0, &init(100_000))]);
    let (_, _, answer) = raw.take(2).remove(0);
    raw.theirs = u32::from_be_bytes(answer[..4].try_into().unwrap());
    let cookie = cookie_of(&answer);
    for at in 0..cookie.len() {
        let mut forged = cookie.clone();
        forged[at] ^= 1;
        raw.say(&[chunk(10, 0, &forged)]);
        assert!(raw.got.is_empty() && raw.events.is_empty(), "{at}");
    }
    raw.give(raw.theirs.wrapping_add(1), &[chunk(10, 0, &cookie)]);
    assert!(raw.events.is_empty(), "a tag of nobody");
    raw.wait(secs(61));
    raw.say(&[chunk(10, 0, &cookie)]);
    assert!(raw.events.is_empty(), "too old");
}

#[test]
fn d_21_packets_with_another_tag_or_port_do_nothing() {
    let mut raw = Raw::connected(Config::default(), 100_000);
    let before = raw.association.stats().dropped;
    let chunks: Vec<Vec<u8>> = vec![
        data(FIRST, 3, 1, 0, 50, &open(b"x")),
        sack(0, 0, &[]),
        chunk(6, 0, &[]),
        chunk(6, 1, &[]),
        chunk(7, 0, &[0; 4]),
        chunk(8, 0, &[]),
        chunk(14, 0, &[]),
        chunk(4, 0, &[0, 1, 0, 8, 1, 2, 3, 4]),
        chunk(0xc0, 0, &[0; 4]),
        chunk(0x82, 0, &[0, 16, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0]),
        chunk(1, 0, &init(100_000)),
    ];
    for chunk in &chunks {
        for tag in [0x7777_7777, raw.theirs ^ 1] {
            raw.give(tag, std::slice::from_ref(chunk));
        }
    }
    // Also dropped: an INIT after another chunk, an INIT with a verification tag, and a packet for another
    // port.
    raw.give(0, &[sack(0, 0, &[]), chunk(1, 0, &init(100_000))]);
    raw.say(&[chunk(1, 0, &init(100_000))]);
    let mut port = packet(raw.theirs, &[chunk(6, 0, &[])]);
    port[1] ^= 1;
    sctp::seal(&mut port);
    let now = raw.now();
    raw.association.handle_datagram(now, &port);
    raw.drain();
    assert!(raw.got.is_empty() && raw.events.is_empty(), "{:?} {:?}", raw.got, raw.events);
    assert!(raw.association.stats().dropped >= before + 25);
    // An ABORT with the T bit has the tag of its sender instead of the receiver's. It ends the association (RFC 9260
    // §8.5.1).
    raw.give(OURS, &[chunk(6, 1, &[])]);
    assert_eq!(raw.closed(), Some(CloseReason::Aborted));
}

#[test]
fn d_22_what_waits_for_fragments_and_order_is_bounded() {
    let config = Config { receive_buffer_bytes: 100_000, message_bytes_max: 20_000, ..Config::default() };
    let most = 120_000;
    // Every second TSN is missing. The chunks are the starts, middles or ends of messages, or complete messages,
    // ordered or not. The receive buffer stays within its limit.
    for flags in [2u8, 0, 1, 3, 7] {
        for length in [1, 100, 1000] {
            let mut raw = Raw::connected(config.clone(), 100_000);
            raw.open();
            for n in 0..3000u32 {
                let ssn = u16::try_from(n + 5).unwrap();
                raw.say(&[data(raw.tsn.wrapping_add(1 + 2 * n), flags, 1, ssn, 53, &vec![0; length])]);
                assert!(raw.received() <= most);
            }
        }
    }
    // On an ordered channel, messages wait for an earlier one that never arrives; this eventually ends the
    // association.
    for length in [1, 1000] {
        let mut raw = Raw::connected(config.clone(), 100_000);
        raw.open();
        for n in 0..3000u32 {
            raw.data(3, 1, u16::try_from(n + 5).unwrap(), 53, &vec![0; length]);
            assert!(raw.received() <= most);
        }
        assert_eq!(raw.closed(), Some(CloseReason::Limit), "{length}");
    }
    // A message that exceeds the maximum size before it ends closes the association.
    let mut raw = Raw::connected(config.clone(), 100_000);
    raw.open();
    raw.data(2, 1, 1, 53, &[0; 1000]);
    (0..30).for_each(|_| raw.data(0, 1, 1, 53, &[0; 1000]));
    assert_eq!(raw.closed(), Some(CloseReason::Limit));
    // Messages on 5000 streams that have no channel are refused and not stored.
    let mut raw = Raw::connected(config, 100_000);
    for stream in 0..5000 {
        raw.data(3, stream, 0, 53, &[0; 10]);
        assert!(raw.received() <= most);
    }
    assert_eq!((raw.closed(), raw.association.stats().refused), (None, 5000));
}

#[test]
fn d_23_a_packet_full_of_chunks_is_looked_at_as_far_as_the_limit() {
    let mut raw = Raw::connected(Config::default(), 100_000);
    raw.open();
    let beat = chunk(4, 0, &[0, 1, 0, 8, 1, 2, 3, 4]);
    raw.say(&vec![beat; 500]);
    assert_eq!(raw.take(5).len(), 1, "one answer to a packet");
    raw.say(&vec![chunk(0xff, 0, &[0; 8]); 500]);
    assert_eq!(raw.take(9).len(), 1, "one report of unknown chunks");
    let number = raw.tsn;
    let empty: Vec<Vec<u8>> = (0..500)
        .map(|n| data(number.wrapping_add(n), 3, 1, u16::try_from(n + 1).unwrap(), 51, b"x"))
        .collect();
    raw.say(&empty);
    assert_eq!(raw.events.len(), sctp::CHUNKS_PER_PACKET_MAX);
    assert_eq!(raw.closed(), None);
}

#[test]
fn d_22_chunks_without_data_and_fragments_that_do_not_fit_end_it() {
    for bad in [
        |raw: &mut Raw| raw.data(3, 1, 1, 53, b""),
        |raw: &mut Raw| {
            raw.data(2, 1, 1, 53, b"a");
            raw.data(2, 1, 2, 53, b"b");
        },
        |raw: &mut Raw| {
            raw.data(2, 1, 1, 53, b"a");
            raw.data(1, 2, 1, 53, b"b");
        },
    ] {
        let mut raw = Raw::connected(Config::default(), 100_000);
        raw.open();
        bad(&mut raw);
        assert_eq!(raw.closed(), Some(CloseReason::Violation));
        assert_eq!(raw.take(6).len(), 1, "the peer is told");
    }
}

#[test]
fn d_24_acknowledgements_of_what_was_not_sent_do_nothing() {
    let mut raw = Raw::connected(Config::default(), 1 << 20);
    raw.open();
    let now = raw.now();
    let channel = ChannelId(1);
    (0..5).for_each(|_| {
        raw.association.send(now, channel, Kind::Binary, vec![0; 900].into()).unwrap();
    });
    raw.drain();
    let mut sent = tsns(&mut raw);
    // Acknowledges the message that opened the channel.
    raw.say(&[sack(sent[0].wrapping_sub(1), 1 << 20, &[])]);
    sent.extend(tsns(&mut raw));
    let (first, last) = (sent[0], *sent.last().unwrap());
    let flight = raw.association.stats().in_flight;
    assert!(flight > 1000);
    for bad in [
        sack(last.wrapping_add(1), 1000, &[]),
        sack(last.wrapping_add(1 << 20), 1000, &[]),
        sack(first.wrapping_sub(2), 1000, &[]),
        sack(first.wrapping_sub(1), 1000, &[(100, 200)]),
        sack(first.wrapping_sub(1), 1000, &[(3, 2), (0, 0)]),
        chunk(3, 0, &[0; 11]),
        // The header of the chunk announces more gaps than the chunk contains.
        chunk(3, 0, &[words(&[first, 1000]), halves(&[60_000, 60_000])].concat()),
    ] {
        raw.say(&[bad]);
        assert_eq!(raw.association.stats().in_flight, flight);
    }
    raw.say(&[sack(last, 1 << 20, &[])]);
    assert_eq!(raw.association.stats().in_flight, 0);
}

/// Takes the TSNs of the received data chunks.
fn tsns(raw: &mut Raw) -> Vec<u32> {
    let tsn = |value: &[u8]| u32::from_be_bytes(value[..4].try_into().unwrap());
    raw.take(0).iter().map(|(_, _, value)| tsn(value)).collect()
}

/// Creates an association that has sent `count` chunks of 900 bytes, none of them acknowledged. Returns it with
/// the first TSN.
fn with_flight(count: usize) -> (Raw, u32) {
    let mut raw = Raw::connected(Config::default(), 1 << 20);
    raw.open();
    let now = raw.now();
    (0..count).for_each(|_| {
        raw.association.send(now, ChannelId(1), Kind::Binary, vec![0; 900].into()).unwrap();
    });
    raw.drain();
    let mut numbers = tsns(&mut raw);
    let first = numbers[0];
    // Acknowledges the message that opened the channel, so that the association may send another burst.
    raw.say(&[sack(first.wrapping_sub(1), 1 << 20, &[])]);
    numbers.extend(tsns(&mut raw));
    assert_eq!((numbers.len(), raw.association.stats().in_flight), (count, count * 916));
    (raw, first)
}

/// Checks RFC 9260 §7.2.4: after three acknowledgements of later chunks, a chunk is retransmitted immediately, and
/// the congestion window is halved only once.
#[test]
fn a_chunk_that_three_overtook_is_sent_again_at_once() {
    let (mut raw, first) = with_flight(4);
    let before = first.wrapping_sub(1);
    for (last, again) in [(2, false), (3, false), (4, true), (4, false)] {
        raw.say(&[sack(before, 1 << 20, &[(2, last)])]);
        assert_eq!(tsns(&mut raw).contains(&first), again, "{last}");
    }
    let stats = raw.association.stats();
    assert_eq!(
        (stats.retransmitted, stats.timeouts, stats.window),
        (1, 0, 4 * 1152),
        "half, and no less than four packets"
    );
}

/// Checks RFC 9260 §6.2.1: a peer may drop data that it has acknowledged in a gap block.
#[test]
fn a_chunk_that_the_peer_took_back_is_sent_again() {
    let (mut raw, first) = with_flight(3);
    raw.say(&[sack(first.wrapping_sub(1), 1 << 20, &[(2, 3)])]);
    raw.say(&[sack(first, 1 << 20, &[])]);
    assert_eq!(tsns(&mut raw), [0; 0]);
    raw.wait(secs(5));
    let again = tsns(&mut raw);
    assert!(again.contains(&first.wrapping_add(1)), "{again:?}");
    raw.say(&[sack(first.wrapping_add(2), 1 << 20, &[])]);
    assert_eq!(raw.association.stats().in_flight, 0);
}

/// Checks storms of acknowledgements, each with as many gap blocks as fit.
#[test]
fn d_24_a_storm_of_acknowledgements_sends_no_more_than_the_window() {
    let mut raw = Raw::connected(Config::default(), 1 << 20);
    raw.open();
    let now = raw.now();
    let channel = ChannelId(1);
    (0..900).for_each(|_| {
        raw.association.send(now, channel, Kind::Binary, vec![0; 1000].into()).unwrap();
    });
    raw.drain();
    let first = u32::from_be_bytes(raw.take(0)[0].2[..4].try_into().unwrap());
    let blocks: Vec<(u16, u16)> = (0..250).map(|n| (2 + 2 * n, 2 + 2 * n)).collect();
    for _ in 0..1000 {
        raw.say(&[sack(first.wrapping_sub(1), 1 << 20, &blocks)]);
        let stats = raw.association.stats();
        assert!(stats.in_flight <= stats.window + 1152, "{stats:?}");
    }
    assert!(raw.association.stats().retransmitted < 900);
    assert_eq!(raw.closed(), None);
}

#[test]
fn d_24_a_tiny_window_is_probed_one_chunk_at_a_time() {
    let mut raw = Raw::connected(Config::default(), 1500);
    raw.open();
    let now = raw.now();
    (0..50).for_each(|_| {
        raw.association.send(now, ChannelId(1), Kind::Binary, vec![0; 5000].into()).unwrap();
    });
    raw.drain();
    let tsn = |value: &[u8]| u32::from_be_bytes(value[..4].try_into().unwrap());
    let mut last = raw.take(0).iter().map(|(_, _, value)| tsn(value)).max().unwrap();
    for _ in 0..100 {
        raw.say(&[sack(last, 1, &[])]);
        let sent = raw.take(0);
        assert!(sent.len() <= 1, "{}", sent.len());
        last = sent.iter().map(|(_, _, value)| tsn(value)).max().unwrap_or(last);
    }
    // A zero window for an hour is probed less and less often, and a peer that answers is not given up.
    let before = raw.association.stats().packets.sent;
    for _ in 0..360 {
        raw.wait(secs(10));
        raw.say(&[sack(last.wrapping_sub(1), 0, &[])]);
    }
    assert_eq!(raw.closed(), None);
    assert!(raw.association.stats().packets.sent - before < 5000);
}

#[test]
fn d_25_giving_up_what_was_never_sent_skips_that_and_nothing_else() {
    let mut raw = Raw::connected(Config::default(), 100_000);
    raw.open();
    // A `FORWARD TSN` far beyond a partly received message discards that message.
    raw.data(2, 1, 1, 53, b"a");
    let far = raw.tsn.wrapping_add(0x7000_0000);
    raw.say(&[chunk(0xc0, 0, &[words(&[far]), halves(&[1, 1, 9, 40_000, 1, 65_000])].concat())]);
    assert_eq!((raw.received(), raw.closed()), (0, None));
    // A jump backwards has no effect.
    raw.say(&[chunk(0xc0, 0, &words(&[FIRST]))]);
    raw.say(&[chunk(0xc0, 0, &[0; 3])]);
    raw.tsn = far.wrapping_add(1);
    raw.data(3, 1, 2, 51, b"on");
    let on = Event::Message { channel: ChannelId(1), kind: Kind::Text, payload: Bytes::from_static(b"on") };
    assert_eq!(raw.events, [on]);
    // Thousands of `FORWARD TSN`, which together name every stream several times, leave nothing in memory.
    for stream in 0..3000u16 {
        let to = raw.tsn;
        raw.tsn = to.wrapping_add(1);
        let list: Vec<u16> = (0..200).flat_map(|n| [stream.wrapping_mul(200).wrapping_add(n), 5]).collect();
        raw.say(&[chunk(0xc0, 0, &[words(&[to]), halves(&list)].concat())]);
    }
    assert_eq!((raw.received(), raw.closed()), (0, None));
}

#[test]
fn d_26_requests_to_open_without_end_are_refused_and_bounded() {
    let mut raw = Raw::connected(Config { channels_max: 8, ..Config::default() }, 1 << 20);
    for stream in 0..60_000u16 {
        raw.data(3, stream, 0, 50, &open(b"x"));
        raw.got.clear();
        raw.events.clear();
    }
    let stats = raw.association.stats();
    assert_eq!((stats.channels, stats.refused), (8, 60_000 - 8));
    assert!(stats.buffered.0 < 2000, "{stats:?}");
    // Malformed requests to open a channel, and one for a channel that is already open, open no channel and do not end
    // the association.
    let mut raw = Raw::connected(Config::default(), 1 << 20);
    raw.open();
    for payload in [&b""[..], &[3], &[9; 20], &[3, 0, 1, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1]] {
        let payload = if payload.is_empty() { &[0][..] } else { payload };
        raw.data(3, 3, 0, 50, payload);
    }
    assert_eq!((raw.association.stats().channels, raw.closed()), (1, None));
}

#[test]
fn d_26_requests_to_reset_are_answered_by_their_number() {
    let mut raw = Raw::connected(Config::default(), 1 << 20);
    raw.open();
    let request = |number: u32, last: u32, streams: &[u16]| {
        let value = [words(&[number, 0, last]), halves(streams)].concat();
        chunk(0x82, 0, &chunk_as_parameter(13, &value))
    };
    let result = |raw: &mut Raw| {
        let answers = raw.take(0x82);
        let found = answers.iter().find(|(_, _, value)| value[..2] == [0, 16]);
        found.map(|(_, _, value)| u32::from_be_bytes(value[8..12].try_into().unwrap()))
    };
    // First a wrong request number; then a request that refers to data that has not arrived yet; then the
    // data arrives.
    raw.say(&[request(FIRST.wrapping_add(9), FIRST, &[1])]);
    assert_eq!(result(&mut raw), Some(5));
    raw.say(&[request(FIRST, raw.tsn, &[1])]);
    assert_eq!(result(&mut raw), Some(6));
    raw.say(&[request(FIRST, raw.tsn, &[1])]);
    assert_eq!(result(&mut raw), Some(6));
    raw.data(3, 1, 1, 51, b"last");
    assert_eq!(result(&mut raw), Some(1));
    raw.say(&[request(FIRST, raw.tsn, &[1])]);
    assert_eq!(result(&mut raw), Some(1), "the same answer again");
    // Other requests are denied and counted.
    for (n, kind) in [14u16, 15, 17, 18].into_iter().enumerate() {
        let number = FIRST.wrapping_add(1 + u32::try_from(n).unwrap());
        raw.say(&[chunk(0x82, 0, &chunk_as_parameter(kind, &words(&[number, 0])))]);
        assert_eq!(result(&mut raw), Some(2), "{kind}");
    }
    assert_eq!(raw.closed(), None);
}

fn chunk_as_parameter(kind: u16, value: &[u8]) -> Vec<u8> {
    let [high, low] = kind.to_be_bytes();
    chunk(high, low, value)
}

#[test]
fn d_21_another_association_of_the_peer_ends_this_one() {
    let mut raw = Raw::connected(Config::default(), 100_000);
    raw.open();
    // A repetition of the peer's INIT is answered, but the association continues unchanged.
    raw.give(0, &[chunk(1, 0, &init(100_000))]);
    let (_, _, answer) = raw.take(2).remove(0);
    raw.say(&[chunk(10, 0, &cookie_of(&answer))]);
    assert_eq!((raw.take(11).len(), raw.closed()), (1, None));
    let mut other = init(100_000);
    other[0] ^= 1;
    raw.give(0, &[chunk(1, 0, &other)]);
    let (_, _, answer) = raw.take(2).remove(0);
    assert_eq!(raw.closed(), None, "nothing happens before the cookie");
    raw.say(&[chunk(10, 0, &cookie_of(&answer))]);
    assert_eq!(raw.closed(), Some(CloseReason::Restarted));
}

/// Checks arbitrary bytes in chunks with a valid checksum and the right tag.
#[test]
fn d_23_noise_does_no_harm() {
    for seed in 0..300 {
        let mut random = Seed::from_number(seed).random();
        let mut raw = Raw::connected(Config { receive_buffer_bytes: 50_000, ..Config::default() }, 100_000);
        raw.open();
        for _ in 0..200 {
            let kinds = [0, 0, 0, 3, 3, 4, 5, 7, 9, 0x82, 0x82, 0xc0, 0xc0, 0x3f, 0x7f, 0xbf, 0xff];
            let count = 1 + random.below(4);
            let chunks: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let kind = kinds[usize::try_from(random.below(17)).unwrap()];
                    let mut value = vec![0; usize::try_from(random.below(40)).unwrap()];
                    random.fill(&mut value);
                    if value.len() > 4 && random.chance(0.8) {
                        // The value mostly begins with a TSN close to the expected one.
                        let near = raw.tsn.wrapping_add(u32::try_from(random.below(8)).unwrap());
                        value[..4].copy_from_slice(&near.to_be_bytes());
                    }
                    let [flags, ..] = random.u64().to_be_bytes();
                    chunk(kind, flags & 7, &value)
                })
                .collect();
            raw.say(&chunks);
            let now = raw.now();
            let _ = raw.association.send(now, ChannelId(1), Kind::Binary, vec![7; 300].into());
            let _ = raw.association.open(now, "x", "", Options::default());
            raw.wait(ms(random.below(500)));
            assert!(raw.received() <= 50_000 + (256 << 10) + 400);
        }
        let ends = raw.events.iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert!(ends <= 1 && (ends == 0 || matches!(raw.events.last(), Some(Event::Closed(_)))));
    }
}

/// A peer that opens the stream that we have opened (werift as DTLS client takes odd numbers, too) is answered, in either
/// order of its messages. Both sides then share the channel. Further requests get no answers.
#[test]
fn a_channel_that_both_sides_open_is_shared() {
    const DCEP: u32 = 50;
    for is_accepted_first in [false, true] {
        let mut raw = Raw::connected(Config::default(), 100_000);
        let now = raw.now();
        let channel = raw.association.open(now, "ours", "", Options::default()).unwrap();
        raw.drain();
        let opens = raw.take(0).len();
        let mut ssn = 0;
        let mut dcep = |raw: &mut Raw, payload: &[u8]| {
            raw.data(3, 0, ssn, DCEP, payload);
            ssn += 1;
        };
        if is_accepted_first {
            dcep(&mut raw, &[2]);
        }
        (0..5).for_each(|_| dcep(&mut raw, &open(b"theirs")));
        if !is_accepted_first {
            dcep(&mut raw, &[2]);
        }
        assert_eq!(raw.events, [Event::Accepted(channel)]);
        let acknowledged = raw.take(0).into_iter().filter(|(_, _, value)| value[12..] == [2]).count();
        assert_eq!((opens, acknowledged), (1, 1));
        assert_eq!(raw.association.stats().refused, 4);
        raw.data(3, 0, ssn, 51, b"hello");
        let message = Event::Message { channel, kind: Kind::Text, payload: Bytes::from_static(b"hello") };
        assert_eq!(raw.events.last(), Some(&message));
    }
}
