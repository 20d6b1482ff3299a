//! `millstream import`, and a server that is started with the imported home.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::cluster::Redis;
use crate::support::{Home, Server};

const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/import/export");

fn installation(folder: &Path) {
    for (file, text) in [
        ("conf/red5.properties", "server.name=media.example\n"),
        ("webapps/LiveApp/WEB-INF/red5-web.properties", "db.name=liveapp\nsettings.hlsTime=3\n"),
        ("webapps/LiveApp/streams/stage.mp4", "recording"),
        ("webapps/LiveApp/hello.html", "<p>hello"),
    ] {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn import(from: &Path, home: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.arg("import").arg(from).arg("--home").arg(home).args(more).output().unwrap()
}

#[test]
fn c_19_a_server_starts_in_an_imported_home_and_old_passwords_work() {
    let folder = Home::new();
    let (old, home) = (folder.path().join("old"), folder.path().join("home"));
    installation(&old);
    let output = import(&old, &home, &["--records", RECORDS]);
    let (table, done) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && done.contains("imported: 1 applications"), "{done}");
    assert!(table.starts_with("WHERE "), "{table}");
    let server = Server::start_in(&home, &[]);
    let api = server.api();
    let login = |email: &str, password: &str| {
        let body = format!(r#"{{"email":"{email}","password":"{:x}"}}"#, md5::compute(password));
        api.post("/rest/v2/users/authenticate", &body).json()["success"] == true
    };
    assert!(login("admin@example.org", "old-password") && login("viewer@example.org", "viewer-password"));
    // The hash in a copy of the old database cannot be used as a password.
    let stored = format!("{:x}", md5::compute(format!("{:x}", md5::compute("old-password"))));
    let body = format!(r#"{{"email":"admin@example.org","password":"{stored}"}}"#);
    assert_eq!(api.post("/rest/v2/users/authenticate", &body).json()["success"], false);
    let stage = api.broadcast("LiveApp", "stage").unwrap();
    assert_eq!((stage["status"].as_str(), stage["name"].as_str()), (Some("finished"), Some("B\u{fc}hne")));
    assert!(stage["rtmpURL"].as_str().unwrap().ends_with("/LiveApp/stage"), "{stage}");
    assert_eq!(stage["endPointList"][0]["endpointServiceId"], "customA");
    let vods = api.get("/LiveApp/rest/v2/vods/list/0/10").json();
    assert_eq!(vods.as_array().unwrap().len(), 2);
    assert_eq!(api.get("/LiveApp/streams/stage.mp4").body, "recording");
    assert_eq!(api.get("/LiveApp/hello.html").body, "<p>hello");
    // While the server runs, an import is refused. The old installation stays unchanged.
    let refused = import(&old, &home, &["--records", RECORDS]);
    assert!(!refused.status.success());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("in use by another process"));
    assert_eq!(fs::read_to_string(old.join("webapps/LiveApp/streams/stage.mp4")).unwrap(), "recording");
}

/// Starts a minimal Redis server that supports `HSCAN`, with a broadcast as Redisson 3.27 writes it. Returns its URL.
fn redis() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some(words) = request(&mut reader) {
                let value: &[u8] =
                    if words[1] == "liveappBroadcasts" { b"\x03{\"streamId\":\"s1\"\xfd" } else { b"" };
                let entries = if value.is_empty() { 0 } else { 2 };
                let mut answer = format!("*2\r\n$1\r\n0\r\n*{entries}\r\n").into_bytes();
                if entries > 0 {
                    answer.extend(format!("$3\r\n\x03s1\r\n${}\r\n", value.len()).bytes());
                    answer.extend(value);
                    answer.extend(b"\r\n");
                }
                (&stream).write_all(&answer).unwrap();
            }
        }
    });
    format!("redis://{address}")
}

/// Reads the words of a request; `None` at the end of the connection.
fn request(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut number = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let count = line.get(1..)?.trim().parse::<usize>().ok()?;
        Some(count)
    };
    let count = number()?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut word = vec![0; line.get(1..)?.trim().parse::<usize>().ok()? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words)
}

#[test]
fn records_are_read_from_redis() {
    let folder = Home::new();
    let (old, home) = (folder.path().join("old"), folder.path().join("home"));
    installation(&old);
    let output = import(&old, &home, &["--redis", &redis()]);
    let done = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && done.contains("1 broadcasts, 0 tokens"), "{done}");
    let server = Server::start_in(&home, &[]);
    assert!(server.api().broadcast("LiveApp", "s1").is_some());
}

/// Fills a Redis server as Redisson does, and lets it save its data. Checks that an import of the file gives the same
/// records as an import from the server.
#[test]
fn c_19_an_rdb_file_has_the_records_of_its_server() {
    let redis = Redis::start();
    let mut connection = redis::Client::open(redis.address()).unwrap().get_connection().unwrap();
    let kryo = |text: &str| {
        let (last, start) = text.as_bytes().split_last().unwrap();
        [&[3], start, &[last | 0x80]].concat()
    };
    let mut put = |hash: &str, id: &str, record: &str| {
        redis::cmd("HSET").arg(hash).arg(kryo(id)).arg(kryo(record)).query::<()>(&mut connection).unwrap();
    };
    // Redis stores the first hash as a table with compressed long values, and the others in the compact form.
    for n in 0..300 {
        let record = format!(r#"{{"streamId":"s{n}","name":"{}"}}"#, "long ".repeat(n));
        put("liveappBroadcasts", &format!("s{n}"), &record);
    }
    put("liveappVods", "v1", r#"{"vodId":"v1","streamId":"s1","filePath":"streams/stage.mp4"}"#);
    put("users", "a@b", r#"{"email":"a@b","password":"x"}"#);
    redis::cmd("SAVE").query::<()>(&mut connection).unwrap();

    let folder = Home::new();
    let old = folder.path().join("old");
    installation(&old);
    let brought = |name: &str, source: &str| {
        let home = folder.path().join(name);
        let output = import(&old, &home, &["--redis", source]);
        let done = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && done.contains("300 broadcasts"), "{done}");
        let mut export = Command::new(env!("CARGO_BIN_EXE_millstream"));
        let records = export.args(["store", "export", "--home"]).arg(home).output().unwrap();
        assert!(records.status.success() && records.stdout.len() > 200_000);
        (String::from_utf8(output.stdout).unwrap(), done, records.stdout)
    };
    let file = redis.folder().join("dump.rdb");
    let of_file = brought("by-file", file.to_str().unwrap());
    assert!(of_file == brought("by-server", &redis.address()), "{}{}", of_file.0, of_file.1);

    // A truncated file is reported, and the records that it still contains are imported.
    let whole = fs::read(&file).unwrap();
    let cut = folder.path().join("cut.rdb");
    fs::write(&cut, &whole[..whole.len() - 100]).unwrap();
    let output = import(&old, &folder.path().join("cut"), &["--redis", cut.to_str().unwrap()]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && table.contains("the file ends too early"), "{table}");
    let output = import(&old, &folder.path().join("none"), &["--redis", "/dev/zero"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && table.contains("is not a regular file"), "{table}");
}
