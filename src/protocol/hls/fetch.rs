//! Requests one after another: over the present connection, or over a new one to another server.

use ::hls::Request;

use crate::auth::url::{self, Url};
use crate::http::USER_AGENT;
use crate::http::client::{self, ResponseEvent, ResponseHead, ResponseReader};
use crate::mail::NextServer;

const OK: u16 = 200;
const PARTIAL: u16 = 206;

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fetched {
    /// More of the body.
    Body(bytes::Bytes),
    /// The body is complete.
    End,
    /// The resource is at another address.
    Moved(String),
    /// The resource could not be fetched.
    Failed(String),
}

/// The destination of a request.
#[derive(Debug)]
pub(super) enum Go {
    /// Sends these bytes over the present connection.
    Here(String),
    /// Connects to this server first; [`Fetch::connected`] then returns the bytes.
    To(NextServer),
}

/// The requests of a pull or a viewer, one at a time.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    /// The server of the connection, while the connection can be used.
    server: Option<NextServer>,
    /// The next server and the request for it, while there is no connection to it.
    next: Option<(NextServer, String)>,
    response: Option<ResponseReader>,
    /// True once the head of the response has arrived.
    has_head: bool,
    /// The requested range of bytes.
    range: Option<(u64, u64)>,
    /// True if the server closes the connection after this response.
    closes: bool,
}

impl Fetch {
    /// Creates a fetch with a connection to the server of this URL.
    pub(super) fn new(url: &str) -> Self {
        Self { server: target_of(url).map(|(server, ..)| server), ..Self::default() }
    }

    /// True if the server has not begun to answer.
    pub(super) const fn awaits_head(&self) -> bool {
        self.response.is_some() && !self.has_head
    }

    /// Returns the server of the connection, while it can be used.
    pub(super) const fn server(&self) -> Option<&NextServer> {
        self.server.as_ref()
    }

    /// True if the connection can be used.
    pub(super) const fn is_connected(&self) -> bool {
        self.server.is_some()
    }

    /// True if a connection to the next server is being made.
    pub(super) const fn is_moving(&self) -> bool {
        self.next.is_some()
    }

    /// Begins a request. Returns `None` if its URL names no server.
    pub(super) fn ask(&mut self, request: &Request) -> Option<Go> {
        let (server, authority, target) = target_of(&request.url)?;
        let text = client::get_part(USER_AGENT, &authority, &target, request.range);
        (self.range, self.has_head) = (request.range, false);
        if self.server.as_ref() == Some(&server) {
            self.begin_response();
            return Some(Go::Here(text));
        }
        self.server = None;
        self.next = Some((server.clone(), text));
        Some(Go::To(server))
    }

    /// Notes that the next server is connected, and returns the bytes to send.
    pub(super) fn connected(&mut self) -> Option<String> {
        let (server, text) = self.next.take()?;
        self.server = Some(server);
        self.begin_response();
        Some(text)
    }

    fn begin_response(&mut self) {
        self.response = Some(ResponseReader::new());
        self.closes = false;
    }

    /// Takes bytes from the server.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8], out: &mut Vec<Fetched>) {
        let Some(response) = &mut self.response else { return };
        let read = response.handle_bytes(bytes);
        self.take(out);
        if let Err(error) = read {
            self.fail(&error.to_string(), out);
        }
    }

    /// Notes that the connection is closed.
    pub(super) fn handle_end(&mut self, out: &mut Vec<Fetched>) {
        if let Some(response) = &mut self.response {
            let ended = response.handle_end();
            self.take(out);
            if let Err(error) = ended {
                self.fail(&error.to_string(), out);
            }
        }
        self.server = None;
    }

    /// Abandons the request.
    pub(super) fn abandon(&mut self) {
        self.response = None;
        self.server = None;
        self.next = None;
    }

    fn take(&mut self, out: &mut Vec<Fetched>) {
        while let Some(event) = self.response.as_mut().and_then(ResponseReader::poll_event) {
            match event {
                ResponseEvent::Head(head) => self.head(&head, out),
                ResponseEvent::Body(bytes) => out.push(Fetched::Body(bytes)),
                ResponseEvent::End => {
                    self.response = None;
                    if self.closes {
                        self.server = None;
                    }
                    out.push(Fetched::End);
                }
            }
        }
    }

    fn head(&mut self, head: &ResponseHead, out: &mut Vec<Fetched>) {
        self.has_head = true;
        self.closes = head.closes();
        let wanted = if self.range.is_some() { PARTIAL } else { OK };
        let location = head.header("location").and_then(|value| std::str::from_utf8(value).ok());
        match (head.status, location) {
            (status, _) if status == wanted => {}
            (300..400, Some(location)) => {
                self.abandon();
                out.push(Fetched::Moved(location.to_owned()));
            }
            (OK, _) => self.fail("the server does not know ranges", out),
            (status, _) => self.fail(&format!("HTTP {status} {}", head.reason), out),
        }
    }

    fn fail(&mut self, why: &str, out: &mut Vec<Fetched>) {
        // The rest of the response is not worth reading.
        self.abandon();
        out.push(Fetched::Failed(why.to_owned()));
    }
}

/// Splits a URL into its server, and the `Host` field and target of requests.
fn target_of(text: &str) -> Option<(NextServer, String, String)> {
    let url = Url::parse(text).ok()?;
    let tls = url.scheme == "https";
    let default_port = if tls { 443 } else { 80 };
    let (host, port) = url.host_and_port(default_port).ok()?;
    let authority = url::authority(&host, port, default_port);
    Some((NextServer { host, port, tls }, authority, url.request_target()))
}
