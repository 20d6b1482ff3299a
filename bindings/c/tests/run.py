"""Runs the C examples with ffmpeg: a caller of SRT, in the clear and encrypted, and a publisher of WHIP.

Usage: run.py FOLDER_WITH_THE_EXAMPLES FFMPEG_WITH_WHIP
"""

import pathlib
import subprocess
import sys
import tempfile

EXAMPLES = pathlib.Path(sys.argv[1])
FFMPEG_WITH_WHIP = sys.argv[2]
SECONDS = 60
PICTURES = 50
PASSPHRASE = "correct horse battery"
QUIET = ["-nostdin", "-loglevel", "error", "-y"]


def make(path, *coding):
    """A file of two seconds."""
    inputs = ["-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-f", "lavfi", "-i", "sine=frequency=440"]
    video = ["-c:v", "libx264", "-profile:v", "baseline", "-bf", "0", "-g", "25", "-pix_fmt", "yuv420p"]
    command = ["ffmpeg", *QUIET, *inputs, "-t", "2", *video, *coding, path]
    subprocess.run(command, check=True, timeout=SECONDS)


def pictures(path):
    """Hashes of the pictures of a file."""
    command = ["ffmpeg", *QUIET, "-i", path, "-map", "0:v", "-f", "framemd5", "-"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
    return [line.rsplit(",", 1)[1].strip() for line in told.splitlines() if not line.startswith("#")]


class Example:
    """An example that writes what it receives to a file, and its addresses to standard error."""

    def __init__(self, name, output, *arguments):
        self.output = open(output, "wb")
        command = [EXAMPLES / name, *arguments]
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.output.close()

    def line(self, start):
        for line in self.process.stderr:
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"the program ended without a line {start}")


def send(listener, source, passphrase):
    """Sends a source to the listener at an address."""
    url = f"srt://{listener}?streamid=cameras/one&pkt_size=1316"
    url += f"&passphrase={passphrase[0]}&pbkeylen=16" if passphrase else ""
    command = ["ffmpeg", *QUIET, "-re", "-i", source, "-c", "copy", "-f", "mpegts", url]
    subprocess.run(command, check=True, timeout=SECONDS)


def compare(source, output):
    # ffmpeg does not wait for its last packets to arrive.
    came = pictures(output)
    assert len(came) > PICTURES // 2 and came == pictures(source)[: len(came)], f"{len(came)} pictures, or others"


def srt(folder, passphrase):
    source, output = folder / "source.ts", folder / "out.ts"
    make(source, "-c:a", "aac")
    with Example("srt_listener", output, *passphrase) as listener:
        send(listener.line("srt"), source, passphrase)
        assert listener.line("request") == "cameras/one"
        assert listener.process.wait(SECONDS) == 0
    compare(source, output)


def refused(folder):
    """A caller with another passphrase does not connect, and the listener goes on: the next caller is received."""
    source, output = folder / "source.ts", folder / "after.ts"
    with Example("srt_listener", output, PASSPHRASE) as listener:
        address = listener.line("srt")
        url = f"srt://{address}?passphrase=another one of them&pbkeylen=16"
        command = ["ffmpeg", *QUIET, "-i", source, "-c", "copy", "-f", "mpegts", url]
        assert subprocess.run(command, stderr=subprocess.DEVNULL, timeout=SECONDS).returncode != 0
        send(address, source, [PASSPHRASE])
        assert listener.process.wait(SECONDS) == 0
    compare(source, output)


def whip(folder):
    source, output = folder / "source.mp4", folder / "out.264"
    make(source, "-c:a", "libopus", "-ar", "48000", "-ac", "2")
    with Example("whip_server", output) as server:
        url = f"http://{server.line('http')}/whip"
        command = [FFMPEG_WITH_WHIP, *QUIET, "-re", "-i", source, "-c", "copy", "-f", "whip", url]
        subprocess.run(command, check=True, timeout=SECONDS)
        server.line("connected")
        server.line("closed after")
        assert server.process.wait(SECONDS) == 0
    came, all_of_it = pictures(output), pictures(source)
    assert len(came) > PICTURES // 2, f"{len(came)} pictures"
    starts = range(len(all_of_it) - len(came) + 1)
    assert any(all_of_it[at : at + len(came)] == came for at in starts), "the pictures are no unbroken part of the source"


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    srt(folder, [])
    srt(folder, [PASSPHRASE])
    refused(folder)
    whip(folder)
print("the examples in C receive SRT and WHIP of ffmpeg")
