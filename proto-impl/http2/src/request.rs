//! Validation of a request's fields (RFC 9113 §8.2, §8.3, §8.5; RFC 8441 §4).

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use bytes::Bytes;

use crate::hpack::Field;

/// Maximum number of digits of a Content-Length; 19 digits always fit 64 bits.
const LENGTH_DIGITS_MAX: usize = 19;
/// Connection-specific fields, which HTTP/2 forbids (RFC 9113 §8.2.2).
const OF_CONNECTIONS: [&[u8]; 5] =
    [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"];

/// Head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Value of `:method`.
    pub method: Bytes,
    /// Value of `:scheme`; empty for a plain CONNECT.
    pub scheme: Bytes,
    /// Value of `:authority`, or of `Host` if there is none; empty if both are missing.
    pub authority: Bytes,
    /// Value of `:path` with its query; empty for a plain CONNECT.
    pub path: Bytes,
    /// Value of `:protocol` in an extended CONNECT (RFC 8441 §4).
    pub protocol: Option<Bytes>,
    /// All other fields except `Host`; several `Cookie` fields are joined (RFC 9113 §8.2.3).
    pub fields: Vec<Field>,
    /// Value of `Content-Length`. The length of the body must match it.
    pub content_length: Option<u64>,
}

/// Pseudo-header fields collected so far.
#[derive(Debug, Default)]
struct Pseudo {
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
    protocol: Option<Bytes>,
}

impl Pseudo {
    fn take(&mut self, field: &Field) -> Result<(), &'static str> {
        let slot = match &field.name[..] {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b":protocol" => &mut self.protocol,
            _ => return Err("an unknown pseudo-header field"),
        };
        match slot.replace(field.value.clone()) {
            Some(_) => Err("a pseudo-header field twice"),
            None => Ok(()),
        }
    }
}

impl Request {
    /// Validates a header list and returns the request.
    ///
    /// # Errors
    /// The rule that makes the request malformed (RFC 9113 §8.1.1).
    pub(crate) fn of(list: Vec<Field>) -> Result<Self, &'static str> {
        let mut pseudo = Pseudo::default();
        let (mut fields, mut host, mut content_length) = (Vec::with_capacity(list.len()), None, None);
        let mut cookie: Option<Vec<u8>> = None;
        for field in list {
            check_value(&field.value)?;
            if field.name.starts_with(b":") {
                if !fields.is_empty() || host.is_some() || content_length.is_some() || cookie.is_some() {
                    return Err("a pseudo-header field behind others");
                }
                pseudo.take(&field)?;
                continue;
            }
            check_name(&field)?;
            match &field.name[..] {
                b"host" if host.is_some() => return Err("Host twice"),
                b"host" => host = Some(field.value),
                b"content-length" if content_length.is_some() => return Err("Content-Length twice"),
                b"content-length" => {
                    content_length = Some(length(&field.value).ok_or("Content-Length")?);
                    fields.push(field);
                }
                b"cookie" => match &mut cookie {
                    Some(crumbs) => {
                        crumbs.extend_from_slice(b"; ");
                        crumbs.extend_from_slice(&field.value);
                    }
                    None => cookie = Some(field.value.to_vec()),
                },
                _ => fields.push(field),
            }
        }
        fields.extend(cookie.map(|cookie| Field::new(&b"cookie"[..], cookie)));
        let method = pseudo.method.filter(|method| is_token(method)).ok_or("no :method")?;
        let authority = match (pseudo.authority, host) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(&host) => {
                return Err("Host is not :authority");
            }
            (Some(authority), _) => authority,
            (None, host) => host.unwrap_or_default(),
        };
        let is_connect = &method[..] == b"CONNECT" && pseudo.protocol.is_none();
        let (scheme, path) = match (pseudo.scheme, pseudo.path) {
            (None, None) if is_connect && !authority.is_empty() => (Bytes::new(), Bytes::new()),
            (_, _) if is_connect => return Err("CONNECT with :scheme or :path, or without :authority"),
            (Some(scheme), Some(path)) if !scheme.is_empty() && !path.is_empty() => (scheme, path),
            (_, _) => return Err("no :scheme or no :path"),
        };
        if pseudo.protocol.is_some() && &method[..] != b"CONNECT" {
            return Err(":protocol without CONNECT");
        }
        Ok(Self { method, scheme, authority, path, protocol: pseudo.protocol, fields, content_length })
    }
}

/// Validates trailer fields.
pub(crate) fn check_trailers(list: &[Field]) -> Result<(), &'static str> {
    list.iter().try_for_each(|field| {
        check_value(&field.value)?;
        check_name(field)
    })
}

/// Checks a field name (RFC 9113 §8.2.1, §8.2.2). Pseudo-header fields must have been removed before.
fn check_name(field: &Field) -> Result<(), &'static str> {
    if !is_token(&field.name) || field.name.iter().any(u8::is_ascii_uppercase) {
        return Err("the name of a field");
    }
    if OF_CONNECTIONS.contains(&&field.name[..]) {
        return Err("a field of connections");
    }
    if &field.name[..] == b"te" && !field.value.eq_ignore_ascii_case(b"trailers") {
        return Err("TE other than trailers");
    }
    Ok(())
}

/// Checks a field value (RFC 9113 §8.2.1), which must not contain control characters either (RFC 9110 §5.5).
fn check_value(value: &[u8]) -> Result<(), &'static str> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_control = |byte: &u8| *byte != b'\t' && byte.is_ascii_control();
    if value.iter().any(is_control) || is_space(value.first()) || is_space(value.last()) {
        return Err("the value of a field");
    }
    Ok(())
}

/// True if the text is a token (RFC 9110 §5.6.2).
fn is_token(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

fn length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > LENGTH_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&'static str, &'static str)]) -> Result<Request, &'static str> {
        Request::of(list.iter().map(|(name, value)| Field::new(*name, *value)).collect())
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "h")];

    fn with(more: &[(&'static str, &'static str)]) -> Result<Request, &'static str> {
        of(&[&GET[..], more].concat())
    }

    #[test]
    fn a_request_is_its_pseudo_header_fields_and_the_rest() {
        let request = with(&[
            ("host", "H"),
            ("cookie", "a=1"),
            ("x", "y"),
            ("cookie", "b=2"),
            ("te", "trailers"),
            ("content-length", "7"),
        ])
        .unwrap();
        let fields: Vec<_> = request.fields.iter().map(|field| (&field.name[..], &field.value[..])).collect();
        assert_eq!((&request.authority[..], request.content_length), (&b"h"[..], Some(7)));
        let want: [(&[u8], &[u8]); 4] =
            [(b"x", b"y"), (b"te", b"trailers"), (b"content-length", b"7"), (b"cookie", b"a=1; b=2")];
        assert_eq!(fields, want);
        let without = of(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", "g")]).unwrap();
        assert_eq!(&without.authority[..], b"g");
    }

    #[test]
    fn malformed_requests() {
        for more in [
            [("Accept", "x")],
            [("x y", "z")],
            [("", "z")],
            [("x", "a\r\nb")],
            [("x", "a\0")],
            [("x", " a")],
            [("x", "a\t")],
            [("host", "other")],
            [("connection", "close")],
            [("keep-alive", "1")],
            [("proxy-connection", "x")],
            [("transfer-encoding", "chunked")],
            [("upgrade", "websocket")],
            [("te", "gzip")],
            [("content-length", "")],
            [("content-length", "+1")],
            [("content-length", "99999999999999999999")],
            [(":path", "/again")],
            [(":status", "200")],
            [(":protocol", "websocket")],
        ] {
            assert!(with(&more).is_err(), "{more:?}");
        }
        assert!(with(&[("content-length", "1"), ("content-length", "1")]).is_err());
        assert!(with(&[("host", "h"), ("host", "h")]).is_err());
        for (missing, _) in &GET[..3] {
            let list: Vec<_> = GET.iter().filter(|(name, _)| name != missing).copied().collect();
            assert!(of(&list).is_err(), "{missing}");
        }
        assert!(of(&[&[("x", "y")], &GET[..]].concat()).is_err(), "pseudo-header fields come first");
        assert!(of(&[(":method", "GET"), (":scheme", "https"), (":path", ""), (":authority", "h")]).is_err());
        assert!(
            of(&[(":method", "G T"), (":scheme", "https"), (":path", "/"), (":authority", "h")]).is_err()
        );
    }

    #[test]
    fn connect_names_an_authority_and_websockets_a_path_too() {
        let plain = of(&[(":method", "CONNECT"), (":authority", "h:1")]).unwrap();
        assert!(plain.path.is_empty() && plain.protocol.is_none());
        assert!(of(&[(":method", "CONNECT"), (":authority", "h"), (":path", "/")]).is_err());
        assert!(of(&[(":method", "CONNECT")]).is_err());
        let extended =
            [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/ws")];
        let extended = of(&[&extended[..], &[(":authority", "h")]].concat()).unwrap();
        assert_eq!(extended.protocol.as_deref(), Some(&b"websocket"[..]));
        assert!(of(&[(":method", "CONNECT"), (":protocol", "websocket"), (":authority", "h")]).is_err());
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        let check = |name, value| check_trailers(&[Field::new(name, value)]);
        assert_eq!(check("x-sum", "1"), Ok(()));
        assert!(
            check(":path", "/").is_err() && check("connection", "x").is_err() && check("x", "\n").is_err()
        );
    }
}
