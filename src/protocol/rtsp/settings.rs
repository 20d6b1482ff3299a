//! Settings: `rtsp.*` and `rtsps.*` of the server, `rtsp*` of an application.

use std::net::IpAddr;
use std::time::Duration;

use crate::config::{AppSettings, Error, Extensions, Group, Key, Section, ServerSettings, Values, key};
use crate::protocol::row::Bind;

/// RTSP.
const RTSP: Group = Group::new("rtsp");

const SERVER: &[Key] = &[
    key(RTSP, "rtsp.host", "", "Address of RTSP", "Address of the RTSP listener; empty: server.host"),
    key(RTSP, "rtsp.port", "5554", "RTSP port", "RTSP port; 0: any free one"),
    key(RTSP, "rtsps.enabled", "true", "Offer RTSPS", "Enables the listener for RTSP over TLS"),
    key(RTSP, "rtsps.port", "5555", "RTSPS port", "RTSPS port; 0: any free one"),
];

const APP: &[Key] = &[
    key(
        RTSP,
        "rtspPullTransportType",
        "3",
        "Transport of RTSP sources",
        "Transport of RTSP sources: 2 or tcp (in the connection), 1 or udp (as datagrams), 3 (in the connection, otherwise as datagrams)",
    ),
    key(
        RTSP,
        "rtspTimeoutDurationMs",
        "5000",
        "Timeout of RTSP sources",
        "Milliseconds within which an RTSP source has to answer",
    ),
];

/// Range of the time for an answer, in milliseconds.
const TIMEOUTS_MS: (u64, u64) = (100, 60_000);

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    app: APP,
    places: &[
        ("rtspPullTransportType", "disableIPv6Candidates"),
        ("rtspTimeoutDurationMs", "rtspPullTransportType"),
    ],
    read_server: |values| Ok(Extensions::of(RtspSettings::read(values)?)),
    read_app: |values| Ok(Extensions::of(RtspAppSettings::read(values)?)),
};

/// The RTSP settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RtspSettings {
    /// `rtsp.host`, else `server.host`; `None` for every address, IPv4 and IPv6.
    host: Option<IpAddr>,
    /// `rtsp.port`.
    port: u16,
    /// `rtsps.port`, unless `rtsps.enabled` is off.
    tls_port: Option<u16>,
}

impl RtspSettings {
    fn read(values: &Values) -> Result<Self, Error> {
        Ok(Self {
            host: values.host("rtsp.host")?,
            port: values.port("rtsp.port")?,
            tls_port: values.boolean("rtsps.enabled")?.then_some(values.port("rtsps.port")?),
        })
    }
}

/// Returns the address to listen on for RTSP.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    server.protocols.get::<RtspSettings>().map(|settings| Bind {
        host: settings.host,
        port: settings.port,
        key: "rtsp.port",
    })
}

/// Returns the address to listen on for RTSPS, if enabled.
pub(super) fn listen_tls(server: &ServerSettings) -> Option<Bind> {
    let settings = server.protocols.get::<RtspSettings>()?;
    Some(Bind { host: settings.host, port: settings.tls_port?, key: "rtsps.port" })
}

/// The transport of packets pulled from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carriage {
    /// Interleaved in the connection.
    Interleaved,
    /// As datagrams.
    Datagrams,
    /// Interleaved, or as datagrams if the server does not interleave.
    Either,
}

impl Carriage {
    /// Returns the transport that URLs call by this name.
    pub(super) fn named(text: &str) -> Option<Self> {
        match text {
            "tcp" => Some(Self::Interleaved),
            "udp" => Some(Self::Datagrams),
            _ => None,
        }
    }
}

/// The RTSP settings of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RtspAppSettings {
    /// `rtspPullTransportType`.
    pub(super) carriage: Carriage,
    /// `rtspTimeoutDurationMs`.
    pub(super) timeout: Duration,
}

impl RtspAppSettings {
    fn read(values: &Values) -> Result<Self, Error> {
        let key = "rtspPullTransportType";
        let carriage = match values.text(key) {
            "1" => Carriage::Datagrams,
            "2" => Carriage::Interleaved,
            "3" => Carriage::Either,
            name => Carriage::named(name)
                .ok_or_else(|| values.bad(key, "must be 1 (UDP), 2 (TCP), 3 (either), tcp or udp"))?,
        };
        let timeout = values.number("rtspTimeoutDurationMs", TIMEOUTS_MS.0, TIMEOUTS_MS.1)?;
        Ok(Self { carriage, timeout: Duration::from_millis(timeout) })
    }

    /// Returns the RTSP settings of an application.
    pub(super) fn of(app: &AppSettings) -> Option<Self> {
        app.protocols.get::<Self>().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn the_ports_are_5554_and_5555_and_a_bad_one_names_its_key() {
        let server = |settings: &[(&str, &str)]| ServerSettings::of(schema(), settings).unwrap();
        let port = |settings: &[(&str, &str)]| listen(&server(settings)).map(|bind| bind.port);
        let tls_port = |settings: &[(&str, &str)]| listen_tls(&server(settings)).map(|bind| bind.port);
        assert_eq!((port(&[]), tls_port(&[])), (Some(5554), Some(5555)));
        assert_eq!(tls_port(&[("rtsps.enabled", "false")]), None);
        let own = listen(&server(&[("server.host", "127.0.0.1"), ("rtsp.port", "0")])).unwrap();
        assert_eq!((own.host, own.port), (Some("127.0.0.1".parse().unwrap()), 0));
        let own = listen(&server(&[("server.host", "127.0.0.1"), ("rtsp.host", "::1")])).unwrap();
        assert_eq!(own.host, Some("::1".parse().unwrap()));
        assert_eq!(tls_port(&[("rtsps.port", "0")]), Some(0));
        for key in ["rtsp.port", "rtsps.port"] {
            let error = ServerSettings::of(schema(), &[(key, "70000")]).unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }

    #[test]
    fn sources_are_read_in_the_connection_first_unless_it_is_said_otherwise() {
        let read = |settings: &[(&str, &str)]| {
            AppSettings::of(schema(), "live", settings).map(|app| RtspAppSettings::of(&app).unwrap())
        };
        let carriage = |text| read(&[("rtspPullTransportType", text)]).map(|settings| settings.carriage);
        let defaults = read(&[]).unwrap();
        assert_eq!((defaults.carriage, defaults.timeout), (Carriage::Either, Duration::from_secs(5)));
        for (text, meant) in
            [("1", Carriage::Datagrams), ("udp", Carriage::Datagrams), ("tcp", Carriage::Interleaved)]
        {
            assert_eq!(carriage(text).unwrap(), meant);
        }
        assert!(carriage("4").unwrap_err().to_string().contains("rtspPullTransportType"));
        assert!(read(&[("rtspTimeoutDurationMs", "0")]).is_err());
    }
}
