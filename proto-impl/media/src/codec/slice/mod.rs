//! The length of slice headers (H.264 §7.3.3, H.265 §7.3.6.1). Sample encryption does not encrypt the
//! headers, so that a decoder can read them before it decrypts the slice (ISO/IEC 23001-7 §9.5.2).
//!
//! A header has no length field. Its end is found by reading all of its fields, which requires the parameter
//! sets to which it refers. Extensions for scalable, multiview and screen content are not supported.

mod h264;
mod h265;

use wire::BitReader;

use super::CodecConfig;
use crate::nal::unescape;

/// Maximum number of bytes at the start of a NAL unit in which a header is read. A header usually has a few
/// dozen bytes, or a few hundred with weights for many reference pictures.
const HEADER_BYTES_MAX: usize = 1024;
/// Maximum number of parameter sets of one kind.
const SETS_MAX: usize = 64;

/// Finds the length of slice headers, with the parameter sets of a track.
#[derive(Debug, Clone)]
pub struct SliceHeaders(Sets);

#[derive(Debug, Clone)]
enum Sets {
    H264(h264::Sets),
    H265(h265::Sets),
}

impl SliceHeaders {
    /// Creates the reader for a track with this configuration. `None` if its codec has no NAL units.
    #[must_use]
    pub fn of(config: &CodecConfig) -> Option<Self> {
        if let CodecConfig::H264(config) = config {
            let mut sets = h264::Sets::default();
            config.parameter_sets().for_each(|set| sets.note(set));
            return Some(Self(Sets::H264(sets)));
        }
        let CodecConfig::H265(config) = config else { return None };
        let mut sets = h265::Sets::default();
        config.parameter_sets().for_each(|set| sets.note(set));
        Some(Self(Sets::H265(sets)))
    }

    /// Creates the reader for a track of H.264 whose parameter sets are not known yet: [`SliceHeaders::note`] adds them.
    #[must_use]
    pub fn h264() -> Self {
        Self(Sets::H264(h264::Sets::default()))
    }

    /// Remembers a parameter set. Other NAL units are ignored.
    pub fn note(&mut self, nal: &[u8]) {
        match &mut self.0 {
            Sets::H264(sets) => sets.note(nal),
            Sets::H265(sets) => sets.note(nal),
        }
    }

    /// True if a NAL unit carries a slice.
    #[must_use]
    pub fn is_slice(&self, nal: &[u8]) -> bool {
        match &self.0 {
            Sets::H264(_) => super::h264::is_picture(nal),
            Sets::H265(_) => super::h265::is_picture(nal),
        }
    }

    /// Returns frame_num of a slice of H.264, and its number of bits (H.264 §7.4.3). `nal` may be truncated
    /// after the slice header. `None` if the slice belongs to a field, because two fields have the same
    /// frame_num, or if the number cannot be read.
    #[must_use]
    pub fn frame_num(&self, nal: &[u8]) -> Option<(u32, u32)> {
        let Sets::H264(sets) = &self.0 else { return None };
        let rbsp = unescape(nal.get(1..)?);
        sets.frame_num(&mut BitReader::new(&rbsp))
    }

    /// Returns the number of bytes from the start of a slice's NAL unit to the end of its header, including
    /// the byte within which the header ends. `None` if the header cannot be read.
    #[must_use]
    pub fn length(&self, nal: &[u8]) -> Option<usize> {
        let head = nal.get(..HEADER_BYTES_MAX).unwrap_or(nal);
        let (rbsp, skipped) = match &self.0 {
            Sets::H264(_) => (unescape(head.get(1..)?), 1),
            Sets::H265(_) => (unescape(head.get(2..)?), 2),
        };
        let mut bits = BitReader::new(&rbsp);
        match &self.0 {
            Sets::H264(sets) => sets.skip_header(nal, &mut bits)?,
            Sets::H265(sets) => sets.skip_header(nal, &mut bits)?,
        }
        let passed = rbsp.len().checked_sub(bits.remaining() / 8)?;
        escaped_length(head.get(skipped..)?, passed).map(|length| length.saturating_add(skipped))
    }
}

/// Returns the number of bytes of `nal` that encode the first `bytes` bytes of its content. Emulation
/// prevention bytes among them are counted.
fn escaped_length(nal: &[u8], bytes: usize) -> Option<usize> {
    let (mut zeros, mut passed) = (0, 0usize);
    for (at, &byte) in nal.iter().enumerate() {
        if passed == bytes {
            return Some(at);
        }
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        passed = passed.saturating_add(1);
    }
    (passed == bytes).then_some(nal.len())
}

/// Returns the number of bits needed to distinguish `count` values: Ceil( Log2( count ) ).
const fn bits_for(count: u32) -> u32 {
    match count.checked_sub(1) {
        Some(last) => u32::BITS - last.leading_zeros(),
        None => 0,
    }
}

#[cfg(test)]
mod tests;
