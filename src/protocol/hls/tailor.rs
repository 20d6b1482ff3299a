//! Playlists for one viewer, by the parameters of its request. A request may wait for progress (`_HLS_msn`,
//! `_HLS_part`) or want a delta update (`_HLS_skip`); the credentials that the application checks, 1 KiB at most, are
//! repeated on every URI; `start` and `end` select a part. The viewer's own text is made as it is sent
//! ([`Tailored`]).
//!
//! The names and the order of the parameters are those of Ant Media Server: `subscriberCode`, `subscriberId`, `token`.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use hls::Playlist;
use hls::playlist::{Kind, Segment};
use hls::segmenter::{self, Excerpt, NUMBERS_FROM_MS, for_viewer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::cmaf::{self, MANIFEST};
use super::settings::HlsSettings;
use super::{DASH, DELTA, ENDING, dvr};
use crate::auth::access::Credentials;
use crate::config::AppSettings;
use crate::mail::Progress;
use crate::protocol::http::settings::{PolledSettings, VIEWER};
use crate::protocol::sinks::{Params, Query, Requested};
use crate::protocol::tailored::Tailored;

/// See [`crate::protocol::sinks`].
pub(super) const PARAMS: Params = Params { wants, in_place, viewers, tailor, dated, refuse };

/// Maximum bytes of the credentials repeated on each URI.
const ECHO_BYTES_MAX: usize = 1024;
/// The texts of refusals.
const TOO_LONG: &str =
    "The credentials of a viewer are longer than 1 KiB, and are repeated behind each URI of a playlist";
const BAD_DIRECTIVES: &str = "_HLS_msn and _HLS_part are numbers, and a part is of a segment";
/// Characters that must be escaped in a query (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Beginnings of lines that only playlists with dates have (`hlsflags`), because date ranges require dates (RFC
/// 8216bis §4.4.5.1).
const DATES: [&str; 2] = ["#EXT-X-PROGRAM-DATE-TIME:", "#EXT-X-DATERANGE:"];
/// Lines of a live playlist that a recording lacks.
const OF_LIVE_PLAYLISTS: [&str; 3] = ["#EXT-X-PART:", "#EXT-X-PRELOAD-HINT:", "#EXT-X-RENDITION-REPORT:"];

fn value<'q>(query: &'q Query, name: &str) -> Option<&'q str> {
    query.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

/// Returns the progress that a blocking reload waits for (RFC 8216bis §6.2.5.2).
fn wants(query: &Query) -> Option<Progress> {
    let number = |name| value(query, name)?.parse::<u64>().ok();
    let segment = number("_HLS_msn")?;
    Some(match number("_HLS_part") {
        Some(part) => Progress { segment, part: u32::try_from(part).unwrap_or(u32::MAX).saturating_add(1) },
        None => Progress { segment: segment.saturating_add(1), part: 0 },
    })
}

/// Returns the name of the text to serve instead: the playlist or manifest of all segments to which viewers can rewind,
/// or the delta update of a playlist (RFC 8216bis §6.2.5.1).
fn in_place(name: &str, query: &Query) -> Option<String> {
    if dvr::is_wanted(query) && (name.ends_with(ENDING) || name.ends_with(MANIFEST)) {
        return Some(format!("{name}{}", dvr::QUERY));
    }
    (name.ends_with(ENDING) && wants_delta(query)).then(|| format!("{name}{DELTA}"))
}

/// True if a player wants a delta update, because it has a recent playlist.
fn wants_delta(query: &Query) -> bool {
    value(query, "_HLS_skip").is_some_and(|skip| matches!(skip, "YES" | "v2"))
}

/// Returns the protocol under which the requester of a segment counts. A manifest and a playlist name the same
/// segments, but a manifest adds a parameter.
fn viewers(app: &AppSettings, name: &str, query: &Query) -> Option<&'static str> {
    let is_segment = !name.ends_with(ENDING) && !name.ends_with(MANIFEST);
    (is_segment && value(query, segmenter::MARK).is_some() && HlsSettings::of(app).dash).then_some(DASH)
}

/// Returns a playlist or a manifest as one viewer gets it; `None` if it is the same for all.
fn tailor(requested: &Requested<'_>, text: &Bytes, date_ms: u64) -> Option<Tailored> {
    let path = path_of(requested.name);
    if path.ends_with(MANIFEST) {
        let edit = for_viewer(&echo(requested), date_ms);
        return Tailored::new(excerpt(requested, text, date_ms), edit);
    }
    let is_dated = HlsSettings::of(requested.app).told.dates;
    if requested.query.is_empty() && is_dated || !path.ends_with(ENDING) {
        return None;
    }
    if requested.name.ends_with(dvr::QUERY) {
        return reach(requested, text, date_ms, is_dated);
    }
    // If viewers can rewind, a live playlist that does not list the segments for rewinding is served as it is,
    // unless the viewer gives an `end`.
    let is_live = HlsSettings::of(requested.app).dvr().is_some() && value(requested.query, "end").is_none();
    let window = Window::of(requested.query, date_ms).filter(|_| !is_live);
    let window = window.and_then(|window| window.select(text));
    let (choice, echo) = (choice_of(requested), echo(requested));
    let with_choice = [choice.as_str(), echo.as_str()];
    let with_choice = with_choice.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("&");
    let is_window = window.is_some();
    if with_choice.is_empty() && !is_window && is_dated {
        return None;
    }
    let parts = window.unwrap_or_else(|| vec![text.clone()]);
    Tailored::new(parts, move |line, out| {
        let is_of_live = is_window && OF_LIVE_PLAYLISTS.iter().any(|tag| line.starts_with(tag));
        let is_kept = !is_of_live && (is_dated || !DATES.iter().any(|tag| line.starts_with(tag)));
        let echo = if line.contains(cmaf::SUBTITLES) { &echo } else { &with_choice };
        is_kept && with_echo(line, echo, out).is_some()
    })
}

/// Returns the lines of a manifest for the time that a viewer has chosen.
fn excerpt(requested: &Requested<'_>, text: &Bytes, date_ms: u64) -> Vec<Bytes> {
    let whole = || vec![text.clone()];
    let window = Window::of(requested.query, date_ms).filter(|_| requested.name.ends_with(dvr::QUERY));
    let Some(window) = window else { return whole() };
    // The time of the manifest counts from this date.
    let place_ms = |date_ms: i64| u64::try_from(date_ms).unwrap_or(0).saturating_sub(NUMBERS_FROM_MS);
    let excerpt = Excerpt {
        start_ms: (window.start_ms > i64::MIN).then(|| place_ms(window.start_ms)),
        end_ms: (window.end_ms < i64::MAX).then(|| place_ms(window.end_ms)),
    };
    segmenter::select(text, excerpt).unwrap_or_else(whole)
}

/// Returns the playlist of a time range, with dates. Its times are absolute.
fn dated(requested: &Requested<'_>, text: &Bytes) -> Option<Tailored> {
    let is_reach = requested.name.ends_with(dvr::QUERY) && path_of(requested.name).ends_with(ENDING);
    is_reach.then(|| reach(requested, text, 0, true)).flatten()
}

/// Returns a viewer's playlist of the segments to which the viewer can rewind.
fn reach(requested: &Requested<'_>, text: &Bytes, date_ms: u64, is_dated: bool) -> Option<Tailored> {
    let window = Window::of(requested.query, date_ms);
    let choice = dvr::list::Choice {
        start_ms: window.map(|window| window.start_ms).filter(|start_ms| *start_ms > i64::MIN),
        is_sliding: value(requested.query, "start").is_some_and(|start| start.starts_with('-')),
        end_ms: window.map(|window| window.end_ms).filter(|end_ms| *end_ms < i64::MAX),
        has_rest: wants_delta(requested.query),
    };
    let parts = dvr::list::select(text, choice)?;
    let echo = echo(requested);
    let has_end = choice.end_ms.is_some();
    if echo.is_empty() && is_dated && !has_end {
        return Some(Tailored::plain(parts));
    }
    Tailored::new(parts, move |line, out| {
        let is_of_live = has_end && OF_LIVE_PLAYLISTS.iter().any(|tag| line.starts_with(tag));
        let is_kept = !is_of_live && (is_dated || !DATES.iter().any(|tag| line.starts_with(tag)));
        is_kept && with_echo(line, &echo, out).is_some()
    })
}

/// Returns the query that selects the segments to which a viewer rewinds, for the playlists of a stream's tracks.
/// Empty if viewers cannot rewind, or if the request selects nothing. In ladders and subtitles nobody can rewind.
fn choice_of(requested: &Requested<'_>) -> String {
    let can_go_back = HlsSettings::of(requested.app).dvr().is_some() && dvr::is_wanted(requested.query);
    if !can_go_back || !super::is_apart(requested.name) || !path_of(requested.name).ends_with(cmaf::MASTER) {
        return String::new();
    }
    let chosen = requested.query.iter().filter(|(name, _)| dvr::is_choice(name));
    let pair = |(name, value): &(String, String)| format!("{name}={}", utf8_percent_encode(value, RESERVED));
    chosen.map(pair).collect::<Vec<_>>().join("&")
}

fn path_of(name: &str) -> &str {
    name.split_once('?').map_or(name, |(path, _)| path)
}

fn refuse(requested: &Requested<'_>) -> Option<(u16, &'static str)> {
    let path = path_of(requested.name);
    if path.ends_with(ENDING) && !are_directives(requested.query) {
        return Some((400, BAD_DIRECTIVES));
    }
    let is_repeated = path.ends_with(MANIFEST) || path.ends_with(ENDING);
    let chosen = requested.query.iter().filter(|(name, _)| dvr::is_choice(name));
    let chosen: usize = chosen.map(|(_, value)| value.len()).sum();
    (is_repeated && echo(requested).len().saturating_add(chosen) > ECHO_BYTES_MAX).then_some((414, TOO_LONG))
}

/// True if the directives of a blocking reload are well-formed; a part requires a segment (RFC 8216bis §6.2.5.2).
fn are_directives(query: &Query) -> bool {
    let is_number = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
    };
    let (segment, part) = (value(query, "_HLS_msn"), value(query, "_HLS_part"));
    segment.is_none_or(is_number) && part.is_none_or(|part| segment.is_some() && is_number(part))
}

/// Returns the query to append to each URI, without the question mark: the credentials that the application checks,
/// and the viewer's name.
fn echo(requested: &Requested<'_>) -> String {
    let shown = Credentials::of(requested.query).counting(&requested.app.security.play);
    let viewer = PolledSettings::of(requested.app).viewer_of(requested.query);
    let pairs = [
        ("subscriberCode", shown.code),
        ("subscriberId", shown.subscriber),
        ("token", shown.token),
        (VIEWER, viewer),
    ];
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let separator = if text.is_empty() { "" } else { "&" };
            let _ = write!(text, "{separator}{name}={}", utf8_percent_encode(value, RESERVED));
        }
    }
    text
}

/// Writes a line with the parameters after its URI, which is the whole line or an attribute. `None` if the line
/// cannot be read.
fn with_echo(line: &str, echo: &str, out: &mut String) -> Option<()> {
    const ATTRIBUTE: &str = "URI=\"";
    if !line.starts_with('#') && !line.is_empty() {
        extend(out, line, echo);
    } else if let Some(at) = line.find(ATTRIBUTE) {
        let (head, rest) = line.split_at_checked(at.checked_add(ATTRIBUTE.len())?)?;
        let (uri, tail) = rest.split_once('"')?;
        out.push_str(head);
        extend(out, uri, echo);
        out.push('"');
        out.push_str(tail);
    } else {
        out.push_str(line);
    }
    Some(())
}

fn extend(out: &mut String, uri: &str, echo: &str) {
    out.push_str(uri);
    if !echo.is_empty() {
        out.push(if uri.contains('?') { '&' } else { '?' });
        out.push_str(echo);
    }
}

/// A time range of a stream, in milliseconds of Unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start_ms: i64,
    end_ms: i64,
}

impl Window {
    /// Reads `start` and `end` in seconds of Unix time, or relative to now if negative; one of them may be missing.
    fn of(query: &[(String, String)], now_ms: u64) -> Option<Self> {
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let ms = |name: &str| {
            let ms = value(query, name)?.parse::<i64>().ok()?.checked_mul(1000)?;
            Some(if ms < 0 { now_ms.saturating_add(ms) } else { ms })
        };
        let (start, end) = (ms("start"), ms("end"));
        (start.is_some() || end.is_some())
            .then(|| Self { start_ms: start.unwrap_or(i64::MIN), end_ms: end.unwrap_or(i64::MAX) })
    }

    /// Returns the segments of the time range as the playlist of a recording: a head with the first segment, the
    /// other segments unchanged, and the end.
    fn select(self, text: &Bytes) -> Option<Vec<Bytes>> {
        let Ok(Playlist::Media(mut playlist)) = Playlist::read(text) else { return None };
        let duration_ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let before = playlist.segments.iter().take_while(|segment| {
            let begin = segment.program_date_time.unwrap_or(0);
            begin.saturating_add(duration_ms(segment.duration)) <= self.start_ms
        });
        let before = before.count();
        let behind = playlist.segments.get(before..).unwrap_or_default();
        let is_of = |segment: &&Segment| segment.program_date_time.unwrap_or(0) < self.end_ms;
        let count = behind.iter().take_while(is_of).count();
        playlist.media_sequence = playlist.media_sequence.saturating_add(before as u64);
        let gone = playlist.segments.drain(..before.min(playlist.segments.len()));
        let ranges = gone.flat_map(|segment| segment.date_ranges).collect();
        playlist.carry(ranges);
        playlist.segments.truncate(count.min(1));
        playlist.segments.iter_mut().for_each(|segment| segment.parts.clear());
        (playlist.kind, playlist.ended, playlist.low_latency) = (Some(Kind::Vod), false, None);
        let head = Bytes::from(playlist.to_string());
        let others = segment_lines(text, before.saturating_add(1)..before.saturating_add(count));
        Some(vec![head, others, Bytes::from_static(b"#EXT-X-ENDLIST\n")])
    }
}

/// Returns the lines of the segments in this range of indexes, counted from the first segment of the text.
fn segment_lines(text: &Bytes, segments: Range<usize>) -> Bytes {
    let (mut at, mut number, mut start) = (0_usize, 0_usize, None);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if number >= segments.end {
            break;
        }
        if number >= segments.start {
            start.get_or_insert(at);
        }
        at = at.saturating_add(line.len());
        let is_uri = line.first().is_some_and(|first| !matches!(first, b'#' | b'\n' | b'\r'));
        number = number.saturating_add(usize::from(is_uri));
    }
    start.map_or_else(Bytes::new, |start| text.slice(start..at))
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
        let app = checking(&[("playTokenControlEnabled", "true"), ("enableTimeTokenForPlay", "true")]);
        tailored_for(&app, &query)
    }

    fn checking(settings: &[(&str, &str)]) -> AppSettings {
        let secret = ("timeTokenSecretForPlay", "0123456789abcdef0123456789abcdef");
        let settings: Vec<_> = settings.iter().copied().chain([secret]).collect();
        AppSettings::with("live", &settings).unwrap()
    }

    fn tailored_for(app: &AppSettings, query: &[(String, String)]) -> Option<String> {
        let requested = Requested { app, name: "a.m3u8", query };
        let mut text = tailor(&requested, &Bytes::from_static(PLAYLIST.as_bytes()), 0)?;
        let blocks = std::iter::from_fn(|| text.next_block());
        Some(blocks.map(|block| String::from_utf8(block.to_vec()).unwrap()).collect())
    }

    fn query(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_credentials_that_are_checked_are_repeated() {
        let shown = query(&[("token", "t"), ("subscriberId", "me"), ("subscriberCode", "7")]);
        let echo_of = |settings: &[(&str, &str)]| {
            let app = checking(settings);
            echo(&Requested { app: &app, name: "a.m3u8", query: &shown })
        };
        let hook = ("webhookPlayAuthUrl", "http://192.0.2.1/");
        for (settings, wanted) in [
            ([].as_slice(), "subscriberId=me"),
            (&[("playTokenControlEnabled", "true")], "subscriberId=me&token=t"),
            (&[("hashControlPlayEnabled", "true"), ("tokenHashSecret", "x")], "subscriberId=me&token=t"),
            (&[("enableTimeTokenForPlay", "true")], "subscriberCode=7&subscriberId=me"),
            (&[hook], "subscriberCode=7&subscriberId=me&token=t"),
        ] {
            assert_eq!(echo_of(settings), wanted, "{settings:?}");
        }
        assert_eq!(tailored_for(&checking(&[]), &query(&[("token", "t")])), None, "all are sent the same");
    }

    #[test]
    fn t_11_no_more_than_a_kibibyte_is_repeated() {
        let checks = checking(&[("playTokenControlEnabled", "true")]);
        let none = checking(&[]);
        for (name, token, app, refused) in [
            ("a.m3u8", "x".repeat(1018), &checks, false),
            ("a.m3u8", "x".repeat(1019), &checks, true),
            ("a.mpd", "x".repeat(1019), &checks, true),
            ("a.m3u8", "/".repeat(400), &checks, true),
            ("a.m3u8", "-._~".repeat(250), &checks, false),
            ("a.ts", "x".repeat(8000), &checks, false),
            ("a.m3u8", "x".repeat(8000), &none, false),
        ] {
            let query = query(&[("token", &token)]);
            assert_eq!(
                refuse(&Requested { app, name, query: &query }).is_some(),
                refused,
                "{name} {}",
                token.len()
            );
        }
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
    fn t_11_sixty_viewers_of_a_long_playlist_hold_one_block_each() {
        const BLOCK_BYTES: usize = 16 * 1024;
        const VIEWERS: usize = 60;
        let mut text = PLAYLIST.to_owned();
        for n in 10..2510 {
            text.push_str(&format!("#EXTINF:2.000,\n{n}.m4s\n"));
        }
        let text = Bytes::from(text);
        let app = checking(&[("playTokenControlEnabled", "true")]);
        let query = query(&[("token", &"t".repeat(1018))]);
        let requested = Requested { app: &app, name: "a.m3u8", query: &query };
        let mut viewers: Vec<_> = (0..VIEWERS).map(|_| tailor(&requested, &text, 0).unwrap()).collect();
        let held: usize = viewers.iter_mut().map(|one| one.next_block().unwrap().len()).sum();
        let whole = usize::try_from(viewers[0].length()).unwrap();
        println!("{} bytes for all, {whole} for one viewer, {held} held by {VIEWERS}", text.len());
        assert!(whole > 2_500_000 && held < VIEWERS * (BLOCK_BYTES + 2048), "{whole} {held}");
    }

    #[test]
    fn others_are_sent_what_all_are_sent() {
        assert_eq!((tailored(&[]), tailored(&[("x", "1"), ("token", ""), ("start", "z")])), (None, None));
        let (app, query) = (checking(&[("playTokenControlEnabled", "true")]), query(&[("token", "x")]));
        let requested = Requested { app: &app, name: "a.ts", query: &query };
        assert!(tailor(&requested, &Bytes::from_static(b"G"), 0).is_none());
    }

    #[test]
    fn dates_are_left_out_where_the_flags_leave_them_out() {
        let flagged =
            |flags| AppSettings::of(crate::protocol::schema(), "live", &[("hlsflags", flags)]).unwrap();
        let without = flagged("delete_segments");
        let text = tailored_for(&without, &[]).unwrap();
        let [date, range] = DATES;
        assert!(PLAYLIST.contains(date) && !text.contains(date), "{text}");
        let kept = |text: &str| text.lines().filter(|line| !line.starts_with(date)).count();
        assert_eq!(text.lines().count(), kept(PLAYLIST), "nothing else is");
        // A part of the playlist is still found by its dates, although the dates are not sent.
        let part = tailored_for(&without, &query(&[("start", "13")])).unwrap();
        assert!(part.contains("8.m4s") && !part.contains("7.m4s") && !part.contains(date), "{part}");
        let line = format!("{range}ID=\"1\",START-DATE=\"1970-01-01T00:00:10.000Z\"\n");
        let ranged = PLAYLIST.replacen(date, &format!("{line}{date}"), 1);
        let requested = Requested { app: &without, name: "a.m3u8", query: &[] };
        let mut text = tailor(&requested, &Bytes::from(ranged), 0).unwrap();
        let blocks: Vec<Bytes> = std::iter::from_fn(|| text.next_block()).collect();
        assert_eq!(blocks.concat(), tailored_for(&without, &[]).unwrap().as_bytes());
        for flags in ["delete_segments+program_date_time", "program_date_time + round_durations"] {
            assert_eq!(tailored_for(&flagged(flags), &[]), None, "{flags}");
        }
    }

    #[test]
    fn a_window_has_the_ranges_that_go_on_where_it_begins() {
        let range = |id, start: u64, rest: &str| {
            let (ten, date) = (start % 60, "1970-01-01T00:00");
            format!("#EXT-X-DATERANGE:ID=\"{id}\",START-DATE=\"{date}:{ten:02}.000Z\",{rest}\n")
        };
        let before = [
            range("open", 10, "SCTE35-OUT=0xFC"),
            range("long", 10, "PLANNED-DURATION=3.000,SCTE35-OUT=0xFC"),
            range("over", 10, "PLANNED-DURATION=2.000,SCTE35-OUT=0xFC"),
            range("ended", 10, "SCTE35-OUT=0xFC"),
            range("ended", 10, "DURATION=1.000,SCTE35-IN=0xFC"),
            range("ends", 10, "SCTE35-OUT=0xFC"),
            range("mark", 10, "SCTE35-CMD=0xFC"),
        ];
        let date = "#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:14";
        let end = range("ends", 10, "DURATION=4.000,SCTE35-IN=0xFC");
        let text = PLAYLIST.replace("#EXT-X-MAP", &format!("{}#EXT-X-MAP", before.concat()));
        let text = Bytes::from(text.replace(date, &format!("{end}{date}")));
        let shown = |start_ms| {
            let window = Window { start_ms, end_ms: i64::MAX };
            let text = window.select(&text).unwrap().concat();
            let Ok(Playlist::Media(playlist)) = Playlist::read(&text) else { panic!() };
            let ranges = playlist.segments.into_iter().flat_map(|segment| segment.date_ranges);
            ranges.map(|range| range.id).collect::<Vec<_>>()
        };
        assert_eq!(shown(12_000), ["open", "long", "ends", "ends"]);
        assert_eq!(shown(14_000), ["open", "ends"]);
        assert_eq!(shown(99_000), [""; 0]);
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
