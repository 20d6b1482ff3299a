//! The attributes of a section in order, with lookup methods.

use alloc::string::String;
use alloc::vec::Vec;

use crate::attribute::Attribute;
use crate::dtls::{Fingerprint, Setup};
use crate::group::{Group, Msid, Rid, Simulcast};
use crate::ice::Candidate;
use crate::rtp::{Direction, Extmap, Rtpmap, SsrcAttribute, SsrcGroup};

/// The attributes of a section, in order.
///
/// If an attribute occurs more than once, its getter returns the first value. The parser refuses a second
/// `mid`, `setup`, `ice-ufrag` or `ice-pwd` with a different value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes(Vec<Attribute>);

#[cfg(test)]
std::thread_local! {
    static PASSES: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// The number of passes over lists of attributes that this thread has made.
#[cfg(test)]
pub(crate) fn passes() -> usize {
    PASSES.get()
}

macro_rules! first {
    ($($(#[$doc:meta])* $name:ident: $variant:ident -> $type:ty;)+) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(&self) -> Option<&$type> {
            self.all().find_map(|a| {
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
            self.all().filter_map(|a| {
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

    /// Appends an attribute.
    pub fn push(&mut self, attribute: Attribute) {
        self.0.push(attribute);
    }

    /// Iterates over all attributes in order.
    pub fn iter(&self) -> impl Iterator<Item = &Attribute> {
        self.all()
    }

    /// The number of attributes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no attributes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps only the attributes for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Attribute) -> bool) {
        self.0.retain(keep);
    }

    /// True if an attribute equal to this one, value included, is present. Meant for flags.
    #[must_use]
    pub fn has(&self, attribute: &Attribute) -> bool {
        self.0.contains(attribute)
    }

    /// Returns the value of an attribute of unknown type: `None` if it is absent, `Some(None)` if it is a flag.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<Option<&str>> {
        self.0.iter().find_map(|a| {
            let Attribute::Other { name: known, value } = a else { return None };
            (known == name).then_some(value.as_deref())
        })
    }

    /// Iterates over all attributes; tests count the calls.
    fn all(&self) -> core::slice::Iter<'_, Attribute> {
        #[cfg(test)]
        PASSES.set(PASSES.get() + 1);
        self.0.iter()
    }

    first! {
        /// Value of `mid`.
        mid: Mid -> str;
        /// Value of `msid`.
        msid: Msid -> Msid;
        /// Value of `setup`.
        setup: Setup -> Setup;
        /// Value of `ice-ufrag`.
        ice_ufrag: IceUfrag -> str;
        /// Value of `ice-pwd`.
        ice_pwd: IcePwd -> str;
        /// Values of `ice-options`.
        ice_options: IceOptions -> [String];
        /// Value of `simulcast`.
        simulcast: Simulcast -> Simulcast;
        /// Direction: `sendrecv`, `sendonly`, `recvonly` or `inactive`.
        direction: Direction -> Direction;
        /// Value of `control`.
        control: Control -> str;
        /// Value of `range`.
        range: Range -> str;
        /// Value of `framerate`.
        framerate: Framerate -> f64;
        /// Value of `ptime`.
        ptime: Ptime -> u32;
        /// Value of `maxptime`.
        max_ptime: MaxPtime -> u32;
        /// Value of `sctp-port`.
        sctp_port: SctpPort -> u16;
        /// Value of `max-message-size`.
        max_message_size: MaxMessageSize -> u64;
    }

    every! {
        /// All `rtpmap` attributes.
        rtpmaps: Rtpmap -> Rtpmap;
        /// All `group` attributes.
        groups: Group -> Group;
        /// All `fingerprint` attributes with a known hash function.
        fingerprints: Fingerprint -> Fingerprint;
        /// All valid `candidate` attributes.
        candidates: Candidate -> Candidate;
        /// All `extmap` attributes.
        extmaps: Extmap -> Extmap;
        /// All `ssrc` attributes.
        ssrcs: Ssrc -> SsrcAttribute;
        /// All `ssrc-group` attributes.
        ssrc_groups: SsrcGroup -> SsrcGroup;
        /// All `rid` attributes.
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
