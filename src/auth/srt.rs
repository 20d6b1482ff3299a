//! What an SRT peer asks for: the stream id of a connection, and the query of an `srt://` URL.
//!
//! Two forms of stream ids are in use. Encoders that were made for one kind of server send `app/id`, with parameters
//! behind commas; the others use the form of SRT's access control guide, `#!::r=app/id,m=publish`.
//! Without a mode the first publishes and the second plays, as its guide says.

use std::time::Duration;

use srt::streamid::{self, StreamIdError, StreamIdKeys};
use srt::{PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN, STREAM_ID_BYTES_MAX};

use super::UrlError;
use super::access::{Params, Secret, is_stream_id};

/// Parameters of a stream id.
const PARAMS_MAX: usize = 16;
/// What begins the form of the access control guide.
const STANDARD_FORM: &str = "#!::";
/// A latency above this in a URL is in microseconds, as ffmpeg has it; others write milliseconds.
const LATENCY_MS_MAX: u64 = 8000;
/// Bytes of a passphrase.
pub const PASSPHRASE_BYTES: std::ops::RangeInclusive<usize> = PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX;

/// What an outgoing SRT connection asks for, or one that waits for its peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SrtAddress {
    /// The stream id, as it is sent.
    pub stream_id: String,
    /// The passphrase.
    pub passphrase: Option<Secret>,
    /// Bytes of the key, when ours is the side that makes it; `None`: as set for the server.
    pub key_bytes: Option<u8>,
    /// The latency that is asked for; `None`: as set for the server.
    pub latency: Option<Duration>,
    /// Wait for a caller instead of calling.
    pub listens: bool,
}

/// Which way the stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The caller brings it.
    Publish,
    /// The caller wants it.
    Request,
}

/// Why a stream id is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadStreamId {
    /// It has no sense, or characters that it must not have.
    Malformed,
    /// It asks for something other than to publish or to play.
    Mode,
}

/// A stream id, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRequest {
    /// The application.
    pub app: String,
    /// The stream.
    pub id: String,
    /// Which way.
    pub mode: Mode,
    /// Everything else, in the order given.
    pub params: Params,
    /// The streams that it was forwarded through.
    pub via: Vec<String>,
}

impl StreamRequest {
    /// Takes a stream id apart.
    ///
    /// # Errors
    /// Why not.
    pub fn parse(text: &str) -> Result<Self, BadStreamId> {
        // Some programs send what stands in their URL as it is.
        let decoded =
            text.starts_with("%23").then(|| percent_encoding::percent_decode_str(text).decode_utf8());
        let text = &*decoded.unwrap_or_else(|| Ok(text.into())).map_err(|_| BadStreamId::Malformed)?;
        let graphic = text.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte >= 0x80);
        if text.len() > STREAM_ID_BYTES_MAX || !graphic {
            return Err(BadStreamId::Malformed);
        }
        match streamid::parse(text) {
            Some(Ok(keys)) => Self::of_keys(keys),
            Some(Err(StreamIdError::Mode)) => Err(BadStreamId::Mode),
            Some(Err(_)) => Err(BadStreamId::Malformed),
            None => Self::parse_plain(text),
        }
    }

    fn of_keys(keys: StreamIdKeys<'_>) -> Result<Self, BadStreamId> {
        if !matches!(keys.kind, None | Some("stream")) {
            return Err(BadStreamId::Mode);
        }
        let mode = match keys.mode {
            None | Some(streamid::Mode::Request) => Mode::Request,
            Some(streamid::Mode::Publish) => Mode::Publish,
            Some(streamid::Mode::Bidirectional) => return Err(BadStreamId::Mode),
        };
        let (mut params, mut via) = (Params::new(), Vec::new());
        // The host is passed over: this server has one name only.
        for (key, value) in [("u", keys.user), ("s", keys.session)] {
            value.map_or(Ok(()), |value| add(&mut params, key, value))?;
        }
        for (key, value) in keys.others {
            match key {
                "via" => via.extend(value.split('|').take(PARAMS_MAX).map(str::to_owned)),
                _ => add(&mut params, key, value)?,
            }
        }
        let (app, id) = key_of(keys.resource.ok_or(BadStreamId::Malformed)?)?;
        Ok(Self { app, id, mode, params, via })
    }

    fn parse_plain(text: &str) -> Result<Self, BadStreamId> {
        let end = text.find([',', '?']).unwrap_or(text.len());
        let (path, rest) = text.split_at_checked(end).ok_or(BadStreamId::Malformed)?;
        let (app, id) = key_of(path)?;
        let mut params = Params::new();
        for member in rest.split([',', '?', '&']).filter(|member| !member.is_empty()) {
            let (key, value) = member.split_once('=').ok_or(BadStreamId::Malformed)?;
            add(&mut params, key, value)?;
        }
        Ok(Self { app, id, mode: Mode::Publish, params, via: Vec::new() })
    }
}

fn add(params: &mut Params, key: &str, value: &str) -> Result<(), BadStreamId> {
    if params.len() >= PARAMS_MAX || params.iter().any(|(known, _)| known == key) {
        return Err(BadStreamId::Malformed);
    }
    params.push((key.to_owned(), value.to_owned()));
    Ok(())
}

/// Application and id.
fn key_of(path: &str) -> Result<(String, String), BadStreamId> {
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.split_once('/') {
        Some((app, id)) if !app.is_empty() && is_stream_id(id) => Ok((app.to_owned(), id.to_owned())),
        Some(_) | None => Err(BadStreamId::Malformed),
    }
}

/// `via` entries added to a stream id. Only the form with keys has a place for them that every server passes over.
#[must_use]
pub fn with_via(stream_id: &str, via: &[String]) -> String {
    let added = format!("{stream_id},via={}", via.join("|"));
    let fits = stream_id.starts_with(STANDARD_FORM) && added.len() <= STREAM_ID_BYTES_MAX;
    if fits { added } else { stream_id.to_owned() }
}

/// Reads the query of an `srt://` URL: `streamid`, `passphrase`, `pbkeylen`, `latency`, `mode`. Other options of other
/// programs are passed over.
pub(super) fn parse_query(query: &str) -> Result<SrtAddress, UrlError> {
    let mut address = SrtAddress::default();
    for member in query.split('&').filter(|member| !member.is_empty()) {
        let (key, value) = member.split_once('=').unwrap_or((member, ""));
        let value = percent_encoding::percent_decode_str(value);
        let value = value.decode_utf8().map_err(|_| UrlError::Option("its escapes"))?;
        match key {
            "streamid" | "srt_streamid" if value.len() <= STREAM_ID_BYTES_MAX => {
                address.stream_id = value.into_owned();
            }
            "streamid" | "srt_streamid" => return Err(UrlError::Option("streamid")),
            "passphrase" if value.is_empty() => {}
            "passphrase" if PASSPHRASE_BYTES.contains(&value.len()) => {
                address.passphrase = Some(Secret::new(&value));
            }
            "passphrase" => return Err(UrlError::Option("passphrase")),
            "pbkeylen" => {
                address.key_bytes = match &*value {
                    "0" => None,
                    "16" => Some(16),
                    "24" => Some(24),
                    "32" => Some(32),
                    _ => return Err(UrlError::Option("pbkeylen")),
                }
            }
            "latency" | "rcvlatency" => {
                let number: u64 = value.parse().map_err(|_| UrlError::Option("latency"))?;
                let ms = if number > LATENCY_MS_MAX { number / 1000 } else { number };
                if ms > LATENCY_MS_MAX {
                    return Err(UrlError::Option("latency"));
                }
                address.latency = Some(Duration::from_millis(ms));
            }
            "mode" => match &*value {
                "caller" | "client" => address.listens = false,
                "listener" | "server" => address.listens = true,
                _ => return Err(UrlError::Option("mode")),
            },
            _ => {}
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, String, Mode, usize), BadStreamId> {
        StreamRequest::parse(text).map(|r| (r.app, r.id, r.mode, r.params.len()))
    }

    #[test]
    fn both_forms_say_which_stream_and_which_way() {
        let own = |mode, params| Ok(("live".to_owned(), "s1".to_owned(), mode, params));
        assert_eq!(parse("live/s1"), own(Mode::Publish, 0));
        assert_eq!(parse("/live/s1,token=a.b,subscriberId=u"), own(Mode::Publish, 2));
        assert_eq!(parse("live/s1?token=T&subscriberId=u"), own(Mode::Publish, 2));
        assert_eq!(parse("#!::r=live/s1"), own(Mode::Request, 0));
        assert_eq!(parse("%23!::r=live%2Fs1,m=request"), own(Mode::Request, 0));
        assert_eq!(parse("#!::h=example.com,r=/live/s1,m=publish,u=me,t=stream"), own(Mode::Publish, 1));
        let via = StreamRequest::parse("#!::r=a/b,via=n/x/y|m/x/y").unwrap().via;
        assert_eq!(via, ["n/x/y", "m/x/y"]);
    }

    #[test]
    fn s_05_what_is_no_stream_id_is_refused() {
        for text in
            ["", "s1", "/s1", "live/", "live/a/b", "#!::m=publish", "#!::r=live/s1,r=live/s2", "#!::r"]
        {
            assert_eq!(parse(text), Err(BadStreamId::Malformed), "{text}");
        }
        for text in ["#!::r=a/b,m=bidirectional", "#!::r=a/b,m=", "#!::r=a/b,t=file"] {
            assert_eq!(parse(text), Err(BadStreamId::Mode), "{text}");
        }
        assert_eq!(parse("live/s\0"), Err(BadStreamId::Malformed));
        assert_eq!(parse(&format!("live/{}", "s".repeat(508))), Err(BadStreamId::Malformed));
        assert!(parse(&format!("live/s,p={}", "v".repeat(503))).is_ok());
        for text in ["live/a b", "live/.", "live/..", "../../x", "live/%2e"] {
            assert_eq!(parse(text), Err(BadStreamId::Malformed), "{text}");
        }
        let many = (0..20).map(|n| format!(",k{n}=v")).collect::<String>();
        assert_eq!(parse(&format!("live/s{many}")), Err(BadStreamId::Malformed));
        assert_eq!(parse("live/s,a=1,a=2"), Err(BadStreamId::Malformed));
    }

    #[test]
    fn a_query_in_the_words_of_several_programs() {
        let all = "streamid=%23!::r=live/s1,m=publish&passphrase=0123456789&pbkeylen=32&latency=200000&x=y";
        let address = parse_query(all).unwrap();
        assert_eq!(address.stream_id, "#!::r=live/s1,m=publish");
        assert_eq!(address.passphrase.as_ref().map(Secret::reveal), Some("0123456789"));
        assert_eq!((address.key_bytes, address.latency), (Some(32), Some(Duration::from_millis(200))));
        assert!(!address.listens && parse_query("mode=listener").unwrap().listens);
        assert_eq!(parse_query("latency=120").unwrap().latency, Some(Duration::from_millis(120)));
        for bad in ["passphrase=short", "pbkeylen=17", "latency=x", "latency=9000000", "mode=rendezvous"] {
            assert!(parse_query(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn via_travels_where_there_is_a_place_for_it() {
        let via = ["n/live/a".to_owned()];
        assert_eq!(with_via("#!::r=a/b,m=publish", &via), "#!::r=a/b,m=publish,via=n/live/a");
        assert_eq!(with_via("a/b", &via), "a/b");
        let long = format!("#!::r=a/b,x={}", "y".repeat(495));
        assert_eq!(with_via(&long, &via), long);
    }
}
