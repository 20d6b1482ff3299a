//! Playlists for one viewer, by the parameters of its request: they are as far as it wants (`_HLS_msn`, `_HLS_part`), or what has
//! changed (`_HLS_skip`); its credentials are on every URI in it, and `start` and `end` select a part of it.
//!
//! The order of the parameters and their names are those of the reference: `subscriberCode`, `subscriberId`, `token`.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use hls::Playlist;
use hls::playlist::Kind;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::cmaf::MANIFEST;
use super::settings::HlsSettings;
use super::{DASH, DELTA, ENDING, manifest};
use crate::auth::access::Credentials;
use crate::config::AppSettings;
use crate::mail::Progress;
use crate::protocol::sinks::{Params, Query};

/// See [`crate::protocol::sinks`].
pub(super) const PARAMS: Params = Params { wants, in_place, viewers, tailor };

fn value<'q>(query: &'q Query, name: &str) -> Option<&'q str> {
    query.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

/// RFC 8216bis §6.2.5.2.
fn wants(query: &Query) -> Option<Progress> {
    let number = |name| value(query, name)?.parse::<u64>().ok();
    let segment = number("_HLS_msn")?;
    Some(match number("_HLS_part") {
        Some(part) => Progress { segment, part: u32::try_from(part).unwrap_or(u32::MAX).saturating_add(1) },
        None => Progress { segment: segment.saturating_add(1), part: 0 },
    })
}

/// The delta update of a playlist (RFC 8216bis §6.2.5.1).
fn in_place(name: &str, query: &Query) -> Option<String> {
    let skip = value(query, "_HLS_skip").filter(|skip| matches!(*skip, "YES" | "v2"));
    skip.filter(|_| name.ends_with(ENDING)).map(|_| format!("{name}{DELTA}"))
}

/// Segments that a manifest and a playlist name are the same; those of the manifest have a parameter.
fn viewers(app: &AppSettings, name: &str, query: &Query) -> Option<&'static str> {
    let is_segment = !name.ends_with(ENDING) && !name.ends_with(MANIFEST);
    (is_segment && value(query, manifest::MARK).is_some() && HlsSettings::of(app).dash).then_some(DASH)
}

/// What a viewer with these parameters is sent in place of a playlist. `None`: the playlist.
fn tailor(name: &str, text: &Bytes, query: &Query, date_ms: u64) -> Option<Bytes> {
    let path = name.split_once('?').map_or(name, |(path, _)| path);
    if path.ends_with(MANIFEST) {
        let text = std::str::from_utf8(text).ok()?;
        return Some(manifest::for_viewer(text, &echo(query), date_ms).into());
    }
    if query.is_empty() || !path.ends_with(ENDING) {
        return None;
    }
    let window = Window::of(query).and_then(|window| window.select(text));
    let echo = echo(query);
    if echo.is_empty() {
        return window.map(Bytes::from);
    }
    let text = window.map_or_else(|| text.clone(), Bytes::from);
    with_echo(std::str::from_utf8(&text).ok()?, &echo).map(Bytes::from)
}

/// The parameters that go on, as a query without its question mark.
fn echo(query: &[(String, String)]) -> String {
    let shown = Credentials::of(query);
    let pairs = [("subscriberCode", shown.code), ("subscriberId", shown.subscriber), ("token", shown.token)];
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let separator = if text.is_empty() { "" } else { "&" };
            let _ = write!(text, "{separator}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
    }
    text
}

/// The text with the parameters behind each URI, in lines of their own and in attributes.
fn with_echo(text: &str, echo: &str) -> Option<String> {
    const ATTRIBUTE: &str = "URI=\"";
    let mut out = String::with_capacity(text.len().saturating_mul(2));
    for line in text.lines() {
        if !line.starts_with('#') && !line.is_empty() {
            extend(&mut out, line, echo);
        } else if let Some(at) = line.find(ATTRIBUTE) {
            let (head, rest) = line.split_at_checked(at.checked_add(ATTRIBUTE.len())?)?;
            let (uri, tail) = rest.split_once('"')?;
            out.push_str(head);
            extend(&mut out, uri, echo);
            out.push('"');
            out.push_str(tail);
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    Some(out)
}

fn extend(out: &mut String, uri: &str, echo: &str) {
    out.push_str(uri);
    out.push(if uri.contains('?') { '&' } else { '?' });
    out.push_str(echo);
}

/// A part of a stream, in milliseconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start_ms: i64,
    end_ms: i64,
}

impl Window {
    /// `start` and `end` in seconds of Unix time; one of them may be missing.
    fn of(query: &[(String, String)]) -> Option<Self> {
        let ms = |name: &str| {
            let value = query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())?;
            value.parse::<i64>().ok()?.checked_mul(1000)
        };
        let (start, end) = (ms("start"), ms("end"));
        (start.is_some() || end.is_some())
            .then(|| Self { start_ms: start.unwrap_or(i64::MIN), end_ms: end.unwrap_or(i64::MAX) })
    }

    /// The segments of it, as a recording.
    fn select(self, text: &[u8]) -> Option<String> {
        let Ok(Playlist::Media(mut playlist)) = Playlist::read(text) else { return None };
        let duration_ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let before = playlist.segments.iter().take_while(|segment| {
            let begin = segment.program_date_time.unwrap_or(0);
            begin.saturating_add(duration_ms(segment.duration)) <= self.start_ms
        });
        let before = before.count();
        playlist.media_sequence = playlist.media_sequence.saturating_add(before as u64);
        playlist.segments.drain(..before.min(playlist.segments.len()));
        playlist.segments.retain(|segment| segment.program_date_time.unwrap_or(0) < self.end_ms);
        playlist.segments.iter_mut().for_each(|segment| segment.parts.clear());
        (playlist.kind, playlist.ended, playlist.low_latency) = (Some(Kind::Vod), true, None);
        Some(playlist.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAYLIST: &str = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
        #EXT-X-MAP:URI=\"i.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:10.000Z\n#EXTINF:2.000,\n7.m4s\n\
        #EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:12.000Z\n#EXTINF:2.000,\n8.m4s?x=1\n\
        #EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:14.000Z\n#EXTINF:2.000,\n9.m4s\n";

    fn tailored(query: &[(&str, &str)]) -> Option<String> {
        let query: Vec<_> =
            query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let text = tailor("a.m3u8", &Bytes::from_static(PLAYLIST.as_bytes()), &query, 0)?;
        Some(String::from_utf8(text.to_vec()).unwrap())
    }

    #[test]
    fn credentials_are_on_every_uri() {
        let text = tailored(&[("token", "a b\"&"), ("subscriberId", "me"), ("subscriberCode", "1")]).unwrap();
        let echo = "subscriberCode=1&subscriberId=me&token=a%20b%22%26";
        for uri in ["i.mp4?", "\n7.m4s?", "8.m4s?x=1&", "\n9.m4s?"] {
            assert!(text.contains(&format!("{uri}{echo}")), "{uri}: {text}");
        }
        assert!(text.contains(&format!("URI=\"i.mp4?{echo}\"\n")) && Playlist::read(text.as_bytes()).is_ok());
        assert_eq!(text.lines().count(), PLAYLIST.lines().count());
    }

    #[test]
    fn others_are_sent_what_all_are_sent() {
        assert_eq!((tailored(&[]), tailored(&[("x", "1"), ("token", ""), ("start", "z")])), (None, None));
        let query = [("token".to_owned(), "x".to_owned())];
        assert_eq!(tailor("a.ts", &Bytes::from_static(b"G"), &query, 0), None);
    }

    #[test]
    fn a_window_is_a_recording_of_its_segments() {
        let uris = |query: &[(&str, &str)]| {
            let text = tailored(query).unwrap();
            let Ok(Playlist::Media(playlist)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
            assert!(playlist.ended && playlist.kind == Some(Kind::Vod));
            let uris: Vec<String> = playlist.segments.into_iter().map(|segment| segment.uri).collect();
            (playlist.media_sequence, uris.join(" "))
        };
        assert_eq!(uris(&[("start", "12"), ("end", "14")]), (8, "8.m4s?x=1".to_owned()));
        assert_eq!(uris(&[("start", "13")]), (8, "8.m4s?x=1 9.m4s".to_owned()));
        assert_eq!(uris(&[("end", "11")]), (7, "7.m4s".to_owned()));
        assert_eq!(uris(&[("start", "99")]), (10, String::new()));
        assert!(uris(&[("end", "11"), ("token", "k")]).1.ends_with("?token=k"));
    }
}
