use std::path::PathBuf;

use super::*;
use crate::control::administrator_record;
use crate::control::broadcast::Broadcast;
use crate::tests::TempFolder;
use crate::types::StreamKey;

struct Home(TempFolder);

impl Home {
    /// A used home with an administrator and some broadcasts.
    fn new() -> Self {
        let home = Self(TempFolder::new());
        let config = Config::open(&home.options()).unwrap();
        let mut store = RedbStore::open(&home.store()).unwrap();
        crate::config::remember(&home.options(), config.apps.iter().map(|app| &*app.name)).unwrap();
        let (key, bytes) = administrator_record("a@b", "hash".to_owned());
        let broadcast = |n: usize| {
            let record = Broadcast { stream_id: format!("s{n}"), update_time: 1, ..Broadcast::default() };
            Op::Put(StreamKey::new("live", &record.stream_id).into(), record.encode())
        };
        let ops: Vec<Op> = (0..9).map(broadcast).chain([Op::Put(key, bytes)]).collect();
        store.commit(&ops).unwrap();
        home
    }

    fn options(&self) -> Options {
        Options {
            home: self.0.join("home"),
            cores: 1,
            schema: crate::protocol::schema(),
            ..Options::default()
        }
    }

    fn store(&self) -> PathBuf {
        self.0.join("home/data/store.redb")
    }

    fn run_once(&self, task: &Task) -> Result<(String, String), String> {
        let mut out = Vec::new();
        let done = run(&self.options(), task, &mut out)?;
        Ok((done, String::from_utf8(out).unwrap()))
    }

    fn run(&self, task: &Task) -> Result<(String, String), String> {
        unlocked(|| self.run_once(task), |why| why.contains("in use by another process"))
    }

    fn records(&self) -> Vec<(Key, Bytes)> {
        let open = || RedbStore::open_existing(&self.store());
        unlocked(open, |why| matches!(why, store::Error::Locked(_))).unwrap().load().unwrap()
    }
}

/// Retries while the store is locked. A child process that another test has started inherits the lock, and holds it
/// until it runs its own program.
fn unlocked<T, E>(once: impl Fn() -> Result<T, E>, is_locked: impl Fn(&E) -> bool) -> Result<T, E> {
    const TRIES: usize = 500;
    for _ in 0..TRIES {
        match once() {
            Err(why) if is_locked(&why) => std::thread::sleep(Duration::from_millis(10)),
            done => return done,
        }
    }
    once()
}

const COUNTS: &str = "9 broadcasts, 0 tokens, 0 subscribers, 1 users, 0 vods";

#[test]
fn b_13_a_store_is_checked_exported_and_backed_up() {
    let home = Home::new();
    assert_eq!(home.run(&Task::Check(None)).unwrap().0, format!("whole: {COUNTS}"));
    let (done, lines) = home.run(&Task::Export(None)).unwrap();
    assert_eq!(done, format!("exported: {COUNTS}"));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), lines[3]["kind"].as_str(), lines[3]["app"].as_str()),
        (10, Some("broadcasts"), Some("live"))
    );
    assert_eq!((&lines[3]["record"]["streamId"], &lines[9]["id"]), (&"s3".into(), &"a@b".into()));
    let to = home.0.join("copy");
    assert!(home.run(&Task::Backup(Some(to.clone()))).unwrap().0.starts_with("backed up: "));
    assert_eq!(home.run(&Task::Check(Some(to.clone()))).unwrap().0, format!("whole: {COUNTS}"));
    assert_eq!(backup::list(&home.store()).len(), 1);
    // While another process uses the store and does not answer, nothing is changed.
    let _in_use = RedbStore::open(&home.store()).unwrap();
    for task in [Task::Check(None), Task::Backup(None), Task::Restore(to), Task::Reindex] {
        assert!(home.run_once(&task).unwrap_err().contains("in use by another process"), "{task:?}");
    }
}

#[test]
fn b_13_a_copy_is_restored_and_the_former_store_kept() {
    let home = Home::new();
    let before = home.records();
    let copy = home.0.join("copy");
    home.run(&Task::Backup(Some(copy.clone()))).unwrap();
    let bytes = fs::read(home.store()).unwrap();
    for loss in [None, Some(&bytes[..bytes.len() / 2]), Some(&b""[..])] {
        match loss {
            None => fs::remove_file(home.store()).unwrap(),
            Some(part) => fs::write(home.store(), part).unwrap(),
        }
        let error = home.run(&Task::Check(None)).unwrap_err();
        assert!(error.contains("'millstream store restore ") && !error.contains('\n'), "{error}");
        let done = home.run(&Task::Restore(copy.clone())).unwrap().0;
        assert!(done.starts_with("restored: 10 records of "), "{done}");
        assert_eq!(home.records(), before);
        assert_eq!(done.contains("; the former store is "), loss.is_some());
        for entry in fs::read_dir(home.0.join("home/data")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("replaced-") {
                assert_eq!(fs::read(&path).unwrap(), loss.unwrap());
                fs::remove_file(path).unwrap();
            }
        }
    }
    // A file that is not a copy of a store is refused. The store is not changed.
    for junk in [&bytes[..bytes.len() - 4096], b"text", b""] {
        fs::write(&copy, junk).unwrap();
        assert!(home.run(&Task::Restore(copy.clone())).is_err());
        assert_eq!(home.records(), before);
    }
    assert!(home.run(&Task::Restore(home.0.join("nowhere"))).is_err());
}

#[test]
fn b_13_records_of_a_damaged_store_are_salvaged_and_restored() {
    let home = Home::new();
    let before = home.records();
    let bytes = fs::read(home.store()).unwrap();
    fs::write(home.store(), [&[0; 4096][..], &bytes[4096..]].concat()).unwrap();
    assert!(home.run(&Task::Check(None)).unwrap_err().contains("'millstream store salvage "));
    let done = home.run(&Task::Salvage(None)).unwrap().0;
    assert!(done.contains(COUNTS) && done.contains("found in pages"), "{done}");
    assert!(done.contains(&format!(" --home {}' puts it in place", home.0.join("home").display())), "{done}");
    home.run(&Task::Restore(salvage::file_of(&home.store()))).unwrap();
    assert_eq!(home.records(), before);
}

#[test]
fn b_12_recordings_are_listed_again() {
    let home = Home::new();
    let streams = home.0.join("home/webapps/live/streams");
    fs::create_dir_all(streams.join("sub")).unwrap();
    for name in ["a.mp4", "cam_1.webm", "sub/b.flv", "page.m3u8", "c.mp4.tmp_extension", ".hidden.mp4"] {
        fs::write(streams.join(name), "no film").unwrap();
    }
    std::os::unix::fs::symlink("/tmp", streams.join("out")).unwrap();
    fs::remove_file(home.store()).unwrap();
    assert!(home.run(&Task::Check(None)).unwrap_err().contains("'millstream store reindex "));
    let done = home.run(&Task::Reindex).unwrap().0;
    assert_eq!(done, "listed: 3 recordings that had no record, beside 0 records");
    let mut files: Vec<_> = home
        .records()
        .iter()
        .map(|(key, bytes)| StoredRecords::file_of(key, bytes).unwrap().join("/"))
        .collect();
    files.sort();
    assert_eq!(files, ["live/streams/a.mp4", "live/streams/cam_1.webm", "live/streams/sub/b.flv"]);
    let done = home.run(&Task::Reindex).unwrap().0;
    assert_eq!(done, "listed: 0 recordings that had no record, beside 3 records");
}

#[test]
fn a_folder_that_is_no_home_is_left_alone() {
    let folder = TempFolder::new();
    let options =
        Options { home: folder.join("x"), schema: crate::protocol::schema(), cores: 1, ..Options::default() };
    for task in [Task::Check(None), Task::Backup(None), Task::Reindex, Task::Salvage(None)] {
        assert!(run(&options, &task, &mut Vec::new()).unwrap_err().contains("is no home of a server"));
    }
    assert!(!folder.join("x").exists());
}
