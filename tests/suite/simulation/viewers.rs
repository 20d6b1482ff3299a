//! Checks of the units that viewers receive.

use std::time::{Duration, Instant};

use netsim::{Seen, ms};

use super::random::{LAG, Run};
use super::streams::Expect;
use crate::support::world::{Got, Id, Over, World};

/// Delay of SRT: twice its latency, and one frame, because the receiver waits for a frame's end.
const SRT_DELAY: Duration = ms(700);

/// Maximum number of successive pictures with an earlier presentation time than a picture that was sent before
/// them.
const LEFT_OUT_MAX: usize = 3;

/// A viewer, and what has been checked of it so far.
#[derive(Debug)]
pub(super) struct Viewer {
    pub(super) id: Id,
    pub(super) stream: usize,
    pub(super) over: Over,
    /// True if the viewer watches the copy in the other application.
    pub(super) is_copy: bool,
    pub(super) is_slow: bool,
    /// Expected state of the stream when the viewer joined.
    expect: Expect,
    checked: usize,
    /// Publisher and number of the last unit of video and of audio.
    last: [Option<(usize, u64)>; 2],
    first_at: Option<Instant>,
    pub(super) is_done: bool,
}

impl Viewer {
    pub(super) const fn new(
        id: Id,
        stream: usize,
        over: Over,
        is_copy: bool,
        is_slow: bool,
        expect: Expect,
    ) -> Self {
        let (last, first_at) = ([None, None], None);
        Self { id, stream, over, is_copy, is_slow, expect, checked: 0, last, first_at, is_done: false }
    }

    /// Notes that the server was replaced. A viewer over datagrams does not notice that, so it is no longer
    /// judged.
    pub(super) fn crashed(&mut self) {
        self.is_done |= self.over.is_datagrams();
    }

    pub(super) fn is_here(&self, world: &World) -> bool {
        let story = world.story(self.id);
        story.left.is_none() && story.closed.is_none()
    }
}

/// Returns the stream, the publisher and the number of a unit, which the publisher wrote into the unit as one counter.
fn origin(seen: &Seen) -> (usize, usize, u64) {
    let stream = usize::try_from(seen.counter >> 48).unwrap();
    let publisher = usize::try_from(seen.counter >> 32 & 0xffff).unwrap();
    (stream, publisher, seen.counter & 0xffff_ffff)
}

impl Run {
    pub(super) fn observe_viewers(&mut self) {
        for index in 0..self.viewers.len() {
            if self.viewers[index].is_done {
                continue;
            }
            let new = self.world.got(self.viewers[index].id)[self.viewers[index].checked..].to_vec();
            self.viewers[index].checked += new.len();
            for got in new {
                self.check_unit(index, &got);
            }
            self.check_presence(index);
        }
    }

    fn check_unit(&mut self, index: usize, got: &Got) {
        let viewer = &self.viewers[index];
        let seen = match got.seen {
            Ok(seen) => seen,
            // The server itself may send silence to the targets of pushes.
            Err(_) if viewer.is_copy && !got.is_video => return,
            Err(error) => {
                let what = if got.is_video { "video" } else { "audio" };
                let text = format!("was sent {what} of {} bytes: {error}", got.bytes);
                self.fail(&format!("viewer {index} over {:?} {text}", viewer.over));
            }
        };
        let (stream, publisher, number) = origin(&seen);
        if stream != viewer.stream {
            self.fail(&format!("viewer {index} was sent a unit of another stream"));
        }
        if !got.has_config {
            self.fail(&format!("viewer {index} was sent a unit before its parameters"));
        }
        let of = &self.streams[stream].publishers[publisher - 1];
        let place = usize::try_from(number).unwrap();
        let sent = if seen.is_video {
            of.video.get(place).copied()
        } else {
            of.audio.get(place).map(|at| (*at, true))
        };
        let Some((sent_at, key)) = sent.filter(|(_, key)| *key == seen.key_frame) else {
            self.fail(&format!("viewer {index} was sent unit {number}, which nobody has sent so"));
        };
        let last = viewer.last[usize::from(!seen.is_video)];
        // A push that starts again may repeat units, from a key frame on that it has sent before.
        let is_again = viewer.is_copy && (key || !seen.is_video);
        if last.is_some_and(|last| last >= (publisher, number)) && !is_again {
            self.fail(&format!("viewer {index} was sent {number} of publisher {publisher} behind {last:?}"));
        }
        let follows = last.is_some_and(|(of, before)| of == publisher && before + 1 == number);
        // WebRTC viewers do not get pictures with an earlier presentation time than one that was sent. With lost
        // datagrams, a viewer may also not know how many pictures were lost after the first.
        let is_first = last.is_none() && self.chaos.datagrams_lost > 0.0;
        let leaves_out = viewer.over == Over::WebRtc && (of.reorders || is_first);
        if seen.is_video && !follows && !key && !leaves_out {
            self.fail(&format!("viewer {index} was sent {number} behind {last:?}, which is no key frame"));
        }
        let is_lossy = viewer.is_slow || viewer.is_copy || leaves_out;
        if !follows && last.is_some_and(|(of, _)| of == publisher) && !is_lossy {
            self.fail(&format!("viewer {index} lost what is between {last:?} and {number}"));
        }
        let late = got.at.saturating_duration_since(sent_at);
        // A push or pull that starts again after a failure sends old units again. A slow viewer of a publisher
        // that sends nothing more has nothing newer to jump to.
        let is_fresh = !viewer.is_copy
            && viewer.first_at.is_some_and(|first| sent_at >= first)
            && !(viewer.is_slow && of.is_over);
        if is_fresh && late > self.patience(index) {
            let what = if seen.is_video { "video" } else { "audio" };
            let text = format!("{what} {number} of publisher {publisher} over {:?} {late:?} late", of.over);
            self.fail(&format!("viewer {index} over {:?} was sent {text}", viewer.over));
        }
        let viewer = &mut self.viewers[index];
        viewer.last[usize::from(!seen.is_video)] = Some((publisher, number));
        viewer.first_at.get_or_insert(got.at);
    }

    /// Returns the maximum delay of a unit for a viewer.
    fn patience(&self, index: usize) -> Duration {
        let viewer = &self.viewers[index];
        let srt = if viewer.over == Over::Srt { SRT_DELAY } else { Duration::ZERO };
        // A slow viewer may also be late by as much as its connection buffers.
        let slow = if viewer.is_slow { LAG + ms(10_000) } else { Duration::ZERO };
        // The first `SRT_DELAY` is for the publisher's protocol.
        self.slack + SRT_DELAY + srt + slow
    }

    /// Checks that a viewer is connected exactly if its stream is live.
    fn check_presence(&mut self, index: usize) {
        let (now, slack) = (self.world.instant(), self.slack);
        let viewer = &self.viewers[index];
        let story = self.world.story(viewer.id).clone();
        let of = &self.streams[viewer.stream];
        if story.left.is_some() || story.closed.is_some() || story.rejected.is_some() {
            let at = story.closed.unwrap_or(now);
            let is_cut = story.ready.is_some() && story.left.is_none() && !viewer.is_copy;
            // A slow viewer is sent the units that it has missed before the goodbye, which takes some seconds.
            let slack = if viewer.is_slow { slack + ms(8000) } else { slack };
            if is_cut && !of.had_reason(at, slack) {
                let times = [Some(story.asked), story.ready, Some(at)].map(|at| at.map(|at| self.ago(at)));
                let text = format!("viewer {index} over {:?} was closed without a reason", viewer.over);
                self.fail(&format!("{text}; it asked, was let in, and was closed {times:?} ago"));
            }
            // A viewer of a live stream should not have been refused.
            let is_refused = story.rejected.is_some() && story.left.is_none();
            if is_refused
                && matches!(viewer.expect, Expect::Live(_) | Expect::Grace)
                && !of.had_reason(at, slack)
                && of.is_undisturbed_since(story.asked)
            {
                self.fail(&format!("viewer {index} was refused: {:?}", story.rejected));
            }
            self.viewers[index].is_done = true;
            return;
        }
        if viewer.is_copy {
            return;
        }
        let expect = of.expect(now, slack);
        let waited = now.saturating_duration_since(story.asked);
        // The server cannot say goodbye to a viewer that is still connecting.
        let is_known = story.ready.is_some() || viewer.over != Over::WebRtc;
        if expect == Expect::Idle && waited > slack * 2 && !viewer.is_slow && is_known {
            self.fail(&format!("viewer {index} over {:?} was not told that its stream is over", viewer.over));
        }
        if let Expect::Live(publisher) = expect
            && !viewer.is_slow
            && of.calm(now) > slack * 2
            && waited > slack * 2 + SRT_DELAY + self.connecting(viewer.over)
        {
            self.check_is_up_to_date(index, publisher);
        }
    }

    fn check_is_up_to_date(&self, index: usize, publisher: usize) {
        let now = self.world.instant();
        let viewer = &self.viewers[index];
        let story = self.world.story(viewer.id);
        if story.ready.is_none() {
            // If the stream ended while the viewer was connecting, the viewer need not have been disconnected.
            let of = &self.streams[viewer.stream];
            if viewer.over == Over::WebRtc && of.may_have_ended_since(story.asked) {
                return;
            }
            self.fail(&format!("viewer {index} waits for the consent"));
        }
        let due = now - self.patience(index);
        let of = &self.streams[viewer.stream].publishers[publisher];
        let Some(newest) = of.video.iter().rposition(|(at, _)| *at <= due) else { return };
        let has = viewer.last[0].filter(|(of, _)| *of == publisher + 1).map(|(_, number)| number);
        let leaves_out = viewer.over == Over::WebRtc && of.reorders;
        let newest = newest.saturating_sub(if leaves_out { LEFT_OUT_MAX } else { 0 });
        if has.is_none_or(|has| has < newest as u64) {
            let (over, got) = (viewer.over, self.world.got(viewer.id).len());
            let text = format!("viewer {index} over {over:?} has {has:?} of {got} and should have {newest}");
            self.fail(&format!("{text} of publisher {} over {:?}", publisher + 1, of.over));
        }
    }
}
