//! Pulls: streams that this server fetches from another one. A session is one attempt; its supervisor is control.
//!
//! 1. The connection is open: the protocol's [`Client`] requests the stream ([`PullState::Preparing`]).
//! 2. The first video or audio has arrived: the session asks to publish, and reads no further before the verdict.
//! 3. The grant gives the position of the stream; media becomes units from there on.
//! 4. No media for 4 s, no video for 10 s while audio continues ([`stall`]), an end, or a fault of the server: the
//!    attempt ends with [`PullState::Lost`], and the stream waits in control.
//!
//! The server is not trusted: its input is bounded like a publisher's. A file is received as fast as it is read; its
//! units are emitted one by one when due ([`pace`]). A live source is never delayed.

mod body;
mod client;
mod depackager;
mod layout;
mod pace;
mod reading;
mod stall;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::TrackKind;
use wire::{Datagrams, SendQueue};

use crate::mail::{Departure, Grant, PullOrder, PullState, Refusal};
use crate::protocol::usable::{Fault, Supply, Usable};
use crate::protocol::{
    About, ByteStream, CONNECT_TIMEOUT, Context, DatagramPeer, Event, Logs, OrderEvent, PathEvent, PathId,
    Paths, PublicationEvent, PublicationNews, PublishAsk, Remote, Reply, Session, SocketEvent, Timers, To,
};
use crate::stats::Figures;
use crate::types::{Handle, Ingest, Now, StreamKey};
pub(super) use body::TAG_BYTES_MAX;
pub(super) use client::{Client, ClientEvent, ClientJobs, Demands, Media, Start, UnitClient};
pub use client::{ClientDatagrams, ClientStream, Patience};
use depackager::{Depackager, Output, time_of};
use pace::Pace;
pub(super) use reading::Reading;
use stall::Stall;

/// Maximum time from the connection to the first video or audio.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to wait for a server that connects to us: a year, which means no limit.
const WAIT_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Maximum number of metadata pieces held before the first video or audio.
const HELD_MAX: usize = 16;
/// Maximum size of metadata that is held.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// Number of consecutive malformed bodies that end the pull.
const BAD_MAX: u32 = 100;
/// Time by which a stream from a file is kept ahead of real time: longer than a read from a slow disk, and longer than
/// the pause before a file restarts. A new viewer is sent this reserve immediately.
pub(crate) const FILE_RESERVE: Duration = Duration::from_secs(2);
/// Lead over real time at which a source that seemed to be live is treated as a file. The reserve that live servers
/// send to new viewers is shorter.
const LIVE_AHEAD_MAX: Duration = Duration::from_secs(20);
/// Maximum number of characters of a server's reason that are passed on.
const REASON_CHARS_MAX: usize = 200;

/// The stage of an attempt.
#[derive(Debug)]
enum Stage {
    Connecting {
        until: Instant,
    },
    /// The stream was asked for; no video or audio has arrived.
    Preparing {
        until: Instant,
    },
    /// Control was asked whether the stream may be published.
    Asked,
    /// The stream flows.
    Live {
        /// The depackager; `None` if the client makes the units.
        depackager: Option<Depackager>,
        usable: Box<Usable>,
        stall: Box<Stall>,
        /// The pacing of a file; `None` for a live source.
        pace: Option<Pace>,
        /// An instant, and the media time in milliseconds that had arrived at that instant.
        began: Option<(Instant, i64)>,
    },
    Over,
}

/// An attempt of a pull.
#[derive(Debug)]
pub(crate) struct PullSession {
    key: StreamKey,
    address: SocketAddr,
    client: Box<dyn Client>,
    lead: Duration,
    skip: Duration,
    via: Vec<String>,
    stage: Stage,
    /// True while the client moves to another server.
    moves: bool,
    held: VecDeque<Media>,
    bad: u32,
    events: VecDeque<Event>,
}

impl PullSession {
    pub(super) fn new(now: Now, order: &PullOrder, client: Box<dyn Client>) -> Self {
        Self {
            key: order.key.clone(),
            address: order.address,
            client,
            lead: order.lead,
            skip: order.skip,
            via: order.via.clone(),
            stage: Stage::Connecting { until: now.mono + CONNECT_TIMEOUT },
            moves: false,
            held: VecDeque::new(),
            bad: 0,
            events: VecDeque::new(),
        }
    }

    /// Handles the client's events, until there is an event to emit or the session must wait.
    fn drain_client(&mut self, now: Instant) {
        self.release(now);
        while self.events.is_empty() && self.wants_media() {
            match self.client.poll() {
                Some(ClientEvent::Connected) => self.connected(now),
                // Nothing to do: the session acts on the first media.
                Some(ClientEvent::Accepted) => {}
                Some(ClientEvent::Media(media)) => self.take(now, media),
                Some(ClientEvent::Begun) => self.ask(),
                Some(ClientEvent::Unit { unit, tracks }) => {
                    let ms = time_of(&unit, &tracks);
                    self.ingest(now, [Output::Unit { unit, tracks, ms }]);
                }
                Some(ClientEvent::Dropped(units)) => {
                    self.ingest(now, [Output::Dropped { units, media: true }]);
                }
                Some(ClientEvent::ClockNews(news)) => self.ingest(now, [Output::Clock(news)]),
                Some(ClientEvent::NextServer(server)) => {
                    self.moves = true;
                    self.events.push_back(Event::Order(OrderEvent::NextServer(server)));
                }
                Some(ClientEvent::Disconnect) => self.events.push_back(Event::Order(OrderEvent::Disconnect)),
                Some(ClientEvent::OpenPath(wanted)) => {
                    self.events.push_back(Event::Socket(SocketEvent::Open(wanted)))
                }
                Some(ClientEvent::ClosePath(path)) => {
                    self.events.push_back(Event::Socket(SocketEvent::Close(path)))
                }
                Some(ClientEvent::Ended(reason)) => self.client_ended(now, reason),
                Some(ClientEvent::Over(reason)) => self.end_as(now, &reason, true),
                None => {
                    let job = self.client.jobs().and_then(|jobs| jobs.poll_job());
                    self.events.extend(job.map(Event::Job));
                    return;
                }
            }
        }
    }

    fn wants_media(&self) -> bool {
        match &self.stage {
            Stage::Preparing { .. } => true,
            Stage::Live { pace, .. } => pace.as_ref().is_none_or(Pace::is_empty),
            Stage::Connecting { .. } | Stage::Asked | Stage::Over => false,
        }
    }

    /// Handles the arrival of the server that the client waited for.
    fn connected(&mut self, now: Instant) {
        if let Stage::Preparing { until } = &mut self.stage {
            *until = now + PREPARE_TIMEOUT;
        }
    }

    fn take(&mut self, now: Instant, media: Media) {
        match &mut self.stage {
            Stage::Preparing { .. } => self.hold(media),
            Stage::Live { .. } => self.take_piece(now, &media),
            Stage::Connecting { .. } | Stage::Asked | Stage::Over => {}
        }
    }

    /// Holds a piece until the grant. The first piece of video or audio makes the session ask for the grant.
    fn hold(&mut self, media: Media) {
        if !media.is_kept() {
            return;
        }
        let is_media = media.is_media();
        if self.held.len() >= HELD_MAX {
            self.held.pop_front();
        }
        self.held.push_back(media);
        if is_media {
            self.ask();
        }
    }

    /// Asks control whether the stream may be published, because media has arrived.
    fn ask(&mut self) {
        if !matches!(self.stage, Stage::Preparing { .. }) {
            return;
        }
        self.stage = Stage::Asked;
        let zero_ms = self.client.zero_ms();
        let ask = PublishAsk {
            key: self.key.clone(),
            ingest: if zero_ms.is_some() { Ingest::COPY } else { Ingest::PULL },
            user_agent: String::new(),
            params: Vec::new(),
            via: Vec::new(),
            zero_ms,
            of_foreign_page: false,
        };
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
    }

    /// Converts a piece of a container to units.
    fn take_piece(&mut self, now: Instant, media: &Media) {
        let Stage::Live { depackager: Some(depackager), usable, pace, .. } = &mut self.stage else { return };
        let mut outputs = Vec::new();
        if pace.is_none() {
            depackager.arrive(now);
        }
        depackager.take(media, &mut outputs);
        outputs.extend(std::iter::from_fn(|| depackager.take_clock_news()).map(Output::Clock));
        let bad = depackager.why_bad().filter(|_| usable.is_first_bad());
        if let Some(reason) = bad {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Fault(reason)));
        }
        self.ingest(now, outputs);
    }

    /// Emits held-back units after the last piece.
    fn finish_pieces(&mut self, now: Instant) {
        let Stage::Live { depackager: Some(depackager), .. } = &mut self.stage else { return };
        let mut outputs = Vec::new();
        depackager.finish(&mut outputs);
        self.ingest(now, outputs);
    }

    fn ingest(&mut self, now: Instant, outputs: impl IntoIterator<Item = Output>) {
        let Stage::Live { depackager, usable, stall, pace, .. } = &mut self.stage else { return };
        let supply = match depackager {
            Some(depackager) => depackager.supply(),
            None => self.client.units().map_or(Supply::Nothing, |units| units.supply()),
        };
        let skips = depackager.as_ref().is_some_and(Depackager::skips);
        if skips {
            stall.renew(now);
        }
        let fault = if skips { None } else { usable.check(now, supply) };
        match pace {
            Some(pace) => {
                outputs.into_iter().for_each(|output| pace.push(output));
                self.release(now);
            }
            None => outputs.into_iter().for_each(|output| self.take_output(now, output)),
        }
        // The attempt ends even if only video is missing: the next attempt may bring it back, whereas viewers who get
        // only audio would not learn of the fault.
        if let Some(Fault::Unusable(reason) | Fault::NoVideo(reason)) = fault {
            self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Fault(reason)));
            self.end(now, reason);
        }
    }

    /// Emits an output of a live source, or queues it if the source has turned out to be a file.
    fn take_output(&mut self, now: Instant, output: Output) {
        match &mut self.stage {
            Stage::Live { pace: Some(pace), .. } => pace.push(output),
            Stage::Live { .. }
            | Stage::Connecting { .. }
            | Stage::Preparing { .. }
            | Stage::Asked
            | Stage::Over => {
                self.give(now, output);
            }
        }
    }

    /// Emits the units of a file that are due.
    fn release(&mut self, now: Instant) {
        while let Stage::Live { pace: Some(pace), .. } = &mut self.stage
            && let Some(output) = pace.poll(now)
        {
            self.give(now, output);
        }
        if let Stage::Live { pace: Some(pace), .. } = &mut self.stage
            && pace.is_empty()
            && let Some(reason) = pace.take_end()
        {
            self.end(now, &reason);
        }
    }

    /// Converts an output of the source to an event.
    fn give(&mut self, now: Instant, output: Output) {
        let is_copy = self.client.zero_ms().is_some();
        let Stage::Live { stall, pace, began, .. } = &mut self.stage else { return };
        let publication = Handle::ONLY;
        match output {
            Output::Unit { unit, tracks, ms } => {
                let mut stopped = None;
                self.bad = 0;
                if ms.is_some() {
                    stall.renew(now);
                }
                if let Some(ms) = ms.filter(|_| !is_copy) {
                    if tracks.get(unit.track).is_some_and(|track| track.kind() == TrackKind::Video) {
                        stall.picture(now);
                    }
                    stopped = stall.without_video(now).filter(|_| pace.is_none());
                    let (since, from) = *began.get_or_insert((now, ms));
                    let ahead = pace::ahead(since, from, ms, now);
                    if pace.is_none() && ahead > LIVE_AHEAD_MAX {
                        *pace = Some(Pace::new(FILE_RESERVE, ahead));
                    }
                }
                self.events
                    .push_back(Event::Publication(publication, PublicationEvent::Unit { unit, tracks }));
                if let Some(reason) = stopped {
                    self.end(now, &reason);
                }
            }
            Output::Dropped { units, media } => {
                if media {
                    stall.renew(now);
                }
                self.events.push_back(Event::Publication(publication, PublicationEvent::UnitsDropped(units)));
            }
            Output::Clock(news) => {
                self.events.push_back(Event::Publication(publication, PublicationEvent::Clock(news)))
            }
            Output::Bad => {
                self.events.push_back(Event::Publication(publication, PublicationEvent::UnitsDropped(1)));
                self.bad = self.bad.saturating_add(1);
                if self.bad > BAD_MAX {
                    self.end(now, "the server sends nonsense");
                }
            }
            Output::Unsupported(what) => self.end(now, &what),
            Output::LeftOut(reason) => {
                tracing::info!(key = %self.key, reason, "audio of the source not carried");
            }
        }
    }

    /// Handles the end of the client. Units of a file that are not due yet are still emitted.
    fn client_ended(&mut self, now: Instant, reason: String) {
        self.finish_pieces(now);
        match &mut self.stage {
            Stage::Live { pace: Some(pace), .. } if !pace.is_empty() => pace.end(reason),
            Stage::Live { .. }
            | Stage::Connecting { .. }
            | Stage::Preparing { .. }
            | Stage::Asked
            | Stage::Over => {
                self.end(now, &reason);
            }
        }
    }

    fn established(&mut self, ctx: &Context<'_>) {
        if matches!(self.stage, Stage::Connecting { .. }) {
            let patience = if self.client.waits() { WAIT_MAX } else { PREPARE_TIMEOUT };
            self.stage = Stage::Preparing { until: ctx.now.mono + patience };
            self.events.push_back(Event::Order(OrderEvent::Pull(PullState::Preparing)));
        }
        self.moves = false;
        if !matches!(self.stage, Stage::Over) {
            let (server, app) = (ctx.server, ctx.apps.get(&self.key.app).map(|app| &**app));
            let via = &self.via;
            self.client.begin(&Start { via, now: ctx.now.mono, address: Some(self.address), server, app });
        }
    }

    fn hung_up(&mut self, ctx: &Context<'_>, reason: &str) {
        if self.moves || matches!(self.stage, Stage::Connecting { .. }) {
            self.end(ctx.now.mono, reason);
        } else {
            self.client.handle_end(ctx.now.mono);
        }
    }

    fn publish_verdict(&mut self, ctx: &Context<'_>, verdict: Result<Grant, Refusal>) {
        if !matches!(self.stage, Stage::Asked) {
            return;
        }
        match verdict {
            Ok(grant) => {
                let now = ctx.now.mono;
                let held = std::mem::take(&mut self.held);
                let is_mp4 = matches!(held.front(), Some(Media::Mp4(_) | Media::Mp4Index { .. }));
                let depackager = match self.client.units() {
                    Some(units) => {
                        units.handle_grant(now, &grant);
                        None
                    }
                    None => Some(Depackager::new(&grant, held.front(), self.skip)),
                };
                let reserve = self.client.reserve().or_else(|| is_mp4.then_some(FILE_RESERVE));
                let pace = reserve.map(|reserve| Pace::new(reserve, self.lead));
                let usable = Box::<Usable>::default();
                let stall = Box::new(Stall::new(now));
                self.stage = Stage::Live { depackager, usable, stall, pace, began: None };
                for media in held {
                    self.take_piece(now, &media);
                }
            }
            Err(refusal) => self.end(ctx.now.mono, &format!("refused here: {refusal:?}")),
        }
    }

    /// Handles an event on a socket that the client has asked for.
    fn handle_socket(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>) {
        let local = match event {
            PathEvent::Open { local } => local,
            PathEvent::Negotiated(_) | PathEvent::PeerClosed | PathEvent::Broken(_) => None,
        };
        if let Some(datagrams) = self.client.datagrams() {
            datagrams.handle_local(ctx.now.mono, path, local);
        }
    }

    fn end(&mut self, now: Instant, reason: &str) {
        self.end_as(now, reason, false);
    }

    /// Ends the attempt, unless it has ended already. `is_over` is true if the stream has ended too.
    fn end_as(&mut self, now: Instant, reason: &str, is_over: bool) {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.held = VecDeque::new();
        let state = match stage {
            Stage::Over => return,
            Stage::Connecting { .. } | Stage::Preparing { .. } | Stage::Asked | Stage::Live { .. }
                if is_over =>
            {
                PullState::Over(reason.clone())
            }
            Stage::Live { pace, .. } => {
                let ahead = pace.map_or(Duration::ZERO, |pace| pace.ahead_at(now));
                PullState::Lost { reason: reason.clone(), ahead }
            }
            Stage::Connecting { .. } | Stage::Preparing { .. } | Stage::Asked => {
                PullState::Failed(reason.clone())
            }
        };
        // Sent before the state, so that control knows the position of the stream when it plans the next attempt.
        self.events.push_back(Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Lost)));
        self.events.push_back(Event::Order(OrderEvent::Pull(state)));
        self.events.push_back(Event::Closed(reason));
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Connecting { until } | Stage::Preparing { until } => Some(*until),
            Stage::Live { stall, pace, .. } => {
                Some(pace.as_ref().and_then(Pace::due).unwrap_or_else(|| stall.due()))
            }
            Stage::Asked | Stage::Over => None,
        }
    }
}

impl ByteStream for PullSession {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Some(stream) = self.client.byte_stream() {
            stream.handle_bytes(ctx.now.mono, bytes);
        }
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, _bytes: usize) {
        // A pull's client sends only requests and acknowledgements, and nothing waits until the socket has accepted
        // them.
    }

    fn wants_bytes(&self) -> bool {
        match &self.stage {
            Stage::Connecting { .. } | Stage::Preparing { .. } => true,
            Stage::Live { pace, .. } => pace.as_ref().is_none_or(Pace::is_empty),
            Stage::Asked | Stage::Over => false,
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(stream) = self.client.byte_stream() {
            stream.poll_transmit(out);
        }
    }
}

impl DatagramPeer for PullSession {
    fn handle_datagram(&mut self, ctx: &Context<'_>, path: PathId, from: Remote, datagram: &mut [u8]) {
        if let Some(datagrams) = self.client.datagrams() {
            datagrams.handle_datagram(ctx.now.mono, path, from.peer, datagram);
        }
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, _logs: Logs<'_, '_>, out: &mut Datagrams) -> To {
        self.client.datagrams().map_or(To::PEER, |datagrams| datagrams.poll_datagrams(ctx.now.mono, out))
    }
}

impl Session for PullSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Publication(_, PublicationNews::Verdict(verdict)) => self.publish_verdict(ctx, verdict),
            Reply::Publication(_, PublicationNews::Ended(_)) => self.close(ctx, "the stream was ended"),
            Reply::Publication(_, PublicationNews::KeyFrameNeeded(track)) => {
                if let Some(demands) = self.client.demands() {
                    demands.handle_key_frame_needed(track);
                }
            }
            Reply::Publication(_, PublicationNews::Wanted(tracks)) => {
                if let Some(demands) = self.client.demands() {
                    demands.handle_wanted(tracks);
                }
            }
            Reply::Publication(_, PublicationNews::Audience(viewers)) => {
                if let Some(demands) = self.client.demands() {
                    demands.handle_audience(&viewers);
                }
            }
            Reply::Job(done) => {
                if let Some(jobs) = self.client.jobs() {
                    jobs.handle_job(ctx.now.mono, done);
                }
            }
            Reply::Subscription(..) | Reply::Request(_) | Reply::Family(_) | Reply::Port(_) => {}
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        self.drain_client(ctx.now.mono);
        self.events.pop_front()
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.client.close(ctx.now.mono);
        self.end(ctx.now.mono, reason);
    }

    fn about(&self) -> About {
        About { protocol: self.client.name(), is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        Some(self)
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        self.client.figures()
    }
}

impl Timers for PullSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let now = ctx.now.mono;
        match &mut self.stage {
            Stage::Connecting { until } if *until <= now => self.end(now, "connect timed out"),
            Stage::Preparing { until } if *until <= now => self.end(now, "no media came"),
            Stage::Live { pace: Some(pace), stall, .. } if !pace.is_empty() => stall.renew(now),
            Stage::Live { stall, .. } => {
                if let Some(reason) = stall.frozen(now) {
                    self.end(now, &reason);
                }
            }
            Stage::Connecting { .. } | Stage::Preparing { .. } | Stage::Asked | Stage::Over => {}
        }
        if matches!(self.stage, Stage::Over) {
            // Over datagrams, the server learns of the end only if the client closes as its protocol requires.
            return self.client.close(now);
        }
        self.client.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if matches!(self.stage, Stage::Over) {
            return None;
        }
        [self.deadline(), self.client.poll_timeout()].into_iter().flatten().min()
    }
}

impl Paths for PullSession {
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>) {
        if path != PathId::default() {
            return self.handle_socket(ctx, path, event);
        }
        match event {
            PathEvent::Open { .. } => self.established(ctx),
            PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.hung_up(ctx, "the server closed the connection"),
            PathEvent::Broken(reason) => self.hung_up(ctx, reason),
        }
    }
}

#[cfg(test)]
mod tests;
