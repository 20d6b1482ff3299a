//! RTP packets, header extensions, and the assembly of frames.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pyo3::prelude::*;
use rtp::extension::{Elements, Extension};
use rtp::payload::{self, Format, Part};
use rtp::{ExtensionBlock, SequenceNumber};

use crate::rtcp;
use crate::session;
use crate::value::Payload;

crate::error!(millstream.rtp, crate::Error);

/// Maximum number of frames that wait while payloads raise errors.
const FRAMES_MAX: usize = 64;

value! {
    /// An RTP packet.
    "millstream.rtp" Packet {
        /// For video: the end of a frame. For audio: the first packet after silence.
        marker: bool,
        /// Payload type.
        payload_type: u8,
        /// Sequence number, 16 bits.
        sequence_number: u16,
        /// Sampling time in ticks of the payload type's clock, 32 bits.
        timestamp: u32,
        /// Source.
        ssrc: u32,
        /// Contributing sources of a mixer.
        csrcs: Vec<u32>,
        /// Profile of the extension block; `None` if there is none.
        extension_profile: Option<u16>,
        /// Payload without padding.
        payload: Payload,
        /// Number of bytes of padding.
        padding: u8,
    }
    hidden {
        block: Payload,
    }

    /// Reads a packet that is not encrypted.
    #[staticmethod]
    fn read(data: Cow<'_, [u8]>) -> PyResult<Self> {
        let packet = rtp::Packet::read(&data).map_err(error)?;
        let header = packet.header;
        Ok(Self {
            marker: header.marker,
            payload_type: header.payload_type.number(),
            sequence_number: header.sequence_number.value(),
            timestamp: header.timestamp,
            ssrc: header.ssrc.value(),
            csrcs: header.csrcs.iter().map(rtp::Ssrc::value).collect(),
            extension_profile: header.extension.map(|block| block.profile),
            payload: Payload::copy(packet.payload),
            padding: packet.padding,
            block: Payload::copy(header.extension.map_or(&[], |block| block.bytes)),
        })
    }

    /// Values of the extension block by their ids (RFC 8285); empty for a block of another profile.
    #[getter]
    fn extensions(&self) -> BTreeMap<u8, Payload> {
        self.block().into_iter().flat_map(Elements::of).map(|(id, value)| (id, Payload::copy(value))).collect()
    }
}

impl Packet {
    fn block(&self) -> Option<ExtensionBlock<'_>> {
        self.extension_profile.map(|profile| ExtensionBlock { profile, bytes: &self.block.0 })
    }
}

/// Ids of the header extensions of a session.
#[pyclass(frozen, module = "millstream.rtp")]
#[derive(Debug)]
pub(crate) struct ExtensionMap {
    map: rtp::extension::ExtensionMap,
}

#[pymethods]
impl ExtensionMap {
    /// Makes a map of ids and the URIs of extensions. Unknown URIs are left out.
    #[new]
    fn new(uris: BTreeMap<u8, String>) -> PyResult<Self> {
        let mut map = rtp::extension::ExtensionMap::new();
        for (id, uri) in &uris {
            if let Some(extension) = Extension::from_uri(uri)
                && !map.insert(extension, *id)
            {
                return Err(error(format!("{id} is no id of an extension")));
            }
        }
        Ok(Self { map })
    }

    /// Makes the map of a media section.
    #[staticmethod]
    fn of(media: &session::Media) -> Self {
        Self { map: rtp::extension::ExtensionMap::of(media.extmap_lines()) }
    }

    /// Reads the values of a packet.
    fn read(&self, packet: &Packet) -> Extensions {
        let values = self.map.read(packet.block());
        let ms = |delay: std::time::Duration| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        Extensions {
            mid: values.mid.map(str::to_owned),
            rid: values.rid.map(str::to_owned),
            repaired_rid: values.repaired_rid.map(str::to_owned),
            audio_level: values.audio_level.map(|level| (level.voice, level.level)),
            abs_send_time: values.abs_send_time.map(rtp::extension::AbsSendTime::value),
            transport_sequence: values.transport_sequence,
            playout_delay_ms: values.playout_delay.map(|delay| (ms(delay.min), ms(delay.max))),
            video_orientation: values.video_orientation,
            abs_capture_time: values.abs_capture_time.map(rtp::NtpTime::value),
            dependency_descriptor: values.dependency_descriptor.map(Payload::copy),
        }
    }
}

value! {
    /// Values of a packet's header extensions. A value is `None` if it is absent or malformed.
    "millstream.rtp" Extensions {
        /// Media section.
        mid: Option<String>,
        /// Simulcast layer.
        rid: Option<String>,
        /// Simulcast layer that a retransmission belongs to.
        repaired_rid: Option<String>,
        /// Whether it is speech, and the level in -dBov.
        audio_level: Option<(bool, u8)>,
        /// Time of sending: seconds as 6.18 fixed point.
        abs_send_time: Option<u32>,
        /// Transport-wide sequence number.
        transport_sequence: Option<u16>,
        /// Least and largest delay that the sender requests, in milliseconds.
        playout_delay_ms: Option<(u64, u64)>,
        /// Rotation and camera, as the raw byte.
        video_orientation: Option<u8>,
        /// Time of capture: seconds since 1900 as 32.32 fixed point.
        abs_capture_time: Option<u64>,
        /// Dependency descriptor.
        dependency_descriptor: Option<Payload>,
    }
}

value! {
    /// A complete access unit: NAL units with lengths of 4 bytes, OBUs with sizes, or a frame of audio.
    "millstream.rtp" Frame {
        /// Presentation time in ticks of the clock rate, 32 bits.
        timestamp: u32,
        /// True if a decoder can start here; always false for audio.
        key_frame: bool,
        /// Media data.
        payload: Payload,
    }
}

value! {
    /// Counters of a depacketizer.
    "millstream.rtp" DepacketizerStats {
        /// Frames returned.
        frames: u64,
        /// Frames dropped because packets were missing or malformed.
        dropped: u64,
        /// Malformed payloads.
        malformed: u64,
        /// Packets of another payload type, or out of order.
        ignored: u64,
    }
}

/// Assembles the frames of one source from its packets, in the order in which they were sent.
///
/// Gaps in the sequence numbers drop the frames that they damage. Packets of other payload types, and packets that
/// come late or twice, are ignored and counted.
#[pyclass(module = "millstream.rtp")]
#[derive(Debug)]
pub(crate) struct Depacketizer {
    payload_type: u8,
    machine: payload::Depacketizer,
    next: Option<SequenceNumber>,
    ready: Vec<Frame>,
    ignored: u64,
}

#[pymethods]
impl Depacketizer {
    /// Makes the depacketizer of a format of a description.
    #[new]
    fn new(format: &session::Format) -> PyResult<Self> {
        let unsupported = || error(format!("{} is not supported", format.encoding));
        let described = Format::of_description(format.described()).map_err(error)?.ok_or_else(unsupported)?;
        Ok(Self {
            payload_type: format.payload_type,
            machine: payload::Depacketizer::new(described).map_err(error)?,
            next: None,
            ready: Vec::new(),
            ignored: 0,
        })
    }

    /// Takes a packet. Returns the frames that it completes.
    fn push(&mut self, packet: &Packet) -> PyResult<Vec<Frame>> {
        let number = SequenceNumber(packet.sequence_number);
        let is_late = self.next.is_some_and(|next| number != next && !number.is_newer_than(next));
        if packet.payload_type != self.payload_type || is_late {
            self.ignored += 1;
            return Ok(Vec::new());
        }
        let gap = self.next.is_some_and(|next| number != next);
        self.next = Some(number.next());
        if packet.payload.0.is_empty() {
            // Padding between frames.
            return Ok(Vec::new());
        }
        let (timestamp, marker, payload) = (packet.timestamp, packet.marker, &packet.payload.0[..]);
        let taken = self.machine.handle_part(&Part { timestamp, marker, gap, payload });
        while let Some(frame) = self.machine.poll_frame() {
            if self.ready.len() < FRAMES_MAX || taken.is_ok() {
                let (timestamp, key_frame) = (frame.timestamp, frame.key_frame);
                self.ready.push(Frame { timestamp, key_frame, payload: Payload(frame.payload) });
            }
        }
        taken.map_err(error)?;
        Ok(std::mem::take(&mut self.ready))
    }

    /// The counters so far.
    #[getter]
    fn stats(&self) -> DepacketizerStats {
        let payload::Stats { frames, dropped, malformed } = self.machine.stats();
        DepacketizerStats { frames, dropped, malformed, ignored: self.ignored }
    }
}

/// Returns whether a datagram on a port shared by RTP and RTCP is RTCP (RFC 5761).
#[pyfunction]
fn is_rtcp(data: Cow<'_, [u8]>) -> bool {
    rtp::is_rtcp(&data)
}

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Packet>()?;
    module.add_class::<ExtensionMap>()?;
    module.add_class::<Extensions>()?;
    module.add_class::<Frame>()?;
    module.add_class::<Depacketizer>()?;
    module.add_class::<DepacketizerStats>()?;
    module.add_function(wrap_pyfunction!(is_rtcp, module)?)?;
    rtcp::fill(module)
}
