//! The key of a stream's segments, read from a file of the operator (`hlsEncryptionKeyInfoFile`).
//!
//! 1. A job reads the file before the first segment; until then the stream waits in its ring.
//! 2. The file is read again every [`LOOK`]. A new key is used from the next segment on; a key of samples, from the
//!    next run.
//! 3. Until a key has been read, the stream has no segments. If the file cannot be read later, the last key stays in
//!    use.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hls::segmenter::GivenKey;

use crate::hub::{Chosen, Entry};
use crate::jobs::{KeyInfo, Outcome, Work};

/// Pause between two reads of the file.
const LOOK: Duration = Duration::from_secs(10);
/// Pause after which the job is submitted again if its queue was full.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The file with the key of segments.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: Arc<Path>,
    /// Name of the stream, for the log.
    stream: String,
    /// Time from which a new key is used, for the log.
    used_from: &'static str,
    /// The key last read.
    known: Option<GivenKey>,
    /// The key last read, until [`take_new`](Self::take_new) returns it for the next segment.
    new: Option<GivenKey>,
    is_reading: bool,
    next_at: Option<Instant>,
    /// True if the last read failed, which was logged.
    is_failing: bool,
    /// True if units were left out, so that the next one must be a key frame.
    is_behind: bool,
}

impl KeyFile {
    /// Creates the state; `is_of_samples` if the key encrypts samples rather than segments.
    pub(super) const fn new(path: Arc<Path>, stream: String, is_of_samples: bool) -> Self {
        Self {
            path,
            stream,
            used_from: if is_of_samples { "the next run of the stream" } else { "the next segment" },
            known: None,
            new: None,
            is_reading: false,
            next_at: None,
            is_failing: false,
            is_behind: false,
        }
    }

    /// Returns the job that is due.
    pub(super) fn next_job(&mut self, now: Instant) -> Option<Work> {
        if self.is_reading || self.next_at.is_some_and(|at| now < at) {
            return None;
        }
        self.is_reading = true;
        Some(Work::KeyInfo { path: Arc::clone(&self.path) })
    }

    pub(super) fn job_done(&mut self, now: Instant, outcome: Outcome) {
        self.is_reading = false;
        // No thread had room for the job, which says nothing about the file.
        if matches!(outcome, Outcome::Busy) {
            self.next_at = now.checked_add(BUSY_PAUSE);
            return;
        }
        self.next_at = now.checked_add(LOOK);
        match outcome.key_info() {
            Ok(KeyInfo { key, uri, vector }) => {
                self.is_failing = false;
                self.take(GivenKey { key, uri, vector });
            }
            Err(reason) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let (file, stream) = (self.path.display(), &self.stream);
                    if self.known.is_some() {
                        tracing::warn!(%file, stream, reason, "HLS key file unusable; the last key stays in use");
                    } else {
                        tracing::warn!(%file, stream, reason, "HLS key file unusable; the stream has no HLS");
                    }
                }
            }
        }
    }

    fn take(&mut self, read: GivenKey) {
        if self.known.as_ref() == Some(&read) {
            return;
        }
        let (file, stream, key) = (self.path.display(), &self.stream, name_of(&read.uri));
        if self.known.is_some() {
            let used_from = self.used_from;
            tracing::info!(%file, stream, key, "HLS key changed; used from {used_from} on");
        } else {
            tracing::info!(%file, stream, key, "HLS key read");
        }
        self.known = Some(read.clone());
        self.new = Some(read);
    }

    /// Returns the time at which the file is read again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at.filter(|_| !self.is_reading)
    }

    /// Returns the key for the next segment and those after it, if the key has changed.
    pub(super) const fn take_new(&mut self) -> Option<GivenKey> {
        self.new.take()
    }

    /// True unless the first read of the key file is still under way.
    pub(super) const fn has_room(&self) -> bool {
        self.known.is_some() || self.is_failing
    }

    /// True if a unit becomes part of a segment: there is a key, and if units were left out for lack of one, a key
    /// frame has arrived since.
    pub(super) fn admits(&mut self, entry: &Entry, chosen: &Chosen) -> bool {
        if self.known.is_none() {
            self.is_behind = true;
        } else if self.is_behind {
            let lead = chosen.lead();
            self.is_behind = lead.is_some_and(|lead| lead != entry.unit.track || !entry.unit.key_frame);
        }
        !self.is_behind
    }
}

/// Returns the address of a key as logged: without a query or user, which may hold secrets, and without a key that is
/// in the address itself.
fn name_of(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    if path.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
        return "data:".to_owned();
    }
    let (scheme, rest) = path.split_once("://").map_or(("", path), |(scheme, rest)| (scheme, rest));
    let (authority, tail) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match (scheme, authority.rsplit_once('@')) {
        ("", _) => path.to_owned(),
        (scheme, Some((_, host))) => format!("{scheme}://{host}{tail}"),
        (scheme, None) => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use media::{AccessUnit, Codec, CodecConfig, Timescale, Track, TrackId, Tracks};

    use super::*;
    use crate::hub::{Fit, Selection};

    #[test]
    fn a_key_is_read_at_once_and_looked_at_again_and_a_failure_leaves_the_last_one() {
        let mut now = Instant::now();
        let mut file = KeyFile::new(Path::new("/k/info").into(), "live/cam".to_owned(), false);
        let info = |byte| KeyInfo { key: [byte; 16], uri: "u".to_owned(), vector: None };
        assert!(!file.has_room(), "the stream waits for the first answer");
        assert!(file.next_job(now).is_some());
        file.job_done(now, Outcome::Busy);
        assert!(!file.has_room(), "nothing was read, and the stream waits on");
        now = file.poll_timeout().unwrap();
        let mut look = |file: &mut KeyFile, result| {
            assert!(file.next_job(now - Duration::from_nanos(1)).is_none() || file.poll_timeout().is_none());
            let due = file.next_job(now).is_some() || file.is_reading;
            assert!(due && file.next_job(now).is_none(), "one at a time");
            file.job_done(now, Outcome::KeyInfo(result));
            now = file.poll_timeout().unwrap();
            file.take_new().map(|key| key.key)
        };
        assert_eq!(look(&mut file, Err("gone".to_owned())), None);
        assert!(file.has_room() && file.known.is_none(), "units pass by, and nothing is made of them");
        assert_eq!(look(&mut file, Ok(info(1))), Some([1; 16]));
        assert_eq!(look(&mut file, Ok(info(1))), None, "the same");
        assert_eq!(look(&mut file, Ok(info(2))), Some([2; 16]));
        assert_eq!(look(&mut file, Err("gone".to_owned())), None);
        assert!(file.known.is_some());
        assert_eq!(look(&mut file, Ok(info(2))), None);
    }

    #[test]
    fn the_log_names_a_key_and_none_of_its_secrets() {
        for (uri, name) in [
            ("/live/a.key", "/live/a.key"),
            ("https://keys.example/1?token=s", "https://keys.example/1"),
            ("https://me:s@keys.example/1#s", "https://keys.example/1"),
            ("https://keys.example", "https://keys.example"),
            ("skd://id@7/s", "skd://7/s"),
            ("data:text/plain;base64,c2VjcmV0", "data:"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(name_of(uri), name);
        }
    }

    #[test]
    fn segments_begin_with_a_key_frame_when_the_key_comes_late() {
        let config = CodecConfig::read(Codec::H264, vec![1, 0x64, 0, 0x1f, 0xff, 0xe0, 0].into()).unwrap();
        let track = Track::new(TrackId::VIDEO, config.unwrap(), Timescale::MILLISECONDS);
        let list = Arc::new(Tracks::new(1, [track]));
        let mut chosen = Chosen::default();
        chosen.update(Selection::DEFAULT, &list, &|_| Fit::Well);
        let now = Instant::now();
        let entry = |key_frame| {
            let (track, payload) = (TrackId::VIDEO, Bytes::from_static(&[0, 0, 0, 1, 9]));
            let unit = AccessUnit { track, dts: 0, pts: 0, key_frame, config_epoch: 1, payload };
            Entry::new(now, 0, unit, Arc::clone(&list))
        };
        let mut file = KeyFile::new(Path::new("/k/info").into(), "live/cam".to_owned(), false);
        let is_taken = |file: &mut KeyFile, frames: &[bool]| -> Vec<bool> {
            frames.iter().map(|key_frame| file.admits(&entry(*key_frame), &chosen)).collect()
        };
        assert_eq!(is_taken(&mut file, &[true, false]), [false, false], "there is no key");
        let key = KeyInfo { key: [1; 16], uri: "u".to_owned(), vector: None };
        file.job_done(now, Outcome::KeyInfo(Ok(key)));
        assert_eq!(is_taken(&mut file, &[false, false, true, false]), [false, false, true, true]);
    }
}
