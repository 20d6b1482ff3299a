//! Targets for input from clients of the management API: tokens and forms.

use bytes::Bytes;
use http1::{FormEvent, Headers, Malformed, Method, Multipart, Request, Version};

use crate::auth::jwt::{Claims, JwtError, sign, verify};
use crate::control::parts_of;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const NOW: u64 = 1_767_225_600_000;

/// Verifies the input as a token; then reads the input as claims, signs them, and verifies the result.
pub fn jwt(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if verify(&text, SECRET, NOW).is_ok() {
        assert!(text.is_ascii() && text.matches('.').count() == 2, "{text:?}");
    }
    assert!(verify(&text, &SECRET[..31], NOW).is_err());
    let Ok(claims) = serde_json::from_slice::<Claims>(data) else { return };
    match verify(&sign(&claims, SECRET), SECRET, NOW) {
        // Fractions may lose their last bit when they are written as text, so only the number of claims is
        // compared.
        Ok(read) => assert!(read.len() == claims.len()),
        Err(JwtError::Expired | JwtError::NotYet | JwtError::TooLong) => {}
        // The claims have a number that not all JSON readers accept.
        Err(JwtError::Malformed) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The parts of a form, each with its name and its body.
type Parts = Vec<(String, Vec<u8>)>;

/// Returns the parts of a body that arrives in pieces of this length.
fn parts_in_pieces(content_type: &str, body: &[u8], piece: usize) -> Option<Result<Parts, Malformed>> {
    let mut form = Multipart::of(content_type)?;
    let mut parts = Parts::new();
    for piece in body.chunks(piece) {
        form.feed(piece);
        loop {
            match form.poll() {
                Ok(Some(FormEvent::Part { name })) => parts.push((name, Vec::new())),
                Ok(Some(FormEvent::Data(data))) => {
                    parts.last_mut().expect("a part").1.extend_from_slice(&data)
                }
                Ok(None) => break,
                Err(error) => return Some(Err(error)),
            }
        }
    }
    Some(if form.is_complete() { Ok(parts) } else { Err(Malformed) })
}

/// Reads a form. The first line of the input is its content type, the rest its body. The parts together are
/// smaller than the body, and the same however the body is split.
pub fn form(data: &[u8]) {
    let (head, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let mut headers = Headers::new();
    headers.push("Content-Type", String::from_utf8_lossy(head));
    let request = Request {
        method: Method::Post,
        version: Version::Http11,
        target: String::new(),
        path: "/".to_owned(),
        query: Vec::new(),
        headers,
        body: Bytes::copy_from_slice(body),
        body_waits: false,
    };
    let content_type = String::from_utf8_lossy(head);
    let whole = parts_in_pieces(&content_type, body, body.len().max(1));
    for piece in [1, 7] {
        assert_eq!(parts_in_pieces(&content_type, body, piece), whole);
    }
    let Some(parts) = parts_of(&request) else { return };
    assert!(parts.iter().map(|part| part.len()).sum::<usize>() < body.len());
}
