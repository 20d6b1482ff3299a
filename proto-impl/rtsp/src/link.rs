//! The connection layer shared by server and client: reads and counts messages and frames, and queues output.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::SendQueue;

use crate::error::Fault;
use crate::{Config, Error, Item, Limit, Reader, Request, Response, Stats};

/// Window in which misplaced messages are counted.
const BAD_MESSAGES_WINDOW: Duration = Duration::from_secs(60);

/// Returns the four bytes before an interleaved packet (RFC 2326 §10.12). `None` if the packet is too long for a
/// frame.
///
/// Write the header and the packet as two slices, directly one after the other.
#[must_use]
pub fn frame_head(channel: u8, packet_bytes: usize) -> Option<[u8; 4]> {
    let [high, low] = u16::try_from(packet_bytes).ok()?.to_be_bytes();
    Some([b'$', channel, high, low])
}

/// Both directions of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) reader: Reader,
    pub(crate) out: SendQueue,
    pub(crate) stats: Stats,
    /// Start of the current second, and the messages counted in it.
    second: Option<(Instant, u32)>,
    messages_per_second_max: u32,
    /// Start of the current window, and the misplaced messages counted in it.
    bad_window: Option<(Instant, u32)>,
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
            bad_window: None,
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

    /// Counts a message. Fails if there are more messages per second than allowed.
    pub(crate) fn count_message(&mut self, now: Instant) -> Result<(), Error> {
        self.stats.messages_received = self.stats.messages_received.saturating_add(1);
        let count = count_in(&mut self.second, now, Duration::from_secs(1));
        if count > self.messages_per_second_max { Err(self.fault(Limit::RequestRate)) } else { Ok(()) }
    }

    /// Counts a misplaced message. Fails if there are more per minute than allowed.
    pub(crate) fn count_bad(&mut self, now: Instant) -> Result<(), Error> {
        self.stats.bad_messages = self.stats.bad_messages.saturating_add(1);
        let count = count_in(&mut self.bad_window, now, BAD_MESSAGES_WINDOW);
        if count > self.bad_messages_max { Err(self.fault(Limit::BadMessages)) } else { Ok(()) }
    }

    /// Counts a frame that is dropped: its channel was not set up, or media was not requested yet.
    pub(crate) const fn count_ignored(&mut self) {
        self.stats.frames_ignored = self.stats.frames_ignored.saturating_add(1);
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

    /// Queues an interleaved frame. Returns false if the packet is too long for a frame.
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

/// Counts an event within a window of `length`. A window begins with the first event after the last window. Returns
/// the count.
fn count_in(window: &mut Option<(Instant, u32)>, now: Instant, length: Duration) -> u32 {
    let (since, count) = match *window {
        Some((since, count)) if now.saturating_duration_since(since) < length => {
            (since, count.saturating_add(1))
        }
        Some(_) | None => (now, 1),
    };
    *window = Some((since, count));
    count
}
