//! Closed captions within video: CEA-608 and CEA-708 in the SEI of H.264 and H.265 (ANSI/CTA-708-E §4.4, ETSI
//! TS 101 154 annex B, ATSC A/53 part 4 §6.2.3), and in the metadata of AV1 (AV1 bitstream §5.8.2). VP9 has no place
//! for them.
//!
//! Captions are not extracted from the video. This module only determines which caption channels a stream
//! has. Channels count only if they have content, not padding.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};

use wire::Reader;

use crate::codec::{av1, h264, h265};
use crate::nal::Nals;
use crate::{AccessUnit, Codec};

/// Maximum number of bytes read of one SEI. The captions of a picture have at most 110.
const SEI_BYTES_MAX: usize = 4096;
/// Maximum number of SEI messages read of one picture.
const MESSAGES_MAX: usize = 32;
/// Maximum number of NAL units examined before the first slice.
const NALS_MAX: usize = 32;
/// payloadType of `user_data_registered_itu_t_t35` (H.264 §D.1.6).
const T35: usize = 4;
/// Country (USA), provider (ATSC), `GA94` and the type of caption data (A/53 part 4 §6.2.3).
const CAPTIONS: [u8; 8] = [0xb5, 0x00, 0x31, b'G', b'A', b'9', b'4', 0x03];
/// metadata_type of METADATA_TYPE_ITUT_T35 (AV1 §6.7.1).
const METADATA_T35: usize = 4;
/// Maximum number of OBUs examined before the frame.
const OBUS_MAX: usize = 16;
/// Maximum number of bytes of a CEA-708 packet (CTA-708-E §5).
const PACKET_BYTES_MAX: usize = 128;

/// A caption channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// CEA-608 channel by its number, 1 to 4 (CC1 to CC4).
    Line21(u8),
    /// CEA-708 service by its number, 1 to 63.
    Service(u8),
}

impl Channel {
    /// Reads a channel name of HLS (`INSTREAM-ID`): `CC1` to `CC4`, `SERVICE1` to `SERVICE63`.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        let number = |digits: &str| digits.parse::<u8>().ok().filter(|_| !digits.starts_with(['0', '+']));
        if let Some(digits) = name.strip_prefix("CC") {
            return number(digits).filter(|n| (1..=4).contains(n)).map(Self::Line21);
        }
        number(name.strip_prefix("SERVICE")?).filter(|n| (1..=63).contains(n)).map(Self::Service)
    }
}

impl Display for Channel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line21(number) => write!(f, "CC{number}"),
            Self::Service(number) => write!(f, "SERVICE{number}"),
        }
    }
}

/// A set of channels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Channels {
    line_21: u8,
    services: u64,
}

impl Channels {
    /// The empty set.
    pub const NONE: Self = Self { line_21: 0, services: 0 };

    /// Adds a channel.
    pub const fn add(&mut self, channel: Channel) {
        match channel {
            Channel::Line21(number) => self.line_21 |= 1_u8.wrapping_shl(number as u32),
            Channel::Service(number) => self.services |= 1_u64.wrapping_shl(number as u32),
        }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { line_21: self.line_21 | other.line_21, services: self.services | other.services }
    }

    /// True if the channel is in the set.
    #[must_use]
    pub fn contains(self, channel: Channel) -> bool {
        let mut one = Self::NONE;
        one.add(channel);
        self.or(one) == self
    }

    /// Returns the channels, CEA-608 first.
    pub fn iter(self) -> impl Iterator<Item = Channel> {
        let all = (1..=4).map(Channel::Line21).chain((1..=63).map(Channel::Service));
        all.filter(move |channel| self.contains(*channel))
    }

    /// Returns the channels for which a picture has captions. `unit` has NAL units with lengths of four
    /// bytes, or OBUs. Codecs other than H.264, H.265 and AV1 have no captions.
    #[must_use]
    pub fn of_unit(unit: &AccessUnit, codec: Codec) -> Self {
        let mut channels = Self::NONE;
        if codec == Codec::Av1 {
            channels.note_obus(&unit.payload);
            return channels;
        }
        if codec != Codec::H264 && codec != Codec::H265 {
            return channels;
        }
        for nal in Nals::new(&unit.payload, 4).take(NALS_MAX) {
            let Ok(nal) = nal else { break };
            // SEI precedes the slices (H.264 §7.4.1.2.3, H.265 §7.4.2.4.4).
            let (is_slice, body) = if codec == Codec::H264 {
                let kind = h264::nal_type(nal);
                ((1..=5).contains(&kind), nal.get(1..).filter(|_| kind == h264::NAL_SEI))
            } else {
                let kind = h265::nal_type(nal).unwrap_or(h265::NAL_SEI);
                (kind < 32, nal.get(2..).filter(|_| kind == h265::NAL_SEI))
            };
            if is_slice {
                break;
            }
            body.into_iter().for_each(|body| channels.note_sei(body));
        }
        channels
    }

    /// Notes the captions in the metadata of AV1, which precedes the frame.
    fn note_obus(&mut self, payload: &[u8]) {
        let mut reader = Reader::new(payload);
        for _ in 0..OBUS_MAX {
            let Ok(obu) = av1::read_obu(&mut reader) else { return };
            if matches!(obu.kind, av1::OBU_FRAME_HEADER | av1::OBU_FRAME) {
                return;
            }
            let mut body = Reader::new(obu.body.get(..SEI_BYTES_MAX).unwrap_or(obu.body));
            let is_t35 =
                obu.kind == av1::OBU_METADATA && av1::read_leb128(&mut body).ok() == Some(METADATA_T35);
            if let Some(data) = body.rest().strip_prefix(&CAPTIONS[..]).filter(|_| is_t35) {
                self.note_data(data);
            }
        }
    }

    fn note_sei(&mut self, body: &[u8]) {
        // Skip SEI without captions, such as the long text by which many encoders identify themselves in the first
        // picture.
        if !body.windows(4).take(SEI_BYTES_MAX).any(|four| four == b"GA94") {
            return;
        }
        let mut bytes = Unescaped::new(body.get(..SEI_BYTES_MAX).unwrap_or(body));
        for _ in 0..MESSAGES_MAX {
            let (Some(kind), Some(size)) = (bytes.value(), bytes.value()) else { return };
            let message: Vec<u8> = bytes.by_ref().take(size).collect();
            if message.len() < size {
                return;
            }
            if let Some(data) = message.strip_prefix(&CAPTIONS[..]).filter(|_| kind == T35) {
                self.note_data(data);
            }
        }
    }

    /// Adds the channels in `cc_data` (A/53 part 4 table 6.10). It starts with a byte that contains
    /// process_cc_data_flag and the number of byte pairs. For each pair follow three bytes: a
    /// header and the two bytes of the pair.
    fn note_data(&mut self, data: &[u8]) {
        let Some((&flags, rest)) = data.split_first() else { return };
        let is_processed = flags & 0x40 != 0;
        let triples = rest.get(1..).unwrap_or_default().chunks_exact(3);
        let mut packet: Vec<u8> = Vec::new();
        for triple in triples.take(if is_processed { usize::from(flags & 0x1f) } else { 0 }) {
            let &[head, first, second] = triple else { return };
            match (head & 4 != 0, head & 3) {
                (true, field @ 0..=1) => self.note_pair(field, [first & 0x7f, second & 0x7f]),
                (true, kind @ 2..=3) => {
                    if kind == 3 {
                        self.note_packet(&packet);
                        packet.clear();
                    }
                    if packet.len() < PACKET_BYTES_MAX && (kind == 3 || !packet.is_empty()) {
                        packet.extend([first, second]);
                    }
                }
                _ => {}
            }
        }
        self.note_packet(&packet);
    }

    /// Adds the channel of a CEA-608 byte pair. A control code names its channel (CTA-608-E §8). Text belongs to the
    /// channel of the control code before it, which was already added.
    const fn note_pair(&mut self, field: u8, pair: [u8; 2]) {
        let [code @ 0x10..=0x1f, 0x20..=0x7f] = pair else { return };
        let second = if code & 8 != 0 { 1 } else { 0 };
        self.add(Channel::Line21(1 + 2 * field + second));
    }

    /// Adds the services in a packet of CEA-708, which may be incomplete. The packet consists of blocks, each
    /// with a service number, a length and data (CTA-708-E §6.2).
    fn note_packet(&mut self, packet: &[u8]) {
        let Some((&head, blocks)) = packet.split_first() else { return };
        // A length of 0 means 128 bytes.
        let bytes = match usize::from(head & 0x3f) {
            0 => PACKET_BYTES_MAX - 1,
            pairs => pairs.saturating_mul(2).saturating_sub(1),
        };
        let mut rest = blocks.get(..bytes).unwrap_or(blocks);
        while let Some((&block, behind)) = rest.split_first() {
            let (number, size) = (block >> 5, usize::from(block & 0x1f));
            if number == 0 || size == 0 {
                return;
            }
            let (number, behind) = match (number, behind.split_first()) {
                (7, Some((&number, behind))) => (number & 0x3f, behind),
                (7, None) => return,
                _ => (number, behind),
            };
            if number > 0 {
                self.add(Channel::Service(number));
            }
            rest = behind.get(size..).unwrap_or_default();
        }
    }
}

/// The channels that a publisher announces, each with its language, if known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services(Option<Arc<[Service]>>);

/// An announced channel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Service {
    channel: Channel,
    /// Language, as a code of three letters.
    language: Option<String>,
}

impl Services {
    /// No announced channels.
    pub const NONE: Self = Self(None);

    /// Reads a caption_service_descriptor (ATSC A/65 §6.9.2), without its tag and length:
    ///
    /// ```text
    /// reserved(3) services(5) | for each: language(24)
    ///   digital_cc(1) reserved(1), then caption_service_number(6), or reserved(5) line21_field(1)
    ///   easy_reader(1) wide_aspect_ratio(1) reserved(14)
    /// ```
    ///
    /// Reading stops where the descriptor is truncated; services without a valid number are skipped.
    #[must_use]
    pub fn read(descriptor: &[u8]) -> Self {
        let mut reader = Reader::new(descriptor);
        let count = reader.u8().map_or(0, |head| head & 0x1f);
        let mut list: Vec<Service> = Vec::new();
        for _ in 0..count {
            let (Ok(code), Ok(kind), Ok(_)) = (reader.array::<3>(), reader.u8(), reader.u16()) else { break };
            let channel = match (kind & 0x80 != 0, kind & 0x3f) {
                (true, number @ 1..=63) => Channel::Service(number),
                (true, _) => continue,
                (false, field) => Channel::Line21(1 + 2 * (field & 1)),
            };
            let code = code.map(|letter| letter.to_ascii_lowercase());
            let code = core::str::from_utf8(&code).ok();
            let is_known =
                |code: &&str| code.bytes().all(|letter| letter.is_ascii_lowercase()) && *code != "und";
            if list.iter().all(|other| other.channel != channel) {
                let language = code.filter(is_known).map(ToString::to_string);
                list.push(Service { channel, language });
            }
        }
        list.sort_by_key(|service| service.channel);
        Self(Some(list.into()).filter(|list: &Arc<[_]>| !list.is_empty()))
    }

    /// Returns the channels with their languages, CEA-608 first.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, Option<&str>)> {
        let all = self.0.iter().flat_map(|list| list.iter());
        all.map(|service| (service.channel, service.language.as_deref()))
    }
}

/// The caption channels of a video: those that have had captions, and those that are announced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The channels that have had captions.
    pub seen: Channels,
    /// The announced channels.
    pub services: Services,
}

impl Known {
    /// Returns all channels, each with its language, if known.
    #[must_use]
    pub fn all(&self) -> Vec<(Channel, Option<&str>)> {
        let announced = self.services.iter().fold(Channels::NONE, |mut all, (channel, _)| {
            all.add(channel);
            all
        });
        let language = |channel: Channel| self.services.iter().find(|(other, _)| *other == channel)?.1;
        self.seen.or(announced).iter().map(|channel| (channel, language(channel))).collect()
    }

    /// Returns the channels of `self` and `other`. The announced channels are those of `self`, or
    /// those of `other` if `self` announces none.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let own = if self.services == Services::NONE { &other.services } else { &self.services };
        Self { seen: self.seen.or(other.seen), services: own.clone() }
    }
}

/// Bytes without emulation prevention bytes (H.264 §7.4.1, H.265 §7.4.2).
struct Unescaped<'a> {
    bytes: core::slice::Iter<'a, u8>,
    zeros: u8,
}

impl<'a> Unescaped<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), zeros: 0 }
    }

    /// Reads the type or the size of a message: the sum of its bytes, of which all but the last are
    /// 255 (§7.3.2.3.1).
    fn value(&mut self) -> Option<usize> {
        let mut value = 0_usize;
        loop {
            let byte = self.next()?;
            value = value.saturating_add(usize::from(byte));
            if byte != 0xff {
                return Some(value);
            }
        }
    }
}

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let mut byte = *self.bytes.next()?;
        if self.zeros >= 2 && byte == 3 {
            self.zeros = 0;
            byte = *self.bytes.next()?;
        }
        self.zeros = if byte == 0 { self.zeros.saturating_add(1) } else { 0 };
        Some(byte)
    }
}

/// Parses a setting that lists channels, each with an optional language, such as `CC1=en,CC3=es,SERVICE1`.
/// `None` if it is invalid.
#[must_use]
pub fn read_list(text: &str) -> Option<Vec<(Channel, Option<String>)>> {
    let mut list: Vec<(Channel, Option<String>)> = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let (name, language) = match entry.split_once('=') {
            Some((name, language)) => (name.trim(), Some(language.trim())),
            None => (entry, None),
        };
        let is_tag = |language: &str| {
            (2..=35).contains(&language.len())
                && language.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let channel = Channel::read(name)?;
        if list.iter().any(|(other, _)| *other == channel) || language.is_some_and(|one| !is_tag(one)) {
            return None;
        }
        list.push((channel, language.map(Into::into)));
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::TrackId;

    /// Makes an SEI message of caption data with these pairs, each with its header byte.
    fn message(triples: &[[u8; 3]]) -> Vec<u8> {
        let count = u8::try_from(triples.len()).unwrap();
        let mut data = [&CAPTIONS[..], &[0x40 | count, 0xff]].concat();
        triples.iter().for_each(|triple| data.extend(triple));
        data.push(0xff);
        [&[4, u8::try_from(data.len()).unwrap()][..], &data].concat()
    }

    fn escaped(bytes: &[u8]) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        for byte in bytes {
            if out.ends_with(&[0, 0]) && *byte <= 3 {
                out.push(3);
            }
            out.push(*byte);
        }
        out
    }

    fn unit(nals: &[&[u8]]) -> AccessUnit {
        let length = |nal: &[u8]| u32::try_from(nal.len()).unwrap().to_be_bytes();
        let payload: Vec<u8> = nals.iter().flat_map(|nal| [&length(nal)[..], nal].concat()).collect();
        AccessUnit {
            track: TrackId::VIDEO,
            dts: 0,
            pts: 0,
            key_frame: true,
            config_epoch: 0,
            payload: Bytes::from(payload),
        }
    }

    fn told(triples: &[[u8; 3]]) -> Vec<Channel> {
        let body = escaped(&[&message(triples)[..], &[0x80]].concat());
        let of = |head: &[u8], slice: &[u8], codec| {
            let sei = [head, &body].concat();
            Channels::of_unit(&unit(&[&sei, slice]), codec).iter().collect::<Vec<_>>()
        };
        let told = of(&[6], &[0x65, 1], Codec::H264);
        assert_eq!(of(&[39 << 1, 1], &[19 << 1, 1], Codec::H265), told);
        assert!(of(&[6], &[0x65, 1], Codec::Vp9).is_empty());
        // A temporal delimiter, metadata and a frame, each with its size.
        let metadata = [&[4][..], &message(triples)[2..], &[0x80]].concat();
        let size = u8::try_from(metadata.len()).unwrap();
        let of_av1 = |obus: &[&[u8]]| {
            let unit = AccessUnit { payload: Bytes::from(obus.concat()), ..unit(&[]) };
            Channels::of_unit(&unit, Codec::Av1).iter().collect::<Vec<_>>()
        };
        let obu = [&[5 << 3 | 2, size], &metadata[..]].concat();
        if size < 128 {
            assert_eq!(of_av1(&[&[2 << 3 | 2, 0], &obu, &[6 << 3 | 2, 1, 0]]), told);
        }
        assert!(of_av1(&[&[6 << 3 | 2, 1, 0], &obu]).is_empty(), "it belongs to the next frame");
        assert!(of_av1(&[&obu[..obu.len() - 1]]).is_empty(), "it is cut off");
        told
    }

    #[test]
    fn t_20_announced_services_have_languages_and_those_that_lie_are_left_out() {
        use Channel::{Line21, Service};
        let services = [
            &[0xe0 | 5][..],
            b"eng\x81\x3f\xff",
            b"SPA\x7f\x3f\xff",
            b"und\x82\x3f\xff",
            b"fra\x80\x3f\xff",
            b"deu\x81\x3f\xff",
        ];
        let whole = services.concat();
        let all = |bytes: &[u8], seen| {
            let known = Known { seen, services: Services::read(bytes) };
            known.all().into_iter().map(|(one, tag)| (one, tag.map(String::from))).collect::<Vec<_>>()
        };
        let eng = (Service(1), Some("eng".into()));
        let wanted = [(Line21(3), Some("spa".into())), eng.clone(), (Service(2), None)];
        assert_eq!(all(&whole, Channels::NONE), wanted);
        let mut seen = Channels::NONE;
        [Line21(1), Service(1)].into_iter().for_each(|channel| seen.add(channel));
        assert_eq!(all(&whole[..7], seen), [(Line21(1), None), eng]);
        for length in 0..7 {
            assert_eq!(Services::read(&whole[..length]), Services::NONE, "{length}");
        }
    }

    #[test]
    fn channels_are_those_that_have_something_to_say() {
        use Channel::{Line21, Service};
        // The command "resume caption loading", with parity bits, on each of the four channels.
        assert_eq!(told(&[[0xfc, 0x94, 0x20]]), [Line21(1)]);
        assert_eq!(told(&[[0xfc, 0x1c, 0x20]]), [Line21(2)]);
        assert_eq!(told(&[[0xfd, 0x15, 0x20], [0xfd, 0x9d, 0x20]]), [Line21(3), Line21(4)]);
        // None of these is a sign of a channel: padding, invalid pairs, extended data of field 2,
        // text without a preceding control code.
        assert_eq!(
            told(&[[0xfc, 0x80, 0x80], [0xf8, 0x94, 0x20], [0xfd, 0x01, 0x83], [0xfc, 0xc8, 0xe9]]),
            []
        );
        // Two services in a packet of six bytes, and a service with an extended number.
        assert_eq!(
            told(&[[0xff, 0x03, 0x21], [0xfe, 0x41, 0x42], [0xfe, 0x58, 0x59]]),
            [Service(1), Service(2)]
        );
        assert_eq!(told(&[[0xff, 0x02, 0xe1], [0xfe, 0x09, 0x41]]), [Service(9)]);
        // A packet without a service block, and the continuation of a packet that never began, name no channel.
        assert_eq!(told(&[[0xff, 0x01, 0x00], [0xfa, 0, 0]]), []);
        assert_eq!(told(&[[0xfe, 0x21, 0x41]]), []);
    }

    #[test]
    fn other_messages_before_them_are_passed_over() {
        let text = [&[5, 0xff, 45][..], &[b'x'; 300]].concat();
        let sei = [&[6][..], &escaped(&text), &escaped(&message(&[[0xfc, 0x94, 0x20]])), &[0x80]].concat();
        let found = Channels::of_unit(&unit(&[&[9, 0xf0], &sei, &[0x41, 1]]), Codec::H264);
        assert!(found.contains(Channel::Line21(1)));
        // SEI after a slice is ignored.
        assert_eq!(Channels::of_unit(&unit(&[&[0x41, 1], &sei]), Codec::H264), Channels::NONE);
    }

    #[test]
    fn t_20_captions_that_are_cut_off_or_lie_do_no_harm() {
        let whole = [&[6][..], &message(&[[0xff, 0x03, 0x21], [0xfe, 0x41, 0x42]]), &[0x80]].concat();
        for end in 0..whole.len() {
            let cut = whole.get(..end).unwrap();
            let _ = Channels::of_unit(&unit(&[cut]), Codec::H264);
            let mut other = whole.clone();
            for byte in [0, 0x1f, 0x7f, 0xff] {
                other[end] = byte;
                let _ = Channels::of_unit(&unit(&[&other]), Codec::H264);
            }
        }
        let bomb = [&[6][..], &vec![0xff; 1 << 20], b"GA94"].concat();
        assert_eq!(Channels::of_unit(&unit(&[&bomb]), Codec::H264), Channels::NONE);
    }

    #[test]
    fn a_list_has_each_channel_once_with_a_language_or_without() {
        let list = read_list("CC1=en, CC3=es-419,SERVICE1").unwrap();
        let told: Vec<_> =
            list.iter().map(|(one, language)| (one.to_string(), language.as_deref())).collect();
        let wanted = [("CC1", Some("en")), ("CC3", Some("es-419")), ("SERVICE1", None)];
        assert_eq!(told, wanted.map(|(name, language)| (name.to_owned(), language)));
        for bad in [
            "",
            "CC0",
            "CC5",
            "CC01",
            "CC+1",
            "SERVICE64",
            "SERVICE0",
            "CC1,CC1",
            "CC1=",
            "CC1=e",
            "CC1=\"x",
            "x",
        ] {
            assert_eq!(read_list(bad), None, "{bad}");
        }
    }
}
