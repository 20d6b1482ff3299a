//! Languages of audio tracks.

use super::*;

#[test]
fn languages_of_sounds_are_those_of_the_program_map_and_follow_it() {
    let number = |number| mpegts::StreamNumber { kind: Kind::Audio, number };
    let mut muxer = Muxer::new();
    let mut ingest = ingest();
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(4).unwrap()[..], b"tone"].concat();
    let mut told = Vec::new();
    for (n, second) in (0u64..).zip(["deu", "deu", "fra"]) {
        muxer.set_languages([(number(0), "eng"), (number(1), second)]);
        muxer.set_program([0, 1].map(|index| (number(index), StreamKind::AacAdts)));
        for index in [0, 1] {
            let pts = ZERO + n * 1920;
            let audio = Unit {
                kind: Kind::Audio,
                number: index,
                pts,
                dts: pts,
                random_access: true,
                payload: &[&frame],
            };
            ingest.handle(&muxer.write(&audio));
        }
        let languages =
            ingest.tracks().iter().map(|track| track.language.as_deref().unwrap_or("-").to_owned());
        told.push((languages.collect::<Vec<_>>().join(" "), ingest.tracks().epoch));
    }
    assert_eq!(
        told.iter().map(|(told, _)| told.as_str()).collect::<Vec<_>>(),
        ["eng deu", "eng deu", "eng fra"]
    );
    assert!(told[0].1 == told[1].1 && told[1].1 < told[2].1, "{told:?}");
    // The languages are also written to viewers.
    let tracks = Arc::clone(ingest.tracks());
    let mut packager = Packager::new(
        FormatKey { selection: Selection::ALL, ..FormatKey::new("ts", 0) },
        Some(Box::new(TsPackage::at_once())),
        &Arc::default(),
        0,
    );
    let bytes =
        package(&mut packager, &tracks, unit(TrackId::AUDIO, 0, 0, false, &Bytes::from_static(b"tone")));
    let mut demuxer = Demuxer::new();
    let mut input = &bytes[..];
    let Some(Event::Program(map)) = demuxer.read(&mut input) else { panic!() };
    let languages: Vec<_> = map.streams.iter().filter_map(|stream| map.language_of(stream.pid)).collect();
    assert_eq!(languages, ["eng", "fra"]);
}
