from collections.abc import Iterator
from typing import BinaryIO, ClassVar, Union, final

import millstream

class Error(millstream.Error):
    """Bytes or text could not be read."""

@final
class Stream:
    """An elementary stream of a program."""

    @property
    def pid(self) -> int:
        """PID of its packets."""

    @property
    def kind(self) -> str:
        """`h264`, `h265`, `aac`, `aac-latm`, `mpeg-audio`, `ac3`, `eac3`, `opus`, `id3`, `splice` or `other`."""

    @property
    def stream_type(self) -> int:
        """stream_type of the program map."""

    @property
    def language(self) -> str | None:
        """Language in three letters."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Program:
    """The tables of the program: its map (PMT), and its entry in the list of programs (PAT)."""

    @property
    def transport_stream(self) -> int:
        """Id of the transport stream."""

    @property
    def program(self) -> int:
        """Number of the program."""

    @property
    def pmt_pid(self) -> int:
        """PID of the map."""

    @property
    def pcr_pid(self) -> int:
        """PID with the clock references."""

    @property
    def version(self) -> int:
        """Version of the map."""

    @property
    def streams(self) -> list[Stream]:
        """Streams of the program."""

    @property
    def streams_left_out(self) -> int:
        """Number of streams left out, because there were too many."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Pes:
    """A PES packet: for video one access unit, for audio one or several."""

    @property
    def pid(self) -> int:
        """PID of the stream."""

    @property
    def kind(self) -> str:
        """Kind of the stream."""

    @property
    def pts(self) -> int | None:
        """Presentation time in ticks of 90 kHz, 33 bits."""

    @property
    def dts(self) -> int | None:
        """Decoding time in ticks of 90 kHz, 33 bits; `None` if it equals the presentation time."""

    @property
    def random_access(self) -> bool:
        """True if the packet is marked as a point to begin at."""

    @property
    def discontinuity(self) -> bool:
        """True if part of the stream before the packet is missing."""

    @property
    def payload(self) -> bytes:
        """Payload of the packet."""

    def config(self) -> millstream.Config | None:
        """Makes the configuration of the codec from the payload: from parameter sets, or the header of an audio frame. `None` if the payload has none."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Splice:
    """A section of splice information (SCTE 35)."""

    @property
    def payload(self) -> bytes:
        """The section, with a valid checksum."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Stats:
    """Counters of a demultiplexer."""

    @property
    def packets(self) -> int:
        """Transport packets."""

    @property
    def sync_losses(self) -> int:
        """Number of times that the sync byte was missing at its expected position."""

    @property
    def bytes_skipped(self) -> int:
        """Bytes skipped to find the sync byte again."""

    @property
    def transport_errors(self) -> int:
        """Packets marked as erroneous by the transport."""

    @property
    def packets_invalid(self) -> int:
        """Packets with an invalid header or adaptation field."""

    @property
    def scrambled(self) -> int:
        """Packets with encrypted payload."""

    @property
    def duplicates(self) -> int:
        """Repeated packets."""

    @property
    def gaps(self) -> int:
        """Gaps in a continuity counter."""

    @property
    def sections_invalid(self) -> int:
        """Invalid sections."""

    @property
    def pes(self) -> int:
        """PES packets returned."""

    @property
    def pes_damaged(self) -> int:
        """PES packets dropped because part of them was lost."""

    @property
    def pes_invalid(self) -> int:
        """PES packets with an invalid header."""

    @property
    def pes_oversized(self) -> int:
        """PES packets dropped because they were too large."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Packet:
    """A transport packet."""

    @property
    def pid(self) -> int:
        """PID of the packet."""

    @property
    def transport_error(self) -> bool:
        """transport_error_indicator."""

    @property
    def unit_start(self) -> bool:
        """payload_unit_start_indicator."""

    @property
    def scrambled(self) -> bool:
        """True if the payload is encrypted."""

    @property
    def continuity(self) -> int:
        """Continuity counter."""

    @property
    def discontinuity(self) -> bool:
        """discontinuity_indicator of the adaptation field."""

    @property
    def random_access(self) -> bool:
        """random_access_indicator of the adaptation field."""

    @property
    def pcr(self) -> int | None:
        """Clock reference in ticks of 27 MHz."""

    @property
    def payload(self) -> bytes | None:
        """Payload; `None` if the packet has an adaptation field alone."""

    @staticmethod
    def read(data: bytes | bytearray) -> Packet:
        """Reads a packet of 188 bytes."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class PesHeader:
    """Header of a PES packet."""

    @property
    def stream_id(self) -> int:
        """stream_id."""

    @property
    def packet_length(self) -> int:
        """PES_packet_length; 0 if the packet has no length."""

    @property
    def scrambled(self) -> bool:
        """True if the payload is encrypted."""

    @property
    def pts(self) -> int | None:
        """Presentation time in ticks of 90 kHz, 33 bits."""

    @property
    def dts(self) -> int | None:
        """Decoding time in ticks of 90 kHz, 33 bits."""

    @property
    def payload_at(self) -> int:
        """Offset of the payload."""

    @staticmethod
    def read(data: bytes | bytearray) -> PesHeader:
        """Reads a header at the beginning of `data`."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

Event = Union[Program, Pes, Splice]

@final
class Demuxer:
    """Reads the first program of a transport stream in pieces of any size.

    Faults of the stream raise nothing: they are counted. What the demultiplexer holds of incomplete packets is bounded by 8 MiB.
    """

    def __new__(cls) -> Demuxer: ...

    def push(self, data: bytes | bytearray) -> list[Event]:
        """Adds bytes of the stream. Returns the tables when they have changed, and the packets that are complete."""

    def finish(self) -> list[Event]:
        """Ends the stream. Returns the packets that end with it."""

    @property
    def program(self) -> Program | None:
        """The tables of the program; `None` before the first map."""

    @property
    def pcr(self) -> int | None:
        """The latest clock reference of the program, in ticks of 27 MHz."""

    @property
    def stats(self) -> Stats:
        """The counters so far."""

def parse(data: bytes | bytearray) -> list[Event]:
    """Reads a whole file, without the interpreter's lock."""

def read(file: BinaryIO, piece: int = 65536) -> Iterator[Event]:
    """Yields the events of an open file, a pipe or a response, of which little more than a piece is in memory."""

