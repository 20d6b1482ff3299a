//! Folders of streams that viewers can rewind.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use super::*;
use crate::tests::TempFolder;

const KEEP: Duration = Duration::from_secs(60);
const CAP: u64 = 10_000;

fn folder(stream: &str) -> Vec<String> {
    ["live", DVR, stream].map(str::to_owned).to_vec()
}

fn put((root, ledger): (&Path, &Ledger), stream: &str, name: &str, data: &[u8]) -> Result<u64, AppendError> {
    let data = Bytes::copy_from_slice(data);
    let work = DvrWork::Put { folder: folder(stream), name: name.to_owned(), data, cap: CAP, keep: KEEP };
    run(root, ledger, &work).map(|_| total(root, ledger, "live"))
}

fn total(root: &Path, ledger: &Ledger, app: &str) -> u64 {
    ledger.with(root, app, |usage| usage.bytes())
}

fn resume(root: &Path, ledger: &Ledger, stream: &str, writer: &Arc<()>) -> DvrDone {
    let writer = Writer::of(writer);
    run(root, ledger, &DvrWork::Resume { folder: folder(stream), keep: KEEP, stream: stream.into(), writer })
        .unwrap()
}

/// Makes a folder with these applications in it.
fn home() -> TempFolder {
    let root = TempFolder::new();
    ["live", "other"].iter().for_each(|app| fs::create_dir(root.join(app)).unwrap());
    root
}

fn names(root: &Path, stream: &str) -> Vec<String> {
    let mut names: Vec<String> =
        files(&root.join("live").join(DVR).join(stream)).map(|(name, _)| name).collect();
    names.sort();
    names
}

#[test]
fn the_bytes_of_an_application_are_counted_and_bounded() {
    let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
    let at = (&*root, &ledger);
    ["a", "b"].iter().for_each(|stream| drop(resume(&root, &ledger, stream, &writer)));
    assert_eq!(put(at, "a", "1.ts", &[1; 6000]), Ok(6000));
    assert_eq!(put(at, "b", "1.ts", &[1; 3000]), Ok(9000));
    assert_eq!(put(at, "b", "2.ts", &[1; 1001]), Err(AppendError::Full), "nothing of it is written");
    assert_eq!(names(&root, "b"), ["1.ts"]);
    // If a write fails although the file would fit, its bytes are no longer counted.
    fs::create_dir(root.join("live").join(DVR).join("b").join("3.ts")).unwrap();
    assert!(put(at, "b", "3.ts", &[1; 900]).is_err());
    assert_eq!(put(at, "b", "2.ts", &[1; 1000]), Ok(10_000));
    let names_of_b = ["1.ts", "none.ts"].map(str::to_owned).to_vec();
    let drop = run(&root, &ledger, &DvrWork::Drop { folder: folder("b"), names: names_of_b }).unwrap();
    assert_eq!((drop.app_bytes, drop.streams), (7000, 2));
    // Another application has its own limit.
    let other = ["other", DVR, "a"].map(str::to_owned).to_vec();
    let data = Bytes::from(vec![0; 9000]);
    let work = DvrWork::Put { folder: other, name: "1.ts".to_owned(), data, cap: CAP, keep: KEEP };
    run(&root, &ledger, &work).unwrap();
    assert_eq!((total(&root, &ledger, "other"), total(&root, &ledger, "live")), (9000, 7000));
    // After a restart the files are counted again.
    assert_eq!(put((&root, &Ledger::default()), "c", "1.ts", &[1; 3000]), Ok(10_000));
    let clear = run(&root, &ledger, &DvrWork::Clear { folder: folder("b") }).unwrap();
    assert_eq!((clear.app_bytes, names(&root, "b").len()), (6000, 0));
}

#[test]
fn a_file_that_is_written_again_counts_once() {
    let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
    let at = (&*root, &ledger);
    ["a", "b"].iter().for_each(|stream| drop(resume(&root, &ledger, stream, &writer)));
    for _ in 0..10 {
        assert_eq!(put(at, "a", "tail.list", &[1; 3000]), Ok(3000));
    }
    assert_eq!(put(at, "a", "tail.list", &[1; 500]), Ok(500), "a shorter one gives back");
    assert_eq!(put(at, "b", "1.ts", &[1; 9500]), Ok(10_000));
    assert_eq!(put(at, "a", "tail.list", &[1; 500]), Ok(10_000), "there is room for the same again");
    assert_eq!(put(at, "a", "tail.list", &[1; 501]), Err(AppendError::Full));
    assert_eq!(put(at, "b", "1.ts", &[1; 100]), Ok(600));
    assert_eq!(put((&root, &Ledger::default()), "a", "2.ts", b"x"), Ok(601), "as it is on the disk");
}

#[test]
fn a_file_that_cannot_be_removed_does_not_hold_up_the_stream() {
    let (root, ledger) = (home(), Ledger::default());
    let list = b"#X\n#EXTINF:2,\n2.ts\n";
    for (name, data) in [("2.ts", &b"two"[..]), ("3.ts", b"three"), ("7.list", list)] {
        put((&root, &ledger), "a", name, data).unwrap();
    }
    // The file `3.ts` cannot be removed, as on a broken disk or if it belongs to another user. It comes before
    // other files in the order of names.
    let useless = |path: &Path| match path.ends_with("3.ts") {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => fs::remove_file(path),
    };
    put((&root, &ledger), "a", "4.ts", b"four").unwrap();
    let (lists, bytes) = read_lists(&root.join("live").join(DVR).join("a"), useless).unwrap();
    assert_eq!(
        (lists, names(&root, "a")),
        (vec![Bytes::from_static(list)], ["2.ts", "3.ts", "7.list"].map(str::to_owned).to_vec())
    );
    assert_eq!(bytes, 8 + u64::try_from(list.len()).unwrap(), "what stays counts");
}

#[test]
fn others_do_not_wait_while_an_application_is_counted() {
    let (root, ledger) = (home(), Ledger::default());
    put((&root, &ledger), "a", "1.ts", b"x").unwrap();
    let ledger = Ledger::default();
    let total = |ledger: &Ledger| ledger.with(&root, "live", |usage| usage.bytes());
    ledger.know("live", || {
        assert!(ledger.0.try_lock().is_ok(), "the lock is free");
        // Another job of the application finishes counting first, and adds a file.
        assert_eq!(put((&root, &ledger), "a", "2.ts", b"xyz"), Ok(4));
        BTreeMap::from([("a".to_owned(), 1)])
    });
    assert_eq!(total(&ledger), 4);
    ledger.know("live", || panic!("it is known"));
}

#[test]
fn nothing_is_written_for_an_application_that_is_gone() {
    let (root, ledger) = (home(), Ledger::default());
    put((&root, &ledger), "a", "1.ts", b"x").unwrap();
    fs::remove_dir_all(root.join("live")).unwrap();
    assert_eq!(put((&root, &ledger), "a", "2.ts", b"x"), Err(AppendError::Path));
    assert!(!root.join("live").exists());
    assert_eq!(put((&root, &Ledger::default()), "a", "2.ts", b"x"), Err(AppendError::Path));
    assert!(!root.join("live").exists());
    // A new application of the same name starts with a count of zero.
    fs::create_dir(root.join("live")).unwrap();
    assert_eq!(put((&root, &ledger), "b", "1.ts", &[1; 10_000]), Ok(10_000));
}

#[test]
fn what_no_list_names_goes_and_the_rest_goes_on() {
    let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
    let resume = || resume(&root, &ledger, "a", &writer);
    assert_eq!(resume(), DvrDone { streams: 1, ..DvrDone::default() }, "there is none");
    let list = b"#X\n#EXT-X-MAP:URI=\"i.mp4\"\n#EXTINF:2,\n1.m4s\n";
    for (name, data) in [("1.m4s", &b"one"[..]), ("2.m4s", b"two"), ("i.mp4", b"i"), ("7.list", list)] {
        put((&root, &ledger), "a", name, data).unwrap();
    }
    fs::write(root.join("live").join(DVR).join("a/.3.m4s.tmp_archive"), "torn").unwrap();
    let done = resume();
    assert_eq!((done.lists, done.streams), (vec![Bytes::from_static(list)], 1));
    assert_eq!(names(&root, "a"), ["1.m4s", "7.list", "i.mp4"]);
    assert_eq!(done.app_bytes, 4 + u64::try_from(list.len()).unwrap());
}

#[test]
fn streams_that_are_over_make_room_for_those_that_are_live() {
    let (root, ledger, [a, b, c]) = (home(), Ledger::default(), [(); 3].map(Arc::new));
    for (stream, writer, age) in [("a", &a, 20), ("b", &b, 10), ("c", &c, 30)] {
        resume(&root, &ledger, stream, writer);
        put((&root, &ledger), stream, "1.list", &[1; 3000]).unwrap();
        set_age(&root, stream, Duration::from_secs(age));
    }
    let put = |name: &str, bytes: usize| put((&root, &ledger), "c", name, &vec![1; bytes]);
    let there = || ["a", "b"].map(|stream| !names(&root, stream).is_empty());
    assert_eq!(put("2.ts", 2000), Err(AppendError::Full), "all of them are live");
    drop((a, b));
    // Folders from before the restart belong to no stream.
    let shares = resume(&root, &ledger, "c", &c);
    assert_eq!((shares.app_bytes, shares.streams, total(&root, &ledger, "live")), (3000, 1, 9000));
    let came_back = Arc::new(());
    resume(&root, &ledger, "a", &came_back);
    assert_eq!((put("2.ts", 2000), there()), (Ok(8000), [true, false]), "of the one that is over");
    drop(came_back);
    assert_eq!(
        (put("3.ts", 2000), there()),
        (Ok(10_000), [true, false]),
        "nothing goes before there is need"
    );
    assert_eq!((put("3.ts", 2001), there()), (Ok(7001), [false, false]));
    assert_eq!((put("4.ts", 3000), names(&root, "c").len()), (Err(AppendError::Full), 3), "never its own");
}

#[test]
fn the_one_longest_unchanged_goes_first_and_old_ones_at_once() {
    let (root, ledger) = (home(), Ledger::default());
    for (stream, age) in [("a", 10), ("b", 20), ("d", 15)] {
        put((&root, &ledger), stream, "1.ts", &[1; 3000]).unwrap();
        set_age(&root, stream, Duration::from_secs(age));
    }
    let there = || ["a", "b", "d"].map(|stream| !names(&root, stream).is_empty());
    let writer = Arc::new(());
    resume(&root, &ledger, "c", &writer);
    assert_eq!(put((&root, &ledger), "c", "1.ts", &[1; 10_001]), Err(AppendError::Full));
    assert_eq!(there(), [true; 3], "it never fits");
    assert_eq!(put((&root, &ledger), "c", "1.ts", &[1; 2000]), Ok(8000));
    assert_eq!(there(), [true, false, true]);
    // To make room, all expired folders are removed, although the last regular search was less than a
    // minute ago.
    ["a", "d"].iter().for_each(|stream| set_age(&root, stream, KEEP + Duration::from_secs(5)));
    assert_eq!(put((&root, &ledger), "c", "2.ts", &[1; 3000]), Ok(5000));
    assert_eq!(there(), [false; 3]);
    // The folder of a live stream is kept, however old it is.
    set_age(&root, "c", KEEP + Duration::from_secs(5));
    put((&root, &ledger), "e", "1.ts", &[1; 5000]).unwrap();
    assert_eq!(put((&root, &ledger), "e", "2.ts", &[1; 1]), Err(AppendError::Full));
    assert_eq!(names(&root, "c").len(), 2);
}

fn set_age(root: &Path, stream: &str, age: Duration) {
    let folder = fs::File::open(root.join("live").join(DVR).join(stream)).unwrap();
    folder.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn no_link_is_followed_and_no_other_folder_is_touched() {
    let (root, ledger, outside) = (home(), Ledger::default(), TempFolder::new());
    fs::create_dir_all(root.join("live").join(DVR)).unwrap();
    fs::write(outside.join("1.ts"), "x").unwrap();
    symlink(&*outside, root.join("live").join(DVR).join("a")).unwrap();
    assert!(put((&root, &ledger), "a", "2.ts", b"x").is_err());
    let drop = DvrWork::Drop { folder: folder("a"), names: vec!["1.ts".to_owned()] };
    let works = [
        drop,
        DvrWork::Clear { folder: folder("a") },
        DvrWork::Clear { folder: ["live", "streams", "a"].map(str::to_owned).to_vec() },
        DvrWork::Clear { folder: ["live", DVR, ".."].map(str::to_owned).to_vec() },
        DvrWork::Clear { folder: vec!["live".to_owned()] },
    ];
    for work in works {
        let _ = run(&root, &ledger, &work);
    }
    assert!(outside.join("1.ts").exists() && root.join("live").join(DVR).exists());
    assert_eq!(fs::read_dir(&*outside).unwrap().count(), 1);
}

#[test]
fn a_stream_waits_for_the_one_before_it_to_finish_its_files() {
    let (root, ledger, first, second) = (home(), Ledger::default(), Arc::new(()), Arc::new(()));
    assert!(!resume(&root, &ledger, "a", &first).is_taken);
    // No list names the file yet. A stream that may not have the folder must not remove the file.
    put((&root, &ledger), "a", "1.ts", b"x").unwrap();
    assert!(resume(&root, &ledger, "a", &second).is_taken);
    assert_eq!(names(&root, "a"), ["1.ts"]);
    assert!(!resume(&root, &ledger, "a", &first).is_taken && !resume(&root, &ledger, "b", &second).is_taken);
    drop(first);
    assert!(!resume(&root, &ledger, "a", &second).is_taken);
    assert_eq!(names(&root, "a"), [""; 0]);
}

#[test]
fn the_playlists_of_a_stream_share_what_it_may_keep() {
    let (root, ledger) = (home(), Ledger::default());
    let writers = [(); 3].map(|()| Arc::new(()));
    let windows = [("ll%2Fcam%2Fvideo", "cam", 4000), ("ll%2Fcam%2Faudio", "cam", 1000), ("b", "b", 500)];
    for ((name, stream, bytes), writer) in windows.iter().zip(&writers) {
        let resume = DvrWork::Resume {
            folder: folder(name),
            keep: KEEP,
            stream: (*stream).into(),
            writer: Writer::of(writer),
        };
        run(&root, &ledger, &resume).unwrap();
        put((&root, &ledger), name, "1.ts", &vec![0; *bytes]).unwrap();
    }
    let usage = ledger.done(&root, "live", "ll%2Fcam%2Faudio");
    assert_eq!((usage.app_bytes, usage.streams, usage.stream_bytes), (5500, 2, 5000));
    assert_eq!(ledger.done(&root, "live", "b").stream_bytes, 500);
}

#[test]
fn folders_of_all_tracks_of_a_stream_go_together() {
    let (root, ledger) = (home(), Ledger::default());
    for stream in ["ll%2Fa%2Fa__video", "ll%2Fa%2Fa__audio", "ll%2Fab%2Fab__video", "a"] {
        put((&root, &ledger), stream, "1.ts", b"x").unwrap();
    }
    for start in ["ll%2Fa%2Fa__", ""] {
        let work = DvrWork::ClearAll { app: "live".to_owned(), start: start.to_owned() };
        run(&root, &ledger, &work).unwrap();
        let mut left: Vec<String> = folders(&root, "live").map(|(name, _)| name).collect();
        left.sort();
        assert_eq!(left, ["a", "ll%2Fab%2Fab__video"], "{start}");
    }
}

#[test]
fn a_folder_to_which_nothing_is_added_goes_when_nobody_can_go_back_to_it() {
    let (root, ledger) = (home(), Ledger::default());
    for stream in ["old", "new"] {
        put((&root, &ledger), stream, "1.ts", b"x").unwrap();
    }
    let old = root.join("live").join(DVR).join("old");
    let set = |age| set_age(&root, "old", age);
    set(KEEP + Duration::from_secs(5));
    put((&root, &ledger), "new", "2.ts", b"x").unwrap();
    assert!(old.exists(), "the last look was just now");
    // After a restart of the server, the expired folder is removed.
    assert_eq!(put((&root, &Ledger::default()), "new", "3.ts", b"x"), Ok(3));
    assert!(!old.exists());
    // Without jobs of other streams, a folder expires after the time that jobs have given since
    // the server was started, or after [`LONGEST`] if there were none.
    for (ledger, keep) in [(Ledger::default(), LONGEST), (ledger, KEEP)] {
        put((&root, &Ledger::default()), "old", "1.ts", b"x").unwrap();
        let sweep = DvrWork::Sweep { apps: ["none", "live"].map(str::to_owned).to_vec() };
        set(keep - Duration::from_secs(5));
        run(&root, &ledger, &sweep).unwrap();
        assert!(old.exists());
        set(keep + Duration::from_secs(5));
        run(&root, &ledger, &sweep).unwrap();
        assert!(!old.exists() && !names(&root, "new").is_empty());
    }
}

#[test]
fn no_stream_begins_to_write_to_a_folder_that_is_being_removed() {
    let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
    put((&root, &ledger), "a", "1.ts", b"x").unwrap();
    assert!(ledger.begin_removal(&root, "live", "a"));
    assert!(resume(&root, &ledger, "a", &writer).is_taken);
    assert!(!ledger.begin_removal(&root, "live", "a"), "it is being removed");
    ledger.end_removal(&root, "live", "a");
    assert!(!resume(&root, &ledger, "a", &writer).is_taken);
    assert!(!ledger.begin_removal(&root, "live", "a"), "a stream writes to it");
    // A removal that another one has begun is over when that one ends.
    assert!(ledger.begin_removal(&root, "live", "gone"));
    run(&root, &ledger, &DvrWork::Clear { folder: folder("gone") }).unwrap();
    assert!(resume(&root, &ledger, "gone", &writer).is_taken);
    ledger.end_removal(&root, "live", "gone");
    // Nothing stays behind of the removals of each kind.
    drop(writer);
    run(&root, &ledger, &DvrWork::Clear { folder: folder("a") }).unwrap();
    for stream in ["b", "c"] {
        put((&root, &ledger), stream, "1.ts", &[1; 6000]).unwrap();
    }
    set_age(&root, "c", KEEP + Duration::from_secs(5));
    sweep_now(&root, &ledger, "live", KEEP);
    for stream in ["a", "b", "c"] {
        assert!(!resume(&root, &ledger, stream, &Arc::new(())).is_taken, "{stream}");
    }
}

#[test]
fn no_folder_expires_while_the_wall_clock_is_in_doubt() {
    let (root, ledger) = (home(), Ledger::default());
    put((&root, &ledger), "old", "1.ts", b"x").unwrap();
    set_age(&root, "old", KEEP + Duration::from_secs(5));
    let now = clock::now();
    let before = Now { wall_ms: now.wall_ms - 3_600_000, ..now };
    *ledger.1.lock().unwrap() = WallClock::default();
    assert!(ledger.trusts_dates(before));
    put((&root, &ledger), "gone", "1.ts", &[1; 100]).unwrap();
    fs::remove_dir_all(root.join("live").join(DVR).join("gone")).unwrap();
    assert_eq!(sweep_now(&root, &ledger, "live", KEEP), 0, "the clock was set ahead");
    assert_eq!(total(&root, &ledger, "live"), 1, "what is gone does not count");
    assert_eq!(sweep_now(&root, &Ledger::default(), "live", KEEP), 1);
}
