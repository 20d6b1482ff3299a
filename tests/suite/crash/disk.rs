//! B-04, B-08: disks that are full, fail, or take their time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::super::support::{Bystander, Home, Server, ms, secs, wait_for};
use super::{name_of, try_create, try_update};

/// strace on the store's thread alone, so that the other threads run at full speed.
struct Fault {
    tracer: Child,
}

impl Fault {
    /// `inject` is strace's: `fdatasync:error=EIO:when=1`, ...
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
        // SIGTERM makes it let go; killed, it might leave the thread stopped.
        let _ = Command::new("kill").arg(self.tracer.id().to_string()).status();
        let _ = self.tracer.wait();
    }
}

/// Tries until a write succeeds; how often it failed before. A write that failed must not be visible.
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

/// After kill -9 everything that was acknowledged is there.
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
    // The first sync of the commit; a write of a page; each of them before the rename of the fresh file works.
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
    logged("the store cannot be written: changes fail until it can");
    let failures = failures_until_success(&server, "again");
    acknowledged.push(format!("again{failures}"));
    logged("the store is written again");
    bystander.finish(&mut server);
    check_after_kill(&mut server, &acknowledged);
}

/// A server whose home is a tmpfs of its own; the folder, as this process sees it.
fn on_small_disk(mega: u32) -> (Server, PathBuf) {
    let home = Home::new();
    let folder = home.path().join("home");
    let plain = Server::command(&folder, &[]);
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", r#"mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@""#]);
    command.arg(format!("{mega}m")).arg(&folder).arg(plain.get_program()).args(plain.get_args());
    let server = Server::spawn(&mut command).with_home(home);
    let seen = PathBuf::from(format!("/proc/{}/root{}", server.pid(), folder.display()));
    (server, seen)
}

fn fill(file: &Path, bytes: usize) {
    fs::write(file, vec![1u8; bytes]).unwrap();
}

#[test]
fn b_04_a_full_disk_fails_writes_until_there_is_space() {
    let (mut server, folder) = on_small_disk(40);
    assert!(folder.join("data/store.redb").exists(), "the home is on the small disk");
    let bystander = Bystander::start(&server);
    let filler = folder.join("filler");
    fill(&filler, 28 << 20);
    let name = "n".repeat(9000);
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        let failed = (0..3000).find(|n| {
            let id = format!("r{round}-{n}");
            match try_create(&server.api(), &id, &name) {
                Some(200) => acknowledged.push(id),
                Some(500) => {
                    assert_eq!(name_of(&server, &id), None, "{id} failed and is visible");
                    return true;
                }
                other => panic!("{id}: {other:?}"),
            }
            false
        });
        assert!(failed.is_some(), "the disk did not fill up");
        // It is refused again and again, and what is there can be read.
        for n in 0..5 {
            let id = format!("refused{round}-{n}");
            if try_create(&server.api(), &id, &name) == Some(200) {
                acknowledged.push(id);
            }
        }
        for id in acknowledged.iter().step_by(20) {
            assert_eq!(name_of(&server, id).as_ref(), Some(&name));
        }
        if round == 0 {
            fs::remove_file(&filler).unwrap();
            let failures = failures_until_success(&server, "again");
            acknowledged.push(format!("again{failures}"));
            // Full once more.
            let mut bytes = 64 << 20;
            while bytes >= 1 << 16 {
                let _ = fs::write(folder.join(format!("filler-{bytes}")), vec![1u8; bytes]);
                bytes /= 2;
            }
        }
    }
    for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_name().to_str().unwrap().starts_with("filler") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let failures = failures_until_success(&server, "last");
    acknowledged.push(format!("last{failures}"));
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());

    // The file as a kill would leave it, carried to another disk.
    let home = Home::new();
    fs::create_dir_all(home.path().join("home/data")).unwrap();
    fs::copy(folder.join("data/store.redb"), home.path().join("home/data/store.redb")).unwrap();
    let again = Server::start_in(&home.path().join("home"), &[]);
    for id in &acknowledged {
        assert!(name_of(&again, id).is_some(), "{id} was acknowledged and is lost");
    }
    let log = fs::read_to_string(folder.join("log/millstream.log")).unwrap_or_default();
    assert!(!log.contains("panicked"), "{log}");
    bystander.finish(&mut server);
}

#[test]
fn b_08_a_sync_of_five_seconds_holds_up_no_stream_and_no_reader() {
    let mut server = Server::start(&[]);
    assert_eq!(try_create(&server.api(), "before", "n"), Some(200));
    // The same stream for the same time, with a disk that works.
    let calm = Bystander::start(&server);
    std::thread::sleep(secs(2));
    let calm_gap = calm.finish(&mut server);

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
    // Far more than could have been served between two syncs if readers waited for the disk.
    assert!(reads > 20, "{reads} reads while one write waited");
    fault.end();
    assert_eq!(name_of(&server, "slow").as_deref(), Some("n"));
    let gap = bystander.finish(&mut server);
    let bound = (calm_gap * 3).max(Duration::from_millis(500));
    assert!(gap <= bound, "{gap:?} with a slow disk, {calm_gap:?} without");
}
