//! Messages of data channels as units of their stream's data track, so that copies of the stream on other nodes and
//! formats with timed metadata have them.
//!
//! Sessions of this node pass messages on to each other at once ([`Live::hear_in_stream`]). In addition, each message of a publisher
//! and of the API becomes a unit, if any subscriber selects the track. A copy passes such a unit on to its own sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use media::TrackId;
use media::message::{self, TIMED_BYTES_MAX};

use super::chats::MESSAGE_BYTES;
use super::conns::Conns;
use super::streams::Live;
use super::turn::Turn;
use super::{Output, Worker};
use crate::mail::{DataSender, Message, StreamData, ToWorker};
use crate::types::{Allowance, ConnId, Handle, Ingest, Rate, StreamId, StreamKey};

/// Setting of an application: its messages are timed metadata.
const TIMED: &str = "dataChannel.timedMetadata";
/// Limit on the messages of a stream that become units. A burst may have a thousand small messages.
const STREAM: Rate = Rate { bytes: 128 << 10, burst: 1 << 20 };
/// Limit on the messages of a stream that are timed metadata.
const STREAM_TIMED: Rate = Rate { bytes: 32 << 10, burst: 256 << 10 };
/// Limit on the messages of all streams of an application that become units on one worker.
const APP: Rate = Rate { bytes: 1 << 20, burst: 4 << 20 };

/// The limits of streams and applications whose messages have become units.
#[derive(Debug, Default)]
pub(super) struct MessageLimits {
    streams: BTreeMap<StreamKey, [Allowance; 2]>,
    apps: BTreeMap<Arc<str>, Allowance>,
}

impl MessageLimits {
    /// Counts a message of this length. Returns whether it may be timed metadata; `None` if it may not become a unit.
    fn take(&mut self, now: Instant, stream: &StreamKey, bytes: usize, is_timed: bool) -> Option<bool> {
        let full = || [Allowance::new(now, STREAM), Allowance::new(now, STREAM_TIMED)];
        let [units, timed] = self.streams.entry(stream.clone()).or_insert_with(full);
        let app = self.apps.entry(Arc::clone(&stream.app)).or_insert_with(|| Allowance::new(now, APP));
        let cost = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(MESSAGE_BYTES);
        if !units.spend(now, STREAM, cost) || !app.spend(now, APP, cost) {
            return None;
        }
        Some(is_timed && bytes <= TIMED_BYTES_MAX && timed.spend(now, STREAM_TIMED, cost))
    }

    /// Forgets a removed application.
    pub(super) fn forget_app(&mut self, app: &str) {
        self.apps.remove(app);
    }

    /// Forgets a stream that has ended.
    pub(super) fn forget(&mut self, stream: &StreamKey) {
        self.streams.remove(stream);
    }
}

impl Worker {
    /// Appends a message of the publisher or of the API to the data track of a stream that is published here.
    pub(super) fn put_message(&mut self, key: &StreamKey, message: &Message) {
        let Some(data) = message.content::<StreamData>() else { return };
        match data.sender {
            DataSender::Publisher | DataSender::Api => {}
            DataSender::Viewer { .. } => return,
        }
        let Some(stream) = self.live.directory.get(key).and_then(|id| self.live.streams.get(id)) else {
            return;
        };
        let is_own = stream.source == self.turn.id && !stream.ingest.is_copy();
        if !is_own || !stream.wanted().contains(TrackId::MESSAGES) {
            return;
        }
        let (id, now, bytes) = (stream.id, self.turn.now.mono, data.payload.len());
        let app = self.turn.apps.get(&*key.app);
        let is_timed = app.is_some_and(|app| app.values.boolean(TIMED).unwrap_or(false));
        let Some(is_timed) = self.live.message_limits.take(now, key, bytes, is_timed) else { return };
        let unit = message::Message { is_text: data.is_text, is_timed, payload: data.payload.clone() };
        self.put_timed_data(id, TrackId::MESSAGES, unit.write(), 0);
    }
}

/// Delivers a message that has come with the units of a copy to the sessions of the stream.
pub(super) fn hear_copied(
    live: &Live,
    turn: &mut Turn,
    conns: &mut Conns,
    id: ConnId,
    stream: StreamId,
    unit: &Bytes,
) {
    let copy = live.streams.get(&stream).filter(|stream| stream.ingest == Ingest::COPY);
    let (Some(copy), Some(message)) = (copy, message::Message::read(unit)) else { return };
    let (key, from) = (copy.key.clone(), turn.session_ref(id, Handle::ONLY));
    let message::Message { is_text, payload, .. } = message;
    let (sender, id) = (DataSender::Publisher, Arc::clone(&key.id));
    let message = Message::new(StreamData { sender, stream: id, is_text, payload });
    live.hear_in_stream(turn, conns, from, &key, &message);
    turn.agenda.outputs.push_back(Output::Others(ToWorker::TellStream { from, stream: key, message }));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_becomes_units_up_to_the_limits_of_its_stream_and_its_application() {
        let (start, mut limits) = (Instant::now(), MessageLimits::default());
        let key = |app: &str, id: &str| StreamKey::new(app, id);
        let mut taken = [0u64; 2];
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            for _ in 0..10 {
                let is_timed = limits.take(now, &key("live", "s"), 488, true);
                taken[0] += u64::from(is_timed.is_some());
                taken[1] += u64::from(is_timed == Some(true));
            }
        }
        for (taken, limit) in taken.into_iter().zip([STREAM, STREAM_TIMED]) {
            let most = (limit.burst + 10 * limit.bytes) / 1000;
            assert!(taken <= most && taken > most * 9 / 10, "{taken} of {most}");
        }
        // A long message, or one without the setting, is for data channels alone.
        let now = start + Duration::from_secs(60);
        assert_eq!(limits.take(now, &key("live", "t"), TIMED_BYTES_MAX, true), Some(true));
        assert_eq!(limits.take(now, &key("live", "t"), TIMED_BYTES_MAX + 1, true), Some(false));
        assert_eq!(limits.take(now, &key("live", "t"), 1, false), Some(false));
        // The streams of an application share a limit, which no other application notices.
        let flood = |limits: &mut MessageLimits, app: &str| {
            let streams = (0..100).map(|n| limits.take(now, &key(app, &n.to_string()), 200_000, false));
            streams.flatten().count()
        };
        assert_eq!((flood(&mut limits, "one"), flood(&mut limits, "two")), (20, 20));
        (0..100).for_each(|n| limits.forget(&key("one", &n.to_string())));
        assert!(
            !limits.streams.contains_key(&key("one", "7")) && limits.streams.contains_key(&key("two", "7"))
        );
    }
}
