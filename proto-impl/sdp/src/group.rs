//! Groups of sections, and their tracks: `a=group` (RFC 5888, RFC 9143), `a=msid` (RFC 8830), `a=rid` (RFC
//! 8851), `a=simulcast` (RFC 8853).

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fmtp::Parameters;
use crate::rtp::PayloadType;
use crate::text::{bounded, first_word, list, word, words, write_joined};

/// Meaning of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Semantics {
    /// `BUNDLE`: one transport for all sections.
    Bundle,
    /// `LS`: lip synchronization; the sections must be played in sync.
    LipSync,
    /// Other semantics.
    Other(String),
}

impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bundle => "BUNDLE",
            Self::LipSync => "LS",
            Self::Other(name) => name,
        })
    }
}

/// `a=group`: sections that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Semantics of the group.
    pub semantics: Semantics,
    /// Mids of the sections. In a bundle, the first section is the tagged one, whose transport all sections
    /// use.
    pub mids: Vec<String>,
}

impl Group {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (semantics, rest) = first_word(text);
        let semantics = match word(semantics)? {
            "BUNDLE" => Semantics::Bundle,
            "LS" => Semantics::LipSync,
            other => Semantics::Other(other.to_owned()),
        };
        Some(Self { semantics, mids: words(rest)? })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.semantics)?;
        self.mids.iter().try_for_each(|mid| write!(f, " {mid}"))
    }
}

/// `a=msid`: identifiers of the MediaStream and the track of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Msid {
    /// Stream id; `-` for none.
    pub stream: String,
    /// Track id; `None` if not given.
    pub track: Option<String>,
}

impl Msid {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (stream, rest) = first_word(text);
        let (track, _) = first_word(rest);
        Some(Self { stream: word(stream)?.to_owned(), track: word(track).map(str::to_owned) })
    }
}

impl fmt::Display for Msid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stream)?;
        self.track.as_ref().map_or(Ok(()), |track| write!(f, " {track}"))
    }
}

/// Direction of a simulcast layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RidDirection {
    /// Sent by the sender of the description.
    Send,
    /// Received by the sender of the description.
    Recv,
}

impl RidDirection {
    /// Returns the direction for an answer.
    #[must_use]
    pub const fn reverse(self) -> Self {
        match self {
            Self::Send => Self::Recv,
            Self::Recv => Self::Send,
        }
    }
}

/// `a=rid`: a layer of a section, with its restrictions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rid {
    /// Identifier: letters, digits, `-` and `_`.
    pub id: String,
    /// The direction.
    pub direction: RidDirection,
    /// Payload types of the layer; if empty, the layer may use all payload types of the section.
    pub payload_types: Vec<PayloadType>,
    /// Restrictions such as `max-width` and `max-fps`.
    pub restrictions: Parameters,
}

impl Rid {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (id, rest) = first_word(text);
        let (direction, rest) = first_word(rest);
        let direction = match direction {
            "send" => RidDirection::Send,
            "recv" => RidDirection::Recv,
            _ => return None,
        };
        let mut restrictions = Parameters::read(rest)?;
        let payload_types = match restrictions.remove("pt") {
            Some(list) => bounded(list.value?.split(',').map(PayloadType::read))?,
            None => Vec::new(),
        };
        Some(Self { id: rid_id(id)?.to_owned(), direction, payload_types, restrictions })
    }
}

/// Checks a rid: letters and digits (RFC 8852 §3.3), `-` and `_` (by an erratum of RFC 8851).
fn rid_id(text: &str) -> Option<&str> {
    let clean = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    (clean && !text.is_empty()).then_some(text)
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            RidDirection::Send => "send",
            RidDirection::Recv => "recv",
        };
        write!(f, "{} {direction}", self.id)?;
        let restricted = !self.restrictions.is_empty();
        if !self.payload_types.is_empty() {
            f.write_str(" pt=")?;
            write_joined(f, &self.payload_types, ",")?;
        }
        if restricted {
            let separator = if self.payload_types.is_empty() { ' ' } else { ';' };
            write!(f, "{separator}{}", self.restrictions)?;
        }
        Ok(())
    }
}

/// A layer in `a=simulcast`; it may be one of several alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Identifier of the layer.
    pub rid: String,
    /// True if the layer starts paused (`~`).
    pub paused: bool,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.paused { "~" } else { "" }, self.rid)
    }
}

/// `a=simulcast`: layers of a section in order of preference, each with its alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simulcast {
    /// Layers that the sender of the description sends.
    pub send: Vec<Vec<Layer>>,
    /// Layers that the sender of the description receives.
    pub recv: Vec<Vec<Layer>>,
}

impl Simulcast {
    /// Parses the attribute's value. The format of old drafts (`send rid=a;b`) is refused.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut simulcast = Self::default();
        let mut words = text.split_ascii_whitespace();
        while let Some(direction) = words.next() {
            let layers = layers(words.next()?)?;
            let place = match direction {
                "send" => &mut simulcast.send,
                "recv" => &mut simulcast.recv,
                _ => return None,
            };
            if !place.is_empty() {
                return None;
            }
            *place = layers;
        }
        (simulcast != Self::default()).then_some(simulcast)
    }

    /// Returns the layers for an answer that accepts all of them.
    #[must_use]
    pub fn reverse(self) -> Self {
        Self { send: self.recv, recv: self.send }
    }
}

fn layers(text: &str) -> Option<Vec<Vec<Layer>>> {
    list(text.split([';', ',']))?;
    text.split(';').map(|alternatives| alternatives.split(',').map(layer).collect()).collect()
}

fn layer(text: &str) -> Option<Layer> {
    let (rid, paused) = match text.strip_prefix('~') {
        Some(rid) => (rid, true),
        None => (text, false),
    };
    Some(Layer { rid: rid_id(rid)?.to_owned(), paused })
}

impl fmt::Display for Simulcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut blank = "";
        for (direction, layers) in [("send", &self.send), ("recv", &self.recv)] {
            if layers.is_empty() {
                continue;
            }
            write!(f, "{blank}{direction} ")?;
            for (at, alternatives) in layers.iter().enumerate() {
                f.write_str(if at == 0 { "" } else { ";" })?;
                write_joined(f, alternatives, ",")?;
            }
            blank = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_msids_read_what_they_write() {
        for value in ["BUNDLE 0 1 2", "LS audio0 video0", "BUNDLE", "FEC 1 2"] {
            assert_eq!(Group::read(value).unwrap().to_string(), value);
        }
        for value in ["- 3f1a", "stream", "stream track"] {
            assert_eq!(Msid::read(value).unwrap().to_string(), value);
        }
        assert_eq!((Group::read(""), Msid::read("")), (None, None));
    }

    #[test]
    fn layers_read_what_they_write() {
        for value in ["h send", "m send pt=96,97", "l recv max-width=320", "0 send pt=96;max-fps=15;max-br=1"]
        {
            assert_eq!(Rid::read(value).unwrap().to_string(), value);
        }
        for bad in ["", "h", "h up", "h send pt=200", "ü send", "h send pt="] {
            assert_eq!(Rid::read(bad), None, "{bad}");
        }
        // Values in the syntax of RFC 8853 §5.1, with alternatives, paused streams (`~`), and both directions.
        for value in ["send h;m;l", "send 1,~4;3 recv c", "recv 1;~4"] {
            assert_eq!(Simulcast::read(value).unwrap().to_string(), value);
        }
        assert_eq!(Simulcast::read("recv a send b").unwrap().to_string(), "send b recv a");
        assert_eq!(Simulcast::read("send a").unwrap().reverse().to_string(), "recv a");
        for bad in ["", "send", "send a;", "send a send b", "send rid=a;b", "up a"] {
            assert_eq!(Simulcast::read(bad), None, "{bad}");
        }
    }
}
