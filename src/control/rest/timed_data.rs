//! Data that callers insert into a live stream at the current time: ID3 tags and splice information.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use media::scte35::{self, Kind, TICKS_PER_SECOND};
use media::{TrackId, id3};
use serde::Deserialize;

use super::call::{Call, Reply};
use crate::control::answer::Outcome;
use crate::control::context::Context;
use crate::control::live::Registry;
use crate::mail::ToWorker;
use crate::types::{StreamId, WorkerId};

/// Longest advance notice of a splice, and longest duration of a break, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

pub(super) fn refused(message: Option<&str>) -> Reply {
    Reply::Now(Outcome::failure("").message(message).no_data_id().response(200))
}

/// Finds a live stream and the worker of its publisher.
pub(super) fn source(registry: &Registry, call: &Call<'_>) -> Result<(StreamId, WorkerId), Reply> {
    let key = call.key();
    let stream = registry.find(&key).filter(|_| registry.is_live(&key));
    let source = stream.and_then(|stream| Some((stream, registry.get(&stream)?.source().worker)));
    source.ok_or_else(|| refused(Some("Stream is not available")))
}

/// `POST /broadcasts/{id}/id3`: inserts the body into the segments of a stream, as the text of an ID3 tag.
pub(super) fn id3(cx: &mut Context, registry: &Registry, call: &Call<'_>) -> Reply {
    if !call.app.values.boolean("id3TagEnabled").unwrap_or(false) {
        return refused(Some("ID3 tag is not enabled"));
    }
    let (stream, worker) = match source(registry, call) {
        Ok(source) => source,
        Err(refusal) => return refusal,
    };
    let text = std::str::from_utf8(&call.request.body).ok();
    let Some(data) = text.and_then(|text| id3::text("", text)) else {
        return Reply::Now(Outcome::failure("").response(200));
    };
    cx.post(worker, ToWorker::TimedData { stream, track: TrackId::METADATA, data, ahead_ms: 0 });
    Reply::Now(Outcome::success().response(200))
}

/// The body of a request for a splice: a complete section, or an event from which one is made.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Splice {
    /// A splice_info_section in base64.
    section: Option<String>,
    /// `out`, `in` or `cancel`.
    event: Option<String>,
    /// Number of the event.
    id: u32,
    /// Duration of the break, in seconds.
    duration: Option<f64>,
    /// Time from the request to the splice, in seconds.
    offset: f64,
}

impl Default for Splice {
    fn default() -> Self {
        Self { section: None, event: None, id: 1, duration: None, offset: 0.0 }
    }
}

impl Splice {
    /// Returns the section and the time from now to the splice, in milliseconds.
    fn read(body: &[u8]) -> Result<(Bytes, u32), &'static str> {
        let asked: Self = serde_json::from_slice(body)
            .map_err(|_| "The body is an object with section, or with event, id, duration and offset")?;
        let ms = |seconds: f64| {
            let seconds = Some(seconds).filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
            seconds.map(|seconds| Duration::from_secs_f64(seconds).as_millis())
        };
        let offset = ms(asked.offset).and_then(|ms| u32::try_from(ms).ok());
        let offset = offset.ok_or("offset is in seconds, from 0 to 86400")?;
        let duration = match asked.duration.map(ms) {
            Some(None) => return Err("duration is in seconds, from 0 to 86400"),
            Some(Some(ms)) => {
                u64::try_from(ms).ok().map(|ms| ms.saturating_mul(u64::from(TICKS_PER_SECOND)) / 1000)
            }
            None => None,
        };
        let kind = match (asked.section, asked.event.as_deref()) {
            (Some(text), None) => {
                let section = STANDARD.decode(text.trim()).map(Bytes::from).ok();
                let splice = section.as_deref().and_then(scte35::Splice::read);
                let (Some(section), Some(splice)) = (section, splice) else {
                    return Err("section is no splice_info_section in base64");
                };
                if splice.events.is_empty() {
                    return Err("section says nothing: it is a splice_null, or reserves bandwidth");
                }
                return Ok((section, offset));
            }
            (None, Some("out")) => Kind::Out,
            (None, Some("in")) => Kind::In,
            (None, Some("cancel")) => Kind::Cancel,
            (_, _) => return Err("event is out, in or cancel, or there is a section in its place"),
        };
        let made = if offset == 0 { scte35::immediate } else { scte35::insert };
        Ok((made(asked.id, kind, duration.filter(|_| kind == Kind::Out)), offset))
    }
}

/// `POST /broadcasts/{id}/scte35`: inserts splice information into a stream.
pub(super) fn splice(cx: &mut Context, registry: &Registry, call: &Call<'_>) -> Reply {
    let (data, ahead_ms) = match Splice::read(&call.request.body) {
        Ok(splice) => splice,
        Err(message) => return refused(Some(message)),
    };
    match source(registry, call) {
        Ok((stream, worker)) => {
            cx.post(worker, ToWorker::TimedData { stream, track: TrackId::CUES, data, ahead_ms });
            Reply::Now(Outcome::success().response(200))
        }
        Err(refusal) => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splice_is_made_of_an_event_or_taken_as_it_is() {
        let read = |body: &str| Splice::read(body.as_bytes());
        let made = scte35::insert(7, Kind::Out, Some(2_700_000));
        let text = STANDARD.encode(&made);
        assert_eq!(read(r#"{"event":"out","id":7,"duration":30,"offset":4.5}"#), Ok((made.clone(), 4500)));
        assert_eq!(read(&format!(r#"{{"section":"{text}"}}"#)), Ok((made, 0)));
        assert_eq!(read(r#"{"event":"in","duration":1}"#), Ok((scte35::immediate(1, Kind::In, None), 0)));
        assert_eq!(read(r#"{"event":"cancel","id":3}"#), Ok((scte35::insert(3, Kind::Cancel, None), 0)));
    }

    #[test]
    fn what_is_no_splice_is_refused_with_the_reason() {
        let refusal = |body: &str| Splice::read(body.as_bytes()).unwrap_err();
        for body in ["", "[]x", r#"{"evnt":"out"}"#, r#"{"event":"out","id":-1}"#] {
            assert!(refusal(body).starts_with("The body is"), "{body}");
        }
        for body in ["{}", r#"{"event":"begin"}"#, r#"{"event":"out","section":""}"#] {
            assert!(refusal(body).starts_with("event is"), "{body}");
        }
        let null = "/DARAAAAAAAAAP/wAAAAAHpPv/8=";
        assert!(refusal(&format!(r#"{{"section":"{null}"}}"#)).starts_with("section says nothing"));
        for section in ["", "???", "/DARAAAAAAAAAP/wAAAAAHpPv/4="] {
            assert!(refusal(&format!(r#"{{"section":"{section}"}}"#)).starts_with("section is"), "{section}");
        }
        assert!(refusal(r#"{"event":"out","offset":-1}"#).starts_with("offset is"));
        assert!(refusal(r#"{"event":"out","duration":86401}"#).starts_with("duration is"));
    }
}
