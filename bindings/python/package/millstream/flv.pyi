from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar, final

import millstream

class Error(millstream.Error):
    """Bytes or text could not be read."""

@final
class Reader:
    """Reads an FLV file or an HTTP-FLV body in pieces of any size: push bytes, then iterate over the tags that are complete.

    After an error, each further call raises it again. The reader holds the bytes that were pushed and not yet returned.
    """

    def __new__(cls, tag_bytes_max: int = ...) -> Reader: ...

    def push(self, data: bytes | bytearray) -> None:
        """Adds bytes of the file."""

    @property
    def header(self) -> Header | None:
        """Header of the file; `None` before it was read."""

    def __iter__(self) -> Iterator[Tag]: ...
    def __next__(self) -> Tag: ...

def parse(data: bytes | bytearray, tag_bytes_max: int = ...) -> list[Tag]:
    """Reads all tags of a file, without the interpreter's lock. A tag that is cut off at the end is left out."""

def read(file: BinaryIO, piece: int = 65536) -> Iterator[Tag]:
    """Yields the tags of an open file, a pipe or a response, of which at most one tag and one piece are held."""

def amf0(data: bytes | bytearray) -> list[Any]:
    """Reads the AMF0 values of a command or a data message."""

@final
class Header:
    """Header of a file."""

    @property
    def audio(self) -> bool:
        """True if audio tags are announced."""

    @property
    def video(self) -> bool:
        """True if video tags are announced."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Tag:
    """A tag of a file."""

    @property
    def kind(self) -> str:
        """`audio`, `video`, `data` or `other`."""

    @property
    def type_id(self) -> int:
        """Number of the type."""

    @property
    def timestamp(self) -> int:
        """Milliseconds; wraps after 49 days."""

    @property
    def body(self) -> bytes:
        """Contents of the tag."""

    def packets(self) -> list[Packet]:
        """Reads the packets of an audio or video tag: one, or one for each track. Other tags, and commands to the player, have none."""

    def data(self) -> tuple[str, list[Any]]:
        """Reads the name and the values of a data tag."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Packet:
    """A packet of one track."""

    @property
    def track(self) -> int:
        """Number of the track; 0 unless the tag has several."""

    @property
    def codec(self) -> str:
        """Name of the codec."""

    @property
    def packet(self) -> str:
        """`sequence_header`, `frame`, `end_of_sequence`, `metadata`, `mpeg2ts_sequence_start`, `multichannel_config` or `silence`."""

    @property
    def frame_type(self) -> str | None:
        """For video: `key`, `inter`, `disposable`, `generated_key`, `command` or `unstated`."""

    @property
    def composition_time_ms(self) -> int:
        """Presentation time relative to the tag's timestamp, in milliseconds."""

    @property
    def offset_nanos(self) -> int:
        """Nanoseconds to add to the timestamp."""

    @property
    def payload(self) -> bytes:
        """Media data, or the configuration record."""

    @property
    def config(self) -> millstream.Config | None:
        """Configuration of the codec, in a sequence header of a codec that has one."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Date:
    """A date in AMF0."""

    @property
    def unix_ms(self) -> float:
        """Milliseconds since 1970."""

    @property
    def zone(self) -> int:
        """Time zone, in minutes; encoders write 0."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
