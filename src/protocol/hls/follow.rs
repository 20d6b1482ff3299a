//! A media playlist as a viewer of the load generator follows it: the next thing to fetch, and the time of the next
//! reload (RFC 8216 §6.3.3 and §6.3.4, RFC 8216bis §6.3).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::hls::limits::{RELOAD_MIN, RETRY_PAUSE, STALL_MIN, TARGET_DURATION_MAX};
use ::hls::playlist::{ByteRange, LowLatency, Map, MediaPlaylist, Segment};
use ::hls::{Request, Url};

/// Maximum decrease of media sequence numbers in a stale playlist; a larger one means that the stream was published
/// again.
const STALE_MAX: u64 = 5;

/// A segment, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Increases by one from piece to piece, unless pieces are missing.
    pub(super) number: u64,
    /// The time at which the server produced the end of the piece, in milliseconds of Unix time.
    pub(super) made_ms: Option<i64>,
    uri: String,
    range: Option<ByteRange>,
    map: Option<Arc<Map>>,
}

/// A resource that the viewer fetches next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    Playlist,
    /// The initialization section.
    Map(Arc<Map>),
    Piece(Piece),
    /// The part that the playlist announces (`EXT-X-PRELOAD-HINT`), by its URI.
    Hint(String),
}

/// The contents of a playlist.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The time at which the server produced the end of the listed media, in milliseconds of Unix time.
    pub(super) made_ms: Option<i64>,
    /// Parts that arrived before they were listed, each with the time of its arrival.
    pub(super) came: Vec<(Piece, Instant)>,
    /// The reason the stream is over, if it is.
    pub(super) over: Option<&'static str>,
}

/// A live playlist that the viewer follows.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) is_video: bool,
    /// Address of the playlist.
    url: Url,
    /// The segment and the part that the next playlist should have.
    next: Option<(u64, usize)>,
    /// Number of the next piece.
    number: u64,
    pending: VecDeque<Piece>,
    /// The initialization section that was fetched last.
    map: Option<Arc<Map>>,
    reload_at: Instant,
    /// The time at which something new was last listed.
    renewed: Instant,
    /// True if the server delays its answer to a reload until the next part is listed.
    blocks: bool,
    /// True if reloads are delta updates.
    skips: bool,
    hint: Option<String>,
    /// A part that arrived before it was listed, and its arrival.
    hinted: Option<(String, Instant)>,
}

impl Follower {
    pub(super) const fn new(is_video: bool, url: Url, now: Instant) -> Self {
        Self {
            is_video,
            url,
            next: None,
            number: 0,
            pending: VecDeque::new(),
            map: None,
            reload_at: now,
            renewed: now,
            blocks: false,
            skips: false,
            hint: None,
            hinted: None,
        }
    }

    /// Returns the time of the next reload; `None` if pieces wait to be fetched.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.is_empty().then_some(self.reload_at)
    }

    /// Returns the next thing to fetch.
    pub(super) fn take_next(&mut self) -> Want {
        if let Some(piece) = self.pending.front() {
            if let Some(map) = piece.map.as_ref().filter(|map| self.map.as_ref() != Some(map)) {
                self.map = Some(Arc::clone(map));
                return Want::Map(Arc::clone(map));
            }
            if let Some(piece) = self.pending.pop_front() {
                return Want::Piece(piece);
            }
        }
        // A player with one connection can wait for one response only. For parts with an odd index, the viewer requests
        // the part itself, as announced, before it is listed; for the others, the playlist that will list the part.
        let is_odd = self.next.is_some_and(|(_, part)| part % 2 == 1);
        match self.hint.take().filter(|_| is_odd && self.hinted.is_none()) {
            Some(uri) => Want::Hint(uri),
            None => Want::Playlist,
        }
    }

    /// Returns the request for a resource; `None` if the resource has no URL that can be requested.
    pub(super) fn request(&self, want: &Want) -> Option<Request> {
        let (uri, range) = match want {
            Want::Playlist => return Some(Request { url: self.reload(), range: None }),
            Want::Map(map) => (map.uri.as_str(), map.byte_range),
            Want::Piece(piece) => (piece.uri.as_str(), piece.range),
            Want::Hint(uri) => (uri.as_str(), None),
        };
        let last = |range: ByteRange| range.offset.saturating_add(range.length).saturating_sub(1);
        let url = self.url.resolve(uri).ok()?.to_string();
        Some(Request { url, range: range.map(|range| (range.offset, last(range))) })
    }

    /// Returns the URL of the playlist, with the directives of RFC 8216bis §6.2.5.
    fn reload(&self) -> String {
        let mut url = self.url.to_string();
        let Some((segment, part)) = self.next.filter(|_| self.blocks) else { return url };
        let part = part.saturating_add(usize::from(self.hinted.is_some()));
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&format!("_HLS_msn={segment}&_HLS_part={part}"));
        if self.skips {
            url.push_str("&_HLS_skip=YES");
        }
        url
    }

    /// Notes that the part announced by the playlist has arrived.
    pub(super) fn take_hinted(&mut self, uri: String, now: Instant) {
        self.hinted = Some((uri, now));
        self.reload_at = now;
    }

    /// Gives up a piece that could not be fetched. With low latency, the pending pieces are about as old and will
    /// soon be gone too, so the viewer drops them and continues at the end of the playlist.
    pub(super) fn miss(&mut self) {
        if self.blocks {
            self.pending.clear();
        }
    }

    /// Schedules another request for a playlist that could not be fetched.
    pub(super) fn retry(&mut self, now: Instant) {
        self.reload_at = later(now, RETRY_PAUSE);
    }

    /// Returns the time until the next reload.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        self.reload_at.saturating_duration_since(now)
    }

    /// Takes a playlist that was requested at `asked`.
    pub(super) fn load(&mut self, playlist: &MediaPlaylist, asked: Instant, now: Instant) -> Loaded {
        let target = playlist.target_duration.min(TARGET_DURATION_MAX);
        let low = playlist.low_latency.as_deref().filter(|low| low.can_block_reload);
        let first = playlist.media_sequence.saturating_add(playlist.skipped);
        let end = first.saturating_add(count(playlist.segments.len()));
        if self.next.is_some_and(|(segment, _)| end.saturating_add(STALE_MAX) < segment) {
            self.next = None;
        }
        let before = self.next;
        self.next.get_or_insert_with(|| start(playlist, low, first, target));
        let mut loaded = self.list(playlist, low, first);
        let is_new = self.next != before;
        if is_new {
            self.renewed = now;
        }
        self.blocks = low.is_some();
        self.skips = low.is_some_and(|low| low.skip_until.is_some());
        self.hint = low.and_then(|low| low.hint.clone());
        self.hinted = None;
        self.reload_at = match (low, is_new) {
            (Some(_), true) => now,
            (Some(low), false) => later(now, low.part_target),
            (None, true) => later(asked, target.max(RELOAD_MIN)),
            (None, false) => later(asked, (target / 2).max(RELOAD_MIN)),
        };
        let silent = now.saturating_duration_since(self.renewed);
        if playlist.ended && self.pending.is_empty() {
            loaded.over = Some("the stream has ended");
        } else if silent >= STALL_MIN.max(target.saturating_mul(3)) {
            loaded.over = Some("the playlist has had no new segment for too long");
        }
        loaded
    }

    /// Lists the new segments and parts of a playlist.
    fn list(&mut self, playlist: &MediaPlaylist, low: Option<&LowLatency>, first: u64) -> Loaded {
        let mut loaded = Loaded::default();
        let mut begins = None;
        for (index, segment) in playlist.segments.iter().enumerate() {
            let number = first.saturating_add(count(index));
            begins = segment.program_date_time.or(begins);
            let ends = begins.map(|ms| add(ms, segment.duration));
            if low.is_some() && !segment.parts.is_empty() {
                self.parts(number, segment, begins, &mut loaded);
            } else {
                self.whole(number, segment, ends);
            }
            if self.next.is_some_and(|next| next.0 <= number) {
                self.next = Some((number.saturating_add(1), 0));
            }
            (begins, loaded.made_ms) = (ends, ends);
        }
        if let Some(low) = low {
            let number = first.saturating_add(count(playlist.segments.len()));
            let begins = low.open.program_date_time.or(begins);
            self.parts(number, &low.open, begins, &mut loaded);
            let length = low.open.parts.iter().map(|part| part.duration).sum();
            loaded.made_ms = begins.map(|ms| add(ms, length));
        }
        loaded
    }

    /// Lists a segment that is fetched as a whole.
    fn whole(&mut self, number: u64, segment: &Segment, made_ms: Option<i64>) {
        let Some((next, part)) = self.next.filter(|(next, _)| *next <= number) else { return };
        // If the viewer has some parts of this segment, and its parts are no longer listed, the rest cannot be fetched.
        let is_missed = segment.gap || (number == next && part > 0);
        self.number =
            self.number.saturating_add(number.saturating_sub(next)).saturating_add(is_missed.into());
        if !is_missed {
            self.push(segment.uri.clone(), segment.byte_range, segment.map.clone(), made_ms);
        }
    }

    /// Lists the parts of a segment.
    fn parts(&mut self, number: u64, segment: &Segment, begins: Option<i64>, loaded: &mut Loaded) {
        let Some((next, from)) = self.next.filter(|(next, _)| *next <= number) else { return };
        let from = if next == number { from } else { 0 };
        self.number = self.number.saturating_add(number.saturating_sub(next));
        let mut ends = begins;
        for (index, part) in segment.parts.iter().enumerate() {
            ends = ends.map(|ms| add(ms, part.duration));
            if index < from {
                continue;
            }
            self.push(part.uri.clone(), None, segment.map.clone(), ends);
            if let Some((_, at)) = self.hinted.take_if(|(uri, _)| *uri == part.uri) {
                loaded.came.extend(self.pending.pop_back().map(|piece| (piece, at)));
            }
        }
        self.next = Some((number, segment.parts.len().max(from)));
    }

    fn push(&mut self, uri: String, range: Option<ByteRange>, map: Option<Arc<Map>>, made_ms: Option<i64>) {
        self.pending.push_back(Piece { number: self.number, made_ms, uri, range, map });
        self.number = self.number.saturating_add(1);
    }
}

/// Returns the number of the first segment to play of a live stream, and part 0: three target durations before the
/// end; with low latency, the last segment that begins at least `PART-HOLD-BACK` before the end.
fn start(playlist: &MediaPlaylist, low: Option<&LowLatency>, first: u64, target: Duration) -> (u64, usize) {
    let Some(low) = low else {
        return (first.saturating_add(count(playlist.live_start(target))), 0);
    };
    let mut length: Duration = low.open.parts.iter().map(|part| part.duration).sum();
    let mut at = playlist.segments.len();
    for segment in playlist.segments.iter().rev() {
        if length >= low.part_hold_back {
            break;
        }
        length = length.saturating_add(segment.duration);
        at = at.saturating_sub(1);
    }
    (first.saturating_add(count(at)), 0)
}

fn add(ms: i64, time: Duration) -> i64 {
    ms.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Returns `at` and a pause; `at` itself if the sum cannot be represented.
fn later(at: Instant, pause: Duration) -> Instant {
    at.checked_add(pause).unwrap_or(at)
}
