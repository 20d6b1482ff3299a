//! C-01, and settings in general: files, environment, arguments, and the values that `check-config` shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::super::support::{Home, Server, run, secs, wait_for};
use super::{output_of, program, refusal};

/// Returns a home in which a server was started once.
fn made_home() -> (Home, PathBuf) {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    assert!(server.terminate().success());
    (home, folder)
}

fn files(folder: &Path) -> [PathBuf; 2] {
    ["conf/red5.properties", "webapps/live/WEB-INF/red5-web.properties"].map(|path| folder.join(path))
}

fn check_config(folder: &Path) -> Command {
    let mut command = program();
    command.args(["check-config", "--home"]).arg(folder);
    command
}

/// Returns the effective settings without their origins.
fn effective(folder: &Path) -> String {
    let (status, out, said) = run(&mut check_config(folder));
    assert!(status.success(), "{said}");
    out.replace("  # file", "")
}

#[test]
fn c_01_a_missing_key_has_its_default() {
    let (_home, folder) = made_home();
    let whole = effective(&folder);
    for file in files(&folder) {
        let text = fs::read_to_string(&file).unwrap();
        let keys: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='))
            .map(|kv| kv.0)
            .collect();
        assert!(keys.len() > 40, "{keys:?}");
        for key in &keys {
            let without: String = text
                .lines()
                .filter(|line| line.split_once('=').is_none_or(|kv| kv.0 != *key))
                .map(|line| format!("{line}\n"))
                .collect();
            assert_ne!(without, text);
            fs::write(&file, without).unwrap();
            assert_eq!(effective(&folder), whole, "{key}");
        }
        fs::write(&file, text).unwrap();
    }
}

#[test]
fn c_11_lost_settings_of_an_application_let_nobody_in() {
    let (_home, folder) = made_home();
    let [server_file, app_file] = files(&folder);
    let list = fs::read_to_string(folder.join("conf/applications.txt")).unwrap();
    assert!(list.ends_with("\nLiveApp\nlive\n"), "{list}");
    let set = fs::read_to_string(&app_file)
        .unwrap()
        .replace("\npublishTokenControlEnabled=false\n", "\npublishTokenControlEnabled=true\n");
    let losses: [Option<&[u8]>; 3] = [None, Some(b""), Some(&[0; 9000])];
    for (nth, loss) in losses.into_iter().enumerate() {
        match loss {
            None => fs::remove_file(&app_file).unwrap(),
            Some(bytes) => fs::write(&app_file, bytes).unwrap(),
        }
        let (status, _, said) = run(&mut check_config(&folder));
        let is_told = said.lines().filter(|line| line.contains("application live: ")).count() == 1;
        assert!(status.code() == Some(2) && is_told, "{said}");
        let log_file = folder.join("log/millstream.log");
        fs::remove_file(&log_file).unwrap();
        let log = || fs::read_to_string(&log_file).unwrap_or_default();
        let mut server = Server::start_in(&folder, &[]);
        let create = |app: &str| {
            let body = format!(r#"{{"streamId":"a{nth}"}}"#);
            server.api().post(&format!("/{app}/rest/v2/broadcasts/create"), &body).status
        };
        assert_eq!((create("live"), create("LiveApp")), (404, 200), "{loss:?}");
        let errors = |log: &str| log.lines().filter(|line| line.contains(" ERROR ")).count();
        wait_for("the error", secs(10), || errors(&log()) > 0);
        let text = log();
        assert!(
            errors(&text) == 1 && text.contains("application not started: its settings are invalid"),
            "{text}"
        );
        // When the file is valid again, SIGHUP starts the application. When the file is lost again, the current
        // settings stay in effect.
        fs::write(&app_file, &set).unwrap();
        server.signal("HUP");
        wait_for("the application", secs(10), || create("live") == 200);
        fs::write(&app_file, "").unwrap();
        server.signal("HUP");
        wait_for("the error", secs(10), || {
            log().contains("settings invalid; the current ones stay in effect")
        });
        wait_for("the end of the job", secs(10), || log().matches("settings loaded").count() == 2);
        assert_eq!(errors(&log()), 2);
        assert!(create("live") != 404);
        let url = format!("rtmp://{}/live/thief", server.rtmp);
        let mut publish = program();
        publish.args(["bench", "publish", "--duration", "1", "--warm-up", "0", "--url", &url]);
        assert!(!run(&mut publish).0.success(), "without a token");
        assert!(server.terminate().success());
    }
    // If the server's own settings file is lost, the server does not start.
    fs::write(&app_file, &set).unwrap();
    fs::write(&server_file, "").unwrap();
    assert!(
        refusal(&output_of(&Server::command(&folder, &[]))).contains("red5.properties: the file is empty")
    );
    fs::remove_file(&server_file).unwrap();
    assert!(
        refusal(&output_of(&Server::command(&folder, &[]))).contains("red5.properties: the file is missing")
    );
}

/// Returns the lines of a check that has found faults: the faults, then remarks about unknown keys.
fn faults(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty() && said.lines().all(|line| line.starts_with("millstream: ")), "{said}");
    said.lines().map(str::to_owned).collect()
}

#[test]
fn c_01_odd_files_are_read_or_refused_with_their_line() {
    let (_home, folder) = made_home();
    for (file, key, value) in files(&folder)
        .into_iter()
        .zip([("limits.endpoints", "7"), ("coalesceMs", "7")])
        .map(|(f, (k, v))| (f, k, v))
    {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let is_server = name == "red5.properties";
        let refused = |bytes: &[u8], words: &[&str]| {
            fs::write(&file, bytes).unwrap();
            let mut told = vec![faults(&output_of(&check_config(&folder))).remove(0)];
            if is_server {
                told.push(refusal(&output_of(&Server::command(&folder, &[]))));
            }
            for line in told {
                assert!(line.contains(&name) && words.iter().all(|word| line.contains(word)), "{line}");
                assert!(line.len() < 500, "{} bytes", line.len());
            }
        };
        refused(format!("a=1\r\n{key}=\u{e9}\r\n").replace('\u{e9}', "\u{fffd}").as_bytes(), &[key]);
        refused(&[format!("a=1\n{key}=").as_bytes(), b"\xff\xfe\n"].concat(), &["line 2", "UTF-8"]);
        refused(format!("{key}={}\n", "1".repeat(1 << 20)).as_bytes(), &["line 1"]);
        refused(format!("a=b\nunknown={}\n", "x".repeat(1 << 20)).as_bytes(), &["line 2"]);
        refused(format!("{key}=\\u12\n").as_bytes(), &["line 1"]);
        refused("x=1\n".repeat(2 << 20).as_bytes(), &["4 MiB"]);

        let line = format!("{key}={value}  # file\n");
        let taken = |text: String| {
            fs::write(&file, text).unwrap();
            let (status, out, said) = run(&mut check_config(&folder));
            assert!(status.success() && out.contains(&line), "{said}{out}");
            said
        };
        taken(format!("{key}={value}"));
        taken(format!("# by hand\r\n\r\n{key} = {value} \r\n"));
        taken(format!("\u{feff}{key}:{value}\n"));
        taken(format!("settings.{key}={value}\n"));
        let said = taken(format!("{key}=1\n{key}={value}\n"));
        assert!(["line 2", key, "line 1"].iter().all(|word| said.contains(word)), "{said}");
        let said = taken(format!("{key}={value}\nfromTheFuture=1\n"));
        assert!(said.lines().count() == 1 && said.contains("fromTheFuture"), "{said}");
        // A server starts with this unusual file, too.
        taken(format!("{key}={value}\r\nfromTheFuture=1\r\n"));
        assert!(Server::start_in(&folder, &[]).terminate().success());
        fs::write(&file, text).unwrap();
    }
}

#[test]
fn arguments_win_over_the_environment_over_the_file_over_the_default() {
    let (_home, folder) = made_home();
    let [server_file, app_file] = files(&folder);
    let set = |file: &Path, key: &str, value: &str| {
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().map(|line| match line.split_once('=') {
            Some((name, _)) if name == key => format!("{key}={value}\n"),
            _ => format!("{line}\n"),
        });
        fs::write(file, lines.collect::<String>()).unwrap();
    };
    // The address of a listener shows which setting a running server uses.
    let host = |environment: Option<&str>, argument: Option<&str>| {
        let argument = argument.map(|address| format!("http.host={address}"));
        let mut command = Server::command(&folder, argument.as_deref().as_slice());
        if let Some(address) = environment {
            command.env("MILLSTREAM_HTTP_HOST", address);
        }
        let mut server = Server::spawn(&mut command);
        let ip = server.http.ip().to_string();
        assert!(server.terminate().success());
        ip
    };
    assert_eq!(host(None, None), "127.0.0.1");
    set(&server_file, "http.host", "127.0.0.2");
    assert_eq!(host(None, None), "127.0.0.2");
    assert_eq!(host(Some("127.0.0.3"), None), "127.0.0.3");
    assert_eq!(host(Some("127.0.0.3"), Some("127.0.0.4")), "127.0.0.4");

    set(&app_file, "coalesceMs", "1");
    let mut command = check_config(&folder);
    command.env("MILLSTREAM_APP_COALESCEMS", "2").env("MILLSTREAM_APP_MAXLATENCYMS", "2000");
    let (_, out, _) = run(command.args(["--set", "app.maxLatencyMs=3000"]));
    assert_eq!(out.matches("coalesceMs=2  # environment\n").count(), 2, "all applications");
    assert_eq!(out.matches("maxLatencyMs=3000  # --set\n").count(), 2);
    assert!(out.contains("http.host=127.0.0.2  # file\n") && out.contains("\nhttps.port=5443"));
    // If an argument is repeated, the last one takes effect.
    let mut command = check_config(&folder);
    let (_, out, _) = run(command.args(["--set", "http.port=1", "--set", "http.port=2"]));
    assert!(out.contains("http.port=2  # --set\n"), "{out}");
}

/// Checks the command that systemd runs before the first start, when it has already created the folder of the home.
#[test]
fn the_check_of_the_unit_before_a_first_start_is_silent() {
    const UNIT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/millstream.service"));
    let line = UNIT.lines().find_map(|line| line.strip_prefix("ExecStartPre=")).unwrap();
    let (path, words) = line.split_once(' ').unwrap();
    assert!(
        path.ends_with("/millstream") && words.contains("--home /var/lib/millstream $ARGUMENTS"),
        "{line}"
    );
    let home = Home::new();
    let folder = home.path().join("made-by-systemd");
    fs::create_dir(&folder).unwrap();
    let mut command = program();
    for word in words.split(' ').filter(|word| *word != "$ARGUMENTS") {
        command.arg(if word == "/var/lib/millstream" { folder.as_os_str() } else { word.as_ref() });
    }
    let (status, out, said) = run(&mut command);
    assert!(status.success() && out.is_empty() && said.is_empty(), "{out}{said}");
    assert!(fs::read_dir(&folder).unwrap().next().is_none(), "it made something");
}

#[test]
fn check_config_makes_nothing_and_shows_no_secret() {
    let home = Home::new();
    let nowhere = home.path().join("nowhere");
    let (status, out, said) = run(&mut check_config(&nowhere));
    assert!(status.success() && out.contains("http.port=5080") && said.is_empty(), "{said}");
    assert!(out.contains("# application LiveApp\n") && out.contains("# application live\n"));
    let (status, _, _) = run(check_config(&nowhere).arg("--deep"));
    assert!(status.success() && !nowhere.exists());

    let (_home, folder) = made_home();
    let [server_file, app_file] = files(&folder);
    let append = |file: &Path, key: &str, value: &str| {
        let text = fs::read_to_string(file).unwrap().replace(&format!("{key}=\n"), "");
        fs::write(file, format!("{text}{key}={value}\n")).unwrap();
    };
    append(&server_file, "server.jwtServerSecretKey", "canary-one-canary-one-canary-one-1");
    append(&server_file, "myOwnPassword", "canary-two");
    append(&app_file, "jwtStreamSecretKey", "canary-three-canary-three-canary-3");
    append(&app_file, "listenerHookURL", "http://h/hook/canary-four?key=canary-five");
    let secret = home.path().join("secret");
    fs::write(&secret, "canary-six-canary-six-canary-six-6\n").unwrap();
    let mut command = check_config(&folder);
    command.env("MILLSTREAM_SRT_PASSPHRASE", "canary-seven").arg("--set");
    let (status, out, said) = run(command.arg(format!("app.jwtSecretKey=@{}", secret.display())));
    assert!(status.success(), "{said}");
    assert!(!out.contains("canary") && !said.contains("canary"), "{said}{out}");
    for shown in
        ["server.jwtServerSecretKey=***  # file", "myOwnPassword=***", "srt.passphrase=***  # environment"]
    {
        assert!(out.contains(shown), "{shown}: {out}");
    }
    assert_eq!(out.matches("jwtSecretKey=***  # --set").count(), 2);
    // Secrets are also not in the log, on the command line, or in the text of a refusal.
    let setting = format!("app.jwtSecretKey=@{}", secret.display());
    let mut server = Server::start_in(&folder, &[&setting]);
    let line = fs::read_to_string(format!("/proc/{}/cmdline", server.pid())).unwrap();
    assert!(!line.contains("canary"));
    assert!(server.terminate().success());
    let log = fs::read_to_string(folder.join("log/millstream.log")).unwrap();
    assert!(!log.contains("canary"), "{log}");
    append(&server_file, "srt.passphrase", "canary-eight\nsrt.passphrase=canary-9");
    let told = faults(&output_of(&check_config(&folder)));
    assert!(!told.iter().any(|line| line.contains("canary")), "{told:?}");
}
