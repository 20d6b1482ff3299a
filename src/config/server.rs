//! Settings of the server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Error;
use super::cluster::ClusterSettings;
use super::values::{Origin, Values};
use super::{Extensions, Level, Schema};
use crate::auth::access::Trust;
use crate::auth::jwt::SECRET_BYTES_MIN;
use crate::auth::{CidrList, HookUrl};

/// Maximum number of names in `server.name`.
const NAMES_MAX: usize = 64;

/// The settings `limits.*`. Each field is a maximum, unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Broadcast records of all applications.
    pub broadcasts: usize,
    /// Restreaming endpoints of one broadcast.
    pub endpoints: usize,
    /// Stream sources running at a time.
    pub pulls: usize,
    /// Open connections.
    pub connections: usize,
    /// Unauthenticated connections per address.
    pub connections_per_address: usize,
    /// Authenticated connections per address, by publishers, viewers and logins; 0: a share of all connections.
    pub authenticated_per_address: usize,
    /// Live streams per publisher address.
    pub publishers_per_address: usize,
    /// Bytes retained by all rings; 0: a share of the memory.
    pub ring_memory: usize,
    /// Bytes of all segments and playlists in memory; 0: a share of the memory.
    pub segment_memory: usize,
    /// Unauthenticated connections in total.
    pub unauthenticated: usize,
    /// New unauthenticated connections per address and second.
    pub new_connections_per_second: u32,
    /// Burst of new unauthenticated connections allowed above the rate.
    pub new_connections_burst: u32,
    /// True if loopback addresses are exempt from limits per address.
    pub exempt_loopback: bool,
}

/// Rules for outgoing connections to addresses that were named by anyone but the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboundRules {
    /// `outbound.deny`.
    pub deny: CidrList,
    /// True if `outbound.preset` is `public`.
    pub public_only: bool,
}

/// Addresses with access to the dashboard and to metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doors {
    /// `server.allowed_dashboard_CIDR`.
    pub dashboard: CidrList,
    /// True if the operator set `server.allowed_dashboard_CIDR`.
    pub dashboard_explicit: bool,
    /// `server.first_user_code`: creating the first user needs the code in the log.
    pub first_user_code: bool,
    /// `metrics.allowed_CIDR`: addresses that may read metrics without a login.
    pub metrics: CidrList,
}

/// Schedule of store backups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupSettings {
    /// `store.backup_hours`: interval between backups; zero: never.
    pub every: Duration,
    /// `store.backups_kept`: number of backups kept; 0: all.
    pub kept: usize,
}

/// Settings of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// `logLevel` in lower case, as tracing names it.
    pub level: &'static str,
    /// True if `logFormat` is `json`.
    pub json: bool,
    /// `auditLog`: whether the audit log is written.
    pub audit: bool,
}

/// The parsed settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// `server.host`: address for listeners that have no address of their own; `None`: all addresses.
    pub host: Option<IpAddr>,
    /// `http.host` or `server.host`; `None`: all addresses, IPv4 and IPv6.
    pub http_host: Option<IpAddr>,
    /// `server.name`: names of this server; the first is used in public.
    pub names: Vec<String>,
    /// `http.port`; 0: any free port.
    pub http_port: u16,
    /// `https.port`, unless `https.enabled` is off; 0: any free port.
    pub https_port: Option<u16>,
    /// Settings of the protocols.
    pub protocols: Extensions,
    /// `http.ssl_certificate_file`, within the home folder unless it is absolute.
    pub certificate_file: PathBuf,
    /// `http.ssl_certificate_chain_file`, within the home folder unless it is absolute.
    pub certificate_chain_file: PathBuf,
    /// `http.ssl_certificate_key_file`, within the home folder unless it is absolute.
    pub certificate_key_file: PathBuf,
    /// `server.workers`, at least 1.
    pub workers: u16,
    /// `server.cpu_limit` in percent; 100: off.
    pub cpu_limit: u8,
    /// `server.memory_limit_percentage`; 100: off.
    pub memory_limit: u8,
    /// `server.trusted_proxies`; empty: none.
    pub trusted_proxies: CidrList,
    /// `server.cors_origins`; empty: none.
    pub cors_origins: Vec<String>,
    /// Rules for outgoing connections to addresses that were named by anyone but the operator.
    pub outbound: OutboundRules,
    /// Addresses with access to the dashboard and to metrics.
    pub doors: Doors,
    /// Key material for tokens of the management API (`server.jwtServerControlEnabled`): the key set at
    /// `server.jwksURL`, or else `server.jwtServerSecretKey`.
    pub management_trust: Option<Trust>,
    /// The settings `limits.*`.
    pub limits: Limits,
    /// Settings of the log.
    pub log: LogSettings,
    /// `server.statusWebHookURL`; `None` when empty.
    pub status_hook: Option<HookUrl>,
    /// `metrics.per_stream`.
    pub metrics_per_stream: bool,
    /// Every key with its value as text, including the settings parsed above.
    pub values: Values,
}

impl ServerSettings {
    /// Parses the values; `cores` is the default of `server.workers`.
    ///
    /// # Errors
    /// The first value that does not fit its key.
    pub fn from_values(cores: u16, values: Values) -> Result<Self, Error> {
        values.port("server.origin_port")?;
        let workers = match values.text("server.workers") {
            "" => cores.max(1),
            _ => values.number("server.workers", 1, 1024)?,
        };
        if folders(&values).any(|folder| folder.iter().any(|part| part == "..")) {
            return Err(values.bad("vod.import_folders", "must be paths of folders, without .."));
        }
        if PathBuf::from(values.text("http.acme_folder")).iter().any(|part| part == "..") {
            return Err(values.bad("http.acme_folder", "must be the path of a folder, without .."));
        }
        Ok(Self {
            host: values.host("server.host")?,
            http_host: values.host("http.host")?,
            names: names(&values)?,
            http_port: values.port("http.port")?,
            https_port: values.boolean("https.enabled")?.then_some(values.port("https.port")?),
            protocols: values.extensions()?,
            certificate_file: values.text("http.ssl_certificate_file").into(),
            certificate_chain_file: values.text("http.ssl_certificate_chain_file").into(),
            certificate_key_file: values.text("http.ssl_certificate_key_file").into(),
            workers,
            cpu_limit: values.number("server.cpu_limit", 1, 100)?,
            memory_limit: values.number("server.memory_limit_percentage", 1, 100)?,
            trusted_proxies: values.rules("server.trusted_proxies")?,
            cors_origins: origins(&values)?,
            outbound: OutboundRules { deny: values.rules("outbound.deny")?, public_only: preset(&values)? },
            doors: Doors {
                dashboard: values.rules("server.allowed_dashboard_CIDR")?,
                dashboard_explicit: values.origin("server.allowed_dashboard_CIDR") != Origin::Default,
                first_user_code: values.boolean("server.first_user_code")?,
                metrics: values.rules("metrics.allowed_CIDR")?,
            },
            management_trust: management_trust(&values)?,
            limits: limits(&values)?,
            log: LogSettings {
                level: log_level(&values)?,
                json: log_json(&values)?,
                audit: values.boolean("auditLog")?,
            },
            status_hook: status_hook(&values)?,
            metrics_per_stream: values.boolean("metrics.per_stream")?,
            values: backups(&values)
                .and_then(|_| linger(&values))
                .and_then(|_| drain_limit(&values))
                .and_then(|_| ClusterSettings::of(&values))
                .map(|_| values)?,
        })
    }

    /// Returns the public name; empty if none is set.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Returns `store.backup_hours` and `store.backups_kept`.
    #[must_use]
    pub fn backups(&self) -> BackupSettings {
        backups(&self.values).unwrap_or_default()
    }

    /// Returns `cluster.*`; `None` without a cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterSettings> {
        ClusterSettings::of(&self.values).ok().flatten()
    }

    /// Returns `http.acme_folder`: the webroot of an ACME client, relative to the home unless absolute.
    #[must_use]
    pub fn acme_folder(&self) -> Option<PathBuf> {
        Some(self.values.text("http.acme_folder")).filter(|folder| !folder.is_empty()).map(PathBuf::from)
    }

    /// Returns `vod.import_folders`: folders that may be imported, with all folders below them; relative to the home
    /// unless absolute.
    pub fn import_folders(&self) -> impl Iterator<Item = PathBuf> {
        folders(&self.values)
    }

    /// Returns `edge.origins`: URLs for fetching streams that are not live here, with `{app}` and `{id}`.
    pub fn edge_origins(&self) -> impl Iterator<Item = &str> {
        self.values.text("edge.origins").split(',').map(str::trim).filter(|url| !url.is_empty())
    }

    /// Returns `edge.linger`: how long a fetched stream stays without viewers.
    #[must_use]
    pub fn edge_linger(&self) -> Duration {
        linger(&self.values).unwrap_or_default()
    }

    /// Returns `server.drain_limit`: how long a drain waits for sessions to end; `None`: for ever.
    #[must_use]
    pub fn drain_limit(&self) -> Option<Duration> {
        drain_limit(&self.values).unwrap_or_default()
    }

    /// Returns the defaults with some keys changed and one worker; for tests and simulations.
    ///
    /// # Errors
    /// The first value that does not fit its key.
    pub fn with(settings: &[(&str, &str)]) -> Result<Self, Error> {
        Self::of(Default::default(), settings)
    }

    /// Like [`Self::with`], including the keys of protocols.
    ///
    /// # Errors
    /// The first value that does not fit its key.
    pub fn of(schema: &'static Schema, settings: &[(&str, &str)]) -> Result<Self, Error> {
        let mut values = Values::new(schema, Level::Server, "defaults");
        for (key, value) in settings {
            values.set(key, (*value).to_owned(), Origin::Set);
        }
        Self::from_values(1, values)
    }
}

/// Parses `edge.linger`.
fn linger(values: &Values) -> Result<Duration, Error> {
    Ok(Duration::from_secs(values.number("edge.linger", 1, 86_400)?))
}

/// Parses `server.drain_limit`.
fn drain_limit(values: &Values) -> Result<Option<Duration>, Error> {
    let seconds = values.number("server.drain_limit", 0, 604_800)?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

fn limits(values: &Values) -> Result<Limits, Error> {
    Ok(Limits {
        broadcasts: values.number("limits.broadcasts", 1, 10_000_000)?,
        endpoints: values.number("limits.endpoints", 0, 1000)?,
        pulls: values.number("limits.pulls", 0, 100_000)?,
        connections: values.number("limits.connections", 1, 10_000_000)?,
        authenticated_per_address: values.number("limits.authenticated_per_address", 0, 10_000_000)?,
        publishers_per_address: values.number("limits.publishers_per_address", 1, 1_000_000)?,
        ring_memory: values.number("limits.ring_memory", 0usize, 16 << 20)?.saturating_mul(1 << 20),
        segment_memory: values.number("limits.segment_memory", 0usize, 16 << 20)?.saturating_mul(1 << 20),
        connections_per_address: values.number("limits.connections_per_address", 1, 10_000_000)?,
        unauthenticated: values.number("limits.unauthenticated", 1, 10_000_000)?,
        new_connections_per_second: values.number("limits.new_connections_per_second", 1, 1_000_000)?,
        new_connections_burst: values.number("limits.new_connections_burst", 1, 1_000_000)?,
        exempt_loopback: values.boolean("limits.exempt_loopback")?,
    })
}

fn backups(values: &Values) -> Result<BackupSettings, Error> {
    let hours: u64 = values.number("store.backup_hours", 0, 10_000)?;
    let every = Duration::from_secs(hours.saturating_mul(3600));
    Ok(BackupSettings { every, kept: values.number("store.backups_kept", 0, 10_000)? })
}

fn folders(values: &Values) -> impl Iterator<Item = PathBuf> {
    let named = values.text("vod.import_folders").split(',').map(str::trim);
    named.filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn names(values: &Values) -> Result<Vec<String>, Error> {
    let names = values.text("server.name").split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    let is_name = |name: &String| {
        name.len() <= 253 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
    };
    if names.len() <= NAMES_MAX && names.iter().all(is_name) {
        Ok(names)
    } else {
        Err(values.bad("server.name", "must be host names with commas between"))
    }
}

fn origins(values: &Values) -> Result<Vec<String>, Error> {
    let named = values.text("server.cors_origins").split(',').map(str::trim).filter(|name| !name.is_empty());
    let named: Vec<String> = named.map(str::to_owned).collect();
    let is_nobodys = |name: &str| name == "null" || name.starts_with("file:");
    if named.iter().all(|name| !is_nobodys(name) && crate::http::cors::is_origin(name)) {
        Ok(named)
    } else {
        Err(values.bad("server.cors_origins", "must be origins like https://panel.example:8443"))
    }
}

fn preset(values: &Values) -> Result<bool, Error> {
    match values.text("outbound.preset") {
        "" => Ok(false),
        "public" => Ok(true),
        _ => Err(values.bad("outbound.preset", "must be public or empty")),
    }
}

fn log_json(values: &Values) -> Result<bool, Error> {
    match values.text("logFormat") {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err(values.bad("logFormat", "must be text or json")),
    }
}

fn management_trust(values: &Values) -> Result<Option<Trust>, Error> {
    let keys = url(values, "server.jwksURL")?;
    if !values.boolean("server.jwtServerControlEnabled")? {
        return Ok(None);
    }
    match keys {
        Some(url) => Ok(Some(Trust::Keys(url))),
        None => {
            let secret = values.secret("server.jwtServerSecretKey", SECRET_BYTES_MIN)?;
            Ok(Some(Trust::Secret(secret)))
        }
    }
}

fn status_hook(values: &Values) -> Result<Option<HookUrl>, Error> {
    url(values, "server.statusWebHookURL")
}

/// Parses a URL; `None` if the value is empty.
fn url(values: &Values, key: &str) -> Result<Option<HookUrl>, Error> {
    match values.text(key).trim() {
        "" => Ok(None),
        text => HookUrl::parse(text).map(Some).map_err(|error| values.bad(key, error.to_string())),
    }
}

fn log_level(values: &Values) -> Result<&'static str, Error> {
    let text = values.text("logLevel").to_ascii_lowercase();
    let known = ["off", "error", "warn", "info", "debug", "trace"].into_iter().find(|l| *l == text);
    known.ok_or_else(|| values.bad("logLevel", "must be OFF, ERROR, WARN, INFO, DEBUG or TRACE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_documents() {
        let server = ServerSettings::with(&[]).unwrap();
        assert_eq!((server.http_port, server.https_port), (5080, Some(5443)));
        assert_eq!((server.cpu_limit, server.memory_limit, server.workers), (95, 75, 1));
        assert_eq!((server.limits.broadcasts, server.limits.endpoints), (100_000, 16));
        assert_eq!((server.http_host, server.log.level), (None, "info"));
        assert!(server.trusted_proxies.is_empty());
    }

    #[test]
    fn the_server_may_have_several_names() {
        let names = |text| ServerSettings::with(&[("server.name", text)]).unwrap().names;
        assert_eq!(names(""), [""; 0]);
        assert_eq!(names("a.example"), ["a.example"]);
        assert_eq!(names("a.example, b.example,[fd00::1],"), ["a.example", "b.example", "[fd00::1]"]);
        assert_eq!(ServerSettings::with(&[("server.name", "a,b")]).unwrap().name(), "a");
        assert!(ServerSettings::with(&[("server.name", &"a,".repeat(65))]).is_err());
    }

    #[test]
    fn one_host_for_all_and_each_its_own() {
        let host = |settings: &[_]| ServerSettings::with(settings).unwrap().http_host;
        assert_eq!(host(&[("server.host", "127.0.0.1")]), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(host(&[("server.host", "127.0.0.1"), ("http.host", "::")]), Some("::".parse().unwrap()));
    }

    #[test]
    fn what_is_set_is_read() {
        let with = |key, value| ServerSettings::with(&[(key, value)]).unwrap();
        assert_eq!(with("https.enabled", "false").https_port, None);
        assert_eq!(with("https.port", "0").https_port, Some(0));
        assert_eq!(with("http.ssl_certificate_file", "a.pem").certificate_file, PathBuf::from("a.pem"));
        let chain = with("http.ssl_certificate_chain_file", "b.pem").certificate_chain_file;
        assert_eq!(chain, PathBuf::from("b.pem"));
        assert_eq!(
            with("http.ssl_certificate_key_file", "c.pem").certificate_key_file,
            PathBuf::from("c.pem")
        );
        assert_eq!(with("limits.ring_memory", "3").limits.ring_memory, 3 << 20);
        assert_eq!(with("limits.segment_memory", "3").limits.segment_memory, 3 << 20);
        assert!(with("outbound.preset", "public").outbound.public_only);
        assert!(with("server.trusted_proxies", "10.0.0.0/8").trusted_proxies.contains([10, 0, 0, 1].into()));
    }

    #[test]
    fn r_06_a_short_secret_and_a_key_set_are_refused_by_name() {
        let on = ("server.jwtServerControlEnabled", "true");
        let with = |secret: &str| ServerSettings::with(&[on, ("server.jwtServerSecretKey", secret)]);
        for secret in ["", "canary-canary-canary-canary-031"] {
            let error = with(secret).unwrap_err().to_string();
            assert!(error.starts_with("server.jwtServerSecretKey") && !error.contains("canary"), "{error}");
        }
        let long = "canary-canary-canary-canary-0032";
        let server = with(long).unwrap();
        let Some(Trust::Secret(secret)) = &server.management_trust else { panic!("no secret") };
        assert_eq!(secret.reveal(), long);
        assert!(!format!("{server:?}").contains("canary"));
        // While the feature is off, the secret may have any value.
        assert!(
            ServerSettings::with(&[("server.jwtServerSecretKey", "x")]).unwrap().management_trust.is_none()
        );
        let keys =
            ServerSettings::with(&[on, ("server.jwksURL", "https://h/keys")]).unwrap().management_trust;
        assert_eq!(keys.as_ref().and_then(Trust::keys).map(HookUrl::as_str), Some("https://h/keys"));
        let error = ServerSettings::with(&[("server.jwksURL", "file:///etc/keys")]).unwrap_err().to_string();
        assert!(error.starts_with("server.jwksURL"), "{error}");
    }

    #[test]
    fn c_03_bad_values_name_the_key() {
        for (key, value) in [
            ("http.port", "65536"),
            ("https.port", "-1"),
            ("server.origin_port", ""),
            ("server.host", "localhost"),
            ("server.workers", "0"),
            ("server.cpu_limit", "101"),
            ("server.trusted_proxies", "10.0.0.0/33"),
            ("outbound.deny", "1.2.3"),
            ("server.name", "a b"),
            ("outbound.preset", "private"),
            ("vod.import_folders", "/media,x/../y"),
            ("server.cors_origins", "*"),
            ("server.cors_origins", "panel.example"),
            ("server.cors_origins", "file://"),
            ("logLevel", "LOUD"),
            ("logFormat", "xml"),
            ("limits.broadcasts", "x"),
        ] {
            let error = ServerSettings::with(&[(key, value)]).unwrap_err().to_string();
            assert!(error.starts_with(key) && !error.contains('\n'), "{error}");
        }
    }
}
