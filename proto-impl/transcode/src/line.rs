//! A line of samples, in the order of their times.

use crate::CHANNELS;

/// Maximum gap in ticks that is filled with silence (two seconds). If a gap is longer, the source has restarted, and
/// the gap is not filled.
const FILLED_MAX: i64 = 2 * 48_000;

/// Samples at 48 kHz that wait until they fill a frame, and the time of the first one. Times never decrease.
#[derive(Debug, Default)]
pub(crate) struct Line {
    samples: Vec<f32>,
    /// Time of the first sample in ticks of 48 kHz.
    start: Option<i64>,
    /// Number of samples per channel that must still be dropped, because their time has already passed.
    skip: usize,
}

impl Line {
    /// Time after the last sample.
    pub(crate) fn end(&self) -> Option<i64> {
        let held = i64::try_from(self.samples.len() / CHANNELS).ok()?;
        Some(self.start?.saturating_add(held))
    }

    /// Sets the time of the samples that will be pushed next. Fills a gap before them with silence. If their time has
    /// already passed, they will be dropped.
    pub(crate) fn join(&mut self, at: i64) {
        self.skip = 0;
        let Some(end) = self.end() else {
            self.start = Some(at);
            return;
        };
        let gap = at.saturating_sub(end);
        if gap > FILLED_MAX {
            self.samples.clear();
            self.start = Some(at);
        } else if gap >= 0 {
            let silence = usize::try_from(gap).unwrap_or(0) * CHANNELS;
            self.samples.resize(self.samples.len() + silence, 0.0);
        } else {
            self.skip = usize::try_from(gap.saturating_neg().min(FILLED_MAX)).unwrap_or(0);
        }
    }

    /// Appends interleaved samples.
    pub(crate) fn push(&mut self, samples: &[f32]) {
        let skipped = self.skip.min(samples.len() / CHANNELS);
        self.skip -= skipped;
        self.samples.extend(samples.iter().skip(skipped * CHANNELS));
    }

    /// Takes a frame of `frames` samples per channel. Returns the time of its first sample.
    pub(crate) fn take(&mut self, frames: usize, out: &mut Vec<f32>) -> Option<i64> {
        let start = self.start?;
        let count = frames * CHANNELS;
        if frames == 0 || self.samples.len() < count {
            return None;
        }
        out.clear();
        out.extend(self.samples.drain(..count));
        self.start = i64::try_from(frames).ok().map(|frames| start.saturating_add(frames));
        Some(start)
    }
}

/// Lengthens interleaved stereo by `by` samples per channel; a negative number shortens it. Each sample is interpolated
/// from its neighbours.
pub(crate) fn stretch(samples: &[f32], by: i64, out: &mut Vec<f32>) {
    out.clear();
    let frames = samples.len() / CHANNELS;
    let wanted = i64::try_from(frames).unwrap_or(0).saturating_add(by);
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if wanted == frames || frames < 2 || wanted < 2 {
        out.extend_from_slice(samples);
        return;
    }
    let step = (frames - 1) as f64 / (wanted - 1) as f64;
    for n in 0..wanted {
        let at = n as f64 * step;
        // The cast keeps the whole part, because `at` is below the length `frames`.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let (whole, part) = (at as usize, at.fract() as f32);
        for channel in 0..CHANNELS {
            let sample = |frame: usize| samples.get(frame * CHANNELS + channel).copied();
            let before = sample(whole).unwrap_or(0.0);
            let after = sample(whole + 1).unwrap_or(before);
            out.push(before + (after - before) * part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_and_what_comes_twice_is_left_out() {
        let mut line = Line::default();
        let mut frame = Vec::new();
        assert_eq!((line.end(), line.take(4, &mut frame)), (None, None));
        line.join(100);
        line.push(&[1.0; 8]);
        assert_eq!(line.end(), Some(104));
        line.join(106);
        line.push(&[2.0; 4]);
        assert_eq!(line.take(8, &mut frame), Some(100));
        assert_eq!(frame, [[1.0; 8].as_slice(), &[0.0; 4], &[2.0; 4]].concat());
        // Two of these four samples come too late and are dropped.
        line.join(106);
        line.push(&[3.0, 3.0]);
        line.push(&[4.0, 4.0, 5.0, 5.0, 6.0, 6.0]);
        assert_eq!((line.take(2, &mut frame), &frame[..]), (Some(108), &[5.0, 5.0, 6.0, 6.0][..]));
    }

    #[test]
    fn a_long_gap_is_left_and_times_never_fall() {
        let mut line = Line::default();
        let mut frame = Vec::new();
        line.join(0);
        line.push(&[1.0; 10]);
        line.join(10_000_000);
        line.push(&[2.0; 10]);
        assert_eq!(line.take(5, &mut frame), Some(10_000_000));
        line.join(-5_000_000);
        line.push(&[3.0; 10]);
        assert_eq!(line.take(1, &mut frame), None, "it is long gone");
        line.join(i64::MAX);
        line.push(&[4.0; 4]);
        assert_eq!((line.take(1, &mut frame), line.end()), (Some(i64::MAX), Some(i64::MAX)));
    }

    #[test]
    fn stretching_keeps_the_ends_and_the_shape() {
        let ramp: Vec<f32> = (0..100_u8).flat_map(|n| [f32::from(n), -f32::from(n)]).collect();
        let mut out = Vec::new();
        for by in [-3, -1, 0, 1, 4] {
            stretch(&ramp, by, &mut out);
            assert_eq!(i64::try_from(out.len() / CHANNELS).unwrap(), 100 + by);
            assert_eq!((out[0], out[1]), (0.0, 0.0));
            assert!((out[out.len() - 2] - 99.0).abs() < 1e-3 && (out[out.len() - 1] + 99.0).abs() < 1e-3);
            assert!(out.chunks(2).map(|frame| frame[0]).is_sorted());
        }
        stretch(&[1.0, 2.0], 7, &mut out);
        assert_eq!(out, [1.0, 2.0]);
    }
}
