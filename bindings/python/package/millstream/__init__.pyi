from typing import ClassVar, final

from millstream import flv as flv, mpegts as mpegts, rtp as rtp, sdp as sdp

__all__ = ["Config", "Error", "flv", "mpegts", "nal_units", "rtp", "sdp"]

class Error(ValueError):
    """Bytes or text could not be read."""

def nal_units(data: bytes | bytearray, length_size: int | None = None) -> list[bytes]:
    """Divides H.264 or H.265 into its NAL units: at start codes, or by lengths of `length_size` bytes."""

@final
class Config:
    """The configuration of a codec, as containers carry it."""

    @property
    def codec(self) -> str:
        """Name of the codec."""

    @property
    def rfc6381(self) -> str | None:
        """Codec string of RFC 6381, as in manifests and `MediaSource.isTypeSupported`."""

    @property
    def record(self) -> bytes:
        """Decoder configuration record."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height in pixels."""

    @property
    def sample_rate(self) -> int | None:
        """Samples per second."""

    @property
    def channels(self) -> int | None:
        """Number of channels."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
