use crate::tests::TempFolder;

use super::*;

/// A home that does not exist yet.
struct Home(PathBuf, #[expect(dead_code, reason = "the folder goes with it")] TempFolder);

impl Home {
    fn new() -> Self {
        let folder = TempFolder::new();
        Self(folder.join("home"), folder)
    }

    fn options(&self, set: &[&str], environment: &[(&str, &str)]) -> Options {
        Options {
            home: self.0.clone(),
            set: set.iter().map(|s| (*s).to_owned()).collect(),
            environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            cores: 2,
            schema: crate::protocol::schema(),
        }
    }
}

#[test]
fn first_start_makes_the_home_and_the_second_reads_the_same() {
    let home = Home::new();
    let first = Config::open(&home.options(&[], &[])).unwrap();
    assert_eq!(first.warnings, Vec::<String>::new());
    assert_eq!(first.apps.iter().map(|a| &*a.name).collect::<Vec<_>>(), ["LiveApp", "live"]);
    assert_eq!(first.server.workers, 2);
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.0.join("data")), 0o700);
    assert_eq!(mode(&server_file(&home.0)), 0o600);
    assert!(home.0.join("log").is_dir() && home.0.join("webapps/live/streams").is_dir());
    let text = fs::read_to_string(app_file(&home.0, "live")).unwrap();
    let keys = crate::protocol::schema().keys(Level::App);
    assert!(keys.iter().all(|k| text.contains(&format!("{}=", k.name))));
    assert_eq!(first.apps[0].endpoint_republish_limit, None);
    let second = Config::open(&home.options(&[], &[])).unwrap();
    assert_eq!(second.apps[0].loss.publisher_grace, first.apps[0].loss.publisher_grace);
    assert!(second.warnings.is_empty());
}

#[test]
fn a_removed_application_does_not_come_back() {
    let home = Home::new();
    Config::open(&home.options(&[], &[])).unwrap();
    fs::remove_dir_all(home.0.join("webapps/LiveApp")).unwrap();
    let config = Config::open(&home.options(&[], &[])).unwrap();
    assert_eq!(config.apps.len(), 1);
}

/// Damage by a power cut, a full disk, an interrupted copy or a wrong `rm`.
const LOSSES: [Option<&[u8]>; 6] = [
    None,
    Some(b""),
    Some(b" \n\t\n"),
    Some(&[0; 300]),
    Some(b"gopCache=false\nremoteAll\0\0\0\0"),
    Some(b"gopCache=false\npublishTokenControlEna"),
];

fn lose(file: &Path, loss: Option<&[u8]>) {
    match loss {
        None => fs::remove_file(file).unwrap(),
        Some(bytes) => fs::write(file, bytes).unwrap(),
    }
}

#[test]
fn c_11_an_application_whose_settings_are_lost_is_not_started_and_the_others_are() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    let config = Config::open(&options).unwrap();
    assert!(!config.used && config.lost.is_empty());
    known::remember(&options, ["live", "LiveApp"]).unwrap();
    let file = app_file(&home.0, "live");
    let good = fs::read(&file).unwrap();
    for loss in LOSSES {
        lose(&file, loss);
        for config in [Config::open(&options).unwrap(), Config::read(&options).unwrap()] {
            let started: Vec<&str> = config.apps.iter().map(|app| &*app.name).collect();
            let [lost] = &config.lost[..] else { panic!("{loss:?}: {:?}", config.lost) };
            assert_eq!((&started[..], &*lost.name, config.used), (&["LiveApp"][..], "live", true));
            assert!(lost.reason.contains("live/WEB-INF/red5-web.properties: the file"), "{}", lost.reason);
            assert!(config.describe().contains("# application live: not started"));
        }
        assert_eq!(fs::read(&file).ok().as_deref(), loss, "it is left as it was found");
        assert!(matches!(create_app(&options, "live"), Err(Error::Lost { .. })), "nor made anew");
        assert_eq!(fs::read(&file).ok().as_deref(), loss);
    }
    // The file is cut in the middle of a value, and after a line.
    let text = std::str::from_utf8(&good).unwrap();
    let at = text.find("\npublisherGraceMs=").unwrap();
    for cut in [at + 20, at + 1] {
        fs::write(&file, &good[..cut]).unwrap();
        let config = Config::open(&options).unwrap();
        assert!(config.lost[0].reason.contains("cut short"), "{}", config.lost[0].reason);
        assert_eq!(fs::read(&file).unwrap(), good[..cut], "nothing is added to it");
    }
    // A file with a single setting is intended.
    fs::write(&file, "gopCache=false\n").unwrap();
    assert_eq!(Config::open(&options).unwrap().apps.len(), 2);
    // Deletion through the API is intended, too: a new application of that name has defaults.
    fs::write(&file, "").unwrap();
    delete_app(&options, "live").unwrap();
    let config = Config::open(&options).unwrap();
    assert_eq!((config.apps.len(), &config.lost[..], &config.warnings[..]), (1, &[][..], &[][..]));
    create_app(&options, "live").unwrap();
    assert_eq!(fs::read(&file).unwrap(), good);
    fs::remove_file(&file).unwrap();
    assert_eq!(Config::open(&options).unwrap().lost.len(), 1, "the new one is known, too");
}

#[test]
fn b_14_an_application_is_removed_in_one_step_and_its_files_after_it() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    known::remember(&options, ["live", "LiveApp"]).unwrap();
    let [folder, removed] = ["webapps/live", "webapps/.removed-live"].map(|name| home.0.join(name));
    // The power is lost after the first step.
    fs::rename(&folder, &removed).unwrap();
    let is_missed = |config: &Config| config.warnings.iter().any(|line| line.contains("application live"));
    let config = Config::read(&options).unwrap();
    assert_eq!((config.apps.len(), config.lost.len(), is_missed(&config)), (1, 0, true));
    // The next start finishes the removal, and nobody has to edit the list.
    let config = Config::open(&options).unwrap();
    assert_eq!((config.apps.len(), config.lost.len(), is_missed(&config)), (1, 0, false));
    assert!(!removed.exists());
    create_app(&options, "live").unwrap();
    // A folder left over from an earlier removal does not prevent the next one.
    fs::create_dir_all(removed.join("streams")).unwrap();
    delete_app(&options, "live").unwrap();
    assert!(!removed.exists() && !folder.exists() && Config::open(&options).unwrap().lost.is_empty());
    create_app(&options, "live").unwrap();
    fs::write(folder.join("streams/a.mp4"), "a").unwrap();
    delete_app(&options, "live").unwrap();
    assert!(!removed.exists() && !folder.exists());
}

#[test]
fn c_17_an_application_whose_protection_cannot_be_had_is_not_started_and_the_others_are() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    let file = app_file(&home.0, "live");
    let text = fs::read_to_string(&file).unwrap();
    let set = [("hlsEncryptionKeyInfoFile", "keys/hls.keyinfo")];
    fs::write(&file, properties::set_lines(&text, &set)).unwrap();
    let config = Config::open(&options).unwrap();
    let started: Vec<&str> = config.apps.iter().map(|app| &*app.name).collect();
    let [lost] = &config.lost[..] else { panic!("{:?}", config.lost) };
    assert_eq!((&started[..], &*lost.name), (&["LiveApp"][..], "live"));
    let told = "hlsEncryptionKeyInfoFile (from live/WEB-INF/red5-web.properties): must be an absolute path";
    assert!(lost.reason.starts_with(told), "{}", lost.reason);
    // An edit that makes the settings unusable is refused.
    let edit = Edit { set: vec![("hlsEncryptionKeyInfoFile".into(), "x".into())], unset: Vec::new() };
    let before = fs::read(app_file(&home.0, "LiveApp")).unwrap();
    assert!(matches!(edit_app(&options, "LiveApp", &edit), Err(Error::Value { .. })));
    assert_eq!(fs::read(app_file(&home.0, "LiveApp")).unwrap(), before);
}

#[test]
fn c_11_folders_that_are_gone_open_nothing() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    known::remember(&options, ["live", "LiveApp"]).unwrap();
    fs::remove_dir_all(home.0.join("webapps/live/WEB-INF")).unwrap();
    let config = Config::open(&options).unwrap();
    assert_eq!((config.apps.len(), config.lost.len()), (1, 1));
    fs::remove_dir_all(home.0.join("webapps")).unwrap();
    let config = Config::open(&options).unwrap();
    assert_eq!((config.apps.len(), config.lost.len()), (0, 0));
    assert!(config.warnings.iter().any(|line| line.contains("application live: its folder is missing")));
    assert!(!home.0.join("webapps/live").exists(), "the first applications are for new homes");
}

#[test]
fn c_11_a_change_of_settings_that_are_lost_does_not_open_what_they_closed() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    known::remember(&options, ["live", "LiveApp"]).unwrap();
    let edit = |key: &str| Edit { set: vec![(key.to_owned(), "7".to_owned())], unset: Vec::new() };
    assert!(edit_app(&options, "live", &edit("maxLatencyMs")).is_ok());
    for loss in LOSSES {
        for (file, is_app) in [(app_file(&home.0, "live"), true), (server_file(&home.0), false)] {
            let good = fs::read(&file).unwrap();
            lose(&file, loss);
            let edited = match is_app {
                true => edit_app(&options, "live", &edit("maxLatencyMs")).map(drop),
                false => edit_server(&options, &edit("limits.endpoints")).map(drop),
            };
            assert!(matches!(edited, Err(Error::Lost { .. })), "{loss:?}: {edited:?}");
            assert_eq!(fs::read(&file).ok().as_deref(), loss, "it is left as it was found");
            fs::write(&file, good).unwrap();
        }
    }
}

#[test]
fn b_18_nothing_is_made_in_a_home_that_is_gone() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    fs::remove_dir_all(&home.0).unwrap();
    assert!(create_app(&options, "new").is_err() && edit_app(&options, "live", &Edit::default()).is_err());
    assert!(edit_server(&options, &Edit::default()).is_err() && known::remember(&options, ["a"]).is_err());
    assert!(!home.0.exists());
}

#[test]
fn c_11_settings_of_the_server_that_are_lost_stop_the_start() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    known::remember(&options, []).unwrap();
    for loss in LOSSES {
        lose(&server_file(&home.0), loss);
        for error in [Config::open(&options).unwrap_err(), Config::read(&options).unwrap_err()] {
            assert!(matches!(error, Error::Lost { .. }), "{error}");
            assert!(!error.to_string().contains('\n') && error.to_string().contains("red5.properties"));
        }
        fs::write(server_file(&home.0), "http.port=1\n").unwrap();
        assert_eq!(Config::open(&options).unwrap().server.http_port, 1);
    }
}

#[test]
fn c_11_the_home_of_a_server_that_kept_no_list_has_the_applications_that_it_started() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    let (live, by_hand) = (app_file(&home.0, "live"), app_file(&home.0, "byHand"));
    fs::remove_file(&live).unwrap();
    fs::create_dir_all(by_hand.parent().unwrap()).unwrap();
    fs::write(home.0.join("data/store.lock"), "").unwrap();
    let config = Config::open(&options).unwrap();
    assert_eq!((config.apps.len(), &*config.lost[0].name, config.used), (2, "live", true));
    assert!(by_hand.exists() && !live.exists(), "a folder that somebody has made becomes an application");
}

#[test]
fn set_wins_over_the_environment_over_the_file() {
    let home = Home::new();
    Config::open(&home.options(&[], &[])).unwrap();
    let text = fs::read_to_string(server_file(&home.0)).unwrap();
    let text =
        properties::set_lines(&text, &[("http.port", "1"), ("server.origin_port", "1"), ("https.port", "1")]);
    fs::write(server_file(&home.0), text).unwrap();
    let secret = home.0.join("secret");
    fs::write(&secret, "s3cret-s3cret\n").unwrap();
    let config = Config::open(&home.options(
        &["http.port=3", "app.gopCache=false", &format!("app.jwtSecretKey=@{}", secret.display())],
        &[
            ("MILLSTREAM_HTTP_PORT", "2"),
            ("MILLSTREAM_SERVER_ORIGIN_PORT", "2"),
            ("MILLSTREAM_APP_COALESCEMS", "0"),
            ("MILLSTREAM_LOG", "info"),
            ("MILLSTREAM_SERVICE_HOST", "10.0.0.1"),
            ("MILLSTREAM_PORT_1935_TCP_PORT", "1935"),
            ("MILLSTREAM_WHAT", "x"),
            ("PATH", "/bin"),
        ],
    ))
    .unwrap();
    let server = &config.server;
    assert_eq!(
        (server.http_port, server.values.text("server.origin_port"), server.https_port),
        (3, "2", Some(1))
    );
    for app in &config.apps {
        assert!(!app.gop_cache && app.coalesce.is_zero() && app.values.is_fixed("gopCache"));
        assert_eq!(app.values.text("jwtSecretKey"), "s3cret-s3cret");
    }
    assert_eq!(
        config.warnings,
        ["the environment: variables that are no settings, ignored: MILLSTREAM_WHAT"]
    );
    for (set, variable) in [
        (&["nonsense=1"][..], ("PATH", "")),
        (&["playTokenControlEnabled=true"], ("PATH", "")),
        (&["app.http.port=1"], ("PATH", "")),
        (&[], ("MILLSTREAM_HTTP_PROT", "1")),
        (&[], ("MILLSTREAM_APP_GOPCASH", "false")),
    ] {
        let error = Config::open(&home.options(set, &[variable])).unwrap_err().to_string();
        assert!(error.contains("there is no such"), "{error}");
    }
    let text = config.describe();
    assert!(text.contains("http.port=3  # --set") && text.contains("jwtSecretKey=***"));
    assert!(!text.contains("s3cret") && !format!("{config:?}").contains("s3cret"));
}

#[test]
fn c_01_c_03_a_bad_file_is_one_clear_line() {
    let home = Home::new();
    Config::open(&home.options(&[], &[])).unwrap();
    let file = app_file(&home.0, "live");
    let check = |bytes: &[u8], words: &[&str]| {
        fs::write(&file, bytes).unwrap();
        // The application with valid settings is started.
        let config = Config::open(&home.options(&[], &[])).unwrap();
        let [LostApp { name, reason }] = &config.lost[..] else { panic!("{:?}", config.lost) };
        assert_eq!((config.apps.len(), &*config.apps[0].name, &**name), (1, "LiveApp", "live"));
        assert!(words.iter().all(|w| reason.contains(w)) && !reason.contains('\n'), "{reason}");
        assert_eq!(Config::faults(&home.options(&[], &[])), [format!("application live: {reason}")]);
    };
    fs::write(&file, b"gopCache=true\r\ngopCache=false\r\n").unwrap();
    let config = Config::open(&home.options(&[], &[])).unwrap();
    let [doubled] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
    assert!(
        !config.apps[1].gop_cache && doubled.contains("red5-web.properties, line 2: gopCache"),
        "{doubled}"
    );
    check(b"gopCache=\xff", &["line 1", "UTF-8"]);
    check(b"remoteAllowedCIDR=10.0.0.0/33", &["live/", "remoteAllowedCIDR", "10.0.0.0/33"]);
    check(format!("listenerHookURL={}", "x".repeat(1 << 20)).as_bytes(), &["line 1"]);
    fs::write(&file, b"gopCache=false\r\nfuture=1\r\n").unwrap();
    let config = Config::open(&home.options(&[], &[])).unwrap();
    assert!(!config.apps[1].gop_cache && config.apps[1].loss.publisher_grace.as_secs() == 5);
    assert_eq!((config.warnings.len(), config.apps[1].values.text("future")), (1, "1"));
    for set in ["http.port", "=1", "http.port=@/nonexistent", "rtmp.port=70000"] {
        assert!(Config::open(&home.options(&[set], &[])).is_err(), "{set}");
    }
}

#[test]
fn an_application_that_cannot_be_made_leaves_no_folder() {
    let home = Home::new();
    Config::open(&home.options(&[], &[])).unwrap();
    let folder = home.0.join("webapps/new");
    let bad = home.options(&["app.remoteAllowedCIDR=10.0.0.0/33"], &[]);
    assert!(create_app(&bad, "new").is_err() && !folder.exists());
    create_app(&home.options(&[], &[]), "new").unwrap();
    assert!(create_app(&bad, "new").is_err() && folder.exists(), "what was there stays");
}

#[test]
fn c_16_keys_of_a_newer_server_are_added_to_an_old_home_as_comments() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    let before = Config::open(&options).unwrap();
    let files = [server_file(&home.0), app_file(&home.0, "live")];
    let whole = files.clone().map(|file| fs::read_to_string(file).unwrap());
    for (file, key) in files.iter().zip(["store.backup_hours", "gopCache"]) {
        let text = fs::read_to_string(file).unwrap();
        let at = text.lines().position(|line| line.starts_with(&format!("{key}="))).unwrap();
        let old: Vec<&str> = text
            .lines()
            .enumerate()
            .filter(|(n, _)| ![at - 1, at].contains(n))
            .map(|(_, line)| line)
            .collect();
        fs::write(file, old.join("\n")).unwrap();
        Config::open(&options).unwrap();
        let new = fs::read_to_string(file).unwrap();
        let marks: Vec<&str> = new.lines().filter(|line| line.starts_with("# New in ")).collect();
        assert_eq!(marks.len(), 1, "{marks:?}");
        let kept = old.split_last().unwrap().1.join("\n");
        assert!(
            new.starts_with(&kept)
                && new.ends_with("\n# End of settings\n")
                && new.contains(&format!("\n#{key}=")),
            "{new}"
        );
        let after = Config::open(&options).unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), new, "once");
        assert_eq!(after.server.values.text(key), before.server.values.text(key));
    }
    // Neither complete nor damaged files are changed.
    for (file, text) in files.iter().zip(&whole) {
        fs::write(file, text).unwrap();
    }
    Config::open(&options).unwrap();
    assert_eq!(files.map(|file| fs::read_to_string(file).unwrap()), whole);
}

#[test]
fn reserved_and_odd_names_are_no_applications() {
    for name in [
        "WEB-INF",
        "web-inf",
        "META-INF",
        "rest",
        "metrics",
        "openapi.json",
        "root",
        "",
        ".x",
        "a/b",
        "a b",
        "\u{e9}",
    ] {
        assert!(!is_app_name(name), "{name}");
    }
    assert!(is_app_name("LiveApp") && is_app_name("a-b_c.1"));
}

#[test]
fn reading_alone_makes_nothing() {
    let home = Home::new();
    let config = Config::read(&home.options(&[], &[])).unwrap();
    let names: Vec<&str> = config.apps.iter().map(|app| &*app.name).collect();
    assert_eq!((names, config.warnings), (vec!["LiveApp", "live"], Vec::new()), "as after the first start");
    assert!(!home.0.exists());
}

#[test]
fn c_01_all_faults_are_told_at_once() {
    let home = Home::new();
    let options = home.options(&[], &[]);
    Config::open(&options).unwrap();
    assert_eq!(Config::faults(&options), [""; 0]);
    let server = "http.port=x\nlimits.endpoints=-1\nrtmp.port=70000\nzebra=1\n";
    fs::write(server_file(&home.0), server).unwrap();
    let live = "remoteAllowedCIDR=10.0.0.0/33\njwtControlEnabled=true\njwtSecretKey=short\ncoalesceMs=soon\n";
    fs::write(app_file(&home.0, "live"), live).unwrap();
    fs::write(app_file(&home.0, "LiveApp"), b"gopCache=\xff").unwrap();
    let found = Config::faults(&options);
    let is_told = |app: &str, key: &str| {
        let of_app = |fault: &&String| fault.starts_with(app) && fault.contains(key);
        assert_eq!(found.iter().filter(of_app).count(), 1, "{key}: {found:#?}");
    };
    for key in ["http.port", "limits.endpoints", "rtmp.port"] {
        is_told("", key);
    }
    for key in ["remoteAllowedCIDR", "jwtSecretKey", "coalesceMs"] {
        is_told("application live: ", key);
    }
    is_told("application LiveApp: ", "not UTF-8");
    assert_eq!(found.len(), 8, "{found:#?}");
    assert!(found[7].contains("unknown key zebra"), "{found:#?}");
}

#[test]
fn c_01_the_settings_in_effect_are_those_that_act_when_nothing_is_set() {
    let home = Home::new();
    let text = Config::read(&home.options(&[], &[])).unwrap().describe();
    for (key, unset) in [
        ("vp8Enabled", "on"),
        ("h265Enabled", "on"),
        ("av1Enabled", "on"),
        ("webRTCTcpCandidatesEnabled", "as webrtc.tcp"),
        ("srtReceiveLatencyInMs", "as srt.latency_ms"),
    ] {
        assert!(text.contains(&format!("\n# {key} is not set: {unset}\n")), "{key}: {text}");
    }
    assert!(!text.contains("\ndashSegDuration=") && !text.contains("\nendpointRepublishLimit="), "{text}");
}

#[test]
fn c_01_faults_of_arguments_and_variables_are_told_with_those_of_files() {
    let home = Home::new();
    Config::open(&home.options(&[], &[])).unwrap();
    fs::write(server_file(&home.0), "limits.endpoints=-1\n").unwrap();
    let set = ["http.prot=1", "rtmp.port=99999", "nothing", "app.coalesceMs=soon"];
    let found = Config::faults(&home.options(&set, &[("MILLSTREAM_HTTP_PROT", "1")]));
    for part in ["http.prot", "rtmp.port", "KEY=VALUE", "MILLSTREAM_HTTP_PROT", "limits.endpoints"] {
        assert_eq!(found.iter().filter(|fault| fault.contains(part)).count(), 1, "{part}: {found:#?}");
    }
    assert_eq!(found.iter().filter(|fault| fault.contains("coalesceMs")).count(), 2, "of each application");
}

#[test]
fn an_argument_that_no_application_can_use_stops_the_start() {
    let home = Home::new();
    Config::open(&home.options(&[], &[])).unwrap();
    for set in ["app.remoteAllowedCIDR=10.0.0.0/33", "app.jwtControlEnabled=true"] {
        let error = Config::open(&home.options(&[set], &[])).unwrap_err();
        assert!(matches!(error, Error::Value { .. }), "{error}");
    }
    // The start fails even if one of the applications can use the value.
    fs::write(app_file(&home.0, "live"), format!("jwtSecretKey={}\n", "s".repeat(32))).unwrap();
    let error = Config::open(&home.options(&["app.jwtControlEnabled=true"], &[])).unwrap_err();
    assert!(error.to_string().contains("jwtSecretKey"), "{error}");
}
