//! The path of a recording: `{app}/streams/{folder}/{name}.mp4`.

use crate::config::RecordingSettings;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::types::{Civil, Now, StreamKey};

/// Folder of an application from which files are played.
pub(super) const STREAMS: &str = "streams";
/// Longest name, in characters.
const NAME_CHARS_MAX: usize = 120;
/// Longest name, in bytes. File systems take 255; a number, the extension and that of an unfinished file are added.
const NAME_BYTES_MAX: usize = 200;
/// Length of the date and time in a name, in bytes.
const DATE_BYTES: usize = 23;
/// Maximum number of folders below `streams`.
const FOLDERS_MAX: usize = 8;

/// Makes a valid file name: separators and control characters become `_`, and so does a leading dot, since it would
/// hide the file.
fn clean(name: &str) -> String {
    let mut clean: String = name
        .chars()
        .take(NAME_CHARS_MAX)
        .map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c })
        .collect();
    if clean.starts_with('.') {
        clean.replace_range(..1, "_");
    }
    clean.truncate(clean.floor_char_boundary(NAME_BYTES_MAX));
    clean
}

/// Returns the name requested by a caller, without its extension.
fn stem_of(name: &str) -> String {
    let cleaned = clean(name);
    match cleaned.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && extension.len() <= 4 => stem.to_owned(),
        _ => cleaned,
    }
}

/// Returns the folders of a template, in which `%m` is the main track and `%s` the stream.
fn folders(template: &str, main: &str, stream: &str) -> Vec<String> {
    let names = template.split('/').map(|name| name.replace("%m", main).replace("%s", stream));
    let names = names.filter(|name| !name.is_empty() && name != "." && name != "..");
    names.map(|name| clean(&name)).take(FOLDERS_MAX).collect()
}

/// Returns the stream from which a file was recorded, by the file's name: `{id}.mp4`, `{id}_1.mp4`,
/// `{id}-2026-11-22_17-40-05.123_1.mp4`.
pub(in crate::control) fn stream_of(name: &str, is_broadcast: impl Fn(&str) -> bool) -> String {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let unnumbered = stem.rsplit_once('_').filter(|(_, number)| is_number(number)).map(|(stem, _)| stem);
    let undated = |stem: &str| -> Option<String> {
        let (id, date) = stem.split_at_checked(stem.len().checked_sub(DATE_BYTES.saturating_add(1))?)?;
        let shape = date.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq(*b"-0000-00-00_00-00-00.000").then(|| id.to_owned())
    };
    if let Some(id) = undated(stem).or_else(|| unnumbered.and_then(undated)) {
        return id;
    }
    // `cam_1` may be the name of a stream, or that of the second file of the stream `cam`.
    unnumbered.filter(|id| is_broadcast(id) && !is_broadcast(stem)).unwrap_or(stem).to_owned()
}

impl Records {
    /// Returns the folder below `streams` that has the playlists of a stream, with a trailing slash.
    pub(in crate::control) fn polled_folder(&self, cx: &Context, key: &StreamKey) -> String {
        let record = self.get(key);
        let own = record.and_then(|record| record.sub_folder.as_deref()).filter(|own| !own.trim().is_empty());
        let of_app = cx.apps.get(&key.app).map(|app| app.recording.shared_folder.as_str());
        let main = record.and_then(|record| record.main_track_stream_id.as_deref()).unwrap_or_default();
        let names = folders(own.or(of_app).unwrap_or_default(), main, &key.id);
        names.into_iter().map(|name| name + "/").collect()
    }

    /// Returns the folders and the name of a recording.
    pub(super) fn recording_place(
        &self,
        now: Now,
        key: &StreamKey,
        name: Option<&str>,
        settings: &RecordingSettings,
    ) -> (Vec<String>, String) {
        let record = self.get(key);
        let own = record.and_then(|record| record.sub_folder.as_deref()).filter(|own| !own.trim().is_empty());
        let main = record.and_then(|record| record.main_track_stream_id.as_deref()).unwrap_or_default();
        let below = folders(own.unwrap_or(&settings.folder), main, &key.id);
        let folder = [key.app.to_string(), STREAMS.to_owned()].into_iter().chain(below).collect();
        let wanted = name.map(stem_of).filter(|name| !name.trim().is_empty());
        let stem = wanted.unwrap_or_else(|| {
            let mut id = clean(&key.id);
            if !settings.text.is_empty() {
                id = format!("{id}_{}", settings.text);
            }
            if settings.dated { format!("{id}-{}", dated(now)) } else { id }
        });
        (folder, stem)
    }
}

/// Returns the time as `yyyy-MM-dd_HH-mm-ss.SSS`, in UTC.
fn dated(now: Now) -> String {
    let Civil { year, month, day, hour, minute, second, millis } = Civil::of_unix_ms(now.wall_ms);
    format!("{year:04}-{month:02}-{day:02}_{hour:02}-{minute:02}-{second:02}.{millis:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for (given, stem) in [
            ("my file/..x.mp4", "my file_..x"),
            ("../../etc/passwd", "_._.._etc_passwd"),
            (".hidden.mp4", "_hidden"),
            ("a\nb.webm", "a_b"),
            ("v1.2-final take", "v1.2-final take"),
            ("none", "none"),
        ] {
            assert_eq!(stem_of(given), stem, "{given}");
        }
        assert_eq!(stem_of(&"x".repeat(300)).len(), NAME_CHARS_MAX);
    }

    /// Characters of most scripts have three bytes, others four.
    #[test]
    fn a_name_in_any_script_is_one_that_file_systems_take() {
        for (letter, count) in [("é", 100), ("録", 66), ("🎥", 50)] {
            let name = letter.repeat(150);
            assert_eq!(stem_of(&name), letter.repeat(count));
            assert_eq!(folders(&name, "", ""), [letter.repeat(count)]);
        }
    }

    #[test]
    fn a_file_tells_its_stream() {
        let is_broadcast = |id: &str| matches!(id, "cam" | "cam_2");
        for (name, stream) in [
            ("cam.mp4", "cam"),
            ("cam_1.mp4", "cam"),
            ("cam_2.mp4", "cam_2"),
            ("other_1.mp4", "other_1"),
            ("cam_2-2026-11-22_17-40-05.123.mp4", "cam_2"),
            ("other-2026-11-22_17-40-05.123_14.mp4", "other"),
            ("-2026-11-22_17-40-05.123", "-2026-11-22_17-40-05"),
            ("é2026-11-22_17-40-05.123.mp4", "é2026-11-22_17-40-05.123"),
            ("", ""),
        ] {
            assert_eq!(stream_of(name, is_broadcast), stream, "{name}");
        }
    }

    #[test]
    fn folders_have_the_names_of_the_stream() {
        assert_eq!(folders("rec/%m/%s", "room", "cam"), ["rec", "room", "cam"]);
        assert_eq!(folders("/a//../%m/./.b", "", "cam"), ["a", "_b"]);
        assert_eq!(folders("%s", "", "../x"), [".._x"].map(|_| "_._x".to_owned()));
    }
}
