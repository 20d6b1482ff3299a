//! The fields of a log line. Values that peers choose (ids, hosts, agents) must not look like other fields or hide
//! text.

use std::fmt::{self, Debug, Write};

use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

/// Writes `name=value`, or the message without a name.
pub(super) fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() == "message" {
        return text.chars().try_for_each(|c| match is_visible(c) {
            true => writer.write_char(c),
            false => write!(writer, "{}", c.escape_unicode()),
        });
    }
    if is_plain(&text) || is_quoted(&text) {
        write!(writer, "{}={text}", field.name())
    } else {
        write!(writer, "{}=\"{}\"", field.name(), Escaped(&text))
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            c if is_visible(c) => f.write_char(c),
            c => write!(f, "{}", c.escape_unicode()),
        })
    }
}

/// True if the text needs no quotes: a word without spaces, quotes or equals signs.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| is_visible(c) && !matches!(c, ' ' | '=' | '"' | '\\'))
}

/// True if the text has the form that `Debug` writes: in quotes, with every inner quote escaped.
fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return false };
    let mut escaped = false;
    let ends_inside = inner.chars().all(|c| {
        let fits = is_visible(c) && (c != '"' || escaped);
        escaped = c == '\\' && !escaped;
        fits
    });
    ends_inside && !escaped
}

/// False if the character is a control character (C0, C1), changes the direction of text, or has no width.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::field::MakeExt as _;
    use tracing_subscriber::fmt::format;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_peers_chose_stays_within_its_field() {
        let lines = Lines::default();
        let out = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_target(false)
            .fmt_fields(format::debug_fn(write_field).delimited(" "))
            .with_writer(move || out.clone())
            .with_ansi(false)
            .finish();
        let [key, host] = ["live/x peer=127.0.0.1 \"", "a\u{202e}b\u{9b}c\nd"];
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(key = %"live/plain", peer = %"[::1]:1", seconds = 3, reason = "two words", "plain");
            tracing::info!(%key, ?host, name = %host, agent = %"", "forged {host}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let wanted = " INFO plain key=live/plain peer=[::1]:1 seconds=3 reason=\"two words\"\n \
                      INFO forged a\\u{202e}b\\u{9b}c\\u{a}d key=\"live/x peer=127.0.0.1 \\\"\" \
                      host=\"a\\u{202e}b\\u{9b}c\\nd\" name=\"a\\u{202e}b\\u{9b}c\\u{a}d\" agent=\"\"\n";
        assert_eq!(text, wanted);
    }
}
