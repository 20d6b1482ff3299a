//! The messages between a session and its controller, which communicates with the client.

use std::ops::Range;

use sdp::Description;

use super::extensions::LayerChoice;
use super::info::{Bitrates, TrackInfo};
use super::room::Choice;
use crate::auth::access::Params;
use crate::mail::{NoSubscription, Refusal};
use crate::types::StreamKey;

/// The request to make a session.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) publishes: bool,
    pub(super) key: StreamKey,
    pub(super) params: Params,
    pub(super) user_agent: String,
    pub(super) origin: String,
    /// True if the request comes from a page of another origin.
    pub(super) of_foreign_page: bool,
    /// The client's offer, if it makes one.
    pub(super) offer: Option<Description>,
    /// The streams of a main track that the client wants, if it accepts later offers.
    pub(super) choice: Option<Choice>,
    /// Part of the session's public name; knowing it entitles a request to speak for the client.
    pub(super) secret: u64,
}

/// A message of the controller to a session.
#[derive(Debug, Clone)]
pub(super) enum ToSession {
    /// The client's offer.
    Offer(Description),
    /// The client's answer.
    Answer(Description),
    /// The kinds of tracks that a viewer wants of the played stream, or of one stream of a main track, by the stream's
    /// id or the name of one of its tracks; `None` leaves a kind unchanged.
    Want { name: String, video: Option<bool>, audio: Option<bool> },
    /// The page asks for notifications by data channel that say which videos of a main track it is sent.
    Assignments,
    /// The range of streams whose video the page wants. The streams of the main track are counted in the order in which
    /// they joined.
    TurnOver(Range<usize>),
    /// The page pins or unpins the video of one stream of a main track.
    Pin { name: String, pins: bool },
    /// The maximum number of videos of a main track that the page wants; `None` for as many as the application allows.
    LimitVideos(Option<usize>),
    /// The height that a viewer wants; `None` to choose by the path.
    Force(Option<u32>),
    /// The client asks for information about the stream.
    Info,
    /// A later request, with the secret from its URL.
    Request { secret: u64, request: Later },
    /// The client ends the session.
    End,
}

/// A later request about a session.
#[derive(Debug, Clone)]
pub(super) enum Later {
    /// The client ends the session.
    Delete,
    /// The client's answer to an offer of ours.
    Answer(Box<Description>),
    /// The client asks for the layers of its video.
    Layers,
    /// The client chooses a layer.
    Choose(LayerChoice),
    /// The client adds candidates or restarts ICE: the fragment of a description, and `If-Match`.
    Patch { fragment: Box<Description>, if_match: Option<String> },
}

/// A message of a session to its controller.
#[derive(Debug, Clone)]
pub(super) enum FromSession {
    /// The stream that a viewer asked for is being started.
    Soon,
    /// The publisher has returned to its stream, which was kept for it.
    Restored,
    /// Publishing is granted, so the client may send its offer.
    Granted,
    /// An answer or an offer of ours.
    Described(Described),
    /// An offer of ours, because the client's offer cannot be accepted, or the client made none. The client must answer
    /// it.
    Countered(Described),
    /// Media can flow.
    Connected,
    /// The first media was received or sent.
    Started,
    /// The session was refused.
    Refused(Refused),
    /// A later offer of the publisher cannot be accepted. Its stream continues as before.
    OfferRefused,
    /// The stream or the session has ended.
    Ended,
    /// The tracks of the stream, as far as known.
    Info(Vec<TrackInfo>),
    /// The rates of the viewer, sent at intervals.
    Bitrates(Bitrates),
    /// The viewer is now sent another rendition, of this height.
    Resolution(u32),
    /// The answer to a [`ToSession::Request`]: status, entity tag, and body.
    Answered(u16, Option<String>, String),
}

/// A session description of ours.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// The text.
    pub(super) sdp: String,
    /// Entity tag of the session's ICE state, for conditions of later requests.
    pub(super) tag: String,
    /// In offers, the name by which pages know the track of each `mid`.
    pub(super) names: Vec<(String, String)>,
}

/// The reason a session is refused or closed before it begins.
#[derive(Debug, Clone)]
pub(super) enum Refused {
    /// Publishing is not allowed.
    Publish(Refusal),
    /// Playing is not allowed, or the stream does not exist.
    Play(NoSubscription),
    /// The stream has no tracks yet.
    NoTracks,
    /// The client's description is invalid, or the client and the server support nothing in common.
    Description(::webrtc::Error),
    /// The server closed the session, or no media arrived.
    Closed,
}
