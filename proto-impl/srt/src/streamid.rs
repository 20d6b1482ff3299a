//! The standard form of a stream id: `#!::key=value,key=value` (libsrt `docs/features/access-control.md`).

/// Prefix of every stream id in the standard form.
const PREFIX: &str = "#!::";

/// The keys of a stream id in the standard form. Values are not validated; check them before using them, for
/// example as file names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamIdKeys<'a> {
    /// `r`: resource name.
    pub resource: Option<&'a str>,
    /// `m`: mode.
    pub mode: Option<Mode>,
    /// `u`: user name.
    pub user: Option<&'a str>,
    /// `h`: host name.
    pub host: Option<&'a str>,
    /// `s`: session id.
    pub session: Option<&'a str>,
    /// `t`: type of the resource; `stream` when absent.
    pub kind: Option<&'a str>,
    /// All other keys, in order.
    pub others: Vec<(&'a str, &'a str)>,
}

/// Direction requested by a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// `request`: the caller receives.
    Request,
    /// `publish`: the caller sends.
    Publish,
    /// `bidirectional`: both directions.
    Bidirectional,
}

/// The reason a stream id in the standard form is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamIdError {
    /// An item lacks its name or its value.
    #[error("an item is not key=value")]
    Item,
    /// A key occurs twice.
    #[error("duplicate key")]
    Twice,
    /// The value of `m` is unknown.
    #[error("unknown mode")]
    Mode,
    /// More than 32 items.
    #[error("too many items")]
    TooMany,
}

/// Maximum number of items accepted.
const ITEMS_MAX: usize = 32;

/// Parses a stream id in the standard form; `None` if it does not begin with `#!::`.
#[must_use]
pub fn parse(stream_id: &str) -> Option<Result<StreamIdKeys<'_>, StreamIdError>> {
    stream_id.strip_prefix(PREFIX).map(parse_items)
}

fn parse_items(items: &str) -> Result<StreamIdKeys<'_>, StreamIdError> {
    let mut keys = StreamIdKeys::default();
    for (count, item) in items.split(',').enumerate() {
        if count >= ITEMS_MAX {
            return Err(StreamIdError::TooMany);
        }
        if items.is_empty() {
            break;
        }
        let (key, value) =
            item.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or(StreamIdError::Item)?;
        match key {
            "r" => once(&mut keys.resource, value)?,
            "m" => once(&mut keys.mode, parse_mode(value)?)?,
            "u" => once(&mut keys.user, value)?,
            "h" => once(&mut keys.host, value)?,
            "s" => once(&mut keys.session, value)?,
            "t" => once(&mut keys.kind, value)?,
            other if keys.others.iter().any(|(name, _)| *name == other) => return Err(StreamIdError::Twice),
            other => keys.others.push((other, value)),
        }
    }
    Ok(keys)
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), StreamIdError> {
    if place.replace(value).is_some() { Err(StreamIdError::Twice) } else { Ok(()) }
}

fn parse_mode(value: &str) -> Result<Mode, StreamIdError> {
    match value {
        "request" => Ok(Mode::Request),
        "publish" => Ok(Mode::Publish),
        "bidirectional" => Ok(Mode::Bidirectional),
        _ => Err(StreamIdError::Mode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_05_the_standard_form_gives_its_keys() {
        let keys = parse("#!::u=admin,r=live/a=b,m=publish,token=x.y,h=,t=stream").unwrap().unwrap();
        assert_eq!((keys.user, keys.resource, keys.host), (Some("admin"), Some("live/a=b"), Some("")));
        assert_eq!((keys.mode, keys.kind, keys.session), (Some(Mode::Publish), Some("stream"), None));
        assert_eq!(keys.others, [("token", "x.y")]);
        assert_eq!(parse("#!::").unwrap().unwrap(), StreamIdKeys::default());
        assert_eq!(parse("live/stream,token=x"), None);
    }

    #[test]
    fn s_05_what_is_unclear_is_refused() {
        for (id, wanted) in [
            ("#!::r=a,r=b", StreamIdError::Twice),
            ("#!::x=a,x=b", StreamIdError::Twice),
            ("#!::m=steal", StreamIdError::Mode),
            ("#!::r", StreamIdError::Item),
            ("#!::=a", StreamIdError::Item),
            ("#!::r=a,,m=publish", StreamIdError::Item),
        ] {
            assert_eq!(parse(id).unwrap(), Err(wanted), "{id}");
        }
        let many = format!("#!::{}", (0..40).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(","));
        assert_eq!(parse(&many).unwrap(), Err(StreamIdError::TooMany));
        // A path to a parent directory is a value like any other: callers that use it as a name must check
        // it.
        assert_eq!(parse("#!::r=../../x").unwrap().unwrap().resource, Some("../../x"));
    }
}
