//! Settings: `turn.*` of the server.

use std::net::IpAddr;
use std::time::Duration;

use crate::auth::access::Secret;
use crate::config::{Error, Extensions, Group, Key, Section, ServerSettings, Values, key, secret};
use crate::mail::SessionSettings;
use crate::protocol::ice_servers::is_host;
use crate::protocol::row::Bind;

/// Minimum length of the secret, which allows anyone who knows it to make credentials.
const SECRET_CHARS_MIN: usize = 16;

/// TURN.
const TURN: Group = Group::new("turn");

const SERVER: &[Key] = &[
    key(
        TURN,
        "turn.enabled",
        "false",
        "TURN server",
        "TURN server for WebRTC clients that cannot reach a media port; it relays only to the media ports",
    ),
    key(TURN, "turn.host", "", "Address of TURN", "Address of the TURN ports; empty: server.host"),
    key(TURN, "turn.port", "3478", "TURN port", "TURN port, UDP and TCP; 0: any free ones"),
    key(TURN, "turn.tls", "true", "TURN over TLS", "TURN over TLS, with the certificate of HTTPS"),
    key(TURN, "turn.tls_port", "5349", "TURN port over TLS", "Port of TURN over TLS; 0: any free one"),
    key(
        TURN,
        "turn.address",
        "",
        "Public name of TURN",
        "Name or address of the TURN server that is announced to clients; empty: the one by which they reached HTTP",
    ),
    key(TURN, "turn.realm", "millstream", "Realm of credentials", "Realm of TURN credentials"),
    secret(
        TURN,
        "turn.secret",
        "",
        "Secret of credentials",
        "Secret from which TURN credentials are derived, at least 16 characters; empty: a new one at each start",
    ),
    key(
        TURN,
        "turn.credentials_ttl",
        "86400",
        "Lifetime of credentials",
        "Seconds for which TURN credentials are valid for a new allocation",
    ),
    key(
        TURN,
        "turn.allocations",
        "2000",
        "Allocations per worker",
        "Maximum TURN allocations of each worker",
    ),
    key(
        TURN,
        "turn.allocations_per_address",
        "256",
        "Allocations per address",
        "Maximum TURN allocations of one address (IPv6: /64) on each worker",
    ),
    key(
        TURN,
        "turn.allocations_per_user",
        "64",
        "Allocations per client",
        "Maximum TURN allocations with the credentials of one client on each worker",
    ),
    key(
        TURN,
        "turn.allocation_kbps",
        "50000",
        "Bandwidth of an allocation",
        "Maximum kilobits per second that a TURN allocation relays in each direction",
    ),
];

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    read_server: |values| Ok(Extensions::of(TurnSettings::read(values)?)),
    ..Section::NONE
};

/// The TURN settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnSettings {
    /// `turn.port`, unless `turn.enabled` is off.
    port: Option<u16>,
    /// `turn.tls_port`, unless `turn.tls` is off.
    tls_port: Option<u16>,
    /// `turn.host`, else `server.host`; `None` for every address, IPv4 and IPv6.
    host: Option<IpAddr>,
    /// `turn.address`.
    pub(super) address: String,
    /// `turn.realm`.
    pub(super) realm: String,
    /// `turn.secret`; `None` if the server draws one.
    pub(super) secret: Option<Secret>,
    /// `turn.credentials_ttl`.
    pub(super) ttl: Duration,
    /// `turn.allocations`, and the limits per address and per user.
    pub(super) caps: turn::Caps,
    /// `turn.allocation_kbps`, converted to bytes per second.
    pub(super) bytes_per_second: u64,
}

impl TurnSettings {
    /// Returns the TURN part of the session settings; `None` if there is no TURN server.
    pub(super) fn of(settings: &SessionSettings) -> Option<&Self> {
        settings.protocols.get::<Self>().filter(|settings| settings.port.is_some())
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let is_enabled = values.boolean("turn.enabled")?;
        let (port, tls_port) = (values.port("turn.port")?, values.port("turn.tls_port")?);
        let address = values.text("turn.address").trim().to_owned();
        if !address.is_empty() && !is_host(&address) {
            return Err(values.bad("turn.address", "must be a name or an address, IPv6 in brackets"));
        }
        let realm = values.text("turn.realm").trim().to_owned();
        // RFC 8489 §14.9 allows 127 characters, but a long realm would make the answers to unauthenticated clients
        // long.
        if realm.is_empty() || realm.len() > 32 || !is_host(&realm) {
            return Err(values.bad("turn.realm", "must be a name of 32 characters at most"));
        }
        let secret = match values.text("turn.secret") {
            "" => None,
            _ => Some(values.secret("turn.secret", SECRET_CHARS_MIN)?),
        };
        let count = |key| values.number(key, 1u32, 1_000_000);
        Ok(Self {
            port: is_enabled.then_some(port),
            tls_port: (is_enabled && values.boolean("turn.tls")?).then_some(tls_port),
            host: values.host("turn.host")?,
            address,
            realm,
            secret,
            ttl: Duration::from_secs(values.number("turn.credentials_ttl", 60u64, 31_536_000)?),
            caps: turn::Caps {
                in_total: count("turn.allocations")?,
                of_network: count("turn.allocations_per_address")?,
                of_user: count("turn.allocations_per_user")?,
            },
            bytes_per_second: values.number("turn.allocation_kbps", 64u64, 10_000_000)?.saturating_mul(125),
        })
    }
}

/// Returns the address of TURN over UDP and TCP, if enabled.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    let settings = server.protocols.get::<TurnSettings>()?;
    Some(Bind { host: settings.host, port: settings.port?, key: "turn.port" })
}

/// Returns the address of TURN over TLS, if enabled.
pub(super) fn listen_tls(server: &ServerSettings) -> Option<Bind> {
    let settings = server.protocols.get::<TurnSettings>()?;
    Some(Bind { host: settings.host, port: settings.tls_port?, key: "turn.tls_port" })
}

/// Returns the secret of credentials: the operator's, or one derived from the secret drawn at start.
pub(super) fn secret_of(settings: &TurnSettings, server: &SessionSettings) -> Option<Vec<u8>> {
    if let Some(secret) = &settings.secret {
        return Some(secret.reveal().as_bytes().to_vec());
    }
    let mut drawn = vec![0; 32];
    server.site.secret.as_ref()?.derive("TURN", 0).random().fill(&mut drawn);
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    fn with(pairs: &[(&str, &str)]) -> Result<TurnSettings, Error> {
        let server = ServerSettings::of(schema(), pairs)?;
        Ok(server.protocols.get::<TurnSettings>().unwrap().clone())
    }

    #[test]
    fn c_03_each_turn_setting_is_read() {
        let bind = |pairs: &[(&str, &str)]| {
            let server = ServerSettings::of(schema(), pairs).unwrap();
            (listen(&server).map(|bind| (bind.host, bind.port)), listen_tls(&server).map(|bind| bind.port))
        };
        assert_eq!(bind(&[]), (None, None));
        let on = ("turn.enabled", "true");
        assert_eq!(bind(&[on]), (Some((None, 3478)), Some(5349)));
        let own = [on, ("turn.host", "127.0.0.1"), ("turn.port", "1"), ("turn.tls_port", "2")];
        assert_eq!(bind(&own), (Some((Some([127, 0, 0, 1].into()), 1)), Some(2)));
        assert_eq!(bind(&[on, ("turn.tls", "false")]).1, None);
        let of = |key, value| with(&[(key, value)]).unwrap();
        assert_eq!(of("turn.address", "turn.example").address, "turn.example");
        assert_eq!(of("turn.realm", "example.org").realm, "example.org");
        assert_eq!(of("turn.secret", "sixteen letters!").secret.unwrap().reveal(), "sixteen letters!");
        assert_eq!(of("turn.credentials_ttl", "60").ttl, Duration::from_secs(60));
        assert_eq!(of("turn.allocations", "3").caps.in_total, 3);
        assert_eq!(of("turn.allocations_per_address", "4").caps.of_network, 4);
        assert_eq!(of("turn.allocations_per_user", "5").caps.of_user, 5);
        assert_eq!(of("turn.allocation_kbps", "1000").bytes_per_second, 125_000);
    }

    #[test]
    fn c_03_bad_turn_settings_name_the_key() {
        for (key, value) in [
            ("turn.port", ""),
            ("turn.tls_port", "65536"),
            ("turn.host", "localhost"),
            ("turn.address", "a b"),
            ("turn.realm", ""),
            ("turn.realm", "a\"b"),
            ("turn.realm", "012345678901234567890123456789012"),
            ("turn.secret", "fifteen letters"),
            ("turn.credentials_ttl", "0"),
            ("turn.allocations", "0"),
            ("turn.allocation_kbps", "0"),
        ] {
            let error = with(&[(key, value)]).unwrap_err().to_string();
            assert!(error.starts_with(key) && !error.contains("fifteen letters"), "{error}");
        }
        let shown = format!("{:?}", with(&[("turn.secret", "sixteen letters!")]).unwrap());
        assert!(!shown.contains("sixteen letters!"));
    }
}
