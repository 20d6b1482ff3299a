//! The stream requested by a URL, and the statuses of refusals.

use ::rtsp::{Status, Target};
use percent_encoding::percent_decode_str;

use crate::auth::access::{Params, is_stream_id};
use crate::mail::{NoSubscription, Refusal};
use crate::types::StreamKey;

/// Maximum number of parameters of a URL that are kept.
const PARAMS_MAX: usize = 32;

/// Returns the stream of a URL `/{app}/{id}`; `None` if the path is not a valid stream key.
pub(super) fn key_of(target: &Target) -> Option<StreamKey> {
    let (app, id) = target.path.split_once('/')?;
    (is_stream_id(app) && is_stream_id(id)).then(|| StreamKey::new(app, id))
}

/// Returns the decoded parameters of the URL's query.
pub(super) fn params_of(target: &Target) -> Params {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let query = target.query.as_deref().unwrap_or_default();
    let members = query.split('&').filter(|member| !member.is_empty()).take(PARAMS_MAX);
    members
        .map(|member| {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// Returns the status of a refused publish.
pub(super) const fn refusal_status(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::NoApplication => Status::NOT_FOUND,
        Refusal::InUse | Refusal::NotAllowed(_) | Refusal::Denied(_) | Refusal::Loop => Status::FORBIDDEN,
        Refusal::Resources => Status::NOT_ENOUGH_BANDWIDTH,
        Refusal::Draining => Status::UNAVAILABLE,
    }
}

/// Returns the status of a refused play.
pub(super) const fn no_subscription_status(why: &NoSubscription) -> Status {
    match why {
        NoSubscription::NotFound => Status::NOT_FOUND,
        NoSubscription::Disabled | NoSubscription::Denied(_) => Status::FORBIDDEN,
        NoSubscription::Draining | NoSubscription::Resources => Status::UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use ::rtsp::Uri;

    use super::*;

    fn target(url: &str) -> Target {
        Target::of_track(&Uri::read(url).unwrap())
    }

    #[test]
    fn tokens_travel_in_the_query_and_tracks_behind_it() {
        let target = target("rtsp://h:5554/live/cam1?token=a%20b&x/streamid=1");
        assert_eq!(key_of(&target), Some(StreamKey::new("live", "cam1")));
        let params = [("token", "a b"), ("x", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(params_of(&target), params);
    }

    #[test]
    fn r_10_names_that_no_stream_may_have() {
        for url in [
            "rtsp://h/live",
            "rtsp://h/",
            "rtsp://h/live/a/b",
            "rtsp://h/live/..",
            "rtsp://h/../live/a",
            "rtsp://h/live/%2e",
        ] {
            assert_eq!(key_of(&target(url)), None, "{url}");
        }
    }
}
