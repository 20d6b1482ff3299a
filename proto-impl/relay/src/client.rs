//! Client side of a relay: the node that receives a copy of a stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, TrackId, TrackSet, Tracks};
use wire::{Reader, SendQueue, Writer};

use crate::error::{Ended, Error, Refused};
use crate::frame::{self, BODY_BYTES_MAX, Frame, FrameReader, kind, put_name, read_name};
use crate::tracks;
use crate::viewers::Viewers;

/// Interval of the pings.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Time without data after which the server is considered dead. A living server answers each ping.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Response of the server at the start of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Playing {
    /// Name of the node.
    pub node: String,
    /// Wall clock time at the zero of the stream's clock, in milliseconds since the Unix epoch.
    pub zero_ms: i64,
}

/// Event from a server.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The stream exists, and the server sends it.
    Playing(Playing),
    /// Unit of the stream, together with the current tracks.
    Unit {
        /// Unit of the stream.
        unit: AccessUnit,
        /// Tracks as the server last described them.
        tracks: Arc<Tracks>,
    },
    /// The server is alive, whether or not it has anything to send.
    Alive,
    /// The server refused to send the stream, for this reason, explained by the text.
    Refused(Refused, String),
    /// The server stopped sending the stream, for this reason, explained by the text.
    Ended(Ended, String),
    /// End of the connection.
    Closed,
}

/// Client for a single stream of a server.
#[derive(Debug)]
pub struct Client {
    reader: FrameReader,
    cluster: String,
    is_playing: bool,
    tracks: Arc<Tracks>,
    /// Time of the last unit of each track.
    last: Vec<(TrackId, i64)>,
    events: VecDeque<ClientEvent>,
    out: SendQueue,
    heard: Instant,
    next_ping: Instant,
    began: Instant,
    round_trip: Option<Duration>,
    is_closed: bool,
}

impl Client {
    /// Creates a client that requests a stream from a server of this cluster. `via` lists the nodes that
    /// will get the copy, beginning with the client's own.
    #[must_use]
    pub fn new(now: Instant, cluster: &str, (app, id): (&str, &str), via: &[String]) -> Self {
        let mut out = SendQueue::new();
        out.push(frame::hello(cluster));
        let mut body = Writer::new();
        put_name(&mut body, app);
        put_name(&mut body, id);
        body.u8(u8::try_from(via.len()).unwrap_or(u8::MAX));
        via.iter().take(usize::from(u8::MAX)).for_each(|node| put_name(&mut body, node));
        out.push(frame::frame(kind::PLAY, &body.take()));
        Self {
            reader: FrameReader::new(|_| BODY_BYTES_MAX),
            cluster: cluster.to_owned(),
            is_playing: false,
            tracks: Arc::default(),
            last: Vec::new(),
            events: VecDeque::new(),
            out,
            heard: now,
            next_ping: now,
            began: now,
            round_trip: None,
            is_closed: false,
        }
    }

    /// Handles bytes from the server.
    ///
    /// # Errors
    /// Returns an error if the server violates the protocol.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        if self.is_closed {
            return Ok(());
        }
        self.heard = now;
        self.reader.push(bytes);
        self.read(now).inspect_err(|_| self.close())
    }

    fn read(&mut self, now: Instant) -> Result<(), Error> {
        if let Some(cluster) = self.reader.poll_hello()?
            && cluster != self.cluster
        {
            return Err(Error::Cluster);
        }
        while !self.is_closed
            && let Some(frame) = self.reader.poll()?
        {
            self.take(now, frame)?;
        }
        Ok(())
    }

    fn take(&mut self, now: Instant, Frame { kind, body }: Frame) -> Result<(), Error> {
        let mut reader = Reader::new(&body);
        match kind {
            kind::PLAYING if !self.is_playing => {
                self.is_playing = true;
                let playing =
                    Playing { node: read_name(&mut reader)?, zero_ms: i64::from_be_bytes(reader.array()?) };
                self.events.push_back(ClientEvent::Playing(playing));
            }
            kind::TRACKS if self.is_playing => self.tracks = Arc::new(tracks::read(&body)?),
            kind::UNIT if self.is_playing => self.take_unit(&body)?,
            kind::PLAYING | kind::TRACKS | kind::UNIT => return Err(Error::Invalid("order")),
            kind::REFUSED => {
                let (code, reason) = (reader.u8()?, read_name(&mut reader)?);
                self.events.push_back(ClientEvent::Refused(Refused::of_code(code), reason));
                self.close();
            }
            kind::ENDED => {
                let (code, reason) = (reader.u8()?, read_name(&mut reader)?);
                self.events.push_back(ClientEvent::Ended(Ended::of_code(code), reason));
                self.close();
            }
            kind::PING => self.out.push(frame::frame(kind::PONG, &reader.array::<8>()?)),
            kind::PONG => {
                let sent = Duration::from_micros(u64::from_be_bytes(reader.array()?));
                self.round_trip =
                    now.saturating_duration_since(self.began).checked_sub(sent).or(self.round_trip);
                self.events.push_back(ClientEvent::Alive);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_unit(&mut self, body: &bytes::Bytes) -> Result<(), Error> {
        let unit = frame::read_unit(body)?;
        // Data tracks have no parameter sets, so they are not in the list of tracks.
        let epoch = match self.tracks.get(unit.track) {
            Some(track) => track.epoch,
            None if unit.track.is_data() => 0,
            None => return Err(Error::Invalid("track")),
        };
        if epoch != unit.config_epoch {
            return Err(Error::Invalid("epoch"));
        }
        match self.last.iter_mut().find(|(track, _)| *track == unit.track) {
            Some((_, last)) if *last > unit.dts => return Err(Error::Invalid("time")),
            Some((_, last)) => *last = unit.dts,
            None => self.last.push((unit.track, unit.dts)),
        }
        self.events.push_back(ClientEvent::Unit { unit, tracks: Arc::clone(&self.tracks) });
        Ok(())
    }

    /// Requests only these tracks from now on; `None` requests all.
    pub fn want(&mut self, tracks: Option<TrackSet>) {
        if !self.is_closed {
            let numbers: Vec<u8> = tracks.into_iter().flat_map(TrackSet::iter).map(TrackId::number).collect();
            self.out.push(frame::frame(kind::WANT, &numbers));
        }
    }

    /// Requests a key frame of this track.
    pub fn need_key_frame(&mut self, track: TrackId) {
        if !self.is_closed {
            self.out.push(frame::frame(kind::KEY_FRAME, &[track.number()]));
        }
    }

    /// Reports the viewers of the copy: those at this node, and those at nodes that copy from it.
    pub fn tell_viewers(&mut self, viewers: &Viewers) {
        if !self.is_closed {
            self.out.push(viewers.frame());
        }
    }

    /// Informs the server that the stream is no longer wanted, and closes the connection.
    pub fn leave(&mut self) {
        if !self.is_closed {
            self.out.push(frame::frame(kind::LEAVE, &[]));
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.events.push_back(ClientEvent::Closed);
        }
    }

    /// Handles a possible timeout.
    ///
    /// # Errors
    /// Returns an error if the server was silent for too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.is_closed {
            return Ok(());
        }
        if now.saturating_duration_since(self.heard) >= SILENCE_MAX {
            self.close();
            return Err(Error::Silent);
        }
        if self.next_ping <= now {
            let sent = now.saturating_duration_since(self.began).as_micros();
            let sent = u64::try_from(sent).unwrap_or(u64::MAX);
            self.out.push(frame::frame(kind::PING, &sent.to_be_bytes()));
            self.next_ping = now.checked_add(PING_EVERY).unwrap_or(now);
        }
        Ok(())
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.heard.checked_add(SILENCE_MAX)?;
        if self.is_closed { None } else { Some(self.next_ping.min(silent)) }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Moves the outgoing frames into `out`. Returns whether there were any.
    pub fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        if self.out.is_empty() {
            return false;
        }
        out.append(&mut self.out);
        true
    }

    /// Round trip time of the last ping.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}
