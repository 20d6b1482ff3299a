"""A server with published streams."""

import atexit
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
PROGRAM = os.environ.get("PROGRAM", f"{ROOT}/target/release/millstream")
PATIENCE = 30

X264 = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2"]
X265 = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:keyint=60:min-keyint=60:open-gop=0:bframes=2"]
AV1 = ["-c:v", "libsvtav1", "-preset", "12", "-svtav1-params", "lp=1"]
VP9 = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]
AAC = ["-c:a", "aac", "-b:a", "96k"]
# For each name: the encoders of video and audio.
STREAMS = {
    "H.264 + AAC": (X264, AAC),
    "H.265 + AAC": (X265, AAC),
    "AV1 + Opus": (AV1, ["-c:a", "libopus"]),
    "VP9 + Opus": (VP9, ["-c:a", "libopus"]),
    "VP9 + FLAC": (VP9, ["-c:a", "flac", "-sample_fmt", "s16"]),
    "H.264 + MP3": (X264, ["-c:a", "libmp3lame"]),
    "H.264 + AC-3": (X264, ["-c:a", "ac3"]),
    "H.264 + E-AC-3": (X264, ["-c:a", "eac3"]),
    "AAC alone": (None, AAC),
    "H.264 alone": (X264, None),
}


def folder():
    """Makes a folder that is removed with the process."""
    path = tempfile.mkdtemp(prefix="players.")
    os.chmod(path, 0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def stream_id(name):
    return name.lower().replace(".", "").replace(" + ", "-").replace(" ", "-")


def ffmpeg9():
    """The path of a newer ffmpeg, because Debian's does not support Enhanced RTMP."""
    found = glob.glob(f"{ROOT}/tests/.venv/lib/python3*/site-packages/imageio_ffmpeg/binaries/ffmpeg-*")
    if not found:
        raise SystemExit("no ffmpeg 9: run tests/install.sh")
    return found[0]


def begin(command, **more):
    """A background program that ends with this one."""
    streams = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
    process = subprocess.Popen(command, **{**streams, **more})
    atexit.register(end, process)
    return process


def leave(*_):
    """Ends this program on a signal, and with it all background programs."""
    sys.exit(1)


signal.signal(signal.SIGTERM, leave)


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()


def wait_for(what, look):
    limit = time.monotonic() + PATIENCE
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > limit:
            raise SystemExit(f"waited {PATIENCE} s for {what}")
        time.sleep(0.1)


class Server:
    """A new server on ports from the kernel."""

    def __init__(self, *settings):
        self.home = folder()
        ports = ["http", "https", "rtmp", "rtmps", "rtsp", "rtsps", "server.srt"]
        ports = [f"{name}{'_' if '.' in name else '.'}port=0" for name in ports]
        settings = ["server.host=127.0.0.1", *ports, "webrtc.port=0", "webrtc.tcp=false", *settings]
        command = [PROGRAM, "--home", f"{self.home}/home", *(f"--set={setting}" for setting in settings)]
        with open(f"{self.home}/log", "wb") as log:
            self.process = begin(command, stdout=subprocess.PIPE, stderr=log)
        ready = json.loads(self.process.stdout.readline())
        self.ready, self.http, self.rtmp = ready, ready["http"], ready["rtmp"]

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def publish(self, name, film, loop):
        """Publishes a file in real time, once or in a loop."""
        times = ["-stream_loop", "-1"] if loop else []
        url = f"rtmp://{self.rtmp}/live/{stream_id(name)}"
        process = begin([ffmpeg9(), "-v", "error", "-nostdin", "-re", *times, "-i", film, "-c", "copy", "-f", "flv", url])
        wait_for(name, lambda: self.is_live(name))
        return process

    def is_live(self, name):
        try:
            return self.get(f"/live/rest/v2/broadcasts/{stream_id(name)}")["status"] == "broadcasting"
        except urllib.error.HTTPError:
            return False


def film(name, place, seconds):
    """Makes a file of 640x360 at 30 frames a second, with a key frame every two seconds, and a tone."""
    video, audio = STREAMS[name]
    path = f"{place}/{stream_id(name)}.flv"
    command = [ffmpeg9(), "-v", "error", "-nostdin", "-y"]
    if video:
        command += ["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=30"]
    if audio:
        command += ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    command += ["-t", str(seconds), "-pix_fmt", "yuv420p", "-b:v", "800k", "-g", "60", *(video or []), "-ac", "2", *(audio or [])]
    subprocess.run([*command, path], check=True)
    return path
