//! Files of a form (`multipart/form-data`, RFC 7578 over RFC 2046 §5.1). The body is whole and bounded when it comes
//! here; parts are slices of it.

use bytes::Bytes;

use crate::http::Request;

/// Parts of one form.
const PARTS_MAX: usize = 16;
/// Bytes of a boundary (RFC 2046 §5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;
/// Bytes of the head of a part.
const HEAD_BYTES_MAX: usize = 4096;

/// A form.
#[derive(Debug)]
pub(super) struct Form {
    parts: Vec<(String, Bytes)>,
}

impl Form {
    /// `None` when it is not one, in every letter.
    pub(super) fn parse(request: &Request) -> Option<Self> {
        let boundary = boundary_of(request.header("content-type")?)?;
        let delimiter = format!("--{boundary}");
        let body = &request.body;
        let mut parts = Vec::new();
        let mut at = delimiter.len();
        if !body.starts_with(delimiter.as_bytes()) {
            return None;
        }
        loop {
            let rest = body.get(at..)?;
            if rest.starts_with(b"--") {
                return Some(Self { parts });
            }
            if !rest.starts_with(b"\r\n") || parts.len() >= PARTS_MAX {
                return None;
            }
            let head_start = at.checked_add(2)?;
            let head_length = find(body.get(head_start..)?, b"\r\n\r\n").filter(|n| *n <= HEAD_BYTES_MAX)?;
            let start = head_start.checked_add(head_length)?.checked_add(4)?;
            let length = find(body.get(start..)?, format!("\r\n{delimiter}").as_bytes())?;
            let end = start.checked_add(length)?;
            let head =
                std::str::from_utf8(body.get(head_start..head_start.checked_add(head_length)?)?).ok()?;
            parts.push((name_of(head)?, body.slice(start..end)));
            at = end.checked_add(2)?.checked_add(delimiter.len())?;
        }
    }

    /// The first part of that name.
    pub(super) fn part(&self, name: &str) -> Option<Bytes> {
        self.parts.iter().find(|(known, _)| known == name).map(|(_, part)| part.clone())
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn boundary_of(content_type: &str) -> Option<&str> {
    let boundary = parameter(content_type, "boundary")?;
    let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
        && boundary.bytes().all(|b| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b));
    fits.then_some(boundary)
}

/// The value of a parameter, its quotes taken off; names and boundaries have no escapes.
fn parameter<'a>(value: &'a str, wanted: &str) -> Option<&'a str> {
    let parameters = value.split(';').skip(1).filter_map(|part| part.split_once('='));
    let mut ours = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
    let value = ours.next()?.1.trim();
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// `name` of a part's `Content-Disposition`.
fn name_of(head: &str) -> Option<String> {
    let field = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut field = field.filter(|(name, _)| name.eq_ignore_ascii_case("content-disposition"));
    parameter(field.next()?.1, "name").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Headers, Method, Version};

    fn form(content_type: &str, body: &str) -> Option<Form> {
        let mut headers = Headers::new();
        headers.push("Content-Type", content_type);
        Form::parse(&Request {
            method: Method::Post,
            version: Version::Http11,
            target: String::new(),
            path: "/".into(),
            query: Vec::new(),
            headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
        })
    }

    const TYPE: &str = "multipart/form-data; boundary=\"x-1\"";

    #[test]
    fn parts_are_found_by_name_with_their_bytes() {
        let body = "--x-1\r\nContent-Disposition: form-data; name=\"a\"; filename=\"f.pem\"\r\n\
                    Content-Type: text/plain\r\n\r\none\r\n--two\r\n\r\n--x-1\r\n\
                    content-disposition: form-data; name=b\r\n\r\n\r\n--x-1--\r\n";
        let form = form(TYPE, body).unwrap();
        assert_eq!(form.part("a").unwrap(), "one\r\n--two\r\n");
        assert_eq!((form.part("b").unwrap(), form.part("c")), (Bytes::new(), None));
    }

    #[test]
    fn what_is_no_form_is_refused() {
        let good = "--x-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--x-1--";
        assert!(form(TYPE, good).is_some());
        for cut in 0..good.len() - 2 {
            assert!(form(TYPE, &good[..cut]).is_none(), "{cut}");
        }
        for content_type in
            ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=a\"b"]
        {
            assert!(form(content_type, good).is_none(), "{content_type}");
        }
        assert!(form(TYPE, "--x-1\r\nX: y\r\n\r\none\r\n--x-1--").is_none(), "without a name");
        let many = "--x-1\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n".repeat(17) + "--x-1--";
        assert!(form(TYPE, &many).is_none());
    }
}
