//! SRT over one UDP port: connections from callers, and connections to listeners.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use srt::{
    Bytes, CloseReason, Config, Connection, Datagrams, Endpoint, Event, Incoming, Passphrase, RejectReason,
    Route, STREAM_ID_BYTES_MAX, Seed, SocketId,
};

use crate::address::counted;
use crate::events::Events;
use crate::guard::{self, Guarded, bytes, call, text};
use crate::{MillstreamAddress, MillstreamDatagram, MillstreamResult};

/// Callers that may wait for an answer at the same time; others are told to try again.
const WAITING_MAX: usize = 64;
/// Those of them that may come from one address, of IPv6 from one /64 network.
const WAITING_PER_ADDRESS_MAX: usize = 8;
/// Time after which a caller without an answer is forgotten. Callers give up after about as long.
const WAITING_TIME: Duration = Duration::from_secs(3);
/// Maximum number of random socket ids tried until one is free.
const TRIES_MAX: u64 = 64;
/// Replies to callers without a connection that may wait to be sent; others are lost.
const REPLIES_MAX: usize = 256;

/// The connections of a UDP port.
#[derive(Debug)]
pub struct MillstreamSrt {
    _opaque: [u8; 0],
}

/// The kind of an event of SRT.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MillstreamSrtEventKind {
    /// A caller asks for a connection; the data is its stream id. Answer with `accept` or `reject` within three seconds: later the
    /// caller is forgotten, and the event `CLOSED` says so.
    Request = 0,
    /// The connection is established.
    Connected = 1,
    /// The data is a payload.
    Payload = 2,
    /// Packets came too late or not at all; `number` is how many.
    Skipped = 3,
    /// The connection has ended, or its caller was rejected or forgotten; its id has no more events.
    Closed = 4,
    /// The program has not taken the events of the connection, which hold 8 MiB, or those of the port, which hold 256 MiB. The
    /// connection is closed; later payloads are lost.
    Overflow = 5,
}

/// An event of SRT.
#[repr(C)]
#[derive(Debug)]
pub struct MillstreamSrtEvent {
    /// The kind.
    pub kind: MillstreamSrtEventKind,
    /// Id of the connection.
    pub connection: u64,
    /// A number; see the kind.
    pub number: u32,
    /// Data, which belongs to the handle; see the kind.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}

#[derive(Debug)]
struct Port {
    endpoint: Endpoint<u64>,
    config: Arc<Config>,
    seed: Seed,
    /// Callers without an answer, and the times at which they are forgotten. Their connections are among the others.
    waiting: BTreeMap<u64, (IpAddr, Instant)>,
    connections: BTreeMap<u64, (Connection, SocketAddr)>,
    /// Number of ids given so far.
    ids: u64,
    /// Connections that may have datagrams to send.
    touched: BTreeSet<u64>,
    events: Events<(MillstreamSrtEventKind, u64, u32, Bytes)>,
    /// Connections that end because their events were not taken.
    overflown: BTreeSet<u64>,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The event and the datagram that were handed out.
    shown: (Bytes, Vec<u8>),
    out: Datagrams,
    /// Next datagram in `out`, and its destination.
    next: Option<(usize, SocketAddr)>,
}

// A handle may move between threads.
const _: () = guard::assert_send::<Guarded<Port>>();

impl Port {
    fn new(now: Instant, config: Config, seed: Seed) -> Self {
        Self {
            endpoint: Endpoint::new(now, &seed),
            config: Arc::new(config),
            seed,
            waiting: BTreeMap::new(),
            connections: BTreeMap::new(),
            ids: 0,
            touched: BTreeSet::new(),
            events: Events::new(),
            overflown: BTreeSet::new(),
            replies: VecDeque::new(),
            shown: (Bytes::new(), Vec::new()),
            out: Datagrams::new(),
            next: None,
        }
    }

    fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn connect(&mut self, now: Instant, to: SocketAddr, stream_id: &str) -> Option<u64> {
        if self.events.is_full() {
            return None;
        }
        let id = self.new_id();
        let seed = self.seed.derive("caller", id);
        // The peer's socket is not known yet; its address is.
        let socket = self.insert(&seed, to, SocketId(0), id)?;
        let connection = Connection::caller(now, Arc::clone(&self.config), socket, stream_id, &seed);
        self.connections.insert(id, (connection, to));
        self.touch(now, id);
        Some(id)
    }

    /// Draws a socket id that is free, and adds it to the endpoint. The first is nearly always free.
    fn insert(&mut self, seed: &Seed, address: SocketAddr, peer: SocketId, id: u64) -> Option<SocketId> {
        let mut sockets = (0..TRIES_MAX).map(|index| SocketId::random(&seed.derive("socket", index)));
        sockets.find(|socket| self.endpoint.insert(*socket, address, peer, id))
    }

    /// Keeps a caller until it is answered, or tells it to try again. Repetitions of its request go to its connection.
    fn wait(&mut self, now: Instant, incoming: Incoming, reply: &mut Vec<u8>) {
        let (id, from) = (self.new_id(), incoming.from());
        let address = counted(from.ip());
        let of_address = self.waiting.values().filter(|(other, _)| *other == address).count();
        let has_room = self.waiting.len() < WAITING_MAX && of_address < WAITING_PER_ADDRESS_MAX;
        let seed = self.seed.derive("listener", id);
        let socket = if has_room { self.insert(&seed, from, incoming.peer_socket(), id) } else { None };
        let Some(socket) = socket else { return incoming.reject(now, RejectReason::RESOURCE, reply) };
        let stream_id = Bytes::copy_from_slice(incoming.stream_id().unwrap_or_default().as_bytes());
        if !self.events.push(id, stream_id.len(), (MillstreamSrtEventKind::Request, id, 0, stream_id)) {
            self.endpoint.remove(socket);
            return incoming.reject(now, RejectReason::RESOURCE, reply);
        }
        self.waiting.insert(id, (address, now + WAITING_TIME));
        self.connections.insert(id, (Connection::incoming(now, incoming, socket, &seed), from));
    }

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut reply = Vec::new();
        match self.endpoint.route(now, from, datagram, &mut reply) {
            Route::Session(id) => {
                if let Some((connection, _)) = self.connections.get_mut(&id) {
                    connection.handle_datagram(now, datagram);
                }
                self.touch(now, id);
            }
            Route::New(incoming) => self.wait(now, *incoming, &mut reply),
            Route::Reply | Route::Drop(_) => {}
        }
        self.reply(from, reply);
    }

    fn reply(&mut self, to: SocketAddr, reply: Vec<u8>) {
        if !reply.is_empty() && self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, reply));
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_due = |(_, (connection, _)): &(&u64, &(Connection, SocketAddr))| {
            connection.poll_timeout().is_some_and(|at| at <= now)
        };
        let due: Vec<u64> = self.connections.iter().filter(is_due).map(|(id, _)| *id).collect();
        for id in due {
            if let Some((connection, _)) = self.connections.get_mut(&id) {
                connection.handle_timeout(now);
            }
            self.touch(now, id);
        }
        let late: Vec<u64> =
            self.waiting.iter().filter(|(_, (_, at))| *at <= now).map(|(id, _)| *id).collect();
        for id in late {
            self.waiting.remove(&id);
            let is_unheard = self.events.holds(id);
            if let Some((connection, _)) = self.connections.get_mut(&id) {
                connection.close(now, CloseReason::Local);
            }
            self.touch(now, id);
            if is_unheard {
                self.events.forget(id);
            }
        }
    }

    /// Takes the events of a connection.
    fn touch(&mut self, now: Instant, id: u64) {
        use MillstreamSrtEventKind::{Closed, Connected, Overflow, Payload, Skipped};
        let Some((connection, _)) = self.connections.get_mut(&id) else { return };
        while let Some(event) = connection.poll_event() {
            let (kind, number, data) = match event {
                Event::Connected(_) => (Connected, 0, Bytes::new()),
                Event::Payload(payload) => (Payload, 0, payload),
                Event::Skipped(packets) => (Skipped, packets, Bytes::new()),
                Event::Closed(_) => {
                    self.overflown.remove(&id);
                    self.events.push_last(id, (Closed, id, 0, Bytes::new()));
                    continue;
                }
            };
            if self.overflown.contains(&id) || self.events.push(id, data.len(), (kind, id, number, data)) {
                continue;
            }
            self.overflown.insert(id);
            self.events.push_last(id, (Overflow, id, 0, Bytes::new()));
            connection.close(now, CloseReason::Local);
        }
        self.touched.insert(id);
    }

    /// Answers a caller that waits.
    fn answer(&mut self, now: Instant, id: u64, answer: impl FnOnce(&mut Connection)) -> MillstreamResult {
        let waits = self.waiting.remove(&id).is_some();
        let Some((connection, _)) = self.connections.get_mut(&id).filter(|_| waits) else {
            return MillstreamResult::State;
        };
        answer(connection);
        self.touch(now, id);
        MillstreamResult::Ok
    }

    fn accept(&mut self, now: Instant, id: u64) -> MillstreamResult {
        let config = Arc::clone(&self.config);
        self.answer(now, id, |connection| connection.accept(now, config))
    }

    fn reject(&mut self, now: Instant, id: u64, code: u32) -> MillstreamResult {
        self.answer(now, id, |connection| connection.reject(now, RejectReason::new(code)))
    }

    fn send(&mut self, now: Instant, id: u64, payload: &[u8]) -> MillstreamResult {
        let Some((connection, _)) = self.connections.get_mut(&id) else { return MillstreamResult::State };
        if !connection.is_connected() {
            return MillstreamResult::State;
        }
        if connection.send_room() < payload.len() {
            return MillstreamResult::Full;
        }
        let sent = connection.send(now, Bytes::copy_from_slice(payload));
        self.touch(now, id);
        if sent.is_ok() { MillstreamResult::Ok } else { MillstreamResult::Argument }
    }

    fn close(&mut self, now: Instant, id: u64) -> MillstreamResult {
        if self.waiting.contains_key(&id) {
            return MillstreamResult::State;
        }
        let Some((connection, _)) = self.connections.get_mut(&id) else { return MillstreamResult::State };
        connection.close(now, CloseReason::Local);
        self.touch(now, id);
        MillstreamResult::Ok
    }

    /// The destination of the next datagram, which is then in `out` or `shown`.
    fn poll_transmit(&mut self, now: Instant) -> Option<(SocketAddr, &[u8])> {
        if let Some((to, reply)) = self.replies.pop_front() {
            self.shown.1 = reply;
            return Some((to, &self.shown.1));
        }
        loop {
            if let Some((index, to)) = self.next {
                if index < self.out.len() {
                    self.next = Some((index + 1, to));
                    return Some((to, self.out.get(index)));
                }
                self.next = None;
                self.out.clear();
            }
            let id = *self.touched.first()?;
            let Some((connection, peer)) = self.connections.get_mut(&id) else {
                self.touched.remove(&id);
                continue;
            };
            if connection.poll_transmit(now, &mut self.out) {
                self.next = Some((0, *peer));
                continue;
            }
            self.touched.remove(&id);
            if connection.is_over() {
                let local = connection.local();
                self.endpoint.remove(local);
                self.connections.remove(&id);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.values().filter_map(|(connection, _)| connection.poll_timeout());
        connections.chain(self.waiting.values().map(|(_, at)| *at)).min()
    }
}

/// Makes a port. `passphrase` (10 to 79 characters) encrypts what it sends and is demanded of callers; of length 0 it means none.
/// `latency_ms` is how long lost packets may be repaired; 0 means 120.
///
/// # Safety
/// `passphrase_length` bytes can be read at `passphrase`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_new(
    now_us: u64,
    passphrase: *const u8,
    passphrase_length: usize,
    latency_ms: u32,
) -> *mut MillstreamSrt {
    // SAFETY: the caller guarantees the bytes.
    let Some(passphrase) = (unsafe { text(passphrase, passphrase_length) }) else {
        return std::ptr::null_mut();
    };
    let made = Guarded::new(now_us, |now| {
        let mut config = Config::default();
        if !passphrase.is_empty() {
            config.passphrase = Some(Passphrase::new(passphrase).ok()?);
        }
        if latency_ms > 0 {
            config.latency = Duration::from_millis(u64::from(latency_ms));
            config.peer_latency = config.latency;
        }
        Some(Port::new(now, config, Seed::from_os().ok()?))
    });
    made.map_or(std::ptr::null_mut(), |made| Box::into_raw(made).cast())
}

/// Frees a port and its connections, without a word to their peers.
///
/// # Safety
/// `srt` is NULL, or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_free(srt: *mut MillstreamSrt) {
    // SAFETY: the handle came from `Box::into_raw` in `new`, and is freed once.
    unsafe { guard::free(srt.cast::<Guarded<Port>>()) }
}

/// Begins a connection to a listener, and writes its id to `connection`. A stream id that is longer than 512 bytes or not in UTF-8 is
/// `ARGUMENT`. `FULL` means that the events of the port were not taken.
///
/// # Safety
/// `srt` is NULL or valid; the other pointers are NULL or point to what their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_connect(
    srt: *mut MillstreamSrt,
    now_us: u64,
    to: *const MillstreamAddress,
    stream_id: *const u8,
    stream_id_length: usize,
    connection: *mut u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees each pointer that is not null.
    unsafe {
        let (Some(to), Some(connection)) = (to.as_ref(), connection.as_mut()) else {
            return MillstreamResult::Null;
        };
        let Some(stream_id) = bytes(stream_id, stream_id_length) else { return MillstreamResult::Null };
        let stream_id = std::str::from_utf8(stream_id).ok();
        let stream_id = stream_id.filter(|stream_id| stream_id.len() <= STREAM_ID_BYTES_MAX);
        let (Some(to), Some(stream_id)) = (to.get(), stream_id) else { return MillstreamResult::Argument };
        call(srt.cast::<Guarded<Port>>(), now_us, |port, now| {
            let Some(id) = port.connect(now, to, stream_id) else { return MillstreamResult::Full };
            *connection = id;
            MillstreamResult::Ok
        })
    }
}

/// Handles a datagram from `from`.
///
/// # Safety
/// `srt` is NULL or valid; `from` is NULL or valid; `length` bytes can be read at `data`, or it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_handle_datagram(
    srt: *mut MillstreamSrt,
    now_us: u64,
    from: *const MillstreamAddress,
    data: *const u8,
    length: usize,
) -> MillstreamResult {
    // SAFETY: the caller guarantees each pointer that is not null.
    unsafe {
        let (Some(from), Some(datagram)) = (from.as_ref(), bytes(data, length)) else {
            return MillstreamResult::Null;
        };
        let Some(from) = from.get() else { return MillstreamResult::Argument };
        call(srt.cast::<Guarded<Port>>(), now_us, |port, now| {
            port.handle_datagram(now, from, datagram);
            MillstreamResult::Ok
        })
    }
}

/// Handles the deadlines that have passed.
///
/// # Safety
/// `srt` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_handle_timeout(
    srt: *mut MillstreamSrt,
    now_us: u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe {
        call(srt.cast::<Guarded<Port>>(), now_us, |port, now| {
            port.handle_timeout(now);
            MillstreamResult::Ok
        })
    }
}

/// Accepts the caller of a request.
///
/// # Safety
/// `srt` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_accept(
    srt: *mut MillstreamSrt,
    now_us: u64,
    connection: u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe { call(srt.cast::<Guarded<Port>>(), now_us, |port, now| port.accept(now, connection)) }
}

/// Rejects the caller of a request with a code of SRT, as 1403 (forbidden) or 1404 (not found). Its last event is `CLOSED`.
///
/// # Safety
/// `srt` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_reject(
    srt: *mut MillstreamSrt,
    now_us: u64,
    connection: u64,
    code: u32,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe { call(srt.cast::<Guarded<Port>>(), now_us, |port, now| port.reject(now, connection, code)) }
}

/// Sends a payload of at most 1316 bytes.
///
/// # Safety
/// `srt` is NULL or valid; `length` bytes can be read at `data`, or it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_send(
    srt: *mut MillstreamSrt,
    now_us: u64,
    connection: u64,
    data: *const u8,
    length: usize,
) -> MillstreamResult {
    // SAFETY: the caller guarantees each pointer that is not null.
    unsafe {
        let Some(payload) = bytes(data, length) else { return MillstreamResult::Null };
        call(srt.cast::<Guarded<Port>>(), now_us, |port, now| port.send(now, connection, payload))
    }
}

/// Closes a connection. Its last event is `CLOSED`.
///
/// # Safety
/// `srt` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_close(
    srt: *mut MillstreamSrt,
    now_us: u64,
    connection: u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe { call(srt.cast::<Guarded<Port>>(), now_us, |port, now| port.close(now, connection)) }
}

/// Writes the next event to `event`, or returns `NOTHING`.
///
/// # Safety
/// `srt` is NULL or valid; `event` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_poll_event(
    srt: *mut MillstreamSrt,
    event: *mut MillstreamSrtEvent,
) -> MillstreamResult {
    if event.is_null() {
        return MillstreamResult::Null;
    }
    // SAFETY: the caller guarantees the handle, and that the event can be written.
    unsafe {
        call(srt.cast::<Guarded<Port>>(), 0, |port, _| {
            let Some((kind, connection, number, data)) = port.events.pop() else {
                return MillstreamResult::Nothing;
            };
            port.shown.0 = data;
            let (data, length) = (port.shown.0.as_ptr(), port.shown.0.len());
            event.write(MillstreamSrtEvent { kind, connection, number, data, length });
            MillstreamResult::Ok
        })
    }
}

/// Writes the next datagram to `datagram`, or returns `NOTHING`.
///
/// # Safety
/// `srt` is NULL or valid; `datagram` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_poll_transmit(
    srt: *mut MillstreamSrt,
    now_us: u64,
    datagram: *mut MillstreamDatagram,
) -> MillstreamResult {
    if datagram.is_null() {
        return MillstreamResult::Null;
    }
    // SAFETY: the caller guarantees the handle, and that the datagram can be written.
    unsafe {
        call(srt.cast::<Guarded<Port>>(), now_us, |port, now| {
            let Some((to, data)) = port.poll_transmit(now) else { return MillstreamResult::Nothing };
            datagram.write(MillstreamDatagram { to: to.into(), data: data.as_ptr(), length: data.len() });
            MillstreamResult::Ok
        })
    }
}

/// Returns the next deadline, or `UINT64_MAX` if there is none.
///
/// # Safety
/// `srt` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_srt_poll_timeout(srt: *mut MillstreamSrt) -> u64 {
    // SAFETY: the caller guarantees the handle.
    unsafe { guard::deadline(srt.cast::<Guarded<Port>>(), |port| port.poll_timeout()) }
}
