"""Builds of other forms than the usual one."""

import json
import os
import pathlib
import shutil
import subprocess

from support import ROOT, TOOLS, Program, Server, need, run, wait_for

PYTHON = ROOT / "tests" / ".venv" / "bin" / "python"


def built_without_fdk_aac():
    """The program, beside the usual one: that stands in the folder of the target again when this ends."""
    if given := os.environ.get("SERVER_WITHOUT_FDK_AAC"):
        return pathlib.Path(given)
    binary = TOOLS / "millstream-without-fdk-aac"
    command = ["cargo", "build", "--locked", "--bin", "millstream"]
    run(*command, "--no-default-features", cwd=ROOT, timeout=3600)
    shutil.copy(ROOT / "target" / "debug" / "millstream", binary)
    run(*command, cwd=ROOT, timeout=3600)
    return binary


def tracks(url):
    """The codecs of what a player is sent."""
    said = run("ffprobe", "-v", "error", "-show_entries", "stream=codec_name", "-of", "json", url)
    return sorted(stream.get("codec_name", "unknown") for stream in json.loads(said)["streams"])


def check_a_server_without_fdk_aac_says_what_it_cannot_do_and_does_the_rest():
    need("cargo", "nm", "ffmpeg", "ffprobe", PYTHON)
    binary = built_without_fdk_aac()
    symbols = run("nm", binary)
    assert "aacEncOpen" not in symbols and "aacDecoder_Open" not in symbols and "opus_encode" in symbols
    with Server(binary=binary) as server:
        wait_for("the warning", lambda: "built without FDK AAC" in server.log())
        rtmp = f"rtmp://{server.ready['rtmp']}/live/aac"
        source = ["ffmpeg", "-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30", "-f", "lavfi", "-i",
                  "sine=frequency=440:sample_rate=48000", "-c:v", "libx264", "-preset", "ultrafast", "-profile:v", "baseline", "-g", "30",
                  "-pix_fmt", "yuv420p", "-ac", "2"]
        is_live = lambda name: server.api("GET", f"/live/rest/v2/broadcasts/{name}")[1].get("status") == "broadcasting"
        with Program(*source, "-c:a", "aac", "-f", "flv", rtmp):
            wait_for("the stream", lambda: is_live("aac"))
            # AAC passes as it is, and is heard over WebRTC as Opus: another library decodes it.
            assert tracks(f"http://{server.http}/live/aac.flv") == ["aac", "h264"]
            peer = [PYTHON, ROOT / "tests" / "suite" / "webrtc_peer.py", "play", f"http://{server.http}/live/whep/aac", "60"]
            told = json.loads(run(*peer, stdin=subprocess.DEVNULL, timeout=60).splitlines()[-1])
            assert told["frames"]["audio"] >= 30, told
        # Opus passes as it is: Debian's ffprobe does not know it in FLV.
        srt = f"srt://{server.ready['srt']}?streamid=live/opus"
        with Program(*source, "-c:a", "libopus", "-f", "mpegts", srt):
            wait_for("the stream", lambda: is_live("opus"))
            assert tracks(f"http://{server.http}/live/opus.flv") == ["h264", "unknown"]
            assert tracks(f"srt://{server.ready['srt']}?streamid=%23!::r=live/opus,m=request") == ["h264", "opus"]
    return [f"{binary.stat().st_size >> 20} MiB"]
