//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no text of ours, beside those whose names begin with a dot.
const SKIPPED: [&str; 5] = ["node_modules", "target", "corpus", "artifacts", "vectors"];

/// The repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(option_env!("CARGO_MANIFEST_DIR").unwrap_or("."))
}

/// A text file below the root.
#[derive(Debug)]
pub(crate) struct File {
    /// Its path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All files below `folder` (or the file itself) whose names end in one of `endings`, in the order of their paths.
pub(crate) fn files(folder: &str, endings: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root().join(folder), endings, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(path: &Path, endings: &[&str], found: &mut Vec<File>) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_dir() {
        if SKIPPED.contains(&name.as_str()) || name.starts_with('.') {
            return;
        }
        for entry in fs::read_dir(path).unwrap() {
            walk(&entry.unwrap().path(), endings, found);
        }
    } else if endings.iter().any(|ending| name.ends_with(ending)) {
        let relative = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        // A file that is not UTF-8 is no text.
        if let Ok(text) = fs::read_to_string(path) {
            found.push(File { path: relative, text });
        }
    }
}

/// The names of the tests in a file of Rust.
pub(crate) fn tests_of(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test && !line.starts_with("//"))
        {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            names.push(&rest[..end]);
            is_test = false;
        }
    }
    names
}
