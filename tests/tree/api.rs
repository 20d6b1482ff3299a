//! The public interface of each protocol crate, kept beside it in `api.txt`. A change of it is one of the crate's
//! version: it is said in the crate's changelog, and then written down by `make api`.
//!
//! Read from the text: every `pub` is reachable (the lint `unreachable_pub` sees to that), so the list has all of them,
//! with the fields, variants and methods of public types. Implementations of traits are not in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::source::{self, File};
use crate::{code, products};

/// Set by `make api`: lists are written instead of compared.
const WRITE: &str = "MILLSTREAM_API";

/// The item at the left margin that a line stands in.
enum Place {
    /// An `impl` or a module, whose public items count.
    Items(String),
    /// A public struct, whose public fields count.
    Fields(String),
    /// A public enum or trait, of which everything counts.
    All(String),
    /// Anything else.
    Private,
}

/// Joins lines up to the end of an item (`;`, or the brace of its body) or a member (`,`).
fn statement(lines: &[&str], is_member: bool) -> String {
    let (mut text, mut depth) = (String::new(), 0i32);
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        text.push_str(line);
        for c in line.chars() {
            depth += i32::from(matches!(c, '(' | '[')) + i32::from(is_member && c == '{');
            depth -= i32::from(matches!(c, ')' | ']')) + i32::from(is_member && c == '}');
        }
        let ends: &[char] = if is_member { &[',', ';'] } else { &['{', ';', '}'] };
        if depth <= 0 && line.ends_with(ends) {
            break;
        }
        text.push(' ');
    }
    // The values of constants and the bodies of short items are nobody's business.
    let cut = if is_member { text.len() } else { text.find(" {").unwrap_or(text.len()) };
    let cut =
        if text.contains("const ") && !text.contains("fn ") { text.find(" =").unwrap_or(cut) } else { cut };
    let text = text[..cut].trim_end_matches([',', ';', '{', ' ']);
    text.replace("( ", "(").replace(", )", ")").replace("(mut ", "(").replace(", mut ", ", ")
}

/// The names that a `pub use` gives.
fn uses(lines: &[&str]) -> Vec<String> {
    let end = lines.iter().position(|line| line.ends_with(';')).unwrap_or(0);
    let statement = lines[..=end].join(" ");
    let leaf = |part: &str| {
        let part = part.rsplit(" as ").next().unwrap_or(part);
        let name = part.rsplit("::").next().unwrap_or(part).trim();
        (!name.is_empty()).then(|| format!("use {name}"))
    };
    statement.trim_start_matches("pub use ").split(['{', '}', ',', ';']).filter_map(leaf).collect()
}

/// The item that a line at the left margin opens.
fn place(line: &str) -> Place {
    let named = |rest: &str| code::word(rest.trim_start()).to_owned();
    if let Some(rest) = line.strip_prefix("impl") {
        let head = rest.trim_end_matches(" {");
        let of = if head.starts_with('<') { head.split_once("> ").map_or("", |(_, of)| of) } else { head };
        return if of.contains(" for ") { Place::Private } else { Place::Items(named(of)) };
    }
    for (word, make) in [
        ("pub struct ", Place::Fields as fn(String) -> Place),
        ("pub enum ", Place::All),
        ("pub trait ", Place::All),
        ("pub mod ", Place::Items),
    ] {
        if let Some(rest) = line.strip_prefix(word) {
            return make(named(rest));
        }
    }
    Place::Private
}

/// The public items of a file, one a line.
fn items(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let (mut found, mut here, mut at) = (Vec::new(), Place::Private, 0);
    while let Some(line) = lines.get(at) {
        let rest = &lines[at..];
        at += 1;
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text.is_empty() {
            continue;
        }
        // An attribute may take several lines.
        if text.starts_with('#') {
            at += rest.iter().position(|line| line.trim_end().ends_with(']')).unwrap_or(0);
            continue;
        }
        if indent == 0 {
            if text.starts_with("pub use ") {
                if file.path.ends_with("/lib.rs") {
                    found.extend(uses(rest));
                }
            } else if text.starts_with("pub ") {
                found.push(statement(rest, false));
            }
            if text.ends_with('{') || text.starts_with("impl") {
                here = place(&statement_head(rest));
            } else if text.starts_with('}') {
                here = Place::Private;
            }
        } else if indent == 4 {
            let member = match &here {
                Place::Items(of) if text.starts_with("pub ") => Some((of, statement(rest, false))),
                Place::Fields(of) if text.starts_with("pub ") => Some((of, statement(rest, true))),
                Place::All(of) if !text.starts_with(['}', ')', '/']) => Some((of, statement(rest, true))),
                Place::Items(_) | Place::Fields(_) | Place::All(_) | Place::Private => None,
            };
            found.extend(member.map(|(of, text)| format!("{of}: {text}")));
        }
    }
    found
}

/// The head of an item up to its brace, in one line.
fn statement_head(lines: &[&str]) -> String {
    let end = lines.iter().position(|line| line.ends_with('{') || line.ends_with('}')).unwrap_or(0);
    lines[..=end].iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The newest section of a crate's changelog: its heading and all of it.
fn newest(changelog: &str) -> (&str, &str) {
    let from = changelog.find("\n## ").map_or(0, |at| at + 1);
    let section = &changelog[from..];
    let end = section[1..].find("\n## ").map_or(section.len(), |at| at + 1);
    (section.lines().next().unwrap_or_default(), &section[..end])
}

/// FNV-1a: the same in every version of the compiler.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The list of each crate, without its head.
fn lists() -> BTreeMap<String, String> {
    let mut lists = BTreeMap::<String, Vec<String>>::new();
    for file in code::crates() {
        let mut parts = file.path.split('/').skip(1);
        if let (Some(name), Some("src")) = (parts.next(), parts.next()) {
            lists.entry(name.to_owned()).or_default().extend(items(&file));
        }
    }
    let text = |mut list: Vec<String>| {
        list.sort();
        list.dedup();
        list.join("\n") + "\n"
    };
    lists.into_iter().map(|(name, list)| (name, text(list))).collect()
}

/// Lines of one text that another lacks.
fn missing<'a>(of: &'a str, there: &str) -> Vec<&'a str> {
    let there: std::collections::BTreeSet<&str> = there.lines().collect();
    of.lines().filter(|line| !there.contains(line)).collect()
}

#[test]
fn the_public_interface_of_a_crate_changes_with_its_changelog() {
    let is_written = std::env::var_os(WRITE).is_some();
    let lists = lists();
    assert!(
        lists.len() > 20 && lists["wire"].contains("Reader: pub fn u16(&mut self)"),
        "the sources were not read"
    );
    let mut faults = String::new();
    for (name, list) in &lists {
        let path = source::root().join(format!("proto-impl/{name}/api.txt"));
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let (head, kept) = kept.split_once('\n').unwrap_or_default();
        if kept == list {
            continue;
        }
        let changelog = products::page(name, "CHANGELOG");
        let (heading, section) = newest(&changelog);
        let said = format!("# {}, {:016x}", heading.trim_start_matches("## "), hash(section));
        let (gone, new) = (missing(kept, list), missing(list, kept));
        if is_written && said != head && heading.ends_with(", unreleased") {
            std::fs::write(&path, format!("{said}\n{list}")).unwrap();
            continue;
        }
        let _ = writeln!(faults, "{name}:");
        for (sign, line) in gone.iter().map(|line| ('-', line)).chain(new.iter().map(|line| ('+', line))) {
            let _ = writeln!(faults, "  {sign} {line}");
        }
    }
    assert!(
        faults.is_empty(),
        "the interface of crates has changed: say it in the newest section of their changelogs, which is of a version that is not \
         released, then run `make api`\n{faults}"
    );
}
