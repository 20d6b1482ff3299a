"""MPEG transport streams: packets, tables, and the PES packets of the first program."""

from typing import Union

from millstream import _native

_part = _native.mpegts
Demuxer = _part.Demuxer
Error = _part.Error
Packet = _part.Packet
Pes = _part.Pes
PesHeader = _part.PesHeader
Program = _part.Program
Splice = _part.Splice
Stats = _part.Stats
Stream = _part.Stream
parse = _part.parse

Event = Union[Program, Pes, Splice]


def read(file, piece=65536):
    """Yields the events of an open file, a pipe or a response, of which little more than a piece is in memory."""
    demuxer = Demuxer()
    while data := file.read(piece):
        yield from demuxer.push(data)
    yield from demuxer.finish()
