//! Streams that an application does not accept because their resolution, frame rate or bit rate is too high
//! (`maxResolutionAccept`, `maxFpsAccept`, `maxBitrateAccept`). They are ended, and pulls of them are stopped. A room's
//! view is not measured: its figures are sums over participants, each of which is measured.

use super::Control;
use super::broadcast::status;
use crate::config::AcceptLimits;
use crate::mail::{SourceFigures, StreamEnd};
use crate::types::{Now, StreamId};

/// Media time over which rates are measured, in milliseconds: longer than a GOP, so that one large key frame does not
/// distort the rate.
const SPAN_MS: i64 = 5000;
/// Tolerance: a rate may exceed its limit by the limit divided by this number, because clocks and rounding are not
/// exact.
const SLACK: u64 = 20;

/// Figures at the start of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    media_ms: i64,
    bytes: u64,
    pictures: u64,
}

impl Measured {
    fn of(figures: &SourceFigures) -> Self {
        let media_ms = figures.position.dts_ms.saturating_sub(figures.clock.made_up_ms);
        Self { media_ms, bytes: figures.received_bytes, pictures: figures.pictures }
    }
}

/// Returns the reason to refuse a stream; `None` if the stream is accepted. `since` is the measurement in progress.
fn refusal(
    limits: AcceptLimits,
    since: &mut Option<Measured>,
    figures: &SourceFigures,
) -> Option<&'static str> {
    let (_, height) = figures.size;
    if limits.height.is_some_and(|most| height > most) {
        return Some("its pictures are higher than maxResolutionAccept");
    }
    let present = Measured::of(figures);
    let begun = *since.get_or_insert(present);
    let span = present.media_ms.saturating_sub(begun.media_ms);
    // The figures belong to another publisher, or the media clock was set back: begin a new measurement.
    if span < 0 || present.bytes < begun.bytes || present.pictures < begun.pictures {
        *since = Some(present);
        return None;
    }
    let span = u64::try_from(span).ok().filter(|_| span >= SPAN_MS)?;
    *since = Some(present);
    let is_over = |count: u64, most: Option<u32>| {
        let rate = count.saturating_mul(1000) / span;
        most.is_some_and(|most| rate > u64::from(most).saturating_add(u64::from(most) / SLACK))
    };
    if is_over(present.pictures - begun.pictures, limits.fps) {
        return Some("it has more pictures a second than maxFpsAccept");
    }
    let bits = (present.bytes - begun.bytes).saturating_mul(8);
    is_over(bits, limits.bitrate).then_some("its bit rate is higher than maxBitrateAccept")
}

impl Control {
    /// Ends a stream with a resolution, frame rate or bit rate above the limits of its application.
    pub(super) fn check_acceptance(&mut self, now: Now, stream: StreamId) {
        let Some(live) = self.registry.get_mut(&stream).filter(|live| !live.is_view()) else { return };
        let Some(figures) = &live.received.figures else { return };
        let Some(app) = self.cx.apps.get(&live.key.app) else { return };
        let limits = app.limits.accept;
        let Some(reason) = refusal(limits, &mut live.received.measured, figures) else { return };
        let key = live.key.clone();
        tracing::warn!(%key, reason, height = figures.size.1, "stream refused");
        let end = StreamEnd::Unaccepted(reason);
        if !self.outgoing(now).stop_source(&key, end) {
            self.registry.end(&mut self.cx, stream, end);
        }
        self.follow_ends(now);
        if let Some(record) = self.records.get_mut(&key) {
            status::FAILED.clone_into(&mut record.status);
            self.records.writes.mark_dirty(now, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::Position;

    fn figures(seconds: u32, height: u32, bytes: u64, pictures: u64) -> SourceFigures {
        SourceFigures {
            stream: StreamId(1),
            publisher: None,
            received_bytes: bytes,
            position: Position { dts_ms: i64::from(seconds) * 1000, started: true },
            epoch: 1,
            size: (0, height),
            codecs: Vec::new(),
            video_codec: None,
            audio_codec: None,
            pictures,
            dropped: 0,
            left_out: 0,
            clock: Default::default(),
            silent_ms: 0,
            reception: Default::default(),
        }
    }

    /// Returns the second at which a stream of this height, bit rate and frame rate is refused.
    fn refused(limits: AcceptLimits, height: u32, bits: u64, fps: u64) -> Option<u32> {
        let mut since = None;
        (0..60).find(|second| {
            let passed = u64::from(*second);
            let figures = figures(*second, height, bits / 8 * passed, fps * passed);
            refusal(limits, &mut since, &figures).is_some()
        })
    }

    #[test]
    fn limits_are_kept_with_a_little_slack() {
        let none = AcceptLimits::default();
        let height = AcceptLimits { height: Some(720), ..none };
        let fps = AcceptLimits { fps: Some(30), ..none };
        let bitrate = AcceptLimits { bitrate: Some(2_000_000), ..none };
        for (limits, of, at) in [
            (none, (4320, 90_000_000, 240), None),
            (height, (720, 1, 1), None),
            (height, (0, 1, 1), None),
            (height, (721, 1, 1), Some(0)),
            (fps, (1080, 9_000_000, 30), None),
            (fps, (1080, 9_000_000, 31), None),
            (fps, (1080, 9_000_000, 60), Some(5)),
            (bitrate, (1080, 2_000_000, 60), None),
            (bitrate, (1080, 2_090_000, 60), None),
            (bitrate, (1080, 2_400_000, 60), Some(5)),
        ] {
            assert_eq!(refused(limits, of.0, of.1, of.2), at, "{limits:?}: {of:?}");
        }
    }

    #[test]
    fn a_burst_between_two_groups_of_pictures_is_no_rate() {
        let limits = AcceptLimits { bitrate: Some(1_000_000), ..AcceptLimits::default() };
        let mut since = None;
        // All bytes of five seconds arrive in the first second, then none.
        for second in 0..5 {
            assert_eq!(refusal(limits, &mut since, &figures(second, 0, 600_000, 1)), None);
        }
        // Another publisher starts counting from zero.
        for second in 0..5 {
            assert_eq!(refusal(limits, &mut since, &figures(second, 0, 1, 1)), None);
        }
    }
}
