//! The node that has a call answered by another.
//!
//! Flow: hello and call go out; hello and one answer come in; the connection ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::{Reader, SendQueue};

use crate::call::{Answer, Call};
use crate::error::{Error, Refused};
use crate::frame::{self, BODY_BYTES_MAX, Frame, FrameReader, kind, read_name};

/// The time in which the answer should be there whole. A server closes a connection that is silent for longer.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(9);

/// An event of the node that was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// The answer.
    Answered(Answer),
    /// The call was not taken, with the node's reason.
    Refused(Refused, String),
    /// The end.
    Closed,
}

/// The conversation with one node about one call.
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
    /// Calls a node of this cluster and waits for its answer until then. `None`: the call is larger than a frame of one may be.
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

    /// Takes bytes of the node.
    ///
    /// # Errors
    /// The node does not keep to the protocol.
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

    /// The deadline may have passed.
    ///
    /// # Errors
    /// There is no answer in time.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.close();
            return Err(Error::Silent);
        }
        Ok(())
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.is_closed).then_some(self.until)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<CallEvent> {
        self.events.pop_front()
    }

    /// Moves what is to be sent, whole frames; says whether there was anything.
    pub fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        if self.out.is_empty() {
            return false;
        }
        out.append(&mut self.out);
        true
    }
}
