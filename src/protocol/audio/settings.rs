//! Settings: `audio.*`.

use crate::config::group::AUDIO;
use crate::config::{AppSettings, Error, Extensions, Key, Section, ServerSettings, Values, key};

const SERVER: &[Key] = &[key(
    AUDIO,
    "audio.max_transcoders",
    "0",
    "Tracks transcoded at once",
    "Maximum audio tracks transcoded at a time; further tracks are omitted; 0: 32 for each core",
)];

const APP: &[Key] = &[
    key(
        AUDIO,
        "audio.toOpus",
        "true",
        "Convert to Opus",
        "Transcodes audio that WebRTC cannot carry to Opus",
    ),
    key(
        AUDIO,
        "audio.toAac",
        "true",
        "Convert to AAC",
        "Transcodes audio that a player or a push target may not support to AAC",
    ),
    key(
        AUDIO,
        "audio.opusBitrate",
        "96000",
        "Bit rate of Opus",
        "Bits per second of audio transcoded to Opus",
    ),
    key(AUDIO, "audio.aacBitrate", "128000", "Bit rate of AAC", "Bits per second of audio transcoded to AAC"),
    key(
        AUDIO,
        "audio.silence",
        "pushes",
        "Add silence where missing",
        "Adds silence to streams without audio: pushes (only for targets that refuse such streams), all, or off",
    ),
];

/// Range of the encoders' bit rate for two channels, in bits per second.
const BITRATES: (u32, u32) = (24_000, 320_000);
/// Transcoders per core; each needs about a hundredth of a core.
const TRANSCODERS_PER_CORE: usize = 32;

/// The `audio.*` settings as a section of the configuration.
pub(super) static SECTION: Section = Section {
    server: SERVER,
    app: APP,
    read_server: |values| Ok(Extensions::of(AudioLimits::read(values)?)),
    read_app: |values| Ok(Extensions::of(AudioSettings::read(values)?)),
    ..Section::NONE
};

/// The audio settings of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AudioLimits {
    /// `audio.max_transcoders`; 0 means that the limit follows from the number of cores.
    max_transcoders: usize,
}

impl AudioLimits {
    fn read(values: &Values) -> Result<Self, Error> {
        Ok(Self { max_transcoders: values.number("audio.max_transcoders", 0usize, 100_000)? })
    }

    /// Returns the maximum number of tracks transcoded at a time, on a machine with `cores` cores.
    pub(crate) fn transcoders(server: &ServerSettings, cores: usize) -> usize {
        match server.protocols.get::<Self>().map_or(0, |limits| limits.max_transcoders) {
            0 => cores.saturating_mul(TRANSCODERS_PER_CORE),
            most => most,
        }
    }
}

/// The receivers that are sent silence if a stream has no audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Silence is sent to nobody.
    Off,
    /// Silence is sent only to push targets that may refuse a stream without audio.
    Pushes,
    /// Silence is sent to push targets and viewers.
    All,
}

/// The audio settings of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AudioSettings {
    /// `audio.toOpus`.
    pub(super) to_opus: bool,
    /// `audio.toAac`, and `aacEncodingEnabled`, its older name.
    pub(super) to_aac: bool,
    /// `audio.opusBitrate`.
    pub(super) opus_bits: u32,
    /// `audio.aacBitrate`.
    pub(super) aac_bits: u32,
    /// `audio.silence`.
    pub(crate) silence: Silence,
}

static APP_DEFAULTS: AudioSettings = AudioSettings {
    to_opus: true,
    to_aac: true,
    opus_bits: 96_000,
    aac_bits: 128_000,
    silence: Silence::Pushes,
};

impl AudioSettings {
    pub(crate) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&APP_DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let bits = |key| values.number(key, BITRATES.0, BITRATES.1);
        let silence = match values.text("audio.silence") {
            "off" => Silence::Off,
            "pushes" => Silence::Pushes,
            "all" => Silence::All,
            _ => return Err(values.bad("audio.silence", "must be pushes, all or off")),
        };
        Ok(Self {
            to_opus: values.boolean("audio.toOpus")?,
            to_aac: values.boolean("audio.toAac")? && values.boolean("aacEncodingEnabled")?,
            opus_bits: bits("audio.opusBitrate")?,
            aac_bits: bits("audio.aacBitrate")?,
            silence,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn the_defaults_are_those_of_the_keys() {
        let defaults = AppSettings::of(schema(), "live", &[]).unwrap();
        assert_eq!(defaults.protocols.get(), Some(&APP_DEFAULTS));
    }

    #[test]
    fn either_name_switches_aac_off() {
        for key in ["audio.toAac", "aacEncodingEnabled"] {
            let app = AppSettings::of(schema(), "live", &[(key, "false")]).unwrap();
            assert!(!AudioSettings::of(&app).to_aac, "{key}");
            assert!(AudioSettings::of(&app).to_opus, "{key}");
        }
    }

    #[test]
    fn values_are_checked() {
        let with = |key, value| AppSettings::of(schema(), "live", &[(key, value)]);
        let all = with("audio.silence", "all").unwrap();
        assert_eq!(AudioSettings::of(&all).silence, Silence::All);
        let bits = with("audio.opusBitrate", "64000").unwrap();
        assert_eq!(AudioSettings::of(&bits).opus_bits, 64_000);
        let bits = with("audio.aacBitrate", "64000").unwrap();
        assert_eq!(AudioSettings::of(&bits).aac_bits, 64_000);
        for (key, value) in [
            ("audio.silence", "yes"),
            ("audio.opusBitrate", "1000"),
            ("audio.aacBitrate", "1000000"),
            ("audio.toAac", "2"),
        ] {
            assert!(with(key, value).unwrap_err().to_string().contains(key), "{key}={value}");
        }
    }
}
