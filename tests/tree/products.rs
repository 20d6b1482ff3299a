//! Each crate of `proto-impl` is a product of its own: a description, a README with an example that needs no other
//! crate, a changelog, fuzz targets that exist, and a row in the map of crates.

use std::collections::BTreeSet;

use crate::source;

/// The ending of pages; apart from their names, which are no citations here.
const PAGE: &str = ".md";

const MAP: &str = "docs/crates.md";

/// Crates whose example needs another crate of the workspace. This list only becomes shorter.
const EXAMPLES_WITH_HELP: [(&str, &str); 1] = [("http2", "wire")];

/// Crates that nobody else's program speaks with.
const ALONE: [&str; 3] = ["media", "netsim", "wire"];

/// Keys that each manifest has.
const KEYS: [&str; 10] = [
    "description = \"",
    "keywords = [",
    "categories = [",
    "readme = \"README",
    "version.workspace = true",
    "edition.workspace = true",
    "rust-version.workspace = true",
    "license.workspace = true",
    "include.workspace = true",
    "[lints]\nworkspace = true",
];

/// The names of the crates.
fn crates() -> Vec<String> {
    let manifests = source::files("proto-impl", &["Cargo.toml"]);
    let names = manifests.iter().filter_map(|file| file.path.split('/').nth(1)).map(str::to_owned);
    names.collect()
}

/// A page of a crate.
pub(crate) fn page(krate: &str, name: &str) -> String {
    text(&format!("proto-impl/{krate}/{name}{PAGE}"))
}

fn text(path: &str) -> String {
    let path = source::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks of Rust in a page.
fn examples(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut parts = page.split("\n```");
    parts.next();
    while let (Some(block), Some(_)) = (parts.next(), parts.next()) {
        let (kind, code) = block.split_once('\n').unwrap_or(("", block));
        if matches!(kind, "" | "rust") {
            found.push(code);
        }
    }
    found
}

/// The names in backticks of a paragraph.
fn quoted(paragraph: &str) -> impl Iterator<Item = &str> {
    paragraph.split('`').skip(1).step_by(2)
}

#[test]
fn every_crate_says_what_it_is_and_where_its_limits_are() {
    let crates = crates();
    assert!(crates.len() > 20, "the folder was not read: {crates:?}");
    let mut faults = Vec::new();
    for name in &crates {
        let manifest = text(&format!("proto-impl/{name}/Cargo.toml"));
        faults.extend(
            KEYS.iter().filter(|key| !manifest.contains(*key)).map(|key| format!("{name}: no {key}")),
        );
        for line in [format!("name = \"millstream-{name}\"\n"), format!("[lib]\nname = \"{name}\"\n")] {
            if !manifest.contains(&line) {
                faults.push(format!("{name}: no {line}"));
            }
        }
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            if text(&format!("proto-impl/{name}/{licence}")) != text(licence) {
                faults.push(format!("{name}: its {licence} is another"));
            }
        }
        let lib = text(&format!("proto-impl/{name}/src/lib.rs"));
        let doc = format!("#![doc = include_str!(\"../README{PAGE}\")]\n");
        for line in [&*doc, "#![forbid(unsafe_code)]\n"] {
            if !lib.contains(line) {
                faults.push(format!("{name}: no {line}"));
            }
        }
        if !page(name, "CHANGELOG").contains("\n## 0.1.0") {
            faults.push(format!("{name}: its changelog has no 0.1.0"));
        }
        let readme = page(name, "README");
        let tried = (!ALONE.contains(&name.as_str())).then_some("\n## Tried with\n");
        for part in ["\n## Fuzzing\n", "\n## Licence\n"].into_iter().chain(tried) {
            if !readme.contains(part) {
                faults.push(format!("{name}: its page has no {part}"));
            }
        }
        if !text(MAP).contains(&format!("| [{name}](../proto-impl/{name}/README{PAGE}) |")) {
            faults.push(format!("{name} has no row in {MAP}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_example_of_a_crate_needs_no_other_crate() {
    let crates = crates();
    let mut faults = Vec::new();
    for name in &crates {
        let readme = page(name, "README");
        let examples = examples(&readme);
        if examples.is_empty() {
            faults.push(format!("{name} has no example"));
        }
        let roots =
            examples.iter().flat_map(|code| code.lines()).filter_map(|line| line.trim().strip_prefix("use "));
        let roots: BTreeSet<&str> = roots.filter_map(|path| path.split("::").next()).collect();
        let is_listed = |other: &str| EXAMPLES_WITH_HELP.contains(&(name.as_str(), other));
        let others = roots.into_iter().filter(|root| root != name && *root != "std" && !is_listed(root));
        faults.extend(others.map(|other| format!("{name}: its example uses {other}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn fuzz_targets_that_crates_name_exist() {
    let mut seen = 0;
    for name in crates() {
        let readme = page(&name, "README");
        let Some((_, part)) = readme.split_once("`fuzz/run.sh TARGET`, with ") else { continue };
        for target in quoted(part.split(':').next().unwrap()) {
            let path = source::root().join(format!("fuzz/fuzz_targets/{target}.rs"));
            assert!(path.is_file(), "{name}: there is no target {target}");
            seen += 1;
        }
    }
    assert!(seen > 30, "the pages were not read: {seen} targets");
}
