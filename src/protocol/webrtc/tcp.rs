//! A TCP connection to a media port (RFC 6544), for peers behind firewalls that block UDP. Frames on the connection
//! (RFC 4571) are handled as datagrams of the port. If the first frame is not a connectivity check for an existing
//! session, the connection is closed immediately.

use std::time::Duration;

use bytes::BytesMut;
use ice::tcp::{FrameReader, frame_head};

use crate::protocol::carrier::{Framing, StreamCarrier, Terms};
use crate::types::Now;

/// A connection that is silent for longer is closed: the consent to send on its path has expired by then (RFC 7675
/// §5.1). Browsers check a path every few seconds.
const SILENCE_MAX: Duration = Duration::from_secs(30);

static TERMS: Terms = Terms {
    port: super::PORT,
    protocol: "webrtc-tcp",
    silence_max: Some(SILENCE_MAX),
    unclaimed: "no check came",
    unwanted: "no session has such a path",
};

/// The session of an accepted connection.
pub(super) type TcpCarrier = StreamCarrier<IceFrames>;

/// Makes a carrier of ICE frames.
pub(super) fn carrier(now: Now) -> TcpCarrier {
    StreamCarrier::new(now, &TERMS, IceFrames(FrameReader::accepted(ice::limits::FRAME_BYTES_MAX)))
}

/// Framing by RFC 4571.
#[derive(Debug)]
pub(super) struct IceFrames(FrameReader);

impl Framing for IceFrames {
    fn next(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, String> {
        self.0.next(input).map_err(|error| error.to_string())
    }

    fn write(&self, datagram: &[u8], out: &mut BytesMut) -> bool {
        let Ok(head) = frame_head(datagram.len()) else { return false };
        out.extend_from_slice(&head);
        out.extend_from_slice(datagram);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use wire::{Datagrams, SendQueue};

    use super::*;
    use crate::hub::Blobs;
    use crate::mail::SessionSettings;
    use crate::protocol::carrier::QUEUE_BYTES_MAX;
    use crate::protocol::{
        Apps, ByteStream, Carrier, Context, Event, PortEvent, PortNews, Reply, Session, Timers,
    };

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
            Self { carrier: carrier(now), now, apps, server, blobs }
        }

        fn call<R>(&mut self, verb: impl FnOnce(&mut TcpCarrier, &Context<'_>) -> R) -> R {
            let (now, apps, server, blobs) = (self.now, &self.apps, &self.server, &self.blobs);
            verb(&mut self.carrier, &Context { now, apps, server, blobs, draining: false })
        }

        fn pass(&mut self, time: Duration) {
            self.now.mono += time;
            self.call(|carrier, ctx| carrier.handle_timeout(ctx));
        }

        /// Returns the number of datagrams that the connection carries until it ends, and the reason for the end.
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

    /// A frame (RFC 4571) that contains a binding request without attributes.
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
            // A datagram that no session accepts any more is dropped, and the connection stays.
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
        // Frames are written whole, so that the peer finds the next one.
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
