//! The bare loop: what sending costs when nothing else is done. It passes a publisher's bytes on as they are, with
//! one write per viewer and video frame (audio rides along), or one per viewer and message.
//!
//! A connection begins with [`hello`]. A publisher then sends records, each a kind byte, a length and the chunks of
//! one message; a viewer gets the chunks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);
const PUBLISHER: u8 = b'P';
const VIEWER: u8 = b'V';
const VIDEO: u8 = 9;
const AUDIO: u8 = 8;
/// Kind and length.
const RECORD_HEAD: usize = 5;

/// The first bytes of a connection.
pub fn hello(publishes: bool, stream: usize) -> [u8; 5] {
    let [a, b, c, d] = u32::try_from(stream).unwrap_or(u32::MAX).to_be_bytes();
    [if publishes { PUBLISHER } else { VIEWER }, a, b, c, d]
}

/// Puts the head of a record before the message that begins at `at` in `out`.
pub fn seal_record(out: &mut Vec<u8>, at: usize, is_video: bool) {
    let length = u32::try_from(out.len() - at).unwrap_or(0).to_be_bytes();
    let kind = [if is_video { VIDEO } else { AUDIO }];
    out.splice(at..at, kind.into_iter().chain(length));
}

/// Runs until its process is ended; the address goes to standard output.
pub fn run(per_message: bool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    let mut floor =
        Floor { per_message, publishers: Vec::new(), viewers: Vec::new(), buffer: vec![0; 256 * 1024] };
    let mut events = Events::with_capacity(1024);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                floor.accept(&listener, &poll)?;
            } else {
                floor.read(event.token().0)?;
            }
        }
    }
}

struct Publisher {
    socket: TcpStream,
    stream: usize,
    pending: Vec<u8>,
    /// What the viewers get with the next video frame.
    riding: Vec<u8>,
}

struct Floor {
    per_message: bool,
    publishers: Vec<Publisher>,
    /// Per stream. Blocking: a loop that does nothing but send waits for whoever is slow.
    viewers: Vec<Vec<std::net::TcpStream>>,
    buffer: Vec<u8>,
}

impl Floor {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let socket = match listener.accept() {
                Ok((socket, _)) => std::net::TcpStream::from(socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nonblocking(false)?;
            socket.set_nodelay(true)?;
            let mut hello = [0; 5];
            (&socket).read_exact(&mut hello)?;
            let [kind, stream @ ..] = hello;
            let stream = usize::try_from(u32::from_be_bytes(stream)).unwrap_or(0);
            if self.viewers.len() <= stream {
                self.viewers.resize_with(stream + 1, Vec::new);
            }
            if kind == VIEWER {
                if let Some(viewers) = self.viewers.get_mut(stream) {
                    viewers.push(socket);
                }
                continue;
            }
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            poll.registry().register(&mut socket, Token(self.publishers.len()), Interest::READABLE)?;
            self.publishers.push(Publisher { socket, stream, pending: Vec::new(), riding: Vec::new() });
        }
    }

    fn read(&mut self, index: usize) -> io::Result<()> {
        let Some(publisher) = self.publishers.get_mut(index) else { return Ok(()) };
        let Some(viewers) = self.viewers.get_mut(publisher.stream) else { return Ok(()) };
        loop {
            match publisher.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    publisher.pending.extend_from_slice(self.buffer.get(..count).unwrap_or_default())
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            publisher.pass_on(self.per_message, viewers);
        }
    }
}

impl Publisher {
    fn pass_on(&mut self, per_message: bool, viewers: &mut Vec<std::net::TcpStream>) {
        let mut rest = self.pending.as_slice();
        while let Some(([kind, length @ ..], bytes)) = rest.split_first_chunk::<RECORD_HEAD>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let Some((message, behind)) = bytes.split_at_checked(length) else { break };
            rest = behind;
            self.riding.extend_from_slice(message);
            if per_message || *kind == VIDEO {
                // A vectored write as the server's, so that the same counter of the kernel counts both.
                let riding = [io::IoSlice::new(&self.riding)];
                viewers.retain_mut(|viewer| match viewer.write_vectored(&riding) {
                    Ok(count) => viewer.write_all(self.riding.get(count..).unwrap_or_default()).is_ok(),
                    Err(_) => false,
                });
                self.riding.clear();
            }
        }
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
    }
}
