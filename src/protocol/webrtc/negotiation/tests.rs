//! Offers of real stacks, which differ from those of browsers in the forms of their codecs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Config, IceMode, Peer};
use crypto::Seed;
use media::codec::{h264, h265, opus};
use media::{Timescale, TrackId};
use rtp::NtpAnchor;

use super::*;
use crate::config::AppSettings;

/// A form of video: its `rtpmap` and `fmtp` after the payload type.
type Form = (&'static str, &'static str);

fn server(now: Instant) -> Peer {
    let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(2)).unwrap());
    let addresses = vec!["192.0.2.1:5000".parse().unwrap()];
    let config = Config::new(IceMode::Lite { config: Arc::default(), addresses }, identity);
    let anchor = NtpAnchor::new(now, Duration::from_secs(1_790_000_000));
    Peer::new(now, Arc::new(config), anchor, Seed::from_number(2)).unwrap()
}

/// An offer of Opus and these forms of video.
fn offer(forms: &[Form], direction: &str) -> Description {
    let fingerprint = ["AA"; 32].join(":");
    let transport = format!(
        "c=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuvwx\r\n\
         a=fingerprint:sha-256 {fingerprint}\r\na=setup:actpass\r\na={direction}\r\na=rtcp-mux\r\n"
    );
    let types: Vec<String> = (96..).take(forms.len()).map(|number: u8| number.to_string()).collect();
    let mut text = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n{transport}a=mid:0\r\na=rtpmap:111 opus/48000/2\r\n\
         m=video 9 UDP/TLS/RTP/SAVPF {}\r\n{transport}a=mid:1\r\n",
        types.join(" ")
    );
    for ((rtpmap, fmtp), number) in forms.iter().zip(types) {
        text.push_str(&format!("a=rtpmap:{number} {rtpmap}\r\na=rtcp-fb:{number} nack pli\r\n"));
        if !fmtp.is_empty() {
            text.push_str(&format!("a=fmtp:{number} {fmtp}\r\n"));
        }
    }
    Description::read(text.as_bytes()).unwrap()
}

const OPEN: &str = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f";

/// Returns the payload type of video in the answer to a publisher, and its parameters; `None` if the offer is
/// refused.
fn taken(forms: &[Form]) -> Option<(u8, String)> {
    let offer = offer(forms, "sendonly");
    if leaves_out_video(&offer, Codecs::ALL) {
        return None;
    }
    let now = Instant::now();
    let answer = server(now).handle_offer(now, &offer, |_, media| take(media, Codecs::ALL)).unwrap();
    answered(&offer, &answer)
}

const fn shown(tracks: &Tracks) -> Shown<'_> {
    Shown { tracks, codecs: Codecs::ALL, to_come: &[TrackKind::Audio, TrackKind::Video], id: "s" }
}

fn answered(offer: &Description, answer: &Description) -> Option<(u8, String)> {
    let (offered, video) = (&offer.media[1], &answer.media[1]);
    assert!(!video.is_rejected() && !answer.media[0].is_rejected(), "without a word");
    let format = video.rtp_formats().next().unwrap();
    let of = offered.format(format.payload_type()).unwrap();
    assert!(format.matches(&of), "{format:?}");
    let read = Description::read(answer.write().as_bytes()).unwrap();
    assert_eq!(offer.check_answer(&read), Ok(()));
    Some((format.payload_type().number(), format.parameters.to_string()))
}

#[test]
fn publishers_forms_are_taken_or_the_offer_is_refused() {
    for (forms, wanted) in [
        (&[("H264/90000", OPEN)][..], Some((96, "packetization-mode=1;profile-level-id=42e034"))),
        // For a form without a profile, the answer names the profile that the standard then assumes.
        (&[("H264/90000", "")], Some((96, "profile-level-id=42e01f"))),
        (
            &[("H264/90000", "packetization-mode=0;profile-level-id=42e01f")],
            Some((96, "packetization-mode=0;profile-level-id=42e01f")),
        ),
        (&[("H264/90000", "profile-level-id=42e01f")], Some((96, "profile-level-id=42e01f"))),
        // Of two packetization modes, the one that fragments pictures is chosen.
        (
            &[("H264/90000", "packetization-mode=0;profile-level-id=42e01f"), ("H264/90000", OPEN)],
            Some((97, "packetization-mode=1;profile-level-id=42e034")),
        ),
        (&[("H264/90000", "packetization-mode=1;profile-level-id=640c1f")], Some((96, "=640c1f"))),
        (&[("H264/90000", "packetization-mode=1;profile-level-id=58001f")], Some((96, "=58001f"))),
        (&[("H264/90000", "packetization-mode=1;profile-level-id=6e001f")], Some((96, "=6e001f"))),
        (&[("H264/90000", "packetization-mode=1;profile-level-id=7a001f")], Some((96, "=7a001f"))),
        (&[("H264/90000", "packetization-mode=1;profile-level-id=f4001f")], Some((96, "=f4001f"))),
        (&[("H264/90000", "packetization-mode=1;profile-level-id=42001f")], Some((96, "=42001f"))),
        // Interleaved mode, alone and beside another codec.
        (&[("H264/90000", "packetization-mode=2;profile-level-id=42e01f")], None),
        (
            &[("H264/90000", "packetization-mode=2;profile-level-id=42e01f"), ("VP8/90000", "")],
            Some((97, "")),
        ),
        (&[("H265/90000", "level-id=93;tx-mode=SRST")], Some((96, ""))),
        (
            &[("H265/90000", "level-id=180;profile-id=2;tier-flag=0;tx-mode=SRST")],
            Some((96, "profile-id=2;tier-flag=0;level-id=180;tx-mode=SRST")),
        ),
        (&[("H265/90000", "profile-id=4;tier-flag=1")], Some((96, "profile-id=4;tier-flag=1"))),
        (&[("H265/90000", "tx-mode=MRST")], None),
        (&[("H265/90000", "profile-id=2;sprop-max-don-diff=2")], None),
        (&[("VP9/90000", "profile-id=1")], Some((96, "profile-id=1"))),
        (&[("AV1/90000", "profile=1;level-idx=5;tier=0")], Some((96, "profile=1;level-idx=5;tier=0"))),
        (&[("AV1X/90000", "")], None),
        (&[("H266/90000", "")], None),
    ] {
        let found = taken(forms);
        let fits = match (&found, wanted) {
            (Some((number, parameters)), Some((wanted, part))) => {
                *number == wanted && (parameters == part || (!part.is_empty() && parameters.ends_with(part)))
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        assert!(fits, "{forms:?}: {found:?}, wanted {wanted:?}");
    }
}

/// A page that only receives in its video section sends no video, and is not refused for that.
#[test]
fn a_section_that_sends_nothing_is_not_missed() {
    let unknown = &[("H266/90000", "")][..];
    for (direction, refused) in
        [("sendonly", true), ("sendrecv", true), ("recvonly", false), ("inactive", false)]
    {
        assert_eq!(leaves_out_video(&offer(unknown, direction), Codecs::ALL), refused, "{direction}");
    }
}

fn avc(profile: [u8; 3]) -> CodecConfig {
    const REST: &[u8] =
        &[0xd9, 0x00, 0xa0, 0x5b, 0x01, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0xc0, 0xf1, 0x62, 0xe4, 0x80];
    let sps = [&[0x67][..], &profile, REST].concat();
    CodecConfig::H264(h264::Config::of_sets(&[&sps], &[&[0x68, 0xcb, 0x83, 0xcb, 0x20]]).unwrap())
}

/// A record of H.265 without parameter sets.
fn hevc(profile: u8) -> CodecConfig {
    let mut record = vec![0; 23];
    (record[0], record[1], record[21]) = (1, profile, 3);
    CodecConfig::H265(h265::Config::read(record.into()).unwrap())
}

/// Returns the payload type of video in the answer to a viewer; `None` if the viewer gets a counter-offer.
fn given(config: &CodecConfig, forms: &[Form]) -> Option<u8> {
    let audio = CodecConfig::Opus(opus::Config::of_channels(2).unwrap());
    let track = |id, config| Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) };
    let tracks = Tracks::new(1, [track(TrackId::VIDEO, config.clone()), track(TrackId::AUDIO, audio)]);
    let offer = offer(forms, "recvonly");
    if lacks_form(&offer, &tracks) {
        return None;
    }
    let (now, mut sections) = (Instant::now(), Taken::default());
    let answer = server(now).handle_offer(now, &offer, |_, media| give(media, shown(&tracks), &mut sections));
    let answer = answer.unwrap();
    assert_eq!(answer.direction(&answer.media[1]), Direction::SendOnly, "idle: {forms:?}");
    answered(&offer, &answer).map(|(number, _)| number)
}

#[test]
fn viewers_forms_are_sent_what_they_decode_or_the_offer_is_countered() {
    let (baseline, high, extended) = ([0x42, 0xc0, 0x1e], [0x64, 0, 0x1e], [0x58, 0, 0x1e]);
    let h264 = |parameters: &'static str| vec![("H264/90000", parameters)];
    for (stream, forms, given_as) in [
        (avc(baseline), h264(OPEN), Some(96)),
        (avc(baseline), h264(""), Some(96)),
        (avc(baseline), h264("profile-level-id=42e01f"), Some(96)),
        // Mode 0 refuses fragments.
        (avc(baseline), h264("packetization-mode=0;profile-level-id=42e01f"), None),
        (avc(baseline), vec![("H264/90000", "packetization-mode=0"), ("H264/90000", OPEN)], Some(97)),
        (avc(baseline), h264("packetization-mode=1;profile-level-id=640c1f"), Some(96)),
        (avc(high), h264("packetization-mode=1;profile-level-id=640c1f"), Some(96)),
        (avc(high), h264(OPEN), Some(96)),
        (avc(high), h264("packetization-mode=1;profile-level-id=6e001f"), Some(96)),
        (avc(high), h264("packetization-mode=1;profile-level-id=f4001f"), Some(96)),
        (avc(baseline), h264("packetization-mode=1;profile-level-id=58001f"), Some(96)),
        (avc(high), h264("packetization-mode=1;profile-level-id=58001f"), None),
        (avc(extended), h264(OPEN), None),
        (avc(extended), h264("packetization-mode=1;profile-level-id=58001f"), Some(96)),
        (hevc(1), vec![("H265/90000", "level-id=93")], Some(96)),
        (hevc(1), vec![("H265/90000", "profile-id=2;level-id=93;tx-mode=SRST")], Some(96)),
        (hevc(2), vec![("H265/90000", "profile-id=2;level-id=93;tx-mode=SRST")], Some(96)),
        (hevc(2), vec![("H265/90000", "level-id=93")], None),
        (hevc(1), vec![("H265/90000", "profile-id=1;tx-mode=MRST")], None),
    ] {
        assert_eq!(given(&stream, &forms), given_as, "{forms:?} of {stream:?}");
    }
}

/// A viewer that does not support the stream's video codec still gets audio.
#[test]
fn a_viewer_of_another_codec_is_idle_in_video() {
    let track =
        Track { epoch: 1, ..Track::new(TrackId::VIDEO, avc([0x42, 0xc0, 0x1e]), Timescale::MILLISECONDS) };
    let tracks = Tracks::new(1, [track]);
    for forms in [&[("VP8/90000", "")][..], &[("VP9/90000", "profile-id=1")]] {
        let offer = offer(forms, "recvonly");
        assert!(!lacks_form(&offer, &tracks));
        let idle = give(&offer.media[1], shown(&tracks), &mut Taken::default()).unwrap();
        assert_eq!(idle.direction, Direction::Inactive, "{forms:?}");
    }
}

/// The names of the forms that a section may be sent as.
fn names_of(section: &Section) -> Vec<&str> {
    section.formats.iter().map(|format| format.local.rtpmap.encoding.as_str()).collect()
}

fn of_track(id: TrackId, config: CodecConfig) -> Tracks {
    Tracks::new(1, [Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }])
}

fn sound() -> CodecConfig {
    CodecConfig::Opus(opus::Config::of_channels(2).unwrap())
}

/// A publisher may begin to send audio or video after the viewer has joined.
#[test]
fn a_section_without_a_track_is_reserved_and_settled_by_the_first_one() {
    let now = Instant::now();
    let forms = [
        ("VP8/90000", ""),
        ("H264/90000", "packetization-mode=0;profile-level-id=42e01f"),
        ("H264/90000", OPEN),
        ("H264/90000", "packetization-mode=1;profile-level-id=640c1f"),
        ("H266/90000", ""),
    ];
    let (offer, tracks) = (offer(&forms, "recvonly"), of_track(TrackId::AUDIO, sound()));
    let answered = |to_come: &'static [TrackKind], codecs| {
        let (mut peer, mut taken) = (server(now), Taken::default());
        let stream = Shown { tracks: &tracks, codecs, to_come, id: "s" };
        peer.handle_offer(now, &offer, |_, media| give(media, stream, &mut taken)).unwrap();
        peer
    };
    let both = &[TrackKind::Audio, TrackKind::Video];
    let app = AppSettings::of(crate::protocol::schema(), "live", &[("vp8Enabled", "false")]).unwrap();
    let no_vp8 = Codecs::read(&app.values).unwrap();
    assert_eq!(names_of(&answered(both, no_vp8).sections()[1]), ["H264"], "VP8 is off");
    let seasoned = answered(&[TrackKind::Audio], Codecs::ALL);
    assert_eq!(seasoned.sections()[1].direction, Direction::Inactive);
    let vp8 = CodecConfig::Vp8(media::codec::vp8::Config::default());
    for (config, number) in [(avc([0x42, 0xc0, 0x1e]), Some(98)), (vp8, Some(96)), (hevc(1), None)] {
        let mut peer = answered(both, Codecs::ALL);
        let video = peer.sections()[1].clone();
        assert_eq!((video.direction, names_of(&video)), (Direction::SendOnly, vec!["H264", "VP8"]));
        assert!(carries(&video, &tracks).is_none());
        let late = of_track(TrackId::VIDEO, config);
        let Some((track, format)) = carries(&video, &late) else {
            assert_eq!(number, None, "{late:?}");
            continue;
        };
        assert_eq!((track.id, Some(format.number())), (TrackId::VIDEO, number));
        assert!(peer.settle(now, video.id, format));
        let settled = &peer.sections()[1];
        assert_eq!((settled.formats.len(), settled.formats[0].payload_type()), (1, format));
        assert_eq!(settled.local_source, video.local_source);
    }
}

/// The offer made to pages of the SDK, and to clients that leave it to the server.
#[test]
fn an_offer_has_a_section_of_each_kind_that_may_come() {
    let now = Instant::now();
    let pictures = of_track(TrackId::VIDEO, avc([0x42, 0xc0, 0x1e]));
    let sounds = of_track(TrackId::AUDIO, sound());
    let both: &[TrackKind] = &[TrackKind::Audio, TrackKind::Video];
    let kinds = |tracks, to_come| {
        let sections = offered(Shown { tracks, codecs: Codecs::ALL, to_come, id: "s" });
        let numbers = sections.iter().flat_map(|(_, section)| &section.formats).map(Format::payload_type);
        let (mut all, count) = (numbers.clone().collect::<Vec<_>>(), numbers.count());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a payload type means two formats");
        let text = server(now).offer(&sections).unwrap().write();
        let read = Description::read(text.as_bytes()).unwrap();
        assert_eq!(names(&read).len(), sections.len());
        sections.into_iter().map(|(kind, section)| (kind, section.formats.len())).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&pictures, both), [(MediaKind::Audio, 3), (MediaKind::Video, 4)]);
    assert_eq!(kinds(&sounds, both), [(MediaKind::Audio, 1), (MediaKind::Video, 5)]);
    assert_eq!(kinds(&sounds, &[TrackKind::Audio]), [(MediaKind::Audio, 1)]);
    assert_eq!(kinds(&pictures, &[]), [(MediaKind::Video, 4)]);
}

#[test]
fn what_may_come_is_what_a_stream_lacks_and_no_video_in_the_end() {
    let both = of_track(TrackId::VIDEO, avc([0x42, 0xc0, 0x1e]));
    let both = Tracks::new(1, both.iter().chain(of_track(TrackId::AUDIO, sound()).iter()).cloned());
    let (pictures, sounds) = (of_track(TrackId::VIDEO, hevc(1)), of_track(TrackId::AUDIO, sound()));
    let mut mute = pictures.clone();
    let silence = Track::new(TrackId::DERIVED, sound(), Timescale::MILLISECONDS);
    mute.put(Track { origin: media::Origin::StandIn { from: TrackId::VIDEO }, ..silence });
    // Audio that nothing here converts to Opus still counts as audio that the stream has.
    let surround = CodecConfig::Ac3(media::codec::ac3::Config);
    for (tracks, young, seasoned) in [
        (&both, &[][..], &[][..]),
        (&pictures, &[TrackKind::Audio], &[TrackKind::Audio]),
        (&mute, &[TrackKind::Audio], &[TrackKind::Audio]),
        (&sounds, &[TrackKind::Video], &[]),
        (&of_track(TrackId::AUDIO, surround), &[TrackKind::Video], &[]),
    ] {
        assert_eq!((to_come(tracks, false), to_come(tracks, true)), (young, seasoned), "{tracks:?}");
    }
}

/// A section of as many formats as there are payload types, each in this form.
fn crowded(rtpmap: &str, fmtp: impl Fn(u8) -> String) -> Media {
    let types: Vec<String> = (0..128u8).map(|number| number.to_string()).collect();
    let mut text = format!("v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF {}\r\n", types.join(" "));
    for number in 0..128u8 {
        text.push_str(&format!("a=rtpmap:{number} {rtpmap}\r\na=rtcp-fb:* a{number}\r\n"));
        text.push_str(&format!("a=fmtp:{number} {}\r\n", fmtp(number)));
    }
    Description::read(text.as_bytes()).unwrap().media.remove(0)
}

#[test]
fn w_16_a_codec_is_considered_once_and_in_so_many_forms() {
    let sections = [
        (crowded("opus/9", |_| "a=1".to_owned()), Codec::Opus),
        (
            crowded("H264/90000", |n| format!("packetization-mode=1;profile-level-id=58{n:02x}1f")),
            Codec::H264,
        ),
        (crowded("H265/90000", |n| format!("profile-id={}", 3 + n)), Codec::H265),
    ];
    for (media, codec) in sections {
        let offered: Vec<Format> = media.rtp_formats().collect();
        assert_eq!((offered.len(), codecs_of(&offered)), (128, vec![codec]));
        assert!(offered.iter().all(|format| format.feedback.len() <= sdp::limits::FEEDBACK_MAX));
        assert!(mirrored(&offered, codec).count() <= MIRRORED_MAX);
        assert_eq!(take(&media, Codecs::ALL).is_some(), codec != Codec::Opus, "{codec:?}");
    }
}
