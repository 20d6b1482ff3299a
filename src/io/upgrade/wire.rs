//! The messages between the two processes of an upgrade: frames of JSON on a Unix socket, each preceded by
//! its length. The processes may be of different versions; [`VERSION`] changes if a message changes its
//! meaning.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::directory::{ClaimAnswer, Holder, News, Node, Presence, Process, Request, Subscribed};
use crate::store::{Key, Kind, Op};
use crate::types::{NodeId, StreamKey};

/// Version of the messages.
pub(in crate::io) const VERSION: u32 = 2;
/// Maximum bytes of a frame. A commit has few records, each of which is limited by the API.
const FRAME_BYTES_MAX: u32 = 256 << 20;

/// A message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(in crate::io) enum Frame {
    /// The first message of the older process. Its descriptors follow: one for each socket, and a connection for the
    /// datagrams of each worker.
    Offer {
        version: u32,
        workers: u16,
        sockets: Vec<Socket>,
        /// Secret of the connections between the processes.
        secret: String,
    },
    /// The newer process can take over.
    Ready,
    /// The older process has closed the store.
    Take { process: WireProcess, relay: SocketAddr, claims: Vec<(WireKey, WireHolder)> },
    /// The newer process serves.
    Took {
        process: WireProcess,
        relay: SocketAddr,
        /// Version of the program; empty if the process does not report its version.
        #[serde(default)]
        version: String,
    },
    /// A commit of the older process.
    Commit { batch: u64, ops: Vec<WireOp> },
    /// The answer to a commit. `error` is the reason of a failure.
    Committed { batch: u64, error: Option<String> },
    /// A request of the older process to the directory.
    Ask { request: WireRequest },
    /// News for the older process.
    News { news: WireNews },
}

impl Frame {
    /// Name of the message, for the log. The content may have secrets.
    pub(in crate::io) const fn kind(&self) -> &'static str {
        match self {
            Self::Offer { .. } => "offer",
            Self::Ready => "ready",
            Self::Take { .. } => "take",
            Self::Took { .. } => "took",
            Self::Commit { .. } => "commit",
            Self::Committed { .. } => "committed",
            Self::Ask { .. } => "ask",
            Self::News { .. } => "news",
        }
    }
}

/// A listening socket or a UDP port.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::io) struct Socket {
    /// Name of the listener or port.
    pub(in crate::io) name: String,
    pub(in crate::io) is_udp: bool,
    /// Number of the worker.
    pub(in crate::io) worker: u16,
    pub(in crate::io) address: SocketAddr,
}

/// A process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::io) struct WireProcess {
    name: String,
    number: u64,
}

/// The key of a stream: application and id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::io) struct WireKey(String, String);

/// The holder of a claim to a stream's id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::io) struct WireHolder {
    token: u64,
    process: WireProcess,
}

/// A change of a record: kind, application, id, and content; without content the record is removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::io) struct WireOp(String, String, String, Option<String>);

/// A request to the directory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(in crate::io) enum WireRequest {
    Claim {
        ticket: u64,
        key: WireKey,
    },
    Keep {
        key: WireKey,
        token: u64,
    },
    Release {
        key: WireKey,
        token: u64,
    },
    HandOver {
        key: WireKey,
        token: u64,
        to: WireProcess,
    },
    Bury {
        key: WireKey,
        token: u64,
    },
    /// The use of a one-time token; `op` removes its record.
    Burn {
        ticket: u64,
        op: WireOp,
    },
    Draining {
        is_draining: bool,
    },
    Present {
        key: WireKey,
        subscriber: String,
        count: u32,
    },
}

/// News of the directory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(in crate::io) enum WireNews {
    Foreign { ops: Vec<WireOp> },
    Claim { key: WireKey, holder: Option<WireHolder> },
    Nodes { nodes: Vec<WireNode> },
    Granted { ticket: u64, key: WireKey, token: u64 },
    Taken { ticket: u64, key: WireKey, by: String },
    Burnt { ticket: u64, is_burnt: bool },
    Present { process: WireProcess, key: WireKey, subscriber: String, count: u32 },
}

/// A process, and the address of its relay.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::io) struct WireNode {
    process: WireProcess,
    relay: String,
    is_draining: bool,
}

/// Sends a frame.
pub(in crate::io) fn send(mut to: impl Write, frame: &Frame) -> io::Result<()> {
    let text = serde_json::to_vec(frame)?;
    let length = u32::try_from(text.len()).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let mut bytes = length.ok_or(io::ErrorKind::InvalidData)?.to_be_bytes().to_vec();
    bytes.extend(text);
    to.write_all(&bytes)
}

/// Receives a frame.
pub(in crate::io) fn receive(mut from: impl Read) -> io::Result<Frame> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // The buffer grows with the bytes that arrive.
    let mut text = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut text)?;
    if u32::try_from(text.len()) != Ok(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&text)?)
}

/// Encodes a secret as text.
pub(in crate::io) fn secret_text(secret: &[u8]) -> String {
    BASE64.encode(secret)
}

/// Decodes a secret from its text.
pub(in crate::io) fn secret_of(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

impl WireProcess {
    pub(in crate::io) fn of(process: &Process) -> Self {
        Self { name: process.node.to_string(), number: process.incarnation }
    }

    pub(in crate::io) fn read(self) -> Option<Process> {
        Some(Process { node: NodeId::new(&self.name)?, incarnation: self.number })
    }
}

impl WireKey {
    fn of(key: &StreamKey) -> Self {
        Self(key.app.to_string(), key.id.to_string())
    }

    fn read(self) -> StreamKey {
        StreamKey::new(&self.0, &self.1)
    }
}

impl WireHolder {
    fn of(holder: &Holder) -> Self {
        let process = Process { node: holder.node.clone(), incarnation: holder.incarnation };
        Self { token: holder.token, process: WireProcess::of(&process) }
    }

    fn read(self) -> Option<Holder> {
        let Process { node, incarnation } = self.process.read()?;
        Some(Holder { token: self.token, incarnation, node })
    }
}

/// Converts claims to the form in which they are sent.
pub(in crate::io) fn claims_of<'a>(
    claims: impl IntoIterator<Item = (&'a StreamKey, &'a Holder)>,
) -> Vec<(WireKey, WireHolder)> {
    claims.into_iter().map(|(key, holder)| (WireKey::of(key), WireHolder::of(holder))).collect()
}

/// Converts received claims; claims that are not understood are left out.
pub(in crate::io) fn read_claims(
    claims: Vec<(WireKey, WireHolder)>,
) -> impl Iterator<Item = (StreamKey, Holder)> {
    claims.into_iter().filter_map(|(key, holder)| Some((key.read(), holder.read()?)))
}

impl WireOp {
    fn of(op: &Op) -> Self {
        let Key { kind, app, id } = op.key();
        let content = match op {
            Op::Put(_, bytes) => Some(BASE64.encode(bytes)),
            Op::Delete(_) => None,
        };
        Self(kind.name().to_owned(), app.to_string(), id.to_string(), content)
    }

    fn read(self) -> Option<Op> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == self.0)?;
        let key = Key::new(kind, &self.1, &self.2);
        match self.3 {
            Some(content) => Some(Op::Put(key, Bytes::from(BASE64.decode(content).ok()?))),
            None => Some(Op::Delete(key)),
        }
    }
}

/// Converts changes to the form in which they are sent.
pub(in crate::io) fn ops_of(ops: &[Op]) -> Vec<WireOp> {
    ops.iter().map(WireOp::of).collect()
}

/// Converts received changes; `None` if a change is not understood.
pub(in crate::io) fn read_ops(ops: Vec<WireOp>) -> Option<Vec<Op>> {
    ops.into_iter().map(WireOp::read).collect()
}

impl WireRequest {
    /// Converts a request; `None` if the other process has no use for it.
    pub(in crate::io) fn of(request: Request) -> Option<Self> {
        Some(match request {
            Request::Claim { ticket, key } => Self::Claim { ticket, key: WireKey::of(&key) },
            Request::Keep { key, token } => Self::Keep { key: WireKey::of(&key), token },
            Request::Release { key, token } => Self::Release { key: WireKey::of(&key), token },
            Request::HandOver { key, token, to: (node, incarnation) } => {
                let to = WireProcess::of(&Process { node, incarnation });
                Self::HandOver { key: WireKey::of(&key), token, to }
            }
            Request::Bury { key, token } => Self::Bury { key: WireKey::of(&key), token },
            Request::Burn { ticket, key } => Self::Burn { ticket, op: WireOp::of(&Op::Delete(key)) },
            Request::Draining(is_draining) => Self::Draining { is_draining },
            Request::Present(Subscribed { key, subscriber, count }) => {
                Self::Present { key: WireKey::of(&key), subscriber, count }
            }
            Request::Load { .. } | Request::Refill(_) | Request::Forget(_) | Request::Paired(_) => {
                return None;
            }
        })
    }

    pub(in crate::io) fn read(self) -> Option<Request> {
        Some(match self {
            Self::Claim { ticket, key } => Request::Claim { ticket, key: key.read() },
            Self::Keep { key, token } => Request::Keep { key: key.read(), token },
            Self::Release { key, token } => Request::Release { key: key.read(), token },
            Self::HandOver { key, token, to } => {
                let Process { node, incarnation } = to.read()?;
                Request::HandOver { key: key.read(), token, to: (node, incarnation) }
            }
            Self::Bury { key, token } => Request::Bury { key: key.read(), token },
            Self::Burn { ticket, op } => Request::Burn { ticket, key: op.read()?.key().clone() },
            Self::Draining { is_draining } => Request::Draining(is_draining),
            Self::Present { key, subscriber, count } => {
                Request::Present(Subscribed { key: key.read(), subscriber, count })
            }
        })
    }
}

impl WireNews {
    /// Converts news; `None` if the other process does not need them.
    pub(in crate::io) fn of(news: News) -> Option<Self> {
        Some(match news {
            News::Foreign(ops) => Self::Foreign { ops: ops_of(&ops) },
            News::Claim { key, holder } => {
                Self::Claim { key: WireKey::of(&key), holder: holder.as_ref().map(WireHolder::of) }
            }
            News::Nodes(nodes) => Self::Nodes { nodes: nodes.iter().map(WireNode::of).collect() },
            News::Answer { ticket, key, answer: ClaimAnswer::Granted(token) } => {
                Self::Granted { ticket, key: WireKey::of(&key), token }
            }
            News::Answer { ticket, key, answer: ClaimAnswer::Taken(by) } => {
                Self::Taken { ticket, key: WireKey::of(&key), by: by.to_string() }
            }
            News::Burnt { ticket, is_burnt } => Self::Burnt { ticket, is_burnt },
            News::Present(Presence { node, incarnation, subscribed }) => {
                let Subscribed { key, subscriber, count } = subscribed;
                let process = WireProcess::of(&Process { node, incarnation });
                Self::Present { process, key: WireKey::of(&key), subscriber, count }
            }
            News::Answer { answer: ClaimAnswer::Away, .. }
            | News::Claims(_)
            | News::Presences(_)
            | News::Contact(_)
            | News::Lost
            | News::ClockSet
            | News::Pair(_) => return None,
        })
    }

    pub(in crate::io) fn read(self) -> Option<News> {
        Some(match self {
            Self::Foreign { ops } => News::Foreign(read_ops(ops)?),
            Self::Claim { key, holder: None } => News::Claim { key: key.read(), holder: None },
            Self::Claim { key, holder: Some(holder) } => {
                News::Claim { key: key.read(), holder: Some(holder.read()?) }
            }
            Self::Nodes { nodes } => {
                News::Nodes(nodes.into_iter().map(WireNode::read).collect::<Option<_>>()?)
            }
            Self::Granted { ticket, key, token } => {
                News::Answer { ticket, key: key.read(), answer: ClaimAnswer::Granted(token) }
            }
            Self::Taken { ticket, key, by } => {
                News::Answer { ticket, key: key.read(), answer: ClaimAnswer::Taken(NodeId::new(&by)?) }
            }
            Self::Burnt { ticket, is_burnt } => News::Burnt { ticket, is_burnt },
            Self::Present { process, key, subscriber, count } => {
                let Process { node, incarnation } = process.read()?;
                let subscribed = Subscribed { key: key.read(), subscriber, count };
                News::Present(Presence { node, incarnation, subscribed })
            }
        })
    }
}

impl WireNode {
    fn of(node: &Node) -> Self {
        let process = Process { node: node.id.clone(), incarnation: node.incarnation };
        let (relay, is_draining) = (node.profile.relay.to_string(), node.profile.is_draining);
        Self { process: WireProcess::of(&process), relay, is_draining }
    }

    fn read(self) -> Option<Node> {
        let mut node = Node::of(self.process.read()?, &self.relay);
        node.profile.is_draining = self.is_draining;
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        Process { node: NodeId::new("process-7").unwrap(), incarnation: 7 }
    }

    /// Encodes and decodes a frame.
    fn passed(frame: &Frame) -> Frame {
        let mut bytes = Vec::new();
        send(&mut bytes, frame).unwrap();
        let mut rest = bytes.as_slice();
        let read = receive(&mut rest).unwrap();
        assert!(rest.is_empty());
        for cut in [0, 3, bytes.len() - 1] {
            let error = receive(&bytes[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
        read
    }

    #[test]
    fn requests_and_news_arrive_as_they_were_sent() {
        let key = StreamKey::new("live", "s");
        let requests = [
            Request::Claim { ticket: 1, key: key.clone() },
            Request::Keep { key: key.clone(), token: 2 },
            Request::Release { key: key.clone(), token: 3 },
            Request::HandOver { key: key.clone(), token: 4, to: (process().node, 7) },
            Request::Bury { key: key.clone(), token: 5 },
            Request::Burn { ticket: 6, key: Key::new(Kind::Token, "live", "s/t") },
            Request::Draining(true),
            Request::Present(Subscribed { key: key.clone(), subscriber: "x".to_owned(), count: 2 }),
        ];
        for request in requests {
            let frame = Frame::Ask { request: WireRequest::of(request.clone()).unwrap() };
            let Frame::Ask { request: read } = passed(&frame) else { panic!() };
            assert_eq!(read.read(), Some(request));
        }
        assert!(WireRequest::of(Request::Load { cpu: 1, memory: 2 }).is_none());
        let holder = Holder { token: 9, incarnation: 7, node: process().node };
        let subscribed = Subscribed { key: key.clone(), subscriber: "x".to_owned(), count: 2 };
        let ops =
            vec![Op::Put(key.clone().into(), Bytes::from_static(b"{\"\xff")), Op::Delete(key.clone().into())];
        let all = [
            News::Foreign(ops),
            News::Claim { key: key.clone(), holder: Some(holder) },
            News::Claim { key: key.clone(), holder: None },
            News::Nodes(vec![Node::of(process(), "127.0.0.1:5")]),
            News::Answer { ticket: 1, key: key.clone(), answer: ClaimAnswer::Granted(3) },
            News::Answer { ticket: 1, key, answer: ClaimAnswer::Taken(process().node) },
            News::Burnt { ticket: 4, is_burnt: true },
            News::Present(Presence { node: process().node, incarnation: 7, subscribed }),
        ];
        for news in all {
            let frame = Frame::News { news: WireNews::of(news.clone()).unwrap() };
            let Frame::News { news: read } = passed(&frame) else { panic!() };
            assert_eq!(read.read(), Some(news));
        }
        assert!(WireNews::of(News::Lost).is_none());
    }

    #[test]
    fn a_frame_that_is_too_long_or_no_message_is_refused() {
        for bytes in [&b"\xff\xff\xff\xff{}"[..], b"\0\0\0\x02{}", b"\0\0\0\x01x"] {
            let error = receive(bytes).unwrap_err();
            assert!(
                matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
                "{error:?}"
            );
        }
    }
}
