//! Properties of a file, read from parts of it.

use wire::Reader;

use crate::ebml::{Head, id, read_element, read_float, read_uint};
use crate::writer::TIMESTAMP_SCALE;
use crate::{Error, HEAD_BYTES_MAX};

/// Maximum length of an `Info` element in bytes.
pub const INFO_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of an EBML header in bytes. The headers written here have 31.
const HEADER_BYTES_MAX: u64 = 1024;

/// Returns whether `bytes` begin like an EBML file.
#[must_use]
pub fn is_webm(bytes: &[u8]) -> bool {
    bytes.starts_with(&id::EBML.to_be_bytes())
}

/// Returns the offset of the segment from the first bytes of a file.
pub(crate) fn segment_at(first: &[u8]) -> Result<u64, Error> {
    let header = Head::read(first)?;
    let size = header.size.filter(|size| *size <= HEADER_BYTES_MAX).ok_or(Error::NotWebm)?;
    if header.id != id::EBML {
        return Err(Error::NotWebm);
    }
    Ok(size.saturating_add(header.bytes as u64))
}

/// Returns whether a file of this length is finished, that is, whether the size of its segment matches the end of the
/// file. `first` are the first bytes of the file: at least a hundred, unless the file is shorter.
#[must_use]
pub fn is_finished(first: &[u8], length: u64) -> bool {
    let segment = segment_at(first).ok().and_then(|at| {
        let from = usize::try_from(at).ok()?;
        let head = Head::read(first.get(from..)?.get(..HEAD_BYTES_MAX)?).ok()?;
        let body_at = at.checked_add(head.bytes as u64)?;
        (head.id == id::SEGMENT).then_some((body_at, head.size?))
    });
    segment.is_some_and(|(body_at, size)| body_at.checked_add(size) == Some(length))
}

/// Returns the duration in the body of an `Info`, in milliseconds, or `None` if it has none.
///
/// # Errors
/// Returns an error if the body cannot be read.
pub fn duration_ms(info: &[u8]) -> Result<Option<u64>, Error> {
    let mut reader = Reader::new(info);
    let (mut scale, mut duration) = (TIMESTAMP_SCALE, None);
    while !reader.is_empty() {
        match read_element(&mut reader)? {
            (id::TIMESTAMP_SCALE, body) => scale = read_uint(body)?,
            (id::DURATION, body) => duration = Some(read_float(body)?),
            _ => {}
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a scale is a small number, and a duration is rounded")]
    let ms = duration.map(|ticks| ticks * scale as f64 / 1e6);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast saturates, and a whole number is meant"
    )]
    let rounded = ms.filter(|ms| ms.is_finite() && *ms >= 0.0).map(|ms| ms.round() as u64);
    Ok(rounded)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::ebml::{put_binary, put_float, put_uint};

    #[test]
    fn the_duration_is_in_ticks_of_the_scale() {
        let info = |scale: Option<u64>, duration: f64| {
            let mut out = BytesMut::new();
            put_binary(&mut out, id::MUXING_APP, b"somebody's");
            scale.into_iter().for_each(|scale| put_uint(&mut out, id::TIMESTAMP_SCALE, scale));
            put_float(&mut out, id::DURATION, duration);
            out
        };
        assert_eq!(duration_ms(&info(None, 1234.4)), Ok(Some(1234)));
        assert_eq!(duration_ms(&info(Some(1000), 5_000_000.0)), Ok(Some(5000)));
        for none in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(duration_ms(&info(None, none)), Ok(None));
        }
        assert_eq!(duration_ms(&info(Some(u64::MAX), 1e30)), Ok(Some(u64::MAX)));
        assert_eq!(duration_ms(&[]), Ok(None));
        let whole = info(Some(1000), 1.0);
        (1..whole.len()).for_each(|cut| {
            let _ = duration_ms(&whole[..cut]);
        });
        assert!(duration_ms(&whole[..whole.len() - 1]).is_err());
    }
}
