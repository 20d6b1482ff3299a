//! The ICE servers announced to clients: the application's, those of `webrtc.ice_servers`, and this server's own.
//! Answers to WHIP and WHEP list them in `Link` fields (RFC 9725 §4.6).

use turn::Credentials;

use super::settings::{RtcAppSettings, RtcSettings};
use crate::auth::access::Secret;
use crate::protocol::ice_servers::{IceAsk, IceServer};
use crate::protocol::registry;

/// Maximum number of servers in `webrtc.ice_servers`.
const OUTSIDE_MAX: usize = 16;
/// Validity in seconds of credentials derived from a secret.
const TTL_SECONDS: u64 = 86_400;

/// The recipient of a list of ICE servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// An admitted client.
    Client,
    /// Anybody; servers with credentials are left out.
    Anybody,
}

/// A server of `webrtc.ice_servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outside {
    uri: String,
    access: Access,
}

/// The credentials of an external server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Access {
    /// Without credentials.
    Open,
    /// Fixed credentials.
    Fixed(String, Secret),
    /// Credentials derived from a secret shared with the server (draft-uberti-behave-turn-rest-00).
    Shared(Secret),
}

impl Outside {
    /// Parses a list. The error describes the fault without secrets.
    pub(super) fn read(list: &str) -> Result<Vec<Self>, String> {
        let each = list.split(',').map(str::trim).filter(|text| !text.is_empty());
        let servers: Vec<Self> = each.map(Self::read_one).collect::<Result<_, _>>()?;
        if servers.len() > OUTSIDE_MAX {
            return Err(format!("must be {OUTSIDE_MAX} servers at most"));
        }
        Ok(servers)
    }

    fn read_one(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let uri = words.first().copied().unwrap_or_default();
        let relays = relays(uri).ok_or("must be URIs that begin with stun:, stuns:, turn: or turns:")?;
        let access = match words.get(1..).unwrap_or_default() {
            [] => Access::Open,
            [shared] => {
                let secret = shared.strip_prefix("secret=").filter(|secret| !secret.is_empty());
                Access::Shared(Secret::new(secret.ok_or("a TURN server has USER PASSWORD or secret=SECRET")?))
            }
            [user, password] => Access::Fixed((*user).to_owned(), Secret::new(password)),
            _ => return Err("a server has a URI, USER and PASSWORD, and no more".to_owned()),
        };
        if relays == (access == Access::Open) {
            return Err("TURN servers have credentials, STUN servers have none".to_owned());
        }
        Ok(Self { uri: uri.to_owned(), access })
    }

    fn told(&self, ask: &IceAsk<'_>) -> IceServer {
        let credentials = match &self.access {
            Access::Open => None,
            Access::Fixed(user, password) => Some((user.clone(), password.reveal().to_owned())),
            Access::Shared(secret) => {
                let until = (ask.now.wall_ms / 1000).saturating_add(TTL_SECONDS);
                let user = format!("{:016x}", ask.user);
                let made = Credentials::ephemeral(secret.reveal().as_bytes(), until, &user);
                Some((made.username, made.password))
            }
        };
        IceServer { uri: self.uri.clone(), credentials }
    }
}

/// Returns true for the URI of a relay (TURN), false for STUN; `None` if the URI is not that of an ICE server.
fn relays(uri: &str) -> Option<bool> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"' | b',');
    let (scheme, _) =
        uri.split_once(':').filter(|(_, rest)| !rest.is_empty() && uri.bytes().all(is_plain))?;
    match scheme.to_ascii_lowercase().as_str() {
        "stun" | "stuns" => Some(false),
        "turn" | "turns" => Some(true),
        _ => None,
    }
}

/// Returns the servers to announce to a client of an application.
pub(super) fn told(ask: &IceAsk<'_>, app: &RtcAppSettings, whom: For) -> Vec<IceServer> {
    let of_app = relays(&app.stun).map(|relays| {
        let credentials = relays.then(|| (app.turn_user.clone(), app.turn_credential.clone()));
        IceServer { uri: app.stun.clone(), credentials }
    });
    let outside = RtcSettings::of(ask.server).ice_servers.iter().map(|server| server.told(ask));
    let all = of_app.into_iter().chain(outside).chain(registry::ice_servers(ask));
    all.filter(|server| whom == For::Client || server.credentials.is_none()).collect()
}

/// Returns `Link` field values for the servers; a server whose credentials cannot be part of a field is left out.
pub(super) fn links(servers: &[IceServer]) -> Vec<String> {
    let link = |server: &IceServer| {
        let uri = &server.uri;
        let Some((user, password)) = &server.credentials else {
            return Some(format!("<{uri}>; rel=\"ice-server\""));
        };
        let (user, password) = (quoted(user)?, quoted(password)?);
        Some(format!(
            "<{uri}>; rel=\"ice-server\"; username={user}; credential={password}; credential-type=\"password\""
        ))
    };
    servers.iter().filter_map(link).collect()
}

/// Returns a quoted string (RFC 9110 §5.6.4); `None` if the text has characters that a field cannot contain.
fn quoted(text: &str) -> Option<String> {
    let is_carried = |c: char| c == '\t' || !c.is_control();
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.chars().all(is_carried).then(|| format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;
    use crate::config::{AppSettings, ServerSettings};
    use crate::mail::{SessionSettings, Site};
    use crate::protocol::schema;
    use crate::types::Now;

    fn links_of(server: &[(&str, &str)], app: &[(&str, &str)], whom: For) -> Vec<String> {
        let server = ServerSettings::of(schema(), server).unwrap();
        let app = AppSettings::of(schema(), "live", app).unwrap();
        let site = Site {
            bound: vec![("turn", ([0, 0, 0, 0], 3478).into())],
            secret: Some(crypto::Seed::from_number(1)),
            ..Site::default()
        };
        let server = SessionSettings::of(&server, "node", Arc::new(site));
        let now = Now { mono: Instant::now(), wall_ms: 1_000_000_000 };
        let ask = IceAsk { now, server: &server, host: "live.example", user: 7 };
        links(&told(&ask, RtcAppSettings::of(&app), whom))
    }

    fn of_app(uri: &str, user: &str, credential: &str, whom: For) -> Vec<String> {
        let app =
            [("stunServerURI", uri), ("turnServerUsername", user), ("turnServerCredential", credential)];
        links_of(&[], &app, whom)
    }

    #[test]
    fn a_server_is_named_and_its_credentials_only_to_who_was_let_in() {
        let named = "<stun:stun.example:3478>; rel=\"ice-server\"";
        for whom in [For::Client, For::Anybody] {
            assert_eq!(of_app("stun:stun.example:3478", "", "", whom), [named]);
        }
        let turn = |whom| of_app("turn:turn.example?transport=udp", "u\"s\\er", "pass", whom);
        assert_eq!(
            turn(For::Client),
            ["<turn:turn.example?transport=udp>; rel=\"ice-server\"; username=\"u\\\"s\\\\er\"; \
              credential=\"pass\"; credential-type=\"password\""]
        );
        assert!(turn(For::Anybody).is_empty());
    }

    #[test]
    fn what_is_no_uri_of_a_server_is_not_told() {
        for uri in ["", "stun", "stun:", "https://x", "stun:a>b", "stun:a b", "stun:a\r\nX: y"] {
            assert!(of_app(uri, "", "", For::Client).is_empty(), "{uri}");
        }
        assert!(of_app("turn:t", "u\r\nX: y", "", For::Client).is_empty());
    }

    #[test]
    fn servers_of_others_have_credentials_of_their_own() {
        let list =
            "stun:stun.example, turn:one.example user word,turns:two.example?transport=tcp secret=north";
        let told = |whom| {
            let server = [("webrtc.ice_servers", list), ("turn.enabled", "true")];
            links_of(&server, &[("stunServerURI", "")], whom)
        };
        let [stun, fixed, shared, own] = &told(For::Client)[..] else { panic!("{:?}", told(For::Client)) };
        assert_eq!(stun, "<stun:stun.example>; rel=\"ice-server\"");
        assert!(fixed.starts_with("<turn:one.example>;") && fixed.contains("username=\"user\""), "{fixed}");
        assert!(fixed.contains("credential=\"word\""), "{fixed}");
        let made = Credentials::ephemeral(b"north", 1_086_400, "0000000000000007");
        assert!(shared.starts_with("<turns:two.example?transport=tcp>;"), "{shared}");
        assert!(shared.contains(&made.username) && shared.contains(&made.password), "{shared}");
        assert!(own.starts_with("<turn:live.example:3478?transport=udp>;"), "{own}");
        assert_eq!(told(For::Anybody), [stun.as_str()]);
    }

    #[test]
    fn c_03_bad_servers_name_the_key_and_no_secret() {
        let many = vec!["stun:s"; 17].join(",");
        for bad in [
            "https://x",
            "turn:t",
            "turn:t CANARY",
            "turn:t secret=",
            "turn:t user CANARY more",
            "stun:s user CANARY",
            "turn:t>x user CANARY",
            &many,
        ] {
            let error = ServerSettings::of(schema(), &[("webrtc.ice_servers", bad)]).unwrap_err().to_string();
            assert!(error.starts_with("webrtc.ice_servers") && !error.contains("CANARY"), "{error}");
        }
        let good = ServerSettings::of(schema(), &[("webrtc.ice_servers", "turn:t user CANARY")]).unwrap();
        assert!(!format!("{good:?}").contains("CANARY"));
    }
}
