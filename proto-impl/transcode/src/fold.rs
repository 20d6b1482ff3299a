//! Mixing of several channels down to two.

use std::f32::consts::FRAC_1_SQRT_2 as HALF_POWER;

/// Shares of a channel in the left and the right output channel.
type Share = [f32; 2];

const LEFT: Share = [1.0, 0.0];
const RIGHT: Share = [0.0, 1.0];
const CENTRE: Share = [HALF_POWER, HALF_POWER];
const SURROUND_LEFT: Share = [HALF_POWER, 0.0];
const SURROUND_RIGHT: Share = [0.0, HALF_POWER];
/// Shares of the low frequency channel. As in ITU-R BS.775, the channel is not mixed in.
const NOTHING: Share = [0.0, 0.0];

/// Shares for one to eight channels in the order of Vorbis (RFC 7845 §5.1.1.2). They are those of ITU-R BS.775-3
/// annex 4.
const SHARES: [&[Share]; 8] = [
    &[[1.0, 1.0]],
    &[LEFT, RIGHT],
    &[LEFT, CENTRE, RIGHT],
    &[LEFT, RIGHT, SURROUND_LEFT, SURROUND_RIGHT],
    &[LEFT, CENTRE, RIGHT, SURROUND_LEFT, SURROUND_RIGHT],
    &[LEFT, CENTRE, RIGHT, SURROUND_LEFT, SURROUND_RIGHT, NOTHING],
    &[LEFT, CENTRE, RIGHT, SURROUND_LEFT, SURROUND_RIGHT, CENTRE, NOTHING],
    &[LEFT, CENTRE, RIGHT, SURROUND_LEFT, SURROUND_RIGHT, SURROUND_LEFT, SURROUND_RIGHT, NOTHING],
];

/// Mixes interleaved samples of `channels` channels in the order of Vorbis down to interleaved stereo, and appends
/// the result. If the mix could exceed full scale, all channels are attenuated.
pub(crate) fn vorbis(samples: &[f32], channels: usize, out: &mut Vec<f32>) {
    if channels == crate::CHANNELS {
        out.extend_from_slice(samples);
        return;
    }
    let Some(shares) = channels.checked_sub(1).and_then(|index| SHARES.get(index)) else { return };
    let full: f32 = shares.iter().map(|[left, _]| left).sum();
    let scale = 1.0 / full.max(1.0);
    for frame in samples.chunks_exact(channels) {
        let fold = |side: usize| {
            let share = |(sample, share): (&f32, &Share)| sample * share.get(side).copied().unwrap_or(0.0);
            frame.iter().zip(*shares).map(share).sum::<f32>() * scale
        };
        out.extend([fold(0), fold(1)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(frame: &[f32]) -> Vec<f32> {
        let mut out = Vec::new();
        vorbis(frame, frame.len(), &mut out);
        out
    }

    #[test]
    fn every_layout_has_a_fold_that_does_not_clip() {
        for channels in 1..=8 {
            let loud = folded(&vec![1.0; channels]);
            assert!(loud.len() == 2 && loud.iter().all(|sample| (0.9..=1.001).contains(sample)), "{loud:?}");
        }
        assert!(folded(&[0.0; 9]).is_empty());
    }

    #[test]
    fn channels_go_where_they_belong() {
        assert_eq!(folded(&[0.5]), [0.5, 0.5]);
        assert_eq!(folded(&[0.25, 0.75]), [0.25, 0.75]);
        // 5.1: left, centre, right, two surrounds, low frequencies.
        let of = |channel: usize| {
            let mut frame = [0.0; 6];
            frame[channel] = 1.0;
            folded(&frame)
        };
        assert!(of(0)[0] > 0.4 && of(0)[1] == 0.0 && of(2)[0] == 0.0);
        assert_eq!(of(1)[0], of(1)[1]);
        assert!(of(3)[0] > 0.0 && of(3)[1] == 0.0 && of(4)[1] > 0.0);
        assert_eq!(of(5), [0.0, 0.0]);
    }
}
