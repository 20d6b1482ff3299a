//! An export of MapDB. For each database, there is a file of lines. Each line is a JSON object with the map, the key
//! and the value of an entry. The exporter is `packaging/mapdb-export`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::sources::{Gather, Record};
use crate::store::Kind;

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 4 << 20;
/// File name for the users, and extension of all files.
const USERS: &str = "server";
const ENDING: &str = "jsonl";

/// Maps with records.
const MAPS: [(&str, Kind); 5] = [
    ("BROADCAST", Kind::Broadcast),
    ("VOD", Kind::Vod),
    ("TOKEN", Kind::Token),
    ("SUBSCRIBER", Kind::Subscriber),
    ("serverdb", Kind::User),
];

/// Maps whose entries are not imported but listed, with a description of an entry.
const LISTED: [(&str, &str); 1] =
    [("CONFERENCE_ROOM", "a conference room of an older server: rooms are broadcasts here")];

/// A line of an export.
#[derive(Debug, Deserialize)]
struct Line {
    map: String,
    key: String,
    value: String,
}

/// An entry of a map.
#[derive(Debug, PartialEq)]
enum Entry {
    Record(Record),
    /// An entry of a map that contains no records.
    Other {
        map: String,
        key: String,
    },
}

/// Returns the path of the file with the database of an application or, if `database` is `None`, with the users.
pub(super) fn file_of(folder: &Path, database: Option<&str>) -> PathBuf {
    folder.join(format!("{}.{ENDING}", database.unwrap_or(USERS)))
}

/// Reads the records in the database of an application or, if `database` is `None`, the users.
pub(super) fn read(folder: &Path, database: Option<&str>, gather: &mut Gather<'_>) {
    let path = file_of(folder, database);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return gather.fault(&path, &error.to_string()),
    };
    let mut faults = Vec::new();
    let read = entries(BufReader::new(file), |number, entry| match entry {
        Ok(Entry::Record(record)) => gather.give(record),
        Ok(Entry::Other { map, key }) => {
            if let Some((_, what)) = LISTED.iter().find(|(name, _)| *name == map) {
                gather.leave(&key, what);
            }
            true
        }
        Err(reason) => {
            faults.push(format!("line {number}: {reason}"));
            faults.len() < FAULTS_MAX
        }
    });
    faults.extend(read.err().map(|error| error.to_string()));
    faults.iter().for_each(|fault| gather.fault(&path, fault));
}

/// Maximum number of faults in a file. A file with more faults must have another format.
const FAULTS_MAX: usize = 1000;

/// Reads all lines.
fn entries(
    mut input: impl BufRead,
    mut give: impl FnMut(u64, Result<Entry, String>) -> bool,
) -> io::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(0).saturating_add(1);
        if io::Read::take(&mut input, limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("line {number} is longer than 4 MiB"),
            ));
        }
        if !give(number, entry(&line)) {
            return Ok(());
        }
    }
    Ok(())
}

fn entry(line: &[u8]) -> Result<Entry, String> {
    let Line { map, key, value } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match MAPS.iter().find(|(name, _)| *name == map) {
        Some((_, kind)) => Ok(Entry::Record(Record { kind: *kind, record: object(&value)? })),
        None => Ok(Entry::Other { map, key }),
    }
}

/// Parses the JSON object of a record.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(record)) => Ok(record),
        Ok(_) => Err("the record is no object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<Result<Entry, String>>, io::Result<()>) {
        let mut found = Vec::new();
        let done = entries(bytes, |_, entry| {
            found.push(entry);
            true
        });
        (found, done)
    }

    #[test]
    fn lines_become_records_and_bad_ones_are_faults_of_their_own() {
        let text = concat!(
            r#"{"map":"BROADCAST","key":"s1","value":"{\"streamId\":\"s1\"}"}"#,
            "\n",
            r#"{"map":"DETECTION","key":"x","value":"?"}"#,
            "\n",
            r#"{"map":"TOKEN","key":"x","value":"[]"}"#,
            "\nno JSON\n",
            r#"{"map":"serverdb","key":"a@b","value":"{\"email\":\"a@b\"}"}"#,
        );
        let (found, done) = all(text.as_bytes());
        done.unwrap();
        let is_of =
            |at: usize, kind: Kind| matches!(&found[at], Ok(Entry::Record(record)) if record.kind == kind);
        assert!(is_of(0, Kind::Broadcast) && is_of(4, Kind::User));
        assert!(matches!(&found[1], Ok(Entry::Other { map, key }) if map == "DETECTION" && key == "x"));
        assert!(found[2].is_err() && found[3].is_err());
    }

    #[test]
    fn c_19_a_line_has_an_end_and_any_bytes_are_faults_at_most() {
        let long = vec![b'x'; LINE_BYTES_MAX + 10];
        assert!(all(&long).1.unwrap_err().to_string().contains("longer"));
        let deep = format!(r#"{{"map":"BROADCAST","key":"k","value":"{}"}}"#, "[".repeat(100_000));
        assert!(all(deep.as_bytes()).0[0].is_err());
        proptest::proptest!(|(bytes: Vec<u8>)| { let _ = all(&bytes); });
    }
}
