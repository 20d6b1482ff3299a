//! The audio tracks of a stream from which viewers choose: languages, commentaries, descriptions.
//!
//! Audio tracks of one codec are a group of renditions (RFC 8216 §4.3.4.1.1). If there are several codecs, each video
//! is a variant with each group, so that a player without a decoder for one codec can choose another.

use hls::playlist::{Rendition, RenditionKind};
use media::{Track, TrackKind, language};

use crate::hub::Fit;
use crate::mail::Sound;

/// Maximum number of audio tracks that viewers choose from; further ones are left out.
pub(super) const SOUNDS_MAX: usize = 8;
/// The group of the first audio track, and that track's name if it has no other.
pub(super) const AUDIO: &str = "audio";

/// Returns the display name of a track: its label, else its language.
pub(super) fn name_of(track: &Track) -> Option<String> {
    track.label.as_deref().or(track.language.as_deref()).map(str::to_owned)
}

/// Returns the description of an audio track.
pub(super) fn of(track: &Track) -> Sound {
    Sound {
        index: track.number(),
        codec: track.config.rfc6381(),
        channels: track.config.sound().map(|(_, channels)| channels),
        language: track.language.clone(),
        name: name_of(track),
    }
}

/// Returns the audio tracks that viewers can choose from: the ones that players support best, lowest id first.
pub(super) fn to_choose<'t>(
    tracks: impl IntoIterator<Item = &'t Track>,
    fit: impl Fn(&Track) -> Fit,
) -> Vec<&'t Track> {
    let mut sounds: Vec<&Track> =
        tracks.into_iter().filter(|track| track.kind() == TrackKind::Audio).collect();
    let best = sounds.iter().map(|track| fit(track)).max();
    sounds.retain(|track| Some(fit(track)) == best);
    sounds.truncate(SOUNDS_MAX);
    sounds
}

/// Returns the suffix of an audio track's names: empty for the first track, otherwise its number.
pub(super) fn suffix(index: u8) -> String {
    match index {
        0 => String::new(),
        index => index.to_string(),
    }
}

/// An audio track to choose.
#[derive(Debug, Clone)]
pub(super) struct Choice<'a> {
    /// URI of its playlist; `None` if it is in the segments of the videos.
    pub(super) uri: Option<String>,
    pub(super) sound: &'a Sound,
    /// Peak and average bit rate, in bits per second.
    pub(super) bits: (u64, u64),
}

impl Choice<'_> {
    /// The codec, regardless of its profile: `mp4a.40` is AAC, except for object type 34, which is MP3.
    fn codec(&self) -> &str {
        let codec = self.sound.codec.as_deref().unwrap_or_default();
        let is_aac = codec.strip_prefix("mp4a.40.").is_some_and(|kind| kind != "34");
        if is_aac { "aac" } else { codec }
    }
}

/// A group of audio tracks, one of which a variant plays.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// `GROUP-ID`.
    pub(super) id: String,
    /// The codecs of all tracks, each once.
    pub(super) codecs: Vec<String>,
    /// The highest peak and average bit rate, in bits per second.
    pub(super) bits: (u64, u64),
}

/// Returns the groups of these audio tracks, beginning with the group of the first track, and their renditions.
pub(super) fn grouped(choices: &[Choice<'_>]) -> (Vec<Group>, Vec<Rendition>) {
    let mut codecs: Vec<&str> = Vec::new();
    choices.iter().map(Choice::codec).for_each(|codec| {
        if !codecs.contains(&codec) {
            codecs.push(codec);
        }
    });
    let mut renditions: Vec<Rendition> = Vec::new();
    let mut groups = Vec::new();
    for (at, codec) in codecs.into_iter().enumerate() {
        let id = if at == 0 { AUDIO.to_owned() } else { format!("{AUDIO}-{codec}") };
        let mut group = Group { id, codecs: Vec::new(), bits: (0, 0) };
        let mut own: Vec<Rendition> = Vec::new();
        for choice in choices.iter().filter(|choice| choice.codec() == codec) {
            own.push(rendition(choice, &group.id, &own));
            let codec = choice.sound.codec.as_ref().filter(|codec| !group.codecs.contains(codec));
            group.codecs.extend(codec.cloned());
            group.bits = (group.bits.0.max(choice.bits.0), group.bits.1.max(choice.bits.1));
        }
        renditions.append(&mut own);
        groups.push(group);
    }
    (groups, renditions)
}

/// Returns the rendition of an audio track. Its name differs from those of the `former` renditions of its group
/// (§4.3.4.1.1). Players may choose it automatically if it is the first one, or the first one in its language.
fn rendition(choice: &Choice<'_>, group: &str, former: &[Rendition]) -> Rendition {
    let sound = choice.sound;
    let name = sound.name.clone().unwrap_or_else(|| AUDIO.to_owned());
    let is_free = |name: &String| former.iter().all(|other| other.name != *name);
    let numbered = (2_usize..).map(|number| format!("{name} {number}"));
    let name = std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name);
    let language = sound.language.as_deref().map(|one| language::tag(one).to_owned());
    let default = former.is_empty();
    let is_new = language.is_some() && former.iter().all(|other| other.language != language);
    Rendition {
        kind: RenditionKind::Audio,
        group_id: group.to_owned(),
        name,
        language,
        uri: choice.uri.clone(),
        default,
        autoselect: default || is_new,
        channels: sound.channels.map(|channels| channels.to_string()),
        instream_id: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound(language: Option<&str>, name: Option<&str>) -> Sound {
        let (language, name) = (language.map(Into::into), name.map(Into::into));
        Sound { index: 0, codec: Some("mp4a.40.2".to_owned()), channels: Some(2), language, name }
    }

    #[test]
    fn names_differ_and_players_choose_by_language() {
        let sounds = [
            sound(Some("deu"), Some("deu")),
            sound(Some("eng"), Some("eng")),
            sound(Some("deu"), Some("deu")),
            sound(None, None),
            sound(None, None),
        ];
        let choices: Vec<Choice<'_>> =
            sounds.iter().map(|sound| Choice { uri: None, sound, bits: (1, 1) }).collect();
        let (groups, renditions) = grouped(&choices);
        assert_eq!(groups.len(), 1);
        let told: Vec<_> = renditions
            .iter()
            .map(|one| (one.name.as_str(), one.language.as_deref(), one.default, one.autoselect))
            .collect();
        assert_eq!(
            told,
            [
                ("deu", Some("de"), true, true),
                ("eng", Some("en"), false, true),
                ("deu 2", Some("de"), false, false),
                ("audio", None, false, false),
                ("audio 2", None, false, false),
            ]
        );
    }

    #[test]
    fn each_codec_has_a_group_of_its_own() {
        let all = [("mp4a.40.2", 100), ("ac-3", 400), ("mp4a.40.5", 60), ("mp4a.40.34", 90)];
        let sounds = all.map(|(codec, peak)| {
            (Sound { codec: Some(codec.to_owned()), ..sound(Some("deu"), None) }, (peak, peak / 2))
        });
        let choices: Vec<Choice<'_>> =
            sounds.iter().map(|(sound, bits)| Choice { uri: None, sound, bits: *bits }).collect();
        let (groups, renditions) = grouped(&choices);
        let told: Vec<_> =
            groups.iter().map(|one| (one.id.as_str(), one.codecs.join(","), one.bits)).collect();
        assert_eq!(
            told,
            [
                ("audio", "mp4a.40.2,mp4a.40.5".to_owned(), (100, 50)),
                ("audio-ac-3", "ac-3".to_owned(), (400, 200)),
                ("audio-mp4a.40.34", "mp4a.40.34".to_owned(), (90, 45)),
            ]
        );
        let defaults: Vec<_> = renditions.iter().map(|one| (one.group_id.as_str(), one.default)).collect();
        assert_eq!(
            defaults,
            [("audio", true), ("audio", false), ("audio-ac-3", true), ("audio-mp4a.40.34", true)]
        );
    }
}
