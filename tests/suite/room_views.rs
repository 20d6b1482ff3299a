//! Tests rooms over protocols that show one stream. Viewers such as ffmpeg get a stream of the room, and the next
//! stream after it ends.

use std::path::Path;
use std::process::Command;

use media::codec::Codec;
use rtmp::{MediaKind, MediaMessage};

use crate::publish_play::{assert_track_equal, is_broadcasting};
use crate::support::{
    Packet, Program, RtcClient, RtmpPeer, Server, coded_file, ffmpeg9, frame_md5, frame_md5_by, media_file,
    run, secs, source_packets, unit_md5, wait_for,
};

const BASELINE: [&str; 6] = ["-c:v", "libx264", "-profile:v", "baseline", "-c:a", "aac"];

fn publish(server: &Server, id: &str, file: &Path) -> Program {
    let program = Program::ffmpeg_publish(file, &server.rtmp_url(&format!("live/{id}?mainTrack=room")));
    wait_for(id, secs(20), || is_broadcasting(server, id));
    program
}

/// Checks that most pictures that were played are pictures of the file.
fn assert_pictures_of(file: &[Packet], played: &[Packet], what: &str) {
    assert_units_of((0, file), (0, played), what);
}

/// Checks that the units of a track are units of a track of the file.
fn assert_units_of((track, file): (u32, &[Packet]), (played_as, played): (u32, &[Packet]), what: &str) {
    let of = |packets: &[Packet], track: u32| {
        packets.iter().filter(|packet| packet.0 == track).map(|one| one.4.clone()).collect::<Vec<_>>()
    };
    let (source, played) = (of(file, track), of(played, played_as));
    let known = played.iter().filter(|hash| source.contains(hash)).count();
    assert!(known > 40 && known == played.len(), "{what}: {known} of {} units", played.len());
}

#[test]
fn a_room_is_played_over_every_protocol() {
    let server = Server::start(&["server.workers=2", "app.hlsTime=1"]);
    let file = media_file(false, 30);
    let _ann = publish(&server, "ann", &file);
    let _ben = publish(&server, "ben", &coded_file("room-ben", &BASELINE));
    let (whole, slices) = (source_packets(&file), unit_md5(file.to_str().unwrap(), None));
    std::thread::scope(|scope| {
        let packets = [server.rtmp_url("live/room"), format!("http://{}/live/room.flv", server.http)]
            .map(|url| scope.spawn(move || (frame_md5(&url, Some(3)), url)));
        let units = [
            format!("srt://{}?streamid=#!::r=live/room,m=request", server.srt.unwrap()),
            server.rtsp_url("live/room"),
            format!("http://{}/live/streams/room.m3u8", server.http),
        ]
        .map(|url| scope.spawn(move || (unit_md5(&url, Some(3)), url)));
        for viewer in packets {
            let (played, _) = viewer.join().unwrap();
            assert_track_equal((0, &whole), (0, &played));
            assert_track_equal((1, &whole), (1, &played));
        }
        for viewer in units {
            let (played, url) = viewer.join().unwrap();
            assert_pictures_of(&slices, &played, &url);
        }
    });
    let pictures = RtcClient::hear(&server, "room", &[Codec::H264], 30);
    assert!(pictures[0].len() >= 30);
    // All viewers share one view, and are counted in the room's record.
    assert_eq!(server.log().matches("room view requested").count(), 1, "{}", server.log());
    wait_for("the viewer by HLS to be counted", secs(10), || {
        server.api().broadcast("live", "room").is_some_and(|room| room["hlsViewerCount"] == 1)
    });
}

#[test]
fn a_viewer_stays_when_who_it_sees_leaves_the_room() {
    let server = Server::start(&["server.workers=2", "app.publisherGraceMs=0"]);
    let ann = publish(&server, "ann", &media_file(false, 30));
    let _ben = publish(&server, "ben", &coded_file("room-ben", &BASELINE));
    let mut viewer = RtmpPeer::play(server.rtmp, "live", "room").unwrap();
    let (mut ann, mut videos) = (Some(ann), Vec::<MediaMessage>::new());
    let is_set = |message: &MediaMessage| message.payload.starts_with(&[0x17, 0]);
    // Reads 30 pictures of Ann's stream, ends that stream, then reads 30 pictures of Ben's.
    loop {
        let message = viewer.next_media(secs(20)).unwrap();
        if message.kind == MediaKind::Video {
            videos.push(message);
        }
        let sets = videos.iter().filter(|message| is_set(message)).count();
        let newest = videos.iter().rev().take_while(|message| !is_set(message)).count();
        if sets == 1 && newest >= 30 {
            drop(ann.take());
        } else if sets == 2 && newest >= 30 {
            break;
        }
    }
    let (sets, pictures): (Vec<_>, Vec<_>) = videos.iter().partition(|message| is_set(message));
    assert_ne!(sets[0].payload, sets[1].payload, "the parameter sets of two encoders");
    let cut = videos.iter().rposition(is_set).unwrap();
    assert_eq!(videos[cut + 1].payload[..2], [0x17, 1], "the second begins at a key frame");
    assert!(pictures.is_sorted_by(|one, next| one.timestamp < next.timestamp), "on one clock");
    assert_eq!(server.api().broadcast("live", "room").unwrap()["status"], "broadcasting");
}

/// Returns the names of the programs that a player is shown, by number.
fn program_names(url: &str) -> Vec<String> {
    let mut probe = Command::new("ffprobe");
    probe.args([
        "-v",
        "error",
        "-probesize",
        "500000",
        "-show_entries",
        "program=program_id:program_tags=service_name",
    ]);
    let (status, out, err) = run(probe.args(["-of", "csv=p=0", url]));
    assert!(status.success(), "{err}");
    out.lines()
        .map(|line| line.trim_end_matches(','))
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn all_participants_are_tracks_where_the_format_has_several() {
    let server = Server::start(&["server.workers=2", "app.rooms.view=all", "app.publisherGraceMs=0"]);
    let files = [media_file(false, 30), coded_file("room-ben", &BASELINE)];
    let _ann = publish(&server, "ann", &files[0]);
    let ben = publish(&server, "ben", &files[1]);
    let srt = format!("srt://{}?streamid=#!::r=live/room,m=request", server.srt.unwrap());
    let rtmp = server.rtmp_url("live/room?tracks=all");
    let http = format!("http://{}/live/room.flv", server.http);
    // The view of all participants begins with its first viewer, who stays.
    let _watcher = RtmpPeer::play(server.rtmp, "live", "room").unwrap();
    wait_for("both participants", secs(20), || program_names(&srt).len() == 2);
    assert_eq!(program_names(&srt), ["1,ann", "2,ben"]);
    let paths = files.each_ref().map(|file| file.to_str().unwrap());
    let (slices, packets) = (paths.map(|path| unit_md5(path, None)), paths.map(|path| frame_md5(path, None)));
    std::thread::scope(|scope| {
        let units = [srt.clone(), server.rtsp_url("live/room")]
            .map(|url| scope.spawn(move || unit_md5(&url, Some(5))));
        let several = [rtmp, format!("{http}?tracks=all")]
            .map(|url| scope.spawn(move || frame_md5_by(&ffmpeg9(), &[], &url, Some(5))));
        let one = scope.spawn(|| frame_md5(&http, Some(3)));
        for (source, viewers) in [(&slices, units), (&packets, several)] {
            for viewer in viewers {
                let played = viewer.join().unwrap();
                // The videos come first: that of Ann, that of Ben, then the audio of both.
                for (member, source) in (0..).zip(source) {
                    assert_units_of((0, source), (member, &played), "video");
                    assert_units_of((1, source), (member + 2, &played), "audio");
                }
            }
        }
        let one = one.join().unwrap();
        assert_track_equal((0, &packets[0]), (0, &one));
        assert!(one.iter().all(|packet| packet.0 < 2), "players that ask for nothing get one participant");
    });
    drop(ben);
    wait_for("one participant", secs(20), || program_names(&srt) == ["1,ann"]);
    let _cat = publish(&server, "cat", &files[1]);
    wait_for("the next participant", secs(20), || program_names(&srt) == ["1,ann", "2,cat"]);
}
