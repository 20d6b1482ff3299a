//! The pages of docs/robustness/ and the tests they name.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;

/// A page for each protocol or part, and their index.
const PAGES: &str = "docs/robustness";
const INDEX: &str = "docs/robustness.md";

/// A row of a page.
#[derive(Debug)]
struct Row {
    /// The name of its page, without the ending.
    page: String,
    id: String,
    /// `closed`, `partly` or `open`.
    state: String,
    /// `path::name` of each.
    tests: Vec<String>,
}

/// The letters of the groups. (`a_32_bit_clock` has no id.)
const GROUPS: &str = "BCDHIMNPQRSTUVWX";

/// True if `text` is an id: the letter of a group and a number of two digits.
fn is_id(text: &str) -> bool {
    let Some((group, number)) = text.split_once('-') else { return false };
    group.len() == 1
        && GROUPS.contains(group)
        && number.len() == 2
        && number.bytes().all(|digit| digit.is_ascii_digit())
}

fn rows() -> Vec<Row> {
    source::files(PAGES, &[".md"]).iter().flat_map(rows_of).collect()
}

fn rows_of(file: &source::File) -> Vec<Row> {
    let page = file.path.trim_start_matches(PAGES).trim_matches('/').trim_end_matches(".md");
    let mut rows = Vec::new();
    for line in file.text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if !cells.first().is_some_and(|id| is_id(id)) {
            continue;
        }
        assert_eq!(cells.len(), 4, "a row has four cells: {line}");
        let state: String = cells[2].chars().take_while(|c| c.is_ascii_alphabetic()).collect();
        let tests = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        rows.push(Row { page: page.to_owned(), id: cells[0].to_owned(), state, tests });
    }
    rows
}

/// All tests of the repository, by file.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    ["src", "proto-impl", "tests"]
        .iter()
        .flat_map(|folder| source::files(folder, &[".rs"]))
        .map(|file| {
            (file.path.clone(), source::tests_of(&file.text).into_iter().map(str::to_owned).collect())
        })
        .collect()
}

/// The ids that a test's name begins with: `h_01_h_02_…`, and `h_02_to_h_08_…` for a run of them.
fn ids_of(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let id_at = |at: usize| {
        let (letter, number) = (words.get(at)?, words.get(at + 1)?);
        let id = format!("{}-{number}", letter.to_ascii_uppercase());
        is_id(&id).then_some(id)
    };
    let mut ids: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(id) = id_at(at) {
        ids.push(id);
        at += 2;
        if words.get(at) == Some(&"to") {
            at += 1;
        }
    }
    ids
}

#[test]
fn every_closed_row_names_tests_that_exist() {
    let (rows, tests) = (rows(), tests());
    assert!(rows.len() > 200, "the pages were not read: {} rows", rows.len());
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for row in &rows {
        if !seen.insert(&row.id) {
            faults.push(format!("{} has two rows", row.id));
        }
        match row.state.as_str() {
            "closed" if row.tests.is_empty() => {
                faults.push(format!("{} is closed and names no test", row.id))
            }
            "closed" | "partly" | "open" => {}
            state => faults.push(format!("{} is {state:?}: neither closed, partly nor open", row.id)),
        }
        for test in &row.tests {
            let (path, name) = test.split_once("::").unwrap_or((test, ""));
            if tests.get(path).is_some_and(|names| names.contains(name)) {
                continue;
            }
            let now =
                tests.iter().find(|(_, names)| names.contains(name)).map_or("nowhere", |(path, _)| path);
            faults.push(format!("{}: {test} is not there; a test of that name is in: {now}", row.id));
        }
    }
    assert!(faults.is_empty(), "{PAGES}:\n{}", faults.join("\n"));
}

#[test]
fn every_id_in_the_name_of_a_test_has_its_row() {
    let ids: BTreeSet<String> = rows().into_iter().map(|row| row.id).collect();
    let mut named = 0;
    let mut faults = Vec::new();
    for (path, names) in tests() {
        for name in names {
            for id in ids_of(&name) {
                named += 1;
                if !ids.contains(&id) {
                    faults.push(format!("{path}::{name}: {PAGES} has no row {id}"));
                }
            }
        }
    }
    assert!(named > 400, "the names were not read: {named} ids");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_index_counts_the_rows_of_each_page() {
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for row in rows() {
        let of_page = counts.entry(row.page).or_default();
        let state = ["closed", "partly", "open"].iter().position(|state| *state == row.state);
        of_page[state.expect("every_closed_row_names_tests_that_exist")] += 1;
    }
    let index = source::files(INDEX, &[".md"]).remove(0).text;
    let faults: Vec<String> = counts
        .into_iter()
        .map(|(page, [closed, partly, open])| {
            format!("](robustness/{page}.md) | {closed} | {partly} | {open} |")
        })
        .filter(|row| !index.contains(row))
        .collect();
    assert!(faults.is_empty(), "{INDEX} lacks:\n{}", faults.join("\n"));
}
