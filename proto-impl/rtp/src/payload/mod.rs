//! Payload formats: converts access units to packet payloads and back.
//!
//! A [`Packetizer`] divides a unit into [`Payloads`], which all viewers of a stream share; packet headers, which differ
//! between viewers, are written elsewhere. Fragments of one unit are of **equal size**, except that the last may be
//! smaller, so that a frame can be sent with segmentation offload. With [`Packetizer::even`], frames of several slices
//! can be sent in this way too, with the help of padding.
//!
//! A [`Depacketizer`] takes the [`Part`]s of one source in the order of their sequence numbers, with a flag
//! where packets are missing. It returns complete [`Frame`]s in the format of access units: NAL units with
//! 4-byte lengths, including their parameter sets; OBUs with sizes; raw audio frames. A frame with missing data
//! is dropped and counted; the caller decides whether to request a key frame.
//!
//! | codec | format | read | written |
//! |---|---|---|---|
//! | H.264 | RFC 6184 | single NAL unit, STAP-A, FU-A | the same |
//! | H.265 | RFC 7798 | single NAL unit, AP, FU; no DONL | the same |
//! | VP8 | RFC 7741 | all descriptors | no picture ids |
//! | VP9 | RFC 9628 | all descriptors; layers become a superframe, or frames of their own | non-flexible, no picture ids |
//! | AV1 | AV1 RTP 1.0 | all | up to three elements in a packet |
//! | Opus | RFC 7587 | all; redundant frames ([`RedPacket`]) | all |
//! | AAC | RFC 3640 | no interleaving; bare ADTS | AAC-hbr |
//! | AAC in LATM | RFC 6416 | one program, one layer; bare ADTS | no |
//! | MP3 | RFC 2250 | all | all |
//! | G.711 | RFC 3551 §4.5.14 | all | all |

mod aac;
mod adts;
mod audio;
mod av1;
mod continuity;
mod describe;
mod even;
mod fragments;
mod frames;
mod h264;
mod h265;
mod latm;
mod layers;
mod mpeg_audio;
mod nal_units;
mod red;
#[cfg(test)]
mod tests;
mod vp8;
mod vp9;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};
use media::codec::{Codec, CodecConfig};
use wire::Truncated;

use crate::dependency::FrameLayer;

pub use aac::Mpeg4Generic;
pub use continuity::Continuity;
pub use describe::codec_of_description;
use frames::Frames;
pub use red::{RED_BLOCKS_MAX, RedBlock, RedPacket};

/// Maximum size of an assembled access unit, in bytes: the size that the server accepts over any protocol.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Minimum payload size for a packetizer, in bytes: with less, headers would leave no room for media.
pub const PAYLOAD_BYTES_MIN: usize = 64;

/// Reason for refusing a payload, or for not packetizing a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The payload is truncated.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// A field has a value not allowed by the format.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The payload uses an unsupported form of the format.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The frame would exceed [`FRAME_BYTES_MAX`].
    #[error("frame of more than {FRAME_BYTES_MAX} bytes")]
    FrameTooLarge,
    /// The unit's NAL lengths or OBU sizes are inconsistent, which is a bug in its producer.
    #[error("access unit is not in its own format")]
    BadUnit,
}

/// The part of a packet that a depacketizer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// RTP timestamp.
    pub timestamp: u32,
    /// Marker bit: for video, the end of a frame.
    pub marker: bool,
    /// Packets before this one are lost for good.
    pub gap: bool,
    /// Payload without padding.
    pub payload: &'a [u8],
}

/// A complete access unit of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// RTP timestamp: presentation time in ticks of the clock rate.
    pub timestamp: u32,
    /// True if a decoder can start here; always false for audio.
    pub key_frame: bool,
    /// Media data, in the format that `media::AccessUnit` describes.
    pub payload: Bytes,
    /// Spatial layer of the picture.
    pub layer: SpatialLayer,
}

impl Frame {
    /// Creates a frame without spatial layers.
    #[must_use]
    pub const fn new(timestamp: u32, key_frame: bool, payload: Bytes) -> Self {
        Self { timestamp, key_frame, payload, layer: SpatialLayer { index: 0, top: 0, size: None } }
    }
}

/// Spatial layer that a frame shows. [`Depacketizer::with_layers`] outputs a frame for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpatialLayer {
    /// Number of the layer; 0 is the lowest.
    pub index: u8,
    /// Number of the highest layer since the last key frame; 0 for pictures without layers.
    pub top: u8,
    /// Largest width and height of the layer's pictures, if its key frame came with a dependency descriptor that states
    /// them.
    pub size: Option<(u32, u32)>,
}

/// Counters of a depacketizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames output.
    pub frames: u64,
    /// Frames dropped because packets were missing or malformed.
    pub dropped: u64,
    /// Malformed payloads.
    pub malformed: u64,
}

/// The payloads of one unit, contiguous in one allocation.
#[derive(Debug, Default)]
pub struct Payloads {
    bytes: BytesMut,
    ends: Vec<usize>,
    /// Number of padding bytes for each payload; payloads without an entry have none.
    padding: Vec<u8>,
}

impl Payloads {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of payloads.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there are no payloads.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes the payloads, as slices of one shared block. The last payload of a video frame must be sent with
    /// the marker bit.
    pub fn take(&mut self) -> impl ExactSizeIterator<Item = Bytes> + use<> {
        self.take_padded().map(|(payload, _)| payload)
    }

    /// Like [`Self::take`], but also returns the number of padding bytes for each payload (RFC 3550 §5.1), including
    /// the byte that contains this number. With its padding, a payload is as long as the longest one. The padding is
    /// not part of the returned payload; it is 0 without [`Packetizer::even`].
    pub fn take_padded(&mut self) -> impl ExactSizeIterator<Item = (Bytes, u8)> + use<> {
        let block = self.bytes.split().freeze();
        let padding = core::mem::take(&mut self.padding);
        let mut start = 0;
        core::mem::take(&mut self.ends).into_iter().enumerate().map(move |(n, end)| {
            let payload = block.slice(start..end);
            start = end;
            (payload, padding.get(n).copied().unwrap_or(0))
        })
    }

    /// Determines the padding of the payloads from index `first` on, `padding_max` bytes in total at most.
    fn pad(&mut self, first: usize, padding_max: usize) {
        let start = |index: usize| index.checked_sub(1).and_then(|last| self.ends.get(last)).copied();
        let length = |(index, end): (usize, &usize)| end.saturating_sub(start(index).unwrap_or(0));
        let lengths: Vec<usize> = self.ends.iter().enumerate().skip(first).map(length).collect();
        self.padding.resize(first, 0);
        self.padding.extend(even::padding(&lengths, padding_max));
    }

    /// Appends a payload consisting of these pieces.
    fn push(&mut self, pieces: &[&[u8]]) {
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        self.ends.push(self.bytes.len());
    }

    /// Reserves room for `bytes` more bytes.
    fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }
}

/// Packetizes the access units of one track.
#[derive(Debug)]
pub struct Packetizer {
    format: Outgoing,
    max: usize,
    even: bool,
}

#[derive(Debug)]
enum Outgoing {
    H264,
    H265,
    Vp8,
    Vp9,
    Av1,
    Aac,
    Mp3,
    /// Opus: each unit is one payload, without a payload header.
    Whole,
    /// G.711: payloads consist of samples alone, so units may be divided anywhere.
    G711,
}

impl Packetizer {
    /// Creates a packetizer for payloads of at most `payload_bytes_max`: the datagram size minus the RTP
    /// header, its extensions and the SRTP tag; at least [`PAYLOAD_BYTES_MIN`]. `None` for codecs not supported
    /// in RTP: FLAC, AC-3.
    #[must_use]
    pub fn new(codec: Codec, payload_bytes_max: usize) -> Option<Self> {
        let format = match codec {
            Codec::H264 => Outgoing::H264,
            Codec::H265 => Outgoing::H265,
            Codec::Vp8 => Outgoing::Vp8,
            Codec::Vp9 => Outgoing::Vp9,
            Codec::Av1 => Outgoing::Av1,
            Codec::Aac => Outgoing::Aac,
            Codec::Mp3 => Outgoing::Mp3,
            Codec::Opus => Outgoing::Whole,
            Codec::G711(_) => Outgoing::G711,
            Codec::Ac3 | Codec::Eac3 | Codec::Flac => return None,
        };
        Some(Self { format, max: payload_bytes_max.max(PAYLOAD_BYTES_MIN), even: false })
    }

    /// Divides all slices of a picture by a common length and computes padding ([`Payloads::take_padded`]), so that a
    /// frame can be sent with one call, or few. Padding and the headers of additional packets are at most 3 % of a
    /// unit.
    #[must_use]
    pub const fn even(self) -> Self {
        Self { even: true, ..self }
    }

    /// Appends the payloads of `unit`, whose codec configuration is `config`. The parameter sets of `config`
    /// are inserted before an H.264 or H.265 key frame that contains none. An Opus packet is never divided,
    /// whatever its size. If this fails, no payload of the unit is kept.
    pub fn packetize(
        &mut self,
        config: &CodecConfig,
        key_frame: bool,
        unit: &[u8],
        out: &mut Payloads,
    ) -> Result<(), Error> {
        let (bytes, count) = (out.bytes.len(), out.ends.len());
        let mut added_max = even::added_max(unit.len());
        let added = self.even.then_some(&mut added_max);
        out.reserve(unit.len().saturating_add(unit.len() / 32));
        let done = match &mut self.format {
            Outgoing::H264 => {
                nal_units::packetize::<h264::H264>(config, key_frame, unit, self.max, added, out)
            }
            Outgoing::H265 => {
                nal_units::packetize::<h265::H265>(config, key_frame, unit, self.max, added, out)
            }
            Outgoing::Vp8 => {
                vp8::packetize(unit, self.max, out);
                Ok(())
            }
            Outgoing::Vp9 => {
                vp9::packetize(key_frame, unit, self.max, out);
                Ok(())
            }
            Outgoing::Av1 => av1::packetize(key_frame, unit, self.max, out),
            Outgoing::Aac => aac::packetize(unit, self.max, out),
            Outgoing::Mp3 => mpeg_audio::packetize(unit, self.max, out),
            Outgoing::Whole => audio::packetize_whole(unit, out),
            Outgoing::G711 => audio::packetize_samples(unit, self.max, out),
        };
        if done.is_err() {
            out.bytes.truncate(bytes);
            out.ends.truncate(count);
        } else if self.even {
            out.pad(count, added_max);
        }
        done
    }
}

/// Payload format of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// H.264 in packetization modes 0 and 1.
    H264,
    /// H.265 without decoding order numbers.
    H265,
    /// VP8.
    Vp8,
    /// VP9.
    Vp9,
    /// AV1.
    Av1,
    /// Opus.
    Opus,
    /// G.711, either law.
    G711,
    /// MPEG audio layer III.
    Mp3,
    /// AAC as `mpeg4-generic`.
    Mpeg4Generic(Mpeg4Generic),
    /// AAC as `MP4A-LATM`.
    Mp4aLatm {
        /// StreamMuxConfig from the `config` parameter; `None` if it is sent in band (`cpresent=1`).
        config: Option<Bytes>,
        /// Clock rate of the timestamps, in ticks per second.
        clock_rate: u32,
    },
}

/// Assembles the frames of one source.
#[derive(Debug)]
pub struct Depacketizer {
    incoming: Incoming,
    ready: VecDeque<Frame>,
    stats: Stats,
}

#[derive(Debug)]
enum Incoming {
    H264(Frames<h264::Depacketizer>),
    H265(Frames<h265::Depacketizer>),
    Vp8(Frames<vp8::Depacketizer>),
    Vp9(Frames<vp9::Depacketizer>),
    Av1(Frames<av1::Depacketizer>),
    Whole,
    Mp3(mpeg_audio::Depacketizer),
    Mpeg4Generic(aac::Depacketizer),
    Mp4aLatm(latm::Depacketizer),
}

impl Depacketizer {
    /// Creates a depacketizer that starts with a source's first packet. Fails if the StreamMuxConfig is
    /// unsupported.
    pub fn new(format: Format) -> Result<Self, Error> {
        let incoming = match format {
            Format::H264 => Incoming::H264(Frames::default()),
            Format::H265 => Incoming::H265(Frames::default()),
            Format::Vp8 => Incoming::Vp8(Frames::default()),
            Format::Vp9 => Incoming::Vp9(Frames::default()),
            Format::Av1 => Incoming::Av1(Frames::default()),
            Format::Opus | Format::G711 => Incoming::Whole,
            Format::Mp3 => Incoming::Mp3(mpeg_audio::Depacketizer::default()),
            Format::Mpeg4Generic(parameters) => Incoming::Mpeg4Generic(aac::Depacketizer::new(parameters)),
            Format::Mp4aLatm { config, clock_rate } => {
                Incoming::Mp4aLatm(latm::Depacketizer::new(config.as_deref(), clock_rate)?)
            }
        };
        Ok(Self { incoming, ready: VecDeque::new(), stats: Stats::default() })
    }

    /// Outputs a frame for each spatial layer of a picture, the top layer first: each contains what a decoder of that
    /// layer needs, and lower layers only as far as it depends on them. Otherwise a picture is one frame, that of the top
    /// layer.
    #[must_use]
    pub fn with_layers(mut self) -> Self {
        match &mut self.incoming {
            Incoming::Vp9(frames) => frames.output_layers(),
            Incoming::Av1(frames) => frames.output_layers(),
            Incoming::H264(_)
            | Incoming::H265(_)
            | Incoming::Vp8(_)
            | Incoming::Whole
            | Incoming::Mp3(_)
            | Incoming::Mpeg4Generic(_)
            | Incoming::Mp4aLatm(_) => {}
        }
        self
    }

    /// True while a layer is not output because a decoder of it can only start with the next key frame
    /// ([`Self::with_layers`]).
    #[must_use]
    pub fn needs_key_frame(&self) -> bool {
        match &self.incoming {
            Incoming::Vp9(frames) => frames.needs_key_frame(),
            Incoming::Av1(frames) => frames.needs_key_frame(),
            Incoming::H264(_)
            | Incoming::H265(_)
            | Incoming::Vp8(_)
            | Incoming::Whole
            | Incoming::Mp3(_)
            | Incoming::Mpeg4Generic(_)
            | Incoming::Mp4aLatm(_) => false,
        }
    }

    /// Notes the dependency descriptor of a frame, before the last packet of its picture. The timestamp is that of the
    /// picture.
    pub fn note_layer(&mut self, timestamp: u32, layer: FrameLayer) {
        match &mut self.incoming {
            Incoming::Vp9(frames) => frames.note(timestamp, layer),
            Incoming::Av1(frames) => frames.note(timestamp, layer),
            Incoming::H264(_)
            | Incoming::H265(_)
            | Incoming::Vp8(_)
            | Incoming::Whole
            | Incoming::Mp3(_)
            | Incoming::Mpeg4Generic(_)
            | Incoming::Mp4aLatm(_) => {}
        }
    }

    /// Handles the next packet of the source. A malformed payload invalidates only its frame; the error is
    /// meant for logs.
    pub fn handle_part(&mut self, part: &Part<'_>) -> Result<(), Error> {
        let mut out = frames::Out { ready: &mut self.ready, stats: &mut self.stats };
        let taken = match &mut self.incoming {
            Incoming::H264(frames) => frames.handle_part(part, &mut out),
            Incoming::H265(frames) => frames.handle_part(part, &mut out),
            Incoming::Vp8(frames) => frames.handle_part(part, &mut out),
            Incoming::Vp9(frames) => frames.handle_part(part, &mut out),
            Incoming::Av1(frames) => frames.handle_part(part, &mut out),
            Incoming::Whole => audio::handle_whole(part, &mut out),
            Incoming::Mp3(depacketizer) => depacketizer.handle_part(part, &mut out),
            Incoming::Mpeg4Generic(depacketizer) => depacketizer.handle_part(part, &mut out),
            Incoming::Mp4aLatm(depacketizer) => depacketizer.handle_part(part, &mut out),
        };
        if taken.is_err() {
            self.stats.malformed += 1;
        }
        taken
    }

    /// Returns the next complete frame.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    /// Returns the AudioSpecificConfig received in band: from AAC in LATM, or from ADTS headers, which do not
    /// signal SBR.
    #[must_use]
    pub fn aac_config(&self) -> Option<&media::codec::aac::Config> {
        match &self.incoming {
            Incoming::Mp4aLatm(depacketizer) => depacketizer.config(),
            Incoming::Mpeg4Generic(depacketizer) => depacketizer.config(),
            Incoming::H264(_)
            | Incoming::H265(_)
            | Incoming::Vp8(_)
            | Incoming::Vp9(_)
            | Incoming::Av1(_)
            | Incoming::Whole
            | Incoming::Mp3(_) => None,
        }
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the bytes held for incomplete frames: at most [`FRAME_BYTES_MAX`] plus a packet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        match &self.incoming {
            Incoming::H264(frames) => frames.pending_bytes(),
            Incoming::H265(frames) => frames.pending_bytes(),
            Incoming::Vp8(frames) => frames.pending_bytes(),
            Incoming::Vp9(frames) => frames.pending_bytes(),
            Incoming::Av1(frames) => frames.pending_bytes(),
            Incoming::Whole => 0,
            Incoming::Mp3(depacketizer) => depacketizer.pending_bytes(),
            Incoming::Mpeg4Generic(depacketizer) => depacketizer.pending_bytes(),
            Incoming::Mp4aLatm(depacketizer) => depacketizer.pending_bytes(),
        }
    }
}
