//! Reads a multivariant playlist.

use super::attributes::{Attributes, Fault};
use super::multivariant::{
    ClosedCaptions, MultivariantPlaylist, Rendition, RenditionKind, Resolution, Variant,
};
use super::{Line, lines, number};
use crate::limits::{RENDITIONS_MAX, VARIANTS_MAX};
use crate::{Error, Limit, Violation};

pub(super) fn read(text: &str) -> Result<MultivariantPlaylist, Error> {
    let mut playlist = MultivariantPlaylist { version: 1, ..MultivariantPlaylist::default() };
    // The variant whose URI line has not been read yet.
    let mut open: Option<Variant> = None;
    for (line, item) in lines(text) {
        match item? {
            Line::Tag("EXT-X-STREAM-INF", _) if open.is_some() => {
                return Err(Fault::from(Violation::NoUri).at(line));
            }
            Line::Tag("EXT-X-STREAM-INF", value) => {
                open = Some(variant(value).map_err(|fault| fault.at(line))?)
            }
            Line::Tag(name, value) => tag(&mut playlist, name, value).map_err(|fault| fault.at(line))?,
            Line::Uri(uri) => {
                // A URI without a tag before it is ignored.
                let Some(variant) = open.take() else { continue };
                if playlist.variants.len() == VARIANTS_MAX {
                    return Err(Fault::Limit(Limit::Variants).at(line));
                }
                playlist.variants.push(Variant { uri: uri.to_owned(), ..variant });
            }
        }
    }
    if open.is_some() {
        return Err(Fault::from(Violation::NoUri).at(text.lines().count()));
    }
    if playlist.variants.is_empty() && playlist.renditions.is_empty() {
        return Err(Fault::from(Violation::Neither).at(0));
    }
    Ok(playlist)
}

fn tag(playlist: &mut MultivariantPlaylist, name: &str, value: &str) -> Result<(), Fault> {
    match name {
        "EXT-X-VERSION" => playlist.version = number::integer(value)?,
        "EXT-X-INDEPENDENT-SEGMENTS" => playlist.independent_segments = true,
        "EXT-X-DEFINE" => return Err(Fault::Variables),
        "EXT-X-MEDIA" => {
            let Some(rendition) = rendition(value)? else { return Ok(()) };
            if playlist.renditions.len() == RENDITIONS_MAX {
                return Err(Fault::Limit(Limit::Renditions));
            }
            playlist.renditions.push(rendition);
        }
        _ => {}
    }
    Ok(())
}

fn variant(value: &str) -> Result<Variant, Fault> {
    let attributes = Attributes::read(value)?;
    Ok(Variant {
        uri: String::new(),
        bandwidth: number::integer(attributes.required("BANDWIDTH")?)?,
        average_bandwidth: attributes.parsed("AVERAGE-BANDWIDTH", number::integer)?,
        codecs: attributes.text("CODECS"),
        resolution: attributes.parsed("RESOLUTION", resolution)?,
        frame_rate_milli: attributes.parsed("FRAME-RATE", frame_rate)?,
        audio: attributes.text("AUDIO"),
        video: attributes.text("VIDEO"),
        subtitles: attributes.text("SUBTITLES"),
        closed_captions: attributes.get("CLOSED-CAPTIONS").map(|group| match group {
            "NONE" => ClosedCaptions::None,
            group => ClosedCaptions::Group(group.to_owned()),
        }),
    })
}

/// Reads a rendition. `None` if RFC 8216 does not define its kind.
fn rendition(value: &str) -> Result<Option<Rendition>, Fault> {
    let attributes = Attributes::read(value)?;
    let name = attributes.required("TYPE")?;
    let Some(kind) = RenditionKind::ALL.into_iter().find(|kind| kind.name() == name) else { return Ok(None) };
    Ok(Some(Rendition {
        kind,
        group_id: attributes.required("GROUP-ID")?.to_owned(),
        name: attributes.text("NAME").unwrap_or_default(),
        language: attributes.text("LANGUAGE"),
        uri: attributes.text("URI"),
        default: attributes.is_yes("DEFAULT"),
        autoselect: attributes.is_yes("AUTOSELECT"),
        channels: attributes.text("CHANNELS"),
        instream_id: attributes.text("INSTREAM-ID"),
    }))
}

fn resolution(value: &str) -> Result<Resolution, Violation> {
    let (width, height) = value.split_once(['x', 'X']).ok_or(Violation::Number)?;
    Ok(Resolution { width: number::integer(width)?, height: number::integer(height)? })
}

fn frame_rate(value: &str) -> Result<u64, Violation> {
    // A frame rate has the same grammar as a duration in seconds.
    u64::try_from(number::duration(value)?.as_millis()).map_err(|_| Violation::Number)
}
