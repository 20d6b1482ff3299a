//! Reasons for refusing a connection (libsrt `docs/API/rejection-codes.md`).

/// The base of refusals on the wire: a refusal is a handshake whose request type is the code plus this.
const WIRE_BASE: u32 = 1000;
/// Codes for applications begin here, those of their own free choice at 2000.
const PREDEFINED: u32 = 1000;

/// A rejection code as APIs show it: 0 to 17 of the protocol, from 1000 on of applications, from 2000 on free.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(u32);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        impl RejectReason {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    /// No reason was given.
    UNKNOWN = 0,
    /// A system call failed.
    SYSTEM = 1,
    /// The peer refused, and does not say why.
    PEER = 2,
    /// Resources.
    RESOURCE = 3,
    /// The handshake is wrong.
    ROGUE = 4,
    /// Too many wait.
    BACKLOG = 5,
    /// A program error of the peer.
    IPE = 6,
    /// The listener is closing.
    CLOSE = 7,
    /// The protocol's or the library's version.
    VERSION = 8,
    /// The cookies of a rendezvous are equal.
    RDVCOOKIE = 9,
    /// The passphrases differ.
    BADSECRET = 10,
    /// Only one side has a passphrase.
    UNSECURE = 11,
    /// A side wants streams of bytes, the other messages.
    MESSAGEAPI = 12,
    /// The congestion controls differ.
    CONGESTION = 13,
    /// Packet filters.
    FILTER = 14,
    /// Groups.
    GROUP = 15,
    /// No answer in time.
    TIMEOUT = 16,
    /// The encryption modes differ.
    CRYPTO = 17,
    /// Fall back to something simpler.
    FALLBACK = 1000,
    /// A key of the stream id is not supported.
    KEY_NOTSUP = 1001,
    /// No such file path.
    FILEPATH = 1002,
    /// No such host.
    HOSTNOTFOUND = 1003,
    /// The stream id cannot be read.
    BAD_REQUEST = 1400,
    /// Credentials.
    UNAUTHORIZED = 1401,
    /// Too much to do.
    OVERLOAD = 1402,
    /// The request is not allowed.
    FORBIDDEN = 1403,
    /// No such stream.
    NOTFOUND = 1404,
    /// The mode is not supported for it.
    BAD_MODE = 1405,
    /// Parameters that cannot be met.
    UNACCEPTABLE = 1406,
    /// The resource is in use.
    CONFLICT = 1409,
    /// The kind of media is not supported.
    NOTSUP_MEDIA = 1415,
    /// The resource is locked.
    LOCKED = 1423,
    /// Another session is required first.
    FAILED_DEPEND = 1424,
    /// An error of the server.
    ISE = 1500,
    /// Not implemented.
    UNIMPLEMENTED = 1501,
    /// A gateway failed.
    GW = 1502,
    /// Down.
    DOWN = 1503,
    /// The version is not supported.
    APP_VERSION = 1505,
    /// No room.
    NOROOM = 1507,
}

impl RejectReason {
    /// The reason with this code.
    #[must_use]
    pub const fn new(code: u32) -> Self {
        Self(code)
    }

    /// The code.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }

    /// Whether an application gave it, not the protocol.
    #[must_use]
    pub const fn is_of_application(self) -> bool {
        self.0 >= PREDEFINED
    }

    /// The code as the request type of a handshake.
    pub(crate) const fn to_wire(self) -> u32 {
        self.0.saturating_add(WIRE_BASE)
    }

    /// Reads the request type of a handshake that is a refusal; negative numbers are none.
    pub(crate) const fn from_wire(request: u32) -> Option<Self> {
        if request >= WIRE_BASE && request <= i32::MAX as u32 {
            Some(Self(request.saturating_sub(WIRE_BASE)))
        } else {
            None
        }
    }
}

impl std::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_travel_1000_higher() {
        assert_eq!((RejectReason::BADSECRET.to_wire(), RejectReason::FORBIDDEN.to_wire()), (1010, 2403));
        assert_eq!(RejectReason::from_wire(2403), Some(RejectReason::FORBIDDEN));
        assert_eq!((RejectReason::from_wire(999), RejectReason::from_wire(u32::MAX)), (None, None));
        assert_eq!(format!("{} {}", RejectReason::CLOSE, RejectReason::new(2007)), "7 CLOSE 2007");
        assert!(RejectReason::CONFLICT.is_of_application() && !RejectReason::PEER.is_of_application());
    }
}
