//! The tests as programs: what a failure shows, and what is left behind.

use std::fs;
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
