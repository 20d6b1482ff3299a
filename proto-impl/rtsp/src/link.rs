//! What both machines do with a connection: read items, count them, queue what goes out.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::SendQueue;

use crate::error::Fault;
use crate::{Config, Error, Item, Limit, Reader, Request, Response, Stats};

/// The four bytes before an interleaved packet (RFC 2326 §10.12). `None` for a packet that is too long for a frame.
///
/// Head and packet are written as two slices, and nothing may come between them.
#[must_use]
pub fn frame_head(channel: u8, packet_bytes: usize) -> Option<[u8; 4]> {
    let [high, low] = u16::try_from(packet_bytes).ok()?.to_be_bytes();
    Some([b'$', channel, high, low])
}

/// One direction each of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) reader: Reader,
    pub(crate) out: SendQueue,
    pub(crate) stats: Stats,
    /// The second that is counted, and the messages in it.
    second: Option<(Instant, u32)>,
    messages_per_second_max: u32,
    bad_messages_max: u32,
}

impl Link {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            reader: Reader::new(),
            out: SendQueue::new(),
            stats: Stats::default(),
            second: None,
            messages_per_second_max: config.requests_per_second_max,
            bad_messages_max: config.bad_messages_max,
        }
    }

    pub(crate) fn read(&mut self, input: &mut &[u8]) -> Result<Option<Item>, Error> {
        let item = self.reader.read(input);
        self.stats.bytes_received = self.reader.position();
        item
    }

    pub(crate) fn fault(&self, fault: impl Into<Fault>) -> Error {
        fault.into().at(self.reader.position())
    }

    /// Counts a message against the rate.
    pub(crate) fn count_message(&mut self, now: Instant) -> Result<(), Error> {
        self.stats.messages_received = self.stats.messages_received.saturating_add(1);
        let (since, count) = match self.second {
            Some((since, count)) if now.saturating_duration_since(since) < Duration::from_secs(1) => {
                (since, count.saturating_add(1))
            }
            Some(_) | None => (now, 1),
        };
        self.second = Some((since, count));
        if count > self.messages_per_second_max { Err(self.fault(Limit::RequestRate)) } else { Ok(()) }
    }

    /// Counts what is unknown or out of place.
    pub(crate) fn count_bad(&mut self) -> Result<(), Error> {
        self.stats.bad_messages = self.stats.bad_messages.saturating_add(1);
        if self.stats.bad_messages > self.bad_messages_max {
            return Err(self.fault(Limit::BadMessages));
        }
        Ok(())
    }

    pub(crate) fn send_request(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        self.push(bytes.into());
    }

    pub(crate) fn send_response(&mut self, response: &Response) {
        let mut bytes = Vec::new();
        response.write(&mut bytes);
        self.push(bytes.into());
    }

    /// False for a packet that is too long.
    pub(crate) fn send_frame(&mut self, channel: u8, packet: Bytes) -> bool {
        let Some(head) = frame_head(channel, packet.len()) else { return false };
        self.out.push_slice(&head);
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(4);
        self.push(packet);
        true
    }

    fn push(&mut self, bytes: Bytes) {
        self.stats.bytes_sent = self.stats.bytes_sent.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
        self.out.push(bytes);
    }
}
