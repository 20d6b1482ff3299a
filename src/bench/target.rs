//! Targets of the load: URLs with a placeholder for the stream's number.

use std::fmt;

use crate::auth::UrlError;
use crate::protocol::load::{LoadTarget, Sockets, scheme_list};

/// Placeholder for the stream's number in a URL.
const NUMBER: &str = "{n}";

/// Reasons for refusing a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// An unknown scheme.
    #[error("the URL must begin with {}, and ://", scheme_list())]
    Scheme,
    /// Another fault of the URL.
    #[error("{0}")]
    Url(#[from] UrlError),
}

/// A stream on a server.
#[derive(Clone)]
pub struct Target(LoadTarget);

/// Hides the stream's name, which may be a key.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{} ***", self.protocol(), self.host(), self.port())
    }
}

impl Target {
    /// Parses the URL of stream `number`.
    ///
    /// # Errors
    /// The fault of the URL.
    pub fn parse(url: &str, number: usize) -> Result<Self, TargetError> {
        let url = url.replace(NUMBER, &number.to_string());
        match LoadTarget::read(&url) {
            Ok(target) => Ok(Self(target)),
            Err(UrlError::Scheme) => Err(TargetError::Scheme),
            Err(error) => Err(error.into()),
        }
    }

    /// True if the URL has the placeholder.
    #[must_use]
    pub fn is_numbered(url: &str) -> bool {
        url.contains(NUMBER)
    }

    /// Returns the protocol, as on the command line.
    #[must_use]
    pub const fn protocol(&self) -> &'static str {
        self.0.protocol()
    }

    /// Returns the host name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.0.port()
    }

    /// True if TLS is used.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.is_tls()
    }

    /// Returns the sockets of a connection.
    #[must_use]
    pub const fn sockets(&self) -> Sockets {
        self.0.sockets()
    }

    /// True if the protocol can publish.
    #[must_use]
    pub const fn publishes(&self) -> bool {
        self.0.publishes()
    }

    /// True if the protocol can play.
    #[must_use]
    pub const fn plays(&self) -> bool {
        self.0.plays()
    }

    /// True if publishers and players of the target meet in a room.
    #[must_use]
    pub fn is_room(&self) -> bool {
        self.0.is_room()
    }

    /// Returns the constructors of the protocol's clients.
    pub(super) const fn clients(&self) -> &LoadTarget {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_wherever_the_url_has_it() {
        let target = Target::parse("http://h{n}:5080/live/{n}.flv", 7).unwrap();
        assert_eq!((target.protocol(), target.host(), target.port()), ("flv", "h7", 5080));
        assert!(Target::is_numbered("rtmp://h/live/s{n}") && !Target::is_numbered("rtmp://h/live/s"));
    }

    #[test]
    fn what_is_no_url_is_told() {
        let error = |url: &str| Target::parse(url, 0).unwrap_err();
        assert_eq!((error("udp://h:1/x"), error("h/live/a")), (TargetError::Scheme, TargetError::Scheme));
        assert!(error("udp://h").to_string().ends_with("https, ws or wss, and ://"));
        for url in ["http://u@h/a", "http://h:0/a", "http://h/a b", "http:///a", "rtmp://h"] {
            assert!(matches!(Target::parse(url, 0), Err(TargetError::Url(_))), "{url}");
        }
        assert!(!format!("{:?}", Target::parse("rtmp://h/a/secret", 0)).contains("secret"));
    }
}
