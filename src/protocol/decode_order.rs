//! Decode times of pictures. RTP, and MPEG-TS without DTS, carry presentation times only; pictures arrive in
//! decode order.
//!
//! If each picture follows at most `depth` pictures that are presented later, the decode times are the sorted
//! presentation times, delayed by `depth` pictures: they increase, and no picture is decoded after it is presented.

/// Maximum number of pictures that may come before one that is presented earlier (H.264 §A.3.1, H.265 §A.4.2).
const DEPTH_MAX: usize = 16;
/// The first decode time precedes the first presentation time by this number of ticks, a thirtieth of a second,
/// multiplied by `depth`.
const STEP: i64 = 3000;
/// A presentation time that precedes the last decode time by more than a limit counts as a jump of the clock. The
/// limit is 2 s until the distance of decode times is known; then 17 times that distance, but at least half a second
/// and at most 2 s. In ticks.
const JUMP_BACK: i64 = 180_000;
const JUMP_BACK_LEAST: i64 = 45_000;
const JUMP_BACK_PICTURES: i64 = 17;

/// Computes decode times, in ticks of 90 kHz.
#[derive(Debug, Default)]
pub(in crate::protocol) struct DecodeOrder {
    depth: usize,
    /// Presentation times that have not become decode times yet, sorted; at most [`DEPTH_MAX`] + 1.
    shown: Vec<i64>,
    last: Option<i64>,
    /// Largest recent distance between two consecutive decode times; 0 until there are two.
    step: i64,
}

impl DecodeOrder {
    /// Notes the depth that the parameter sets state: the number of pictures that may arrive before one that is
    /// presented earlier. The depth in use never decreases.
    pub(in crate::protocol) fn announce(&mut self, depth: u8) {
        self.depth = self.depth.max(usize::from(depth).min(DEPTH_MAX));
    }

    /// Returns the decode time of the next picture, which is presented at `pts`.
    pub(in crate::protocol) fn next(&mut self, pts: i64) -> i64 {
        if self.last.is_some_and(|last| last.saturating_sub(pts) > self.jump_back()) {
            self.shown.clear();
            self.last = None;
        }
        // Pictures with the same time are not out of order.
        if self.last.is_some_and(|last| pts < last) && self.depth < DEPTH_MAX {
            self.depth += 1;
        }
        let at = self.shown.partition_point(|shown| *shown <= pts);
        self.shown.insert(at, pts);
        let first = self.shown.first().copied().unwrap_or(pts);
        let dts = match self.depth.saturating_add(1).saturating_sub(self.shown.len()) {
            0 => self.shown.remove(0),
            missing => first.saturating_sub(STEP.saturating_mul(i64::try_from(missing).unwrap_or(0))),
        };
        let dts = self.last.map_or(dts, |last| dts.max(last));
        let step = self.last.map_or(0, |last| dts.saturating_sub(last));
        self.step = step.max(self.step - self.step / 8);
        self.last = Some(dts);
        dts
    }

    /// Returns the maximum distance in ticks by which a presentation time may precede the last decode time. A greater
    /// distance means that the clock has jumped.
    fn jump_back(&self) -> i64 {
        let early = match self.step {
            0 => JUMP_BACK,
            step => step.saturating_mul(JUMP_BACK_PICTURES),
        };
        early.clamp(JUMP_BACK_LEAST, JUMP_BACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(depth: u8, shown: &[i64]) -> Vec<i64> {
        let mut order = DecodeOrder::default();
        order.announce(depth);
        shown.iter().map(|frame| order.next(frame * 3600)).collect()
    }

    #[test]
    fn decoding_times_rise_and_are_never_behind_showing() {
        let shown = [0, 4, 2, 1, 3, 8, 6, 5, 7, 12, 10, 9, 11];
        let decoded = times(2, &shown);
        assert!(decoded.is_sorted_by(|a, b| a < b), "{decoded:?}");
        assert!(decoded.iter().zip(shown).all(|(dts, pts)| *dts <= pts * 3600), "{decoded:?}");
        assert_eq!(times(0, &[0, 1, 2]), [0, 3600, 7200]);
    }

    #[test]
    fn what_was_not_announced_is_learnt() {
        let shown: Vec<i64> = (0..50).flat_map(|n| [n * 3, n * 3 + 2, n * 3 + 1]).collect();
        let decoded = times(0, &shown);
        let late = decoded.iter().zip(&shown).skip(9).filter(|(dts, pts)| **dts > **pts * 3600).count();
        assert_eq!(late, 0, "{decoded:?}");
        assert!(decoded.is_sorted());
    }

    #[test]
    fn pictures_with_one_time_and_short_jumps_back_are_not_out_of_order() {
        let mut order = DecodeOrder::default();
        let first: Vec<i64> = (0..50).map(|n| order.next(n * 3600)).collect();
        assert_eq!(first, (0..50).map(|n| n * 3600).collect::<Vec<_>>());
        for _ in 0..50 {
            assert_eq!(order.next(49 * 3600), 49 * 3600);
        }
        // The clock jumps back by 1.5 s, and decode times continue from there.
        let back: Vec<i64> = (12..20).map(|n| order.next(n * 3600)).collect();
        assert_eq!(back, (12..20).map(|n| n * 3600).collect::<Vec<_>>());
    }

    #[test]
    fn a_clock_that_jumps_begins_anew_and_any_times_are_taken() {
        let mut order = DecodeOrder::default();
        order.announce(1);
        assert!(order.next(10_000_000) < 10_000_000);
        assert!(order.next(500) <= 500);
        for pts in [i64::MAX, i64::MIN, 0, i64::MAX] {
            order.next(pts);
        }
        assert!(order.shown.len() <= DEPTH_MAX + 1);
    }

    /// Checks that sender reports that move a track do not make pictures seem to be out of order: a pyramid of three
    /// pictures between two others, and pictures in order whose interval changes.
    #[test]
    fn reports_that_move_a_track_add_no_depth() {
        let pyramid = |n: i64| [4, 2, 1, 3][usize::try_from(n % 4).unwrap()] + n / 4 * 4;
        let even = |n: i64| n / 150 * 225 + if n % 150 < 75 { n % 150 } else { 75 + (n % 150 - 75) * 2 };
        for (name, shown) in [("pyramid", &pyramid as &dyn Fn(i64) -> i64), ("even", &even)] {
            let mut depths = Vec::new();
            for off_ms in [0, -2500, -800, -500, 500, 800, 2500] {
                let timescale = media::Timescale::new(90_000);
                let mut timeline = media::Timeline::of_sources(timescale, media::Position::default());
                let mut order = DecodeOrder::default();
                let began = netsim::Clock::new().now();
                for n in 0..1500 {
                    timeline.arrive(began + core::time::Duration::from_millis(n * 40));
                    let n = n.cast_signed();
                    let told = n > 25;
                    timeline.place_frame(media::TrackId::AUDIO, n * 3600, told.then_some(n * 3600));
                    let own = shown(n) * 3600;
                    let sampled = told.then_some(own - off_ms * 90);
                    order.next(timeline.place_frame(media::TrackId::VIDEO, own, sampled));
                }
                depths.push(order.depth);
            }
            assert!(depths.iter().all(|depth| *depth == depths[0]), "{name}: {depths:?}");
        }
    }
}
