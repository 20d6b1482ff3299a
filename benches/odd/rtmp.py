"""An RTMP publisher that sends messages with given timestamps, and a reader of the messages in an FLV file."""
import socket
import struct
import threading
import time

CHUNK = 60_000


def amf(value):
    """A value as AMF0."""
    if value is None:
        return b"\x05"
    if isinstance(value, (int, float)):
        return b"\x00" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\x02" + struct.pack(">H", len(value)) + value.encode()
    fields = b"".join(struct.pack(">H", len(key)) + key.encode() + amf(of) for key, of in value.items())
    return b"\x03" + fields + b"\x00\x00\x09"


def messages(path):
    """The type, timestamp and body of each tag of an FLV file."""
    data = path.read_bytes()
    at, found = 13, []
    while at + 11 <= len(data):
        size = int.from_bytes(data[at + 1:at + 4], "big")
        stamp = int.from_bytes(data[at + 4:at + 7], "big") | data[at + 7] << 24
        found.append((data[at], stamp, data[at + 11:at + 11 + size]))
        at += 15 + size
    return found


class Publisher:
    """Connects and publishes; `send` writes one message."""

    def __init__(self, port, app, name):
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.socket.sendall(b"\x03" + bytes(1536))
        answer = self._exactly(1 + 1536)
        self.socket.sendall(answer[1:])
        self._exactly(1536)
        # Messages of the server are read and ignored.
        threading.Thread(target=self._drain, daemon=True).start()
        self._write(2, 1, 0, 0, struct.pack(">I", CHUNK), 128)
        url = f"rtmp://127.0.0.1:{port}/{app}"
        self._command("connect", 1, {"app": app, "type": "nonprivate", "tcUrl": url})
        time.sleep(0.3)
        self._command("createStream", 2, None)
        time.sleep(0.3)
        self._command("publish", 3, None, name, "live", stream=1)
        time.sleep(0.5)

    def send(self, kind, stamp, body):
        if kind == 18:
            # As encoders send the metadata of a stream.
            body = amf("@setDataFrame") + body
        self._write({8: 4, 9: 6, 18: 5}[kind], kind, stamp & 0xFFFF_FFFF, 1, body, CHUNK)

    def close(self):
        self.socket.close()

    def _command(self, *values, stream=0):
        self._write(3, 20, 0, stream, b"".join(amf(value) for value in values), CHUNK)

    def _write(self, chunk_stream, kind, stamp, stream, body, chunk):
        long = struct.pack(">I", stamp) if stamp >= 0xFF_FFFF else b""
        head = min(stamp, 0xFF_FFFF).to_bytes(3, "big") + len(body).to_bytes(3, "big")
        out = bytes([chunk_stream]) + head + bytes([kind]) + struct.pack("<I", stream) + long
        parts = [body[at:at + chunk] for at in range(0, len(body), chunk)] or [b""]
        self.socket.sendall(out + (bytes([0xC0 | chunk_stream]) + long).join(parts))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the server hung up in the handshake")
            data += more
        return data

    def _drain(self):
        try:
            while self.socket.recv(65536):
                pass
        except OSError:
            pass
