//! Recordings that are cut short by kill -9, or by power cuts, which lose everything that was not synced
//! (docs/recording.md).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crypto::{Random, Seed};
use fmp4::{Event, Limits, Reader};
use netsim::{MediaSource, Verifier};

use super::super::support::{Home, RtmpPeer, Server, run, secs, wait_for};

const SETTINGS: [&str; 2] = ["app.mp4MuxingEnabled=true", "app.publisherGraceMs=0"];
/// Number of rounds, unless the environment sets another number.
const KILLS: usize = 6;
const CUTS: usize = 3;
/// Streams that are recorded in a round.
const CAMERAS: u64 = 4;
/// Media that may be missing at the end of a file. Half of it is expected; the rest allows for a busy machine.
const LOSS_MS_MAX: u64 = 2000;
/// Interval at which files are also played by another program (ffprobe): every sixteenth file.
const PROBED: usize = 16;

/// A publisher that records the time of the last frame that it has sent.
struct Camera {
    name: String,
    /// Decode time of the last video frame sent, in milliseconds, plus one; 0 before the first frame.
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Camera {
    fn start(server: &Server, name: String) -> Self {
        let mut peer = RtmpPeer::publish(server.rtmp, "live", &name).unwrap();
        let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (so_far, stopped) = (Arc::clone(&sent), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut source = MediaSource::new(&Seed::from_number(5)).reordering(true);
            let began = Instant::now();
            if peer.send_configs().is_err() {
                return;
            }
            while !stopped.load(Ordering::SeqCst) {
                let unit = source.next_unit();
                let due = began + Duration::from_millis(unit.dts_ms);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if peer.send_unit(&unit).is_err() {
                    return;
                }
                if unit.is_video {
                    so_far.store(unit.dts_ms + 1, Ordering::SeqCst);
                }
            }
            peer.close();
        });
        Self { name, sent, stop, thread }
    }

    /// Ends the publisher, and closes its connection if the server is still running.
    fn end(self) -> (String, u64) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        (self.name, self.sent.load(Ordering::SeqCst))
    }
}

/// Totals over all rounds.
#[derive(Debug, Default)]
struct Tally {
    rounds: usize,
    files: usize,
    probed: usize,
    /// Rounds in which nothing had been written before the kill.
    none: usize,
    worst_ms: u64,
    over_a_second: usize,
}

fn streams(folder: &Path) -> PathBuf {
    folder.join("webapps/live/streams")
}

/// Runs cameras for some time. In half of the rounds, two of them end shortly before the kill, so that their files are
/// being finished when the kill comes.
fn record(server: &Server, round: usize, random: &mut Random) -> Vec<Camera> {
    let mut cameras: Vec<_> = (0..CAMERAS).map(|n| Camera::start(server, format!("r{round}-{n}"))).collect();
    // In the first round, something must be recorded.
    let least_ms = if round == 0 { 1500 } else { 0 };
    std::thread::sleep(Duration::from_millis(random.below(3000).max(least_ms)));
    if random.below(2) == 0 {
        for camera in &mut cameras[..2] {
            camera.stop.store(true, Ordering::SeqCst);
        }
        std::thread::sleep(Duration::from_millis(random.below(60)));
    }
    cameras
}

/// Starts the server after a kill. Kills it again during its recovery, a random number of times.
fn recover(folder: &Path, random: &mut Random) -> Server {
    while random.below(2) == 0 {
        let mut command = Server::command(folder, &SETTINGS);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        std::thread::sleep(Duration::from_millis(random.below(150)));
        let mut child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    Server::start_in(folder, &SETTINGS)
}

/// Returns the number of video frames in a file. Checks that all samples are unchanged and none is missing.
fn frames_of(path: &Path, what: &str) -> u64 {
    let bytes = fs::read(path).unwrap();
    let mut reader = Reader::new(Limits::default());
    let (mut input, mut verifier, mut frames) = (&bytes[..], Verifier::new(), 0);
    while let Some(event) = reader.read(&mut input).unwrap_or_else(|error| panic!("{what}: {error}")) {
        let Event::Sample(sample) = event else { continue };
        let seen = verifier.feed(&sample.payload).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        if seen.is_video {
            frames = seen.counter + 1;
        }
    }
    reader.finish().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(verifier.is_clean() && verifier.video().first == Some(0), "{what}: {verifier:?}");
    frames
}

/// Checks the recordings of a round, and deletes them.
fn check(server: &Server, folder: &Path, sent: &[(String, u64)], tally: &mut Tally, seed: u64) {
    let names = || {
        let entries = fs::read_dir(streams(folder)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let vods = || server.api().get("/live/rest/v2/vods/list/0/50").json().as_array().unwrap().clone();
    wait_for("everything to be finished", secs(30), || {
        let names = names();
        let length = |name: &String| fs::metadata(streams(folder).join(name)).map_or(1, |file| file.len());
        names.iter().all(|name| !name.contains(".tmp_") || length(name) == 0)
            && vods().len() == names.iter().filter(|name| name.ends_with(".mp4")).count()
    });
    for (name, sent_ms) in sent {
        let what = format!("seed {seed}, round {}: {name}", tally.rounds);
        let path = streams(folder).join(format!("{name}.mp4"));
        let reach = if path.exists() {
            let frames = frames_of(&path, &what);
            tally.files += 1;
            if tally.files.is_multiple_of(PROBED) {
                tally.probed += 1;
                assert_eq!(frames_by_ffprobe(&path), frames, "{what}");
            }
            frames * 1000 / 30
        } else {
            tally.none += 1;
            0
        };
        let loss = sent_ms.saturating_sub(reach);
        assert!(loss <= LOSS_MS_MAX, "{what} reaches to {reach} ms, sent {sent_ms} ms");
        tally.worst_ms = tally.worst_ms.max(loss);
        tally.over_a_second += usize::from(loss > 1000);
    }
    let vods = vods();
    let ids: Vec<_> = vods.iter().map(|vod| vod["vodId"].as_str().unwrap()).collect();
    assert!(vods.iter().all(|vod| vod["fileSize"].as_u64() > Some(0)), "seed {seed}: {vods:?}");
    if !ids.is_empty() {
        let deleted = server.api().delete(&format!("/live/rest/v2/vods?ids={}", ids.join(",")));
        assert_eq!(deleted.json()["success"], true);
    }
    wait_for("the files to go", secs(10), || names().iter().all(|name| !name.ends_with(".mp4")));
    tally.rounds += 1;
}

/// Returns the number of video frames as counted by ffprobe.
fn frames_by_ffprobe(path: &Path) -> u64 {
    let arguments = ["-v", "error", "-count_packets", "-select_streams", "v"];
    let mut command = Command::new("ffprobe");
    command.args(arguments).args(["-show_entries", "stream=nb_read_packets", "-of", "csv=p=0"]).arg(path);
    let (status, count, said) = run(&mut command);
    assert!(status.success(), "{said}");
    count.trim().trim_end_matches(',').parse().unwrap()
}

fn rounds(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    std::env::var("SUITE_SEED").map_or_else(|_| now().subsec_nanos().into(), |text| text.parse().unwrap())
}

#[test]
fn a_recording_is_cut_short_by_kill_9_and_not_lost() {
    let (kills, seed) = (rounds("SUITE_RECORDING_KILLS", KILLS), seed());
    println!("seed {seed}, {kills} kills");
    let mut random = Seed::from_number(seed).random();
    let home = Home::new();
    let folder = home.path().join("home");
    let mut tally = Tally::default();
    let mut server = Server::start_in(&folder, &SETTINGS);
    for round in 0..kills {
        let cameras = record(&server, round, &mut random);
        server.kill();
        let sent: Vec<_> = cameras.into_iter().map(Camera::end).collect();
        server = recover(&folder, &mut random);
        check(&server, &folder, &sent, &mut tally, seed);
    }
    assert!(tally.files as u64 >= CAMERAS, "{tally:?}");
    println!("{tally:?}: none lost, none unplayable");
}

/// A folder with the state of the disk: a library copies everything there that the server syncs ([`power_cut.c`]).
struct Shadow {
    library: PathBuf,
    folder: PathBuf,
    home: PathBuf,
    root: u64,
}

impl Shadow {
    /// Creates the folder. All files that exist in the home now count as synced.
    fn of(home: &Path, library: &Path, folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        Self::keep(home, &folder);
        let root = fs::metadata(home).unwrap().ino();
        Self { library: library.to_owned(), folder, home: home.to_owned(), root }
    }

    fn library(home: &Home) -> PathBuf {
        let library = home.path().join("power_cut.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/crash/power_cut.c");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library).args([source, "-ldl"]);
        let (status, _, said) = run(&mut command);
        assert!(status.success(), "{said}");
        library
    }

    fn keep(from: &Path, folder: &Path) {
        let mut names = String::new();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let (kind, inode) = (entry.file_type().unwrap(), entry.metadata().unwrap().ino());
            let name = entry.file_name().into_string().unwrap();
            if kind.is_dir() {
                Self::keep(&entry.path(), folder);
                names += &format!("{inode} d {name}\n");
            } else if kind.is_file() {
                fs::copy(entry.path(), folder.join(format!("f.{inode}"))).unwrap();
                names += &format!("{inode} f {name}\n");
            }
        }
        fs::write(folder.join(format!("d.{}", fs::metadata(from).unwrap().ino())), names).unwrap();
    }

    fn start(&self) -> Server {
        let mut command = Server::command(&self.home, &SETTINGS);
        command.env("LD_PRELOAD", &self.library).env("POWER_CUT_ROOT", &self.home);
        Server::spawn(command.env("POWER_CUT_SHADOW", &self.folder))
    }

    /// Writes the home as it is after the power cut.
    fn restore(&self, to: &Path) {
        self.restore_folder(self.root, to);
    }

    fn restore_folder(&self, inode: u64, to: &Path) {
        fs::create_dir_all(to).unwrap();
        // A folder whose names were never synced is empty.
        let names = fs::read_to_string(self.folder.join(format!("d.{inode}"))).unwrap_or_default();
        for line in names.lines() {
            let parts: Vec<_> = line.splitn(3, ' ').collect();
            let (inode, to) = (parts[0].parse().unwrap(), to.join(parts[2]));
            if parts[1] == "d" {
                self.restore_folder(inode, &to);
            } else {
                let bytes = fs::read(self.folder.join(format!("f.{inode}"))).unwrap_or_default();
                fs::write(to, bytes).unwrap();
            }
        }
    }
}

#[test]
fn a_recording_is_cut_short_by_a_power_cut_and_not_lost() {
    let (cuts, seed) = (rounds("SUITE_POWER_CUTS", CUTS), seed());
    println!("seed {seed}, {cuts} power cuts");
    let mut random = Seed::from_number(seed).random();
    let home = Home::new();
    let library = Shadow::library(&home);
    let mut folder = home.path().join("home");
    Server::start_in(&folder, &SETTINGS).terminate();
    let mut tally = Tally::default();
    for round in 0..cuts {
        let shadow = Shadow::of(&folder, &library, home.path().join(format!("shadow{round}")));
        let mut server = shadow.start();
        let cameras = record(&server, round, &mut random);
        server.kill();
        let sent: Vec<_> = cameras.into_iter().map(Camera::end).collect();
        let after = home.path().join(format!("home{round}"));
        shadow.restore(&after);
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_dir_all(&shadow.folder).unwrap();
        folder = after;
        let mut server = recover(&folder, &mut random);
        check(&server, &folder, &sent, &mut tally, seed);
        assert!(server.terminate().success());
    }
    assert!(tally.files as u64 >= CAMERAS, "{tally:?}");
    println!("{tally:?}: none lost, none unplayable");
}
