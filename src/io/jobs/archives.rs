//! Archives of HLS. A file gets its name only when it is complete. To delete an archive, its playlist is
//! removed, and then the files that the playlist names.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use hls::Playlist;
use hls::limits::PLAYLIST_BYTES_MAX;
use hls::playlist::Segment;

use super::dvr::{files, path_of};
use super::files::{blame_append, checked, lead, nowhere, open_folder, open_or_make_folder, sync_folder};
use crate::io::sys;
use crate::jobs::{AppendError, ArchiveWork};

/// Prefix and suffix of a file's name until the file is complete. Hidden names are not served.
const UNFINISHED: (&str, &str) = (".", ".tmp_archive");

pub(super) fn run(root: &Path, work: &ArchiveWork) -> Result<(), AppendError> {
    let done = match work {
        ArchiveWork::Put { path, data } => put(root, path, data),
        ArchiveWork::Remove { path, begun_ms } => remove(root, path, *begun_ms),
        ArchiveWork::Withdraw { path, data } => withdraw(root, path, data),
        ArchiveWork::Clear { path } => clear(root, path),
        // DVR jobs are handled where their bytes are counted, not here.
        ArchiveWork::Dvr(_) => Err(nowhere()),
    };
    done.map_err(|error| blame_append(&error))
}

fn put(root: &Path, path: &[String], data: &[u8]) -> io::Result<()> {
    put_in(&lead(root, path, open_or_make_folder)?, data)
}

/// Writes a file to a folder in one step.
pub(super) fn put_in((folder, name): &(OwnedFd, CString), data: &[u8]) -> io::Result<()> {
    let (before, behind) = UNFINISHED;
    let unfinished = CString::new([before.as_bytes(), name.as_bytes(), behind.as_bytes()].concat())?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NONBLOCK;
    let written = sys::open_beside(folder.as_fd(), &unfinished, flags).and_then(|file| {
        let mut file = File::from(file);
        file.write_all(data)?;
        file.sync_all()?;
        sys::replace_beside(folder.as_fd(), &unfinished, name)
    });
    if let Err(error) = written {
        let _ = sys::remove_beside(folder.as_fd(), &unfinished);
        return Err(error);
    }
    sync_folder(folder)
}

fn remove(root: &Path, path: &[String], begun_ms: Option<i64>) -> io::Result<()> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let (folder, name) = match lead(root, path, open_folder) {
        Err(error) if is_missing(&error) => return Ok(()),
        found => found?,
    };
    let file = match sys::open_beside(folder.as_fd(), &name, libc::O_RDONLY | libc::O_NONBLOCK) {
        Err(error) if is_missing(&error) => return Ok(()),
        file => File::from(file?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take((PLAYLIST_BYTES_MAX as u64).saturating_add(1)).read_to_end(&mut text)?;
    // If the file is not a media playlist, this server has not written it.
    let Ok(Playlist::Media(playlist)) = Playlist::read(&text) else { return Ok(()) };
    let begun = playlist.segments.first().and_then(|segment| segment.program_date_time);
    if begun_ms.is_some() && begun_ms != begun {
        return Ok(());
    }
    // The playlist is removed first, so that it never names a missing file.
    sys::remove_beside(folder.as_fd(), &name)?;
    sync_folder(&folder)?;
    remove_named(&folder, &playlist.segments)
}

/// Deletes a file that has this content.
fn withdraw(root: &Path, path: &[String], data: &[u8]) -> io::Result<()> {
    let found = lead(root, path, open_folder).and_then(|(folder, name)| {
        let file = sys::open_beside(folder.as_fd(), &name, libc::O_RDONLY | libc::O_NONBLOCK)?;
        Ok((folder, name, File::from(file)))
    });
    let (folder, name, file) = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut there = Vec::new();
    file.take((data.len() as u64).saturating_add(1)).read_to_end(&mut there)?;
    if there != data {
        return Ok(());
    }
    sys::remove_beside(folder.as_fd(), &name)?;
    sync_folder(&folder)
}

/// Deletes the files in a folder whose names begin with the last name of the path, and that an archive may have. A file
/// is deleted after those that may name it.
fn clear(root: &Path, path: &[String]) -> io::Result<()> {
    let Some((stem, folders)) = path.split_last() else { return Err(nowhere()) };
    let found = path_of(root, folders).and_then(|found| Ok((found, lead(root, path, open_folder)?)));
    let (listed, (folder, _)) = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let mut names: Vec<(u8, String)> = files(&listed)
        .filter_map(|(name, _)| Some((depth(name.strip_prefix(stem.as_str()).map(|_| &*name)?)?, name)))
        .collect();
    names.sort_unstable();
    for (_, name) in names {
        sys::remove_beside(folder.as_fd(), &checked(&name)?)?;
    }
    sync_folder(&folder)
}

/// Returns how many files lead to a file of this name; `None` for files that no archive has.
fn depth(name: &str) -> Option<u8> {
    match name.rsplit_once('.')? {
        (_, "mpd") => Some(0),
        (stem, "m3u8") if stem.ends_with("__master") => Some(0),
        (_, "m3u8") => Some(1),
        (_, "m4s" | "mp4" | "ts") => Some(2),
        _ => None,
    }
}

/// Deletes the files in a folder that a playlist names.
fn remove_named(folder: &OwnedFd, segments: &[Segment]) -> io::Result<()> {
    let maps = segments.iter().filter_map(|segment| segment.map.as_ref()).map(|map| map.uri.as_str());
    let names: BTreeSet<&str> = segments.iter().map(|segment| segment.uri.as_str()).chain(maps).collect();
    let is_ours = |name: &&&str| matches!(name.rsplit_once('.'), Some((stem, "ts" | "m4s" | "mp4")) if !stem.is_empty() && !stem.starts_with('.'));
    for name in names.iter().filter(is_ours) {
        let Ok(name) = checked(name) else { continue };
        match sys::remove_beside(folder.as_fd(), &name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;

    use crate::tests::TempFolder;

    use super::*;

    fn path(name: &str) -> Vec<String> {
        ["live", "streams", name].map(str::to_owned).to_vec()
    }

    fn put(root: &Path, name: &str, data: &str) -> Result<(), AppendError> {
        run(root, &ArchiveWork::Put { path: path(name), data: Bytes::from(data.to_owned()) })
    }

    fn remove(root: &Path, begun_ms: Option<i64>) -> Result<(), AppendError> {
        run(root, &ArchiveWork::Remove { path: path("s.m3u8"), begun_ms })
    }

    fn names(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root.join("live/streams")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    const PLAYLIST: &str = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MAP:URI=\"s_init.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-11-25T03:00:00.000+00:00\n#EXTINF:2,\ns1.m4s\n#EXTINF:2,\n../live/streams/up.ts\n\
        #EXTINF:2,\nnotes.txt\n#EXTINF:2,\ns2.m4s\n";

    #[test]
    fn a_file_is_put_whole_in_the_place_of_what_was_there() {
        let root = TempFolder::new();
        put(&root, "s1.ts", "old and long").unwrap();
        put(&root, "s1.ts", "new").unwrap();
        assert_eq!(fs::read(root.join("live/streams/s1.ts")).unwrap(), b"new");
        // An incomplete file that a crash has left is replaced. A link with the name of such a file
        // is refused.
        fs::write(root.join("live/streams/.s1.ts.tmp_archive"), "torn and longer than what comes").unwrap();
        put(&root, "s1.ts", "more").unwrap();
        assert_eq!(
            (fs::read(root.join("live/streams/s1.ts")).unwrap(), names(&root)),
            (b"more".to_vec(), vec!["s1.ts".to_owned()])
        );
        std::os::unix::fs::symlink("/etc/passwd", root.join("live/streams/.s2.ts.tmp_archive")).unwrap();
        assert!(put(&root, "s2.ts", "x").is_err());
        fs::create_dir(root.join("live/streams/s3.ts")).unwrap();
        assert!(put(&root, "s3.ts", "x").is_err(), "a folder stays one");
        assert_eq!(names(&root), ["s1.ts", "s3.ts"]);
    }

    #[test]
    fn a_file_is_withdrawn_if_it_is_still_the_same() {
        let root = TempFolder::new();
        let withdraw = |data: &'static str| {
            let work = ArchiveWork::Withdraw { path: path("s.mpd"), data: Bytes::from(data) };
            run(&root, &work)
        };
        assert_eq!(withdraw("old"), Ok(()), "there is none");
        put(&root, "s.mpd", "new").unwrap();
        for other in ["old", "ne", "newer"] {
            assert_eq!((withdraw(other), names(&root)), (Ok(()), vec!["s.mpd".to_owned()]), "{other}");
        }
        assert_eq!((withdraw("new"), names(&root)), (Ok(()), Vec::new()));
    }

    #[test]
    fn all_files_of_an_archive_are_cleared_by_the_beginning_of_their_names() {
        let root = TempFolder::new();
        let clear = |stem: &str| run(&root, &ArchiveWork::Clear { path: path(stem) });
        assert_eq!(clear("s__"), Ok(()), "there is no folder");
        let others = ["other__1.m4s", "s.mpd", "s.m3u8", "s__notes.txt"];
        let own = ["s__audio.m3u8", "s__audio_9_1.m4s", "s__audio_9_init.mp4", "s__master.m3u8"];
        for name in others.iter().chain(&own) {
            put(&root, name, name).unwrap();
        }
        fs::create_dir(root.join("live/streams/s__1.m4s")).unwrap();
        assert_eq!(clear("s__"), Ok(()));
        assert_eq!(names(&root), ["other__1.m4s", "s.m3u8", "s.mpd", "s__1.m4s", "s__notes.txt"]);
        assert_eq!(clear("s.mpd"), Ok(()));
        assert_eq!(names(&root), ["other__1.m4s", "s.m3u8", "s__1.m4s", "s__notes.txt"]);
        assert_eq!([depth("s__master.m3u8"), depth("s__audio.m3u8")], [Some(0), Some(1)]);
    }

    #[test]
    fn what_a_playlist_names_goes_with_it_and_nothing_else_does() {
        let root = TempFolder::new();
        assert_eq!(remove(&root, None), Ok(()), "there is none");
        for name in ["s1.m4s", "s2.m4s", "s_init.mp4", "up.ts", "notes.txt", "other.m4s"] {
            put(&root, name, name).unwrap();
        }
        put(&root, "s.m3u8", PLAYLIST).unwrap();
        assert_eq!(remove(&root, Some(1)), Ok(()));
        assert_eq!(names(&root).len(), 7, "it is another one");
        assert_eq!(remove(&root, Some(1_795_575_600_000)), Ok(()));
        assert_eq!(names(&root), ["notes.txt", "other.m4s", "up.ts"]);
        put(&root, "s.m3u8", "no playlist").unwrap();
        assert_eq!(remove(&root, None), Ok(()));
        assert!(names(&root).contains(&"s.m3u8".to_owned()), "it was not written here");
    }
}
