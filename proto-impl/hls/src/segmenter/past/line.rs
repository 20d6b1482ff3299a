//! Pieces as lines of text: fields separated by tabs.

use std::sync::Arc;
use std::time::Duration;

use media::{Timescale, TrackKind};

use super::super::mp4::Described;
use super::super::outline::Outline;
use super::{Anchor, Piece};

/// Number of fields.
const FIELDS: usize = 19;
/// Maximum number of segments of a piece that is read.
const SEGMENTS_MAX: u64 = 1 << 17;

/// Writes a text without the characters that separate fields.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn optional(text: Option<String>) -> String {
    text.unwrap_or_default()
}

/// Reads a field that may be empty. `None` if it is neither empty nor readable.
fn maybe<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text.is_empty() { Some(None) } else { read(text).map(Some) }
}

fn pair<A: std::str::FromStr, B: std::str::FromStr>(text: &str) -> Option<(A, B)> {
    let (a, b) = text.split_once('x')?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

fn key_of(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let is_key = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (at, byte) in key.iter_mut().enumerate().filter(|_| is_key) {
        let from = at.checked_mul(2)?;
        *byte = u8::from_str_radix(text.get(from..from.checked_add(2)?)?, 16).ok()?;
    }
    is_key.then_some(key)
}

impl Piece {
    /// Writes the piece as a line, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { form, bits, anchor, number, time, lengths, .. } = self;
        let Some(described) = form.inits.first() else { return String::new() };
        let kind = match described.kind {
            TrackKind::Video => "video",
            TrackKind::Audio => "audio",
            TrackKind::Data => "data",
        };
        let flags = [(form.is_independent, 'i'), (form.has_metadata, 'm'), (form.has_cues, 'c')];
        let lengths: Vec<String> = lengths.iter().map(|(ticks, count)| format!("{ticks}x{count}")).collect();
        let key = described.key_id.map(|key| key.iter().map(|byte| format!("{byte:02x}")).collect());
        let fields: [String; FIELDS] = [
            format!("{},{},{}", anchor.start_ms, anchor.run_ms, anchor.begin_ms),
            number.to_string(),
            time.to_string(),
            lengths.join(","),
            plain(&form.id),
            optional(form.track.map(|track| track.to_string())),
            plain(&form.template),
            flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect(),
            bits.to_string(),
            form.target.as_millis().to_string(),
            plain(&described.uri),
            plain(&described.codecs.join(",")),
            kind.to_owned(),
            described.timescale.ticks().to_string(),
            optional(described.size.map(|(width, height)| format!("{width}x{height}"))),
            optional(described.frame_rate_milli.map(|rate| rate.to_string())),
            optional(described.sound.map(|(rate, channels)| format!("{rate}x{channels}"))),
            optional(described.language.as_deref().map(plain)),
            optional(key),
        ];
        fields.join("\t")
    }

    /// Reads a line that [`Self::line`] has written.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let fields: [&str; FIELDS] = fields.try_into().ok()?;
        let [anchor, number, time, lengths, id, track, template, flags, bits, target, rest @ ..] = fields;
        let [uri, codecs, kind, timescale, size, frame_rate, sound, language, key] = rest;
        let mut places = anchor.split(',').map(|place| place.parse::<u64>().ok());
        let anchor = Anchor { start_ms: places.next()??, run_ms: places.next()??, begin_ms: places.next()?? };
        let lengths: Vec<(u64, u64)> = lengths.split(',').map(pair).collect::<Option<_>>()?;
        let count = lengths.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let is_sane = lengths.iter().all(|(ticks, count)| *ticks > 0 && *count > 0);
        if !is_sane || count > SEGMENTS_MAX || anchor.start_ms < anchor.begin_ms {
            return None;
        }
        let described = Described {
            uri: uri.to_owned(),
            codecs: codecs.split(',').map(str::to_owned).collect(),
            kind: match kind {
                "video" => TrackKind::Video,
                "audio" => TrackKind::Audio,
                "data" => TrackKind::Data,
                _ => return None,
            },
            timescale: Timescale::new(timescale.parse().ok()?),
            size: maybe(size, pair)?,
            frame_rate_milli: maybe(frame_rate, |text| text.parse().ok())?,
            sound: maybe(sound, pair)?,
            language: maybe(language, |text| Some(Arc::from(text)))?,
            key_id: maybe(key, key_of)?,
        };
        let form = Outline {
            id: id.to_owned(),
            accessibility: Vec::new(),
            track: maybe(track, |text| text.parse().ok())?,
            template: template.to_owned(),
            run: None,
            is_enough: true,
            is_independent: flags.contains('i'),
            has_metadata: flags.contains('m'),
            has_cues: flags.contains('c'),
            target: Duration::from_millis(target.parse().ok()?),
            bits: 0,
            lengths: Vec::new(),
            inits: vec![described],
            spans: Vec::new(),
        };
        let (number, time, bits) = (number.parse().ok()?, time.parse().ok()?, bits.parse().ok()?);
        let mut piece =
            Self { form: Arc::new(form), bits, anchor, number, time, lengths, count: 0, end: time };
        piece.measure();
        Some(piece)
    }
}
