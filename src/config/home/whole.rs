//! Detects incomplete settings files. An interrupted copy or a full disk leaves only the beginning of a file. The
//! missing settings would then have their defaults, and restrictions would be lost.
//!
//! A file written by the server announces in its first line that it ends with [`END`]. In a file written by hand,
//! truncation can be recognised only by a key without a value at the very end.

use crate::config::properties::FILE_BYTES_MAX;

/// First line of a file that the server writes.
const ANNOUNCEMENT: &str = "# This file counts only with the line \"# End of settings\" at its end; without that line it was cut short.";
/// The last line that the server writes.
const END: &str = "# End of settings";

/// Returns the text of a new file, with announcement and end line.
pub(super) fn announced(text: &str) -> String {
    with_end(&format!("{ANNOUNCEMENT}\n{text}"))
}

/// Returns a changed text with its end line moved after the lines that the change appended. A text that announces no
/// end line gets none. If nothing was appended, every line stays in its place.
pub(super) fn ended(old: &str, new: String) -> String {
    let appended = is_announced(&new) && behind_end(&new) != behind_end(old);
    if appended { with_end(&new) } else { new }
}

/// Returns the lines after the first end line.
fn behind_end(text: &str) -> Vec<&str> {
    text.lines().skip_while(|line| *line != END).skip(1).collect()
}

/// Returns a text with its end line moved to the very end.
fn with_end(text: &str) -> String {
    let is_end = |line: &&str| line.trim_end_matches(['\r', '\n']) == END;
    let mut out: String = text.split_inclusive('\n').filter(|line| !is_end(line)).collect();
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out.push_str(END);
    out.push('\n');
    out
}

/// Returns the damage that a power cut, a full disk or an interrupted copy has done to a settings file, if any. The
/// server itself never writes such a file, and no setting in the file can be relied on.
pub(super) fn damage_of(bytes: &[u8]) -> Option<&'static str> {
    if bytes.trim_ascii().is_empty() {
        return Some("the file is empty");
    }
    if bytes.contains(&0) {
        return Some("the file has NUL bytes, as a power cut leaves them");
    }
    if bytes.len() > FILE_BYTES_MAX {
        return None;
    }
    // Bytes that are not text are reported by another error.
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_announced(text) {
        return (!text.lines().any(|line| line == END)).then_some(
            "the file was cut short: the line '# End of settings' is missing, which its first line announces",
        );
    }
    if ANNOUNCEMENT.starts_with(text.trim_end()) {
        return Some("the file was cut short in its first line");
    }
    let last = text.rsplit(['\r', '\n']).next().unwrap_or_default().trim_start();
    let is_cut = !last.is_empty()
        && !last.starts_with(['#', '!'])
        && !last.contains(['=', ':', ' ', '\t', '\x0c', '\\']);
    // After a line that ends with a backslash, the last line continues a value and is not a key.
    let before = text.get(..text.len() - last.len()).unwrap_or_default().trim_end_matches(['\r', '\n']);
    (is_cut && !before.ends_with('\\'))
        .then_some("the file was cut short: its last line is a key without '=' and without an end of line")
}

fn is_announced(text: &str) -> bool {
    text.strip_prefix('\u{feff}').unwrap_or(text).lines().next() == Some(ANNOUNCEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_a_file_that_the_server_has_made_is_whole_or_known_to_be_cut_short_at_every_byte() {
        let whole = announced("# Settings\n\n# A switch\na=1\n\n# Another\n#b=2\nc=x\\\n  y\n");
        // Only the final line break may be missing.
        for cut in 0..whole.len() - 1 {
            let is_damaged = damage_of(&whole.as_bytes()[..cut]).is_some();
            assert!(is_damaged, "{:?}", &whole[..cut]);
        }
        for good in [
            &whole,
            whole.trim_end(),
            &whole.replace('\n', "\r\n"),
            &format!("{whole}d=4"),
            "a=1",
            "#a=1\nb=2",
        ] {
            assert_eq!(damage_of(good.as_bytes()), None, "{good:?}");
        }
        // Appended lines come before the end line, which occurs once.
        let more = ended(&whole, format!("{whole}d=4"));
        assert_eq!(
            (more.matches(END).count(), more.ends_with("\nd=4\n# End of settings\n")),
            (2, true),
            "{more}"
        );
        // Appended lines are recognised even if a value shrinks from several lines to one.
        let shorter = format!("{}d=4", whole.replace("c=x\\\n  y", "c=z"));
        assert!(ended(&whole, shorter.clone()).ends_with("\nd=4\n# End of settings\n"), "{shorter}");
        assert!(
            ended(&format!("\u{feff}{whole}"), format!("\u{feff}{whole}d=4"))
                .ends_with("\nd=4\n# End of settings\n")
        );
        assert_eq!(ended("", "a=1".to_owned()), "a=1");
        // Lines that an operator has added after the end line stay there if nothing is appended.
        let behind = format!("{whole}# mine\nd=4\n");
        assert_eq!(ended(&behind, behind.replace("a=1", "a=2")), behind.replace("a=1", "a=2"));
    }

    #[test]
    fn c_11_a_key_that_is_cut_off_in_a_file_by_hand_is_known() {
        for bad in ["a=1\npublishTok", "publishTok", "a=1\r\n\r\n  b", "#", "# This file co"] {
            assert!(damage_of(bad.as_bytes()).is_some(), "{bad:?}");
        }
        for good in ["a=1\nb=", "a=1\nb\n", "a=1\\\nb", "a=1\n# c", "a=1\nb c", "\u{feff}a=1\n", "# off"] {
            assert_eq!(damage_of(good.as_bytes()), None, "{good:?}");
        }
    }
}
