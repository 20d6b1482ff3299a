//! API calls to other nodes. Each call has its own connection to the node's relay, over TLS; both sides prove
//! that they belong to the cluster.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use relay::{CallClient, CallEvent};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use wire::SendQueue;

use super::names;
use crate::io::clock;
use crate::jobs::{NodeOutcome, NodeWork};

/// Time limit for connecting to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum timeout of a socket. A timeout of zero would mean that there is none.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 2;
/// Maximum number of bytes read by one call.
const READ_BYTES: usize = 16 * 1024;

type Tls = StreamOwned<ClientConnection, TcpStream>;

pub(super) fn run(config: &Arc<ClientConfig>, work: &NodeWork) -> NodeOutcome {
    if left(work).is_zero() {
        return NodeOutcome::NotSent("calls to nodes have waited too long".to_owned());
    }
    let Some(mut client) = CallClient::new(&work.cluster, &work.call, work.until) else {
        return NodeOutcome::NotSent("the call is too large".to_owned());
    };
    match connect(config, work) {
        Ok(mut tls) => converse(&mut client, &mut tls).unwrap_or_else(NodeOutcome::Failed),
        Err(reason) => NodeOutcome::NotSent(reason),
    }
}

/// Returns the time left for a call.
fn left(work: &NodeWork) -> Duration {
    work.until.saturating_duration_since(clock::now().mono)
}

/// Connects to a node and verifies that it belongs to the cluster.
fn connect(config: &Arc<ClientConfig>, work: &NodeWork) -> Result<Tls, String> {
    let addresses = names::resolve(&work.host, work.port)?;
    let mut reason = "its name has no address".to_owned();
    for address in addresses.iter().take(ADDRESSES_MAX) {
        let timeout = CONNECT_TIMEOUT.min(left(work)).max(TIMEOUT_MIN);
        match TcpStream::connect_timeout(address, timeout) {
            Ok(socket) => return secure(config, socket, timeout),
            Err(error) => reason = error.kind().to_string(),
        }
    }
    Err(reason)
}

fn secure(config: &Arc<ClientConfig>, mut socket: TcpStream, timeout: Duration) -> Result<Tls, String> {
    let text = |error: io::Error| error.kind().to_string();
    socket.set_nodelay(true).map_err(text)?;
    socket.set_read_timeout(Some(timeout)).map_err(text)?;
    socket.set_write_timeout(Some(timeout)).map_err(text)?;
    // Any name will do, because the certificates of nodes contain no names.
    let name = ServerName::try_from("node").map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(|error| error.to_string())?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).map_err(|_| "the handshake failed".to_owned())?;
    }
    Ok(StreamOwned::new(tls, socket))
}

/// Sends the call and waits for the answer.
fn converse(client: &mut CallClient, tls: &mut Tls) -> Result<NodeOutcome, String> {
    let mut out = SendQueue::new();
    client.poll_transmit(&mut out);
    let text = |error: io::Error| error.kind().to_string();
    tls.write_all(&out.take_all()).and_then(|()| tls.flush()).map_err(text)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match client.poll_event() {
            Some(CallEvent::Answered(answer)) => return Ok(NodeOutcome::Answered(answer)),
            Some(CallEvent::Refused(_, reason)) => return Ok(NodeOutcome::NotSent(reason)),
            Some(CallEvent::Closed) => return Err("the connection ended".to_owned()),
            None => {}
        }
        let now = clock::now().mono;
        let Some(left) = client.poll_timeout().map(|until| until.saturating_duration_since(now)) else {
            continue;
        };
        tls.sock.set_read_timeout(Some(left.max(TIMEOUT_MIN))).map_err(text)?;
        let read = match tls.read(&mut buffer) {
            Ok(0) => return Err("the node closed the connection".to_owned()),
            Ok(length) => length,
            Err(error) if is_timeout(&error) => 0,
            Err(error) => return Err(text(error)),
        };
        let now = clock::now().mono;
        let bytes = buffer.get(..read).unwrap_or_default();
        client.handle_bytes(now, bytes).map_err(|error| error.to_string())?;
        client.handle_timeout(now).map_err(|error| error.to_string())?;
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use relay::Call;

    use super::*;
    use crate::io::tls::NodeConfigs;

    #[test]
    fn a_call_that_has_waited_until_its_caller_gave_up_is_not_sent() {
        let config = NodeConfigs::of_secret(b"secret").unwrap().client;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let call = Call {
            method: "DELETE".to_owned(),
            path: "/live/rest/v2/broadcasts/s".to_owned(),
            query: Vec::new(),
            content_type: String::new(),
            body: bytes::Bytes::new(),
            user: String::new(),
            address: String::new(),
            sees_credentials: false,
        };
        let work = NodeWork {
            cluster: "c".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            call,
            until: clock::now().mono,
        };
        assert!(matches!(run(&config, &work), NodeOutcome::NotSent(_)));
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "nobody was connected to"
        );
    }
}
