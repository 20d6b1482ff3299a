//! B-04, B-08: disks that are full, fail, or take their time.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::super::support::{Bystander, Home, Server, ms, run, secs, wait_for};
use super::{name_of, try_create, try_update};

/// An strace that makes system calls of the store's thread fail. The other threads run at full speed.
struct Fault {
    tracer: Child,
}

impl Fault {
    /// Starts strace with these `inject` expressions, such as `fdatasync:error=EIO:when=1`.
    fn begin(server: &Server, injects: &[&str]) -> Self {
        let task = server.thread("store");
        let thread = task.file_name().unwrap().to_str().unwrap();
        let mut command = Command::new("strace");
        command.args(["-q", "-o", "/dev/null", "-p", thread]);
        for inject in injects {
            command.args(["-e", &format!("inject={inject}")]);
        }
        let tracer =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let fault = Self { tracer };
        wait_for("strace to hold the store's thread", secs(10), || {
            let text = fs::read_to_string(task.join("status")).unwrap();
            text.lines().any(|line| line == format!("TracerPid:\t{}", fault.tracer.id()))
        });
        fault
    }

    fn end(mut self) {
        // With SIGTERM, strace detaches from the thread. With SIGKILL, it might leave the thread stopped.
        let _ = Command::new("kill").arg(self.tracer.id().to_string()).status();
        let _ = self.tracer.wait();
    }
}

/// Tries to create a broadcast until it succeeds, and returns the number of failures. A broadcast that could not be
/// created must not be visible.
fn failures_until_success(server: &Server, prefix: &str) -> usize {
    let mut failures = 0;
    wait_for("writes to succeed again", secs(20), || {
        let id = format!("{prefix}{failures}");
        match try_create(&server.api(), &id, "n") {
            Some(200) => true,
            Some(500) => {
                assert_eq!(name_of(server, &id), None, "{id} failed and is visible");
                failures += 1;
                false
            }
            other => panic!("{id}: {other:?}"),
        }
    });
    failures
}

/// Checks that all acknowledged broadcasts still exist after kill -9.
fn check_after_kill(server: &mut Server, acknowledged: &[String]) {
    server.kill();
    let mut again = Server::start_in(&server.home().join("home"), &[]);
    for id in acknowledged {
        assert!(name_of(&again, id).is_some(), "{id} was acknowledged and is lost");
    }
    assert!(again.terminate().success());
}

fn create_some(server: &Server, prefix: &str, count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    ids.iter().for_each(|id| assert_eq!(try_create(&server.api(), id, "n"), Some(200), "{id}"));
    ids
}

#[test]
fn b_04_a_failed_fsync_fails_the_write_and_a_fresh_file_takes_over() {
    // These calls fail: a sync of the commit; a write of a page; a sync of the commit, and then the rename or the sync
    // of the fresh file.
    for injects in [
        &["fdatasync:error=EIO:when=1"][..],
        &["fdatasync:error=EIO:when=2"],
        &["pwrite64:error=EIO:when=1"],
        &["pwrite64:error=ENOSPC:when=2"],
        &["fdatasync:error=EIO:when=1", "rename:error=EIO:when=1"],
        &["fdatasync:error=EIO:when=1", "fsync:error=EIO:when=1"],
    ] {
        let mut server = Server::start(&[]);
        let mut acknowledged = create_some(&server, "before", 5);
        let store = server.home().join("home/data/store.redb");
        let old = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&store).unwrap());
        let bystander = Bystander::start(&server);
        let fault = Fault::begin(&server, injects);
        let failures = failures_until_success(&server, "during");
        fault.end();
        assert!(failures >= 1, "{injects:?}: no write failed");
        acknowledged.push(format!("during{failures}"));
        let new = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&store).unwrap());
        assert_ne!(old, new, "{injects:?}: the file whose sync failed is used on");
        assert_eq!(try_update(&server.api(), "before0", "m"), Some(true));
        acknowledged.extend(create_some(&server, "after", 5));
        for failed in (0..failures).map(|n| format!("during{n}")) {
            assert_eq!(name_of(&server, &failed), None);
        }
        bystander.finish(&mut server);
        check_after_kill(&mut server, &acknowledged);
    }
}

#[test]
fn b_04_while_the_disk_fails_reads_and_streams_go_on_and_writes_return_with_it() {
    let mut server = Server::start(&[]);
    let mut acknowledged = create_some(&server, "before", 5);
    let bystander = Bystander::start(&server);
    let fault = Fault::begin(&server, &["fdatasync:error=EIO", "fsync:error=EIO"]);
    for n in 0..20 {
        assert_eq!(try_create(&server.api(), &format!("during{n}"), "n"), Some(500));
        assert_eq!(try_update(&server.api(), "before0", "lost"), None, "an update without a disk");
        assert_eq!(name_of(&server, "before0").as_deref(), Some("n"));
        assert_eq!(name_of(&server, &format!("during{n}")), None);
    }
    let count = server.api().get("/live/rest/v2/broadcasts/count").json()["number"].as_u64().unwrap();
    assert_eq!(count, 5 + 1, "the five, and the bystander's");
    fault.end();
    let logged = |words: &str| wait_for("a line of the log", secs(10), || server.log().contains(words));
    logged("store not writable; changes fail until it is writable again");
    let failures = failures_until_success(&server, "again");
    acknowledged.push(format!("again{failures}"));
    logged("store writable again");
    bystander.finish(&mut server);
    check_after_kill(&mut server, &acknowledged);
}

/// A server whose home has little space.
pub(super) struct SmallDisk {
    pub(super) server: Server,
    /// Path of the server's home for this process.
    pub(super) folder: PathBuf,
    space: Space,
}

/// Kind of limit on the space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// A small file system, mounted only in the server's mount namespace.
    FileSystem,
    /// A limit on the size of each file (RLIMIT_FSIZE). Needs no privileges.
    FileSize,
}

impl SmallDisk {
    /// Starts a server on a small tmpfs. If this user may not mount one, limits the size of files instead.
    pub(super) fn start() -> Self {
        for unshare in [&["-rm"][..], &["-m"]] {
            let mut probe = Command::new("unshare");
            probe.args(unshare).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
            if run(&mut probe).0.success() {
                return Self::mounted(unshare);
            }
        }
        // Writes past the output capture of the test harness, so that everybody sees that no full disk was tested.
        let _ = writeln!(
            std::io::stderr(),
            "b_04: this user may mount nothing here: a limit of the file size is tested in place of a full disk"
        );
        Self::limited()
    }

    fn mounted(unshare: &[&str]) -> Self {
        let home = Home::new();
        let folder = home.path().join("home");
        let plain = Server::command(&folder, &[]);
        let mut command = Command::new("unshare");
        let mount = r#"mount -t tmpfs -o size=40m tmpfs "$0" && exec "$@""#;
        command.args(unshare).args(["sh", "-c", mount]).arg(&folder);
        command.arg(plain.get_program()).args(plain.get_args());
        let server = Server::spawn(&mut command).with_home(home);
        let folder = PathBuf::from(format!("/proc/{}/root{}", server.pid(), folder.display()));
        assert!(folder.join("data/store.redb").exists(), "the home is on the small disk");
        Self { server, folder, space: Space::FileSystem }
    }

    fn limited() -> Self {
        let server = Server::start(&[]);
        let folder = server.home().join("home");
        Self { server, folder, space: Space::FileSize }
    }

    /// Uses up the space except for this many bytes. With a limit on file sizes, lets the store's file grow by this
    /// many bytes.
    pub(super) fn leave(&self, bytes: u64) {
        match self.space {
            Space::FileSystem => {
                let mut free = Command::new("stat");
                free.args(["-f", "-c", "%a %S"]).arg(&self.folder);
                let (_, numbers, _) = run(&mut free);
                let free: u64 = numbers.split_whitespace().map(|n| n.parse::<u64>().unwrap()).product();
                fs::write(self.filler(), vec![1u8; free.saturating_sub(bytes) as usize]).unwrap();
            }
            Space::FileSize => {
                let store = fs::metadata(self.folder.join("data/store.redb")).unwrap().len();
                self.limit(&(store + bytes).to_string());
            }
        }
    }

    /// Frees the space that [`SmallDisk::leave`] has used up.
    pub(super) fn free(&self) {
        match self.space {
            Space::FileSystem => fs::remove_file(self.filler()).unwrap(),
            Space::FileSize => self.limit("unlimited"),
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    fn limit(&self, bytes: &str) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--pid={}", self.server.pid())).arg(format!("--fsize={bytes}:"));
        let (status, _, said) = run(&mut command);
        assert!(status.success(), "{said}");
    }

    /// Creates broadcasts until one fails. Returns the ids of the acknowledged ones.
    fn fill_up(&self, prefix: &str, name: &str) -> Vec<String> {
        let mut acknowledged = Vec::new();
        for n in 0..3000 {
            let id = format!("{prefix}-{n}");
            match try_create(&self.server.api(), &id, name) {
                Some(200) => acknowledged.push(id),
                Some(500) => {
                    assert_eq!(name_of(&self.server, &id), None, "{id} failed and is visible");
                    return acknowledged;
                }
                other => panic!("{id}: {other:?}"),
            }
        }
        panic!("the disk did not fill up");
    }
}

fn check_full_disk(mut disk: SmallDisk) {
    let bystander = Bystander::start(&disk.server).leaving(24 * 1024);
    let name = "n".repeat(9000);
    let mut acknowledged = Vec::new();
    for (round, space) in [12 << 20, 0].into_iter().enumerate() {
        disk.leave(space);
        acknowledged.extend(disk.fill_up(&format!("r{round}"), &name));
        // The write is refused again and again, and existing records can be read.
        for n in 0..5 {
            let id = format!("refused{round}-{n}");
            if try_create(&disk.server.api(), &id, &name) == Some(200) {
                acknowledged.push(id);
            }
        }
        for id in acknowledged.iter().step_by(20) {
            assert_eq!(name_of(&disk.server, id).as_ref(), Some(&name));
        }
        disk.free();
        let failures = failures_until_success(&disk.server, &format!("again{round}-"));
        acknowledged.push(format!("again{round}-{failures}"));
    }
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());

    // Copies the store's file, as a kill would leave it, to another disk, and starts a server with the copy.
    let home = Home::new();
    fs::create_dir_all(home.path().join("home/data")).unwrap();
    fs::copy(disk.folder.join("data/store.redb"), home.path().join("home/data/store.redb")).unwrap();
    let again = Server::start_in(&home.path().join("home"), &[]);
    for id in &acknowledged {
        assert!(name_of(&again, id).is_some(), "{id} was acknowledged and is lost");
    }
    let log = fs::read_to_string(disk.folder.join("log/millstream.log")).unwrap_or_default();
    assert!(!log.contains("panicked"), "{log}");
    bystander.finish(&mut disk.server);
}

#[test]
fn b_04_a_full_disk_fails_writes_until_there_is_space() {
    check_full_disk(SmallDisk::start());
}

#[test]
fn b_04_a_file_that_may_not_grow_fails_writes_until_it_may() {
    check_full_disk(SmallDisk::limited());
}

#[test]
fn b_08_a_sync_of_five_seconds_holds_up_no_stream_and_no_reader() {
    let mut server = Server::start(&[]);
    assert_eq!(try_create(&server.api(), "before", "n"), Some(200));
    let bystander = Bystander::start(&server);
    let fault = Fault::begin(&server, &["fdatasync:delay_exit=5s:when=1"]);
    let api = server.api();
    let writer = std::thread::spawn(move || try_create(&api, "slow", "n"));
    let mut reads = 0;
    while !writer.is_finished() {
        assert_eq!(name_of(&server, "before").as_deref(), Some("n"));
        reads += 1;
        std::thread::sleep(ms(20));
    }
    assert_eq!(writer.join().unwrap(), Some(200), "late, and acknowledged");
    // If readers waited for the disk, far fewer reads could have been served during one sync.
    assert!(reads > 20, "{reads} reads while one write waited");
    fault.end();
    assert_eq!(name_of(&server, "slow").as_deref(), Some("n"));
    bystander.finish(&mut server);
}
