//! A publisher that plays a script: opening requests until the server consents, then bytes at their times.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use millstream::protocol::load::{ClientDatagrams, ClientStream, LoadPublisher, PublisherEvent};
use millstream::protocol::{PathId, To};
use netsim::ms;
use srt::{CloseReason, Config, Connection, Event, SocketId};
use wire::{Datagrams, SendQueue};

/// The reason for which a publisher ended.
pub type Said = Arc<Mutex<String>>;

/// Bytes, and the milliseconds from the server's consent until they are sent.
pub type Piece = (i64, Bytes);

/// Opening of a script: requests, and the text that must arrive from the server before the next request.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Requests, each with the text to wait for before the next one.
    pub steps: VecDeque<(Bytes, &'static str)>,
    /// Texts by which the server refuses.
    pub refusals: &'static [&'static str],
    /// Length of the server's RTMP handshake. It is removed from the answer, and S1 in it is sent back as C2.
    pub echoes: Option<usize>,
    /// Placeholder in the requests, to be replaced by the server's RTSP session id.
    pub session: Option<&'static str>,
}

/// The media that is still to be sent, and when sending began.
#[derive(Debug)]
struct Script {
    pieces: VecDeque<Piece>,
    began: Option<Instant>,
}

impl Script {
    fn due(&self) -> Option<Instant> {
        let (at, _) = self.pieces.front()?;
        Some(self.began? + ms(u64::try_from(*at).unwrap_or(0)))
    }

    fn next(&mut self, now: Instant) -> Option<Bytes> {
        self.due().filter(|due| *due <= now)?;
        self.pieces.pop_front().map(|(_, bytes)| bytes)
    }
}

/// A publisher over TCP.
#[derive(Debug)]
pub struct ByteSender {
    opening: Opening,
    script: Script,
    goodbye: Bytes,
    heard: Vec<u8>,
    waits: Option<&'static str>,
    session: String,
    /// The reason for which the publisher ended.
    said: Said,
    events: VecDeque<PublisherEvent>,
    out: SendQueue,
    has_ended: bool,
}

impl ByteSender {
    pub fn new(opening: Opening, pieces: Vec<Piece>, goodbye: Bytes) -> Self {
        let mut new = Self {
            opening,
            script: Script { pieces: pieces.into(), began: None },
            goodbye,
            heard: Vec::new(),
            waits: None,
            session: String::new(),
            said: Said::default(),
            events: VecDeque::new(),
            out: SendQueue::new(),
            has_ended: false,
        };
        new.step();
        new
    }

    fn step(&mut self) {
        let Some((bytes, waits)) = self.opening.steps.pop_front() else { return };
        let bytes = match self.opening.session {
            Some(mark) => {
                let text = String::from_utf8_lossy(&bytes).replace(mark, &self.session);
                Bytes::from(text)
            }
            None => bytes,
        };
        self.out.push(bytes);
        self.waits = Some(waits);
    }

    fn end(&mut self, reason: String) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.script.pieces.clear();
            self.said.lock().unwrap().clone_from(&reason);
            self.events.push_back(PublisherEvent::Closed(reason));
        }
    }

    /// Returns the reason for which the publisher ended, which is empty until then.
    pub fn said(&self) -> Said {
        Arc::clone(&self.said)
    }

    fn hear(&mut self, now: Instant) {
        if let Some(bytes) = self.opening.echoes {
            if self.heard.len() < bytes {
                return;
            }
            // S0 and S1 arrive first; C2 echoes S1.
            let echo = Bytes::copy_from_slice(&self.heard[1..1537]);
            self.heard.drain(..bytes);
            self.opening.echoes = None;
            self.out.push(echo);
            self.step();
        }
        if let Some(refusal) = self.opening.refusals.iter().find(|refusal| finds(&self.heard, refusal)) {
            let said = String::from_utf8_lossy(&self.heard).replace(|c: char| c.is_control(), " ");
            return self.end(format!("{refusal}: {said}"));
        }
        let is_whole = self.opening.session.is_none() || finds(&self.heard, "\r\n\r\n");
        while self.waits.is_some_and(|waits| is_whole && finds(&self.heard, waits)) {
            if let Some(at) = self.heard.windows(9).position(|text| text == b"Session: ") {
                let text = String::from_utf8_lossy(&self.heard[at + 9..]).into_owned();
                self.session = text.split(['\r', ';']).next().unwrap_or_default().to_owned();
            }
            self.heard.clear();
            self.waits = None;
            if self.opening.steps.is_empty() {
                self.script.began = Some(now);
                self.events.push_back(PublisherEvent::Ready);
            }
            self.step();
        }
    }
}

fn finds(heard: &[u8], text: &str) -> bool {
    heard.windows(text.len()).any(|window| window == text.as_bytes())
}

impl ClientStream for ByteSender {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        // After the consent, only a refusal matters among the server's messages, so older bytes are dropped.
        self.heard.extend_from_slice(bytes);
        self.hear(now);
        if self.script.began.is_some() && self.heard.len() > 4096 {
            self.heard.drain(..2048);
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.append(&mut self.out);
    }
}

impl LoadPublisher for ByteSender {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }

    fn handle_end(&mut self, _now: Instant) {
        let said = String::from_utf8_lossy(&self.heard).replace(|c: char| c.is_control(), " ");
        self.end(format!("the server hung up: {said}"));
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(bytes) = self.script.next(now) {
            self.out.push(bytes);
        }
    }

    fn send(&mut self, _now: Instant, _kind: TagKind, _timestamp: u32, _body: Bytes) {}

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.script.due()
    }

    fn close(&mut self, _now: Instant) {
        if !self.has_ended {
            let goodbye = String::from_utf8_lossy(&self.goodbye).into_owned();
            let goodbye = match self.opening.session {
                Some(mark) => Bytes::from(goodbye.replace(mark, &self.session)),
                None => self.goodbye.clone(),
            };
            self.out.push(goodbye);
        }
        self.end("done".to_owned());
    }
}

/// A publisher over SRT.
#[derive(Debug)]
pub struct SrtSender {
    connection: Connection,
    script: Script,
    said: Said,
    events: VecDeque<PublisherEvent>,
}

impl SrtSender {
    pub fn new(now: Instant, seed: &Seed, stream_id: &str, pieces: Vec<Piece>) -> Self {
        let id = SocketId(1 | u32::try_from(seed.derive("socket id", 0).random().below(1 << 30)).unwrap());
        let config = Arc::new(Config { receives: false, ..Config::default() });
        let connection = Connection::caller(now, config, id, stream_id, seed);
        let script = Script { pieces: pieces.into(), began: None };
        Self { connection, script, said: Said::default(), events: VecDeque::new() }
    }

    /// Returns the reason for which the publisher ended, which is empty until then.
    pub fn said(&self) -> Said {
        Arc::clone(&self.said)
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Connected(_) => {
                    self.script.began = Some(now);
                    self.events.push_back(PublisherEvent::Ready);
                }
                Event::Closed(reason) => {
                    self.script.pieces.clear();
                    *self.said.lock().unwrap() = format!("{reason:?}");
                    self.events.push_back(PublisherEvent::Closed(format!("{reason:?}")));
                }
                Event::Payload(_) | Event::Skipped(_) => {}
            }
        }
    }
}

impl ClientDatagrams for SrtSender {
    fn handle_local(&mut self, _now: Instant, _path: PathId, _local: Option<SocketAddr>) {}

    fn handle_datagram(&mut self, now: Instant, _path: PathId, _from: SocketAddr, datagram: &mut [u8]) {
        self.connection.handle_datagram(now, datagram);
        self.drain(now);
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To {
        self.connection.poll_transmit(now, out);
        To::PEER
    }
}

impl LoadPublisher for SrtSender {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        Some(self)
    }

    fn handle_end(&mut self, _now: Instant) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        while let Some(bytes) = self.script.next(now) {
            self.connection.send(now, bytes).unwrap();
        }
        self.drain(now);
    }

    fn send(&mut self, _now: Instant, _kind: TagKind, _timestamp: u32, _body: Bytes) {}

    fn poll_event(&mut self) -> Option<PublisherEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.connection.poll_timeout(), self.script.due()].into_iter().flatten().min()
    }

    fn close(&mut self, now: Instant) {
        self.connection.close(now, CloseReason::Local);
        self.drain(now);
    }
}
