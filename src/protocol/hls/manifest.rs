//! The manifest of DASH (ISO/IEC 23009-1) for the segments of renditions: `SegmentTemplate` with a `SegmentTimeline` (§5.3.9.6).
//!
//! The tracks of a stream may change; the manifest then has the segments of the newest ones alone, as a new period.

use std::fmt::{self, Display, Formatter, Write as _};

use media::TrackKind;

use super::rendition::{Rendition, Span};
use super::settings::HlsSettings;

/// Seconds after which a player asks again.
const UPDATE_PERIOD_S: u64 = 2;
/// The parameter of segments that a manifest names.
pub(super) const MARK: &str = "dash";
/// How the line with the time begins.
const UTC_TIMING: &str = "<UTCTiming schemeIdUri=\"urn:mpeg:dash:utc:direct:2014\"";
/// How a template of URIs begins.
const TEMPLATE: &str = "<SegmentTemplate ";

/// A duration of XML Schema, in milliseconds.
struct Period(u64);

impl Display for Period {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "PT{}.{:03}S", self.0 / 1000, self.0 % 1000)
    }
}

/// A moment, in milliseconds of Unix time.
struct Moment(u64);

impl Display for Moment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let crate::types::Civil { year, month, day, hour, minute, second, millis } =
            crate::types::Civil::of_unix_ms(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Text in an attribute.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            // It would begin an identifier of a template (§5.3.9.4.4).
            '$' => f.write_str("$$"),
            c if c.is_control() => Ok(()),
            c => f.write_char(c),
        })
    }
}

/// Dates by the calendar of the presentation, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    /// The beginning of the presentation, which never changes (§5.3.1.2).
    pub(super) zero_ms: u64,
    /// Behind that, the time zero of the period's segments.
    pub(super) start_ms: u64,
    /// Now.
    pub(super) now_ms: u64,
}

/// The manifest of these renditions, of which the first leads, whose segments are below `base`. `None` while there is nothing to play.
/// `ended` says that nothing more comes.
pub(super) fn manifest(
    renditions: &[Rendition],
    settings: &HlsSettings,
    base: &str,
    ended: bool,
    Moments { zero_ms, start_ms, now_ms }: Moments,
) -> Option<String> {
    let lead = renditions.first().filter(|lead| lead.window().is_enough())?;
    let span = lead.spans().back()?;
    let scale = u64::from(lead.tracks.first()?.timescale.ticks());
    let listed = settings.dash_own.window.unwrap_or(usize::MAX);
    let window_ms: u64 = lead
        .window()
        .playlist()
        .segments
        .iter()
        .rev()
        .take(listed)
        .map(|segment| u64::try_from(segment.duration.as_millis()).unwrap_or(0))
        .sum();
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" ",
    );
    out.push_str("profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" ");
    let _ = if ended {
        let end = span.time.saturating_add(span.ticks).saturating_mul(1000) / scale.max(1);
        let end = end.saturating_add(start_ms);
        write!(out, "type=\"static\" mediaPresentationDuration=\"{}\"", Period(end))
    } else {
        write!(
            out,
            "type=\"dynamic\" availabilityStartTime=\"{}\" publishTime=\"{}\" minimumUpdatePeriod=\"PT{UPDATE_PERIOD_S}S\" \
             timeShiftBufferDepth=\"{}\" suggestedPresentationDelay=\"{}\"",
            Moment(zero_ms),
            Moment(now_ms),
            Period(window_ms),
            Period(settings.dash_latency_ms.max(longest_ms(lead).saturating_mul(2)))
        )
    };
    let _ = write!(
        out,
        " maxSegmentDuration=\"{}\" minBufferTime=\"PT2S\">\n<BaseURL>{}</BaseURL>\n<Period id=\"{}\" start=\"{}\">\n",
        Period(longest_ms(lead)),
        Escaped(base),
        period(lead),
        Period(start_ms)
    );
    for (id, rendition) in renditions.iter().enumerate() {
        adaptation_set(&mut out, id, rendition, settings);
    }
    out.push_str("</Period>\n");
    if !ended {
        utc_timing(&mut out, now_ms);
        out.push('\n');
    }
    out.push_str("</MPD>\n");
    Some(out)
}

/// A line with the time (§5.8.4.11), from which players tell how far behind they are.
fn utc_timing(out: &mut String, now_ms: u64) {
    let _ = write!(out, "{UTC_TIMING} value=\"{}\"/>", Moment(now_ms));
}

/// Writes a line of the manifest for one viewer: the time is that of its request, and its credentials are on every URI, with the
/// parameter that tells viewers of the manifest from those of playlists.
pub(super) fn for_viewer(echo: &str, now_ms: u64) -> impl Fn(&str, &mut String) -> bool + Send + 'static {
    let query = if echo.is_empty() { MARK.to_owned() } else { format!("{MARK}&{echo}") };
    let query = Escaped(&query).to_string();
    move |line, out| {
        if line.starts_with(UTC_TIMING) {
            utc_timing(out, now_ms);
        } else if line.starts_with(TEMPLATE) {
            out.push_str(&with_query(line, &query));
        } else {
            out.push_str(line);
        }
        true
    }
}

/// A template with a query on its URIs, which have none.
fn with_query(line: &str, query: &str) -> String {
    let mut rest = line;
    let mut out = String::new();
    for attribute in [" initialization=\"", " media=\""] {
        let Some((before, behind)) = rest.split_once(attribute) else { continue };
        let Some((uri, behind)) = behind.split_once('"') else { continue };
        let _ = write!(out, "{before}{attribute}{uri}?{query}\"");
        rest = behind;
    }
    out.push_str(rest);
    out
}

fn longest_ms(rendition: &Rendition) -> u64 {
    u64::try_from(rendition.window().playlist().target_duration.as_millis()).unwrap_or(u64::MAX)
}

fn adaptation_set(out: &mut String, id: usize, rendition: &Rendition, settings: &HlsSettings) {
    let (Some(track), Some(map)) = (rendition.tracks.first(), rendition.map()) else { return };
    let mut spans: Vec<&Span> = current(rendition);
    let listed = settings.dash_own.window.unwrap_or(usize::MAX);
    drop(spans.drain(..spans.len().saturating_sub(listed)));
    let Some(first) = spans.first() else { return };
    let is_video = track.kind() == TrackKind::Video;
    let _ = writeln!(
        out,
        "<AdaptationSet id=\"{id}\" contentType=\"{}\" mimeType=\"{}/mp4\" segmentAlignment=\"true\" startWithSAP=\"1\">",
        if is_video { "video" } else { "audio" },
        if is_video { "video" } else { "audio" }
    );
    let _ = writeln!(
        out,
        "{TEMPLATE}timescale=\"{}\" initialization=\"{}\" media=\"{}\" startNumber=\"{}\">\n<SegmentTimeline>",
        track.timescale.ticks(),
        Escaped(&map.uri),
        settings.suffix.template(&Escaped(&rendition.names.base).to_string(), rendition.names.ending),
        first.number
    );
    for span in spans {
        let _ = writeln!(out, "<S t=\"{}\" d=\"{}\"/>", span.time, span.ticks.max(1));
    }
    out.push_str("</SegmentTimeline>\n</SegmentTemplate>\n");
    let bits = rendition.window().peak_bits().max(1);
    let _ = write!(
        out,
        "<Representation id=\"{}\" codecs=\"{}\" bandwidth=\"{bits}\"",
        Escaped(&rendition.names.base),
        Escaped(&rendition.codecs().join(","))
    );
    if let Some((width, height)) = track.picture_size() {
        let _ = write!(out, " width=\"{width}\" height=\"{height}\"");
    }
    out.push_str("/>\n</AdaptationSet>\n");
}

/// The number of the period: each discontinuity begins one.
fn period(lead: &Rendition) -> u64 {
    let playlist = lead.window().playlist();
    let shown = playlist.segments.iter().filter(|segment| segment.discontinuity).count() as u64;
    playlist.discontinuity_sequence.saturating_add(shown).saturating_add(1)
}

/// The segments behind the last discontinuity: those that the newest init segment describes.
fn current(rendition: &Rendition) -> Vec<&Span> {
    let playlist = rendition.window().playlist();
    let behind = playlist.segments.iter().rposition(|segment| segment.discontinuity).unwrap_or(0);
    let first = playlist.media_sequence.saturating_add(behind as u64);
    rendition.spans().iter().filter(|span| span.number >= first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_has_the_time_and_its_credentials_on_every_uri() {
        let text = "<MPD>\n<BaseURL>../ll-hls/a/</BaseURL>\n<SegmentTemplate timescale=\"1000\" initialization=\"i.mp4\" \
            media=\"a$Number%09d$.m4s\" startNumber=\"7\">\n<UTCTiming schemeIdUri=\"urn:mpeg:dash:utc:direct:2014\" \
            value=\"1970-01-01T00:00:01.000Z\"/>\n</MPD>\n";
        let now = text.replace("00:01.000", "00:02.500");
        for (echo, query) in [("", "?dash"), ("a=1&token=x", "?dash&amp;a=1&amp;token=x")] {
            let own = now.replace("i.mp4", &format!("i.mp4{query}"));
            let own = own.replace("d$.m4s", &format!("d$.m4s{query}"));
            let edit = for_viewer(echo, 2500);
            let mut made = String::new();
            for line in text.lines() {
                assert!(edit(line, &mut made));
                made.push('\n');
            }
            assert_eq!(made, own);
        }
    }
}
