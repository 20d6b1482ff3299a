//! Forms whose body is complete and of limited size ([`Multipart`]).

use bytes::{Bytes, BytesMut};

use crate::http::{FormEvent, Multipart, Request};

/// A parsed form.
#[derive(Debug)]
pub(super) struct Form {
    parts: Vec<(String, Bytes)>,
}

impl Form {
    /// Parses a form strictly; `None` if malformed.
    pub(super) fn parse(request: &Request) -> Option<Self> {
        let mut form = Multipart::of(request.header("content-type")?)?;
        form.feed(&request.body);
        let mut parts: Vec<(String, BytesMut)> = Vec::new();
        while let Some(event) = form.poll().ok()? {
            match event {
                FormEvent::Part { name } => parts.push((name, BytesMut::new())),
                FormEvent::Data(data) => parts.last_mut()?.1.extend_from_slice(&data),
            }
        }
        let parts = parts.into_iter().map(|(name, content)| (name, content.freeze()));
        form.is_complete().then(|| Self { parts: parts.collect() })
    }

    /// Returns the first part with this name.
    pub(super) fn part(&self, name: &str) -> Option<Bytes> {
        self.parts.iter().find(|(known, _)| known == name).map(|(_, part)| part.clone())
    }
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
            body_waits: false,
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
