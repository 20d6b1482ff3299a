use std::sync::Arc;

use crate::io::jobs::files::open;
use crate::jobs::FileError;
use crate::tests::TempFolder;

use super::*;

struct Rig {
    home: TempFolder,
    paths: FilePaths,
}

impl Rig {
    /// Makes a home with two applications, and some folders, not all of which may be
    /// imported.
    fn new() -> Self {
        let home = TempFolder::new();
        for folder in
            ["webapps/live/streams", "webapps/other/streams", "media/films/old", "media/empty", "secret"]
        {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        for file in [
            "media/films/a.mp4",
            "media/films/old/b.mkv",
            "media/films/old/list.m3u8",
            "media/films/old/one.ts",
            "media/films/notes.txt",
            "media/films/.hidden.mp4",
            "secret/x.mp4",
            "webapps/other/streams/o.mp4",
        ] {
            fs::write(home.join(file), file).unwrap();
        }
        symlink(home.join("secret"), home.join("media/films/out")).unwrap();
        symlink(home.join("secret/x.mp4"), home.join("media/films/x.mp4")).unwrap();
        symlink(home.join("secret"), home.join("media/leads-out")).unwrap();
        let mut paths = FilePaths::of(home.join("webapps"));
        paths.options.home = home.to_path_buf();
        paths.import_folders = vec![home.join("media"), home.join("not-there")];
        Self { home, paths }
    }

    fn link(&self, folder: &str) -> ImportOutcome {
        run(&self.paths, &ImportWork::Link { app: Arc::from("live"), folder: folder.to_owned() })
    }

    fn unlink(&self, folder: &str) -> ImportOutcome {
        run(&self.paths, &ImportWork::Unlink { app: Arc::from("live"), folder: folder.to_owned() })
    }

    fn open(&self, path: &str) -> Result<u64, FileError> {
        let names: Vec<String> = path.split('/').map(str::to_owned).collect();
        open(&self.paths, &names).map(|opened| opened.length)
    }
}

fn names(outcome: &ImportOutcome) -> Vec<&str> {
    let ImportOutcome::Linked(files) = outcome else { panic!("{outcome:?}") };
    files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn a_folder_is_linked_and_its_media_are_found_and_served() {
    let rig = Rig::new();
    let linked = rig.link("media/films");
    assert_eq!(
        names(&linked),
        ["streams/films/a.mp4", "streams/films/old/b.mkv", "streams/films/old/list.m3u8"]
    );
    assert_eq!(rig.link("media/films"), ImportOutcome::Taken("films".to_owned()));
    for (path, served) in [
        ("live/streams/films/a.mp4", Ok(17)),
        ("live/streams/films/old/b.mkv", Ok(21)),
        ("live/streams/films/old/one.ts", Ok(22)),
        ("live/streams/films/notes.txt", Err(FileError::NotFound)),
        ("live/streams/films/old", Err(FileError::NotFound)),
        ("live/streams/films", Err(FileError::NotFound)),
        ("other/streams/films/a.mp4", Err(FileError::NotFound)),
    ] {
        assert_eq!(rig.open(path), served, "{path}");
    }
    assert_eq!(rig.unlink("media/films"), ImportOutcome::Unlinked("streams/films/".to_owned()));
    assert_eq!(rig.open("live/streams/films/a.mp4"), Err(FileError::NotFound));
    assert!(rig.home.join("media/films/a.mp4").exists(), "the files stay");
    assert_eq!(rig.unlink("media/films"), ImportOutcome::Missing);
    let absolute = rig.home.join("media/empty");
    assert_eq!(rig.link(absolute.to_str().unwrap()), ImportOutcome::Linked(Vec::new()));
    // An imported folder that no longer exists can still be unlinked.
    let absolute = absolute.canonicalize().unwrap();
    fs::remove_dir(&absolute).unwrap();
    assert!(matches!(rig.unlink(absolute.to_str().unwrap()), ImportOutcome::Unlinked(_)));
}

#[test]
fn h_16_only_folders_that_are_named_are_imported() {
    let rig = Rig::new();
    for folder in [
        "/",
        "/etc",
        "/nonexistent",
        "",
        ".",
        "secret",
        "webapps/other/streams",
        "media/../secret",
        "media/none/../../secret",
        "media/leads-out",
        "media/films/out",
        "media-beside",
        "not-there/../secret",
        "media\0/films",
    ] {
        assert_eq!(rig.link(folder), ImportOutcome::Outside, "{folder}");
    }
    for folder in ["media/none", "media/films/a.mp4", "media/films/.hidden.mp4"] {
        assert_eq!(rig.link(folder), ImportOutcome::Missing, "{folder}");
    }
    for folder in ["/etc", "secret", "media/films", "", "/"] {
        assert_eq!(rig.unlink(folder), ImportOutcome::Missing, "{folder}");
    }
    assert_eq!(fs::read_dir(rig.home.join("webapps/live/streams")).unwrap().count(), 0);
}

#[test]
fn h_16_a_link_is_followed_below_folders_that_are_named_and_nowhere_else() {
    let rig = Rig::new();
    let streams = rig.home.join("webapps/live/streams");
    let link = |name: &str, target: &str| symlink(target, streams.join(name)).unwrap();
    let home = rig.home.canonicalize().unwrap();
    link("secret", home.join("secret").to_str().unwrap());
    link("dots", home.join("media/../secret").to_str().unwrap());
    link("relative", "../../../media/films");
    link("through", home.join("media/leads-out").to_str().unwrap());
    link("other", home.join("webapps/other/streams").to_str().unwrap());
    for path in ["secret/x.mp4", "dots/x.mp4", "relative/a.mp4", "through/x.mp4", "other/o.mp4"] {
        assert_eq!(rig.open(&format!("live/streams/{path}")), Err(FileError::NotFound), "{path}");
    }
    // Links inside a linked folder are not followed, and `..` is refused.
    rig.link("media/films");
    for path in ["out/x.mp4", "x.mp4", "../../../secret/x.mp4", "old/../a.mp4", "./a.mp4", "/a.mp4"] {
        assert_eq!(rig.open(&format!("live/streams/films/{path}")), Err(FileError::NotFound), "{path}");
    }
    // Only links directly in `streams` count.
    symlink(home.join("media/films"), rig.home.join("webapps/live/films")).unwrap();
    assert_eq!(rig.open("live/films/a/a.mp4"), Err(FileError::NotFound));
    // If another file or folder has the name, it is not touched.
    fs::create_dir(streams.join("empty")).unwrap();
    assert_eq!(rig.link("media/empty"), ImportOutcome::Taken("empty".to_owned()));
    assert_eq!(rig.unlink("media/empty"), ImportOutcome::Missing);
    // A folder removed from the settings is no longer served, but can be unlinked.
    let paths = FilePaths { import_folders: Vec::new(), ..rig.paths.clone() };
    let rig = Rig { paths, ..rig };
    assert_eq!(rig.open("live/streams/films/a.mp4"), Err(FileError::NotFound));
    assert!(matches!(rig.unlink("media/films"), ImportOutcome::Unlinked(_)));
}

#[test]
fn a_folder_that_is_too_large_or_too_deep_is_not_imported() {
    let rig = Rig::new();
    let deep = (0..=DEPTH_MAX).fold(rig.home.join("media/deep"), |path, _| path.join("d"));
    fs::create_dir_all(deep).unwrap();
    assert_eq!(rig.link("media/deep"), ImportOutcome::TooMany);
    fs::create_dir(rig.home.join("media/many")).unwrap();
    for number in 0..=FILES_MAX {
        fs::write(rig.home.join(format!("media/many/{number}.mp4")), "").unwrap();
    }
    assert_eq!(rig.link("media/many"), ImportOutcome::TooMany);
    assert_eq!(fs::read_dir(rig.home.join("webapps/live/streams")).unwrap().count(), 0);
}
