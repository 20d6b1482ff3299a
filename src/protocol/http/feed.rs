//! Server-sent events (WHATWG HTML §9.2): a request of the API that the server repeats each second. An event has
//! the lines of the response that differ from those of the previous response. The first event has all lines.
//!
//! Each repetition passes all checks of the API again, so a feed ends when its login ends.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Fields;
use super::responder::{Link, Next, Responder};
use crate::http::{BodyLength, Connection, Method, Request, Response, cors};
use crate::protocol::{Context, Event, Reply, RequestEvent, RequestNews};
use crate::types::Now;

/// Time from a response to the next request.
const PERIOD: Duration = Duration::from_secs(1);
/// Time without an event after which a comment is sent, to show proxies and peers that the feed is alive.
const SILENCE: Duration = Duration::from_secs(15);
const MEDIA_TYPE: &str = "text/event-stream";

/// True if a request asks for events.
pub(super) fn is_wanted(request: &Request) -> bool {
    let mut ranges = request.headers.all("accept").flat_map(|value| value.split(','));
    request.method == Method::Get
        && ranges.any(|range| range.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(MEDIA_TYPE))
}

#[derive(Debug)]
enum Stage {
    /// Control was asked.
    Asked,
    /// The next request is due at this time.
    Waiting(Instant),
    Over,
}

/// The feed of one request.
#[derive(Debug)]
pub(super) struct Feed {
    request: Box<Request>,
    /// Header fields of the response.
    fields: Fields,
    secure: bool,
    stage: Stage,
    /// The last response of control.
    last: Bytes,
    /// Time of the last output; `None` until the head was sent.
    said_at: Option<Instant>,
}

impl Feed {
    /// Makes a feed for a request, and its first request to control.
    pub(super) fn begin(mut request: Request, fields: Fields, secure: bool) -> (Self, Event) {
        // The repeated requests ask control for the lines of the resource, not for events.
        request.headers.set("accept", "*/*");
        // The request's body is not read.
        request.body_waits = false;
        let (request, stage) = (Box::new(request), Stage::Asked);
        let feed = Self { request, fields, secure, stage, last: Bytes::new(), said_at: None };
        let event = feed.question();
        (feed, event)
    }

    fn question(&self) -> Event {
        Event::Request(RequestEvent::Feed { request: self.request.clone(), secure: self.secure })
    }

    fn wait(&mut self, now: Now) {
        self.stage = Stage::Waiting(now.mono.checked_add(PERIOD).unwrap_or(now.mono));
    }

    /// Handles control's response. A response with a status other than 200 ends the feed.
    fn answer(&mut self, now: Now, connection: &mut Connection, mut response: Response) {
        if !matches!(self.stage, Stage::Asked) {
            return;
        }
        match (self.said_at, response.status) {
            (None, 200) => {
                let mut head =
                    Response::with_body(200, MEDIA_TYPE, Bytes::new()).header("Cache-Control", "no-store");
                cors::add(&self.fields, &mut head.headers);
                if !connection.begin(now.mono, now.wall_ms, &head, BodyLength::UntilClose) {
                    self.stage = Stage::Over;
                    return;
                }
            }
            (Some(_), 200) => {}
            (None, _) => {
                cors::add(&self.fields, &mut response.headers);
                connection.respond(now.mono, now.wall_ms, response);
                self.stage = Stage::Over;
                return;
            }
            (Some(_), _) => {
                connection.end_body(now.mono);
                self.stage = Stage::Over;
                return;
            }
        }
        let event = event(&self.last, &response.body);
        self.last = response.body;
        let is_due = self.said_at.is_none_or(|at| now.mono.saturating_duration_since(at) >= SILENCE);
        let block = if event.is_empty() && is_due { Bytes::from_static(b":\n\n") } else { event.into() };
        if !block.is_empty() {
            connection.body(now.mono, block);
            self.said_at = Some(now.mono);
        }
        self.wait(now);
    }
}

impl Responder for Feed {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        if let Reply::Request(RequestNews::Response(response)) = reply {
            self.answer(ctx.now, &mut link.connection, response);
        }
        Next::Stay
    }

    fn advance(&mut self, _ctx: &Context<'_>, _link: &mut Link) -> Next {
        if matches!(self.stage, Stage::Over) { Next::Over } else { Next::Stay }
    }

    /// Handles deadlines. No event is sent while the client has not accepted the last one.
    fn handle_timeout(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        if self.poll_timeout().is_none_or(|until| until > ctx.now.mono) {
            return Next::Stay;
        }
        if link.connection.wants_body() {
            self.stage = Stage::Asked;
            link.tell(self.question());
        } else {
            self.wait(ctx.now);
        }
        Next::Stay
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Waiting(until) => Some(until),
            Stage::Asked | Stage::Over => None,
        }
    }
}

/// Returns the event with the lines that have changed; empty if none has.
fn event(before: &[u8], body: &[u8]) -> Vec<u8> {
    let mut known = before.split(|byte| *byte == b'\n');
    let mut event = Vec::new();
    for line in body.split(|byte| *byte == b'\n') {
        if known.next() != Some(line) && !line.is_empty() {
            event.extend_from_slice(b"data: ");
            event.extend_from_slice(line);
            event.push(b'\n');
        }
    }
    if !event.is_empty() {
        event.push(b'\n');
    }
    event
}

#[cfg(test)]
mod tests {
    use super::super::tests::Rig;
    use super::*;
    use crate::protocol::{Session, Timers};

    const ASK: &[u8] = b"GET /rest/v2/live HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";

    fn answer(rig: &mut Rig, status: u16, body: &'static str) -> String {
        let events = rig.act(|session, ctx| {
            session.handle_reply(ctx, Reply::Request(RequestNews::Response(Response::text(status, body))))
        });
        assert!(events.iter().all(|event| matches!(event, Event::Closed(_))), "{events:?}");
        rig.sent()
    }

    /// True if control is asked once this time has passed.
    fn asks_after(rig: &mut Rig, millis: u64) -> bool {
        rig.now.mono += Duration::from_millis(millis);
        let events = rig.act(|session, ctx| session.handle_timeout(ctx));
        events.iter().any(
            |event| matches!(event, Event::Request(RequestEvent::Feed { request, .. }) if request.header("accept") == Some("*/*")),
        )
    }

    #[test]
    fn an_event_has_the_lines_that_changed() {
        let mut rig = Rig::new();
        let events = rig.act(|session, ctx| {
            use crate::protocol::ByteStream;
            session.handle_bytes(ctx, ASK);
        });
        assert!(matches!(events.as_slice(), [Event::Request(RequestEvent::Feed { .. })]), "{events:?}");
        let head = answer(&mut rig, 200, "{\"a\":1}\n{\"b\":1}\n");
        assert!(
            head.contains("Content-Type: text/event-stream\r\n") && head.contains("Cache-Control: no-store")
        );
        assert!(head.ends_with("\r\n\r\ndata: {\"a\":1}\ndata: {\"b\":1}\n\n"), "{head}");
        assert!(!asks_after(&mut rig, 999) && asks_after(&mut rig, 1));
        assert!(!asks_after(&mut rig, 5000), "one question at a time");
        assert_eq!(answer(&mut rig, 200, "{\"a\":1}\n{\"b\":2}\n"), "data: {\"b\":2}\n\n");
        assert!(asks_after(&mut rig, 1000));
        assert_eq!(answer(&mut rig, 200, "{\"a\":1}\n{\"b\":2}\n"), "", "nothing changed");
        assert!(asks_after(&mut rig, 14_000));
        assert_eq!(answer(&mut rig, 200, "{\"a\":1}\n{\"b\":2}\n"), ":\n\n", "but it lives");
        assert!(asks_after(&mut rig, 1000));
        assert_eq!(answer(&mut rig, 403, "over"), "", "what a login may no longer see ends");
        assert!(!asks_after(&mut rig, 5000));
    }

    #[test]
    fn a_refusal_is_the_answer() {
        let mut rig = Rig::new();
        rig.act(|session, ctx| {
            use crate::protocol::ByteStream;
            session.handle_bytes(ctx, ASK);
        });
        let refusal = answer(&mut rig, 403, "who are you?");
        assert!(refusal.starts_with("HTTP/1.1 403 ") && refusal.ends_with("who are you?"), "{refusal}");
        assert!(!asks_after(&mut rig, 5000));
    }
}
