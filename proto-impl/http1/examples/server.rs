//! An HTTP server with a thread for each connection. `/` is a page, `/echo` a WebSocket that sends back what it gets.
//!
//!     cargo run -p millstream-http1 --example server

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example has the sockets, threads and clocks that the machine has not"
)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http1::websocket::{self, WebSocket};
use http1::{Connection, Event, Limits, Method, Request, Response, SendQueue};

fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    eprintln!("http://{}/", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = serve(stream) {
                eprintln!("connection ended: {error}");
            }
        });
    }
    Ok(())
}

/// Serves the requests of a connection until it ends, or becomes a WebSocket.
fn serve(mut stream: TcpStream) -> Result<(), Box<dyn Error>> {
    let mut connection = Connection::new(Instant::now(), Arc::new(Limits::default()));
    loop {
        while let Some(event) = connection.poll_event() {
            let Event::Request(request) = event else { continue };
            let now = Instant::now();
            let wall_ms = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
            match answer(&request) {
                upgrade if upgrade.status == 101 => {
                    let held = connection.upgrade(now, wall_ms, &upgrade).unwrap_or_default();
                    send(&mut stream, |out| connection.poll_transmit(out))?;
                    return echo(stream, WebSocket::server(now, Arc::default(), &held));
                }
                response => connection.respond(now, wall_ms, response),
            }
        }
        let sent = send(&mut stream, |out| connection.poll_transmit(out))?;
        connection.handle_sent(Instant::now(), sent);
        if connection.is_closing() {
            return Ok(finish(&mut stream)?);
        }
        match receive(&mut stream, connection.poll_timeout())? {
            None => connection.handle_timeout(Instant::now())?,
            Some(bytes) if bytes.is_empty() => connection.handle_eof(Instant::now()),
            Some(bytes) => connection.handle_bytes(Instant::now(), &bytes)?,
        }
    }
}

fn answer(request: &Request) -> Response {
    match (request.method, &*request.path) {
        (Method::Get, "/") => Response::with_body(200, "text/html;charset=utf-8", "<h1>It works</h1>\n"),
        (_, "/echo") => websocket::accept(request, |_| true).unwrap_or_else(|refusal| refusal),
        _ => Response::error(404, "Not Found"),
    }
}

/// Sends back the messages of a WebSocket until it ends.
fn echo(mut stream: TcpStream, mut socket: WebSocket) -> Result<(), Box<dyn Error>> {
    loop {
        while let Some(event) = socket.poll_event() {
            let now = Instant::now();
            match event {
                websocket::Event::Text(text) => socket.send_text(now, &text)?,
                websocket::Event::Binary(bytes) => socket.send_binary(now, bytes)?,
                websocket::Event::Closed(_) => {}
            }
        }
        let sent = send(&mut stream, |out| socket.poll_transmit(out))?;
        socket.handle_sent(Instant::now(), sent);
        if socket.is_closing() {
            return Ok(finish(&mut stream)?);
        }
        match receive(&mut stream, socket.poll_timeout())? {
            None => socket.handle_timeout(Instant::now())?,
            Some(bytes) if bytes.is_empty() => socket.handle_eof(Instant::now()),
            Some(bytes) => socket.handle_bytes(Instant::now(), &bytes),
        }
    }
}

/// Writes all output of a machine. Returns the number of bytes.
fn send(stream: &mut TcpStream, poll: impl FnOnce(&mut SendQueue) -> bool) -> io::Result<usize> {
    let mut out = SendQueue::new();
    poll(&mut out);
    let bytes = out.take_all();
    stream.write_all(&bytes)?;
    Ok(bytes.len())
}

/// Ends the stream, and reads for a second, so that a reset does not overtake the last answer (RFC 9112 §9.6).
fn finish(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + Duration::from_secs(1);
    while receive(stream, Some(deadline))?.is_some_and(|bytes| !bytes.is_empty()) {}
    Ok(())
}

/// Reads what arrives before the deadline; empty at the end of the stream, `None` at the deadline.
fn receive(stream: &mut TcpStream, deadline: Option<Instant>) -> io::Result<Option<Vec<u8>>> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    stream.set_read_timeout(left.map(|left| left.max(Duration::from_millis(1))))?;
    let mut bytes = vec![0; 16 * 1024];
    match stream.read(&mut bytes) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(Some(bytes))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}
