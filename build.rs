//! The commit that is built, and its date, for `types::build`: of the environment (`BUILD_COMMIT`, `BUILD_DATE`: an archive
//! has no repository), else of git, else `unknown`. A debug build asks git once, so that a commit does not build everything again.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::env;
use std::process::Command;

/// Output of a git command; `None`: there is no repository, or no git.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let values = [
        ("BUILD_COMMIT", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"][..]),
        ("BUILD_DATE", &["show", "--no-patch", "--date=format:%Y-%m-%d", "--format=%cd", "HEAD"]),
    ];
    for (name, arguments) in values {
        println!("cargo::rerun-if-env-changed={name}");
        let given = env::var(name).ok().filter(|value| !value.is_empty());
        let value = given.or_else(|| git(arguments)).unwrap_or_else(|| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
    if env::var("PROFILE").as_deref() == Ok("release")
        && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
    {
        println!("cargo::rerun-if-changed={log}");
    }
}
