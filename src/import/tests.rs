use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::config::Config;
use crate::store::RedbStore;
use crate::tests::TempFolder;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/import");
/// 2026-01-01 in Unix milliseconds.
const NOW_MS: u64 = 1_767_225_600_000;

/// A folder with an old installation and the new home.
struct Move(TempFolder);

impl Move {
    /// Makes an installation with the layout of Ant Media Server.
    fn new() -> Self {
        let at = Self(TempFolder::new());
        let app = at.old().join("webapps/LiveApp");
        for (file, text) in [
            (
                "conf/red5.properties",
                "http.port=5090\nserver.name=media.example\nrtmp.executor.queue_capacity=256\n",
            ),
            ("conf/fullchain.pem", "a certificate"),
            ("conf/privkey.pem", "a key"),
            ("plugins/rest.jar", "PK"),
            ("server.db", "x"),
            ("liveapp.db", "x"),
            (
                "webapps/LiveApp/WEB-INF/red5-web.properties",
                // A key that occurs twice, as in many files edited by hand; the last value counts.
                "db.name=liveapp\nsettings.mp4MuxingEnabled=false\nremoteAllowedCIDR=192.0.2.0/24\nmp4MuxingEnabled=true\n\
                 vodFolder=/x\nfacebook.clientId=5\nsettings.stalkerDBServer=\n",
            ),
            ("webapps/LiveApp/WEB-INF/lib/x.jar", "PK"),
            ("webapps/LiveApp/streams/stage.mp4", "recording"),
            ("webapps/LiveApp/streams/sub/later.mp4", "another"),
            ("webapps/LiveApp/streams/half.mp4.tmp_extension", "half"),
            ("webapps/LiveApp/play.html", "<p>theirs"),
            ("webapps/LiveApp/custom/page.html", "<p>own"),
            ("webapps/LiveApp/custom/page.jsp", "<% %>"),
            ("webapps/Locked/WEB-INF/red5-web.properties", "hlsEncryptionKeyInfoFile=key.info\n"),
            ("webapps/root/index.html", "the old panel"),
            ("webapps/Packed.war", "PK"),
        ] {
            let path = at.old().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("/etc", app.join("streams/elsewhere")).unwrap();
        at
    }

    fn old(&self) -> PathBuf {
        self.0.join("old")
    }

    fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    fn options(&self) -> Options {
        Options { home: self.home(), cores: 1, schema: crate::protocol::schema(), ..Options::default() }
    }

    fn order(&self, records: &str) -> Order {
        let records = Some(Path::new(FIXTURES).join(records));
        Order { from: self.old(), records, redis: None, copy: false, dry_run: false }
    }

    fn run(&self, order: &Order) -> Result<(String, String), String> {
        let open = |place: &StorePlace| -> Result<Box<dyn Store>, String> {
            let opened = RedbStore::open(&place.file);
            opened.map(|store| Box::new(store) as Box<dyn Store>).map_err(|error| error.to_string())
        };
        let read = |place: &StorePlace| {
            let all = crate::store::check_copy(&place.file).map_err(|error| error.to_string())?;
            Ok(all.into_iter().map(|(key, _)| key).collect())
        };
        // Hashing a password is slow, and is tested in another place.
        let hash =
            |digest: &PasswordDigest| format!("hash of {}", String::from_utf8_lossy(digest.as_bytes()));
        let tools = Tools { now_ms: NOW_MS, open: &open, read: &read, hash: &hash };
        let mut table = Vec::new();
        let done = run(&self.options(), order, &tools, &mut table)?;
        Ok((done, String::from_utf8(table).unwrap()))
    }

    /// Returns all records of the store. Each has its kind, application, id and JSON.
    fn records(&self) -> Vec<(Kind, String, String, serde_json::Value)> {
        let all = RedbStore::open_existing(&self.home().join("data/store.redb")).unwrap().load().unwrap();
        let shown = |(key, bytes): &(Key, bytes::Bytes)| {
            let json = serde_json::from_slice(StoredRecords::json_of(bytes)).unwrap();
            (key.kind, key.app.to_string(), key.id.to_string(), json)
        };
        all.iter().map(shown).collect()
    }
}

/// Returns everything in a folder and its subfolders: paths, modification times of files, and
/// contents.
fn everything(folder: &Path) -> Vec<(PathBuf, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            let content = if data.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let changed = if data.is_dir() { 0 } else { data.mtime_nsec() };
            found.push((path.clone(), changed, content));
            if data.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn c_19_an_installation_becomes_a_home() {
    for records in ["export", "dump"] {
        let at = Move::new();
        let before = everything(&at.old());
        let (done, table) = at.run(&at.order(records)).unwrap();
        assert_eq!(everything(&at.old()), before, "the old installation is as it was");
        let config = Config::read(&at.options()).unwrap();
        assert_eq!((config.server.http_port, config.server.name()), (5090, "media.example"));
        assert_eq!(config.apps.iter().map(|app| &*app.name).collect::<Vec<_>>(), ["LiveApp"]);
        let settings = &config.apps[0].values;
        assert_eq!(
            (settings.text("mp4MuxingEnabled"), settings.text("remoteAllowedCIDR")),
            ("true", "192.0.2.0/24")
        );
        assert_eq!(config.lost.len(), 1, "the application whose protection cannot be had is not started");
        for (file, text) in [
            ("conf/fullchain.pem", "a certificate"),
            ("conf/privkey.pem", "a key"),
            ("webapps/LiveApp/streams/stage.mp4", "recording"),
            ("webapps/LiveApp/streams/sub/later.mp4", "another"),
            ("webapps/LiveApp/play.html", "<p>theirs"),
            ("webapps/LiveApp/custom/page.html", "<p>own"),
        ] {
            assert_eq!(fs::read_to_string(at.home().join(file)).unwrap(), text, "{file}");
        }
        for file in [
            "webapps/LiveApp/custom/page.jsp",
            "webapps/LiveApp/streams/elsewhere",
            "webapps/LiveApp/WEB-INF/lib",
        ] {
            assert!(fs::symlink_metadata(at.home().join(file)).is_err(), "{file}");
        }
        let recording = fs::metadata(at.home().join("webapps/LiveApp/streams/stage.mp4")).unwrap();
        assert_eq!(recording.nlink(), 2, "it takes no room twice");
        let page = fs::metadata(at.home().join("webapps/LiveApp/play.html")).unwrap();
        assert_eq!(page.nlink(), 1, "who edits it here does not edit the old one");
        let ids: Vec<_> = at
            .records()
            .into_iter()
            .map(|(kind, app, id, _)| format!("{} {app}/{id}", kind.name()))
            .collect();
        assert_eq!(
            ids,
            [
                "broadcasts LiveApp/camera",
                "broadcasts LiveApp/ladder",
                "broadcasts LiveApp/list",
                "broadcasts LiveApp/stage",
                "tokens LiveApp/stage/tokenthatlives",
                "subscribers LiveApp/stage/alice1",
                "users /admin@example.org",
                "users /viewer@example.org",
                "vods LiveApp/123456789012345678901234",
                "vods LiveApp/v2",
            ],
            "{records}"
        );
        assert!(
            done.contains(
                "4 broadcasts, 1 tokens, 1 subscribers, 2 users, 2 vods; files: 2 linked, 4 copied"
            ),
            "{done}"
        );
        assert!(done.contains("1 expired tokens, 1 records of publishers alone"), "{done}");
        table_names_all_that_will_differ(&table);
        let has_rooms = table.contains("a conference room of an older server");
        assert_eq!(has_rooms, records == "export", "{table}");
    }
}

/// The server does not start with these settings, but everything can be imported, also by a second run.
#[test]
fn c_19_an_invalid_setting_of_the_server_is_reported_and_the_rest_is_imported() {
    let at = Move::new();
    fs::write(at.old().join("conf/red5.properties"), "rtmp.port=99999\nserver.name=media.example\n").unwrap();
    let order = at.order("export");
    let (would, dry) = at.run(&Order { dry_run: true, ..order.clone() }).unwrap();
    let (done, table) = at.run(&order).unwrap();
    assert_eq!(done, would.replace("would be imported", "imported"));
    for table in [&dry, &table] {
        let is_told =
            |row: &str| row.contains("rtmp.port") && row.contains("the server does not start until");
        assert!(table.lines().any(is_told), "{table}");
    }
    assert!(at.home().join("webapps/LiveApp/streams/stage.mp4").is_file());
    assert!(at.home().join("webapps/LiveApp/custom/page.html").is_file());
    assert_eq!(at.records().len(), 10);
    let faults = Config::faults(&at.options());
    assert!(faults.iter().any(|fault| fault.contains("rtmp.port")), "{faults:?}");
    for dry_run in [true, false] {
        let (done, _) = at.run(&Order { dry_run, ..order.clone() }).unwrap();
        assert!(done.contains("records that were there: 4 broadcasts"), "{done}");
    }
}

fn table_names_all_that_will_differ(table: &str) {
    for (place, what, why) in [
        ("server: settings", "rtmp.executor.queue_capacity", "unknown here"),
        ("LiveApp: settings", "facebook.clientId", "unknown here"),
        ("Locked: settings", "hlsEncryptionKeyInfoFile", "the application does not start until"),
        ("plugins", "rest.jar", "Java"),
        ("webapps", "Packed.war", "not unpacked"),
        ("LiveApp: files", "elsewhere", "a link"),
        ("LiveApp: files", "half.mp4.tmp_extension", "not finished"),
        ("LiveApp: pages", "play.html", "hides the built-in page"),
        ("LiveApp: pages", "custom/page.jsp", "needs Java"),
        ("users", "user plain@example.org", "user add"),
        ("LiveApp: records", "broadcast bad id", "no id that is one here"),
        ("LiveApp: records", "broadcast camera", "start it here"),
        ("LiveApp: records", "broadcast stage", "facebook://x is left out"),
        ("LiveApp: records", "broadcast ladder", "not transcoded"),
        ("LiveApp: records", "broadcast ladder", "listenerHookURL is never called"),
        ("LiveApp: records", "subscriber x", "no id that is one here"),
        ("LiveApp: records", "vod v2", "its file is not there"),
        ("LiveApp: records", "vod v3", "import the folder here"),
        ("LiveApp: records", "vod v4", "not below streams"),
    ] {
        let is_it = |line: &&str| line.starts_with(place) && line.contains(what) && line.contains(why);
        assert!(table.lines().any(|line| is_it(&line)), "{place}, {what}, {why}:\n{table}");
    }
    for secret in ["secretkey", "tokenthat", "NBSWY3DP", "plain\n", "p@192"] {
        assert!(!table.contains(secret), "{secret}:\n{table}");
    }
}

#[test]
fn records_are_those_of_a_server_that_has_just_stopped() {
    let at = Move::new();
    at.run(&at.order("export")).unwrap();
    let records = at.records();
    let find = |id: &str| &records.iter().find(|record| record.2 == id).unwrap().3;
    let stage = find("stage");
    assert_eq!(
        (&stage["status"], &stage["name"], &stage["hlsViewerLimit"]),
        (&"finished".into(), &"B\u{fc}hne".into(), &50.into())
    );
    assert_eq!(
        (stage.get("webRTCViewerCount"), stage.get("rtmpURL"), stage.get("originAdress")),
        (None, None, None)
    );
    let endpoints = stage["endPointList"].as_array().unwrap();
    assert_eq!(endpoints.len(), 1);
    assert_eq!(
        (&endpoints[0]["endpointServiceId"], &endpoints[0]["status"]),
        (&"customA".into(), &"created".into())
    );
    assert_eq!(find("camera")["streamUrl"], "rtsp://u:p@192.0.2.7/stream");
    assert_eq!(find("camera").get("sourceWanted"), None, "the old server may still fetch it");
    assert_eq!(find("stage/alice1")["b32Secret"], "NBSWY3DPEHPK3PXP");
    let admin = find("admin@example.org");
    assert_eq!((&admin["scope"], admin.get("password")), (&"system".into(), None));
    assert!(admin["passwordHash"].as_str().unwrap().starts_with("hash of "));
    assert_eq!(find("viewer@example.org")["appNameUserType"]["LiveApp"], "READ_ONLY");
    let endpoint_of_a_dump = Move::new();
    endpoint_of_a_dump.run(&endpoint_of_a_dump.order("dump")).unwrap();
    assert_eq!(endpoint_of_a_dump.records(), records, "an export and a dump say the same");
}

#[test]
fn c_19_a_dry_run_says_the_same_and_changes_nothing() {
    let at = Move::new();
    let before = everything(&at.old());
    let (said, table) = at.run(&Order { dry_run: true, ..at.order("export") }).unwrap();
    assert!(!at.home().exists());
    assert_eq!(everything(&at.old()), before);
    let (done, real) = at.run(&at.order("export")).unwrap();
    assert_eq!(table, real);
    assert_eq!(said.strip_prefix("would be "), Some(done.as_str()));
    // A dry run does not change anything in an existing home either.
    let before = everything(&at.home());
    let (said, _) = at.run(&Order { dry_run: true, ..at.order("dump") }).unwrap();
    assert!(said.contains("0 broadcasts") && said.contains("were there: 4 broadcasts"), "{said}");
    let changed: Vec<_> =
        everything(&at.home()).into_iter().filter(|file| !before.contains(file)).map(|file| file.0).collect();
    assert_eq!(changed, Vec::<PathBuf>::new());
}

#[test]
fn c_19_a_second_run_leaves_what_is_there_and_adds_what_is_missing() {
    let at = Move::new();
    let (first, _) = at.run(&Order { records: None, ..at.order("") }).unwrap();
    assert!(first.contains("0 broadcasts"), "{first}");
    fs::write(at.home().join("webapps/LiveApp/play.html"), "changed here").unwrap();
    let settings = at.home().join("webapps/LiveApp/WEB-INF/red5-web.properties");
    let changed =
        fs::read_to_string(&settings).unwrap().replace("mp4MuxingEnabled=true", "mp4MuxingEnabled=false");
    fs::write(&settings, &changed).unwrap();
    let (second, table) = at.run(&at.order("export")).unwrap();
    assert!(
        second.contains("4 broadcasts") && second.contains("0 linked, 0 copied, 6 were there"),
        "{second}"
    );
    assert_eq!(fs::read_to_string(&settings).unwrap(), changed);
    assert_eq!(fs::read_to_string(at.home().join("webapps/LiveApp/play.html")).unwrap(), "changed here");
    for why in ["mp4MuxingEnabled", "another file of this name is here"] {
        assert!(table.contains(why), "{table}");
    }
    let records = at.records();
    let (third, table) = at.run(&at.order("dump")).unwrap();
    assert_eq!(at.records(), records);
    assert!(third.contains("0 broadcasts") && table.contains("the home has it, and it is left"), "{third}");
}

#[test]
fn where_records_are_is_said_when_none_were_given() {
    let at = Move::new();
    let other = at.old().join("webapps/Other/WEB-INF");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("red5-web.properties"), "db.type=mongodb\ndb.name=other\n").unwrap();
    let (_, table) = at.run(&Order { records: None, dry_run: true, ..at.order("") }).unwrap();
    for (what, why) in [("server.db", "export it"), ("liveapp.db", "export it"), ("other", "mongodump")] {
        assert!(table.lines().any(|line| line.contains(what) && line.contains(why)), "{what}:\n{table}");
    }
}

#[test]
fn c_19_nothing_is_done_while_a_server_runs_or_into_the_installation_itself() {
    let at = Move::new();
    Config::open(&at.options()).unwrap();
    let _running = RedbStore::open(&at.home().join("data/store.redb")).unwrap();
    let before = everything(&at.home());
    assert!(at.run(&at.order("export")).unwrap_err().contains("in use by another process"));
    assert_eq!(everything(&at.home()), before);
    for (from, home) in [("a", "a"), ("a", "a/home"), ("a/b", "a")] {
        let folder = TempFolder::new();
        fs::create_dir_all(folder.join(from).join("conf")).unwrap();
        let refused = keep_apart(&folder.join(from), &folder.join(home)).unwrap_err();
        assert!(refused.contains("within each other"), "{refused}");
    }
    let folder = TempFolder::new();
    let order = Order { from: folder.to_path_buf(), ..at.order("export") };
    assert!(at.run(&order).unwrap_err().contains("neither"));
}

#[test]
fn what_cannot_be_read_is_listed_and_the_rest_is_imported() {
    let at = Move::new();
    let records = at.0.join("records");
    fs::create_dir_all(records.join("liveapp")).unwrap();
    let dump = fs::read(Path::new(FIXTURES).join("dump/liveapp/broadcast.bson")).unwrap();
    fs::write(records.join("liveapp/broadcast.bson"), &dump[..dump.len() - 1]).unwrap();
    fs::write(records.join("server.jsonl"), "no line of an export\n").unwrap();
    let error = at.run(&Order { records: Some(records), ..at.order("") }).unwrap_err();
    assert!(error.starts_with("2 things could not be read or written; imported: 2 applications"), "{error}");
    assert!(error.contains("4 broadcasts"), "{error}");
    assert_eq!(at.records().len(), 4);
}

#[test]
fn copies_are_files_of_their_own() {
    let at = Move::new();
    let (done, _) = at.run(&Order { copy: true, ..at.order("export") }).unwrap();
    assert!(done.contains("0 linked, 6 copied"), "{done}");
    let [old, new] = [at.old(), at.home()]
        .map(|home| fs::metadata(home.join("webapps/LiveApp/streams/stage.mp4")).unwrap());
    assert_eq!((new.nlink(), new.mtime()), (1, old.mtime()));
    assert!(!everything(&at.home()).iter().any(|(path, ..)| path.to_string_lossy().contains("partial")));
}

/// The settings files that Ant Media Server is shipped with do not prevent this server from starting.
#[test]
fn the_reference_s_own_files_are_imported() {
    let at = Move::new();
    let order = Order { from: Path::new(FIXTURES).join("reference"), ..at.order("export") };
    let (done, table) = at.run(&order).unwrap();
    assert!(done.starts_with("imported: 1 applications"), "{done}");
    let config = Config::read(&at.options()).unwrap();
    assert_eq!((config.apps[0].name.as_ref(), config.lost.len()), ("StreamApp", 0));
    assert_eq!(config.warnings, Vec::<String>::new());
    assert!(
        table.lines().any(|line| line.starts_with("server: settings") && line.contains("more  unknown here")),
        "{table}"
    );
    assert!(!table.contains("does not start"), "{table}");
}
