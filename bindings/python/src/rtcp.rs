//! RTCP: the parts of a compound packet.

use std::borrow::Cow;

use pyo3::prelude::*;
use rtp::Ssrc;
use rtp::rtcp::{ExtendedReportBlock, Rtcp};

use crate::rtp_packet::error;
use crate::value::Payload;

value! {
    /// What a receiver reports about a source.
    "millstream.rtp" ReportBlock {
        /// Source.
        ssrc: u32,
        /// Packets lost since the last report, in 1/256.
        fraction_lost: u8,
        /// Packets lost since the beginning.
        cumulative_lost: i32,
        /// Highest sequence number, with the number of cycles in the upper 16 bits.
        highest_sequence: u32,
        /// Jitter in ticks.
        jitter: u32,
        /// Middle bits of the time of the last sender report.
        last_sender_report: u32,
        /// Delay since that report, in 1/65536 s.
        delay_since_report: u32,
    }
}

impl From<rtp::rtcp::ReportBlock> for ReportBlock {
    fn from(block: rtp::rtcp::ReportBlock) -> Self {
        Self {
            ssrc: block.ssrc.value(),
            fraction_lost: block.fraction_lost,
            cumulative_lost: block.cumulative_lost,
            highest_sequence: block.highest_sequence,
            jitter: block.jitter,
            last_sender_report: block.last_sender_report,
            delay_since_report: block.delay_since_report,
        }
    }
}

value! {
    /// Sender report (SR).
    "millstream.rtp" SenderReport {
        /// Source.
        ssrc: u32,
        /// Wall-clock time: seconds since 1900 as 32.32 fixed point.
        ntp: u64,
        /// The same time in ticks.
        rtp_timestamp: u32,
        /// Packets sent.
        packets: u32,
        /// Bytes of payload sent.
        octets: u32,
        /// Reports about other sources.
        blocks: Vec<ReportBlock>,
    }
}

value! {
    /// Receiver report (RR).
    "millstream.rtp" ReceiverReport {
        /// Reporter.
        ssrc: u32,
        /// Reports.
        blocks: Vec<ReportBlock>,
    }
}

value! {
    /// Source description (SDES).
    "millstream.rtp" SourceDescription {
        /// Source, type and text of each item; type 1 is the canonical name.
        items: Vec<(u32, u8, Payload)>,
    }
}

value! {
    /// End of sources (BYE).
    "millstream.rtp" Bye {
        /// Sources that leave.
        ssrcs: Vec<u32>,
        /// Reason.
        reason: Option<Payload>,
    }
}

value! {
    /// Request for lost packets (generic NACK).
    "millstream.rtp" Nack {
        /// Requester.
        sender: u32,
        /// Source of the media.
        media: u32,
        /// Sequence numbers of the lost packets.
        numbers: Vec<u16>,
    }
}

value! {
    /// Transport-wide arrival times.
    "millstream.rtp" TransportFeedback {
        /// Reporter.
        sender: u32,
        /// Any source of media on the transport.
        media: u32,
        /// Number of the report, 8 bits.
        feedback_count: u8,
        /// Transport-wide sequence number of each packet, and its time in microseconds; `None` if it had not arrived.
        arrivals: Vec<(u16, Option<i64>)>,
    }
}

value! {
    /// Request for a key frame (PLI).
    "millstream.rtp" Pli {
        /// Requester.
        sender: u32,
        /// Source of the media.
        media: u32,
    }
}

value! {
    /// Command to send a key frame (FIR).
    "millstream.rtp" Fir {
        /// Requester.
        sender: u32,
        /// Source and number of each command.
        entries: Vec<(u32, u8)>,
    }
}

value! {
    /// A receiver's estimate of its largest bitrate (REMB).
    "millstream.rtp" Remb {
        /// Receiver.
        sender: u32,
        /// Bits per second.
        bitrate: u64,
        /// Sources whose total rate it is.
        ssrcs: Vec<u32>,
    }
}

value! {
    /// Extended report (XR).
    "millstream.rtp" ExtendedReport {
        /// Reporter.
        sender: u32,
        /// Time of the receiver: seconds since 1900 as 32.32 fixed point.
        reference_time: Option<u64>,
        /// Source, middle bits of its reference time, and delay since then in 1/65536 s.
        delays: Vec<(u32, u32, u32)>,
        /// Types of the other blocks.
        other_blocks: Vec<u8>,
    }
}

value! {
    /// A part of another type.
    "millstream.rtp" OtherRtcp {
        /// Packet type.
        packet_type: u8,
        /// Count, subtype or format.
        count: u8,
    }
}

/// A part of a compound packet.
#[derive(IntoPyObject)]
enum Any {
    SenderReport(SenderReport),
    ReceiverReport(ReceiverReport),
    SourceDescription(SourceDescription),
    Bye(Bye),
    Nack(Nack),
    TransportFeedback(TransportFeedback),
    Pli(Pli),
    Fir(Fir),
    Remb(Remb),
    ExtendedReport(ExtendedReport),
    Other(OtherRtcp),
    Malformed(Py<PyAny>),
}

impl From<Rtcp<'_>> for Any {
    fn from(part: Rtcp<'_>) -> Self {
        let blocks = |blocks: &mut dyn Iterator<Item = rtp::rtcp::ReportBlock>| {
            blocks.map(ReportBlock::from).collect()
        };
        match part {
            Rtcp::SenderReport(report) => Self::SenderReport(SenderReport {
                ssrc: report.ssrc.value(),
                ntp: report.info.ntp.value(),
                rtp_timestamp: report.info.rtp_timestamp,
                packets: report.info.packets,
                octets: report.info.octets,
                blocks: blocks(&mut report.blocks()),
            }),
            Rtcp::ReceiverReport(report) => Self::ReceiverReport(ReceiverReport {
                ssrc: report.ssrc.value(),
                blocks: blocks(&mut report.blocks()),
            }),
            Rtcp::SourceDescription(description) => Self::SourceDescription(SourceDescription {
                items: description
                    .items()
                    .map(|item| (item.ssrc.value(), item.kind, Payload::copy(item.text)))
                    .collect(),
            }),
            Rtcp::Bye(bye) => Self::Bye(Bye {
                ssrcs: bye.ssrcs().map(Ssrc::value).collect(),
                reason: bye.reason.map(Payload::copy),
            }),
            Rtcp::Nack(nack) => Self::Nack(Nack {
                sender: nack.sender.value(),
                media: nack.media.value(),
                numbers: nack.numbers().map(rtp::SequenceNumber::value).collect(),
            }),
            Rtcp::TransportFeedback(feedback) => Self::TransportFeedback(TransportFeedback {
                sender: feedback.sender.value(),
                media: feedback.media.value(),
                feedback_count: feedback.feedback_count,
                arrivals: feedback.arrivals().map(|one| (one.number.value(), one.at_micros)).collect(),
            }),
            Rtcp::Pli(pli) => Self::Pli(Pli { sender: pli.sender.value(), media: pli.media.value() }),
            Rtcp::Fir(fir) => Self::Fir(Fir {
                sender: fir.sender.value(),
                entries: fir.entries().map(|entry| (entry.ssrc.value(), entry.sequence)).collect(),
            }),
            Rtcp::Remb(remb) => Self::Remb(Remb {
                sender: remb.sender.value(),
                bitrate: remb.bitrate,
                ssrcs: remb.ssrcs().map(Ssrc::value).collect(),
            }),
            Rtcp::ExtendedReport(report) => Self::ExtendedReport(ExtendedReport::of(&report)),
            Rtcp::Other { packet_type, count } => Self::Other(OtherRtcp { packet_type, count }),
            // The enum may have further variants in later versions of its crate.
            _ => Self::Other(OtherRtcp { packet_type: 0, count: 0 }),
        }
    }
}

impl ExtendedReport {
    fn of(report: &rtp::rtcp::ExtendedReport<'_>) -> Self {
        let mut read = Self {
            sender: report.sender.value(),
            reference_time: None,
            delays: Vec::new(),
            other_blocks: Vec::new(),
        };
        for block in report.blocks() {
            match block {
                ExtendedReportBlock::ReferenceTime(time) => read.reference_time = Some(time.value()),
                ExtendedReportBlock::Delays(delays) => {
                    read.delays
                        .extend(delays.iter().map(|one| (one.ssrc.value(), one.last_reference, one.delay)));
                }
                ExtendedReportBlock::Other(kind) => read.other_blocks.push(kind),
                _ => {}
            }
        }
        read
    }
}

/// Reads the parts of a compound packet that is not encrypted. With `strict=False`, the error of a malformed part
/// takes its place in the list.
#[pyfunction]
#[pyo3(signature = (data, strict=true))]
fn read_rtcp(py: Python<'_>, data: Cow<'_, [u8]>, strict: bool) -> PyResult<Vec<Any>> {
    let part = |part: Result<Rtcp<'_>, rtp::Error>| match part {
        Ok(part) => Ok(Any::from(part)),
        Err(wrong) if strict => Err(error(wrong)),
        Err(wrong) => Ok(Any::Malformed(error(wrong).into_value(py).into_any())),
    };
    rtp::rtcp::packets(&data).map(part).collect()
}

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ReportBlock>()?;
    module.add_class::<SenderReport>()?;
    module.add_class::<ReceiverReport>()?;
    module.add_class::<SourceDescription>()?;
    module.add_class::<Bye>()?;
    module.add_class::<Nack>()?;
    module.add_class::<TransportFeedback>()?;
    module.add_class::<Pli>()?;
    module.add_class::<Fir>()?;
    module.add_class::<Remb>()?;
    module.add_class::<ExtendedReport>()?;
    module.add_class::<OtherRtcp>()?;
    module.add_function(wrap_pyfunction!(read_rtcp, module)?)
}
