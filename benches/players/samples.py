"""Compares two third-party MP4 readers, ffprobe and mp4box.js, on files that the server records, sample by sample.

Each stream is recorded. Its file is read while it is being written (as fragments) and when it is finished. Both readers must find the
same track, times, size and key flag for each sample.
"""

import os
import shutil
import subprocess
import time

import stage

SECONDS = 12


def by_ffprobe(path):
    entries = "packet=stream_index,dts,pts,size,flags"
    command = ["ffprobe", "-v", "error", "-ignore_editlist", "1", "-show_entries", entries, "-of", "compact=p=0:nk=0", path]
    samples = []
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        of = dict(field.split("=", 1) for field in line.split("|") if "=" in field)
        if "stream_index" in of:
            samples.append(" ".join([of["stream_index"], of["dts"], of["pts"], of["size"], str(int("K" in of["flags"]))]))
    return sorted(samples)


def by_mp4box(path):
    script = os.path.join(os.path.dirname(__file__), "samples.mjs")
    return sorted(subprocess.run(["node", script, path], check=True, capture_output=True, text=True).stdout.splitlines())


def row(name, form, path):
    ours, theirs = by_ffprobe(path), by_mp4box(path)
    same = "yes" if ours == theirs else f"NO: {next((pair for pair in zip(ours, theirs) if pair[0] != pair[1]), 'another number')}"
    print(f"| {name} | {form} | {len(ours)} | {len(theirs)} | {same} |", flush=True)
    return ours == theirs and bool(ours)


def main():
    place = stage.folder()
    films = {name: stage.film(name, place, SECONDS) for name in stage.STREAMS}
    server = stage.Server("app.mp4MuxingEnabled=true", "app.publisherGraceMs=0", "app.hlsMuxingEnabled=false")
    streams = f"{server.home}/home/webapps/live/streams"
    publishers = [server.publish(name, film, loop=False) for name, film in films.items()]
    time.sleep(SECONDS / 3)
    for name in films:
        # A copy taken during an append may be incomplete; playing such a copy is not tested here.
        shutil.copy(f"{streams}/{stage.stream_id(name)}.mp4.tmp_extension", f"{place}/{stage.stream_id(name)}.mp4")
    for publisher in publishers:
        publisher.wait()
    vods = lambda: len(server.get("/live/rest/v2/vods/list/0/50"))
    stage.wait_for("the recordings", lambda: vods() == len(films))
    print("| stream | file | samples by ffprobe | by mp4box.js | each the same |\n|---|---|---|---|---|")
    good = True
    for name in films:
        good &= row(name, "fragments", f"{place}/{stage.stream_id(name)}.mp4")
        good &= row(name, "finished", f"{streams}/{stage.stream_id(name)}.mp4")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
