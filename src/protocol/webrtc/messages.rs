//! The messages of a session and its asker.

use std::ops::Range;

use sdp::Description;

use super::info::{Bitrates, TrackInfo};
use super::room::Choice;
use crate::auth::access::Params;
use crate::mail::{NoSubscription, Refusal};
use crate::types::StreamKey;

/// The purpose of a session.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) publishes: bool,
    pub(super) key: StreamKey,
    pub(super) params: Params,
    pub(super) user_agent: String,
    pub(super) origin: String,
    /// Whether a page of another asks.
    pub(super) of_foreign_page: bool,
    /// The client's offer, when it makes one.
    pub(super) offer: Option<Description>,
    /// The streams that a client wants of a main track, if it takes later offers.
    pub(super) choice: Option<Choice>,
    /// Part of the session's public name: who knows it may speak for the client.
    pub(super) secret: u64,
}

/// A message of an asker to a session.
#[derive(Debug, Clone)]
pub(super) enum ToSession {
    /// The client's offer.
    Offer(Description),
    /// The client's answer.
    Answer(Description),
    /// The kinds of tracks that a viewer wants.
    Want { video: bool, audio: bool },
    /// The same of one stream of a main track, by its id or the name of a track; `None`: as before.
    WantOf { name: String, video: Option<bool>, audio: Option<bool> },
    /// The page wants to hear which videos of a main track it is sent, by a data channel.
    Assignments,
    /// The streams of a main track whose video the page wants, by their order.
    TurnOver(Range<usize>),
    /// The page pins the video of one stream of a main track, or lets it go.
    Pin { name: String, pins: bool },
    /// The page wants so many videos of a main track at most; `None`: as many as it may have.
    LimitVideos(Option<usize>),
    /// The height that a viewer wants; `None`: what its path carries.
    Force(Option<u32>),
    /// The client asks what the stream is.
    Info,
    /// A later request, with the secret that its URL had.
    Request { secret: u64, request: Later },
    /// The client wants no more.
    End,
}

/// A later request about a session.
#[derive(Debug, Clone)]
pub(super) enum Later {
    /// The client ends it.
    Delete,
    /// The client's answer to our offer.
    Answer(Box<Description>),
    /// The client tells candidates, or restarts ICE: the fragment of a description, and `If-Match`.
    Patch { fragment: Box<Description>, if_match: Option<String> },
}

/// A message of a session to its asker.
#[derive(Debug, Clone)]
pub(super) enum FromSession {
    /// The stream that a viewer asked for is being started.
    Soon,
    /// A publisher goes on with a stream that waited for it.
    Restored,
    /// A publisher may send its offer.
    Granted,
    /// An answer, or our offer.
    Described(Described),
    /// The client's offer cannot be taken, or it made none: ours, which its answer is waited for.
    Countered(Described),
    /// Media can flow.
    Connected,
    /// The first media came, or was sent.
    Started,
    /// The session will not begin.
    Refused(Refused),
    /// The stream has ended, or its session.
    Ended,
    /// The tracks of the stream, as far as they are known.
    Info(Vec<TrackInfo>),
    /// The rates of the viewer, once in a while.
    Bitrates(Bitrates),
    /// The viewer is sent another rendition, so many lines high.
    Resolution(u32),
    /// The answer to a [`ToSession::Request`]: status, entity tag, and body.
    Answered(u16, Option<String>, String),
}

/// A description of ours.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// The text.
    pub(super) sdp: String,
    /// The name of what it is about, for conditions of later requests.
    pub(super) tag: String,
    /// The track of each `mid`, as pages know it; for our offers.
    pub(super) names: Vec<(String, String)>,
}

/// The reason a session is refused or closed before it begins.
#[derive(Debug, Clone)]
pub(super) enum Refused {
    /// Not allowed to publish.
    Publish(Refusal),
    /// Not allowed to play, or nothing there.
    Play(NoSubscription),
    /// The stream has no tracks yet.
    NoTracks,
    /// The descriptions have nothing in common, or the client's is none.
    Description(::webrtc::Error),
    /// The server closed it, or nothing came.
    Closed,
}
