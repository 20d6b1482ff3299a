//! Silence as AAC for a stream without audio.

use bytes::Bytes;
use media::{AccessUnit, TrackId};

/// AAC frame of stereo silence: a channel pair without sections and spectrum (ISO/IEC 14496-3 §4.4.2.1).
const FRAME: &[u8] = &[0x21, 0x10, 0x04, 0x60, 0x8c, 0x1c];
/// Duration of a frame in ticks.
const FRAME_TICKS: i64 = 1024;
/// Maximum gap in ticks that is filled (two seconds). If a gap is longer, the stream has restarted.
const FILLED_MAX: i64 = 2 * 48_000;

/// Makes silent units up to given times, in ticks of 48 kHz.
#[derive(Debug, Default)]
pub struct Silence {
    next: Option<i64>,
    until: i64,
}

impl Silence {
    /// Continues the silence up to this time.
    pub fn advance(&mut self, to: i64) {
        let next = self.next.unwrap_or(to);
        self.next = Some(if to.saturating_sub(next) > FILLED_MAX { to } else { next });
        self.until = self.until.max(to);
    }

    /// Returns the next unit, if it ends at the latest at the time of the last [`Self::advance`].
    pub fn poll_unit(&mut self) -> Option<AccessUnit> {
        let at = self.next.filter(|next| next.saturating_add(FRAME_TICKS) <= self.until)?;
        self.next = Some(at.saturating_add(FRAME_TICKS));
        let (track, payload) = (TrackId::AUDIO, Bytes::from_static(FRAME));
        Some(AccessUnit { track, dts: at, pts: at, key_frame: false, config_epoch: 0, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::{Decoder, Pcm};
    use media::CodecConfig;
    use media::codec::aac::Config;

    #[test]
    fn a_frame_is_silent() {
        let config = CodecConfig::Aac(Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap());
        let mut decoder = Decoder::new(&config).unwrap();
        let mut pcm = Pcm::default();
        for _ in 0..3 {
            decoder.decode(FRAME, &mut pcm).unwrap();
            assert_eq!((pcm.rate, pcm.samples.len()), (48_000, 2048));
            assert!(pcm.samples.iter().all(|sample| *sample == 0.0));
        }
    }

    #[test]
    fn it_follows_the_stream_and_jumps_with_it() {
        let mut silence = Silence::default();
        assert!(silence.poll_unit().is_none());
        let mut made = Vec::new();
        for to in [48_000, 49_600, 51_200, 51_000, 500_000, 502_000] {
            silence.advance(to);
            made.extend(std::iter::from_fn(|| silence.poll_unit()).map(|unit| unit.pts));
        }
        assert_eq!(made, [48_000, 49_024, 50_048, 500_000]);
    }
}
