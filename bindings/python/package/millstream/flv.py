"""FLV files, HTTP-FLV, and the bodies of RTMP's messages, with Enhanced RTMP."""

from millstream import _native

_part = _native.flv
Date = _part.Date
Error = _part.Error
Header = _part.Header
Packet = _part.Packet
Reader = _part.Reader
Tag = _part.Tag
amf0 = _part.amf0
parse = _part.parse


def read(file, piece=65536):
    """Yields the tags of an open file, a pipe or a response, of which at most one tag and one piece are held."""
    reader = Reader()
    while data := file.read(piece):
        reader.push(data)
        yield from reader
