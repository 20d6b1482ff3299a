//! `EXT-X-DATERANGE` (RFC 8216bis §4.4.5.1) with splice information, read and written.

use std::fmt::{self, Formatter};
use std::time::Duration;

use bytes::Bytes;
use media::scte35;

use super::attributes::{Attributes, Writer};
use super::date::{self, Date};
use super::number::{self, Seconds};

/// A range of dates that carries splice information. Tags with the same id describe one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DateRange {
    /// `ID`: unique in a playlist, except that all tags of a range share it.
    pub id: String,
    /// `START-DATE` in milliseconds of Unix time.
    pub start_ms: i64,
    /// `DURATION`: the actual duration.
    pub duration: Option<Duration>,
    /// `PLANNED-DURATION`: the expected duration.
    pub planned: Option<Duration>,
    /// Splice information of the range: a `splice_info_section`, and the attribute that carries it.
    pub splice: Option<(SpliceKind, Bytes)>,
    /// Number of parts of the range's segment that precede the tag. A playlist may only be appended to (RFC
    /// 8216bis §6.2.1), so a tag that arrives in the middle of a segment is placed after the parts already
    /// listed.
    pub parts_before: usize,
}

/// The attribute that carries the splice information of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpliceKind {
    /// `SCTE35-CMD`.
    Command,
    /// `SCTE35-OUT`.
    Out,
    /// `SCTE35-IN`.
    In,
}

impl SpliceKind {
    const ALL: [Self; 3] = [Self::Command, Self::Out, Self::In];

    /// The name of the attribute.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "SCTE35-CMD",
            Self::Out => "SCTE35-OUT",
            Self::In => "SCTE35-IN",
        }
    }
}

/// Bytes as a hexadecimal sequence (RFC 8216 §4.2).
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

fn read_hex(text: &str) -> Option<Bytes> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    if digits.len() > 2 * scte35::SECTION_BYTES_MAX {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().map(Bytes::from)
}

impl DateRange {
    /// Reads the attributes of a tag. `None` if they do not describe a valid range; players skip such tags,
    /// too.
    pub(super) fn read(value: &str) -> Option<Self> {
        let attributes = Attributes::read(value).ok()?;
        let seconds = |name| attributes.parsed(name, number::duration).ok().flatten();
        let splice = SpliceKind::ALL
            .into_iter()
            .find_map(|kind| Some((kind, read_hex(attributes.get(kind.name())?)?)));
        Some(Self {
            id: attributes.text("ID").filter(|id| !id.is_empty())?,
            start_ms: date::read(attributes.get("START-DATE")?)?,
            duration: seconds("DURATION"),
            planned: seconds("PLANNED-DURATION"),
            splice,
            parts_before: 0,
        })
    }

    /// End of the range that these tags describe, in milliseconds of Unix time. `None` if no tag has a
    /// duration, as for a break of unknown length.
    pub(super) fn end_ms<'t>(tags: impl Iterator<Item = &'t Self> + Clone) -> Option<i64> {
        let start_ms = tags.clone().next()?.start_ms;
        let duration = tags.clone().find_map(|tag| tag.duration);
        let length = duration.or_else(|| tags.clone().find_map(|tag| tag.planned));
        let is_moment = |tag: &Self| matches!(&tag.splice, Some((SpliceKind::Command | SpliceKind::In, _)));
        let length = length.or_else(|| tags.clone().any(is_moment).then_some(Duration::ZERO))?;
        Some(start_ms.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
    }

    /// True if both tags have the same contents, regardless of their position in a playlist.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.duration == other.duration && self.splice == other.splice
    }

    pub(super) fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut line = Writer::begin(f, "#EXT-X-DATERANGE:")?;
        line.quoted("ID", &self.id)?;
        line.quoted("START-DATE", &Date(self.start_ms).to_string())?;
        line.plain_if("DURATION", self.duration.map(Seconds))?;
        line.plain_if("PLANNED-DURATION", self.planned.map(Seconds))?;
        if let Some((kind, section)) = &self.splice {
            line.plain(kind.name(), Hex(section))?;
        }
        line.end()
    }
}
