//! Reasons for refusing a connection (libsrt `docs/API/rejection-codes.md`).

/// A refusal is a handshake whose request type is this number plus the code.
const WIRE_BASE: u32 = 1000;
/// First code for applications; codes from 2000 on are free for private use.
const PREDEFINED: u32 = 1000;

/// A rejection code as shown by APIs: below 1000 from the protocol, from 1000 on predefined for applications, from 2000
/// on private to applications.
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
    /// The peer refused without giving a reason.
    PEER = 2,
    /// Resources could not be allocated.
    RESOURCE = 3,
    /// The handshake is invalid.
    ROGUE = 4,
    /// The listener's backlog is full.
    BACKLOG = 5,
    /// Internal program error.
    IPE = 6,
    /// The listener is closing.
    CLOSE = 7,
    /// The peer's version is not supported.
    VERSION = 8,
    /// The cookies of a rendezvous collide.
    RDVCOOKIE = 9,
    /// The passphrases differ.
    BADSECRET = 10,
    /// Only one side has a passphrase.
    UNSECURE = 11,
    /// The API modes differ: one side uses messages, the other a byte stream.
    MESSAGEAPI = 12,
    /// The congestion control types differ.
    CONGESTION = 13,
    /// The packet filter settings do not match.
    FILTER = 14,
    /// The group settings do not match.
    GROUP = 15,
    /// The peer did not answer in time.
    TIMEOUT = 16,
    /// The encryption modes differ.
    CRYPTO = 17,
    /// The application requests a simpler mode.
    FALLBACK = 1000,
    /// The stream id contains an unsupported key.
    KEY_NOTSUP = 1001,
    /// No such file path.
    FILEPATH = 1002,
    /// No such host.
    HOSTNOTFOUND = 1003,
    /// The stream id is malformed.
    BAD_REQUEST = 1400,
    /// The credentials are missing or wrong.
    UNAUTHORIZED = 1401,
    /// The server is overloaded.
    OVERLOAD = 1402,
    /// The request is not allowed.
    FORBIDDEN = 1403,
    /// No such stream.
    NOTFOUND = 1404,
    /// The mode is not supported for the resource.
    BAD_MODE = 1405,
    /// The requested parameters cannot be met.
    UNACCEPTABLE = 1406,
    /// The resource is in use.
    CONFLICT = 1409,
    /// The kind of media is not supported.
    NOTSUP_MEDIA = 1415,
    /// The resource is locked.
    LOCKED = 1423,
    /// Another session is required first.
    FAILED_DEPEND = 1424,
    /// Internal server error.
    ISE = 1500,
    /// The feature is not implemented.
    UNIMPLEMENTED = 1501,
    /// A gateway failed.
    GW = 1502,
    /// The service is down.
    DOWN = 1503,
    /// The version is not supported.
    APP_VERSION = 1505,
    /// Storage is full.
    NOROOM = 1507,
}

impl RejectReason {
    /// Creates a reason from its code.
    #[must_use]
    pub const fn new(code: u32) -> Self {
        Self(code)
    }

    /// The code.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }

    /// True if the code belongs to applications and not to the protocol.
    #[must_use]
    pub const fn is_of_application(self) -> bool {
        self.0 >= PREDEFINED
    }

    /// Returns the request type of a handshake that carries this refusal.
    pub(crate) const fn to_wire(self) -> u32 {
        self.0.saturating_add(WIRE_BASE)
    }

    /// Returns the reason in the request type of a handshake; `None` if it is not a refusal.
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
