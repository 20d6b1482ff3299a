//! The periods of a manifest, each with the renditions that it has.
//!
//! A period begins where the first rendition has a discontinuity, and where a rendition joins or leaves, because
//! players read the renditions of a period only once. No rendition is added to a published period.

use hls::segmenter::{Outline, Stretch};

/// A period, and the names of its renditions.
#[derive(Debug)]
struct Period {
    stretch: Stretch,
    members: Vec<String>,
}

/// Maximum number of periods in a manifest. If renditions join and leave all the time, the oldest periods are
/// dropped.
const PERIODS_MAX: usize = 16;

/// The periods of a manifest, the newest last.
#[derive(Debug, Default)]
pub(super) struct Periods {
    listed: Vec<Period>,
    /// The id of the first period.
    first: u64,
    /// The id of the newest period that a manifest has listed.
    published: Option<u64>,
}

impl Periods {
    /// Creates the periods of a run of a stream. Ids count from `first`, so that no id of an earlier run is used again.
    pub(super) const fn new(first: u64) -> Self {
        Self { listed: Vec::new(), first, published: None }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The renditions of the newest period.
    pub(super) fn members(&self) -> &[String] {
        self.listed.last().map_or(&[], |last| &last.members)
    }

    pub(super) fn stretches(&self) -> Vec<Stretch> {
        self.listed.iter().map(|period| period.stretch).collect()
    }

    /// Notes the segments of the first rendition, and the renditions that players can choose now. `delay_ms` returns
    /// the difference between a segment time and the presentation time.
    pub(super) fn note(&mut self, lead: &Outline, members: &[String], delay_ms: impl Fn(u64) -> u64) {
        for one in lead.spanned() {
            let begin_ms = one.begin_ms();
            match self.listed.last() {
                // The first period begins at zero, because segment times count from the beginning of the presentation.
                None => self.begin(0, delay_ms(one.middle_ms()), members),
                Some(last) if one.begins_period && begin_ms > last.stretch.begin_ms => {
                    self.begin(begin_ms, delay_ms(one.middle_ms()), members);
                }
                Some(_) => {}
            }
        }
        let end_ms = lead.spanned().last().map(|last| last.end_ms());
        if let (Some(end_ms), Some(last)) = (end_ms, self.listed.last_mut())
            && last.members != members
        {
            // Another first rendition begins with its first segment, which is in no published period.
            let is_new = !last.members.contains(&lead.id);
            let begins = lead.spanned().map(|one| one.begin_ms()).find(|at| *at > last.stretch.begin_ms);
            let end_ms = begins.filter(|_| is_new).unwrap_or(end_ms);
            // A period that no player knows yet may lose renditions that have never sent anything.
            let is_unknown = self.published != Some(last.stretch.id)
                && members.contains(&lead.id)
                && members.iter().all(|member| last.members.contains(member));
            if last.stretch.begin_ms >= end_ms || is_unknown {
                last.members = members.to_vec();
            } else {
                self.begin(end_ms, delay_ms(end_ms), members);
            }
        }
    }

    fn begin(&mut self, begin_ms: u64, delay_ms: u64, members: &[String]) {
        let id = self.listed.last().map_or(self.first, |last| last.stretch.id.saturating_add(1));
        let stretch = Stretch { id, begin_ms, delay_ms };
        self.listed.push(Period { stretch, members: members.to_vec() });
        if self.listed.len() > PERIODS_MAX {
            self.listed.remove(0);
        }
    }

    /// Forgets the periods that end at or before this time, except the newest one.
    pub(super) fn forget(&mut self, oldest_ms: u64) {
        while self.listed.get(1).is_some_and(|second| second.stretch.begin_ms <= oldest_ms) {
            self.listed.remove(0);
        }
    }

    /// Returns a rendition with only the segments of periods that list it.
    pub(super) fn listed(&self, outline: &Outline) -> Outline {
        outline.only(|middle_ms| {
            let of = self
                .listed
                .iter()
                .rfind(|period| period.stretch.begin_ms <= middle_ms)
                .or_else(|| self.listed.first());
            of.is_some_and(|period| period.members.contains(&outline.id))
        })
    }

    /// Notes that a manifest with all periods is published.
    pub(super) fn publish(&mut self) {
        self.published = self.listed.last().map(|last| last.stretch.id);
    }

    /// True while only some renditions of the newest period have a segment in it, and none has two. A player that
    /// reads the manifest now would never see the renditions without one.
    pub(super) fn is_incomplete(&self, renditions: &[Outline]) -> bool {
        let Some(last) = self.listed.last() else { return false };
        let count = |outline: &Outline| {
            outline.spanned().filter(|one| one.middle_ms() >= last.stretch.begin_ms).count()
        };
        let members = renditions.iter().filter(|one| last.members.contains(&one.id));
        let counts: Vec<usize> = members.map(count).collect();
        counts.contains(&0) && counts.iter().any(|count| *count > 0) && counts.iter().all(|count| *count < 2)
    }
}
