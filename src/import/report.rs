//! The table that lists everything that will not work as before.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Maximum number of subjects that one row names.
const NAMED_MAX: usize = 8;
/// Maximum number of rows of the table.
const ROWS_MAX: usize = 5000;
/// Maximum number of characters of a subject.
const SUBJECT_CHARS_MAX: usize = 100;

/// A table of subjects, grouped by place and reason. Rows are in the order in which their
/// reasons were first used.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    /// Numbers of the rows, by place and reason.
    places: BTreeMap<(String, String), usize>,
    /// True if rows were omitted because there were too many.
    cut: bool,
    /// Number of subjects that could not be read or written.
    failed: usize,
}

#[derive(Debug)]
struct Row {
    place: String,
    reason: String,
    subjects: Vec<String>,
    count: usize,
}

impl Report {
    /// Adds a subject. Subjects with the same place and reason share a row.
    pub(super) fn add(&mut self, place: &str, subject: &str, reason: impl Into<String>) {
        let (place, reason) = (printable(place), printable(&reason.into()));
        let at = match self.places.get(&(place.clone(), reason.clone())) {
            Some(at) => *at,
            None if self.rows.len() >= ROWS_MAX => {
                self.cut = true;
                return;
            }
            None => {
                self.places.insert((place.clone(), reason.clone()), self.rows.len());
                self.rows.push(Row { place, reason, subjects: Vec::new(), count: 0 });
                self.rows.len() - 1
            }
        };
        let Some(row) = self.rows.get_mut(at) else { return };
        row.count += 1;
        if row.subjects.len() < NAMED_MAX {
            row.subjects.push(printable(subject).chars().take(SUBJECT_CHARS_MAX).collect());
        }
    }

    /// Adds a subject that could not be read or written.
    pub(super) fn fail(&mut self, place: &str, subject: &str, reason: impl Into<String>) {
        self.failed += 1;
        self.add(place, subject, reason);
    }

    /// Returns the number of subjects that could not be read or written.
    pub(super) const fn failed(&self) -> usize {
        self.failed
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Prints the table.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let subjects: Vec<String> = self.rows.iter().map(Row::subjects).collect();
        let width =
            |cells: &mut dyn Iterator<Item = &str>| cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        let first = width(&mut self.rows.iter().map(|row| row.place.as_str()).chain(["WHERE"]));
        let second = width(&mut subjects.iter().map(String::as_str).chain(["WHAT"])).min(60);
        writeln!(out, "{:first$}  {:second$}  WHAT WILL BE DIFFERENT", "WHERE", "WHAT")?;
        for (row, subjects) in self.rows.iter().zip(&subjects) {
            writeln!(out, "{:first$}  {subjects:second$}  {}", row.place, row.reason)?;
        }
        if self.cut {
            writeln!(out, "and more: the table has {ROWS_MAX} rows at most")?;
        }
        Ok(())
    }
}

impl Row {
    fn subjects(&self) -> String {
        let named = self.subjects.join(", ");
        match self.count.saturating_sub(self.subjects.len()) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }
}

/// Makes text of the old installation safe for a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_one_reason_share_a_row_and_controls_reach_no_terminal() {
        let mut report = Report::default();
        for number in 0..12 {
            report.add("live: tokens", &format!("t{number}"), "expired");
        }
        report.add("server", "a\x1b[2Jb", "x\ny");
        let mut out = Vec::new();
        report.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), report.len()), (3, 2), "{text}");
        assert!(
            lines[1].starts_with("live: tokens  t0, t1, t2, t3, t4, t5, t6, t7 and 4 more  expired"),
            "{text}"
        );
        assert!(lines[2].starts_with("server        a_[2Jb") && lines[2].ends_with("x_y"), "{text}");
    }

    #[test]
    fn a_table_has_an_end() {
        let mut report = Report::default();
        (0..ROWS_MAX + 2).for_each(|number| report.add("p", "s", number.to_string()));
        let mut out = Vec::new();
        report.write(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("and more: the table has 5000 rows at most\n"));
    }
}
