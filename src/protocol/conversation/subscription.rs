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
    /// This track is about to begin, or others behind it: a key frame is asked for if the newest one is old. `None`: the
    /// track that the subscription starts at.
    KeyFrameSoon(Option<TrackId>),
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
    /// The tracks of a stream that had none when it was subscribed to.
    TracksKnown(&'a Tracks),
    /// The stream has ended.
    Ended(StreamEnd),
}
