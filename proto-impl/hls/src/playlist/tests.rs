//! Tests: playlists are read, invalid ones are refused, and a playlist that was written reads back the same.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limits::{PARTS_MAX, RENDITIONS_MAX, REPORTS_MAX, SEGMENTS_MAX, VARIANTS_MAX};

const LIVE: &str = "\u{feff}#EXTM3U\r\n#EXT-X-VERSION:6\r\n#EXT-X-TARGETDURATION:5.5\r\n#EXT-X-UNKNOWN:1\r\n\
    #EXT-X-MEDIA-SEQUENCE:7\r\n#EXT-X-DISCONTINUITY-SEQUENCE:2\r\n#EXT-X-INDEPENDENT-SEGMENTS\r\n\
    #EXT-X-PLAYLIST-TYPE:EVENT\r\n#EXT-X-KEY:URI=\"k\",IV=0x0A,METHOD=AES-128\r\n\
    #EXT-X-MAP:BYTERANGE=\"10\",URI=\"init.mp4\"\r\n# a comment\r\n#EXTINF:5.005,one, two\r\n\
    #EXT-X-BYTERANGE:100@10\r\na.mp4\r\n\r\n#EXT-X-KEY:METHOD=NONE\r\n#EXT-X-DISCONTINUITY\r\n\
    #EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00.5Z\r\n#EXTINF:4\r\n#EXT-X-BYTERANGE:50\r\na.mp4  \r\n\
    #EXT-X-GAP\r\n#EXTINF:4,\r\nb.mp4\r\n#EXT-X-ENDLIST";

const MASTER: &str = "#EXTM3U\n#EXT-X-VERSION:4\n#EXT-X-MEDIA:URI=\"a/p.m3u8\",TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"English\",\
    DEFAULT=YES,AUTOSELECT=YES,LANGUAGE=\"en\",CHANNELS=\"2\"\n#EXT-X-MEDIA:TYPE=HOLOGRAM,GROUP-ID=\"g\",NAME=\"x\"\n\
    #EXT-X-STREAM-INF:CODECS=\"avc1.64001f,mp4a.40.2\",BANDWIDTH=2000000,RESOLUTION=1280x720,FRAME-RATE=29.970,AUDIO=\"g\"\n\
    v/p.m3u8?x=1\n#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI=\"i\"\n#EXT-X-STREAM-INF:BANDWIDTH=1\n\nlow.m3u8\n";

fn media(text: &str) -> MediaPlaylist {
    match Playlist::read(text.as_bytes()) {
        Ok(Playlist::Media(playlist)) => playlist,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str) -> Error {
    Playlist::read(text.as_bytes()).expect_err(text)
}

#[test]
fn a_media_playlist_says_of_each_segment_what_holds_for_it() {
    let playlist = media(LIVE);
    assert_eq!((playlist.version, playlist.target_duration.as_secs(), playlist.media_sequence), (6, 6, 7));
    assert_eq!((playlist.discontinuity_sequence, playlist.kind), (2, Some(Kind::Event)));
    assert!(playlist.ended && playlist.independent_segments);
    let [one, two, three] = &playlist.segments[..] else { panic!("{playlist:?}") };
    assert_eq!((one.title.as_str(), one.duration), ("one, two", Duration::from_millis(5005)));
    assert_eq!(one.key.as_ref().unwrap().iv.unwrap()[15], 10);
    let map = one.map.as_ref().unwrap();
    assert_eq!(map.byte_range, Some(ByteRange { length: 10, offset: 0 }));
    assert_eq!(map.key, one.key);
    assert!(two.key.is_none() && two.discontinuity && two.map == one.map);
    assert_eq!(two.byte_range, Some(ByteRange { length: 50, offset: 110 }), "behind the one before");
    assert_eq!((two.uri.as_str(), two.program_date_time), ("a.mp4", Some(1_767_225_600_500)));
    assert!(three.gap && three.byte_range.is_none());
}

#[test]
fn a_multivariant_playlist_has_variants_and_renditions() {
    let Ok(Playlist::Multivariant(playlist)) = Playlist::read(MASTER.as_bytes()) else { panic!() };
    assert_eq!((playlist.variants.len(), playlist.renditions.len()), (2, 1));
    let variant = &playlist.variants[0];
    assert_eq!((variant.uri.as_str(), variant.bandwidth), ("v/p.m3u8?x=1", 2_000_000));
    assert_eq!(variant.frame_rate_milli, Some(29_970));
    assert_eq!(variant.resolution, Some(Resolution { width: 1280, height: 720 }));
    let audio = &playlist.renditions[0];
    assert!(audio.default && audio.uri.as_deref() == Some("a/p.m3u8") && audio.kind == RenditionKind::Audio);
}

#[test]
fn the_text_that_is_written_is_exact() {
    let mut playlist = media(LIVE);
    playlist.segments.truncate(2);
    assert_eq!(
        playlist.to_string(),
        "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-TARGETDURATION:6\n#EXT-X-MEDIA-SEQUENCE:7\n\
         #EXT-X-DISCONTINUITY-SEQUENCE:2\n#EXT-X-PLAYLIST-TYPE:EVENT\n\
         #EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x0000000000000000000000000000000a\n\
         #EXT-X-MAP:URI=\"init.mp4\",BYTERANGE=\"10@0\"\n#EXTINF:5.005,one, two\n#EXT-X-BYTERANGE:100@10\na.mp4\n\
         #EXT-X-DISCONTINUITY\n#EXT-X-KEY:METHOD=NONE\n#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00.500Z\n\
         #EXTINF:4.000,\n#EXT-X-BYTERANGE:50@110\na.mp4\n#EXT-X-ENDLIST\n"
    );
}

#[test]
fn what_is_no_playlist_is_refused() {
    for text in [
        "",
        "#EXTINF:1,\na\n",
        "#EXTM3UX\n#EXTINF:1,\na\n",
        "<html>",
        "#EXTM3U\n",
        "#EXTM3U\n#EXTINF:1,\na\n#EXT-X-STREAM-INF:BANDWIDTH=1\nb\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\na\n",
        "#EXTM3U\n#EXTINF:-1,\na\n",
        "#EXTM3U\n#EXTINF:1,\na\x01b\n",
        "#EXTM3U\n#EXTINF:1,\na\rb\n",
        "#EXTM3U\n#EXTINF:1,\n#EXT-X-BYTERANGE:5\na\n",
        "#EXTM3U\n#EXTINF:1,\n#EXT-X-BYTERANGE:0@5\na\n",
        "#EXTM3U\n#EXTINF:1,\n#EXT-X-BYTERANGE:2@18446744073709551615\na\n",
        "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128\n#EXTINF:1,\na\n",
        "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x00112233445566778899aabbccddeeff0\n#EXTINF:1,\na\n",
        "#EXTM3U\n#EXT-X-DEFINE:NAME=\"a\",VALUE=\"b\"\n#EXTINF:1,\na\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:CODECS=\"x\"\na\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n#EXT-X-STREAM-INF:BANDWIDTH=1\na\n",
    ] {
        refused(text);
    }
    assert!(Playlist::read(b"#EXTM3U\n#EXTINF:1,\n\xff\n").is_err());
}

#[test]
fn u_35_a_playlist_of_10_mb_and_lines_and_lists_without_end_are_refused() {
    let limit = |text: &str| match refused(text) {
        Error::Limit { limit, .. } => limit,
        other @ (Error::Violation { .. } | Error::Variables { .. }) => panic!("{other}"),
    };
    let segments = "#EXTM3U\n".to_owned() + &"#EXTINF:1,\na\n".repeat(800_000);
    assert!(segments.len() > 10_000_000);
    assert_eq!(limit(&segments), Limit::Bytes);
    assert_eq!(limit(&format!("#EXTM3U\n#EXTINF:1,\n{}\n", "a".repeat(LINE_BYTES_MAX + 1))), Limit::Line);
    let variants = |count| "#EXTM3U\n".to_owned() + &"#EXT-X-STREAM-INF:BANDWIDTH=1\na\n".repeat(count);
    assert!(Playlist::read(variants(VARIANTS_MAX).as_bytes()).is_ok());
    assert_eq!(limit(&variants(VARIANTS_MAX + 1)), Limit::Variants);
    let line = "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"n\"\n";
    let renditions = |count| "#EXTM3U\n".to_owned() + &line.repeat(count);
    assert!(Playlist::read(renditions(RENDITIONS_MAX).as_bytes()).is_ok());
    assert_eq!(limit(&renditions(RENDITIONS_MAX + 1)), Limit::Renditions);
}

#[test]
fn u_35_of_segments_without_end_the_last_ones_are_kept() {
    // The segments almost fill the largest playlist that is accepted.
    let count = (PLAYLIST_BYTES_MAX - 200) / "#EXTINF:1,\na\n".len();
    let mut text = "#EXTM3U\n#EXT-X-DISCONTINUITY\n".to_owned() + &"#EXTINF:1,\na\n".repeat(count);
    text += "#EXT-X-MEDIA-SEQUENCE:5\n#EXTINF:1,\nlast\n";
    let playlist = media(&text);
    assert!(count > 7 * SEGMENTS_MAX);
    assert_eq!(playlist.segments.len(), SEGMENTS_MAX);
    assert!(playlist.segments.capacity() <= 2 * SEGMENTS_MAX, "no more memory than for those");
    assert_eq!(playlist.segments.last().unwrap().uri, "last");
    assert_eq!(
        playlist.media_sequence,
        5 + (count + 1 - SEGMENTS_MAX) as u64,
        "numbers stay those of the server"
    );
    assert_eq!(playlist.discontinuity_sequence, 1);
}

#[test]
fn a_key_of_a_thousand_segments_is_held_once() {
    let text = format!("#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"{}\"\n", "k".repeat(10_000));
    let playlist = media(&(text + &"#EXTINF:1,\na\n".repeat(1000)));
    let first = playlist.segments[0].key.clone().unwrap();
    assert!(playlist.segments.iter().all(|segment| Arc::ptr_eq(segment.key.as_ref().unwrap(), &first)));
}

#[test]
fn of_two_key_formats_the_one_with_a_key_at_its_uri_counts() {
    let text = "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",\
        KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXTINF:1,\na\n#EXT-X-KEY:METHOD=NONE\n\
        #EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://x\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXTINF:1,\nb\n";
    let playlist = media(text);
    let methods: Vec<_> = playlist.segments.iter().map(|s| s.key.as_ref().unwrap().method.clone()).collect();
    assert_eq!(methods, [Method::Aes128, Method::SampleAes]);
    assert_eq!(media(&playlist.to_string()), playlist);
}

fn reads_the_same(bytes: &[u8]) {
    if let Ok(playlist) = Playlist::read(bytes) {
        assert_eq!(Playlist::read(playlist.to_string().as_bytes()), Ok(playlist));
    }
}

#[test]
fn no_truncation_and_no_flipped_bit_panics() {
    for text in [LIVE, MASTER] {
        for end in 0..text.len() {
            reads_the_same(&text.as_bytes()[..end]);
        }
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                reads_the_same(&bytes);
            }
        }
    }
}

/// Lines of a playlist in any order, well-formed or not.
fn lines_of_any_kind() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[a-z0-9./?=-]{1,12}",
        "#EXTINF:[0-9]{1,3}(\\.[0-9]{0,9})?(,[ -~]{0,8})?\n[a-c]{1,2}",
        "#EXTINF:[0-9],\n#EXT-X-BYTERANGE:[0-9]{1,3}(@[0-9]{1,3})?\n[ab]",
        "#EXT-X-KEY:METHOD=(NONE|AES-128|SAMPLE-AES|X),URI=\"[a-z]{1,2}\"(,KEYFORMAT=\"(identity|x|y)\")?(,IV=0x[0-9a-fA-F]{1,4})?",
        "#EXT-X-MAP:URI=\"[a-z]{0,2}\"(,BYTERANGE=\"[1-9]{1,2}(@[0-9])?\")?",
        "#EXT-X-(DISCONTINUITY|GAP|ENDLIST|INDEPENDENT-SEGMENTS)",
        "#EXT-X-(VERSION|TARGETDURATION|MEDIA-SEQUENCE|DISCONTINUITY-SEQUENCE):[0-9]{1,9}",
        "#EXT-X-PLAYLIST-TYPE:(VOD|EVENT)",
        "#EXT-X-PROGRAM-DATE-TIME:20[0-9]{2}-0[1-9]-[0-2][1-8]T[0-1][0-9]:[0-5][0-9]:[0-5][0-9]\\.[0-9]{3}(Z|[+-]0[0-9]:?30)",
    ];
    prop::collection::vec(line, 0..24)
        .prop_map(|lines| format!("#EXTM3U\n#EXT-X-TARGETDURATION:4\n{}", lines.join("\n")))
}

fn multivariant_lines() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "#EXT-X-STREAM-INF:BANDWIDTH=[0-9]{1,9}(,CODECS=\"[a-z0-9.,]{0,9}\")?(,RESOLUTION=[0-9]{1,4}x[0-9]{1,4})?(,FRAME-RATE=[0-9]{1,3}(\\.[0-9]{1,5})?)?(,AUDIO=\"[a-c]\")?\n[a-z/.]{1,9}",
        "#EXT-X-MEDIA:TYPE=(AUDIO|VIDEO|SUBTITLES|CLOSED-CAPTIONS|X),GROUP-ID=\"[ -!#-~]{0,5}\"(,NAME=\"é?[a-z]{0,3}\")?(,DEFAULT=(YES|NO))?(,URI=\"[a-z]{0,3}\")?",
        "#EXT-X-INDEPENDENT-SEGMENTS",
    ];
    prop::collection::vec(line, 1..16).prop_map(|lines| format!("#EXTM3U\n{}", lines.join("\n")))
}

proptest! {
    #[test]
    fn what_is_written_reads_the_same(media in lines_of_any_kind(), multivariant in multivariant_lines()) {
        reads_the_same(media.as_bytes());
        reads_the_same(multivariant.as_bytes());
    }
}

const LOW_LATENCY: &str = "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:10\n\
    #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,CAN-SKIP-UNTIL=12.000,PART-HOLD-BACK=1.500\n#EXT-X-PART-INF:PART-TARGET=0.500\n\
    #EXT-X-MAP:URI=\"i.mp4\"\n#EXTINF:2.000,\n10.m4s\n\
    #EXT-X-PART:DURATION=0.500,URI=\"11.0.m4s\",INDEPENDENT=YES\n#EXT-X-PART:DURATION=0.480,URI=\"11.1.m4s\"\n#EXTINF:0.980,\n11.m4s\n\
    #EXT-X-DISCONTINUITY\n#EXT-X-PART:DURATION=0.500,URI=\"12.0.m4s\",INDEPENDENT=YES\n\
    #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"12.1.m4s\"\n#EXT-X-RENDITION-REPORT:URI=\"a.m3u8\",LAST-MSN=12,LAST-PART=0\n";

#[test]
fn parts_come_before_their_segment_and_behind_the_last() {
    let playlist = media(LOW_LATENCY);
    assert_eq!(playlist.to_string(), LOW_LATENCY);
    let low = playlist.low_latency.as_ref().unwrap();
    assert_eq!((low.part_target.as_millis(), low.part_hold_back.as_millis()), (500, 1500));
    assert_eq!(
        (low.open.discontinuity, low.open.parts.len(), low.hint.as_deref()),
        (true, 1, Some("12.1.m4s"))
    );
    assert_eq!(low.reports, [Report { uri: "a.m3u8".into(), last_segment: 12, last_part: Some(0) }]);
    let parts: Vec<usize> = playlist.segments.iter().map(|segment| segment.parts.len()).collect();
    assert_eq!((parts, playlist.segments[1].parts[0].independent), (vec![0, 2], true));
}

#[test]
fn a_delta_leaves_out_what_is_far_from_the_end() {
    let mut playlist = media(LOW_LATENCY);
    assert_eq!(playlist.delta(), None, "all of it is near");
    let segment = playlist.segments[0].clone();
    playlist.segments.splice(0..0, vec![segment; 8]);
    // The last twelve seconds consist of the parts of 0.5 s and 0.98 s and of five segments of two
    // seconds.
    let delta = playlist.delta().unwrap();
    assert_eq!((delta.skipped, delta.segments.len(), delta.media_sequence), (4, 6, 10));
    let text = delta.to_string();
    assert!(text.contains("#EXT-X-SKIP:SKIPPED-SEGMENTS=4\n"), "{text}");
    assert_eq!(media(&text), delta);
    playlist.low_latency.as_mut().unwrap().skip_until = None;
    assert_eq!(playlist.delta(), None);
}

#[test]
fn parts_and_reports_are_capped() {
    let many = |tag: &str, count: usize| format!("{LOW_LATENCY}{}", format!("{tag}\n").repeat(count));
    let part = "#EXT-X-PART:DURATION=1,URI=\"p\"";
    assert!(Playlist::read(many(part, PARTS_MAX - 3).as_bytes()).is_ok());
    assert!(matches!(refused(&many(part, PARTS_MAX)), Error::Limit { limit: Limit::Parts, .. }));
    let report = "#EXT-X-RENDITION-REPORT:URI=\"a\"";
    assert!(matches!(refused(&many(report, REPORTS_MAX)), Error::Limit { limit: Limit::Reports, .. }));
}

#[test]
fn segments_written_in_pieces_are_those_of_the_whole() {
    let map = |uri: &str| Some(Arc::new(Map { uri: uri.to_owned(), byte_range: None, key: None }));
    let segment = |n: usize| Segment {
        uri: format!("{n}.m4s"),
        duration: Duration::from_millis(2000),
        discontinuity: n == 4,
        map: map(if n < 4 { "a.mp4" } else { "b.mp4" }),
        program_date_time: Some(1_700_000_000_000),
        gap: n == 2,
        ..Segment::default()
    };
    let segments: Vec<Segment> = (0..8).map(segment).collect();
    let head =
        MediaPlaylist { version: 8, target_duration: Duration::from_secs(2), ..MediaPlaylist::default() };
    let whole = MediaPlaylist { segments: segments.clone(), ..head.clone() }.to_string();
    for at in 0..=segments.len() {
        let (first, rest) = segments.split_at(at);
        let before = SegmentLines { behind: None, segments: first };
        let behind = SegmentLines { behind: first.last(), segments: rest };
        assert_eq!(format!("{head}{before}{behind}"), whole, "{at}");
    }
}
