//! A push: publishes one of our streams to another RTSP server. Its supervisor is control; one session is one attempt.
//!
//! 1. The connection is open: the session subscribes to the stream, and pauses the subscription until all requests are
//!    answered.
//! 2. The tracks are known: `ANNOUNCE` describes them, and `SETUP` requests each on the channels for which its packets
//!    are cut.
//! 3. `RECORD` is answered: the packets cut for viewers are sent unchanged.

use std::time::{Duration, Instant};

use ::rtsp::{Client, ClientEvent, CloseReason, Lower, Transport};
use crypto::Seed;
use media::Tracks;
use wire::SendQueue;

use super::announce::Announcement;
use super::awaited::Awaited;
use super::package;
use super::url::RtspUrl;
use super::viewer::after;
use crate::hub::Selection;
use crate::protocol::push::Attempt;
use crate::protocol::{
    About, ByteStream, Context, Event, Format, PathEvent, PathId, Paths, Reply, Session, SubscriptionNews,
    Timers,
};
use crate::types::Now;

/// Maximum time from a request to its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The stage of an attempt.
#[derive(Debug)]
enum Stage {
    /// Connecting; the connection must be open by this time.
    Connecting(Instant),
    /// Waiting for the stream's tracks.
    AwaitsTracks(Awaited),
    /// Announced to the target.
    Announced(Box<Announced>),
    Over,
}

/// A stream announced to the target.
#[derive(Debug)]
struct Announced {
    machine: Client,
    announcement: Announcement,
}

impl Announced {
    /// True if more tracks could be announced now than were announced.
    fn lacks(&self, format: Format, tracks: &Tracks) -> bool {
        Announcement::of(format.choose(tracks).iter()).tracks.len() > self.announcement.tracks.len()
    }
}

/// An attempt to push a stream over RTSP.
#[derive(Debug)]
pub(crate) struct RtspPush {
    url: RtspUrl,
    /// The nodes and streams through which the stream was forwarded, ending with the stream itself.
    via: Vec<String>,
    seed: Seed,
    format: Format,
    stage: Stage,
    attempt: Attempt,
}

impl RtspPush {
    pub(super) fn new(now: Now, url: &RtspUrl, via: &[String], seed: Seed) -> Self {
        Self {
            url: url.clone(),
            via: via.to_vec(),
            seed,
            format: Format::new(&package::FORMAT, 0).select(Selection::DEFAULT),
            stage: Stage::Connecting(after(now.mono, crate::protocol::CONNECT_TIMEOUT)),
            attempt: Attempt::default(),
        }
    }

    const fn machine(&mut self) -> Option<&mut Client> {
        match &mut self.stage {
            Stage::Announced(announced) => Some(&mut announced.machine),
            Stage::Connecting(_) | Stage::AwaitsTracks(_) | Stage::Over => None,
        }
    }

    fn connected(&mut self, ctx: &Context<'_>) {
        if matches!(self.stage, Stage::Connecting(_)) {
            self.stage = Stage::AwaitsTracks(Awaited::new(ctx.now.mono));
            self.attempt.prepare();
            self.attempt.attach(self.format);
            self.attempt.pause(true);
        }
    }

    fn tracks_known(&mut self, ctx: &Context<'_>, tracks: &Tracks) {
        let selection = self.format.key().selection;
        match &mut self.stage {
            Stage::AwaitsTracks(awaited) => {
                if awaited.take(ctx.now.mono, tracks, selection) {
                    self.announce(ctx, tracks);
                }
            }
            // The next attempt announces all tracks.
            Stage::Announced(announced) if announced.lacks(self.format, tracks) => {
                announced.machine.close(ctx.now.mono, CloseReason::Requested);
                self.attempt.restart("sound or video has begun that was not announced");
            }
            Stage::Connecting(_) | Stage::Announced(_) | Stage::Over => {}
        }
    }

    fn announce(&mut self, ctx: &Context<'_>, tracks: &Tracks) {
        let announcement = Announcement::of(self.format.choose(tracks).iter());
        if announcement.tracks.is_empty() {
            return self.end("RTSP carries none of the tracks");
        }
        let (now, seed) = (ctx.now.mono, self.seed.clone());
        let machine = announcement.publish(
            now,
            (&self.url, ANSWER_WITHIN),
            &self.via,
            seed,
            &announcement.interleaved(),
        );
        self.stage = Stage::Announced(Box::new(Announced { machine, announcement }));
    }

    fn drain_machine(&mut self, now: Instant) {
        while let Some(event) = self.machine().and_then(Client::poll_event) {
            match event {
                ClientEvent::SetUp { track, transport } => self.set_up(now, track, &transport),
                ClientEvent::Ready { .. } => {
                    self.attempt.broadcasting(now);
                    self.attempt.pause(false);
                }
                ClientEvent::Redirect { .. } => self.end("the target redirects, which is not followed"),
                ClientEvent::Rejected { status, reason } => {
                    self.end(&format!("RTSP {} {reason}", status.code()));
                }
                ClientEvent::Closed(CloseReason::PeerClosed) => self.end("the target closed the connection"),
                ClientEvent::Closed(reason) => self.end(&reason.to_string()),
                // These events concern received media, and a push receives none.
                ClientEvent::Interleaved(_)
                | ClientEvent::Described(_)
                | ClientEvent::NotInterleaved
                | ClientEvent::Announced(_) => {}
            }
        }
    }

    /// Checks the transport chosen by the target. All viewers share the packets, which contain channel numbers, so the
    /// target must accept these channels.
    fn set_up(&mut self, now: Instant, section: usize, transport: &Transport) {
        let Stage::Announced(announced) = &mut self.stage else { return };
        let wanted = announced.announcement.channels(section);
        if transport.lower != Lower::Tcp || transport.channels != wanted {
            announced.machine.close(now, CloseReason::Requested);
            self.end("the target wants other channels");
        }
    }

    fn hung_up(&mut self, ctx: &Context<'_>, reason: &str) {
        let now = ctx.now.mono;
        self.drain_machine(now);
        self.end(reason);
        if let Some(machine) = self.machine() {
            machine.close(now, CloseReason::PeerClosed);
        }
    }

    fn end(&mut self, reason: &str) {
        self.attempt.end(reason);
        if !matches!(self.stage, Stage::Announced(_)) {
            self.stage = Stage::Over;
        }
    }
}

impl ByteStream for RtspPush {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Some(machine) = self.machine()
            && let Err(error) = machine.handle_bytes(ctx.now.mono, bytes)
        {
            tracing::debug!(%error, "target of a push broke the protocol");
        }
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, _bytes: usize) {
        // Nothing to do: the client's keep-alive depends on time only, and the worker notices if the target accepts no
        // bytes.
    }

    fn wants_bytes(&self) -> bool {
        !self.attempt.is_over()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(machine) = self.machine() {
            machine.poll_transmit(out);
        }
    }
}

impl Session for RtspPush {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Subscription(_, news) = reply {
            match news {
                SubscriptionNews::Verdict(Ok(tracks))
                | SubscriptionNews::TracksKnown(tracks)
                | SubscriptionNews::KindAdded(tracks) => self.tracks_known(ctx, tracks),
                SubscriptionNews::Seasoned => {
                    if let Stage::AwaitsTracks(awaited) = &mut self.stage {
                        awaited.season();
                    }
                }
                SubscriptionNews::Verdict(Err(_)) => self.close(ctx, "the stream is not there"),
                SubscriptionNews::Ended(_) => self.close(ctx, "the stream ended"),
                SubscriptionNews::Held | SubscriptionNews::Zero(_) | SubscriptionNews::Subtracks(_) => {}
            }
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if !self.attempt.has_events() {
            self.drain_machine(ctx.now.mono);
        }
        self.attempt.poll_event()
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.attempt.finish();
        match self.machine() {
            Some(machine) => machine.close(ctx.now.mono, CloseReason::Requested),
            None => self.end(reason),
        }
    }

    fn about(&self) -> About {
        About { protocol: "rtsp-push", is_media: true, is_authenticated: true }
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
}

impl Timers for RtspPush {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        let now = ctx.now.mono;
        match &mut self.stage {
            Stage::Connecting(until) if *until <= now => self.end("connect timed out"),
            Stage::AwaitsTracks(awaited) if awaited.until() <= now => match awaited.tracks() {
                Some(tracks) => self.announce(ctx, &tracks),
                None => self.end("the stream has no tracks"),
            },
            Stage::Connecting(_) | Stage::AwaitsTracks(_) | Stage::Announced(_) | Stage::Over => {}
        }
        if let Some(machine) = self.machine() {
            machine.handle_timeout(now);
        }
        self.attempt.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = match &self.stage {
            Stage::Connecting(until) => Some(*until),
            Stage::AwaitsTracks(awaited) => Some(awaited.until()),
            Stage::Announced(announced) => announced.machine.poll_timeout(),
            Stage::Over => None,
        };
        [own, self.attempt.poll_timeout()].into_iter().flatten().min()
    }
}

impl Paths for RtspPush {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } => self.connected(ctx),
            PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.hung_up(ctx, "the target closed the connection"),
            PathEvent::Broken(reason) => self.hung_up(ctx, reason),
        }
    }
}
