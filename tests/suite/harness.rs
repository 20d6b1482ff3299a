//! The tests as programs: what a failure shows, what is left behind, what they need of a user.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::support::{Home, Server, run};

/// Set for the run inside of a test that is about failures.
const FAIL: &str = "SUITE_TEST_FAILS";

/// One test of this binary, in a process and a temp folder of its own, that is to fail.
fn fail(test: &str, temp: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(FAIL, "1").env("TMPDIR", temp);
    let (status, out, said) = run(&mut command);
    assert_eq!(status.code(), Some(101), "{out}{said}");
    out + &said
}

#[test]
fn a_failure_shows_the_end_of_standard_error_of_its_servers_and_leaves_nothing() {
    if std::env::var_os(FAIL).is_some() {
        let _server = Server::start(&["logLevel=INFO"]);
        panic!("a test that fails");
    }
    let home = Home::new();
    let name = "harness::a_failure_shows_the_end_of_standard_error_of_its_servers_and_leaves_nothing";
    let shown = fail(name, home.path());
    assert!(
        shown.contains("standard error of the server") && shown.contains("certificate created"),
        "{shown}"
    );
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "left in the temp folder");
}

#[test]
fn a_start_that_fails_shows_standard_error_and_leaves_nothing() {
    if std::env::var_os(FAIL).is_some() {
        Server::start(&["http.port=seventy"]);
    }
    let home = Home::new();
    let shown = fail("harness::a_start_that_fails_shows_standard_error_and_leaves_nothing", home.path());
    assert!(shown.contains("standard error:") && shown.contains("http.port"), "{shown}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "left in the temp folder");
}

/// Where all programs are there, whoever runs the tests needs no rights.
#[test]
fn nothing_is_installed_where_nothing_is_missing() {
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let calls = home.path().join("calls");
    for program in ["sudo", "apt-get", "pip"] {
        let file = home.path().join(program);
        fs::write(&file, format!("#!/bin/sh\necho {program} \"$@\" >> {}\nexit 1\n", calls.display()))
            .unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install.sh");
    let mut command = Command::new("setpriv");
    let (_, user, _) = run(Command::new("id").arg("-u"));
    if user.trim() == "0" {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    // The path of a user: nothing of sbin.
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.path().display());
    command.arg("sh").arg(script).env("PATH", path).env("HOME", home.path());
    let (status, out, said) = run(&mut command);
    assert!(status.success() && out.is_empty(), "{out}{said}");
    assert!(!calls.exists(), "{}", fs::read_to_string(&calls).unwrap());
}
