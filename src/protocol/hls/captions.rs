//! Closed captions within the video (CEA-608, CEA-708). Playlists and manifests declare them; the captions
//! themselves stay in the video.

use std::sync::Arc;

use hls::playlist::{ClosedCaptions, MultivariantPlaylist, Rendition, RenditionKind};
use hls::segmenter::Accessibility;
use media::captions::{Channel, Channels, Known, read_list};
use media::{TrackKind, language};

use crate::config::{Error, Values};
use crate::hub::Entry;

/// Key of the setting that says which captions to declare.
pub(super) const KEY: &str = "hls.captions";
/// `GROUP-ID` of the captions in multivariant playlists.
const GROUP: &str = "captions";
/// Scheme URIs of CEA-608 and CEA-708 captions in DASH (ANSI/SCTE 214-1 §7.2).
const SCHEMES: [&str; 2] = ["urn:scte:dash:cc:cea-608:2015", "urn:scte:dash:cc:cea-708:2015"];

/// The captions that lists and manifests declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Captions {
    /// The channels found in the video, and those that its publisher announces.
    Auto,
    /// The stream is known to have no captions.
    None,
    /// The channels that the setting lists, each with its language, if the setting states one.
    Given(Arc<[(Channel, Option<String>)]>),
}

/// The captions of one video.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) setting: Captions,
    /// Channels found in the video so far, and those that its publisher announces.
    pub(super) known: Known,
}

impl Captions {
    pub(super) fn read(values: &Values) -> Result<Self, Error> {
        match values.text(KEY).trim() {
            "auto" | "" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            list => read_list(list).map(|list| Self::Given(list.into())).ok_or_else(|| {
                values.bad(
                    KEY,
                    "must be auto, none, or channels with languages such as CC1=en,CC3=es,SERVICE1=en",
                )
            }),
        }
    }

    /// Adds the caption channels of a video unit to `known`, if the setting is `auto`. Announced channels are taken
    /// from the first video only, because other videos may announce other channels, and playlists would then change
    /// with each picture.
    pub(super) fn note(&self, known: &mut Known, entry: &Entry, is_lead: bool) {
        if *self != Self::Auto || entry.kind != Some(TrackKind::Video) {
            return;
        }
        let Some(track) = entry.tracks.get(entry.unit.track) else { return };
        known.seen = known.seen.or(Channels::of_unit(&entry.unit, track.config.codec()));
        if is_lead && known.services != track.captions {
            known.services = track.captions.clone();
        }
    }

    /// Returns the channels to declare.
    fn declared<'k>(&'k self, known: &'k Known) -> Vec<(Channel, Option<&'k str>)> {
        match self {
            Self::Auto => known.all(),
            Self::None => Vec::new(),
            Self::Given(list) => list.iter().map(|(channel, one)| (*channel, one.as_deref())).collect(),
        }
    }

    /// Declares the captions in a multivariant playlist of videos. `NONE` must be on all variants (RFC 8216 §4.3.4.2)
    /// and is written only if the stream is known to have no captions; without the attribute, players inspect the
    /// video.
    pub(super) fn declare(&self, known: &Known, list: &mut MultivariantPlaylist) {
        let declared = self.declared(known);
        let told = match self {
            Self::None => ClosedCaptions::None,
            Self::Auto | Self::Given(_) if declared.is_empty() => return,
            Self::Auto | Self::Given(_) => ClosedCaptions::Group(GROUP.to_owned()),
        };
        list.variants.iter_mut().for_each(|variant| variant.closed_captions = Some(told.clone()));
        let mut languages = Vec::new();
        for (at, (channel, told)) in declared.into_iter().enumerate() {
            let is_new = told.is_some_and(|told| !languages.contains(&told));
            languages.extend(told);
            list.renditions.push(Rendition {
                kind: RenditionKind::ClosedCaptions,
                group_id: GROUP.to_owned(),
                name: told.map_or_else(|| channel.to_string(), |told| format!("{told} ({channel})")),
                language: told.map(|told| language::tag(told).to_owned()),
                uri: None,
                default: false,
                autoselect: at == 0 || is_new,
                channels: None,
                instream_id: Some(channel.to_string()),
            });
        }
    }

    /// Returns the accessibility descriptors that declare the captions in a DASH manifest.
    pub(super) fn accessibility(&self, known: &Known) -> Vec<Accessibility> {
        let declared = self.declared(known);
        let code = |told: Option<&str>| {
            let code = told.and_then(language::three_letters).map(|code| code.map(char::from));
            code.map_or_else(|| "und".to_owned(), |code| code.iter().collect())
        };
        let [line_21, services] = SCHEMES.map(|scheme| {
            let value = declared.iter().filter_map(|(channel, told)| match channel {
                Channel::Line21(_) => (scheme == SCHEMES[0]).then(|| format!("{channel}={}", code(*told))),
                Channel::Service(number) => {
                    (scheme == SCHEMES[1]).then(|| format!("{number}=lang:{}", code(*told)))
                }
            });
            let value = value.collect::<Vec<_>>().join(";");
            (!value.is_empty()).then_some(Accessibility { scheme, value })
        });
        line_21.into_iter().chain(services).collect()
    }
}

#[cfg(test)]
mod tests {
    use hls::playlist::Variant;

    use super::*;
    use crate::config::AppSettings;
    use crate::protocol::hls::settings::HlsSettings;
    use crate::protocol::schema;

    fn setting(text: &str) -> Captions {
        let app = AppSettings::of(schema(), "a", &[(KEY, text)]).unwrap();
        HlsSettings::of(&app).told.captions.clone()
    }

    fn list(captions: &Captions, known: &Known) -> String {
        let variants = vec![Variant::default(), Variant::default()];
        let mut list = MultivariantPlaylist { variants, ..MultivariantPlaylist::default() };
        captions.declare(known, &mut list);
        list.to_string()
    }

    fn seen() -> Known {
        let mut seen = Channels::NONE;
        [Channel::Line21(1), Channel::Service(2)].into_iter().for_each(|channel| seen.add(channel));
        Known { seen, ..Known::default() }
    }

    #[test]
    fn announced_captions_are_declared_with_their_languages_before_they_are_seen() {
        let services = media::captions::Services::read(b"\xe2eng\x81\x3f\xffspa\x7e\x3f\xff");
        let known = Known { services, ..Known::default() };
        let text = list(&setting("auto"), &known);
        for told in [
            "NAME=\"spa (CC1)\",LANGUAGE=\"es\",AUTOSELECT=YES,INSTREAM-ID=\"CC1\"",
            "NAME=\"eng (SERVICE1)\",LANGUAGE=\"en\",AUTOSELECT=YES,INSTREAM-ID=\"SERVICE1\"",
        ] {
            assert!(text.contains(told), "{text}");
        }
        let values: Vec<_> = setting("auto").accessibility(&known).into_iter().map(|one| one.value).collect();
        assert_eq!(values, ["CC1=spa", "1=lang:eng"]);
        let given = list(&setting("CC1=de"), &known);
        assert!(
            given.contains("de (CC1)") && !given.contains("SERVICE1"),
            "the setting has precedence: {given}"
        );
    }

    #[test]
    fn captions_are_declared_as_they_are_seen_or_as_the_setting_says() {
        let text = list(&setting("auto"), &seen());
        for (name, auto) in [("CC1", ",AUTOSELECT=YES"), ("SERVICE2", "")] {
            let line = format!(
                "#EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS,GROUP-ID=\"captions\",NAME=\"{name}\"{auto},INSTREAM-ID=\"{name}\"\n"
            );
            assert!(text.contains(&line), "{text}");
        }
        assert_eq!(text.matches(",CLOSED-CAPTIONS=\"captions\"").count(), 2, "{text}");
        assert!(!list(&setting("auto"), &Known::default()).contains("CAPTIONS"), "nothing is known");
        let text = list(&setting("none"), &Known::default());
        assert_eq!(text.matches("CLOSED-CAPTIONS=NONE").count(), 2, "all or none: {text}");
        let text = list(&setting("CC1=en, CC3=spa,CC2=en"), &Known::default());
        let told = |line: &&str| line.starts_with("#EXT-X-MEDIA");
        let lines: Vec<&str> = text.lines().filter(told).collect();
        let common = "#EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS,GROUP-ID=\"captions\"";
        let own = [
            "NAME=\"en (CC1)\",LANGUAGE=\"en\",AUTOSELECT=YES,INSTREAM-ID=\"CC1\"",
            "NAME=\"spa (CC3)\",LANGUAGE=\"es\",AUTOSELECT=YES,INSTREAM-ID=\"CC3\"",
            "NAME=\"en (CC2)\",LANGUAGE=\"en\",INSTREAM-ID=\"CC2\"",
        ];
        assert_eq!(lines, own.map(|one| format!("{common},{one}")));
        for bad in ["CC9", "CC1=en;CC2", "off"] {
            let error = AppSettings::of(schema(), "a", &[(KEY, bad)]).unwrap_err().to_string();
            assert!(error.starts_with("hls.captions"), "{error}");
        }
    }

    #[test]
    fn manifests_have_a_descriptor_for_each_kind() {
        let told = |captions: &Captions, known: &Known| {
            let all = captions.accessibility(known);
            all.into_iter().map(|one| (one.scheme, one.value)).collect::<Vec<_>>()
        };
        let [line_21, services] = SCHEMES;
        let wanted = [(line_21, "CC1=und".to_owned()), (services, "2=lang:und".to_owned())];
        assert_eq!(told(&setting("auto"), &seen()), wanted);
        let given = setting("CC1=en,CC3=de,SERVICE1=en");
        let wanted = [(line_21, "CC1=eng;CC3=deu".to_owned()), (services, "1=lang:eng".to_owned())];
        assert_eq!(told(&given, &Known::default()), wanted);
        assert!(told(&setting("none"), &seen()).is_empty());
    }
}
