//! Two ends of an association, with everything that a network and a hostile peer can do to packets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use sctp::{Association, ChannelId, Config, Event, Kind, Options, Reliability, Remote, Role};

use crate::http_targets::epoch;

/// Maximum number of packets in flight in one direction; further ones are lost.
const QUEUE_MAX: usize = 256;
/// Types of forged chunks: all known ones, and one of each class of unknown ones.
const KINDS: [u8; 20] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 0x82, 0xc0, 0x3f, 0x7f, 0xbf, 0xff, 0];

/// Runs two ends: packets are delivered, lost, duplicated, damaged and forged, time passes, and channels are
/// opened and closed. The first byte sets the configuration of the ends; operations follow, each with an argument.
pub fn sctp(data: &[u8]) {
    let Some((flags, operations)) = data.split_first() else { return };
    let mut ends = Ends::new(*flags);
    let mut operations = operations.iter().copied().take(2000);
    while let (Some(operation), Some(argument)) = (operations.next(), operations.next()) {
        if operation & 0x80 != 0 {
            let value: Vec<u8> = operations.by_ref().take(usize::from(argument) % 64).collect();
            ends.forge(operation, &value);
        } else {
            ends.operate(operation, argument);
        }
        ends.drain();
        ends.check();
    }
    ends.finish();
}

struct End {
    association: Association,
    /// Packets in flight from this end.
    out: Vec<Vec<u8>>,
    /// The verification tag and the last TSN of the packets that this end has sent.
    seen: (u32, u32),
    channels: Vec<ChannelId>,
    sent: u32,
    /// The last message received on each ordered channel.
    came: Vec<(ChannelId, u32)>,
    closed: bool,
}

struct Ends {
    now: Instant,
    config: Arc<Config>,
    ends: [End; 2],
    options: Options,
    /// True if nothing was forged or damaged, so that the messages received must be those sent.
    honest: bool,
}

impl Ends {
    fn new(flags: u8) -> Self {
        let now = epoch();
        let small = Config {
            receive_buffer_bytes: 8000,
            send_buffer_bytes: 8000,
            message_bytes_max: 4000,
            channels_max: 4,
            errors_max: 5,
            ..Config::default()
        };
        let config = if flags & 1 == 0 { Config { errors_max: 5, ..Config::default() } } else { small };
        let reliability = match flags >> 4 & 3 {
            0 | 1 => Reliability::Full,
            2 => Reliability::Retransmits(u32::from(flags >> 6)),
            _ => Reliability::Lifetime(Duration::from_millis(300)),
        };
        let config = Arc::new(config);
        let end = |role, seed| {
            let remote = Remote { message_bytes_max: 4000, ..Remote::default() };
            let association =
                Association::new(now, Arc::clone(&config), role, remote, &Seed::from_number(seed));
            End {
                association,
                out: Vec::new(),
                seen: (0, 0),
                channels: Vec::new(),
                sent: 0,
                came: Vec::new(),
                closed: false,
            }
        };
        let mut ends = [end(Role::Client, 1), end(Role::Server, 2)];
        ends[0].association.connect(now);
        if flags & 2 != 0 {
            ends[1].association.connect(now);
        }
        let options = Options { unordered: flags & 8 != 0, reliability };
        let mut made = Self { now, config, ends, options, honest: true };
        made.drain();
        made
    }

    fn operate(&mut self, operation: u8, argument: u8) {
        let which = usize::from(operation & 1);
        let at = usize::from(argument);
        match operation >> 1 & 15 {
            0..=2 => (0..=at % 16).for_each(|_| self.deliver(which, 0)),
            3 => self.deliver(which, at),
            4 => self.lose(which, at),
            5 => self.double(which, at),
            6 => self.damage(which, at),
            7 => self.pass(Duration::from_millis(u64::from(argument) * 10)),
            8 => self.pass(Duration::from_secs(u64::from(argument))),
            9..=11 => self.send(which, at),
            12 => {
                if let Ok(channel) = self.ends[which].association.open(self.now, "x", "y", self.options) {
                    self.ends[which].channels.push(channel);
                }
            }
            13 => {
                let end = &mut self.ends[which];
                if let Some(channel) = end.channels.get(at % end.channels.len().max(1)).copied() {
                    end.association.close_channel(self.now, channel);
                    // A new channel may get the same number, and its messages are counted from the start again. So the
                    // order of messages is no longer checked.
                    self.honest = false;
                }
            }
            14 if argument == 0 => self.ends[which].association.close(self.now),
            14 if argument == 1 => self.ends[which].association.abort(),
            _ => self.timeouts(),
        }
    }

    fn deliver(&mut self, from: usize, at: usize) {
        let queue = &mut self.ends[from].out;
        if !queue.is_empty() {
            let packet = queue.remove(at % queue.len());
            self.ends[1 - from].association.handle_datagram(self.now, &packet);
        }
    }

    fn lose(&mut self, from: usize, at: usize) {
        let queue = &mut self.ends[from].out;
        if !queue.is_empty() {
            queue.remove(at % queue.len());
        }
    }

    fn double(&mut self, from: usize, at: usize) {
        let queue = &mut self.ends[from].out;
        if let Some(packet) = queue.get(at % queue.len().max(1)).cloned() {
            queue.push(packet);
        }
    }

    /// Flips a bit of a packet; the checksum of every second one is corrected.
    fn damage(&mut self, from: usize, at: usize) {
        let Some(packet) = self.ends[from].out.first_mut() else { return };
        let length = packet.len().max(1);
        if let Some(byte) = packet.get_mut(at % length) {
            *byte ^= 1 << (at % 8);
        }
        if at & 1 == 0 {
            sctp::seal(packet);
            self.honest = false;
        }
    }

    /// Forges a chunk with the right verification tag. Its first number is close to the one that the peer expects.
    fn forge(&mut self, operation: u8, value: &[u8]) {
        let to = usize::from(operation & 1);
        let kind = KINDS[usize::from(operation >> 1 & 0x3f) % KINDS.len()];
        let (tag, tsn) = self.ends[1 - to].seen;
        let mut value = value.to_vec();
        if let Some((near, field)) = value.split_first_chunk_mut::<4>().map(|(field, _)| (field[3], field))
            && field[0] & 1 == 0
        {
            let near = tsn.wrapping_add(u32::from(near)).wrapping_sub(100);
            field.copy_from_slice(&near.to_be_bytes());
        }
        let tag = if kind == 1 { 0 } else { tag };
        let mut packet = [5000u16.to_be_bytes(), 5000u16.to_be_bytes()].concat();
        packet.extend(tag.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend([kind, operation >> 5 & 3]);
        packet.extend(u16::try_from(value.len() + 4).unwrap_or_default().to_be_bytes());
        packet.extend(value);
        packet.resize(packet.len().next_multiple_of(4), 0);
        sctp::seal(&mut packet);
        self.honest = false;
        self.ends[to].association.handle_datagram(self.now, &packet);
    }

    fn send(&mut self, which: usize, at: usize) {
        let end = &mut self.ends[which];
        let Some(channel) = end.channels.get(at % end.channels.len().max(1)).copied() else { return };
        let mut payload = end.sent.to_be_bytes().to_vec();
        payload.resize(4 + at * 15, 7);
        if end.association.send(self.now, channel, Kind::Binary, payload.into()).is_ok() {
            end.sent += 1;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.timeouts();
    }

    fn timeouts(&mut self) {
        for end in &mut self.ends {
            // A timeout that comes early must be harmless.
            end.association.handle_timeout(self.now);
        }
        self.drain();
        for end in &self.ends {
            assert!(end.association.poll_timeout().is_none_or(|at| at > self.now), "a deadline that stays");
        }
    }

    fn drain(&mut self) {
        let (honest, ordered) = (self.honest, !self.options.unordered);
        let sent = [self.ends[1].sent, self.ends[0].sent];
        for (end, sent) in self.ends.iter_mut().zip(sent) {
            while let Some(event) = end.association.poll_event() {
                assert!(!end.closed, "{event:?} after the end");
                match event {
                    Event::Closed(_) => end.closed = true,
                    Event::Message { channel, payload, .. } if honest => {
                        let number = payload.first_chunk().copied().map_or(u32::MAX, u32::from_be_bytes);
                        assert!(number < sent && payload[4..].iter().all(|byte| *byte == 7));
                        let last = end.came.iter_mut().find(|(known, _)| *known == channel);
                        match last {
                            Some((_, last)) if ordered => {
                                assert!(*last < number, "out of order");
                                *last = number;
                            }
                            Some(_) => {}
                            None => end.came.push((channel, number)),
                        }
                    }
                    _ => {}
                }
            }
            let mut packet = Vec::new();
            let mut turns = 0;
            while end.association.poll_transmit(self.now, &mut packet) {
                assert!(packet.len() <= self.config.packet_bytes_max && packet.len().is_multiple_of(4));
                let field = |at: usize| {
                    packet.get(at..at + 4).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)))
                };
                if let (Some(tag), Some(tsn)) = (field(4).filter(|tag| *tag != 0), field(16)) {
                    end.seen = (tag, tsn);
                }
                end.out.push(packet.clone());
                turns += 1;
                assert!(turns < 2000, "it never stops sending");
            }
            end.out.truncate(QUEUE_MAX);
        }
    }

    fn check(&self) {
        for end in &self.ends {
            let stats = end.association.stats();
            let (sent, received) = stats.buffered;
            // Answers to requests to open a channel may exceed the send buffer.
            let answers = 65 * self.config.channels_max;
            assert!(sent <= self.config.send_buffer_bytes + 4100 + answers, "{stats:?}");
            let most = self.config.receive_buffer_bytes + self.config.message_bytes_max + 1200;
            assert!(received <= most, "{stats:?}");
            assert!(stats.channels <= self.config.channels_max);
        }
    }

    /// Lets time pass without packets. Both associations must then end.
    fn finish(&mut self) {
        for _ in 0..2000 {
            self.ends.iter_mut().for_each(|end| end.out.clear());
            let deadlines = self.ends.iter().filter_map(|end| end.association.poll_timeout());
            let Some(at) = deadlines.min() else { break };
            self.now = self.now.max(at);
            self.timeouts();
        }
        for end in &self.ends {
            assert!(end.closed || !end.association.is_connected(), "it never ends");
        }
    }
}
