//! A TCP connection to a media port (RFC 6544): the peer's way where UDP is blocked. Its frames (RFC 4571) are datagrams of the
//! port, and what the peer's session sends by this path goes out in frames.
//!
//! 1. The first frame is a check that names a session, or the connection is closed at once.
//! 2. The session finds the check authentic and claims the path ([`PortNews::Carries`]): the connection is the session's, and ends
//!    with it.
//! 3. Who does not come so far in time is closed, and so is who is silent later: browsers check a path every few seconds.

use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use ice::tcp::{FRAME_HEAD_BYTES, FrameReader, frame_head};
use wire::{Datagrams, SendQueue};

use crate::protocol::{
    About, ByteStream, Carrier, Context, Event, PathEvent, PathId, Paths, PortEvent, PortNews, Reply,
    Session, Timers,
};
use crate::types::Now;

/// A connection that is no session's path by then is closed.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// A path of a session that brings nothing for so long: consent to send by it is gone as well (RFC 7675 §5.1).
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes that wait for the socket. What is more is lost, as on a network: late media is of no use.
const QUEUE_BYTES_MAX: usize = 256 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct TcpCarrier {
    reader: FrameReader,
    /// Bytes that were read and are in no frame yet.
    input: BytesMut,
    out: SendQueue,
    /// Bytes that the socket has not taken.
    queued: usize,
    claimed: bool,
    /// When it is closed, unless something comes before.
    until: Option<Instant>,
    closing: Option<String>,
}

impl TcpCarrier {
    pub(super) fn new(now: Now) -> Self {
        Self {
            reader: FrameReader::accepted(ice::limits::FRAME_BYTES_MAX),
            input: BytesMut::new(),
            out: SendQueue::new(),
            queued: 0,
            claimed: false,
            until: now.mono.checked_add(CLAIM_TIMEOUT),
            closing: None,
        }
    }

    /// Once: `until` is what an open connection has.
    fn end(&mut self, reason: &str) {
        if self.until.take().is_some() {
            self.closing = Some(reason.to_owned());
        }
    }
}

impl ByteStream for TcpCarrier {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if self.claimed && self.until.is_some() {
            self.until = ctx.now.mono.checked_add(SILENCE_MAX);
        }
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
    }

    fn wants_bytes(&self) -> bool {
        self.input.is_empty() && self.until.is_some()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.append(&mut self.out);
    }
}

impl Carrier for TcpCarrier {
    fn carry(&mut self, datagrams: &Datagrams) -> usize {
        let mut frames = BytesMut::new();
        let mut lost = 0;
        for datagram in (0..datagrams.len()).map(|index| datagrams.get(index)) {
            let length = datagram.len().saturating_add(FRAME_HEAD_BYTES);
            let Some(queued) = self.queued.checked_add(length).filter(|queued| *queued <= QUEUE_BYTES_MAX)
            else {
                lost += 1;
                continue;
            };
            let Ok(head) = frame_head(datagram.len()) else {
                lost += 1;
                continue;
            };
            self.queued = queued;
            frames.put_slice(&head);
            frames.put_slice(datagram);
        }
        self.out.push(frames.freeze());
        lost
    }
}

impl Session for TcpCarrier {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Port(PortNews::Carries) if self.until.is_some() => {
                self.claimed = true;
                self.until = ctx.now.mono.checked_add(SILENCE_MAX);
            }
            Reply::Port(PortNews::Uncarried) if !self.claimed => self.end("no session has such a path"),
            Reply::Port(_)
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Request(_)
            | Reply::Job(_)
            | Reply::Family(_) => {}
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.end(reason);
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if self.until.is_some() {
            match self.reader.next(&mut self.input) {
                Ok(Some(datagram)) => {
                    return Some(Event::Port(PortEvent::Carried { port: super::PORT, datagram }));
                }
                // An idle connection holds no buffer.
                Ok(None) => self.input = BytesMut::new(),
                Err(error) => self.end(&error.to_string()),
            }
        }
        self.closing.take().map(Event::Closed)
    }

    fn about(&self) -> About {
        About { protocol: "webrtc-tcp", is_media: false, is_authenticated: self.claimed }
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

    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        Some(self)
    }
}

impl Timers for TcpCarrier {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if self.until.is_some_and(|until| until <= ctx.now.mono) {
            self.end(if self.claimed { "the peer is silent" } else { "no check came" });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }
}

impl Paths for TcpCarrier {
    fn handle_path(&mut self, _ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.end("the peer closed the connection"),
            PathEvent::Broken(reason) => self.end(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Blobs;
    use crate::mail::SessionSettings;
    use crate::protocol::Apps;

    struct Rig {
        carrier: TcpCarrier,
        now: Now,
        apps: Apps,
        server: SessionSettings,
        blobs: Blobs,
    }

    impl Rig {
        fn new() -> Self {
            let now = Now { mono: Instant::now(), wall_ms: 0 };
            let (apps, server, blobs) = (Apps::new(), SessionSettings::default(), Blobs::default());
            Self { carrier: TcpCarrier::new(now), now, apps, server, blobs }
        }

        fn call<R>(&mut self, verb: impl FnOnce(&mut TcpCarrier, &Context<'_>) -> R) -> R {
            let (now, apps, server, blobs) = (self.now, &self.apps, &self.server, &self.blobs);
            verb(&mut self.carrier, &Context { now, apps, server, blobs, draining: false })
        }

        fn pass(&mut self, time: Duration) {
            self.now.mono += time;
            self.call(|carrier, ctx| carrier.handle_timeout(ctx));
        }

        /// The number of datagrams that it carries until its end, and the end.
        fn drain(&mut self) -> (usize, Option<String>) {
            let mut carried = 0;
            loop {
                match self.call(|carrier, ctx| carrier.poll_event(ctx)) {
                    Some(Event::Port(PortEvent::Carried { .. })) => carried += 1,
                    Some(Event::Closed(reason)) => return (carried, Some(reason)),
                    Some(other) => panic!("{other:?}"),
                    None => return (carried, None),
                }
            }
        }
    }

    /// A frame of a binding request without attributes.
    const CHECK: [u8; 22] =
        [0, 20, 0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

    #[test]
    fn who_is_nobodys_path_in_time_is_closed_whatever_it_sends() {
        let mut rig = Rig::new();
        for _ in 0..9 {
            rig.call(|carrier, ctx| carrier.handle_bytes(ctx, &CHECK));
            rig.pass(Duration::from_secs(1));
            assert_eq!(rig.drain(), (1, None));
        }
        assert!(rig.carrier.wants_bytes() && !rig.carrier.about().is_authenticated);
        rig.pass(Duration::from_secs(1));
        assert_eq!(rig.drain(), (0, Some("no check came".to_owned())));
        assert!(!rig.carrier.wants_bytes() && rig.carrier.poll_timeout().is_none());
        assert_eq!(rig.drain(), (0, None), "the end comes once");
    }

    #[test]
    fn a_sessions_path_lives_while_it_speaks() {
        let mut rig = Rig::new();
        rig.call(|carrier, ctx| carrier.handle_bytes(ctx, &CHECK));
        rig.call(|carrier, ctx| carrier.handle_reply(ctx, Reply::Port(PortNews::Carries)));
        assert!(rig.carrier.about().is_authenticated);
        for _ in 0..3 {
            rig.pass(Duration::from_secs(29));
            rig.call(|carrier, ctx| carrier.handle_bytes(ctx, &CHECK));
            // A late datagram of a path that is no more is only dropped.
            rig.call(|carrier, ctx| carrier.handle_reply(ctx, Reply::Port(PortNews::Uncarried)));
        }
        assert_eq!(rig.drain(), (4, None));
        rig.pass(Duration::from_secs(30));
        assert_eq!(rig.drain(), (0, Some("the peer is silent".to_owned())));
    }

    #[test]
    fn what_a_slow_peer_does_not_take_is_lost_by_whole_datagrams() {
        let mut rig = Rig::new();
        let mut datagrams = Datagrams::new();
        while datagrams.has_room(1200) {
            datagrams.push(&[0; 200], &[1; 1000]);
        }
        let (mut lost, mut out) = (0, SendQueue::new());
        for _ in 0..100 {
            lost += rig.carrier.carry(&datagrams);
            rig.carrier.poll_transmit(&mut out);
        }
        let room = QUEUE_BYTES_MAX / 1202;
        assert_eq!((out.len(), lost), (room * 1202, 100 * datagrams.len() - room));
        // Whole frames, so that the peer finds the next one.
        let mut reader = FrameReader::default();
        let mut bytes = BytesMut::from(&out.take_all()[..]);
        let mut frames = 0;
        while let Some(frame) = reader.next(&mut bytes).unwrap() {
            assert_eq!(frame.len(), 1200);
            frames += 1;
        }
        assert_eq!((frames, bytes.len()), (room, 0));
        rig.call(|carrier, ctx| carrier.handle_sent(ctx, 2500));
        assert_eq!(rig.carrier.carry(&datagrams), datagrams.len() - 2);
    }
}
