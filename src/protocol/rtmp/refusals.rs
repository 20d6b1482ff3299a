//! Refusals: their codes and texts for the peer.

use rtmp::Rejection;

use crate::auth::access::Denial;
use crate::mail::{NoSubscription, Refusal};
use crate::protocol::Verb;
use crate::protocol::flv_mapping::{OtherTrack, OtherTracks};

/// The server ends a publish; encoders that heed `level:"error"` stop at once.
pub(super) fn ended(description: &'static str) -> Rejection {
    rejection("NetStream.Unpublish.Success", description, true)
}

pub(super) fn rejection(code: &'static str, description: impl Into<String>, close: bool) -> Rejection {
    Rejection { code: code.into(), description: description.into(), close }
}

/// The codes and descriptions of the reference server.
pub(super) fn refusal_status(refusal: &Refusal) -> Rejection {
    match refusal {
        Refusal::Resources => rejection("NetStream.Failed", "current system resources not enough", true),
        Refusal::Loop => {
            rejection("NetStream.Publish.BadName", "The stream has passed this server already.", true)
        }
        Refusal::Denied(Denial::Blocked(subscriber)) => {
            let text = format!("Subscriber {} is blocked to publish stream.", printable(subscriber));
            rejection("NetStream.Failed", text, true)
        }
        Refusal::NoApplication
        | Refusal::InUse
        | Refusal::NotAllowed(_)
        | Refusal::Denied(_)
        | Refusal::Draining => {
            rejection("NetStream.Publish.BadName", "You are not allowed to publish the stream.", true)
        }
    }
}

/// The words for players. The reference says `Publish.BadName` on play, and so do we.
pub(super) fn no_subscription_status(why: NoSubscription) -> Rejection {
    match why {
        NoSubscription::NotFound => rejection("NetStream.Play.StreamNotFound", "No such stream.", true),
        NoSubscription::Disabled => rejection("NetStream.Failed", "RTMP playback is disabled.", true),
        NoSubscription::Denied(Denial::Blocked(subscriber)) => {
            let text = format!("Subscriber {} is blocked to play stream.", printable(&subscriber));
            rejection("NetStream.Failed", text, true)
        }
        NoSubscription::Denied(_) => {
            let text = "You are not allowed to play the stream due to security.";
            rejection("NetStream.Publish.BadName", text, true)
        }
        NoSubscription::Unavailable => {
            rejection("NetStream.Failed", "current system resources not enough", true)
        }
    }
}

/// A peer's name for itself, fit to be echoed.
fn printable(text: &str) -> String {
    text.chars().take(128).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The kind of a refused request, as the worker has it.
pub(super) const fn verb_of(verb: rtmp::Verb) -> Verb {
    match verb {
        rtmp::Verb::Connect => Verb::Connect,
        rtmp::Verb::Publish => Verb::Publish,
        rtmp::Verb::Play => Verb::Play,
    }
}

/// Logs one line for a publisher with tracks that are not carried.
pub(super) fn log_others(others: &OtherTracks) {
    if others.packets == 0 {
        return;
    }
    let name = |other: &OtherTrack| format!("{:?} {} {}", other.kind, other.id, other.four_cc.escape_ascii());
    let tracks = others.seen.iter().map(name).collect::<Vec<_>>().join(", ");
    tracing::info!(packets = others.packets, %tracks, "further tracks of the publisher were not carried");
}
