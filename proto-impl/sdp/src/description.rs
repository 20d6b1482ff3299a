//! A description: the session's own lines and its media sections (RFC 8866 §5).

use std::fmt;

use crate::Error;
use crate::attribute::Attribute;
use crate::attributes::Attributes;
use crate::dtls::{Fingerprint, Setup};
use crate::group::{Group, Semantics};
use crate::host::{Connection, Host, Network, read_network};
use crate::media::{Bandwidth, Media};
use crate::reader;
use crate::rtp::Direction;
use crate::text::{first_word, number};

/// `o=`: who made the description. What is not a number or an address in it reads as 0 and `0.0.0.0`: cameras write all
/// sorts of things there, and nobody acts upon them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// A name, `-` for none.
    pub username: String,
    /// The session.
    pub session_id: u64,
    /// Rises with every change.
    pub version: u64,
    /// The maker's address.
    pub host: Host,
}

impl Default for Origin {
    fn default() -> Self {
        Self { username: "-".to_owned(), session_id: 0, version: 0, host: Host::UNSPECIFIED }
    }
}

impl Origin {
    pub(crate) fn read(text: &str) -> Self {
        let (username, rest) = first_word(text);
        let (session_id, rest) = first_word(rest);
        let (version, network) = first_word(rest);
        let username = if username.is_empty() { "-" } else { username };
        Self {
            username: username.to_owned(),
            session_id: number(session_id).unwrap_or(0),
            version: number(version).unwrap_or(0),
            host: read_network(network).and_then(Host::read).unwrap_or(Host::UNSPECIFIED),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.username, self.session_id, self.version, Network(&self.host))
    }
}

/// A session description.
///
/// `i=`, `u=`, `e=`, `p=`, `r=`, `z=`, `k=` and unknown letters are read over; `t=0 0` is written, for a live session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    /// `o=`.
    pub origin: Origin,
    /// `s=`; `-` is written for an empty one.
    pub name: String,
    /// `c=`.
    pub connection: Option<Connection>,
    /// `b=`.
    pub bandwidths: Vec<Bandwidth>,
    /// Attributes of the session.
    pub attributes: Attributes,
    /// The media sections.
    pub media: Vec<Media>,
}

/// The security and the addresses of a section's transport: from its own lines, else the session's, else those of the
/// section that is first in its bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransportParameters<'a> {
    /// ICE user name fragment.
    pub ufrag: Option<&'a str>,
    /// ICE password.
    pub pwd: Option<&'a str>,
    /// Hashes of the certificate.
    pub fingerprints: Vec<&'a Fingerprint>,
    /// Role in DTLS.
    pub setup: Option<Setup>,
}

impl Description {
    /// Reads a description with lines that end in CRLF, LF or CR. Bytes that are not UTF-8 become U+FFFD: some cameras name
    /// their session in Latin-1.
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        reader::read(text, reader::Form::Description)
    }

    /// Reads the streams that an RTSP peer describes, as loosely as cameras write them. A line that cannot be read is passed
    /// over; a section that cannot be understood keeps its place and its `control`, and has no format. An error names the
    /// first bad line where no section with a format is left; all limits hold.
    pub fn read_streams(text: &[u8]) -> Result<Self, Error> {
        reader::read(text, reader::Form::Streams)
    }

    /// Reads an `application/trickle-ice-sdpfrag` (RFC 8840): attributes and sections without `v=`.
    pub fn read_fragment(text: &[u8]) -> Result<Self, Error> {
        reader::read(text, reader::Form::Fragment)
    }

    /// The text, with CRLF. A line break within a value, which would be a line of its own, is written as a blank.
    #[must_use]
    pub fn write(&self) -> String {
        let mut w = Lines::default();
        w.line('v', 0);
        w.line('o', &self.origin);
        w.line('s', if self.name.is_empty() { "-" } else { &self.name });
        w.optional('c', self.connection.as_ref());
        w.each('b', self.bandwidths.iter());
        w.line('t', "0 0");
        self.write_sections(w)
    }

    /// The text as `application/trickle-ice-sdpfrag`: attributes and sections only.
    #[must_use]
    pub fn write_fragment(&self) -> String {
        self.write_sections(Lines::default())
    }

    fn write_sections(&self, mut w: Lines) -> String {
        w.each('a', self.attributes.iter());
        for media in &self.media {
            w.line('m', format_args!("{} {} {}{}", media.kind, media.port, media.protocol, media.formats));
            w.optional('c', media.connection.as_ref());
            w.each('b', media.bandwidths.iter());
            w.each('a', media.attributes.iter());
        }
        w.text
    }

    /// The first bundle, if there is one with sections in it.
    #[must_use]
    pub fn bundle(&self) -> Option<&Group> {
        let bundle = |group: &&Group| group.semantics == Semantics::Bundle && !group.mids.is_empty();
        self.attributes.groups().find(bundle)
    }

    /// The section of a name.
    #[must_use]
    pub fn section(&self, mid: &str) -> Option<&Media> {
        self.media.iter().find(|media| media.attributes.mid() == Some(mid))
    }

    /// A section's direction: its own, else the session's, else both ways.
    #[must_use]
    pub fn direction(&self, media: &Media) -> Direction {
        media.attributes.direction().or_else(|| self.attributes.direction()).copied().unwrap_or_default()
    }

    /// The destination of a section's media: its own `c=`, else the session's.
    #[must_use]
    pub fn connection<'a>(&'a self, media: &'a Media) -> Option<&'a Connection> {
        media.connection.as_ref().or(self.connection.as_ref())
    }

    /// Whether the peer only answers checks.
    #[must_use]
    pub fn is_ice_lite(&self) -> bool {
        self.attributes.has(&Attribute::IceLite)
    }

    /// Whether the peer sends its candidates later on (RFC 8840 §4.1).
    #[must_use]
    pub fn trickles(&self, media: &Media) -> bool {
        [&media.attributes, &self.attributes]
            .into_iter()
            .filter_map(Attributes::ice_options)
            .flatten()
            // libdatachannel, and so OBS, joins them by commas.
            .any(|options| options.split(',').any(|option| option == "trickle"))
    }

    /// The parameters of a section's transport. For a bundled section that does not give them, the first of the bundle does
    /// (RFC 9143 §7.1.3).
    #[must_use]
    pub fn transport<'a>(&'a self, media: &'a Media) -> TransportParameters<'a> {
        let tagged = self.tagged_of(media).map(|tagged| &tagged.attributes);
        let places = [Some(&media.attributes), Some(&self.attributes), tagged];
        let places = || places.iter().copied().flatten();
        // The fragment and its password belong together: they come from one place.
        let ice = places().find(|attributes| attributes.ice_ufrag().is_some());
        let dtls = places().find(|attributes| attributes.fingerprints().next().is_some());
        TransportParameters {
            ufrag: ice.and_then(Attributes::ice_ufrag),
            pwd: ice.and_then(Attributes::ice_pwd).or_else(|| places().find_map(Attributes::ice_pwd)),
            fingerprints: dtls.into_iter().flat_map(Attributes::fingerprints).collect(),
            setup: places().find_map(Attributes::setup).copied(),
        }
    }

    /// The first section of the bundle that this one is in.
    fn tagged_of(&self, media: &Media) -> Option<&Media> {
        let mid = media.attributes.mid()?;
        let bundle = self.bundle()?;
        let tagged = bundle.mids.iter().any(|known| known == mid).then(|| bundle.mids.first()).flatten()?;
        self.section(tagged)
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.write())
    }
}

/// A text of lines.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, letter: char, value: impl fmt::Display) {
        self.text.push(letter);
        self.text.push('=');
        let value = value.to_string();
        let breaks = |c: char| matches!(c, '\r' | '\n' | '\0');
        if value.contains(breaks) {
            self.text.push_str(value.replace(breaks, " ").trim_ascii_end());
        } else {
            self.text.push_str(value.trim_ascii_end());
        }
        self.text.push_str("\r\n");
    }

    fn optional<T: fmt::Display>(&mut self, letter: char, value: Option<T>) {
        self.each(letter, value.into_iter());
    }

    fn each<T: fmt::Display>(&mut self, letter: char, values: impl Iterator<Item = T>) {
        values.for_each(|value| self.line(letter, value));
    }
}
