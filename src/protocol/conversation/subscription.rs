//! Events and news of a stream that a session plays.

use media::{TrackId, Tracks};

use crate::auth::access::Params;
use crate::hub::Selection;
use crate::mail::{NoSubscription, StreamEnd};
use crate::protocol::Format;
use crate::types::StreamKey;

/// A request to play, as the protocol has parsed it.
#[derive(Debug, Clone)]
pub struct PlayAsk {
    /// The key of the stream.
    pub key: StreamKey,
    /// The format and the selection of tracks.
    pub format: Format,
    /// Parameters after the key.
    pub params: Params,
    /// Origin of the requesting page, as a browser sends it; empty if there is none.
    pub origin: String,
    /// If the subscriber is a node, that node and the nodes that are fed by its copy of the stream.
    pub via: Vec<String>,
    /// True if the session can play several streams. If the requested stream is a main track with live subtracks, the
    /// session then gets [`SubscriptionNews::Subtracks`] and requests each of these streams under another handle. If
    /// false, a main track without media is replaced by its first subtrack.
    pub takes_subtracks: bool,
}

/// An event of a subscription.
#[derive(Debug)]
pub enum SubscriptionEvent {
    /// Asks to play; answered by [`SubscriptionNews::Verdict`].
    Subscribe(PlayAsk),
    /// Subscribes to the stream that control has assigned to this session (a push or a sink), in this format; answered
    /// by [`SubscriptionNews::Verdict`].
    Attach(Format),
    /// Selects other tracks from the next key frame on; until then the present ones are sent.
    Select(Selection),
    /// The peer needs a key frame of this video track to continue; `None` for the track with which the subscription
    /// starts.
    KeyFrameNeeded(Option<TrackId>),
    /// The session is about to begin a track: the publisher is asked for a key frame if the newest one is old. `None`
    /// means the track with which the subscription starts.
    KeyFrameSoon(Option<TrackId>),
    /// The number of viewers of the copy at the subscribing node. It replaces the number last reported.
    Audience(::relay::Viewers),
    /// Pauses (`true`) or resumes. While paused nothing is sent.
    Pause(bool),
    /// The subscription has ended, or the request was withdrawn.
    Unsubscribe,
}

/// News of a subscription.
#[derive(Debug)]
pub enum SubscriptionNews<'a> {
    /// The answer to [`SubscriptionEvent::Subscribe`] and [`SubscriptionEvent::Attach`]: the tracks of the stream (if
    /// there are none yet, [`SubscriptionNews::TracksKnown`] follows), or the reason for refusing.
    Verdict(Result<&'a Tracks, NoSubscription>),
    /// The stream is being started for the session; the verdict follows.
    Held,
    /// The stream has been live for so long that video, if missing, is no longer expected. The verdict follows.
    Seasoned,
    /// The wall clock at which the clock of the stream was zero, in milliseconds since the Unix epoch. Sent to nodes
    /// before the verdict.
    Zero(i64),
    /// The tracks of a stream that had none when it was subscribed to.
    TracksKnown(&'a Tracks),
    /// Tracks of a stream that now has both video and audio, after it had only one of the two.
    KindAdded(&'a Tracks),
    /// News of the requested main track; the first one answers [`PlayAsk::takes_subtracks`].
    Subtracks(SubtrackNews<'a>),
    /// The stream has ended; a main track ends with its last subtrack.
    Ended(StreamEnd),
}

/// News of the streams of a main track. A watcher of the main track may play them without showing credentials again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtrackNews<'a> {
    /// The current streams: the main track itself if it has media, then its subtracks, oldest first.
    Room(&'a [StreamKey]),
    /// A stream was added, or has become visible to the viewer.
    Came(&'a StreamKey),
    /// A participant that remains visible has another role.
    Role {
        /// The stream.
        key: &'a StreamKey,
        /// The role.
        role: &'a str,
    },
    /// A stream speaks, or has stopped speaking.
    Loudness {
        /// The stream.
        key: &'a StreamKey,
        /// Loudness of the stream in -dBov, 0 being the loudest; 127 if it has stopped speaking.
        level: u8,
    },
    /// A stream has ended, moved to another main track, or become invisible to the viewer. A subscription to it may
    /// continue.
    Left(&'a StreamKey),
}
