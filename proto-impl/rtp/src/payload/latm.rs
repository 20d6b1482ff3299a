//! AAC as `MP4A-LATM` (RFC 6416 §6): an audioMuxElement of ISO/IEC 14496-3 in one packet or several, the last of which
//! has the marker bit.

use bytes::BytesMut;
use media::codec::{aac, latm};

use super::frames::Out;
use super::{Error, Frame, Part};

/// Bytes of an audioMuxElement: more than 64 frames of AAC LC need at the highest bit rate.
const ELEMENT_BYTES_MAX: usize = 1 << 17;
/// Samples of a frame.
const FRAME_SAMPLES: u32 = 1024;

/// See [`super::Depacketizer`].
#[derive(Debug)]
pub(super) struct Depacketizer {
    reader: latm::Reader,
    in_band: bool,
    element: BytesMut,
    timestamp: u32,
    broken: bool,
}

impl Depacketizer {
    /// Uses the StreamMuxConfig of the description; with `None` each element says whether it has one.
    pub(super) fn new(config: Option<&[u8]>) -> Result<Self, Error> {
        let reader = match config {
            Some(config) => {
                latm::Reader::of_config(config).map_err(|_| Error::Unsupported("StreamMuxConfig"))?
            }
            None => latm::Reader::new(),
        };
        let in_band = config.is_none();
        Ok(Self { reader, in_band, element: BytesMut::new(), timestamp: 0, broken: false })
    }

    pub(super) const fn config(&self) -> Option<&aac::Config> {
        self.reader.config()
    }

    pub(super) fn handle_part(&mut self, part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if part.payload.is_empty() {
            return Ok(());
        }
        if part.timestamp != self.timestamp && !self.element.is_empty() {
            self.give_up(out);
            self.broken = false;
        }
        if part.gap {
            // Whether this packet begins an element cannot be told: a frame more is lost, rather than noise made.
            self.give_up(out);
        }
        self.timestamp = part.timestamp;
        if self.element.len().saturating_add(part.payload.len()) > ELEMENT_BYTES_MAX {
            self.give_up(out);
            return Err(Error::FrameTooLarge);
        }
        if !self.broken {
            self.element.extend_from_slice(part.payload);
        }
        if !part.marker {
            return Ok(());
        }
        let element = self.element.split();
        if std::mem::take(&mut self.broken) {
            return Ok(());
        }
        let frames = self.reader.read_element(&element, self.in_band).map_err(|_| {
            out.drop_frame();
            Error::Malformed("audioMuxElement")
        })?;
        let mut timestamp = part.timestamp;
        for payload in frames {
            out.give(Frame { timestamp, key_frame: false, payload });
            timestamp = timestamp.wrapping_add(FRAME_SAMPLES);
        }
        Ok(())
    }

    fn give_up(&mut self, out: &mut Out<'_>) {
        self.element.clear();
        if !std::mem::replace(&mut self.broken, true) {
            out.drop_frame();
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.element.len()
    }
}
