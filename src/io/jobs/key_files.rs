//! Key info files and their keys. These are small regular files whose paths the operator gives.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::jobs::{KEY_BYTES, KEY_INFO_BYTES_MAX, KeyInfo, KeyInfoLines};

/// Reads a key info file and the key that it names. The error is a reason for the log and contains nothing from the
/// files.
pub(super) fn read(file: &Path) -> Result<KeyInfo, String> {
    let bytes = small(file, KEY_INFO_BYTES_MAX).map_err(|reason| format!("the file {reason}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    let lines = KeyInfoLines::read(&text, file)?;
    let key =
        small(&lines.path, KEY_BYTES).map_err(|reason| format!("the key file that it names {reason}"))?;
    let key = key.try_into().map_err(|_| "the key file that it names does not have 16 bytes".to_owned())?;
    Ok(KeyInfo { key, uri: lines.uri, vector: lines.vector })
}

/// Reads a regular file of at most `bytes_max` bytes. Pipes and devices are refused, so that the read cannot block.
fn small(path: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    let cannot = |error: &std::io::Error| format!("cannot be read: {}", error.kind());
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| cannot(&error))?;
    if !file.metadata().map_err(|error| cannot(&error))?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() > bytes_max {
        return Err("is too long".to_owned());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TempFolder;

    #[test]
    fn a_key_is_read_by_its_info_file_and_nothing_else_is() {
        let folder = TempFolder::new();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("key"), [7; 16]).unwrap();
        std::fs::write(at("info"), "https://k/1\nkey\n").unwrap();
        let info = read(&at("info")).unwrap();
        assert_eq!(info, KeyInfo { key: [7; 16], uri: "https://k/1".to_owned(), vector: None });
        assert!(!format!("{info:?}").contains('7'));
        for (content, reason) in [
            (&b"https://k/1\nmissing"[..], "key file that it names cannot be read"),
            (b"https://k/1\n/dev/zero", "key file that it names is not a regular file"),
            (b"https://k/1.key\ninfo", "key file that it names is too long"),
            (b"https://k/1\nempty", "does not have 16 bytes"),
            (b"https://k/1\n", "second line"),
            (b"\xff\xfe", "not text"),
            (&[b'x'; KEY_INFO_BYTES_MAX + 1], "the file is too long"),
        ] {
            std::fs::write(at("empty"), "").unwrap();
            std::fs::write(at("info"), content).unwrap();
            let told = read(&at("info")).unwrap_err();
            assert!(told.contains(reason), "{told}");
        }
        assert!(read(&folder).unwrap_err().contains("the file"), "a folder");
        assert!(read(&at("nothing")).unwrap_err().contains("cannot be read"));
    }
}
