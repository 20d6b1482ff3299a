//! The attributes of a section, in their order, and questions about them.

use crate::attribute::Attribute;
use crate::dtls::{Fingerprint, Setup};
use crate::group::{Group, Msid, Rid, Simulcast};
use crate::ice::Candidate;
use crate::rtp::{Direction, Extmap, Rtpmap, SsrcAttribute, SsrcGroup};

/// The attributes of a section, in their order.
///
/// A getter of one value gives the first; the reader has refused a second `mid`, `setup`, `ice-ufrag` or `ice-pwd` that differs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes(Vec<Attribute>);

macro_rules! first {
    ($($(#[$doc:meta])* $name:ident: $variant:ident -> $type:ty;)+) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(&self) -> Option<&$type> {
            self.0.iter().find_map(|a| {
                let Attribute::$variant(value) = a else { return None };
                let value: &$type = value;
                Some(value)
            })
        })+
    };
}

macro_rules! every {
    ($($(#[$doc:meta])* $name:ident: $variant:ident -> $type:ty;)+) => {
        $($(#[$doc])*
        pub fn $name(&self) -> impl Iterator<Item = &$type> {
            self.0.iter().filter_map(|a| {
                let Attribute::$variant(value) = a else { return None };
                let value: &$type = value;
                Some(value)
            })
        })+
    };
}

impl Attributes {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one at the end.
    pub fn push(&mut self, attribute: Attribute) {
        self.0.push(attribute);
    }

    /// All attributes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.0.iter()
    }

    /// The number of attributes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps those for which the answer is yes.
    pub fn retain(&mut self, keep: impl FnMut(&Attribute) -> bool) {
        self.0.retain(keep);
    }

    /// Whether exactly this one is there; for flags.
    #[must_use]
    pub fn has(&self, attribute: &Attribute) -> bool {
        self.0.contains(attribute)
    }

    /// The value of an attribute that this crate does not know: `Some(None)` for a flag.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<Option<&str>> {
        self.0.iter().find_map(|a| {
            let Attribute::Other { name: known, value } = a else { return None };
            (known == name).then_some(value.as_deref())
        })
    }

    first! {
        /// `mid`.
        mid: Mid -> str;
        /// `msid`.
        msid: Msid -> Msid;
        /// `setup`.
        setup: Setup -> Setup;
        /// `ice-ufrag`.
        ice_ufrag: IceUfrag -> str;
        /// `ice-pwd`.
        ice_pwd: IcePwd -> str;
        /// `ice-options`; none where there is no such line.
        ice_options: IceOptions -> [String];
        /// `simulcast`.
        simulcast: Simulcast -> Simulcast;
        /// `sendrecv`, `sendonly`, `recvonly`, `inactive`.
        direction: Direction -> Direction;
        /// `control`.
        control: Control -> str;
        /// `range`.
        range: Range -> str;
        /// `framerate`.
        framerate: Framerate -> f64;
        /// `ptime`.
        ptime: Ptime -> u32;
        /// `maxptime`.
        max_ptime: MaxPtime -> u32;
        /// `sctp-port`.
        sctp_port: SctpPort -> u16;
        /// `max-message-size`.
        max_message_size: MaxMessageSize -> u64;
    }

    every! {
        /// `rtpmap`.
        rtpmaps: Rtpmap -> Rtpmap;
        /// `group`.
        groups: Group -> Group;
        /// `fingerprint`, of known hash functions.
        fingerprints: Fingerprint -> Fingerprint;
        /// `candidate`, those that are understood.
        candidates: Candidate -> Candidate;
        /// `extmap`.
        extmaps: Extmap -> Extmap;
        /// `ssrc`.
        ssrcs: Ssrc -> SsrcAttribute;
        /// `ssrc-group`.
        ssrc_groups: SsrcGroup -> SsrcGroup;
        /// `rid`.
        rids: Rid -> Rid;
    }
}

impl FromIterator<Attribute> for Attributes {
    fn from_iter<I: IntoIterator<Item = Attribute>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}

impl Extend<Attribute> for Attributes {
    fn extend<I: IntoIterator<Item = Attribute>>(&mut self, attributes: I) {
        self.0.extend(attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_counts_and_flags_are_compared() {
        let attributes: Attributes = [
            Attribute::RtcpMux,
            Attribute::Direction(Direction::RecvOnly),
            Attribute::Direction(Direction::SendRecv),
            Attribute::other("x", None),
            Attribute::other("y", Some("1")),
        ]
        .into_iter()
        .collect();
        assert_eq!(attributes.direction(), Some(&Direction::RecvOnly));
        assert!(attributes.has(&Attribute::RtcpMux) && !attributes.has(&Attribute::IceLite));
        assert_eq!((attributes.other("x"), attributes.other("y")), (Some(None), Some(Some("1"))));
        assert_eq!((attributes.other("z"), attributes.mid(), attributes.len()), (None, None, 5));
    }
}
