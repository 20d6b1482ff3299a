//! The load: publishers and viewers, all in one loop of one thread, so that their core goes to reading.
//!
//! A viewer's handshake is the client machine's; from then on a light parser sees message boundaries and stamps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rtmp::{Client, ClientConfig, ClientEvent};
use wire::SendQueue;

use super::floor;
use super::histogram::Histogram;
use super::media::{GOP_TIME, Source, stamp_of};
use super::parser::{Parser, Whole};

/// Message types.
const AUDIO: u8 = 8;
const VIDEO: u8 = 9;
/// A viewer acknowledges so many bytes, as players do (RTMP 1.0 §5.4.3).
const ACKNOWLEDGE_BYTES: u64 = 2_500_000;
/// A unit that takes longer is late.
const LATE: Duration = Duration::from_millis(100);
/// Connections that are in their handshake at once.
const CONNECTING_MAX: usize = 32;
/// All connections must be ready by then.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// What has not arrived by then, after the last unit was sent, is lost.
const DRAIN_MAX: Duration = Duration::from_secs(5);
const DRAIN_STEP: Duration = Duration::from_millis(200);
const BUFFER_BYTES: usize = 256 * 1024;
/// The message (RTMP 1.0 §5.4.3): chunk stream 2, type 3, four bytes. No server looks at the number.
const ACKNOWLEDGEMENT: [u8; 16] = [2, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0x26, 0x25, 0xa0];

/// What the viewers saw in the measured window.
#[derive(Debug, Clone)]
pub struct Seen {
    pub bytes: u64,
    pub units: u64,
    pub late: u64,
    /// How much later than due the publishers sent: the load's own delay.
    pub behind: Histogram,
    pub video: Histogram,
    pub audio: Histogram,
}

impl Seen {
    fn new() -> Self {
        Self {
            bytes: 0,
            units: 0,
            late: 0,
            behind: Histogram::new(),
            video: Histogram::new(),
            audio: Histogram::new(),
        }
    }
}

/// Where the server is, and whether it is a bare loop that speaks no RTMP with publishers.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub address: SocketAddr,
    pub bare: bool,
}

/// What a viewer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// Reads everything.
    Good,
    /// Plays, and never reads.
    Stalled,
}

/// Consecutive numbers of one kind of unit at one viewer.
#[derive(Debug, Default)]
struct Sequence {
    /// The number that should come next; `None` before the first.
    next: Option<u64>,
    wrong: u64,
}

impl Sequence {
    fn take(&mut self, counter: u64) {
        let expected = self.next.unwrap_or(counter);
        self.wrong += counter.abs_diff(expected);
        self.next = Some(counter + 1);
    }

    /// Units lost or doubled on the way when the publisher has made `made`.
    fn lost(&self, made: u64) -> u64 {
        self.wrong + self.next.map_or(made, |next| made.saturating_sub(next))
    }
}

#[derive(Debug)]
enum Role {
    Publisher(Box<Source>),
    Player { parser: Parser, unacknowledged: u64, video: Sequence, audio: Sequence },
    Stalled,
}

struct Conn {
    socket: TcpStream,
    stream: usize,
    role: Role,
    /// Until the server has consented.
    client: Option<Box<Client>>,
    message_stream: u32,
    out: Vec<u8>,
    gone: Option<String>,
}

/// The loop.
pub struct Load {
    target: Target,
    poll: Poll,
    conns: Vec<Conn>,
    /// When which publisher sends next.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    began: Instant,
    /// Never sleep: on loopback a server pays for each wake-up of a reader, and the faster the readers, the more.
    spin: bool,
    stopping: bool,
    connecting: usize,
    buffer: Vec<u8>,
    seen: Seen,
}

impl Load {
    /// Without connections.
    pub fn new(target: Target, spin: bool) -> io::Result<Self> {
        Ok(Self {
            target,
            poll: Poll::new()?,
            conns: Vec::new(),
            due: BinaryHeap::new(),
            began: Instant::now(),
            spin,
            stopping: false,
            connecting: 0,
            buffer: vec![0; BUFFER_BYTES],
            seen: Seen::new(),
        })
    }

    /// Connects one publisher per stream and has them send.
    pub fn publish(&mut self, streams: usize, bits_per_second: u64) -> Result<(), String> {
        let source = Source::new(bits_per_second);
        for stream in 0..streams {
            self.connect(stream, Role::Publisher(Box::new(source.clone())))?;
        }
        self.wait_for_all("the publishers")?;
        let (now, bare) = (Instant::now(), self.target.bare);
        for index in 0..self.conns.len() {
            // The key frames of the streams do not all come in the same moment.
            let phase = GOP_TIME * u32::try_from(index).unwrap_or(0) / u32::try_from(streams).unwrap_or(1);
            self.due.push(Reverse((now + phase, index)));
            self.send(index, |conn, out| {
                let Role::Publisher(source) = &mut conn.role else { return };
                let (begin, due) = (out.len(), source.due());
                source.configs(conn.message_stream, out);
                if bare {
                    floor::seal_record(out, begin, due);
                }
            });
        }
        Ok(())
    }

    /// Connects so many viewers, spread over the streams.
    pub fn play(&mut self, viewers: usize, streams: usize, kind: Viewer) -> Result<(), String> {
        for viewer in 0..viewers {
            let role = match kind {
                Viewer::Stalled => Role::Stalled,
                Viewer::Good => player(),
            };
            self.connect(viewer % streams.max(1), role)?;
        }
        self.wait_for_all("the viewers")
    }

    /// Publishes and reads for so long.
    pub fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn(until).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Begins the measured window.
    pub fn clear(&mut self) {
        self.seen = Seen::new();
    }

    /// What was seen since [`Load::clear`].
    pub fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Sends up to the next video unit, behind which no audio waits, and reads until everything has come.
    pub fn stop(&mut self) -> Result<(), String> {
        self.stopping = true;
        let limit = Instant::now() + DRAIN_MAX;
        self.run_for(DRAIN_STEP)?;
        while self.lost().0 > 0 && Instant::now() < limit {
            self.run_for(DRAIN_STEP)?;
        }
        Ok(())
    }

    /// Units that did not arrive at the good viewers, and viewers whose connection ended. Call [`Load::stop`] first.
    pub fn lost(&self) -> (u64, usize) {
        let sources: Vec<_> = self
            .conns
            .iter()
            .filter_map(|conn| match &conn.role {
                Role::Publisher(source) => Some(source.made()),
                Role::Player { .. } | Role::Stalled => None,
            })
            .collect();
        let (mut lost, mut gone) = (0, 0);
        for conn in &self.conns {
            let Role::Player { video, audio, .. } = &conn.role else { continue };
            let [frames, sounds] = sources.get(conn.stream).copied().unwrap_or_default();
            lost += video.lost(frames) + audio.lost(sounds);
            gone += usize::from(conn.gone.is_some());
        }
        (lost, gone)
    }

    // ---- connecting

    fn connect(&mut self, stream: usize, role: Role) -> Result<(), String> {
        let limit = Instant::now() + CONNECT_MAX;
        while self.connecting >= CONNECTING_MAX && Instant::now() < limit {
            self.turn(limit).map_err(|error| error.to_string())?;
        }
        let socket = net::TcpStream::connect(self.target.address).and_then(|socket| {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let mut socket = TcpStream::from_std(socket.map_err(|error| format!("connect: {error}"))?);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let index = self.conns.len();
        self.poll
            .registry()
            .register(&mut socket, Token(index), interest)
            .map_err(|error| error.to_string())?;
        let publishes = matches!(role, Role::Publisher(_));
        let (mut client, mut out, mut message_stream) = (None, Vec::new(), 0);
        if self.target.bare && publishes {
            out.extend_from_slice(&floor::hello(stream));
            message_stream = 1;
        } else {
            client = Some(Box::new(self.client(stream, publishes)));
            self.connecting += 1;
        }
        self.conns.push(Conn { socket, stream, role, client, message_stream, out, gone: None });
        self.advance(index, &[]);
        Ok(())
    }

    fn client(&self, stream: usize, publishes: bool) -> Client {
        let config = Arc::new(ClientConfig {
            app: "live".to_owned(),
            tc_url: format!("rtmp://{}/live", self.target.address),
            stream: format!("bench{stream}"),
            handshake_timeout: CONNECT_MAX,
            ..ClientConfig::default()
        });
        let seed = Seed::from_number(u64::try_from(self.conns.len()).unwrap_or(0));
        if publishes {
            Client::publish(Instant::now(), config, seed)
        } else {
            Client::play(Instant::now(), config, seed)
        }
    }

    fn wait_for_all(&mut self, what: &str) -> Result<(), String> {
        let limit = Instant::now() + CONNECT_MAX;
        while self.connecting > 0 && Instant::now() < limit {
            self.turn(limit).map_err(|error| error.to_string())?;
        }
        match self.conns.iter().find_map(|conn| conn.gone.as_ref()) {
            Some(why) => Err(format!("{what}: {why}")),
            None if self.connecting > 0 => Err(format!("{what}: {} are not ready", self.connecting)),
            None => Ok(()),
        }
    }

    // ---- the loop

    fn turn(&mut self, limit: Instant) -> io::Result<()> {
        let now = Instant::now();
        while let Some(Reverse((at, index))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            self.publish_next(at, index);
        }
        let next = self.due.peek().map_or(limit, |Reverse((at, _))| limit.min(*at));
        let wait = if self.spin { Duration::ZERO } else { next.saturating_duration_since(Instant::now()) };
        let mut events = Events::with_capacity(1024);
        match self.poll.poll(&mut events, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for event in &events {
            let index = event.token().0;
            if event.is_writable() {
                self.flush(index);
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.read(index);
            }
        }
        Ok(())
    }

    fn publish_next(&mut self, at: Instant, index: usize) {
        let nanos = self.nanos();
        let bare = self.target.bare;
        self.seen.behind.record(u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut due = None;
        let mut step = Duration::ZERO;
        self.send(index, |conn, out| {
            let Role::Publisher(source) = &mut conn.role else { return };
            let sent = source.due();
            let begin = out.len();
            source.write_next(nanos, conn.message_stream, out);
            if bare {
                floor::seal_record(out, begin, sent);
            }
            step = Duration::from_millis(source.due().dts_ms - sent.dts_ms);
            due = Some(sent);
        });
        // No audio waits behind the last video unit.
        if due.is_some_and(|due| !(self.stopping && due.is_video)) {
            // Counted from when it was due, not from when it was sent: the rate stays.
            self.due.push(Reverse((at + step, index)));
        }
    }

    /// Lets `write` put bytes behind what waits, and sends what the socket takes.
    fn send(&mut self, index: usize, write: impl FnOnce(&mut Conn, &mut Vec<u8>)) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        let mut out = std::mem::take(&mut conn.out);
        write(conn, &mut out);
        conn.out = out;
        self.flush(index);
    }

    fn flush(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        while !conn.out.is_empty() {
            match conn.socket.write(&conn.out) {
                Ok(count) => drop(conn.out.drain(..count)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.end(index, &error.to_string()),
            }
        }
    }

    fn read(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.reads()) {
            match conn.socket.read(&mut buffer) {
                Ok(0) => {
                    self.end(index, "the server closed");
                    break;
                }
                Ok(count) => {
                    self.advance(index, buffer.get(..count).unwrap_or_default());
                    // A short read has emptied the socket; what comes later is a new event.
                    if count < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.end(index, &error.to_string());
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    /// Bytes have come (or, at the beginning, none).
    fn advance(&mut self, index: usize, bytes: &[u8]) {
        let nanos = self.nanos();
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Some(outcome) = conn.shake_hands(bytes) {
            self.connecting -= 1;
            if let Err(why) = outcome {
                self.end(index, &why);
            }
        }
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Role::Player { parser, unacknowledged, video, audio } = &mut conn.role {
            let count = bytes.len() as u64;
            self.seen.bytes += count;
            *unacknowledged += count;
            if *unacknowledged >= ACKNOWLEDGE_BYTES {
                *unacknowledged = 0;
                conn.out.extend_from_slice(&ACKNOWLEDGEMENT);
            }
            parser.feed(bytes, |whole| self.seen.take(nanos, &whole, video, audio));
        }
        self.flush(index);
    }

    fn end(&mut self, index: usize, why: &str) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.client.take().is_some() {
            self.connecting -= 1;
        }
        conn.gone.get_or_insert_with(|| why.to_owned());
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Conn {
    /// Whether its socket is to be read.
    const fn reads(&self) -> bool {
        let stalls = matches!(self.role, Role::Stalled) && self.client.is_none();
        self.gone.is_none() && !stalls
    }

    /// Drives the client machine. The outcome comes once.
    fn shake_hands(&mut self, bytes: &[u8]) -> Option<Result<(), String>> {
        let client = self.client.as_mut()?;
        // An error is also the last event.
        let _ = client.handle_bytes(Instant::now(), bytes);
        let mut outcome = None;
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Ready { message_stream } => {
                    self.message_stream = message_stream;
                    outcome = outcome.or(Some(Ok(())));
                }
                ClientEvent::Rejected { code, description } => {
                    outcome = Some(Err(format!("{code}: {description}")));
                }
                ClientEvent::Closed(reason) => outcome = outcome.or_else(|| Some(Err(format!("{reason:?}")))),
                ClientEvent::Media(_) => {}
            }
        }
        let mut queue = SendQueue::new();
        if client.poll_transmit(&mut queue) {
            self.out.extend_from_slice(&queue.take_all());
        }
        if outcome.is_some() {
            self.client = None;
        }
        outcome
    }
}

impl Seen {
    fn take(&mut self, nanos: u64, whole: &Whole<'_>, video: &mut Sequence, audio: &mut Sequence) {
        let (sequence, histogram) = match whole.kind {
            VIDEO => (video, &mut self.video),
            AUDIO => (audio, &mut self.audio),
            _ => return,
        };
        let Some(stamp) = stamp_of(whole.kind == VIDEO, whole.head) else { return };
        let took = nanos.saturating_sub(stamp.nanos);
        sequence.take(stamp.counter);
        histogram.record(took);
        self.units += 1;
        self.late += u64::from(u128::from(took) > LATE.as_nanos());
    }
}

const fn player() -> Role {
    let (video, audio) = (Sequence { next: None, wrong: 0 }, Sequence { next: None, wrong: 0 });
    Role::Player { parser: Parser::new(), unacknowledged: 0, video, audio }
}
