//! To be reached over HTTP, a new protocol only has to be added to the table of mounts. The entries for WHIP, HLS, a
//! panel and a signalling socket in this file exist only for these tests.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;

use super::mounts::{Asked, Handler};
use super::tests::Rig;
use super::{Action, Conversation, HttpSession};
use crate::http::{BodyKind, Cors, Method, Methods, Mount, Mounts, Pages, Response, cors, websocket};
use crate::protocol::{ByteStream, Context, Event, Reply, Session};

/// Pages of other origins may send offers and candidates, and read the session's URL (RFC 9725 §4.4).
const WHIP_CORS: Cors = Cors {
    pages: Pages::Any,
    methods: "POST,PATCH,DELETE,OPTIONS",
    fields: cors::FIELDS,
    exposed: Some("Location,ETag,Link"),
    is_cached: false,
};

static MOUNTS: Mounts<Handler> = Mounts(&[
    Mount {
        path: "/{app}/whip/{id}",
        methods: Methods::These(&[Method::Post, Method::Patch, Method::Delete]),
        body: BodyKind::Of {
            types: &["application/sdp", "application/trickle-ice-sdpfrag"],
            bytes_max: 300_000,
        },
        cors: WHIP_CORS,
        handler: whip,
    },
    Mount {
        path: "/{app}/streams/{id}.m3u8",
        methods: Methods::These(&[Method::Get]),
        body: BodyKind::Any,
        cors: Cors::ANYONE,
        handler: playlist,
    },
    Mount {
        path: "/panel/{*}",
        methods: Methods::These(&[Method::Get]),
        body: BodyKind::Any,
        cors: Cors::NAMED,
        handler: panel,
    },
    Mount {
        path: "/{app}/websocket",
        methods: Methods::These(&[Method::Get]),
        body: BodyKind::Any,
        cors: Cors::ANYONE,
        handler: socket,
    },
]);

fn whip(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    let location = format!("/{}/whip/{}/1-0af3", asked.name("app"), asked.name("id"));
    let response = match asked.request.method {
        Method::Post => Response::text(201, asked.request.body.clone()).header("Location", location),
        Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Patch => {
            Response::empty(200)
        }
    };
    session.respond(ctx.now, asked.fields, response);
}

fn playlist(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    let text = format!("#EXTM3U of {}", asked.name("id"));
    session.respond(ctx.now, asked.fields, Response::text(200, text));
}

fn panel(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    session.respond(ctx.now, asked.fields, Response::text(200, Bytes::from_static(b"panel")));
}

fn socket(session: &mut HttpSession, ctx: &Context<'_>, asked: Asked) {
    match websocket::accept(&asked.request, |_| true) {
        Ok(response) => session.converse(asked, Box::new(Echo { actions: vec![Action::Upgrade(response)] })),
        Err(refusal) => session.respond(ctx.now, asked.fields, refusal),
    }
}

/// Sends back each message.
#[derive(Debug)]
struct Echo {
    actions: Vec<Action>,
}

impl Conversation for Echo {
    fn handle_message(&mut self, _ctx: &Context<'_>, text: &str) {
        let action =
            if text == "bye" { Action::Close(1000, "bye".to_owned()) } else { Action::Send(text.to_owned()) };
        self.actions.insert(0, action);
    }

    fn handle_reply(&mut self, _ctx: &Context<'_>, _reply: Reply<'_>) {}

    fn handle_timeout(&mut self, _ctx: &Context<'_>) {}

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        None
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Returns the answer of these mounts to a request with `head` and `body`.
fn answer(head: &str, body: &[u8]) -> String {
    let mut rig = Rig::with_mounts(&MOUNTS);
    let head = format!("{head}\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
    rig.act(|session, ctx| session.handle_bytes(ctx, &[head.as_bytes(), body].concat()));
    rig.sent()
}

#[test]
fn whip_is_a_row() {
    let sdp = "Content-Type: application/sdp";
    let created = answer(&format!("POST /live/whip/cam HTTP/1.1\r\n{sdp}\r\nOrigin: https://page"), b"v=0");
    assert!(created.starts_with("HTTP/1.1 201 ") && created.ends_with("\r\n\r\nv=0"), "{created}");
    assert!(created.contains("\r\nLocation: /live/whip/cam/1-0af3\r\n"), "{created}");
    assert!(created.contains("\r\nAccess-Control-Expose-Headers: Location,ETag,Link\r\n"), "{created}");
    for (head, status, field) in [
        ("DELETE /live/whip/cam HTTP/1.1", 200, ""),
        ("GET /live/whip/cam HTTP/1.1", 405, "Allow: POST, PATCH, DELETE, OPTIONS"),
        ("OPTIONS /live/whip/cam HTTP/1.1", 200, "Allow: POST, PATCH, DELETE, OPTIONS"),
        ("POST /live/whip/cam HTTP/1.1\r\nContent-Type: text/plain", 415, "Accept: application/sdp"),
        ("POST /other/whip/cam HTTP/1.1\r\nContent-Type: application/sdp", 404, ""),
        (
            "OPTIONS /live/whip/cam HTTP/1.1\r\nOrigin: https://page\r\nAccess-Control-Request-Method: PATCH",
            200,
            "Access-Control-Allow-Methods: POST,PATCH,DELETE,OPTIONS",
        ),
        (
            "OPTIONS /live/whip/cam HTTP/1.1\r\nOrigin: https://page\r\nAccess-Control-Request-Method: PUT",
            403,
            "",
        ),
    ] {
        let answer = answer(head, b"");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(field),
            "{head}: {answer}"
        );
    }
}

#[test]
fn a_row_says_how_long_bodies_may_be_before_one_is_read() {
    let ask = |path: &str, length: usize| {
        let mut rig = Rig::with_mounts(&MOUNTS);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/sdp\r\n\
             Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        );
        rig.act(|session, ctx| session.handle_bytes(ctx, head.as_bytes()));
        rig.sent()
    };
    let default = crate::http::Limits::default().body_bytes;
    assert!(ask("/live/whip/cam", 300_000).starts_with("HTTP/1.1 100 "));
    assert!(ask("/live/whip/cam", 300_001).starts_with("HTTP/1.1 413 "));
    assert!(ask("/live/streams/x.m3u8", default).starts_with("HTTP/1.1 100 "));
    assert!(ask("/live/streams/x.m3u8", default + 1).starts_with("HTTP/1.1 413 "));
    // A chunked body announces no length.
    let mut rig = Rig::with_mounts(&MOUNTS);
    let head = "POST /live/whip/cam HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n493e1\r\n";
    rig.act(|session, ctx| session.handle_bytes(ctx, &[head.as_bytes(), &vec![b'x'; 300_001]].concat()));
    assert!(rig.sent().starts_with("HTTP/1.1 413 "));
}

#[test]
fn a_playlist_and_a_panel_are_rows() {
    assert!(answer("GET /live/streams/cam.m3u8 HTTP/1.1", b"").ends_with("#EXTM3U of cam"));
    assert!(answer("GET /panel/css/style.css HTTP/1.1", b"").ends_with("panel"));
    let foreign = answer("GET /panel HTTP/1.1\r\nOrigin: https://page", b"");
    assert!(foreign.ends_with("panel") && !foreign.contains("Access-Control"), "{foreign}");
    assert!(answer("GET /elsewhere HTTP/1.1", b"").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_signalling_socket_is_a_row() {
    let mut rig = Rig::with_mounts(&MOUNTS);
    let upgrade = "GET /live/websocket HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    rig.act(|session, ctx| session.handle_bytes(ctx, upgrade.as_bytes()));
    assert!(rig.sent.starts_with(b"HTTP/1.1 101 ") && !rig.session.about().is_authenticated);
    rig.sent.clear();
    let limits = Arc::new(websocket::Limits::default());
    let mut client = websocket::WebSocket::client(rig.now.mono, limits, &[], &Seed::from_number(2));
    let mut say = |rig: &mut Rig, text: &str| {
        client.send_text(rig.now.mono, text).unwrap();
        let mut out = wire::SendQueue::new();
        client.poll_transmit(&mut out);
        rig.act(|session, ctx| session.handle_bytes(ctx, &out.take_all()))
    };
    assert!(say(&mut rig, "start").is_empty());
    assert_eq!(std::mem::take(&mut rig.sent), b"\x81\x05start");
    say(&mut rig, "bye");
    assert_eq!(std::mem::take(&mut rig.sent), b"\x88\x05\x03\xe8bye");
    // The server shuts down while another WebSocket is open.
    let mut rig = Rig::with_mounts(&MOUNTS);
    rig.act(|session, ctx| session.handle_bytes(ctx, upgrade.as_bytes()));
    rig.sent.clear();
    rig.act(|session, ctx| session.close(ctx, "server goes down"));
    assert_eq!(rig.sent, b"\x88\x02\x03\xe9");
}
