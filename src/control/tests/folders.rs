//! Imported folders.

use super::*;
use crate::jobs::{Finished, ImportOutcome, ImportWork, ImportedFile};

const DIRECTORY: &str = "/live/rest/v2/vods/directory";
const FOLDERS: [(&str, &str); 1] = [("vod.import_folders", "import,/srv/films")];

fn file(path: &str, duration_ms: Option<u64>) -> ImportedFile {
    ImportedFile { path: path.to_owned(), finished: Finished { bytes: 7, duration_ms } }
}

impl Rig {
    /// Sends a request, and answers its job with this outcome.
    fn folder(&mut self, method: Method, query: &str, outcome: ImportOutcome) -> (u16, String) {
        let session = self.send(method, &format!("{DIRECTORY}?{query}"), "");
        let (id, work) = self.files.pop().expect("a job");
        let asked = match work {
            Work::Import(ImportWork::Link { app, folder } | ImportWork::Unlink { app, folder }) => {
                format!("{app} {folder}")
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(asked, "live /srv/films/a");
        self.done(id, Outcome::Import(outcome));
        self.run_for(ms(5));
        self.answer(session).expect("an answer")
    }

    fn paths(&mut self) -> Vec<String> {
        let (_, list) = self.call(Method::Get, "/live/rest/v2/vods/list/0/50", "");
        let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
        list.iter().map(|vod| vod["filePath"].as_str().unwrap().to_owned()).collect()
    }
}

const ASKED: &str = "directory=/srv/films/a";

#[test]
fn files_of_a_folder_become_records_until_it_is_forgotten() {
    let mut rig = Rig::with(&FOLDERS, &[]);
    let files = vec![
        file("streams/a/one.mp4", Some(4000)),
        file("streams/a/sub/two.mkv", None),
        file("streams/a/three.flv", None),
    ];
    let answer = rig.folder(Method::Post, ASKED, ImportOutcome::Linked(files));
    assert_eq!(answer.1, r#"{"success":true,"message":"3 files are imported","dataId":"","errorId":0}"#);
    assert_eq!(rig.paths(), ["streams/a/one.mp4", "streams/a/sub/two.mkv", "streams/a/three.flv"]);
    let (_, list) = rig.call(Method::Get, "/live/rest/v2/vods/list/0/50?streamId=vodFile", "");
    let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
    let [one, two, three] = &list[..] else { panic!("{list:?}") };
    for (member, value) in [("type", "userVod"), ("streamName", "vodFile"), ("vodName", "one.mp4")] {
        assert_eq!(one[member], value, "{member}");
    }
    assert_eq!(
        (&one["duration"], &two["duration"], &one["fileSize"]),
        (&4000.into(), &(-2).into(), &7.into())
    );
    // Removing a record of an imported file does not remove the file.
    let id = three["vodId"].as_str().unwrap();
    assert!(rig.call(Method::Delete, &format!("/live/rest/v2/vods/{id}"), "").1.contains("vod deleted"));
    assert!(rig.files.is_empty(), "no file is removed");
    // The records exist after a restart. Forgetting the folder leaves the records of another
    // folder.
    let mut rig = Rig::start(config(&FOLDERS, &[]), rig.store);
    rig.folder(Method::Post, ASKED, ImportOutcome::Linked(vec![file("streams/ab/x.mp4", None)]));
    assert_eq!(rig.paths().len(), 3);
    let answer = rig.folder(Method::Delete, ASKED, ImportOutcome::Unlinked("streams/a/".to_owned()));
    assert_eq!(answer.1, r#"{"success":true,"message":"2 of records are deleted","dataId":"","errorId":0}"#);
    assert_eq!(rig.paths(), ["streams/ab/x.mp4"]);
    let answer = rig.folder(Method::Delete, ASKED, ImportOutcome::Unlinked("streams/a/".to_owned()));
    assert!(answer.1.contains("0 of records are deleted"), "{}", answer.1);
}

#[test]
fn what_is_not_imported_is_told_as_in_the_reference() {
    let mut rig = Rig::new();
    for query in ["", "?directory=", "?directory=/srv/films/a", "?directory=/"] {
        let refused = rig.post(&format!("{DIRECTORY}{query}"), "");
        assert_eq!(refused, (200, failure("VoD import directory is allowed under /")), "{query}");
    }
    let missing = failure("null does not exist or it's not a directory");
    assert_eq!(rig.call(Method::Delete, DIRECTORY, ""), (200, missing));
    assert!(rig.files.is_empty(), "nothing is looked at");
    let mut rig = Rig::with(&FOLDERS, &[]);
    let allowed = "VoD import directory is allowed under import,/srv/films";
    assert_eq!(rig.post(DIRECTORY, ""), (200, failure(allowed)));
    for (outcome, text) in [
        (ImportOutcome::Outside, allowed),
        (ImportOutcome::Missing, "/srv/films/a does not exist or is not a directory"),
        (
            ImportOutcome::Taken("a".into()),
            "There is already a file with the name a in the streams directory",
        ),
        (ImportOutcome::TooMany, "The directory has too many files or is too deep"),
        (ImportOutcome::Failed("no".into()), "Exception in creating symbolic link"),
    ] {
        assert_eq!(rig.folder(Method::Post, ASKED, outcome), (200, failure(text)));
    }
    let missing = "/srv/films/a does not exist or it's not a directory";
    assert_eq!(rig.folder(Method::Delete, ASKED, ImportOutcome::Missing), (200, failure(missing)));
    assert!(
        rig.folder(Method::Post, ASKED, ImportOutcome::Linked(Vec::new())).1.contains("0 files are imported")
    );
    assert!(rig.paths().is_empty());
}

#[test]
fn an_application_that_goes_while_its_folder_is_linked_has_no_records() {
    let mut rig = Rig::with(&FOLDERS, &[]);
    let target = format!("{DIRECTORY}?{ASKED}");
    let session = rig.send(Method::Post, &target, "");
    let (id, _) = rig.files.pop().unwrap();
    rig.control.remove_app(rig.now, &"live".into());
    rig.drain();
    rig.done(id, Outcome::Import(ImportOutcome::Linked(vec![file("streams/a/one.mp4", None)])));
    rig.run_for(ms(5));
    assert_eq!(rig.answer(session), Some((200, failure(""))));
}
