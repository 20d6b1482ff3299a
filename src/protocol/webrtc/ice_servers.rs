//! The servers that help a client to find a path, as answers to WHIP and WHEP name them (RFC 9725 §4.6).

use super::settings::RtcAppSettings;

/// The recipient of a `Link`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Somebody who was let in.
    Client,
    /// Anybody: credentials are not told.
    Anybody,
}

/// The value of `Link` for the server of an application. `None`: it has none, or its setting is no URI of one.
pub(super) fn link(settings: &RtcAppSettings, whom: For) -> Option<String> {
    let uri = settings.stun.as_str();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'<' | b'>' | b'"' | b',');
    let (scheme, _) = uri.split_once(':').filter(|_| uri.bytes().all(is_plain))?;
    match scheme.to_ascii_lowercase().as_str() {
        "stun" | "stuns" => Some(format!("<{uri}>; rel=\"ice-server\"")),
        "turn" | "turns" if whom == For::Client => {
            let (user, password) = (quoted(&settings.turn_user)?, quoted(&settings.turn_credential)?);
            Some(format!(
                "<{uri}>; rel=\"ice-server\"; username={user}; credential={password}; credential-type=\"password\""
            ))
        }
        _ => None,
    }
}

/// A quoted string (RFC 9110 §5.6.4); `None` for what a field cannot have.
fn quoted(text: &str) -> Option<String> {
    let is_carried = |c: char| c == '\t' || !c.is_control();
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.chars().all(is_carried).then(|| format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::webrtc::codecs::Codecs;

    fn of(uri: &str, user: &str, credential: &str) -> RtcAppSettings {
        RtcAppSettings {
            enabled: true,
            codecs: Codecs::ALL,
            tcp: true,
            connect_timeout: std::time::Duration::from_secs(10),
            stun: uri.to_owned(),
            turn_user: user.to_owned(),
            turn_credential: credential.to_owned(),
            data: crate::protocol::webrtc::data::DataSettings::NONE,
            limits: crate::protocol::webrtc::room::Limits::NONE,
            audio_levels: None,
        }
    }

    #[test]
    fn a_server_is_named_and_its_credentials_only_to_who_was_let_in() {
        let stun = of("stun:stun.example:3478", "", "");
        let named = "<stun:stun.example:3478>; rel=\"ice-server\"";
        assert_eq!(link(&stun, For::Client).as_deref(), Some(named));
        assert_eq!(link(&stun, For::Anybody).as_deref(), Some(named));
        let turn = of("turn:turn.example?transport=udp", "u\"s\\er", "pass");
        assert_eq!(
            link(&turn, For::Client).as_deref(),
            Some(
                "<turn:turn.example?transport=udp>; rel=\"ice-server\"; username=\"u\\\"s\\\\er\"; \
                 credential=\"pass\"; credential-type=\"password\""
            )
        );
        assert_eq!(link(&turn, For::Anybody), None);
    }

    #[test]
    fn what_is_no_uri_of_a_server_is_not_told() {
        for uri in ["", "stun", "https://x", "stun:a>b", "stun:a b", "stun:a\r\nX: y"] {
            assert_eq!(link(&of(uri, "", ""), For::Client), None, "{uri}");
        }
        assert_eq!(link(&of("turn:t", "u\r\nX: y", ""), For::Client), None);
    }
}
