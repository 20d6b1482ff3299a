//! Timed data in segments and playlists: the ID3 tags of a stream, its script data as tags, and its splice information.

use bytes::Bytes;
use hls::segmenter::Cue;
use media::scte35::Splice;
use media::{TrackId, id3};

use crate::config::{Error, Values};
use crate::hub::{Entry, Pick};
use crate::protocol::flv_mapping;

/// The metadata that segments have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metadata {
    /// `id3TagEnabled`: segments have ID3 tags.
    pub(super) has_tags: bool,
    /// `relayRTMPMetaDataToMuxers`: script data of publishers is among them.
    has_script_data: bool,
    /// `hls.scte35`: playlists and segments have splice information.
    has_cues: bool,
}

impl Metadata {
    /// Splice information alone.
    pub(super) const DEFAULT: Self = Self { has_tags: false, has_script_data: true, has_cues: true };

    pub(super) fn read(values: &Values) -> Result<Self, Error> {
        Ok(Self {
            has_tags: values.boolean("id3TagEnabled")?,
            has_script_data: values.boolean("relayRTMPMetaDataToMuxers")?,
            has_cues: values.boolean("hls.scte35")?,
        })
    }

    /// Returns the rule for the data tracks that a sink is sent.
    pub(super) const fn pick(self) -> Pick {
        match self {
            Self { has_tags: false, has_cues: false, .. } => Pick::None,
            Self { has_tags: false, has_cues: true, .. } => Pick::Only(TrackId::CUES),
            Self { has_script_data: false, has_cues: false, .. } => Pick::Only(TrackId::METADATA),
            Self { .. } => Pick::All,
        }
    }

    /// Returns the tags of a unit of a data track; `None` if it has none that are wanted.
    pub(super) fn tags(self, entry: &Entry) -> Option<Bytes> {
        if !self.has_tags {
            return None;
        }
        match entry.unit.track {
            TrackId::METADATA => Some(entry.unit.payload.clone()),
            TrackId::DATA if self.has_script_data => {
                let (name, values) = flv_mapping::script_data(&entry.unit.payload)?;
                id3::text(&name, &values)
            }
            _ => None,
        }
    }

    /// Returns the splice information of a unit of a data track, whose splice is at this time and date in milliseconds. `None` if it has
    /// none that is wanted.
    pub(super) fn cue(self, entry: &Entry, at_ms: i64, date_ms: i64) -> Option<Cue> {
        if !self.has_cues || entry.unit.track != TrackId::CUES {
            return None;
        }
        let section = entry.unit.payload.clone();
        Some(Cue { at_ms, date_ms, splice: Splice::read(&section)?, section })
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
        let both = Metadata { has_tags: true, has_script_data: true, has_cues: false };
        let text = both.tags(&cue_unit).unwrap();
        assert_eq!(id3::texts(&text), [("onCuePoint", "{\"n\":true}")]);
        assert_eq!((both.tags(&tag_unit), both.pick()), (Some(tag.clone()), Pick::All));
        let tags_alone = Metadata { has_script_data: false, ..both };
        assert_eq!((tags_alone.tags(&tag_unit), tags_alone.tags(&cue_unit)), (Some(tag.clone()), None));
        assert_eq!(tags_alone.pick(), Pick::Only(TrackId::METADATA));
        let none = Metadata { has_tags: false, has_script_data: true, has_cues: false };
        assert_eq!((none.tags(&tag_unit), none.tags(&cue_unit), none.pick()), (None, None, Pick::None));
        assert_eq!(both.tags(&entry(TrackId::DATA, Bytes::from_static(b"no AMF"))), None);
        let section = media::scte35::insert(7, media::scte35::Kind::Out, None);
        let splice = entry(TrackId::CUES, section.clone());
        let cues = Metadata { has_cues: true, ..none };
        assert_eq!(
            (cues.pick(), Metadata { has_cues: true, ..tags_alone }.pick()),
            (Pick::Only(TrackId::CUES), Pick::All)
        );
        assert_eq!(
            cues.cue(&splice, 1, 2).map(|cue| (cue.at_ms, cue.date_ms, cue.section)),
            Some((1, 2, section))
        );
        assert!(cues.cue(&tag_unit, 1, 2).is_none() && cues.cue(&entry(TrackId::CUES, tag), 1, 2).is_none());
        assert!(none.cue(&splice, 1, 2).is_none() && cues.tags(&splice).is_none());
    }
}
