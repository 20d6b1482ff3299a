//! Subtitles of live streams, in the languages of a setting. Cues are put into segments with the numbers and
//! boundaries of the leading rendition's segments, and multivariant playlists and manifests declare the subtitles.
//!
//! The languages come from the setting, not from the cues, so that a multivariant playlist is complete from the first
//! request on: players read it only once.

use std::sync::Arc;

use hls::playlist::{MultivariantPlaylist, Rendition, RenditionKind};
use hls::segmenter::{Line, Outline, Subtitles, SubtitlesOf, Window, Zero};
use media::subtitles::{Cue, cue_text, escaped, find_language, read_languages};
use media::{TrackId, language};

use super::ENDING;
use super::publishing::Publishing;
use super::settings::HlsSettings;
use crate::config::{Error, Values};
use crate::hub::Entry;
use crate::mail::Progress;
use crate::protocol::cue_rate::CueRate;
use crate::protocol::flv_mapping;

/// Key of the setting that lists the languages.
pub(super) const KEY: &str = "hls.subtitles";
/// `GROUP-ID` of the subtitles in multivariant playlists.
const GROUP: &str = "subtitles";
/// Script data with a line of text, as encoders and ffmpeg send it.
const SCRIPT_NAME: &str = "onTextData";
/// Time for which a line of script data is shown, in milliseconds, unless another one follows.
const SCRIPT_MS: i64 = 5000;

/// The languages of subtitles, each with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Languages(Option<Arc<[(String, String)]>>);

impl Languages {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn read(values: &Values) -> Result<Self, Error> {
        let list = read_languages(values.text(KEY)).ok_or_else(|| {
            values.bad(KEY, "must be up to eight languages with their names, such as en:English,de:Deutsch")
        })?;
        Ok(Self(Some(list.into()).filter(|list: &Arc<[_]>| !list.is_empty())))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// True if the setting has this language tag.
    pub(super) fn has(&self, tag: &str) -> bool {
        self.iter().any(|(other, _)| other == tag)
    }

    fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().flat_map(|list| list.iter())
    }

    /// Returns the index of a language; an empty text means the first language.
    fn find(&self, told: &str) -> Option<usize> {
        find_language(self.0.as_deref()?, told)
    }

    /// Declares the subtitles in a multivariant playlist; `base` begins the names of their playlists.
    pub(super) fn declare(&self, list: &mut MultivariantPlaylist, base: &str) {
        if self.is_empty() {
            return;
        }
        list.variants.iter_mut().for_each(|variant| variant.subtitles = Some(GROUP.to_owned()));
        list.renditions.extend(self.iter().map(|(tag, name)| Rendition {
            kind: RenditionKind::Subtitles,
            group_id: GROUP.to_owned(),
            name: name.clone(),
            language: Some(language::tag(tag).to_owned()),
            uri: Some(format!("{base}{tag}{ENDING}")),
            default: false,
            autoselect: true,
            channels: None,
            instream_id: None,
        }));
    }
}

/// The subtitles of a stream in all languages.
#[derive(Debug)]
pub(super) struct Spoken {
    languages: Languages,
    all: Vec<Subtitles>,
    has_script_data: bool,
    rate: CueRate,
    /// Number of cues dropped since the last log line.
    dropped: usize,
    /// Beginning of the names of segments.
    base: String,
    /// Name of the rendition whose segment numbers and boundaries the subtitles use.
    lead: Option<String>,
}

/// The form of the subtitles of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form<'a> {
    /// Beginning of the names of segments; the language follows.
    pub(super) base: &'a str,
    /// Text between the language and the number in the names of segments.
    pub(super) suffix: &'a str,
    pub(super) zero: Zero,
    /// True if a manifest lists the subtitles.
    pub(super) has_track: bool,
}

impl Spoken {
    pub(super) fn new(settings: &HlsSettings, form: Form<'_>) -> Self {
        let languages = settings.told.languages.clone();
        let of = |(index, (tag, _)): (u8, &(String, String))| {
            Subtitles::new(SubtitlesOf {
                base: format!("{}{tag}{}", form.base, form.suffix),
                suffix: settings.rules.suffix.clone(),
                index,
                language: tag.as_str().into(),
                zero: form.zero,
                has_track: form.has_track,
            })
        };
        let all = (0_u8..).zip(languages.iter()).map(of).collect();
        Self {
            languages,
            all,
            has_script_data: settings.metadata.has_script_data(),
            rate: CueRate::new(),
            dropped: 0,
            base: form.base.to_owned(),
            lead: None,
        }
    }

    /// Sets time zero in the segments; called before the first segment is made.
    pub(super) fn set_zero(&mut self, zero: Zero) {
        self.all.iter_mut().for_each(|one| one.set_zero(zero));
    }

    /// Takes a unit of a data track, if it is a cue; `later_ms` is added to its times.
    pub(super) fn take(&mut self, entry: &Entry, later_ms: i64) {
        let at_ms = entry.unit.pts.saturating_add(later_ms);
        let Some((told, line)) = self.line(entry, at_ms) else { return };
        let at = self.languages.find(&told);
        let Some(one) = at.and_then(|at| self.all.get_mut(at)) else { return };
        let dropped = if self.rate.takes(entry.dts_ms) { one.line(line) } else { 1 };
        self.dropped = self.dropped.saturating_add(dropped);
    }

    /// Chooses the rendition to follow from all renditions, each with its name: the first that has a playlist, and from
    /// then on the same one while it is there. A rendition without media would never have segments to follow.
    pub(super) fn lead<'w>(
        &mut self,
        all: impl Iterator<Item = (&'w str, &'w Window)> + Clone,
    ) -> Option<&'w Window> {
        let mut ready = all.filter(|(_, window)| window.is_enough());
        let same = ready.clone().find(|(name, _)| self.lead.as_deref() == Some(*name));
        let (name, window) = same.or_else(|| ready.next())?;
        if self.lead.as_deref() != Some(name) {
            self.lead = Some(name.to_owned());
        }
        Some(window)
    }

    /// True if the subtitles have playlists, because there is a rendition to follow.
    pub(super) fn are_listed(&self) -> bool {
        self.lead.is_some()
    }

    /// Returns the cue of a unit, with its language.
    fn line(&self, entry: &Entry, begin_ms: i64) -> Option<(String, Line)> {
        if self.all.is_empty() {
            return None;
        }
        if entry.unit.track == TrackId::SUBTITLES {
            let Cue { duration_ms, language, text } = Cue::read(&entry.unit.payload)?;
            let end_ms = begin_ms.saturating_add(i64::from(duration_ms));
            return Some((language, Line { begin_ms, end_ms, text, is_open: false }));
        }
        if entry.unit.track != TrackId::DATA || !self.has_script_data {
            return None;
        }
        let (name, values) = flv_mapping::script_data(&entry.unit.payload)?;
        let (told, text) = script_line(&name, &values)?;
        let end_ms = begin_ms.saturating_add(SCRIPT_MS);
        Some((told, Line { begin_ms, end_ms, text, is_open: true }))
    }

    /// Makes the segments that the leading rendition has and the subtitles lack, and publishes them. Returns true if
    /// the playlists have changed. Dropped cues are logged at most once a segment.
    pub(super) fn follow(&mut self, lead: &Window, publishing: &mut Publishing, folder: &str) -> bool {
        let mut is_changed = false;
        for one in &mut self.all {
            is_changed |= one.follow(lead);
            let (left, gone) = one.take_left();
            publishing.leave(left.into_iter().map(|name| format!("{folder}{name}")));
            publishing.forget(gone.into_iter().map(|name| format!("{folder}{name}")));
            for made in one.take_made() {
                let name = format!("{folder}{}", made.name);
                if made.is_init {
                    publishing.init(&name, made.bytes);
                } else {
                    publishing.resource(&name, made.bytes);
                }
            }
        }
        if is_changed && self.dropped > 0 {
            let (subtitles, dropped) = (&self.base, std::mem::take(&mut self.dropped));
            tracing::warn!(%subtitles, dropped, "cues dropped; they came too late, or too many at once");
        }
        is_changed
    }

    /// Returns the languages with their subtitles.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Subtitles)> {
        self.all.iter().map(|one| (one.language(), one))
    }

    /// Returns the segments for a manifest.
    pub(super) fn outlines(&self) -> impl Iterator<Item = Outline> {
        self.all.iter().filter_map(Subtitles::outline)
    }
}

/// Returns the progress of a playlist of subtitles.
pub(super) fn progress(subtitles: &Subtitles) -> Progress {
    if subtitles.playlist().ended {
        Progress::ENDED
    } else {
        Progress { segment: subtitles.number(), part: 0 }
    }
}

/// Returns the language and the text of script data, whose values are JSON: an object with `text` and perhaps
/// `language`, or a text. An empty text ends the line before.
fn script_line(name: &str, values: &str) -> Option<(String, String)> {
    if !name.eq_ignore_ascii_case(SCRIPT_NAME) {
        return None;
    }
    let values: serde_json::Value = serde_json::from_str(values).ok()?;
    let (told, text) = match values.as_str() {
        Some(text) => ("", text),
        None => {
            let member = |name| values.get(name).and_then(serde_json::Value::as_str);
            (member("language").unwrap_or(""), member("text")?)
        }
    };
    let text = cue_text(&escaped(text)).unwrap_or_default();
    (text.len() <= media::subtitles::TEXT_BYTES_MAX).then(|| (told.to_owned(), text))
}
