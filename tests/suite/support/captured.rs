//! Captures a child's standard error, to show it when a test fails.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of bytes shown; of a longer text, the end is shown.
const SHOWN_BYTES: u64 = 16 * 1024;

static FILES: AtomicU32 = AtomicU32::new(0);

/// A file without a name, which the kernel deletes when the last process closes it.
#[derive(Debug)]
pub struct Captured(File);

impl Captured {
    pub fn new() -> Self {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millstream-stderr-{}-{number}", std::process::id()));
        let file = File::options().read(true).append(true).create_new(true).open(&path).unwrap();
        fs::remove_file(path).unwrap();
        Self(file)
    }

    /// Returns the file as standard error for the child.
    pub fn writer(&self) -> Stdio {
        self.0.try_clone().unwrap().into()
    }

    /// Returns the end of the text so far.
    pub fn tail(&self) -> String {
        let length = self.0.metadata().unwrap().len();
        let mut bytes = vec![0; length.min(SHOWN_BYTES) as usize];
        self.0.read_exact_at(&mut bytes, length.saturating_sub(SHOWN_BYTES)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
