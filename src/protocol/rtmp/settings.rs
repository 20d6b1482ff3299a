//! Settings: `rtmp.*` and `rtmps.*` of the server, `rtmp*` of an application.

use std::net::IpAddr;

use crate::config::{
    AppSettings, Error, Extensions, Group, Key, Section, ServerSettings, Values, foreign, key,
};
use crate::protocol::row::Bind;

/// RTMP.
const RTMP: Group = Group::new("rtmp");

const SERVER: &[Key] = &[
    key(RTMP, "rtmp.host", "", "Address of RTMP", "Address of the RTMP listener; empty: server.host"),
    key(RTMP, "rtmp.port", "1935", "RTMP port", "RTMP port; 0: any free one"),
    key(RTMP, "rtmps.enabled", "true", "Offer RTMPS", "Enables the listener for RTMP over TLS"),
    key(RTMP, "rtmps.port", "8443", "RTMPS port", "RTMPS port; 0: any free one"),
];

const APP: &[Key] = &[
    key(RTMP, "rtmpPlaybackEnabled", "true", "Playback over RTMP", "Viewers may play over RTMP"),
    foreign(
        RTMP,
        "rtmpIngestBufferTimeMs",
        "0",
        "Buffer of RTMP publishers",
        "Units are forwarded as they arrive",
    ),
    foreign(RTMP, "heightRtmpForwarding", "360", "Rendition to forward", "Video is not transcoded"),
    key(
        RTMP,
        "relayRTMPMetaDataToMuxers",
        "true",
        "Pass on RTMP metadata",
        "Adds script data of publishers, such as cue points, to the ID3 tags of segments (id3TagEnabled)",
    ),
];

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    app: APP,
    places: &[
        ("rtmpPlaybackEnabled", "contentSecurityPolicyHeaderValue"),
        ("rtmpIngestBufferTimeMs", "dataChannelPlayerDistribution"),
        ("heightRtmpForwarding", "dataChannelWebHookURL"),
        ("relayRTMPMetaDataToMuxers", "customSettings"),
    ],
    read_server: |values| Ok(Extensions::of(RtmpSettings::read(values)?)),
    read_app: |values| {
        Ok(Extensions::of(RtmpAppSettings { playback: values.boolean("rtmpPlaybackEnabled")? }))
    },
};

/// The RTMP settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RtmpSettings {
    /// `rtmp.host`, else `server.host`; `None` for every address, IPv4 and IPv6.
    host: Option<IpAddr>,
    /// `rtmp.port`.
    port: u16,
    /// `rtmps.port`, unless `rtmps.enabled` is off.
    tls_port: Option<u16>,
}

impl RtmpSettings {
    fn read(values: &Values) -> Result<Self, Error> {
        Ok(Self {
            host: values.host("rtmp.host")?,
            port: values.port("rtmp.port")?,
            tls_port: values.boolean("rtmps.enabled")?.then_some(values.port("rtmps.port")?),
        })
    }
}

/// Returns the address to listen on for RTMP.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    server.protocols.get::<RtmpSettings>().map(|settings| Bind {
        host: settings.host,
        port: settings.port,
        key: "rtmp.port",
    })
}

/// Returns the address to listen on for RTMPS, if enabled.
pub(super) fn listen_tls(server: &ServerSettings) -> Option<Bind> {
    server
        .protocols
        .get::<RtmpSettings>()
        .and_then(|settings| Some(Bind { host: settings.host, port: settings.tls_port?, key: "rtmps.port" }))
}

/// The RTMP settings of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RtmpAppSettings {
    /// `rtmpPlaybackEnabled`.
    playback: bool,
}

/// True if the application lets viewers play over RTMP.
pub(in crate::protocol) fn is_playback_enabled(app: &AppSettings) -> bool {
    app.protocols.get::<RtmpAppSettings>().is_none_or(|settings| settings.playback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    fn server(settings: &[(&str, &str)]) -> Result<ServerSettings, Error> {
        ServerSettings::of(schema(), settings)
    }

    #[test]
    fn one_host_for_all_and_each_its_own() {
        let settings =
            server(&[("server.host", "127.0.0.1"), ("rtmp.host", "::"), ("rtmp.port", "0")]).unwrap();
        assert_eq!(
            listen(&settings),
            Some(Bind { host: Some("::".parse().unwrap()), port: 0, key: "rtmp.port" })
        );
        let settings = server(&[("server.host", "127.0.0.1")]).unwrap();
        assert_eq!(
            listen(&settings),
            Some(Bind { host: Some("127.0.0.1".parse().unwrap()), port: 1935, key: "rtmp.port" })
        );
        assert_eq!(listen_tls(&settings).map(|bind| bind.port), Some(8443));
        assert_eq!(listen_tls(&server(&[("rtmps.port", "0")]).unwrap()).map(|bind| bind.port), Some(0));
        assert_eq!(listen_tls(&server(&[("rtmps.enabled", "false")]).unwrap()), None);
    }

    #[test]
    fn c_03_bad_values_name_the_key() {
        for (key, value) in
            [("rtmp.port", "rtmp"), ("rtmp.host", "h"), ("rtmps.port", "70000"), ("rtmps.enabled", "1")]
        {
            let error = server(&[(key, value)]).unwrap_err().to_string();
            assert!(error.starts_with(key) && !error.contains('\n'), "{error}");
        }
        let error = AppSettings::of(schema(), "a", &[("rtmpPlaybackEnabled", "")]).unwrap_err().to_string();
        assert!(error.starts_with("rtmpPlaybackEnabled"), "{error}");
    }

    #[test]
    fn viewers_may_play_unless_the_application_says_no() {
        let app = |settings: &[_]| AppSettings::of(schema(), "a", settings).unwrap();
        assert!(is_playback_enabled(&app(&[])) && is_playback_enabled(&AppSettings::defaults("a").unwrap()));
        assert!(!is_playback_enabled(&app(&[("rtmpPlaybackEnabled", "false")])));
    }
}
