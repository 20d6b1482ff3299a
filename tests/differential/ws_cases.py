"""The sections 1-7, 9 and 10 of the Autobahn suite against an echo server: frames by hand, then `websockets`."""
import os, socket, struct, sys
from urllib.parse import urlparse
from websockets.sync.client import connect
from websockets.exceptions import ConnectionClosed

url = sys.argv[1]
host, port = urlparse(url).hostname, urlparse(url).port
cases, failed = 0, []


def frame(first, payload=b"", mask=b"\x11\x22\x33\x44"):
    n = len(payload)
    head = bytes([first]) + (bytes([0x80 | n]) if n < 126 else
                             b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n))
    return head + mask + bytes(c ^ mask[i % 4] for i, c in enumerate(payload))


def talk(data, chop=None):
    """Everything that the server sends until it closes, as (opcode, payload)."""
    s = socket.create_connection((host, port))
    s.settimeout(8)
    s.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
              b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    got = b""
    while b"\r\n\r\n" not in got:
        got += s.recv(4096)
    got = got.split(b"\r\n\r\n", 1)[1]
    try:
        for at in range(0, len(data), chop or len(data)):
            s.sendall(data[at:at + (chop or len(data))])
        while True:
            part = s.recv(65536)
            if not part:
                break
            got += part
    except ConnectionError:
        pass
    s.close()
    frames = []
    while len(got) >= 2:
        n, at = got[1] & 0x7F, 2
        if n == 126:
            n, at = struct.unpack(">H", got[2:4])[0], 4
        elif n == 127:
            n, at = struct.unpack(">Q", got[2:10])[0], 10
        frames.append((got[0], got[at:at + n]))
        got = got[at + n:]
    return frames


def check(name, data, want, code, chops=(None, 1)):
    """`want`: the frames before the close frame; `code`: the close frame's, None: empty."""
    global cases
    for chop in chops:
        cases += 1
        frames = talk(data, chop)
        close = frames[-1] if frames else (0, b"")
        told = struct.unpack(">H", close[1][:2])[0] if len(close[1]) >= 2 else None
        # A pong may stand before or behind a message.
        same = all([f for f in frames[:-1] if (f[0] == 0x8A) == pong] == [f for f in want if (f[0] == 0x8A) == pong]
                   for pong in (False, True))
        if close[0] != 0x88 or told != code or not same:
            failed.append((name, chop, frames[:4], code))


TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
BYE = frame(CLOSE, b"\x03\xe8")
for n in (0, 125, 126, 127, 128, 65535, 65536):
    chops = (None, 1) if n < 200 else (None, 997)
    check(f"1.1 text {n}", frame(TEXT, b"*" * n) + BYE, [(TEXT, b"*" * n)], 1000, chops)
    check(f"1.2 binary {n}", frame(BINARY, b"\xfe" * n) + BYE, [(BINARY, b"\xfe" * n)], 1000, chops)
for n in (0, 5, 125):
    check(f"2 ping {n}", frame(PING, b"p" * n) + frame(TEXT, b"x") + BYE, [(TEXT, b"x"), (PONG, b"p" * n)], 1000)
check("2.5 long ping", frame(PING, b"p" * 126), [], 1002)
check("2.7 unasked pong", frame(PONG, b"u") + frame(TEXT, b"x") + BYE, [(TEXT, b"x")], 1000)
check("2.11 ten pings", b"".join(frame(PING, bytes([48 + i])) for i in range(10)) + frame(TEXT, b"x") + BYE,
      [(TEXT, b"x")] + [(PONG, bytes([48 + i])) for i in range(10)], 1000)
for rsv in (0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70):
    check(f"3 rsv {rsv:x}", frame(TEXT, b"a") + frame(TEXT | rsv, b"b") + frame(PING), [(TEXT, b"a")], 1002)
for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
    check(f"4 opcode {opcode}", frame(TEXT, b"a") + frame(0x80 | opcode, b"b"), [(TEXT, b"a")], 1002)
check("5.1 fragmented ping", frame(0x09, b"a") + frame(0x80, b"b"), [], 1002)
check("5.2 fragmented pong", frame(0x0A, b"a") + frame(0x80, b"b"), [], 1002)
check("5.3 two fragments", frame(0x01, b"a") + frame(0x80, b"b") + BYE, [(TEXT, b"ab")], 1000)
check("5.6 ping between", frame(0x01, b"a") + frame(PING, b"p") + frame(0x80, b"b") + BYE,
      [(PONG, b"p"), (TEXT, b"ab")], 1000)
check("5.9 continuation of nothing", frame(0x80, b"a") + frame(TEXT, b"b"), [], 1002)
check("5.12 unfinished continuation of nothing", frame(0x00, b"a") + frame(TEXT, b"b"), [], 1002)
check("5.15 one too many", frame(0x01, b"a") + frame(0x80, b"b") + frame(0x00, b"c"), [(TEXT, b"ab")], 1002)
check("5.18 text in text", frame(0x01, b"a") + frame(TEXT, b"b"), [], 1002)
check("5.19 five fragments", frame(0x01, b"a") + b"".join(frame(0x00, b"b") for _ in range(3)) + frame(0x80, b"c") + BYE,
      [(TEXT, b"abbbc")], 1000)
valid = ["", "Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "\u0000", "\u0080", "\u0800", "\U00010000", "\x7f", "\u07ff", "\uffff",
         "\U0010ffff", "\ud7ff", "\ue000", "\ufffd", "\ufffe", "\U0001fffe"]
for text in valid:
    data = text.encode()
    check("6 valid", frame(TEXT, data) + BYE, [(TEXT, data)], 1000)
    parts = b"".join(frame(0x01 if i == 0 else 0x00, data[i:i + 1]) for i in range(max(len(data), 1)))
    check("6 valid by byte", parts + frame(0x80) + BYE, [(TEXT, data)], 1000)
invalid = ["cebae1bdb9cf83cebcceb5eda080656469746564", "cebae1bdb9cf83cebcceb5f4908080656469746564", "f8888080 80", "fc8480808080",
           "f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf", "f4908080", "80", "bf", "80bf", "c0af", "e080af", "f08080af", "c1bf",
           "e09fbf", "f08fbfbf", "c080", "e08080", "eda080", "edadbf", "edbfbf", "eda080edb080", "fe", "ff", "fefeffff",
           "c320", "e0a0", "c2"]
for text in invalid:
    data = bytes.fromhex(text.replace(" ", ""))
    check("6 invalid " + text, frame(TEXT, data), [], 1007)
    check("6 invalid in fragments " + text, frame(0x01, b"a" + data[:1]) + frame(0x80, data[1:]), [], 1007)
check("7.1 after the end", BYE + frame(TEXT, b"x") + frame(PING), [], 1000)
check("7.3 empty", frame(CLOSE), [], None)
check("7.3 one byte", frame(CLOSE, b"\x03"), [], 1002)
check("7.3 reason", frame(CLOSE, b"\x03\xe8" + b"x" * 123), [], 1000)
check("7.3 long reason", frame(CLOSE, b"\x03\xe8" + b"x" * 124), [], 1002)
check("7.5 reason no text", frame(CLOSE, b"\x03\xe8\xce\xba\xe1\xbd\xb9\xed\xa0\x80"), [], 1007)
for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999):
    check(f"7.7 code {code}", frame(CLOSE, struct.pack(">H", code)), [], code)
for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535):
    check(f"7.9 code {code}", frame(CLOSE, struct.pack(">H", code)), [], 1002)
for n in (64 * 1024, 1 << 20, 4 << 20):
    data = os.urandom(n)
    check(f"9 binary {n}", frame(BINARY, data) + BYE, [(BINARY, data)], 1000, (None,))
    for piece in (64, 4096, 65536) if n < 1 << 20 else (65536,):
        at = range(0, n, piece)
        parts = b"".join(frame(0x02 if i == 0 else 0x00, data[i:i + piece]) for i in at) + frame(0x80)
        check(f"9 binary {n} by {piece}", parts + BYE, [(BINARY, data)], 1000, (None,))
check("10 auto fragment", b"".join(frame(0x01 if i == 0 else 0x00, b"*" * 1300) for i in range(50)) + frame(0x80, b"*" * 536) + BYE,
      [(TEXT, b"*" * 65536)], 1000, (None,))

with connect(url, max_size=None) as ws:
    for message in ["", "x" * 125, "µ" * 40000, b"\x00" * 126, os.urandom(1 << 20), ["a", "ß", "c"], [b"1", b"2"]]:
        cases += 1
        ws.send(message)
        whole = message if isinstance(message, (str, bytes)) else type(message[0])().join(message)
        if ws.recv() != whole:
            failed.append(("websockets", len(whole)))
    cases += 1
    if not ws.ping(b"there?").wait(5):
        failed.append(("websockets ping",))
    ws.close(4001, "done")
    try:
        ws.recv()
    except ConnectionClosed as end:
        cases += 1
        if end.rcvd is None or end.rcvd.code != 4001:
            failed.append(("websockets close", end))

for failure in failed[:20]:
    print("FAILED", failure)
print(f"{cases} cases, {len(failed)} failed")
