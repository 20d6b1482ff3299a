//! Tests of the test programs themselves: the output of a failure, the remains of a run, and the privileges they need.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::support::{Home, Server, run};

/// Returns the folder with the scripts.
fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
}

/// Environment variable that is set for a test that must fail, which another test runs in a process of its own.
const FAIL: &str = "SUITE_TEST_FAILS";

/// Runs a test of this binary that must fail, in a process and a temp folder of its own, and returns its output.
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
        let server = Server::start(&["logLevel=INFO"]);
        server.wait_for_line("certificate created");
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

/// Checks that all steps run even if one fails, and that the last lines of the output name the failed steps.
#[test]
fn make_test_runs_all_steps_and_fails_if_one_did() {
    let home = Home::new();
    let makefile = "good bad last:\n\t@echo ran $@; test $@ != bad\n";
    fs::write(home.path().join("Makefile"), makefile).unwrap();
    let steps = |names: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(tests().join("steps.sh")).args(names).current_dir(home.path()).env_remove("MAKEFLAGS");
        run(&mut command)
    };
    let (status, out, said) = steps(&["good", "bad", "last"]);
    assert_eq!(status.code(), Some(1), "{out}{said}");
    let (ran, summary) = out.split_once("Summary of 3:").expect(&out);
    assert!(["good", "bad", "last"].iter().all(|name| ran.contains(&format!("ran {name}"))), "{ran}");
    let lines: Vec<String> =
        summary.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, ["", "good passed", "bad FAILED", "last passed", "1 of"], "{summary}");
    let (status, out, said) = steps(&["good", "last"]);
    assert!(status.success() && !out.contains("failed"), "{out}{said}");
    // All steps that `make test` runs exist in the Makefile.
    let file = fs::read_to_string(tests().parent().unwrap().join("Makefile")).unwrap();
    let line = file.lines().find(|line| line.contains("tests/steps.sh")).unwrap();
    let (_, given) = line.split_once("tests/steps.sh ").unwrap();
    assert!(given.split(' ').all(|step| file.contains(&format!("\n{step}:"))), "{given}");
}

/// Checks that the tests need no privileges if all programs are installed. The script runs from a copy, because an
/// ordinary user may not be able to read the folder of root.
#[test]
fn nothing_is_installed_where_nothing_is_missing() {
    let home = Home::new();
    let is_open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    is_open(home.path());
    let calls = home.path().join("calls");
    for program in ["sudo", "apt-get", "pip"] {
        let file = home.path().join(program);
        fs::write(&file, format!("#!/bin/sh\necho {program} \"$@\" >> {}\nexit 1\n", calls.display()))
            .unwrap();
        is_open(&file);
    }
    let copy = home.path().join("tests");
    [".venv", "h2spec"].iter().for_each(|folder| fs::create_dir_all(copy.join(folder)).unwrap());
    for file in ["install.sh", ".venv/installed", ".venv/h2spec", "h2spec/go.sum"] {
        fs::copy(tests().join(file), copy.join(file)).unwrap();
        is_open(&copy.join(file));
    }
    is_open(&copy);
    is_open(&copy.join(".venv"));
    let mut command = Command::new("setpriv");
    let (_, user, _) = run(Command::new("id").arg("-u"));
    if user.trim() == "0" {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    // An ordinary user has no `sbin` in PATH.
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.path().display());
    command.arg("sh").arg(copy.join("install.sh")).env("PATH", path).env("HOME", home.path());
    // The working directory of the tests may also be a folder that only root can read.
    command.current_dir(home.path());
    let (status, out, said) = run(&mut command);
    assert!(status.success() && out.is_empty(), "{out}{said}");
    assert!(!calls.exists(), "{}", fs::read_to_string(&calls).unwrap());
}
