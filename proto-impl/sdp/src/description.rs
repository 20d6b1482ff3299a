//! Session descriptions: session-level lines and media sections (RFC 8866 §5).

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

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

/// `o=`: creator of the description. Invalid numbers and addresses are read as 0 and `0.0.0.0`, because cameras
/// write arbitrary values and nothing depends on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// User name; `-` for none.
    pub username: String,
    /// Session id.
    pub session_id: u64,
    /// Version of the description; increases with every change.
    pub version: u64,
    /// Address of the creator.
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
/// The reader ignores `i=`, `u=`, `e=`, `p=`, `r=`, `z=`, `k=` and unknown lines. `t=0 0`, for a live
/// session, is always written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    /// Origin (`o=`).
    pub origin: Origin,
    /// Session name (`s=`); an empty name is written as `-`.
    pub name: String,
    /// Connection data of the session (`c=`).
    pub connection: Option<Connection>,
    /// Bandwidths of the session (`b=`).
    pub bandwidths: Vec<Bandwidth>,
    /// Session-level attributes.
    pub attributes: Attributes,
    /// The media sections.
    pub media: Vec<Media>,
}

/// Security parameters and ICE credentials of a section's transport, from the first place that has them: the
/// section, the session, or the first section of its bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransportParameters<'a> {
    /// ICE user name fragment.
    pub ufrag: Option<&'a str>,
    /// ICE password.
    pub pwd: Option<&'a str>,
    /// Fingerprints of the certificate.
    pub fingerprints: Vec<&'a Fingerprint>,
    /// Role in DTLS.
    pub setup: Option<Setup>,
}

impl Description {
    /// Parses a description whose lines end with CRLF, LF or CR. Invalid UTF-8 is replaced by U+FFFD, because
    /// some cameras write the session name in Latin-1.
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        reader::read(text, reader::Form::Description)
    }

    /// Parses the streams described by an RTSP peer, leniently, to accept what cameras write. Invalid lines are
    /// skipped. A section that cannot be parsed is kept with its `control`, but has no formats. If no section
    /// has a format, the error is that of the first invalid line. All limits apply.
    pub fn read_streams(text: &[u8]) -> Result<Self, Error> {
        reader::read(text, reader::Form::Streams)
    }

    /// Parses an `application/trickle-ice-sdpfrag` (RFC 8840): attributes and sections without `v=`.
    pub fn read_fragment(text: &[u8]) -> Result<Self, Error> {
        reader::read(text, reader::Form::Fragment)
    }

    /// Returns the description as text with CRLF. A line break within a value is written as a space, because it
    /// would begin a new line.
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

    /// Returns the description as `application/trickle-ice-sdpfrag`: attributes and sections only.
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

    /// Returns the first bundle that contains sections.
    #[must_use]
    pub fn bundle(&self) -> Option<&Group> {
        let bundle = |group: &&Group| group.semantics == Semantics::Bundle && !group.mids.is_empty();
        self.attributes.groups().find(bundle)
    }

    /// Returns the section with this mid.
    #[must_use]
    pub fn section(&self, mid: &str) -> Option<&Media> {
        self.media.iter().find(|media| media.attributes.mid() == Some(mid))
    }

    /// Returns a section's direction: its own, otherwise the session's, otherwise `sendrecv`.
    #[must_use]
    pub fn direction(&self, media: &Media) -> Direction {
        media.attributes.direction().or_else(|| self.attributes.direction()).copied().unwrap_or_default()
    }

    /// Returns the connection data of a section: its own `c=`, otherwise the session's.
    #[must_use]
    pub fn connection<'a>(&'a self, media: &'a Media) -> Option<&'a Connection> {
        media.connection.as_ref().or(self.connection.as_ref())
    }

    /// True if the peer is a lite agent, which answers connectivity checks but sends none.
    #[must_use]
    pub fn is_ice_lite(&self) -> bool {
        self.attributes.has(&Attribute::IceLite)
    }

    /// True if the peer will send its candidates later (RFC 8840 §4.1).
    #[must_use]
    pub fn trickles(&self, media: &Media) -> bool {
        [&media.attributes, &self.attributes]
            .into_iter()
            .filter_map(Attributes::ice_options)
            .flatten()
            // libdatachannel, and therefore OBS, separates the options with commas.
            .any(|options| options.split(',').any(|option| option == "trickle"))
    }

    /// Returns the transport parameters of a section. If a bundled section has none, those of the first section
    /// in its bundle are used (RFC 9143 §7.1.3).
    #[must_use]
    pub fn transport<'a>(&'a self, media: &'a Media) -> TransportParameters<'a> {
        let tagged = self.tagged_of(media).map(|tagged| &tagged.attributes);
        let places = [Some(&media.attributes), Some(&self.attributes), tagged];
        let places = || places.iter().copied().flatten();
        // User name fragment and password belong together, so both come from the same place.
        let ice = places().find(|attributes| attributes.ice_ufrag().is_some());
        let dtls = places().find(|attributes| attributes.fingerprints().next().is_some());
        TransportParameters {
            ufrag: ice.and_then(Attributes::ice_ufrag),
            pwd: ice.and_then(Attributes::ice_pwd).or_else(|| places().find_map(Attributes::ice_pwd)),
            fingerprints: dtls.into_iter().flat_map(Attributes::fingerprints).collect(),
            setup: places().find_map(Attributes::setup).copied(),
        }
    }

    /// Returns the first section of the bundle that contains this section.
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

/// A text being written line by line.
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
