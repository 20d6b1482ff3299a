//! Datagrams of an older process's sessions (docs/upgrade.md). The UDP ports belong to the newer process. Its workers
//! pass on each datagram that belongs to none of their sessions and begins none, over a socket for each pair of workers
//! with the same number. The older process sends through its own duplicates of the ports.
//!
//! The bytes that wait are limited on both sides. Datagrams beyond the limits are lost, as they are when a socket's
//! buffer is full.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use wire::Reader;

use super::Shell;
use crate::io::mailbox::{Mail, MailSender};
use crate::protocol::{Port, Remote};
use crate::types::{Now, WorkerId};

/// Maximum bytes that wait to be sent to the older process, and to be handled by one of its workers.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes that are read at a time.
const READ_BYTES: usize = 256 * 1024;
/// Pause before a worker that has too many bytes waiting gets more.
const PAUSE: Duration = Duration::from_millis(1);

/// A worker's connection to the worker with the same number in the older process.
#[derive(Debug)]
pub(in crate::io) struct Strays {
    /// The connection; `None` once the older process has ended.
    stream: Option<UnixStream>,
    waiting: Vec<u8>,
    passed: u64,
    lost: u64,
}

/// Datagrams from the newer process. They count as waiting until this value is dropped.
#[derive(Debug)]
pub(in crate::io) struct Received {
    bytes: Vec<u8>,
    waiting: Arc<AtomicUsize>,
}

impl Drop for Received {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Strays {
    /// Makes the state of a worker; `stream` must not block.
    pub(super) const fn new(stream: Option<UnixStream>) -> Self {
        Self { stream, waiting: Vec::new(), passed: 0, lost: 0 }
    }

    fn push(&mut self, port: &'static Port, from: Remote, datagram: &[u8]) {
        if self.stream.is_none() || from.carrier.is_some() {
            return;
        }
        if self.waiting.len() >= WAITING_BYTES_MAX {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        write(&mut self.waiting, port.name, from, datagram);
        self.passed = self.passed.saturating_add(1);
    }

    /// Sends as much as possible. Returns the numbers of datagrams passed on and lost since the last call.
    fn flush(&mut self) -> (u64, u64) {
        while let Some(stream) = self.stream.as_mut().filter(|_| !self.waiting.is_empty()) {
            match stream.write(&self.waiting) {
                Ok(sent) => drop(self.waiting.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => (self.stream, self.waiting) = (None, Vec::new()),
            }
        }
        (std::mem::take(&mut self.passed), std::mem::take(&mut self.lost))
    }
}

impl Shell {
    /// Passes a datagram on to the older process, if there is one.
    pub(super) fn pass_on(&mut self, port: &'static Port, from: Remote, datagram: &[u8]) {
        self.strays.push(port, from, datagram);
    }

    /// Sends the datagrams that wait for the older process.
    pub(super) fn flush_strays(&mut self) {
        let (passed, lost) = self.strays.flush();
        self.machine.worker.note_passed(passed, lost);
    }

    /// Handles datagrams that the newer process has received.
    pub(super) fn take_strays(&mut self, now: Now, mut received: Received) {
        let mut rest = received.bytes.as_mut_slice();
        while let Some((name, from, length, head)) = read(rest) {
            let index = self.driver.ports.iter().position(|(port, _)| port.name.as_bytes() == name);
            let datagram = std::mem::take(&mut rest).get_mut(head..).unwrap_or_default();
            let Some((datagram, behind)) = datagram.split_at_mut_checked(length) else { return };
            rest = behind;
            let Some((index, port)) = index.and_then(|index| Some((index, self.driver.ports.get(index)?.0)))
            else {
                continue;
            };
            self.route(now, index, port, from, datagram);
        }
        self.forwarding.flush(&self.machine.colleagues.workers);
    }
}

/// Starts the thread that reads datagrams from the newer process, for a worker of the older one.
pub(in crate::io) fn receive(mut stream: UnixStream, worker: MailSender) -> io::Result<()> {
    let waiting = Arc::new(AtomicUsize::new(0));
    let read_all = move || {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let whole = bytes.len() - incomplete(&bytes);
            let rest = bytes.split_off(whole);
            let bytes = std::mem::replace(&mut bytes, rest);
            waiting.fetch_add(bytes.len(), Ordering::Relaxed);
            worker.post(Mail::Strays(Received { bytes, waiting: Arc::clone(&waiting) }));
            while waiting.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
                thread::sleep(PAUSE);
            }
        }
    };
    thread::Builder::new().name("strays".to_owned()).spawn(read_all).map(drop)
}

/// Returns the number of bytes at the end that are not a whole datagram yet.
fn incomplete(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((.., length, head)) = read(rest)
        && let Some(behind) = rest.get(head.saturating_add(length)..)
    {
        rest = behind;
    }
    rest.len()
}

/// The number that stands for no worker: the datagram arrived at the worker that passes it on.
const NO_WORKER: u16 = u16::MAX;

/// Writes a datagram: lengths of the datagram and of the port's name, the name, the peer, the local address, the worker
/// that received it if another one passes it on, and the datagram.
///
/// The older process needs that worker. It registers each path of a session at the worker that the path's datagrams
/// reach, which has the same number in both processes.
fn write(to: &mut Vec<u8>, name: &str, from: Remote, datagram: &[u8]) {
    let (Ok(length), Ok(name_length)) = (u16::try_from(datagram.len()), u8::try_from(name.len())) else {
        return;
    };
    to.extend(length.to_be_bytes());
    to.push(name_length);
    to.extend(name.as_bytes());
    write_ip(to, Some(from.peer.ip()));
    to.extend(from.peer.port().to_be_bytes());
    write_ip(to, from.local);
    to.extend(from.via.map_or(NO_WORKER, |worker| worker.0).to_be_bytes());
    to.extend(datagram);
}

fn write_ip(to: &mut Vec<u8>, ip: Option<IpAddr>) {
    match ip {
        None => to.push(0),
        Some(IpAddr::V4(v4)) => {
            to.push(4);
            to.extend(v4.octets());
        }
        Some(IpAddr::V6(v6)) => {
            to.push(6);
            to.extend(v6.octets());
        }
    }
}

/// Reads the part before a datagram: name of the port, sender, length of the datagram, and the length of this part.
fn read(bytes: &[u8]) -> Option<(&[u8], Remote, usize, usize)> {
    let mut reader = Reader::new(bytes);
    let length = usize::from(reader.u16().ok()?);
    let name_length = usize::from(reader.u8().ok()?);
    let name = reader.take(name_length).ok()?;
    let ip = read_ip(&mut reader)??;
    let port = reader.u16().ok()?;
    let local = read_ip(&mut reader)?;
    let via = Some(reader.u16().ok()?).filter(|worker| *worker != NO_WORKER).map(WorkerId);
    let head = bytes.len().saturating_sub(reader.rest().len());
    Some((name, Remote { local, via, ..Remote::of(SocketAddr::new(ip, port)) }, length, head))
}

/// Reads an address, if there is one.
fn read_ip(reader: &mut Reader<'_>) -> Option<Option<IpAddr>> {
    match reader.u8().ok()? {
        0 => Some(None),
        4 => Some(Some(IpAddr::V4(Ipv4Addr::from_bits(reader.u32().ok()?)))),
        _ => {
            let octets: [u8; 16] = reader.take(16).ok()?.try_into().ok()?;
            Some(Some(IpAddr::V6(Ipv6Addr::from(octets))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders() -> [Remote; 4] {
        let v4 = Remote::of(([192, 0, 2, 7], 4200).into());
        let v6 = Remote::of("[2001:db8::1]:9".parse().unwrap());
        [
            v4,
            Remote { local: Some(Ipv4Addr::LOCALHOST.into()), ..v4 },
            Remote { local: Some(v6.peer.ip()), ..v6 },
            Remote { via: Some(WorkerId(2)), ..v4 },
        ]
    }

    #[test]
    fn datagrams_arrive_whole_however_the_stream_is_cut() {
        let mut bytes = Vec::new();
        for from in senders() {
            write(&mut bytes, "srt", from, b"some bytes");
        }
        write(&mut bytes, "webrtc", senders()[0], b"");
        for cut in 0..=bytes.len() {
            let whole = cut - incomplete(&bytes[..cut]);
            let (mut rest, mut seen) = (&bytes[..whole], Vec::new());
            while let Some((name, from, length, head)) = read(rest) {
                seen.push((name.to_vec(), from, rest[head..head + length].to_vec()));
                rest = &rest[head + length..];
            }
            assert!(rest.is_empty(), "{cut}");
            let all = senders().map(|from| (b"srt".to_vec(), from, b"some bytes".to_vec()));
            assert_eq!(seen.iter().take(4).cloned().collect::<Vec<_>>(), all[..seen.len().min(4)], "{cut}");
            assert_eq!(cut == bytes.len(), seen.len() == 5);
        }
    }

    #[test]
    fn the_bytes_that_wait_are_limited_and_an_ended_process_gets_none() {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut strays = Strays::new(Some(stream));
        let port = Port::all().next().unwrap();
        let datagram = [0; 60_000];
        for _ in 0..200 {
            strays.push(port, senders()[0], &datagram);
        }
        let (passed, lost) = strays.flush();
        assert!((60..80).contains(&passed) && passed + lost == 200, "{passed} {lost}");
        assert!(!strays.waiting.is_empty(), "nobody reads");
        drop(other);
        assert_eq!(strays.flush(), (0, 0));
        strays.push(port, senders()[0], &datagram);
        assert!(strays.waiting.is_empty() && strays.flush() == (0, 0));
    }
}
