"""Chromium in the network namespace of a client: plays and publishes several times, and prints its observations as JSON.

client.py SERVER STREAM JOINS [PROXY]: SERVER is the server's HTTP address.
"""

import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f"{HERE}/../players", f"{HERE}/../../tests/suite"]
import pages  # noqa: E402: the page
import headless  # noqa: E402: a page of a headless browser

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--no-first-run", "--disable-dev-shm-usage", "--disable-web-security",
         "--autoplay-policy=no-user-gesture-required", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
         "--disable-background-networking", "--disable-renderer-backgrounding", "--ignore-certificate-errors", "--remote-debugging-port=0"]


class Chromium(headless.Chromium):
    """Chromium with the proxy, if there is one, and without cross-origin checks."""

    proxy = None

    def start(self):
        more = [f"--proxy-server={self.proxy}"] if self.proxy else []
        command = [shutil.which("chromium") or "chromium", *FLAGS, *more, f"--user-data-dir={self.profile}", "about:blank"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def carry_out(self, task, url):
        self.run(f"begin({task}, {json.dumps(url)}); 0")
        return self.wait(task, lambda: self.run("outcome"))


def main(server, stream, joins, proxy=None):
    Chromium.proxy = proxy
    headless.PATIENCE = 40
    browser = Chromium()
    try:
        browser.go(pages.serve("firewalls", "autoplay width=640", ("page.js",), HERE))
        views = [browser.carry_out("view", f"http://{server}/live/whep/{stream}") for _ in range(int(joins))]
        print(json.dumps({"views": views, "publish": browser.carry_out("publish", f"http://{server}/live/whip/camera")}))
    finally:
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
