//! A part of a manifest that [`super::Past`] has written.
//!
//! Most lines of the result are slices of the whole text, which all viewers share: the memory for a viewer does not
//! depend on the length of the window.

use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;

use super::super::manifest::{Period, TEMPLATE};

/// Beginnings of lines.
const PERIOD: &str = "<Period ";
const SET: &str = "<AdaptationSet ";
const REPRESENTATION: &str = "<Representation ";
const SEGMENTS: &str = "<S ";
/// Names of attributes, with the text before their values.
const WINDOW: &str = " timeShiftBufferDepth=\"";
const OFFSET: &str = " presentationTimeOffset=\"";
const START_NUMBER: &str = " startNumber=\"";

/// Limits of a part of a presentation, in milliseconds of the presentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The first segment is the one that is shown at this time, or the newest one if there is none yet.
    pub start_ms: Option<u64>,
    /// The last segment begins before this time. The part is then complete, as a recording is: its type is `static`,
    /// it begins at zero, and its periods follow one another without gaps.
    pub end_ms: Option<u64>,
}

/// Lines of the result.
#[derive(Debug)]
enum Part {
    /// Lines of the whole text.
    Lines(Range<usize>),
    Text(String),
    /// The first line of a template.
    Template {
        line: Range<usize>,
        first_number: u64,
    },
}

/// A period with the segments that are selected.
#[derive(Debug)]
struct Kept {
    /// The first line.
    line: Range<usize>,
    start_ms: i128,
    /// Beginning of the first segment and end of the last one, in milliseconds of the presentation.
    begin_ms: i128,
    end_ms: i128,
    /// End of the rendition that ends first.
    common_ms: i128,
    parts: Vec<Part>,
}

/// Adaptation sets, or representations of a set. The numbers are the beginning of the first segment, the end of the last
/// one, and the end of the rendition that ends first.
#[derive(Debug, Default)]
struct Block {
    parts: Vec<Part>,
    span: Option<(i128, i128, i128)>,
}

impl Block {
    /// Adds another block if it has segments.
    fn add(&mut self, other: Self) {
        let Some((begin, end, common)) = other.span else { return };
        let (first, last, least) = self.span.unwrap_or((begin, end, common));
        self.span = Some((first.min(begin), last.max(end), least.min(common)));
        self.parts.extend(other.parts);
    }

    fn keep(&mut self, lines: Range<usize>) {
        match self.parts.last_mut() {
            Some(Part::Lines(last)) if last.end == lines.start => last.end = lines.end,
            Some(_) | None => self.parts.push(Part::Lines(lines)),
        }
    }
}

/// The lines of a text, with their positions.
struct Lines<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Iterator for Lines<'t> {
    type Item = (Range<usize>, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.text.get(self.at..)?.split_inclusive('\n').next()?;
        let from = self.at;
        self.at = from.saturating_add(line.len());
        Some((from..self.at, line.trim_end()))
    }
}

/// Returns the lines of a part of a manifest. `None` if the text is not such a manifest.
#[must_use]
pub fn select(manifest: &Bytes, excerpt: Excerpt) -> Option<Vec<Bytes>> {
    let text = std::str::from_utf8(manifest).ok()?;
    let (head, all) = periods(text, i128::MIN, i128::MAX)?;
    let (first_ms, _) = span(&all)?;
    let last_ms = all.last()?.common_ms;
    let start_ms = excerpt.start_ms.map_or(i128::MIN, i128::from);
    let (start_ms, until_ms) = match excerpt.end_ms {
        Some(end_ms) => (start_ms, i128::from(end_ms)),
        None => (start_ms.min(last_ms.saturating_sub(1)), i128::MAX),
    };
    let (_, kept) = periods(text, start_ms, until_ms)?;
    let mut out = Vec::new();
    if excerpt.end_ms.is_some() {
        recording(manifest, text, head, &kept, &mut out)?;
        return Some(out);
    }
    let (begin_ms, _) = span(&kept)?;
    out.push(Bytes::from(shorter(text.get(head)?, begin_ms.saturating_sub(first_ms))));
    for period in &kept {
        out.push(manifest.slice(period.line.clone()));
        write(manifest, text, &period.parts, 0, &mut out)?;
        out.push(Bytes::from_static(b"</Period>\n"));
    }
    let behind = text.rfind("</Period>\n")?.checked_add("</Period>\n".len())?;
    out.push(manifest.slice(behind..));
    Some(out)
}

/// Writes periods as a recording.
fn recording(
    manifest: &Bytes,
    text: &str,
    head: Range<usize>,
    kept: &[Kept],
    out: &mut Vec<Bytes>,
) -> Option<()> {
    let mut passed_ms = 0_i128;
    let mut periods = Vec::new();
    for Kept { line, start_ms, begin_ms, end_ms, parts, .. } in kept {
        let (id, _) = text.get(line.clone())?.split_once(" start=\"")?;
        let start = Period(u64::try_from(passed_ms).ok()?);
        periods.push(Bytes::from(format!("{id} start=\"{start}\">\n")));
        write(manifest, text, parts, begin_ms.saturating_sub(*start_ms), &mut periods)?;
        periods.push(Bytes::from_static(b"</Period>\n"));
        passed_ms = passed_ms.saturating_add(end_ms.saturating_sub(*begin_ms));
    }
    if kept.is_empty() {
        // A manifest has at least one period (ISO/IEC 23009-1 §5.3.1.3).
        periods.push(Bytes::from_static(b"<Period id=\"0\" start=\"PT0.000S\">\n</Period>\n"));
    }
    let (before, rest) = text.get(head)?.split_once(" type=\"")?;
    let (_, behind) = rest.split_once(" maxSegmentDuration=\"")?;
    let length = Period(u64::try_from(passed_ms).ok()?);
    out.push(Bytes::from(format!(
        "{before} type=\"static\" mediaPresentationDuration=\"{length}\" maxSegmentDuration=\"{behind}"
    )));
    out.append(&mut periods);
    out.push(Bytes::from_static(b"</MPD>\n"));
    Some(())
}

/// Returns the first lines of a manifest that begins later by `ms`.
fn shorter(head: &str, ms: i128) -> String {
    let parts = head.split_once(WINDOW).and_then(|(before, rest)| Some((before, rest.split_once('"')?)));
    let Some((before, (window, behind))) = parts else { return head.to_owned() };
    let window_ms = milliseconds(window).unwrap_or(0).saturating_sub(ms);
    format!("{before}{WINDOW}{}\"{behind}", Period(u64::try_from(window_ms).unwrap_or(0)))
}

/// Writes the lines of a period that begins `later_ms` later than in the whole text.
fn write(manifest: &Bytes, text: &str, parts: &[Part], later_ms: i128, out: &mut Vec<Bytes>) -> Option<()> {
    for part in parts {
        out.push(match part {
            Part::Lines(lines) => manifest.slice(lines.clone()),
            Part::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Part::Template { line, first_number } => {
                let line = text.get(line.clone())?;
                let later = later_ms.saturating_mul(number(line, " timescale=\"")?) / 1000;
                let offset = number(line, OFFSET)?.saturating_add(later).max(0);
                let line = with_value(line, OFFSET, &offset.to_string())?;
                Bytes::from(with_value(&line, START_NUMBER, &first_number.to_string())?)
            }
        });
    }
    Some(())
}

fn span(periods: &[Kept]) -> Option<(i128, i128)> {
    let begin = periods.iter().map(|period| period.begin_ms).min()?;
    Some((begin, periods.iter().map(|period| period.end_ms).max()?))
}

/// Reads the periods of a text with the segments between two times of the presentation. Also returns the place of the
/// lines before the first period.
fn periods(text: &str, start_ms: i128, until_ms: i128) -> Option<(Range<usize>, Vec<Kept>)> {
    let mut lines = Lines { text, at: 0 };
    let (mut head, mut kept) = (None, Vec::new());
    while let Some((line, first)) = lines.next() {
        if !first.starts_with(PERIOD) {
            continue;
        }
        head.get_or_insert(0..line.start);
        let period_ms = milliseconds(value(first, " start=\"")?)?;
        let limits = [start_ms, until_ms].map(|at| match at {
            i128::MIN | i128::MAX => at,
            at => at.saturating_sub(period_ms),
        });
        let block = sets(&mut lines, limits)?;
        if let Some((begin, end, common)) = block.span {
            let [begin_ms, end_ms, common_ms] = [begin, end, common].map(|at| period_ms.saturating_add(at));
            kept.push(Kept { line, start_ms: period_ms, begin_ms, end_ms, common_ms, parts: block.parts });
        }
    }
    Some((head?, kept))
}

/// Reads the adaptation sets of a period. Their times count from the beginning of the period.
fn sets(lines: &mut Lines<'_>, limits: [i128; 2]) -> Option<Block> {
    let mut all = Block::default();
    let (mut set, mut one): (Block, Option<Block>) = (Block::default(), None);
    loop {
        let (at, line) = lines.next()?;
        if line == "</Period>" {
            return Some(all);
        }
        if line.starts_with(SET) {
            set = Block::default();
        } else if line.starts_with(REPRESENTATION) && !line.ends_with("/>") {
            one = Some(Block::default());
        }
        let block = one.as_mut().unwrap_or(&mut set);
        if line.starts_with(TEMPLATE.trim_end()) {
            let rows = template(lines, (at, line), limits)?;
            block.add(rows);
        } else {
            block.keep(at);
        }
        if line == "</Representation>" {
            one.take().into_iter().for_each(|one| set.add(one));
        } else if line == "</AdaptationSet>" {
            all.add(std::mem::take(&mut set));
        }
    }
}

/// Segments of equal duration that follow one another.
#[derive(Debug, Clone, Copy)]
struct Row {
    time: i128,
    ticks: i128,
    count: i128,
}

impl Row {
    /// Returns the row without its first `from` segments and those from `until` on.
    const fn only(self, from: i128, until: i128) -> Self {
        let time = self.time.saturating_add(self.ticks.saturating_mul(from));
        Self { time, ticks: self.ticks, count: until.saturating_sub(from) }
    }

    const fn end(self) -> i128 {
        self.time.saturating_add(self.ticks.saturating_mul(self.count))
    }

    fn line(self) -> String {
        let Self { time, ticks, count } = self;
        let mut line = format!("<S t=\"{time}\" d=\"{ticks}\"");
        if count > 1 {
            let _ = write!(line, " r=\"{}\"", count.saturating_sub(1));
        }
        line.push_str("/>\n");
        line
    }
}

/// Reads a template, whose first line has been read.
fn template(lines: &mut Lines<'_>, (at, line): (Range<usize>, &str), limits: [i128; 2]) -> Option<Block> {
    let scale = number(line, " timescale=\"")?.max(1);
    let offset = number(line, OFFSET)?;
    let [start, until] = limits.map(|ms| match ms {
        i128::MIN | i128::MAX => ms,
        ms => offset.saturating_add(ms.saturating_mul(scale) / 1000),
    });
    let mut next = number(line, START_NUMBER)?;
    let (mut rows, mut end, mut first) = (Block::default(), 0_i128, None);
    let mut kept_span: Option<(i128, i128)> = None;
    let (open, _) = lines.next()?;
    loop {
        let (at, line) = lines.next()?;
        if !line.starts_with(SEGMENTS) {
            rows.keep(at);
            break;
        }
        let (time, ticks) = (number(line, " t=\"").unwrap_or(end), number(line, " d=\"")?.max(1));
        let row = Row { time, ticks, count: number(line, " r=\"").unwrap_or(0).saturating_add(1) };
        end = row.end();
        let from = start.saturating_sub(time).checked_div(ticks)?.clamp(0, row.count);
        let before = until.saturating_sub(time).saturating_add(ticks).saturating_sub(1);
        let kept = row.only(from, before.checked_div(ticks)?.clamp(from, row.count));
        if kept.count > 0 {
            first.get_or_insert_with(|| next.saturating_add(from));
            let is_first = kept_span.is_none();
            let begin = kept_span.map_or(kept.time, |(begin, _)| begin);
            kept_span = Some((begin, kept.end()));
            match kept.count == row.count && !is_first {
                true => rows.keep(at),
                false => rows.parts.push(Part::Text(kept.line())),
            }
        }
        next = next.saturating_add(row.count);
    }
    let (close, _) = lines.next()?;
    rows.keep(close);
    let Some(first_number) = first else { return Some(Block::default()) };
    let in_ms = |ticks: i128| ticks.saturating_sub(offset).saturating_mul(1000);
    let span = kept_span.map(|(begin, end)| {
        let end = in_ms(end).saturating_add(scale).saturating_sub(1).div_euclid(scale);
        (in_ms(begin).div_euclid(scale), end, end)
    });
    let first_number = u64::try_from(first_number).ok()?;
    let mut parts = vec![Part::Template { line: at, first_number }, Part::Lines(open)];
    parts.append(&mut rows.parts);
    Some(Block { parts, span })
}

/// Returns the value of an attribute.
fn value<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split_once(name)?.1.split('"').next()
}

fn number(line: &str, name: &str) -> Option<i128> {
    value(line, name)?.parse().ok()
}

/// Returns the line with another value of an attribute.
fn with_value(line: &str, name: &str, value: &str) -> Option<String> {
    let (before, rest) = line.split_once(name)?;
    let (_, behind) = rest.split_once('"')?;
    Some(format!("{before}{name}{value}\"{behind}"))
}

/// Reads a duration that [`Period`] has written.
fn milliseconds(text: &str) -> Option<i128> {
    let (seconds, rest) = text.strip_prefix("PT")?.strip_suffix('S')?.split_once('.')?;
    let (seconds, rest): (u64, u64) = (seconds.parse().ok()?, rest.parse().ok()?);
    Some(i128::from(seconds).saturating_mul(1000).saturating_add(i128::from(rest)))
}
