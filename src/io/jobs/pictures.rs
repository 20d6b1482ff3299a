//! The processes that make pictures of key frames: one for each thread of the class. A process is started on first
//! use and ended when idle.
//!
//! 1. [`Pictures::run`] takes a free place and starts its process if it has none. The process is this program
//!    again, run as `preview-worker` ([`crate::io::preview_worker`]), with only a socket as its standard input.
//! 2. The request is sent over the socket, and the answer is read from it. A process that does not answer within
//!    [`PATIENCE`], or sends a malformed message, is killed. The next picture then gets a new process, as it does if a
//!    process has ended by itself.
//! 3. A process that has made [`PICTURES_MAX`] pictures is replaced. A process without work for [`IDLE`] is ended.
//!
//! If a process ended or was killed while it made the picture of a key frame, the stream of that key frame must wait
//! longer for its next picture; the submitter of the job ensures this. If no process can be started or confined, no
//! pictures are made for [`PAUSE`].

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use picture::{ANSWER_BYTES_MAX, Answer, HEAD_BYTES, length_of};

use super::super::{clock, preview_worker};
use crate::jobs::{Class, NoPicture, PictureOutcome, PictureWork};
use crate::protocol::PREVIEW_WORKER;

/// Maximum time from a request to the end of its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of pictures that a process makes.
const PICTURES_MAX: u32 = 1000;
/// Time without pictures after which a process is ended.
const IDLE: Duration = Duration::from_secs(30);
/// Time for which no pictures are made after a process could not be started or confined.
const PAUSE: Duration = Duration::from_secs(60);
/// Number of places for processes.
const PLACES: usize = Class::Picture.limits().threads;
/// Number of bytes read at a time. No buffer is allocated for the length that the process announces.
const PIECE_BYTES: usize = 64 * 1024;
/// Path of the running program, which works even if its file was replaced or removed.
const PROGRAM: &str = "/proc/self/exe";

/// The processes that make pictures of key frames.
#[derive(Debug)]
pub(super) struct Pictures {
    places: Arc<[Mutex<Place>]>,
    program: &'static str,
    patience: Duration,
}

/// The place of a process.
#[derive(Debug, Default)]
struct Place {
    helper: Option<Helper>,
    /// Time before which no process may be started.
    not_before: Option<Instant>,
    /// True if a thread is waiting to end the process once it is idle.
    is_watched: bool,
}

/// A running process.
#[derive(Debug)]
struct Helper {
    child: Child,
    socket: UnixStream,
    /// Number of pictures requested.
    pictures: u32,
    used: Instant,
}

impl Default for Pictures {
    fn default() -> Self {
        Self::of_program(PROGRAM, PATIENCE)
    }
}

impl Pictures {
    fn of_program(program: &'static str, patience: Duration) -> Self {
        Self { places: (0..PLACES).map(|_| Mutex::default()).collect(), program, patience }
    }

    /// Makes a picture. Blocks until it is done.
    pub(super) fn run(&self, work: &PictureWork) -> PictureOutcome {
        // The sizes in the headers can be checked without starting a process.
        picture::look(&work.0.config, &work.0.payload).map_err(NoPicture::Refused)?;
        let message = work.0.write().map_err(NoPicture::Refused)?;
        let (at, mut place) = self.free_place().ok_or_else(nothing_free)?;
        place.drop_dead();
        if place.helper.is_none() {
            self.start(at, &mut place)?;
        }
        let Some(helper) = &mut place.helper else { return Err(nothing_free()) };
        let answer = helper.ask(&message, self.patience);
        let is_used_up = helper.pictures >= PICTURES_MAX;
        match answer {
            Ok(answer) => {
                if is_used_up {
                    place.helper = None;
                }
                answer.0.map_err(NoPicture::Refused)
            }
            Err(error) => Err(place.died(&error)),
        }
    }

    /// Returns a place that no other thread uses. There is a place for each thread of the class.
    fn free_place(&self) -> Option<(usize, MutexGuard<'_, Place>)> {
        let free = |place| match Mutex::try_lock(place) {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut free = self.places.iter().enumerate().filter_map(|(at, place)| Some((at, free(place)?)));
        // Prefer a place with a running process.
        let first = free.next()?;
        if first.1.helper.is_some() {
            Some(first)
        } else {
            free.find(|(_, place)| place.helper.is_some()).or(Some(first))
        }
    }

    fn start(&self, at: usize, place: &mut Place) -> Result<(), NoPicture> {
        let now = clock::now().mono;
        if place.not_before.is_some_and(|until| now < until) {
            return Err(NoPicture::Unavailable("the process of previews cannot be started".to_owned()));
        }
        match Helper::start(self.program, now) {
            Ok(helper) => place.helper = Some(helper),
            Err(error) => {
                tracing::warn!(%error, "previews paused: their process cannot be started");
                place.not_before = Some(now + PAUSE);
                return Err(NoPicture::Unavailable(error.to_string()));
            }
        }
        if !place.is_watched {
            let places = Arc::clone(&self.places);
            let watch = thread::Builder::new().name("picture-idle".into());
            place.is_watched = watch.spawn(move || end_when_idle(&places, at)).is_ok();
        }
        Ok(())
    }
}

fn nothing_free() -> NoPicture {
    NoPicture::Unavailable("all processes of previews are busy".to_owned())
}

/// Ends the process of a place once it has been idle for [`IDLE`].
fn end_when_idle(places: &[Mutex<Place>], at: usize) {
    let Some(place) = places.get(at) else { return };
    let mut pause = IDLE;
    loop {
        thread::sleep(pause);
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let idle =
            place.helper.as_ref().map(|helper| clock::now().mono.saturating_duration_since(helper.used));
        match idle {
            Some(idle) if idle < IDLE => pause = IDLE.saturating_sub(idle),
            Some(_) | None => {
                place.helper = None;
                place.is_watched = false;
                return;
            }
        }
    }
}

impl Place {
    /// Drops a process that has ended while it had no picture to make, so that no stream is blamed for it.
    fn drop_dead(&mut self) {
        let status = self.helper.as_mut().and_then(|helper| helper.child.try_wait().ok().flatten());
        if let Some(status) = status {
            tracing::warn!(reason = %status, "idle preview process ended; starting another");
            self.helper = None;
        }
    }

    /// Ends a process that has failed, and returns the reason.
    fn died(&mut self, error: &io::Error) -> NoPicture {
        let Some(mut helper) = self.helper.take() else { return nothing_free() };
        let reason = helper.end(error);
        if helper.is_unconfined() {
            tracing::warn!(reason, "previews paused: this system does not confine their process");
            self.not_before = Some(clock::now().mono + PAUSE);
            return NoPicture::Unavailable(reason);
        }
        tracing::warn!(
            reason,
            pictures = helper.pictures,
            "the process of previews has ended: the next picture starts another"
        );
        NoPicture::Died(reason)
    }
}

impl Helper {
    fn start(program: &str, now: Instant) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new(program)
            .arg0("millstream")
            .arg(PREVIEW_WORKER)
            // The environment may contain secrets. Signals from the terminal are meant for the server only.
            .env_clear()
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, socket, pictures: 0, used: now })
    }

    /// Sends a request and receives its answer.
    fn ask(&mut self, message: &[u8], patience: Duration) -> io::Result<Answer> {
        self.used = clock::now().mono;
        self.pictures = self.pictures.saturating_add(1);
        let until = self.used + patience;
        let mut rest = message;
        while !rest.is_empty() {
            self.socket.set_write_timeout(Some(left(until)?))?;
            let written = again(|| self.socket.write(rest))?;
            rest = rest.get(written..).unwrap_or_default();
        }
        let head = self.receive(HEAD_BYTES, until)?;
        let head = head.first_chunk().copied().unwrap_or_default();
        let length = length_of(head, ANSWER_BYTES_MAX).map_err(io::Error::other)?;
        let answer = Answer::read(self.receive(length, until)?).map_err(io::Error::other)?;
        self.used = clock::now().mono;
        Ok(answer)
    }

    fn receive(&mut self, length: usize, until: Instant) -> io::Result<Bytes> {
        let mut received = Vec::new();
        while received.len() < length {
            self.socket.set_read_timeout(Some(left(until)?))?;
            let before = received.len();
            received.resize(length.min(before.saturating_add(PIECE_BYTES)), 0);
            let room = received.get_mut(before..).unwrap_or_default();
            let read = again(|| self.socket.read(room))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            received.truncate(before.saturating_add(read));
        }
        Ok(received.into())
    }

    /// Kills the process if it still runs, and returns the reason why it ended.
    fn end(&mut self, error: &io::Error) -> String {
        let is_over = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        );
        // A child that is already ending keeps its own exit status. A child that has only closed its socket must be
        // killed, so that waiting for its end does not block.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) if is_over => status.to_string(),
            Ok(_) if error.kind() == io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            Ok(_) | Err(_) => error.to_string(),
        }
    }

    /// True if the process has ended because it could not give up its privileges.
    fn is_unconfined(&mut self) -> bool {
        let status = self.child.try_wait().ok().flatten();
        status.is_some_and(|status| {
            status.signal().is_none() && status.code() == Some(i32::from(preview_worker::UNCONFINED))
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the remaining time.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(clock::now().mono);
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Repeats a call that was interrupted by a signal. If the time limit has expired, the error is always `TimedOut`,
/// whatever error the system reports.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            result => return result,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use media::CodecConfig;
    use media::codec::vp8;
    use picture::{Error, Format, Request, Shape};

    use super::*;

    /// Makes a VP8 key frame of 16x16 pixels without data, followed by `bytes` bytes.
    pub(in crate::io::jobs) fn work(bytes: usize) -> PictureWork {
        let head = [0x10, 0, 0, 0x9d, 0x01, 0x2a, 16, 0, 16, 0];
        let payload: Vec<u8> = head.into_iter().chain(std::iter::repeat(0)).take(bytes).collect();
        let config = CodecConfig::Vp8(vp8::Config::default());
        let shape = Shape { format: Format::Png, width: 320, height: 480, quality: 75 };
        PictureWork(Request { config, payload: payload.into(), shape })
    }

    fn died(pictures: &Pictures) -> String {
        match pictures.run(&work(100)) {
            Err(NoPicture::Died(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_headers_forbid_starts_no_process() {
        let pictures = Pictures::of_program("/nowhere", PATIENCE);
        assert_eq!(pictures.run(&work(5)), Err(NoPicture::Refused(Error::Damaged)));
    }

    #[test]
    fn a_process_that_cannot_be_started_is_not_tried_again_at_once() {
        let pictures = Pictures::of_program("/nowhere", PATIENCE);
        let Err(NoPicture::Unavailable(first)) = pictures.run(&work(100)) else { panic!("it started") };
        assert!(first.contains("No such file"), "{first}");
        let Err(NoPicture::Unavailable(second)) = pictures.run(&work(100)) else { panic!("it started") };
        assert!(second.contains("cannot be started"), "{second}");
    }

    #[test]
    fn a_process_that_ends_or_hangs_or_talks_nonsense_is_replaced() {
        let ends = Pictures::of_program("/bin/true", PATIENCE);
        assert_eq!(died(&ends), "exit status: 0");
        assert!(ends.places.iter().all(|place| place.lock().unwrap().helper.is_none()));
        // `yes` writes only to its standard output, which is discarded, so no answer arrives.
        let hangs = Pictures::of_program("/usr/bin/yes", Duration::from_millis(50));
        assert_eq!(died(&hangs), "no answer in time");
        assert!(hangs.places.iter().all(|place| place.lock().unwrap().helper.is_none()));
    }

    #[test]
    fn an_answer_that_is_none_is_not_believed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let child = Command::new("/usr/bin/yes").stdout(Stdio::null()).spawn().unwrap();
        let mut helper = Helper { child, socket: ours, pictures: 0, used: Instant::now() };
        theirs.write_all(&[0xff, 0xff, 0xff, 0xff]).unwrap();
        let error = helper.ask(b"", PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), Error::Message.to_string());
        theirs.write_all(&[0, 0, 0, 1, 99]).unwrap();
        let error = helper.ask(b"", PATIENCE).unwrap_err();
        assert_eq!(helper.end(&error), Error::Message.to_string());
    }
}
