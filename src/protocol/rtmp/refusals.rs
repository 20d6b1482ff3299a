//! Refusals and the status codes and texts sent for them.

use rtmp::Rejection;

use crate::auth::access::Denial;
use crate::mail::{NoSubscription, Refusal};
use crate::protocol::Verb;
use crate::protocol::flv_mapping::{OtherTrack, OtherTracks};

/// Returns the status for a publish that the server ends; encoders that heed `level:"error"` stop immediately.
pub(super) fn ended(description: &'static str) -> Rejection {
    rejection("NetStream.Unpublish.Success", description, true)
}

pub(super) fn rejection(code: &'static str, description: impl Into<String>, close: bool) -> Rejection {
    Rejection { code: code.into(), description: description.into(), close }
}

/// Returns the status of a refused publish, with the codes and descriptions of Ant Media Server.
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

/// Returns the status of a refused play. Ant Media Server, too, answers some plays with `Publish.BadName`.
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
        NoSubscription::Draining | NoSubscription::Resources => {
            rejection("NetStream.Failed", "current system resources not enough", true)
        }
    }
}

/// Makes an identifier chosen by the peer safe to echo.
fn printable(text: &str) -> String {
    text.chars().take(128).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Converts the kind of a refused request to the worker's type.
pub(super) const fn verb_of(verb: rtmp::Verb) -> Verb {
    match verb {
        rtmp::Verb::Connect => Verb::Connect,
        rtmp::Verb::Publish => Verb::Publish,
        rtmp::Verb::Play => Verb::Play,
    }
}

/// Logs one line for a publisher with tracks that are not supported.
pub(super) fn log_others(others: &OtherTracks) {
    if others.packets == 0 {
        return;
    }
    let name = |other: &OtherTrack| format!("{:?} {} {}", other.kind, other.id, other.four_cc.escape_ascii());
    let tracks = others.seen.iter().map(name).collect::<Vec<_>>().join(", ");
    tracing::info!(packets = others.packets, %tracks, "further tracks of the publisher not carried");
}
