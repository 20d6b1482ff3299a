//! Determines the next request and its time.

use std::time::Instant;

use super::exchange::{Exchange, Purpose};
use super::track::{Current, Track, later, media_time};
use super::{Client, Event};
use crate::limits::{FAILURES_MAX, REQUEST_SPACING, RETRY_PAUSE, SEGMENT_BYTES_MAX};
use crate::playlist::{ByteRange, Method};
use crate::uri::Url;

impl Client {
    /// Prepares the next request, unless one is pending.
    pub(super) fn plan(&mut self) {
        while self.exchange.is_none() && !self.is_closed {
            for index in 0..self.tracks.len() {
                self.begin_segment(index);
            }
            if self.is_closed {
                return;
            }
            if self.tracks.iter().all(Track::is_done) {
                self.end("the stream has ended");
                return;
            }
            let Some((at, is_segment, index)) = self.candidates() else { return };
            let made = if is_segment { self.segment_request(index) } else { self.playlist_request(index) };
            match made {
                Ok((purpose, url, range)) => {
                    let at = self.free_at(at, &url, range);
                    self.playlist_last = !is_segment;
                    self.exchange = Some(Exchange::new(purpose, index, url, range, at));
                }
                Err(Refusal::Segment) => self.give_up(index),
                Err(Refusal::Stream(reason)) => self.end(&reason),
            }
        }
    }

    /// The most urgent action: its time, whether it fetches a segment, and the index of its track.
    fn candidates(&self) -> Option<(Instant, bool, usize)> {
        let mut all = Vec::new();
        for (index, track) in self.tracks.iter().enumerate() {
            if let Some(current) = &track.current {
                all.push((current.at.max(self.now), self.playlist_last, track.progress, true, index));
            }
            if !track.ended {
                all.push((track.reload_at.max(self.now), !self.playlist_last, track.progress, false, index));
            }
        }
        // If several requests are due, playlists and segments take turns.
        let first = all
            .into_iter()
            .min_by_key(|(at, goes_first, progress, _, index)| (*at, !*goes_first, *progress, *index));
        first.map(|(at, _, _, is_segment, index)| (at, is_segment, index))
    }

    /// The time at which a request may be sent: a minimum interval after the last request, and half a second
    /// after the last identical one.
    pub(super) fn free_at(&mut self, at: Instant, url: &Url, range: Option<(u64, u64)>) -> Instant {
        let now = self.now;
        while self.recent.pop_front_if(|(asked, ..)| later(*asked, RETRY_PAUSE) <= now).is_some() {}
        let mut at = at.max(now);
        for (asked, before, bytes) in &self.recent {
            let is_same = before == url && *bytes == range;
            at = at.max(later(*asked, if is_same { RETRY_PAUSE } else { REQUEST_SPACING }));
        }
        at
    }

    /// Begins the next pending segment, skipping gaps.
    fn begin_segment(&mut self, index: usize) {
        let (now, started, ahead) = (self.now, self.started, self.config.ahead);
        let Some(track) = self.tracks.get_mut(index) else { return };
        let mut is_lost = false;
        while track.current.is_none() {
            let Some((number, segment)) = track.pending.pop_front() else { break };
            if segment.gap {
                track.discontinuity |= segment.discontinuity;
                is_lost = true;
                continue;
            }
            let paced = later(started, track.progress.saturating_sub(ahead));
            let at = if track.recorded { paced.max(now) } else { now };
            track.progress = track.progress.saturating_add(media_time(&segment));
            track.current = Some(Current { number, segment, failed: false, at, delivered: 0, begun: false });
        }
        let rendition = track.rendition;
        if is_lost {
            self.event(Event::Lost { rendition });
        }
    }

    /// Gives up a segment after a permanent failure.
    pub(super) fn give_up(&mut self, index: usize) {
        let Some(track) = self.tracks.get_mut(index) else { return };
        if let Some(gone) = track.current.take() {
            track.discontinuity |= gone.segment.discontinuity && !gone.begun;
        }
        let rendition = track.rendition;
        self.event(Event::Lost { rendition });
        self.losses = self.losses.saturating_add(1);
        if self.losses >= FAILURES_MAX {
            self.fall("too many segments in a row could not be fetched");
        }
    }

    fn playlist_request(&self, index: usize) -> Made {
        let track = self.tracks.get(index).ok_or(Refusal::Segment)?;
        Ok((Purpose::Playlist, track.url.clone(), None))
    }

    /// The next request that the current segment needs: for its key, its initialization section, or its
    /// media.
    fn segment_request(&self, index: usize) -> Made {
        let track = self.tracks.get(index).ok_or(Refusal::Segment)?;
        let segment = &track.current.as_ref().ok_or(Refusal::Segment)?.segment;
        let resolve = |uri: &str| track.base.resolve(uri).map_err(|_| Refusal::Segment);
        let map = segment.map.as_ref().filter(|map| track.map.as_ref() != Some(map));
        let key = map.map_or_else(|| segment.key.as_ref(), |map| map.key.as_ref());
        if let Some(key) = key {
            if key.method != Method::Aes128 || key.format.is_some() {
                let reason =
                    format!("segments are encrypted with {}, which is not supported", key.method.name());
                return Err(Refusal::Stream(reason));
            }
            let url = resolve(&key.uri)?;
            if !self.keys.iter().any(|(known, _)| *known == url) {
                return Ok((Purpose::Key, url, None));
            }
        }
        match map {
            Some(map) => Ok((Purpose::Init, resolve(&map.uri)?, map.byte_range.map(bytes))),
            None if segment.byte_range.is_some_and(|range| range.length > SEGMENT_BYTES_MAX) => {
                Err(Refusal::Segment)
            }
            None => Ok((Purpose::Segment, resolve(&segment.uri)?, segment.byte_range.map(bytes))),
        }
    }
}

type Made = Result<(Purpose, Url, Option<(u64, u64)>), Refusal>;

/// Reason why a request cannot be sent.
enum Refusal {
    Segment,
    Stream(String),
}

/// The first and the last byte of a range.
const fn bytes(range: ByteRange) -> (u64, u64) {
    (range.offset, range.offset.saturating_add(range.length.saturating_sub(1)))
}
