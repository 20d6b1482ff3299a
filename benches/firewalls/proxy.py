"""The proxy of a firewall, for HTTP and for CONNECT to port 443 only: proxy.py ADDRESS PORT."""

import contextlib
import socket
import socketserver
import sys
import threading
import urllib.parse

HEAD_MAX = 65536


class Client(socketserver.StreamRequestHandler):
    """Forwards a connection. Its first request names the target of all following bytes."""

    def handle(self):
        lines = []
        while (line := self.rfile.readline(HEAD_MAX)).strip():
            lines.append(line)
        if not lines:
            return
        method, target, version = lines[0].decode().split()
        if method == "CONNECT":
            host, port = target.rsplit(":", 1)
            if port != "443":
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            head, answer = b"", b"HTTP/1.1 200 Connection established\r\n\r\n"
        else:
            url = urllib.parse.urlsplit(target)
            host, port = url.hostname, url.port or 80
            path = url.path + (f"?{url.query}" if url.query else "")
            # A connection carries a single request, because the next may be for another server.
            kept = [line for line in lines[1:] if not line.lower().startswith((b"proxy-", b"connection:"))]
            head, answer = f"{method} {path} {version}\r\nConnection: close\r\n".encode() + b"".join(kept) + b"\r\n", b""
        with socket.create_connection((host, int(port)), timeout=10) as server:
            server.settimeout(None)
            server.sendall(head)
            self.wfile.write(answer)
            threading.Thread(target=copy, args=(self.rfile.read1, server), daemon=True).start()
            copy(lambda most: server.recv(most), self.connection)


def copy(read, to):
    with contextlib.suppress(OSError):
        while data := read(HEAD_MAX):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


class Proxy(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True


if __name__ == "__main__":
    Proxy((sys.argv[1], int(sys.argv[2])), Client).serve_forever()
