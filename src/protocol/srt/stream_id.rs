//! Stream ids: the requests of SRT callers.
//!
//! Two syntaxes are in use. Some encoders send `app/id` with parameters after commas; others use the key-value syntax
//! of the SRT Access Control Guidelines, `#!::r=app/id,m=publish`. Without a mode, the first syntax publishes and the
//! second plays, as the guidelines say.

use ::srt::STREAM_ID_BYTES_MAX;
use ::srt::streamid::{self, StreamIdError, StreamIdKeys};

use crate::auth::access::{Params, is_stream_id};

/// Maximum number of parameters in a stream id.
const PARAMS_MAX: usize = 16;
/// Prefix of stream ids in the key-value syntax of the SRT Access Control Guidelines.
const STANDARD_FORM: &str = "#!::";
/// The key that lists the streams through which a stream was forwarded; other servers ignore it.
const VIA: &str = "via";
const VIA_SEPARATOR: &str = "|";

/// The direction of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The caller publishes the stream.
    Publish,
    /// The caller plays the stream.
    Request,
}

/// The reason a stream id is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadStreamId {
    /// The stream id is malformed, or contains characters that are not allowed.
    Malformed,
    /// The mode is neither publish nor request.
    Mode,
}

/// A parsed stream id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamRequest {
    /// Name of the application.
    pub(crate) app: String,
    /// Id of the stream.
    pub(crate) id: String,
    /// The direction.
    pub(crate) mode: Mode,
    /// All other parameters, in order.
    pub(crate) params: Params,
    /// The nodes and streams through which this stream was forwarded.
    pub(crate) via: Vec<String>,
}

impl StreamRequest {
    /// Parses a stream id.
    ///
    /// # Errors
    /// The reason it is refused.
    pub(crate) fn parse(text: &str) -> Result<Self, BadStreamId> {
        // Some programs send the text of their URL undecoded.
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
        // The host is ignored, because this server has one name only.
        for (key, value) in [("u", keys.user), ("s", keys.session)] {
            value.map_or(Ok(()), |value| add(&mut params, key, value))?;
        }
        for (key, value) in keys.others {
            match key {
                VIA => via.extend(value.split(VIA_SEPARATOR).take(PARAMS_MAX).map(str::to_owned)),
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

/// Splits a path into application and stream id.
fn key_of(path: &str) -> Result<(String, String), BadStreamId> {
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.split_once('/') {
        Some((app, id)) if !app.is_empty() && is_stream_id(id) => Ok((app.to_owned(), id.to_owned())),
        Some(_) | None => Err(BadStreamId::Malformed),
    }
}

/// Adds `via` entries to a stream id in the key-value syntax, in which every server ignores unknown keys. Any other
/// stream id, and one that would become too long, is returned unchanged.
pub(crate) fn with_via(stream_id: &str, via: &[String]) -> String {
    let added = format!("{stream_id},{VIA}={}", via.join(VIA_SEPARATOR));
    let fits = stream_id.starts_with(STANDARD_FORM) && added.len() <= STREAM_ID_BYTES_MAX;
    if fits { added } else { stream_id.to_owned() }
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
    fn via_is_carried_where_the_format_allows_it() {
        let via = ["n/live/a".to_owned(), "m/live/b".to_owned()];
        let added = with_via("#!::r=a/b,m=publish", &via);
        assert_eq!(added, "#!::r=a/b,m=publish,via=n/live/a|m/live/b");
        assert_eq!(StreamRequest::parse(&added).unwrap().via, via);
        assert_eq!(with_via("a/b", &via), "a/b");
        let long = format!("#!::r=a/b,x={}", "y".repeat(495));
        assert_eq!(with_via(&long, &via), long);
    }
}
