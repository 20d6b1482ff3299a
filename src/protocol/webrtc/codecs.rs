//! The video codecs that an application enables over WebRTC (`h264Enabled`, `h265Enabled`, `vp8Enabled`, `av1Enabled`).

use media::codec::Codec;
use media::{Track, Tracks};

use crate::config::{Error, Origin, Values};

/// The codec switches. VP9 and audio codecs have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Codecs {
    h264: bool,
    h265: bool,
    vp8: bool,
    av1: bool,
}

impl Codecs {
    /// All codecs enabled.
    pub(super) const ALL: Self = Self { h264: true, h265: true, vp8: true, av1: true };

    /// Reads the switches. Ant Media Server enables only H.264 by default; here each codec is enabled unless it is
    /// switched off.
    pub(super) fn read(values: &Values) -> Result<Self, Error> {
        let switch = |key| Ok(values.boolean(key)? || values.origin(key) == Origin::Default);
        Ok(Self {
            h264: values.boolean("h264Enabled")?,
            h265: switch("h265Enabled")?,
            vp8: switch("vp8Enabled")?,
            av1: switch("av1Enabled")?,
        })
    }

    /// True if a codec is enabled.
    pub(super) const fn has(self, codec: Codec) -> bool {
        match codec {
            Codec::H264 => self.h264,
            Codec::H265 => self.h265,
            Codec::Vp8 => self.vp8,
            Codec::Av1 => self.av1,
            Codec::Vp9
            | Codec::Opus
            | Codec::G711(_)
            | Codec::Aac
            | Codec::Mp3
            | Codec::Ac3
            | Codec::Eac3
            | Codec::Flac => true,
        }
    }

    /// Returns the tracks whose codecs are enabled.
    pub(super) fn of(self, tracks: &Tracks) -> Tracks {
        let is_on = |track: &&Track| self.has(track.config.codec());
        Tracks::new(tracks.epoch, tracks.iter().filter(is_on).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppSettings;
    use crate::protocol::schema;

    #[test]
    fn each_switch_is_for_one_codec_and_on_until_it_is_switched_off() {
        let with =
            |settings: &[_]| Codecs::read(&AppSettings::of(schema(), "a", settings).unwrap().values).unwrap();
        assert_eq!(with(&[]), Codecs::ALL);
        for (key, codec) in [
            ("h264Enabled", Codec::H264),
            ("h265Enabled", Codec::H265),
            ("vp8Enabled", Codec::Vp8),
            ("av1Enabled", Codec::Av1),
        ] {
            assert_eq!(with(&[(key, "true")]), Codecs::ALL);
            let off = with(&[(key, "false")]);
            for other in [Codec::H264, Codec::H265, Codec::Vp8, Codec::Av1, Codec::Vp9, Codec::Opus] {
                assert_eq!(off.has(other), other != codec, "{key} and {other:?}");
            }
        }
    }
}
