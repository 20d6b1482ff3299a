//! The home folder: found or created, then read into a [`Config`].
//!
//! ```text
//! conf/red5.properties                              the server
//! webapps/{app}/WEB-INF/red5-web.properties         an application
//! data/ (0700)   log/
//! ```
//!
//! A lost settings file is not treated like one that never existed (`known`): starting with defaults would lift the
//! restrictions it contained.

mod adopted;
mod environment;
#[cfg(test)]
mod tests;
mod whole;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::keys::Key;
use super::known::{self, Known};
use super::properties::{self, FILE_BYTES_MAX};
use super::remarks::Remarks;
use super::suggestion;
use super::values::{Origin, Values};
use super::{AppSettings, Error, Level, Schema, ServerSettings};
use crate::disk::{self, Disk as _, SystemDisk};

use environment::Environment;
use whole::damage_of;

pub use adopted::{Adopted, Adoption, read_foreign};
pub(super) use environment::{PREFIX, variable_of};

/// Maximum number of applications of one server.
pub const APPS_MAX: usize = 1000;
/// Names that no application may have, because the server's own paths use them.
const RESERVED: [&str; 4] = ["rest", "metrics", "openapi.json", "root"];
/// Folders that are never served, compared ignoring case.
const NEVER_SERVED: [&str; 2] = ["WEB-INF", "META-INF"];
/// Prefix of the folder of an application that is being removed.
const REMOVED: &str = ".removed-";
/// Applications created at the first start.
const FIRST_APPS: [&str; 2] = ["live", "LiveApp"];
/// Longest value in a file named by `--set KEY=@FILE`, in bytes.
const VALUE_FILE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of faults reported for one file.
const FAULTS_MAX: usize = 100;

/// Sources of settings other than the files.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The home folder.
    pub home: PathBuf,
    /// Arguments of `--set`, in order.
    pub set: Vec<String>,
    /// The environment; only variables with the prefix `MILLSTREAM_` are used.
    pub environment: Vec<(String, String)>,
    /// Default of `server.workers`.
    pub cores: u16,
    /// The known keys.
    pub schema: &'static Schema,
}

impl Options {
    /// True if the home folder was used by a server before.
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
    /// The applications, in order of name.
    pub apps: Vec<Arc<AppSettings>>,
    /// Applications that are not started, in order of name.
    pub lost: Vec<LostApp>,
    /// True if the home has had a store.
    pub used: bool,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
}

/// An application whose settings are lost or unusable. The application is not started, since the defaults would lift
/// its restrictions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostApp {
    /// Name of the application.
    pub name: Arc<str>,
    /// First fault, in one line that names the file.
    pub reason: String,
}

impl Config {
    /// Creates the missing parts of the home folder, then reads everything.
    ///
    /// # Errors
    /// The first fault. In this case no settings are applied.
    pub fn open(options: &Options) -> Result<Self, Error> {
        finish_removals(options)?;
        make_home(options, &Known::of(&options.home)?)?;
        Self::read(options)
    }

    /// Reads the home folder without creating anything: missing files count as defaults.
    ///
    /// # Errors
    /// The first fault of the server's settings, or of settings for all applications. A fault of a single application
    /// only keeps that application from starting.
    pub fn read(options: &Options) -> Result<Self, Error> {
        let mut remarks = Remarks::default();
        let mut config = Self::read_with(options, &mut remarks)?;
        config.warnings = remarks.summed_up();
        Ok(config)
    }

    /// Reads the home folder like [`Config::read`], with a separate remark for each unknown key.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn inspect(options: &Options) -> Result<Self, Error> {
        let mut remarks = Remarks::default();
        let mut config = Self::read_with(options, &mut remarks)?;
        config.warnings = remarks.each();
        Ok(config)
    }

    fn read_with(options: &Options, remarks: &mut Remarks) -> Result<Self, Error> {
        let overlays = Overlays::of(options)?;
        overlays.environment.remark(remarks);
        let known = Known::of(&options.home)?;
        if known.used {
            must_exist(&server_file(&options.home))?;
        }
        let server = Arc::new(overlays.server(options, remarks)?);
        let mut apps = Vec::new();
        let mut lost = Vec::new();
        for name in app_list(options, &known, remarks)? {
            let file = app_file(&options.home, &name);
            let there = if known.apps.contains(&name) { must_exist(&file) } else { Ok(()) };
            match there.and_then(|()| overlays.app(options, &name, remarks)) {
                Ok(app) => {
                    app.notices()
                        .iter()
                        .for_each(|notice| remarks.push(format!("application {name}: {notice}")));
                    apps.push(Arc::new(app));
                }
                // If an application without a settings file has the same fault, the command line or the environment
                // causes it, and every application is affected.
                Err(error) if is_same_fault(&error, overlays.bare_app(options, &name).err().as_ref()) => {
                    return Err(error);
                }
                Err(error) => lost.push(LostApp { name: name.into(), reason: error.to_string() }),
            }
        }
        if apps.is_empty() {
            remarks.push("no application: nothing can be published".to_owned());
        }
        let (home, used) = (options.home.clone(), known.used);
        Ok(Self { home, server, apps, lost, used, warnings: Vec::new() })
    }

    /// Returns all faults of the settings, one line each: every invalid value of every file, and files that are
    /// unreadable. If there are any, remarks about unknown keys follow, so that all of a file can be mended at once.
    #[must_use]
    pub fn faults(options: &Options) -> Vec<String> {
        let words = |error: Error| vec![error.to_string()];
        let mut of_overlays = Vec::new();
        let overlays = Overlays::read(options, &mut of_overlays);
        let mut found: Vec<String> = of_overlays.iter().map(ToString::to_string).collect();
        let known = match Known::of(&options.home) {
            Ok(known) => known,
            Err(error) => {
                found.push(error.to_string());
                return found;
            }
        };
        let mut remarks = Remarks::default();
        let lost = if known.used { must_exist(&server_file(&options.home)) } else { Ok(()) };
        let of_server = match lost.and_then(|()| overlays.server_values(options, &mut remarks)) {
            Ok(values) => {
                all_faults(values, |values| ServerSettings::from_values(options.cores, values).map(drop))
            }
            Err(error) => words(error),
        };
        found.extend(of_server);
        let names = match app_list(options, &known, &mut remarks) {
            Ok(names) => names,
            Err(error) => {
                found.push(error.to_string());
                return found;
            }
        };
        for name in names {
            let file = app_file(&options.home, &name);
            let there = if known.apps.contains(&name) { must_exist(&file) } else { Ok(()) };
            let of_app = match there.and_then(|()| overlays.app_values(options, &name, &mut remarks)) {
                Ok(values) => {
                    all_faults(values, |values| AppSettings::from_values(&name, 0, values).map(drop))
                }
                Err(error) => words(error),
            };
            found.extend(of_app.into_iter().map(|fault| format!("application {name}: {fault}")));
        }
        if !found.is_empty() {
            found.extend(remarks.each());
        }
        found
    }

    /// Returns the effective settings as text, with secrets masked.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut out = format!("# home: {}\n\n# server\n", self.home.display());
        self.server.values.describe(&mut out);
        for app in &self.apps {
            out.push_str(&format!("\n# application {}\n", app.name));
            app.values.describe(&mut out);
        }
        for app in &self.lost {
            out.push_str(&format!("\n# application {}: not started\n# {}\n", app.name, app.reason));
        }
        out
    }

    /// Returns the paths of the certificate files; relative ones are resolved in the home folder.
    #[must_use]
    pub fn certificate_files(&self) -> [PathBuf; 3] {
        let server = &self.server;
        [&server.certificate_file, &server.certificate_chain_file, &server.certificate_key_file]
            .map(|file| self.home.join(file))
    }

    /// Returns the path of the store's file.
    #[must_use]
    pub fn store_file(&self) -> PathBuf {
        store_file(&self.home)
    }
}

/// The file of a home's store, without the settings: for work that must not depend on valid settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlace {
    /// Path of the file.
    pub file: PathBuf,
    /// True if the home has had a store.
    pub used: bool,
}

impl StorePlace {
    /// Finds the store of a home without creating anything.
    ///
    /// # Errors
    /// A disk error.
    pub fn find(options: &Options) -> Result<Self, Error> {
        let used = Known::of(&options.home)?.used;
        Ok(Self { file: store_file(&options.home), used })
    }

    /// Creates the missing parts of the home folder, then finds its store.
    ///
    /// # Errors
    /// A disk error, or a settings file that is lost.
    pub fn make(options: &Options) -> Result<Self, Error> {
        finish_removals(options)?;
        make_home(options, &Known::of(&options.home)?)?;
        Self::find(options)
    }
}

/// Settings of the command line and the environment, which override the files.
struct Overlays {
    environment: Environment,
    server: Vec<(String, String)>,
    apps: Vec<(String, String)>,
}

impl Overlays {
    /// Parses the overlays. An unknown key is an error: if the key of a restriction is mistyped, the server must not
    /// run without the restriction.
    fn of(options: &Options) -> Result<Self, Error> {
        let mut faults = Vec::new();
        let overlays = Self::read(options, &mut faults);
        faults.into_iter().next().map_or(Ok(overlays), Err)
    }

    /// Parses the overlays like [`Overlays::of`], leaves out the arguments and variables at fault, and adds their
    /// faults to `faults`.
    fn read(options: &Options, faults: &mut Vec<Error>) -> Self {
        let (mut server, mut apps) = (Vec::new(), Vec::new());
        for argument in &options.set {
            let (key, value) = match argument_of(argument) {
                Ok(setting) => setting,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let (level, list, name) = match key.strip_prefix("app.") {
                Some(name) => (Level::App, &mut apps, name),
                None => (Level::Server, &mut server, key),
            };
            if options.schema.find(level, name).is_some() {
                list.push((name.to_owned(), value));
            } else {
                let reason = suggestion::unknown_key(options.schema, key);
                faults.push(Error::Argument { argument: properties::printable(key), reason });
            }
        }
        Self { environment: Environment::read(options, faults), server, apps }
    }

    fn server_values(&self, options: &Options, remarks: &mut Remarks) -> Result<Values, Error> {
        let file = server_file(&options.home);
        let mut values = Values::new(options.schema, Level::Server, "red5.properties");
        values.apply_file(&file, read_file(&file)?.unwrap_or_default(), remarks);
        overlay(&mut values, &self.environment.server, &self.server);
        Ok(values)
    }

    fn server(&self, options: &Options, remarks: &mut Remarks) -> Result<ServerSettings, Error> {
        ServerSettings::from_values(options.cores, self.server_values(options, remarks)?)
    }

    fn app_values(&self, options: &Options, name: &str, remarks: &mut Remarks) -> Result<Values, Error> {
        let file = app_file(&options.home, name);
        let mut values = self.defaults_of_app(options, name);
        values.apply_file(&file, read_file(&file)?.unwrap_or_default(), remarks);
        overlay(&mut values, &self.environment.apps, &self.apps);
        Ok(values)
    }

    fn app(&self, options: &Options, name: &str, remarks: &mut Remarks) -> Result<AppSettings, Error> {
        AppSettings::from_values(name, 0, self.app_values(options, name, remarks)?)
    }

    /// Returns the settings of an application without a settings file.
    fn bare_app(&self, options: &Options, name: &str) -> Result<AppSettings, Error> {
        let mut values = self.defaults_of_app(options, name);
        overlay(&mut values, &self.environment.apps, &self.apps);
        AppSettings::from_values(name, 0, values)
    }

    #[allow(clippy::unused_self, reason = "a part of the three above")]
    fn defaults_of_app(&self, options: &Options, name: &str) -> Values {
        Values::new(options.schema, Level::App, &format!("{name}/WEB-INF/red5-web.properties"))
    }
}

/// Returns the names of the applications. For a home that does not exist yet, returns those that its creation will add.
fn app_list(options: &Options, known: &Known, remarks: &mut Remarks) -> Result<Vec<String>, Error> {
    let names = known.with_folders(&options.home, remarks)?;
    if names.is_empty() && known.apps.is_empty() {
        let mut first = FIRST_APPS.map(str::to_owned).to_vec();
        first.sort();
        return Ok(first);
    }
    Ok(names)
}

/// True if two errors concern the same key, regardless of the value's origin.
fn is_same_fault(error: &Error, other: Option<&Error>) -> bool {
    match (error, other) {
        (Error::Value { key, .. }, Some(Error::Value { key: other, .. })) => key == other,
        (error, Some(other)) => error == other,
        (_, None) => false,
    }
}

/// Returns all faults of the values. After each fault, the key at fault gets its default, which may reveal another
/// fault.
fn all_faults(mut values: Values, build: impl Fn(Values) -> Result<(), Error>) -> Vec<String> {
    let mut found: Vec<Error> = Vec::new();
    while found.len() < FAULTS_MAX
        && let Err(error) = build(values.clone())
    {
        let Error::Value { key, .. } = &error else {
            found.push(error);
            break;
        };
        let is_again = found.iter().any(|before| is_same_fault(before, Some(&error)));
        // If the error remains after the key is reset to its default, another key causes it, such as a switch that
        // requires this key.
        let mended = |given: &String| {
            let mut without = values.clone();
            without.reset(given);
            !is_same_fault(&error, build(without).err().as_ref())
        };
        let reset = if is_again { values.given().into_iter().find(mended) } else { Some(key.clone()) };
        if !is_again {
            found.push(error);
        }
        let Some(reset) = reset else { break };
        values.reset(&reset);
    }
    found.iter().map(ToString::to_string).collect()
}

/// Changes to a settings file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// Keys with new values.
    pub set: Vec<(String, String)>,
    /// Keys to comment out, which restores their defaults.
    pub unset: Vec<String>,
}

/// Changes the server's settings file, keeps every other line, and reads the result. A change that makes the settings
/// unusable is undone.
///
/// # Errors
/// A fault of the result, or a disk error.
pub fn edit_server(options: &Options, edit: &Edit) -> Result<ServerSettings, Error> {
    let overlays = Overlays::of(options)?;
    edit_file(&server_file(&options.home), edit, || overlays.server(options, &mut Remarks::default()))
}

/// Changes an application's settings file in the same way as [`edit_server`].
///
/// # Errors
/// A fault of the result, or a disk error.
pub fn edit_app(options: &Options, name: &str, edit: &Edit) -> Result<AppSettings, Error> {
    let overlays = Overlays::of(options)?;
    edit_file(&app_file(&options.home, name), edit, || overlays.app(options, name, &mut Remarks::default()))
}

fn edit_file<T>(path: &Path, edit: &Edit, read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // If the file is lost, writing it would leave only this change, with defaults for all other settings.
    must_exist(path)?;
    let old = fs::read_to_string(path).map_err(|e| io_error(path, &e))?;
    if let Some(reason) = damage_of(old.as_bytes()) {
        return Err(Error::Lost { path: path.display().to_string(), reason: reason.to_owned() });
    }
    let unset: Vec<&str> = edit.unset.iter().map(String::as_str).collect();
    let set: Vec<(&str, &str)> = edit.set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let new = properties::set_lines(&properties::comment_out(&old, &unset), &set);
    write_whole(path, &whole::ended(&old, new))?;
    read().inspect_err(|_| {
        let _ = write_whole(path, &old);
    })
}

/// Creates an application: its folders, and a settings file with every key.
///
/// # Errors
/// A disk error, or invalid settings.
pub fn create_app(options: &Options, name: &str) -> Result<AppSettings, Error> {
    let folder = options.home.join("webapps").join(name);
    let is_new = !folder.exists();
    // Do not recreate a home that was removed while the server ran.
    must_exist(&server_file(&options.home))?;
    if Known::of(&options.home)?.apps.contains(name) {
        must_exist(&app_file(&options.home, name))?;
    }
    let make = || {
        make_dir(&folder.join("WEB-INF"), 0o755)?;
        make_dir(&folder.join("streams"), 0o755)?;
        write_new_app(options, name)?;
        let app = Overlays::of(options)?.app(options, name, &mut Remarks::default())?;
        known::remember(options, [name])?;
        Ok(app)
    };
    make().inspect_err(|_| {
        if is_new {
            let _ = fs::remove_dir_all(&folder);
        }
    })
}

/// Moves the folder of an application away in one step, removes the application from the list of known applications,
/// then deletes the files. If the power fails in between, this order leaves an application that is not started, and not
/// one with default settings or with some of its files missing.
///
/// # Errors
/// A disk error.
pub fn delete_app(options: &Options, name: &str) -> Result<(), Error> {
    let all = options.home.join("webapps");
    let (folder, removed) = (all.join(name), all.join(format!("{REMOVED}{name}")));
    remove_folder(&removed)?;
    match fs::rename(&folder, &removed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&folder, &error)),
        Ok(()) | Err(_) => {}
    }
    if all.is_dir() {
        SystemDisk.sync_folder(&all).map_err(|error| io_error(&all, &error))?;
    }
    known::forget(options, name)?;
    remove_files_of(&removed);
    Ok(())
}

/// Removes a folder with everything in it. A missing folder is not an error.
fn remove_folder(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(folder, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes the files of an application that is no longer listed. Files that cannot be removed now are left to the next
/// start.
fn remove_files_of(removed: &Path) {
    if let Err(error) = remove_folder(removed) {
        tracing::warn!(folder = %removed.display(), %error, "files of a removed application left until the next start");
    }
}

/// Finishes interrupted removals of applications. Removes each application from the list, unless a new application has
/// the same name, and deletes the files of the removed one.
fn finish_removals(options: &Options) -> Result<(), Error> {
    let all = options.home.join("webapps");
    for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
        let folder = entry.file_name();
        let Some(name) = folder.to_str().and_then(|folder| folder.strip_prefix(REMOVED)) else { continue };
        if !all.join(name).exists() {
            known::forget(options, name)?;
        }
        remove_files_of(&entry.path());
    }
    Ok(())
}

/// True if a name is valid for an application: usable in a path, and not reserved.
#[must_use]
pub fn is_app_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with('.')
        && !RESERVED.contains(&name)
        && !NEVER_SERVED.iter().any(|folder| folder.eq_ignore_ascii_case(name))
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn store_file(home: &Path) -> PathBuf {
    home.join("data").join("store.redb")
}

fn server_file(home: &Path) -> PathBuf {
    home.join("conf").join("red5.properties")
}

fn app_file(home: &Path, name: &str) -> PathBuf {
    home.join("webapps").join(name).join("WEB-INF").join("red5-web.properties")
}

pub(super) fn io_error(path: &Path, error: &io::Error) -> Error {
    Error::Io { path: path.display().to_string(), reason: error.to_string() }
}

fn overlay(values: &mut Values, environment: &[(String, String)], set: &[(String, String)]) {
    for (key, value) in environment {
        values.set(key, value.trim().to_owned(), Origin::Environment);
    }
    for (key, value) in set {
        values.set(key, value.clone(), Origin::Set);
    }
}

/// Parses `KEY=VALUE` or `KEY=@FILE`.
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
    let Some(bytes) = read_limited(path)? else { return Ok(None) };
    if let Some(reason) = damage_of(&bytes) {
        return Err(Error::Lost { path: path.display().to_string(), reason: reason.to_owned() });
    }
    let file = path.display().to_string();
    properties::parse(&bytes).map(Some).map_err(|(line, reason)| Error::Syntax { file, line, reason })
}

/// Reads a settings file, up to one byte more than allowed. `None` if the file does not exist.
fn read_limited(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    match fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error(path, &e)),
    }
}

/// Fails if a settings file that the home had before is missing.
fn must_exist(path: &Path) -> Result<(), Error> {
    if path.try_exists().map_err(|e| io_error(path, &e))? {
        return Ok(());
    }
    Err(Error::Lost { path: path.display().to_string(), reason: "the file is missing".to_owned() })
}

/// Lists the applications below `webapps`: folders with a `WEB-INF`.
pub(super) fn app_names(home: &Path, remarks: &mut Remarks) -> Result<Vec<String>, Error> {
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
        if name == "root" || name.starts_with(REMOVED) || !entry.path().join("WEB-INF").is_dir() {
            continue;
        }
        if is_app_name(&name) {
            names.push(name);
        } else {
            remarks.push(format!("webapps/{}: not a name for an application", properties::printable(&name)));
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

/// Creates missing folders and files, and keeps existing ones. Settings files that the home had before are not
/// recreated.
fn make_home(options: &Options, known: &Known) -> Result<(), Error> {
    let home = &options.home;
    for name in ["conf", "webapps"] {
        make_dir(&home.join(name), 0o755)?;
    }
    for (name, mode) in [("data", 0o700), ("log", 0o750)] {
        let folder = home.join(name);
        make_dir(&folder, mode)?;
        // Homes of older versions have wider permissions. Folders owned by another user are left alone.
        match fs::set_permissions(&folder, fs::Permissions::from_mode(mode)) {
            Err(error) if name == "data" => return Err(io_error(&folder, &error)),
            Ok(()) | Err(_) => {}
        }
    }
    if known.used {
        must_exist(&server_file(home))?;
    }
    let keys = options.schema.keys(Level::Server);
    write_new(&server_file(home), "Settings of the server", keys, str::to_owned)?;
    if known.apps.is_empty() && app_names(home, &mut Remarks::default())?.is_empty() {
        for name in FIRST_APPS {
            make_dir(&home.join("webapps").join(name).join("WEB-INF"), 0o755)?;
        }
    }
    for name in app_names(home, &mut Remarks::default())? {
        make_dir(&home.join("webapps").join(&name).join("streams"), 0o755)?;
        if !known.apps.contains(&name) {
            write_new_app(options, &name)?;
        }
        add_new_keys(&app_file(home, &name), options.schema.keys(Level::App));
    }
    add_new_keys(&server_file(home), options.schema.keys(Level::Server));
    Ok(())
}

/// Appends the keys of a newer server, as comments. Skips a damaged file or one that is not writable; the defaults
/// apply in any case.
fn add_new_keys(path: &Path, keys: &[Key]) {
    let text =
        fs::read(path).ok().filter(|bytes| bytes.len() <= FILE_BYTES_MAX && damage_of(bytes).is_none());
    let Some(text) = text.and_then(|bytes| String::from_utf8(bytes).ok()) else { return };
    let mark = concat!("New in ", env!("CARGO_PKG_VERSION"));
    let all = keys.iter().map(|key| (key.name, key.comment, key.default));
    if let Some(new) = properties::with_new_keys(&text, all, mark) {
        let _ = write_whole(path, &whole::ended(&text, new));
    }
}

fn write_new_app(options: &Options, name: &str) -> Result<(), Error> {
    let title = format!("Settings of the application {name}");
    write_new(&app_file(&options.home, name), &title, options.schema.keys(Level::App), str::to_owned)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Error> {
    disk::make_folder(&SystemDisk, path, mode).map_err(|e| io_error(path, &e))
}

/// Writes a settings file with every key, unless the file exists. `edit` changes the text first. The file has mode
/// 0600, since secrets may be added to it, and is written in one step, so that a crash leaves no partial file.
fn write_new(path: &Path, title: &str, table: &[Key], edit: impl Fn(&str) -> String) -> Result<(), Error> {
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
    write_whole(path, &whole::announced(&edit(&text)))
}

fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    disk::replace(&SystemDisk, path, text.as_bytes(), 0o600).map_err(|e| io_error(path, &e))
}
