//! The folder of the old installation: its applications, their settings, and other files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::report::Report;
use crate::config::{self, Error, Property, is_app_name};

/// The application that contains the old panel.
const ROOT: &str = "root";
/// Folders of an application that do not hold pages.
const NOT_PAGES: [&str; 4] = ["WEB-INF", "META-INF", "streams", "previews"];
/// Extensions of files for Java servers.
const OF_JAVA: [&str; 6] = ["jsp", "jspx", "war", "jar", "class", "java"];
/// Files of the certificate. Each row has the key of the setting, and the default path.
const CERTIFICATE: [(&str, &str); 3] = [
    ("http.ssl_certificate_file", "conf/fullchain.pem"),
    ("http.ssl_certificate_chain_file", "conf/chain.pem"),
    ("http.ssl_certificate_key_file", "conf/privkey.pem"),
];

/// An application of the old installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OldApp {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) settings: Vec<Property>,
}

/// The old installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installation {
    pub(super) folder: PathBuf,
    pub(super) settings: Vec<Property>,
    pub(super) apps: Vec<OldApp>,
}

/// Returns the value of a key.
fn value<'a>(settings: &'a [Property], key: &str) -> Option<&'a str> {
    settings.iter().find(|property| property.key == key).map(|property| property.value.as_str())
}

impl OldApp {
    /// Returns the name of the application's database.
    pub(super) fn database(&self) -> String {
        let named = value(&self.settings, "db.name").filter(|name| !name.is_empty());
        named.map_or_else(|| self.name.to_lowercase(), str::to_owned)
    }

    /// Returns the type of the application's database.
    pub(super) fn database_kind(&self) -> &str {
        value(&self.settings, "db.type").filter(|kind| !kind.is_empty()).unwrap_or("mapdb")
    }
}

impl Installation {
    /// Reads the folder. Applications whose settings cannot be read are reported and skipped, because with default
    /// settings they would be unprotected.
    pub(super) fn read(folder: &Path, report: &mut Report) -> Result<Self, String> {
        let webapps = folder.join("webapps");
        let server_file = folder.join("conf").join("red5.properties");
        if !webapps.is_dir() && !server_file.is_file() {
            return Err(format!("{} has neither conf/red5.properties nor webapps", folder.display()));
        }
        let words = |error: Error| error.to_string();
        let settings = config::read_foreign(&server_file).map_err(words)?.unwrap_or_default();
        let mut apps = Vec::new();
        let mut names: Vec<_> = fs::read_dir(&webapps).into_iter().flatten().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let name = entry.file_name().to_string_lossy().into_owned();
            let folder = entry.path();
            let place = format!("webapps/{name}");
            if folder.is_file() && !folder.with_extension("").is_dir() {
                report.add("webapps", &name, "not unpacked: start the old server once, or unpack it");
            }
            if name == ROOT || !folder.join("WEB-INF").is_dir() {
                continue;
            }
            if !is_app_name(&name) {
                report.add("webapps", &name, "no name that an application can have here");
                continue;
            }
            match config::read_foreign(&folder.join("WEB-INF").join("red5-web.properties")) {
                Ok(settings) => apps.push(OldApp { name, folder, settings: settings.unwrap_or_default() }),
                Err(error) => report.add(&place, "settings", format!("the application is left out: {error}")),
            }
        }
        if apps.len() > config::APPS_MAX {
            return Err(format!("more than {} applications", config::APPS_MAX));
        }
        Ok(Self { folder: folder.to_owned(), settings, apps })
    }

    /// Returns those certificate files that exist and are named by a path relative to the installation.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        let named = CERTIFICATE.iter().map(|(key, default)| value(&self.settings, key).unwrap_or(default));
        let files: BTreeSet<PathBuf> = named
            .map(PathBuf::from)
            .filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))))
            .filter(|path| self.folder.join(path).is_file())
            .collect();
        files.into_iter().collect()
    }

    /// Reports files, other than settings, that cannot be imported.
    pub(super) fn list_leftovers(&self, report: &mut Report) {
        if self.certificate_files().is_empty() && self.folder.join("conf/keystore.jks").is_file() {
            let text =
                "a Java keystore: convert it (docs/import.md), or the server makes a certificate of its own";
            report.add("certificate", "conf/keystore.jks", text);
        }
        for entry in fs::read_dir(self.folder.join("plugins")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_plugin = name.ends_with(".jar");
            if is_plugin {
                report.add("plugins", &name, "plugins are Java: what it does is missing here");
            }
        }
    }
}

/// True if the file at this path in an application's folder belongs to a page.
pub(super) fn is_page(names: &[String]) -> bool {
    let first = names.first().map_or("", String::as_str);
    !NOT_PAGES.iter().any(|folder| folder.eq_ignore_ascii_case(first))
        && !names.iter().any(|name| name.starts_with('.'))
}

/// True if a file is useful only with Java.
pub(super) fn is_of_java(names: &[String]) -> bool {
    let ending = names.last().and_then(|name| name.rsplit_once('.')).map_or("", |(_, ending)| ending);
    OF_JAVA.iter().any(|known| known.eq_ignore_ascii_case(ending))
}
