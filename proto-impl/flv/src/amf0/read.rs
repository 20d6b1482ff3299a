//! The AMF0 reader, recursive to at most [`super::DEPTH_MAX`] levels.

use alloc::string::String;
use alloc::vec::Vec;

use wire::Reader;

use super::{DEPTH_MAX, Pairs, VALUES_MAX, Value};
use crate::Error;

/// Reads one value.
pub fn read(r: &mut Reader<'_>) -> Result<Value, Error> {
    Values { left: VALUES_MAX }.value(r, 0)
}

/// Reads values to the end of the input. [`VALUES_MAX`] limits all of them together.
pub fn read_all(r: &mut Reader<'_>) -> Result<Vec<Value>, Error> {
    let mut budget = Values { left: VALUES_MAX };
    let mut values = Vec::new();
    while !r.is_empty() {
        values.push(budget.value(r, 0)?);
    }
    Ok(values)
}

/// Reads a string, such as the name at the beginning of a command or data message.
pub fn read_string(r: &mut Reader<'_>) -> Result<String, Error> {
    let Value::String(text) = read(r)? else {
        return Err(Error::UnexpectedType);
    };
    Ok(text)
}

/// Number of values that the message may still contain.
struct Values {
    left: usize,
}

impl Values {
    fn value(&mut self, r: &mut Reader<'_>, depth: usize) -> Result<Value, Error> {
        let at = r.position();
        self.left = self.left.checked_sub(1).ok_or(Error::TooManyValues { at })?;
        let marker = r.u8()?;
        Ok(match marker {
            0x00 => Value::Number(r.f64()?),
            0x01 => Value::Boolean(r.u8()? != 0),
            0x02 => Value::String(text16(r)?),
            0x03 => Value::Object(self.pairs(r, deeper(depth, at)?)?),
            0x05 => Value::Null,
            0x06 => Value::Undefined,
            0x08 => {
                // Encoders often announce a wrong count, so it is ignored.
                r.u32()?;
                Value::EcmaArray(self.pairs(r, deeper(depth, at)?)?)
            }
            0x0a => Value::StrictArray(self.elements(r, deeper(depth, at)?)?),
            0x0b => Value::Date { unix_ms: r.f64()?, zone: r.u16()?.cast_signed() },
            0x0c => Value::String(text32(r)?),
            0x0d => Value::Unsupported,
            0x0f => Value::XmlDocument(text32(r)?),
            0x10 => {
                let class = text16(r)?;
                Value::TypedObject { class, pairs: self.pairs(r, deeper(depth, at)?)? }
            }
            0x11 => return Err(Error::Amf3 { at }),
            _ => return Err(Error::UnknownMarker { marker, at }),
        })
    }

    /// Reads members until the end marker 00 00 09 or the end of the input, because some encoders omit the marker of
    /// the last array.
    fn pairs(&mut self, r: &mut Reader<'_>, depth: usize) -> Result<Pairs, Error> {
        let mut pairs = Vec::new();
        while !r.is_empty() {
            let name = text16(r)?;
            if name.is_empty() && r.peek().is_none_or(|marker| marker == 0x09) {
                if !r.is_empty() {
                    r.u8()?;
                }
                break;
            }
            pairs.push((name, self.value(r, depth)?));
        }
        Ok(pairs)
    }

    /// Reads the announced number of elements. Each element takes at least a byte, so a count that is too large fails
    /// at the end of the input.
    fn elements(&mut self, r: &mut Reader<'_>, depth: usize) -> Result<Vec<Value>, Error> {
        let mut values = Vec::new();
        for _ in 0..r.u32()? {
            values.push(self.value(r, depth)?);
        }
        Ok(values)
    }
}

fn deeper(depth: usize, at: usize) -> Result<usize, Error> {
    if depth >= DEPTH_MAX { Err(Error::TooDeep { at }) } else { Ok(depth.saturating_add(1)) }
}

fn text16(r: &mut Reader<'_>) -> Result<String, Error> {
    let len = r.u16()?;
    text(r, usize::from(len))
}

fn text32(r: &mut Reader<'_>) -> Result<String, Error> {
    let len = r.u32()?;
    text(r, usize::try_from(len).unwrap_or(usize::MAX))
}

/// Reads UTF-8 text. Invalid bytes become U+FFFD instead of an error, because other parts of a command decide whether
/// it is valid.
fn text(r: &mut Reader<'_>, len: usize) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(r.take(len)?).into_owned())
}
