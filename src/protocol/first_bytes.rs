//! Ports of one protocol that other protocols may share: the first bytes of a connection determine its protocol.
//!
//! A firewall that allows only HTTPS also allows every other protocol inside TLS on the port of HTTPS. The
//! connection begins as a session of the port's own protocol, which handles its network path and deadlines. If the
//! first bytes are those of another protocol, a session of that protocol replaces it before either has read
//! anything.

use std::net::SocketAddr;
use std::sync::Arc;

use crypto::Seed;
use wire::SendQueue;

use super::row::{Listener, Security};
use super::{
    About, ByteStream, Carrier, Context, DatagramPeer, Event, PathEvent, PathId, Paths, Reply, Session,
    Timers, UnitSink,
};
use crate::mail::SessionSettings;
use crate::stats::Figures;
use crate::types::Now;

/// Maximum number of bytes examined: enough for the longest method of RTSP and `rtsp:` after it.
const LOOKED_AT: usize = 24;

/// The verdict of a protocol on the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    /// The connection speaks the protocol.
    Yes,
    /// The connection speaks another protocol.
    No,
    /// More bytes are needed.
    Unknown,
}

impl Guess {
    /// Compares the bytes with the first bytes of a protocol.
    pub(super) fn by_prefix(bytes: &[u8], prefix: &[u8]) -> Self {
        let common = bytes.len().min(prefix.len());
        if bytes.get(..common) != prefix.get(..common) {
            Self::No
        } else if common == prefix.len() {
            Self::Yes
        } else {
            Self::Unknown
        }
    }
}

/// The role of a listener at shared ports.
#[derive(Debug, Clone, Copy)]
pub(super) enum FirstBytes {
    /// The protocol is spoken only at its own port, which it does not share.
    Own,
    /// The protocol is recognised at the shared ports of other protocols.
    Recognised(fn(&[u8]) -> Guess),
    /// Other protocols may share the port if the settings say so.
    Shared(fn(&SessionSettings) -> bool),
}

impl FirstBytes {
    /// True if other protocols share the port.
    fn is_shared(&self, server: &SessionSettings) -> bool {
        match self {
            Self::Shared(is_shared) => is_shared(server),
            Self::Own | Self::Recognised(_) => false,
        }
    }
}

/// Begins the session of an accepted connection at a port that other protocols may share.
pub(super) fn begin(
    (now, server): (Now, &SessionSettings),
    listener: &Listener,
    peer: SocketAddr,
    seed: Seed,
) -> Box<dyn Session> {
    if !listener.first_bytes.is_shared(server) {
        return listener.begin_own(now, peer, seed);
    }
    let others = others(listener.security, server);
    let inner = listener.begin_own(now, peer, seed.derive("own protocol", 0));
    Box::new(Undecided { inner, open: Some(Open { peer, seed, others, held: Vec::new() }) })
}

/// Returns the listeners whose protocols may be spoken at a shared port with this security. Disabled protocols are
/// left out.
fn others(security: Security, server: &SessionSettings) -> Vec<&'static Listener> {
    let layer = match security {
        Security::TlsHttp => Security::Tls,
        Security::Plain | Security::Tls | Security::Nodes => security,
    };
    let is_on = |listener: &&Listener| server.site.bound.iter().any(|(name, _)| *name == listener.name);
    let is_told = |listener: &&Listener| matches!(listener.first_bytes, FirstBytes::Recognised(_));
    Listener::all().filter(|one| one.security == layer).filter(is_told).filter(is_on).collect()
}

/// Returns the number of a shared port at which a listener of this name is recognised; `None` if there is none, or the
/// listener is off.
pub(super) fn shared_port(server: &SessionSettings, name: &str) -> Option<u16> {
    let mut shared = Listener::all().filter(|listener| listener.first_bytes.is_shared(server));
    let at = shared.find(|at| others(at.security, server).iter().any(|other| other.name == name))?;
    let (_, address) = server.site.bound.iter().find(|(bound, _)| *bound == at.name)?;
    Some(address.port())
}

/// The session of a connection to a shared port.
#[derive(Debug)]
struct Undecided {
    /// The session of the port's own protocol, or the session that has replaced it.
    inner: Box<dyn Session>,
    /// The undecided choice of protocol; `None` once it is decided.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    peer: SocketAddr,
    seed: Seed,
    others: Vec<&'static Listener>,
    held: Vec<u8>,
}

impl Open {
    /// Returns the listener of the detected protocol, or `Ok(None)` if it is the port's own protocol; `Err` if more
    /// bytes are needed.
    fn decide(&self) -> Result<Option<&'static Listener>, ()> {
        let mut is_unknown = false;
        for listener in &self.others {
            let FirstBytes::Recognised(guess) = listener.first_bytes else { continue };
            match guess(&self.held) {
                Guess::Yes => return Ok(Some(listener)),
                Guess::No => {}
                Guess::Unknown => is_unknown = true,
            }
        }
        if is_unknown && self.held.len() < LOOKED_AT { Err(()) } else { Ok(None) }
    }
}

impl Undecided {
    fn pass(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Some(stream) = self.inner.byte_stream() {
            stream.handle_bytes(ctx, bytes);
        }
    }
}

impl Session for Undecided {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        self.inner.handle_reply(ctx, reply);
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.inner.close(ctx, reason);
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        self.inner.poll_event(ctx)
    }

    fn about(&self) -> About {
        self.inner.about()
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        self.inner.timers()
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        if self.open.is_some() { Some(self) } else { self.inner.paths() }
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        if self.open.is_some() { Some(self) } else { self.inner.byte_stream() }
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        self.inner.datagrams()
    }

    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        self.inner.carrier()
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        self.inner.unit_sink()
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        self.inner.figures()
    }
}

impl Paths for Undecided {
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>) {
        // The TLS handshake has negotiated the port's own protocol, so the first bytes need not be compared.
        if matches!(event, PathEvent::Negotiated(_)) {
            self.open = None;
        }
        if let Some(paths) = self.inner.paths() {
            paths.handle_path(ctx, path, event);
        }
    }
}

impl ByteStream for Undecided {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        let Some(open) = &mut self.open else { return self.pass(ctx, bytes) };
        open.held.extend_from_slice(bytes);
        let Ok(chosen) = open.decide() else { return };
        let Some(Open { peer, seed, held, .. }) = self.open.take() else { return };
        if let Some(listener) = chosen {
            self.inner = listener.begin_own(ctx.now, peer, seed.derive("other protocol", 0));
        }
        self.pass(ctx, &held);
    }

    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize) {
        if let Some(stream) = self.inner.byte_stream() {
            stream.handle_sent(ctx, bytes);
        }
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(stream) = self.inner.byte_stream() {
            stream.poll_transmit(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::config::ServerSettings;
    use crate::hub::Blobs;
    use crate::mail::Site;
    use crate::protocol::{Apps, schema};

    fn server(shared: &str, bound: &[&'static str]) -> SessionSettings {
        let settings = ServerSettings::of(schema(), &[("http.shared_ports", shared)]).unwrap();
        let bound =
            bound.iter().zip(1000..).map(|(name, port)| (*name, ([0, 0, 0, 0], port).into())).collect();
        SessionSettings::of(&settings, "node", Arc::new(Site { bound, ..Site::default() }))
    }

    /// Returns the protocol that is detected when `bytes` arrive in pieces of `piece` bytes.
    fn protocol(server: &SessionSettings, listener: &str, bytes: &[u8], piece: usize) -> &'static str {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let (apps, blobs) = (Apps::new(), Blobs::default());
        let ctx = Context { now, apps: &apps, server, blobs: &blobs, draining: false };
        let listener = Listener::named(listener).unwrap();
        let mut session = listener.begin(now, server, ([192, 0, 2, 1], 7).into(), Seed::from_number(1));
        for piece in bytes.chunks(piece) {
            session.byte_stream().unwrap().handle_bytes(&ctx, piece);
        }
        session.about().protocol
    }

    const STUN: [u8; 20] = [0, 3, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    const NAMES: [&str; 8] = ["http", "https", "rtmp", "rtmps", "rtsp", "rtsps", "turn-tcp", "turns"];

    #[test]
    fn the_first_bytes_tell_the_protocol_however_they_are_cut() {
        let server = server("true", &NAMES);
        for (bytes, wanted) in [
            (&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..], "http"),
            (b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "http"),
            (b"OPTIONS /live/whep/a HTTP/1.1\r\nHost: h\r\n\r\n", "http"),
            (b"POST http://h/rtsp HTTP/1.1\r\nHost: h\r\n\r\n", "http"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"),
            (b"OPTIONS rtsp://h/live/a RTSP/1.0\r\nCSeq: 1\r\n\r\n", "rtsp"),
            (b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", "rtsp"),
            (b"ANNOUNCE rtsp://h/live/a RTSP/1.0\r\nCSeq: 1\r\n\r\n", "rtsp"),
            (b"\x03\0\0\0\0\0\0\0\0", "rtmp"),
            (&STUN, "turn-tcp"),
            // A STUN magic cookie at a wrong offset, and bytes of no known protocol.
            (b"\0\x14\0\x01\0\0\x21\x12\xa4\x42\0\0\0\0\0\0\0\0\0\0\0\0", "http"),
            (b"GIBBERISHGIBBERISHGIBBERISHGIBBERISH", "http"),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "http"),
        ] {
            for piece in [1, 2, 5, bytes.len()] {
                for listener in ["http", "https"] {
                    let text = String::from_utf8_lossy(bytes);
                    assert_eq!(protocol(&server, listener, bytes, piece), wanted, "{text:?} at {listener}");
                }
            }
        }
    }

    #[test]
    fn a_protocol_that_is_off_comes_in_nowhere() {
        for (shared, bound) in [("false", &NAMES[..]), ("true", &["http", "https"])] {
            let server = server(shared, bound);
            for listener in ["http", "https"] {
                assert_eq!(protocol(&server, listener, b"\x03\0\0\0", 1), "http");
                assert_eq!(protocol(&server, listener, &STUN, 20), "http");
            }
            assert_eq!(shared_port(&server, "turns"), None);
        }
        let shared = server("true", &NAMES);
        assert_eq!(
            (shared_port(&shared, "turns"), shared_port(&shared, "turn-tcp")),
            (Some(1001), Some(1000))
        );
        assert_eq!(protocol(&shared, "rtmp", b"GET / HTTP/1.1\r\n\r\n", 4), "rtmp", "its port is its own");
    }

    #[test]
    fn a_protocol_agreed_upon_in_tls_is_not_guessed() {
        let server = server("true", &NAMES);
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let (apps, blobs) = (Apps::new(), Blobs::default());
        let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
        let listener = Listener::named("https").unwrap();
        let mut session = listener.begin(now, &server, ([192, 0, 2, 1], 7).into(), Seed::from_number(1));
        session.paths().unwrap().handle_path(&ctx, PathId::default(), PathEvent::Negotiated("h2"));
        session.byte_stream().unwrap().handle_bytes(&ctx, b"\x03\0\0\0");
        assert_eq!(session.about().protocol, "http");
    }
}
