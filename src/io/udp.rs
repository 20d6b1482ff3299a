//! UDP sockets. They receive datagrams in batches, and send runs of datagrams of equal length (quinn-udp). Datagrams
//! that the system does not accept are lost, as others may be lost on their way; the protocols that use the socket
//! repair losses.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use smallvec::SmallVec;
use wire::Datagrams;

use super::sys;
use crate::protocol::Remote;

/// Maximum number of messages of one receive call. Each message may hold many datagrams of one sender (UDP_GRO).
const BATCH: usize = 16;
/// Maximum number of bytes of a message: the largest message that segmentation offload makes.
const MESSAGE_BYTES: usize = 65_536;
/// Number of consecutive runs of datagrams that the kernel must refuse before datagrams are sent one by one.
const REFUSALS_MAX: u32 = 32;
/// Sizes of the socket buffers of a shared port. `net.core.rmem_max` and `wmem_max` limit them.
const PORT_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// Received datagrams.
#[derive(Debug, Default)]
pub(super) struct Batch {
    buffer: Vec<u8>,
    metas: Vec<RecvMeta>,
}

impl Batch {
    /// Iterates over the datagrams with their senders.
    pub(super) fn datagrams(&mut self, messages: usize) -> impl Iterator<Item = (Remote, &mut [u8])> {
        let received = self.metas.iter().zip(self.buffer.chunks_exact_mut(MESSAGE_BYTES)).take(messages);
        received.flat_map(|(meta, buffer)| {
            let bytes = buffer.get_mut(..meta.len).unwrap_or_default();
            let from = Remote { local: meta.dst_ip, ..Remote::of(meta.addr) };
            // An empty datagram is skipped, because no protocol uses it.
            bytes.chunks_mut(meta.stride.max(1)).map(move |datagram| (from, datagram))
        })
    }
}

/// A UDP socket.
#[derive(Debug)]
pub(super) struct UdpSocket {
    pub(super) socket: mio::net::UdpSocket,
    peer: Option<SocketAddr>,
    state: UdpSocketState,
    /// Maximum number of datagrams of one send call (UDP_SEGMENT). Lowered to 1 if runs are refused, because only
    /// sending shows that a network device does not support them.
    segments: Cell<usize>,
    /// Number of consecutive runs that the kernel has refused.
    refusals: Cell<u32>,
    /// True if the kernel may have datagrams to read.
    pub(super) readable: bool,
    /// Time of the last read.
    pub(super) read_at: Option<Instant>,
    /// Time until which events of the socket are switched off.
    pub(super) muted_until: Option<Instant>,
}

impl UdpSocket {
    /// Wraps a bound, non-blocking socket.
    pub(super) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        if let Err(error) = sys::let_fragment(socket.as_fd()) {
            tracing::debug!(%error, "UDP fragments");
        }
        let segments = Cell::new(state.max_gso_segments());
        let socket = mio::net::UdpSocket::from_std(socket);
        let refusals = Cell::new(0);
        let peer = socket.peer_addr().ok();
        Ok(Self { socket, peer, state, segments, refusals, readable: true, read_at: None, muted_until: None })
    }

    /// Makes a socket for many peers. Its buffers are as large as the system allows, so that they can hold bursts.
    pub(super) fn for_many(socket: std::net::UdpSocket) -> io::Result<Self> {
        let this = Self::new(socket)?;
        let reference = UdpSockRef::from(&this.socket);
        for granted in [
            this.state.set_recv_buffer_size(UdpSockRef::from(&this.socket), PORT_BUFFER_BYTES),
            this.state.set_send_buffer_size(reference, PORT_BUFFER_BYTES),
        ] {
            if let Err(error) = granted {
                tracing::debug!(%error, "UDP buffer");
            }
        }
        Ok(this)
    }

    /// Receives up to one batch of messages. Returns the number of messages; fails with `WouldBlock` if there are
    /// none.
    pub(super) fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        if batch.buffer.is_empty() {
            batch.buffer = vec![0; BATCH * MESSAGE_BYTES];
            batch.metas = vec![RecvMeta::default(); BATCH];
        }
        let chunks = batch.buffer.chunks_exact_mut(MESSAGE_BYTES);
        let mut slices: SmallVec<[IoSliceMut<'_>; BATCH]> = chunks.map(IoSliceMut::new).collect();
        let received = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut batch.metas);
        if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.readable = false;
        }
        received
    }

    /// Sends all datagrams. Returns the number of bytes that the system accepted, and the number of datagrams that
    /// it did not accept.
    pub(super) fn send(&self, to: Remote, datagrams: &Datagrams) -> (usize, usize) {
        let (mut taken, mut lost, mut from) = (0usize, 0usize, 0);
        while let Some(run) = datagrams.run(from, self.segments.get()) {
            if self.send_run(to, run.bytes, run.segment).is_ok() {
                taken = taken.saturating_add(run.bytes.len());
            } else {
                lost = lost.saturating_add(run.next.saturating_sub(from));
            }
            from = run.next;
        }
        (taken, lost)
    }

    /// Sends one datagram, or a run of datagrams of `segment` bytes each.
    pub(super) fn send_run(&self, to: Remote, bytes: &[u8], segment: usize) -> io::Result<()> {
        if segment >= bytes.len() {
            return self.send_once(to, bytes, None);
        }
        match self.send_once(to, bytes, Some(segment)) {
            Err(error) if is_refusal(&error) => {
                bytes.chunks(segment.max(1)).try_for_each(|bytes| self.send_once(to, bytes, None))?;
                self.note_refusal(&error);
                Ok(())
            }
            Ok(()) => {
                self.refusals.set(0);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn send_once(&self, to: Remote, contents: &[u8], segment_size: Option<usize>) -> io::Result<()> {
        let (destination, src_ip) = (to.peer, to.local);
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Counts a run that was refused although its datagrams were then accepted one by one, which shows that the
    /// address was not at fault. The cause may be a single path (a tunnel, a small MTU), so runs are given up only
    /// after several refusals.
    fn note_refusal(&self, error: &io::Error) {
        self.refusals.set(self.refusals.get().saturating_add(1));
        if self.refusals.get() >= REFUSALS_MAX && self.segments.replace(1) > 1 {
            tracing::debug!(%error, "no segmentation offload");
        }
    }

    /// Returns the address to which the socket was connected when it was created.
    pub(super) const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

/// True if the run may be the cause of the error. EINVAL and EMSGSIZE are also reported for bad addresses.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive_all(socket: &mut UdpSocket, batch: &mut Batch, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut all = Vec::new();
        while all.len() < count {
            match socket.receive(batch) {
                Ok(messages) => {
                    all.extend(batch.datagrams(messages).map(|(from, bytes)| (from.peer, bytes.to_vec())))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        all
    }

    #[test]
    fn runs_arrive_as_the_datagrams_that_they_were() {
        let socket = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            UdpSocket::for_many(socket).unwrap()
        };
        let (a, mut b) = (socket(), socket());
        let to = Remote::of(b.socket.local_addr().unwrap());
        let mut datagrams = Datagrams::new();
        let lengths = [1332, 1332, 1332, 700, 20, 1332, 1332];
        for (n, length) in (0u8..).zip(lengths) {
            datagrams.push(&[n], &vec![n; length - 1]);
        }
        assert_eq!(a.send(to, &datagrams), (datagrams.bytes(), 0));
        let mut batch = Batch::default();
        let mut received = receive_all(&mut b, &mut batch, lengths.len());
        received.sort_by_key(|(_, bytes)| bytes.first().copied());
        for (n, (from, bytes)) in received.iter().enumerate() {
            assert_eq!(*from, a.socket.local_addr().unwrap());
            assert_eq!((bytes.len(), usize::from(bytes[0])), (lengths[n], n));
        }
        assert!(!b.readable || b.receive(&mut batch).is_err());
    }

    /// Sends the packets of a picture and, as a shorter tail, its audio: in one call, or without segmentation
    /// offload in one call for each packet.
    #[test]
    fn a_run_with_a_shorter_tail_arrives_without_offload_too() {
        let socket = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            UdpSocket::for_many(socket).unwrap()
        };
        for segments in [64, 1] {
            let (a, mut b) = (socket(), socket());
            a.segments.set(segments.min(a.segments.get()));
            let to = Remote::of(b.socket.local_addr().unwrap());
            let mut datagrams = Datagrams::new();
            let lengths = [1180, 1180, 1180, 350];
            lengths.iter().for_each(|length| datagrams.push(&vec![7; *length], &[]));
            assert_eq!(datagrams.run(0, 64).map(|run| run.next), Some(lengths.len()));
            assert_eq!(a.send(to, &datagrams), (datagrams.bytes(), 0));
            let received = receive_all(&mut b, &mut Batch::default(), lengths.len());
            let mut received: Vec<usize> = received.iter().map(|(_, bytes)| bytes.len()).collect();
            received.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(received, lengths);
        }
    }

    #[test]
    fn a_peer_that_cannot_be_sent_to_takes_nothing_from_the_others() {
        let socket = || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            UdpSocket::new(socket).unwrap()
        };
        let (a, mut b) = (socket(), socket());
        let segments = a.segments.get();
        let good = Remote::of(b.socket.local_addr().unwrap());
        // A spoofed packet can come from port 0, or be sent to a broadcast address, from which an answer would then be
        // sent. The kernel refuses both answers.
        let no_port = Remote::of("127.0.0.1:0".parse().unwrap());
        let broadcast = Remote { local: Some("127.255.255.255".parse().unwrap()), ..good };
        let mut datagrams = Datagrams::new();
        (0..4).for_each(|_| datagrams.push(&[0; 100], &[]));
        for bad in [no_port, broadcast] {
            for _ in 0..100 {
                assert_eq!(a.send(bad, &datagrams), (0, 4));
                assert!(a.send_run(bad, &[0; 64], 64).is_err());
            }
        }
        assert_eq!(a.segments.get(), segments);
        assert_eq!(a.send(good, &datagrams), (400, 0));
        assert_eq!(receive_all(&mut b, &mut Batch::default(), 4).len(), 4);
    }
}
