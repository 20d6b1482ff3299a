//! Folders with files that are linked into an application and listed as recordings.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::support::{Home, Server, secs, unit_md5, wait_for};
use crate::uploads::film;

const VODS: &str = "/live/rest/v2/vods";
const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn message(reply: &Value) -> (bool, &str) {
    (reply["success"].as_bool().unwrap(), reply["message"].as_str().unwrap())
}

fn paths(server: &Server) -> Vec<String> {
    let list = server.api().get(&format!("{VODS}/list/0/50")).json();
    let path = |vod: &Value| vod["filePath"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(path).collect()
}

#[test]
fn a_folder_is_imported_served_and_played_until_it_is_forgotten() {
    let home = Home::new();
    let folder = home.path().join("home/media/films");
    fs::create_dir_all(folder.join("old")).unwrap();
    fs::create_dir_all(home.path().join("home/private")).unwrap();
    fs::copy(film(), folder.join("a.mp4")).unwrap();
    fs::copy(film(), folder.join("old/b.mp4")).unwrap();
    fs::copy(film(), home.path().join("home/private/c.mp4")).unwrap();
    fs::write(folder.join("notes.txt"), "nobody's business").unwrap();
    symlink(home.path().join("home/private"), folder.join("out")).unwrap();
    let start = || Server::start_in(&home.path().join("home"), &["vod.import_folders=media"]);
    let mut server = start();
    let import = |server: &Server, path: &str| {
        server.api().call("POST", &format!("{VODS}/directory?directory={path}"), None).json()
    };
    for outside in ["/etc", "/", "private", "media/films/out", "media/../private", "conf"] {
        let refused = import(&server, outside);
        let told = message(&refused);
        assert_eq!(told, (false, "VoD import directory is allowed under media"), "{outside}");
    }
    let imported = import(&server, folder.to_str().unwrap());
    assert_eq!(message(&imported), (true, "2 files are imported"));
    let again = import(&server, "media/films");
    let taken = "There is already a file with the name films in the streams directory";
    assert_eq!(message(&again), (false, taken));

    // The link still exists after a restart.
    server.kill();
    let server = start();
    assert_eq!(paths(&server), ["streams/films/a.mp4", "streams/films/old/b.mp4"]);
    let vod = server.api().get(&format!("{VODS}/list/0/1")).json()[0].clone();
    assert_eq!((&vod["type"], &vod["streamId"]), (&"userVod".into(), &"vodFile".into()));
    let duration = vod["duration"].as_i64().unwrap();
    assert!((11_000..13_000).contains(&duration), "{duration}");
    for (path, status) in [
        ("films/a.mp4", 200),
        ("films/old/b.mp4", 200),
        ("films/notes.txt", 404),
        ("films/out/c.mp4", 404),
        ("films/", 404),
        ("films/../a.mp4", 400),
    ] {
        let answer = server.api().call("HEAD", &format!("/live/streams/{path}"), None);
        assert_eq!(answer.status, status, "{path}");
    }
    // The file can be played as a stream as well.
    let body = r#"{"streamId":"s","type":"VoD","streamUrl":"streams/films/a.mp4"}"#;
    server.api().post(&format!("{BROADCASTS}/create"), body);
    assert_eq!(server.api().post(&format!("{BROADCASTS}/s/start"), "").json()["success"], true);
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", "s").unwrap()["status"] == "broadcasting"
    });
    assert!(unit_md5(&server.rtmp_url("live/s"), Some(2)).len() > 50);

    // Deleting a recording of the folder removes only the record, not the file. Forgetting the folder removes its link.
    let id = vod["vodId"].as_str().unwrap();
    assert_eq!(server.api().delete(&format!("{VODS}/{id}")).json()["success"], true);
    assert!(folder.join("a.mp4").exists());
    let forgotten = server.api().delete(&format!("{VODS}/directory?directory=media/films")).json();
    assert_eq!(message(&forgotten), (true, "1 of records are deleted"));
    assert!(paths(&server).is_empty() && folder.join("old/b.mp4").exists());
    assert_eq!(server.api().call("HEAD", "/live/streams/films/a.mp4", None).status, 404);
    let forgotten = server.api().delete(&format!("{VODS}/directory?directory=media/films")).json();
    assert_eq!(message(&forgotten), (false, "media/films does not exist or it's not a directory"));
}
