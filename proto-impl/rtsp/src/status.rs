//! Status codes (RFC 2326 §7.1.1).

/// A status code, 100 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident = $code:literal, $reason:literal;)*) => {
        impl Status {
            $(#[doc = $reason] pub const $name: Self = Self($code);)*

            /// Reason phrase of the code.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "Unknown",
                }
            }
        }
    };
}

statuses! {
    OK = 200, "OK";
    MOVED_PERMANENTLY = 301, "Moved Permanently";
    FOUND = 302, "Found";
    SEE_OTHER = 303, "See Other";
    TEMPORARY_REDIRECT = 307, "Temporary Redirect";
    BAD_REQUEST = 400, "Bad Request";
    UNAUTHORIZED = 401, "Unauthorized";
    FORBIDDEN = 403, "Forbidden";
    NOT_FOUND = 404, "Not Found";
    METHOD_NOT_ALLOWED = 405, "Method Not Allowed";
    NOT_ACCEPTABLE = 406, "Not Acceptable";
    ENTITY_TOO_LARGE = 413, "Request Entity Too Large";
    URI_TOO_LONG = 414, "Request-URI Too Long";
    UNSUPPORTED_MEDIA_TYPE = 415, "Unsupported Media Type";
    PARAMETER_NOT_UNDERSTOOD = 451, "Parameter Not Understood";
    NOT_ENOUGH_BANDWIDTH = 453, "Not Enough Bandwidth";
    SESSION_NOT_FOUND = 454, "Session Not Found";
    NOT_VALID_IN_STATE = 455, "Method Not Valid in This State";
    AGGREGATE_NOT_ALLOWED = 459, "Aggregate Operation Not Allowed";
    ONLY_AGGREGATE_ALLOWED = 460, "Only Aggregate Operation Allowed";
    UNSUPPORTED_TRANSPORT = 461, "Unsupported Transport";
    INTERNAL_ERROR = 500, "Internal Server Error";
    NOT_IMPLEMENTED = 501, "Not Implemented";
    UNAVAILABLE = 503, "Service Unavailable";
    VERSION_NOT_SUPPORTED = 505, "RTSP Version Not Supported";
    OPTION_NOT_SUPPORTED = 551, "Option Not Supported";
}

impl Status {
    /// Creates a status; `None` for a number outside 100 to 599.
    #[must_use]
    pub fn new(code: u16) -> Option<Self> {
        (100..=599).contains(&code).then_some(Self(code))
    }

    /// Numeric code.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// True for 2xx.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 / 100 == 2
    }

    /// True for 1xx: a final response follows.
    #[must_use]
    pub const fn is_provisional(self) -> bool {
        self.0 / 100 == 1
    }

    /// True for redirects to another URL: 301, 302, 303, 307.
    #[must_use]
    pub const fn is_redirect(self) -> bool {
        matches!(self.0, 301 | 302 | 303 | 307)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}
