use super::*;
use crate::config::AppSettings;
use crate::mail::StreamId;

fn ingest() -> Ingest {
    Ingest::new(&Grant {
        stream: StreamId(1),
        position: media::Position::default(),
        epoch: 0,
        settings: Arc::new(AppSettings::defaults("live").unwrap()),
    })
}

fn config() -> Bytes {
    Bytes::from_static(b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68")
}

#[test]
fn frames_need_a_config_and_then_a_key_frame() {
    let mut ingest = ingest();
    let inter = Bytes::from_static(b"\x27\x01\0\0\x28\0\0\0\x01\x41");
    let key = Bytes::from_static(b"\x17\x01\0\0\x50\0\0\0\x01\x65");
    assert_eq!(ingest.video(0, &key), Outcome::Dropped);
    assert_eq!(ingest.video(0, &config()), Outcome::Taken);
    assert_eq!(ingest.video(10, &inter), Outcome::Dropped);
    let Outcome::Unit(unit) = ingest.video(20, &key) else { panic!() };
    assert_eq!((unit.dts, unit.pts, unit.key_frame, unit.config_epoch), (20, 100, true, 1));
    assert_eq!(unit.payload.as_ptr(), key[5..].as_ptr());
    let Outcome::Unit(unit) = ingest.video(53, &inter) else { panic!() };
    assert_eq!((unit.dts, unit.pts, unit.key_frame), (53, 93, false));
}

#[test]
fn m_20_bad_frames_are_dropped_and_foreign_codecs_named() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    for bad in [
        &b""[..],
        b"\x17",
        b"\x17\x01\0\0\0",
        b"\x17\x01\0\0\0\0\0\0\x09\x65",
        b"\x17\x01\x80\0\0\0\0\0\x01\x65",
    ] {
        assert_eq!(ingest.video(0, &Bytes::from_static(bad)), Outcome::Bad, "{bad:?}");
    }
    assert!(matches!(ingest.video(0, &Bytes::from_static(b"\x90hvc1")), Outcome::Unsupported(_)));
    assert!(matches!(ingest.audio(0, &Bytes::from_static(b"\x2fabc")), Outcome::Unsupported(_)));
    assert_eq!(ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11")), Outcome::Bad);
    assert_eq!(ingest.audio(0, &Bytes::from_static(b"\xaf\x01abc")), Outcome::Dropped);
    assert_eq!(ingest.audio(0, &Bytes::new()), Outcome::Taken);
}

#[test]
fn the_same_parameter_sets_again_are_no_new_epoch() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    assert_eq!(ingest.tracks().epoch, 2);
    ingest.video(0, &config());
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    assert_eq!(ingest.tracks().epoch, 2);
}
