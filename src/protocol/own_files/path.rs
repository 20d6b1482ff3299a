//! Paths of files below an application's `streams`, and the rule for those that may be a stream source.

use crate::auth::url::{URL_BYTES_MAX, UrlError};

/// The folder of all applications. `STREAMS` is the folder of an application's recordings and uploads.
const WEBAPPS: &str = "webapps";
const STREAMS: &str = "streams";
/// Extensions of playable files: the containers that can also be read from an HTTP response.
const ENDINGS: [&str; 3] = ["mp4", "flv", "ts"];
/// Maximum number of names below `streams`, including the file's.
const NAMES_MAX: usize = 16;
/// The error for a file of another application, which is never read.
const WRONG_APP: UrlError = UrlError::Unsupported("Only files of the same application can be played");
const NO_FILE: UrlError =
    UrlError::Unsupported("A path leads to an MP4, FLV or MPEG-TS file below the streams of the application");

/// The path of a file below `streams`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::protocol) struct OwnPath {
    /// The application of the file; `None` if it is that of the stream which plays the file.
    app: Option<String>,
    /// The names below `streams`.
    names: Vec<String>,
}

impl OwnPath {
    /// True if a text looks like a path of this kind, not like a URL.
    pub(in crate::protocol) fn is_meant(text: &str) -> bool {
        !text.contains("://") && (behind_streams(text).is_some() || behind_webapps(text).is_some())
    }

    /// Parses `streams/a.mp4`, `webapps/live/streams/a.mp4`, or the latter as an absolute path. Everything before
    /// `webapps` is taken for the home folder of the server.
    pub(in crate::protocol) fn read(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(UrlError::Character);
        }
        if let Some(names) = behind_streams(text) {
            return Self::of(None, names);
        }
        Self::below_webapps(behind_webapps(text).ok_or(UrlError::Scheme)?).ok_or(NO_FILE)?
    }

    /// Parses a path that begins with an application, like that of a URL. `None` if it does not lead below its
    /// `streams`.
    pub(in crate::protocol) fn below_webapps(path: &str) -> Option<Result<Self, UrlError>> {
        let (app, rest) = path.split_once('/')?;
        Some(Self::of(Some(app.to_owned()), behind_streams(rest)?))
    }

    fn of(app: Option<String>, names: &str) -> Result<Self, UrlError> {
        let names: Vec<String> = names.split('/').map(str::to_owned).collect();
        let is_hidden = |name: &String| name.is_empty() || name.starts_with('.');
        let ending = names.last().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
        let is_media =
            ending.is_some_and(|of_file| ENDINGS.iter().any(|one| of_file.eq_ignore_ascii_case(one)));
        if names.len() > NAMES_MAX || names.iter().any(is_hidden) || !is_media {
            return Err(NO_FILE);
        }
        Ok(Self { app, names })
    }

    /// Returns the names below `webapps`, for a stream of this application.
    pub(in crate::protocol) fn names_for(self, app: &str) -> Result<Vec<String>, UrlError> {
        if self.app.is_some_and(|of_path| of_path != app) {
            return Err(WRONG_APP);
        }
        Ok([app.to_owned(), STREAMS.to_owned()].into_iter().chain(self.names).collect())
    }
}

fn behind_streams(path: &str) -> Option<&str> {
    path.strip_prefix(STREAMS)?.strip_prefix('/')
}

fn behind_webapps(path: &str) -> Option<&str> {
    let at = if path.starts_with('/') { path.find("/webapps/")?.checked_add(1)? } else { 0 };
    path.get(at..)?.strip_prefix(WEBAPPS)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, UrlError> {
        OwnPath::read(text)?.names_for("live").map(|names| names.join("/"))
    }

    #[test]
    fn a_path_leads_below_the_streams_of_its_application() {
        for (text, wanted) in [
            ("streams/a.mp4", "live/streams/a.mp4"),
            ("streams/2026/my film.MP4", "live/streams/2026/my film.MP4"),
            ("webapps/live/streams/a.ts", "live/streams/a.ts"),
            ("/usr/local/home/webapps/live/streams/a.flv", "live/streams/a.flv"),
            ("streams/webapps/x/streams/a.mp4", "live/streams/webapps/x/streams/a.mp4"),
        ] {
            assert!(OwnPath::is_meant(text));
            assert_eq!(read(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn u_30_a_path_leads_nowhere_else() {
        for text in [
            "streams/../x.mp4",
            "streams/a/../../x.mp4",
            "streams/./x.mp4",
            "streams//x.mp4",
            "streams/",
            "streams/.x.mp4",
            "streams/.git/x.mp4",
            "streams/x",
            "streams/x.properties",
            "streams/x.mp4.tmp_extension",
            "streams/x\0.mp4",
            "streams/x\n.mp4",
            "webapps/live/WEB-INF/x.mp4",
            "webapps/live/x.mp4",
            "webapps/../live/streams/x.mp4",
            "webapps/live/../live/streams/x.mp4",
            "/etc/x.mp4",
            "/webapps/x.mp4",
            "/etc/passwd",
            "x.mp4",
            "",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&format!("streams/{}a.mp4", "a/".repeat(NAMES_MAX))).is_err());
        assert_eq!(read(&format!("streams/{}.mp4", "a".repeat(URL_BYTES_MAX))), Err(UrlError::TooLong));
        assert_eq!(read("webapps/other/streams/a.mp4"), Err(WRONG_APP));
        assert_eq!(read("/home/webapps/other/streams/a.mp4"), Err(WRONG_APP));
        assert!(
            !OwnPath::is_meant("http://h/webapps/live/streams/a.mp4") && !OwnPath::is_meant("/etc/passwd")
        );
    }
}
