//! Calls of the API to other nodes: one connection to the relay of the node for each, over TLS that both sides prove themselves by.

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

/// A node that does not take the connection in this time is not reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 2;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

type Tls = StreamOwned<ClientConnection, TcpStream>;

pub(super) fn run(config: &Arc<ClientConfig>, work: &NodeWork) -> NodeOutcome {
    let Some(mut client) = CallClient::new(&work.cluster, &work.call, clock::now().mono) else {
        return NodeOutcome::NotSent("the call is too large".to_owned());
    };
    match connect(config, work) {
        Ok(mut tls) => converse(&mut client, &mut tls).unwrap_or_else(NodeOutcome::Failed),
        Err(reason) => NodeOutcome::NotSent(reason),
    }
}

/// A connection that has proved to be one to a node of the cluster.
fn connect(config: &Arc<ClientConfig>, work: &NodeWork) -> Result<Tls, String> {
    let addresses = names::resolve(&work.host, work.port)?;
    let mut reason = "its name has no address".to_owned();
    for address in addresses.iter().take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
            Ok(socket) => return secure(config, socket),
            Err(error) => reason = error.kind().to_string(),
        }
    }
    Err(reason)
}

fn secure(config: &Arc<ClientConfig>, mut socket: TcpStream) -> Result<Tls, String> {
    let text = |error: io::Error| error.kind().to_string();
    socket.set_nodelay(true).map_err(text)?;
    socket.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(text)?;
    socket.set_write_timeout(Some(CONNECT_TIMEOUT)).map_err(text)?;
    // Certificates of nodes have no names.
    let name = ServerName::try_from("node").map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(|error| error.to_string())?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).map_err(|_| "the handshake failed".to_owned())?;
    }
    Ok(StreamOwned::new(tls, socket))
}

/// Sends the call and waits for its answer.
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
        tls.sock.set_read_timeout(Some(left.max(Duration::from_millis(1)))).map_err(text)?;
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
