//! Audio that needs no format of its own: an Opus packet (RFC 7587 §4.2) or samples of G.711 (RFC 3551 §4.5.14).

use bytes::Bytes;

use super::frames::Out;
use super::{Error, Frame, Part, Payloads};

/// Packetises the unit as one packet.
pub(super) fn packetize_whole(unit: &[u8], out: &mut Payloads) -> Result<(), Error> {
    if !unit.is_empty() {
        out.push(&[unit]);
    }
    Ok(())
}

/// Samples may be cut anywhere; those behind the first `max` have a later timestamp, which the caller gives by their
/// number: a byte is a sample of one channel.
pub(super) fn packetize_samples(unit: &[u8], max: usize, out: &mut Payloads) -> Result<(), Error> {
    // Even, so that two channels stay together.
    unit.chunks(max & !1).for_each(|samples| out.push(&[samples]));
    Ok(())
}

/// A frame for each packet; nothing follows from a gap.
pub(super) fn handle_whole(part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
    if !part.payload.is_empty() {
        let payload = Bytes::copy_from_slice(part.payload);
        out.give(Frame { timestamp: part.timestamp, key_frame: false, payload });
    }
    Ok(())
}
