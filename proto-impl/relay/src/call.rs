//! Calls of the API that must be performed by another node, and the answers. Both are bodies of frames.

use bytes::Bytes;
use wire::{Reader, Writer};

use crate::Error;
use crate::frame::{self, BODY_BYTES_MAX, kind, put_name, read_name};

/// Maximum length in bytes of the frame of a call.
pub const CALL_BYTES_MAX: u32 = 512 * 1024;
/// Maximum number of query pairs of a call, and of header fields of an answer.
const PAIRS_MAX: usize = 256;
const SEES_CREDENTIALS: u8 = 1;

/// An API request that is forwarded by the node that received it. That node has already checked the user's
/// permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Token of the method (RFC 9110 §9).
    pub method: String,
    /// Decoded path.
    pub path: String,
    /// Decoded pairs of the query in order.
    pub query: Vec<(String, String)>,
    /// `Content-Type`, or empty if there is none.
    pub content_type: String,
    /// Body of the request.
    pub body: Bytes,
    /// User or rule that allowed the request, for the audit log.
    pub user: String,
    /// Address of the user, or empty if it is not known.
    pub address: String,
    /// True if the answer may contain credentials.
    pub sees_credentials: bool,
}

/// Answer to a [`Call`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code (RFC 9110 §15).
    pub status: u16,
    /// Header fields in order.
    pub fields: Vec<(String, String)>,
    /// Body of the answer.
    pub body: Bytes,
}

impl Call {
    /// Makes the frame. Returns `None` if it would have more than [`CALL_BYTES_MAX`] bytes, or if a part is too long
    /// for its length field.
    pub(crate) fn frame(&self) -> Option<Bytes> {
        let mut out = Writer::with_capacity(self.body.len().saturating_add(512));
        out.u8(if self.sees_credentials { SEES_CREDENTIALS } else { 0 });
        put_name(&mut out, &self.method);
        put_name(&mut out, &self.user);
        put_name(&mut out, &self.address);
        put_text(&mut out, &self.path)?;
        put_text(&mut out, &self.content_type)?;
        put_pairs(&mut out, &self.query)?;
        out.bytes(&self.body);
        framed(kind::CALL, out, CALL_BYTES_MAX)
    }

    pub(crate) fn read(body: &Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(body);
        let sees_credentials = reader.u8()? & SEES_CREDENTIALS != 0;
        let (method, user) = (read_name(&mut reader)?, read_name(&mut reader)?);
        let address = read_name(&mut reader)?;
        let (path, content_type) = (read_text(&mut reader)?, read_text(&mut reader)?);
        let query = read_pairs(&mut reader)?;
        let body = body.slice(reader.position()..);
        Ok(Self { method, path, query, content_type, body, user, address, sees_credentials })
    }
}

impl Answer {
    /// Makes the frame. Returns `None` if it is larger than a frame may be.
    pub(crate) fn frame(&self) -> Option<Bytes> {
        let mut out = Writer::with_capacity(self.body.len().saturating_add(256));
        out.u16(self.status);
        put_pairs(&mut out, &self.fields)?;
        out.bytes(&self.body);
        framed(kind::ANSWER, out, BODY_BYTES_MAX)
    }

    pub(crate) fn read(body: &Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(body);
        let status = reader.u16()?;
        if !(200..600).contains(&status) {
            return Err(Error::Invalid("status"));
        }
        let fields = read_pairs(&mut reader)?;
        Ok(Self { status, fields, body: body.slice(reader.position()..) })
    }
}

fn framed(kind: u8, mut body: Writer, bytes_max: u32) -> Option<Bytes> {
    u32::try_from(body.len()).ok().filter(|length| *length <= bytes_max)?;
    Some(frame::frame(kind, &body.take()))
}

/// Appends a text of at most 65,535 bytes after its length.
fn put_text(out: &mut Writer, text: &str) -> Option<()> {
    out.u16(u16::try_from(text.len()).ok()?).bytes(text.as_bytes());
    Some(())
}

fn put_pairs(out: &mut Writer, pairs: &[(String, String)]) -> Option<()> {
    let count = u16::try_from(pairs.len()).ok().filter(|_| pairs.len() <= PAIRS_MAX)?;
    out.u16(count);
    for (name, value) in pairs {
        put_text(out, name)?;
        put_text(out, value)?;
    }
    Some(())
}

fn read_text(reader: &mut Reader<'_>) -> Result<String, Error> {
    let length = reader.u16()?;
    let text = reader.take(usize::from(length))?;
    std::str::from_utf8(text).map(str::to_owned).map_err(|_| Error::Invalid("text"))
}

fn read_pairs(reader: &mut Reader<'_>) -> Result<Vec<(String, String)>, Error> {
    let count = usize::from(reader.u16()?);
    if count > PAIRS_MAX {
        return Err(Error::Invalid("number of pairs"));
    }
    (0..count).map(|_| Ok((read_text(reader)?, read_text(reader)?))).collect()
}
