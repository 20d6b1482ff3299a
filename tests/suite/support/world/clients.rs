//! Clients: the machines of every protocol, their purpose, and the events that they have seen.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use flv::file::TagKind;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::codec::opus;
use millstream::protocol::PathId;
use millstream::protocol::load::{
    ClientDatagrams, ClientStream, LoadEvent, LoadPlayer, LoadPublisher, PublisherEvent,
};
use netsim::{MediaSource, Seen, SyntheticUnit, Verifier, ms};
use rtmp::{Client, ClientEvent, CloseReason, MediaKind, MediaMessage};
use wire::{Datagrams, Gather, SendQueue};

use super::World;

/// Links of a client to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Wire(usize),
    Line(usize),
    /// A wire (TCP connection) for requests, and a line for datagrams.
    Both {
        wire: usize,
        line: usize,
    },
}

impl Way {
    pub(super) const fn wire(self) -> Option<usize> {
        match self {
            Self::Wire(wire) | Self::Both { wire, .. } => Some(wire),
            Self::Line(_) => None,
        }
    }

    pub(super) const fn line(self) -> Option<usize> {
        match self {
            Self::Line(line) | Self::Both { line, .. } => Some(line),
            Self::Wire(_) => None,
        }
    }
}

/// The protocol machine of a client.
#[derive(Debug)]
pub(super) enum Machine {
    Rtmp(Box<Client>),
    Player(Box<dyn LoadPlayer>),
    Publisher(Box<dyn LoadPublisher>),
    /// A client of a single HTTP request.
    Http,
}

/// A unit that a publisher has passed to its machine.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Instant,
    pub bytes: usize,
    pub seen: Seen,
}

/// A unit that a viewer was sent.
#[derive(Debug, Clone, Copy)]
pub struct Got {
    pub at: Instant,
    pub is_video: bool,
    /// The mark that the publisher wrote into the unit; an error if the unit has none or is damaged.
    pub seen: Result<Seen, netsim::Corrupt>,
    pub bytes: usize,
    /// Duration of a packet of Opus in samples of 48 kHz. Audio of other codecs has an arbitrary value.
    pub opus_samples: u32,
    /// True if the parameter sets of its track had arrived before it.
    pub has_config: bool,
}

/// Events of a client, with their times.
#[derive(Debug, Clone)]
pub struct Story {
    pub asked: Instant,
    pub ready: Option<Instant>,
    /// Time at which the client said goodbye or was cut off.
    pub left: Option<Instant>,
    pub closed: Option<Instant>,
    pub rejected: Option<String>,
    /// True if the server said that the stream is over.
    pub goodbye: bool,
}

/// The purpose of a client.
#[derive(Debug)]
pub(super) enum Role {
    Publish {
        source: Box<MediaSource>,
        next: Option<SyntheticUnit>,
        began: Option<Instant>,
        first_ms: u64,
        sent: Vec<Sent>,
    },
    Play {
        verifier: Option<Verifier>,
        got: Vec<Got>,
        /// Two flags, for video and for audio: true if parameter sets have arrived.
        configs: [bool; 2],
        last_timestamp: Option<u32>,
        falls: u64,
    },
    Http {
        answer: Vec<u8>,
    },
    /// The machine decides by itself what to send, and keeps what it receives.
    Own,
}

impl Role {
    pub(super) fn publish(source: MediaSource) -> Self {
        Self::Publish { source: Box::new(source), next: None, began: None, first_ms: 0, sent: Vec::new() }
    }

    pub(super) const fn play(verifier: Option<Verifier>) -> Self {
        Self::Play { verifier, got: Vec::new(), configs: [false; 2], last_timestamp: None, falls: 0 }
    }

    /// Takes parameter sets or a unit. Containers with parameter sets inside their units set `config` for each unit.
    fn take(&mut self, at: Instant, is_video: bool, config: bool, payload: Option<&[u8]>) {
        let Self::Play { verifier, got, configs, .. } = self else { return };
        let has_config = &mut configs[usize::from(!is_video)];
        *has_config |= config;
        let Some(payload) = payload else { return };
        match verifier {
            Some(verifier) => drop(verifier.feed(payload)),
            None => {
                let (seen, bytes) = (Seen::read(payload), payload.len());
                let opus_samples = opus::packet_samples(payload).filter(|_| !is_video).unwrap_or(0);
                got.push(Got { at, is_video, seen, bytes, opus_samples, has_config: *has_config });
            }
        }
    }

    /// Takes the body of an FLV tag.
    fn take_body(&mut self, at: Instant, is_video: bool, body: &Bytes) {
        if is_video {
            let Ok(tag) = VideoTag::read(body) else { return self.take(at, true, false, Some(&[])) };
            match tag.packet {
                VideoPacket::Frame => self.take(at, true, false, Some(&tag.payload)),
                VideoPacket::SequenceHeader => self.take(at, true, true, None),
                _ => {}
            }
        } else {
            let Ok(tag) = AudioTag::read(body) else { return self.take(at, false, false, Some(&[])) };
            match tag.packet {
                AudioPacket::Frame => self.take(at, false, false, Some(&tag.payload)),
                AudioPacket::SequenceHeader => self.take(at, false, true, None),
                _ => {}
            }
        }
    }

    /// Counts falling timestamps. Tracks interleave, so only a fall by more than their distance counts.
    fn note_timestamp(&mut self, timestamp: u32) {
        if let Self::Play { last_timestamp, falls, .. } = self {
            *falls += u64::from(last_timestamp.is_some_and(|last| timestamp + 200 < last));
            *last_timestamp = Some(timestamp);
        }
    }
}

#[derive(Debug)]
pub(super) struct SimClient {
    pub(super) way: Way,
    machine: Machine,
    pub(super) queue: SendQueue,
    pub(super) role: Role,
    pub(super) story: Story,
    message_stream: u32,
    /// True if the client needs a new wire instead of its current one.
    wants_wire: bool,
    /// True if the client's machine has ended.
    ended: bool,
}

impl SimClient {
    pub(super) fn new(now: Instant, way: Way, machine: Machine, role: Role) -> Self {
        let story =
            Story { asked: now, ready: None, left: None, closed: None, rejected: None, goodbye: false };
        let queue = SendQueue::new();
        Self { way, machine, queue, role, story, message_stream: 0, wants_wire: false, ended: false }
    }

    pub(super) const fn leave(&mut self, now: Instant) {
        if self.story.left.is_none() {
            self.story.left = Some(now);
        }
    }

    pub(super) const fn gone(&mut self, now: Instant) {
        if self.story.closed.is_none() {
            self.story.closed = Some(now);
        }
    }

    pub(super) fn close(&mut self, now: Instant) {
        match &mut self.machine {
            Machine::Rtmp(machine) => machine.close(now, CloseReason::Requested),
            Machine::Player(machine) => machine.close(now),
            Machine::Publisher(machine) => machine.close(now),
            Machine::Http => self.ended = true,
        }
        // Only closing is left to do for an HTTP player, and for a client that is not connected.
        let is_player = matches!(self.machine, Machine::Player(_));
        match self.way {
            Way::Wire(_) => self.ended |= is_player,
            Way::Both { .. } => self.ended |= self.story.ready.is_none(),
            Way::Line(_) => {}
        }
        if let (Way::Both { .. }, Role::Publish { next, .. }) = (self.way, &mut self.role) {
            *next = None;
        }
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        match &mut self.machine {
            Machine::Player(machine) => machine.byte_stream(),
            Machine::Publisher(machine) => machine.byte_stream(),
            Machine::Rtmp(_) | Machine::Http => None,
        }
    }

    pub(super) fn bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.story.closed.is_some() {
            return;
        }
        if let Machine::Rtmp(machine) = &mut self.machine {
            let _ = machine.handle_bytes(now, bytes);
        } else if let Some(stream) = self.byte_stream() {
            stream.handle_bytes(now, bytes);
            // Any answer after the client's goodbye shows that the server knows that the client has left.
            self.ended |= matches!(self.way, Way::Both { .. }) && self.story.left.is_some();
        } else if let Role::Http { answer } = &mut self.role {
            answer.extend_from_slice(bytes);
        }
    }

    pub(super) fn datagram(&mut self, now: Instant, path: PathId, from: SocketAddr, datagram: &mut [u8]) {
        if let Some(datagrams) = self.datagrams() {
            datagrams.handle_datagram(now, path, from, datagram);
        }
    }

    pub(super) fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        match &mut self.machine {
            Machine::Player(machine) => machine.datagrams(),
            Machine::Publisher(machine) => machine.datagrams(),
            Machine::Rtmp(_) | Machine::Http => None,
        }
    }

    pub(super) fn hangup(&mut self, now: Instant) {
        if self.story.closed.is_some() {
            return;
        }
        let told = self.ended;
        match &mut self.machine {
            Machine::Rtmp(machine) => machine.close(now, CloseReason::PeerClosed),
            Machine::Player(machine) => machine.handle_end(now),
            Machine::Publisher(machine) => machine.handle_end(now),
            Machine::Http => {}
        }
        self.turn(now);
        // A client with datagrams continues without its wire, unless it has said goodbye.
        if matches!(self.way, Way::Both { .. }) {
            self.ended |= self.story.left.is_some();
            return;
        }
        self.story.goodbye &= told;
        self.gone(now);
    }

    /// Returns the time at which the publisher's next unit is due.
    fn due(&self) -> Option<Instant> {
        match &self.role {
            Role::Publish { next: Some(unit), began: Some(began), first_ms, .. } => {
                Some(*began + ms(unit.dts_ms - first_ms))
            }
            _ => None,
        }
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let machine = match &self.machine {
            Machine::Rtmp(machine) => machine.poll_timeout(),
            Machine::Player(machine) => machine.poll_timeout(),
            Machine::Publisher(machine) => machine.poll_timeout(),
            Machine::Http => None,
        };
        [machine.filter(|_| !self.ended), self.due()].into_iter().flatten().min()
    }

    fn turn(&mut self, now: Instant) {
        match self.machine {
            Machine::Rtmp(_) => self.turn_rtmp(now),
            Machine::Player(_) => self.turn_player(now),
            Machine::Publisher(_) => self.turn_publisher(now),
            Machine::Http => {}
        }
        while self.due().is_some_and(|due| due <= now) {
            let Role::Publish { source, next, sent, .. } = &mut self.role else { break };
            let Some(unit) = next.replace(source.next_unit()) else { break };
            let kind = if unit.is_video { TagKind::Video } else { TagKind::Audio };
            if let Machine::Publisher(machine) = &self.machine
                && !machine.carries(kind)
            {
                continue;
            }
            let (seen, bytes) = (Seen::read(&unit.payload).unwrap(), unit.payload.len());
            sent.push(Sent { at: now, bytes, seen });
            self.send_unit(now, &unit);
        }
        if let Machine::Rtmp(machine) = &mut self.machine {
            machine.poll_transmit(&mut self.queue);
            return;
        }
        let mut queue = std::mem::take(&mut self.queue);
        if let Some(stream) = self.byte_stream() {
            stream.poll_transmit(&mut queue);
        }
        self.queue = queue;
    }

    /// Notes that the server has accepted the client; a publisher starts its media.
    fn ready(&mut self, now: Instant) {
        self.story.ready.get_or_insert(now);
        let Role::Publish { source, next, began, first_ms, .. } = &mut self.role else { return };
        let unit = source.next_unit();
        (*began, *first_ms) = (Some(now), unit.dts_ms);
        *next = Some(unit);
        for (kind, body) in heads(source) {
            self.send(now, kind == TagKind::Video, 0, body);
        }
    }

    fn end(&mut self, now: Instant, goodbye: bool) {
        self.ended = true;
        self.story.goodbye = goodbye;
        if let Role::Publish { next, .. } = &mut self.role {
            *next = None;
        }
        // Over datagrams, the end of the machine is the end of the connection.
        if matches!(self.way, Way::Line(_)) {
            self.gone(now);
        }
    }

    fn turn_rtmp(&mut self, now: Instant) {
        let Machine::Rtmp(machine) = &mut self.machine else { return };
        if machine.poll_timeout().is_some_and(|due| due <= now) {
            machine.handle_timeout(now);
        }
        loop {
            let Machine::Rtmp(machine) = &mut self.machine else { return };
            let Some(event) = machine.poll_event() else { return };
            match event {
                ClientEvent::Ready { message_stream } => {
                    self.message_stream = message_stream;
                    self.ready(now);
                }
                ClientEvent::Rejected { code, .. } => self.story.rejected = Some(code),
                ClientEvent::Closed(reason) => self.end(now, !matches!(reason, CloseReason::Failed(_))),
                ClientEvent::Media(message) => {
                    if message.kind != MediaKind::Data {
                        self.role.take_body(now, message.kind == MediaKind::Video, &message.payload);
                    }
                    if super::super::unit_payload(&message).is_some() {
                        self.role.note_timestamp(message.timestamp);
                    }
                }
            }
        }
    }

    fn turn_player(&mut self, now: Instant) {
        let Machine::Player(machine) = &mut self.machine else { return };
        if machine.poll_timeout().is_some_and(|due| due <= now) {
            machine.handle_timeout(now);
        }
        loop {
            let Machine::Player(machine) = &mut self.machine else { return };
            let Some(event) = machine.poll_event() else { return };
            match event {
                LoadEvent::Ready => self.ready(now),
                LoadEvent::Tag { kind, body } => match kind {
                    TagKind::Video => self.role.take_body(now, true, &body),
                    TagKind::Audio => self.role.take_body(now, false, &body),
                    TagKind::Data | TagKind::Other(_) => {}
                },
                LoadEvent::Unit { is_video, payload, .. } => {
                    self.role.take(now, is_video, true, Some(&payload));
                }
                LoadEvent::Closed(reason) => {
                    if self.story.ready.is_none() {
                        self.story.rejected = Some(reason);
                    }
                    self.end(now, true);
                }
                LoadEvent::Reconnect => self.wants_wire = true,
                LoadEvent::OpenPath(_)
                | LoadEvent::ClosePath(_)
                | LoadEvent::Piece { .. }
                | LoadEvent::Playlist { .. } => panic!("no player of this world does that"),
            }
        }
    }

    fn turn_publisher(&mut self, now: Instant) {
        let Machine::Publisher(machine) = &mut self.machine else { return };
        if machine.poll_timeout().is_some_and(|due| due <= now) {
            machine.handle_timeout(now);
        }
        loop {
            let Machine::Publisher(machine) = &mut self.machine else { return };
            let Some(event) = machine.poll_event() else { return };
            match event {
                PublisherEvent::Ready => self.ready(now),
                PublisherEvent::Closed(reason) => {
                    if self.story.ready.is_none() {
                        self.story.rejected = Some(reason);
                    }
                    self.end(now, true);
                }
                PublisherEvent::Reconnect => self.wants_wire = true,
                PublisherEvent::OpenPath(_)
                | PublisherEvent::ClosePath(_)
                | PublisherEvent::KeyFrameWanted => {
                    panic!("no publisher of this world does that")
                }
            }
        }
    }

    fn send_unit(&mut self, now: Instant, unit: &SyntheticUnit) {
        let body = if unit.is_video {
            let frame = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
            let cts = i32::try_from(unit.cts_ms).unwrap();
            [&VideoTag::write_header(frame, VideoPacket::Frame, cts)[..], &unit.payload].concat()
        } else {
            [&AudioTag::write_header(AudioPacket::Frame)[..], &unit.payload].concat()
        };
        self.send(now, unit.is_video, unit.dts_ms, body.into());
    }

    fn send(&mut self, now: Instant, is_video: bool, dts_ms: u64, payload: Bytes) {
        let timestamp = u32::try_from(dts_ms).unwrap();
        match &mut self.machine {
            Machine::Rtmp(machine) => {
                let kind = if is_video { MediaKind::Video } else { MediaKind::Audio };
                let message_stream = self.message_stream;
                machine.send(now, &MediaMessage { message_stream, kind, timestamp, payload });
            }
            Machine::Publisher(machine) => {
                let kind = if is_video { TagKind::Video } else { TagKind::Audio };
                machine.send(now, kind, timestamp, payload);
            }
            Machine::Player(_) | Machine::Http => {}
        }
    }

    /// True if the client has ended and its queue is empty.
    fn has_sent_all(&self) -> bool {
        self.queue.is_empty() && self.ended
    }
}

/// Returns a publisher's parameter sets as FLV bodies.
pub fn heads(source: &MediaSource) -> Vec<(TagKind, Bytes)> {
    let video = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
    let mut heads = vec![(TagKind::Video, [&video[..], &MediaSource::video_config()].concat().into())];
    if source.has_audio() {
        let audio = AudioTag::write_header(AudioPacket::SequenceHeader);
        heads.push((TagKind::Audio, [&audio[..], &MediaSource::audio_config()].concat().into()));
    }
    heads
}

impl World {
    pub(super) fn drive_client(&mut self, index: usize) -> bool {
        let now = self.clock.now();
        let client = &mut self.clients[index];
        if client.story.closed.is_some() {
            return false;
        }
        client.turn(now);
        if std::mem::take(&mut client.wants_wire) {
            self.rewire(index);
        }
        match self.clients[index].way {
            Way::Wire(wire) => self.drive_wire(index, wire),
            Way::Line(line) => self.drive_line(index, line),
            Way::Both { wire, line } => {
                let progress = self.drive_wire(index, wire) | self.drive_line(index, line);
                if self.clients[index].has_sent_all() {
                    self.clients[index].gone(now);
                    self.network.lines[line].is_dark = true;
                }
                progress
            }
        }
    }

    fn drive_wire(&mut self, index: usize, wire: usize) -> bool {
        let now = self.clock.now();
        let mut bytes = Vec::new();
        let mut gather = Gather::new(64 * 1024);
        self.clients[index].queue.gather(&mut gather);
        gather.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        let sent = self.send(wire, 0, &bytes);
        self.clients[index].queue.advance(sent);
        if self.clients[index].has_sent_all() {
            self.network.wires[wire].links[0].finish(now);
        }
        sent > 0
    }

    fn drive_line(&mut self, index: usize, line: usize) -> bool {
        let now = self.clock.now();
        let mut progress = false;
        loop {
            let mut out = Datagrams::new();
            let Some(datagrams) = self.clients[index].datagrams() else { return progress };
            let to = datagrams.poll_datagrams(now, &mut out);
            if out.is_empty() {
                return progress;
            }
            let tag = if self.network.lines[line].has_paths() { &[to.path.0][..] } else { &[] };
            for datagram in 0..out.len() {
                self.send_over(line, 0, [tag, out.get(datagram)].concat().into());
            }
            progress = true;
        }
    }
}
