//! The list of applications that a home has had (`conf/applications.txt`), which distinguishes lost settings from
//! settings never made.
//!
//! An application is added when used, and removed when deleted through the API. A listed application whose settings
//! file is missing, empty or damaged is not started, since the defaults would lift its restrictions.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::home::{app_names, io_error, is_app_name};
use super::remarks::Remarks;
use super::{Error, Options};
use crate::disk::{self, SystemDisk};

const HEAD: &str = "# The applications of this home, kept by the server. One whose settings file is lost is not started;\n\
                    # without its line here it would be started with defaults.\n";
/// Longest list, in bytes: more than the list of all applications needs.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Facts about a home's earlier servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// True if the home has had a store.
    pub(super) used: bool,
    /// Names of the applications.
    pub(super) apps: BTreeSet<String>,
}

impl Known {
    /// Reads the list. If an older server, which kept no list, has used the home, returns the applications that it has
    /// started.
    pub(super) fn of(home: &Path) -> Result<Self, Error> {
        let path = list_file(home);
        let text = match fs::metadata(&path) {
            Ok(data) if data.len() > LIST_BYTES_MAX => {
                return Err(Error::Io { path: path.display().to_string(), reason: "too large".to_owned() });
            }
            Ok(_) => fs::read_to_string(&path).map_err(|error| io_error(&path, &error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::of_older(home),
            Err(error) => return Err(io_error(&path, &error)),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Self { used: true, apps: lines.map(str::to_owned).collect() })
    }

    fn of_older(home: &Path) -> Result<Self, Error> {
        if !home.join("data").join("store.lock").exists() {
            return Ok(Self::default());
        }
        let was_started = |name: &String| home.join("webapps").join(name).join("streams").is_dir();
        Ok(Self {
            used: true,
            apps: app_names(home, &mut Remarks::default())?.into_iter().filter(was_started).collect(),
        })
    }

    /// Returns the applications that have a folder. A listed application whose folder was removed by hand is not
    /// served, and gets a remark.
    pub(super) fn with_folders(&self, home: &Path, remarks: &mut Remarks) -> Result<Vec<String>, Error> {
        let mut names: BTreeSet<String> = app_names(home, remarks)?.into_iter().collect();
        for name in self.apps.iter().filter(|name| is_app_name(name)) {
            if home.join("webapps").join(name).is_dir() {
                names.insert(name.clone());
            } else {
                remarks.push(format!(
                    "application {name}: its folder is missing, and it is not started; take its line out of \
                     conf/applications.txt if it was removed on purpose"
                ));
            }
        }
        Ok(names.into_iter().collect())
    }

    fn write(&self, home: &Path) -> Result<(), Error> {
        let path = list_file(home);
        if path.exists() && Self::of(home)? == *self {
            return Ok(());
        }
        let names: String = self.apps.iter().map(|name| format!("{name}\n")).collect();
        disk::replace(&SystemDisk, &path, format!("{HEAD}{names}").as_bytes(), 0o600)
            .map_err(|error| io_error(&path, &error))
    }
}

fn list_file(home: &Path) -> PathBuf {
    home.join("conf").join("applications.txt")
}

/// Adds applications to the list.
///
/// # Errors
/// A disk error.
pub fn remember<'a>(options: &Options, apps: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut known = Known::of(&options.home)?;
    known.apps.extend(apps.into_iter().map(str::to_owned));
    known.write(&options.home)
}

/// Removes an application from the list.
///
/// # Errors
/// A disk error.
pub(super) fn forget(options: &Options, app: &str) -> Result<(), Error> {
    let mut known = Known::of(&options.home)?;
    known.apps.remove(app);
    known.write(&options.home)
}
