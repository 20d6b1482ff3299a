//! The segments that a clip is made of: those of its time in the stream's playlist, in memory or on the disk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hls::Playlist;
use hls::playlist::MediaPlaylist;

use crate::hub::Blobs;
use crate::jobs::{BlockSource, Job, JobId, Outcome, READ_BYTES_MAX, Work};
use crate::mail::{Blob, ClipRange};
use crate::protocol::Apps;
use crate::protocol::sinks::{self, Requested};

/// The id of the jobs that read segments; the ids of a recording's jobs count from 0.
pub(super) const JOB: JobId = JobId(u64::MAX);
/// Maximum number of segments in the time of a clip; below the number at which the reader of playlists drops the oldest
/// segments.
const SEGMENTS_MAX: usize = 9000;
/// Maximum size of a file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The location of a file of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Memory(Bytes),
    /// The path of a file on the disk, below `webapps`.
    Disk(Vec<String>),
}

/// A segment that can still be read, from memory or from the disk.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) media: Place,
    /// Initialization section of the segment, for fragmented MP4.
    pub(super) init: Option<Place>,
    pub(super) discontinuity: bool,
    pub(super) date_ms: i64,
}

impl Kept {
    /// Returns the first of the segment's files that has not been read from the disk yet.
    pub(super) fn on_disk(&mut self) -> Option<&mut Place> {
        let mut places = self.init.iter_mut().chain([&mut self.media]);
        places.find(|place| matches!(place, Place::Disk(_)))
    }
}

/// Returns the segments of a time range, oldest first.
pub(super) fn kept(
    apps: &Apps,
    blobs: &Blobs,
    (app, playlist): (&str, &str),
    range: ClipRange,
) -> VecDeque<Kept> {
    let Some(media) = listed(apps, blobs, (app, playlist), range) else { return VecDeque::new() };
    let folder = playlist.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let place = |uri: &str| {
        let name = format!("{folder}{uri}");
        let in_memory = blobs.get(app, &name).map(|blob| Place::Memory(blob.bytes.clone()));
        let settings = apps.get(app)?;
        in_memory.or_else(|| sinks::kept_at(app, settings, &name).map(Place::Disk))
    };
    let (mut date_ms, mut has_lost) = (None, false);
    let mut of_segment = |segment: &hls::playlist::Segment| {
        // A segment without a date follows the one before it.
        let begin_ms = segment.program_date_time.or(date_ms)?;
        let length_ms = i64::try_from(segment.duration.as_millis()).unwrap_or(i64::MAX);
        let end_ms = begin_ms.saturating_add(length_ms);
        date_ms = Some(end_ms);
        let is_of = begin_ms < range.end_ms && end_ms > range.start_ms;
        if !is_of || segment.gap || segment.key.is_some() {
            has_lost |= segment.gap;
            return None;
        }
        let init = match &segment.map {
            Some(map) => Some(place(&map.uri)?),
            None => None,
        };
        let media = place(&segment.uri)?;
        let discontinuity = segment.discontinuity | std::mem::take(&mut has_lost);
        Some(Kept { media, init, discontinuity, date_ms: begin_ms })
    };
    media.segments.iter().filter_map(&mut of_segment).collect()
}

/// Returns the playlist of all segments to which viewers can rewind, reduced to a time range.
fn listed(
    apps: &Apps,
    blobs: &Blobs,
    (app, playlist): (&str, &str),
    range: ClipRange,
) -> Option<MediaPlaylist> {
    let settings = apps.get(app)?;
    let plain = blobs.get(app, playlist)?;
    let seconds = |ms: i64| ms.div_euclid(1000).max(0);
    let query = [
        ("start".to_owned(), seconds(range.start_ms).to_string()),
        ("end".to_owned(), seconds(range.end_ms).saturating_add(1).to_string()),
    ];
    let all = sinks::in_place(settings, playlist, &query).and_then(|name| blobs.get(app, &name));
    let text = match all.filter(|all| all.stream == plain.stream) {
        Some(all) => part(&Requested { app: settings, name: &all.name, query: &query }, all)?,
        None => plain.bytes.clone(),
    };
    match Playlist::read(&text) {
        Ok(Playlist::Media(media)) if media.segments.len() <= SEGMENTS_MAX => Some(media),
        Ok(Playlist::Media(_)) => None,
        Ok(Playlist::Multivariant(_)) | Err(_) => None,
    }
}

fn part(requested: &Requested<'_>, all: &Blob) -> Option<Bytes> {
    let mut text = sinks::dated(requested, &all.bytes)?;
    let mut whole = Vec::new();
    while let Some(block) = text.next_block() {
        whole.extend_from_slice(&block);
    }
    Some(whole.into())
}

/// The result of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// More jobs follow.
    Partly,
    Whole(Bytes),
    /// The file no longer exists, or cannot be read.
    Missing,
}

/// A file on the disk that is being read.
#[derive(Debug)]
pub(super) struct Loading {
    path: Vec<String>,
    file: Option<(Arc<dyn BlockSource>, u64)>,
    bytes: Vec<u8>,
    is_asked: bool,
}

impl Loading {
    pub(super) const fn new(path: Vec<String>) -> Self {
        Self { path, file: None, bytes: Vec::new(), is_asked: false }
    }

    /// Returns the next job, unless one is under way.
    pub(super) fn poll_job(&mut self) -> Option<Job> {
        if std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        let offset = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        let work = match &self.file {
            None => Work::FileOpen { path: self.path.clone() },
            Some((file, length)) => {
                let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
                Work::FileRead { file: Arc::clone(file), offset, length: left.min(READ_BYTES_MAX) }
            }
        };
        Some(Job { id: JOB, app: None, work })
    }

    /// Takes the outcome of the job that reads the file.
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever else it is, the file was not read")]
    pub(super) fn job_done(&mut self, outcome: Outcome) -> Loaded {
        self.is_asked = false;
        match outcome {
            Outcome::Busy => return Loaded::Partly,
            Outcome::Opened(Ok(opened)) if opened.length <= FILE_BYTES_MAX => {
                self.file = Some((opened.file, opened.length));
            }
            Outcome::Block(block) if !block.is_empty() => self.bytes.extend_from_slice(&block),
            _ => return Loaded::Missing,
        }
        let has = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        let is_whole = self.file.as_ref().is_some_and(|(_, length)| has >= *length);
        if is_whole { Loaded::Whole(std::mem::take(&mut self.bytes).into()) } else { Loaded::Partly }
    }
}

#[cfg(test)]
#[allow(clippy::wildcard_enum_match_arm, reason = "a test looks for some jobs")]
mod tests {
    use super::*;
    use crate::jobs::{FileError, OpenedFile};

    #[derive(Debug)]
    struct File(Vec<u8>);

    impl BlockSource for File {
        fn read_block(&self, offset: u64, length: usize) -> Bytes {
            let rest = self.0.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            Bytes::copy_from_slice(&rest[..length.min(rest.len())])
        }
    }

    /// Reads a file that reports this length.
    fn load(bytes: usize, length: u64) -> (Loaded, usize) {
        let content: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (mut loading, mut jobs) = (Loading::new(vec!["x".into()]), 0);
        loop {
            let job = loading.poll_job().unwrap();
            assert!(loading.poll_job().is_none(), "one at a time");
            assert_eq!(job.id, JOB);
            jobs += 1;
            if jobs % 2 == 0 {
                assert_eq!(loading.job_done(Outcome::Busy), Loaded::Partly, "it is asked for again");
                loading.poll_job().unwrap();
            }
            let outcome = match job.work {
                Work::FileOpen { path } => {
                    assert_eq!(path, ["x"]);
                    let file = Arc::new(File(content.clone()));
                    Outcome::Opened(Ok(OpenedFile { file, length, modified_ms: 0, tag: String::new() }))
                }
                Work::FileRead { file, offset, length } => {
                    assert!(length <= READ_BYTES_MAX);
                    Outcome::Block(file.read_block(offset, length))
                }
                other => panic!("{other:?}"),
            };
            match loading.job_done(outcome) {
                Loaded::Partly => {}
                Loaded::Whole(read) => {
                    assert_eq!(read, content[..read.len()]);
                    return (Loaded::Whole(read), jobs);
                }
                Loaded::Missing => return (Loaded::Missing, jobs),
            }
        }
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let bytes = READ_BYTES_MAX * 2 + 7;
        let (read, jobs) = load(bytes, u64::try_from(bytes).unwrap());
        assert!(matches!(read, Loaded::Whole(read) if read.len() == bytes) && jobs == 4);
        // Bytes after the announced length are not expected and ignored; bytes missing before it are a fault.
        assert!(matches!(load(100, 60).0, Loaded::Whole(read) if read.len() == 60));
        assert_eq!(load(100, 101).0, Loaded::Missing);
        assert_eq!(load(100, FILE_BYTES_MAX + 1), (Loaded::Missing, 1));
        for outcome in [Outcome::Opened(Err(FileError::NotFound)), Outcome::Failed] {
            let mut loading = Loading::new(vec!["x".into()]);
            loading.poll_job().unwrap();
            assert_eq!(loading.job_done(outcome), Loaded::Missing);
        }
    }
}
