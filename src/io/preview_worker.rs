//! The process that makes pictures of key frames: this program again, with no privileges except to compute.
//!
//! The decoders process bytes from strangers, and one of the decoders is written in C++. They therefore run in a
//! process without privileges: it has no files except the socket with which it was started, no network and no
//! environment, cannot start another process or gain privileges, and has limited memory and time
//! ([`sys::confine`]). It reads requests and writes answers until the socket is closed.

use std::fs::File;
use std::io::{self, Read, Write};

use bytes::Bytes;
use picture::{Answer, Error, HEAD_BYTES, REQUEST_BYTES_MAX, Request, length_of};

use super::sys;

/// Exit code of a process that could not give up its privileges.
pub const UNCONFINED: u8 = 70;

/// Gives up all privileges, and makes pictures until standard input ends. Returns the exit code.
#[must_use]
pub fn run() -> u8 {
    match sys::confine::confine() {
        Ok(socket) => u8::from(serve(socket).is_err()),
        Err(_) => UNCONFINED,
    }
}

fn serve(mut socket: File) -> io::Result<()> {
    loop {
        let mut head = [0; HEAD_BYTES];
        if let Err(error) = socket.read_exact(&mut head) {
            let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
            return if is_end { Ok(()) } else { Err(error) };
        }
        let length = length_of(head, REQUEST_BYTES_MAX).map_err(io::Error::other)?;
        let mut message = Vec::new();
        let length = u64::try_from(length).map_err(io::Error::other)?;
        let read = (&mut socket).take(length).read_to_end(&mut message)?;
        if u64::try_from(read).ok() != Some(length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        socket.write_all(&answer(&message).write())?;
    }
}

fn answer(message: &[u8]) -> Answer {
    let make = || Request::read(message).and_then(|request| picture::make(&request)).map(Bytes::from);
    // If a decoder written in Rust panics, the key frame counts as damaged.
    Answer(std::panic::catch_unwind(make).unwrap_or(Err(Error::Damaged)))
}
