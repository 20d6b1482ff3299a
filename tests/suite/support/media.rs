//! Files to publish, made once per run by ffmpeg.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Lock that keeps two tests from making the same file at the same time.
static MAKING: Mutex<()> = Mutex::new(());

/// Returns an FLV file of 640x360 at 30 frames a second with AAC audio. With `bframes`, frames are reordered.
pub fn media_file(bframes: bool, seconds: u32) -> PathBuf {
    let _making = MAKING.lock().unwrap();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("media");
    std::fs::create_dir_all(&directory).unwrap();
    let name = format!("{}-{seconds}s.flv", if bframes { "bframes" } else { "baseline" });
    let path = directory.join(&name);
    if path.exists() {
        return path;
    }
    let part = directory.join(format!("part-{name}"));
    let (profile, reordered) = if bframes { ("high", "2") } else { ("baseline", "0") };
    let status = Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "lavfi", "-i"])
        .arg("testsrc2=size=640x360:rate=30")
        .args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000", "-t", &seconds.to_string()])
        .args(["-c:v", "libx264", "-preset", "veryfast", "-b:v", "800k", "-g", "30", "-keyint_min", "30"])
        .args(["-sc_threshold", "0", "-pix_fmt", "yuv420p", "-profile:v", profile, "-bf", reordered])
        .args(["-c:a", "aac", "-ac", "2", "-b:a", "96k", "-f", "flv"])
        .arg(&part)
        .status()
        .unwrap();
    assert!(status.success(), "ffmpeg could not make {name}");
    std::fs::rename(part, &path).unwrap();
    path
}

/// Returns an FLV file of 320x180 at 30 frames a second, made by ffmpeg 9. `coding` are the arguments for its
/// encoders.
pub fn coded_file(name: &str, coding: &[&str]) -> PathBuf {
    let _making = MAKING.lock().unwrap();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("media");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{name}.flv"));
    if path.exists() {
        return path;
    }
    let part = directory.join(format!("part-{name}.flv"));
    let status = Command::new(super::ffmpeg9())
        .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "lavfi", "-i"])
        .arg("testsrc2=size=320x180:rate=30")
        .args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000", "-t", "12", "-g", "30"])
        .args(["-pix_fmt", "yuv420p", "-ac", "2"])
        .args(coding)
        .args(["-f", "flv"])
        .arg(&part)
        .status()
        .unwrap();
    assert!(status.success(), "ffmpeg could not make {name}");
    std::fs::rename(part, &path).unwrap();
    path
}

/// Makes a file next to that of [`media_file`], unless it exists.
pub fn make_once(path: &Path, make: impl FnOnce(&Path)) {
    let _making = MAKING.lock().unwrap();
    if !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let part = path.with_file_name(format!("part-{}", path.file_name().unwrap().display()));
        make(&part);
        std::fs::rename(part, path).unwrap();
    }
}

/// Returns the packets of a file in the form in which [`super::frame_md5`] returns those of a player.
pub fn source_packets(path: &Path) -> Vec<super::programs::Packet> {
    super::frame_md5(path.to_str().unwrap(), None)
}
