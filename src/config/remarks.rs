//! Remarks on settings that are not errors: one line for each probable mistake, and a single line for all keys of other
//! servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::properties::printable;

/// Up to this many unknown keys, over all files, get a line each. If there are more, they are taken for keys of another
/// server and share one line.
const LINES_MAX: usize = 8;
/// Maximum number of keys of a file named in the shared line.
const NAMED_MAX: usize = 5;

/// An unknown key in a file.
#[derive(Debug)]
struct Unknown {
    path: PathBuf,
    line: usize,
    key: String,
    /// Similar known key, if any, and whether the file contains that key as well.
    near: Option<(&'static str, bool)>,
}

/// Collected remarks; see the module.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    lines: Vec<String>,
    unknown: Vec<Unknown>,
}

impl Remarks {
    /// Adds a line.
    pub(super) fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Notes a key that occurs twice in a file.
    pub(super) fn doubled(&mut self, path: &Path, line: usize, key: &str, first: usize) {
        let (path, key) = (path.display(), printable(key));
        self.push(format!("{path}, line {line}: {key} was given in line {first} already; this value counts"));
    }

    /// Notes an unknown key. `near` is the similar known key, if any, and whether the file contains that key as well.
    pub(super) fn unknown(
        &mut self,
        path: &Path,
        line: usize,
        key: &str,
        near: Option<(&'static str, bool)>,
    ) {
        self.unknown.push(Unknown { path: path.to_owned(), line, key: printable(key), near });
    }

    /// Returns all remarks, one line each.
    pub(super) fn each(self) -> Vec<String> {
        let Self { mut lines, unknown } = self;
        lines.extend(unknown.iter().map(Unknown::line));
        lines
    }

    /// Returns all remarks, with a single line for the keys of another server.
    pub(super) fn summed_up(self) -> Vec<String> {
        if self.unknown.len() <= LINES_MAX {
            return self.each();
        }
        let Self { mut lines, unknown } = self;
        let count = unknown.len();
        // Keys that resemble a known key are named one by one, because a mistyped switch protects nothing. If the file
        // also has the known key, the unknown one (such as `rtmpt.port`) is not a typing error.
        let is_meant = |one: &Unknown| one.near.is_some_and(|(_, is_there)| !is_there);
        let (meant, foreign): (Vec<_>, Vec<_>) = unknown.into_iter().partition(is_meant);
        lines.extend(meant.iter().take(LINES_MAX).map(Unknown::line));
        let mut files: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for Unknown { path, key, .. } in foreign {
            files.entry(path).or_default().push(key);
        }
        let files: Vec<String> = files.iter().map(|(path, keys)| sum_of(path, keys)).collect();
        lines.push(format!(
            "{count} keys of the settings files are unknown here, kept and without effect; check-config has a line for each: {}",
            files.join("; ")
        ));
        lines
    }
}

impl Unknown {
    fn line(&self) -> String {
        let Self { path, line, key, near } = self;
        let meant = near.map(|(near, _)| format!("; did you mean {near}?")).unwrap_or_default();
        format!("{}, line {line}: unknown key {key}{meant}", path.display())
    }
}

fn sum_of(path: &Path, keys: &[String]) -> String {
    let named = keys.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = if keys.len() > NAMED_MAX { ", ..." } else { "" };
    format!("{} {} ({named}{more})", path.display(), keys.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_01_few_unknown_keys_are_lines_and_many_are_one() {
        let remarks = |count: usize| {
            let mut remarks = Remarks::default();
            remarks.doubled(Path::new("a"), 3, "k", 1);
            for line in 1..=count {
                let near = [2, 3].contains(&line).then_some(("meant", line == 3));
                remarks.unknown(
                    Path::new(if line % 2 == 0 { "a" } else { "b" }),
                    line,
                    &format!("k{line}"),
                    near,
                );
            }
            remarks
        };
        let doubled = "a, line 3: k was given in line 1 already; this value counts";
        assert_eq!(
            remarks(2).summed_up(),
            [doubled, "b, line 1: unknown key k1", "a, line 2: unknown key k2; did you mean meant?"]
        );
        assert_eq!((remarks(8).summed_up().len(), remarks(90).each().len()), (9, 91));
        let many = remarks(90).summed_up();
        assert_eq!(many[..2], [doubled, "a, line 2: unknown key k2; did you mean meant?"]);
        assert_eq!(
            many[2..],
            [
                "90 keys of the settings files are unknown here, kept and without effect; check-config has a line for each: \
              a 44 (k4, k6, k8, k10, k12, ...); b 45 (k1, k3, k5, k7, k9, ...)"
            ]
        );
    }
}
