//! Presentation times of publishers with negative composition times (SI24, FLV 10.1 §E.4.3.1).
//!
//! A unit's PTS is never before its DTS. If a track has pictures with negative composition times, its decode times
//! are lowered by the most negative one so far. Presentation times remain those of the publisher, so that their
//! differences are exact and audio stays in sync. Raising presentation times instead would move all other tracks too,
//! and again with each more negative composition time.
//!
//! Decode times may not decrease. While they are being lowered they stand still, and a picture may be shown a little
//! late. A track without negative composition times passes unchanged.

use media::TrackId;

/// Maximum time in milliseconds by which decode times are lowered: sixteen reordered pictures at 8 per second. A
/// composition time beyond it is taken for 0.
const LOWERED_MS_MAX: i64 = 2_000;

/// The decode times of one track.
#[derive(Debug)]
struct Lowered {
    track: TrackId,
    by_ms: i64,
    last_dts: i64,
}

/// The decode times of all video tracks of a publisher.
#[derive(Debug, Default)]
pub(super) struct Compositions {
    tracks: Vec<Lowered>,
}

impl Compositions {
    /// Returns DTS and PTS of a picture whose decode time on the stream's clock is `dts`.
    pub(super) fn place(&mut self, track: TrackId, dts: i64, composition_ms: i32) -> (i64, i64) {
        let composition = i64::from(composition_ms);
        let pts = dts.saturating_add(composition);
        let Some(known) = self.tracks.iter_mut().find(|known| known.track == track) else {
            let by_ms = lowering(composition);
            self.tracks.push(Lowered { track, by_ms, last_dts: dts });
            return (dts, pts.max(dts));
        };
        known.by_ms = known.by_ms.max(lowering(composition));
        known.last_dts = dts.saturating_sub(known.by_ms).max(known.last_dts);
        (known.last_dts, pts.max(known.last_dts))
    }
}

/// Returns the milliseconds by which a composition time requires decode times to be lowered.
fn lowering(composition_ms: i64) -> i64 {
    let by_ms = composition_ms.saturating_neg().max(0);
    if by_ms > LOWERED_MS_MAX { 0 } else { by_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places pictures that are 40 ms apart.
    fn place(compositions: &mut Compositions, from: i64, all: &[i32]) -> Vec<(i64, i64)> {
        let times = (from..).step_by(40);
        times
            .zip(all)
            .map(|(dts, &composition)| compositions.place(TrackId::VIDEO, dts, composition))
            .collect()
    }

    /// I0 P4 B2 b1 b3: a pyramid of B-frames, with the composition times of an encoder that does not shift them.
    const PYRAMID: [i32; 4] = [120, 0, -80, -40];

    #[test]
    fn composition_times_that_are_not_negative_change_nothing() {
        let placed = place(&mut Compositions::default(), 1000, &[80, 200, 80, 0, 40]);
        assert_eq!(placed, [(1000, 1080), (1040, 1240), (1080, 1160), (1120, 1120), (1160, 1200)]);
    }

    #[test]
    fn presentation_times_of_negative_ones_are_the_publishers_once_they_are_known() {
        let mut compositions = Compositions::default();
        let all: Vec<i32> = std::iter::once(0).chain(PYRAMID.into_iter().cycle().take(40)).collect();
        let placed = place(&mut compositions, 1000, &all);
        assert!(placed.iter().all(|(dts, pts)| pts >= dts), "{placed:?}");
        assert!(placed.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{placed:?}");
        // The first negative composition time makes its picture late; later ones do not.
        let late: Vec<usize> =
            (0..all.len()).filter(|&at| placed[at].1 != 1000 + 40 * at as i64 + i64::from(all[at])).collect();
        assert_eq!(late, [3]);
        assert_eq!(placed[3], (1080, 1080));
        assert_eq!(placed[20], (1720, 1760), "decode times are 80 ms lower");
        let mut shown: Vec<i64> = placed[5..37].iter().map(|(_, pts)| *pts).collect();
        shown.sort_unstable();
        assert!(shown.windows(2).all(|pair| pair[1] - pair[0] == 40), "{shown:?}");
    }

    #[test]
    fn lowering_grows_and_never_shrinks_and_a_track_is_not_moved_by_another() {
        let mut compositions = Compositions::default();
        place(&mut compositions, 0, &[0, -40, 0, 0]);
        assert_eq!(compositions.place(TrackId::VIDEO, 160, 0), (120, 160));
        assert_eq!(compositions.place(TrackId::VIDEO, 200, -100), (120, 120));
        assert_eq!(compositions.place(TrackId::VIDEO, 240, -100), (140, 140));
        assert_eq!(compositions.place(TrackId::VIDEO, 1000, 0), (900, 1000));
        let second = TrackId::nth(media::TrackKind::Video, 1).unwrap();
        assert_eq!(compositions.place(second, 1000, 40), (1000, 1040));
    }

    #[test]
    fn m_07_an_absurd_composition_time_lowers_nothing() {
        let mut compositions = Compositions::default();
        let placed = place(&mut compositions, 0, &[0, -60_000, -2_001, 40]);
        assert_eq!(placed, [(0, 0), (40, 40), (80, 80), (120, 160)]);
        assert_eq!(compositions.place(TrackId::VIDEO, 5000, -2_000), (3000, 3000));
    }
}
