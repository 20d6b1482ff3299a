//! Events and news of a stream that a session plays.

use media::{TrackId, Tracks};

use crate::auth::access::Params;
use crate::hub::Selection;
use crate::mail::{NoSubscription, StreamEnd};
use crate::protocol::Format;
use crate::types::StreamKey;

/// A request to play, as the protocol could read it.
#[derive(Debug, Clone)]
pub struct PlayAsk {
    /// The key of the stream.
    pub key: StreamKey,
    /// Form and tracks.
    pub format: Format,
    /// Parameters behind the key.
    pub params: Params,
    /// The page that asks, when a browser says so.
    pub origin: String,
    /// For a node, itself and the nodes that its copy is for.
    pub via: Vec<String>,
    /// Whether a main track with live subtracks is answered by [`SubscriptionNews::Subtracks`], and each of its streams then asked for
    /// under another handle. Else a main track without media stands for its first subtrack.
    pub takes_subtracks: bool,
}

/// An event of a subscription.
#[derive(Debug)]
pub enum SubscriptionEvent {
    /// Asks to play; answered by [`SubscriptionNews::Verdict`].
    Subscribe(PlayAsk),
    /// Subscribes to the stream that the session was ordered for (a push, a sink), in this form; answered alike.
    Attach(Format),
    /// Selects other tracks from the next key frame on; the former ones are sent until then.
    Select(Selection),
    /// The peer lost something that only a key frame mends, of this video track; `None`: the one that the subscription
    /// starts at.
    KeyFrameNeeded(Option<TrackId>),
    /// A track is about to begin, or others behind it: a key frame is asked for if the newest one is old. `None`: the
    /// track that the subscription starts at.
    KeyFrameSoon(Option<TrackId>),
    /// The number of viewers of a node's copy, in place of the one that it reported before.
    Audience(::relay::Viewers),
    /// Pauses (`true`) or resumes. While paused nothing is sent.
    Pause(bool),
    /// The subscription is over, or the request was given up.
    Unsubscribe,
}

/// News of a subscription.
#[derive(Debug)]
pub enum SubscriptionNews<'a> {
    /// The answer to [`SubscriptionEvent::Subscribe`] and [`SubscriptionEvent::Attach`]: the tracks of the stream (none
    /// yet: [`SubscriptionNews::TracksKnown`] follows), or why not.
    Verdict(Result<&'a Tracks, NoSubscription>),
    /// The stream is being started for the session; the verdict follows.
    Held,
    /// The stream has been live for a while: video that it does not have now is not expected. The verdict follows.
    Seasoned,
    /// The wall clock at which the clock of the stream was zero, in milliseconds since the Unix epoch. Nodes hear it before the verdict.
    Zero(i64),
    /// The tracks of a stream that had none when it was subscribed to.
    TracksKnown(&'a Tracks),
    /// The tracks of a stream that has got its first video beside sound, or its first sound beside video.
    KindAdded(&'a Tracks),
    /// News of the main track that was asked for; the first is the answer to [`PlayAsk::takes_subtracks`].
    Subtracks(SubtrackNews<'a>),
    /// The stream has ended; a main track with its last subtrack.
    Ended(StreamEnd),
}

/// News of the streams of a main track. Who watches it may play them without being asked for credentials again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtrackNews<'a> {
    /// The streams that there are: the main track itself where it has media, then its subtracks in the order in which they began.
    Room(&'a [StreamKey]),
    /// Another stream, or one that the viewer sees from now on.
    Came(&'a StreamKey),
    /// A participant has another role, and is seen as before.
    Role {
        /// The stream.
        key: &'a StreamKey,
        /// The role.
        role: &'a str,
    },
    /// A stream speaks, or has ended to.
    Loudness {
        /// The stream.
        key: &'a StreamKey,
        /// Its loudness in -dBov, 0 being the loudest; 127: it speaks no more.
        level: u8,
    },
    /// A stream is no more, or of another main track, or the viewer sees it no more. A subscription to it may go on, and does not end by this.
    Left(&'a StreamKey),
}
