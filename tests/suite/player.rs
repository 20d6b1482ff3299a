//! The built-in player in Chromium and Firefox (`player.py`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Home, Program, Server, ffmpeg9, make_once, python, run, secs, wait_for};

const CHROMIUM: &str = "chromium";
const FIREFOX: &str = "firefox";
/// Settings that enable the formats that are off by default.
const ALL_FORMATS: [&str; 2] = ["app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"];
/// Tones of the left and the right channel, in Hz.
const TONES: [&str; 2] = ["441", "882"];

/// Returns a film with different tones in the left and the right channel.
fn film() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("media/two-tones.flv");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    make_once(&path, |part| {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y"]);
        command.args(["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30"]);
        for tone in TONES {
            let source = format!("sine=frequency={tone}:sample_rate=48000");
            command.args(["-f", "lavfi", "-i", &source]);
        }
        command.args(["-filter_complex", "[1:a][2:a]join=inputs=2:channel_layout=stereo[a]"]);
        command.args(["-map", "0:v", "-map", "[a]", "-t", "20", "-g", "30", "-pix_fmt", "yuv420p"]);
        command.args(["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "baseline", "-b:v", "800k"]);
        command.args(["-c:a", "aac", "-b:a", "128k"]).arg(part);
        let (status, _, told) = run(&mut command);
        assert!(status.success(), "{told}");
    });
    path
}

fn publish(server: &Server) -> Program {
    let publisher = Program::ffmpeg_publish(&film(), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(server, "cam"));
    publisher
}

fn script(browser: &str, task: &str, server: &Server, more: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/player.py"));
    command.args([browser, task, &format!("http://{}/", server.http)]).args(more);
    command
}

/// Does a task in each of these browsers.
fn does(browsers: &[&str], task: &str, server: &Server, more: &[&str]) {
    for browser in browsers {
        let (status, said, told) = run(&mut script(browser, task, server, more));
        assert!(status.success() && said.trim() == "ok", "{browser}, {task} {more:?}: {said}{told}");
    }
}

#[test]
fn pictures_move_over_each_technology() {
    let server = Server::start(&ALL_FORMATS);
    let _publisher = publish(&server);
    // Firefox is left out for WebRTC, because it has no H.264 there until it has downloaded its codec.
    does(&[CHROMIUM], "technology", &server, &["webrtc"]);
    for technology in ["ll-hls", "hls", "dash", "flv"] {
        does(&[CHROMIUM, FIREFOX], "technology", &server, &[technology]);
    }
}

#[test]
fn a_viewer_goes_back_by_the_bar_and_returns_to_the_live_edge() {
    let low = "app.hlsEnableLowLatency=true";
    let server = Server::start(&["app.dvr.window=600", "app.hlsListSize=3", "app.hlsTime=1", low]);
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(film()).args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]);
    let _publisher = Program::start(&mut command);
    for path in ["cam.m3u8", "ll-hls/cam/cam__video.m3u8"] {
        let list = || server.api().get(&format!("/live/streams/{path}?dvr=true")).body;
        // With low latency, the other playlists exist only after a request for the multivariant playlist.
        server.api().get("/live/streams/ll-hls/cam/cam__master.m3u8");
        wait_for("forty seconds", secs(90), || list().matches("#EXTINF:").count() >= 40);
    }
    for technology in ["hls", "ll-hls"] {
        does(&[CHROMIUM], "dvr", &server, &[technology]);
    }
}

#[test]
fn stereo_stays_stereo_over_webrtc() {
    let server = Server::start(&[]);
    let _publisher = publish(&server);
    does(&[CHROMIUM], "stereo", &server, &TONES);
}

/// Checks Firefox's implementations of RTP and SCTP in both roles. The server listens at all addresses, because Firefox
/// pairs no candidate with 127.0.0.1.
#[test]
fn firefox_publishes_and_plays_by_whip_and_whep_with_data_channels() {
    let mut server = Server::start(&["server.workers=2", "server.host=0.0.0.0"]);
    // Browsers allow a camera only to pages of this address.
    server.http.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    does(&[FIREFOX], "peers", &server, &[]);
}

/// Publishes three spatial layers from Chromium. Viewers get the top one in its true size, over WebRTC and over HTTP-FLV,
/// and the lowest one if they select it.
fn spatial_layers_of(codec: &str) {
    let server = Server::start(&["server.workers=2"]);
    let home = Home::new();
    let done = home.path().join("done");
    let plays = home.path().join("done.plays");
    let mut command = script(CHROMIUM, "layers", &server, &[codec, "L3T3_KEY", done.to_str().unwrap()]);
    let browser = std::thread::spawn(move || run(&mut command));
    wait_for("the viewer", secs(90), || plays.exists() || browser.is_finished());
    // Sizes of the decoded pictures of a viewer.
    let sizes = |query: &str| {
        let url = format!("http://{}/live/mirror.flv?audio=none{query}", server.http);
        let mut decode = Command::new(ffmpeg9());
        decode.args(["-hide_banner", "-nostdin", "-i", &url, "-map", "0:v", "-frames:v", "30"]);
        let (_, _, told) = run(decode.args(["-vf", "showinfo", "-f", "null", "-"]));
        let size = |line: &str| Some(line.split_once(" s:")?.1.split_once(' ')?.0.to_owned());
        (told.lines().filter_map(size).collect::<Vec<_>>(), told)
    };
    let seen = if plays.exists() { ["", "&video=0"].map(sizes).to_vec() } else { Vec::new() };
    std::fs::write(&done, []).unwrap();
    let (status, said, told) = browser.join().unwrap();
    assert!(status.success() && said.trim() == "ok", "{codec}: {said}{told}");
    // Chromium rounds the sizes of lower layers. ffmpeg shows all layers of a key frame.
    for ((sizes, told), wanted) in seen.iter().zip(["960x540", "240x13"]) {
        let right = sizes.iter().filter(|size| size.starts_with(wanted)).count();
        assert!(right > 20, "{codec}, {wanted}: {right} of {}: {told}", sizes.len());
    }
}

#[test]
fn spatial_layers_of_vp9_are_renditions() {
    spatial_layers_of("VP9");
}

#[test]
fn a_technology_that_fails_gives_way_to_the_next() {
    let server = Server::start(&[]);
    let _publisher = publish(&server);
    does(&[CHROMIUM], "falls", &server, &[]);
    does(&[CHROMIUM], "missing", &server, &[]);
}

#[test]
fn a_recording_is_played_by_its_path_and_by_its_stream() {
    let server = Server::start(&[]);
    let film = std::fs::read(crate::uploads::film()).unwrap();
    let folder = server.home().join("home/webapps/live/streams");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("cam.mp4"), film).unwrap();
    does(&[CHROMIUM, FIREFOX], "file", &server, &["streams/cam.mp4"]);
}

#[test]
fn a_stream_that_comes_back_plays_again() {
    let server = Server::start(&[]);
    let home = Home::new();
    let [gone, go_on] = ["gone", "go-on"].map(|name| home.path().join(name));
    let publisher = publish(&server);
    let more = [gone.to_str().unwrap(), go_on.to_str().unwrap()];
    let mut page = Program::start(&mut script(CHROMIUM, "returns", &server, &more));
    wait_for("the player", secs(60), || gone.exists());
    drop(publisher);
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/cam/stop", "").status, 200);
    wait_for("it to notice", secs(60), || go_on.exists());
    let _publisher = publish(&server);
    assert!(page.wait(secs(90)).expect("it does not go on").success());
}

#[test]
fn the_player_stands_in_pages_of_others() {
    let server = Server::start(&[]);
    let _publisher = publish(&server);
    does(&[CHROMIUM, FIREFOX], "embedded", &server, &[]);
}

#[test]
fn viewers_are_counted_by_what_players_report() {
    let server = Server::start(&[]);
    let _publisher = publish(&server);
    does(&[CHROMIUM], "events", &server, &[]);
}

/// Checks the rules of WCAG 2 A and AA with axe.
#[test]
fn the_player_can_be_used_by_everybody() {
    let server = Server::start(&[]);
    let _publisher = publish(&server);
    does(&[CHROMIUM], "axe", &server, &[]);
}
