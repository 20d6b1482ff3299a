//! The rules of DASH manifests (ISO/IEC 23009-1, DASH-IF guidelines), for one manifest.

use std::collections::BTreeMap;

use hls::playlist::Date;

use super::media;
use super::{Leniency, Notes, file};
use crate::support::World;

/// Maximum time by which a listed segment may end after the present, in milliseconds.
const EARLY_MAX_MS: i64 = 1_000;
/// Maximum age of the end of the newest segment, in milliseconds, in addition to the length of the longest segment.
/// Applies to streams without faults.
const LATE_MAX_MS: i64 = 2_000;

/// Identifies a segment by its period, adaptation set and number.
type Key = (String, String, u64);

/// A segment of an adaptation set.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    time: i64,
    ticks: i64,
    timescale: i64,
    init: String,
    path: String,
}

/// An adaptation set of a period, as one version of the manifest describes it.
#[derive(Debug, Default)]
struct Set {
    period: String,
    /// Beginning of the period in milliseconds.
    start: i64,
    id: String,
    /// `presentationTimeOffset`.
    offset: i64,
    spans: Vec<(u64, Span)>,
}

/// A manifest, and everything that it has named.
#[derive(Debug)]
pub struct Manifest {
    pub name: String,
    zero: Option<i64>,
    published: i64,
    /// Beginnings of the periods by their ids.
    starts: BTreeMap<String, i64>,
    spans: BTreeMap<Key, Span>,
    /// Segments that were not fetched yet.
    fresh: Vec<Key>,
}

/// Returns the value of an XML attribute.
fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    Some(text.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0)
}

fn number(text: &str, name: &str) -> i64 {
    value(text, name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Reads an XML duration as milliseconds.
fn duration(text: &str, name: &str) -> i64 {
    let seconds = value(text, name).and_then(|text| text.strip_prefix("PT")?.strip_suffix('S'));
    seconds.and_then(|text| text.parse::<f64>().ok()).map_or(0, |seconds| (seconds * 1000.0).round() as i64)
}

fn date(text: &str, name: &str) -> i64 {
    value(text, name).and_then(Date::read).map_or(0, |date| date.0)
}

impl Manifest {
    pub fn new(name: String) -> Self {
        Self {
            name,
            zero: None,
            published: 0,
            starts: BTreeMap::new(),
            spans: BTreeMap::new(),
            fresh: Vec::new(),
        }
    }

    fn sets_of(&self, text: &str) -> Vec<Set> {
        let folder = self.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (mut base, mut sets) = (String::new(), Vec::new());
        let (mut period, mut start) = (String::new(), 0);
        let (mut init, mut media, mut scale, mut next) = (String::new(), String::new(), 1, 0);
        for line in text.lines() {
            let tag = line.trim_start().trim_start_matches('<').split([' ', '>', '/']).next().unwrap_or("");
            match tag {
                "BaseURL" => {
                    let uri = line.split_once('>').and_then(|(_, rest)| rest.split_once('<')).unwrap().0;
                    base = match uri.strip_prefix("../") {
                        Some(uri) => uri.to_owned(),
                        None => format!("{folder}/{uri}"),
                    };
                }
                "Period" => {
                    period = value(line, "id").unwrap_or("").to_owned();
                    start = duration(line, "start");
                }
                "AdaptationSet" => {
                    let id = value(line, "id").unwrap_or("").to_owned();
                    sets.push(Set { period: period.clone(), start, id, ..Set::default() });
                }
                "SegmentTemplate" => {
                    init = format!("{base}{}", value(line, "initialization").unwrap_or(""));
                    media = format!("{base}{}", value(line, "media").unwrap_or(""));
                    scale = number(line, "timescale").max(1);
                    next = number(line, "startNumber").cast_unsigned();
                    sets.last_mut().unwrap().offset = number(line, "presentationTimeOffset");
                }
                "S" => {
                    let path = named(&media, next);
                    let (time, ticks) = (number(line, "t"), number(line, "d"));
                    let span = Span { time, ticks, timescale: scale, init: init.clone(), path };
                    sets.last_mut().unwrap().spans.push((next, span));
                    next += 1;
                }
                _ => {}
            }
        }
        sets
    }

    /// Reads a new version.
    pub fn read(&mut self, text: &str, leniency: Leniency, notes: &mut Notes) {
        let Some((head, _)) = text.split_once("<BaseURL>") else {
            notes.broken(format!("{}: {text}", self.name));
            return;
        };
        let is_live = value(head, "type") == Some("dynamic");
        if is_live {
            let (zero, published) = (date(head, "availabilityStartTime"), date(head, "publishTime"));
            if self.zero.replace(zero).is_some_and(|before| before != zero) {
                // The stream began anew, so this is a new manifest. The segments of the former one are forgotten.
                self.starts.clear();
                self.spans.clear();
            }
            notes.check(published >= self.published, || {
                format!("{}: published at {published}, before {}", self.name, self.published)
            });
            self.published = published;
        }
        let sets = self.sets_of(text);
        notes.check(!sets.is_empty(), || format!("{}: no media", self.name));
        let longest = duration(head, "maxSegmentDuration");
        for set in &sets {
            self.check_set(set, &sets, longest, leniency, notes);
        }
        let now_ms = text.split_once("<UTCTiming").map_or(0, |(_, timing)| date(timing, "value"));
        let newest = sets.iter().filter_map(end_ms).max();
        if let (true, Some(newest)) = (is_live, newest) {
            let zero = date(head, "availabilityStartTime");
            let behind = now_ms - zero - newest;
            notes.check(behind >= -EARLY_MAX_MS || leniency.has_faults, || {
                format!("{}: the newest segment ends {} ms after the present", self.name, -behind)
            });
            notes.check(behind <= longest + LATE_MAX_MS || leniency.has_faults, || {
                format!(
                    "{}: the newest segment ended {behind} ms ago, the longest lasts {longest}",
                    self.name
                )
            });
        }
    }

    fn check_set(&mut self, set: &Set, all: &[Set], longest: i64, leniency: Leniency, notes: &mut Notes) {
        let name = format!("{}: period {}, set {}", self.name, set.period, set.id);
        let known = *self.starts.entry(set.period.clone()).or_insert(set.start);
        notes.check(known == set.start, || format!("{name} began at {known}, now at {}", set.start));
        for pair in set.spans.windows(2) {
            let (one, next) = (&pair[0].1, &pair[1].1);
            let gap = next.time - one.time - one.ticks;
            let is_hole = gap > 0 && leniency.has_faults;
            notes.check(gap.abs() <= one.timescale / 500 || is_hole, || {
                format!(
                    "{name}: {} ticks of {} lie between {} and {}",
                    gap, one.timescale, one.path, next.path
                )
            });
        }
        let later = all.iter().map(|other| other.start).filter(|start| *start > set.start).min();
        for (number, span) in &set.spans {
            let ms = |ticks: i64| set.start + (ticks - set.offset) * 1000 / span.timescale;
            let (begin, end) = (ms(span.time), ms(span.time + span.ticks));
            notes.check(begin >= set.start - longest, || {
                format!("{name}: {} begins at {begin}, the period at {}", span.path, set.start)
            });
            notes.check(later.is_none_or(|later| begin < later), || {
                format!("{name}: {} lasts until {end}, after the period, which ends at {later:?}", span.path)
            });
            notes.check(span.ticks * 1000 / span.timescale <= longest + 500, || {
                format!("{name}: {} lasts longer than {longest} ms", span.path)
            });
            let key = (set.period.clone(), set.id.clone(), *number);
            match self.spans.get(&key) {
                None => {
                    self.spans.insert(key.clone(), span.clone());
                    self.fresh.push(key);
                }
                Some(known) => notes.check(known == span, || format!("{name}: {known:?} is now {span:?}")),
            }
        }
    }

    /// Fetches the segments that are new, and compares their times.
    pub fn fetch(&mut self, world: &mut World, notes: &mut Notes) {
        for key in std::mem::take(&mut self.fresh) {
            let span = self.spans[&key].clone();
            let files = [&span.init, &span.path].map(|path| file(world, notes, path));
            let [Some(init), Some(bytes)] = files else { continue };
            let name = &self.name;
            let units = match media::of_fragments(&init, &bytes) {
                Ok(units) => units,
                Err(why) => {
                    notes.broken(format!("{name}: {}: {why}", span.path));
                    continue;
                }
            };
            let Some(first) = units.first() else {
                notes.broken(format!("{name}: {} has no media", span.path));
                continue;
            };
            let off = first.dts - span.time * 1_000_000 / span.timescale;
            notes.check(off.abs() <= 2_000, || {
                format!("{name}: {} begins {off} us after its time in the manifest", span.path)
            });
            let lasts: i64 = units.iter().filter_map(|unit| unit.duration).sum();
            let off = lasts - span.ticks * 1_000_000 / span.timescale;
            notes.check(off.abs() <= 5_000, || {
                format!("{name}: {} lasts {off} us longer than in the manifest", span.path)
            });
        }
    }
}

/// Returns the end of an adaptation set's last segment, as presentation time in milliseconds.
fn end_ms(set: &Set) -> Option<i64> {
    let (_, last) = set.spans.last()?;
    Some(set.start + (last.time + last.ticks - set.offset) * 1000 / last.timescale)
}

/// Returns the path of a segment whose name has its number in place of `$Number...$`.
fn named(template: &str, number: u64) -> String {
    let Some((before, rest)) = template.split_once("$Number") else { return template.to_owned() };
    let (format, after) = rest.split_once('$').unwrap_or(("", rest));
    let width = format.trim_start_matches("%0").trim_end_matches('d').parse().unwrap_or(1);
    format!("{before}{number:0width$}{after}")
}
