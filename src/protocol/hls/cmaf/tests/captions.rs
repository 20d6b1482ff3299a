//! Closed captions within video, in lists and manifests.

use super::*;

/// A SEI with a control code of CC1 (A/53 part 4 §6.2.3).
const SEI: &[u8] = &[
    0, 0, 0, 18, 6, 4, 14, 0xb5, 0, 0x31, b'G', b'A', b'9', b'4', 3, 0x41, 0xff, 0xfc, 0x94, 0x20, 0xff, 0x80,
];

const DESCRIPTOR: &str = "<Accessibility schemeIdUri=\"urn:scte:dash:cc:cea-608:2015\" value=\"CC1=und\"/>";

#[test]
fn captions_are_declared_from_the_first_one_on() {
    let mut rig = Rig::new();
    let tracks = [(video(0), 0), (audio(), 0)];
    rig.pass(&tracks, 1, 0..9000);
    let master = |rig: &Rig| rig.text("ll-hls/cam/cam__master.m3u8").to_owned();
    assert!(!master(&rig).contains("CAPTIONS") && !rig.text("cam/cam.mpd").contains("Accessibility"));
    rig.before = Bytes::from_static(SEI);
    rig.pass(&tracks, 1, 9000..9040);
    rig.before = Bytes::new();
    rig.pass(&tracks, 1, 9040..14_000);
    let text = master(&rig);
    assert!(text.contains("INSTREAM-ID=\"CC1\"") && text.contains(",CLOSED-CAPTIONS=\"captions\""), "{text}");
    let text = rig.text("cam/cam.mpd");
    assert_eq!(text.matches(DESCRIPTOR).count(), 1, "the pictures have it: {text}");
}

#[test]
fn announced_captions_are_those_of_the_leading_video() {
    let mut rig = Rig::new();
    let announced =
        |n: u8, services: &[u8]| Track { captions: media::captions::Services::read(services), ..video(n) };
    let (lead, other) = (announced(0, b"\xe1eng\x81\x3f\xff"), announced(1, b"\xe1spa\x81\x3f\xff"));
    rig.pass(&[(lead, 0), (other, 0), (audio(), 0)], 1, 0..9000);
    let text = rig.text("ll-hls/cam/cam__master.m3u8");
    assert!(text.contains("NAME=\"eng (SERVICE1)\"") && !text.contains("spa ("), "{text}");
    let [(_, first), ..] = &*rig.sink.shown.captions.all() else { panic!("none are known") };
    assert_eq!(*first, Some("eng"), "also after a unit of the other video");
}

#[test]
fn a_setting_says_that_there_are_none() {
    let mut rig = Rig::with(&[("hls.captions", "none")]);
    rig.before = Bytes::from_static(SEI);
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..9000);
    let text = rig.text("ll-hls/cam/cam__master.m3u8");
    assert!(text.contains(",CLOSED-CAPTIONS=NONE") && !text.contains("INSTREAM-ID"), "{text}");
    assert!(!rig.text("cam/cam.mpd").contains("Accessibility"));
}
