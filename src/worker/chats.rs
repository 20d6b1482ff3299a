//! Messages that a viewer sends to all other viewers of its stream. The viewers of a stream or room on one worker
//! share a limit in bytes per second. Beyond it, those that send little are still heard.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::mail::{DataSender, Message, StreamData};
use crate::types::{Allowance, ConnId, Rate, StreamKey};

/// The rate of all viewers of a stream together.
const RATE: Rate = Rate { bytes: 128 << 10, burst: 1 << 20 };
/// A further rate, divided equally among the viewers that send.
const RESERVE: Rate = Rate { bytes: 64 << 10, burst: 64 << 10 };
/// Bytes counted for each message in addition to its payload.
pub(super) const MESSAGE_BYTES: u64 = 512;
/// Time over which the bytes of each viewer are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The messages of a stream or room.
#[derive(Debug)]
struct Chat {
    all: Allowance,
    reserve: Allowance,
    /// Beginning of the present window.
    since: Instant,
    /// Bytes that each viewer has tried to send in the present window.
    sent: BTreeMap<ConnId, u64>,
    /// Number of viewers that sent in the window before.
    before: usize,
}

impl Chat {
    const fn new(now: Instant) -> Self {
        let (all, reserve) = (Allowance::new(now, RATE), Allowance::new(now, RESERVE));
        Self { all, reserve, since: now, sent: BTreeMap::new(), before: 0 }
    }

    fn spend(&mut self, now: Instant, sender: ConnId, bytes: u64) -> bool {
        if now.saturating_duration_since(self.since) >= WINDOW {
            (self.before, self.since) = (self.sent.len(), now);
            self.sent.clear();
        }
        let sent = self.sent.entry(sender).or_default();
        *sent = sent.saturating_add(bytes);
        let sent = *sent;
        if self.all.spend(now, RATE, bytes) {
            return true;
        }
        let senders = u64::try_from(self.sent.len().max(self.before)).unwrap_or(u64::MAX);
        let part = RESERVE.bytes.checked_div(senders).unwrap_or(0);
        senders > 1 && sent <= part && self.reserve.spend(now, RESERVE, bytes)
    }
}

/// The limits of all streams and rooms in which viewers have sent messages.
#[derive(Debug, Default)]
pub(super) struct Chats {
    streams: BTreeMap<StreamKey, Chat>,
}

impl Chats {
    /// Returns true if a message may be sent to a stream. This limit only applies to messages of viewers. Publishers
    /// and the API have limits of their own.
    pub(super) fn takes(
        &mut self,
        now: Instant,
        sender: ConnId,
        stream: &StreamKey,
        message: &Message,
    ) -> bool {
        let Some(data) = message.content::<StreamData>() else { return true };
        match data.sender {
            DataSender::Publisher | DataSender::Api => true,
            DataSender::Viewer { .. } => self.spend(now, sender, stream, data.payload.len()),
        }
    }

    fn spend(&mut self, now: Instant, sender: ConnId, stream: &StreamKey, bytes: usize) -> bool {
        let chat = self.streams.entry(stream.clone()).or_insert_with(|| Chat::new(now));
        let cost = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(MESSAGE_BYTES);
        chat.spend(now, sender, cost)
    }

    /// Forgets a stream or a room that has ended.
    pub(super) fn forget(&mut self, stream: &StreamKey) {
        self.streams.remove(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: ConnId = ConnId { slot: 1, generation: 0 };

    fn message(sender: DataSender, length: usize) -> Message {
        let payload = vec![0; length].into();
        Message::new(StreamData { sender, stream: "s".into(), is_text: true, payload })
    }

    /// All viewers of a stream share one limit. Each message counts as its 100 bytes of payload and [`MESSAGE_BYTES`].
    #[test]
    fn the_viewers_of_a_stream_send_so_much_together() {
        let (start, mut chats) = (Instant::now(), Chats::default());
        let (stream, other) = (StreamKey::new("live", "s"), StreamKey::new("live", "other"));
        let viewer = message(DataSender::Viewer { to_viewers: true }, 100);
        let mut taken = 0;
        for step in 0..33_333 {
            let now = start + Duration::from_micros(300 * step);
            (0..3).for_each(|_| taken += u64::from(chats.takes(now, SENDER, &stream, &viewer)));
        }
        let most = (RATE.burst + 10 * RATE.bytes) / 612;
        assert!(taken <= most && taken > most * 9 / 10, "{taken} of {most}");
        // Neither another stream nor the publisher is held back.
        let now = start + Duration::from_secs(10);
        assert!(!chats.takes(now, SENDER, &stream, &message(DataSender::Viewer { to_viewers: false }, 1000)));
        assert!(chats.takes(now, SENDER, &other, &viewer));
        for sender in [DataSender::Publisher, DataSender::Api] {
            assert!(chats.takes(now, SENDER, &stream, &message(sender, 100_000)));
        }
        assert!(chats.takes(now, SENDER, &stream, &Message::new("of two sessions".to_owned())));
        [&stream, &other].into_iter().for_each(|stream| chats.forget(stream));
        assert!(chats.streams.is_empty());
    }
    #[test]
    fn viewers_that_flood_a_stream_silence_no_other() {
        let (start, mut chats) = (Instant::now(), Chats::default());
        let stream = StreamKey::new("live", "s");
        let viewer = message(DataSender::Viewer { to_viewers: true }, 20);
        let sender = |slot| ConnId { slot, generation: 0 };
        let mut heard = 0;
        for step in 0..33_333 {
            let now = start + Duration::from_micros(300 * step);
            for slot in 0..8 {
                chats.takes(now, sender(slot), &stream, &viewer);
            }
            if step % 1000 == 999 {
                heard += usize::from(chats.takes(now, sender(99), &stream, &viewer));
            }
        }
        assert_eq!(heard, 33, "each message of the quiet viewer");
    }
}
