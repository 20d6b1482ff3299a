//! The segments to which viewers can rewind, as the text of a playlist.
//!
//! Segments that no longer change are collected in chunks of [`CHUNK`]. A chunk's text is written once, also on the
//! disk, and is removed as a whole. A playlist can begin with any chunk, because a chunk has everything that its
//! segments need: its number, the discontinuities before it, the date, the key and the initialization section. The
//! comment in front of it ([`Mark`]) gives the remaining facts, by which a viewer's beginning is found without
//! reading all of the text ([`super::list`]).

mod chain;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use hls::playlist::{Segment, SegmentLines};
use hls::segmenter::{Anchor, Piece};

use super::edge::Edge;
use super::places::{self, Places};

/// Number of segments in a chunk.
pub(super) const CHUNK: usize = 16;
/// Beginning of the comment in front of a chunk (RFC 8216 §4.1).
pub(super) const MARK: &str = "#MILLSTREAM-DVR:";
/// Comment in the head of a text that has date ranges. Readers of a text without it need not search for date ranges.
pub(super) const RANGED: &str = "#MILLSTREAM-DVR-RANGES";
/// Beginnings of lines.
pub(super) const RANGE: &str = "#EXT-X-DATERANGE:";
const GAP: &str = "#EXT-X-GAP\n";
const MAP: &str = "#EXT-X-MAP:URI=\"";
pub(super) const KEY: &str = "#EXT-X-KEY:";

/// Facts about the segments of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Media sequence number of the first segment.
    pub(super) number: u64,
    /// Number of discontinuities before the first segment.
    pub(super) discontinuities: u64,
    /// Dates at which the first segment begins and the last one ends, in milliseconds of Unix time.
    pub(super) begin_ms: i64,
    pub(super) end_ms: i64,
    pub(super) segments: u64,
    pub(super) bytes: u64,
    /// Target duration in seconds.
    pub(super) target: u64,
    /// True if each segment can be decoded independently of the others.
    pub(super) is_independent: bool,
}

impl Mark {
    fn line(&self) -> String {
        let Self { number, discontinuities, begin_ms, end_ms, segments, bytes, target, is_independent } =
            self;
        let alone = u8::from(*is_independent);
        format!("{MARK}{number},{discontinuities},{begin_ms},{end_ms},{segments},{bytes},{target},{alone}\n")
    }

    /// Reads the comment in front of a chunk.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix(MARK)?.trim_end().split(',');
        let mut next = || fields.next();
        let mark = Self {
            number: next()?.parse().ok()?,
            discontinuities: next()?.parse().ok()?,
            begin_ms: next()?.parse().ok()?,
            end_ms: next()?.parse().ok()?,
            segments: next()?.parse().ok()?,
            bytes: next()?.parse().ok()?,
            target: next()?.parse().ok()?,
            // Lists of earlier versions lack this field.
            is_independent: next().is_some_and(|alone| alone == "1"),
        };
        (next().is_none() && mark.end_ms >= mark.begin_ms).then_some(mark)
    }
}

/// A segment, with its size.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) segment: Segment,
    pub(super) bytes: u64,
    /// Its place in DASH manifests.
    pub(super) piece: Option<Piece>,
}

/// Segments that are listed and removed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) mark: Mark,
    /// The comment in front of the chunk, followed by the lines of its segments.
    pub(super) text: String,
    /// True if date ranges begin in the chunk.
    has_ranges: bool,
    /// True if the chunk has gaps.
    has_gaps: bool,
    /// The places of its segments in DASH manifests.
    pieces: Vec<Piece>,
}

impl Chunk {
    /// Reads a chunk that an earlier run has written.
    pub(super) fn read(list: &str) -> Option<Self> {
        let (text, pieces) = places::split(list);
        let mark = Mark::read(text.lines().next()?)?;
        let uris = text.lines().filter(|line| !line.starts_with('#')).count();
        let is_whole = text.ends_with('\n') && u64::try_from(uris) == Ok(mark.segments) && uris > 0;
        is_whole.then(|| Self {
            mark,
            text: text.to_owned(),
            has_ranges: text.contains(RANGE),
            has_gaps: text.contains(GAP),
            pieces,
        })
    }

    /// Returns the content of the chunk's list on the disk.
    pub(super) fn list(&self) -> Bytes {
        Bytes::from(format!("{}{}", self.text, places::lines(&self.pieces)))
    }

    /// Returns the names of the chunk's files: segments and initialization sections.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| match line.strip_prefix(MAP) {
            Some(map) => map.split('"').next(),
            None => (!line.starts_with('#') && !line.is_empty()).then_some(line),
        })
    }

    /// Returns the names of the chunk's segments.
    fn uris(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.starts_with('#'))
    }

    /// Returns the number after the chunk's last segment.
    const fn end(&self) -> u64 {
        self.mark.number.saturating_add(self.mark.segments)
    }

    /// Removes the segments from `number` on, which begin at this date. Returns false if the chunk has none of them.
    fn cut(&mut self, number: u64, begin_ms: i64) -> bool {
        let count = number.saturating_sub(self.mark.number);
        let Ok(keep) = usize::try_from(count) else { return false };
        if count >= self.mark.segments {
            return false;
        }
        let mut left = keep;
        let lines = self.text.split_inclusive('\n').skip(1).take_while(|line| {
            let is_kept = left > 0;
            left = left.saturating_sub(usize::from(!line.starts_with('#')));
            is_kept
        });
        let lines: String = lines.collect();
        // The text does not say how many bytes each segment has, so they are divided evenly.
        let bytes = self.mark.bytes.checked_div(self.mark.segments).unwrap_or(0).saturating_mul(count);
        self.mark = Mark { segments: count, bytes, end_ms: begin_ms.max(self.mark.begin_ms), ..self.mark };
        self.text = self.mark.line() + &lines;
        self.has_ranges = self.text.contains(RANGE);
        self.has_gaps = self.text.contains(GAP);
        let gaps = u64::try_from(self.text.matches(GAP).count()).unwrap_or(0);
        places::truncate(&mut self.pieces, count.saturating_sub(gaps));
        true
    }

    /// True if the chunk's segments are encrypted.
    fn has_key(&self) -> bool {
        let is_key = |line: &str| line.starts_with(KEY) && !line.ends_with("METHOD=NONE");
        self.text.lines().any(is_key)
    }
}

/// Work on the disk after the chunks of an earlier run were taken over.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Chunks to remove.
    pub(super) left: Vec<Chunk>,
    /// Chunks whose lists may differ on the disk, or have another name there.
    pub(super) changed: Vec<Chunk>,
}

/// All segments to which viewers can rewind.
#[derive(Debug)]
pub(super) struct Reach {
    window_ms: i64,
    chunks: VecDeque<Chunk>,
    /// The newest segments, which may still change.
    recent: VecDeque<Listed>,
    /// Number of the first segment in `recent`, and the number of discontinuities before it.
    number: u64,
    discontinuities: u64,
    /// Bytes of all chunks.
    bytes: u64,
    target: u64,
    version: u32,
    is_independent: bool,
    /// True before the first segment of this run, if an earlier run has left segments.
    is_resumed: bool,
    /// State of the places of segments after those of all chunks.
    places: Places,
}

impl Reach {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window_ms: i64::try_from(window.as_millis()).unwrap_or(i64::MAX),
            chunks: VecDeque::new(),
            recent: VecDeque::new(),
            number: 0,
            discontinuities: 0,
            bytes: 0,
            target: 0,
            version: 1,
            is_independent: true,
            is_resumed: false,
            places: Places::default(),
        }
    }

    // ---- inputs

    /// Takes over the chunks of an earlier run that follow one another without a hole up to the newest one. Other
    /// chunks are returned for removal.
    pub(super) fn resume(&mut self, chunks: Vec<Chunk>) -> Resumed {
        let mut resumed = Resumed::default();
        let (chain, others) = chain::of(chunks);
        for (mut chunk, until) in chain {
            if until.is_some_and(|(number, begin_ms)| chunk.cut(number, begin_ms)) {
                resumed.changed.push(chunk.clone());
            }
            self.bytes = self.bytes.saturating_add(chunk.mark.bytes);
            if let Some(former) = self.chunks.back().and_then(|former| former.pieces.last()) {
                chunk.pieces.iter_mut().for_each(|piece| piece.share(former));
            }
            self.chunks.push_back(chunk);
        }
        let first = self.chunks.front().map_or(0, |chunk| chunk.mark.number);
        for mut chunk in others {
            if chunk.end() > first {
                // Other chunks use the files of this chunk as well, so only its list is removed.
                chunk.text.clear();
                if self.chunks.iter().any(|kept| kept.mark.number == chunk.mark.number) {
                    continue;
                }
            }
            resumed.left.push(chunk);
        }
        if let Some(last) = self.chunks.back() {
            let inside = u64::try_from(last.text.matches("#EXT-X-DISCONTINUITY\n").count()).unwrap_or(0);
            self.number = last.end();
            self.discontinuities = last.mark.discontinuities.saturating_add(inside);
            self.target = last.mark.target;
            self.is_resumed = true;
            // The last chunk may come from the list of the newest segments, which will be overwritten, so the chunk
            // is also written to a list of its own.
            resumed.changed.push(last.clone());
        }
        resumed
    }

    /// Returns these segments as a chunk; they must be the oldest of those that may still change.
    pub(super) fn tail(&self, segments: &[Listed]) -> Option<Chunk> {
        let (pieces, _) = self.places.of(segments);
        Some(Chunk { pieces, ..self.chunk(segments, self.number, self.discontinuities)? })
    }

    /// Takes the next segment. If it does not fit the segments of an earlier run, because of another target duration,
    /// encryption or container, or an earlier date, the chunks of that run are removed and returned.
    pub(super) fn push(&mut self, mut listed: Listed, (target, version): (Duration, u32)) -> Vec<Chunk> {
        let seconds = target.as_secs().saturating_add(u64::from(target.subsec_nanos() > 0));
        let mut left = Vec::new();
        self.version = self.version.max(version);
        if std::mem::take(&mut self.is_resumed) {
            let segment = &mut listed.segment;
            let is_same = |chunk: &Chunk| {
                chunk.mark.target == seconds
                    && chunk.has_key() == segment.key.is_some()
                    && chunk.text.contains(MAP) == segment.map.is_some()
                    && chunk.mark.end_ms <= segment.program_date_time.unwrap_or(i64::MIN)
            };
            if self.chunks.back().is_some_and(is_same) {
                segment.discontinuity = true;
            } else {
                left.extend(self.chunks.drain(..));
                self.bytes = 0;
            }
        }
        self.target = seconds;
        self.recent.push_back(listed);
        left
    }

    /// Notes whether each segment so far can be decoded independently of the others.
    pub(super) const fn note_independent(&mut self, is_independent: bool) {
        self.is_independent &= is_independent;
    }

    /// Sets the periods of this run of the stream in DASH manifests.
    pub(super) fn set_anchors(&mut self, anchors: &[Anchor]) {
        self.places.set_anchors(anchors);
    }

    /// Sets the numbers of the first segment, if there is none yet.
    pub(super) fn begin_at(&mut self, number: u64, discontinuities: u64) {
        if self.chunks.is_empty() && self.recent.is_empty() {
            (self.number, self.discontinuities) = (number, discontinuities);
        }
    }

    /// Makes a chunk of the oldest segments that may still change; from then on they no longer change. Returns the
    /// chunk to write.
    pub(super) fn seal(&mut self, segments: usize) -> Option<&Chunk> {
        let segments: Vec<Listed> = self.recent.drain(..segments.min(self.recent.len())).collect();
        let (pieces, places) = self.places.of(&segments);
        self.places = places;
        let chunk = Chunk { pieces, ..self.chunk(&segments, self.number, self.discontinuities)? };
        self.number = self.number.saturating_add(chunk.mark.segments);
        self.discontinuities = self.discontinuities.saturating_add(discontinuities(&segments));
        self.bytes = self.bytes.saturating_add(chunk.mark.bytes);
        self.chunks.push_back(chunk);
        self.chunks.back()
    }

    /// Returns the segments that may change, the oldest first.
    pub(super) const fn recent(&mut self) -> &mut VecDeque<Listed> {
        &mut self.recent
    }

    /// True if a whole chunk of segments may still change although they are older than the window.
    pub(super) fn is_overdue(&self) -> bool {
        let last = self.recent.get(CHUNK.saturating_sub(1)).and_then(|listed| end_ms(&listed.segment));
        last.zip(self.begin_ms()).is_some_and(|(end_ms, from_ms)| end_ms < from_ms)
    }

    /// The date at which the window begins.
    fn begin_ms(&self) -> Option<i64> {
        Some(self.end_ms()?.saturating_sub(self.window_ms))
    }

    /// Takes out the oldest chunk if it is older than the window.
    pub(super) fn expire(&mut self) -> Option<Chunk> {
        let from_ms = self.begin_ms()?;
        let is_over = self.chunks.front().is_some_and(|chunk| chunk.mark.end_ms < from_ms);
        if is_over { self.shed() } else { None }
    }

    /// Takes out the oldest chunk.
    pub(super) fn shed(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.bytes = self.bytes.saturating_sub(chunk.mark.bytes);
        Some(chunk)
    }

    // ---- outputs

    /// Returns the names of a chunk's files that no remaining segment needs.
    pub(super) fn unneeded(&self, chunk: &Chunk) -> Vec<String> {
        // Neighbouring chunks may use the same initialization sections.
        let next: BTreeSet<&str> = self.chunks.front().into_iter().flat_map(Chunk::names).collect();
        let gone = chunk.names().filter(|name| !next.contains(name) && !self.needs(name));
        let gone: BTreeSet<String> = gone.map(str::to_owned).collect();
        // Files are removed in this order. The list comes first: if the removal is interrupted, files without a list
        // may be left, but never a list whose files are missing.
        std::iter::once(list_name(&chunk.mark)).chain(gone).collect()
    }

    /// True if segments that may change need this initialization section.
    pub(super) fn needs(&self, name: &str) -> bool {
        let mut maps = self.recent.iter().filter_map(|listed| listed.segment.map.as_ref());
        maps.any(|map| map.uri == name)
    }

    /// Returns the total bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.recent.iter().fold(self.bytes, |sum, listed| sum.saturating_add(listed.bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.recent.is_empty()
    }

    /// The date at which the newest segment ends.
    fn end_ms(&self) -> Option<i64> {
        let recent = self.recent.back().and_then(|listed| end_ms(&listed.segment));
        recent.or_else(|| self.chunks.back().map(|chunk| chunk.mark.end_ms))
    }

    /// The number of the next segment.
    pub(super) fn next(&self) -> u64 {
        self.number.saturating_add(u64::try_from(self.recent.len()).unwrap_or(0))
    }

    /// Returns the number of the first segment.
    pub(super) fn first(&self) -> u64 {
        self.chunks.front().map_or(self.number, |chunk| chunk.mark.number)
    }

    /// Returns the places of all segments in DASH manifests. Segments that are still in memory are listed, even if they
    /// could not be written to the disk. If the clock was set back between two runs of the stream, only the segments of
    /// the later run have places.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let (recent, _) = self.places.of(&self.recent);
        for piece in self.chunks.iter().flat_map(|chunk| &chunk.pieces).cloned().chain(recent) {
            // Periods in the wrong order would end each other.
            if pieces.last().is_some_and(|former| piece.is_set_back(former)) {
                pieces.clear();
            }
            let rest = match pieces.last_mut() {
                Some(last) => last.join(piece),
                None => Some(piece),
            };
            pieces.extend(rest);
        }
        pieces
    }

    /// Returns the text of all segments, with a live edge if there is one. Segments that are still in memory are not
    /// marked as gaps, even if they could not be written to the disk.
    pub(super) fn text(&self, is_ended: bool, edge: Option<&Edge<'_>>) -> String {
        let length = self.chunks.iter().map(|chunk| chunk.text.len()).sum::<usize>();
        let mut text = String::with_capacity(length.saturating_add(8192));
        let with_parts = |listed: &Listed| {
            let parts = edge.map(|edge| edge.parts(&listed.segment.uri)).unwrap_or_default();
            Listed { segment: Segment { parts, ..listed.segment.clone() }, bytes: listed.bytes, piece: None }
        };
        let recent: Vec<Listed> = self.recent.iter().map(with_parts).collect();
        let has_gaps = recent.iter().any(|listed| listed.segment.gap);
        let has_gaps = has_gaps || self.chunks.iter().any(|chunk| chunk.has_gaps);
        let version = if has_gaps { self.version.max(super::GAP_VERSION) } else { self.version };
        let _ = writeln!(text, "#EXTM3U\n#EXT-X-VERSION:{version}");
        if self.is_independent && self.chunks.iter().all(|chunk| chunk.mark.is_independent) {
            text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
        }
        let skip = self.target.saturating_mul(super::list::SKIP_TARGETS);
        let _ = writeln!(text, "#EXT-X-TARGETDURATION:{}", self.target);
        match edge {
            Some(edge) => text.push_str(&edge.control),
            None => {
                let _ = writeln!(text, "#EXT-X-SERVER-CONTROL:CAN-SKIP-UNTIL={skip}");
            }
        }
        let is_ranged = recent.iter().any(|listed| !listed.segment.date_ranges.is_empty());
        if is_ranged || self.chunks.iter().any(|chunk| chunk.has_ranges) {
            let _ = writeln!(text, "{RANGED}");
        }
        self.chunks.iter().for_each(|chunk| text.push_str(&chunk.text));
        let (mut number, mut passed) = (self.number, self.discontinuities);
        for segments in recent.chunks(CHUNK) {
            if let Some(chunk) = self.chunk(segments, number, passed) {
                text.push_str(&chunk.text);
            }
            number = number.saturating_add(u64::try_from(segments.len()).unwrap_or(0));
            passed = passed.saturating_add(discontinuities(segments));
        }
        if let Some(edge) = edge.filter(|_| !is_ended) {
            text.push_str(&edge.growing);
        }
        if is_ended {
            text.push_str("#EXT-X-ENDLIST\n");
        }
        text
    }

    /// Writes segments as a chunk.
    fn chunk(&self, segments: &[Listed], number: u64, discontinuities: u64) -> Option<Chunk> {
        let (first, last) = (segments.first()?, segments.last()?);
        let mark = Mark {
            number,
            discontinuities,
            begin_ms: first.segment.program_date_time?,
            end_ms: end_ms(&last.segment)?,
            segments: u64::try_from(segments.len()).ok()?,
            bytes: segments.iter().fold(0, |sum, listed| sum.saturating_add(listed.bytes)),
            target: self.target,
            is_independent: self.is_independent,
        };
        let mark = Mark { end_ms: mark.end_ms.max(mark.begin_ms), ..mark };
        let mut text = mark.line();
        // Only the first segment, and those after a discontinuity, have their date written: the other dates follow
        // from the durations, and leaving them out halves the text.
        let dated = |(at, listed): (usize, &Listed)| {
            let segment = &listed.segment;
            let date = segment.program_date_time.filter(|_| at == 0 || segment.discontinuity);
            Segment { program_date_time: date, ..segment.clone() }
        };
        let segments: Vec<Segment> = segments.iter().enumerate().map(dated).collect();
        let _ = write!(text, "{}", SegmentLines { behind: None, segments: &segments });
        let has_ranges = segments.iter().any(|segment| !segment.date_ranges.is_empty());
        let has_gaps = segments.iter().any(|segment| segment.gap);
        Some(Chunk { mark, text, has_ranges, has_gaps, pieces: Vec::new() })
    }
}

/// Returns the name of a chunk's list on the disk.
pub(super) fn list_name(mark: &Mark) -> String {
    format!("{}{}", mark.number, crate::jobs::LIST)
}

fn discontinuities(segments: &[Listed]) -> u64 {
    let count = segments.iter().filter(|listed| listed.segment.discontinuity).count();
    u64::try_from(count).unwrap_or(0)
}

/// The date at which a segment ends.
fn end_ms(segment: &Segment) -> Option<i64> {
    let length_ms = i64::try_from(segment.duration.as_millis()).unwrap_or(i64::MAX);
    Some(segment.program_date_time?.saturating_add(length_ms))
}
