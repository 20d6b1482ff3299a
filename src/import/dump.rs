//! A dump of MongoDB, as `mongodump` writes it: a folder for each database. For each collection, it contains a file of
//! BSON documents, which may be compressed.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use bson::{RawArray, RawBsonRef, RawDocument};
use flate2::read::MultiGzDecoder;
use serde_json::{Map, Value};

use super::sources::{Gather, Record};
use crate::store::Kind;

/// Maximum size of a document, in bytes: MongoDB's limit of 16 MiB, and 16 KiB for what MongoDB itself adds.
const DOCUMENT_BYTES_MAX: usize = (16 << 20) + (16 << 10);
/// Smallest document, in bytes.
const DOCUMENT_BYTES_MIN: usize = 5;
/// Maximum number of levels of nested documents.
const DEPTH_MAX: usize = 32;
/// Bytes of a length field.
const LENGTH_BYTES: u64 = 4;

/// Databases of an application. Each row has the suffix of the database's name, the collection, and the kind of its
/// records.
const OF_APPS: [(&str, &str, Kind); 4] = [
    ("", "broadcast", Kind::Broadcast),
    ("VoD", "vod", Kind::Vod),
    ("_token", "token", Kind::Token),
    ("_subscriber", "subscriber", Kind::Subscriber),
];
/// Database and collection of users.
const USERS: (&str, &str) = ("serverdb", "user");

/// Reads the records in the database of an application or, if `database` is `None`, the users.
pub(super) fn read(folder: &Path, database: Option<&str>, gather: &mut Gather<'_>) {
    let collections: Vec<(String, &str, Kind)> = match database {
        Some(name) => {
            OF_APPS.iter().map(|(end, file, kind)| (format!("{name}{end}"), *file, *kind)).collect()
        }
        None => vec![(USERS.0.to_owned(), USERS.1, Kind::User)],
    };
    for (database, collection, kind) in collections {
        let Some(path) = file_of(&folder.join(database), collection) else { continue };
        let read = File::open(&path).and_then(|file| {
            let file = BufReader::new(file);
            if path.extension().is_some_and(|end| end == "gz") {
                documents(MultiGzDecoder::new(file), |record| gather.give(Record { kind, record }))
            } else {
                documents(file, |record| gather.give(Record { kind, record }))
            }
        });
        if let Err(error) = read {
            gather.fault(&path, &error.to_string());
        }
    }
}

/// Returns the path of the file of a collection. Older servers write the collection's name with a capital letter.
fn file_of(folder: &Path, collection: &str) -> Option<PathBuf> {
    let wanted = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        let stem = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".bson")?;
        stem.eq_ignore_ascii_case(collection).then_some(())
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| wanted(path).is_some()).collect();
    found.sort();
    found.into_iter().next()
}

/// Reads all documents. If there is an error, the documents that were already passed on are complete.
pub(super) fn documents(
    mut input: impl Read,
    mut give: impl FnMut(Map<String, Value>) -> bool,
) -> io::Result<()> {
    let broken = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut bytes = Vec::new();
    let mut number = 0u64;
    loop {
        bytes.clear();
        if (&mut input).take(LENGTH_BYTES).read_to_end(&mut bytes)? == 0 {
            return Ok(());
        }
        number += 1;
        let length = bytes.first_chunk().map(|length| i32::from_le_bytes(*length));
        let length = length.and_then(|length| usize::try_from(length).ok());
        let fits = |length: &usize| (DOCUMENT_BYTES_MIN..=DOCUMENT_BYTES_MAX).contains(length);
        let Some(length) = length.filter(fits) else {
            return Err(broken(format!("document {number} has no length that one can have")));
        };
        // Memory is allocated only for data that has arrived.
        let rest = u64::try_from(length).unwrap_or(0).saturating_sub(LENGTH_BYTES);
        (&mut input).take(rest).read_to_end(&mut bytes)?;
        if bytes.len() < length {
            return Err(broken(format!("document {number} is cut off")));
        }
        let document = RawDocument::from_bytes(&bytes).map_err(|error| broken(error.to_string()))?;
        let record =
            object(document, DEPTH_MAX).map_err(|error| broken(format!("document {number}: {error}")))?;
        if !give(record) {
            return Ok(());
        }
    }
}

fn object(document: &RawDocument, depth: usize) -> Result<Map<String, Value>, String> {
    let inner = depth.checked_sub(1).ok_or("documents within documents")?;
    let mut map = Map::new();
    for element in document {
        let (name, value) = element.map_err(|error| error.to_string())?;
        if let Some(value) = json(value, inner)? {
            map.insert(name.as_str().to_owned(), value);
        }
    }
    Ok(map)
}

fn array(array: &RawArray, depth: usize) -> Result<Value, String> {
    let inner = depth.checked_sub(1).ok_or("documents within documents")?;
    let mut items = Vec::new();
    for element in array {
        items.extend(json(element.map_err(|error| error.to_string())?, inner)?);
    }
    Ok(Value::Array(items))
}

/// Converts a value; `None` if no member of a record has this type.
fn json(value: RawBsonRef<'_>, depth: usize) -> Result<Option<Value>, String> {
    Ok(Some(match value {
        RawBsonRef::Double(number) => whole(number).map_or_else(|| number.into(), Value::from),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => text.into(),
        RawBsonRef::Array(items) => array(items, depth)?,
        RawBsonRef::Document(document) => Value::Object(object(document, depth)?),
        RawBsonRef::Boolean(value) => value.into(),
        RawBsonRef::Int32(number) => number.into(),
        RawBsonRef::Int64(number) => number.into(),
        RawBsonRef::DateTime(date) => date.timestamp_millis().into(),
        RawBsonRef::ObjectId(id) => id.to_hex().into(),
        RawBsonRef::Null
        | RawBsonRef::RegularExpression(_)
        | RawBsonRef::JavaScriptCode(_)
        | RawBsonRef::JavaScriptCodeWithScope(_)
        | RawBsonRef::Timestamp(_)
        | RawBsonRef::Binary(_)
        | RawBsonRef::Decimal128(_)
        | RawBsonRef::Undefined
        | RawBsonRef::MaxKey
        | RawBsonRef::MinKey
        | RawBsonRef::DbPointer(_) => return Ok(None),
    }))
}

/// Converts a double without a fraction to an integer, because shells and scripts write all numbers as doubles.
fn whole(number: f64) -> Option<i64> {
    let text = format!("{number:.0}");
    let fits = number.is_finite() && number.fract() == 0.0 && number.abs() < 9e15;
    text.parse().ok().filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Makes a document with these members: type, name, value.
    fn document(members: &[(u8, &str, &[u8])]) -> Vec<u8> {
        let mut inner = Vec::new();
        for (kind, name, value) in members {
            inner.push(*kind);
            inner.extend(name.as_bytes());
            inner.push(0);
            inner.extend(*value);
        }
        let length = i32::try_from(inner.len() + 5).unwrap();
        [&length.to_le_bytes()[..], &inner, &[0]].concat()
    }

    fn text(value: &str) -> Vec<u8> {
        let length = i32::try_from(value.len() + 1).unwrap();
        [&length.to_le_bytes()[..], value.as_bytes(), &[0]].concat()
    }

    fn all(bytes: &[u8]) -> (Vec<Value>, io::Result<()>) {
        let mut found = Vec::new();
        let done = documents(bytes, |record| {
            found.push(Value::Object(record));
            true
        });
        (found, done)
    }

    #[test]
    fn documents_become_objects() {
        let endpoint = document(&[(2, "_id", &text("e1"))]);
        let one = document(&[
            (7, "_id", &[1; 12]),
            (2, "streamId", &text("s1")),
            (8, "publish", &[1]),
            (16, "mp4Enabled", &(-1i32).to_le_bytes()),
            (18, "date", &1_700_000_000_000i64.to_le_bytes()),
            (1, "duration", &5.0f64.to_le_bytes()),
            (1, "speed", &1.5f64.to_le_bytes()),
            (9, "at", &7i64.to_le_bytes()),
            (10, "name", &[]),
            (4, "endPointList", &document(&[(3, "0", &endpoint)])),
            (5, "binary", &[0, 0, 0, 0, 0]),
        ]);
        let two = document(&[]);
        let (found, done) = all(&[one.clone(), two].concat());
        done.unwrap();
        let want = serde_json::json!({
            "_id": "010101010101010101010101", "streamId": "s1", "publish": true, "mp4Enabled": -1,
            "date": 1_700_000_000_000i64, "duration": 5, "speed": 1.5, "at": 7, "endPointList": [{"_id": "e1"}],
        });
        assert_eq!(found, [want, serde_json::json!({})]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&one).unwrap();
        let mut count = 0;
        documents(MultiGzDecoder::new(&packed.finish().unwrap()[..]), |_| {
            count += 1;
            true
        })
        .unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn c_19_no_length_of_a_dump_is_trusted() {
        let good = document(&[(2, "streamId", &text("s1"))]);
        for (bytes, reason) in [
            (i32::MAX.to_le_bytes().to_vec(), "no length"),
            ((-1i32).to_le_bytes().to_vec(), "no length"),
            (4i32.to_le_bytes().to_vec(), "no length"),
            (vec![5, 0], "no length"),
            (good[..good.len() - 1].to_vec(), "cut off"),
            (16_000_000i32.to_le_bytes().to_vec(), "cut off"),
        ] {
            let (found, done) = all(&[good.clone(), bytes].concat());
            let error = done.unwrap_err().to_string();
            assert!(error.starts_with("document 2") && error.contains(reason), "{error}");
            assert_eq!(found.len(), 1, "what came before is whole");
        }
        let deep = (0..40).fold(document(&[]), |inner, _| document(&[(3, "a", &inner)]));
        assert!(all(&deep).1.unwrap_err().to_string().contains("within"));
    }

    #[test]
    fn c_19_any_bytes_of_a_dump_are_records_or_an_error() {
        proptest::proptest!(|(bytes: Vec<u8>)| { let _ = all(&bytes); });
        let good =
            document(&[(2, "streamId", &text("s1")), (4, "list", &document(&[(16, "0", &[1, 0, 0, 0])]))]);
        proptest::proptest!(|(at in 0..good.len(), byte: u8)| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            let _ = all(&bytes);
        });
    }
}
