"""Parsers of live media: FLV, MPEG-TS, RTP with RTCP, and SDP.

They are those of the millstream server, written in Rust. Each module reads one format, and raises its own `Error`,
a `ValueError`, where bytes or text cannot be read.
"""

from millstream import _native

Config = _native.Config
Error = _native.Error
nal_units = _native.nal_units

from millstream import flv, mpegts, rtp, sdp  # noqa: E402  (they need the names above)

__all__ = ["Config", "Error", "flv", "mpegts", "nal_units", "rtp", "sdp"]
