//! HTTP settings. Of the server: whether HTTP/2 is supported. Of an application: how viewers that watch by separate
//! requests are identified, and cache directives.

use crate::config::group::{HLS, HTTP};
use crate::config::{AppSettings, Error, Extensions, Key, Section, Values, key};
use crate::mail::SessionSettings;

const SERVER: &[Key] = &[
    key(
        HTTP,
        "http2.enabled",
        "true",
        "Offer HTTP/2",
        "HTTP/2 on the HTTPS port, for clients that offer it in ALPN",
    ),
    key(
        HTTP,
        "http.shared_ports",
        "false",
        "Other protocols on HTTP ports",
        "Also accepts the other TCP protocols on the HTTP port and, with TLS, on the HTTPS port: for clients whose firewall allows no other port",
    ),
];

const APP: &[Key] = &[
    key(
        HLS,
        "hls.identifyViewers",
        "none",
        "How viewers are counted",
        "How viewers of HLS and DASH are told apart: cookie, query (parameter viewer), or none (by address, user agent and CMCD session)",
    ),
    key(
        HLS,
        "hls.playlistCacheControl",
        "no-cache",
        "Caching of playlists",
        "Cache-Control of playlists and manifests",
    ),
    key(
        HLS,
        "hls.reloadCacheControl",
        "max-age=12",
        "Caching of blocking reloads",
        "Cache-Control of playlists requested for a future segment, whose content is the same for all; not used if viewers are checked",
    ),
    key(
        HLS,
        "hls.segmentCacheControl",
        "max-age=10",
        "Caching of segments",
        "Cache-Control of segments and parts",
    ),
];

/// The [`crate::config::Section`] of these settings.
pub(super) static SECTION: Section = Section {
    server: SERVER,
    app: APP,
    read_server: |values| {
        Ok(Extensions::of(ServerHttp {
            http2: values.boolean("http2.enabled")?,
            shared_ports: values.boolean("http.shared_ports")?,
        }))
    },
    read_app: |values| Ok(Extensions::of(PolledSettings::read(values)?)),
    ..Section::NONE
};

/// The settings of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerHttp {
    /// `http2.enabled`.
    http2: bool,
    /// `http.shared_ports`.
    shared_ports: bool,
}

/// True if HTTP/2 is offered over TLS.
#[must_use]
pub fn speaks_http2(server: &SessionSettings) -> bool {
    server.protocols.get::<ServerHttp>().is_none_or(|settings| settings.http2)
}

/// True if the HTTP ports also accept other protocols.
pub(super) fn shares_ports(server: &SessionSettings) -> bool {
    server.protocols.get::<ServerHttp>().is_some_and(|settings| settings.shared_ports)
}

/// The way in which viewers without credentials are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::protocol) enum Identify {
    /// By a cookie set with their first playlist.
    Cookie,
    /// By the parameter [`VIEWER`] of the request. Playlists repeat it in their URLs.
    Query,
    /// By address, user agent, and the session id that players send.
    Plain,
}

/// Name of the parameter of [`Identify::Query`].
pub(in crate::protocol) const VIEWER: &str = "viewer";

/// An application's settings for viewers that watch by separate requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::protocol) struct PolledSettings {
    /// `hls.identifyViewers`.
    pub(in crate::protocol) identify: Identify,
    /// `hls.playlistCacheControl`.
    pub(super) playlists: String,
    /// `hls.reloadCacheControl`.
    pub(super) reloads: String,
    /// `hls.segmentCacheControl`.
    pub(super) segments: String,
}

static DEFAULTS: std::sync::LazyLock<PolledSettings> = std::sync::LazyLock::new(|| PolledSettings {
    identify: Identify::Plain,
    playlists: "no-cache".to_owned(),
    reloads: "max-age=12".to_owned(),
    segments: "max-age=10".to_owned(),
});

impl PolledSettings {
    pub(in crate::protocol) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let identify = match values.text("hls.identifyViewers").trim() {
            "cookie" => Identify::Cookie,
            "query" => Identify::Query,
            "none" | "" => Identify::Plain,
            _ => return Err(values.bad("hls.identifyViewers", "must be cookie, query or none")),
        };
        let caching = |key| {
            let text = values.text(key).trim();
            let is_value = text.len() <= 256 && text.bytes().all(|b| (0x20..0x7f).contains(&b));
            if is_value {
                Ok(text.to_owned())
            } else {
                Err(values.bad(key, "must be a value of Cache-Control"))
            }
        };
        Ok(Self {
            identify,
            playlists: caching("hls.playlistCacheControl")?,
            reloads: caching("hls.reloadCacheControl")?,
            segments: caching("hls.segmentCacheControl")?,
        })
    }

    /// Returns the parameter that identifies the viewer, if it is valid.
    pub(in crate::protocol) fn viewer_of<'q>(&self, query: &'q [(String, String)]) -> Option<&'q str> {
        let value = query.iter().find(|(name, _)| name == VIEWER).map(|(_, value)| value.as_str());
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let fits = |value: &&str| (1..=64).contains(&value.len()) && value.chars().all(is_name);
        value.filter(fits).filter(|_| self.identify == Identify::Query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn what_nobody_has_set_is_what_the_keys_default_to() {
        let app = AppSettings::of(schema(), "a", &[]).unwrap();
        assert_eq!(app.protocols.get::<PolledSettings>(), Some(&*DEFAULTS));
        for (key, value) in [
            ("hls.identifyViewers", "ip"),
            ("hls.playlistCacheControl", "a\r\nb"),
            ("hls.segmentCacheControl", "é"),
        ] {
            let error = AppSettings::of(schema(), "a", &[(key, value)]).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn a_parameter_tells_viewers_apart_only_where_the_application_says_so() {
        let query = |value: &str| vec![(VIEWER.to_owned(), value.to_owned())];
        let of = |settings: &[(&str, &str)], value: &str| {
            let app = AppSettings::of(schema(), "a", settings).unwrap();
            PolledSettings::of(&app).viewer_of(&query(value)).map(str::to_owned)
        };
        let on = [("hls.identifyViewers", "query")];
        assert_eq!(of(&on, "a-1").as_deref(), Some("a-1"));
        assert_eq!(
            (of(&[], "a-1"), of(&on, ""), of(&on, "a&b"), of(&on, &"x".repeat(65))),
            (None, None, None, None)
        );
    }
}
