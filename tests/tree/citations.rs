//! A comment that cites a document leads to one that is in the repository.

use std::path::Path;

use crate::source;

/// Folders and files with text of ours.
const FOLDERS: [&str; 14] = [
    "src",
    "proto-impl",
    "tests",
    "benches",
    "fuzz",
    "docs",
    "packaging",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "Makefile",
    "Cargo.toml",
    ".ci",
];

const ENDINGS: [&str; 9] = [".rs", ".md", ".toml", ".sh", ".py", ".js", ".json", "Makefile", "run"];

/// Documents of other projects; the lines that cite them name the project.
const FOREIGN: [&str; 6] = [
    "docs/API/rejection-codes.md",
    "docs/API/statistics.md",
    "docs/features/access-control.md",
    "docs/features/handshake.md",
    "docs/features/packet-filtering-and-fec.md",
    "PORTING.md",
];

/// Endings of the names of documents.
const DOCUMENT: &str = ".md";

/// The documents that a line names, each with what follows it.
fn documents(line: &str) -> Vec<(&str, &str)> {
    line.match_indices(DOCUMENT)
        .filter_map(|(at, _)| {
            let rest = &line[at + DOCUMENT.len()..];
            if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                return None;
            }
            let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
            let begin = line[..at]
                .char_indices()
                .rev()
                .take_while(|(_, c)| is_part(*c))
                .last()
                .map_or(at, |(at, _)| at);
            let name = &line[begin..at + DOCUMENT.len()];
            (name != DOCUMENT && !name.contains("://")).then_some((name, rest))
        })
        .collect()
}

#[test]
fn no_file_cites_a_document_that_is_not_here() {
    let root = source::root();
    let mut cited = 0;
    let mut faults = Vec::new();
    for file in FOLDERS.iter().flat_map(|folder| source::files(folder, &ENDINGS)) {
        // The names of documents appear here as data.
        if file.path.ends_with("tests/tree/citations.rs") {
            continue;
        }
        let folder = root.join(&file.path).parent().map(Path::to_path_buf).unwrap_or_default();
        for (line, number) in file.text.lines().zip(1..) {
            for (name, rest) in documents(line) {
                cited += 1;
                // A page names its neighbours as a reader clicks on them, code includes what is beside it.
                if FOREIGN.contains(&name) {
                    continue;
                }
                let is_relative = file.path.ends_with(DOCUMENT) || name.starts_with("..");
                let is_here = root.join(name).is_file() || is_relative && folder.join(name).is_file();
                if !is_here {
                    faults.push(format!("{}:{number}: {name} is not in the repository", file.path));
                } else if rest.trim_start().starts_with('§') {
                    faults.push(format!(
                        "{}:{number}: the pages of docs have no numbered sections: {line}",
                        file.path
                    ));
                }
            }
            if line.contains("seed §") {
                faults.push(format!("{}:{number}: the seed is not in the repository", file.path));
            }
        }
    }
    assert!(cited > 50, "the files were not read: {cited} documents are cited");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
