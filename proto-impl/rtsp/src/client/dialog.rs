//! The client's dialog with the server: request numbers, credentials, the session, and the outstanding request.

use std::time::Duration;

use crate::auth::{Answerer, Challenge};
use crate::link::Link;
use crate::{Method, Request, Response, SessionHeader};

/// Timeout of a session if the server gives none (RFC 2326 §12.37).
const SESSION_TIMEOUT_SECS: u32 = 60;
/// Minimum time between two keep-alives, whatever timeout the server announces.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(1);
/// Maximum time between two keep-alives, because middleboxes forget idle connections.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(300);
/// Maximum number of times that one request is repeated because of stale nonces.
const STALE_MAX: u8 = 2;

/// A request whose answer is outstanding.
#[derive(Debug)]
struct Outstanding {
    /// The request, without its number and credentials.
    request: Request,
    cseq: u32,
    had_credentials: bool,
    repeated: u8,
}

#[derive(Debug)]
pub(super) struct Dialog {
    cseq: u32,
    answerer: Option<Answerer>,
    outstanding: Option<Outstanding>,
    session: Option<String>,
    /// True if the server has accepted the credentials before.
    proved: bool,
    pub(super) keep_alive_every: Duration,
    /// True if the server supports `GET_PARAMETER`.
    pub(super) gets_parameters: bool,
}

impl Dialog {
    pub(super) const fn new(answerer: Option<Answerer>) -> Self {
        let keep_alive_every = Duration::from_secs(SESSION_TIMEOUT_SECS as u64 / 2);
        Self {
            cseq: 0,
            answerer,
            outstanding: None,
            session: None,
            proved: false,
            keep_alive_every,
            gets_parameters: false,
        }
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Sends a request. It becomes the outstanding request.
    pub(super) fn send(&mut self, link: &mut Link, request: Request) {
        self.send_again(link, request, 0);
    }

    fn send_again(&mut self, link: &mut Link, request: Request, repeated: u8) {
        self.cseq = self.cseq.wrapping_add(1);
        let mut numbered = Request::new(request.method.clone(), &request.uri, self.cseq);
        for (name, value) in request.headers.iter() {
            numbered.headers.push(name, value);
        }
        if let Some(session) = &self.session {
            numbered.headers.push("Session", session);
        }
        let answer = self
            .answerer
            .as_mut()
            .and_then(|answerer| answerer.answer(request.method.as_str(), &request.uri));
        if let Some(answer) = &answer {
            numbered.headers.push("Authorization", answer);
        }
        numbered.body = request.body.clone();
        link.send_request(&numbered);
        let had_credentials = answer.is_some();
        self.outstanding = Some(Outstanding { request, cseq: self.cseq, had_credentials, repeated });
    }

    /// True if the response answers the outstanding request. Some cameras omit `CSeq`.
    pub(super) fn is_answer(&self, response: &Response) -> bool {
        let Some(outstanding) = &self.outstanding else { return false };
        response.headers.get("CSeq").is_none() || response.headers.cseq() == Some(outstanding.cseq)
    }

    /// Ends the outstanding request. Returns its method and URL.
    pub(super) fn settle(&mut self, response: &Response) -> Option<(Method, String)> {
        let Outstanding { request, had_credentials, .. } = self.outstanding.take()?;
        self.proved |= had_credentials && response.status.is_success();
        if let Some(session) = response.headers.session()
            && self.session.is_none()
            && !session.id.is_empty()
            && response.status.is_success()
        {
            self.session = Some(session.id.to_owned());
            self.keep_alive_every = interval(session);
        }
        Some((request.method, request.uri))
    }

    /// Repeats the outstanding request with credentials. Returns false if a repetition cannot succeed.
    pub(super) fn authenticate(&mut self, link: &mut Link, response: &Response) -> bool {
        let (Some(answerer), Some(outstanding)) = (&mut self.answerer, &self.outstanding) else {
            return false;
        };
        let challenges = Challenge::read_all(response.headers.all("WWW-Authenticate"));
        let repeated = outstanding.repeated.saturating_add(1);
        // Many cameras forget a nonce without marking it as stale. So credentials that were accepted before are
        // sent once more.
        let was_refused = outstanding.had_credentials && !(self.proved && outstanding.repeated == 0);
        if repeated > STALE_MAX || !answerer.challenged(challenges, was_refused) {
            return false;
        }
        if let Some(Outstanding { request, .. }) = self.outstanding.take() {
            self.send_again(link, request, repeated);
        }
        true
    }
}

/// Returns the keep-alive interval: half of the session's timeout.
fn interval(session: SessionHeader<'_>) -> Duration {
    let secs = session.timeout_secs.unwrap_or(SESSION_TIMEOUT_SECS);
    (Duration::from_secs(u64::from(secs)) / 2).clamp(KEEP_ALIVE_MIN, KEEP_ALIVE_MAX)
}
