//! The imports that are allowed: the rooms of the server (the top folders and files of `src`) and the arrows between
//! them, held to the table in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::File;
use crate::{code, source};

const PAGE: &str = "ARCHITECTURE.md";

/// The first cell of the table's head.
const TABLE: &str = "| room of `src` |";

/// The room that only names the others.
const LIB: &str = "lib";

/// Arrows that are there and not in the table, and what will remove them. This list only becomes shorter.
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The room of a file.
fn room(path: &str) -> &str {
    let below = path.strip_prefix("src/").unwrap_or(path);
    below.split_once('/').map_or_else(|| below.trim_end_matches(".rs"), |(folder, _)| folder)
}

/// Returns the depth of a file's module.
fn depth(path: &str) -> usize {
    let parts: Vec<&str> = path.trim_start_matches("src/").trim_end_matches(".rs").split('/').collect();
    parts.len() - usize::from(parts.last() == Some(&"mod"))
}

/// The first names behind a path's root: one, or those of a group.
fn heads(rest: &str) -> Vec<&str> {
    if !rest.starts_with('{') {
        return vec![code::word(rest)];
    }
    let mut heads = Vec::new();
    let mut level = 0;
    let mut is_next = true;
    for (at, c) in code::block(rest).char_indices() {
        match c {
            '{' => level += 1,
            '}' => level -= 1,
            ',' if level == 0 => is_next = true,
            c if is_next && !c.is_whitespace() => {
                heads.push(code::word(&rest[1 + at..]));
                is_next = false;
            }
            _ => {}
        }
    }
    heads
}

/// The heads of paths in a file that lead out of it: from `crate::` and `millstream::`, and where it climbs to the top
/// by `super::`.
fn heads_of(file: &File) -> Vec<&str> {
    const SUPER: &str = "super::";
    let text = &file.text;
    let mut heads_of_file: Vec<&str> = ["crate::", "millstream::"]
        .iter()
        .flat_map(|root| code::words(text, root).map(|at| at + root.len()))
        .flat_map(|at| heads(&text[at..]))
        .collect();
    for at in code::words(text, SUPER).filter(|at| !text[..*at].ends_with(SUPER)) {
        let climbed = text[at..].split(SUPER).take_while(|part| part.is_empty()).count();
        if climbed >= depth(&file.path) {
            heads_of_file.extend(heads(&text[at + climbed * SUPER.len()..]));
        }
    }
    heads_of_file
}

/// The modules of a room that a file names, by the room's path or by climbing up to it.
pub(crate) fn heads_from(file: &File, within: &str) -> BTreeSet<String> {
    const SUPER: &str = "super::";
    let text = &file.text;
    let root = format!("{within}::");
    let mut found: BTreeSet<&str> =
        code::words(text, &root).flat_map(|at| heads(&text[at + root.len()..])).collect();
    if room(&file.path) == within {
        for at in code::words(text, SUPER).filter(|at| !text[..*at].ends_with(SUPER)) {
            let climbed = text[at..].split(SUPER).take_while(|part| part.is_empty()).count();
            if climbed + 1 == depth(&file.path) {
                found.extend(heads(&text[at + climbed * SUPER.len()..]));
            }
        }
    }
    found.into_iter().map(str::to_owned).collect()
}

/// Returns the rooms that each room names, by `crate::…` or by climbing out with `super::`.
fn arrows() -> Arrows {
    let files = code::server();
    let rooms: BTreeSet<String> = files.iter().map(|file| room(&file.path).to_owned()).collect();
    let mut arrows = Arrows::new();
    for file in &files {
        let from = room(&file.path);
        let to = arrows.entry(from.to_owned()).or_default();
        to.extend(
            heads_of(file)
                .into_iter()
                .filter(|head| *head != from && rooms.contains(*head))
                .map(str::to_owned),
        );
    }
    arrows
}

/// The table: each room and whom it may use, bottom up.
fn table() -> Vec<(String, BTreeSet<String>)> {
    let page = source::files(PAGE, &[".md"]).remove(0).text;
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    page.lines()
        .skip_while(|line| !line.starts_with(TABLE))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').collect();
            (names(cells[1]).into_iter().next().unwrap(), names(cells[2]))
        })
        .collect()
}

#[test]
fn rooms_use_only_rooms_that_the_table_allows_them() {
    let table: Arrows = table().into_iter().collect();
    let arrows = arrows();
    assert!(arrows.len() > 10 && arrows["io"].len() > 5, "the sources were not read: {arrows:?}");
    let mut faults = Vec::new();
    for (from, to) in arrows.iter().filter(|(from, _)| *from != LIB) {
        let Some(allowed) = table.get(from) else {
            faults.push(format!("{from} has no row"));
            continue;
        };
        let is_known = |to: &str| EXCEPTIONS.iter().any(|(a, b, _)| a == from && *b == to);
        faults.extend(
            to.iter()
                .filter(|to| !allowed.contains(*to) && !is_known(to))
                .map(|to| format!("{from} -> {to}")),
        );
    }
    faults.extend(
        table.keys().filter(|room| !arrows.contains_key(*room)).map(|room| format!("{room} is not there")),
    );
    assert!(faults.is_empty(), "the table in {PAGE} has not:\n{}", faults.join("\n"));
}

#[test]
fn the_table_has_no_circles() {
    let mut below = BTreeSet::new();
    for (room, allowed) in table() {
        let upwards: Vec<_> = allowed.difference(&below).collect();
        assert!(upwards.is_empty(), "{room} may use {upwards:?}, which do not stand above it in {PAGE}");
        below.insert(room);
    }
}

#[test]
fn exceptions_go_when_their_arrows_are_gone() {
    let arrows = arrows();
    for (from, to, why) in EXCEPTIONS {
        let is_there = arrows.get(from).is_some_and(|rooms| rooms.contains(to));
        assert!(is_there, "{from} -> {to} is gone ({why}): take it off the list");
    }
}
