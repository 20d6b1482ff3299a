"""Publishers with odd timestamps over RTMP: what a viewer receives from millstream, MediaMTX, nginx-rtmp and ffmpeg.

    python3 benches/odd/inputs.py --servers millstream,nginx,mediamtx,ffmpeg [--seconds 24] [--only WORDS]... [--view rtmp|flv|hls]

The clip has flashes and beeps at the same times. A viewer (ffmpeg) decodes the stream of each server, and records the stream time of
each flash and beep. The columns are
- the number of pictures received, and the stream time per real time, both as ratios to a clean publisher at the same server;
- the longest step in stream time between two pictures, in seconds;
- the time of the beep minus that of the flash, median and worst in ms, less the median of the clean publisher;
- the number of flashes without a beep of their own.
`-`: nothing was received.
Needs ffmpeg; nginx with its RTMP module; `mediamtx` in PATH; MILLSTREAM names our binary (target/release/millstream)."""
import argparse
import json
import os
import pathlib
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from rtmp import Publisher, messages

AUDIO, VIDEO = 8, 9


def clip(folder, seconds):
    """A clip with flashes and beeps at the same times. Two successive intervals are never equal."""
    path = folder / "clip.flv"
    times = [round(number * 1.2 + 0.16 * (number * number % 5), 2) for number in range(1, int(seconds / 1.2))]
    seen = "+".join(f"between(t,{at},{at + 0.1})" for at in times)
    flash = f"color=black:s=320x180:r=25:d={seconds},drawbox=c=white:t=fill:enable='{seen}'"
    beep = f"aevalsrc='({seen})*sin(2*PI*1000*t)':s=48000:d={seconds}"
    encode = "-c:v libx264 -preset ultrafast -tune zerolatency -g 50 -b:v 300k -c:a aac -b:a 96k -f flv"
    run = ["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", flash, "-f", "lavfi", "-i", beep, *encode.split(), str(path)]
    subprocess.run(run, check=True)
    return messages(path)


def steady(_kind, stamp, _number):
    return stamp


def jump(of, at, by):
    return lambda kind, stamp, _: stamp + by if kind in of and stamp >= at else stamp


def outliers(by, each=50):
    return lambda kind, stamp, number: max(stamp + by, 0) if kind == VIDEO and number % each == each - 1 else stamp


def drift(of, ppm):
    return lambda kind, stamp, _: stamp + stamp * ppm // 1_000_000 if kind in of else stamp


def stands(kind, stamp, _number):
    """All clocks stand still for 4 s."""
    return stamp if stamp < 8_000 else max(8_000, stamp - 4_000)


def mute(kind, stamp, _number):
    """The audio is muted for 4 s, and its clock stands still meanwhile."""
    if kind != AUDIO or stamp < 8_000:
        return stamp
    return None if stamp < 12_000 else stamp - 4_000


BOTH = (AUDIO, VIDEO)
INPUTS = {
    "clean": steady,
    "audio timestamps 4 s too low": lambda kind, stamp, _: stamp + 4_000 if kind == VIDEO else stamp,
    "audio timestamps 10 s too high": lambda kind, stamp, _: stamp + 10_000 if kind == AUDIO else stamp,
    "all clocks jump by 30 s": jump(BOTH, 8_000, 30_000),
    "the video's clock starts over": jump((VIDEO,), 8_000, -8_000),
    "every 2 s, a picture stamped 4 s too low": outliers(-4_000),
    "every 2 s, a picture stamped 5 s too high": outliers(5_000),
    "audio muted for 4 s, its clock stands still": mute,
    "the audio's clock 5 % fast": drift((AUDIO,), 50_000),
    "all clocks 10 % slow": drift(BOTH, -100_000),
    "all clocks stand still for 4 s": stands,
    "the 32-bit clock wraps": lambda kind, stamp, _: stamp + 0xFFFF_FFFF - 8_000,
}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A server with its own folder."""

    def __init__(self, name, folder):
        self.name, self.process, self.view = name, None, {}
        folder.mkdir()
        self.rtmp = free_port()
        url = f"rtmp://127.0.0.1:{self.rtmp}/live/odd"
        log = open(folder / "stderr", "wb")
        if name == "millstream":
            binary = os.environ.get("MILLSTREAM", "target/release/millstream")
            sets = ["rtmp.port=0", "http.port=0", "https.port=0", "rtmps.port=0", "rtsp.port=0", "rtsps.port=0",
                    "server.srt_port=0", "webrtc.port=0", "server.host=127.0.0.1"]
            command = [binary, "--home", str(folder), *[part for one in sets for part in ("--set", one)]]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
            if not select.select([self.process.stdout], [], [], 20)[0]:
                sys.exit("millstream is not ready within 20 s")
            ready = json.loads(self.process.stdout.readline())
            port = lambda of: int(str(ready[of][0] if isinstance(ready[of], list) else ready[of]).rsplit(":", 1)[1])
            self.port = port
            self.rtmp, http = port("rtmp"), f"http://127.0.0.1:{port('http')}"
            self.view = {"rtmp": f"rtmp://127.0.0.1:{self.rtmp}/live/odd", "flv": f"{http}/live/odd.flv",
                         "hls": f"{http}/live/streams/odd.m3u8"}
            return
        if name == "nginx":
            module = "/usr/lib/nginx/modules/ngx_rtmp_module.so"
            config = f"""load_module {module};
daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ }}
rtmp {{ server {{ listen 127.0.0.1:{self.rtmp}; application live {{ live on; }} }} }}
"""
            (folder / "conf").write_text(config)
            command = ["nginx", "-c", str(folder / "conf"), "-p", str(folder), "-e", str(folder / "error.log")]
        elif name == "mediamtx":
            names = ("rtsp", "hls", "webrtc", "srt", "moq")
            off = "".join(f"{one}: no\n" for one in names)
            (folder / "conf.yml").write_text(f"{off}rtmp: yes\nrtmpAddress: 127.0.0.1:{self.rtmp}\npaths:\n  all_others:\n")
            command = ["mediamtx", str(folder / "conf.yml")]
        elif name == "ffmpeg":
            # ffmpeg is server and viewer in one process.
            self.view = {"rtmp": url}
            return
        else:
            sys.exit(f"no server is called {name}")
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.view = {"rtmp": url}
        time.sleep(1.5)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class Viewer:
    """ffmpeg as a viewer: it writes the brightness of each picture and the loudness of each audio frame to files."""

    def __init__(self, url, folder, listens):
        self.folder = folder
        folder.mkdir()
        shown = f"signalstats,metadata=print:key=lavfi.signalstats.YAVG:file={folder}/video"
        heard = f"astats=metadata=1:reset=1,ametadata=print:key=lavfi.astats.Overall.RMS_level:file={folder}/audio"
        options = ["-listen", "1"] if listens else []
        command = ["ffmpeg", "-v", "error", "-nostdin", "-copyts", "-fflags", "nobuffer", *options, "-i", url,
                   "-map", "0:v", "-fps_mode", "passthrough", "-vf", shown, "-f", "null", "-",
                   "-map", "0:a?", "-af", heard, "-f", "null", "-"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(folder / "stderr", "wb"))

    def finish(self):
        """Waits until the viewer has read the whole stream."""
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def levels(self, name):
        """The stream time and level of each frame."""
        path = self.folder / name
        if not path.exists():
            return []
        text = path.read_text(errors="replace")
        found = re.findall(r"pts_time:(-?[\d.]+)\n[^=\n]*=(-?[\d.]+|-?inf|nan)", text)
        return [(float(at), float(level)) for at, level in found]


def begins(levels, least):
    """The times at which the level rises to `least`."""
    was, found = True, []
    for at, level in levels:
        if level >= least and not was:
            found.append(at)
        was = level >= least
    return found


def lips(flashes, beeps):
    """The offset of each flash's own beep, and the number of flashes without one.

    A beep is a flash's own if its offset is within half a second of the most frequent one."""
    if not flashes or not beeps:
        return [], len(flashes)
    every = [beep - flash for flash in flashes for beep in beeps]
    usual = max(every, key=lambda one: (sum(abs(other - one) < 0.03 for other in every), -abs(one)))
    own = [min((beep - flash for beep in beeps), key=lambda one: abs(one - usual)) for flash in flashes]
    near = [one for one in own if abs(one - usual) < 0.5]
    return near, len(own) - len(near)


def publish(port, media, stamp_of, began):
    publisher = Publisher(port, "live", "odd")
    numbers, start = {AUDIO: 0, VIDEO: 0}, time.monotonic()
    began.set()
    sent = 0
    try:
        for kind, stamp, body in sorted(media, key=lambda message: message[1]):
            time.sleep(max(0, start + stamp / 1000 - time.monotonic()))
            if kind in numbers and body[1:2] != b"\x00":
                numbers[kind] += 1
                sent += kind == VIDEO
                stamp = stamp_of(kind, stamp, numbers[kind])
            if stamp is not None:
                publisher.send(kind, stamp, body)
        return sent
    except OSError:
        return -sent
    finally:
        publisher.close()


def measure(server, media, stamp_of, folder, view):
    """The figures of one input; `None` if nothing was received."""
    is_ffmpeg = server.name == "ffmpeg"
    viewer = Viewer(server.view[view], folder, True) if is_ffmpeg else None
    if is_ffmpeg:
        time.sleep(1)
    began, result = threading.Event(), []
    thread = threading.Thread(target=lambda: result.append(publish(server.rtmp, media, stamp_of, began)))
    thread.start()
    began.wait(10)
    if viewer is None:
        # MediaMTX offers a stream only 3 s after its publisher has connected.
        time.sleep(6 if view == "hls" else 4)
        viewer = Viewer(server.view[view], folder, False)
    joined = time.monotonic()
    thread.join()
    watched = time.monotonic() - joined
    time.sleep(6 if view == "hls" else 1)
    # Some servers keep viewers connected after the publisher has left.
    server.stop()
    viewer.finish()
    video, audio = viewer.levels("video"), viewer.levels("audio")
    if len(video) < 2:
        return None
    flashes, beeps = begins(video, 100), begins(audio, -30)
    off, missing = lips(flashes, beeps)
    steps = [later - former for (former, _), (later, _) in zip(video, video[1:])]
    expected = (watched + (3 if view == "hls" else 0)) * 25
    span = max(at for at, _ in video) - min(at for at, _ in video)
    return {"pictures": len(video) / expected, "speed": span / watched, "step": max(map(abs, steps)), "off": off, "missing": missing}


def row(figures, clean):
    if figures is None or clean is None:
        return "- | - | - | - | -"
    pictures, speed = (figures[of] / clean[of] for of in ("pictures", "speed"))
    usual = statistics.median(clean["off"]) if clean and clean["off"] else 0
    off = [(one - usual) * 1000 for one in figures["off"]]
    shown = f"{statistics.median(off):.0f} / {max(off, key=abs):.0f}" if off else "-"
    return f"{pictures:.2f} | {speed:.2f} | {figures['step']:.2f} | {shown} | {figures['missing']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="millstream")
    parser.add_argument("--seconds", type=int, default=24)
    parser.add_argument("--only", action="append", help="words of an input's name; may be repeated")
    parser.add_argument("--view", default="rtmp")
    options = parser.parse_args()
    wanted = [name for name in INPUTS if not options.only or any(words in name for words in options.only)]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="odd-"))
    media = clip(folder, options.seconds)
    print("| server | input | pictures, of clean | speed, of clean | longest step s | beep - flash ms, median / worst | without |\n|---|---|---|---|---|---|---|")
    try:
        for name in options.servers.split(","):
            clean = None
            for number, case in enumerate(dict.fromkeys(["clean", *wanted])):
                server = Server(name, folder / f"{name}-{number}")
                try:
                    figures = measure(server, media, INPUTS[case], folder / f"{name}-{number}-view", options.view)
                finally:
                    server.stop()
                clean = figures if case == "clean" else clean
                print(f"| {name} | {case} | {row(figures, clean)} |", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
