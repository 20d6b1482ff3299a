from typing import ClassVar, final

import millstream

class Error(millstream.Error):
    """Bytes or text could not be read."""

@final
class Description:
    """A session description."""

    @property
    def name(self) -> str:
        """Name of the session."""

    @property
    def origin(self) -> tuple[str, int, int, str]:
        """User name, id, version and address of the origin."""

    @property
    def connection(self) -> str | None:
        """Address of the session, which sections may replace."""

    @property
    def attributes(self) -> list[tuple[str, str | None]]:
        """Attributes of the session: name and value. `None` for those without a value."""

    @property
    def bundle(self) -> list[str]:
        """Mids of the sections that share a transport."""

    @property
    def ice_lite(self) -> bool:
        """True if the sender is an ICE lite agent."""

    @property
    def media(self) -> list[Media]:
        """Media sections, in order."""

    @staticmethod
    def read(text: str | bytes) -> Description:
        """Reads a description."""

    @staticmethod
    def read_fragment(text: str | bytes) -> Description:
        """Reads a fragment with trickled candidates (RFC 8840)."""

    def write(self) -> str:
        """Returns the text of the description. Lines that the reader ignores are missing."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Media:
    """A media section."""

    @property
    def kind(self) -> str:
        """`audio`, `video`, `application` or another name."""

    @property
    def port(self) -> int:
        """Port; 0 if the section is rejected."""

    @property
    def protocol(self) -> str:
        """Protocol: `UDP/TLS/RTP/SAVPF`, `RTP/AVP`, ..."""

    @property
    def mid(self) -> str | None:
        """Identification of the section."""

    @property
    def direction(self) -> str:
        """`sendrecv`, `sendonly`, `recvonly` or `inactive`; that of the session if the section has none."""

    @property
    def connection(self) -> str | None:
        """Address of the section or the session."""

    @property
    def formats(self) -> list[Format]:
        """Formats of RTP, in order of preference."""

    @property
    def other_formats(self) -> list[str]:
        """Formats of another protocol than RTP."""

    @property
    def extensions(self) -> dict[int, str]:
        """Ids and URIs of header extensions."""

    @property
    def candidates(self) -> list[Candidate]:
        """ICE candidates."""

    @property
    def ice_ufrag(self) -> str | None:
        """ICE user name fragment of the section or the session."""

    @property
    def ice_pwd(self) -> str | None:
        """ICE password of the section or the session."""

    @property
    def fingerprints(self) -> list[tuple[str, bytes]]:
        """Hash functions and values of the certificates."""

    @property
    def setup(self) -> str | None:
        """DTLS role: `actpass`, `active`, `passive` or `holdconn`."""

    @property
    def ssrcs(self) -> list[tuple[int, str, str | None]]:
        """Source, attribute and value of each `ssrc` line."""

    @property
    def ssrc_groups(self) -> list[tuple[str, list[int]]]:
        """Meaning and sources of each `ssrc-group` line."""

    @property
    def attributes(self) -> list[tuple[str, str | None]]:
        """Attributes of the section: name and value. `None` for those without a value."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Format:
    """A format of RTP: its `rtpmap`, `fmtp` and `rtcp-fb` lines."""

    @property
    def payload_type(self) -> int:
        """Payload type."""

    @property
    def encoding(self) -> str:
        """Name of the encoding."""

    @property
    def clock_rate(self) -> int:
        """Ticks per second."""

    @property
    def channels(self) -> int | None:
        """Number of channels, if stated."""

    @property
    def parameters(self) -> dict[str, str | None]:
        """Parameters: name and value. `None` for those without a value."""

    @property
    def feedback(self) -> list[str]:
        """Kinds of feedback: `nack`, `nack pli`, `transport-cc`, ..."""

    @property
    def codec(self) -> str | None:
        """Name of the codec, if the depacketizer supports it."""

    def __new__(cls, rtpmap: str, fmtp: str = "", payload_type: int = 96) -> Format:
        """Makes a format of `rtpmap`, such as `H264/90000` or `opus/48000/2`, and of `fmtp`, such as `packetization-mode=1`."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class Candidate:
    """An ICE candidate."""

    @property
    def foundation(self) -> str:
        """Foundation."""

    @property
    def component(self) -> int:
        """Component: 1 is RTP."""

    @property
    def transport(self) -> str:
        """`udp` or `tcp`."""

    @property
    def priority(self) -> int:
        """Priority."""

    @property
    def address(self) -> str:
        """Address, or a name."""

    @property
    def port(self) -> int:
        """Port."""

    @property
    def kind(self) -> str:
        """`host`, `srflx`, `prflx` or `relay`."""

    @property
    def related(self) -> tuple[str, int] | None:
        """Address and port that a candidate was derived from."""

    @property
    def tcp_kind(self) -> str | None:
        """`active`, `passive` or `so`, for TCP."""

    @property
    def extensions(self) -> list[tuple[str, str]]:
        """Further names and values."""

    @staticmethod
    def read(text: str) -> Candidate:
        """Reads a candidate, with or without `candidate:` before it."""

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
