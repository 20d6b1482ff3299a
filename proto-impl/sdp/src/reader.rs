//! Parses lines to a description, and checks limits, order and duplicates.

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::attribute::Attribute;
use crate::attributes::Attributes;
use crate::description::{Description, Origin};
use crate::error::Error;
use crate::host::Connection;
use crate::limits::{ATTRIBUTES_MAX, BANDWIDTHS_MAX, BYTES_MAX, LINE_BYTES_MAX, LINES_MAX, MEDIA_MAX};
use crate::media::{Bandwidth, Media};
use crate::rtp::Rtpmap;

/// Kind of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A complete description, beginning with `v=`.
    Description,
    /// Attributes and sections; session-level lines are optional.
    Fragment,
    /// The streams of an RTSP peer: invalid lines are skipped, and a section that cannot be parsed is kept
    /// without formats.
    Streams,
}

pub(crate) fn read(text: &[u8], form: Form) -> Result<Description, Error> {
    if text.len() > BYTES_MAX {
        return Err(Error::TooLarge { bytes: text.len() });
    }
    let mut reader = Reader::new(form);
    for (bytes, line) in text.trim_ascii_end().split(|&b| b == b'\n').zip(1..) {
        // A single CR also ends a line; line numbers count LFs.
        for bytes in bytes.split(|&b| b == b'\r').filter(|bytes| !bytes.is_empty()) {
            reader.line(line, bytes).or_else(|error| reader.pass_over(error))?;
        }
    }
    reader.finish()
}

/// Session-level lines seen so far that must not be repeated.
#[derive(Default)]
struct Seen {
    version: bool,
    origin: bool,
    name: bool,
}

struct Reader {
    description: Description,
    form: Form,
    seen: Seen,
    lines: usize,
    /// Error of the first line that was skipped.
    fault: Option<Error>,
}

impl Reader {
    fn new(form: Form) -> Self {
        Self { description: Description::default(), form, seen: Seen::default(), lines: 0, fault: None }
    }

    /// Continues after an invalid line, if the form permits that. Limits always apply.
    fn pass_over(&mut self, error: Error) -> Result<(), Error> {
        if self.form != Form::Streams || error.is_limit() {
            return Err(error);
        }
        self.fault.get_or_insert(error);
        Ok(())
    }

    fn line(&mut self, line: usize, bytes: &[u8]) -> Result<(), Error> {
        self.lines = self.lines.saturating_add(1);
        if self.lines.max(line) > LINES_MAX {
            return Err(Error::TooManyLines);
        }
        if bytes.len() > LINE_BYTES_MAX {
            return Err(Error::LineTooLong { line });
        }
        // Some firmware sends the terminator of a C string.
        let bytes = bytes.trim_ascii();
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        let mut chars = text.chars();
        let letter = chars.next().filter(char::is_ascii_alphabetic);
        let (Some(letter), Some('='), false) = (letter, chars.next(), text.contains('\0')) else {
            return Err(Error::NotALine { line });
        };
        self.value(line, letter, chars.as_str())
    }

    fn value(&mut self, line: usize, letter: char, value: &str) -> Result<(), Error> {
        if letter == 'v' {
            return self.version(line, value);
        }
        if self.form == Form::Description && !self.seen.version {
            return Err(Error::NoVersion { line });
        }
        match letter {
            'o' => {
                once(&mut self.seen.origin, line, "o=")?;
                self.description.origin = Origin::read(value);
            }
            's' => {
                once(&mut self.seen.name, line, "s=")?;
                let name = value.trim_ascii();
                self.description.name = if name == "-" { String::new() } else { name.to_owned() };
            }
            'm' => self.media(line, value)?,
            'c' => self.connection(value),
            'b' => self.bandwidth(line, value)?,
            'a' => self.attribute(line, value)?,
            _ => {}
        }
        Ok(())
    }

    fn version(&mut self, line: usize, value: &str) -> Result<(), Error> {
        once(&mut self.seen.version, line, "v=")?;
        if value.trim_ascii() == "0" { Ok(()) } else { Err(Error::NoVersion { line }) }
    }

    fn media(&mut self, line: usize, value: &str) -> Result<(), Error> {
        if self.description.media.len() >= MEDIA_MAX {
            return Err(Error::TooManyMedia { line });
        }
        let read = Media::read(value).ok_or(Error::Malformed { line, what: "m=" });
        let media = match read {
            Err(error) if self.form == Form::Streams => {
                self.pass_over(error)?;
                Media::read_loosely(value)
            }
            read => read?,
        };
        self.description.media.push(media);
        Ok(())
    }

    /// Reads `c=`. A malformed or repeated line is skipped, since neither ICE nor RTSP uses it.
    fn connection(&mut self, value: &str) {
        let place = match self.description.media.last_mut() {
            Some(media) => &mut media.connection,
            None => &mut self.description.connection,
        };
        if place.is_none() {
            *place = Connection::read(value);
        }
    }

    /// Reads `b=`. A line without a valid number is skipped.
    fn bandwidth(&mut self, line: usize, value: &str) -> Result<(), Error> {
        let place = match self.description.media.last_mut() {
            Some(media) => &mut media.bandwidths,
            None => &mut self.description.bandwidths,
        };
        if place.len() >= BANDWIDTHS_MAX {
            return Err(Error::TooManyBandwidths { line });
        }
        place.extend(Bandwidth::read(value));
        Ok(())
    }

    fn attribute(&mut self, line: usize, value: &str) -> Result<(), Error> {
        let usual = value.strip_prefix("rtpmap:").filter(|_| self.form == Form::Streams);
        let usual = usual.and_then(Rtpmap::with_usual_clock).map(Attribute::Rtpmap);
        let attribute = usual.map_or_else(|| Attribute::read(value), Ok);
        let attribute = attribute.map_err(|what| Error::Malformed { line, what })?;
        let place = match self.description.media.last_mut() {
            Some(media) => &mut media.attributes,
            None => &mut self.description.attributes,
        };
        match repeats(place, &attribute) {
            Repeat::No => {}
            Repeat::Same => return Ok(()),
            Repeat::Other(what) => return Err(Error::Duplicate { line, what }),
        }
        if place.len() >= ATTRIBUTES_MAX {
            return Err(Error::TooManyAttributes { line });
        }
        let mid = if let Attribute::Mid(mid) = &attribute { Some(mid.clone()) } else { None };
        place.push(attribute);
        // This is the last check of a line, so the mids of the other sections are searched at most once per
        // section: a second mid of the same section was dropped or refused above.
        mid.map_or(Ok(()), |mid| self.new_mid(line, &mid))
    }

    /// Checks that no two sections have the same mid (RFC 5888 §4).
    fn new_mid(&self, line: usize, mid: &str) -> Result<(), Error> {
        let earlier = self.description.media.split_last().map(|(_, earlier)| earlier).unwrap_or_default();
        if earlier.iter().any(|media| media.attributes.mid() == Some(mid)) {
            return Err(Error::Duplicate { line, what: "mid" });
        }
        Ok(())
    }

    fn finish(self) -> Result<Description, Error> {
        if self.form == Form::Description && !self.seen.version {
            return Err(Error::NoVersion { line: 1 });
        }
        let is_left = || self.description.media.iter().any(|media| media.rtp_formats().next().is_some());
        match self.fault {
            Some(fault) if !is_left() => Err(fault),
            None if self.form == Form::Streams && self.description.media.is_empty() => Err(Error::NoMedia),
            Some(_) | None => Ok(self.description),
        }
    }
}

fn once(seen: &mut bool, line: usize, what: &'static str) -> Result<(), Error> {
    if core::mem::replace(seen, true) { Err(Error::Duplicate { line, what }) } else { Ok(()) }
}

/// Repetition of an attribute that must be unique within a section.
enum Repeat {
    No,
    /// Repeated with the same value: the repetition is dropped.
    Same,
    /// Repeated with another value, which is ambiguous.
    Other(&'static str),
}

fn repeats(there: &Attributes, new: &Attribute) -> Repeat {
    let (same, what) = if let Attribute::Mid(mid) = new {
        (there.mid().map(|old| old == mid), "mid")
    } else if let Attribute::IceUfrag(ufrag) = new {
        (there.ice_ufrag().map(|old| old == ufrag), "ice-ufrag")
    } else if let Attribute::IcePwd(pwd) = new {
        (there.ice_pwd().map(|old| old == pwd), "ice-pwd")
    } else if let Attribute::Setup(setup) = new {
        (there.setup().map(|old| old == setup), "setup")
    } else if let Attribute::Rtpmap(map) = new {
        let old = there.rtpmaps().find(|old| old.payload_type == map.payload_type);
        (old.map(|old| old.same_codec(map)), "rtpmap")
    } else {
        (None, "")
    };
    match same {
        None => Repeat::No,
        Some(true) => Repeat::Same,
        Some(false) => Repeat::Other(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "v=0\r\no=- 1 2 IN IP4 192.0.2.1\r\ns=-\r\nt=0 0\r\n";

    fn check(rest: &str, error: Error) {
        let text = format!("{HEAD}{rest}");
        assert_eq!(read(text.as_bytes(), Form::Description), Err(error), "{}", &rest[..rest.len().min(80)]);
    }

    #[test]
    fn errors_name_the_line() {
        check("a=rtpmap:96 H264/0\r\n", Error::Malformed { line: 5, what: "rtpmap" });
        check("m=video 9 RTP/AVP 128\r\n", Error::Malformed { line: 5, what: "m=" });
        check("m=video 9 RTP/AVP 96\n\nnonsense\n", Error::NotALine { line: 7 });
        check("a=x\0y\r\n", Error::NotALine { line: 5 });
        check("v=0\r\n", Error::Duplicate { line: 5, what: "v=" });
        check("o=- 1 1 IN IP4 1.1.1.1\r\n", Error::Duplicate { line: 5, what: "o=" });
        assert_eq!(read(b"s=x\r\n", Form::Description), Err(Error::NoVersion { line: 1 }));
        assert_eq!(read(b"v=1\r\n", Form::Description), Err(Error::NoVersion { line: 1 }));
        assert_eq!(read(b"", Form::Description), Err(Error::NoVersion { line: 1 }));
    }

    #[test]
    fn p_10_everything_has_a_limit() {
        let section = "m=video 9 RTP/AVP 96\r\n";
        check(&section.repeat(MEDIA_MAX + 1), Error::TooManyMedia { line: 5 + MEDIA_MAX });
        check(&"a=x\r\n".repeat(ATTRIBUTES_MAX + 1), Error::TooManyAttributes { line: 5 + ATTRIBUTES_MAX });
        check(
            &"b=AS:1\r\n".repeat(BANDWIDTHS_MAX + 1),
            Error::TooManyBandwidths { line: 5 + BANDWIDTHS_MAX },
        );
        check(&"i=x\r\n".repeat(LINES_MAX), Error::TooManyLines);
        check(&format!("i={}", "x".repeat(LINE_BYTES_MAX)), Error::LineTooLong { line: 5 });
        let large = vec![b'\n'; BYTES_MAX + 1];
        assert_eq!(read(&large, Form::Fragment), Err(Error::TooLarge { bytes: BYTES_MAX + 1 }));
        let many: String = (0..=128).map(|_| " 96").collect();
        assert!(read(format!("v=0\nm=video 9 RTP/AVP{many}").as_bytes(), Form::Description).is_ok());
        let words: String = (0..=128).map(|n| format!(" w{n}")).collect();
        check(&format!("m=application 9 UDP{words}"), Error::Malformed { line: 5, what: "m=" });
    }

    #[test]
    fn doubles_are_dropped_or_refused() {
        let section = "m=video 9 RTP/AVP 96\r\n";
        for (first, same, other, what) in [
            ("mid:0", "mid:0", "mid:1", "mid"),
            ("ice-ufrag:abcd", "ice-ufrag:abcd", "ice-ufrag:abce", "ice-ufrag"),
            ("setup:active", "setup:active", "setup:passive", "setup"),
            ("rtpmap:96 H264/90000", "rtpmap:96 h264/90000", "rtpmap:96 VP8/90000", "rtpmap"),
        ] {
            let text = format!("{HEAD}{section}a={first}\r\na={same}\r\n");
            let read = read(text.as_bytes(), Form::Description).unwrap();
            assert_eq!(read.media[0].attributes.len(), 1);
            check(&format!("{section}a={first}\na={other}\n"), Error::Duplicate { line: 7, what });
        }
        let twice = format!("{section}a=mid:0\r\n").repeat(2);
        check(&twice, Error::Duplicate { line: 8, what: "mid" });
    }

    #[test]
    fn what_peers_get_wrong_is_read() {
        let text = b"v=0\ro=camera one 99999999999999999999 x\rs=Caf\xe9 \ri=x\ru=y\rt=0 0\rX=1\rc=IN IP4 \r\
            b=AS:\rb=AS:0\ra=tool:x\rm=video 0 RTP/AVP 96\rb=AS:512\rc=IN IP4 0.0.0.0\r\n\r\n \n\0";
        let read = read(text, Form::Description).unwrap();
        assert_eq!(read.name, "Caf\u{fffd}");
        assert_eq!((read.origin.username.as_str(), read.origin.session_id), ("camera", 0));
        assert_eq!((read.connection.is_none(), read.bandwidths.len()), (true, 1));
        assert_eq!((read.media[0].bandwidths[0].value, read.media[0].connection.is_some()), (512, true));
    }

    const BODY: &str = "m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=control:trackID=1\n";

    /// Returns, for each section of an RTSP peer, its encoding, `-` if it has no format, and its `control`.
    fn streams(text: &[u8]) -> Result<Vec<(String, Option<String>)>, Error> {
        let of = |media: &Media| {
            let encoding = media.rtp_formats().next().map(|format| format.rtpmap.to_string());
            (encoding.unwrap_or_else(|| "-".to_owned()), media.attributes.control().map(str::to_owned))
        };
        read(text, Form::Streams).map(|read| read.media.iter().map(of).collect())
    }

    #[test]
    fn a_broken_line_of_an_rtsp_peer_costs_itself_or_its_section() {
        let video = ("96 H264/90000", Some("trackID=1"));
        let foreign = ("-", Some("track3"));
        let section = |line: &str| format!("{HEAD}{BODY}{line}\na=control:track3\n");
        for (text, wanted) in [
            (section("m=application/TP-LINK 0 RTP/AVP smart/1/90000"), vec![video, foreign]),
            (section("m=application 0 RTP/AVP vana"), vec![video, foreign]),
            (section("m=application 0 RTP/AVP"), vec![video, foreign]),
            (section("m=application 99999 RTP/AVP 107"), vec![video, foreign]),
            (section("m="), vec![video, foreign]),
            (section("m=application 0 RTP/AVP 107\na=rtpmap:107 vnd.onvif.metadata"), vec![video, foreign]),
            (section("m=audio 0 RTP/AVP 97\na=rtpmap:97 MPEG4-GENERIC"), vec![video, foreign]),
            (section("m=audio 0 RTP/AVP 97\na=rtpmap:97 L16/0"), vec![video, foreign]),
            (section("m=audio 0 RTP/AVP x 8"), vec![video, ("8 PCMA/8000", Some("track3"))]),
            (section("m=audio 0 RTP/AVP 0\na=mid:\na=setup:x"), vec![video, ("0 PCMU/8000", Some("track3"))]),
            (format!("{HEAD}{}", BODY.replace("video 0", "video -1353744643")), vec![video]),
            (format!("{HEAD}{}", BODY.replace("H264/90000", "H264")), vec![video]),
            (format!("{HEAD}foo\n{BODY}foo\n"), vec![video]),
            (format!("{HEAD}v=0\no=- 1 1 IN IP4 1.1.1.1\ns=x\n{BODY}a=x\0y\n"), vec![video]),
            (format!("v=1\ns =x\n{BODY}"), vec![video]),
            (BODY.to_owned(), vec![video]),
        ] {
            let wanted: Vec<_> =
                wanted.into_iter().map(|(e, control)| (e.to_owned(), control.map(str::to_owned))).collect();
            assert_eq!(streams(text.as_bytes()), Ok(wanted), "{text}");
            // Peers other than those of RTSP must send a valid description.
            let is_loose = text.contains("AVP\n");
            assert_eq!(read(text.as_bytes(), Form::Description).is_ok(), is_loose, "{text}");
        }
    }

    #[test]
    fn an_rtsp_description_of_which_nothing_is_left_names_its_first_bad_line() {
        let malformed = |line, what| Error::Malformed { line, what };
        for (text, error) in [
            (format!("{HEAD}m=video 0 RTP/AVP 96\na=rtpmap:96 H264/0\n"), malformed(6, "rtpmap")),
            (format!("{HEAD}m=video 0 RTP/AVP 200\n"), malformed(5, "m=")),
            (format!("{HEAD}m=video 0 RTP/AVP x\nm=audio 0 RTP/AVP y\n"), malformed(5, "m=")),
            ("<html>\n</html>\n".to_owned(), Error::NotALine { line: 1 }),
            (HEAD.to_owned(), Error::NoMedia),
            (String::new(), Error::NoMedia),
        ] {
            assert_eq!(streams(text.as_bytes()), Err(error), "{text}");
        }
        // A section without an `rtpmap` is valid.
        assert!(streams(format!("{HEAD}m=video 0 RTP/AVP 96\n").as_bytes()).is_ok());
    }

    #[test]
    fn p_10_no_limit_is_lifted_for_rtsp_peers() {
        let check = |rest: &str, error| {
            let text = format!("{HEAD}{BODY}{rest}");
            assert_eq!(streams(text.as_bytes()), Err(error), "{:.40}", rest);
        };
        let sections = MEDIA_MAX - 1;
        check(&"m=x\n".repeat(10_000), Error::TooManyMedia { line: 8 + sections });
        check(&"m=audio 0 RTP/AVP 0\n".repeat(1000), Error::TooManyMedia { line: 8 + sections });
        check(&"foo\n".repeat(LINES_MAX), Error::TooManyLines);
        check(&"a=x\n".repeat(ATTRIBUTES_MAX), Error::TooManyAttributes { line: 6 + ATTRIBUTES_MAX });
        check(&"b=AS:1\n".repeat(BANDWIDTHS_MAX + 1), Error::TooManyBandwidths { line: 8 + BANDWIDTHS_MAX });
        check(&format!("a={}", "x".repeat(100_000)), Error::LineTooLong { line: 8 });
        assert!(matches!(streams(&vec![b'x'; 1 << 20]), Err(Error::TooLarge { .. })));
        // A section that is not RTP may have more formats than there are payload types.
        let words: String = (0..=200).map(|n| format!(" w{n}")).collect();
        let text = format!("{HEAD}{BODY}m=application 0 UDP{words}\n");
        assert_eq!(streams(text.as_bytes()).map(|sections| sections.len()), Ok(2));
    }

    #[test]
    fn fragments_have_no_version() {
        let text =
            b"a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\n\
            a=mid:0\r\na=candidate:1 1 udp 5 192.0.2.2 5 typ host\r\na=end-of-candidates\r\n";
        let fragment = read(text, Form::Fragment).unwrap();
        assert_eq!(fragment.media[0].attributes.candidates().count(), 1);
        assert_eq!(fragment.write_fragment().as_bytes(), text);
        assert!(read(text, Form::Description).is_err());
    }
}
