//! AAC as plain ADTS (ISO/IEC 14496-3 §1.A.3.2). Some cameras send it although they announce RFC 3640 or LATM.

use bytes::Bytes;
use media::codec::aac::{Adts, Config};

use super::Frame;
use super::frames::Out;

/// Unwraps ADTS frames and remembers their headers.
#[derive(Debug, Default)]
pub(super) struct Reader {
    config: Option<Config>,
}

impl Reader {
    pub(super) const fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// Outputs the frames if the bytes consist entirely of ADTS frames; otherwise returns false. `ticks` returns the
    /// timestamp distance between two frames of a configuration. Raw AAC cannot be mistaken for ADTS, because raw AAC
    /// with the first bits of ADTS would begin with an end element.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        timestamp: u32,
        ticks: impl Fn(Option<&Config>) -> u32,
        out: &mut Out<'_>,
    ) -> bool {
        if !is_adts(bytes) {
            return false;
        }
        let (mut rest, mut timestamp) = (bytes, timestamp);
        while let Some((adts, raw, behind)) = split_frame(rest) {
            self.learn(&adts);
            out.give(Frame::new(timestamp, false, Bytes::copy_from_slice(raw)));
            timestamp = timestamp.wrapping_add(ticks(self.config()));
            rest = behind;
        }
        true
    }

    fn learn(&mut self, adts: &Adts) {
        let is_known = self.config.as_ref().is_some_and(|config| {
            config.object_type == u32::from(adts.object_type)
                && config.sample_rate == adts.sample_rate
                && config.channel_configuration == adts.channel_configuration
        });
        if !is_known {
            self.config = Config::of_adts(adts).ok().or_else(|| self.config.take());
        }
    }
}

/// True if the bytes consist of one or more ADTS frames and nothing else.
pub(super) fn is_adts(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some((_, _, behind)) = split_frame(rest) {
        rest = behind;
    }
    rest.is_empty() && !bytes.is_empty()
}

/// Splits off the first frame: its header, its data, and the remaining bytes.
fn split_frame(bytes: &[u8]) -> Option<(Adts, &[u8], &[u8])> {
    // The data blocks within a frame cannot be separated, so only frames with one block are accepted.
    let adts = Adts::read(bytes).ok().filter(|adts| adts.blocks == 1)?;
    let (frame, rest) = bytes.split_at_checked(adts.frame_bytes)?;
    Some((adts, frame.get(adts.header_bytes..)?, rest))
}
