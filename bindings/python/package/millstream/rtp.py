"""RTP packets with their header extensions, RTCP, and the assembly of frames."""

from typing import Union

from millstream import _native

_part = _native.rtp
Bye = _part.Bye
Depacketizer = _part.Depacketizer
DepacketizerStats = _part.DepacketizerStats
Error = _part.Error
ExtendedReport = _part.ExtendedReport
ExtensionMap = _part.ExtensionMap
Extensions = _part.Extensions
Fir = _part.Fir
Frame = _part.Frame
Nack = _part.Nack
OtherRtcp = _part.OtherRtcp
Packet = _part.Packet
Pli = _part.Pli
ReceiverReport = _part.ReceiverReport
Remb = _part.Remb
ReportBlock = _part.ReportBlock
SenderReport = _part.SenderReport
SourceDescription = _part.SourceDescription
TransportFeedback = _part.TransportFeedback
is_rtcp = _part.is_rtcp
read_rtcp = _part.read_rtcp

Rtcp = Union[
    SenderReport,
    ReceiverReport,
    SourceDescription,
    Bye,
    Nack,
    TransportFeedback,
    Pli,
    Fir,
    Remb,
    ExtendedReport,
    OtherRtcp,
]
