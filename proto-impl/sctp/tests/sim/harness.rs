//! Test harness: two ends over lossy links in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use netsim::{Clock, Input, Link, Pair, Peer};
use sctp::{Association, ChannelId, CloseReason, Config, Event, Kind, Opened, Remote, Role};

/// An end of an association, with its recorded events.
pub(crate) struct End {
    pub(crate) association: Association,
    pub(crate) connected: bool,
    pub(crate) opened: Vec<Opened>,
    pub(crate) accepted: Vec<ChannelId>,
    pub(crate) messages: BTreeMap<ChannelId, Vec<(Kind, Bytes)>>,
    pub(crate) closed_channels: Vec<ChannelId>,
    pub(crate) writable: u32,
    pub(crate) closed: Option<CloseReason>,
    /// Messages to send as soon as there is room.
    pub(crate) outbox: VecDeque<(ChannelId, Bytes)>,
    /// True if events are polled.
    pub(crate) polls: bool,
    /// Maximum sizes that the send buffer and the receive buffer have reached.
    pub(crate) held: (usize, usize),
    /// Filter for sent packets; packets for which it returns false are dropped.
    pub(crate) passes: fn(&[u8]) -> bool,
    /// Record of all sent packets, if enabled.
    pub(crate) sent: Option<Vec<Bytes>>,
}

impl End {
    pub(crate) fn new(now: Instant, config: Config, role: Role, seed: u64) -> Self {
        let remote = Remote { message_bytes_max: 256 << 10, ..Remote::default() };
        let association = Association::new(now, Arc::new(config), role, remote, &Seed::from_number(seed));
        Self {
            association,
            connected: false,
            opened: Vec::new(),
            accepted: Vec::new(),
            messages: BTreeMap::new(),
            closed_channels: Vec::new(),
            writable: 0,
            closed: None,
            outbox: VecDeque::new(),
            polls: true,
            held: (0, 0),
            passes: |_| true,
            sent: None,
        }
    }

    /// Sends messages while there is room, and polls the events.
    pub(crate) fn drain(&mut self, now: Instant) {
        while let Some((channel, payload)) = self.outbox.front() {
            if self.association.send(now, *channel, Kind::Binary, payload.clone()).is_err() {
                break;
            }
            self.outbox.pop_front();
        }
        let (sent, received) = self.association.stats().buffered;
        self.held = (self.held.0.max(sent), self.held.1.max(received));
        while self.polls
            && let Some(event) = self.association.poll_event()
        {
            assert_eq!(self.closed, None, "nothing follows the end: {event:?}");
            match event {
                Event::Connected => self.connected = true,
                Event::Opened(opened) => self.opened.push(*opened),
                Event::Accepted(channel) => self.accepted.push(channel),
                Event::Message { channel, kind, payload } => {
                    self.messages.entry(channel).or_default().push((kind, payload));
                }
                Event::ChannelClosed(channel) => self.closed_channels.push(channel),
                Event::Writable => self.writable += 1,
                Event::Closed(reason) => self.closed = Some(reason),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the messages of a channel.
    pub(crate) fn of(&self, channel: ChannelId) -> Vec<Bytes> {
        self.messages.get(&channel).into_iter().flatten().map(|(_, payload)| payload.clone()).collect()
    }
}

impl Peer for End {
    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram(bytes) => self.association.handle_datagram(now, &bytes),
            Input::Timeout => self.association.handle_timeout(now),
        }
        self.drain(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes> {
        self.drain(now);
        let mut packet = Vec::new();
        while self.association.poll_transmit(now, &mut packet) {
            assert!(packet.len() <= Config::default().packet_bytes_max && packet.len() % 4 == 0);
            if (self.passes)(&packet) {
                let packet = Bytes::from(packet);
                self.sent.iter_mut().for_each(|sent| sent.push(packet.clone()));
                return Some(packet);
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.association.poll_timeout()
    }
}

pub(crate) type Ends = Pair<End, End>;

/// Creates two idle ends.
pub(crate) fn ends(seed: u64, configs: [Config; 2], links: impl Fn(Link) -> Link) -> Ends {
    let clock = Clock::new();
    let [a, b] = configs;
    let a = End::new(clock.now(), a, Role::Client, 2 * seed + 1000);
    let b = End::new(clock.now(), b, Role::Server, 2 * seed + 1001);
    Pair::new(seed, clock, a, b).links(links)
}

/// Creates two ends that both start connecting at the same time.
pub(crate) fn connecting(seed: u64, links: impl Fn(Link) -> Link) -> Ends {
    let mut pair = ends(seed, [Config::default(), Config::default()], links);
    let now = pair.clock.now();
    pair.a.association.connect(now);
    pair.b.association.connect(now);
    pair
}

/// Makes a message that contains its number.
pub(crate) fn message(number: usize, length: usize) -> Bytes {
    let byte = u8::try_from(number % 251).unwrap();
    let mut bytes = vec![byte; length.max(4)];
    bytes[..4].copy_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
    bytes.into()
}

/// Returns the number in a message, and checks that the message is intact.
pub(crate) fn number(payload: &[u8]) -> usize {
    let number = usize::try_from(u32::from_be_bytes(payload[..4].try_into().unwrap())).unwrap();
    assert!(payload[4..].iter().all(|byte| usize::from(*byte) == number % 251), "a message of others' parts");
    number
}
