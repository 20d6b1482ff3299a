"""A certificate by lego and by certbot from Pebble, the test server of Let's Encrypt: proved by the server's own folder, put in place by the hook, served without a restart."""

import json
import os
import socketserver
import ssl
import struct
import subprocess
import threading

from support import ROOT, Program, Server, connect, folder, free_port, need, request, run, wait_for

NAME = "stream.example.org"
HOOK = ROOT / "packaging" / "certificates" / "deploy.sh"


class Names(socketserver.StreamRequestHandler):
    """A name server for which every name is this machine; Pebble asks over TCP."""

    def handle(self):
        while length := self.rfile.read(2):
            query = self.rfile.read(struct.unpack(">H", length)[0])
            end = query.index(b"\0", 12) + 5
            is_a = query[end - 4:end - 2] == b"\0\1"
            head = query[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, int(is_a), 0, 0)
            answer = b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\x04\x7f\0\0\1" if is_a else b""
            whole = head + query[12:end] + answer
            self.wfile.write(struct.pack(">H", len(whole)) + whole)


def served(port):
    """Returns the issuer and the number of the certificate that the server shows."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return run("openssl", "x509", "-noout", "-issuer", "-serial", input=pem)


def pebble(server, place):
    """Pebble, whose own certificate is made here; it proves names at the server's HTTP port."""
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost", "-keyout", place / "pebble.key", "-out", place / "pebble.pem")
    port, management = free_port(), free_port()
    config = {"pebble": {
        "listenAddress": f"127.0.0.1:{port}", "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(place / "pebble.pem"), "privateKey": str(place / "pebble.key"),
        "httpPort": server.http_port, "tlsPort": free_port(), "ocspResponderURL": "", "externalAccountBindingRequired": False}}
    (place / "pebble.json").write_text(json.dumps(config))
    names = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Names)
    names.daemon_threads = True
    threading.Thread(target=names.serve_forever, daemon=True).start()
    program = Program("pebble", "-config", place / "pebble.json", "-dnsserver", f"127.0.0.1:{names.server_address[1]}", port=port,
                      env={"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0"})
    return program, f"https://localhost:{port}/dir"


def check_lego_and_pebble_renew_the_certificate_of_a_running_server():
    need("pebble", "lego", "openssl")
    with folder() as place, Server() as server:
        program, directory = pebble(server, place)
        with program:
            root = server.home / "acme"
            root.mkdir(exist_ok=True)
            lego = ["lego", "--accept-tos", "--email", "me@example.org", "--domains", NAME, "--server", directory,
                    "--path", place / "lego", "--http", "--http.webroot", root]
            hook = {"LEGO_CA_CERTIFICATES": str(place / "pebble.pem"), "SERVER_HOME": str(server.home)}
            shown = [served(server.https_port)]
            assert "self-signed" in shown[0], shown
            # A connection from before stays.
            kept = connect(f"https://127.0.0.1:{server.https_port}")
            kept.connect()
            kept.auto_open = 0
            for verb, option in [(["run"], "--run-hook"), (["renew", "--days", "10000", "--no-random-sleep"], "--renew-hook")]:
                try:
                    run(*lego, *verb, option, HOOK, env=hook)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{program.log()[-3000:]}") from None
                wait_for("the new certificate", lambda: served(server.https_port) not in shown)
                shown.append(served(server.https_port))
                assert "Pebble" in shown[-1], shown
                assert request("GET", f"https://127.0.0.1:{server.https_port}/rest/v2/liveness", connection=kept)[0] == 200
                # Its key is the server's alone.
                key = (server.home / "conf" / "privkey.pem").stat()
                assert key.st_mode & 0o777 == 0o600 and key.st_uid == (server.home / "conf").stat().st_uid
            assert server.process.poll() is None and server.log().count("certificate loaded") >= 2


def check_certbot_and_pebble_give_a_running_server_its_certificate():
    need("pebble", "certbot", "openssl")
    with folder() as place, Server() as server:
        program, directory = pebble(server, place)
        with program:
            (server.home / "acme").mkdir(exist_ok=True)
            run("certbot", "certonly", "--non-interactive", "--agree-tos", "--email", "me@example.org", "--webroot", "-w", server.home / "acme",
                "-d", NAME, "--server", directory, "--config-dir", place / "etc", "--work-dir", place / "work", "--logs-dir", place / "log",
                "--deploy-hook", HOOK, env={"REQUESTS_CA_BUNDLE": str(place / "pebble.pem"), "SERVER_HOME": str(server.home)})
            wait_for("the new certificate", lambda: "Pebble" in served(server.https_port))
        assert server.process.poll() is None and "certificate loaded" in server.log()


def check_the_hook_is_told_by_certbot_and_refuses_what_does_not_fit():
    need("openssl")
    with folder() as place, Server() as server:
        for name in ["one", "two"]:
            (place / name).mkdir()
            run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-addext", f"subjectAltName=DNS:{name}", "-keyout", place / name / "privkey.pem", "-out", place / name / "fullchain.pem")
        home = {"SERVER_HOME": str(server.home)}
        run(HOOK, env={**home, "RENEWED_LINEAGE": str(place / "one")})
        wait_for("the certificate", lambda: "CN = one" in served(server.https_port))
        before = sorted(os.listdir(server.home / "conf"))
        for command, environment in [
            ([HOOK, place / "one" / "fullchain.pem", place / "two" / "privkey.pem"], home),
            ([HOOK], home),
            ([HOOK, place / "one" / "fullchain.pem"], home),
            ([HOOK, place / "two" / "fullchain.pem", place / "two" / "privkey.pem"], {"SERVER_HOME": str(place)}),
        ]:
            done = subprocess.run(list(map(str, command)), env={**os.environ, **environment}, capture_output=True, text=True)
            assert done.returncode != 0 and done.stderr.startswith("deploy: "), done
        assert sorted(os.listdir(server.home / "conf")) == before
        assert "CN = one" in served(server.https_port) and request("GET", f"http://{server.http}/rest/v2/liveness")[0] == 200
