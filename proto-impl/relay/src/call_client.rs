//! Client side of a call: the node that sends a call to another node.
//!
//! Flow: the client sends the hello and the call, receives the server's hello and a single answer, and the connection
//! ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::{Reader, SendQueue};

use crate::call::{Answer, Call};
use crate::error::{Error, Refused};
use crate::frame::{self, BODY_BYTES_MAX, Frame, FrameReader, kind, read_name};

/// Time limit for the whole answer. It is shorter than the time after which a server closes a silent connection.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(9);

/// Event of a call from the other node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// Answer to the call.
    Answered(Answer),
    /// The node refused the call for this reason, explained by the text.
    Refused(Refused, String),
    /// End of the connection.
    Closed,
}

/// Client for a single call to a node.
#[derive(Debug)]
pub struct CallClient {
    reader: FrameReader,
    cluster: String,
    events: VecDeque<CallEvent>,
    out: SendQueue,
    until: Instant,
    is_closed: bool,
}

impl CallClient {
    /// Creates a client that calls a node of this cluster. It waits for the answer until `until`. Returns `None` if the
    /// call does not fit in a frame.
    #[must_use]
    pub fn new(cluster: &str, call: &Call, until: Instant) -> Option<Self> {
        let mut out = SendQueue::new();
        out.push(frame::hello(cluster));
        out.push(call.frame()?);
        Some(Self {
            reader: FrameReader::new(|_| BODY_BYTES_MAX),
            cluster: cluster.to_owned(),
            events: VecDeque::new(),
            out,
            until,
            is_closed: false,
        })
    }

    /// Handles bytes from the node.
    ///
    /// # Errors
    /// Returns an error if the node violates the protocol.
    pub fn handle_bytes(&mut self, _now: Instant, bytes: &[u8]) -> Result<(), Error> {
        if self.is_closed {
            return Ok(());
        }
        self.reader.push(bytes);
        self.read().inspect_err(|_| self.close())
    }

    fn read(&mut self) -> Result<(), Error> {
        if let Some(cluster) = self.reader.poll_hello()?
            && cluster != self.cluster
        {
            return Err(Error::Cluster);
        }
        while !self.is_closed
            && let Some(frame) = self.reader.poll()?
        {
            self.take(frame)?;
        }
        Ok(())
    }

    fn take(&mut self, Frame { kind, body }: Frame) -> Result<(), Error> {
        match kind {
            kind::ANSWER => {
                self.events.push_back(CallEvent::Answered(Answer::read(&body)?));
                self.close();
            }
            kind::REFUSED => {
                let mut reader = Reader::new(&body);
                let (code, reason) = (reader.u8()?, read_name(&mut reader)?);
                self.events.push_back(CallEvent::Refused(Refused::of_code(code), reason));
                self.close();
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.events.push_back(CallEvent::Closed);
        }
    }

    /// Handles a possible timeout.
    ///
    /// # Errors
    /// Returns an error if there was no answer in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.close();
            return Err(Error::Silent);
        }
        Ok(())
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_closed).then_some(self.until)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<CallEvent> {
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
