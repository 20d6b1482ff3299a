//! B-05 from the operator's point of view: the store opens with all records, or the server refuses to start with one
//! clear line.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::super::support::{Home, Server};
use super::{name_of, try_create};

/// Returns a home with some records. Its server was killed.
fn home_with_records() -> (Home, PathBuf) {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    for n in 0..10 {
        assert_eq!(try_create(&server.api(), &format!("s{n}"), "n"), Some(200));
    }
    server.kill();
    (home, folder)
}

fn start(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["--signal=KILL", "30"]).arg(command.get_program()).args(command.get_args());
    limited.stdin(Stdio::null()).output().unwrap()
}

/// Checks that all panics are in the database library, which panics at some kinds of damage. The server catches and
/// logs these panics.
fn assert_only_library_panics(said: &str, what: &str) {
    for line in said.lines().filter(|line| line.contains("panicked")) {
        assert!(line.contains("/redb-"), "{what}: {said}");
    }
}

/// Checks that the server refuses to start with one line about the store, and that `check-config --deep` prints the
/// same line.
fn assert_refused(folder: &Path, what: &str, words: &str) {
    let mut deep = Command::new(env!("CARGO_BIN_EXE_millstream"));
    deep.args(["check-config", "--deep", "--home"]).arg(folder);
    for output in [start(&Server::command(folder, &[])), start(&deep)] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert_eq!(output.stdout, b"", "{what}");
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("millstream: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains("store") && lines[0].contains(words), "{what}: {said}");
        assert_only_library_panics(&said, what);
    }
}

/// Checks that the store opens with all records, or is refused.
fn assert_whole_or_refused(folder: &Path, what: &str) {
    let output = start(
        Command::new(env!("CARGO_BIN_EXE_millstream")).args(["check-config", "--deep", "--home"]).arg(folder),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_only_library_panics(&said, what);
    let line = said.lines().find(|line| line.starts_with("millstream: ")).unwrap_or_default();
    match output.status.code() {
        Some(0) => assert!(line.contains("the store has 10 records"), "{what}: {said}"),
        Some(1) => assert!(line.contains("store"), "{what}: {said}"),
        other => panic!("{what}: {other:?} {said}"),
    }
}

#[test]
fn b_05_a_store_that_is_not_whole_refuses_the_start_with_one_line() {
    let (_home, folder) = home_with_records();
    let file = folder.join("data/store.redb");
    let good = fs::read(&file).unwrap();

    for length in [1, 64, 511, 512, 4096, 10_000, good.len() / 2, good.len() - 4096, good.len() - 1] {
        fs::write(&file, &good[..length]).unwrap();
        assert_refused(&folder, &format!("cut at {length}"), "damaged");
    }
    fs::write(&file, b"").unwrap();
    assert_refused(&folder, "empty", "empty");
    fs::write(&file, vec![0; good.len()]).unwrap();
    assert_refused(&folder, "zeros", "damaged");
    fs::write(&file, "text\n".repeat(1000)).unwrap();
    assert_refused(&folder, "text", "damaged");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_refused(&folder, "a directory", "not a regular file");
    fs::remove_dir(&file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    assert_refused(&folder, "a link", "not a regular file");
    fs::remove_file(&file).unwrap();

    // Flips a sample of bits. The unit tests of the store flip the others.
    for at in (0..512).step_by(37).chain((4096..good.len()).filter(|at| good[*at] != 0).step_by(997)) {
        let mut damaged = good.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&file, damaged).unwrap();
        assert_whole_or_refused(&folder, &format!("byte {at}"));
    }
    fs::write(&file, [&good[..], &[7; 5000]].concat()).unwrap();
    assert_whole_or_refused(&folder, "junk behind");

    // The failed starts have changed nothing: with the undamaged file, all records exist.
    fs::write(&file, &good).unwrap();
    let mut server = Server::start_in(&folder, &[]);
    assert!((0..10).all(|n| name_of(&server, &format!("s{n}")).is_some()));
    assert!(server.terminate().success());
}

#[test]
fn b_05_a_store_that_may_not_be_read_refuses_the_start() {
    let (_home, folder) = home_with_records();
    let file = folder.join("data/store.redb");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let plain = Server::command(&folder, &[]);
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    // Root may read every file. Run the server without this right.
    let command = if is_root {
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-dac_override,-dac_read_search").arg(plain.get_program());
        command.args(plain.get_args());
        command
    } else {
        plain
    };
    let output = start(&command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{said}");
    let line = said.lines().find(|line| line.starts_with("millstream: ")).unwrap();
    assert!(line.contains("store.redb") && line.contains("ermission denied"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut server = Server::start_in(&folder, &[]);
    assert!((0..10).all(|n| name_of(&server, &format!("s{n}")).is_some()));
    assert!(server.terminate().success());
}

#[test]
fn b_03_a_fresh_file_left_beside_by_a_crash_is_no_obstacle() {
    let (_home, folder) = home_with_records();
    for junk in [&b""[..], b"half a file"] {
        fs::write(folder.join("data/store.new"), junk).unwrap();
        let mut server = Server::start_in(&folder, &[]);
        assert!((0..10).all(|n| name_of(&server, &format!("s{n}")).is_some()));
        assert!(server.terminate().success());
    }
    // The server is killed again and again while it opens the store. Afterwards, the store still opens.
    for n in 0..20u64 {
        let mut child = Server::command(&folder, &[])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(n * 2));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let server = Server::start_in(&folder, &[]);
    assert!((0..10).all(|n| name_of(&server, &format!("s{n}")).is_some()));
}
