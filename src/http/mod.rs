//! HTTP as this server offers it: the machine of `http1`, and the rules that all paths share. [`Mounts`] is the table of
//! routes with their methods, bodies and cross-origin policy ([`cors`]); [`media_type()`] gives the types of files.

pub mod cors;
mod media_type;
mod mount;

pub use http1::{
    BodyDecoder, BodyLength, BodyLimits, CloseReason, Connection, End, Error, Event, FormEvent, Framing,
    Headers, Intake, Limits, Malformed, Method, Multipart, Range, Request, Resource, Response, Selection,
    Stats, StreamAnswer, StreamHead, StreamRequest, Version, client, coding, decode_path, http_date,
    parse_range, reason_phrase, websocket,
};
pub use media_type::media_type;
pub use mount::{BodyKind, Captures, Cors, Methods, Mount, Mounts, Pages};

/// The name that requests of this program give (RFC 9110 §10.1.5).
pub const USER_AGENT: &str = "millstream";
