//! The DASH manifest (ISO/IEC 23009-1) for segments of fragmented MP4: `SegmentTemplate` with a
//! `SegmentTimeline` (§5.3.9.6).
//!
//! A change of the tracks or timestamps of a stream begins a new period. The former period stays in the
//! manifest until its last segment has left the window.

use std::fmt::{self, Display, Formatter, Write as _};

use fmp4::{ID3_SCHEME, SPLICE_SCHEME};
use media::TrackKind;

use super::mp4::{Described, Span, Spanned};
use super::outline::{Accessibility, Outline};
use crate::playlist::Date;

/// Interval in seconds at which players reload the manifest.
const UPDATE_PERIOD_S: u64 = 2;
/// Query parameter that distinguishes requests for segments by viewers of a manifest from those by viewers of a
/// playlist ([`for_viewer`]).
pub const MARK: &str = "dash";
/// Beginning of the line that states the current time.
const UTC_TIMING: &str = "<UTCTiming schemeIdUri=\"urn:mpeg:dash:utc:direct:2014\"";
/// Offset of the numbers of adaptation sets of audio, and of subtitles. It is added to the index of the track or
/// language, so that sets of different kinds have different numbers.
const AUDIO_IDS: u64 = 100;
const TEXT_IDS: u64 = 200;
/// Scheme of channel configurations (ISO/IEC 23003-3).
const CHANNELS: &str = "urn:mpeg:dash:23003:3:audio_channel_configuration:2011";
/// Scheme of roles (§5.8.5.5): the first of several audio tracks is the main one.
const ROLES: &str = "urn:mpeg:dash:role:2011";
/// Scheme of keys that players receive in the clear (W3C Encrypted Media Extensions §9.1).
const CLEAR_KEY: &str = "urn:uuid:e2719d58-a985-b3c9-781a-b030af78d30e";
/// The beginning of a template of URIs.
pub(super) const TEMPLATE: &str = "<SegmentTemplate ";

/// Writes milliseconds as a duration of XML Schema.
pub(super) struct Period(pub(super) u64);

impl Display for Period {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "PT{}.{:03}S", self.0 / 1000, self.0 % 1000)
    }
}

/// Converts milliseconds of Unix time to a date.
fn moment(unix_ms: u64) -> Date {
    Date(i64::try_from(unix_ms).unwrap_or(i64::MAX))
}

/// Escapes text for an attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            // A dollar sign would begin an identifier of a template (§5.3.9.4.4).
            '$' => f.write_str("$$"),
            c if c.is_control() => Ok(()),
            c => f.write_char(c),
        })
    }
}

/// Calendar dates of the presentation, in milliseconds of Unix time.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The beginning of the presentation, which never changes (§5.3.1.2).
    pub zero_ms: u64,
    /// The present time.
    pub now_ms: u64,
}

/// A stretch of the presentation in which tracks and timestamps do not change: a period (§5.3.2). Its values do
/// not change while it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Number of the period, unique in the presentation.
    pub id: u64,
    /// Beginning of the period on the time axis of the segments, in milliseconds.
    pub begin_ms: u64,
    /// Difference between the time of the presentation and the time of the segments, in milliseconds.
    pub delay_ms: u64,
}

impl Stretch {
    const fn start_ms(&self) -> u64 {
        self.begin_ms.saturating_add(self.delay_ms)
    }
}

/// The type of a presentation (§5.3.1.2).
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The stream goes on; players can fetch segments of the last `window_ms`.
    Dynamic { window_ms: u64 },
    /// The stream has ended at `end_ms` of the presentation.
    Static { end_ms: u64 },
}

/// The values of the first element of a manifest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) kind: Kind,
    pub(super) base: &'a str,
    pub(super) latency_ms: u64,
    pub(super) longest_ms: u64,
}

impl Head<'_> {
    /// Writes the lines before the first period.
    pub(super) fn text(&self, Moments { zero_ms, now_ms }: Moments) -> String {
        let mut out = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" ",
        );
        out.push_str("profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" ");
        let _ = match self.kind {
            Kind::Static { end_ms } => {
                write!(out, "type=\"static\" mediaPresentationDuration=\"{}\"", Period(end_ms))
            }
            Kind::Dynamic { window_ms } => write!(
                out,
                "type=\"dynamic\" availabilityStartTime=\"{}\" publishTime=\"{}\" minimumUpdatePeriod=\"PT{UPDATE_PERIOD_S}S\" \
                 timeShiftBufferDepth=\"{}\" suggestedPresentationDelay=\"{}\"",
                moment(zero_ms),
                moment(now_ms),
                Period(window_ms),
                Period(self.latency_ms.max(self.longest_ms.saturating_mul(2)))
            ),
        };
        let _ = writeln!(
            out,
            " maxSegmentDuration=\"{}\" minBufferTime=\"PT2S\">\n<BaseURL>{}</BaseURL>",
            Period(self.longest_ms),
            Escaped(self.base),
        );
        out
    }
}

/// Writes the lines after the last period.
pub(super) fn tail(out: &mut String, ended: bool, now_ms: u64) {
    if !ended {
        utc_timing(out, now_ms);
        out.push('\n');
    }
    out.push_str("</MPD>\n");
}

/// The segments of a stream, to be described by one manifest.
#[derive(Debug, Clone, Copy)]
pub struct Presentation<'a> {
    /// The renditions; the first one leads.
    pub renditions: &'a [&'a Outline],
    /// The periods, newest last.
    pub stretches: &'a [Stretch],
    /// The folder of the segments relative to the manifest, with a trailing slash.
    pub base: &'a str,
    /// True if the stream has ended.
    pub ended: bool,
    /// Maximum number of segments to list; `None`: all segments of the playlists.
    pub listed: Option<usize>,
    /// Distance from the live edge at which players should play, in milliseconds; at least two segments.
    pub latency_ms: u64,
}

impl Presentation<'_> {
    /// Writes the manifest. `None` until there is something to play.
    #[must_use]
    pub fn manifest(&self, Moments { zero_ms, now_ms }: Moments) -> Option<String> {
        // The newest period of a presentation that is being played may be as short as a segment.
        let goes_on = self.stretches.len() > 1;
        let lead = self.renditions.first().filter(|lead| lead.is_enough || goes_on)?;
        let (last, stretch) = (lead.spanned().last()?, self.stretches.last()?);
        let listed = lead.lengths.iter().rev().take(self.listed());
        let window_ms: u64 = listed.map(|length| u64::try_from(length.as_millis()).unwrap_or(0)).sum();
        let end = last.end_ms().saturating_add(stretch.delay_ms);
        let kind = if self.ended { Kind::Static { end_ms: end } } else { Kind::Dynamic { window_ms } };
        let head = Head { kind, base: self.base, latency_ms: self.latency_ms, longest_ms: longest_ms(lead) };
        let mut out = head.text(Moments { zero_ms, now_ms });
        for (at, stretch) in self.stretches.iter().enumerate() {
            let next_ms = self.stretches.get(at.saturating_add(1)).map(|next| next.begin_ms);
            self.period(&mut out, stretch, next_ms);
        }
        tail(&mut out, self.ended, now_ms);
        Some(out)
    }

    /// Writes a period, if it has any segments.
    fn period(&self, out: &mut String, stretch: &Stretch, next_ms: Option<u64>) {
        let of_stretch = |one: &Spanned<'_>| {
            one.middle_ms() >= stretch.begin_ms && next_ms.is_none_or(|next| one.middle_ms() < next)
        };
        let mut sets: Vec<Vec<Shown<'_>>> = Vec::new();
        for rendition in self.renditions {
            let beyond = rendition.spanned().count().saturating_sub(self.listed());
            let all: Vec<Spanned<'_>> = rendition.spanned().skip(beyond).filter(of_stretch).collect();
            // Segments with another init segment are left over from the previous period, or belong to the next.
            let Some(described) = all.get(all.len() / 2).map(|one| one.described) else { continue };
            let rows: Vec<Row> =
                all.iter().filter(|one| one.described == described).map(|one| Row::of(one.span)).collect();
            let first = rendition.number(rows.first().map_or(0, |row| row.number));
            let accessibility = &*rendition.accessibility;
            let bits = rendition.bits;
            add(&mut sets, Shown { rendition, described, accessibility, bits, first, rows, is_brief: false });
        }
        period(out, stretch, &sets);
    }

    fn listed(&self) -> usize {
        self.listed.unwrap_or(usize::MAX)
    }
}

/// Adds a rendition to the adaptation set of its alternatives.
pub(super) fn add<'a>(sets: &mut Vec<Vec<Shown<'a>>>, shown: Shown<'a>) {
    match sets.iter_mut().find(|set| set.iter().all(|one| one.is_alternative_of(&shown))) {
        Some(set) => set.push(shown),
        None => sets.push(vec![shown]),
    }
}

/// Writes a period with these adaptation sets, if there are any.
pub(super) fn period(out: &mut String, stretch: &Stretch, sets: &[Vec<Shown<'_>>]) {
    if sets.is_empty() {
        return;
    }
    let _ = writeln!(out, "<Period id=\"{}\" start=\"{}\">", stretch.id, Period(stretch.start_ms()));
    let is_sound = |set: &&Vec<Shown<'_>>| set.first().is_some_and(Shown::is_sound);
    let has_several = sets.iter().filter(is_sound).count() > 1;
    let first = sets.iter().position(|set| is_sound(&set));
    let mut ids = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        let id = set_id(set, &ids);
        ids.push(id);
        let role = match set.first().map(|first| first.described.kind) {
            Some(TrackKind::Data) => Some("subtitle"),
            Some(TrackKind::Audio) if has_several && Some(at) == first => Some("main"),
            Some(TrackKind::Audio) if has_several => Some("alternate"),
            _ => None,
        };
        adaptation_set(out, stretch, set, (id, role));
    }
    out.push_str("</Period>\n");
}

/// Writes the line with the current time (§5.8.4.11), from which players compute their distance from the live
/// edge.
fn utc_timing(out: &mut String, now_ms: u64) {
    let _ = write!(out, "{UTC_TIMING} value=\"{}\"/>", moment(now_ms));
}

/// Returns a function that edits the lines of a manifest for one viewer. It inserts the time of the request, and adds
/// to every URI the viewer's credentials and the parameter [`MARK`].
pub fn for_viewer(echo: &str, now_ms: u64) -> impl Fn(&str, &mut String) -> bool + Send + 'static {
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

/// Adds a query to the URIs of a template. The URIs have no query yet.
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

fn longest_ms(rendition: &Outline) -> u64 {
    u64::try_from(rendition.target.as_millis()).unwrap_or(u64::MAX)
}

/// Segments of equal duration that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// Number and decode time of the first segment.
    pub(super) number: u64,
    pub(super) time: u64,
    /// Duration of each segment, in ticks.
    pub(super) ticks: u64,
    pub(super) count: u64,
}

impl Row {
    const fn of(span: Span) -> Self {
        Self { number: span.number, time: span.time, ticks: span.ticks, count: 1 }
    }

    /// End of the last segment, in ticks.
    pub(super) const fn end(&self) -> u64 {
        self.time.saturating_add(self.ticks.saturating_mul(self.count))
    }
}

/// A rendition in a period.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) rendition: &'a Outline,
    pub(super) described: &'a Described,
    pub(super) accessibility: &'a [Accessibility],
    /// Highest bit rate, in bits per second.
    pub(super) bits: u64,
    /// The number in the name of the first segment.
    pub(super) first: u64,
    pub(super) rows: Vec<Row>,
    /// True to write the time of a segment only if it does not begin where the one before it ends.
    pub(super) is_brief: bool,
}

impl Shown<'_> {
    /// True if players may switch between both renditions: both are video in the same codec (§5.3.3.1).
    fn is_alternative_of(&self, other: &Self) -> bool {
        let is_video = |one: &Self| one.described.kind == TrackKind::Video;
        is_video(self) && is_video(other) && self.codec() == other.codec()
    }

    fn is_sound(&self) -> bool {
        self.described.kind == TrackKind::Audio
    }

    /// The codec without its profile.
    fn codec(&self) -> &str {
        let full = self.described.codecs.first().map_or("", String::as_str);
        full.split_once('.').map_or(full, |(codec, _)| codec)
    }

    /// Start times of the rendition's segments and end of the last one, in milliseconds.
    fn cuts_ms(&self) -> Vec<u64> {
        let ticks = u64::from(self.described.timescale.ticks()).max(1);
        let end = self.rows.last().map(Row::end);
        let times = self
            .rows
            .iter()
            .flat_map(|row| (0..row.count).map(|at| row.time.saturating_add(row.ticks.saturating_mul(at))));
        times.chain(end).map(|time| time.saturating_mul(1000) / ticks).collect()
    }

    /// True if no segment of either rendition overlaps two of the other, within the time for which both have
    /// segments (§5.3.3.2).
    fn is_aligned_with(&self, other: &Self) -> bool {
        let (own, others) = (self.cuts_ms(), other.cuts_ms());
        let within = |cut: u64, of: &[u64]| {
            of.first().is_some_and(|first| *first < cut) && of.last().is_some_and(|last| cut < *last)
        };
        let is_cut = |cut: u64, of: &[u64]| {
            let at = of.partition_point(|at| at.saturating_add(1) < cut);
            of.get(at).is_some_and(|at| at.abs_diff(cut) <= 1)
        };
        own.iter().filter(|cut| within(**cut, &others)).all(|cut| is_cut(*cut, &others))
            && others.iter().filter(|cut| within(**cut, &own)).all(|cut| is_cut(*cut, &own))
    }
}

/// The number of an adaptation set. It is the same in all periods, does not depend on other tracks, and is not one of
/// `taken`.
fn set_id(set: &[Shown<'_>], taken: &[u64]) -> u64 {
    let of_kind = match set.first().map(|first| first.described.kind) {
        Some(TrackKind::Video) | None => 0,
        Some(TrackKind::Audio) => AUDIO_IDS,
        Some(TrackKind::Data) => TEXT_IDS,
    };
    let track = set.first().and_then(|first| first.rendition.track).map_or(0, u64::from);
    let first = track.saturating_add(of_kind);
    (first..).find(|id| !taken.contains(id)).unwrap_or(first)
}

/// Writes an adaptation set: renditions between which players may switch.
fn adaptation_set(
    out: &mut String,
    stretch: &Stretch,
    set: &[Shown<'_>],
    (id, role): (u64, Option<&'static str>),
) {
    let Some((first, others)) = set.split_first() else { return };
    let (kind, mime_type) = match first.described.kind {
        TrackKind::Video => ("video", "video/mp4"),
        TrackKind::Audio => ("audio", "audio/mp4"),
        TrackKind::Data => ("text", "application/mp4"),
    };
    let is_aligned = others.iter().all(|one| one.is_aligned_with(first));
    let is_independent = |one: &Shown<'_>| one.rendition.is_independent;
    let sap = if set.iter().all(is_independent) { " startWithSAP=\"1\"" } else { "" };
    let _ = write!(out, "<AdaptationSet id=\"{id}\" contentType=\"{kind}\"");
    if let Some(language) = &first.described.language {
        let _ = write!(out, " lang=\"{}\"", Escaped(media::language::tag(language)));
    }
    let _ = writeln!(out, " mimeType=\"{mime_type}\" segmentAlignment=\"{is_aligned}\"{sap}>");
    // Renditions of different streams have different keys.
    let is_shared = others.iter().all(|one| one.described.key_id == first.described.key_id);
    first.described.key_id.filter(|_| is_shared).into_iter().for_each(|key_id| protection(out, key_id));
    if let Some((_, channels)) = first.described.sound {
        // ISO/IEC 23003-3 table 68: configuration 7 has eight channels.
        let configuration = if channels == 8 { 7 } else { channels };
        let _ = writeln!(
            out,
            "<AudioChannelConfiguration schemeIdUri=\"{CHANNELS}\" value=\"{configuration}\"/>"
        );
    }
    if set.iter().any(|one| one.rendition.has_metadata) {
        let _ = writeln!(out, "<InbandEventStream schemeIdUri=\"{ID3_SCHEME}\"/>");
    }
    if set.iter().any(|one| one.rendition.has_cues) {
        let _ = writeln!(out, "<InbandEventStream schemeIdUri=\"{SPLICE_SCHEME}\"/>");
    }
    for Accessibility { scheme, value } in first.accessibility {
        let _ = writeln!(out, "<Accessibility schemeIdUri=\"{scheme}\" value=\"{}\"/>", Escaped(value));
    }
    role.into_iter().for_each(|role| {
        let _ = writeln!(out, "<Role schemeIdUri=\"{ROLES}\" value=\"{role}\"/>");
    });
    if others.is_empty() {
        template(out, stretch, first);
        representation(out, first);
        out.push_str("/>\n");
    } else {
        for one in set {
            representation(out, one);
            out.push_str(">\n");
            one.described
                .key_id
                .filter(|_| !is_shared)
                .into_iter()
                .for_each(|key_id| protection(out, key_id));
            template(out, stretch, one);
            out.push_str("</Representation>\n");
        }
    }
    out.push_str("</AdaptationSet>\n");
}

/// Writes how samples are encrypted, and that ClearKey provides the key (ISO/IEC 23009-1 §5.8.4.1, ISO/IEC
/// 23001-7 §11.2).
fn protection(out: &mut String, key_id: [u8; 16]) {
    let id: String = key_id.iter().map(|byte| format!("{byte:02x}")).collect();
    // A UUID has hyphens after its 8th, 12th, 16th and 20th digit.
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| id.get(part).unwrap_or_default());
    let _ = writeln!(
        out,
        "<ContentProtection schemeIdUri=\"urn:mpeg:dash:mp4protection:2011\" value=\"cbcs\" xmlns:cenc=\"urn:mpeg:cenc:2013\" cenc:default_KID=\"{}\"/>",
        parts.join("-")
    );
    let _ = writeln!(out, "<ContentProtection schemeIdUri=\"{CLEAR_KEY}\" value=\"ClearKey1.0\"/>");
}

/// Writes the names and times of a rendition's segments.
fn template(out: &mut String, stretch: &Stretch, shown: &Shown<'_>) {
    let Shown { rendition, described, first, rows, is_brief, .. } = shown;
    let ticks = u64::from(described.timescale.ticks());
    let _ = writeln!(
        out,
        "{TEMPLATE}timescale=\"{ticks}\" presentationTimeOffset=\"{}\" initialization=\"{}\" media=\"{}\" startNumber=\"{first}\">\n<SegmentTimeline>",
        stretch.begin_ms.saturating_mul(ticks) / 1000,
        Escaped(&described.uri),
        rendition.template,
    );
    let mut end = None;
    for row in rows {
        out.push_str("<S");
        if !is_brief || end != Some(row.time) {
            let _ = write!(out, " t=\"{}\"", row.time);
        }
        let _ = write!(out, " d=\"{}\"", row.ticks.max(1));
        if row.count > 1 {
            let _ = write!(out, " r=\"{}\"", row.count.saturating_sub(1));
        }
        out.push_str("/>\n");
        end = Some(row.end());
    }
    out.push_str("</SegmentTimeline>\n</SegmentTemplate>\n");
}

/// Writes the description of a rendition; the caller ends the element.
fn representation(out: &mut String, Shown { rendition, described, bits, .. }: &Shown<'_>) {
    let _ = write!(
        out,
        "<Representation id=\"{}\" codecs=\"{}\" bandwidth=\"{bits}\"",
        Escaped(&rendition.id),
        Escaped(&described.codecs.join(","))
    );
    if let Some((width, height)) = described.size {
        let _ = write!(out, " width=\"{width}\" height=\"{height}\"");
    }
    if let Some(milli) = described.frame_rate_milli {
        let _ = match milli % 1000 {
            0 => write!(out, " frameRate=\"{}\"", milli / 1000),
            _ => write!(out, " frameRate=\"{milli}/1000\""),
        };
    }
    if let Some((rate, _)) = described.sound {
        let _ = write!(out, " audioSamplingRate=\"{rate}\"");
    }
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
