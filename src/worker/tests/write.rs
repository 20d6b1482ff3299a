//! Output: the bytes that are offered to a socket, and the effects of the socket's accepting all or some of them.

use media::TrackKind;

use super::*;
use crate::hub::Selection;
use crate::mail::StreamEnd;

impl Rig {
    /// Adds a viewer of [`STREAM`] whose units are written as their times in brackets.
    fn viewer(&mut self) -> (ConnId, Actor) {
        let (id, actor) = self.connect();
        self.play_fragile(id, Handle::ONLY, ("one", -1));
        (id, actor)
    }

    /// Publishes and flushes frames with these times. The frame with time 0 is a key frame.
    fn frames(&mut self, publisher: &(ConnId, Actor), times: impl IntoIterator<Item = i64>) {
        let frames: Vec<Event> = times.into_iter().map(|at| video_frame(at, at == 0)).collect();
        self.say(publisher.0, &publisher.1, frames);
        self.worker.live.flush_stream(&mut self.worker.turn, &mut self.worker.conns, STREAM);
    }

    /// Returns the session of the next write and the bytes offered to its socket.
    fn offer(&mut self) -> Option<(ConnId, String)> {
        let (id, way) = self.worker.next_write(Writers::All)?;
        assert_eq!(way, Way::Bytes);
        let mut gather = wire::Gather::new(1 << 20);
        self.worker.gather(id, &mut gather);
        let bytes: Vec<u8> = gather.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        Some((id, String::from_utf8(bytes).unwrap()))
    }

    /// Performs a write to a socket that accepts only the first `taken` of the offered bytes.
    fn write(&mut self, taken: usize) -> Option<String> {
        let (id, offered) = self.offer()?;
        self.worker.sent(self.now.mono, id, taken, offered.len());
        Some(offered)
    }

    /// Makes the socket writable and performs a write. The socket accepts the first `taken` bytes.
    fn write_again(&mut self, id: ConnId, taken: usize) -> Option<String> {
        self.worker.handle_writable(self.now, id);
        self.write(taken)
    }

    /// Adds a session that takes whole units and has room for `room` of them. It subscribes to the first video
    /// track of the stream.
    fn sink(&mut self, room: usize) -> (ConnId, Actor) {
        let (id, actor) = self.connect();
        actor.script().room = Some(room);
        self.say(id, &actor, [subscribe()]);
        actor.replies();
        (id, actor)
    }

    /// Flushes everything. Only sinks have taken units, so nothing is left to write.
    fn flush(&mut self) {
        self.worker.live.flush_stream(&mut self.worker.turn, &mut self.worker.conns, STREAM);
        assert_eq!(self.worker.next_write(Writers::All), None);
    }

    fn queue(&mut self, id: ConnId, text: &'static str) {
        let link = self.worker.conns.get_mut(id).unwrap().bytes.as_mut().unwrap();
        link.queue.push(Bytes::from(text));
    }

    /// Returns the closed connections, and whether they were aborted.
    fn closed(&mut self) -> Vec<(ConnId, bool)> {
        let closed = self.outputs().into_iter().filter_map(|output| match output {
            Output::Close { conn, abort } => Some((conn, abort)),
            _ => None,
        });
        closed.collect()
    }
}

#[test]
fn a_socket_that_took_less_than_it_was_offered_is_offered_nothing_until_it_says_so() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0, 33]);
    assert_eq!(rig.write(4).as_deref(), Some("[0][33]"));
    rig.frames(&publisher, [66]);
    assert_eq!(rig.write(0), None);
    assert_eq!(rig.write_again(viewer, 7).as_deref(), Some("33][66]"));
    assert_eq!(rig.write(0), None, "nothing is left");
    rig.worker.handle_writable(rig.now, viewer);
    assert_eq!(rig.write(0), None, "nor when it says that it takes more");
    rig.worker.conns.enqueue_write(&mut rig.worker.turn, viewer);
    assert_eq!(rig.write(0), None, "nor when it is looked at for nothing");
    rig.frames(&publisher, [99]);
    assert_eq!(rig.write(4).as_deref(), Some("[99]"));
}

#[test]
fn a_session_is_in_the_queue_once_and_comes_again_while_there_is_more() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0]);
    rig.worker.live.flush_stream(&mut rig.worker.turn, &mut rig.worker.conns, STREAM);
    rig.worker.conns.enqueue_write(&mut rig.worker.turn, viewer);
    assert_eq!(rig.worker.next_write(Writers::All), Some((viewer, Way::Bytes)));
    assert_eq!(rig.worker.next_write(Writers::All), None);
    // All offered bytes are accepted. In the meantime, more units have arrived.
    rig.frames(&publisher, [33]);
    assert_eq!(rig.worker.next_write(Writers::All), Some((viewer, Way::Bytes)));
    rig.worker.sent(rig.now.mono, viewer, 3, 3);
    assert_eq!(rig.write(4).as_deref(), Some("[33]"));
    assert!(!rig.worker.has_writes(Writers::All));
}

#[test]
fn what_a_session_says_comes_behind_the_unit_begun_and_before_the_next() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0]);
    assert_eq!(rig.write(1).as_deref(), Some("[0]"));
    rig.queue(viewer, "hello");
    rig.frames(&publisher, [33]);
    assert_eq!(rig.write_again(viewer, 4).as_deref(), Some("0]hello[33]"));
    assert_eq!(rig.write_again(viewer, 5).as_deref(), Some("llo[33]"));
    assert_eq!(rig.write_again(viewer, 2).as_deref(), Some("3]"));
    assert_eq!(rig.write_again(viewer, 0), None);
}

#[test]
fn all_streams_of_a_session_are_in_one_write() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    rig.play_fragile(viewer, Handle(1), ("two", -1));
    let publisher = rig.publisher();
    rig.frames(&publisher, [0]);
    assert_eq!(rig.write(4).as_deref(), Some("[0][0]"));
    assert_eq!(rig.write_again(viewer, 2).as_deref(), Some("0]"));
}

#[test]
fn a_unit_begun_is_finished_also_when_its_stream_is_gone() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0, 33]);
    assert_eq!(rig.write(4).as_deref(), Some("[0][33]"));
    let end = StreamEnd::Unpublished;
    rig.worker.handle_mail(rig.now, ToWorker::StreamDown { stream: STREAM, end });
    rig.worker.finish_turn();
    assert_eq!(rig.write_again(viewer, 1).as_deref(), Some("33]"));
    assert_eq!(rig.write_again(viewer, 2).as_deref(), Some("3]"));
    assert_eq!(rig.write_again(viewer, 0), None);
}

#[test]
fn the_time_of_a_stalled_socket_counts_from_the_last_byte_that_it_took() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    let began = rig.now.mono;
    let pass = |rig: &mut Rig, seconds| {
        rig.now.mono = began + Duration::from_secs(seconds);
        rig.worker.handle_timeout(rig.now);
        rig.worker.finish_turn();
        rig.closed()
    };
    rig.frames(&publisher, [0, 33]);
    rig.write(0);
    pass(&mut rig, 10);
    // The socket becomes writable but accepts nothing: this is no progress.
    rig.write_again(viewer, 0);
    assert_eq!(pass(&mut rig, 29), []);
    rig.write_again(viewer, 1);
    rig.frames(&publisher, [66]);
    assert_eq!(pass(&mut rig, 58), []);
    assert_eq!(pass(&mut rig, 59), [(viewer, true)]);
}

#[test]
fn to_be_ready_and_take_nothing_is_no_progress() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0]);
    rig.write(0);
    for _ in 0..29 {
        rig.now.mono += Duration::from_secs(1);
        rig.worker.handle_timeout(rig.now);
        rig.write_again(viewer, 0);
        assert_eq!(rig.closed(), []);
    }
    rig.now.mono += Duration::from_secs(1);
    rig.worker.handle_timeout(rig.now);
    assert_eq!(rig.closed(), [(viewer, true)]);
}

#[test]
fn who_has_datagrams_writes_without_a_unit() {
    let mut rig = Rig::new();
    let conn = Conn::datagrams(([192, 0, 2, 1], 1).into(), Box::new(Actor::default()), None, rig.now.mono);
    let id = rig.worker.conns.insert(conn).unwrap();
    for unsent in [true, false] {
        rig.worker.conns.get_mut(id).unwrap().datagrams.as_mut().unwrap().unsent = unsent;
        rig.worker.conns.enqueue_write(&mut rig.worker.turn, id);
        assert_eq!(rig.worker.next_write(Writers::All), unsent.then_some((id, Way::Datagrams)));
    }
}

#[test]
fn who_has_taken_everything_does_not_stall() {
    let mut rig = Rig::new();
    let (viewer, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0]);
    rig.write(1);
    rig.write_again(viewer, 2);
    rig.now.mono += Duration::from_secs(3600);
    rig.worker.handle_timeout(rig.now);
    assert_eq!(rig.closed(), []);
    // For bytes that are queued later, the full time limit begins again.
    rig.frames(&publisher, [33]);
    rig.write(0);
    rig.now.mono += Duration::from_secs(29);
    rig.worker.handle_timeout(rig.now);
    assert_eq!(rig.closed(), []);
    rig.now.mono += Duration::from_secs(1);
    rig.worker.handle_timeout(rig.now);
    assert_eq!(rig.closed(), [(viewer, true)]);
}

#[test]
fn who_is_to_be_closed_goes_with_the_last_byte() {
    let mut rig = Rig::new();
    let (viewer, actor) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0, 33]);
    rig.write(4);
    rig.say(viewer, &actor, [Event::Closed("done".to_owned())]);
    assert_eq!(rig.closed(), []);
    assert_eq!(rig.write_again(viewer, 1).as_deref(), Some("33]"));
    assert_eq!(rig.closed(), []);
    assert_eq!(rig.write_again(viewer, 2).as_deref(), Some("3]"));
    assert_eq!(rig.closed(), [(viewer, false)], "before the turn ends");
}

#[test]
fn a_session_hears_at_once_how_much_was_taken_and_a_viewer_when_its_time_comes() {
    let mut rig = Rig::new();
    let (peer, actor) = rig.connect();
    rig.queue(peer, "hello");
    rig.worker.conns.enqueue_write(&mut rig.worker.turn, peer);
    assert_eq!(rig.write(3).as_deref(), Some("hello"));
    assert_eq!(actor.replies(), ["sent 3"]);
    rig.worker.finish_turn();
    rig.write_again(peer, 0);
    assert_eq!(actor.replies(), [""; 0]);
    // The session is notified in the same turn that its output queue has room again.
    actor.say(Event::Closed("done".to_owned()));
    rig.write_again(peer, 2);
    rig.worker.finish_turn();
    assert_eq!(rig.closed(), [(peer, false)]);

    let (viewer, actor) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0, 33]);
    actor.replies();
    rig.write(3);
    rig.write_again(viewer, 4);
    assert_eq!(actor.replies(), [""; 0]);
    for told in [&["sent 7"][..], &[]] {
        rig.worker.conn_timeout(viewer, rig.now.mono);
        assert_eq!(actor.replies(), told);
    }
}

#[test]
fn a_ring_keeps_what_its_slowest_viewer_has_not_had() {
    let mut rig = Rig::new();
    let (slow, _) = rig.viewer();
    let publisher = rig.publisher();
    rig.frames(&publisher, [0]);
    rig.write(1);
    let (fast, _) = rig.connect();
    rig.play_fragile(fast, Handle::ONLY, ("two", -1));
    // One GOP later, only the slow viewer still needs the first GOP.
    let key = |at| video_frame(at, true);
    rig.say(publisher.0, &publisher.1, [video_frame(33, false), key(66), video_frame(99, false)]);
    rig.worker.live.flush_stream(&mut rig.worker.turn, &mut rig.worker.conns, STREAM);
    while let Some((id, offered)) = rig.offer() {
        assert_eq!(id, fast);
        rig.worker.sent(rig.now.mono, id, offered.len(), offered.len());
    }
    rig.worker.live.trim(&mut rig.worker.turn, &mut rig.worker.conns, STREAM);
    assert_eq!(rig.write_again(slow, 14).as_deref(), Some("0][33][66][99]"));
    let before = rig.worker.retained_bytes();
    rig.worker.live.trim(&mut rig.worker.turn, &mut rig.worker.conns, STREAM);
    assert!(rig.worker.retained_bytes() < before, "it is let go with the last who needs it");
}

/// Makes a frame of one of two video tracks.
fn frame_of(n: u8, dts: i64, key_frame: bool) -> Event {
    let track = |n| {
        let config = CodecConfig::read(Codec::Vp8, Bytes::new()).unwrap().unwrap();
        let id = TrackId::nth(TrackKind::Video, n).unwrap();
        Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }
    };
    let payload = Bytes::from_static(b"frame");
    let unit = AccessUnit { track: track(n).id, dts, pts: dts, key_frame, config_epoch: 1, payload };
    Event::Publication(
        Handle::ONLY,
        PublicationEvent::Unit { unit, tracks: Arc::new(Tracks::new(1, [track(0), track(1)])) },
    )
}

#[test]
fn a_sink_is_handed_what_lies_before_and_behind_its_change_of_tracks_at_once() {
    let other = Selection::only(TrackKind::Video, TrackId::nth(TrackKind::Video, 1).unwrap());
    // Run twice: if `before`, with a unit of the former track between the selection and the new track's key frame, else
    // without.
    for (before, expected) in
        [(true, &["33 of 0", "66 of 1", "99 of 1"][..]), (false, &["66 of 1", "99 of 1"])]
    {
        let mut rig = Rig::new();
        let publisher = rig.publisher();
        rig.say(publisher.0, &publisher.1, [frame_of(0, 0, true), frame_of(1, 0, true)]);
        let (sink, actor) = rig.sink(usize::MAX);
        rig.flush();
        assert_eq!(actor.replies(), ["0 of 0", "no more for now"]);
        rig.say(sink, &actor, [Event::Subscription(Handle::ONLY, SubscriptionEvent::Select(other))]);
        let first = before.then(|| frame_of(0, 33, false));
        let frames =
            [frame_of(1, 34, false), frame_of(1, 66, true), frame_of(0, 67, false), frame_of(1, 99, false)];
        rig.say(publisher.0, &publisher.1, first.into_iter().chain(frames));
        rig.flush();
        assert_eq!(actor.replies(), [expected, &["no more for now"]].concat());
    }
}

#[test]
fn a_sink_that_panics_at_a_write_is_closed_before_the_next_turn() {
    let mut rig = Rig::new();
    let publisher = rig.publisher();
    let (sink, actor) = rig.sink(usize::MAX);
    actor.script().panics_in = "handle_unit";
    rig.say(publisher.0, &publisher.1, [frame_of(0, 0, true)]);
    rig.outputs();
    rig.flush();
    let closed = |output: &Output| matches!(output, Output::Close { conn, abort: true } if *conn == sink);
    assert!(rig.outputs().iter().any(closed));
    assert_eq!((rig.worker.turn.meter.stats.panics, rig.worker.connections()), (1, 1));
}

#[test]
fn a_session_that_takes_units_whole_is_offered_its_own_bytes_alone() {
    let mut rig = Rig::new();
    let (sink, actor) = rig.connect();
    // While the session has no room for units, they stay in the ring.
    actor.script().room = Some(0);
    rig.say(sink, &actor, []);
    rig.play_fragile(sink, Handle::ONLY, ("one", -1));
    let publisher = rig.publisher();
    rig.queue(sink, "hello");
    rig.frames(&publisher, [0, 33]);
    actor.replies();
    assert_eq!(rig.write(5).as_deref(), Some("hello"));
    rig.worker.finish_turn();
    rig.flush();
    assert_eq!(actor.replies(), ["sent 5"]);
    actor.script().room = Some(1);
    rig.say(sink, &actor, []);
    rig.flush();
    assert_eq!(actor.replies(), ["0 of 0", "no more for now"]);
}
