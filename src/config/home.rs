//! The home folder: found or made, then read into a [`Config`].
//!
//! ```text
//! conf/red5.properties                              the server
//! webapps/{app}/WEB-INF/red5-web.properties         an application
//! data/ (0700)   log/
//! ```

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::keys::Key;
use super::properties::{self, FILE_BYTES_MAX};
use super::suggestion;
use super::values::{Origin, Values};
use super::{AppSettings, Error, Level, Schema, ServerSettings};

/// Applications of one server.
pub const APPS_MAX: usize = 1000;
/// Names that paths of the server itself use.
const RESERVED: [&str; 4] = ["rest", "metrics", "openapi.json", "root"];
/// Folders that no path leads to, in letters of either case.
const NEVER_SERVED: [&str; 2] = ["WEB-INF", "META-INF"];
/// Made at first start.
const FIRST_APPS: [&str; 2] = ["live", "LiveApp"];
/// Bytes of a file named by `--set KEY=@FILE`.
const VALUE_FILE_BYTES_MAX: u64 = 64 << 10;

/// Sources of settings other than the files.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The home folder.
    pub home: PathBuf,
    /// Arguments of `--set`, in order.
    pub set: Vec<String>,
    /// The environment; only names that begin with `MILLSTREAM_` are looked at.
    pub environment: Vec<(String, String)>,
    /// Default of `server.workers`.
    pub cores: u16,
    /// The known keys.
    pub schema: &'static Schema,
}

impl Options {
    /// Whether a server was started in the home folder before.
    #[must_use]
    pub fn is_home(&self) -> bool {
        server_file(&self.home).is_file()
    }
}

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The home folder.
    pub home: PathBuf,
    /// The server's settings.
    pub server: Arc<ServerSettings>,
    /// The applications, in order of their names.
    pub apps: Vec<Arc<AppSettings>>,
    /// Oddities that are no errors; one line each.
    pub warnings: Vec<String>,
}

impl Config {
    /// Makes what is missing in the home folder, then reads it.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing is half used.
    pub fn open(options: &Options) -> Result<Self, Error> {
        make_home(options)?;
        Self::read(options)
    }

    /// Reads the home folder and makes nothing: what is missing has its default.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read(options: &Options) -> Result<Self, Error> {
        let mut warnings = Vec::new();
        let overlays = Overlays::of(options)?;
        let server = Arc::new(overlays.server(options, &mut warnings)?);
        let mut apps = Vec::new();
        for name in app_names(&options.home, &mut warnings)? {
            apps.push(Arc::new(overlays.app(options, &name, &mut warnings)?));
        }
        if apps.is_empty() {
            warnings.push("no application: nothing can be published".to_owned());
        }
        Ok(Self { home: options.home.clone(), server, apps, warnings })
    }

    /// The effective settings as text, secrets masked.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = format!("# home: {}\n\n# server\n", self.home.display());
        self.server.values.describe(&mut out);
        for app in &self.apps {
            out.push_str(&format!("\n# application {}\n", app.name));
            app.values.describe(&mut out);
        }
        out
    }

    /// The files of the certificate: absolute names as they are, others within the home folder.
    #[must_use]
    pub fn certificate_files(&self) -> [PathBuf; 3] {
        let server = &self.server;
        [&server.certificate_file, &server.certificate_chain_file, &server.certificate_key_file]
            .map(|file| self.home.join(file))
    }

    /// The store's file.
    #[must_use]
    pub fn store_file(&self) -> PathBuf {
        self.home.join("data").join("store.redb")
    }
}

/// The settings of the command line and the environment, which override the files.
struct Overlays {
    environment: Environment,
    server: Vec<(String, String)>,
    apps: Vec<(String, String)>,
}

impl Overlays {
    /// A key that nobody knows is an error: a switch that is mistyped protects nothing.
    fn of(options: &Options) -> Result<Self, Error> {
        let (mut server, mut apps) = (Vec::new(), Vec::new());
        for argument in &options.set {
            let (key, value) = argument_of(argument)?;
            let (level, list, name) = match key.strip_prefix("app.") {
                Some(name) => (Level::App, &mut apps, name),
                None => (Level::Server, &mut server, key),
            };
            if options.schema.find(level, name).is_none() {
                let reason = suggestion::unknown_key(options.schema, key);
                return Err(Error::Argument { argument: properties::printable(key), reason });
            }
            list.push((name.to_owned(), value));
        }
        Ok(Self { environment: sorted_environment(options)?, server, apps })
    }

    fn server(&self, options: &Options, warnings: &mut Vec<String>) -> Result<ServerSettings, Error> {
        let mut values = Values::new(options.schema, Level::Server, "red5.properties");
        values.apply_file(read_file(&server_file(&options.home))?.unwrap_or_default(), warnings);
        overlay(&mut values, &self.environment.server, &self.server);
        ServerSettings::from_values(options.cores, values)
    }

    fn app(&self, options: &Options, name: &str, warnings: &mut Vec<String>) -> Result<AppSettings, Error> {
        let mut values =
            Values::new(options.schema, Level::App, &format!("{name}/WEB-INF/red5-web.properties"));
        values.apply_file(read_file(&app_file(&options.home, name))?.unwrap_or_default(), warnings);
        overlay(&mut values, &self.environment.apps, &self.apps);
        AppSettings::from_values(name, 0, values)
    }
}

/// Changes of a settings file: keys with their new values, and keys that go back to their default by being commented out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// New values.
    pub set: Vec<(String, String)>,
    /// The keys to be commented out.
    pub unset: Vec<String>,
}

/// Changes the server's settings file, every other line kept, and reads it back. A change that makes the settings
/// unusable is not kept.
///
/// # Errors
/// What is wrong with the result, or the disk.
pub fn edit_server(options: &Options, edit: &Edit) -> Result<ServerSettings, Error> {
    let overlays = Overlays::of(options)?;
    edit_file(&server_file(&options.home), edit, || overlays.server(options, &mut Vec::new()))
}

/// The same of an application.
///
/// # Errors
/// What is wrong with the result, or the disk.
pub fn edit_app(options: &Options, name: &str, edit: &Edit) -> Result<AppSettings, Error> {
    let overlays = Overlays::of(options)?;
    edit_file(&app_file(&options.home, name), edit, || overlays.app(options, name, &mut Vec::new()))
}

fn edit_file<T>(path: &Path, edit: &Edit, read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let old = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(io_error(path, &e)),
    };
    let unset: Vec<&str> = edit.unset.iter().map(String::as_str).collect();
    let set: Vec<(&str, &str)> = edit.set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let new = properties::set_lines(&properties::comment_out(&old, &unset), &set);
    write_whole(path, &new)?;
    read().inspect_err(|_| {
        let _ = write_whole(path, &old);
    })
}

/// Makes an application: its folders, and a settings file with every key.
///
/// # Errors
/// The disk, or settings that do not fit.
pub fn create_app(options: &Options, name: &str) -> Result<AppSettings, Error> {
    let folder = options.home.join("webapps").join(name);
    let is_new = !folder.exists();
    let make = || {
        make_dir(&folder.join("WEB-INF"), 0o755)?;
        make_dir(&folder.join("streams"), 0o755)?;
        write_new_app(options, name)?;
        Overlays::of(options)?.app(options, name, &mut Vec::new())
    };
    make().inspect_err(|_| {
        if is_new {
            let _ = fs::remove_dir_all(&folder);
        }
    })
}

/// Whether a folder's name can be an application: what fits a path segment, and is not ours.
#[must_use]
pub fn is_app_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with('.')
        && !RESERVED.contains(&name)
        && !NEVER_SERVED.iter().any(|folder| folder.eq_ignore_ascii_case(name))
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn server_file(home: &Path) -> PathBuf {
    home.join("conf").join("red5.properties")
}

fn app_file(home: &Path, name: &str) -> PathBuf {
    home.join("webapps").join(name).join("WEB-INF").join("red5-web.properties")
}

fn io_error(path: &Path, error: &io::Error) -> Error {
    Error::Io { path: path.display().to_string(), reason: error.to_string() }
}

/// The settings of the environment, by table.
#[derive(Default)]
struct Environment {
    server: Vec<(String, String)>,
    apps: Vec<(String, String)>,
}

fn sorted_environment(options: &Options) -> Result<Environment, Error> {
    let mut found = Environment::default();
    let mut variables: Vec<_> = options.environment.iter().collect();
    variables.sort();
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix("MILLSTREAM_").filter(|rest| !is_of_others(rest)) else {
            continue;
        };
        let (table, list, rest): (&[Key], _, _) = match rest.strip_prefix("APP_") {
            Some(rest) => (options.schema.keys(Level::App), &mut found.apps, rest),
            None => (options.schema.keys(Level::Server), &mut found.server, rest),
        };
        match table.iter().find(|key| variable_of(key.name) == rest) {
            Some(key) => list.push((key.name.to_owned(), value.clone())),
            None => {
                let reason = suggestion::unknown_variable(options.schema, name);
                return Err(Error::Variable { name: properties::printable(name), reason });
            }
        }
    }
    Ok(found)
}

/// What is no setting: the filter of the log, and what Kubernetes tells every pod of a service called `millstream`
/// (`MILLSTREAM_SERVICE_HOST`, `MILLSTREAM_PORT_1935_TCP_ADDR`).
fn is_of_others(variable: &str) -> bool {
    variable == "LOG"
        || variable.starts_with("SERVICE_")
        || variable == "PORT"
        || variable.starts_with("PORT_")
}

pub(super) fn variable_of(key: &str) -> String {
    key.to_ascii_uppercase().replace('.', "_")
}

fn overlay(values: &mut Values, environment: &[(String, String)], set: &[(String, String)]) {
    for (key, value) in environment {
        values.set(key, value.trim().to_owned(), Origin::Environment);
    }
    for (key, value) in set {
        values.set(key, value.clone(), Origin::Set);
    }
}

/// `KEY=VALUE` or `KEY=@FILE`.
fn argument_of(argument: &str) -> Result<(&str, String), Error> {
    let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
    let bad = |reason: String| Error::Argument { argument: properties::printable(key), reason };
    if key.is_empty() || !argument.contains('=') {
        return Err(bad("must be KEY=VALUE or KEY=@FILE".to_owned()));
    }
    let Some(file) = value.strip_prefix('@') else { return Ok((key, value.trim().to_owned())) };
    let mut text = String::new();
    let opened =
        fs::File::open(file).and_then(|f| f.take(VALUE_FILE_BYTES_MAX + 1).read_to_string(&mut text));
    opened.map_err(|e| bad(format!("{file}: {e}")))?;
    if text.len() as u64 > VALUE_FILE_BYTES_MAX {
        return Err(bad(format!("{file}: larger than 64 KiB")));
    }
    Ok((key, text.trim().to_owned()))
}

fn read_file(path: &Path) -> Result<Option<Vec<properties::Property>>, Error> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    match fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io_error(path, &e)),
    }
    let file = path.display().to_string();
    properties::parse(&bytes).map(Some).map_err(|(line, reason)| Error::Syntax { file, line, reason })
}

/// The applications below `webapps`: folders with a `WEB-INF`.
fn app_names(home: &Path, warnings: &mut Vec<String>) -> Result<Vec<String>, Error> {
    let folder = home.join("webapps");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io_error(&folder, &e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| io_error(&folder, &e))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "root" || !entry.path().join("WEB-INF").is_dir() {
            continue;
        }
        if is_app_name(&name) {
            names.push(name);
        } else {
            warnings.push(format!("webapps/{}: not a name for an application", properties::printable(&name)));
        }
    }
    if names.len() > APPS_MAX {
        return Err(Error::Io {
            path: folder.display().to_string(),
            reason: format!("more than {APPS_MAX} applications"),
        });
    }
    names.sort();
    Ok(names)
}

/// Makes folders and files that are missing; what is there stays as it is.
fn make_home(options: &Options) -> Result<(), Error> {
    let home = &options.home;
    for name in ["conf", "webapps"] {
        make_dir(&home.join(name), 0o755)?;
    }
    for (name, mode) in [("data", 0o700), ("log", 0o750)] {
        let folder = home.join(name);
        make_dir(&folder, mode)?;
        // Older homes have wider ones. A folder of somebody else's is theirs to guard.
        match fs::set_permissions(&folder, fs::Permissions::from_mode(mode)) {
            Err(error) if name == "data" => return Err(io_error(&folder, &error)),
            Ok(()) | Err(_) => {}
        }
    }
    write_new(&server_file(home), "Settings of the server", options.schema.keys(Level::Server))?;
    if app_names(home, &mut Vec::new())?.is_empty() {
        for name in FIRST_APPS {
            make_dir(&home.join("webapps").join(name).join("WEB-INF"), 0o755)?;
        }
    }
    for name in app_names(home, &mut Vec::new())? {
        make_dir(&home.join("webapps").join(&name).join("streams"), 0o755)?;
        write_new_app(options, &name)?;
    }
    Ok(())
}

fn write_new_app(options: &Options, name: &str) -> Result<(), Error> {
    let title = format!("Settings of the application {name}");
    write_new(&app_file(&options.home, name), &title, options.schema.keys(Level::App))
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(mode).create(path).map_err(|e| io_error(path, &e))
}

/// Writes a settings file with every key, unless it is there. 0600: it may come to hold secrets. Written beside
/// and renamed, so that a crash leaves no half file.
fn write_new(path: &Path, title: &str, table: &[Key]) -> Result<(), Error> {
    if path.try_exists().map_err(|e| io_error(path, &e))? {
        return Ok(());
    }
    let mut text = format!("# {title}\n");
    for key in table {
        let off = if key.explicit { "#" } else { "" };
        text.push_str(&format!(
            "\n# {}\n{off}{}={}\n",
            key.comment,
            key.name,
            properties::escape_value(key.default)
        ));
    }
    write_whole(path, &text)
}

/// Beside, synced, and renamed.
fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|e| io_error(path, &e))
}

#[cfg(test)]
mod tests {
    use crate::tests::TempFolder;

    use super::*;

    /// A home that is not there yet.
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
        assert_eq!(second.apps[0].publisher_grace, first.apps[0].publisher_grace);
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

    #[test]
    fn set_wins_over_the_environment_over_the_file() {
        let home = Home::new();
        Config::open(&home.options(&[], &[])).unwrap();
        let text = fs::read_to_string(server_file(&home.0)).unwrap();
        let text = properties::set_lines(
            &text,
            &[("http.port", "1"), ("server.origin_port", "1"), ("https.port", "1")],
        );
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
        assert_eq!(config.warnings, Vec::<String>::new());
        for (set, variable) in [
            (&["nonsense=1"][..], ("PATH", "")),
            (&["playTokenControlEnabled=true"], ("PATH", "")),
            (&["app.http.port=1"], ("PATH", "")),
            (&[], ("MILLSTREAM_WHAT", "x")),
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
            let error = Config::open(&home.options(&[], &[])).unwrap_err().to_string();
            assert!(words.iter().all(|w| error.contains(w)) && !error.contains('\n'), "{error}");
        };
        check(b"gopCache=true\r\ngopCache=false\r\n", &["red5-web.properties", "line 2", "gopCache"]);
        check(b"gopCache=\xff", &["line 1", "UTF-8"]);
        check(b"remoteAllowedCIDR=10.0.0.0/33", &["live/", "remoteAllowedCIDR", "10.0.0.0/33"]);
        check(format!("listenerHookURL={}", "x".repeat(1 << 20)).as_bytes(), &["line 1"]);
        fs::write(&file, b"gopCache=false\r\nfuture=1\r\n").unwrap();
        let config = Config::open(&home.options(&[], &[])).unwrap();
        assert!(!config.apps[1].gop_cache && config.apps[1].publisher_grace.as_secs() == 5);
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
        assert!(Config::read(&home.options(&[], &[])).unwrap().apps.is_empty());
        assert!(!home.0.exists());
    }
}
