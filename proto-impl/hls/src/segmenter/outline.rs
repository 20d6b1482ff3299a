//! A segmenter as manifests describe it, apart from the segmenter: renditions of one manifest may be made in several places.

use std::time::Duration;

use super::manifest::Escaped;
use super::mp4::{Described, Mp4Segmenter, Span, Spanned};

/// A descriptor of what makes a video accessible (ISO/IEC 23009-1 §5.8.4.3), such as its captions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accessibility {
    /// The scheme of the value.
    pub scheme: &'static str,
    /// The value, by its scheme.
    pub value: String,
}

/// The segments of a playlist and their description, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// The name of the rendition, which one that comes later may have, too.
    pub id: String,
    /// Descriptors of its adaptation set.
    pub(super) accessibility: Vec<Accessibility>,
    /// The index of its first track, if it has one.
    pub(super) track: Option<u8>,
    /// The names of its segments, as a manifest writes them.
    pub(super) template: String,
    /// The number of the first segment, where names count from it.
    run: Option<u64>,
    pub(super) is_enough: bool,
    pub(super) is_independent: bool,
    /// True if its segments may have events.
    pub(super) has_metadata: bool,
    /// True if its segments have had splice information.
    pub(super) has_cues: bool,
    pub(super) target: Duration,
    pub(super) bits: u64,
    /// The lengths of the segments of the playlist.
    pub(super) lengths: Vec<Duration>,
    inits: Vec<Described>,
    /// The segments that are there, each with the place of its init segment, and true if a period begins with it.
    spans: Vec<(Span, usize, bool)>,
}

impl Outline {
    /// Outlines the playlist of a segmenter.
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

    /// The same with these descriptors.
    #[must_use]
    pub fn with_accessibility(self, accessibility: Vec<Accessibility>) -> Self {
        Self { accessibility, ..self }
    }

    /// The segments that are there, with what describes them.
    pub fn spanned(&self) -> impl Iterator<Item = Spanned<'_>> {
        self.spans.iter().filter_map(|(span, init, begins_period)| {
            let described = self.inits.get(*init)?;
            Some(Spanned { span: *span, described, begins_period: *begins_period })
        })
    }

    /// The same with the segments alone whose middle is in this time, in milliseconds.
    #[must_use]
    pub fn within(&self, from_ms: u64, until_ms: Option<u64>) -> Self {
        self.only(|middle_ms| middle_ms >= from_ms && until_ms.is_none_or(|until_ms| middle_ms < until_ms))
    }

    /// The same with those segments alone that `keeps` wants, by their middle in milliseconds.
    #[must_use]
    pub fn only(&self, keeps: impl Fn(u64) -> bool) -> Self {
        let is_kept = |one: &Spanned<'_>| keeps(one.middle_ms());
        let kept: Vec<Span> = self.spanned().filter(is_kept).map(|one| one.span).collect();
        let mut outline = self.clone();
        outline.spans.retain(|(span, ..)| kept.contains(span));
        outline
    }

    /// The names of its segments, which no other rendition has.
    #[must_use]
    pub fn names(&self) -> &str {
        &self.template
    }

    /// The number in the name of a segment.
    pub(super) fn number(&self, number: u64) -> u64 {
        self.run.map_or(number, |run| number.saturating_sub(run).saturating_add(1))
    }
}
