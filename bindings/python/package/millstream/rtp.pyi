from typing import ClassVar, Literal, Union, final, overload

import millstream
from millstream import sdp

class Error(millstream.Error):
    """Bytes or text could not be read."""

@final
class Packet:
    """An RTP packet."""

    @property
    def marker(self) -> bool:
        """For video: the end of a frame. For audio: the first packet after silence."""

    @property
    def payload_type(self) -> int:
        """Payload type."""

    @property
    def sequence_number(self) -> int:
        """Sequence number, 16 bits."""

    @property
    def timestamp(self) -> int:
        """Sampling time in ticks of the payload type's clock, 32 bits."""

    @property
    def ssrc(self) -> int:
        """Source."""

    @property
    def csrcs(self) -> list[int]:
        """Contributing sources of a mixer."""

    @property
    def extension_profile(self) -> int | None:
        """Profile of the extension block; `None` if there is none."""

    @property
    def payload(self) -> bytes:
        """Payload without padding."""

    @property
    def padding(self) -> int:
        """Number of bytes of padding."""

    @staticmethod
    def read(data: bytes | bytearray) -> Packet:
        """Reads a packet that is not encrypted."""

    @property
    def extensions(self) -> dict[int, bytes]:
        """Values of the extension block by their ids (RFC 8285); empty for a block of another profile."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Extensions:
    """Values of a packet's header extensions. A value is `None` if it is absent or malformed."""

    @property
    def mid(self) -> str | None:
        """Media section."""

    @property
    def rid(self) -> str | None:
        """Simulcast layer."""

    @property
    def repaired_rid(self) -> str | None:
        """Simulcast layer that a retransmission belongs to."""

    @property
    def audio_level(self) -> tuple[bool, int] | None:
        """Whether it is speech, and the level in -dBov."""

    @property
    def abs_send_time(self) -> int | None:
        """Time of sending: seconds as 6.18 fixed point."""

    @property
    def transport_sequence(self) -> int | None:
        """Transport-wide sequence number."""

    @property
    def playout_delay_ms(self) -> tuple[int, int] | None:
        """Least and largest delay that the sender requests, in milliseconds."""

    @property
    def video_orientation(self) -> int | None:
        """Rotation and camera, as the raw byte."""

    @property
    def abs_capture_time(self) -> int | None:
        """Time of capture: seconds since 1900 as 32.32 fixed point."""

    @property
    def dependency_descriptor(self) -> bytes | None:
        """Dependency descriptor."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Frame:
    """A complete access unit: NAL units with lengths of 4 bytes, OBUs with sizes, or a frame of audio."""

    @property
    def timestamp(self) -> int:
        """Presentation time in ticks of the clock rate, 32 bits."""

    @property
    def key_frame(self) -> bool:
        """True if a decoder can start here; always false for audio."""

    @property
    def payload(self) -> bytes:
        """Media data."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class DepacketizerStats:
    """Counters of a depacketizer."""

    @property
    def frames(self) -> int:
        """Frames returned."""

    @property
    def dropped(self) -> int:
        """Frames dropped because packets were missing or malformed."""

    @property
    def malformed(self) -> int:
        """Malformed payloads."""

    @property
    def ignored(self) -> int:
        """Packets of another payload type, or out of order."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ExtensionMap:
    """Ids of the header extensions of a session."""

    def __new__(cls, uris: dict[int, str]) -> ExtensionMap:
        """Makes a map of ids and the URIs of extensions. Unknown URIs are left out."""

    @staticmethod
    def of(media: sdp.Media) -> ExtensionMap:
        """Makes the map of a media section."""

    def read(self, packet: Packet) -> Extensions:
        """Reads the values of a packet."""

@final
class Depacketizer:
    """Assembles the frames of one source from its packets, in the order in which they were sent.

    Gaps in the sequence numbers drop the frames that they damage. Packets of other payload types, and packets that come late or
    twice, are ignored and counted.
    """

    def __new__(cls, format: sdp.Format) -> Depacketizer:
        """Makes the depacketizer of a format of a description."""

    def push(self, packet: Packet) -> list[Frame]:
        """Takes a packet. Returns the frames that it completes."""

    @property
    def stats(self) -> DepacketizerStats:
        """The counters so far."""

@final
class ReportBlock:
    """What a receiver reports about a source."""

    @property
    def ssrc(self) -> int:
        """Source."""

    @property
    def fraction_lost(self) -> int:
        """Packets lost since the last report, in 1/256."""

    @property
    def cumulative_lost(self) -> int:
        """Packets lost since the beginning."""

    @property
    def highest_sequence(self) -> int:
        """Highest sequence number, with the number of cycles in the upper 16 bits."""

    @property
    def jitter(self) -> int:
        """Jitter in ticks."""

    @property
    def last_sender_report(self) -> int:
        """Middle bits of the time of the last sender report."""

    @property
    def delay_since_report(self) -> int:
        """Delay since that report, in 1/65536 s."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class SenderReport:
    """Sender report (SR)."""

    @property
    def ssrc(self) -> int:
        """Source."""

    @property
    def ntp(self) -> int:
        """Wall-clock time: seconds since 1900 as 32.32 fixed point."""

    @property
    def rtp_timestamp(self) -> int:
        """The same time in ticks."""

    @property
    def packets(self) -> int:
        """Packets sent."""

    @property
    def octets(self) -> int:
        """Bytes of payload sent."""

    @property
    def blocks(self) -> list[ReportBlock]:
        """Reports about other sources."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ReceiverReport:
    """Receiver report (RR)."""

    @property
    def ssrc(self) -> int:
        """Reporter."""

    @property
    def blocks(self) -> list[ReportBlock]:
        """Reports."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class SourceDescription:
    """Source description (SDES)."""

    @property
    def items(self) -> list[tuple[int, int, bytes]]:
        """Source, type and text of each item; type 1 is the canonical name."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Bye:
    """End of sources (BYE)."""

    @property
    def ssrcs(self) -> list[int]:
        """Sources that leave."""

    @property
    def reason(self) -> bytes | None:
        """Reason."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Nack:
    """Request for lost packets (generic NACK)."""

    @property
    def sender(self) -> int:
        """Requester."""

    @property
    def media(self) -> int:
        """Source of the media."""

    @property
    def numbers(self) -> list[int]:
        """Sequence numbers of the lost packets."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class TransportFeedback:
    """Transport-wide arrival times."""

    @property
    def sender(self) -> int:
        """Reporter."""

    @property
    def media(self) -> int:
        """Any source of media on the transport."""

    @property
    def feedback_count(self) -> int:
        """Number of the report, 8 bits."""

    @property
    def arrivals(self) -> list[tuple[int, int | None]]:
        """Transport-wide sequence number of each packet, and its time in microseconds; `None` if it had not arrived."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Pli:
    """Request for a key frame (PLI)."""

    @property
    def sender(self) -> int:
        """Requester."""

    @property
    def media(self) -> int:
        """Source of the media."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Fir:
    """Command to send a key frame (FIR)."""

    @property
    def sender(self) -> int:
        """Requester."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Source and number of each command."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Remb:
    """A receiver's estimate of its largest bitrate (REMB)."""

    @property
    def sender(self) -> int:
        """Receiver."""

    @property
    def bitrate(self) -> int:
        """Bits per second."""

    @property
    def ssrcs(self) -> list[int]:
        """Sources whose total rate it is."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ExtendedReport:
    """Extended report (XR)."""

    @property
    def sender(self) -> int:
        """Reporter."""

    @property
    def reference_time(self) -> int | None:
        """Time of the receiver: seconds since 1900 as 32.32 fixed point."""

    @property
    def delays(self) -> list[tuple[int, int, int]]:
        """Source, middle bits of its reference time, and delay since then in 1/65536 s."""

    @property
    def other_blocks(self) -> list[int]:
        """Types of the other blocks."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class OtherRtcp:
    """A part of another type."""

    @property
    def packet_type(self) -> int:
        """Packet type."""

    @property
    def count(self) -> int:
        """Count, subtype or format."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

Rtcp = Union[SenderReport, ReceiverReport, SourceDescription, Bye, Nack, TransportFeedback, Pli, Fir, Remb, ExtendedReport, OtherRtcp]

def is_rtcp(data: bytes | bytearray) -> bool:
    """Returns whether a datagram on a port shared by RTP and RTCP is RTCP (RFC 5761)."""

@overload
def read_rtcp(data: bytes | bytearray, strict: Literal[True] = True) -> list[Rtcp]: ...
@overload
def read_rtcp(data: bytes | bytearray, strict: bool) -> list[Rtcp | Error]:
    """Reads the parts of a compound packet that is not encrypted. With `strict=False`, the error of a malformed part takes its place in the list."""

