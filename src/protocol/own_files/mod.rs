//! Files of an application as stream sources, read from disk by jobs at playback speed.
//!
//! 1. The file is opened below `webapps`, name by name and without following links, like files that are served.
//! 2. A block is requested once everything before it has been emitted: the session does not poll while the stream is
//!    ahead of real time. A source therefore holds one block, and the pieces of it.
//! 3. The content is read like the body of a response ([`Reading`]). After the last block the attempt is over.

mod path;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;

use super::pull::{Client, ClientEvent, ClientJobs, FILE_RESERVE, Media, Patience, Reading, Start};
use super::row::{Addresses, Request};
use crate::jobs::{BlockSource, FileError, Job, JobDone, JobId, OpenedFile, Outcome, Work};
use crate::mail::{Target, Transport};
use crate::types::StreamKey;
pub(super) use path::OwnPath;

/// Size of a block, and therefore of the read-ahead, in bytes.
const BLOCK_BYTES: usize = 128 * 1024;
/// Pause before a job is submitted again while the job service is busy. A pull that waits too long is ended by the
/// session.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// The id of the client's jobs, of which only one is in progress.
const JOB: JobId = JobId(0);

/// Makes the target of a file.
pub(super) fn target(names: Vec<String>) -> Target {
    let request: Box<dyn Request> = Box::new(OwnFile(names));
    let host = IpAddr::V4(Ipv4Addr::UNSPECIFIED).to_string();
    Target::new("file", (host, 0), Transport::File, Arc::new(request))
}

/// The path of a file below `webapps`.
#[derive(Debug)]
struct OwnFile(Vec<String>);

impl Request for OwnFile {
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn pull(&self, _patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(FilePull::new(self.0.clone())))
    }
}

/// The stage of reading a file.
#[derive(Debug)]
enum Stage {
    Closed {
        names: Vec<String>,
    },
    Open {
        file: Arc<dyn BlockSource>,
        length: u64,
        at: u64,
    },
    /// The reading has ended.
    Over,
}

/// The client that reads a file.
#[derive(Debug)]
struct FilePull {
    stage: Stage,
    reading: Reading,
    /// The index of the file, to be emitted before its media.
    index: Option<Media>,
    /// True while a job is in progress.
    asked: bool,
    /// Time before which no job is submitted.
    paused_until: Option<Instant>,
    /// The reason why the reading has ended, reported after everything before it.
    ended: Option<String>,
}

impl FilePull {
    fn new(names: Vec<String>) -> Self {
        Self {
            stage: Stage::Closed { names },
            reading: Reading::new(),
            index: None,
            asked: false,
            paused_until: None,
            ended: None,
        }
    }

    fn end(&mut self, reason: impl Into<String>) {
        self.ended.get_or_insert_with(|| reason.into());
    }

    fn opened(&mut self, opened: Result<OpenedFile, FileError>) {
        match opened {
            Ok(OpenedFile { file, length, .. }) => self.stage = Stage::Open { file, length, at: 0 },
            Err(FileError::NotFound | FileError::Directory) => self.end("there is no such file"),
            Err(FileError::Failed) => self.end("the file cannot be read"),
        }
    }

    fn block(&mut self, block: Bytes) {
        let Stage::Open { at, .. } = &mut self.stage else { return };
        if block.is_empty() {
            return self.end("the file cannot be read, or became shorter");
        }
        *at = at.saturating_add(u64::try_from(block.len()).unwrap_or(u64::MAX));
        match self.reading.push(block) {
            Ok(false) => {}
            Ok(true) => {
                *at = self.reading.from().unwrap_or(u64::MAX);
                self.index = self.reading.index();
            }
            Err(reason) => self.end(reason),
        }
    }
}

impl ClientJobs for FilePull {
    fn poll_job(&mut self) -> Option<Job> {
        if self.asked || self.paused_until.is_some() || self.ended.is_some() {
            return None;
        }
        let work = match &self.stage {
            Stage::Over => return None,
            Stage::Closed { names } => Work::FileOpen { path: names.clone() },
            Stage::Open { file, length, at } => {
                let left = usize::try_from(length.saturating_sub(*at)).unwrap_or(usize::MAX);
                Work::FileRead { file: Arc::clone(file), offset: *at, length: left.min(BLOCK_BYTES) }
            }
        };
        self.asked = true;
        Some(Job { id: JOB, app: None, work })
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever else it is, the file was not looked after")]
    fn handle_job(&mut self, now: Instant, done: JobDone) {
        self.asked = false;
        match done.outcome {
            Outcome::Opened(opened) => self.opened(opened),
            Outcome::Block(block) => self.block(block),
            Outcome::Busy => self.paused_until = now.checked_add(BUSY_PAUSE),
            _ => self.end("the file could not be looked after"),
        }
    }
}

impl Client for FilePull {
    fn begin(&mut self, _start: &Start<'_>) {
        // The first job is asked for when the session polls.
    }

    fn handle_end(&mut self, _now: Instant) {
        self.end("closed");
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.paused_until = self.paused_until.filter(|until| *until > now);
    }

    fn close(&mut self, _now: Instant) {
        self.end("closed");
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        if let Some(index) = self.index.take() {
            return Some(ClientEvent::Media(index));
        }
        match self.reading.poll() {
            Ok(Some(media)) => return Some(ClientEvent::Media(media)),
            Ok(None) => {}
            Err(reason) => self.end(reason),
        }
        if let Stage::Open { length, at, .. } = &self.stage
            && at >= length
        {
            self.end("the file is over");
        }
        let reason = self.ended.take()?;
        self.stage = Stage::Over;
        Some(ClientEvent::Ended(reason))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.paused_until
    }

    fn jobs(&mut self) -> Option<&mut dyn ClientJobs> {
        Some(self)
    }

    fn reserve(&self) -> Option<Duration> {
        Some(FILE_RESERVE)
    }

    fn name(&self) -> &'static str {
        "file-pull"
    }
}

#[cfg(test)]
mod tests;
