//! JSON that Jackson (the parser of Ant Media Server) accepts and serde_json does not: with a leading byte order mark,
//! or with the escape of a lone surrogate (RFC 8259 §8.1, §8.2). Such an escape becomes a replacement character,
//! because UTF-8 cannot encode it.

use std::borrow::Cow;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// The hexadecimal digits of U+FFFD.
const REPLACEMENT: &[u8] = b"fffd";

/// Converts a text so that serde_json accepts it. A text that serde_json accepts already is not copied.
pub(super) fn readable(bytes: &[u8]) -> Cow<'_, [u8]> {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let mut out: Option<Vec<u8>> = None;
    let mut at: usize = 0;
    // A backslash occurs only in strings, and always belongs to the character that follows it.
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        let escape = at.saturating_add(found);
        at = match unit(bytes, escape) {
            Some(0xd800..=0xdbff) if is_low(bytes, escape.saturating_add(6)) => escape.saturating_add(12),
            Some(0xd800..=0xdfff) => {
                let digits = escape.saturating_add(2)..escape.saturating_add(6);
                let own = out.get_or_insert_with(|| bytes.to_vec());
                if let Some(place) = own.get_mut(digits) {
                    place.copy_from_slice(REPLACEMENT);
                }
                escape.saturating_add(6)
            }
            Some(_) | None => escape.saturating_add(2),
        };
    }
    out.map_or(Cow::Borrowed(bytes), Cow::Owned)
}

/// Returns the UTF-16 code unit of an escape.
fn unit(bytes: &[u8], escape: usize) -> Option<u16> {
    let digits = bytes.get(escape..escape.checked_add(6)?)?.strip_prefix(b"\\u")?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_low(bytes: &[u8], escape: usize) -> bool {
    matches!(unit(bytes, escape), Some(0xdc00..=0xdfff))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(body: &str) -> Option<String> {
        serde_json::from_slice(&readable(body.as_bytes())).ok()
    }

    #[test]
    fn what_jackson_takes_is_taken() {
        for (body, want) in [
            ("\u{feff}\"a\"", "a"),
            (r#""\ud83d\ude00""#, "\u{1f600}"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""x\uDE00y""#, "x\u{fffd}y"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\\ud83d""#, r"\ud83d"),
            (r#""\\\ud83d""#, "\\\u{fffd}"),
            (r#""\"\u00e9""#, "\"é"),
        ] {
            assert_eq!(text(body).as_deref(), Some(want), "{body}");
        }
        for bad in [r#""\ud8""#, r#""\udzzz""#, r#""\ud83d"#, "\u{feff}\u{feff}\"a\"", r#""\"#] {
            assert_eq!(text(bad), None, "{bad}");
        }
    }

    proptest! {
        /// Text that serde_json accepts keeps its meaning; other text does not grow.
        #[test]
        fn good_text_is_left_alone(body in "\\PC*", bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let json = serde_json::to_string(&body).unwrap();
            prop_assert!(matches!(readable(json.as_bytes()), Cow::Borrowed(same) if same == json.as_bytes()));
            prop_assert!(readable(&bytes).len() <= bytes.len());
        }
    }
}
