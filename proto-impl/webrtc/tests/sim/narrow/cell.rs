//! Runs a source over a path, and measures the result.

use std::time::Duration;

use netsim::{Link, Pair, ms, secs};
use sdp::Direction;

use crate::harness::{End, Manner, Studio, both_connected, session};

/// Rate of the source in bits per second, including headers.
pub(crate) const STREAM: u64 = 2_600_000;
/// Time between two samples.
const STEP: Duration = ms(100);
/// Number of samples per second.
const SECOND: usize = 10;

/// A path and its sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    /// Rate of the path in thousandths of the rate of the stream.
    pub(crate) rate: u64,
    /// Queue of the path in KB.
    pub(crate) queue: usize,
    /// Loss in each direction in thousandths.
    pub(crate) loss: u64,
    pub(crate) round_trip: u64,
    pub(crate) jitter: u64,
    /// Reduction of the capacity at 12 s: to this rate in thousandths of the stream's, for this many
    /// milliseconds.
    pub(crate) cut: Option<(u64, u64)>,
    pub(crate) manner: Manner,
}

impl Cell {
    pub(crate) const fn new(rate: u64, queue: usize) -> Self {
        let manner = Manner::LeavesOutAny;
        Self { rate, queue, loss: 0, round_trip: 50, jitter: 0, cut: None, manner }
    }

    pub(crate) const fn bits(&self) -> u64 {
        STREAM / 1000 * self.rate
    }
}

/// A sample of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) at: Duration,
    /// Capacity of the path in bits per second.
    pub(crate) carries: u64,
    /// Bytes that reached the bottleneck since the previous sample.
    pub(crate) offered: u64,
    /// Bytes dropped at the bottleneck since the previous sample.
    pub(crate) overflowed: u64,
    /// Delay of the queue.
    pub(crate) backlog: Duration,
    pub(crate) estimate: u64,
    pub(crate) target: u64,
    pub(crate) queued: Duration,
    pub(crate) is_congested: bool,
}

pub(crate) struct Run {
    pub(crate) cell: Cell,
    pub(crate) looks: Vec<Look>,
    pub(crate) pair: Pair<End, End>,
}

const CUT_AT: Duration = secs(12);

fn change(link: &mut Link, with: impl FnOnce(Link) -> Link) {
    let old = std::mem::replace(link, Link::new(&crypto::Seed::from_number(1)));
    *link = with(old);
}

/// Runs a cell: a viewer joins over a path without limits; then the path gets the cell's limits, and the media
/// begins.
pub(crate) fn run(cell: Cell, length: Duration, seed: u64) -> Run {
    let latency = ms(cell.round_trip / 2);
    let mut pair = session(seed, Direction::RecvOnly).links(|link| link.latency(latency));
    pair.run_until(secs(15), both_connected).unwrap();
    let start = pair.clock.now();
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let loss = cell.loss as f64 / 1000.0;
    pair = pair.links(|link| link.loss(loss).jitter(ms(cell.jitter)));
    change(&mut pair.b_to_a, |link| {
        let link = link.rate(cell.bits()).queue_bytes(cell.queue << 10);
        let cut = cell.cut.map(|(rate, took)| (start + CUT_AT, ms(took), STREAM / 1000 * rate));
        match cut {
            Some((from, took, bits)) => link.rate_between(from, from + took, bits),
            None => link,
        }
    });
    pair.b.studio = Some(Studio::of_rendition(start, length, seed, cell.manner));
    let mut run = Run { cell, looks: Vec::new(), pair };
    while run.pair.clock.now() < start + length {
        let before = run.pair.b_to_a.bottleneck_bytes();
        run.pair.run_for(STEP).unwrap();
        let (now, after) = (run.pair.clock.now(), run.pair.b_to_a.bottleneck_bytes());
        let carries = run.carries(now - start);
        let peer = &run.pair.b.peer;
        run.looks.push(Look {
            at: now - start,
            carries,
            offered: after.offered - before.offered,
            overflowed: after.overflowed - before.overflowed,
            backlog: run.pair.b_to_a.backlog(now),
            estimate: peer.estimate(now).unwrap_or(0),
            target: peer.video_budget(now).unwrap_or(0),
            queued: peer.queued(now).time,
            is_congested: peer.is_congested(now),
        });
    }
    run
}

impl Run {
    fn carries(&self, at: Duration) -> u64 {
        let is_cut = |(_, took): &(u64, u64)| at > CUT_AT && at <= CUT_AT + ms(*took);
        let cut = self.cell.cut.filter(is_cut).map(|(rate, _)| STREAM / 1000 * rate);
        let carries = self.cell.bits();
        cut.unwrap_or(carries)
    }

    /// Returns true if a time is at least three round trips and half a second after the last change: the first
    /// round trip reports the change, during the second the queue still fills, and the third shows the
    /// reaction. With jitter, or if loss must be distinguished from a full queue, it takes two seconds longer.
    fn is_settled(&self, at: Duration) -> bool {
        let tells = if self.cell.jitter > 50 || self.cell.loss > 20 { 2000 } else { 0 };
        let settles = ms(self.cell.round_trip * 3 + 500 + tells);
        let changes = [Some(Duration::ZERO), self.cell.cut.map(|_| CUT_AT)];
        let ends = self.cell.cut.map(|(_, took)| CUT_AT + ms(took));
        !changes.into_iter().flatten().chain(ends).any(|from| at >= from && at < from + settles)
    }

    /// Returns the load of the bottleneck, as bytes offered relative to its capacity in thousandths, for each
    /// settled second.
    pub(crate) fn load(&self) -> Vec<u64> {
        let windows = self.looks.windows(SECOND).filter(|window| {
            let from = window[0].at.saturating_sub(STEP);
            self.is_settled(from) && window.iter().all(|look| self.is_settled(look.at))
        });
        windows
            .map(|window| {
                let offered: u64 = window.iter().map(|look| look.offered * 8).sum();
                let carried: u64 = window.iter().map(|look| look.carries / 10).sum();
                offered * 1000 / carried.max(1)
            })
            .collect()
    }

    /// Iterates over the settled samples.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &Look> {
        self.looks.iter().filter(|look| self.is_settled(look.at))
    }

    /// Returns the estimates relative to the capacity of the path, in thousandths.
    pub(crate) fn estimates(&self) -> Vec<u64> {
        self.settled().map(|look| look.estimate * 1000 / look.carries).collect()
    }

    /// Returns the time from the end of the cut until the estimate reaches four fifths of the path's capacity
    /// or of the source's rate.
    pub(crate) fn recovers(&self) -> Option<Duration> {
        let (_, took) = self.cell.cut?;
        let end = CUT_AT + ms(took);
        let wanted = self.cell.bits().min(STREAM) / 5 * 4;
        let back = self.looks.iter().find(|look| look.at > end && look.estimate >= wanted)?;
        Some(back.at - end)
    }

    /// Returns how many units of a thousand arrived, for audio and for video.
    pub(crate) fn came(&self) -> [u64; 2] {
        let made = self.pair.b.studio.as_ref().unwrap().made;
        let came = [self.pair.a.verifier.audio().received, self.pair.a.verifier.video().received];
        [came[0] * 1000 / made[0].max(1), came[1] * 1000 / made[1].max(1)]
    }

    pub(crate) fn left_out(&self) -> u64 {
        let studio = self.pair.b.studio.as_ref().unwrap();
        studio.left_out * 1000 / (studio.left_out + studio.made[1]).max(1)
    }

    pub(crate) fn dropped(&self) -> u64 {
        let bytes = self.pair.b_to_a.bottleneck_bytes();
        bytes.overflowed * 1000 / bytes.offered.max(1)
    }

    /// Formats the result as a row of a table.
    pub(crate) fn line(&self) -> String {
        let (load, estimates) = (self.load(), self.estimates());
        let mean = |all: &[u64]| all.iter().sum::<u64>() / (all.len() as u64).max(1);
        let most = |all: &[u64]| all.iter().copied().max().unwrap_or(0);
        let backlog = self.settled().map(|look| look.backlog).max().unwrap_or_default();
        let mut sorted = estimates.clone();
        sorted.sort_unstable();
        let part = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or(0);
        let late = self.looks.len() / 2;
        let [audio, video] = self.came();
        let c = &self.cell;
        format!(
            "{:?} rate {:4} queue {:3} loss {:3} rtt {:4} jitter {:3} cut {:?} | load mean {:4} max {:4} | est {:4} {:4} {:4} | queue max {:5} end {:4} | drop {:3} | audio {:4} video {:4} left out {:3} resent {} recovers {:?}",
            c.manner,
            c.rate,
            c.queue,
            c.loss,
            c.round_trip,
            c.jitter,
            c.cut,
            mean(&load),
            most(&load),
            part(5),
            part(50),
            part(95),
            backlog.as_millis(),
            self.looks[late..].iter().map(|look| look.backlog.as_millis()).sum::<u128>() / late as u128,
            self.dropped(),
            audio,
            video,
            self.left_out(),
            self.pair.b.peer.stats().resent.iter().map(|(_, r)| r.resent).sum::<u64>(),
            self.recovers(),
        )
    }
}
