//! Snapshots of segmenters, from which manifests are written. Renditions of one manifest may be made in
//! different places.

use std::time::Duration;

use super::manifest::Escaped;
use super::mp4::{Described, Mp4Segmenter, Span, Spanned};

/// A descriptor of accessibility, such as captions in a video (ISO/IEC 23009-1 §5.8.4.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accessibility {
    /// The scheme of the value.
    pub scheme: &'static str,
    /// The value; its format depends on the scheme.
    pub value: String,
}

/// The segments of a playlist, and their description, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Name of the rendition. A later rendition may have the same name.
    pub id: String,
    /// Descriptors of the rendition's adaptation set.
    pub(super) accessibility: Vec<Accessibility>,
    /// Index of the rendition's first track, if there is one.
    pub(super) track: Option<u8>,
    /// Template of the segments' names, as written in a manifest.
    pub(super) template: String,
    /// If set, the numbers in names start at 1 with this segment.
    pub(super) run: Option<u64>,
    pub(super) is_enough: bool,
    pub(super) is_independent: bool,
    /// True if the segments may have event messages.
    pub(super) has_metadata: bool,
    /// True if any segment so far had splice information.
    pub(super) has_cues: bool,
    pub(super) target: Duration,
    pub(super) bits: u64,
    /// Durations of the segments in the playlist.
    pub(super) lengths: Vec<Duration>,
    pub(super) inits: Vec<Described>,
    /// The segments, without gaps, each with the index of its init segment; the flag is true if a period begins with
    /// the segment.
    pub(super) spans: Vec<(Span, usize, bool)>,
}

impl Outline {
    /// Takes a snapshot of a segmenter's playlist.
    #[must_use]
    pub fn of(segmenter: &Mp4Segmenter) -> Self {
        let (window, names) = (segmenter.window(), segmenter.names());
        let mut inits: Vec<Described> = Vec::new();
        let mut spans = Vec::new();
        for Spanned { span, described, begins_period } in segmenter.spanned() {
            if inits.last() != Some(described) {
                inits.push(described.clone());
            }
            spans.push((span, inits.len().saturating_sub(1), begins_period));
        }
        Self {
            id: names.base.clone(),
            accessibility: Vec::new(),
            track: segmenter.tracks().first().map(|track| track.id.index()),
            template: segmenter.template(&Escaped(&names.stem()).to_string()),
            run: names.run,
            is_enough: window.is_enough(),
            is_independent: window.playlist().independent_segments,
            has_metadata: segmenter.has_metadata(),
            has_cues: segmenter.has_cues(),
            target: window.playlist().target_duration,
            bits: window.peak_bits().max(1),
            lengths: window.playlist().segments.iter().map(|segment| segment.duration).collect(),
            inits,
            spans,
        }
    }

    /// The same outline with these descriptors.
    #[must_use]
    pub fn with_accessibility(self, accessibility: Vec<Accessibility>) -> Self {
        Self { accessibility, ..self }
    }

    /// The segments, without gaps, each with its description.
    pub fn spanned(&self) -> impl Iterator<Item = Spanned<'_>> {
        self.spans.iter().filter_map(|(span, init, begins_period)| {
            let described = self.inits.get(*init)?;
            Some(Spanned { span: *span, described, begins_period: *begins_period })
        })
    }

    /// The same outline, reduced to segments whose middle is in this range of milliseconds.
    #[must_use]
    pub fn within(&self, from_ms: u64, until_ms: Option<u64>) -> Self {
        self.only(|middle_ms| middle_ms >= from_ms && until_ms.is_none_or(|until_ms| middle_ms < until_ms))
    }

    /// The same outline, reduced to segments for which `keeps` is true; it is passed the segment's middle in
    /// milliseconds.
    #[must_use]
    pub fn only(&self, keeps: impl Fn(u64) -> bool) -> Self {
        let is_kept = |one: &Spanned<'_>| keeps(one.middle_ms());
        let kept: Vec<Span> = self.spanned().filter(is_kept).map(|one| one.span).collect();
        let mut outline = self.clone();
        outline.spans.retain(|(span, ..)| kept.contains(span));
        outline
    }

    /// The template of the segments' names. No other rendition has the same template.
    #[must_use]
    pub fn names(&self) -> &str {
        &self.template
    }

    /// The same outline without segments, and with one description.
    pub(super) fn form(&self, described: &Described) -> Self {
        Self {
            id: self.id.clone(),
            accessibility: Vec::new(),
            template: self.template.clone(),
            run: None,
            is_enough: true,
            lengths: Vec::new(),
            inits: vec![described.clone()],
            spans: Vec::new(),
            ..*self
        }
    }

    /// Converts ticks of the first description to milliseconds.
    pub(super) fn in_ms(&self, ticks: u64) -> u64 {
        let scale = self.inits.first().map_or(1000, |one| u64::from(one.timescale.ticks()));
        ticks.saturating_mul(1000) / scale.max(1)
    }

    /// The number to use in the name of a segment.
    pub(super) fn number(&self, number: u64) -> u64 {
        self.run.map_or(number, |run| number.saturating_sub(run).saturating_add(1))
    }
}
