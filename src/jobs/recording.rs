//! Work on files that sinks have recorded: finishing complete recordings, and removing unwanted ones.

/// Suffix of a recording's name while it is being written.
pub const UNFINISHED: &str = ".tmp_extension";

/// Returns the name or path of the file with this number in a series: `a.mp4`, `a_1.mp4`, `a_2.mp4`, … The file `first`
/// has the number 0.
#[must_use]
pub fn numbered(first: &str, number: u64) -> String {
    if number == 0 {
        return first.to_owned();
    }
    match split_extension(first) {
        (stem, Some(extension)) => format!("{stem}_{number}.{extension}"),
        (stem, None) => format!("{stem}_{number}"),
    }
}

/// Returns the first file of the series to which a name or path belongs, and its number in that series. The inverse of
/// [`numbered`]: each name belongs to one series.
#[must_use]
pub fn series_of(name: &str) -> (String, u64) {
    let alone = || (name.to_owned(), 0);
    let (stem, extension) = split_extension(name);
    let Some((base, digits)) = stem.rsplit_once('_') else { return alone() };
    let is_plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = digits.parse::<u64>().ok().filter(|_| is_plain) else { return alone() };
    match extension {
        Some(extension) => (format!("{base}.{extension}"), number),
        None => (base.to_owned(), number),
    }
}

/// Splits a name or path at the dot before its extension, if it has one.
fn split_extension(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') => (stem, Some(extension)),
        Some(_) | None => (name, None),
    }
}

/// Work on a recording. It may take as long as copying the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingWork {
    /// Turn the written data into a plain file, also after a crash, and rename it to its final name.
    Finish {
        /// Path of the finished file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
    /// Sync a complete upload to the disk, and rename it to its final name.
    Adopt {
        /// Path of the file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
    /// Find the unfinished recordings of these applications.
    Find {
        /// Applications whose folders are searched: the first names below the root folder.
        apps: Vec<String>,
    },
    /// Remove a recording, finished or not.
    Remove {
        /// Path of the finished file: the folders below the root folder, then the file's name.
        path: Vec<String>,
    },
}

/// A finished recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes of the file.
    pub bytes: u64,
    /// Duration in milliseconds; `None` if the file does not contain it in a known form.
    pub duration_ms: Option<u64>,
}

/// The outcome of [`RecordingWork`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingOutcome {
    /// The recording is complete and can be played.
    Finished(Finished),
    /// The recording was empty and has been removed.
    Empty,
    /// The file contains data but is not a recording. It was kept in the same folder and renamed to
    /// this name.
    SetAside(String),
    /// The file was removed, or did not exist.
    Removed,
    /// Unfinished recordings, each with the path that its finished file will have: the folders
    /// below the root folder, then the file's name.
    Found(Vec<Vec<String>>),
    /// The reason of a failure. The file was left unchanged.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_belongs_to_one_series() {
        for (name, first, number) in [
            ("cam.mp4", "cam.mp4", 0),
            ("cam_1.mp4", "cam.mp4", 1),
            ("streams/a.b/cam_20.mp4", "streams/a.b/cam.mp4", 20),
            ("cam_1_2.webm", "cam_1.webm", 2),
            ("streams/a.b/cam_3", "streams/a.b/cam", 3),
            ("cam_01.mp4", "cam_01.mp4", 0),
            ("cam_0.mp4", "cam_0.mp4", 0),
            ("cam_+1.mp4", "cam_+1.mp4", 0),
            ("cam_.mp4", "cam_.mp4", 0),
            ("cam_99999999999999999999.mp4", "cam_99999999999999999999.mp4", 0),
            ("", "", 0),
        ] {
            assert_eq!(series_of(name), (first.to_owned(), number), "{name}");
            assert_eq!(numbered(first, number), name);
        }
    }
}
