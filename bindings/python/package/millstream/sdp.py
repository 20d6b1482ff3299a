"""Session descriptions (SDP) of WebRTC, RTSP and SIP."""

from millstream import _native

_part = _native.sdp
Candidate = _part.Candidate
Description = _part.Description
Error = _part.Error
Format = _part.Format
Media = _part.Media
