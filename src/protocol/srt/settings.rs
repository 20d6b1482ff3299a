//! Settings: `srt.*` of the server, `srt*` of an application.

use std::net::IpAddr;
use std::time::Duration;

use ::srt::PacketFilter;

use super::url::PASSPHRASE_BYTES;
use crate::auth::access::Secret;
use crate::config::{
    AppSettings, Error, Extensions, Group, Key, Origin, Section, ServerSettings, Values, explicit, key,
    secret,
};
use crate::mail::SessionSettings;
use crate::protocol::row::Bind;

/// SRT.
const SRT: Group = Group::new("srt");

const SERVER: &[Key] = &[
    key(SRT, "srt.enabled", "true", "Offer SRT", "Enables the port for publishers and viewers over SRT"),
    key(SRT, "srt.host", "", "Address of SRT", "Address of the SRT port; empty: server.host"),
    key(SRT, "server.srt_port", "4200", "SRT port", "SRT port (UDP); 0: any free one"),
    secret(
        SRT,
        "srt.passphrase",
        "",
        "Passphrase of the server",
        "SRT passphrase, 10 to 80 characters; empty: none",
    ),
    key(
        SRT,
        "srt.pbkeylen",
        "16",
        "Encryption key length",
        "Key length in bytes of outgoing SRT connections with a passphrase: 16, 24 or 32",
    ),
    key(
        SRT,
        "srt.latency_ms",
        "120",
        "Latency of the server",
        "SRT latency in milliseconds; the peer may request more",
    ),
    key(
        SRT,
        "srt.latency_max_ms",
        "8000",
        "Highest latency for a peer",
        "Highest latency that a peer may request, in milliseconds",
    ),
    key(
        SRT,
        "srt.packet_filter",
        "any",
        "Forward error correction",
        "Forward error correction of SRT: off, any (as the caller requests), or a configuration such as fec,cols:10,rows:5",
    ),
    key(
        SRT,
        "appIngestsSrtStreamsWithoutStreamId",
        "LiveApp",
        "Application without a stream id",
        "Application that receives SRT streams without a stream id",
    ),
];

const APP: &[Key] = &[
    secret(
        SRT,
        "srtPassphrase",
        "",
        "SRT passphrase",
        "SRT passphrase of this application; empty: as srt.passphrase",
    ),
    key(SRT, "srtPlaybackEnabled", "true", "Playback over SRT", "Viewers may play over SRT"),
    explicit(
        SRT,
        "srtReceiveLatencyInMs",
        "150",
        "SRT latency",
        "SRT latency of this application in milliseconds; unset: as srt.latency_ms",
    ),
];

/// Maximum latency in milliseconds; the handshake has 16 bits for it (draft-sharabayko-srt-01 §3.2.1.1).
const LATENCY_MS_MAX: u64 = 65_535;

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    app: APP,
    places: &[("srtReceiveLatencyInMs", "dropWebRTCIngestIfNoPacketReceived")],
    read_server: |values| Ok(Extensions::of(SrtSettings::read(values)?)),
    read_app: |values| Ok(Extensions::of(SrtAppSettings::read(values)?)),
};

/// The SRT settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SrtSettings {
    /// `srt.host`, else `server.host`; `None` for every address, IPv4 and IPv6.
    pub(crate) host: Option<IpAddr>,
    /// `server.srt_port`, unless `srt.enabled` is off.
    pub(crate) port: Option<u16>,
    /// `srt.passphrase`.
    pub(crate) passphrase: Option<Secret>,
    /// `srt.pbkeylen`: length in bytes of the keys that this side makes.
    pub(crate) key_bytes: u8,
    /// `srt.latency_ms`.
    pub(crate) latency: Duration,
    /// `srt.latency_max_ms`.
    pub(crate) latency_max: Duration,
    /// `srt.packet_filter`.
    pub(crate) packet_filter: PacketFilter,
    /// `appIngestsSrtStreamsWithoutStreamId`; empty to refuse such callers.
    pub(crate) default_app: String,
}

/// The settings if nothing was configured: the defaults of the keys, and no application for callers without a stream
/// id.
static DEFAULTS: SrtSettings = SrtSettings {
    host: None,
    port: None,
    passphrase: None,
    key_bytes: 16,
    latency: Duration::from_millis(120),
    latency_max: Duration::from_secs(8),
    packet_filter: PacketFilter::Any,
    default_app: String::new(),
};

impl SrtSettings {
    /// Returns the SRT part of the session settings, or the defaults.
    pub(super) fn of(settings: &SessionSettings) -> &Self {
        settings.protocols.get().unwrap_or(&DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let millis = |key| values.number(key, 0u64, LATENCY_MS_MAX).map(Duration::from_millis);
        let key_bytes = match values.text("srt.pbkeylen") {
            "16" => 16,
            "24" => 24,
            "32" => 32,
            _ => return Err(values.bad("srt.pbkeylen", "must be 16, 24 or 32")),
        };
        Ok(Self {
            host: values.host("srt.host")?,
            port: values.boolean("srt.enabled")?.then_some(values.port("server.srt_port")?),
            passphrase: passphrase(values, "srt.passphrase")?,
            key_bytes,
            latency: millis("srt.latency_ms")?,
            latency_max: millis("srt.latency_max_ms")?,
            packet_filter: packet_filter(values)?,
            default_app: values.text("appIngestsSrtStreamsWithoutStreamId").trim().to_owned(),
        })
    }
}

impl Default for SrtSettings {
    fn default() -> Self {
        DEFAULTS.clone()
    }
}

/// Returns the address to listen on for SRT, if enabled.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    server
        .protocols
        .get::<SrtSettings>()
        .and_then(|settings| Some(Bind { host: settings.host, port: settings.port?, key: "server.srt_port" }))
}

/// The SRT settings of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SrtAppSettings {
    /// `srtPlaybackEnabled`.
    playback: bool,
    /// `srtReceiveLatencyInMs`, if the operator has set it: used instead of `srt.latency_ms`.
    pub(super) latency: Option<Duration>,
    /// `srtPassphrase`: used instead of `srt.passphrase`.
    pub(super) passphrase: Option<Secret>,
}

static APP_DEFAULTS: SrtAppSettings = SrtAppSettings { playback: true, latency: None, passphrase: None };

impl SrtAppSettings {
    pub(super) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&APP_DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let key = "srtReceiveLatencyInMs";
        let latency = values.number(key, 0u64, LATENCY_MS_MAX).map(Duration::from_millis)?;
        Ok(Self {
            playback: values.boolean("srtPlaybackEnabled")?,
            latency: (values.origin(key) != Origin::Default).then_some(latency),
            passphrase: passphrase(values, "srtPassphrase")?,
        })
    }
}

/// True if the application lets viewers play over SRT.
pub(in crate::protocol) fn is_playback_enabled(app: &AppSettings) -> bool {
    SrtAppSettings::of(app).playback
}

fn packet_filter(values: &Values) -> Result<PacketFilter, Error> {
    let key = "srt.packet_filter";
    let rule = "must be off, any, or like fec,cols:10,rows:5,layout:staircase,arq:onreq";
    values.text(key).parse().map_err(|_| values.bad(key, rule))
}

/// Reads the passphrase of a key; `None` if it is empty.
fn passphrase(values: &Values, key: &'static str) -> Result<Option<Secret>, Error> {
    match values.text(key) {
        "" => Ok(None),
        text if PASSPHRASE_BYTES.contains(&text.len()) => values.secret(key, 1).map(Some),
        _ => Err(values.bad(key, "must have 10 to 80 characters, or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn what_nobody_has_set_is_what_the_keys_default_to() {
        let server = ServerSettings::of(schema(), &[("appIngestsSrtStreamsWithoutStreamId", "")]).unwrap();
        let read = server.protocols.get::<SrtSettings>().unwrap();
        assert_eq!(read, &SrtSettings { port: Some(4200), ..SrtSettings::default() });
        let app = AppSettings::of(schema(), "a", &[]).unwrap();
        assert_eq!(app.protocols.get::<SrtAppSettings>(), Some(&APP_DEFAULTS));
        assert_eq!(listen(&server), Some(Bind { host: None, port: 4200, key: "server.srt_port" }));
        assert_eq!(listen(&ServerSettings::of(schema(), &[("srt.enabled", "false")]).unwrap()), None);
    }

    #[test]
    fn each_setting_of_the_server_is_read() {
        let with = |key, value| {
            let server = ServerSettings::of(schema(), &[(key, value)]).unwrap();
            server.protocols.get::<SrtSettings>().unwrap().clone()
        };
        assert_eq!(with("srt.host", "::1").host, Some("::1".parse().unwrap()));
        assert_eq!(with("server.srt_port", "0").port, Some(0));
        assert_eq!(with("srt.pbkeylen", "32").key_bytes, 32);
        assert_eq!(with("srt.latency_ms", "200").latency, Duration::from_millis(200));
        assert_eq!(with("srt.latency_max_ms", "900").latency_max, Duration::from_millis(900));
        assert_eq!(with("srt.packet_filter", "off").packet_filter, PacketFilter::Off);
        let fec = "fec,cols:10,rows:5";
        assert_eq!(with("srt.packet_filter", fec).packet_filter, fec.parse().unwrap());
        assert_eq!(with("appIngestsSrtStreamsWithoutStreamId", "live").default_app, "live");
    }

    #[test]
    fn an_application_may_have_a_latency_and_a_passphrase_of_its_own() {
        let app = |settings: &[_]| AppSettings::of(schema(), "a", settings).unwrap();
        // A value that equals the default still counts as set by the operator.
        let app_latency = SrtAppSettings::of(&app(&[("srtReceiveLatencyInMs", "150")])).latency;
        assert_eq!(app_latency, Some(Duration::from_millis(150)));
        let secret = SrtAppSettings::of(&app(&[("srtPassphrase", "0123456789")])).passphrase.clone();
        assert_eq!(secret.as_ref().map(Secret::reveal), Some("0123456789"));
        assert!(!is_playback_enabled(&app(&[("srtPlaybackEnabled", "false")])));
    }

    #[test]
    fn c_03_bad_values_name_the_key() {
        for (key, value) in [
            ("server.srt_port", ""),
            ("srt.host", "localhost"),
            ("srt.passphrase", "too short"),
            ("srt.pbkeylen", "17"),
            ("srt.latency_ms", "65536"),
            ("srt.packet_filter", "fec,cols:1"),
        ] {
            let error = ServerSettings::of(schema(), &[(key, value)]).unwrap_err().to_string();
            assert!(error.starts_with(key) && !error.contains("too short"), "{error}");
        }
        let error = AppSettings::of(schema(), "a", &[("srtPassphrase", "short")]).unwrap_err().to_string();
        assert!(error.starts_with("srtPassphrase"), "{error}");
    }
}
