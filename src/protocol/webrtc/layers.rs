//! The choice of the rendition that a viewer is sent: the largest that its path carries, or the one that it asked for.
//!
//! A smaller rendition is chosen as soon as the path carries less than is sent; a larger one once the path is known to
//! carry it. The capacity beyond the current rate is unknown, so it is probed ([`::webrtc::Peer::probe`]), less often
//! after each failure. The hub switches at a key frame of the other rendition, and sends the old one until then.

use std::time::{Duration, Instant};

use ::webrtc::Peer;
use media::codec::Codec;
use media::{Track, TrackId, TrackKind, Tracks};

use crate::hub::Pick;

/// Interval of evaluations of the path.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Number of consecutive evaluations that must find the path too narrow.
const NARROW_LOOKS: u8 = 2;
/// Time without trouble before a larger rendition is tried, and its maximum after failures.
const CALM: Duration = Duration::from_secs(3);
const CALM_MAX: Duration = Duration::from_secs(48);
/// A switch to a larger rendition counts as a failure if a smaller one is needed within this time.
const TRIAL: Duration = Duration::from_secs(8);
/// Time without pictures after which a viewer is sent any rendition. The rendition chosen for the viewer may have left
/// the stream, and changes of the tracks are noticed only with media that is sent.
const STARVED_AFTER: Duration = Duration::from_secs(2);
/// Rate that a path must carry for a rendition, in eighths of the rendition's rate.
const MARGIN_EIGHTHS: u64 = 9;
/// Loss in thousandths that does not count as trouble.
const LOSS_CALM: u16 = 50;
/// Rate that a new viewer's path is assumed to carry, in bits per second.
const RATE_FIRST: u64 = 1_500_000;

/// The state of a viewer's path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathState {
    /// Estimated capacity in bits per second; the path may carry more than the rates tried so far.
    pub(super) estimate: Option<u64>,
    /// True if queues on the path are growing.
    pub(super) is_congested: bool,
    /// Loss in thousandths.
    pub(super) loss: u16,
}

impl PathState {
    /// Returns the path's state for one of several streams that share the path: the estimate is divided by `shares`.
    pub(super) fn of(peer: &Peer, now: Instant, shares: usize) -> Self {
        let shares = u64::try_from(shares).unwrap_or(1).max(1);
        let estimate = peer.estimate(now).map(|bits| bits / shares);
        Self { estimate, is_congested: peer.is_congested(now), loss: peer.loss() }
    }
}

/// The next step for a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Send another track: [`Layers::pick`].
    Switch,
    /// Probe the path at this rate in bits per second.
    Probe(u64),
}

/// A track to send, or a probe, as suggested by the state of the path.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Track(TrackId),
    Probe(u64),
}

/// A rendition that a viewer asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forced {
    /// The largest that is not higher, or else the lowest one.
    Height(u32),
    /// The largest that is neither wider nor higher, or else the smallest one.
    Size(u32, u32),
    /// The video track with this number.
    Track(u8),
    /// The rendition with this number, counted from the smallest; or else the largest.
    Layer(u8),
}

/// The choice among renditions for one viewer.
#[derive(Debug)]
pub(super) struct Layers {
    codec: Codec,
    group: u8,
    wanted: TrackId,
    /// The rendition that the viewer asked for.
    forced: Option<Forced>,
    look_at: Instant,
    narrow: u8,
    /// Time since which the path has been without trouble; and the time that must pass without trouble before a larger
    /// rendition is tried.
    calm_since: Instant,
    calm: Duration,
    /// Time of the last switch to a larger rendition, while that switch may still prove a failure.
    trial: Option<Instant>,
    /// Time at which pictures were last sent; and true if that is too long ago.
    fed: Instant,
    starves: bool,
}

/// Returns the renditions of a group that a viewer can decode, smallest first.
fn renditions(tracks: &Tracks, codec: Codec, group: u8) -> Vec<&Track> {
    let is_one = |track: &&Track| {
        track.config.codec() == codec && track.rendition.as_ref().is_some_and(|one| one.group == group)
    };
    let mut all: Vec<&Track> = tracks.of_kind(TrackKind::Video).filter(is_one).collect();
    all.sort_by_key(|track| track.rendition.as_ref().map(media::Rendition::size));
    all
}

fn rate_of(track: &Track) -> u64 {
    track.rendition.as_ref().map_or(0, |rendition| rendition.bit_rate.into())
}

fn width_of(track: &Track) -> u32 {
    track.rendition.as_ref().map_or(0, |rendition| rendition.width)
}

fn height_of(track: &Track) -> u32 {
    track.rendition.as_ref().map_or(0, |rendition| rendition.height)
}

impl Layers {
    /// Creates the state for choosing among the renditions of a track's picture; `None` if the track is not a
    /// rendition.
    pub(super) fn of(now: Instant, tracks: &Tracks, track: TrackId) -> Option<Self> {
        let first = tracks.get(track)?;
        let group = first.rendition.as_ref().map_or(0, |rendition| rendition.group);
        (group != 0).then(|| Self {
            codec: first.config.codec(),
            group,
            wanted: track,
            forced: None,
            look_at: now,
            narrow: 0,
            calm_since: now,
            calm: CALM,
            trial: None,
            fed: now,
            starves: false,
        })
    }

    /// Chooses the rendition that a viewer begins with, when its path is not known yet.
    pub(super) fn first(&mut self, tracks: &Tracks) -> TrackId {
        let all = renditions(tracks, self.codec, self.group);
        let fits = all.iter().rev().find(|track| rate_of(track) <= RATE_FIRST);
        if let Some(track) = fits.or_else(|| all.first()) {
            self.wanted = track.id;
        }
        self.wanted
    }

    /// Sets the rendition that the viewer asked for; `None` to choose by the path.
    pub(super) const fn force(&mut self, forced: Option<Forced>) {
        self.forced = forced;
    }

    /// Returns the renditions, smallest first.
    pub(super) fn all<'t>(&self, tracks: &'t Tracks) -> Vec<&'t Track> {
        renditions(tracks, self.codec, self.group)
    }

    /// Returns the tracks to send.
    pub(super) const fn pick(&self) -> Pick {
        if self.starves { Pick::Default } else { Pick::Only(self.wanted) }
    }

    /// Records that the viewer was sent pictures.
    pub(super) const fn feed(&mut self, now: Instant) {
        self.fed = now;
    }

    /// The codec of all renditions.
    pub(super) const fn codec(&self) -> Codec {
        self.codec
    }

    /// True if a track is one of the renditions.
    pub(super) fn has(&self, tracks: &Tracks, track: TrackId) -> bool {
        renditions(tracks, self.codec, self.group).iter().any(|one| one.id == track)
    }

    /// Returns the time of the next evaluation.
    pub(super) const fn poll_timeout(&self) -> Instant {
        self.look_at
    }

    /// Evaluates the path and the available renditions.
    pub(super) fn look(&mut self, now: Instant, tracks: &Tracks, path: PathState) -> Option<Step> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now.checked_add(LOOK_INTERVAL)?;
        let starves = now.saturating_duration_since(self.fed) >= STARVED_AFTER;
        if std::mem::replace(&mut self.starves, starves) != starves {
            return Some(Step::Switch);
        }
        let all = renditions(tracks, self.codec, self.group);
        let wanted = match (self.forced, all.iter().position(|track| track.id == self.wanted)) {
            (Some(wish), _) => forced(&all, wish)?.id,
            // The publisher no longer sends the chosen rendition: take the smallest, then whatever the path
            // carries.
            (None, None) => all.first()?.id,
            (None, Some(at)) => match self.choose(now, &all, at, path)? {
                Choice::Track(track) => track,
                Choice::Probe(bits) => return Some(Step::Probe(bits)),
            },
        };
        (std::mem::replace(&mut self.wanted, wanted) != wanted).then_some(Step::Switch)
    }

    fn choose(&mut self, now: Instant, all: &[&Track], at: usize, path: PathState) -> Option<Choice> {
        let rate = rate_of(all.get(at)?);
        let is_wrong = path.is_congested || path.loss > LOSS_CALM;
        let is_narrow = path.estimate.is_some_and(|estimate| estimate < rate);
        self.narrow = if is_narrow { self.narrow.saturating_add(1) } else { 0 };
        if is_wrong || is_narrow {
            self.calm_since = now;
        }
        if self.narrow >= NARROW_LOOKS && at > 0 {
            self.narrow = 0;
            if self.trial.take().is_some_and(|at| now.saturating_duration_since(at) < TRIAL) {
                self.calm = self.calm.saturating_mul(2).min(CALM_MAX);
            }
            let estimate = path.estimate.unwrap_or(0);
            let smaller = all.get(..at)?;
            let fits = smaller.iter().rev().find(|track| needed(track) <= estimate);
            return fits.or_else(|| smaller.first()).map(|track| Choice::Track(track.id));
        }
        if self.trial.is_some_and(|at| now.saturating_duration_since(at) >= TRIAL) {
            (self.trial, self.calm) = (None, CALM);
        }
        let larger = all.get(at.saturating_add(1))?;
        let (calm, estimate) = (now.saturating_duration_since(self.calm_since), path.estimate?);
        if calm >= CALM / 2 && estimate >= needed(larger) {
            (self.trial, self.calm_since) = (Some(now), now);
            return Some(Choice::Track(larger.id));
        }
        if calm < self.calm {
            return None;
        }
        // A probe counts as a failure until the path turns out to carry the larger rendition.
        self.calm_since = now.checked_sub(CALM / 2).unwrap_or(now);
        self.calm = self.calm.saturating_mul(2).min(CALM_MAX);
        Some(Choice::Probe(needed(larger).saturating_mul(MARGIN_EIGHTHS) / 8))
    }
}

/// Returns the rate that a path must carry for a rendition, in bits per second.
fn needed(track: &Track) -> u64 {
    rate_of(track).saturating_mul(MARGIN_EIGHTHS) / 8
}

/// Returns the rendition that a viewer asked for; `None` if there is none.
fn forced<'t>(all: &[&'t Track], wish: Forced) -> Option<&'t Track> {
    let largest = |fits: &dyn Fn(&Track) -> bool| all.iter().rev().find(|track| fits(track));
    let found = match wish {
        Forced::Height(height) => largest(&|track| height_of(track) <= height).or_else(|| all.first()),
        Forced::Size(width, height) => {
            let is_within = |track: &Track| width_of(track) <= width && height_of(track) <= height;
            largest(&is_within).or_else(|| all.first())
        }
        Forced::Track(number) => {
            let id = TrackId::nth(TrackKind::Video, number);
            all.iter().find(|track| Some(track.id) == id).or_else(|| all.last())
        }
        Forced::Layer(number) => all.get(usize::from(number)).or_else(|| all.last()),
    };
    found.copied()
}

#[cfg(test)]
mod tests {
    use media::codec::{CodecConfig, vp8};
    use media::{Rendition, Timescale};

    use super::*;

    fn id(n: u8) -> TrackId {
        TrackId::nth(TrackKind::Video, n).unwrap()
    }

    /// 360 lines at 500 kb/s, 720 at 1.4 Mb/s, 1080 at 3 Mb/s; the largest first, as web pages offer them.
    fn tracks() -> Tracks {
        let track = |(n, height, bit_rate): (u8, u32, u32)| Track {
            rendition: Some(Rendition { group: 1, width: height * 16 / 9, height, bit_rate }),
            ..Track::new(id(n), CodecConfig::Vp8(vp8::Config::default()), Timescale::MILLISECONDS)
        };
        let all = [(0, 1080, 3_000_000), (1, 720, 1_400_000), (2, 360, 500_000)];
        Tracks::new(1, all.map(track))
    }

    struct Bench {
        now: Instant,
        start: Instant,
        tracks: Tracks,
        layers: Layers,
        /// Times of the probes, in milliseconds.
        probes: Vec<u128>,
    }

    impl Bench {
        fn new() -> Self {
            let (start, tracks) = (Instant::now(), tracks());
            let layers = Layers::of(start, &tracks, id(0)).unwrap();
            Self { now: start, start, tracks, layers, probes: Vec::new() }
        }

        /// Evaluates for this many seconds. Returns the switches, with their times in milliseconds.
        fn run(&mut self, seconds: u64, path: impl Fn(TrackId) -> PathState) -> Vec<(u128, TrackId)> {
            let mut switches = Vec::new();
            for _ in 0..seconds * 100 {
                self.now += Duration::from_millis(10);
                let ms = (self.now - self.start).as_millis();
                self.layers.feed(self.now);
                match self.layers.look(self.now, &self.tracks, path(self.layers.wanted)) {
                    Some(Step::Switch) => switches.push((ms, self.layers.wanted)),
                    Some(Step::Probe(_)) => self.probes.push(ms),
                    None => {}
                }
            }
            switches
        }
    }

    fn carries(estimate: u64) -> PathState {
        PathState { estimate: Some(estimate), ..PathState::default() }
    }

    #[test]
    fn a_viewer_begins_with_what_most_paths_carry_and_goes_up_when_its_own_does() {
        let mut bench = Bench::new();
        assert_eq!(bench.layers.first(&bench.tracks), id(1));
        let switches = bench.run(10, |_| carries(5_000_000));
        assert_eq!(switches.iter().map(|(_, track)| *track).collect::<Vec<_>>(), [id(0)]);
        assert!(bench.probes.is_empty());
    }

    #[test]
    fn a_path_that_narrows_is_answered_within_a_second_and_not_tried_again_and_again() {
        let mut bench = Bench::new();
        assert_eq!(bench.run(5, |_| carries(4_000_000)), []);
        let switches = bench.run(60, |_| PathState { is_congested: true, ..carries(700_000) });
        assert_eq!(switches.len(), 1);
        assert!(switches[0].0 < 6_000 && switches[0].1 == id(2), "{switches:?}");
        assert_eq!(bench.probes, [], "while queues grow");
        // The queues no longer grow, but the path carries no more than before.
        let before = bench.now - bench.start;
        assert_eq!(bench.run(100, |_| carries(700_000)), []);
        let gaps: Vec<u128> = bench.probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(bench.probes[0] - before.as_millis() >= 2_700, "{:?}", bench.probes);
        assert!(gaps.windows(2).all(|pair| pair[1] >= pair[0]) && gaps.len() < 6, "{gaps:?}");
        // In the end, the path carries more.
        let switches = bench.run(20, |_| carries(10_000_000));
        assert_eq!(switches.iter().map(|(_, track)| *track).collect::<Vec<_>>(), [id(1), id(0)]);
    }

    /// The path fails after each switch to a larger rendition, so that each further switch is made later.
    #[test]
    fn a_path_that_lies_is_believed_less_and_less() {
        let mut bench = Bench::new();
        bench.layers.first(&bench.tracks);
        let lies = |wanted| if wanted == id(0) { carries(1_600_000) } else { carries(1_570_000 + 2_000_000) };
        let switches = bench.run(60, lies);
        assert!(switches.len() < 60, "{}", switches.len());
        assert!(switches.iter().all(|(_, track)| *track != id(2)));
    }

    #[test]
    fn a_forced_height_is_kept_whatever_the_path_and_auto_takes_it_back() {
        let mut bench = Bench::new();
        bench.layers.force(Some(Forced::Height(400)));
        let switches = bench.run(5, |_| carries(9_000_000));
        assert_eq!(switches.iter().map(|(_, track)| *track).collect::<Vec<_>>(), [id(2)]);
        bench.layers.force(Some(Forced::Height(1080)));
        let switches = bench.run(5, |_| carries(90_000));
        assert_eq!(switches.iter().map(|(_, track)| *track).collect::<Vec<_>>(), [id(0)]);
        bench.layers.force(Some(Forced::Height(100)));
        assert_eq!(bench.run(1, |_| carries(9_000_000))[0].1, id(2), "none is so low");
        bench.layers.force(None);
        assert_eq!(bench.run(10, |_| carries(9_000_000)).last().unwrap().1, id(0));
    }

    #[test]
    fn a_forced_track_layer_or_size_is_kept_and_the_nearest_stands_in() {
        for (wish, wanted) in [
            (Forced::Track(2), id(2)),
            (Forced::Track(9), id(0)),
            (Forced::Layer(0), id(2)),
            (Forced::Layer(1), id(1)),
            (Forced::Layer(7), id(0)),
            (Forced::Size(1280, 4000), id(1)),
            (Forced::Size(1279, 720), id(2)),
            (Forced::Size(1, 1), id(2)),
        ] {
            let mut bench = Bench::new();
            bench.layers.force(Some(wish));
            bench.run(1, |_| carries(900_000_000));
            assert_eq!(bench.layers.wanted, wanted, "{wish:?}");
        }
    }

    /// A viewer that is sent nothing does not learn that its rendition has left the stream.
    #[test]
    fn a_viewer_that_starves_takes_what_there_is() {
        let mut bench = Bench::new();
        assert_eq!(bench.layers.pick(), Pick::Only(id(0)));
        let mut picks = Vec::new();
        for ms in (0..6000).step_by(100) {
            let now = bench.start + Duration::from_millis(ms);
            // The viewer receives media from the third second on.
            if ms >= 3000 {
                bench.layers.feed(now);
            }
            if bench.layers.look(now, &bench.tracks, carries(9_000_000)) == Some(Step::Switch) {
                picks.push((ms, bench.layers.pick()));
            }
        }
        assert_eq!(picks, [(2000, Pick::Default), (3000, Pick::Only(id(0)))]);
    }

    #[test]
    fn a_rendition_that_goes_is_left_and_another_stream_has_none() {
        let mut bench = Bench::new();
        bench.tracks.retain(|track| track.id != id(0));
        assert_eq!(bench.run(1, |_| carries(9_000_000))[0].1, id(2));
        let plain = Track::new(id(0), CodecConfig::Vp8(vp8::Config::default()), Timescale::MILLISECONDS);
        assert!(Layers::of(bench.now, &Tracks::new(1, [plain]), id(0)).is_none());
    }
}
