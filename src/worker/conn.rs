//! One connection of a worker: its session, what waits for its socket, and its roles towards the hub.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::SendQueue;

use super::pulls::Held;
use crate::hub::Subscriber;
use crate::protocol::{PlayAsk, Port, Remote, Session};
use crate::stats::Traffic;
use crate::types::{PullId, PushId, StreamId};

/// A connection whose socket takes nothing for this long, while something waits, is closed.
const WRITE_STALL: Duration = Duration::from_secs(30);
/// A push is given up sooner: its supervisor opens a new one.
const PUSH_STALL: Duration = Duration::from_secs(10);
/// A goodbye that is not taken by then is not said.
pub const CLOSE_STALL: Duration = Duration::from_secs(5);

/// Where a publisher stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publishing {
    /// It does not publish.
    No,
    /// Control was asked.
    Asked,
    /// It feeds this stream.
    Granted(StreamId),
}

/// What control knows of a viewer.
#[derive(Debug)]
pub(super) enum Watching {
    /// Nothing: it does not watch, or nobody wants to know.
    Untold,
    /// It was asked whether this may be played.
    Asked(Box<PlayAsk>),
    /// That it is there.
    Told,
}

/// What makes a connection a push.
#[derive(Debug, Clone, Copy)]
pub(super) struct PushRole {
    pub(super) push: PushId,
    pub(super) attempt: u64,
    pub(super) stream: StreamId,
}

/// What makes a connection a pull.
#[derive(Debug, Clone, Copy)]
pub(super) struct PullRole {
    pub(super) pull: PullId,
    pub(super) attempt: u64,
}

/// How a connection's bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// In order, over a socket of its own.
    Bytes,
    /// In datagrams, through a port that many share.
    Port(&'static Port, Remote),
    /// In datagrams, over a socket of its own.
    Own,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) peer: SocketAddr,
    pub(super) link: Link,
    /// Its session may have datagrams to send.
    pub(super) unsent: bool,
    pub(super) session: Box<dyn Session>,
    pub(super) queue: SendQueue,
    pub(super) subscriber: Option<Subscriber>,
    pub(super) publishing: Publishing,
    pub(super) watching: Watching,
    pub(super) push: Option<PushRole>,
    pub(super) pull: Option<PullRole>,
    /// A viewer whose stream is being started.
    pub(super) held: Option<Held>,
    /// An outgoing connection that is not there yet.
    pub(super) connecting: bool,
    /// The socket took less than it was offered; it will tell when it takes more.
    pub(super) blocked: bool,
    /// In the list of touched connections.
    pub(super) touched: bool,
    /// In the write queue.
    pub(super) writing: bool,
    /// The shell was told that no bytes are wanted.
    pub(super) reads_paused: bool,
    /// Why it is to be closed once all is sent.
    pub(super) closing: Option<String>,
    /// The earliest entry in the deadline table.
    pub(super) armed: Option<Instant>,
    /// Since when something waits that the socket does not take.
    pub(super) waits_since: Option<Instant>,
    pub(super) began: Instant,
    /// Bytes sent that its session has not been told of.
    pub(super) untold: usize,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// What its bytes count for, as its session has said.
    pub(super) protocol: &'static str,
    /// Whether it is there for media, as its session has said.
    pub(super) is_media: bool,
    /// Bytes received and sent that have counted for something else before.
    pub(super) counted: (u64, u64),
    /// Jumps of its subscriptions that are over.
    pub(super) jumps: u64,
    /// Units that those were not sent.
    pub(super) skipped: u64,
}

impl Conn {
    pub(super) fn new(peer: SocketAddr, session: Box<dyn Session>, now: Instant) -> Self {
        let (protocol, is_media) = (session.protocol(), session.is_media());
        Self {
            peer,
            link: Link::Bytes,
            unsent: false,
            session,
            queue: SendQueue::new(),
            subscriber: None,
            publishing: Publishing::No,
            watching: Watching::Untold,
            push: None,
            pull: None,
            held: None,
            connecting: false,
            blocked: false,
            touched: false,
            writing: false,
            reads_paused: false,
            closing: None,
            armed: None,
            waits_since: None,
            began: now,
            untold: 0,
            bytes_in: 0,
            bytes_out: 0,
            protocol,
            is_media,
            counted: (0, 0),
            jumps: 0,
            skipped: 0,
        }
    }

    /// Adds what counts for its protocol to the row of that.
    pub(super) fn count_into(&self, row: &mut Traffic) {
        let (bytes_in, bytes_out) = self.counted;
        row.bytes_in = row.bytes_in.saturating_add(self.bytes_in.saturating_sub(bytes_in));
        row.bytes_out = row.bytes_out.saturating_add(self.bytes_out.saturating_sub(bytes_out));
    }

    /// Bytes of its own that wait: not those behind its cursor.
    pub(super) fn has_own_bytes(&self) -> bool {
        self.unsent
            || !self.queue.is_empty()
            || self.subscriber.as_ref().is_some_and(|sub| sub.cursor.has_rest())
    }

    /// When its socket has refused long enough.
    pub(super) fn stall_deadline(&self) -> Option<Instant> {
        let patience = match (&self.closing, &self.push) {
            (Some(_), _) => CLOSE_STALL,
            (None, Some(_)) => PUSH_STALL,
            (None, None) => WRITE_STALL,
        };
        self.waits_since.map(|since| since + patience)
    }

    /// The next deadline of any kind, its session's too.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|held| held.until);
        [self.session.poll_timeout(), self.stall_deadline(), held].into_iter().flatten().min()
    }
}
