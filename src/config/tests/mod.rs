//! Checks all keys: each one either works and has a test that shows it, or is described as having no effect.

mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::*;
use crate::protocol::schema;
use shown::SHOWN;

/// Files that show or order keys without reading them.
const SHOWING: [&str; 5] = [
    "src/config/members.rs",
    "src/config/order.rs",
    "src/config/page.rs",
    "src/control/rest/schemas.rs",
    "src/control/rest/server.rs",
];

fn all_keys() -> impl Iterator<Item = &'static Key> {
    schema().keys(Level::Server).iter().chain(schema().keys(Level::App))
}

fn works(key: &Key) -> bool {
    key.effect == Effect::Works
}

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
}

/// Returns the sources of the server, without tests and tables of keys.
fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &str, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                walk(&path, found);
            } else if path.ends_with(".rs") && !path.contains("tests") {
                let text = fs::read_to_string(entry.path()).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                found.insert(path, without_tables(code));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk("src", &mut found);
    found
}

/// Returns a text without the constants that are tables of keys.
fn without_tables(code: &str) -> String {
    let mut kept = String::new();
    let mut in_table = false;
    for line in code.lines() {
        in_table |= line.contains(": &[Key] = &[");
        if !in_table {
            kept.push_str(line);
            kept.push('\n');
        }
        in_table &= !line.ends_with("];");
    }
    kept
}

/// Returns the name of a key as it occurs in code.
fn quoted(key: &Key) -> String {
    format!("\"{}\"", key.name)
}

#[test]
fn each_key_that_works_is_read_somewhere() {
    let sources = sources();
    assert!(sources.len() > 300, "the sources were not read: {}", sources.len());
    let unread: Vec<&str> = all_keys()
        .filter(|key| works(key))
        .filter(|key| {
            let name = quoted(key);
            !sources.iter().any(|(path, code)| !SHOWING.contains(&path.as_str()) && code.contains(&name))
        })
        .map(|key| key.name)
        .collect();
    assert!(unread.is_empty(), "described as working and read nowhere: {unread:?}");
}

#[test]
fn a_foreign_key_is_not_read_by_what_reads_settings() {
    let reads = ["values.boolean(", "values.number(", "values.secret(", "values.rules(", "values.port("];
    let sources = sources();
    for key in all_keys().filter(|key| key.effect == Effect::Foreign) {
        let name = quoted(key);
        // The value of this key is checked to be a port, although the key has no effect.
        if key.name == "server.origin_port" {
            continue;
        }
        for (path, code) in &sources {
            let read = reads.iter().find(|read| code.contains(&format!("{read}{name}")));
            assert_eq!(read, None, "{path} reads {name}, which is said to have no effect");
        }
    }
}

#[test]
fn each_key_that_works_has_a_test_that_shows_it() {
    let named: BTreeSet<&str> = SHOWN.iter().map(|(key, _)| *key).collect();
    assert_eq!(named.len(), SHOWN.len(), "a key has one row");
    let working: BTreeSet<&str> = all_keys().filter(|key| works(key)).map(|key| key.name).collect();
    let missing: Vec<_> = working.difference(&named).collect();
    let surplus: Vec<_> = named.difference(&working).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "no test: {missing:?}; no such key: {surplus:?}");
    let mut faults = Vec::new();
    for (key, test) in SHOWN {
        let (path, name) = test.split_once("::").unwrap();
        let text = text(path);
        let body = text.split_once(&format!("fn {name}(")).map(|(_, rest)| rest);
        let body = body.unwrap_or_else(|| panic!("{key}: there is no test {test}"));
        let end = body.find("\n#[test]").or_else(|| body.find("\n    #[test]")).unwrap_or(body.len());
        let here = body[..end].contains(key);
        // The key may be in a table of constants that the test iterates over.
        let in_a_table = text.contains(&format!("(\"{key}\", ")) || text.contains(&format!("\"{key}="));
        if !(here || in_a_table) {
            faults.push(format!("{test} does not name {key}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_page_of_settings_is_that_of_the_keys() {
    let page = schema().page();
    if page != text("docs/settings.md") {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/settings.txt"), &page).unwrap();
        panic!("docs/settings.md is not current: run `millstream settings`, or copy target/settings.txt");
    }
    for key in all_keys() {
        assert_eq!(page.matches(&format!("| `{}` |", key.name)).count(), 1, "{}", key.name);
    }
}
