"""Encoders that cannot be had as a Debian package: OBS Studio's way to publish by WHIP, with the library that it is built with."""

import json
import subprocess
import time

from support import PATH, ROOT, TOOLS, Missing, Server, folder, need, request, run, wait_for


def check_obs_publishes_with_a_token_and_deletes_its_session():
    need("node", "ffmpeg")
    if not (TOOLS / "node/node_modules/node-datachannel").is_dir():
        raise Missing("node-datachannel is not installed")
    with folder() as place, Server("app.publishTokenControlEnabled=true", "server.workers=2") as server:
        film = place / "film.h264"
        run("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30", "-t", "4", "-c:v", "libx264",
            "-profile:v", "baseline", "-g", "30", "-bsf:v", "h264_metadata=aud=insert", "-f", "h264", film)
        expires = int(time.time()) + 600
        token = server.api("GET", f"/live/rest/v2/broadcasts/cam/token?expireDate={expires}&type=publish")[1]["tokenId"]
        command = ["node", ROOT / "tests/surroundings/obs.mjs", f"http://{server.http}/live/whip/cam", token, film]
        publisher = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env={"PATH": PATH, "NODE_MODULES": str(TOOLS / "node")})
        try:
            def is_live():
                assert publisher.poll() is None, publisher.communicate()
                return server.api("GET", "/live/rest/v2/broadcasts/cam")[1].get("status") == "broadcasting"
            wait_for("the stream", is_live)
            # Two seconds of pictures and sound, by another protocol and without a fault. In units of the rate that ffmpeg guesses
            # two pictures could have the same time.
            said = run("ffmpeg", "-v", "error", "-xerror", "-i", f"http://{server.http}/live/cam.flv", "-t", "2", "-enc_time_base:v", "1:1000",
                       "-f", "null", "-")
            assert said == "", said
            told = json.loads(publisher.communicate(timeout=30)[0])
        finally:
            publisher.kill()
            publisher.wait()
        assert told["status"] == 201 and told["states"][-1] == "connected" and told["deleted"] == 200, told
        assert request("DELETE", told["session"])[0] == 404, "it is over"
        wait_for("the end", lambda: server.api("GET", "/live/rest/v2/broadcasts/cam")[0] == 404)
