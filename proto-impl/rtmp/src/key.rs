//! The stream key: application, stream id and parameters, from the `app` of `connect` and the name in `publish` or
//! `play`.
//!
//! Publishers use these forms:
//! 1. `stream`, with or without a leading slash;
//! 2. `app/stream` in `connect` and the rest in the name, because parsers like that of librtmp take two path
//!    components as the app;
//! 3. `stream?token=..&subscriberId=..`; as in HTTP, a parameter may lack a value. Values are not decoded;
//! 4. `stream/token/subscriberId/subscriberCode`, or the same with `%2F`.

use crate::Rejection;

/// Longest application or stream id, in bytes.
pub const ID_BYTES_MAX: usize = 128;
/// Maximum length of a stream name with its parameters, in bytes. It leaves room for a token of 8 KiB, the longest that
/// other parts of the server accept.
const NAME_BYTES_MAX: usize = 16 << 10;
/// Maximum number of parameters of one name.
const PARAMETERS_MAX: usize = 32;
/// Maximum number of characters of a refused id that the answer repeats.
const ECHO_CHARS_MAX: usize = 256;
/// Names given to the path segments after the stream id, as parameters.
const PATH_PARAMETERS: [&str; 3] = ["token", "subscriberId", "subscriberCode"];

/// The stream named by a publish or play.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The application.
    pub app: String,
    /// The stream id.
    pub stream: String,
    /// Names and values in the order sent: `token`, `subscriberId`, `subscriberCode`, `mainTrack`, ...
    pub params: Vec<(String, String)>,
}

impl Target {
    /// Returns the first value of a parameter.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Prints only the names of parameters. Their values are credentials.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.params.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Target")
            .field("app", &self.app)
            .field("stream", &self.stream)
            .field("params", &names)
            .finish()
    }
}

/// The reason a name is not a stream key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The application is not a valid id.
    #[error("application name is invalid")]
    App,
    /// The stream name is not a valid id. The value is the name, shortened and without control characters.
    #[error("stream name is invalid. Don't use special characters. stream name: {0}")]
    Stream(String),
    /// Too many parameters.
    #[error("too many parameters")]
    Parameters,
}

impl KeyError {
    /// Returns a description that contains nothing sent by the peer.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::App => "application name is invalid",
            Self::Stream(_) => "stream name is invalid",
            Self::Parameters => "too many parameters",
        }
    }

    /// Returns the RTMP status that rejects a request with this error; `verb` is the failed command, `publish` or
    /// `play`.
    #[must_use]
    pub fn rejection(&self, verb: &str, message_stream: u32) -> Rejection {
        let (code, description) = match self {
            Self::Parameters => {
                ("NetStream.InvalidArg", format!("Failed to {verb} (stream id: {message_stream})"))
            }
            Self::App | Self::Stream(_) => ("NetStream.Failed", self.to_string()),
        };
        Rejection { code: code.into(), description, close: true }
    }
}

/// True if `id` is a valid name of an application or a stream.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !id.is_empty() && id.len() <= ID_BYTES_MAX && !id.starts_with('.') && id.bytes().all(allowed)
}

/// Returns the application: the first component of the `app` of `connect`, which may have a leading slash and a query.
pub fn parse_app(connect_app: &str) -> Result<&str, KeyError> {
    let path = connect_app.split('?').next().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(path);
    let app = path.split('/').next().unwrap_or_default();
    if is_id(app) { Ok(app) } else { Err(KeyError::App) }
}

/// Parses application and stream name into a target.
pub fn parse(connect_app: &str, name: &str) -> Result<Target, KeyError> {
    let app = parse_app(connect_app)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(invalid_stream(name));
    }
    let name = name.strip_prefix('/').unwrap_or(name);
    let name = match second_component(connect_app) {
        Some(first) => format!("{first}/{name}"),
        None => name.to_owned(),
    };
    let (stream, params) = match name.split_once('?') {
        // If the name consists only of parameters, the stream id comes from an `app` of two parts and ends in a slash.
        Some((stream, query)) => (stream.strip_suffix('/').unwrap_or(stream).to_owned(), query_form(query)?),
        None => path_form(&name),
    };
    if !is_id(&stream) {
        return Err(invalid_stream(&stream));
    }
    Ok(Target { app: app.to_owned(), stream, params })
}

/// Returns application and stream as sent, even if invalid, for logs: shortened, without control characters, and
/// without anything after the stream id, because a token may follow it.
#[must_use]
pub fn without_credentials(connect_app: &str, name: &str) -> String {
    let first = |text: &str| {
        let end = text.find(['/', '?']).unwrap_or(text.len());
        printable(text.get(..end).unwrap_or_default())
    };
    let app = first(connect_app.strip_prefix('/').unwrap_or(connect_app));
    let name = name.strip_prefix('/').unwrap_or(name).replace("%2F", "/").replace("%2f", "/");
    let stream = first(second_component(connect_app).unwrap_or(&name));
    if stream.is_empty() { app } else { format!("{app}/{stream}") }
}

fn second_component(connect_app: &str) -> Option<&str> {
    let path = connect_app.split('?').next()?;
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').nth(1).filter(|component| !component.is_empty())
}

/// Parses `k=v&k=v` as in HTTP requests: skips empty pairs, and gives a name without `=` an empty value. A value may
/// contain `=`. Values are not decoded.
fn query_form(query: &str) -> Result<Vec<(String, String)>, KeyError> {
    let mut params = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if params.len() >= PARAMETERS_MAX {
            return Err(KeyError::Parameters);
        }
        params.push((name.to_owned(), value.to_owned()));
    }
    Ok(params)
}

/// Parses `stream/token/subscriberId/subscriberCode`. An empty segment yields no parameter. Further segments are
/// ignored.
fn path_form(name: &str) -> (String, Vec<(String, String)>) {
    let name = name.replace("%2F", "/").replace("%2f", "/");
    let mut segments = name.split('/');
    let stream = segments.next().unwrap_or_default().to_owned();
    let named = PATH_PARAMETERS.iter().zip(segments).filter(|(_, value)| !value.is_empty());
    (stream, named.map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect())
}

fn invalid_stream(stream: &str) -> KeyError {
    KeyError::Stream(printable(stream))
}

fn printable(text: &str) -> String {
    text.chars().take(ECHO_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(app: &str, name: &str, stream: &str, params: &[(&str, &str)]) {
        let target = parse(app, name).unwrap();
        let got: Vec<(&str, &str)> = target.params.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!((target.app.as_str(), target.stream.as_str(), got.as_slice()), ("live", stream, params));
    }

    #[test]
    fn every_form_of_a_key_is_read() {
        check("live", "s1", "s1", &[]);
        check("/live", "/s1", "s1", &[]);
        check("live?x=y", "s1", "s1", &[]);
        check("live/", "s1", "s1", &[]);
        check("live", "s1?token=a.b/c&subscriberId=u", "s1", &[("token", "a.b/c"), ("subscriberId", "u")]);
        check("live", "s1?token=YQ==&", "s1", &[("token", "YQ==")]);
        check(
            "live",
            "s1/tok/sub/code",
            "s1",
            &[("token", "tok"), ("subscriberId", "sub"), ("subscriberCode", "code")],
        );
        check("live", "s1%2Ftok%2fsub", "s1", &[("token", "tok"), ("subscriberId", "sub")]);
        check("live", "s1//sub", "s1", &[("subscriberId", "sub")]);
        check(
            "live/s1",
            "tok/sub/code",
            "s1",
            &[("token", "tok"), ("subscriberId", "sub"), ("subscriberCode", "code")],
        );
        check("live/s1", "", "s1", &[]);
        check("live/s1", "?token=t", "s1", &[("token", "t")]);
        check("live", "2F", "2F", &[]);
        check("live", &"x".repeat(128), &"x".repeat(128), &[]);
    }

    #[test]
    fn parameters_without_a_value_are_read_as_over_http() {
        let rows: [(&str, &[(&str, &str)]); 9] = [
            ("s1?a", &[("a", "")]),
            ("s1?a=", &[("a", "")]),
            ("s1?token=&subscriberId=u", &[("token", ""), ("subscriberId", "u")]),
            ("s1?", &[]),
            ("s1?&", &[]),
            ("s1?&a=b", &[("a", "b")]),
            ("s1?a=b&&flag&", &[("a", "b"), ("flag", "")]),
            ("s1?=v", &[("", "v")]),
            ("s1?a=b=c", &[("a", "b=c")]),
        ];
        for (name, params) in rows {
            check("live", name, "s1", params);
        }
        check("live/s1?flag", "?token=", "s1", &[("token", "")]);
        check("live?flag&a=", "s1", "s1", &[]);
    }

    #[test]
    fn m_14_too_many_parameters_are_an_error_with_the_stream_id() {
        let name = |pairs: usize| format!("s1?{}", vec!["a"; pairs].join("&"));
        assert_eq!(parse("live", &name(PARAMETERS_MAX)).unwrap().params.len(), PARAMETERS_MAX);
        assert_eq!(parse("live", &name(PARAMETERS_MAX + 1)), Err(KeyError::Parameters));
        let rejection = KeyError::Parameters.rejection("publish", 1);
        assert_eq!(rejection.code, "NetStream.InvalidArg");
        assert_eq!(rejection.description, "Failed to publish (stream id: 1)");
    }

    #[test]
    fn m_14_names_outside_the_grammar_are_refused_with_the_text() {
        let long = "x".repeat(65_536);
        let ids = [
            "",
            ".",
            "..",
            ".x",
            "a b",
            "a$",
            "%2e%2e",
            "a\0",
            "a\r\nb",
            "é",
            "../../tmp/x",
            &long,
            &long[..129],
        ];
        for name in ids {
            assert!(matches!(parse("live", name), Err(KeyError::Stream(_))), "{name}");
            assert!(parse(name, "s1").is_err(), "{name}");
        }
        let rejection = parse("live", "a$\r\n").unwrap_err().rejection("publish", 1);
        assert_eq!(rejection.code, "NetStream.Failed");
        assert_eq!(
            rejection.description,
            "stream name is invalid. Don't use special characters. stream name: a$??"
        );
    }

    #[test]
    fn a_name_for_the_log_is_cut_and_has_no_credentials() {
        for (app, name, key) in [
            ("live", "a b?token=secret", "live/a b"),
            ("live", "a$/secret/me", "live/a$"),
            ("live", "/a$%2Fsecret", "live/a$"),
            ("/li ve/s1?token=secret", "secret/me", "li ve/s1"),
            ("a\nb", "", "a?b"),
            ("live", "?token=secret", "live"),
        ] {
            assert_eq!(without_credentials(app, name), key);
        }
        assert_eq!(without_credentials("live", &"x".repeat(9999)).len(), 5 + ECHO_CHARS_MAX);
    }

    #[test]
    fn credentials_are_not_printed() {
        let target = parse("live", "s1?token=secret").unwrap();
        assert!(!format!("{target:?}").contains("secret"));
        assert_eq!((target.param("token"), target.param("none")), (Some("secret"), None));
    }
}
