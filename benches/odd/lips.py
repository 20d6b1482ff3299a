"""Lip sync for viewers over HTTP-FLV, HLS and WHEP when a publisher's timestamps are wrong.

    tests/.venv/bin/python benches/odd/lips.py [--by rtmp,srt,rtsp,whip] [--only WORDS]... [--json FILE]

The clip has a flash and a beep at the same instant each second. It is sent in real time over RTMP, SRT (MPEG-TS) and RTSP
(interleaved) with false timestamps, and by Chromium over WHIP. Audio and video are in sync if a flash and its beep have the same
stream time. Each cell has the time of the beep minus that of the flash in ms, median and worst, from the fifth second of the clip
on, and in brackets the number of pairs that are more than 100 ms apart, if any. `pace`: the largest deviation of stream time from
real time over HTTP-FLV, in ms. `-`: no pair arrived.
Needs ffmpeg, chromium, and the Python packages av, aiortc and websockets; MILLSTREAM names the server's binary."""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import lips_send
from inputs import Server
from lips_send import AUDIO, FIRST_S, VIDEO
from lips_view import NUMBERS
from rtmp import Publisher, messages

SECONDS, FROM_S, AT, APART_MS = 30, 5, 12_000, 100
VIEWS = ("flv", "hls", "whep")
BOTH = (AUDIO, VIDEO)


def move(of, by, at=0, base=0):
    return lambda kind, stamp, _: stamp + base + (by if kind in of and stamp >= at else 0)


def outliers(by, each):
    return lambda kind, stamp, number: stamp + by if kind == VIDEO and number % each == each - 1 else stamp


def mute(kind, stamp, _number):
    if kind == VIDEO or stamp < AT:
        return stamp
    return None if stamp < AT + 4_000 else stamp - 4_000


def by_wall(_kind, stamp, wanted):
    """Sender reports pair the timestamps with the true time of day."""
    return (stamp if wanted is None else wanted), stamp / 1000


def by_units(_kind, stamp, _wanted):
    """Sender reports follow a clean clock, because only single units have false timestamps."""
    return stamp, stamp / 1000


def by_stamp(_kind, _stamp, wanted):
    """Sender reports derive the time of day from the timestamps."""
    return wanted, wanted / 1000


def without(_kind, _stamp, _wanted):
    return None


def an_hour_off(kind, stamp, _wanted):
    return stamp, stamp / 1000 + (3_600 if kind == AUDIO else 0)


def set_back(_kind, stamp, _wanted):
    return stamp, stamp / 1000 - (30 if stamp >= AT else 0)


# For each fault, two functions: the timestamp of a unit, and, over RTSP, the timestamp and time of day of a sender report.
FAULTS = {
    "clean": (move((), 0), by_wall),
    "audio timestamps 4 s too low": (move((VIDEO,), 4_000), by_stamp),
    "audio timestamps 9 s too high": (move((AUDIO,), 9_000), by_stamp),
    "the video's clock starts over": (move((VIDEO,), -AT, AT), by_wall),
    "the audio's clock jumps by 30 s": (move((AUDIO,), 30_000, AT), by_wall),
    "all clocks step back by 30 s": (move(BOTH, -30_000, AT, 40_000), by_stamp),
    "every 2 s, a picture stamped 4 s too low": (outliers(-4_000, 50), by_units),
    "every 2 s, a picture stamped 5 s too high": (outliers(5_000, 50), by_units),
    "every 3 s, a picture stamped an hour off": (outliers(3_600_000, 75), by_units),
    "the audio's clock 2 % fast": (lambda kind, stamp, _: stamp * (1.02 if kind == AUDIO else 1), without),
    "audio muted for 4 s, its clock stands still": (mute, by_wall),
    "all timestamps are equal": (lambda *_: 1_000, without),
}
ONLY_RTSP = {
    "sender reports of the audio an hour off": (move((), 0), an_hour_off),
    "time of day in sender reports set back by 30 s": (move((), 0), set_back),
}
BROWSER = {"clean": None, "audio muted for 3 s": ("mute", 3), "audio muted for 6 s": ("mute", 6), "audio begins 4 s later": ("later", 4)}


def send_rtmp(port, media, fault):
    publisher = Publisher(port, "live", "odd")
    counted, start = lips_send.Numbered(fault), time.monotonic()
    try:
        for kind, stamp, body in sorted(media, key=lambda message: message[1]):
            lips_send.pace(start, stamp)
            is_unit = kind in BOTH and body[1] != 0
            wanted = counted.stamp(kind, stamp) if is_unit else stamp
            if wanted is not None:
                publisher.send(kind, round(wanted), body)
    finally:
        publisher.close()
    return start


class View:
    """A viewer in its own process (lips_view.py)."""

    def __init__(self, how, url):
        script = pathlib.Path(__file__).with_name("lips_view.py")
        command = [sys.executable, str(script), how, url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.said = []
        self.reader = threading.Thread(target=lambda: self.said.append(self.process.stdout.read()))
        self.reader.start()

    def finish(self, patience):
        self.reader.join(patience)
        self.process.stdin.close()
        self.reader.join(5)
        self.process.kill()
        self.process.wait()
        self.reader.join()
        return json.loads(self.said[0] or '{"flashes": [], "beeps": [], "pictures": [], "error": ["nothing said"]}')


def numbered(found):
    """Events by their number in the clip. The clip repeats 16 numbers, so each event gets the number closest to the previous one."""
    last, out = None, {}
    for number, at, wall in found:
        last = number if last is None else last + (number - last + NUMBERS // 2) % NUMBERS - NUMBERS // 2
        out.setdefault(last, (at, wall))
    return out


def judge(seen):
    """Figures of a viewer: the offset of each pair in ms, and the largest deviation of stream time from that of the clip."""
    flashes, beeps = numbered(seen["flashes"]), numbered(seen["beeps"])
    pairs = {one: (beeps[one][0] - at) * 1000 for one, (at, _) in flashes.items() if one in beeps and one + FIRST_S >= FROM_S}
    paces = [(at - one) * 1000 for one, (at, _) in flashes.items() if one + FIRST_S >= FROM_S]
    usual = statistics.median(paces) if paces else 0
    far = [one for one, off in pairs.items() if abs(off) > APART_MS]
    return {
        "pairs": len(pairs), "flashes": len(paces), "median": statistics.median(pairs.values()) if pairs else None,
        "worst": max(pairs.values(), key=abs) if pairs else None, "far": far, "off": {one: round(off) for one, off in pairs.items()},
        "pace": max((one - usual for one in paces), key=abs, default=None), "error": seen["error"], "pictures": len(seen["pictures"]),
    }


def cell(figures):
    if figures["median"] is None:
        return "-"
    far = f" ({len(figures['far'])} of {figures['pairs']})" if figures["far"] else ""
    return f"{round(figures['median'])} / {round(figures['worst'])}{far}"


def corrected(log):
    """Clock corrections in the server's log: the last line of each kind and track."""
    found = re.findall(r"publisher's clock corrected.*?track=(\d+).*?fault=\"?(\w+).*?off_ms=(-?\d+) total=(\d+)", log)
    return {f"{kind} of track {track}": f"{off} ms, {total}" for track, kind, off, total in found}


def run_one(how, send, folder, patience=12):
    server = Server("millstream", folder)
    try:
        http = f"http://127.0.0.1:{server.port('http')}"
        urls = {"flv": f"{http}/live/odd.flv", "hls": f"{http}/live/streams/odd.m3u8", "whep": f"{http}/live/whep/odd"}
        result = []
        sender = threading.Thread(target=lambda: result.append(send(server)))
        sender.start()
        time.sleep(0.7)
        views = {view: View(view, urls[view]) for view in VIEWS}
        sender.join()
        seen = {}
        for view in ("hls", "flv", "whep"):
            seen[view] = views[view].finish(patience if view == "hls" else 1)
    finally:
        server.stop()
    log = (folder / "stderr").read_text(errors="replace") + "".join(path.read_text(errors="replace") for path in folder.rglob("*.log"))
    return {view: judge(seen[view]) for view in VIEWS} | {"log": corrected(log), "by": how, "seen": seen}


def senders(how, folder):
    """The name of each row, with a function that publishes the clip to a server."""
    media = messages(folder / "clip.flv")
    if how == "whip":
        from lips_browser import send_whip
        return [(name, lambda server, change=change: send_whip(server, change, SECONDS)) for name, change in BROWSER.items()]
    if how == "rtsp":
        rows = FAULTS | ONLY_RTSP
        return [(name, lambda server, row=row: lips_send.send_rtsp(server.port("rtsp"), media, *row)) for name, row in rows.items()]
    if how == "srt":
        return [(name, lambda server, row=row: lips_send.send_srt(server.port("srt"), folder, row[0])) for name, row in FAULTS.items()]
    return [(name, lambda server, row=row: send_rtmp(server.rtmp, media, row[0])) for name, row in FAULTS.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", default="rtmp,srt,rtsp,whip")
    parser.add_argument("--only", action="append", help="words of a fault's name; may be repeated")
    parser.add_argument("--json", help="a file to which each run is added as one line")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lips-"))
    try:
        lips_send.make_clip(folder, SECONDS)
        print("| in | fault | HTTP-FLV | HLS | WHEP | pace |\n|---|---|---|---|---|---|")
        for how in options.by.split(","):
            for number, (name, send) in enumerate(senders(how, folder)):
                if options.only and not any(words in name for words in options.only):
                    continue
                figures = run_one(how, send, folder / f"{how}-{number}")
                pace = figures["flv"]["pace"]
                cells = " | ".join(cell(figures[view]) for view in VIEWS)
                print(f"| {how} | {name} | {cells} | {'-' if pace is None else round(pace)} |", flush=True)
                if options.json:
                    with open(options.json, "a") as out:
                        out.write(json.dumps({"name": name} | figures) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
