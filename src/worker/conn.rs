//! A session of a worker with its network paths, publications, subscriptions and figures.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use wire::SendQueue;

use crate::hub::Subscriber;
use crate::protocol::{Format, PathId, PlayAsk, Port, Remote, Session};
use crate::stats::Traffic;
use crate::types::{ConnId, Handle, PullId, PushId, RecordingId, StreamId, StreamKey};
use media::{Codec, TrackId};

/// Time after which a connection is closed if its socket accepts nothing although output waits.
const WRITE_STALL: Duration = Duration::from_secs(30);
/// Time after which a push is closed if its socket accepts nothing. Shorter than [`WRITE_STALL`], because the push's
/// supervisor opens a new connection.
const PUSH_STALL: Duration = Duration::from_secs(10);
/// Time after which a connection that is being closed is dropped if its socket accepts none of the remaining bytes.
pub const CLOSE_STALL: Duration = Duration::from_secs(5);
/// Maximum number of publications, and of subscriptions, of one session.
pub(super) const ROLES_MAX: usize = 64;
/// Maximum number of sessions that one session may create. It is larger than the maximum number of streams of an
/// HTTP/2 connection.
pub(super) const CHILDREN_MAX: usize = 128;

/// The reason for which a session exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Serves a peer.
    Peer,
    /// Sends a stream to another server: one attempt of a push.
    Push { push: PushId, attempt: u64, stream: StreamId },
    /// Fetches a stream from another server: one attempt of a pull.
    Pull { pull: PullId, attempt: u64 },
    /// Takes a stream for use by the server itself.
    Sink { stream: StreamId, kind: &'static str },
    /// Records a stream.
    Recording { recording: RecordingId, stream: StreamId },
    /// Makes a derived track of a stream.
    Producer { stream: StreamId, track: TrackId },
    /// Finishes a task that control has ended: control no longer wants reports about this session.
    Ended,
}

impl Purpose {
    /// Returns the stream that the server assigned to the session.
    pub(super) const fn stream(self) -> Option<StreamId> {
        match self {
            Self::Push { stream, .. }
            | Self::Sink { stream, .. }
            | Self::Recording { stream, .. }
            | Self::Producer { stream, .. } => Some(stream),
            Self::Peer | Self::Pull { .. } | Self::Ended => None,
        }
    }
}

/// A stream that a session publishes or asks to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Publication {
    pub(super) handle: Handle,
    /// The stream, or `None` while control decides.
    pub(super) stream: Option<StreamId>,
}

/// A stream that a session plays or asks to play.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) handle: Handle,
    pub(super) state: SubscriptionState,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large state is the one that lasts, and every write goes through it"
)]
pub(super) enum SubscriptionState {
    /// Control was asked whether the stream may be played, and has not answered yet.
    Asked(Box<PlayAsk>),
    /// The stream is being started. The request waits for the stream until `until`.
    Held { ask: Box<PlayAsk>, until: Instant },
    /// The viewer watches a main track: no stream is sent over this subscription. The viewer is notified of the main
    /// track's streams, and plays each of them with another subscription. `told` is true once control was notified.
    Room { told: bool },
    /// The stream is being sent.
    Playing(Playing),
}

/// A subscription that is being sent its stream.
#[derive(Debug)]
pub(super) struct Playing {
    pub(super) subscriber: Subscriber,
    pub(super) format: Format,
    /// True if control was notified of the subscription.
    pub(super) told: bool,
    /// The tracks that the format of a push cannot carry, as last reported to control.
    pub(super) left_out: Vec<Codec>,
    /// If the subscriber is a node: the viewers of that node's copy of the stream, as reported by the node.
    pub(super) audience: Option<Box<relay::Viewers>>,
}

impl Subscription {
    pub(super) const fn playing(&self) -> Option<&Playing> {
        match &self.state {
            SubscriptionState::Playing(playing) => Some(playing),
            SubscriptionState::Asked(_) | SubscriptionState::Held { .. } | SubscriptionState::Room { .. } => {
                None
            }
        }
    }

    pub(super) const fn playing_mut(&mut self) -> Option<&mut Playing> {
        match &mut self.state {
            SubscriptionState::Playing(playing) => Some(playing),
            SubscriptionState::Asked(_) | SubscriptionState::Held { .. } | SubscriptionState::Room { .. } => {
                None
            }
        }
    }
}

/// The state of a byte stream's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// The connection is not established yet.
    Connecting,
    /// The socket accepts bytes.
    Open,
    /// The socket accepted less than was offered. It reports when it accepts more.
    Blocked,
}

/// The byte stream of a session.
#[derive(Debug)]
pub(super) struct ByteLink {
    pub(super) queue: SendQueue,
    pub(super) flow: Flow,
    /// True if the shell, i.e. the I/O code, was told not to read from the socket for now.
    pub(super) reads_paused: bool,
    /// Time since which output has been waiting for the socket; `None` if no output waits.
    pub(super) waits_since: Option<Instant>,
    /// Number of bytes that the socket has accepted and that were not reported to the session yet.
    pub(super) untold: usize,
    /// True if another worker has accepted the connection and handed it over.
    pub(super) was_handed_over: bool,
}

impl ByteLink {
    fn new(flow: Flow) -> Self {
        Self {
            queue: SendQueue::new(),
            flow,
            reads_paused: false,
            waits_since: None,
            untold: 0,
            was_handed_over: false,
        }
    }
}

/// A network path of a session's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatagramPath {
    /// Through a port shared by many peers.
    Port(&'static Port, Remote),
    /// Over a socket of the session's own.
    Socket(PathId),
}

impl DatagramPath {
    pub(super) const fn id(&self) -> PathId {
        match self {
            Self::Port(..) => PathId(0),
            Self::Socket(id) => *id,
        }
    }
}

/// The datagram side of a session.
#[derive(Debug, Default)]
pub(super) struct DatagramLink {
    pub(super) paths: SmallVec<[DatagramPath; 1]>,
    /// True if the session may have datagrams to send.
    pub(super) unsent: bool,
}

/// The membership of a session in the worker's work lists.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Schedule {
    /// True if the session is listed to be drained of events and output in this turn.
    pub(super) dirty: bool,
    /// True if the session is in the write queue.
    pub(super) writing: bool,
    /// True if the last write did not send all output. The session then writes after those that keep up.
    pub(super) catches_up: bool,
    /// True if the session's sink has taken all available units. The session is queued again when there are more.
    pub(super) sated: bool,
    /// The earliest deadline of the session in the deadline table.
    pub(super) armed: Option<Instant>,
}

/// The counters of a session.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) began: Instant,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// The stream that the session published or played last, for the log.
    pub(super) key: Option<StreamKey>,
    /// The protocol that the session's bytes are counted under, as the session reported.
    pub(super) protocol: &'static str,
    /// The server's reason for ending the session's stream or connection; the session itself does not know it.
    pub(super) cause: Option<Cow<'static, str>>,
    /// True if the session carries media, as it reported.
    pub(super) is_media: bool,
    /// Bytes received and sent that were already counted under another protocol.
    pub(super) counted: (u64, u64),
    /// Number of times that ended subscriptions of the session had jumped ahead in their streams, because they
    /// lagged.
    pub(super) jumps: u64,
    /// Units skipped by subscriptions that have ended.
    pub(super) skipped: u64,
}

impl Figures {
    /// Adds the session's bytes to `row`, the traffic of its present protocol, except those that were already counted
    /// under another protocol.
    pub(super) fn count_into(&self, row: &mut Traffic) {
        let (bytes_in, bytes_out) = self.counted;
        row.bytes_in = row.bytes_in.saturating_add(self.bytes_in.saturating_sub(bytes_in));
        row.bytes_out = row.bytes_out.saturating_add(self.bytes_out.saturating_sub(bytes_out));
    }
}

/// Parent and children of a session.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) parent: Option<ConnId>,
    pub(super) children: Vec<ConnId>,
    /// True if the session has taken part in calls. Control is then notified when the session ends.
    pub(super) calls: bool,
}

/// A session and all that belongs to it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) peer: SocketAddr,
    /// Address of the client, if the peer is a trusted proxy.
    pub(super) behind: Option<IpAddr>,
    pub(super) session: Box<dyn Session>,
    pub(super) purpose: Purpose,
    pub(super) bytes: Option<ByteLink>,
    pub(super) datagrams: Option<DatagramLink>,
    /// True if the session takes the units of its streams as they are, like a recording. Other sessions are sent the
    /// units as bytes or datagrams of a format.
    pub(super) takes_units: bool,
    pub(super) publications: SmallVec<[Publication; 1]>,
    pub(super) subscriptions: SmallVec<[Subscription; 1]>,
    pub(super) schedule: Schedule,
    /// `Some` if the session is to be closed once all its output is sent; the string is the reason.
    pub(super) closing: Option<String>,
    pub(super) figures: Figures,
    pub(super) family: Option<Box<Family>>,
    /// True if the session is receiving a file and its outcome was not yet reported to control.
    pub(super) uploads: bool,
    /// True if the session has panicked and is about to be removed.
    pub(super) has_panicked: bool,
}

impl Conn {
    /// Makes a session on an established byte stream.
    pub(super) fn new(peer: SocketAddr, session: Box<dyn Session>, now: Instant) -> Self {
        Self { bytes: Some(ByteLink::new(Flow::Open)), ..Self::bare(peer, session, now) }
    }

    /// Makes a session on a byte stream that is being established.
    pub(super) fn connecting(peer: SocketAddr, session: Box<dyn Session>, now: Instant) -> Self {
        Self { bytes: Some(ByteLink::new(Flow::Connecting)), ..Self::bare(peer, session, now) }
    }

    /// Replaces the byte stream by a new one, whose connection is being established.
    pub(super) fn reconnect(&mut self) {
        self.bytes = Some(ByteLink::new(Flow::Connecting));
    }

    /// Makes a session over datagrams.
    pub(super) fn datagrams(
        peer: SocketAddr,
        session: Box<dyn Session>,
        path: Option<DatagramPath>,
        now: Instant,
    ) -> Self {
        let link = DatagramLink { paths: path.into_iter().collect(), unsent: false };
        Self { datagrams: Some(link), ..Self::bare(peer, session, now) }
    }

    /// Makes a session without a network path.
    pub(super) fn bare(peer: SocketAddr, mut session: Box<dyn Session>, now: Instant) -> Self {
        let about = session.about();
        let takes_units = session.unit_sink().is_some();
        Self {
            peer,
            behind: None,
            session,
            purpose: Purpose::Peer,
            bytes: None,
            datagrams: None,
            takes_units,
            publications: SmallVec::new(),
            subscriptions: SmallVec::new(),
            schedule: Schedule::default(),
            closing: None,
            figures: Figures {
                key: None,
                cause: None,
                began: now,
                bytes_in: 0,
                bytes_out: 0,
                protocol: about.protocol,
                is_media: about.is_media,
                counted: (0, 0),
                jumps: 0,
                skipped: 0,
            },
            family: None,
            uploads: false,
            has_panicked: false,
        }
    }

    /// Returns the address of the client: the one that a trusted proxy named, else that of the peer.
    pub(super) fn client(&self) -> SocketAddr {
        self.behind.map_or(self.peer, |client| SocketAddr::new(client, self.peer.port()))
    }

    pub(super) fn publication_mut(&mut self, handle: Handle) -> Option<&mut Publication> {
        self.publications.iter_mut().find(|publication| publication.handle == handle)
    }

    pub(super) fn publication(&self, handle: Handle) -> Option<&Publication> {
        self.publications.iter().find(|publication| publication.handle == handle)
    }

    /// Returns the publication that feeds a stream.
    pub(super) fn publication_of(&self, stream: StreamId) -> Option<Handle> {
        let feeds = |publication: &&Publication| publication.stream == Some(stream);
        self.publications.iter().find(feeds).map(|publication| publication.handle)
    }

    pub(super) fn subscription(&self, handle: Handle) -> Option<&Subscription> {
        self.subscriptions.iter().find(|subscription| subscription.handle == handle)
    }

    pub(super) fn subscription_mut(&mut self, handle: Handle) -> Option<&mut Subscription> {
        self.subscriptions.iter_mut().find(|subscription| subscription.handle == handle)
    }

    /// Returns the subscriptions to which streams are being sent.
    pub(super) fn playing(&self) -> impl Iterator<Item = &Playing> {
        self.subscriptions.iter().filter_map(Subscription::playing)
    }

    /// True if the session has something to send besides new units of its subscriptions.
    pub(super) fn has_own_bytes(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|link| link.unsent)
            // Nothing can be sent before the connection is established.
            || self.bytes.as_ref().is_some_and(|link| link.flow != Flow::Connecting && !link.queue.is_empty())
            || self.playing().any(|playing| playing.subscriber.cursor.has_rest())
    }

    /// True if an outgoing connection of the session is not established yet.
    pub(super) fn is_connecting(&self) -> bool {
        let no_path = |link: &DatagramLink| link.paths.is_empty();
        self.bytes.as_ref().is_some_and(|link| link.flow == Flow::Connecting)
            || (self.bytes.is_none() && self.datagrams.as_ref().is_some_and(no_path))
    }

    /// Returns the time at which the connection is closed if its socket continues to accept nothing.
    pub(super) fn stall_deadline(&self) -> Option<Instant> {
        let patience = match (&self.closing, self.purpose) {
            (Some(_), _) => CLOSE_STALL,
            (None, Purpose::Push { .. }) => PUSH_STALL,
            (None, _) => WRITE_STALL,
        };
        self.bytes.as_ref()?.waits_since.map(|since| since + patience)
    }

    /// Returns the next deadline of the connection, its session and its subscriptions.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let own = self.session.timers().and_then(|timers| timers.poll_timeout());
        let held = self.subscriptions.iter().filter_map(|subscription| match &subscription.state {
            SubscriptionState::Held { until, .. } => Some(*until),
            SubscriptionState::Asked(_) | SubscriptionState::Room { .. } | SubscriptionState::Playing(_) => {
                None
            }
        });
        held.chain(own).chain(self.stall_deadline()).min()
    }
}
