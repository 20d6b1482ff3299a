//! Timed data in segments and playlists: the ID3 tags of a stream, its script data as tags, and its splice information.

use bytes::Bytes;
use hls::segmenter::Cue;
use media::message::Message;
use media::scte35::{self, Splice};
use media::{Timescale, TrackId, id3};

use super::subtitles::Languages;
use crate::config::{Error, Values};
use crate::hub::{Chosen, Entry, Pick};
use crate::protocol::flv_mapping;

/// Timescale of the times in splice information.
const TICKS: Timescale = Timescale::new(scte35::TICKS_PER_SECOND);

/// The metadata in segments and playlists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metadata {
    /// `id3TagEnabled`: segments have ID3 tags.
    pub(super) has_tags: bool,
    /// `relayRTMPMetaDataToMuxers`: publishers' script data is among the tags.
    has_script_data: bool,
    /// `hls.scte35`: playlists and segments have splice information.
    has_cues: bool,
    /// `hls.subtitles`: there are subtitles.
    has_subtitles: bool,
}

impl Metadata {
    /// Splice information, but no tags.
    pub(super) const DEFAULT: Self =
        Self { has_tags: false, has_script_data: true, has_cues: true, has_subtitles: false };

    pub(super) fn read(values: &Values) -> Result<Self, Error> {
        Ok(Self {
            has_tags: values.boolean("id3TagEnabled")?,
            has_script_data: values.boolean("relayRTMPMetaDataToMuxers")?,
            has_cues: values.boolean("hls.scte35")?,
            has_subtitles: !Languages::read(values)?.is_empty(),
        })
    }

    /// Returns the rule for the data tracks that a sink is sent.
    pub(super) const fn pick(self) -> Pick {
        match self {
            Self { has_subtitles: true, .. } => Pick::All,
            Self { has_tags: false, has_cues: false, .. } => Pick::None,
            Self { has_tags: false, has_cues: true, .. } => Pick::Only(TrackId::CUES),
            Self { .. } => Pick::All,
        }
    }

    /// True if publishers' script data is used.
    pub(super) const fn has_script_data(self) -> bool {
        self.has_script_data
    }

    /// Returns the ID3 tags of a unit of a data track; `None` if it has none that are wanted.
    pub(super) fn tags(self, entry: &Entry) -> Option<Bytes> {
        if !self.has_tags {
            return None;
        }
        match entry.unit.track {
            TrackId::METADATA => Some(entry.unit.payload.clone()),
            TrackId::MESSAGES => Message::read(&entry.unit.payload)?.tag(),
            TrackId::DATA if self.has_script_data => {
                let (name, values) = flv_mapping::script_data(&entry.unit.payload)?;
                id3::text(&name, &values)
            }
            _ => None,
        }
    }

    /// Returns the splice information of a unit of a data track, at this place. `None` if it has none that is wanted.
    pub(super) fn cue(self, entry: &Entry, place: Place) -> Option<Cue> {
        if !self.has_cues || entry.unit.track != TrackId::CUES {
            return None;
        }
        // Parsed before the times are converted, because an event without a number is identified by the checksum
        // of the original section.
        let splice = Splice::read(&entry.unit.payload)?;
        let section = place.section(&splice, entry)?;
        Some(Cue { at_ms: place.at_ms, date_ms: place.date_ms, splice, section })
    }
}

/// The place of a splice in segments and playlists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Presentation time of the splice in milliseconds, before `zero_ms` is added.
    pub(super) at_ms: i64,
    /// Date in milliseconds of Unix time.
    pub(super) date_ms: i64,
    /// Timestamp of time zero in the segments, in milliseconds.
    pub(super) zero_ms: i64,
}

impl Place {
    /// Returns the timestamp of time zero in segments of MPEG-TS, in ticks.
    pub(super) fn ts_zero_ticks() -> i64 {
        i64::try_from(mpegts::ZERO).unwrap_or(0)
    }

    /// Returns the timestamp of time zero in segments of MPEG-TS, in milliseconds.
    pub(super) fn ts_zero_ms() -> i64 {
        TICKS.to_ms(Self::ts_zero_ticks())
    }

    /// Returns the section with its times converted to those of the segments. Encrypted times cannot be read; they
    /// are shifted by the difference between the segments' times and those of the hub's sections, which are the times
    /// of MPEG-TS segments.
    fn section(self, splice: &Splice, entry: &Entry) -> Option<Bytes> {
        let ticks = |ms: i64| Timescale::MILLISECONDS.convert(ms, TICKS).cast_unsigned();
        let payload = &entry.unit.payload;
        if splice.pts.is_some() {
            return scte35::moved_to(payload, ticks(self.at_ms.saturating_add(self.zero_ms)));
        }
        let later_ms = self.at_ms.saturating_sub(entry.unit.pts).saturating_add(self.zero_ms);
        scte35::shifted(payload, ticks(later_ms.saturating_sub(Self::ts_zero_ms())))
    }
}

/// Time from decoding to presentation of the newest key frame that ends segments, in milliseconds. Segments are dated
/// by decode time, but splices name a presentation time; without this time subtracted, a splice on a key frame would
/// not have the date of its segment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lag(i64);

impl Lag {
    /// Takes a unit into account.
    pub(super) fn note(&mut self, entry: &Entry, chosen: &Chosen) {
        let unit = &entry.unit;
        match (chosen.lead(), entry.tracks.get(unit.track)) {
            (None, _) => self.0 = 0,
            (Some(lead), Some(track)) if lead == unit.track && unit.key_frame => {
                self.0 = track.timescale.to_ms(unit.pts).saturating_sub(track.timescale.to_ms(unit.dts));
            }
            (Some(_), _) => {}
        }
    }

    /// Returns the DTS in milliseconds whose date is the date of this presentation time.
    pub(super) const fn dts_ms(self, pts_ms: i64) -> i64 {
        pts_ms.saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use flv::amf0::Value;
    use flv::data::Data;
    use media::{AccessUnit, Tracks};

    use super::*;

    #[test]
    fn tags_pass_as_they_are_and_script_data_becomes_a_text_of_its_name() {
        let entry = |track, payload| {
            let unit = AccessUnit { track, dts: 0, pts: 0, key_frame: false, config_epoch: 0, payload };
            Entry::new(Instant::now(), 0, unit, Arc::new(Tracks::new(1, [])))
        };
        let tag = id3::text("", "from the API").unwrap();
        let cue = Data {
            name: "onCuePoint".to_owned(),
            values: vec![Value::object([("n", Value::Boolean(true))])],
        };
        let (tag_unit, cue_unit) = (entry(TrackId::METADATA, tag.clone()), entry(TrackId::DATA, cue.write()));
        let both = Metadata { has_tags: true, has_script_data: true, has_cues: false, has_subtitles: false };
        let text = both.tags(&cue_unit).unwrap();
        assert_eq!(id3::texts(&text), [("onCuePoint", "{\"n\":true}")]);
        assert_eq!((both.tags(&tag_unit), both.pick()), (Some(tag.clone()), Pick::All));
        let tags_alone = Metadata { has_script_data: false, ..both };
        assert_eq!((tags_alone.tags(&tag_unit), tags_alone.tags(&cue_unit)), (Some(tag.clone()), None));
        assert_eq!(tags_alone.pick(), Pick::All, "messages are in another track than tags");
        let message = |is_timed| {
            let message = Message { is_text: true, is_timed, payload: Bytes::from_static(b"hello") };
            entry(TrackId::MESSAGES, message.write())
        };
        assert_eq!(id3::texts(&tags_alone.tags(&message(true)).unwrap()), [("onDataMessage", "hello")]);
        assert_eq!(tags_alone.tags(&message(false)), None, "for data channels alone");
        let none = Metadata { has_tags: false, has_script_data: true, has_cues: false, has_subtitles: false };
        assert_eq!((none.tags(&tag_unit), none.tags(&cue_unit), none.pick()), (None, None, Pick::None));
        assert_eq!(both.tags(&entry(TrackId::DATA, Bytes::from_static(b"no AMF"))), None);
        let section = scte35::insert(7, scte35::Kind::Out, None);
        let splice = entry(TrackId::CUES, section.clone());
        let cues = Metadata { has_cues: true, ..none };
        assert_eq!(
            (cues.pick(), Metadata { has_cues: true, ..tags_alone }.pick()),
            (Pick::Only(TrackId::CUES), Pick::All)
        );
        let place = Place { at_ms: 1, date_ms: 2, zero_ms: 0 };
        assert_eq!(cues.cue(&splice, place).map(|cue| (cue.at_ms, cue.date_ms)), Some((1, 2)));
        assert!(
            cues.cue(&tag_unit, place).is_none() && cues.cue(&entry(TrackId::CUES, tag), place).is_none()
        );
        assert!(none.cue(&splice, place).is_none() && cues.tags(&splice).is_none());
    }

    /// Returns the cue of a section at ten seconds of its stream. In the segments, time zero is `zero_ms`, and
    /// times are `later_ms` later than in the stream.
    fn cued(section: Bytes, zero_ms: i64, later_ms: i64) -> Cue {
        let unit = AccessUnit {
            track: TrackId::CUES,
            dts: 9000,
            pts: 10_000,
            key_frame: false,
            config_epoch: 0,
            payload: section,
        };
        let entry = Entry::new(Instant::now(), 0, unit, Arc::new(Tracks::new(1, [])));
        let place = Place { at_ms: 10_000 + later_ms, date_ms: 0, zero_ms };
        Metadata::DEFAULT.cue(&entry, place).unwrap()
    }

    #[test]
    fn sections_have_the_times_of_the_segments_whatever_clock_they_came_with() {
        let pts = |section: &[u8]| Splice::read(section).unwrap().pts;
        let made = scte35::insert(7, scte35::Kind::Out, None);
        for came in [0, 126_000 + 900_000, (1 << 33) - 1] {
            let section = scte35::moved_to(&made, came).unwrap();
            for (zero_ms, later_ms, expected) in
                [(1400, 0, 1_026_000), (1000, 0, 990_000), (0, 20_000, 2_700_000)]
            {
                let cue = cued(section.clone(), zero_ms, later_ms);
                assert_eq!(pts(&cue.section), Some(expected), "{came} {zero_ms} {later_ms}");
                assert_eq!(cue.splice.events[0].id, 7);
            }
        }
        assert_eq!(Place::ts_zero_ms(), 1400);
    }

    #[test]
    fn encrypted_sections_are_moved_along_and_keep_their_number() {
        let mut section = scte35::insert(7, scte35::Kind::Out, None).to_vec();
        section[4] |= 0x80;
        let end = section.len() - 4;
        let checksum = media::crc32(&section[..end]);
        section[end..].copy_from_slice(&checksum.to_be_bytes());
        let section = Bytes::from(section);
        for (zero_ms, later_ms, by) in
            [(1400, 0, 0), (1000, 0, (1 << 33) - 36_000), (1400, 20_000, 1_800_000)]
        {
            let cue = cued(section.clone(), zero_ms, later_ms);
            assert_eq!(Some(cue.section), scte35::shifted(&section, by));
            assert_eq!(cue.splice.events[0].id, checksum);
        }
    }
}
