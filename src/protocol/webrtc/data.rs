//! Data channels of a session: pass the peer's messages on to other sessions of the stream, and their messages to the
//! peer.

use std::sync::Arc;
use std::time::Instant;

use ::webrtc::{Event, Peer};
use bytes::Bytes;
use sctp::{ChannelId, Kind};

use crate::mail::{DataSender, StreamData};
use crate::types::{Allowance, Rate};

/// Bytes that a publisher may send.
const PUBLISHER_RATE: Rate = Rate { bytes: 1 << 20, burst: 4 << 20 };
/// Bytes that a viewer may send.
const VIEWER_RATE: Rate = Rate { bytes: 32 << 10, burst: 512 << 10 };
/// Number of bytes that each message counts in addition to its payload.
const MESSAGE_BYTES: u64 = 512;

/// The sessions that receive a viewer's messages (`dataChannelPlayerDistribution`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    /// Nobody.
    Nobody,
    /// The publisher.
    Publisher,
    /// The publisher and the other viewers.
    All,
}

impl Distribution {
    /// Parses the value of the setting.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "none" => Some(Self::Nobody),
            "publisher" => Some(Self::Publisher),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

/// An application's settings of data channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataSettings {
    /// `dataChannelEnabled`.
    pub(super) enabled: bool,
    /// `dataChannelPlayerDistribution`.
    pub(super) distribution: Distribution,
}

impl DataSettings {
    /// The settings if the application does not exist.
    pub(super) const NONE: Self = Self { enabled: false, distribution: Distribution::Nobody };
}

/// The data channels of a peer that has any.
#[derive(Debug)]
pub(super) struct DataRelay {
    publishes: bool,
    /// The channel on which messages are sent to the peer: one that the peer opened, or one of ours until the peer
    /// opens one.
    channel: Option<ChannelId>,
    is_ours: bool,
    /// Bytes that the peer may send.
    allowance: Allowance,
}

impl DataRelay {
    pub(super) const fn new(now: Instant, publishes: bool) -> Self {
        let allowance = Allowance::new(now, rate(publishes));
        Self { publishes, channel: None, is_ours: false, allowance }
    }

    /// Handles an event of the peer's channels. If the event is a message that the peer may send, returns the message
    /// for the stream with this id.
    pub(super) fn handle_event(
        &mut self,
        now: Instant,
        peer: &mut Peer,
        settings: DataSettings,
        id: &Arc<str>,
        event: Event,
    ) -> Option<StreamData> {
        if let Event::Message { kind, payload, .. } = event {
            return self.take(now, settings, id, kind, payload);
        }
        if event == Event::DataConnected {
            // Players of Ant Media's SDK wait for the server to open a channel; its publishers open one themselves.
            if !self.publishes && settings.enabled && self.channel.is_none() {
                self.channel = peer.open_channel(now, id, "", sctp::Options::default()).ok();
                self.is_ours = self.channel.is_some();
            }
        } else if let Event::ChannelOpened(opened) = event {
            if self.channel.is_none() || self.is_ours {
                (self.channel, self.is_ours) = (Some(opened.channel), false);
            }
        } else if let Event::ChannelClosed(channel) = event {
            self.channel.take_if(|known| *known == channel);
        }
        None
    }

    /// Sends a text of the server to the peer. Returns false if there is no channel, or no room in its buffer.
    pub(super) fn say(&self, now: Instant, peer: &mut Peer, text: String) -> bool {
        self.channel.is_some_and(|channel| peer.send_data(now, channel, Kind::Text, text.into()).is_ok())
    }

    /// Accepts a message of the peer, if the peer may send it.
    fn take(
        &mut self,
        now: Instant,
        settings: DataSettings,
        id: &Arc<str>,
        kind: Kind,
        payload: Bytes,
    ) -> Option<StreamData> {
        let sender = match settings.distribution {
            _ if !settings.enabled => return None,
            _ if self.publishes => DataSender::Publisher,
            Distribution::Nobody => return None,
            Distribution::Publisher => DataSender::Viewer { to_viewers: false },
            Distribution::All => DataSender::Viewer { to_viewers: true },
        };
        let cost = u64::try_from(payload.len()).unwrap_or(u64::MAX).saturating_add(MESSAGE_BYTES);
        let may = self.allowance.spend(now, rate(self.publishes), cost);
        let stream = Arc::clone(id);
        may.then(|| StreamData { sender, stream, is_text: kind == Kind::Text, payload })
    }

    /// Sends a message of the stream to the peer, if the peer is one of its receivers.
    pub(super) fn hear(&self, now: Instant, peer: &mut Peer, data: &StreamData) {
        let Some(channel) = self.channel.filter(|_| data.is_for(self.publishes)) else { return };
        let kind = if data.is_text { Kind::Text } else { Kind::Binary };
        // If the message is too long for the peer, or the send buffer is full, the peer misses the message.
        let _ = peer.send_data(now, channel, kind, data.payload.clone());
    }
}

const fn rate(publishes: bool) -> Rate {
    if publishes { PUBLISHER_RATE } else { VIEWER_RATE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ALL: DataSettings = DataSettings { enabled: true, distribution: Distribution::All };

    fn take(
        relay: &mut DataRelay,
        now: Instant,
        settings: DataSettings,
        length: usize,
    ) -> Option<StreamData> {
        relay.take(now, settings, &"s".into(), Kind::Binary, vec![0; length].into())
    }

    #[test]
    fn a_peer_may_send_where_the_application_lets_it() {
        let now = netsim::Clock::new().now();
        let viewer = |to_viewers| Some(DataSender::Viewer { to_viewers });
        for (enabled, distribution, of_publisher, of_viewer) in [
            (false, Distribution::All, None, None),
            (true, Distribution::Nobody, Some(DataSender::Publisher), None),
            (true, Distribution::Publisher, Some(DataSender::Publisher), viewer(false)),
            (true, Distribution::All, Some(DataSender::Publisher), viewer(true)),
        ] {
            let settings = DataSettings { enabled, distribution };
            let sender = |publishes| {
                let taken = take(&mut DataRelay::new(now, publishes), now, settings, 5);
                taken.map(|data| data.sender)
            };
            assert_eq!((sender(true), sender(false)), (of_publisher, of_viewer), "{settings:?}");
        }
    }

    /// Checks that a flood of messages is limited to the rate, and that after a pause no more than a full burst may be
    /// sent.
    #[test]
    fn a_session_sends_so_much_a_second_and_no_more() {
        let start = netsim::Clock::new().now();
        for publishes in [false, true] {
            let Rate { bytes: rate, burst } = rate(publishes);
            let mut relay = DataRelay::new(start, publishes);
            let mut passed = 0;
            for step in 0..33_333 {
                let now = start + Duration::from_micros(300 * step);
                (0..6).for_each(|_| passed += u64::from(take(&mut relay, now, ALL, 1000).is_some()) * 1512);
            }
            let most = burst + 10 * rate;
            assert!(passed <= most && passed > most * 9 / 10, "{passed} of {most}");
            let later = start + Duration::from_secs(1000);
            let count = (0..10_000).filter(|_| take(&mut relay, later, ALL, 1000).is_some()).count();
            assert_eq!(u64::try_from(count).unwrap(), burst / 1512);
        }
    }

    #[test]
    fn distributions_are_named_as_in_the_settings() {
        for (text, read) in [
            ("none", Some(Distribution::Nobody)),
            ("publisher", Some(Distribution::Publisher)),
            (" ALL ", Some(Distribution::All)),
            ("", None),
            ("viewers", None),
        ] {
            assert_eq!(Distribution::read(text), read, "{text}");
        }
    }
}
