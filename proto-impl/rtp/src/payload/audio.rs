//! Audio without payload headers: an Opus packet (RFC 7587 §4.2) or samples of G.711 (RFC 3551 §4.5.14).

use bytes::Bytes;

use super::frames::Out;
use super::{Error, Frame, Part, Payloads};

/// Packetizes the unit as one packet.
pub(super) fn packetize_whole(unit: &[u8], out: &mut Payloads) -> Result<(), Error> {
    if !unit.is_empty() {
        out.push(&[unit]);
    }
    Ok(())
}

/// Packetizes samples, which may be divided anywhere. Payloads after the first have later timestamps, which the
/// caller derives from the number of samples: one byte per sample and channel.
pub(super) fn packetize_samples(unit: &[u8], max: usize, out: &mut Payloads) -> Result<(), Error> {
    // An even size keeps the samples of both channels together.
    unit.chunks(max & !1).for_each(|samples| out.push(&[samples]));
    Ok(())
}

/// Outputs each payload as a frame. Missing packets do not affect later frames.
pub(super) fn handle_whole(part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
    if !part.payload.is_empty() {
        let payload = Bytes::copy_from_slice(part.payload);
        out.give(Frame::new(part.timestamp, false, payload));
    }
    Ok(())
}
