//! Formats that we offer and accept for a codec.

use media::codec::{Codec, g711};
use sdp::{Feedback, Format, Parameters, PayloadType, Rtpmap};

/// Returns the formats of a codec that WebRTC peers use, in order of preference, with all supported feedback
/// types. Dynamic payload types are counted from `first`; G.711 has static ones (RFC 3551 §6). Empty for codecs
/// that WebRTC does not carry.
#[must_use]
pub fn offered_formats(codec: Codec, first: u8) -> Vec<Format> {
    let h264 = |profile: &str, mode: &str| {
        format!("level-asymmetry-allowed=1;packetization-mode={mode};profile-level-id={profile}")
    };
    let forms: Vec<(&str, u32, Option<u16>, String)> = match codec {
        // High, main, constrained baseline and baseline profile. A server does not decode, so it can always
        // accept level 5.2. Without packetization-mode 1, frames could not be fragmented.
        Codec::H264 => ["640034", "4d0034", "42e034", "420034"]
            .iter()
            .map(|profile| ("H264", 90_000, None, h264(profile, "1")))
            .collect(),
        Codec::H265 => vec![("H265", 90_000, None, String::new())],
        Codec::Vp8 => vec![("VP8", 90_000, None, String::new())],
        Codec::Vp9 => vec![
            ("VP9", 90_000, None, "profile-id=0".to_owned()),
            ("VP9", 90_000, None, "profile-id=2".to_owned()),
        ],
        Codec::Av1 => vec![("AV1", 90_000, None, String::new())],
        // RFC 7587 §7: always two channels. In-band FEC costs a receiver nothing, so we accept it.
        Codec::Opus => vec![("opus", 48_000, Some(2), "minptime=10;useinbandfec=1;stereo=1".to_owned())],
        Codec::G711(g711::Law::Mu) => vec![("PCMU", 8000, None, String::new())],
        Codec::G711(g711::Law::A) => vec![("PCMA", 8000, None, String::new())],
        Codec::Aac | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => Vec::new(),
    };
    let video = codec.kind() == media::TrackKind::Video;
    let feedback = if video {
        vec![Feedback::TransportCc, Feedback::Fir, Feedback::Nack, Feedback::Pli, Feedback::Remb]
    } else {
        vec![Feedback::TransportCc, Feedback::Nack]
    };
    let fixed = match codec {
        Codec::G711(g711::Law::Mu) => PayloadType::new(0),
        Codec::G711(g711::Law::A) => PayloadType::new(8),
        Codec::H264 | Codec::H265 | Codec::Av1 | Codec::Vp9 | Codec::Vp8 | Codec::Opus => None,
        Codec::Aac | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => None,
    };
    let counted =
        |index: usize| u8::try_from(index).ok().and_then(|n| PayloadType::new(first.checked_add(n)?));
    let number = |index: usize| fixed.or_else(|| counted(index));
    let described =
        forms.into_iter().enumerate().filter_map(|(index, (name, clock_rate, channels, parameters))| {
            let rtpmap =
                Rtpmap { payload_type: number(index)?, encoding: name.to_owned(), clock_rate, channels };
            Some(Format { rtpmap, parameters: Parameters::read(&parameters)?, feedback: feedback.clone() })
        });
    described.collect()
}
