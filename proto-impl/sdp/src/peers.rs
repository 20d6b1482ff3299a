//! Tests with descriptions of real peers, and of properties that all descriptions have.

use proptest::prelude::*;

use crate::*;

pub(crate) const CHROMIUM: &str = include_str!("../vectors/chromium.sdp");
pub(crate) const GSTREAMER: &str = include_str!("../vectors/gstreamer.sdp");
const FIREFOX: &str = include_str!("../vectors/firefox.sdp");
const SAFARI: &str = include_str!("../vectors/safari_simulcast.sdp");
pub(crate) const OBS: &str = include_str!("../vectors/obs.sdp");
const FFMPEG: &str = include_str!("../vectors/ffmpeg_whip.sdp");
const AIORTC: &str = include_str!("../vectors/aiortc.sdp");
const ANNOUNCE: &str = include_str!("../vectors/ffmpeg_announce.sdp");
const CAMERA: &str = include_str!("../vectors/camera_h265.sdp");

/// Offers of publishers, by name.
pub(crate) const WEBRTC: [(&str, &str); 7] = [
    ("chromium", CHROMIUM),
    ("firefox", FIREFOX),
    ("safari", SAFARI),
    ("obs", OBS),
    ("gstreamer", GSTREAMER),
    ("ffmpeg", FFMPEG),
    ("aiortc", AIORTC),
];
const RTSP: [(&str, &str); 2] = [("ffmpeg", ANNOUNCE), ("camera", CAMERA)];

fn read(text: &str) -> Description {
    Description::read(text.as_bytes()).unwrap()
}

#[test]
fn all_of_them_read_what_they_write() {
    for (name, text) in WEBRTC.into_iter().chain(RTSP) {
        let description = read(text);
        assert_eq!(read(&description.write()), description, "{name}");
        let unix = text.replace("\r\n", "\n");
        assert_eq!(read(&unix), description, "{name}");
    }
}

#[test]
fn what_is_read_is_written_as_it_came() {
    // Both descriptions have their lines in the order in which this crate writes them, and no line that it
    // ignores. Only the upper case of a transport name is lost.
    for text in [CHROMIUM, OBS] {
        assert_eq!(read(text).write(), text.replace(" 1 UDP ", " 1 udp "));
    }
}

#[test]
fn every_publisher_has_a_transport() {
    for (name, text) in WEBRTC {
        let offer = read(text);
        let bundle = offer.bundle().unwrap();
        assert_eq!(bundle.mids.len(), offer.media.len(), "{name}");
        for media in &offer.media {
            assert!(!media.is_rejected(), "{name}");
            let transport = offer.transport(media);
            let complete = transport.ufrag.is_some() && transport.pwd.is_some() && transport.setup.is_some();
            assert!(complete, "{name}");
            let sha256 = |print: &&Fingerprint| print.hash() == HashFunction::Sha256;
            assert!(transport.fingerprints.into_iter().any(|print| sha256(&print)), "{name}");
        }
    }
}

#[test]
fn a_bundled_section_has_the_transport_of_the_first() {
    let mut offer = read(FFMPEG);
    let first = offer.media[0].attributes.ice_ufrag().map(str::to_owned);
    offer.media[1].attributes.retain(|attribute| {
        !matches!(attribute, Attribute::IceUfrag(_) | Attribute::IcePwd(_) | Attribute::Fingerprint(_))
    });
    let transport = offer.transport(&offer.media[1]);
    assert_eq!((transport.ufrag.map(str::to_owned), transport.fingerprints.len()), (first, 1));
    assert_eq!((transport.pwd.is_some(), transport.setup), (true, Some(Setup::Passive)));
}

#[test]
fn peers_have_their_ways() {
    let firefox = read(FIREFOX);
    let candidates: Vec<_> = firefox.media[0].attributes.candidates().collect();
    assert!(candidates.len() == 3 && candidates.iter().all(|candidate| candidate.host.is_mdns()));
    assert_eq!(candidates[1].tcp_kind, Some(TcpKind::Active));
    assert!(firefox.trickles(&firefox.media[1]));

    // libdatachannel separates the options with commas.
    let obs = read(OBS);
    assert!(obs.trickles(&obs.media[0]));

    let aiortc = read(AIORTC);
    assert_eq!(aiortc.transport(&aiortc.media[0]).fingerprints.len(), 3);

    let gstreamer = read(GSTREAMER);
    let audio = gstreamer.section("audio1").unwrap();
    assert!(audio.port == 0 && !audio.is_rejected());
    assert!(audio.rtp_formats().next().unwrap().rtpmap.is("opus"));

    let safari = read(SAFARI);
    assert_eq!(safari.media[1].attributes.simulcast().unwrap().send.len(), 3);
    assert_eq!(safari.media[1].attributes.rids().count(), 3);

    let chromium = read(CHROMIUM);
    assert_eq!(chromium.media[2].attributes.sctp_port(), Some(&5000));
    assert_eq!(chromium.media[1].attributes.ssrc_groups().next().unwrap().semantics, "FID");
}

#[test]
fn rtsp_has_parameter_sets_and_controls() {
    let announce = read(ANNOUNCE);
    let h264 = announce.media[0].rtp_formats().next().unwrap();
    assert_eq!(h264.parameters.h264_sets().unwrap().len(), 2);
    assert_eq!(h264.profile_level_id().unwrap().profile(), H264Profile::ConstrainedBaseline);
    let aac = announce.media[1].rtp_formats().next().unwrap();
    assert_eq!(aac.parameters.mpeg4_config().unwrap().unwrap(), [0x11, 0x90][..]);
    assert_eq!(announce.media[1].attributes.control(), Some("streamid=1"));
    assert_eq!(announce.media[0].bandwidths[0].value, 2500);

    let camera = read(CAMERA);
    let sets = camera.media[0].rtp_formats().next().unwrap().parameters.h265_sets().unwrap();
    assert_eq!((sets.vps[0][0], sets.sps[0][0], sets.pps[0][0]), (0x40, 0x42, 0x44));
    assert_eq!(camera.attributes.range(), Some("npt=now-"));
    assert_eq!(camera.media[0].attributes.framerate(), Some(&25.0));
    assert_eq!(camera.connection(&camera.media[0]).unwrap().ttl, Some(64));
    assert!(camera.media[1].rtp_formats().next().unwrap().rtpmap.is("PCMA"));
}

#[test]
fn a_line_break_in_a_value_stays_within_its_line() {
    let name = "a\r\na=ice-lite".to_owned();
    let description = Description { name, ..Description::default() };
    assert!(!read(&description.write()).is_ice_lite());
}

fn attribute() -> impl Strategy<Value = Attribute> {
    let word = "[a-zA-Z0-9-]{1,12}";
    let payload_type = (0u8..128).prop_map(|number| PayloadType::new(number).unwrap());
    let parameters = proptest::collection::vec((word, "[ -:<-~&&[^;]]{0,9}"), 0..5).prop_map(|list| {
        list.into_iter().fold(Parameters::new(), |all, (name, value)| all.with(&name, value.trim()))
    });
    let direction = prop_oneof![Just(Direction::SendRecv), Just(Direction::Inactive)];
    prop_oneof![
        (payload_type.clone(), parameters.clone())
            .prop_map(|(payload_type, parameters)| Attribute::Fmtp(Fmtp { payload_type, parameters })),
        (1u16..5000, proptest::option::of(direction.clone()), word).prop_map(|(id, direction, uri)| {
            Attribute::Extmap(Extmap { id, direction, uri, attributes: None })
        }),
        direction.prop_map(Attribute::Direction),
        (any::<u32>(), word, proptest::option::of("[ -~]{0,9}x"))
            .prop_map(|(ssrc, name, value)| Attribute::Ssrc(SsrcAttribute { ssrc, name, value })),
        ("[a-z]{4,40}").prop_map(|text| Attribute::other(&format!("x-{text}"), Some(&text))),
        proptest::collection::vec(any::<u8>(), 32).prop_map(|bytes| {
            Attribute::Fingerprint(Fingerprint::new(HashFunction::Sha256, bytes.into()).unwrap())
        }),
        (word, any::<u32>(), any::<std::net::IpAddr>(), any::<u16>()).prop_map(
            |(foundation, priority, ip, port)| {
                let text = format!("{foundation} 1 udp {priority} {ip} {port} typ host generation 0");
                Attribute::Candidate(Box::new(Candidate::read(&text).unwrap()))
            }
        ),
        (word, payload_type, parameters).prop_map(|(id, payload_type, restrictions)| {
            let (direction, payload_types) = (RidDirection::Send, vec![payload_type]);
            Attribute::Rid(Rid { id, direction, payload_types, restrictions })
        }),
    ]
}

proptest! {
    #[test]
    fn descriptions_read_what_they_write(
        name in "[!-~][ -~]{0,8}[!-,.-~]",
        session in proptest::collection::vec(attribute(), 0..8),
        sections in proptest::collection::vec(proptest::collection::vec(attribute(), 0..12), 0..4),
    ) {
        let mut description = Description { name, attributes: session.into_iter().collect(), ..Description::default() };
        for attributes in sections {
            let formats = Formats::Rtp(vec![PayloadType::new(96).unwrap()]);
            let mut media = Media::new(MediaKind::Video, 9, "RTP/AVP", formats);
            media.attributes.extend(attributes);
            description.media.push(media);
        }
        prop_assert_eq!(Description::read(description.write().as_bytes()), Ok(description));
    }

    #[test]
    fn no_bytes_are_too_odd(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (Description::read(&bytes), Description::read_streams(&bytes));
        bytes.splice(0..0, *b"v=0\na=");
        let _ = Description::read(&bytes);
    }

    #[test]
    fn a_damaged_description_is_refused_or_has_one_text(
        which in 0..WEBRTC.len(), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = WEBRTC[which].1.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Description::read(&bytes) {
            let text = read.write();
            prop_assert_eq!(Description::read(text.as_bytes()).map(|again| again.write()), Ok(text));
        }
    }
}
