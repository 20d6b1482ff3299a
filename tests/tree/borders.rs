//! `unsafe` stands at two borders only: to the system in `src/io/sys`, and to other languages in `bindings`.

use crate::{code, source};

/// Files and folders that may have it.
const PLACES: [&str; 3] = ["src/io/sys.rs", "src/io/sys/", "bindings/"];

/// Folders with code in Rust.
const FOLDERS: [&str; 6] = ["src", "proto-impl", "bindings", "benches", "fuzz", "tests"];

/// Lines of a file that have the keyword in code.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    // An attribute, a comment and a string name it without being it.
    let code = |line: &&str| !line.starts_with("//") && !line.contains('"');
    let is = |line: &&str| {
        code::words(line, "unsafe").any(|at| line[at + "unsafe".len()..].starts_with([' ', '(']))
    };
    text.lines().map(str::trim).filter(code).filter(is)
}

#[test]
fn unsafe_code_stands_at_the_borders_only() {
    let (mut allowed, mut faults) = (0, Vec::new());
    for file in FOLDERS.iter().flat_map(|folder| source::files(folder, &[".rs"])) {
        let found: Vec<_> = lines(&file.text).collect();
        if PLACES.iter().any(|place| file.path.starts_with(place)) {
            allowed += found.len();
        } else {
            faults.extend(found.iter().map(|line| format!("{}: {line}", file.path)));
        }
    }
    assert!(allowed > 20, "the search finds nothing");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
