//! Settings of an installation of Ant Media Server, taken over into a home
//! (docs/import.md).
//!
//! Values are taken over unchanged, even those that keep an application from starting, since dropping them would lift
//! restrictions.

use std::path::Path;

use super::{Overlays, all_faults, app_file, make_dir, overlay, read_limited, server_file, write_new};
use crate::config::properties::{self, Property, printable};
use crate::config::{AppSettings, Effect, Error, Level, Options, Origin, ServerSettings, Values};

/// Prefixes of keys about the database and the servlet of Ant Media Server, which this server
/// does not have.
const PLUMBING: [&str; 2] = ["db.", "webapp."];

/// The settings in a file of Ant Media Server, sorted by their use on this server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Settings that differ from this server's defaults.
    pub set: Vec<(String, String)>,
    /// Keys with a non-default value but no effect here, with the reason.
    pub without_effect: Vec<(String, &'static str)>,
    /// Keys that this server does not know.
    pub unknown: Vec<String>,
    /// Reasons why the settings are unusable, one line each.
    pub faults: Vec<String>,
}

/// The result of writing a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adoption {
    /// The file was written. In a dry run: it would be written.
    Written,
    /// No file was written, because the home already has the file. These keys have other values in that file.
    Left(Vec<String>),
}

/// Reads a settings file of Ant Media Server. `None` if the file does not exist.
///
/// # Errors
/// A disk error, or a syntax error.
pub fn read_foreign(path: &Path) -> Result<Option<Vec<Property>>, Error> {
    let Some(bytes) = read_limited(path)? else { return Ok(None) };
    // Java writes such files in Latin-1, with escapes for other characters.
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => error.into_bytes().into_iter().map(char::from).collect(),
    };
    let file = path.display().to_string();
    properties::parse(text.as_bytes()).map(Some).map_err(|(line, reason)| Error::Syntax {
        file,
        line,
        reason,
    })
}

impl Adopted {
    /// Sorts the settings of the server or an application by their use on this server.
    ///
    /// # Errors
    /// A fault of the command line or the environment.
    pub fn new(options: &Options, app: Option<&str>, properties: &[Property]) -> Result<Self, Error> {
        let level = level_of(app);
        let mut adopted = Self::default();
        for Property { key, value, .. } in properties {
            if PLUMBING.iter().any(|prefix| key.starts_with(prefix)) {
                continue;
            }
            let Some(known) = options.schema.find(level, key) else {
                adopted.unknown.push(printable(key));
                continue;
            };
            if value == known.default && !known.explicit {
                continue;
            }
            if known.effect == Effect::Foreign {
                adopted.without_effect.push((key.clone(), known.comment));
            }
            adopted.set.push((key.clone(), value.clone()));
        }
        adopted.faults = adopted.look_for_faults(options, app)?;
        Ok(adopted)
    }

    fn look_for_faults(&self, options: &Options, app: Option<&str>) -> Result<Vec<String>, Error> {
        let overlays = Overlays::of(options)?;
        let mut values = match app {
            Some(name) => overlays.defaults_of_app(options, name),
            None => Values::new(options.schema, Level::Server, "red5.properties"),
        };
        for (key, value) in &self.set {
            values.set(key, value.clone(), Origin::File);
        }
        Ok(if let Some(name) = app {
            overlay(&mut values, &overlays.environment.apps, &overlays.apps);
            all_faults(values, |values| AppSettings::from_values(name, 0, values).map(drop))
        } else {
            overlay(&mut values, &overlays.environment.server, &overlays.server);
            all_faults(values, |values| ServerSettings::from_values(options.cores, values).map(drop))
        })
    }

    /// Writes the settings file in one step, unless the home has one.
    ///
    /// # Errors
    /// A disk error.
    pub fn write(&self, options: &Options, app: Option<&str>, dry_run: bool) -> Result<Adoption, Error> {
        let path = match app {
            Some(name) => app_file(&options.home, name),
            None => server_file(&options.home),
        };
        if let Some(there) = read_foreign(&path)? {
            return Ok(Adoption::Left(self.differing(&there)));
        }
        if !dry_run {
            let keys = options.schema.keys(level_of(app));
            let title = app.map_or_else(
                || "Settings of the server".to_owned(),
                |name| format!("Settings of the application {name}"),
            );
            let folder = path.parent().unwrap_or(&path);
            make_dir(folder, 0o755)?;
            write_new(&path, &title, keys, |text| {
                let set: Vec<(&str, &str)> =
                    self.set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                properties::set_lines(text, &set)
            })?;
        }
        Ok(Adoption::Written)
    }

    /// Returns the keys of `set` whose value in an existing file differs or is missing.
    fn differing(&self, there: &[Property]) -> Vec<String> {
        let has = |key: &str, value: &str| there.iter().any(|found| found.key == key && found.value == value);
        self.set.iter().filter(|(key, value)| !has(key, value)).map(|(key, _)| key.clone()).collect()
    }
}

const fn level_of(app: Option<&str>) -> Level {
    if app.is_some() { Level::App } else { Level::Server }
}
