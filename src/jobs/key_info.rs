//! Key info files, in the format of ffmpeg: operators use them to supply keys for encrypted segments.

use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes of a key (AES-128).
pub const KEY_BYTES: usize = 16;
/// Maximum size of a key info file, in bytes.
pub const KEY_INFO_BYTES_MAX: usize = 8 << 10;
/// Bytes of the key's address, at most.
const URI_BYTES_MAX: usize = 2048;

/// A key with its address and, if the file has one, the initialization vector.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// The key.
    pub key: [u8; KEY_BYTES],
    /// Address that players fetch the key at.
    pub uri: String,
    /// Initialization vector of all segments.
    pub vector: Option<[u8; KEY_BYTES]>,
}

/// Never prints the key.
impl fmt::Debug for KeyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyInfo(..)")
    }
}

/// The lines of a key info file.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyInfoLines {
    /// Address that players fetch the key at: the first line.
    pub uri: String,
    /// Path of the key's file: the second line.
    pub path: PathBuf,
    /// Initialization vector in hexadecimal digits: the third line, which may be missing.
    pub vector: Option<[u8; KEY_BYTES]>,
}

impl KeyInfoLines {
    /// Reads a key info file. If the path of the key is relative, it begins at the folder of `file`.
    ///
    /// # Errors
    /// The line that cannot be used, and the reason.
    pub fn read(text: &str, file: &Path) -> Result<Self, &'static str> {
        let mut lines = text.lines().map(str::trim);
        let uri = lines.next().unwrap_or_default();
        let is_bad = |c: char| c.is_control() || c.is_whitespace() || c == '"';
        if uri.is_empty() || uri.len() > URI_BYTES_MAX || uri.contains(is_bad) {
            return Err("its first line is not the URI of the key");
        }
        let key = lines.next().filter(|line| !line.is_empty()).ok_or("its second line names no key file")?;
        let vector = lines.next().filter(|line| !line.is_empty());
        let vector = vector.map(|hex| number(hex).ok_or("its third line is not a vector of up to 32 digits"));
        Ok(Self {
            uri: uri.to_owned(),
            path: file.parent().unwrap_or_else(|| Path::new("")).join(key),
            vector: vector.transpose()?,
        })
    }
}

/// Reads hexadecimal digits, with or without `0x`.
fn number(hex: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = hex.strip_prefix("0x").or_else(|| hex.strip_prefix("0X")).unwrap_or(hex);
    let is_plain =
        (1..=2 * KEY_BYTES).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(digits, 16).ok().filter(|_| is_plain).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_info_file_has_two_lines_or_three() {
        let read = |text: &str| KeyInfoLines::read(text, Path::new("/conf/hls.keyinfo"));
        let lines = |path: &str, vector| {
            Ok(KeyInfoLines { uri: "https://k/1".to_owned(), path: path.into(), vector })
        };
        assert_eq!(read("https://k/1\n/keys/a.key"), lines("/keys/a.key", None));
        assert_eq!(read("https://k/1\r\na.key\r\n\r\n"), lines("/conf/a.key", None), "beside the file");
        let vector = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        for hex in ["000102030405060708090a0b0c0d0e0f", "0x0102030405060708090A0B0C0D0E0F"] {
            assert_eq!(read(&format!("https://k/1\n/a\n{hex}\nmore")), lines("/a", Some(vector)));
        }
        for bad in [
            "",
            "\n/a",
            "https://k/1",
            "https://k/1\n",
            "a b\n/a",
            "a\"b\n/a",
            "https://k/1\n/a\nxyz",
            "https://k/1\n/a\n+1",
            "https://k/1\n/a\n000102030405060708090a0b0c0d0e0f0",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        assert!(read(&format!("{}\n/a", "u".repeat(URI_BYTES_MAX + 1))).is_err());
    }
}
