//! Recordings on disks that are full, read-only, or gone. Viewers lose nothing (docs/recording.md).

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use super::super::hls::fetch_all;
use super::super::support::{Bystander, Home, Manner, Publisher, Receiver, Server, secs, wait_for};
use super::disk::SmallDisk;

/// Creates a broadcast that is recorded and that sends its hooks to the receiver.
fn create(server: &Server, id: &str, receiver: &Receiver) {
    let hook = receiver.url("hook");
    let body = format!(r#"{{"streamId":"{id}","mp4Enabled":1,"listenerHookURL":"{hook}"}}"#);
    assert_eq!(server.api().post(super::CREATE, &body).status, 200);
}

fn length(folder: &Path, name: &str) -> u64 {
    fs::metadata(folder.join("webapps/live/streams").join(name)).map_or(0, |file| file.len())
}

fn vods(server: &Server) -> usize {
    server.api().get("/live/rest/v2/vods/list/0/50").json().as_array().unwrap().len()
}

fn failures(server: &Server) -> u64 {
    let text = server.api().get("/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix("millstream_recording_failures_total "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

#[test]
fn t_09_a_full_disk_ends_a_recording_until_there_is_space() {
    let receiver = Receiver::start(Manner::Status(200));
    let mut disk = SmallDisk::start();
    create(&disk.server, "cam", &receiver);
    let bystander = Bystander::start(&disk.server);
    let camera = Publisher::start(disk.server.rtmp, "live", "cam");
    wait_for("a file", secs(20), || length(&disk.folder, "cam.mp4.tmp_extension") > 300_000);
    disk.leave(0);
    receiver.wait_for("hook", "recordingFailed cam");
    assert!(failures(&disk.server) >= 1);
    let log = || fs::read_to_string(disk.folder.join("log/millstream.log")).unwrap_or_default();
    wait_for("its line in the log", secs(10), || log().contains("recording failed; retrying"));
    assert_eq!(disk.server.api().broadcast("live", "cam").unwrap()["status"], "broadcasting");
    disk.free();
    // The server tries again with the next file. The part recorded before the disk was full can be played.
    wait_for("the next file", secs(60), || length(&disk.folder, "cam_1.mp4.tmp_extension") > 300_000);
    wait_for("the first file", secs(60), || vods(&disk.server) == 1);
    assert!(length(&disk.folder, "cam.mp4") > 300_000);
    camera.stop();
    wait_for("the second file", secs(60), || vods(&disk.server) == 2);
    bystander.finish(&mut disk.server);
}

#[test]
fn t_09_a_folder_that_may_not_be_written_or_is_gone_holds_up_nothing() {
    let receiver = Receiver::start(Manner::Status(200));
    let home = Home::new();
    let plain = Server::command(&home.path().join("home"), &[]);
    // Root may write everywhere. Run the server without this right.
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = Command::new(if is_root { "setpriv" } else { "env" });
    if is_root {
        command.arg("--bounding-set=-dac_override,-dac_read_search");
    }
    command.arg(plain.get_program()).args(plain.get_args());
    let mut server = Server::spawn(&mut command).with_home(home);
    let folder = server.home().join("home");
    let streams = folder.join("webapps/live/streams");
    create(&server, "cam", &receiver);
    let bystander = Bystander::start(&server);
    fs::create_dir_all(&streams).unwrap();
    fs::set_permissions(&streams, fs::Permissions::from_mode(0o555)).unwrap();
    let camera = Publisher::start(server.rtmp, "live", "cam");
    receiver.wait_for("hook", "recordingFailed cam");
    fs::set_permissions(&streams, fs::Permissions::from_mode(0o755)).unwrap();
    wait_for("a file", secs(60), || length(&folder, "cam.mp4.tmp_extension") > 300_000);
    // The folder is removed during the recording, which is then lost. The next recording creates a new folder.
    fs::remove_dir_all(&streams).unwrap();
    camera.stop();
    wait_for("the end", secs(20), || server.log().contains("nothing was recorded"));
    assert_eq!(vods(&server), 0);
    let camera = Publisher::start(server.rtmp, "live", "cam");
    // While the file of before is being removed, its name is not free.
    let is_recorded = |name: &str| length(&folder, &format!("{name}.mp4.tmp_extension")) > 300_000;
    wait_for("a file", secs(20), || is_recorded("cam") || is_recorded("cam_1"));
    camera.stop();
    wait_for("the recording", secs(20), || vods(&server) == 1);
    bystander.finish(&mut server);
}

#[test]
fn t_09_hls_on_a_full_disk_has_gaps_and_its_live_viewers_none() {
    let mut disk = SmallDisk::start();
    let body =
        r#"{"streamId":"cam","hlsParameters":{"hlsPlayListType":"event","hlsTime":"1","hlsListSize":"3"}}"#;
    assert_eq!(disk.server.api().post(super::CREATE, body).status, 200);
    let bystander = Bystander::start(&disk.server);
    let camera = Publisher::start(disk.server.rtmp, "live", "cam");
    let list = disk.folder.join("webapps/live/streams/cam.m3u8");
    let count = |text: &str, tag: &str| text.matches(tag).count();
    let kept = || fs::read_to_string(&list).unwrap_or_default();
    wait_for("segments on the disk", secs(30), || count(&kept(), "#EXTINF:") >= 3);
    disk.leave(0);
    let path = "/live/streams/cam.m3u8";
    let shown = || disk.server.api().get(path).body;
    wait_for("a gap", secs(60), || count(&shown(), "#EXT-X-GAP\n") >= 2);
    assert!(fetch_all(&disk.server, path) >= 3);
    disk.free();
    let gaps = |text: &str| text.rfind("#EXT-X-GAP\n").map_or(0, |at| count(&text[at..], "#EXTINF:"));
    wait_for("segments behind the gaps", secs(60), || gaps(&kept()) >= 4);
    assert!(fetch_all(&disk.server, path) >= 6);
    camera.stop();
    bystander.finish(&mut disk.server);
}
