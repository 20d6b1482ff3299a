//! Packed strings of Redis: LZF compression, and the two forms of small hashes.

use std::borrow::Cow;

use wire::Reader;

/// Decompresses LZF: runs of literal bytes, and copies of earlier output.
pub(super) fn unpacked(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut reader = Reader::new(bytes);
    let mut out = Vec::with_capacity(length.min(bytes.len().saturating_mul(4)));
    while let Ok(control) = reader.u8() {
        let count = usize::from(control);
        if count < 0x20 {
            out.extend_from_slice(reader.take(count + 1).ok()?);
        } else {
            let long = if count >> 5 == 7 { usize::from(reader.u8().ok()?) } else { 0 };
            let count = (count >> 5) + long + 2;
            let back = ((usize::from(control) & 0x1f) << 8) + usize::from(reader.u8().ok()?) + 1;
            let from = out.len().checked_sub(back)?;
            // A copy may overlap the output that it writes, so bytes are copied one by one.
            for at in from..from + count {
                out.push(*out.get(at)?);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

/// Passes on the values of a ziplist, which is the form of small hashes before Redis 7. Returns false if no more values
/// are wanted, and `None` if the ziplist is damaged.
pub(super) fn ziplist(bytes: &[u8], give: &mut dyn FnMut(&[u8]) -> bool) -> Option<bool> {
    let mut reader = Reader::new(bytes);
    // Header: size in bytes, offset of the last entry, number of entries.
    reader.take(4 + 4 + 2).ok()?;
    for is_value in [false, true].into_iter().cycle() {
        match reader.u8().ok()? {
            0xff => break,
            // The length of the previous entry is in its long form.
            0xfe => drop(reader.take(4).ok()?),
            _ => {}
        }
        let first = reader.u8().ok()?;
        let entry = match first {
            0x00..0x40 => reader.take(first.into()).ok()?.into(),
            0x40..0x80 => {
                let length = u16::from_be_bytes([first & 0x3f, reader.u8().ok()?]);
                reader.take(length.into()).ok()?.into()
            }
            0x80 => long(&mut reader, u32::from_be_bytes)?,
            0xc0 => integer(&mut reader, 2)?,
            0xd0 => integer(&mut reader, 4)?,
            0xe0 => integer(&mut reader, 8)?,
            0xf0 => integer(&mut reader, 3)?,
            0xfe => integer(&mut reader, 1)?,
            0xf1..=0xfd => text((first & 0x0f).checked_sub(1)?.into()),
            _ => return None,
        };
        if is_value && !give(&entry) {
            return Some(false);
        }
    }
    reader.is_empty().then_some(true)
}

/// Passes on the values of a listpack: the second of every `size` entries. Returns false if no more values are wanted,
/// and `None` if the listpack is damaged.
pub(super) fn listpack(bytes: &[u8], size: usize, give: &mut dyn FnMut(&[u8]) -> bool) -> Option<bool> {
    let mut reader = Reader::new(bytes);
    // Header: size in bytes, number of entries.
    reader.take(4 + 2).ok()?;
    for place in (0..size).cycle() {
        let from = reader.position();
        let first = reader.u8().ok()?;
        let entry = match first {
            0x00..0x80 => text(first.into()),
            0x80..0xc0 => reader.take((first & 0x3f).into()).ok()?.into(),
            // A signed 13-bit integer.
            0xc0..0xe0 => {
                let bits = i16::from_be_bytes([first & 0x1f, reader.u8().ok()?]);
                text((if bits >= 1 << 12 { bits - (1 << 13) } else { bits }).into())
            }
            0xe0..0xf0 => {
                let length = u16::from_be_bytes([first & 0x0f, reader.u8().ok()?]);
                reader.take(length.into()).ok()?.into()
            }
            0xf0 => long(&mut reader, u32::from_le_bytes)?,
            0xf1 => integer(&mut reader, 2)?,
            0xf2 => integer(&mut reader, 3)?,
            0xf3 => integer(&mut reader, 4)?,
            0xf4 => integer(&mut reader, 8)?,
            0xff => break,
            _ => return None,
        };
        // Skip the entry's length, which is repeated after the entry for reading backward, with seven bits per byte.
        let length = reader.position() - from;
        let again = [1 << 7, 1 << 14, 1 << 21, 1 << 28].iter().filter(|limit| length >= **limit).count() + 1;
        reader.take(again).ok()?;
        if place == 1 && !give(&entry) {
            return Some(false);
        }
    }
    reader.is_empty().then_some(true)
}

fn long<'a>(reader: &mut Reader<'a>, length: impl Fn([u8; 4]) -> u32) -> Option<Cow<'a, [u8]>> {
    let length = length(reader.array().ok()?);
    Some(reader.take(usize::try_from(length).ok()?).ok()?.into())
}

/// Reads a signed little-endian integer of `size` bytes.
fn integer<'a>(reader: &mut Reader<'a>, size: usize) -> Option<Cow<'a, [u8]>> {
    let bytes = reader.take(size).ok()?;
    let sign = if bytes.last()? & 0x80 == 0 { 0 } else { 0xff };
    let mut all = [sign; 8];
    all.get_mut(..size)?.copy_from_slice(bytes);
    Some(text(i64::from_le_bytes(all)))
}

fn text<'a>(number: i64) -> Cow<'a, [u8]> {
    number.to_string().into_bytes().into()
}
