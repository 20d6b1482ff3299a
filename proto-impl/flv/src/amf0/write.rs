//! The AMF0 writer.

use alloc::string::String;

use wire::Writer;

use super::Value;

/// Appends one value. Only our own values are written, so their nesting is not limited here.
pub fn write(value: &Value, w: &mut Writer) {
    match value {
        Value::Number(number) => {
            w.u8(0x00).f64(*number);
        }
        Value::Boolean(value) => {
            w.u8(0x01).u8(u8::from(*value));
        }
        Value::String(text) => write_string(text, w),
        Value::Object(pairs) => {
            w.u8(0x03);
            write_pairs(pairs, w);
        }
        Value::Null => {
            w.u8(0x05);
        }
        Value::Undefined => {
            w.u8(0x06);
        }
        Value::EcmaArray(pairs) => {
            w.u8(0x08).u32(count(pairs.len()));
            write_pairs(pairs, w);
        }
        Value::StrictArray(values) => {
            w.u8(0x0a).u32(count(values.len()));
            write_all(values, w);
        }
        Value::Date { unix_ms, zone } => {
            w.u8(0x0b).f64(*unix_ms).u16(zone.cast_unsigned());
        }
        Value::Unsupported => {
            w.u8(0x0d);
        }
        Value::XmlDocument(text) => {
            w.u8(0x0f).u32(count(text.len())).bytes(text.as_bytes());
        }
        Value::TypedObject { class, pairs } => {
            w.u8(0x10);
            write_name(class, w);
            write_pairs(pairs, w);
        }
    }
}

/// Appends values in order.
pub fn write_all<'a>(values: impl IntoIterator<Item = &'a Value>, w: &mut Writer) {
    for value in values {
        write(value, w);
    }
}

fn write_string(text: &str, w: &mut Writer) {
    if let Ok(len) = u16::try_from(text.len()) {
        w.u8(0x02).u16(len).bytes(text.as_bytes());
    } else {
        w.u8(0x0c).u32(count(text.len())).bytes(text.as_bytes());
    }
}

fn write_pairs(pairs: &[(String, Value)], w: &mut Writer) {
    for (name, value) in pairs {
        write_name(name, w);
        write(value, w);
    }
    w.u16(0).u8(0x09);
}

/// Appends a name with its 16-bit length. A longer name is truncated at a character boundary.
fn write_name(name: &str, w: &mut Writer) {
    let end = (0..=name.len().min(usize::from(u16::MAX))).rev().find(|end| name.is_char_boundary(*end));
    let name = name.get(..end.unwrap_or(0)).unwrap_or_default();
    w.u16(u16::try_from(name.len()).unwrap_or(u16::MAX)).bytes(name.as_bytes());
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
