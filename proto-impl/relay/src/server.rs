//! Server side of a relay: the node that has the stream.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::{TrackId, TrackSet};
use wire::{Reader, SendQueue, Writer};

use crate::call::{Answer, CALL_BYTES_MAX, Call};
use crate::error::{Ended, Error, Refused};
use crate::frame::{self, Frame, FrameReader, kind, put_name, read_name};
use crate::viewers::Viewers;

/// Time without data after which the client is considered dead. A living client pings once per second.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Maximum length in bytes of a client's frames, except calls.
const BODY_BYTES_MAX: u32 = 8 * 1024;
/// Maximum number of nodes that a stream may have passed.
const VIA_MAX: usize = 16;
/// Maximum number of queued events. A client whose input causes more events in one call of
/// [`Server::handle_bytes`] violates the protocol.
const EVENTS_MAX: usize = 1024;

/// Event from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// Request for a stream, sent once. The response is [`Server::accept`] or [`Server::refuse`].
    Play {
        /// Name of the application.
        app: String,
        /// Id of the stream.
        id: String,
        /// Nodes that will get the copy: the client's own, and those that copy from it.
        via: Vec<String>,
    },
    /// From now on the client wants only these tracks; `None` means all.
    Want(Option<TrackSet>),
    /// Request for a key frame of this track.
    KeyFrame(TrackId),
    /// API call to be performed by this node. Sent once, instead of `Play`. The response is [`Server::answer`] or
    /// [`Server::refuse`].
    Call(Call),
    /// Number of viewers of the copy.
    Viewers(Viewers),
    /// End of the connection.
    Closed,
}

const fn body_max(kind: u8) -> u32 {
    if kind == kind::CALL { CALL_BYTES_MAX } else { BODY_BYTES_MAX }
}

/// Server for a single client and a single stream.
#[derive(Debug)]
pub struct Server {
    reader: FrameReader,
    cluster: String,
    has_asked: bool,
    events: VecDeque<ServerEvent>,
    out: SendQueue,
    heard: Instant,
    is_closed: bool,
}

impl Server {
    /// Creates a server that waits for a client of this cluster.
    #[must_use]
    pub fn new(now: Instant, cluster: &str) -> Self {
        Self {
            reader: FrameReader::new(body_max),
            cluster: cluster.to_owned(),
            has_asked: false,
            events: VecDeque::new(),
            out: SendQueue::new(),
            heard: now,
            is_closed: false,
        }
    }

    /// Handles bytes from the client.
    ///
    /// # Errors
    /// Returns an error if the client violates the protocol. Queued data must still be sent; then the connection
    /// closes.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        if self.is_closed {
            return Ok(());
        }
        self.heard = now;
        self.reader.push(bytes);
        self.read().inspect_err(|error| self.fail(error))
    }

    fn read(&mut self) -> Result<(), Error> {
        if let Some(cluster) = self.reader.poll_hello()? {
            self.out.push(frame::hello(&self.cluster));
            if cluster != self.cluster {
                return Err(Error::Cluster);
            }
        }
        while !self.is_closed
            && let Some(frame) = self.reader.poll()?
        {
            if self.events.len() >= EVENTS_MAX
                || self.out.len() > usize::try_from(BODY_BYTES_MAX).unwrap_or(0)
            {
                return Err(Error::Invalid("number of frames"));
            }
            self.take(frame)?;
        }
        Ok(())
    }

    fn take(&mut self, Frame { kind, body }: Frame) -> Result<(), Error> {
        let mut reader = Reader::new(&body);
        match kind {
            kind::PLAY if !self.has_asked => {
                self.has_asked = true;
                let (app, id) = (read_name(&mut reader)?, read_name(&mut reader)?);
                let count = usize::from(reader.u8()?);
                if count > VIA_MAX {
                    return Err(Error::Invalid("number of nodes"));
                }
                let via = (0..count).map(|_| read_name(&mut reader)).collect::<Result<_, _>>()?;
                self.events.push_back(ServerEvent::Play { app, id, via });
            }
            kind::CALL if !self.has_asked => {
                self.has_asked = true;
                self.events.push_back(ServerEvent::Call(Call::read(&body)?));
            }
            kind::PLAY | kind::CALL => return Err(Error::Invalid("second request")),
            kind::VIEWERS => self.events.push_back(ServerEvent::Viewers(Viewers::read(&mut reader)?)),
            kind::WANT => {
                let wanted = body.iter().map(|number| track(*number)).collect::<Result<TrackSet, _>>()?;
                self.events.push_back(ServerEvent::Want((!wanted.is_empty()).then_some(wanted)));
            }
            kind::KEY_FRAME => self.events.push_back(ServerEvent::KeyFrame(track(reader.u8()?)?)),
            kind::PING => self.out.push(frame::frame(kind::PONG, &reader.array::<8>()?)),
            kind::LEAVE => self.close(),
            _ => {}
        }
        Ok(())
    }

    /// Accepts the request: sends the name of the node, and the wall clock time at the zero of the stream's clock
    /// (milliseconds since the Unix epoch). The caller must then send frames of tracks and units.
    pub fn accept(&mut self, node: &str, zero_ms: i64) {
        let mut body = Writer::new();
        put_name(&mut body, node);
        body.bytes(&zero_ms.to_be_bytes());
        self.out.push(frame::frame(kind::PLAYING, &body.take()));
    }

    /// Answers a call and closes the connection. If the answer is too large for a frame, an error response with status
    /// 500 is sent instead.
    pub fn answer(&mut self, answer: &Answer) {
        if self.is_closed {
            return;
        }
        let too_large = || Answer { status: 500, fields: Vec::new(), body: Bytes::new() }.frame();
        if let Some(frame) = answer.frame().or_else(too_large) {
            self.out.push(frame);
        }
        self.close();
    }

    /// Refuses the request and closes the connection.
    pub fn refuse(&mut self, why: Refused, reason: &str) {
        self.say(kind::REFUSED, why.code(), reason);
        self.close();
    }

    /// Ends the stream and closes the connection.
    pub fn end(&mut self, why: Ended, reason: &str) {
        self.say(kind::ENDED, why.code(), reason);
        self.close();
    }

    fn say(&mut self, kind: u8, code: u8, reason: &str) {
        if !self.is_closed {
            let mut body = Writer::new();
            body.u8(code);
            put_name(&mut body, reason);
            self.out.push(frame::frame(kind, &body.take()));
        }
    }

    fn fail(&mut self, error: &Error) {
        if *error != Error::Magic {
            if matches!(error, Error::Version(_)) {
                self.out.push(frame::hello(&self.cluster));
            }
            self.say(kind::REFUSED, Refused::Stranger.code(), &error.to_string());
        }
        self.close();
    }

    fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.events.push_back(ServerEvent::Closed);
        }
    }

    /// Handles a possible timeout.
    ///
    /// # Errors
    /// Returns an error if the client was silent for too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if !self.is_closed && self.poll_timeout().is_some_and(|at| at <= now) {
            self.close();
            return Err(Error::Silent);
        }
        Ok(())
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closed { None } else { self.heard.checked_add(SILENCE_MAX) }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Moves the outgoing frames into `out`. Returns whether there were any.
    pub fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        if self.out.is_empty() {
            return false;
        }
        out.append(&mut self.out);
        true
    }
}

fn track(number: u8) -> Result<TrackId, Error> {
    TrackId::from_number(number).ok_or(Error::Invalid("track"))
}
