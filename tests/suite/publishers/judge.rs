//! Judges whether the viewers of a row received everything that they must.

use std::collections::BTreeSet;
use std::time::Instant;

use netsim::publisher::{self, Publisher};

use super::units::Unit;
use super::viewers::{Got, Log};
use super::{Gets, JOIN_MS, TIMED, Timed};
use crate::support::world::Over;

/// Maximum time from a viewer's start to its first media, in milliseconds.
const LATENESS_MS: i64 = 700;
/// Longest segment of a stream, in milliseconds.
const SEGMENT_MS: i64 = 2_000;

/// The outcome of a row's run: what was sent, and what each viewer received.
#[derive(Debug)]
pub struct Outcome {
    pub publisher: Publisher,
    pub sent: Vec<Unit>,
    pub views: Vec<View>,
    /// The record of the broadcast while the stream was live.
    pub broadcast: String,
    pub metrics: String,
}

/// A kind of viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A viewer that receives the stream while it is live.
    Live(Over),
    /// A player that reads the transport stream segments after the stream has ended.
    Hls,
    /// A player that reads the low-latency renditions after the stream has ended.
    LowLatency,
}

impl Kind {
    /// True if the viewer's units have timestamps.
    fn is_timed(self) -> bool {
        match self {
            Self::Live(over) => TIMED.contains(&over),
            Self::Hls | Self::LowLatency => true,
        }
    }
}

/// A viewer of a row's stream.
#[derive(Debug)]
pub struct View {
    pub kind: Kind,
    /// Time at which the publisher was accepted.
    pub began: Instant,
    /// Milliseconds from `began` until the viewer was accepted. Viewers that read segments get the stream from its
    /// first segment on.
    pub joined: i64,
    pub log: Log,
}

impl View {
    pub fn of_kind(&self, is_video: bool) -> impl Iterator<Item = &Got> {
        self.log.got.iter().filter(move |unit| unit.is_video == is_video)
    }
}

impl Outcome {
    /// Returns the first fault that it finds, as an error.
    pub fn judge(&self, over: Over, gets: &Gets) -> Result<(), String> {
        self.check_faults(over, gets)?;
        if !self.broadcast.contains(r#""status":"broadcasting""#) {
            return Err(format!("the stream is not live: {}", self.broadcast));
        }
        for view in &self.views {
            let wrong = |why: String| format!("{:?} viewer: {why}", view.kind);
            for is_video in [true, false] {
                let lost_max = if may_miss(over, view.kind, is_video, gets) {
                    usize::MAX
                } else {
                    gets.lost[usize::from(!is_video)]
                };
                self.check_units(view, is_video, lost_max).map_err(wrong)?;
            }
            if !view.kind.is_timed() {
                continue;
            }
            if let Some(most) = gets.exact {
                self.check_exact(view, most).map_err(wrong)?;
            }
            match gets.timed {
                Timed::Lips => self.publisher.judge(&self.times(view)).map_err(wrong)?,
                Timed::Pace => self.publisher.judge_pace(&self.times(view)).map_err(wrong)?,
                Timed::Not => {}
            }
        }
        gets.check.map_or(Ok(()), |check| check(self))
    }

    /// Checks that the units of a kind arrive in order, each once, and that at most `lost_max` are missing.
    fn check_units(&self, view: &View, is_video: bool, lost_max: usize) -> Result<(), String> {
        let kind = if is_video { "pictures" } else { "sounds" };
        let damaged = view.of_kind(is_video).filter(|unit| unit.seen.is_none()).count();
        let seen: Vec<u64> = view.of_kind(is_video).filter_map(|unit| Some(unit.seen?.counter)).collect();
        let falls = seen.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        let got: BTreeSet<u64> = seen.iter().copied().collect();
        // A WebRTC viewer begins with the newest audio units, because older ones would be played late.
        let is_old = |unit: &Unit| {
            view.kind == Kind::Live(Over::WebRtc)
                && !is_video
                && unit.at < JOIN_MS.cast_signed() + LATENESS_MS
        };
        // An audio rendition that begins late begins at a segment boundary of the other renditions.
        let first_sound = self.sent.iter().find(|unit| !unit.is_video).map_or(0, |unit| unit.at);
        let is_before_rendition = |unit: &Unit| {
            view.kind == Kind::LowLatency
                && !is_video
                && first_sound > SEGMENT_MS
                && unit.at < first_sound + SEGMENT_MS
        };
        let expected = self.expected(is_video, view.joined);
        let expected = expected.filter(|unit| !is_old(unit) && !is_before_rendition(unit));
        let sent: Vec<u64> = expected.map(|unit| unit.number).collect();
        let lost: Vec<u64> = sent.iter().filter(|number| !got.contains(number)).copied().collect();
        if (damaged, falls) != (0, 0) || lost.len() > lost_max {
            let shown = &lost[..lost.len().min(12)];
            return Err(format!(
                "{} of {} {kind}, {damaged} damaged, {falls} out of order, missing {} {shown:?}",
                seen.len(),
                sent.len(),
                lost.len(),
            ));
        }
        Ok(())
    }

    /// Returns the units that a viewer must get: all from the last key frame on that was sent before the viewer
    /// was accepted. Audio before the next picture may be missing, because a picture is complete only when the
    /// next one begins.
    fn expected(&self, is_video: bool, joined: i64) -> impl Iterator<Item = &Unit> {
        let joined = joined.max(JOIN_MS.cast_signed() + LATENESS_MS);
        let has_come = |unit: &Unit| unit.is_video && unit.key && unit.at <= joined;
        let key = self.sent.iter().rposition(has_come);
        // An audio-only stream is played from the time at which the viewer joined.
        let is_mute = self.sent.iter().all(|unit| !unit.is_video);
        let here = || self.sent.iter().position(|unit| is_mute && unit.at >= joined);
        let key = key.or_else(here).unwrap_or(0);
        let rest = &self.sent[key..];
        let next = rest.iter().skip(1).position(|unit| unit.is_video).map_or(0, |next| next + 2);
        let from = if is_video { 0 } else { next };
        rest[from..].iter().filter(move |unit| unit.is_video == is_video)
    }

    /// Checks that the timestamps of a publisher without faults are kept to within `most` milliseconds.
    fn check_exact(&self, view: &View, most: i64) -> Result<(), String> {
        let mut first = None;
        for got in &view.log.got {
            let Some(sent) = self.unit_of(got) else { continue };
            let lead = got.pts - sent.sampled - sent.cts;
            let off = lead - *first.get_or_insert(lead);
            if off.abs() > most {
                return Err(format!("{off} ms off at {} ms: {sent:?}", sent.sampled));
            }
        }
        Ok(())
    }

    /// Returns the sent unit that a viewer received.
    fn unit_of(&self, got: &Got) -> Option<&Unit> {
        let number = got.seen?.counter;
        self.sent.iter().find(|unit| unit.number == number && unit.is_video == got.is_video)
    }

    /// Returns the times of a viewer's units in the form that netsim's check of clocks requires.
    fn times(&self, view: &View) -> Vec<publisher::Unit> {
        let mut last = [i64::MIN; 2];
        let unit = |got: &Got| {
            let sent = self.unit_of(got)?;
            let mut out = got.dts;
            if view.kind == Kind::Live(Over::Rtsp) {
                // RTP carries presentation times, which may fall from one picture to the next.
                out = (out - sent.cts).max(last[sent.track()]);
                last[sent.track()] = out;
            }
            // Segments arrive when the player requests them, so their units are judged by their arrival at the
            // server.
            let arrives = match view.kind {
                Kind::Live(_) => {
                    i64::try_from(got.at.saturating_duration_since(view.began).as_millis()).unwrap()
                }
                Kind::Hls | Kind::LowLatency => sent.at,
            };
            Some(publisher::Unit {
                track: sent.track(),
                sampled: sent.sampled,
                arrives,
                raw: sent.raw,
                out,
                is_outlier: sent.is_outlier,
            })
        };
        view.log.got.iter().filter_map(unit).collect()
    }

    /// Returns the clock faults that the server counted.
    pub fn faults(&self) -> Vec<(String, u64)> {
        let counted = |line: &str| {
            let (_, rest) = line.strip_prefix("millstream_clock_faults_total{")?.split_once("fault=\"")?;
            let (name, count) = rest.split_once("\"} ")?;
            Some((name.to_owned(), count.trim().parse::<f64>().ok()? as u64))
        };
        self.metrics.lines().filter_map(counted).filter(|(_, count)| *count > 0).collect()
    }

    fn check_faults(&self, over: Over, gets: &Gets) -> Result<(), String> {
        if !self.metrics.contains("millstream_clock_faults") {
            return Err(format!("no figures: {}", &self.metrics[..self.metrics.len().min(200)]));
        }
        let faults = self.faults();
        let mut told: Vec<&str> = faults.iter().map(|(name, _)| name.as_str()).collect();
        let by_rtp = gets.told_by_rtp.filter(|_| over == Over::Rtsp);
        let mut right = by_rtp.unwrap_or(gets.told).to_vec();
        told.sort_unstable();
        right.sort_unstable();
        if told == right || right == ["*"] {
            Ok(())
        } else {
            Err(format!("clock faults are {faults:?}, not {right:?}"))
        }
    }
}

/// True if a viewer may miss all units of a kind.
fn may_miss(publisher: Over, viewer: Kind, is_video: bool, gets: &Gets) -> bool {
    // The simulation has no transcoder, so viewers whose protocol does not carry the publisher's audio codec get no
    // audio.
    let Kind::Live(viewer) = viewer else { return !is_video && publisher == Over::WebRtc };
    if is_video {
        return viewer == Over::WebRtc && gets.reorders;
    }
    let is_foreign = match publisher {
        Over::WebRtc => viewer == Over::Flv,
        _ => viewer == Over::WebRtc,
    };
    is_foreign || gets.soundless.contains(&viewer)
}
