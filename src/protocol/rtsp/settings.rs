//! Settings: `rtsp.*`.

use std::net::IpAddr;

use crate::config::{Error, Extensions, Key, Section, ServerSettings, Values, key};
use crate::protocol::row::Bind;

const SERVER: &[Key] = &[
    key("rtsp.host", "", "Address of the RTSP listener; empty: server.host"),
    key("rtsp.port", "5554", "RTSP port; 0: any free one"),
];

/// See [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    read_server: |values| Ok(Extensions::of(RtspSettings::read(values)?)),
    ..Section::NONE
};

/// The RTSP settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RtspSettings {
    /// `rtsp.host`, else `server.host`; `None`: every address, IPv4 and IPv6.
    host: Option<IpAddr>,
    /// `rtsp.port`.
    port: u16,
}

impl RtspSettings {
    fn read(values: &Values) -> Result<Self, Error> {
        Ok(Self { host: values.host("rtsp.host")?, port: values.port("rtsp.port")? })
    }
}

/// The address of RTSP.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    server.protocols.get::<RtspSettings>().map(|settings| Bind {
        host: settings.host,
        port: settings.port,
        key: "rtsp.port",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn the_port_is_5554_and_a_bad_one_names_its_key() {
        let listen = |settings: &[(&str, &str)]| listen(&ServerSettings::of(schema(), settings).unwrap());
        assert_eq!(listen(&[]).map(|bind| bind.port), Some(5554));
        let own = listen(&[("server.host", "127.0.0.1"), ("rtsp.port", "0")]).unwrap();
        assert_eq!((own.host, own.port), (Some("127.0.0.1".parse().unwrap()), 0));
        let error = ServerSettings::of(schema(), &[("rtsp.port", "70000")]).unwrap_err().to_string();
        assert!(error.starts_with("rtsp.port"), "{error}");
    }
}
