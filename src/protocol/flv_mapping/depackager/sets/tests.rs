use bytes::BytesMut;

use super::*;

/// Sequence parameter set of 640 x 360 in the Baseline profile; then one in the High profile.
pub(in crate::protocol::flv_mapping) const SPS: &[u8] = &[
    0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00,
    0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48,
];
pub(in crate::protocol::flv_mapping) const SPS_HIGH: &[u8] = &[
    0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01,
    0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2d, 0x96,
];
pub(in crate::protocol::flv_mapping) const PPS: &[u8] = &[0x68, 0xcb, 0x83, 0xcb, 0x20];
const IDR: &[u8] = &[0x65, 0x88, 0x84, 0x21];
const INTER: &[u8] = &[0x41, 0x9a, 0x24, 0x6c];
const AUD: &[u8] = &[0x09, 0xf0];

pub(in crate::protocol::flv_mapping) fn with_lengths(nals: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::new();
    nals.iter().for_each(|nal| nal::put_with_length(nal, &mut out));
    out.freeze()
}

pub(in crate::protocol::flv_mapping) fn with_start_codes(code: &[u8], nals: &[&[u8]]) -> Bytes {
    nals.iter().flat_map(|nal| [code, nal].concat()).collect()
}

fn h264(sps: &[&[u8]], pps: &[&[u8]]) -> CodecConfig {
    CodecConfig::H264(h264::Config::of_sets(sps, pps).unwrap())
}

#[test]
fn start_codes_become_lengths_and_lengths_stay() {
    let nals = [AUD, SPS, PPS, IDR];
    for payload in [
        with_lengths(&nals),
        with_start_codes(&[0, 0, 0, 1], &nals),
        with_start_codes(&[0, 0, 1], &nals),
        with_start_codes(&[0, 0, 0, 0, 1], &nals),
    ] {
        let mut sets = ParameterSets::new(Codec::H264).unwrap();
        assert_eq!(sets.frame(payload.clone()).unwrap(), Some(with_lengths(&nals)), "{payload:x?}");
        assert_eq!(sets.new_config(), Some(h264(&[SPS], &[PPS])));
        assert_eq!(sets.new_config(), None, "once");
    }
    // A length of 1 is not taken for a start code as long as the lengths lead to the end.
    let one = Bytes::from_static(&[0, 0, 0, 1, 0x65]);
    let mut sets = ParameterSets::new(Codec::H264).unwrap();
    assert_eq!(sets.frame(one.clone()).unwrap(), Some(one.clone()));
    sets.frame(with_start_codes(&[0, 0, 0, 1], &[INTER])).unwrap();
    assert_eq!(sets.frame(one.clone()).unwrap(), Some(one), "the only NAL unit, and of one byte");
    // A start code of three bytes and a slice of 322 bytes: read as a length of 321, it also leads to the
    // end.
    let slice = [INTER, &[1; 318]].concat();
    assert_eq!(sets.frame(with_start_codes(&[0, 0, 1], &[&slice])).unwrap(), Some(with_lengths(&[&slice])));
    for bad in [&[0, 0, 0, 9, 0x65][..], &[0, 0], &[1, 2, 3], &[0, 1, 0x65]] {
        assert!(sets.frame(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn a_record_says_how_long_lengths_are() {
    let mut record = h264(&[SPS], &[PPS]).record().to_vec();
    record[4] = 0xfd;
    let config = CodecConfig::read(Codec::H264, record.into()).unwrap().unwrap();
    let mut sets = ParameterSets::new(Codec::H264).unwrap();
    sets.begin(&config);
    let frame = Bytes::from_static(&[0, 4, 0x41, 0x9a, 0x24, 0x6c]);
    assert_eq!(sets.frame(frame).unwrap(), Some(with_lengths(&[INTER])));
    assert_eq!(sets.frame(with_start_codes(&[0, 0, 0, 1], &[INTER])).unwrap(), Some(with_lengths(&[INTER])));
}

#[test]
fn sets_come_with_the_picture_before_it_or_each_on_its_own() {
    for frames in [&[&[SPS, PPS, IDR][..]][..], &[&[SPS, PPS], &[IDR]], &[&[PPS], &[SPS], &[AUD, IDR]]] {
        let mut sets = ParameterSets::new(Codec::H264).unwrap();
        for nals in frames {
            assert_eq!(sets.frame(with_lengths(nals)).unwrap().is_some(), nals.contains(&IDR));
        }
        assert_eq!(sets.new_config(), Some(h264(&[SPS], &[PPS])), "{frames:x?}");
    }
    let mut sets = ParameterSets::new(Codec::H264).unwrap();
    sets.frame(with_lengths(&[SPS, IDR])).unwrap();
    assert_eq!(sets.new_config(), None, "a decoder needs both");
}

#[test]
fn only_sets_that_differ_make_a_configuration() {
    // A picture parameter set with the id 1, and a sequence parameter set with the id 1.
    let (pps_1, sps_1): (&[u8], Vec<u8>) =
        (&[0x68, 0x4b, 0x83, 0xcb, 0x20], [&[0x67, 0x42, 0xc0, 0x1e, 0x4d][..], &SPS[5..]].concat());
    assert_eq!((h264::set_id(pps_1), h264::set_id(&sps_1)), (Ok(1), Ok(1)));
    for (nals, config) in [
        (&[SPS, PPS, IDR][..], None),
        (&[PPS, IDR], None),
        (&[INTER], None),
        (&[SPS_HIGH, PPS, IDR], Some(h264(&[SPS_HIGH], &[PPS]))),
        (&[pps_1, IDR], Some(h264(&[SPS], &[PPS, pps_1]))),
        // A new sequence parameter set removes all others that are not in the same frame.
        (&[&sps_1[..], PPS, IDR], Some(h264(&[&sps_1], &[PPS]))),
        (&[SPS, &sps_1, PPS, IDR], Some(h264(&[SPS, &sps_1], &[PPS]))),
    ] {
        let mut sets = ParameterSets::new(Codec::H264).unwrap();
        sets.begin(&h264(&[SPS], &[PPS]));
        sets.frame(with_lengths(nals)).unwrap();
        assert_eq!(sets.new_config(), config, "{nals:x?}");
    }
}

#[test]
fn m_20_more_than_a_record_can_hold_is_forgotten() {
    let mut sets = ParameterSets::new(Codec::H264).unwrap();
    let large = [SPS, &[1; SETS_BYTES_MAX]].concat();
    sets.frame(with_lengths(&[&large, PPS, IDR])).unwrap();
    assert_eq!((sets.new_config(), sets.sets.len()), (None, 0));
    sets.frame(with_lengths(&[SPS, PPS, IDR])).unwrap();
    assert_eq!(sets.new_config(), Some(h264(&[SPS], &[PPS])));
}

#[test]
fn sets_of_h265_are_of_three_kinds() {
    let record = include_bytes!("../../../../../fuzz/corpus/hevc_config/x265_320x180");
    let config = h265::Config::read(Bytes::from_static(record)).unwrap();
    let picture: &[u8] = &[0x26, 0x01, 0xaf];
    let nals: Vec<&[u8]> = config.parameter_sets().chain([picture]).collect();
    for payload in [with_lengths(&nals), with_start_codes(&[0, 0, 0, 1], &nals)] {
        let mut sets = ParameterSets::new(Codec::H265).unwrap();
        assert_eq!(sets.frame(payload).unwrap(), Some(with_lengths(&nals)));
        let Some(CodecConfig::H265(made)) = sets.new_config() else { panic!() };
        assert_eq!(made.size, Some((320, 180)));
        assert_eq!(
            made.parameter_sets().collect::<Vec<_>>(),
            config.parameter_sets().take(3).collect::<Vec<_>>()
        );
    }
}
