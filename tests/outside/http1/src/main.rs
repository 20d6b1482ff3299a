//! A server and a client of HTTP and WebSocket, in one process, as a program that has no other dependency than the crate.

use std::sync::Arc;
use std::time::Instant;

use http1::client::{self, ResponseEvent, ResponseReader};
use http1::websocket::{self, ClientHandshake, WebSocket};
use http1::{Connection, Event, Limits, Response, Seed, SendQueue};

fn main() {
    let (now, wall_ms) = (Instant::now(), 1_770_000_000_000);
    let mut server = Connection::new(now, Arc::new(Limits::default()));
    let mut out = SendQueue::new();

    // A request and its response.
    let request = client::get("outside", "h", "/hello?to=you", true);
    server.handle_bytes(now, request.as_bytes()).unwrap();
    let Some(Event::Request(request)) = server.poll_event() else { panic!("no request") };
    let hello = format!("hello {}", request.query_value("to").unwrap());
    server.respond(now, wall_ms, Response::text(200, hello));
    assert!(server.poll_transmit(&mut out));
    server.handle_sent(now, out.len());
    let mut reader = ResponseReader::new();
    reader.handle_bytes(&out.take_all()).unwrap();
    let Some(ResponseEvent::Head(head)) = reader.poll_event() else { panic!("no head") };
    let Some(ResponseEvent::Body(body)) = reader.poll_event() else { panic!("no body") };
    assert_eq!((head.status, &body[..]), (200, &b"hello you"[..]));

    // The same connection becomes a WebSocket.
    let seed = Seed::from_number(1);
    let (request, mut handshake) = ClientHandshake::begin("h", "/echo", None, &mut seed.random());
    server.handle_bytes(now, &request).unwrap();
    let Some(Event::Request(request)) = server.poll_event() else { panic!("no upgrade") };
    let accepted = websocket::accept(&request, |_| true).unwrap();
    let held = server.upgrade(now, wall_ms, &accepted).unwrap();
    server.poll_transmit(&mut out);
    let rest = handshake.handle_bytes(&out.take_all()).unwrap().expect("the whole response");
    let mut there = WebSocket::server(now, Arc::default(), &held);
    let mut here = WebSocket::client(now, Arc::default(), &rest, &seed);
    here.send_text(now, "ping").unwrap();
    here.poll_transmit(&mut out);
    there.handle_bytes(now, &out.take_all());
    let Some(websocket::Event::Text(text)) = there.poll_event() else { panic!("no message") };
    assert_eq!(&*text, "ping");
    println!("{} {text}", String::from_utf8_lossy(&body));
}
