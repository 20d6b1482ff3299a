//! Writes playlists.

use std::fmt::{self, Display, Formatter, Write as _};
use std::sync::Arc;

use super::attributes::Writer;
use super::date::Date;
use super::is_control;
use super::media::{ByteRange, Key, Kind, LowLatency, Map, MediaPlaylist, Part, Report, Segment};
use super::multivariant::{ClosedCaptions, MultivariantPlaylist, Rendition, Variant};
use super::number::Seconds;

impl Display for MediaPlaylist {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(f, self.version, self.independent_segments)?;
        let target = self.target_duration;
        writeln!(
            f,
            "#EXT-X-TARGETDURATION:{}",
            target.as_secs().saturating_add(u64::from(target.subsec_nanos() > 0))
        )?;
        writeln!(f, "#EXT-X-MEDIA-SEQUENCE:{}", self.media_sequence)?;
        if self.discontinuity_sequence != 0 {
            writeln!(f, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", self.discontinuity_sequence)?;
        }
        match self.kind {
            Some(Kind::Event) => f.write_str("#EXT-X-PLAYLIST-TYPE:EVENT\n")?,
            Some(Kind::Vod) => f.write_str("#EXT-X-PLAYLIST-TYPE:VOD\n")?,
            None => {}
        }
        if let Some(low) = &self.low_latency {
            control(f, low)?;
        }
        if self.skipped > 0 {
            writeln!(f, "#EXT-X-SKIP:SKIPPED-SEGMENTS={}", self.skipped)?;
        }
        let mut state = State::default();
        self.segments.iter().try_for_each(|segment| state.segment(f, segment))?;
        if let Some(low) = &self.low_latency {
            state.open(f, low)?;
        }
        if self.ended { f.write_str("#EXT-X-ENDLIST\n") } else { Ok(()) }
    }
}

/// The lines of segments, without the head and the end of a playlist. Lets the owner of a long, growing
/// playlist append the lines of new segments instead of writing the whole playlist again.
#[derive(Debug, Clone, Copy)]
pub struct SegmentLines<'a> {
    /// The segment that the playlist lists before `segments`; its key and initialization section still
    /// apply.
    pub behind: Option<&'a Segment>,
    /// The segments.
    pub segments: &'a [Segment],
}

impl Display for SegmentLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut state = State {
            key: self.behind.and_then(|behind| behind.key.clone()),
            map: self.behind.and_then(|behind| behind.map.clone()),
        };
        self.segments.iter().try_for_each(|segment| state.segment(f, segment))
    }
}

/// `EXT-X-SERVER-CONTROL` and `EXT-X-PART-INF` (RFC 8216bis §4.4.3.7, §4.4.3.8).
fn control(f: &mut Formatter<'_>, low: &LowLatency) -> fmt::Result {
    let mut line = Writer::begin(f, "#EXT-X-SERVER-CONTROL:")?;
    line.yes_if("CAN-BLOCK-RELOAD", low.can_block_reload)?;
    line.plain_if("CAN-SKIP-UNTIL", low.skip_until.map(Seconds))?;
    line.plain("PART-HOLD-BACK", Seconds(low.part_hold_back))?;
    line.end()?;
    writeln!(f, "#EXT-X-PART-INF:PART-TARGET={}", Seconds(low.part_target))
}

fn write_part(f: &mut Formatter<'_>, part: &Part) -> fmt::Result {
    let mut line = Writer::begin(f, "#EXT-X-PART:")?;
    line.plain("DURATION", Seconds(part.duration))?;
    line.quoted("URI", &part.uri)?;
    line.yes_if("INDEPENDENT", part.independent)?;
    line.end()
}

fn write_report(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    let mut line = Writer::begin(f, "#EXT-X-RENDITION-REPORT:")?;
    line.quoted("URI", &report.uri)?;
    line.plain("LAST-MSN", report.last_segment)?;
    line.plain_if("LAST-PART", report.last_part)?;
    line.end()
}

fn head(f: &mut Formatter<'_>, version: u32, independent_segments: bool) -> fmt::Result {
    f.write_str("#EXTM3U\n")?;
    if version != 1 {
        writeln!(f, "#EXT-X-VERSION:{version}")?;
    }
    if independent_segments { f.write_str("#EXT-X-INDEPENDENT-SEGMENTS\n") } else { Ok(()) }
}

/// Attributes that apply to all following segments until a later line changes them.
#[derive(Default)]
struct State {
    key: Option<Arc<Key>>,
    map: Option<Arc<Map>>,
}

impl State {
    fn segment(&mut self, f: &mut Formatter<'_>, segment: &Segment) -> fmt::Result {
        self.tags(f, segment)?;
        write!(f, "#EXTINF:{},", Seconds(segment.duration))?;
        line(f, &segment.title)?;
        if let Some(range) = segment.byte_range {
            writeln!(f, "#EXT-X-BYTERANGE:{range}")?;
        }
        line(f, &segment.uri)
    }

    /// Writes the segment that is growing, and the lines after it.
    fn open(&mut self, f: &mut Formatter<'_>, low: &LowLatency) -> fmt::Result {
        if low.open.parts.is_empty() {
            low.open.date_ranges.iter().try_for_each(|range| range.write(f))?;
        } else {
            self.tags(f, &low.open)?;
        }
        if let Some(hint) = &low.hint {
            let mut line = Writer::begin(f, "#EXT-X-PRELOAD-HINT:")?;
            line.plain("TYPE", "PART")?;
            line.quoted("URI", hint)?;
            line.end()?;
        }
        low.reports.iter().try_for_each(|report| write_report(f, report))
    }

    /// Writes the tags that precede the duration.
    fn tags(&mut self, f: &mut Formatter<'_>, segment: &Segment) -> fmt::Result {
        // While the segment has no parts, its date ranges come before its other tags.
        let ranges =
            |parts: usize| segment.date_ranges.iter().filter(move |range| range.parts_before == parts);
        ranges(0).try_for_each(|range| range.write(f))?;
        if segment.discontinuity {
            f.write_str("#EXT-X-DISCONTINUITY\n")?;
        }
        if let Some(map) = segment.map.as_ref().filter(|map| self.map.as_ref() != Some(map)) {
            self.key(f, map.key.as_ref())?;
            let mut line = Writer::begin(f, "#EXT-X-MAP:")?;
            line.quoted("URI", &map.uri)?;
            if let Some(range) = map.byte_range {
                line.quoted("BYTERANGE", &range.to_string())?;
            }
            line.end()?;
            self.map = Some(Arc::clone(map));
        }
        self.key(f, segment.key.as_ref())?;
        if let Some(ms) = segment.program_date_time {
            writeln!(f, "#EXT-X-PROGRAM-DATE-TIME:{}", Date(ms))?;
        }
        if segment.gap {
            f.write_str("#EXT-X-GAP\n")?;
        }
        for (part, number) in segment.parts.iter().zip(1..) {
            write_part(f, part)?;
            ranges(number).try_for_each(|range| range.write(f))?;
        }
        // Date ranges that belong after parts which the playlist no longer lists, because the segment is too old.
        let mut behind = segment.date_ranges.iter().filter(|range| range.parts_before > segment.parts.len());
        behind.try_for_each(|range| range.write(f))
    }

    fn key(&mut self, f: &mut Formatter<'_>, key: Option<&Arc<Key>>) -> fmt::Result {
        if self.key.as_ref() == key {
            return Ok(());
        }
        // Keys of different formats apply side by side (§4.3.2.4) until `METHOD=NONE` ends them.
        let ends = |before: &Arc<Key>| key.is_none_or(|key| key.format != before.format);
        if self.key.as_ref().is_some_and(ends) {
            f.write_str("#EXT-X-KEY:METHOD=NONE\n")?;
        }
        self.key = key.cloned();
        let Some(key) = key else { return Ok(()) };
        let mut line = Writer::begin(f, "#EXT-X-KEY:")?;
        line.plain("METHOD", key.method.name())?;
        line.quoted("URI", &key.uri)?;
        line.plain_if("IV", key.iv.map(|iv| format!("0x{:032x}", u128::from_be_bytes(iv))))?;
        line.quoted_if("KEYFORMAT", key.format.as_deref())?;
        line.end()
    }
}

impl Display for ByteRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.length, self.offset)
    }
}

/// Writes the text without its control characters, and a line break.
fn line(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    text.split(is_control).try_for_each(|part| f.write_str(part))?;
    f.write_char('\n')
}

impl Display for MultivariantPlaylist {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        head(f, self.version, self.independent_segments)?;
        self.renditions.iter().try_for_each(|rendition| write_rendition(f, rendition))?;
        self.variants.iter().try_for_each(|variant| write_variant(f, variant))
    }
}

fn write_rendition(f: &mut Formatter<'_>, rendition: &Rendition) -> fmt::Result {
    let mut line = Writer::begin(f, "#EXT-X-MEDIA:")?;
    line.plain("TYPE", rendition.kind.name())?;
    line.quoted("GROUP-ID", &rendition.group_id)?;
    line.quoted("NAME", &rendition.name)?;
    line.quoted_if("LANGUAGE", rendition.language.as_deref())?;
    line.yes_if("DEFAULT", rendition.default)?;
    line.yes_if("AUTOSELECT", rendition.autoselect)?;
    line.quoted_if("INSTREAM-ID", rendition.instream_id.as_deref())?;
    line.quoted_if("CHANNELS", rendition.channels.as_deref())?;
    line.quoted_if("URI", rendition.uri.as_deref())?;
    line.end()
}

fn write_variant(f: &mut Formatter<'_>, variant: &Variant) -> fmt::Result {
    let mut attributes = Writer::begin(f, "#EXT-X-STREAM-INF:")?;
    attributes.plain("BANDWIDTH", variant.bandwidth)?;
    attributes.plain_if("AVERAGE-BANDWIDTH", variant.average_bandwidth)?;
    attributes.quoted_if("CODECS", variant.codecs.as_deref())?;
    attributes
        .plain_if("RESOLUTION", variant.resolution.map(|size| format!("{}x{}", size.width, size.height)))?;
    attributes.plain_if(
        "FRAME-RATE",
        variant.frame_rate_milli.map(|milli| format!("{}.{:03}", milli / 1000, milli % 1000)),
    )?;
    attributes.quoted_if("AUDIO", variant.audio.as_deref())?;
    attributes.quoted_if("VIDEO", variant.video.as_deref())?;
    attributes.quoted_if("SUBTITLES", variant.subtitles.as_deref())?;
    match &variant.closed_captions {
        Some(ClosedCaptions::None) => attributes.plain("CLOSED-CAPTIONS", "NONE")?,
        Some(ClosedCaptions::Group(group)) => attributes.quoted("CLOSED-CAPTIONS", group)?,
        None => {}
    }
    attributes.end()?;
    line(f, &variant.uri)
}
