"""Reads byte streams by nginx: a line of base64 in, a line of JSON out. It proxies to a server here that writes down method and body.

An answer that is not this server's is an error: nginx has refused a request, or what it could not read of one.
"""
import base64
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REFUSAL = re.compile(rb"^HTTP/1\.[01] [345]|<html>", re.MULTILINE)

seen = []


def serve(listener):
    while True:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as request:
            head = []
            while (line := request.readline()) not in (b"\r\n", b""):
                head.append(line)
            lengths = [int(line.split(b":", 1)[1]) for line in head if line.lower().startswith(b"content-length:")]
            body = request.read(lengths[0] if lengths else 0)
            if head:
                seen.append([head[0].split(b" ")[0].decode("latin-1"), base64.b64encode(body).decode()])
            peer.sendall(ANSWER)


def start_nginx(home, upstream):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(f"{home}/nginx.conf", "w") as file:
        file.write(f"""
daemon off; master_process off; pid {home}/pid; error_log {home}/error.log crit;
events {{ worker_connections 64; }}
http {{
    access_log off; client_max_body_size 0; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1; proxy_ignore_client_abort on; }} }}
}}""")
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    nginx = subprocess.Popen([program, "-c", f"{home}/nginx.conf", "-e", f"{home}/error.log"])
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return nginx, port
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise SystemExit("nginx does not listen")


def see(port, request):
    seen.clear()
    answers = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        try:
            peer.sendall(request)
            peer.shutdown(socket.SHUT_WR)
            while part := peer.recv(65536):
                answers += part
        except (ConnectionResetError, BrokenPipeError):
            pass  # It refused before it had read everything.
    return {"seen": list(seen), "error": bool(REFUSAL.search(answers))}


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="millstream-nginx-") as home:
        nginx, port = start_nginx(home, listener.getsockname()[1])
        try:
            for line in sys.stdin:
                print(json.dumps(see(port, base64.b64decode(line))), flush=True)
        finally:
            nginx.kill()
            nginx.wait()


main()
