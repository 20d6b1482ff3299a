//! Forms with files (`multipart/form-data`, RFC 7578 over RFC 2046 §5.1). The bytes may arrive in pieces of any size.
//! Content is passed on as it arrives; at most the head of a part or a delimiter is held back.
//!
//! ```text
//! "--" boundary CR LF head CR LF CR LF content ( CR LF "--" boundary CR LF head CR LF CR LF content )* CR LF "--" boundary "--"
//! ```
//!
//! The crates that parse forms read from streams of an async runtime, so this server has a parser of its own, a sans-IO
//! state machine. The parser is as strict as they are: it accepts no preamble and no space after a boundary, and
//! requires a name in the head of each part.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use bytes::{Buf, Bytes, BytesMut};

/// Maximum number of parts of a form.
const PARTS_MAX: usize = 16;
/// Maximum length of a boundary in bytes (RFC 2046 §5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;
/// Maximum size of the head of a part in bytes.
const HEAD_BYTES_MAX: usize = 4096;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The body is not a valid form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Malformed form")]
pub struct Malformed;

/// A piece of a form, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormEvent {
    /// A part begins.
    Part {
        /// Name of the part.
        name: String,
    },
    /// A piece of the part's content.
    Data(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the first delimiter.
    Start,
    /// After a delimiter.
    Delimited,
    Head,
    Content,
    /// After the last delimiter; further bytes are ignored.
    Done,
}

/// A parser of a form.
#[derive(Debug)]
pub struct Multipart {
    /// The delimiter, with the line end before it.
    delimiter: Vec<u8>,
    held: BytesMut,
    stage: Stage,
    parts: usize,
}

impl Multipart {
    /// Makes a parser for a body of this media type; `None` if the type is not a form.
    #[must_use]
    pub fn of(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("multipart/form-data") {
            return None;
        }
        let delimiter = format!("\r\n--{}", boundary_of(content_type)?).into_bytes();
        Some(Self { delimiter, held: BytesMut::new(), stage: Stage::Start, parts: 0 })
    }

    /// Takes bytes of the body. Poll all events before feeding more.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.stage != Stage::Done {
            self.held.extend_from_slice(bytes);
        }
    }

    /// Returns the next piece.
    ///
    /// # Errors
    /// The body is not a valid form.
    pub fn poll(&mut self) -> Result<Option<FormEvent>, Malformed> {
        loop {
            match self.stage {
                Stage::Start => {
                    let first = self.delimiter.get(2..).unwrap_or_default();
                    let known = self.held.len().min(first.len());
                    if self.held.get(..known) != first.get(..known) {
                        return Err(Malformed);
                    }
                    if known < first.len() {
                        return Ok(None);
                    }
                    self.held.advance(known);
                    self.stage = Stage::Delimited;
                }
                Stage::Delimited => {
                    let Some(next) = self.held.get(..2) else { return Ok(None) };
                    self.stage = match next {
                        b"--" => Stage::Done,
                        b"\r\n" if self.parts < PARTS_MAX => Stage::Head,
                        _ => return Err(Malformed),
                    };
                    self.held.advance(2);
                }
                Stage::Head => return self.head(),
                Stage::Content => match self.content() {
                    Some(data) if data.is_empty() => {}
                    data => return Ok(data.map(FormEvent::Data)),
                },
                Stage::Done => {
                    self.held = BytesMut::new();
                    return Ok(None);
                }
            }
        }
    }

    /// True if the last delimiter has been received.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stage == Stage::Done
    }

    fn head(&mut self) -> Result<Option<FormEvent>, Malformed> {
        let Some(length) = find(&self.held, HEAD_END) else {
            let is_too_long = self.held.len() > HEAD_BYTES_MAX.saturating_add(HEAD_END.len());
            return if is_too_long { Err(Malformed) } else { Ok(None) };
        };
        if length > HEAD_BYTES_MAX {
            return Err(Malformed);
        }
        let head = self.held.split_to(length);
        self.held.advance(HEAD_END.len());
        let head = std::str::from_utf8(&head).map_err(|_| Malformed)?;
        let name = name_of(head).ok_or(Malformed)?;
        self.parts = self.parts.saturating_add(1);
        self.stage = Stage::Content;
        Ok(Some(FormEvent::Part { name }))
    }

    /// Returns content up to the delimiter; `None` if more bytes are needed.
    fn content(&mut self) -> Option<Bytes> {
        if let Some(length) = find(&self.held, &self.delimiter) {
            let data = self.held.split_to(length).freeze();
            self.held.advance(self.delimiter.len());
            self.stage = Stage::Delimited;
            return Some(data);
        }
        // The last held bytes may be the beginning of a delimiter, so they are kept.
        let kept = self.delimiter.len().saturating_sub(1);
        let sure = self.held.len().checked_sub(kept).filter(|sure| *sure > 0)?;
        Some(self.held.split_to(sure).freeze())
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

fn boundary_of(content_type: &str) -> Option<&str> {
    let boundary = parameter(content_type, "boundary")?;
    let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
        && boundary.bytes().all(|b| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b));
    fits.then_some(boundary)
}

/// Returns the value of a parameter without its quotes. Escapes are not decoded, because names and boundaries have
/// none.
fn parameter<'a>(value: &'a str, wanted: &str) -> Option<&'a str> {
    let parameters = value.split(';').skip(1).filter_map(|part| part.split_once('='));
    let mut ours = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
    let value = ours.next()?.1.trim();
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// Returns the `name` of a part's `Content-Disposition`.
fn name_of(head: &str) -> Option<String> {
    let field = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut field = field.filter(|(name, _)| name.eq_ignore_ascii_case("content-disposition"));
    parameter(field.next()?.1, "name").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"x-1\"";
    const FORM: &str = "--x-1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.mp4\"\r\n\
                        Content-Type: video/mp4\r\n\r\none\r\n--two\r\n\r\n--x\r\n--x-1\r\n\
                        content-disposition: form-data; name=b\r\n\r\n\r\n--x-1--\r\nepilogue";

    /// Names and contents.
    type Parts = Vec<(String, Vec<u8>)>;

    /// Returns the parts of a body fed in pieces, and the maximum number of bytes held between pieces.
    fn parts(body: &[u8], piece: usize) -> Result<(Parts, usize), Malformed> {
        let mut form = Multipart::of(TYPE).unwrap();
        let (mut parts, mut held) = (Parts::new(), 0);
        for piece in body.chunks(piece) {
            form.feed(piece);
            while let Some(event) = form.poll()? {
                match event {
                    FormEvent::Part { name } => parts.push((name, Vec::new())),
                    FormEvent::Data(data) => parts.last_mut().unwrap().1.extend_from_slice(&data),
                }
            }
            held = held.max(form.held.len());
        }
        if form.is_complete() { Ok((parts, held)) } else { Err(Malformed) }
    }

    #[test]
    fn a_form_is_the_same_in_any_split() {
        let expected =
            vec![("file".to_owned(), b"one\r\n--two\r\n\r\n--x".to_vec()), ("b".to_owned(), Vec::new())];
        for piece in 1..FORM.len() {
            assert_eq!(parts(FORM.as_bytes(), piece).unwrap().0, expected, "{piece}");
        }
    }

    #[test]
    fn r_45_no_more_is_held_than_a_delimiter() {
        let head = "--x-1\r\nContent-Disposition: form-data; name=file\r\n\r\n";
        let body = [head.as_bytes(), &b"\r\n--x-".repeat(100_000), b"\r\n--x-1--"].concat();
        let (parts, held) = parts(&body, 1000).unwrap();
        assert_eq!(parts[0].1.len(), 600_000);
        assert!(held < 1000, "{held}");
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for (body, what) in [
            ("x--x-1\r\n", "preamble"),
            ("--x-2\r\n", "another boundary"),
            ("--x-1 \r\n", "space behind it"),
            ("--x-1\r\nX: y\r\n\r\none\r\n--x-1--", "without a name"),
            ("--x-1\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none", "cut off"),
        ] {
            assert_eq!(parts(body.as_bytes(), 7), Err(Malformed), "{what}");
        }
        let many = "--x-1\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n".repeat(17) + "--x-1--";
        assert_eq!(parts(many.as_bytes(), 100), Err(Malformed));
        let long = format!("--x-1\r\nX: {}", "y".repeat(9000));
        assert_eq!(parts(long.as_bytes(), 100), Err(Malformed));
        for content_type in
            ["text/plain; boundary=a", "multipart/form-data", "multipart/form-data; boundary=a\"b"]
        {
            assert!(Multipart::of(content_type).is_none(), "{content_type}");
        }
    }
}
