//! Minimal HTTP for WHIP (RFC 9725) and WHEP: one request per connection. Threads read the requests into a
//! queue, and the reader of the queue answers them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Maximum length of a request in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Request with the channel for its response.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    pub(crate) reply: Sender<Response>,
}

/// HTTP response with a CORS header that lets pages of every origin read it.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: &'static str,
    pub(crate) location: Option<String>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn of_status(status: &'static str) -> Self {
        Self { status, location: None, body: String::new() }
    }

    fn write(&self) -> String {
        let location = self.location.as_ref().map(|at| format!("Location: {at}\r\n")).unwrap_or_default();
        format!(
            "HTTP/1.1 {}\r\n\
             Access-Control-Allow-Origin: *\r\n\
             Access-Control-Allow-Methods: OPTIONS, POST, PATCH, DELETE\r\n\
             Access-Control-Allow-Headers: Content-Type, Authorization\r\n\
             Access-Control-Expose-Headers: Location\r\n\
             {location}Content-Type: application/sdp\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
            self.status,
            self.body.len(),
            self.body
        )
    }
}

/// Listens until the process ends. Returns the address and the queue of requests.
pub(crate) fn listen(address: SocketAddr) -> io::Result<(SocketAddr, Receiver<Request>)> {
    let listener = TcpListener::bind(address)?;
    let local = listener.local_addr()?;
    let (queue, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let queue = queue.clone();
            std::thread::spawn(move || serve(stream, &queue));
        }
    });
    Ok((local, requests))
}

fn serve(mut stream: TcpStream, queue: &Sender<Request>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (reply, answer) = channel();
    let (method, path, body) = read(&mut stream)?;
    let response = if method == "OPTIONS" {
        Response::of_status("204 No Content")
    } else {
        let _ = queue.send(Request { method, path, body, reply });
        // No answer will follow: the relay has ended.
        answer.recv().map_err(|_| ErrorKind::BrokenPipe)?
    };
    stream.write_all(response.write().as_bytes())
}

/// Reads the method, path and body of a request.
fn read(stream: &mut TcpStream) -> io::Result<(String, String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut need = None;
    loop {
        if need.is_none()
            && let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default()).into_owned();
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .and_then(|(_, value)| value.trim().parse::<usize>().ok());
            need = Some((head, at + 4, length.unwrap_or(0).min(REQUEST_BYTES_MAX)));
        }
        if let Some((head, at, length)) = &need
            && let Some(body) = bytes.get(*at..).filter(|body| body.len() >= *length)
        {
            let mut words = head.split(' ').map(str::to_owned);
            let (Some(method), Some(path)) = (words.next(), words.next()) else { break };
            return Ok((method, path, body.to_vec()));
        }
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece)?;
        if count == 0 || bytes.len() > REQUEST_BYTES_MAX {
            break;
        }
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    Err(ErrorKind::InvalidData.into())
}
