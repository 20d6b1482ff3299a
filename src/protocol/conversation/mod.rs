//! The conversation of a session with its worker: the session sends [`Event`]s, and the worker answers with [`Reply`]s.
//!
//! Both are nested by subject, with a file for each: [`publication`], [`subscription`], [`request`], [`order`],
//! [`family`], [`port`], [`path`]. A session matches the subjects that it uses and ignores the others as a whole, so a
//! new variant affects only the sessions that use it, and the worker's file for its subject.

mod family;
mod order;
mod path;
mod port;
mod publication;
mod request;
mod subscription;

pub use family::{FamilyEvent, FamilyNews};
pub use order::OrderEvent;
pub use path::{OpenPath, PathEvent, PathId, SocketEvent};
pub use port::{PortEvent, PortNews};
pub use publication::{PublicationEvent, PublicationNews, PublishAsk};
pub use request::{BLOB_WAIT, PassAsk, RefusedRequest, RequestEvent, RequestNews, Verb, WantedBlob, Watched};
pub use subscription::{PlayAsk, SubscriptionEvent, SubscriptionNews, SubtrackNews};

use crate::jobs::{Job, JobDone};
use crate::types::Handle;

/// An event of a session for the worker.
#[derive(Debug)]
pub enum Event {
    /// An event of the publication with this handle.
    Publication(Handle, PublicationEvent),
    /// An event of the subscription with this handle.
    Subscription(Handle, SubscriptionEvent),
    /// A request of the peer, to be answered by control, or by the worker from its blobs.
    Request(RequestEvent),
    /// Blocking work; answered by [`Reply::Job`].
    Job(Job),
    /// News of the push, pull or sink that this session carries out for control.
    Order(OrderEvent),
    /// An event for another session.
    Family(FamilyEvent),
    /// An event for a shared port of the worker.
    Port(PortEvent),
    /// Opens or closes a UDP socket of the session's own.
    Socket(SocketEvent),
    /// The session has ended, with the reason for the log. Queued output is sent, then the connection closes. No event
    /// follows.
    Closed(String),
}

/// An answer of the worker to an event of the session, or news from the worker.
#[derive(Debug)]
pub enum Reply<'a> {
    /// News of the publication with this handle.
    Publication(Handle, PublicationNews),
    /// News of the subscription with this handle.
    Subscription(Handle, SubscriptionNews<'a>),
    /// The answer to a request.
    Request(RequestNews<'a>),
    /// The answer to [`Event::Job`].
    Job(JobDone),
    /// News of another session.
    Family(FamilyNews),
    /// News of a shared port.
    Port(PortNews),
}
