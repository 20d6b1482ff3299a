//! Files of an application as stream sources and as items of playlists.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::publish_play::assert_track_within;
use crate::support::{Packet, Server, media_file, run, secs, unit_md5, wait_for};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn streams(server: &Server, app: &str) -> PathBuf {
    let folder = server.home().join("home/webapps").join(app).join("streams");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn create(server: &Server, id: &str, kind: &str, url: &str, query: &str) -> Value {
    let body = format!(r#"{{"streamId":"{id}","type":"{kind}","streamUrl":"{url}"}}"#);
    server.api().post(&format!("{BROADCASTS}/create{query}"), &body).json()
}

fn start(server: &Server, id: &str) -> Value {
    server.api().post(&format!("{BROADCASTS}/{id}/start"), "").json()
}

fn wait_for_status(server: &Server, id: &str, wanted: &str) {
    wait_for(&format!("{id} to be {wanted}"), secs(30), || {
        server.api().broadcast("live", id).unwrap()["status"] == wanted
    });
}

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y"]);
    command
}

#[test]
fn a_file_is_played_as_a_source_by_its_path_and_by_its_url() {
    let file = media_file(true, 40);
    let server = Server::start(&["server.workers=2"]);
    let source = unit_md5(file.to_str().unwrap(), None);
    let folder = streams(&server, "live").join("sub");
    std::fs::create_dir_all(&folder).unwrap();
    // Makes two files, one with the index before the media, and one with the index after the media.
    for (name, more) in [("front", &["-movflags", "faststart"][..]), ("behind", &[])] {
        let mut remux = ffmpeg();
        remux.arg("-i").arg(&file).args(["-c", "copy"]).args(more).arg(folder.join(format!("{name}.mp4")));
        assert!(run(&mut remux).0.success(), "{name}");
    }
    let own = format!("http://{}/live/streams/sub", server.http);
    for (id, url) in [
        ("path", "streams/sub/front.mp4".to_owned()),
        ("home", "/x/webapps/live/streams/sub/behind.mp4".to_owned()),
        ("url", format!("{own}/front.mp4")),
        ("https", format!("https://localhost:{}/live/streams/sub/behind.mp4", server.https.unwrap().port())),
    ] {
        let made = create(&server, id, "VoD", &url, "");
        assert_eq!(made["type"], "VoD", "{made}");
        let started = start(&server, id);
        assert_eq!(started["success"], true, "{started}");
        wait_for_status(&server, id, "broadcasting");
        let played = if id == "url" {
            unit_md5(&format!("http://{}/live/{id}.flv", server.http), Some(4))
        } else {
            unit_md5(&server.rtmp_url(&format!("live/{id}")), Some(4))
        };
        (0..2).for_each(|track| assert_track_within(2, (track, &source), (track, &played)));
        let stopped = server.api().post(&format!("{BROADCASTS}/{id}/stop"), "").json();
        assert_eq!(stopped["success"], true);
        wait_for_status(&server, id, "finished");
    }
}

/// Makes a file of four seconds, and returns its packets.
fn short(folder: &std::path::Path, name: &str, size: &str) -> Vec<Packet> {
    let path = folder.join(format!("{name}.mp4"));
    let mut make = ffmpeg();
    make.args(["-f", "lavfi", "-i"]).arg(format!("testsrc2=size={size}:rate=25"));
    make.args(["-f", "lavfi", "-i", "sine=sample_rate=48000", "-t", "4", "-pix_fmt", "yuv420p"]);
    make.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-c:a", "aac"]).arg(&path);
    assert!(run(&mut make).0.success(), "{name}");
    unit_md5(path.to_str().unwrap(), None)
}

#[test]
fn files_of_a_playlist_follow_each_other_and_the_list_ends() {
    let server = Server::start(&[]);
    let folder = streams(&server, "live");
    let items = [short(&folder, "a", "320x180"), short(&folder, "b", "640x360")];
    let url = format!("http://{}/live/streams/b.mp4", server.http);
    let list = ["streams/a.mp4", "streams/missing.mp4", &url]
        .map(|url| format!(r#"{{"streamUrl":"{url}","type":"VoD"}}"#));
    let body = format!(
        r#"{{"streamId":"p","type":"playlist","playListItemList":[{}],"playlistLoopEnabled":true}}"#,
        list.join(",")
    );
    server.api().post(&format!("{BROADCASTS}/create"), &body);
    let started = start(&server, "p");
    assert_eq!(started["success"], true, "{started}");
    wait_for_status(&server, "p", "broadcasting");
    // The list plays both files in real time, and then the first one again.
    let played = unit_md5(&server.rtmp_url("live/p"), Some(14));
    let times: Vec<i64> = played.iter().filter(|packet| packet.0 == 0).map(|packet| packet.1).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "one clock");
    let from = |item: &[Packet]| {
        let known: std::collections::BTreeSet<_> = item.iter().map(|packet| packet.4.clone()).collect();
        played.iter().filter(|packet| packet.0 == 0 && known.contains(&packet.4)).count()
    };
    let (first, second) = (from(&items[0]), from(&items[1]));
    assert!(first > 100 && second >= 99, "{first} of the first, {second} of the second");
    server.wait_for_line("there is no such file");
    let gone = server.log();
    let gone = gone.lines().find(|line| line.contains("there is no such file")).unwrap();
    assert!(gone.contains("streams/") && !gone.contains("***"), "{gone}");
    // Without looping, the list ends after its last item.
    let put = server.api().put(&format!("{BROADCASTS}/p"), r#"{"playlistLoopEnabled":false}"#);
    assert_eq!(put.json()["success"], true);
    wait_for("the end of the list", secs(20), || {
        let record = server.api().broadcast("live", "p").unwrap();
        record["playListStatus"] == "finished" && record["status"] == "finished"
    });
}

#[test]
fn u_30_no_path_leads_out_of_the_streams_of_the_application() {
    let server = Server::start(&[]);
    let (folder, other) = (streams(&server, "live"), streams(&server, "LiveApp"));
    short(&other, "secret", "320x180");
    let link = std::os::unix::fs::symlink::<PathBuf, PathBuf>;
    link(other.join("secret.mp4"), folder.join("link.mp4")).unwrap();
    link(other.clone(), folder.join("linked")).unwrap();
    std::fs::create_dir(folder.join("folder.mp4")).unwrap();
    std::fs::write(folder.join("text.mp4"), "not a film").unwrap();
    let own = format!("http://{}", server.http);
    // The API refuses these URLs without looking at the disk, because they name files outside of the application's
    // streams.
    for url in [
        "webapps/LiveApp/streams/secret.mp4".to_owned(),
        "streams/../../LiveApp/streams/secret.mp4".to_owned(),
        format!("{own}/LiveApp/streams/secret.mp4"),
        format!("{own}/live/streams/../../LiveApp/streams/secret.mp4"),
        format!("{own}/live/WEB-INF/x.mp4"),
    ] {
        create(&server, "s", "VoD", &url, "");
        let refused = start(&server, "s");
        assert_eq!(refused["success"], false, "{url}: {refused}");
        server.api().delete(&format!("{BROADCASTS}/s"));
    }
    // These files cannot be played, although their URLs are accepted.
    for (id, name, reason) in [
        ("a", "link.mp4", "there is no such file"),
        ("b", "linked/secret.mp4", "there is no such file"),
        ("c", "none.mp4", "there is no such file"),
        ("d", "folder.mp4", "there is no such file"),
        ("e", "text.mp4", "neither FLV nor MPEG-TS nor MP4"),
    ] {
        create(&server, id, "VoD", &format!("streams/{name}"), "");
        assert_eq!(start(&server, id)["success"], true);
        wait_for_status(&server, id, "finished");
        let told =
            || server.log().lines().any(|line| line.contains(&format!("live/{id}")) && line.contains(reason));
        wait_for(&format!("the reason of {id}"), secs(10), told);
    }
}
