//! The bare loop over SRT. Callers are admitted with the whole handshake; afterwards the loop only writes to them.
//! Up to eight data packets are sent in one call. Acknowledgements and loss reports of viewers are not read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use srt::{Config, Connection, Endpoint, Route, SocketId};
use wire::Datagrams;

use super::floor::{AUDIO, KEY_FRAME, RECORD_HEAD};

/// Number of data packets in one send.
const PACKETS_PER_SEND: usize = 8;
const HEAD_BYTES: usize = 16;
const PAYLOAD_BYTES: usize = 1316;
/// Offsets of the first sequence number and the socket id in a conclusion (draft-sharabayko-srt-01 §3.2.1).
const SEQUENCE_AT: usize = 24;
const SOCKET_AT: usize = 40;
/// A message of one packet, in order (§3.1): the second word of a data packet.
const SOLO: u32 = 0xc000_0000;
const SEQUENCES: u32 = 1 << 31;
/// Interval between two checks for new callers.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

struct Viewer {
    address: SocketAddr,
    socket: u32,
    sequence: u32,
    message: u32,
    began: Instant,
}

/// Runs until the process is killed. Writes two addresses to standard output: for publishers and for viewers.
pub fn run() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "{} {}", listener.local_addr()?, socket.local_addr()?)?;
    let (mut publisher, _) = listener.accept()?;
    // The number of the stream is ignored, because there is only one stream.
    publisher.read_exact(&mut [0; 5])?;
    publisher.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let endpoint = Endpoint::new(Instant::now(), &Seed::from_number(1));
    let mut floor = Floor { socket, state, endpoint, viewers: Vec::new(), gop: Vec::new(), run: Vec::new() };
    let (mut pending, mut riding) = (Vec::new(), Vec::new());
    loop {
        floor.let_in()?;
        floor.pass_on(&mut publisher, &mut pending, &mut riding)?;
        std::thread::sleep(LOOK_PERIOD);
    }
}

struct Floor {
    socket: UdpSocket,
    state: UdpSocketState,
    endpoint: Endpoint<usize>,
    viewers: Vec<Viewer>,
    gop: Vec<u8>,
    run: Vec<u8>,
}

impl Floor {
    /// Answers the handshakes of callers. Other datagrams are read only to reach the next handshake, and are
    /// ignored.
    fn let_in(&mut self) -> io::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let (count, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let datagram = buffer.get(..count).unwrap_or_default();
            let (now, mut reply) = (Instant::now(), Vec::new());
            match self.endpoint.route(now, from, datagram, &mut reply) {
                Route::Reply => drop(self.socket.send_to(&reply, from)?),
                Route::New(incoming) => {
                    let word = |at: usize| {
                        let word = datagram.get(at..).and_then(|rest| rest.first_chunk());
                        word.map_or(0, |word| u32::from_be_bytes(*word))
                    };
                    let (sequence, peer) = (word(SEQUENCE_AT), word(SOCKET_AT));
                    let id = SocketId(u32::try_from(self.viewers.len()).unwrap_or(0) + 1);
                    self.endpoint.insert(id, from, SocketId(peer), self.viewers.len());
                    let mut connection = Connection::incoming(now, *incoming, id, &Seed::from_number(2));
                    connection.accept(now, Arc::new(Config::default()));
                    let mut out = Datagrams::new();
                    connection.poll_transmit(now, &mut out);
                    (0..out.len()).try_for_each(|n| self.socket.send_to(out.get(n), from).map(drop))?;
                    let mut viewer = Viewer { address: from, socket: peer, sequence, message: 1, began: now };
                    send(&self.socket, &self.state, &mut self.run, &mut viewer, &self.gop);
                    self.viewers.push(viewer);
                }
                Route::Session(_) | Route::Drop(_) => {}
            }
        }
    }

    fn pass_on(
        &mut self,
        publisher: &mut TcpStream,
        pending: &mut Vec<u8>,
        riding: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        loop {
            match publisher.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => pending.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let mut rest = pending.as_slice();
        while let Some(([kind, length @ ..], bytes)) = rest.split_first_chunk::<RECORD_HEAD>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let Some((unit, behind)) = bytes.split_at_checked(length) else { break };
            rest = behind;
            riding.extend_from_slice(unit);
            if *kind == KEY_FRAME {
                self.gop.clear();
            }
            if *kind != AUDIO {
                self.gop.extend_from_slice(riding);
                for viewer in &mut self.viewers {
                    send(&self.socket, &self.state, &mut self.run, viewer, riding);
                }
                riding.clear();
            }
        }
        let used = pending.len() - rest.len();
        pending.drain(..used);
        Ok(())
    }
}

/// Sends all bytes to one viewer, eight packets in one call.
fn send(socket: &UdpSocket, state: &UdpSocketState, run: &mut Vec<u8>, viewer: &mut Viewer, bytes: &[u8]) {
    #[allow(clippy::cast_possible_truncation, reason = "timestamps wrap")]
    let timestamp = viewer.began.elapsed().as_micros() as u32;
    for packets in bytes.chunks(PAYLOAD_BYTES * PACKETS_PER_SEND) {
        run.clear();
        for payload in packets.chunks(PAYLOAD_BYTES) {
            run.extend_from_slice(&viewer.sequence.to_be_bytes());
            run.extend_from_slice(&(SOLO | viewer.message).to_be_bytes());
            run.extend_from_slice(&timestamp.to_be_bytes());
            run.extend_from_slice(&viewer.socket.to_be_bytes());
            run.extend_from_slice(payload);
            viewer.sequence = (viewer.sequence + 1) % SEQUENCES;
            viewer.message = viewer.message % 0x03ff_ffff + 1;
        }
        let transmit = Transmit {
            destination: viewer.address,
            ecn: None,
            contents: run,
            segment_size: Some(HEAD_BYTES + PAYLOAD_BYTES),
            src_ip: None,
        };
        let _ = state.try_send(UdpSockRef::from(socket), &transmit);
    }
}
