//! The addresses and credentials of the TURN server, for clients of WebRTC.

use turn::Credentials;

use super::settings::{TurnSettings, secret_of};
use super::{PORT, TCP, TLS};
use crate::protocol::first_bytes::shared_port;
use crate::protocol::ice_servers::{IceAsk, IceServer, is_host};

/// Returns the addresses of this TURN server, with credentials for one client; UDP, the fastest, comes first.
pub(super) fn servers(ask: &IceAsk<'_>) -> Vec<IceServer> {
    let Some(settings) = TurnSettings::of(ask.server) else { return Vec::new() };
    let host = if settings.address.is_empty() { ask.host } else { &settings.address };
    let Some(secret) = secret_of(settings, ask.server).filter(|_| is_host(host)) else { return Vec::new() };
    let until = (ask.now.wall_ms / 1000).saturating_add(settings.ttl.as_secs());
    let credentials = Credentials::ephemeral(&secret, until, &format!("{:016x}", ask.user));
    let bound = |name| {
        let mut bound = ask.server.site.bound.iter();
        bound.find(|(of, _)| *of == name).map(|(_, address)| address.port())
    };
    let ways = [(PORT, "turn", "udp"), (TCP, "turn", "tcp"), (TLS, "turns", "tcp")];
    let server = |(name, scheme, transport)| {
        let port = shared_port(ask.server, name).filter(|_| name == TLS).or_else(|| bound(name))?;
        Some(IceServer {
            uri: format!("{scheme}:{host}:{port}?transport={transport}"),
            credentials: Some((credentials.username.clone(), credentials.password.clone())),
        })
    };
    ways.into_iter().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::config::ServerSettings;
    use crate::mail::{SessionSettings, Site};
    use crate::protocol::schema;
    use crate::types::Now;

    fn told(pairs: &[(&str, &str)], host: &str) -> Vec<IceServer> {
        let server = ServerSettings::of(schema(), pairs).unwrap();
        let at = |port| ([0, 0, 0, 0], port).into();
        let site = Site {
            bound: vec![(PORT, at(3478)), (TCP, at(3478)), (TLS, at(5349)), ("webrtc", at(50_000))],
            secret: Some(crypto::Seed::from_number(1)),
            ..Site::default()
        };
        let server = SessionSettings::of(&server, "node", Arc::new(site));
        let now = Now { mono: Instant::now(), wall_ms: 1_000_000_000 };
        servers(&IceAsk { now, server: &server, host, user: 7 })
    }

    #[test]
    fn clients_are_told_of_all_ways_with_credentials_that_end() {
        assert_eq!(told(&[], "live.example"), []);
        let on = ("turn.enabled", "true");
        let uris = |pairs: &[_], host| told(pairs, host).into_iter().map(|one| one.uri).collect::<Vec<_>>();
        assert_eq!(
            uris(&[on], "live.example"),
            [
                "turn:live.example:3478?transport=udp",
                "turn:live.example:3478?transport=tcp",
                "turns:live.example:5349?transport=tcp"
            ]
        );
        assert_eq!(
            uris(&[on, ("turn.address", "[2001:db8::1]")], "live.example")[0],
            "turn:[2001:db8::1]:3478?transport=udp"
        );
        assert!(told(&[on], "").is_empty() && told(&[on], "a>b").is_empty());
        let (user, password) = told(&[on], "h")[0].credentials.clone().unwrap();
        assert_eq!(user, "1086400:0000000000000007");
        let (_, own) = told(&[on, ("turn.secret", "sixteen letters!")], "h")[0].credentials.clone().unwrap();
        assert_ne!(password, own);
        assert_eq!(own, Credentials::ephemeral(b"sixteen letters!", 1_086_400, "0000000000000007").password);
    }
}
