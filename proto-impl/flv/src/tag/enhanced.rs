//! Parts that audio and video bodies of Enhanced RTMP v2 have in common: modifiers of the packet type, FourCCs,
//! multiple tracks.
//!
//! ```text
//! first byte (ends in the packet type) | ModEx ... | Multitrack: kind(4) packet type(4) | FourCC | body
//!                                                  | ... one track:   FourCC | id | body
//!                                                  | ... many:        FourCC | (id | size(3) | body) ...
//!                                                  | ... many codecs: (FourCC | id | size(3) | body) ...
//! ```

use alloc::vec::Vec;

use wire::Reader;

use crate::Error;

/// Packet type of a modifier that precedes the real one.
const MOD_EX: u8 = 7;
/// modExType of a nanosecond offset to the timestamp.
const TIMESTAMP_OFFSET_NANO: u8 = 0;
/// Largest nanosecond offset, just below a millisecond.
const NANOS_MAX: u32 = 999_999;
/// Maximum number of tracks in one body.
const TRACKS_MAX: usize = 65;

/// Track sent to players that do not support multitrack.
pub(super) const DEFAULT_TRACK: u8 = 0;

/// A packet of one track in a multitrack body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackPacket<T> {
    /// Track id; 0 is the default track of its kind.
    pub id: u8,
    /// FourCC of the codec.
    pub four_cc: [u8; 4],
    /// The packet, or the reason why it cannot be read. The packets of other tracks can still be read.
    pub tag: Result<T, Error>,
}

/// Returns the packet of the default track.
pub(super) fn default_of<T>(packets: Vec<TrackPacket<T>>) -> Result<T, Error> {
    let default = packets.into_iter().find(|packet| packet.id == DEFAULT_TRACK);
    default.map_or(Err(Error::NoDefaultTrack), |packet| packet.tag)
}

/// Reads modifiers until the real packet type. Returns the packet type and the modifiers' nanosecond offset, which is
/// 0 if they have none.
pub(super) fn read_modifiers(r: &mut Reader<'_>, first: u8) -> Result<(u8, u32), Error> {
    let (mut packet, mut nanos) = (first, 0);
    while packet == MOD_EX {
        let mut size = usize::from(r.u8()?) + 1;
        if size == 256 {
            size = usize::from(r.u16()?) + 1;
        }
        let mut data = r.sub(size)?;
        let [kind, next] = nibbles(r.u8()?);
        // Unknown modifiers are ignored: they do not change how the packet is read.
        if kind == TIMESTAMP_OFFSET_NANO {
            nanos = data.u24()?.min(NANOS_MAX);
        }
        packet = next;
    }
    Ok((packet, nanos))
}

/// Part of a body that belongs to one track.
pub(super) struct Part<'a> {
    pub(super) id: u8,
    pub(super) four_cc: [u8; 4],
    pub(super) body: Reader<'a>,
}

/// Reads the tracks of a multitrack body, and their common packet type. `multitrack` is the packet type of multitrack
/// bodies; it must not occur inside of one.
pub(super) fn read_tracks<'a>(r: &mut Reader<'a>, multitrack: u8) -> Result<(u8, Vec<Part<'a>>), Error> {
    let [kind, packet] = nibbles(r.u8()?);
    if packet == multitrack {
        return Err(Error::NestedMultitrack);
    }
    let (single, shared) = match kind {
        0 => (true, Some(r.array()?)),
        1 => (false, Some(r.array()?)),
        2 => (false, None),
        other => return Err(Error::UnknownMultitrack(other)),
    };
    let mut tracks = Vec::new();
    while !r.is_empty() {
        let four_cc = shared.map_or_else(|| r.array(), Ok)?;
        let id = r.u8()?;
        let body = if single {
            Reader::new(r.rest())
        } else {
            let size = usize::try_from(r.u24()?).unwrap_or(usize::MAX);
            r.sub(size)?
        };
        if tracks.len() >= TRACKS_MAX {
            return Err(Error::TooManyTracks);
        }
        tracks.push(Part { id, four_cc, body });
    }
    Ok((packet, tracks))
}

/// Returns the two halves of a byte, the high one first.
pub(super) const fn nibbles(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0x0f]
}
