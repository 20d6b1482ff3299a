//! Subtitles of live streams: cues as units of a data track, and the cues of a WebVTT file (W3C WebVTT §6).
//!
//! ```text
//! duration in milliseconds(32) | bytes of the language(8) | language | text
//! ```
//!
//! The text of a cue is WebVTT cue text (§3.4): markup, with `&`, `<` and `>` escaped.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter, Write as _};

use bytes::{BufMut, Bytes, BytesMut};
use wire::Reader;

use crate::language::tag;

/// Maximum number of bytes of a cue's text.
pub const TEXT_BYTES_MAX: usize = 2048;
/// Maximum number of bytes of a WebVTT file.
pub const FILE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of cues of a WebVTT file.
pub const CUES_MAX: usize = 64;
/// Longest duration of a cue, in milliseconds.
pub const DURATION_MS_MAX: u32 = 600_000;
/// Maximum number of languages of a stream.
pub const LANGUAGES_MAX: usize = 8;
/// Maximum number of bytes of a language tag (RFC 5646 §4.4.1).
const TAG_BYTES_MAX: usize = 35;
/// Maximum number of bytes of a language's name.
const NAME_BYTES_MAX: usize = 64;

/// A cue as the payload of a unit, whose PTS is the time at which the cue appears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cue {
    /// Time for which the cue is shown, in milliseconds.
    pub duration_ms: u32,
    /// Language, as a BCP 47 tag; empty if unknown.
    pub language: String,
    /// WebVTT cue text without empty lines.
    pub text: String,
}

impl Cue {
    /// Writes the payload of a unit. `None` if the cue exceeds a limit or has no text.
    #[must_use]
    pub fn write(&self) -> Option<Bytes> {
        let bytes = u8::try_from(self.language.len()).ok()?;
        if !self.is_valid() {
            return None;
        }
        let mut out = BytesMut::new();
        out.put_u32(self.duration_ms);
        out.put_u8(bytes);
        out.put_slice(self.language.as_bytes());
        out.put_slice(self.text.as_bytes());
        Some(out.freeze())
    }

    /// Reads the payload of a unit.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let duration_ms = reader.u32().ok()?;
        let bytes = reader.u8().ok()?;
        let language = core::str::from_utf8(reader.take(usize::from(bytes)).ok()?).ok()?;
        let text = core::str::from_utf8(reader.rest()).ok()?;
        let cue = Self { duration_ms, language: language.into(), text: text.into() };
        cue.is_valid().then_some(cue)
    }

    fn is_valid(&self) -> bool {
        let is_short = self.text.len() <= TEXT_BYTES_MAX && self.duration_ms <= DURATION_MS_MAX;
        let is_known = self.language.is_empty() || is_tag(&self.language);
        is_short && is_known && self.duration_ms > 0 && cue_text(&self.text).as_ref() == Some(&self.text)
    }
}

/// A cue of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCue {
    /// Time at which the cue appears, in milliseconds of the file.
    pub begin_ms: u64,
    /// Time at which the cue disappears, in milliseconds of the file.
    pub end_ms: u64,
    /// WebVTT cue text without empty lines.
    pub text: String,
}

/// The reason a WebVTT file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebVttError {
    /// The file has more than [`FILE_BYTES_MAX`] bytes.
    Size,
    /// The file is not UTF-8, or does not begin with `WEBVTT` (§4.1).
    Signature,
    /// The line with this number has `-->` between invalid times (§4.3), or the cue ends before it begins.
    Times(usize),
    /// The text of the cue that begins at the line with this number is longer than [`TEXT_BYTES_MAX`].
    Text(usize),
    /// The file has more than [`CUES_MAX`] cues.
    Cues,
}

impl Display for WebVttError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size => write!(f, "more than {FILE_BYTES_MAX} bytes of WebVTT"),
            Self::Signature => f.write_str("WebVTT is UTF-8 and begins with WEBVTT"),
            Self::Times(line) => write!(f, "invalid times of a cue in line {line}"),
            Self::Text(line) => {
                write!(f, "more than {TEXT_BYTES_MAX} bytes of text in the cue of line {line}")
            }
            Self::Cues => write!(f, "more than {CUES_MAX} cues"),
        }
    }
}

impl core::error::Error for WebVttError {}

/// Reads the cues of a WebVTT file. Their identifiers and settings are ignored, and so are cues without text and all
/// other blocks.
///
/// # Errors
/// The reason the file is refused.
pub fn read_webvtt(bytes: &[u8]) -> Result<Vec<FileCue>, WebVttError> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(WebVttError::Size);
    }
    let text = core::str::from_utf8(bytes).map_err(|_| WebVttError::Signature)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let rest = text.strip_prefix("WEBVTT").ok_or(WebVttError::Signature)?;
    if rest.chars().next().is_some_and(|next| !matches!(next, ' ' | '\t' | '\n' | '\r')) {
        return Err(WebVttError::Signature);
    }
    let mut cues: Vec<FileCue> = Vec::new();
    let mut lines = (1_usize..).zip(lines_of(text)).skip(1);
    // The number of lines of the current block so far, and the block's cue.
    let (mut block, mut open): (usize, Option<(usize, FileCue)>) = (0, None);
    loop {
        let next = lines.next();
        let line = next.map_or("", |(_, line)| line);
        if line.is_empty() {
            let cue = open.take().filter(|(_, cue)| !cue.text.is_empty());
            if cue.is_some() && cues.len() == CUES_MAX {
                return Err(WebVttError::Cues);
            }
            cues.extend(cue.map(|(_, cue)| cue));
            block = 0;
        }
        let Some((number, line)) = next else { return Ok(cues) };
        // The times are in the first line, or follow an identifier. A later line with times begins another cue (§6.3).
        if line.contains("-->") && (block < 2 || open.is_some()) {
            let (begin_ms, end_ms) = times(line).ok_or(WebVttError::Times(number))?;
            let cue = open.replace((number, FileCue { begin_ms, end_ms, text: String::new() }));
            cues.extend(cue.map(|(_, cue)| cue).filter(|cue| !cue.text.is_empty()));
            if cues.len() >= CUES_MAX {
                return Err(WebVttError::Cues);
            }
        } else if let Some((at, cue)) = &mut open {
            add_line(&mut cue.text, line);
            if cue.text.len() > TEXT_BYTES_MAX {
                return Err(WebVttError::Text(*at));
            }
        }
        block = block.saturating_add(usize::from(!line.is_empty()));
    }
}

/// Splits a text into lines, which end with LF, CR or both (§4.1).
fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// Reads the line with the times of a cue (§4.3); settings after them are ignored.
fn times(line: &str) -> Option<(u64, u64)> {
    let (begin, rest) = line.split_once("-->")?;
    let begin_ms = time(begin.trim())?;
    let end_ms = time(rest.split_ascii_whitespace().next()?)?;
    (begin_ms < end_ms).then_some((begin_ms, end_ms))
}

/// Reads a time: `[hours:]minutes:seconds.milliseconds` (§3.3).
fn time(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let number = |text: &str, least: usize, most: usize| {
        let is_of_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = is_of_digits && (least..=most).contains(&text.len());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let mut fields = whole.rsplit(':');
    let seconds = number(fields.next()?, 2, 2).filter(|seconds| *seconds < 60)?;
    let minutes = number(fields.next()?, 2, 2).filter(|minutes| *minutes < 60)?;
    let hours = fields.next().map_or(Some(0), |hours| number(hours, 2, 6))?;
    if fields.next().is_some() {
        return None;
    }
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    let seconds = minutes.checked_mul(60)?.checked_add(seconds)?;
    seconds.checked_mul(1000)?.checked_add(number(fraction, 3, 3)?)
}

/// A time in milliseconds, written as in WebVTT. Hours have two digits or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub u64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        write!(f, "{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, self.0 % 1000)
    }
}

/// Returns a text as the text of a cue: without control characters, empty lines and `-->`, which would end the cue.
/// `None` if nothing is left.
#[must_use]
pub fn cue_text(text: &str) -> Option<String> {
    let mut out = String::new();
    lines_of(text).for_each(|line| add_line(&mut out, line));
    (!out.is_empty()).then_some(out)
}

/// Adds a line to the text of a cue, unless the line is empty.
fn add_line(out: &mut String, line: &str) {
    let is_kept = |c: &char| !c.is_control();
    let mut line: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(is_kept).collect();
    if line.contains("-->") {
        line = line.replace("-->", "--&gt;");
    }
    let line = line.trim();
    if !line.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(line);
    }
}

/// Returns plain text as WebVTT cue text (§3.4): with `&`, `<` and `>` escaped.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

/// Writes a cue of a file, with the empty line after it.
pub fn write_cue(out: &mut String, begin_ms: u64, end_ms: u64, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{} --> {}\n{text}\n\n", Time(begin_ms), Time(end_ms));
}

/// True if a text has the form of a language tag (RFC 5646 §2.1), as far as it is checked here.
fn is_tag(language: &str) -> bool {
    (2..=TAG_BYTES_MAX).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Parses a setting that lists languages, each with an optional name, such as `en:English,de:Deutsch`. An empty text
/// lists none. `None` if the text is invalid, or contains a name twice, or a language twice (by any of its codes).
#[must_use]
pub fn read_languages(text: &str) -> Option<Vec<(String, String)>> {
    let mut list: Vec<(String, String)> = Vec::new();
    for entry in text.split(',').map(str::trim) {
        if entry.is_empty() && text.trim().is_empty() {
            continue;
        }
        let (language, name) = entry.split_once(':').unwrap_or((entry, entry));
        let (language, name) = (language.trim(), name.trim());
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.contains(|c: char| c.is_control() || c == '"');
        let same = |(other, called): &(String, String)| {
            tag(other).eq_ignore_ascii_case(tag(language)) || called == name
        };
        if !is_tag(language) || !is_name || list.iter().any(same) || list.len() == LANGUAGES_MAX {
            return None;
        }
        list.push((language.into(), name.into()));
    }
    Some(list)
}

/// Returns the index of a language in a list of [`read_languages`]; languages are compared by their shortest codes. An
/// empty `language` selects the first entry.
#[must_use]
pub fn find_language(list: &[(String, String)], language: &str) -> Option<usize> {
    let wanted = tag(language);
    list.iter().position(|(other, _)| language.is_empty() || tag(other).eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cue(language: &str, text: &str) -> Cue {
        Cue { duration_ms: 2500, language: language.into(), text: text.into() }
    }

    #[test]
    fn a_cue_is_read_as_it_was_written() {
        for one in [cue("en", "Hello"), cue("", "<i>two</i>\nlines"), cue("zh-Hant-TW", "你好 &amp; 再见")]
        {
            assert_eq!(Cue::read(&one.write().unwrap()).as_ref(), Some(&one));
        }
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        for bad in [cue("e", "x"), cue("e n", "x"), cue("en", ""), cue("en", "a\n\nb"), cue("en", &long)] {
            assert_eq!(bad.write(), None, "{bad:?}");
        }
        assert_eq!(Cue { duration_ms: 0, ..cue("en", "x") }.write(), None);
        assert_eq!(Cue { duration_ms: DURATION_MS_MAX + 1, ..cue("en", "x") }.write(), None);
        let whole = cue("en", "Hello").write().unwrap();
        for length in 0..8 {
            assert_eq!(Cue::read(&whole[..length]), None, "{length}");
        }
        assert_eq!(Cue::read(&[0, 0, 0, 1, 2, b'e', b'n', 0xff]), None);
    }

    fn file(begin_ms: u64, end_ms: u64, text: &str) -> FileCue {
        FileCue { begin_ms, end_ms, text: text.into() }
    }

    #[test]
    fn a_file_has_cues_with_and_without_identifiers_and_other_blocks() {
        let text = "\u{feff}WEBVTT - title\r\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\r\n\r\n\
            STYLE\r\n::cue { color: red }\r\n\r\nNOTE a\r\nnote\r\n\r\n\
            1\r\n00:01.000 --> 00:02.500 align:start line:0\r\nHello\r\n  <b>world</b>\r\n\r\n\
            100:00:00.000 --> 100:00:01.001\r\nlate\r\n\r\n00:03.000 --> 00:04.000\r\n\r\n\
            00:05.000 --> 00:06.000\rold\r00:06.000 --> 00:07.000\rlast";
        let wanted = [
            file(1000, 2500, "Hello\n<b>world</b>"),
            file(360_000_000, 360_001_001, "late"),
            file(5000, 6000, "old"),
            file(6000, 7000, "last"),
        ];
        assert_eq!(read_webvtt(text.as_bytes()).unwrap(), wanted);
        assert_eq!(read_webvtt(b"WEBVTT"), Ok(Vec::new()));
        let mut written = String::from("WEBVTT\n\n");
        wanted.iter().for_each(|one| write_cue(&mut written, one.begin_ms, one.end_ms, &one.text));
        assert_eq!(read_webvtt(written.as_bytes()).unwrap(), wanted);
    }

    #[test]
    fn a_file_that_is_none_is_refused_with_the_reason() {
        for bad in ["", "webvtt\n\n", "WEBVTTX\n\n", "1\n00:00.000 --> 00:01.000\nx"] {
            assert_eq!(read_webvtt(bad.as_bytes()), Err(WebVttError::Signature), "{bad}");
        }
        assert_eq!(read_webvtt(b"WEBVTT\n\n\xff"), Err(WebVttError::Signature));
        for times in [
            "00:00.000 --> 00:00.000",
            "00:02.000 --> 00:01.000",
            "0:01.000 --> 00:02.000",
            "00:01,000 --> 00:02,000",
            "00:60.000 --> 01:02.000",
            "00:01.000 -->",
            "1:00:00:01.000 --> 00:02.000",
            "00:01.000 --> 9999999:00:02.000",
        ] {
            let text = alloc::format!("WEBVTT\n\nid\n{times}\nx\n");
            assert_eq!(read_webvtt(text.as_bytes()), Err(WebVttError::Times(4)), "{times}");
        }
        let times = "00:00.000 --> 00:01.000\n";
        let long = alloc::format!("WEBVTT\n\n{times}{}\n", "x".repeat(TEXT_BYTES_MAX + 1));
        assert_eq!(read_webvtt(long.as_bytes()), Err(WebVttError::Text(3)));
        let many =
            |count: usize| alloc::format!("WEBVTT\n\n{}", alloc::format!("{times}x\n\n").repeat(count));
        assert_eq!(read_webvtt(many(CUES_MAX).as_bytes()).unwrap().len(), CUES_MAX);
        assert_eq!(read_webvtt(many(CUES_MAX + 1).as_bytes()), Err(WebVttError::Cues));
        assert_eq!(read_webvtt(&[b'x'; FILE_BYTES_MAX + 1]), Err(WebVttError::Size));
    }

    #[test]
    fn nothing_in_a_text_ends_its_cue() {
        let made = cue_text("a\r\n\r\n \u{7}\tb --> c\n00:00.000 --> 00:01.000\rd").unwrap();
        assert_eq!(made, "a\nb --&gt; c\n00:00.000 --&gt; 00:01.000\nd");
        assert_eq!((cue_text(" \n\t\r"), escaped("1 < 2 & 3")), (None, "1 &lt; 2 &amp; 3".into()));
        assert_eq!(alloc::format!("{}", Time(360_001_001)), "100:00:01.001");
    }

    #[test]
    fn languages_are_listed_once_each() {
        let read = |text: &str| {
            let list = read_languages(text)?;
            Some(list.iter().map(|(tag, name)| alloc::format!("{tag}={name}")).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(read(""), Some(String::new()));
        assert_eq!(
            read(" en:English, de-AT : Deutsch ,fr").as_deref(),
            Some("en=English de-AT=Deutsch fr=fr")
        );
        let list = read_languages("eng:English,de-AT,gsw").unwrap();
        let find = |language| find_language(&list, language);
        assert_eq!(
            ["", "EN", "en", "de-at", "de", "gsw"].map(find),
            [Some(0), Some(0), Some(0), Some(1), None, Some(2)]
        );
        let many: Vec<String> = (0..=LANGUAGES_MAX).map(|n| alloc::format!("x{n}")).collect();
        assert!(read(&many[1..].join(",")).is_some());
        for bad in
            ["en,", "e", "en:", "en,EN", "en,eng", "ger,deu", "en:A,de:A", "en:a\"b", "e_n", &many.join(",")]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
