//! A request of the API whose body did not arrive together with its head.
//!
//! 1. Control is asked with only the head: address, login, token, role and route are checked before the body is read.
//! 2. If control refuses the request, that is the answer, and the connection closes. Otherwise control accepts the body
//!    ([`RequestNews::TakeBody`]). The peer is now invited to send the body (RFC 9110 §10.1.1), which is kept in
//!    memory, up to the limit for bodies.
//! 3. Control is asked with the whole request, checks it again, and answers.

use std::time::Instant;

use bytes::BytesMut;

use super::responder::{Link, Next, OfControl, Responder};
use super::{Fields, LIMITS};
use crate::http::{Request, Response};
use crate::protocol::{Context, Event, Reply, RequestEvent, RequestNews};

/// A request whose body control must accept first.
#[derive(Debug)]
pub(super) struct Taken {
    /// The request without its body.
    request: Box<Request>,
    /// Header fields of the response.
    fields: Fields,
    secure: bool,
    body: BytesMut,
    /// Deadline for the complete body; `None` until control has accepted the body.
    until: Option<Instant>,
}

impl Taken {
    /// Makes the responder of a request. The caller asks control about the request's head.
    pub(super) fn new(request: Box<Request>, fields: Fields, secure: bool) -> Self {
        Self { request, fields, secure, body: BytesMut::new(), until: None }
    }
}

impl Responder for Taken {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        match reply {
            Reply::Request(RequestNews::Response(response)) => {
                link.respond(ctx.now, &self.fields, response);
                Next::Over
            }
            Reply::Request(RequestNews::TakeBody) => {
                self.until = ctx.now.mono.checked_add(LIMITS.body_time);
                let bytes_max = u64::try_from(LIMITS.body_bytes).unwrap_or(u64::MAX);
                link.connection.take_body(ctx.now.mono, bytes_max);
                Next::Stay
            }
            Reply::Request(_)
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Family(_)
            | Reply::Job(_)
            | Reply::Port(_) => Next::Stay,
        }
    }

    fn advance(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        while let Some(block) = link.connection.poll_body(ctx.now.mono) {
            self.body.extend_from_slice(&block);
        }
        if self.until.is_none() || !link.connection.is_body_complete() {
            return Next::Stay;
        }
        let body = std::mem::take(&mut self.body).freeze();
        let request = Box::new(Request { body, body_waits: false, ..(*self.request).clone() });
        link.tell(Event::Request(RequestEvent::Rest { request, secure: self.secure }));
        Next::become_one(OfControl(std::mem::take(&mut self.fields)))
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        if self.until.is_none_or(|until| until > ctx.now.mono) {
            return Next::Stay;
        }
        link.respond(ctx.now, &self.fields, Response::error(408, "the request did not come in time"));
        Next::Over
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }

    fn close(&mut self, ctx: &Context<'_>, link: &mut Link) {
        // A body that is being received is refused. If control has not answered about the head yet, its answer is still
        // awaited.
        if self.until.take().is_some() {
            link.respond(ctx.now, &self.fields, Response::error(503, "the server is shutting down"));
        }
        link.close(ctx.now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::Rig;
    use super::*;
    use crate::protocol::{ByteStream, Session, Timers};

    const HEAD: &str = "POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\
                        Content-Type: application/json\r\nContent-Length: 6\r\n\r\n";

    fn say(rig: &mut Rig, text: &str) -> Vec<Event> {
        rig.act(|session, ctx| session.handle_bytes(ctx, text.as_bytes()))
    }

    fn hear(rig: &mut Rig, news: RequestNews<'static>) -> Vec<Event> {
        rig.act(|session, ctx| session.handle_reply(ctx, Reply::Request(news)))
    }

    /// Returns the body of the single request to control, and whether the body must still be accepted.
    fn asked(events: &[Event]) -> Option<(&[u8], bool)> {
        match events {
            [] => None,
            [Event::Request(RequestEvent::Rest { request, .. })] => Some((&request.body, request.body_waits)),
            events => panic!("{events:?}"),
        }
    }

    #[test]
    fn h_37_control_sees_the_head_first_and_a_refusal_ends_the_connection() {
        let mut rig = Rig::new();
        assert_eq!(asked(&say(&mut rig, HEAD)), Some((&b""[..], true)));
        assert!(rig.sent.is_empty(), "no invitation");
        let events = hear(&mut rig, RequestNews::Response(Response::error(403, "Not allowed IP")));
        assert!(matches!(events.as_slice(), [Event::Closed(_)]), "{events:?}");
        let answer = rig.sent();
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Connection: close\r\n"), "{answer}");
    }

    #[test]
    fn h_37_control_sees_the_whole_request_once_its_head_is_allowed() {
        let mut rig = Rig::new();
        say(&mut rig, HEAD);
        assert_eq!(asked(&hear(&mut rig, RequestNews::TakeBody)), None);
        assert!(rig.sent().starts_with("HTTP/1.1 100 "));
        assert_eq!(asked(&say(&mut rig, "{\"a\"")), None);
        assert_eq!(asked(&say(&mut rig, ":1")), Some((&b"{\"a\":1"[..], false)));
        assert_eq!(asked(&hear(&mut rig, RequestNews::Response(Response::json(200, "{}")))), None);
        assert!(rig.sent().starts_with("HTTP/1.1 200 "));
        // The connection can be used for the next request.
        let next = HEAD.replace("Expect: 100-continue\r\n", "") + "{\"b\":2";
        assert_eq!(asked(&say(&mut rig, &next)), Some((&b"{\"b\":2"[..], false)), "all of it was there");
    }

    #[test]
    fn h_37_a_server_that_goes_down_waits_for_no_body() {
        let mut rig = Rig::new();
        say(&mut rig, HEAD);
        hear(&mut rig, RequestNews::TakeBody);
        rig.sent();
        let events = rig.act(|session, ctx| session.close(ctx, "server goes down"));
        assert!(matches!(events.as_slice(), [Event::Closed(_)]), "{events:?}");
        assert!(rig.sent().starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn h_37_a_body_that_was_let_in_has_its_time() {
        let mut rig = Rig::new();
        say(&mut rig, &HEAD.replace("Length: 6", "Length: 200000"));
        hear(&mut rig, RequestNews::TakeBody);
        rig.sent();
        // Each piece arrives fast enough, but the whole body takes too long.
        for _ in 0..29 {
            say(&mut rig, &"x".repeat(1000));
            rig.now.mono += Duration::from_secs(1);
            rig.act(|session, ctx| session.handle_timeout(ctx));
        }
        assert!(rig.sent.is_empty());
        rig.now.mono += Duration::from_secs(1);
        rig.act(|session, ctx| session.handle_timeout(ctx));
        let answer = rig.sent();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("Connection: close\r\n"), "{answer}");
    }
}
