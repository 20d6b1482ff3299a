//! Rescues records from a damaged store: first those that can be reached through its tables, then those found in its
//! pages.
//!
//! The tables have the latest committed records. If they are broken, all pages of the file are searched for leaves. A
//! leaf of redb contains the end offsets of its keys and values, then the keys, then the values. Old pages are
//! searched, too, so records that were found in this way may be outdated or deleted; they are counted separately. The
//! damaged file is never written to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;

use super::redb::{io_error, reachable};
use super::{Error, Key, Kind};

/// Size of a page. Larger pages also begin at a multiple of this size.
const PAGE_BYTES: usize = 4096;
/// Largest page that is examined.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// First byte of a leaf.
const LEAF: u8 = 1;
/// Largest file that is salvaged, in bytes: a million records need less.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// Functions that know the format of records, which the store does not interpret.
pub trait Records {
    /// True if a record is readable.
    fn is_good(&self, key: &Key, bytes: &[u8]) -> bool;

    /// Returns the kind of a record whose table is unknown; `None` if the bytes are not a record.
    fn kind_of(&self, app: &str, id: &str, bytes: &[u8]) -> Option<Kind>;

    /// Returns a number that is higher for later versions of a record; 0 if it has none.
    fn version_of(&self, bytes: &[u8]) -> i64;
}

/// The rescued records.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Records by key.
    pub all: BTreeMap<Key, Bytes>,
    /// Number of records that were found only in pages. They may be outdated or deleted.
    pub from_pages: usize,
    /// The damage at which reading the tables stopped.
    pub damage: Option<String>,
}

/// Searches a file for records. `scratch` is the path of a temporary copy.
///
/// # Errors
/// A disk error.
pub fn salvage(path: &Path, scratch: &Path, records: &dyn Records) -> Result<Salvaged, Error> {
    let mut found = Salvaged::default();
    let walked = reachable(path, scratch, &mut |key, bytes| {
        if records.is_good(&key, &bytes) {
            found.all.insert(key, bytes);
        }
    });
    if let Err(damage) = walked {
        found.damage = Some(damage.to_string());
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| io_error(path, &error))?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| io_error(path, &error))?;
        let mut in_pages = BTreeMap::new();
        scan(&bytes, &mut |key, value| keep(&mut in_pages, records, key, value));
        let before = found.all.len();
        for (key, value) in in_pages {
            found.all.entry(key).or_insert(value);
        }
        found.from_pages = found.all.len().saturating_sub(before);
    }
    Ok(found)
}

/// Keeps the latest version of each record.
fn keep(found: &mut BTreeMap<Key, Bytes>, records: &dyn Records, key: &str, value: &[u8]) {
    let Some((app, id)) = key.split_once('/') else { return };
    let Some(kind) = records.kind_of(app, id, value) else { return };
    let key = Key::new(kind, app, id);
    let is_older = |old: &Bytes| records.version_of(old) > records.version_of(value);
    if records.is_good(&key, value) && !found.get(&key).is_some_and(is_older) {
        found.insert(key, Bytes::copy_from_slice(value));
    }
}

/// Passes on all pairs of key and value in a file that are in the form of a leaf with keys and values of variable
/// length.
pub(super) fn scan(file: &[u8], give: &mut dyn FnMut(&str, &[u8])) {
    let mut at = 0_usize;
    while let Some(rest) = file.get(at..).filter(|rest| !rest.is_empty()) {
        let page = rest.get(..PAGE_BYTES_MAX).unwrap_or(rest);
        if page.first() == Some(&LEAF) {
            give_pairs(page, give);
        }
        at = at.saturating_add(PAGE_BYTES);
    }
}

/// Passes on the pairs of a leaf, up to the first pair with invalid offsets.
fn give_pairs(page: &[u8], give: &mut dyn FnMut(&str, &[u8])) -> Option<()> {
    let pairs = usize::from(u16::from_le_bytes(page.get(2..4)?.try_into().ok()?));
    let end = |index: usize| {
        let at = index.checked_mul(4)?.checked_add(4)?;
        let bytes = page.get(at..at.checked_add(4)?)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let mut key_at = pairs.checked_mul(8)?.checked_add(4)?;
    let mut value_at = end(pairs.checked_sub(1)?)?;
    for pair in 0..pairs {
        let (key_end, value_end) = (end(pair)?, end(pairs.checked_add(pair)?)?);
        let (key, value) = (page.get(key_at..key_end)?, page.get(value_at..value_end)?);
        if let Ok(key) = std::str::from_utf8(key) {
            give(key, value);
        }
        (key_at, value_at) = (key_end, value_end);
    }
    Some(())
}

/// Returns the path of the file for rescued records, in the folder of the store.
#[must_use]
pub fn file_of(store: &Path) -> std::path::PathBuf {
    store.with_file_name("store.salvaged.redb")
}

/// Writes the rescued records to a new store.
///
/// # Errors
/// A disk error.
pub fn write(salvaged: &Salvaged, to: &Path) -> Result<(), Error> {
    let all: Vec<(Key, Bytes)> =
        salvaged.all.iter().map(|(key, bytes)| (key.clone(), bytes.clone())).collect();
    if to.is_dir() {
        return Err(io_error(to, &io::ErrorKind::IsADirectory.into()));
    }
    super::redb::write_fresh(to, &all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Op, RedbStore, Store};
    use super::*;
    use crate::tests::TempFolder;

    /// Records of the form `KIND VERSION text`.
    struct Words;

    impl Records for Words {
        fn is_good(&self, _: &Key, bytes: &[u8]) -> bool {
            std::str::from_utf8(bytes).is_ok_and(|text| text.ends_with(" end"))
        }

        fn kind_of(&self, _: &str, _: &str, bytes: &[u8]) -> Option<Kind> {
            let text = std::str::from_utf8(bytes).ok()?;
            Kind::ALL.into_iter().find(|kind| text.starts_with(&format!("{kind:?}")))
        }

        fn version_of(&self, bytes: &[u8]) -> i64 {
            let text = std::str::from_utf8(bytes).unwrap();
            text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
        }
    }

    fn all() -> BTreeMap<Key, Bytes> {
        let record = |n: usize| {
            let kind = Kind::ALL[n % Kind::ALL.len()];
            let text = format!("{kind:?} {} {} end", 7, "x".repeat(n * 13 % 3000));
            (Key::new(kind, "live", &format!("id{n}")), Bytes::from(text))
        };
        (0..200).map(record).collect()
    }

    fn store(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("store.redb");
        let mut store = RedbStore::open(&path).unwrap();
        for (key, bytes) in all() {
            let old = Bytes::from(format!("{:?} 3 old end", key.kind));
            store.commit(&[Op::Put(key.clone(), old)]).unwrap();
            store.commit(&[Op::Put(key, bytes)]).unwrap();
        }
        path
    }

    #[test]
    fn b_13_a_whole_store_is_salvaged_whole() {
        let folder = TempFolder::new();
        let path = store(&folder);
        let found = salvage(&path, &folder.join("scratch"), &Words).unwrap();
        assert_eq!((found.all, found.from_pages, found.damage), (all(), 0, None));
        assert!(!folder.join("scratch").exists());
    }

    #[test]
    fn b_13_of_a_damaged_store_everything_outside_of_the_damage_is_salvaged() {
        let folder = TempFolder::new();
        let path = store(&folder);
        let good = fs::read(&path).unwrap();
        let whole = all();
        let leaf = |n: usize| {
            let leaves: Vec<usize> =
                (0..good.len()).step_by(PAGE_BYTES).filter(|at| good[*at] == LEAF).collect();
            leaves[leaves.len() * n / 10]
        };
        let zeroed = |from: usize, to: usize| [&good[..from], &vec![0; to - from], &good[to..]].concat();
        let cases: [(&str, Vec<u8>, usize); 5] = [
            ("head", zeroed(0, 4096), 200),
            ("a page", zeroed(leaf(5), leaf(5) + PAGE_BYTES), 150),
            ("another", zeroed(leaf(8), leaf(8) + PAGE_BYTES), 150),
            ("the second half", good[..good.len() / 2].to_vec(), 1),
            ("junk", [vec![0xab; 4096], good[4096..].to_vec()].concat(), 200),
        ];
        for (what, bytes, at_least) in cases {
            fs::write(&path, &bytes).unwrap();
            let found = salvage(&path, &folder.join("scratch"), &Words).unwrap();
            let right = found.all.iter().filter(|(key, bytes)| whole.get(*key) == Some(*bytes)).count();
            assert!(right >= at_least, "{what}: {right} of {}", found.all.len());
            assert!(found.all.keys().all(|key| whole.contains_key(key)), "{what}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "{what}: the damaged file stays as it is");
            let to = file_of(&path);
            write(&found, &to).unwrap();
            let written: BTreeMap<_, _> = RedbStore::open(&to).unwrap().load().unwrap().into_iter().collect();
            assert_eq!(written, found.all, "{what}");
        }
    }

    #[test]
    fn b_13_no_bytes_make_a_scan_fail() {
        proptest::proptest!(|(mut bytes: Vec<u8>, pairs: u16)| {
            scan(&bytes, &mut |_, _| {});
            bytes.splice(0..0, [LEAF, 0].into_iter().chain(pairs.to_le_bytes()));
            scan(&bytes, &mut |_, _| {});
        });
    }
}
