//! Shared parts of the tests of several modules: a folder for one test, removed with its value whether the test
//! passes or fails.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A temporary folder, empty at first. Each value has a folder of its own.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millstream-unit-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Deref for TempFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_folder_goes_with_its_value_when_a_test_fails_too() {
    let (first, second) = (TempFolder::new(), TempFolder::new());
    assert_ne!(*first, *second);
    let path = first.to_path_buf();
    fs::write(path.join("file"), "").unwrap();
    let failed = std::thread::spawn(move || assert!(!first.is_dir(), "a test that fails"));
    assert!(failed.join().is_err());
    assert!(!path.exists());
    assert!(second.is_dir());
}
