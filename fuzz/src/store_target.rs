//! The store's file with damage as a disk may cause it.

use std::fs;
use std::path::PathBuf;
use std::sync::{LazyLock, Once};

use bytes::Bytes;
use millstream::store::{Key, Kind, Op, RedbStore, Store};

/// Maximum number of places in the file that one input changes.
const CHANGES_MAX: usize = 64;

/// Two files with different page layouts: one has few records, the other enough that the tree has branches.
static FILES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [3, 300].map(file_of));

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("millstream-fuzz-{}-{name}.redb", std::process::id()))
}

fn file_of(records: usize) -> Vec<u8> {
    let path = path(&format!("of-{records}"));
    let mut store = RedbStore::open(&path).expect("a fresh file is good");
    let ops: Vec<Op> = (0..records).map(|n| Op::Put(key(n), value(n))).collect();
    store.commit(&ops).expect("there is room");
    drop(store);
    let bytes = fs::read(&path).expect("it was just written");
    forget(&path);
    bytes
}

fn key(number: usize) -> Key {
    Key::new(
        if number.is_multiple_of(2) { Kind::Broadcast } else { Kind::User },
        "live",
        &format!("id{number:05}"),
    )
}

fn value(number: usize) -> Bytes {
    Bytes::from(format!("{{\"name\":\"{number}\"}}"))
}

fn forget(path: &PathBuf) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_file(path.with_extension("lock"));
}

/// Some damage makes the database library panic, and the store catches that. The fuzzer must not report such a
/// panic as a finding.
fn let_the_library_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.location().is_some_and(|at| at.file().contains("/redb-")) {
                before(info);
            }
        }));
    });
}

/// Opens a damaged file. The first byte chooses the file, and whether it is truncated. Changes follow: three bytes
/// for the place, one for the new value. The file must open with all of its records, or be refused.
pub fn store_recover(data: &[u8]) {
    let Some((&first, mut changes)) = data.split_first() else { return };
    let_the_library_panic();
    let mut bytes = FILES[usize::from(first & 1)].clone();
    for _ in 0..CHANGES_MAX {
        let Some((&[a, b, c, byte], rest)) = changes.split_first_chunk() else { break };
        changes = rest;
        let at = u32::from_be_bytes([0, a, b, c]) as usize % bytes.len();
        bytes[at] ^= byte;
    }
    if first & 2 != 0 {
        let kept = bytes.len() / 256 * usize::from(first >> 2);
        bytes.truncate(kept);
    }
    let path = path("changed");
    fs::write(&path, &bytes).expect("there is room");
    if let Ok(mut store) = RedbStore::open(&path)
        && let Ok(records) = store.load()
    {
        let count = if first & 1 == 0 { 3 } else { 300 };
        assert_eq!(records.len(), count, "opened with a part of its records");
        let mut expected: Vec<(Key, Bytes)> = (0..count).map(|n| (key(n), value(n))).collect();
        let mut records = records;
        let order = |(key, _): &(Key, Bytes)| key.to_string();
        expected.sort_by_key(order);
        records.sort_by_key(order);
        assert_eq!(records, expected, "opened with other records");
    }
    forget(&path);
}
