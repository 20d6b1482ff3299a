"""Shared by the checks of `make surroundings`: programs that end with their check, a server, ports, examples of the documentation."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "target" / "surroundings"
PATH = f"{TOOLS}/bin:{TOOLS}/venv/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
BINARY = os.environ.get("SERVER_BINARY", str(ROOT / "target" / "debug" / "millstream"))
PATIENCE = 30.0


class Missing(Exception):
    """A program, or a right, that a check needs and does not have."""


def need(*programs):
    for program in programs:
        if shutil.which(program, path=PATH) is None:
            raise Missing(f"{program} is not installed")


def need_root():
    if os.geteuid() != 0:
        raise Missing("only root may do it")


def run(*command, check=True, **more):
    """Runs a program to its end; its standard output."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, "PATH": PATH, **more.pop("env", {})}, timeout=more.pop("timeout", 600), **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}")
    return done.stdout


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(what, condition, patience=PATIENCE):
    """Waits until a condition holds; its value."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come in {patience} s"
        time.sleep(0.05)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Program:
    """A program in a folder of its own; ended with its block. Its output is in `log`."""

    def __init__(self, *command, port=None, env=None, cwd=None):
        self.log_file = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": PATH, **(env or {})}, cwd=cwd)
        if port is not None:
            try:
                wait_for(f"{command[0]} at {port}", lambda: self.ended() or listens(port))
                assert not self.ended(), f"{command[0]} ended"
            except AssertionError as error:
                self.end()
                raise AssertionError(f"{error}\n{self.log()}") from None

    def ended(self):
        return self.process.poll() is not None

    def log(self):
        self.log_file.seek(0)
        return self.log_file.read()

    def end(self):
        if not self.ended():
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="millstream-surroundings-")
    try:
        yield pathlib.Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Server:
    """A server on ports of the kernel's choice, in a home that goes with it."""

    PORTS = ["http.port", "https.port", "rtmp.port", "rtmps.port", "rtsp.port", "rtsps.port", "server.srt_port", "webrtc.port"]

    def __init__(self, *settings, binary=BINARY):
        if not os.access(binary, os.X_OK):
            raise Missing(f"{binary}: build it first")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="millstream-surroundings-"))
        self.home = self.folder / "home"
        every = ["server.host=127.0.0.1"] + [f"{port}=0" for port in self.PORTS] + list(settings)
        command = [str(binary), "--home", str(self.home)] + [word for setting in every for word in ("--set", setting)]
        self.errors = open(self.folder / "errors", "w")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        line = self.process.stdout.readline()
        if not line:
            text = (self.folder / "errors").read_text()
            self.end()
            raise AssertionError(f"the server did not start:\n{text}")
        self.ready = json.loads(line)
        self.http = self.ready["http"]
        self.http_port = int(self.http.rsplit(":", 1)[1])
        self.https_port = int(self.ready["https"].rsplit(":", 1)[1])
        self.pid = self.process.pid

    def api(self, method, path, body=None):
        """Status and parsed answer of a call."""
        status, _, text = request(method, f"http://{self.http}{path}", body and json.dumps(body), {"Content-Type": "application/json"})
        return status, json.loads(text) if text[:1] in (b"{", b"[") else {"text": text.decode()}

    def publish(self, name, seconds=600):
        """A publisher of the built-in clip, until its block ends."""
        url = f"rtmp://{self.ready['rtmp']}/live/{name}"
        publisher = Program(BINARY, "bench", "publish", "--url", url, "--duration", seconds)
        def is_live():
            assert not publisher.ended(), publisher.log()
            return self.api("GET", f"/live/rest/v2/broadcasts/{name}")[1].get("status") == "broadcasting"
        try:
            wait_for("the stream", is_live)
        except AssertionError:
            publisher.end()
            raise
        return publisher

    def log(self):
        return (self.home / "log" / "millstream.log").read_text()

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def anybody():
    """A TLS client that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect(url, timeout=20):
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=anybody())
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


def request(method, url, body=None, fields=None, connection=None):
    """Status, fields and body of an answer; redirects are not followed."""
    parts = urllib.parse.urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    own = connection or connect(url)
    try:
        own.request(method, path or "/", body, fields or {})
        answer = own.getresponse()
        text = answer.read()
        return answer.status, answer.headers, text
    finally:
        if connection is None:
            own.close()


def example(page, heading, number=0):
    """An example of a page of the documentation: the indented lines of the part with this heading."""
    found, current, is_here = [], [], False
    for line in (ROOT / page).read_text().splitlines() + ["#"]:
        if line.startswith("    ") or (current and not line):
            current += [line[4:]] if is_here else []
            continue
        if current:
            found.append("\n".join(current).strip("\n") + "\n")
            current = []
        if line.startswith("#"):
            is_here = line.lstrip("# ") == heading
    return found[number]
