"""ffmpeg, GStreamer and VLC. Each plays for some seconds of real time and is then killed; the decoded frames are counted."""

import os
import re
import signal
import subprocess
import tempfile
import time

# Lines of output that give the reason for a failure.
FAULT = re.compile(r"error|fail|unable|not negotiated|no decoder|missing|unsupported|cannot|could not|not implemented|not support", re.I)


def listen(command, seconds, **more):
    """Returns the standard output and error of a program that runs for this many seconds."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True, **more)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
        return texts


def faults(text):
    """The first distinct lines."""
    lines = [re.sub(r"^\[?[0-9a-f]{8,}\]? |@ 0x[0-9a-f]+|\x1b\[[0-9;]*m", "", line).strip()[:160] for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if FAULT.search(line)))[:3]


def report(video, audio, seconds, told):
    return {"frames": video, "audio": audio, "seconds": round(seconds, 1), "told": told}


def ffmpeg(_, url, seconds, low):
    """Decoded frames, one line each. Playback begins some segments before the end, so more than real time is available."""
    streams = ["-map", "0:v:0?", "-map", "0:a:0?"]
    command = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-nostdin", "-i", url, *streams, "-flush_packets", "1", "-f", "framecrc", "-"]
    out, err = listen(command, seconds, stdin=subprocess.DEVNULL)
    kinds = dict(re.findall(r"#media_type (\d): (\w+)", out))
    bases = {stream: int(a) / int(b) for stream, a, b in re.findall(r"#tb (\d): (\d+)/(\d+)", out)}
    counts, times = {"video": 0, "audio": 0}, []
    for stream, pts in re.findall(r"^(\d),\s*-?\d+,\s*(-?\d+),", out, re.M):
        counts[kinds[stream]] += 1
        times.append(int(pts) * bases[stream])
    return report(counts["video"], counts["audio"], max(times) - min(times) if times else 0, faults(err))


def gstreamer(playbin, url, seconds, low):
    """Buffers that reach the sinks in time. `playbin` uses hlsdemux and dashdemux, `playbin3` hlsdemux2 and dashdemux2."""
    sinks = [f"{kind}-sink=fakesink name={kind} silent=false sync=true" for kind in ("video", "audio")]
    out, err = listen(["gst-launch-1.0", "-v", playbin, f"uri={url}", *sinks], seconds, stdin=subprocess.DEVNULL)
    counts, times = {"video": 0, "audio": 0}, []
    for kind, h, m, s in re.findall(r"chain\s+\*+ \((video|audio):sink\).*?pts: (\d+):(\d+):([\d.]+)", out):
        counts[kind] += 1
        times.append(int(h) * 3600 + int(m) * 60 + float(s))
    return report(counts["video"], counts["audio"], max(times) - min(times) if times else 0, faults(err + out[-4000:]))


def as_somebody():
    """The beginning of a command that runs as another user, because VLC refuses to run as root."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def vlc(_, url, seconds, low):
    """Returns the statistics of VLC, which are requested over its standard input."""
    home = tempfile.mkdtemp(prefix="players.vlc.")
    os.chmod(home, 0o777)
    quiet = ["--no-media-library", "--vout", "dummy", "--aout", "dummy", "--no-video-title-show"]
    command = [*as_somebody(), "vlc", "-I", "oldrc", "--rc-fake-tty", "-vv", *quiet, url]
    with tempfile.TemporaryFile("w+") as out:
        environment = {**os.environ, "HOME": home}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, text=True, env=environment,
                                   start_new_session=True, cwd="/")
        try:
            time.sleep(seconds)
            process.stdin.write("stats\nget_time\nquit\n")
            process.stdin.flush()
            process.wait(timeout=5)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        text = out.read()
    subprocess.run(["rm", "-rf", home], check=False)
    number = lambda what: int((re.findall(rf"\| {what}\s*:\s*(\d+)", text) or [0])[-1])
    shown, played = number("frames displayed"), number("audio decoded")
    lost = number("frames lost")
    is_fault = lambda line: (" error: " in line or "not supported" in line) and "dbus" not in line and "interface" not in line
    errors = "\n".join(line for line in text.splitlines() if is_fault(line))
    return {**report(shown, played, 0, faults(errors)), "dropped": lost}
