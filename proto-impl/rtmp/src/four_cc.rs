//! Codecs announced in `connect` (Enhanced RTMP v2, "Enhancing NetConnection connect Command"): FourCCs, and what each
//! side can do with them. The meaning of a FourCC is not interpreted here.

use flv::amf0::{Pairs, Value};

/// All FourCCs of the standard: first video, then audio. The bit of a FourCC in [`FourCcs`] is its index in this list.
const NAMES: [&str; 12] =
    ["avc1", "hvc1", "av01", "vp09", "vp08", "vvc1", "mp4a", "Opus", "ac-3", "ec-3", ".mp3", "fLaC"];
/// Number of video FourCCs in [`NAMES`].
const VIDEO: usize = 6;
/// Entry of a peer's list or map that means all FourCCs.
const WILDCARD: &str = "*";
/// Maximum number of entries that are read from a list or map.
const ENTRIES_MAX: usize = 64;

/// Names of the properties in the command object.
mod property {
    pub(super) const LIST: &str = "fourCcList";
    pub(super) const VIDEO_MAP: &str = "videoFourCcInfoMap";
    pub(super) const AUDIO_MAP: &str = "audioFourCcInfoMap";
    pub(super) const CAPS_EX: &str = "capsEx";
}

/// Abilities of a peer for a codec: to decode, to encode, to forward it (`FourCcInfoMask`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ability(u32);

impl Ability {
    pub(crate) const DECODE: Self = Self(1);
    pub(crate) const ENCODE: Self = Self(2);
    pub(crate) const FORWARD: Self = Self(4);

    /// Returns the union of both abilities.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if a value of a map contains one of these abilities. The number's fraction is ignored. False if the value
    /// is not a number from 0 to 2^32 - 1.
    fn meets(self, value: &Value) -> bool {
        let Some(number) = value.as_number().filter(|n| (0.0..=f64::from(u32::MAX)).contains(n)) else {
            return false;
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        let flags = number as u32;
        flags & self.0 != 0
    }
}

/// Capabilities of a peer besides codecs (`CapsExMask`).
#[derive(Debug, Clone, Copy)]
struct CapsEx(u32);

impl CapsEx {
    /// Support for several tracks of a kind.
    const MULTITRACK: Self = Self(2);
    /// Support for `ModEx`: modifiers that precede the body of an audio or video packet.
    const MOD_EX: Self = Self(4);
}

/// True if a peer announces support for several tracks of a kind.
pub(crate) fn takes_multitrack(object: &Value) -> bool {
    object.get(property::CAPS_EX).is_some_and(|caps| Ability(CapsEx::MULTITRACK.0).meets(caps))
}

/// A set of FourCCs of Enhanced RTMP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FourCcs(u16);

impl FourCcs {
    /// The empty set: the peer announced none.
    pub const NONE: Self = Self(0);
    /// All FourCCs of the standard.
    pub const ALL: Self = Self((1 << NAMES.len()) - 1);

    /// Returns the set with one more FourCC. A FourCC outside the standard is ignored.
    #[must_use]
    pub fn with(self, four_cc: [u8; 4]) -> Self {
        Self(self.0 | bit(&four_cc))
    }

    /// True if the set contains the FourCC.
    #[must_use]
    pub fn contains(self, four_cc: [u8; 4]) -> bool {
        self.0 & bit(&four_cc) != 0
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set as a number, which is 0 for the empty set.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set with this number, from [`FourCcs::bits`].
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0)
    }

    fn names(self) -> impl Iterator<Item = (usize, &'static str)> {
        NAMES
            .iter()
            .enumerate()
            .filter(move |(index, _)| self.0 & (1 << index) != 0)
            .map(|(i, name)| (i, *name))
    }

    /// Reads the FourCCs in the peer's list, and those that its maps contain with one of the wanted abilities. A FourCC
    /// in the list counts as having every ability. `None` if the peer announces no FourCCs.
    pub(crate) fn read(object: &Value, wanted: Ability) -> Option<Self> {
        let list = object.get(property::LIST).and_then(list_entries);
        let maps =
            [property::VIDEO_MAP, property::AUDIO_MAP].map(|name| object.get(name).and_then(Value::pairs));
        if list.is_none() && maps.iter().all(Option::is_none) {
            return None;
        }
        let listed = list.into_iter().flatten().filter_map(Value::as_str);
        let mapped = maps.into_iter().flatten().flat_map(|pairs| pairs.iter().take(ENTRIES_MAX));
        let mapped = mapped.filter(|(_, flags)| wanted.meets(flags)).map(|(name, _)| name.as_str());
        Some(listed.chain(mapped).fold(Self::NONE, |set, name| match name {
            WILDCARD => Self::ALL,
            name => Self(set.0 | bit(name.as_bytes())),
        }))
    }

    /// Appends the properties that announce the set.
    pub(crate) fn write(self, ability: Ability, object: &mut Pairs) {
        let list = self.names().map(|(_, name)| Value::string(name)).collect();
        object.push((property::LIST.to_owned(), Value::StrictArray(list)));
        let map = |of_video: bool| {
            let of_kind = self.names().filter(|(index, _)| (*index < VIDEO) == of_video);
            of_kind.map(|(_, name)| (name.to_owned(), Value::Number(f64::from(ability.0)))).collect()
        };
        object.push((property::VIDEO_MAP.to_owned(), Value::Object(map(true))));
        object.push((property::AUDIO_MAP.to_owned(), Value::Object(map(false))));
        let caps = CapsEx::MULTITRACK.0 | CapsEx::MOD_EX.0;
        object.push((property::CAPS_EX.to_owned(), Value::Number(f64::from(caps))));
    }
}

/// Returns the bit of a FourCC; 0 if it is outside the standard.
fn bit(four_cc: &[u8]) -> u16 {
    NAMES.iter().position(|name| name.as_bytes() == four_cc).map_or(0, |index| 1 << index)
}

/// Returns the elements of a list. Programs derived from librtmp write an object instead of an array.
fn list_entries(value: &Value) -> Option<Vec<&Value>> {
    let array = value.as_array().map(|values| values.iter().take(ENTRIES_MAX).collect());
    array.or_else(|| Some(value.pairs()?.iter().take(ENTRIES_MAX).map(|(_, value)| value).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crypto::Seed;

    use super::*;
    use crate::testing::*;
    use crate::{Client, ClientConfig, Config, Event, Server};

    fn strings(names: &[&str]) -> Value {
        Value::StrictArray(names.iter().map(|name| Value::string(*name)).collect())
    }

    fn set(names: &[&[u8; 4]]) -> FourCcs {
        names.iter().fold(FourCcs::NONE, |set, name| set.with(**name))
    }

    #[test]
    fn lists_maps_and_wildcards_are_read() {
        let read = |name: &str, value: Value| FourCcs::read(&Value::object([(name, value)]), Ability::DECODE);
        assert_eq!(read("fourCcList", strings(&["hvc1", "av01", "nope"])), Some(set(&[b"hvc1", b"av01"])));
        assert_eq!(read("fourCcList", strings(&["*"])), Some(FourCcs::ALL));
        assert_eq!(read("fourCcList", strings(&[])), Some(FourCcs::NONE));
        let flags =
            |flags: f64| Value::object([("vp09", Value::Number(flags)), ("hvc1", Value::Number(2.0))]);
        assert_eq!(read("videoFourCcInfoMap", flags(1.0)), Some(set(&[b"vp09"])));
        assert_eq!(read("videoFourCcInfoMap", flags(7.0)), Some(set(&[b"vp09"])));
        assert_eq!(read("videoFourCcInfoMap", flags(6.0)), Some(FourCcs::NONE));
        let all = Value::object([("*", Value::Number(1.0))]);
        assert_eq!(read("audioFourCcInfoMap", all), Some(FourCcs::ALL));
        assert_eq!(read("app", Value::string("live")), None);
        assert_eq!(FourCcs::read(&Value::Null, Ability::DECODE), None);
    }

    #[test]
    fn m_12_odd_flags_and_endless_lists_are_nothing() {
        for odd in [Value::Number(f64::NAN), Value::Number(f64::INFINITY), Value::Number(-1.0), Value::Null] {
            let object = Value::object([("videoFourCcInfoMap", Value::object([("hvc1", odd)]))]);
            assert_eq!(FourCcs::read(&object, Ability::DECODE), Some(FourCcs::NONE));
        }
        let many = strings(&vec!["?"; ENTRIES_MAX].into_iter().chain(["hvc1"]).collect::<Vec<_>>());
        let object = Value::object([("fourCcList", many)]);
        assert_eq!(FourCcs::read(&object, Ability::DECODE), Some(FourCcs::NONE));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ours = set(&[b"hvc1", b"Opus", b".mp3"]);
        let mut pairs = Pairs::new();
        ours.write(Ability::FORWARD, &mut pairs);
        assert_eq!(
            pairs.iter().find(|(name, _)| name == "videoFourCcInfoMap").unwrap().1.pairs().unwrap().len(),
            1
        );
        pairs.retain(|(name, _)| name != "fourCcList");
        let object = Value::Object(pairs);
        assert_eq!(FourCcs::read(&object, Ability::FORWARD), Some(ours));
        assert_eq!(FourCcs::read(&object, Ability::DECODE.or(Ability::FORWARD)), Some(ours));
        assert_eq!(FourCcs::read(&object, Ability::ENCODE), Some(FourCcs::NONE));
        assert_eq!((ours.and(FourCcs::NONE).is_empty(), ours.and(FourCcs::ALL)), (true, ours));
    }

    /// Connects a client to a server that can forward the codecs `ours`. The client's `connect` has the properties
    /// `members` in addition to the usual ones.
    fn asked(ours: FourCcs, members: &[(&str, Value)]) -> Rig {
        let mut rig = Rig::new();
        rig.server = Server::new(
            rig.now,
            Arc::new(Config { four_ccs: ours, ..Config::default() }),
            Seed::from_number(1),
        );
        let mut object = vec![("app".to_owned(), Value::string("live"))];
        object.extend(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        rig.feed(&[shake(), invoke(0, "connect", 1.0, &[Value::Object(object)])].concat());
        rig
    }

    #[test]
    fn a_server_tells_what_the_peer_can_decode_and_answers_with_its_own() {
        let ours = set(&[b"hvc1", b"Opus"]);
        let rig = asked(ours, &[("fourCcList", strings(&["hvc1", "av01"])), ("capsEx", Value::Number(2.0))]);
        let Some(Event::Connect(request)) = rig.events.first() else { panic!("{:?}", rig.events) };
        assert_eq!(request.four_ccs, Some(set(&[b"hvc1", b"av01"])));
        let replies = rig.replies();
        let properties = &replies.iter().find(|reply| reply.name == "_result").unwrap().values[0];
        assert_eq!(FourCcs::read(properties, Ability::FORWARD), Some(ours));
        assert_eq!((properties.get("capsEx"), request.multitrack), (Some(&Value::Number(6.0)), true));
        assert!(properties.get("fmsVer").is_some());
    }

    #[test]
    fn a_server_says_nothing_to_who_did_not_ask() {
        let rig = asked(FourCcs::ALL, &[]);
        assert!(
            matches!(rig.events.first(), Some(Event::Connect(request)) if request.four_ccs.is_none() && !request.multitrack)
        );
        let replies = rig.replies();
        let properties = &replies.iter().find(|reply| reply.name == "_result").unwrap().values[0];
        assert_eq!(properties.pairs().map(<[_]>::len), Some(3));
    }

    #[test]
    fn a_push_announces_what_it_sends_and_hears_what_the_server_takes() {
        let (ours, theirs) = (set(&[b"hvc1", b"av01"]), set(&[b"av01", b"Opus"]));
        for (announced, heard) in [(ours, Some(theirs)), (FourCcs::NONE, None)] {
            let config = ClientConfig {
                app: "live".to_owned(),
                stream: "s".to_owned(),
                four_ccs: announced,
                ..ClientConfig::default()
            };
            let mut pump = Pump::new(Client::publish(start(), Arc::new(config), Seed::from_number(3)), 100);
            let ours = Arc::new(Config { four_ccs: theirs, ..Config::default() });
            pump.rig.server = Server::new(start(), ours, Seed::from_number(1));
            pump.run();
            let Some(Event::Connect(request)) = pump.rig.events.first() else {
                panic!("{:?}", pump.rig.events)
            };
            assert_eq!(request.four_ccs, Some(announced).filter(|set| !set.is_empty()));
            assert_eq!((pump.client.four_ccs(), pump.client.takes_multitrack()), (heard, heard.is_some()));
        }
    }

    #[test]
    fn an_answer_in_the_information_object_is_heard_too() {
        let mut client = Client::publish(start(), Arc::default(), Seed::from_number(3));
        client.handle_bytes(start(), &shake()).unwrap();
        let information = Value::object([("fourCcList", strings(&["hvc1"]))]);
        client.handle_bytes(start(), &invoke(0, "_result", 1.0, &[Value::Null, information])).unwrap();
        assert_eq!(client.four_ccs(), Some(set(&[b"hvc1"])));
    }
}
