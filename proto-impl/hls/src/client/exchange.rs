//! Handles the answers to requests.

use std::time::Instant;

use bytes::{Buf, Bytes};

use super::choose::choices;
use super::track::{Track, later};
use super::{Client, Event, SegmentKind};
use crate::Playlist;
use crate::decrypt::Decrypter;
use crate::limits::{
    INIT_BYTES_MAX, KEY_BYTES, KEYS_MAX, PLAYLIST_BYTES_MAX, RETRY_PAUSE, SEGMENT_BYTES_MAX,
};
use crate::playlist::Key;
use crate::uri::Url;

/// Number of times a playlist is requested again after consecutive failures.
const PLAYLIST_RETRIES: u32 = 3;

/// Purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Playlist,
    Key,
    Init,
    Segment,
}

/// A request, and the part of its answer received so far.
#[derive(Debug)]
pub(super) struct Exchange {
    purpose: Purpose,
    track: usize,
    /// The URL as first requested.
    origin: Url,
    /// The URL to request now, after redirections.
    pub(super) url: Url,
    pub(super) range: Option<(u64, u64)>,
    pub(super) at: Instant,
    pub(super) asked: Option<Instant>,
    pub(super) redirects: u8,
    gathered: Vec<u8>,
    received: u64,
    /// Bytes of the segment that the owner has already received from an earlier attempt.
    skip: u64,
    decrypter: Option<Decrypter>,
}

impl Exchange {
    pub(super) fn new(
        purpose: Purpose,
        track: usize,
        url: Url,
        range: Option<(u64, u64)>,
        at: Instant,
    ) -> Self {
        Self {
            purpose,
            track,
            origin: url.clone(),
            url,
            range,
            at,
            asked: None,
            redirects: 0,
            gathered: Vec::new(),
            received: 0,
            skip: 0,
            decrypter: None,
        }
    }

    fn bytes_max(&self) -> u64 {
        let max = match self.purpose {
            Purpose::Playlist => u64::try_from(PLAYLIST_BYTES_MAX).unwrap_or(u64::MAX),
            Purpose::Key => u64::try_from(KEY_BYTES).unwrap_or(u64::MAX),
            Purpose::Init => u64::try_from(INIT_BYTES_MAX).unwrap_or(u64::MAX),
            Purpose::Segment => SEGMENT_BYTES_MAX,
        };
        let range = self.range.map(|(first, last)| last.saturating_sub(first).saturating_add(1));
        range.map_or(max, |length| length.min(max))
    }
}

impl Client {
    pub(super) fn take_body(&mut self, exchange: &mut Exchange, bytes: Bytes) -> Result<(), &'static str> {
        let is_first = exchange.received == 0;
        exchange.received = exchange.received.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if exchange.received > exchange.bytes_max() {
            if let Some(current) = self.current(exchange.track) {
                // A second attempt would return the same oversized answer, so none is made.
                current.failed = true;
            }
            return Err("the answer is too long");
        }
        if exchange.purpose != Purpose::Segment {
            exchange.gathered.extend_from_slice(&bytes);
            return Ok(());
        }
        if is_first {
            self.begin_media(exchange)?;
        }
        let bytes = match &mut exchange.decrypter {
            Some(decrypter) => decrypter.update(&bytes),
            None => bytes,
        };
        self.media(exchange, bytes);
        Ok(())
    }

    fn begin_media(&mut self, exchange: &mut Exchange) -> Result<(), &'static str> {
        let track = self.tracks.get(exchange.track).ok_or("no track")?;
        let current = track.current.as_ref().ok_or("no segment")?;
        exchange.skip = current.delivered;
        exchange.decrypter = match current.segment.key.as_deref() {
            Some(key) => Some(self.decrypter(track, key, current.number)?),
            None => None,
        };
        let Some(track) = self.tracks.get_mut(exchange.track) else { return Ok(()) };
        let Some(current) = track.current.as_mut().filter(|current| !current.begun) else { return Ok(()) };
        current.begun = true;
        let path = exchange.origin.path();
        let is_mp4 = current.segment.map.is_some() || path.ends_with(".mp4") || path.ends_with(".m4s");
        let kind = if is_mp4 { SegmentKind::Fmp4 } else { SegmentKind::Ts };
        let discontinuity = std::mem::take(&mut track.discontinuity) || current.segment.discontinuity;
        let (rendition, init) = (track.rendition, track.init.take());
        self.has_begun = true;
        self.event(Event::Begin { rendition, kind, discontinuity });
        if let Some(bytes) = init {
            self.event(Event::Init { rendition, bytes });
        }
        Ok(())
    }

    /// Passes the segment's bytes to the owner, except for those that an earlier attempt has
    /// already passed.
    fn media(&mut self, exchange: &mut Exchange, mut bytes: Bytes) {
        let skip = usize::try_from(exchange.skip).unwrap_or(usize::MAX).min(bytes.len());
        exchange.skip = exchange.skip.saturating_sub(u64::try_from(skip).unwrap_or(u64::MAX));
        bytes.advance(skip);
        let Some(current) = self.current(exchange.track) else { return };
        current.delivered = current.delivered.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let Some(rendition) = self.tracks.get(exchange.track).map(|track| track.rendition) else { return };
        if !bytes.is_empty() {
            self.event(Event::Media { rendition, bytes });
        }
    }

    fn decrypter(&self, track: &Track, key: &Key, number: u64) -> Result<Decrypter, &'static str> {
        let url = track.base.resolve(&key.uri).map_err(|_| "no key")?;
        let (_, secret) = self.keys.iter().find(|(known, _)| *known == url).ok_or("no key")?;
        // Without an explicit vector, the segment's number is used (RFC 8216 §5.2).
        let initial = key.iv.unwrap_or_else(|| u128::from(number).to_be_bytes());
        Decrypter::new(*secret, initial).ok_or("no key")
    }

    pub(super) fn finish(&mut self, exchange: Exchange) {
        if exchange.range.is_some() && exchange.received < exchange.bytes_max() {
            return self.fail(&exchange, "the answer is too short");
        }
        let done = match exchange.purpose {
            Purpose::Playlist => return self.finish_playlist(&exchange),
            Purpose::Key => self.finish_key(&exchange),
            Purpose::Init => self.finish_init(&exchange),
            Purpose::Segment => return self.finish_segment(exchange),
        };
        if let Err(reason) = done {
            self.fail(&exchange, reason);
        }
    }

    fn finish_key(&mut self, exchange: &Exchange) -> Result<(), &'static str> {
        let key = exchange.gathered.as_slice().try_into().map_err(|_| "a key has 16 bytes")?;
        if self.keys.len() >= KEYS_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back((exchange.origin.clone(), key));
        Ok(())
    }

    fn finish_init(&mut self, exchange: &Exchange) -> Result<(), &'static str> {
        let track = self.tracks.get(exchange.track).ok_or("no track")?;
        let current = track.current.as_ref().ok_or("no segment")?;
        let map = current.segment.map.clone();
        let bytes = match map.as_ref().and_then(|map| map.key.as_deref()) {
            Some(key) => {
                let mut decrypter = self.decrypter(track, key, current.number)?;
                let mut plain = decrypter.update(&exchange.gathered).to_vec();
                plain.extend_from_slice(
                    &decrypter.finish().ok_or("bad padding of an initialization section")?,
                );
                plain.into()
            }
            None => Bytes::copy_from_slice(&exchange.gathered),
        };
        if let Some(track) = self.tracks.get_mut(exchange.track) {
            (track.map, track.init) = (map, Some(bytes));
        }
        Ok(())
    }

    fn finish_segment(&mut self, mut exchange: Exchange) {
        if exchange.received == 0
            && let Err(reason) = self.begin_media(&mut exchange)
        {
            return self.fail(&exchange, reason);
        }
        if let Some(decrypter) = exchange.decrypter.take() {
            let Some(last) = decrypter.finish() else {
                return self.fail(&exchange, "bad padding of a segment");
            };
            self.media(&mut exchange, last);
        }
        self.losses = 0;
        let Some(track) = self.tracks.get_mut(exchange.track) else { return };
        track.current = None;
        let rendition = track.rendition;
        self.event(Event::End { rendition });
    }

    fn finish_playlist(&mut self, exchange: &Exchange) {
        match Playlist::read(&exchange.gathered) {
            Ok(Playlist::Media(playlist)) => {
                self.is_first = false;
                let Some(track) = self.tracks.get_mut(exchange.track) else { return };
                track.base = exchange.url.clone();
                let loaded = track.load(playlist, exchange.asked.unwrap_or(self.now), self.now);
                let rendition = track.rendition;
                if loaded.lost {
                    self.event(Event::Lost { rendition });
                }
                if loaded.stalled {
                    self.end("the playlist has had no new segment for too long");
                }
            }
            Ok(Playlist::Multivariant(playlist)) if self.is_first => {
                self.is_first = false;
                self.choices = choices(&playlist, &exchange.url, self.config.bandwidth_max);
                match self.choices.pop_front() {
                    Some(best) => self.pull(best),
                    None => self.end("no variant that can be fetched is in codecs that are carried"),
                }
            }
            Ok(Playlist::Multivariant(_)) => self.fail(exchange, "a variant is no media playlist"),
            Err(error) => self.fail(exchange, &error.to_string()),
        }
    }

    pub(super) fn fail(&mut self, exchange: &Exchange, reason: &str) {
        let retry_at = later(self.now, RETRY_PAUSE);
        if exchange.purpose == Purpose::Playlist {
            let Some(track) = self.tracks.get_mut(exchange.track) else { return };
            track.failures = track.failures.saturating_add(1);
            track.reload_at = retry_at;
            if track.failures > PLAYLIST_RETRIES {
                self.fall(&format!("the playlist could not be fetched: {reason}"));
            }
            return;
        }
        match self.current(exchange.track) {
            Some(current) if !current.failed => (current.failed, current.at) = (true, retry_at),
            _ => self.give_up(exchange.track),
        }
    }

    fn current(&mut self, track: usize) -> Option<&mut super::track::Current> {
        self.tracks.get_mut(track)?.current.as_mut()
    }
}
