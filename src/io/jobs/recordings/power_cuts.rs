//! Simulates a power cut before each change and each sync while recordings and an HLS archive are written.
//!
//! A child process, which runs this test again, writes them. `tests/suite/crash/power_cut.c` ends the child and
//! keeps what was synced. Any part of the changes that were not synced may have reached the disk: [`Image`] makes
//! several disks from them, and a start of the server is simulated on each.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use super::tests::{read_samples, recorded_with, refuse, samples};
use super::*;
use crate::io::jobs::{archives, files};
use crate::jobs::{AppendTo, Appended, ArchiveWork};
use crate::tests::TempFolder;

const CHILD: &str = "MILLSTREAM_POWER_CUT_CHILD";
const TEST: &str =
    "io::jobs::recordings::power_cuts::b_33_the_power_goes_at_every_step_of_recordings_and_archives";
/// Each recording with its number of fragments and the room for its index. The second recording has too little
/// room.
const RECORDINGS: [(&str, u32, u32); 2] = [("a.mp4", 4, 64 << 10), ("b.mp4", 40, 256)];

fn path(name: &str) -> Vec<String> {
    ["live", "streams", name].map(str::to_owned).to_vec()
}

fn playlist(segments: std::ops::Range<u32>) -> String {
    let of = |n: u32| format!("#EXTINF:2,\ns{n}.ts\n");
    format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{}", segments.map(of).collect::<String>())
}

fn segment(n: u32) -> String {
    format!("segment {n} ").repeat(1000)
}

/// Writes the recordings and the archive. Each line of the output names an operation that was acknowledged.
fn live(root: &Path) {
    let say = |what: &str| println!("\nacknowledged {what}");
    for (name, fragments, room) in RECORDINGS {
        let mut pieces = recorded_with(fragments, room).into_iter().map(Bytes::from);
        let head = pieces.next().unwrap();
        let begun = files::append(root, AppendTo::Recording { path: path(name), from: 0 }, &[head]).unwrap();
        let Appended { mut file, .. } = begun;
        for (nth, piece) in pieces.enumerate() {
            file = files::append(root, AppendTo::Open(file), &[piece]).unwrap().file;
            if (nth + 1).is_multiple_of(fragments as usize / 4) {
                file.sync().unwrap();
                say(&format!("{name} {}", nth + 1));
            }
        }
        assert!(matches!(finish(root, &path(name), refuse).unwrap(), Finish::Done(_)));
        say(&format!("{name} finished"));
    }
    let put = |name: &str, data: String| {
        archives::run(root, &ArchiveWork::Put { path: path(name), data: data.into() }).unwrap();
    };
    for n in 0..3 {
        put(&format!("s{n}.ts"), segment(n));
        put("s.m3u8", playlist(0..n + 1));
        say(&format!("s.m3u8 {}", n + 1));
    }
    archives::run(root, &ArchiveWork::Remove { path: path("s.m3u8"), begun_ms: None }).unwrap();
    say("s.m3u8 removed");
    remove(root, &path("a.mp4")).unwrap();
    say("a.mp4 removed");
}

/// Selects which of the changes that were not synced have reached the disk nevertheless.
#[derive(Debug, Clone, Copy)]
struct Image {
    names: bool,
    content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Synced,
    All,
    /// Only the first half of the changed blocks has reached the disk.
    Torn,
    /// Appended bytes have reached the disk as zeros.
    Zeros,
}

const IMAGES: [Image; 8] = {
    const fn of(names: bool, content: Content) -> Image {
        Image { names, content }
    }
    [
        of(false, Content::Synced),
        of(false, Content::All),
        of(false, Content::Torn),
        of(false, Content::Zeros),
        of(true, Content::Synced),
        of(true, Content::All),
        of(true, Content::Torn),
        of(true, Content::Zeros),
    ]
};

/// The disk as the child saw it when it was ended, and the part that was synced.
struct Left {
    root: PathBuf,
    shadow: PathBuf,
    live: BTreeMap<u64, PathBuf>,
}

impl Left {
    fn of(root: PathBuf, shadow: PathBuf) -> Self {
        let mut live = BTreeMap::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                live.insert(entry.metadata().unwrap().ino(), entry.path());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        live.insert(fs::metadata(&root).unwrap().ino(), root.clone());
        Self { root, shadow, live }
    }

    fn restore(&self, image: Image, to: &Path) {
        self.restore_folder(image, fs::metadata(&self.root).unwrap().ino(), to);
    }

    fn restore_folder(&self, image: Image, inode: u64, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for (inode, is_folder, name) in self.names(image, inode) {
            if is_folder {
                self.restore_folder(image, inode, &to.join(name));
            } else {
                fs::write(to.join(name), self.content(image, inode)).unwrap();
            }
        }
    }

    fn names(&self, image: Image, inode: u64) -> Vec<(u64, bool, String)> {
        if let Some(folder) = self.live.get(&inode).filter(|_| image.names) {
            let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
            let of = |entry: fs::DirEntry| {
                let metadata = entry.metadata().unwrap();
                (metadata.ino(), metadata.is_dir(), entry.file_name().into_string().unwrap())
            };
            return entries.map(of).collect();
        }
        let synced = fs::read_to_string(self.shadow.join(format!("d.{inode}"))).unwrap_or_default();
        let of = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let mut next = || parts.next().unwrap();
            (next().parse().unwrap(), next() == "d", next().to_owned())
        };
        synced.lines().map(of).collect()
    }

    fn content(&self, image: Image, inode: u64) -> Vec<u8> {
        let synced = fs::read(self.shadow.join(format!("f.{inode}"))).unwrap_or_default();
        let Some(live) = self.live.get(&inode) else { return synced };
        let live = fs::read(live).unwrap();
        let same = live.iter().zip(&synced).take_while(|(a, b)| a == b).count();
        match image.content {
            Content::Synced => synced,
            Content::All => live,
            Content::Torn => {
                let until = same + (live.len() - same).div_ceil(2);
                let behind = synced.get(until..).unwrap_or_default();
                [&live[..until], behind].concat()
            }
            Content::Zeros => {
                let mut zeros = synced;
                zeros.resize(zeros.len().max(live.len()), 0);
                zeros
            }
        }
    }
}

/// Checks a disk, both directly after the cut and after the next start. Faults are added to `wrong`.
fn judge(root: &Path, acknowledged: &str, what: &str, wrong: &mut Vec<String>) {
    let is_acknowledged =
        |what: &str| acknowledged.lines().any(|line| line == format!("acknowledged {what}"));
    for found in find(root, &["live".to_owned()]) {
        if let Ok(Finish::SetAside(_)) | Err(_) = finish(root, &found, refuse) {
            wrong.push(format!("{what}: {found:?} is damaged"));
        }
    }
    let streams = root.join("live/streams");
    for (name, fragments, room) in RECORDINGS {
        let whole = samples(&recorded_with(fragments, room).concat());
        let least = (1..=fragments).rev().find(|n| is_acknowledged(&format!("{name} {n}"))).unwrap_or(0);
        let least = if is_acknowledged(&format!("{name} finished")) { fragments } else { least };
        let file = fs::read(streams.join(name)).ok();
        let Ok(found) = file.map_or(Ok(Vec::new()), |file| read_samples(&file)) else {
            wrong.push(format!("{what}: {name} cannot be read"));
            continue;
        };
        if !whole.starts_with(&found) {
            wrong.push(format!("{what}: {name} has other samples"));
        }
        let may_be_gone = name == "a.mp4" && is_acknowledged("s.m3u8 removed") && found.is_empty();
        if found.len() < least as usize * 24 && !may_be_gone {
            wrong.push(format!("{what}: {name} has {} samples and not {}", found.len(), least * 24));
        }
        if is_acknowledged(&format!("{name} removed")) && streams.join(name).exists() {
            wrong.push(format!("{what}: {name} is back"));
        }
    }
    let list = fs::read_to_string(streams.join("s.m3u8")).ok();
    let listed = (0..=3).find(|n| list.as_ref() == Some(&playlist(0..*n)));
    let least = (1..=3).rev().find(|n| is_acknowledged(&format!("s.m3u8 {n}")));
    let is_going = least == Some(3);
    match (&list, listed) {
        (Some(_), None) => wrong.push(format!("{what}: the playlist is damaged")),
        (Some(_), _) if is_acknowledged("s.m3u8 removed") => {
            wrong.push(format!("{what}: the playlist is back"))
        }
        (None, _) if is_going || least.is_none() => {}
        _ if listed < least => {
            wrong.push(format!("{what}: {listed:?} segments are listed and not {least:?}"))
        }
        _ => {}
    }
    for n in 0..listed.unwrap_or(0) {
        if fs::read_to_string(streams.join(format!("s{n}.ts"))).ok() != Some(segment(n)) {
            wrong.push(format!("{what}: segment {n} is listed and not whole"));
        }
    }
}

/// A folder with the library that simulates the power cut: it ends the child process and keeps what
/// was synced.
struct Cutter(TempFolder);

impl Cutter {
    fn new() -> Self {
        let folder = TempFolder::new();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/crash/power_cut.c");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(folder.join("power_cut.so"));
        assert!(compile.args([source, "-ldl"]).status().unwrap().success());
        Self(folder)
    }

    /// Runs the recordings in a child process, cuts the power once `after` changes and syncs were made, and checks
    /// every state in which the disk may then be. Syncs of the kind `lies` have no effect. Returns true if the child
    /// was finished before the cut.
    fn cut(&self, after: usize, lies: &str, wrong: &mut Vec<String>) -> bool {
        let [root, shadow, disk] = ["root", "shadow", "disk"].map(|name| self.0.join(name));
        for folder in [&root, &shadow] {
            fs::create_dir_all(folder).unwrap();
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([TEST, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, &root);
        child.env("LD_PRELOAD", self.0.join("power_cut.so")).env("POWER_CUT_AFTER", after.to_string());
        child.env("POWER_CUT_ROOT", &root).env("POWER_CUT_SHADOW", &shadow).env("POWER_CUT_LIES", lies);
        let output = child.output().unwrap();
        let acknowledged = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() || output.status.code() == Some(9), "{acknowledged}");
        let left = Left::of(root.clone(), shadow.clone());
        for image in IMAGES {
            left.restore(image, &disk);
            judge(&disk, &acknowledged, &format!("{after}, {image:?}"), wrong);
            fs::remove_dir_all(&disk).unwrap();
        }
        for folder in [&root, &shadow] {
            fs::remove_dir_all(folder).unwrap();
        }
        assert!(!output.status.success() || acknowledged.contains("acknowledged a.mp4 removed"));
        output.status.success()
    }
}

#[test]
fn b_33_the_power_goes_at_every_step_of_recordings_and_archives() {
    if let Some(root) = std::env::var_os(CHILD) {
        return live(Path::new(&root));
    }
    let cutter = Cutter::new();
    let mut wrong = Vec::new();
    let steps = (0..).find(|after| cutter.cut(*after, "", &mut wrong)).unwrap();
    assert!(wrong.is_empty(), "{}: {:#?}", wrong.len(), wrong.iter().take(10).collect::<Vec<_>>());
    println!("{} cuts", (steps + 1) * IMAGES.len());
    assert!(steps > 80, "{steps}");
    // To test the simulation itself: it must detect that syncs do nothing.
    for lies in ["file", "folder"] {
        let mut wrong = Vec::new();
        for after in (0..steps).step_by(13) {
            cutter.cut(after, lies, &mut wrong);
        }
        assert!(!wrong.is_empty(), "{lies}");
    }
}
