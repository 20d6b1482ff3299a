//! Code shared by the decoders that use symphonia, which is safe Rust.

use symphonia_core::codecs::audio::{AudioCodecId, AudioCodecParameters, AudioDecoder};
use symphonia_core::packet::PacketRef;
use symphonia_core::units::{Duration, Timestamp};

use crate::fold;

/// Makes the parameters of a codec with its record.
pub(super) fn parameters(codec: AudioCodecId, record: &[u8]) -> AudioCodecParameters {
    let mut parameters = AudioCodecParameters::new();
    parameters.for_codec(codec);
    if !record.is_empty() {
        parameters.with_extra_data(record.into());
    }
    parameters
}

/// Decodes a frame and appends it as stereo. Returns its rate, or `None` if it is damaged.
pub(super) fn decode(
    decoder: &mut impl AudioDecoder,
    frame: &[u8],
    scratch: &mut Vec<f32>,
    out: &mut Vec<f32>,
) -> Option<u32> {
    let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, frame);
    let buffer = decoder.decode_ref(&packet).ok()?;
    buffer.copy_to_vec_interleaved(scratch);
    // For one or two channels, the order is the same in all codecs.
    fold::vorbis(scratch, buffer.num_planes(), out);
    Some(buffer.spec().rate())
}
