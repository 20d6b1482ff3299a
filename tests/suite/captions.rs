//! Closed captions within video: they are declared in playlists and manifests, sent unchanged over every protocol, and
//! shown by hls.js in Chromium.

use std::path::{Path, PathBuf};
use std::process::Command;

use media::nal::AnnexB;

use crate::sounds::publish_over_srt;
use crate::support::{Server, make_once, python, run};

const RATE: usize = 30;
/// Byte pairs of CEA-608, one for each picture. They load a caption into channel CC1, and then show it (CTA-608-E
/// §B.8.3).
const CAPTION: [[u8; 2]; 10] = [
    [0x94, 0x20],
    [0x94, 0x20],
    [0x94, 0xe0],
    [0x94, 0xe0],
    [0xc8, 0x45],
    [0x4c, 0x4c],
    [0x4f, 0x20],
    [0x94, 0x2c],
    [0x94, 0x2f],
    [0x94, 0x2f],
];

/// Returns an SEI NAL unit with this byte pair (A/53 part 4 §6.2.3).
fn sei([first, second]: [u8; 2]) -> Vec<u8> {
    let data = [0xb5, 0, 0x31, b'G', b'A', b'9', b'4', 3, 0x41, 0xff, 0xfc, first, second, 0xff];
    [&[6, 4, u8::try_from(data.len()).unwrap()][..], &data, &[0x80]].concat()
}

/// Returns a file of three minutes with a caption every two seconds.
fn film() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("media/captions-180s.ts");
    make_once(&path, |path| {
        let bare = path.with_extension("bare.h264");
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "lavfi"]);
        command.args(["-i", "testsrc2=size=320x180:rate=30", "-t", "180", "-g", "30", "-bf", "0"]);
        command.args(["-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p"]);
        command.args(["-x264-params", "aud=1:sliced-threads=0:slices=1", "-f", "h264"]);
        let (status, _, err) = run(command.arg(&bare));
        assert!(status.success(), "{err}");
        let (mut out, mut pictures) = (Vec::new(), 0_usize);
        for nal in AnnexB::new(&std::fs::read(&bare).unwrap()) {
            let kind = nal[0] & 0x1f;
            if kind == 1 || kind == 5 {
                let pair = CAPTION.get(pictures % (2 * RATE)).copied().unwrap_or([0x80, 0x80]);
                out.extend([&[0, 0, 0, 1], &sei(pair)[..]].concat());
                pictures += 1;
            }
            out.extend([&[0, 0, 0, 1], nal].concat());
        }
        std::fs::write(&bare, out).unwrap();
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-r", "30", "-i"]).arg(&bare);
        command.args(["-f", "lavfi", "-i", "sine=sample_rate=48000", "-t", "180", "-map", "0", "-map", "1"]);
        let (status, _, err) = run(command.args(["-c:v", "copy", "-c:a", "aac", "-f", "mpegts"]).arg(path));
        assert!(status.success(), "{err}");
    });
    path
}

const SETTINGS: [&str; 3] = ["app.hlsTime=1", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"];
const LIST: &str = "/live/streams/ll-hls/cam/cam__master.m3u8";
const MANIFEST: &str = "/live/streams/cam/cam.mpd";

#[test]
fn captions_within_video_are_declared_and_pass_unchanged() {
    let server = Server::start(&SETTINGS);
    let _publisher = publish_over_srt(&server, &film());
    let list = server.api().get(LIST);
    assert_eq!(list.status, 200);
    assert!(
        list.body.contains("TYPE=CLOSED-CAPTIONS,") && list.body.contains("INSTREAM-ID=\"CC1\""),
        "{}",
        list.body
    );
    assert!(list.body.contains(",CLOSED-CAPTIONS=\"captions\""), "{}", list.body);
    let manifest = server.api().get(MANIFEST).body;
    let told = "<Accessibility schemeIdUri=\"urn:scte:dash:cc:cea-608:2015\" value=\"CC1=und\"/>";
    assert!(manifest.contains(told), "{manifest}");
    let http = |name: &str| format!("http://{}{name}", server.http);
    let srt = format!("srt://{}?streamid=%23!::r=live/cam,m=request&mode=caller", server.srt.unwrap());
    for url in [
        http("/live/streams/ll-hls/cam/cam__video.m3u8"),
        http("/live/streams/cam.m3u8"),
        http("/live/cam.flv"),
        server.rtmp_url("live/cam"),
        srt,
    ] {
        let mut command = Command::new("ffprobe");
        command.args(["-v", "error", "-select_streams", "v:0", "-read_intervals", "%+3", "-show_frames"]);
        let (status, out, err) = run(command.arg(&url));
        assert!(status.success() && out.contains("Closed Captions"), "{url}: {out} {err}");
    }
    // The byte pair of each picture arrives unchanged.
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-t", "4", "-i", &server.rtmp_url("live/cam"), "-map", "0:v"]);
    let output = command.args(["-c", "copy", "-f", "h264", "-"]).output().unwrap();
    let nals: Vec<&[u8]> = AnnexB::new(&output.stdout).filter(|nal| nal[0] & 0x1f == 6).collect();
    let captions: Vec<Vec<u8>> = CAPTION.into_iter().map(sei).collect();
    let is_whole = nals.windows(captions.len()).any(|some| some.iter().zip(&captions).all(|(a, b)| *a == b));
    assert!(is_whole, "{} SEI", nals.len());
}

#[test]
fn hls_js_shows_captions_within_video() {
    let server = Server::start(&[&SETTINGS[..], &["app.hls.captions=CC1=en"]].concat());
    let _publisher = publish_over_srt(&server, &film());
    for name in ["ll-hls/cam/cam__master.m3u8", "cam.m3u8"] {
        assert_eq!(server.api().get(&format!("/live/streams/{name}")).status, 200);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/captions.py");
        let mut command = Command::new(python());
        let (status, said, told) = run(command.arg(script).args([&format!("http://{}/", server.http), name]));
        assert!(status.success() && said.trim() == "ok", "{name}: {said}{told}");
    }
}
