//! Offers and answers as text (RFC 3264, RFC 9143): selects formats, mirrors attributes, and checks answers.
//! The caller chooses codecs and directions.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::attribute::Attribute;
use crate::description::Description;
use crate::fmtp::Parameters;
use crate::group::{Group, Semantics};
use crate::host::{Connection, Host};
use crate::media::{Format, Formats, Media};
use crate::rtp::{Direction, Extmap, PayloadType, Rtpmap};

/// The discard port, used if ICE determines a section's address (RFC 8839 §4.3.1).
const PORT_DISCARD: u16 = 9;
/// Ids that packets can contain (RFC 8285 §4.3). From 4096 on, an extension is proposed without an id (§5).
const EXTENSION_IDS: core::ops::RangeInclusive<u16> = 1..=255;

/// A format in an offer that we support, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The format as offered; its parameters are the peer's receive capabilities.
    pub offered: Format,
    /// The format for the answer: the offered payload type, our parameters, and the common feedback types.
    pub answer: Format,
    /// Index in our list of formats.
    pub ours: usize,
    /// Offered payload type for the format's retransmissions; `None` without RTX.
    pub rtx: Option<PayloadType>,
    /// Offered payload type for the format's redundant form (RFC 2198), for senders that support it.
    pub red: Option<PayloadType>,
}

impl Media {
    /// Selects the formats in this offered section that we support, in our order of preference. If several
    /// offered formats match one of ours, the first of them is selected. No format is selected twice. To select
    /// several times from one section, use [`Format::select`].
    #[must_use]
    pub fn select(&self, ours: &[Format]) -> Vec<Selected> {
        let offered: Vec<Format> = self.rtp_formats().collect();
        Format::select(&offered, ours)
    }

    /// Returns the answer to this offered section with these formats: its kind, protocol, `mid`, RTCP flags,
    /// and the resulting direction. The caller must add ICE, DTLS, extensions and `msid`.
    #[must_use]
    pub fn accept(&self, selected: &[Selected], offered: Direction, ours: Direction) -> Self {
        let mut types = Vec::new();
        let is_received = offered.answer(ours) == Direction::RecvOnly;
        let place = |of: PayloadType| self.payload_types().iter().position(|offered| *offered == of);
        for format in selected {
            let own = format.answer.payload_type();
            // A sender uses the redundant form only if that form is listed first. We list it first when we
            // receive, because senders such as browsers do not retransmit audio.
            let red_first = format.red.filter(|red| is_received || place(*red) < place(own));
            let red_last = format.red.filter(|_| red_first.is_none());
            types.extend(red_first.into_iter().chain([own]).chain(format.rtx).chain(red_last));
        }
        let mut media = Self::new(self.kind.clone(), PORT_DISCARD, &self.protocol, Formats::Rtp(types));
        media.connection = Some(Connection::new(Host::UNSPECIFIED));
        media.mirror_mid(self);
        media.attributes.push(Attribute::Direction(offered.answer(ours)));
        let asks = |attribute| self.attributes.has(&attribute);
        if asks(Attribute::RtcpMux) || asks(Attribute::RtcpMuxOnly) {
            media.attributes.push(Attribute::RtcpMux);
        }
        if asks(Attribute::RtcpRsize) {
            media.attributes.push(Attribute::RtcpRsize);
        }
        for format in selected {
            media.push_format(&format.answer);
            if let Some(rtx) = format.rtx {
                media.push_format(&Format::rtx(rtx, &format.answer.rtpmap));
            }
            if let Some(red) = format.red {
                media.push_format(&Format::red(red, &format.answer.rtpmap));
            }
        }
        media
    }

    /// Returns the answer to this offered section of data channels (RFC 8841 §10.3), with its formats and mid,
    /// and with our SCTP parameters.
    #[must_use]
    pub fn accept_data(&self, sctp_port: u16, message_bytes_max: u64) -> Self {
        let mut media = Self::new(self.kind.clone(), PORT_DISCARD, &self.protocol, self.formats.clone());
        media.connection = Some(Connection::new(Host::UNSPECIFIED));
        media.mirror_mid(self);
        media.attributes.push(Attribute::SctpPort(sctp_port));
        media.attributes.push(Attribute::MaxMessageSize(message_bytes_max));
        media
    }

    /// Returns an answer that rejects this offered section: port 0, and the attributes that must be mirrored.
    #[must_use]
    pub fn reject(&self) -> Self {
        let mut media = Self::new(self.kind.clone(), 0, &self.protocol, self.formats.clone());
        media.mirror_mid(self);
        media.attributes.push(Attribute::Direction(Direction::Inactive));
        media
    }

    /// Returns the answer to the header extensions of this offered section: those with a known URI, each once,
    /// with their offered ids.
    #[must_use]
    pub fn answer_extmaps(&self, known: &[&str]) -> Vec<Attribute> {
        let mut answered: Vec<&Extmap> = Vec::new();
        for map in self.attributes.extmaps() {
            let is_new = answered.iter().all(|other| other.uri != map.uri && other.id != map.id);
            if is_new && EXTENSION_IDS.contains(&map.id) && known.contains(&map.uri.as_str()) {
                answered.push(map);
            }
        }
        let answer = |map: &Extmap| {
            let direction = map.direction.map(Direction::reverse);
            Attribute::Extmap(Extmap { direction, attributes: None, ..map.clone() })
        };
        answered.into_iter().map(answer).collect()
    }

    /// Returns the answer to the simulcast layers of this offered section; all of them are accepted (RFC 8853
    /// §5.3). Empty without simulcast.
    #[must_use]
    pub fn answer_simulcast(&self) -> Vec<Attribute> {
        let Some(simulcast) = self.attributes.simulcast() else { return Vec::new() };
        let mut answer: Vec<Attribute> = Vec::new();
        for rid in self.attributes.rids() {
            // The answer may have fewer payload types than the layer, so layers list none and those of the
            // section apply.
            let (direction, payload_types) = (rid.direction.reverse(), Vec::new());
            answer.push(Attribute::Rid(crate::group::Rid { direction, payload_types, ..rid.clone() }));
        }
        answer.push(Attribute::Simulcast(simulcast.clone().reverse()));
        answer
    }

    fn mirror_mid(&mut self, offered: &Self) {
        self.attributes.extend(offered.attributes.mid().map(|mid| Attribute::Mid(mid.to_owned())));
    }
}

/// Returns the answer to an offered format, from our format that matches it.
fn answer(offered: &Format, ours: &Format) -> Format {
    let mut parameters = ours.parameters.clone();
    if ours.rtpmap.is("H264") {
        let free = |format: &Format| format.parameters.get("level-asymmetry-allowed") == Some("1");
        let asymmetric = free(offered) && free(ours);
        let levels = offered.profile_level_id().zip(ours.profile_level_id());
        if let Some(id) = levels.and_then(|(offered, ours)| offered.answer(ours, asymmetric)) {
            parameters.set("profile-level-id", id);
        }
    }
    let feedback =
        ours.feedback.iter().filter(|feedback| offered.feedback.contains(feedback)).cloned().collect();
    Format { rtpmap: offered.rtpmap.clone(), parameters, feedback }
}

impl Format {
    /// Selects those of a section's formats that match one of ours. See [`Media::select`].
    #[must_use]
    pub fn select(offered: &[Self], ours: &[Self]) -> Vec<Selected> {
        let mut is_taken = vec![false; offered.len()];
        let mut selected: Vec<Selected> = Vec::new();
        for (index, own) in ours.iter().enumerate() {
            let mut free = offered.iter().zip(&mut is_taken).filter(|(_, is_taken)| !**is_taken);
            let Some((found, taken)) = free.find(|(format, _)| format.matches(own)) else { continue };
            *taken = true;
            selected.push(Selected {
                answer: answer(found, own),
                offered: found.clone(),
                ours: index,
                rtx: found.rtx_in(offered),
                red: found.red_in(offered),
            });
        }
        selected
    }

    /// Creates the retransmission format for another format (RFC 4588 §8).
    #[must_use]
    pub fn rtx(payload_type: PayloadType, of: &Rtpmap) -> Self {
        let clock_rate = of.clock_rate;
        let rtpmap = Rtpmap { payload_type, encoding: "rtx".to_owned(), clock_rate, channels: None };
        let parameters = Parameters::new().with("apt", of.payload_type);
        Self { rtpmap, parameters, feedback: Vec::new() }
    }

    /// Creates the redundant form for another format (RFC 2198 §5).
    #[must_use]
    pub fn red(payload_type: PayloadType, of: &Rtpmap) -> Self {
        let rtpmap = Rtpmap { payload_type, encoding: "red".to_owned(), ..of.clone() };
        let number = of.payload_type.number();
        let parameters = Parameters::read(&format!("{number}/{number}")).unwrap_or_default();
        Self { rtpmap, parameters, feedback: Vec::new() }
    }
}

/// Reason why an answer does not match its offer. Sections are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The number of sections differs (RFC 3264 §6).
    #[error("the answer has {answered} sections, the offer {offered}")]
    Sections {
        /// Number of sections in the offer.
        offered: usize,
        /// Number of sections in the answer.
        answered: usize,
    },
    /// The section has a different kind or mid than offered.
    #[error("section {0} does not match the offer")]
    OtherSection(usize),
    /// The section contains none of the offered formats.
    #[error("section {0} has no offered format")]
    NoFormat(usize),
    /// In this section, the peer sends although we do not receive, or vice versa.
    #[error("section {0} has a direction that was not offered")]
    Direction(usize),
    /// The bundle contains a section that was not bundled in the offer, or that is rejected.
    #[error("the bundle is not part of the offered one")]
    Bundle,
}

impl Description {
    /// Starts an answer to this offer: without sections, and with the session's flags mirrored.
    #[must_use]
    pub fn start_answer(&self) -> Self {
        let mixed = self.attributes.has(&Attribute::ExtmapAllowMixed);
        let attributes = mixed.then_some(Attribute::ExtmapAllowMixed).into_iter().collect();
        Self { attributes, ..Self::default() }
    }

    /// Adds the bundle to this answer, whose sections must be complete: the offered bundle without rejected
    /// sections. Its first section carries the transport.
    pub fn mirror_bundle(&mut self, offer: &Self) {
        let Some(offered) = offer.bundle() else { return };
        let taken = |mid: &&String| self.section(mid).is_some_and(|media| !media.is_rejected());
        let mids: Vec<String> = offered.mids.iter().filter(taken).cloned().collect();
        if !mids.is_empty() {
            self.attributes.push(Attribute::Group(Group { semantics: Semantics::Bundle, mids }));
        }
    }

    /// Checks that `answer` is a valid answer to this offer of ours.
    pub fn check_answer(&self, answer: &Self) -> Result<(), AnswerError> {
        let (offered, answered) = (self.media.len(), answer.media.len());
        if offered != answered {
            return Err(AnswerError::Sections { offered, answered });
        }
        for (index, (ours, theirs)) in self.media.iter().zip(&answer.media).enumerate() {
            if ours.kind != theirs.kind || differ(ours.attributes.mid(), theirs.attributes.mid()) {
                return Err(AnswerError::OtherSection(index));
            }
            if theirs.is_rejected() {
                continue;
            }
            if !common_format(&ours.formats, &theirs.formats) {
                return Err(AnswerError::NoFormat(index));
            }
            let (way, offered) = (answer.direction(theirs), self.direction(ours));
            // Data channels are bidirectional, whatever direction the session specifies for media.
            if matches!(ours.formats, Formats::Rtp(_)) && offered.answer(way) != way {
                return Err(AnswerError::Direction(index));
            }
        }
        self.check_bundle(answer)
    }

    fn check_bundle(&self, answer: &Self) -> Result<(), AnswerError> {
        let Some(theirs) = answer.bundle() else { return Ok(()) };
        let ours = self.bundle().map(|group| group.mids.as_slice()).unwrap_or_default();
        let live = |mid: &String| answer.section(mid).is_some_and(|media| !media.is_rejected());
        let part = theirs.mids.iter().all(|mid| ours.contains(mid) && live(mid));
        if part { Ok(()) } else { Err(AnswerError::Bundle) }
    }
}

/// True if two mids differ. A peer that does not support `mid` omits it in its answer.
fn differ(ours: Option<&str>, theirs: Option<&str>) -> bool {
    theirs.is_some() && ours != theirs
}

fn common_format(ours: &Formats, theirs: &Formats) -> bool {
    match (ours, theirs) {
        (Formats::Rtp(ours), Formats::Rtp(theirs)) => theirs.iter().any(|format| ours.contains(format)),
        (Formats::Other(ours), Formats::Other(theirs)) => theirs.iter().any(|format| ours.contains(format)),
        (Formats::Rtp(_), Formats::Other(_)) | (Formats::Other(_), Formats::Rtp(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers;
    use crate::rtp::Feedback;

    fn ours() -> Vec<Format> {
        let format = |rtpmap, parameters, feedback| Format {
            rtpmap: Rtpmap::read(rtpmap).unwrap(),
            parameters: Parameters::read(parameters).unwrap(),
            feedback,
        };
        let h264 = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e034";
        let feedback = vec![Feedback::Nack, Feedback::Pli, Feedback::TransportCc];
        vec![
            format("96 H264/90000", h264, feedback.clone()),
            format("97 VP8/90000", "", feedback),
            format("98 opus/48000/2", "minptime=10;useinbandfec=1", vec![Feedback::TransportCc]),
        ]
    }

    fn answer_to(offer: &Description) -> Description {
        let mut answer = offer.start_answer();
        for media in &offer.media {
            let selected = media.select(&ours());
            answer.media.push(match selected.first() {
                Some(_) if !media.is_rejected() => {
                    media.accept(&selected[..1], offer.direction(media), Direction::RecvOnly)
                }
                _ => media.reject(),
            });
        }
        answer.mirror_bundle(offer);
        answer
    }

    #[test]
    fn every_publisher_is_answered() {
        for (name, text) in peers::WEBRTC {
            let offer = Description::read(text.as_bytes()).unwrap();
            let answer = answer_to(&offer);
            assert_eq!(offer.check_answer(&answer), Ok(()), "{name}");
            assert_eq!(Description::read(answer.write().as_bytes()).as_ref(), Ok(&answer), "{name}");
            let taken = answer.media.iter().filter(|media| !media.is_rejected());
            assert!(taken.clone().count() >= 2, "{name}");
            for media in taken {
                assert_eq!(answer.direction(media), Direction::RecvOnly, "{name}");
                assert!(media.attributes.has(&Attribute::RtcpMux), "{name}");
            }
        }
    }

    #[test]
    fn numbers_are_the_offered_ones_and_parameters_ours() {
        let offer = Description::read(peers::CHROMIUM.as_bytes()).unwrap();
        let video = offer.section("1").unwrap();
        let selected = video.select(&ours());
        let h264 = &selected[0];
        assert_eq!(h264.answer.payload_type(), PayloadType::new(109).unwrap());
        assert_eq!(h264.answer.parameters.get("profile-level-id"), Some("42e034"));
        assert_eq!(h264.answer.feedback, [Feedback::Nack, Feedback::Pli, Feedback::TransportCc]);
        assert_eq!((h264.ours, h264.rtx), (0, PayloadType::new(114)));
        assert_eq!(selected[1].offered.rtpmap.encoding, "VP8");
        let answer = video.accept(&selected, Direction::SendOnly, Direction::RecvOnly);
        let answered: Vec<Format> = answer.rtp_formats().collect();
        assert_eq!(answered[0].rtx_in(&answered), h264.rtx);
        let uris = ["urn:ietf:params:rtp-hdrext:sdes:mid"];
        assert_eq!(video.answer_extmaps(&uris).len(), 1);
    }

    #[test]
    fn extensions_are_answered_once_and_under_numbers_that_packets_can_carry() {
        let maps = |ids: &[(u16, &str)]| {
            let mut media =
                Media::new(crate::MediaKind::Video, 9, "UDP/TLS/RTP/SAVPF", Formats::Rtp(Vec::new()));
            for &(id, uri) in ids {
                let map = Extmap { id, direction: None, uri: uri.to_owned(), attributes: None };
                media.attributes.push(Attribute::Extmap(map));
            }
            let mut answered = Vec::new();
            for attribute in media.answer_extmaps(&["a", "b"]) {
                if let Attribute::Extmap(map) = attribute {
                    answered.push((map.id, map.uri));
                }
            }
            answered
        };
        let own = |ids: &[(u16, &str)]| ids.iter().map(|&(id, uri)| (id, uri.to_owned())).collect::<Vec<_>>();
        for (offered, answered) in [
            (&[(1, "a"), (255, "b"), (3, "c")][..], &[(1, "a"), (255, "b")][..]),
            (&[(0, "a"), (256, "b"), (4096, "a")], &[]),
            (&[(1, "a"), (2, "a"), (3, "b")], &[(1, "a"), (3, "b")]),
            (&[(1, "a"), (1, "b")], &[(1, "a")]),
        ] {
            assert_eq!(maps(offered), own(answered));
        }
    }

    #[test]
    fn the_redundant_form_of_audio_is_found_and_answered() {
        let offer = Description::read(peers::CHROMIUM.as_bytes()).unwrap();
        let audio = offer.section("0").unwrap();
        let selected = audio.select(&ours());
        assert_eq!(selected[0].red, PayloadType::new(63));
        let mut description = Description::default();
        description.media.push(audio.accept(&selected, Direction::RecvOnly, Direction::SendOnly));
        let answer = description.write();
        assert!(answer.contains("a=rtpmap:63 red/48000/2\r\n"), "{answer}");
        assert!(answer.contains("a=fmtp:63 111/111\r\n"), "{answer}");
        // RED of a format other than the selected one is not selected.
        let text = "v=0\nm=audio 9 UDP/TLS/RTP/SAVPF 98 99\na=rtpmap:98 opus/48000/2\na=rtpmap:99 red/48000/2\na=fmtp:99 98/97\n";
        let offer = Description::read(text.as_bytes()).unwrap();
        assert_eq!(offer.media[0].select(&ours())[0].red, None);
    }

    #[test]
    fn a_level_is_the_lower_one_where_it_is_common() {
        let offer = Description::read(peers::GSTREAMER.as_bytes()).unwrap();
        let video = offer.section("video0").unwrap();
        let selected = video.select(&ours());
        // webrtcbin does not allow asymmetric levels, so the answer has the lower level of both sides.
        assert_eq!(selected[0].answer.parameters.get("profile-level-id"), Some("42c01f"));
    }

    #[test]
    fn data_channels_are_answered() {
        let offer = Description::read(peers::CHROMIUM.as_bytes()).unwrap();
        let mut answer = answer_to(&offer);
        assert!(answer.media[2].is_rejected());
        answer.media[2] = offer.media[2].accept_data(5000, 65_536);
        assert_eq!((offer.check_answer(&answer), answer.media[2].is_rejected()), (Ok(()), false));
        assert_eq!(answer.media[2].attributes.sctp_port(), Some(&5000));
        let one_way = peers::CHROMIUM.replacen("m=audio", "a=sendonly\r\nm=audio", 1);
        let offer = Description::read(one_way.as_bytes()).unwrap();
        assert_eq!(offer.direction(&offer.media[2]), Direction::SendOnly, "as its session has it");
        assert_eq!(offer.check_answer(&answer), Ok(()));
    }

    #[test]
    fn no_format_is_selected_twice() {
        let offer = Description::read(peers::OBS.as_bytes()).unwrap();
        let twice = [ours(), ours()].concat();
        let video = offer.section("1").unwrap().select(&twice);
        assert_eq!((video.len(), video[0].ours), (1, 0));
    }

    #[test]
    fn layers_are_taken() {
        let text =
            "v=0\nm=video 9 UDP/TLS/RTP/SAVPF 96\na=rid:h send pt=96\na=rid:l send\na=simulcast:send h;~l\n";
        let offer = Description::read(text.as_bytes()).unwrap();
        let answer = offer.media[0].answer_simulcast();
        let lines: Vec<String> = answer.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["rid:h recv", "rid:l recv", "simulcast:recv h;~l"]);
    }

    #[test]
    fn answers_that_are_none_are_told_apart() {
        let offer = Description::read(peers::CHROMIUM.as_bytes()).unwrap();
        let check = |change: fn(&mut Description)| {
            let mut answer = answer_to(&offer);
            change(&mut answer);
            offer.check_answer(&answer)
        };
        let few = AnswerError::Sections { offered: offer.media.len(), answered: offer.media.len() - 1 };
        assert_eq!(check(|answer| drop(answer.media.pop())), Err(few));
        assert_eq!(check(|answer| answer.media.swap(0, 1)), Err(AnswerError::OtherSection(0)));
        let other = |answer: &mut Description| answer.media[0].formats = Formats::Rtp(Vec::new());
        assert_eq!(check(other), Err(AnswerError::NoFormat(0)));
        let sends = |answer: &mut Description| {
            answer.media[1].attributes.retain(|a| !matches!(a, Attribute::Direction(_)));
        };
        assert_eq!(check(sends), Err(AnswerError::Direction(1)));
        assert_eq!(check(|answer| answer.media[0].port = 0), Err(AnswerError::Bundle));
    }
}
