//! AAC as `MP4A-LATM` (RFC 6416 §6): an audioMuxElement of ISO/IEC 14496-3 in one packet, or in several, the
//! last of which has the marker bit. If the first element is ADTS, all are treated as ADTS.

use bytes::BytesMut;
use media::codec::{aac, latm};

use super::aac::frame_ticks;
use super::frames::Out;
use super::{Error, Frame, Part, adts};

/// Maximum size of an audioMuxElement, in bytes: more than 64 frames of AAC LC need at the highest bit rate.
const ELEMENT_BYTES_MAX: usize = 1 << 17;
/// Ticks of a frame with unknown configuration.
const FRAME_TICKS: u32 = 1024;

/// Depacketizer of `MP4A-LATM`; see [`super::Depacketizer`].
#[derive(Debug)]
pub(super) struct Depacketizer {
    reader: latm::Reader,
    in_band: bool,
    clock_rate: u32,
    adts: adts::Reader,
    /// True if elements are ADTS; `None` before the first.
    is_adts: Option<bool>,
    element: BytesMut,
    timestamp: u32,
    broken: bool,
}

impl Depacketizer {
    /// Creates a depacketizer with the StreamMuxConfig of the description. If `config` is `None`, each
    /// element states whether it contains a StreamMuxConfig.
    pub(super) fn new(config: Option<&[u8]>, clock_rate: u32) -> Result<Self, Error> {
        let reader = match config {
            Some(config) => {
                latm::Reader::of_config(config).map_err(|_| Error::Unsupported("StreamMuxConfig"))?
            }
            None => latm::Reader::new(),
        };
        let in_band = config.is_none();
        Ok(Self {
            reader,
            in_band,
            clock_rate,
            adts: adts::Reader::default(),
            is_adts: None,
            element: BytesMut::new(),
            timestamp: 0,
            broken: false,
        })
    }

    pub(super) const fn config(&self) -> Option<&aac::Config> {
        match self.adts.config() {
            Some(config) => Some(config),
            None => self.reader.config(),
        }
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
            // Packets are missing, so this packet may not be the start of an element. It is dropped, because one more
            // missing frame is better than a frame decoded as noise.
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
        // Some senders of ADTS do not set the marker bit.
        let is_whole = part.marker || self.is_adts != Some(false) && adts::is_adts(&self.element);
        if !is_whole {
            return Ok(());
        }
        let element = self.element.split();
        if core::mem::take(&mut self.broken) {
            return Ok(());
        }
        let is_adts = *self.is_adts.get_or_insert_with(|| adts::is_adts(&element));
        if is_adts {
            self.take_adts(part.timestamp, &element, out)
        } else {
            self.take_latm(part, &element, out)
        }
    }

    fn take_adts(&mut self, timestamp: u32, element: &[u8], out: &mut Out<'_>) -> Result<(), Error> {
        let clock_rate = self.clock_rate;
        if self.adts.take(element, timestamp, |config| ticks_of(config, clock_rate), out) {
            return Ok(());
        }
        out.drop_frame();
        Err(Error::Malformed("ADTS"))
    }

    fn take_latm(&mut self, part: &Part<'_>, element: &[u8], out: &mut Out<'_>) -> Result<(), Error> {
        let frames = self.reader.read_element(element, self.in_band).map_err(|_| {
            out.drop_frame();
            Error::Malformed("audioMuxElement")
        })?;
        let (mut timestamp, ticks) = (part.timestamp, ticks_of(self.reader.config(), self.clock_rate));
        for payload in frames {
            out.give(Frame::new(timestamp, false, payload));
            timestamp = timestamp.wrapping_add(ticks);
        }
        Ok(())
    }

    fn give_up(&mut self, out: &mut Out<'_>) {
        self.element.clear();
        if !core::mem::replace(&mut self.broken, true) {
            out.drop_frame();
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.element.len()
    }
}

fn ticks_of(config: Option<&aac::Config>, clock_rate: u32) -> u32 {
    config.and_then(|config| frame_ticks(config, clock_rate)).unwrap_or(FRAME_TICKS)
}
