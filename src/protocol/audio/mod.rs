//! Audio that receivers can decode: derived audio tracks as Opus and AAC, and silence for streams without audio.
//!
//! Encoders send AAC, but browsers need Opus; browsers send Opus, but platforms behind RTMP need AAC and refuse a
//! stream without audio. Each published track that can be decoded is therefore offered in the other codec
//! ([`super::derived`]). The offer's producer ([`producer`]) passes units to a helper thread, one job at a time, and
//! publishes the result. The transcoder itself is the crate `transcode`. Silence ([`silence`]) needs no thread,
//! because it is always the same frame.

mod producer;
mod settings;
mod silence;

use crypto::Seed;
use media::{CodecConfig, Origin, Timescale, Track, TrackKind, Tracks};
use transcode::{SAMPLE_RATE, Target, can_decode};

pub(super) use settings::{AudioLimits, AudioSettings, Silence};

use super::derived::Derivation;
use super::row::Protocol;
use super::{FormatKind, Session};
use crate::config::AppSettings;
use crate::hub::Selection;
use crate::types::Now;

/// Returns a text for users that says that this build has no FDK AAC encoder; `None` if it has one.
#[must_use]
pub const fn lack() -> Option<&'static str> {
    if Target::Aac(0).can_encode() {
        return None;
    }
    Some(
        "built without FDK AAC: no audio is converted to AAC, and HE-AAC, AAC below 32 kHz and AAC of more than two channels are not \
         converted to Opus",
    )
}

/// The entry of derived audio in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol =
    Protocol { section: &settings::SECTION, derivations: &[&TO_OPUS, &TO_AAC, &SILENCE], ..Protocol::NONE };

/// Derivation of Opus, for viewers over WebRTC.
static TO_OPUS: Derivation = Derivation {
    name: "opus",
    limit: Some(AudioLimits::transcoders),
    stands_in: |_| false,
    offer: offer_opus,
    begin: begin_opus,
};
/// Derivation of AAC, for viewers over RTMP or FLV.
static TO_AAC: Derivation = Derivation {
    name: "aac",
    limit: Some(AudioLimits::transcoders),
    stands_in: |_| false,
    offer: offer_aac,
    begin: begin_aac,
};
/// Derivation of silence, for receivers that refuse a stream without audio.
static SILENCE: Derivation = Derivation {
    name: "silence",
    limit: None,
    stands_in: |settings| AudioSettings::of(settings).silence == Silence::All,
    offer: offer_silence,
    begin: |_, from, _, _| Box::new(silence::Producer::new(from)),
};

/// Format of units as published, unpackaged.
static UNITS: FormatKind = FormatKind {
    name: "units",
    counted_as: None,
    is_enabled: |_| true,
    selection: Selection::DEFAULT,
    package: |_| None,
    is_given_up_by_close: false,
    is_for_nodes: false,
};

fn opus(settings: &AppSettings) -> Target {
    Target::Opus(AudioSettings::of(settings).opus_bits)
}

fn aac(settings: &AppSettings) -> Target {
    Target::Aac(AudioSettings::of(settings).aac_bits)
}

fn offer_opus(_: &Tracks, from: &Track, settings: &AppSettings) -> Option<Track> {
    let is_wanted = AudioSettings::of(settings).to_opus && !matches!(from.config, CodecConfig::Opus(_));
    offer(from, opus(settings)).filter(|_| is_wanted && can_decode(&from.config))
}

fn offer_aac(_: &Tracks, from: &Track, settings: &AppSettings) -> Option<Track> {
    let is_wanted = AudioSettings::of(settings).to_aac && !matches!(from.config, CodecConfig::Aac(_));
    let target = aac(settings);
    offer(from, target).filter(|_| is_wanted && target.can_encode() && can_decode(&from.config))
}

/// Returns the silent track to offer beside the default video track if the publisher sends no audio; otherwise
/// `None`.
fn offer_silence(tracks: &Tracks, from: &Track, settings: &AppSettings) -> Option<Track> {
    let is_mute = tracks.of_kind(TrackKind::Audio).next().is_none();
    let is_beside = tracks.video().is_some_and(|video| video.id == from.id);
    let is_wanted = AudioSettings::of(settings).silence != Silence::Off;
    let track = offer(from, aac(settings)).filter(|_| is_mute && is_beside && is_wanted)?;
    Some(Track { origin: Origin::StandIn { from: from.id }, language: None, ..track })
}

/// Makes the offer of a transcoded track: 48 kHz, stereo.
fn offer(from: &Track, target: Target) -> Option<Track> {
    let config = target.config().ok()?;
    let (language, member) = (from.language.clone(), from.member.clone());
    Some(Track { language, member, ..Track::new(from.id, config, Timescale::new(SAMPLE_RATE)) })
}

fn begin_opus(_: Now, from: &Track, settings: &AppSettings, _: Seed) -> Box<dyn Session> {
    Box::new(producer::Producer::new(from, opus(settings)))
}

fn begin_aac(_: Now, from: &Track, settings: &AppSettings, _: Seed) -> Box<dyn Session> {
    Box::new(producer::Producer::new(from, aac(settings)))
}

#[cfg(test)]
mod tests {
    use media::TrackId;
    use media::codec::{aac, opus};

    use super::*;

    #[test]
    fn a_track_is_offered_as_what_this_build_can_make() {
        let settings = AppSettings::of(crate::protocol::schema(), "a", &[]).unwrap();
        let track = |config| Track::new(TrackId::AUDIO, config, Timescale::new(SAMPLE_RATE));
        let offers = |config: CodecConfig| {
            let (tracks, from) = (Tracks::default(), track(config));
            let as_opus = offer_opus(&tracks, &from, &settings).is_some();
            (as_opus, offer_aac(&tracks, &from, &settings).is_some())
        };
        let whole = cfg!(feature = "fdk-aac");
        let of_aac = |channels| CodecConfig::Aac(aac::Config::of_parts(2, 3, channels).unwrap());
        assert_eq!(offers(CodecConfig::Opus(opus::Config::of_channels(2).unwrap())), (false, whole));
        assert_eq!(offers(of_aac(2)), (true, false));
        assert_eq!(offers(of_aac(6)), (whole, false));
        assert_eq!(lack().is_none(), whole, "said at the start");
    }
}
