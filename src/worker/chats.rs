//! Messages that a viewer sends to all other viewers of its stream. The viewers of a stream or room on one worker
//! share a limit in bytes per second.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::mail::{DataSender, Message, StreamData};
use crate::types::{Allowance, Rate, StreamKey};

/// Bytes that all viewers of a stream may send together.
const RATE: Rate = Rate { bytes: 128 << 10, burst: 1 << 20 };
/// Bytes counted for each message in addition to its payload.
pub(super) const MESSAGE_BYTES: u64 = 512;

/// The limits of all streams and rooms in which viewers have sent messages.
#[derive(Debug, Default)]
pub(super) struct Chats {
    streams: BTreeMap<StreamKey, Allowance>,
}

impl Chats {
    /// Returns true if a message may be sent to a stream. This limit only applies to messages of viewers. Publishers
    /// and the API have limits of their own.
    pub(super) fn takes(&mut self, now: Instant, stream: &StreamKey, message: &Message) -> bool {
        let Some(data) = message.content::<StreamData>() else { return true };
        match data.sender {
            DataSender::Publisher | DataSender::Api => true,
            DataSender::Viewer { .. } => self.spend(now, stream, data.payload.len()),
        }
    }

    fn spend(&mut self, now: Instant, stream: &StreamKey, bytes: usize) -> bool {
        let allowance = self.streams.entry(stream.clone()).or_insert_with(|| Allowance::new(now, RATE));
        let cost = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(MESSAGE_BYTES);
        allowance.spend(now, RATE, cost)
    }

    /// Forgets a stream or a room that has ended.
    pub(super) fn forget(&mut self, stream: &StreamKey) {
        self.streams.remove(stream);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
            (0..3).for_each(|_| taken += u64::from(chats.takes(now, &stream, &viewer)));
        }
        let most = (RATE.burst + 10 * RATE.bytes) / 612;
        assert!(taken <= most && taken > most * 9 / 10, "{taken} of {most}");
        // Neither another stream nor the publisher is held back.
        let now = start + Duration::from_secs(10);
        assert!(!chats.takes(now, &stream, &message(DataSender::Viewer { to_viewers: false }, 1000)));
        assert!(chats.takes(now, &other, &viewer));
        for sender in [DataSender::Publisher, DataSender::Api] {
            assert!(chats.takes(now, &stream, &message(sender, 100_000)));
        }
        assert!(chats.takes(now, &stream, &Message::new("of two sessions".to_owned())));
        [&stream, &other].into_iter().for_each(|stream| chats.forget(stream));
        assert!(chats.streams.is_empty());
    }
}
