//! Expected states of streams after the operations so far, and their publishers.

use std::time::{Duration, Instant};

use netsim::secs;

use super::random::{GRACE, LAG, Run};
use super::records::Record;
use crate::support::world::{Id, Over, World};

/// Time after which a silent RTMP or RTSP publisher is lost; SRT takes less.
const SILENT_MAX: Duration = secs(12);
/// Time after which an RTMP or RTSP publisher that has sent nothing yet is lost.
const BEGINS_MAX: Duration = secs(22);

/// Time after which a WebRTC publisher without consent (RFC 7675 §5.1) is lost.
const CONSENT_MAX: Duration = secs(32);

/// Maximum bytes that a unit in a ring has besides its payload: the parameter sets.
const UNIT_BYTES: usize = 64;

/// Expected state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// Unknown, because the effects of an operation are still under way.
    Unsure,
    /// Live with the publisher of this index.
    Live(usize),
    /// Waits for a lost publisher to return.
    Grace,
    Idle,
}

/// A publisher, and what it has sent.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) id: Id,
    pub(super) over: Over,
    /// True if the presentation order of pictures differs from the order in which they are sent.
    pub(super) reorders: bool,
    /// True if the server must accept the publisher, false if it must refuse it; `None` if either is right.
    expected: Option<bool>,
    /// True if the run has ended the publisher.
    pub(super) is_over: bool,
    was_ready: bool,
    was_closed: bool,
    seen: usize,
    /// Send times of the video units by their numbers, and whether they are key frames.
    pub(super) video: Vec<(Instant, bool)>,
    pub(super) audio: Vec<Instant>,
    /// Send times and bytes of all units.
    sizes: Vec<(Instant, usize)>,
}

impl Publisher {
    pub(super) fn new(id: Id, over: Over, expected: Option<bool>, reorders: bool) -> Self {
        let (video, audio) = (Vec::new(), Vec::new());
        Self {
            id,
            over,
            reorders,
            expected,
            is_over: false,
            was_ready: false,
            was_closed: false,
            seen: 0,
            video,
            audio,
            sizes: Vec::new(),
        }
    }
}

/// The model of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: String,
    pub(super) publishers: Vec<Publisher>,
    /// Time of the last event that may affect the stream.
    disturbed: Instant,
    unsure_until: Instant,
    /// Intervals in which the stream may end, in no particular order.
    ends: Vec<(Instant, Instant)>,
    /// Time at which the last publisher was lost.
    lost: Option<Instant>,
    /// Time at which an operator, or the end of the server, ended the stream.
    stopped: Option<Instant>,
    pub(super) record: Record,
    /// Start of the pull by the other application, if there is one.
    pub(super) pull: Option<Instant>,
    /// True if the stream was pulled at any time.
    pub(super) was_pulled: bool,
    /// True if the stream was pushed to the other application, or pulled by it, at any time.
    pub(super) was_copied: bool,
    /// True if the pull may or may not still exist.
    pub(super) is_pull_lost: bool,
}

impl Stream {
    pub(super) fn new(now: Instant, index: u64) -> Self {
        Self {
            id: format!("s{index}"),
            publishers: Vec::new(),
            disturbed: now,
            unsure_until: now,
            ends: Vec::new(),
            lost: None,
            stopped: None,
            record: Record::default(),
            pull: None,
            was_pulled: false,
            was_copied: false,
            is_pull_lost: false,
        }
    }

    /// Returns the expected state of the stream at `now`.
    pub(super) fn expect(&self, now: Instant, slack: Duration) -> Expect {
        if now < self.disturbed + slack || now < self.unsure_until {
            return Expect::Unsure;
        }
        let is_live =
            |publisher: &Publisher| publisher.was_ready && !publisher.is_over && !publisher.was_closed;
        if let Some(index) = self.publishers.iter().position(is_live) {
            return Expect::Live(index);
        }
        match self.lost {
            // The server notices the loss somewhat later.
            Some(lost) if now < lost + GRACE => Expect::Grace,
            Some(lost) if now < lost + GRACE + slack => Expect::Unsure,
            Some(_) | None => Expect::Idle,
        }
    }

    /// Returns the maximum bytes that the rings may retain: those of the lag, of two GOPs, and of units under way.
    fn retained_max(&self) -> usize {
        let sizes = || self.publishers.iter().flat_map(|publisher| &publisher.sizes);
        let Some(last) = sizes().map(|(at, _)| *at).max() else { return 0 };
        let young = sizes().filter(|(at, _)| last.saturating_duration_since(*at) < LAG + secs(12));
        young.map(|(_, bytes)| bytes + UNIT_BYTES).sum()
    }

    /// Returns the time since the last event of the stream.
    pub(super) fn calm(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.disturbed.max(self.unsure_until))
    }

    /// True if the stream may have ended at or after `at`.
    pub(super) fn may_have_ended_since(&self, at: Instant) -> bool {
        self.ends.iter().any(|(_, to)| *to >= at)
    }

    /// True if nothing has happened to the stream since `at`.
    pub(super) fn is_undisturbed_since(&self, at: Instant) -> bool {
        self.disturbed <= at && self.unsure_until <= at
    }

    /// Notes an event of the stream. Whether other pending publishers are accepted becomes uncertain.
    pub(super) fn event(&mut self, at: Instant, number: Option<u64>) {
        self.disturbed = self.disturbed.max(at);
        for (index, publisher) in self.publishers.iter_mut().enumerate() {
            if number != Some(index as u64 + 1) && !publisher.was_ready {
                publisher.expected = None;
            }
        }
    }

    /// Notes that an operation may take effect until `at`.
    pub(super) fn is_unsure_until(&mut self, at: Instant) {
        self.unsure_until = self.unsure_until.max(at);
    }

    /// Notes an interval in which the stream has a reason to end.
    pub(super) fn may_end(&mut self, from: Instant, to: Instant) {
        self.ends.push((from, to));
    }

    /// True if the stream had a reason to end at `at`.
    pub(super) fn had_reason(&self, at: Instant, slack: Duration) -> bool {
        self.ends.iter().any(|(from, to)| *from <= at && at <= *to + slack)
    }

    /// Notes that a publisher has left or was cut off.
    pub(super) fn departs(&mut self, world: &World, id: Id, is_lost: bool, is_dark: bool, slack: Duration) {
        let now = world.instant();
        self.event(now, None);
        let Some(publisher) = self.publishers.iter_mut().find(|publisher| publisher.id == id) else { return };
        publisher.is_over = true;
        let is_young = world.story(id).ready.is_none_or(|ready| now < ready + slack);
        // A caller that is not connected yet cannot send a goodbye that the server hears.
        let is_dark = is_dark || (publisher.over.is_datagrams() && (is_lost || is_young));
        // An operator may have stopped the stream before its publisher departed.
        let is_stopped = self.stopped.is_some_and(|stopped| now <= stopped + slack);
        let is_live = publisher.was_ready && !publisher.was_closed;
        if is_dark {
            let silence = match publisher.over {
                Over::WebRtc => CONSENT_MAX,
                Over::Srt => SILENT_MAX,
                Over::Rtmp | Over::Rtsp | Over::RtspUdp | Over::Flv | Over::WsFlv if is_young => BEGINS_MAX,
                Over::Rtmp | Over::Rtsp | Over::RtspUdp | Over::Flv | Over::WsFlv => SILENT_MAX,
            };
            self.unsure_until = self.unsure_until.max(now + silence + GRACE + slack);
            self.may_end(now + GRACE, now + silence + GRACE);
            if is_young {
                self.record.may_have_begun();
                self.may_end(now, now + silence + GRACE);
            }
        } else if is_lost && is_live && !is_young && !is_stopped {
            self.lost = Some(now);
            self.may_end(now + GRACE, now + GRACE);
        } else if is_young || (is_lost && is_stopped) {
            // The model does not know whether the stream had begun.
            self.record.may_have_begun();
            self.may_end(now, now + GRACE + slack);
            self.unsure_until = self.unsure_until.max(now + GRACE + slack * 2);
        } else {
            self.lost = None;
            self.may_end(now, now);
        }
    }

    pub(super) fn crashed(&mut self, now: Instant, slack: Duration) {
        self.drained(now, slack);
        self.record.crashed();
        // The record of the pull may or may not exist, and no operator starts that pull again.
        if self.was_pulled {
            self.pull = Some(now);
            self.is_pull_lost = true;
        }
    }

    pub(super) fn drained(&mut self, now: Instant, slack: Duration) {
        self.event(now, None);
        self.may_end(now, now + slack);
        self.lost = None;
        self.unsure_until = now;
        self.publishers.iter_mut().for_each(|publisher| publisher.is_over = true);
    }

    /// Notes that an operator ended the stream between `asked` and `answered`.
    pub(super) fn stopped(&mut self, asked: Instant, answered: Instant) {
        self.event(answered, None);
        self.may_end(asked, answered);
        (self.lost, self.stopped) = (None, Some(answered));
        // A WebRTC publisher that was accepted may be stopped while it still connects, and cannot hear of it.
        let is_connecting = |one: &Publisher| one.over == Over::WebRtc && !one.was_ready && !one.was_closed;
        if self.publishers.iter().any(is_connecting) {
            self.record.may_have_begun();
        }
    }
}

impl Run {
    /// Checks that the workers retain no more of the streams than may still be needed.
    pub(super) fn observe_rings(&self) {
        let most = |stream: &Stream| {
            let lives = if stream.was_copied { 3 } else { 1 };
            // A pulled stream waits for its source without a deadline, and keeps what it has.
            if stream.was_pulled { usize::MAX } else { stream.retained_max() * lives }
        };
        let most = self.streams.iter().map(most).fold(0, usize::saturating_add);
        let most = most.saturating_add(self.world.damaged_bytes() * 2);
        for worker in self.world.workers() {
            let bytes = worker.retained_bytes();
            if bytes > most {
                self.fail(&format!("{bytes} bytes are retained, and {most} may be needed"));
            }
        }
    }

    pub(super) fn observe_publishers(&mut self) {
        for stream in 0..self.streams.len() {
            for index in 0..self.streams[stream].publishers.len() {
                self.observe_publisher(stream, index);
            }
        }
    }

    fn observe_publisher(&mut self, stream: usize, index: usize) {
        let slack = self.slack;
        let of = &mut self.streams[stream];
        let publisher = &mut of.publishers[index];
        if publisher.was_closed {
            return;
        }
        for sent in &self.world.sent(publisher.id)[publisher.seen..] {
            if sent.seen.is_video {
                publisher.video.push((sent.at, sent.seen.key_frame));
            } else {
                publisher.audio.push(sent.at);
            }
            publisher.sizes.push((sent.at, sent.bytes));
            publisher.seen += 1;
        }
        let story = self.world.story(publisher.id).clone();
        let name = format!("publisher {} of {} over {:?}", index + 1, of.id, publisher.over);
        if let Some(ready) = story.ready.filter(|_| !publisher.was_ready) {
            publisher.was_ready = true;
            let (is_expected, is_over) = (publisher.expected, publisher.is_over);
            of.event(ready, Some(index as u64 + 1));
            of.began(ready, is_over);
            if is_expected == Some(false) {
                self.fail(&format!("{name} was let in beside another one"));
            }
            return;
        }
        if story.rejected.is_some() || story.closed.is_some() {
            let at = story.closed.unwrap_or_else(|| self.world.instant());
            publisher.was_closed = story.closed.is_some();
            let (expected, was_ready, is_over) =
                (publisher.expected.take(), publisher.was_ready, publisher.is_over);
            let over = publisher.over;
            if !was_ready && over == Over::WebRtc {
                // The server may or may not have accepted the publisher before it was connected.
                self.streams[stream].record.may_have_begun();
            }
            if expected == Some(true) && !was_ready && !is_over {
                self.fail(&format!("{name} was refused: {:?}", story.rejected));
            }
            if was_ready && !is_over {
                let of = &mut self.streams[stream];
                if !of.had_reason(at, slack) {
                    self.fail(&format!("{name} was closed without a reason"));
                }
                of.event(at, None);
            }
            return;
        }
        let waited = self.world.instant().saturating_duration_since(story.asked);
        let (over, is_over, expected) = (publisher.over, publisher.is_over, publisher.expected);
        let is_late = waited > slack + self.connecting(over) && story.ready.is_none() && !is_over;
        if let Some(expected) = expected.filter(|_| is_late) {
            self.fail(&format!("{name} was not answered; expected: {expected}"));
        }
    }
}

impl Stream {
    /// Notes that a publisher has begun, so that the stream no longer waits for a lost one.
    fn began(&mut self, at: Instant, is_over: bool) {
        if is_over {
            return;
        }
        self.ends.retain(|(from, _)| *from <= at);
        self.lost = None;
        self.record.began();
    }
}
