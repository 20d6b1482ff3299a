//! Settings: `relay.*` of the server.

use std::net::IpAddr;

use crate::config::group::CLUSTER;
use crate::config::{Error, Extensions, Key, Section, ServerSettings, Values, key, secret};
use crate::mail::{Proof, SessionSettings};
use crate::protocol::outbound;
use crate::protocol::row::Bind;

/// Minimum length of the secret, which gives access to every stream.
const SECRET_CHARS_MIN: usize = 16;

const SERVER: &[Key] = &[
    secret(
        CLUSTER,
        "relay.secret",
        "",
        "Secret of the nodes",
        "Secret that all nodes share to send each other streams, at least 16 characters; empty: no relay",
    ),
    key(
        CLUSTER,
        "relay.host",
        "",
        "Address of the relay",
        "Address of the relay listener; empty: server.host",
    ),
    key(
        CLUSTER,
        "relay.port",
        "5000",
        "Relay port",
        "Port on which other nodes fetch streams; 0: any free one",
    ),
];

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    read_server: |values| Ok(Extensions::of(RelaySettings::read(values)?)),
    ..Section::NONE
};

/// The settings of the relay.
#[derive(Clone, PartialEq, Eq)]
struct RelaySettings {
    /// `relay.secret`; `None` if there is no relay.
    secret: Option<String>,
    /// `relay.host`, else `server.host`; `None` for every address, IPv4 and IPv6.
    host: Option<IpAddr>,
    /// `relay.port`.
    port: u16,
    /// `cluster.name`.
    cluster: String,
}

/// Prints no secret.
impl std::fmt::Debug for RelaySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelaySettings").field("port", &self.port).finish_non_exhaustive()
    }
}

impl RelaySettings {
    fn read(values: &Values) -> Result<Self, Error> {
        let secret = Some(values.text("relay.secret").trim().to_owned()).filter(|text| !text.is_empty());
        if secret.as_ref().is_some_and(|text| text.chars().count() < SECRET_CHARS_MIN) {
            return Err(values.bad("relay.secret", "must have at least 16 characters"));
        }
        let host = values.host("relay.host")?;
        let origins = values.text("edge.origins").split(',').map(str::trim).filter(|url| !url.is_empty());
        for origin in origins {
            let read = outbound::read_origin(&origin.replace("{app}", "a").replace("{id}", "b"));
            let is_relay = read.as_ref().is_ok_and(|target| target.proof() == Some(Proof::Node));
            if read.is_err() {
                return Err(values.bad("edge.origins", "must be URLs of streams, with {app} and {id}"));
            }
            if is_relay && secret.is_none() {
                return Err(values.bad("edge.origins", "relay:// needs relay.secret"));
            }
        }
        Ok(Self {
            secret,
            host,
            port: values.port("relay.port")?,
            cluster: values.text("cluster.name").trim().to_owned(),
        })
    }
}

/// Returns the address to listen on, if there is a relay.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    let settings = server.protocols.get::<RelaySettings>()?;
    settings.secret.as_ref()?;
    Some(Bind { host: settings.host, port: settings.port, key: "relay.port" })
}

/// Returns the nodes' secret; `None` if there is no relay.
pub(in crate::protocol) fn secret_of(server: &ServerSettings) -> Option<&str> {
    server.protocols.get::<RelaySettings>()?.secret.as_deref()
}

/// Returns the name of the cluster from the server's settings.
pub(in crate::protocol) fn cluster_of(server: &ServerSettings) -> &str {
    server.protocols.get::<RelaySettings>().map_or("", |settings| &settings.cluster)
}

/// Returns the name of the cluster from the session settings.
pub(super) fn cluster(server: &SessionSettings) -> &str {
    server.protocols.get::<RelaySettings>().map_or("", |settings| &settings.cluster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn there_is_a_relay_when_there_is_a_secret() {
        let with = |pairs: &[(&str, &str)]| ServerSettings::of(schema(), pairs);
        assert_eq!(listen(&with(&[]).unwrap()), None);
        let secret = ("relay.secret", "sixteen letters!");
        let bind = listen(&with(&[secret]).unwrap()).unwrap();
        assert_eq!((bind.host, bind.port), (None, 5000));
        let set = [secret, ("relay.host", "127.0.0.1"), ("relay.port", "5001")];
        let bind = listen(&with(&set).unwrap()).unwrap();
        assert_eq!((bind.host, bind.port), (Some([127, 0, 0, 1].into()), 5001));
        let short = with(&[("relay.secret", "fifteen letters")]).unwrap_err().to_string();
        assert!(short.contains("relay.secret") && !short.contains("fifteen letters"), "{short}");
        assert!(!format!("{:?}", with(&[secret]).unwrap()).contains("sixteen letters"));
    }

    #[test]
    fn origins_that_no_stream_can_be_fetched_from_are_refused() {
        let read = |origins: &str, secret: &str| {
            ServerSettings::of(schema(), &[("edge.origins", origins), ("relay.secret", secret)])
        };
        let secret = "sixteen letters!";
        let relay = "relay://origin:5000/{app}/{id}";
        for origins in [relay, "relay://[::1]:5000/{app}/{id}, rtmp://origin/{app}/{id}", ""] {
            assert!(read(origins, secret).is_ok(), "{origins}");
        }
        assert!(read("rtmp://origin/{app}/{id},https://origin/{id}.m3u8", "").is_ok());
        for (origins, secret, why) in [
            ("relay:/origin:5000/{app}/{id}", secret, "must be URLs of streams"),
            ("rtmp://origin/{app}/{id},origin:5000", secret, "must be URLs of streams"),
            ("gopher://origin/{app}/{id}", secret, "must be URLs of streams"),
            (relay, "", "relay.secret"),
        ] {
            let fault = read(origins, secret).unwrap_err().to_string();
            assert!(fault.contains("edge.origins") && fault.contains(why), "{origins}: {fault}");
        }
    }
}
