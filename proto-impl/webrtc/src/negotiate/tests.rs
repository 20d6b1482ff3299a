//! Tests with offers of real peers, answers to them, and refused offers.

use crypto::Seed;
use media::codec::Codec;
use rtp::extension::Extension;
use sdp::Feedback;

use super::*;

const CHROMIUM: &str = include_str!("../../../sdp/vectors/chromium.sdp");
const FIREFOX: &str = include_str!("../../../sdp/vectors/firefox.sdp");
const SAFARI: &str = include_str!("../../../sdp/vectors/safari_simulcast.sdp");
const OBS: &str = include_str!("../../../sdp/vectors/obs.sdp");
const GSTREAMER: &str = include_str!("../../../sdp/vectors/gstreamer.sdp");
const FFMPEG: &str = include_str!("../../../sdp/vectors/ffmpeg_whip.sdp");
const AIORTC: &str = include_str!("../../../sdp/vectors/aiortc.sdp");

const PUBLISHERS: [(&str, &str); 7] = [
    ("chromium", CHROMIUM),
    ("firefox", FIREFOX),
    ("safari", SAFARI),
    ("obs", OBS),
    ("gstreamer", GSTREAMER),
    ("ffmpeg", FFMPEG),
    ("aiortc", AIORTC),
];

/// A side of a session, with the parts of its description that do not depend on media.
struct Side {
    credentials: ice::Credentials,
    fingerprint: Fingerprint,
    candidates: Vec<ice::Candidate>,
    random: crypto::Random,
    is_lite: bool,
    sctp: sctp::Config,
    spatial_layers: bool,
}

impl Side {
    fn new(number: u64, is_lite: bool) -> Self {
        let seed = Seed::from_number(number);
        let address = SocketAddr::from(([192, 0, 2, 1], 8000));
        Self {
            credentials: ice::Credentials::random(&seed),
            fingerprint: Fingerprint::new(sdp::HashFunction::Sha256, vec![7; 32].into()).unwrap(),
            candidates: vec![ice::Candidate::host(ice::Transport::Udp, address, 65_535)],
            random: seed.random(),
            is_lite,
            sctp: sctp::Config::default(),
            spatial_layers: false,
        }
    }

    fn local(&mut self) -> Local<'_> {
        Local {
            credentials: &self.credentials,
            fingerprint: &self.fingerprint,
            candidates: &self.candidates,
            is_lite: self.is_lite,
            origin: (1, 1),
            cname: "cname",
            data: Some(&self.sctp),
            takes_changes: false,
            audio_levels: false,
            spatial_layers: self.spatial_layers,
            known: &[],
            random: &mut self.random,
        }
    }
}

fn read(text: &str) -> Description {
    Description::read(text.as_bytes()).unwrap()
}

fn formats(codecs: &[Codec]) -> Vec<Format> {
    (0u8..).zip(codecs).flat_map(|(n, &codec)| offered_formats(codec, 96 + n * 5)).collect()
}

/// A server's preference for a publisher.
fn receive(media: &Media) -> MediaPreference {
    let codecs: &[Codec] = if media.kind == MediaKind::Audio {
        &[Codec::Opus, Codec::G711(media::codec::g711::Law::A)]
    } else {
        &[Codec::H264, Codec::Vp8, Codec::Vp9, Codec::Av1]
    };
    MediaPreference { direction: Direction::RecvOnly, formats: formats(codecs), msid: None }
}

fn answer_to(offer: &Description) -> Result<(Description, Negotiated), Error> {
    answer(offer, |_, media| Some(receive(media)), false, &mut Side::new(1, true).local())
}

#[test]
fn every_publisher_is_answered() {
    for (name, text) in PUBLISHERS {
        let offer = read(text);
        let (answer, negotiated) = answer_to(&offer).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(offer.check_answer(&answer), Ok(()), "{name}");
        assert_eq!(read(&answer.write()), answer, "{name}");
        assert!(answer.is_ice_lite() && answer.media[0].attributes.candidates().count() == 1, "{name}");
        for (media, section) in answer.media.iter().zip(&negotiated.sections) {
            assert_eq!(section.direction, Direction::RecvOnly, "{name}");
            assert_eq!(answer.direction(media), Direction::RecvOnly, "{name}");
            assert!(section.local_source.is_none() && !section.formats.is_empty(), "{name}");
            assert!(media.attributes.setup().is_some(), "{name}");
        }
        let video = negotiated.sections.iter().find(|section| section.kind == MediaKind::Video).unwrap();
        assert!(
            video
                .formats
                .iter()
                .any(|format| format.local.rtpmap.is("H264") || format.local.rtpmap.is("VP8"))
        );
        // The side that writes `passive` is the DTLS server.
        let passive = offer.transport(&offer.media[0]).setup == Some(Setup::Passive);
        assert_eq!(negotiated.dtls_client, passive, "{name}");
    }
}

#[test]
fn descriptors_of_frames_are_taken_where_spatial_layers_of_vp9_are() {
    let answered = |codecs: &[Codec], spatial_layers| {
        let mut side = Side::new(1, true);
        side.spatial_layers = spatial_layers;
        let preference = |media: &Media| {
            let codecs = if media.kind == MediaKind::Video { codecs } else { &[Codec::Opus] };
            MediaPreference { direction: Direction::RecvOnly, formats: formats(codecs), msid: None }
        };
        let mut offer = read(CHROMIUM);
        let uri = rtp::extension::Extension::DependencyDescriptor.uri().to_owned();
        let extmap = sdp::Extmap { id: 15, direction: None, uri, attributes: None };
        offer.media.iter_mut().for_each(|media| media.attributes.push(Attribute::Extmap(extmap.clone())));
        let answered = answer(&offer, |_, media| Some(preference(media)), false, &mut side.local());
        let sections = answered.unwrap().1.sections;
        let video = sections.iter().find(|section| section.kind == MediaKind::Video).unwrap();
        video.extensions.id(rtp::extension::Extension::DependencyDescriptor).is_some()
    };
    assert!(answered(&[Codec::Vp9], true));
    assert!(!answered(&[Codec::Vp9], false));
    for other in [Codec::Vp8, Codec::H264, Codec::Av1] {
        assert!(!answered(&[other], true), "{other}");
    }
}

#[test]
fn a_browser_gets_repair_feedback_and_extensions() {
    let (_, negotiated) = answer_to(&read(CHROMIUM)).unwrap();
    let video = negotiated.sections.iter().find(|section| section.kind == MediaKind::Video).unwrap();
    let h264 = video.formats.iter().find(|format| format.local.rtpmap.is("H264")).unwrap();
    assert!(h264.rtx.is_some());
    for feedback in [Feedback::Nack, Feedback::Pli, Feedback::TransportCc] {
        assert!(h264.has_feedback(&feedback), "{feedback}");
    }
    assert!(video.extensions.id(Extension::Mid).is_some());
    assert!(video.extensions.id(Extension::TransportCc).is_some());
}

#[test]
fn all_layers_of_a_simulcast_are_taken() {
    let offer = read(SAFARI);
    let (answer, negotiated) = answer_to(&offer).unwrap();
    let video = negotiated.sections.iter().find(|section| section.kind == MediaKind::Video).unwrap();
    let offered: Vec<&str> = offer.media[1].attributes.rids().map(|rid| rid.id.as_str()).collect();
    assert_eq!(
        (video.layers.len(), video.layers.clone()),
        (3, offered.iter().map(|rid| rid.to_string()).collect())
    );
    let media = answer.media.iter().find(|media| media.kind == MediaKind::Video).unwrap();
    assert_eq!(media.attributes.simulcast().unwrap().recv.len(), 3);
    assert_eq!(media.attributes.rids().count(), 3);
    assert!(video.extensions.id(Extension::Rid).is_some());
    assert_eq!(offer.check_answer(&answer), Ok(()));
}

#[test]
fn a_player_gets_what_is_sent() {
    // A player's offer is a publisher's with the directions reversed.
    let offer = read(&CHROMIUM.replace("a=sendonly", "a=recvonly").replace("a=sendrecv", "a=recvonly"));
    let msid = sdp::Msid { stream: "live".to_owned(), track: Some("video".to_owned()) };
    let preference = |media: &Media| {
        let codec = if media.kind == MediaKind::Video { Codec::H264 } else { Codec::Opus };
        MediaPreference {
            direction: Direction::SendOnly,
            formats: offered_formats(codec, 96),
            msid: Some(msid.clone()),
        }
    };
    let (answer, negotiated) =
        answer(&offer, |_, media| Some(preference(media)), false, &mut Side::new(1, true).local()).unwrap();
    for (media, section) in answer.media.iter().zip(&negotiated.sections) {
        assert_eq!(answer.direction(media), Direction::SendOnly);
        let source = section.local_source.unwrap();
        assert!(media.attributes.ssrcs().any(|line| line.ssrc == source.ssrc && line.name == "cname"));
        assert_eq!(media.attributes.msid(), Some(&msid));
        // Feedback about arrival times shows the capacity of the path. It needs a header extension that
        // changes with each packet, so lost packets must not be retransmitted unchanged.
        assert!(section.extensions.id(Extension::TransportCc).is_some());
        assert!(section.formats[0].has_free_heads());
        let red = section.formats[0].red;
        assert_eq!(red.is_some(), section.kind == MediaKind::Audio);
        let offered: Vec<Format> = media.rtp_formats().collect();
        assert_eq!(red, section.formats[0].local.red_in(&offered));
        if section.kind == MediaKind::Video {
            let rtx = source.rtx.unwrap();
            assert!(media.attributes.ssrc_groups().any(|group| group.ssrcs == [source.ssrc, rtx]));
        }
    }
}

/// Returns true if a section offers this feedback type.
fn names(media: &Media, feedback: &Feedback) -> bool {
    media.rtp_formats().any(|format| format.feedback.contains(feedback))
}

fn names_extension(media: &Media, extension: Extension) -> bool {
    media.attributes.extmaps().any(|map| map.uri == extension.uri())
}

/// A server's preference for a player.
fn send(media: &Media) -> MediaPreference {
    let codecs: &[Codec] = if media.kind == MediaKind::Audio { &[Codec::Opus] } else { &[Codec::H264] };
    let msid = sdp::Msid { stream: "live".to_owned(), track: None };
    MediaPreference { direction: Direction::SendOnly, formats: formats(codecs), msid: Some(msid) }
}

/// Checks that an answer accepts only offered features, that the peer can read it, and that its features are used.
#[test]
fn an_answer_promises_only_what_is_done() {
    type Change = fn(&str) -> String;
    let cases: [(&str, Change); 6] = [
        ("as it is", str::to_owned),
        ("no numbers of arrivals", |offer| offer.replace(Extension::TransportCc.uri(), "urn:other")),
        ("no feedback of arrivals", |offer| offer.replace(" transport-cc\r", " other\r")),
        ("no feedback alone", |offer| offer.replace("a=rtcp-rsize\r\n", "")),
        ("no mixed extensions", |offer| offer.replace("a=extmap-allow-mixed\r\n", "")),
        ("nothing again", |offer| offer.replace(" nack\r", " other\r")),
    ];
    for (peer, text) in PUBLISHERS {
        for plays in [false, true] {
            let text = if plays {
                text.replace("a=sendonly", "a=recvonly").replace("a=sendrecv", "a=recvonly")
            } else {
                text.to_owned()
            };
            for (case, change) in cases {
                let offer = read(&change(&text));
                let preference = if plays { send } else { receive };
                let side = &mut Side::new(1, true);
                let answered = answer(&offer, |_, media| Some(preference(media)), false, &mut side.local());
                let Ok((answer, negotiated)) = answered else { panic!("{peer}, {case}: {answered:?}") };
                let mixed =
                    |description: &Description| description.attributes.has(&Attribute::ExtmapAllowMixed);
                assert_eq!(mixed(&answer), mixed(&offer));
                let live = offer.media.iter().zip(&answer.media).filter(|(_, answer)| !answer.is_rejected());
                for ((offered, answered), section) in live.zip(&negotiated.sections) {
                    check_promises(offered, answered, section);
                    assert_eq!(section.direction.sends(), plays, "{peer}, {case}");
                }
            }
        }
    }
}

fn check_promises(offered: &Media, answered: &Media, section: &Section) {
    let arrivals = names_extension(answered, Extension::TransportCc);
    assert_eq!(names(answered, &Feedback::TransportCc), arrivals);
    assert_eq!(section.extensions.id(Extension::TransportCc).is_some(), arrivals);
    if section.direction.receives() {
        let both = names(offered, &Feedback::TransportCc) && names_extension(offered, Extension::TransportCc);
        assert_eq!(arrivals, both);
    }
    for map in answered.attributes.extmaps() {
        assert!(offered.attributes.extmaps().any(|other| (other.id, &other.uri) == (map.id, &map.uri)));
    }
    for format in answered.rtp_formats() {
        let of = offered.format(format.payload_type()).unwrap();
        assert!(format.feedback.iter().all(|feedback| of.feedback.contains(feedback)));
    }
    let alone = |media: &Media| media.attributes.has(&Attribute::RtcpRsize);
    assert_eq!((alone(answered), section.reduced_size), (alone(offered), alone(offered)));
    // Sources and streams are listed by the side that sends, and RTX sources by a side that retransmits with
    // RTX.
    let sends = section.direction.sends();
    assert_eq!((section.local_source.is_some(), answered.attributes.msid().is_some()), (sends, sends));
    let repairs = section.local_source.and_then(|source| source.rtx);
    let first = &section.formats[0];
    assert_eq!(repairs.is_some(), sends && first.rtx.is_some() && first.has_feedback(&Feedback::Nack));
    let sources = answered.attributes.ssrcs().filter(|line| line.name == "cname").count();
    assert_eq!(sources, usize::from(sends) + usize::from(repairs.is_some()));
    assert_eq!(answered.attributes.ssrc_groups().count(), usize::from(repairs.is_some()));
}

#[test]
fn an_offer_names_feedback_that_has_its_numbers() {
    for direction in [Direction::SendOnly, Direction::RecvOnly, Direction::SendRecv] {
        let preference = MediaPreference { direction, formats: formats(&[Codec::H264]), msid: None };
        let (description, _) = offer(
            &[(MediaKind::Video, preference)],
            &mut Offers::default(),
            &mut Side::new(1, false).local(),
        );
        let media = &description.media[0];
        let arrivals = names_extension(media, Extension::TransportCc);
        assert_eq!(names(media, &Feedback::TransportCc), arrivals, "{direction:?}");
        assert!(names(media, &Feedback::Nack) && (arrivals || !direction.receives()));
    }
}

#[test]
fn an_offer_of_ours_is_answered_by_ourselves() {
    let (mut ours, mut theirs) = (Side::new(1, false), Side::new(2, true));
    let preferences = [
        (
            MediaKind::Audio,
            MediaPreference {
                direction: Direction::SendOnly,
                formats: offered_formats(Codec::Opus, 110),
                msid: None,
            },
        ),
        (
            MediaKind::Video,
            MediaPreference {
                direction: Direction::SendRecv,
                formats: formats(&[Codec::Av1, Codec::H264]),
                msid: None,
            },
        ),
    ];
    let (description, sources) = offer(&preferences, &mut Offers::default(), &mut ours.local());
    let sent = read(&description.write());
    let (answered, there) =
        answer(&sent, |_, media| Some(receive(media)), false, &mut theirs.local()).unwrap();
    let here = accept_answer(&description, &sources, &read(&answered.write())).unwrap();
    assert!(here.dtls_client && !there.dtls_client && here.remote_is_lite && !there.remote_is_lite);
    assert_eq!(
        (here.remote.ufrag(), there.remote.ufrag()),
        (theirs.credentials.ufrag(), ours.credentials.ufrag())
    );
    assert_eq!(here.candidates.len(), 1);
    // On one transport, a payload type has a single meaning, and audio has no second source.
    let mut types: Vec<u8> =
        sent.media.iter().flat_map(Media::payload_types).map(|number| number.number()).collect();
    let count = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), count);
    assert!(here.sections[0].formats.iter().all(|format| format.rtx.is_none()));
    assert!(here.sections[1].formats.iter().all(|format| format.rtx.is_some()));
    for (here, there) in here.sections.iter().zip(&there.sections) {
        assert_eq!(here.direction, there.direction.reverse());
        assert_eq!(there.remote_sources, [here.local_source.unwrap()]);
        let numbers = |section: &Section| {
            let mut all: Vec<_> =
                section.formats.iter().map(|format| (format.payload_type(), format.rtx)).collect();
            all.sort_by_key(|(number, _)| number.number());
            all
        };
        assert_eq!(numbers(here), numbers(there));
        assert_eq!(here.extensions, there.extensions);
    }
}

/// Checks retransmission without RTX, with the original number and key. The header must be the original one, so
/// its only extension is the mid.
#[test]
fn packets_that_are_repeated_as_they_are_have_nothing_in_their_heads_but_the_name() {
    let offer = CHROMIUM.replace("a=sendonly", "a=recvonly").replace("a=sendrecv", "a=recvonly");
    let offer = read(&offer.replace(" rtx/90000", " other/90000"));
    let preference = |media: &Media| {
        let codec = if media.kind == MediaKind::Video { Codec::H264 } else { Codec::Opus };
        MediaPreference { direction: Direction::SendOnly, formats: offered_formats(codec, 96), msid: None }
    };
    let (_, negotiated) =
        answer(&offer, |_, media| Some(preference(media)), false, &mut Side::new(1, true).local()).unwrap();
    let video = negotiated.sections.iter().find(|section| section.kind == MediaKind::Video).unwrap();
    let agreed: Vec<Extension> =
        Extension::ALL.into_iter().filter(|one| video.extensions.id(*one).is_some()).collect();
    assert!(video.formats[0].rtx.is_none());
    assert_eq!(agreed, [Extension::Mid]);
}

/// Checks redundant audio from a publisher. libwebrtc sends redundant audio if that format comes first, and
/// does not retransmit audio.
#[test]
fn redundant_audio_is_taken_of_publishers() {
    let first = CHROMIUM.replacen("SAVPF 111 63", "SAVPF 63 111", 1);
    for offer in [CHROMIUM, &first] {
        let (answer, negotiated) = answer_to(&read(offer)).unwrap();
        let audio = answer.media.iter().find(|media| media.kind == MediaKind::Audio).unwrap();
        let listed: Vec<u8> = audio.payload_types().iter().map(|number| number.number()).collect();
        assert_eq!(listed[..2], [63, 111]);
        assert!(answer.write().contains("a=rtpmap:63 red/48000/2\r\na=fmtp:63 111/111\r\n"));
        let section = negotiated.sections.iter().find(|section| section.kind == MediaKind::Audio).unwrap();
        assert_eq!(section.formats[0].red, PayloadType::new(63));
    }
    let video = CHROMIUM.replace("a=rtpmap:118 red/90000", "a=rtpmap:118 red/90000\r\na=fmtp:118 109/109");
    let (_, negotiated) = answer_to(&read(&video)).unwrap();
    let video = negotiated.sections.iter().find(|section| section.kind == MediaKind::Video).unwrap();
    assert!(video.formats.iter().all(|format| format.red.is_none()));
}

/// Checks that viewers receive redundant audio if packets are not retransmitted.
#[test]
fn redundant_audio_is_for_viewers() {
    let (mut ours, mut theirs) = (Side::new(1, false), Side::new(2, true));
    let sends = MediaPreference {
        direction: Direction::SendOnly,
        formats: offered_formats(Codec::Opus, 96),
        msid: None,
    };
    let (description, sources) =
        offer(&[(MediaKind::Audio, sends)], &mut Offers::default(), &mut ours.local());
    // A browser accepts redundant audio, and then does not request lost audio packets.
    let taken: Vec<Format> = offered_formats(Codec::Opus, 96)
        .into_iter()
        .map(|format| Format { feedback: vec![Feedback::TransportCc], ..format })
        .collect();
    let sent = read(&description.write());
    let selected = sent.media[0].select(&taken);
    assert!(selected[0].red.is_some());
    let receives = MediaPreference { direction: Direction::RecvOnly, formats: taken, msid: None };
    let (mut answered, _) = answer(&sent, |_, _| Some(receives.clone()), false, &mut theirs.local()).unwrap();
    let with = accept_answer(&description, &sources, &answered).unwrap();
    assert_eq!(with.sections[0].formats[0].red, selected[0].red);
    // Another peer rejects redundant audio.
    if let sdp::Formats::Rtp(types) = &mut answered.media[0].formats {
        types.retain(|number| Some(*number) != selected[0].red);
    }
    let without = accept_answer(&description, &sources, &answered).unwrap();
    assert_eq!(without.sections[0].formats[0].red, None);
}

#[test]
fn a_section_of_data_channels_is_taken_beside_media() {
    let offer = read(CHROMIUM);
    let is_data = |media: &&Media| media.kind == MediaKind::Application;
    let (answer, negotiated) = answer_to(&offer).unwrap();
    let data = answer.media.iter().find(is_data).unwrap();
    assert_eq!(data.attributes.sctp_port(), Some(&5000));
    assert!(data.attributes.has(&Attribute::MaxMessageSize(262_144)) && data.attributes.setup().is_some());
    let mids = &answer.bundle().unwrap().mids;
    assert!(mids.iter().any(|mid| Some(mid.as_str()) == data.attributes.mid()), "{mids:?}");
    assert_eq!(negotiated.sections.len(), 2);
    assert_eq!(read(&answer.write()), answer);
    // If the section of data channels is the first, it carries the transport attributes.
    let mut first = offer.clone();
    first.media.rotate_right(1);
    let (answer, _) = answer_to(&first).unwrap();
    let candidates: Vec<usize> =
        answer.media.iter().map(|media| media.attributes.candidates().count()).collect();
    assert_eq!((candidates, answer.media[0].kind.clone()), (vec![1, 0, 0], MediaKind::Application));
    // Only one section for data channels is accepted, and it must be in the bundle.
    let mut two = offer.clone();
    two.media.push(offer.media.iter().find(is_data).unwrap().clone());
    let mut unbundled = offer.clone();
    let mids = offer.bundle().unwrap().mids[..2].to_vec();
    unbundled.attributes = sdp::Attributes::default();
    let group = sdp::Group { semantics: sdp::Semantics::Bundle, mids };
    unbundled.attributes.push(Attribute::Group(group));
    for (offer, taken) in [(two, 1), (unbundled, 0)] {
        let (answer, _) = answer_to(&offer).unwrap();
        let accepted = answer.media.iter().filter(is_data).filter(|media| !media.is_rejected()).count();
        assert_eq!(accepted, taken);
    }
}

/// D-02: Checks that an offer without a fingerprint, or with only a SHA-1 fingerprint, is refused, because
/// its peer could not be authenticated.
#[test]
fn d_02_an_offer_without_a_good_fingerprint_is_refused() {
    let keep = |text: &str, keep: &dyn Fn(&str) -> bool| {
        text.split_inclusive("\r\n").filter(|line| keep(line)).collect::<String>()
    };
    for (name, text) in PUBLISHERS {
        let none = keep(text, &|line| !line.starts_with("a=fingerprint"));
        assert_eq!(answer_to(&read(&none)).err(), Some(Error::NoFingerprint), "{name}");
        let digits = ["AA"; 20].join(":");
        let sha1 = none.replace("a=setup", &format!("a=fingerprint:sha-1 {digits}\r\na=setup"));
        assert_eq!(answer_to(&read(&sha1)).err(), Some(Error::NoFingerprint), "{name}");
    }
}

#[test]
fn what_cannot_be_carried_is_refused() {
    let offer = read(AIORTC);
    let change = |change: &dyn Fn(&mut Description)| {
        let mut offer = offer.clone();
        change(&mut offer);
        answer_to(&offer).err()
    };
    let without = |gone: fn(&Attribute) -> bool| {
        change(&|offer| {
            offer.attributes.retain(|attribute| !gone(attribute));
            offer.media.iter_mut().for_each(|media| media.attributes.retain(|attribute| !gone(attribute)));
        })
    };
    assert_eq!(change(&|_| {}), None);
    assert_eq!(without(|a| matches!(a, Attribute::RtcpMux)), Some(Error::NoRtcpMux));
    assert_eq!(without(|a| matches!(a, Attribute::IceUfrag(_))), Some(Error::NoIceCredentials));
    assert_eq!(without(|a| matches!(a, Attribute::Group(_))), Some(Error::NotBundled));
    let other_codecs = change(&|offer| {
        for media in &mut offer.media {
            media.attributes.retain(|attribute| !matches!(attribute, Attribute::Rtpmap(_)));
            media.formats = sdp::Formats::Rtp(PayloadType::new(100).into_iter().collect());
        }
    });
    assert_eq!(other_codecs, Some(Error::NothingInCommon));
    let hold = change(&|offer| {
        for media in &mut offer.media {
            media.attributes.retain(|attribute| !matches!(attribute, Attribute::Setup(_)));
            media.attributes.push(Attribute::Setup(Setup::HoldConn));
        }
    });
    assert_eq!(hold, Some(Error::NoDtlsRole));
    assert_eq!(change(&|offer| offer.media.clear()), Some(Error::NoMedia));
    assert_eq!(
        change(&|offer| offer.media.iter_mut().for_each(|media| media.protocol = "RTP/AVP".to_owned())),
        Some(Error::NoMedia)
    );
}

#[test]
fn candidates_keep_their_meaning() {
    let line = "candidate:1 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active";
    let read = read_candidate(&sdp::Candidate::read(line).unwrap()).unwrap();
    assert_eq!(read.transport, ice::Transport::Tcp(ice::TcpType::Active));
    let again = read_candidate(&describe_candidate(&read)).unwrap();
    assert_eq!(again, read);
    for ignored in [
        "candidate:1 2 udp 1 192.0.2.7 5000 typ host",
        "candidate:1 1 udp 1 4f2a.local 5000 typ host",
        "candidate:1 1 tcp 1 192.0.2.7 5000 typ host",
    ] {
        assert_eq!(read_candidate(&sdp::Candidate::read(ignored).unwrap()), None, "{ignored}");
    }
}
