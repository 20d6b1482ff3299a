//! Subtitles that callers insert into a live stream: a cue or several as JSON, or a WebVTT file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::TrackId;
use media::subtitles::{
    CUES_MAX, Cue, DURATION_MS_MAX, FILE_BYTES_MAX, TEXT_BYTES_MAX, cue_text, escaped, find_language,
    read_languages, read_webvtt,
};
use serde::Deserialize;

use super::call::{Call, Reply};
use super::timed_data::{refused, source};
use crate::control::answer::Outcome;
use crate::control::context::Context;
use crate::control::live::Registry;
use crate::mail::ToWorker;
use crate::types::{Now, StreamId};

/// The setting with the languages.
const LANGUAGES: &str = "hls.subtitles";
/// Longest time from a call to a cue, in seconds.
const OFFSET_S_MAX: f64 = 3600.0;
/// Duration of a cue that names none, in seconds.
const DURATION_S: f64 = 4.0;
/// Limits on the cues of a stream, and on those of all streams of an application: the time after which one more cue is
/// allowed, and the number of cues allowed in a burst. A segment takes no more cues than the burst of a stream.
const OF_STREAM: (Duration, u32) = (Duration::from_millis(100), 100);
const OF_APP: (Duration, u32) = (Duration::from_millis(10), 1024);
/// Number of entries in [`Rates`] above which the entries of unused limits are removed.
const RATES_MAX: usize = 1024;

/// The used parts of the limits on cues, each as the time at which the whole limit is available again.
#[derive(Debug, Default)]
pub(in crate::control) struct Rates {
    streams: BTreeMap<StreamId, Instant>,
    apps: BTreeMap<Arc<str>, Instant>,
}

impl Rates {
    /// Counts cues of a stream toward its limits. Returns false, and counts none of them, if they would exceed a limit.
    fn takes(&mut self, now: Instant, (stream, app): (StreamId, &Arc<str>), count: u32) -> bool {
        if self.streams.len().saturating_add(self.apps.len()) > RATES_MAX {
            self.streams.retain(|_, free_at| *free_at > now);
            self.apps.retain(|_, free_at| *free_at > now);
        }
        let after = |free_at: Option<&Instant>, (each, burst): (Duration, u32)| {
            let from = free_at.map_or(now, |free_at| now.max(*free_at));
            let after = from.checked_add(each.saturating_mul(count))?;
            (after.saturating_duration_since(now) <= each.saturating_mul(burst)).then_some(after)
        };
        let of_stream = after(self.streams.get(&stream), OF_STREAM);
        let of_app = after(self.apps.get(app), OF_APP);
        let (Some(of_stream), Some(of_app)) = (of_stream, of_app) else { return false };
        self.streams.insert(stream, of_stream);
        self.apps.insert(Arc::clone(app), of_app);
        true
    }
}

/// A cue in the body of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Plain text, with line breaks.
    text: String,
    /// Language, as a BCP 47 tag; if missing, the first language in the setting [`LANGUAGES`].
    #[serde(default)]
    language: String,
    /// Time from the request to the cue, in seconds.
    #[serde(default)]
    offset: f64,
    /// Duration of the cue, in seconds.
    #[serde(default = "duration")]
    duration: f64,
}

const fn duration() -> f64 {
    DURATION_S
}

/// The cues in the body of a request, with the time from the request to each cue in milliseconds.
type Cues = Vec<(u32, Cue)>;

/// Converts seconds to milliseconds, up to a maximum in seconds.
fn ms(seconds: f64, max: f64) -> Option<u32> {
    let seconds = Some(seconds).filter(|seconds| (0.0..=max).contains(seconds))?;
    u32::try_from(Duration::from_secs_f64(seconds).as_millis()).ok()
}

/// Reads the cues of a body; `offset` and `language` are those of the query, for WebVTT.
fn read(
    body: &[u8],
    languages: &[(String, String)],
    (language, offset): (&str, &str),
) -> Result<Cues, String> {
    if body.len() > FILE_BYTES_MAX {
        return Err(format!("The body has more than {FILE_BYTES_MAX} bytes"));
    }
    let known = |told: &str| {
        let at = find_language(languages, told);
        let tag = at.and_then(|at| languages.get(at)).map(|(tag, _)| tag.clone());
        tag.ok_or_else(|| format!("{LANGUAGES} does not list the language"))
    };
    let is_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if !is_json {
        let language = known(language)?;
        let offset = if offset.is_empty() { Some(0.0) } else { offset.parse().ok() };
        let offset = offset.and_then(|offset| ms(offset, OFFSET_S_MAX));
        let offset = offset.ok_or_else(|| format!("offset is in seconds, from 0 to {OFFSET_S_MAX}"))?;
        let cues = read_webvtt(body).map_err(|error| error.to_string())?;
        let cue = |one: media::subtitles::FileCue| {
            let ahead = u64::from(offset).saturating_add(one.begin_ms);
            let duration = u32::try_from(one.end_ms.saturating_sub(one.begin_ms)).ok();
            let duration = duration.filter(|duration| *duration <= DURATION_MS_MAX);
            let ahead = u32::try_from(ahead)
                .ok()
                .filter(|ahead| ms(f64::from(*ahead) / 1000.0, OFFSET_S_MAX).is_some());
            let (Some(ahead), Some(duration_ms)) = (ahead, duration) else {
                return Err("a cue is further ahead than an hour, or longer than ten minutes".to_owned());
            };
            Ok((ahead, Cue { duration_ms, language: language.clone(), text: one.text }))
        };
        return cues.into_iter().map(cue).collect();
    }
    let shape = |_| {
        "The body is an object with text, language, offset and duration, a list of such objects, or WebVTT"
            .to_owned()
    };
    let asked: Vec<Asked> = match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body).map_err(shape)?,
        _ => vec![serde_json::from_slice(body).map_err(shape)?],
    };
    if asked.len() > CUES_MAX {
        return Err(format!("more than {CUES_MAX} cues"));
    }
    let cue = |one: Asked| {
        let offset = ms(one.offset, OFFSET_S_MAX);
        let offset = offset.ok_or_else(|| format!("offset is in seconds, from 0 to {OFFSET_S_MAX}"))?;
        let longest = f64::from(DURATION_MS_MAX) / 1000.0;
        let duration = ms(one.duration, longest).filter(|ms| *ms > 0);
        let duration_ms = duration.ok_or_else(|| format!("duration is in seconds, up to {longest}"))?;
        let text = cue_text(&escaped(&one.text)).filter(|text| text.len() <= TEXT_BYTES_MAX);
        let text = text.ok_or_else(|| format!("text is missing, or has more than {TEXT_BYTES_MAX} bytes"))?;
        Ok((offset, Cue { duration_ms, language: known(&one.language)?, text }))
    };
    asked.into_iter().map(cue).collect()
}

/// `POST /broadcasts/{id}/subtitles`: inserts cues into a stream.
pub(super) fn subtitles(cx: &mut Context, registry: &mut Registry, now: Now, call: &Call<'_>) -> Reply {
    let languages = read_languages(call.app.values.text(LANGUAGES)).unwrap_or_default();
    if languages.is_empty() {
        return refused(Some("Subtitles are not enabled"));
    }
    let told = (call.query("language"), call.query("offset"));
    let cues = match read(&call.request.body, &languages, told) {
        Ok(cues) if cues.is_empty() => return refused(Some("There are no cues")),
        Ok(cues) => cues,
        Err(message) => return refused(Some(&message)),
    };
    let (stream, worker) = match source(registry, call) {
        Ok(source) => source,
        Err(refusal) => return refusal,
    };
    let count = u32::try_from(cues.len()).unwrap_or(u32::MAX);
    if !registry.subtitle_rates.takes(now.mono, (stream, &call.app.name), count) {
        let outcome = Outcome::failure("").message(Some("Too many cues")).no_data_id();
        return Reply::Now(outcome.response(429).header("Retry-After", "1"));
    }
    for (ahead_ms, cue) in cues {
        let data: Option<Bytes> = cue.write();
        data.into_iter().for_each(|data| {
            cx.post(worker, ToWorker::TimedData { stream, track: TrackId::SUBTITLES, data, ahead_ms });
        });
    }
    Reply::Now(Outcome::success().response(200))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn languages() -> Vec<(String, String)> {
        read_languages("en:English,de:Deutsch").unwrap()
    }

    fn cue(language: &str, text: &str, duration_ms: u32) -> Cue {
        Cue { duration_ms, language: language.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn cues_are_read_from_json_and_from_webvtt() {
        let read =
            |body: &str, language: &str| read(body.as_bytes(), &languages(), (language, "1.5")).unwrap();
        assert_eq!(read(r#"{"text":"a < b"}"#, ""), [(0, cue("en", "a &lt; b", 4000))]);
        let several = r#" [{"text":"eins\n\nzwei","language":"deu","offset":2.5,"duration":1},{"text":"x"}]"#;
        assert_eq!(read(several, ""), [(2500, cue("de", "eins\nzwei", 1000)), (0, cue("en", "x", 4000))]);
        let file = "WEBVTT\n\n00:01.000 --> 00:03.000\n<i>eins</i>\n\n00:04.000 --> 00:05.000\nzwei\n";
        let wanted = [(2500, cue("de", "<i>eins</i>", 2000)), (5500, cue("de", "zwei", 1000))];
        assert_eq!(read(file, "de"), wanted);
    }

    #[test]
    fn cues_that_are_none_are_refused_with_the_reason() {
        let refusal = |body: &str, query| read(body.as_bytes(), &languages(), query).unwrap_err();
        let many = format!("[{}]", vec![r#"{"text":"x"}"#; CUES_MAX + 1].join(","));
        let (long, large) =
            (format!(r#"{{"text":"{}"}}"#, "x".repeat(TEXT_BYTES_MAX + 1)), "x".repeat(FILE_BYTES_MAX + 1));
        for (body, wanted) in [
            ("{}", "The body is"),
            (r#"{"text":1}"#, "The body is"),
            (r#"{"text":"x","lang":"en"}"#, "The body is"),
            ("[1]", "The body is"),
            (r#"{"text":" \n"}"#, "text is missing"),
            (&long, "text is missing"),
            (&large, "The body has more"),
            (r#"{"text":"x","language":"fr"}"#, "hls.subtitles does not"),
            (r#"{"text":"x","offset":-1}"#, "offset is"),
            (r#"{"text":"x","offset":3601}"#, "offset is"),
            (r#"{"text":"x","duration":0}"#, "duration is"),
            (r#"{"text":"x","duration":601}"#, "duration is"),
            (&many, "more than 64 cues"),
            ("", "WebVTT is"),
            ("WEBVTT\n\n00:01.000 --> 00:00.000\nx", "invalid times"),
            ("WEBVTT\n\n01:00:01.000 --> 01:00:02.000\nx", "a cue is further"),
            ("WEBVTT\n\n00:00.000 --> 00:10:00.001\nx", "a cue is further"),
        ] {
            let told = refusal(body, ("", ""));
            assert!(told.starts_with(wanted), "{body:.80}: {told}");
        }
        assert!(refusal("WEBVTT\n", ("fr", "")).starts_with("hls.subtitles does not"));
        assert!(refusal("WEBVTT\n", ("", "x")).starts_with("offset is"));
    }

    #[test]
    fn a_flood_of_one_stream_leaves_room_for_others_of_its_application_and_one_application_for_others() {
        let (mut rates, begun) = (Rates::default(), Instant::now());
        let (live, other): (Arc<str>, Arc<str>) = ("live".into(), "other".into());
        let mut taken = |stream, app: &Arc<str>, after_ms| {
            let now = begun + Duration::from_millis(after_ms);
            (0..2000).filter(|_| rates.takes(now, (StreamId(stream), app), 1)).count()
        };
        assert_eq!((taken(1, &live, 0), taken(1, &live, 1000), taken(2, &live, 1000)), (100, 10, 100));
        let all: usize = (3..40).map(|stream| taken(stream, &live, 1000)).sum();
        assert_eq!((all, taken(99, &other, 1000)), (1024 - 10 - 100, 100));
        assert!(!rates.takes(begun, (StreamId(7), &other), 101), "more than ever fit");
        for stream in 1000..3000 {
            rates.takes(begun + Duration::from_secs(60 * stream), (StreamId(stream), &other), 1);
        }
        assert!(rates.streams.len() <= RATES_MAX + 1);
    }
}
