"""Viewers in real browsers, which run page.js: Chromium and Firefox."""

import json
import shutil
import socket
import subprocess
import sys
import time

import servers
import pages
import stage

sys.path.insert(0, f"{stage.ROOT}/tests/suite")
import headless  # noqa: E402: a page of a headless browser

SCRIPTS = ("page.js", "publish.js", "node_modules/livekit-client/dist/livekit-client.umd.js")
# The server's address is there, or the answer is none.
PATIENCE_S = 15
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--no-first-run", "--disable-dev-shm-usage",
         "--autoplay-policy=no-user-gesture-required", "--allow-loopback-in-peer-connection", "--disable-web-security",
         "--disable-features=WebRtcHideLocalIpsWithMdns", "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
         "--disable-background-networking", "--remote-debugging-port=0"]
# Firefox: sound without being asked, candidates with their addresses, and nothing fetched meanwhile.
PREFERENCES = {
    "media.autoplay.default": 0,
    "media.autoplay.blocking_policy": 0,
    "media.peerconnection.ice.loopback": True,
    "media.peerconnection.ice.obfuscate_host_addresses": False,
    "media.gmp-manager.updateEnabled": False,
    "app.update.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "browser.safebrowsing.downloads.remote.enabled": False,
}


class ChromiumPage(headless.Chromium):
    """Reaches servers on loopback, and asks no server whether a page may read its answers."""

    def start(self):
        program = shutil.which("chromium") or "chromium"
        command = [program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class FirefoxPage(headless.Firefox):
    """Reaches servers on loopback. They let any page read their answers."""

    def start(self):
        with open(f"{self.profile}/user.js", "w") as out:
            out.writelines(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
        return super().start()


class Client:
    """A page that views, or publishes."""

    # Firefox and Chromium speak with all servers.
    SERVERS, HOST = ("whep", "janus", "livekit"), None

    def __init__(self):
        self.browser = self.PAGE()
        self.browser.go(pages.serve("networks", "autoplay width=640", SCRIPTS, servers.HERE))

    @classmethod
    def missing(cls):
        return None if any(map(shutil.which, cls.PROGRAMS)) else "not installed: sh tests/install.sh"

    @classmethod
    def version(cls):
        program = next(filter(None, map(shutil.which, cls.PROGRAMS)))
        return servers.first_line(program, "--version")

    def call(self, name, *arguments):
        self.browser.run(f"(void {name}({', '.join(map(json.dumps, arguments))}), 0)")

    def watch(self, kind, options):
        self.call("watch", kind, options)

    def wants(self):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            state = self.browser.run("state")
            if state["wants"]:
                return state["wants"]
            if state["failed"]:
                raise ConnectionError(state["failed"])
            time.sleep(0.02)
        raise ConnectionError("the server has named no address")

    def relay_at(self, port):
        self.call("relayAt", port, self.HOST or "127.0.0.1")

    def finish(self):
        return {**self.browser.run("finish()"), "told": self.browser.told}

    def close(self):
        self.browser.close()


class Chromium(Client):
    NAME, FILM = "chromium", "H.264"
    PAGE, PROGRAMS = ChromiumPage, ("chromium",)


def own_address():
    """The address of the default route; `None` where there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


class Firefox(Client):
    """Has H.264 only once it has fetched a plugin, so it is shown VP8. It has no candidate on loopback, so its relay is at another address."""

    NAME, FILM, HOST = "firefox", "VP8", own_address()
    PAGE, PROGRAMS = FirefoxPage, ("firefox-esr", "firefox")

    @classmethod
    def missing(cls):
        return super().missing() or (None if cls.HOST else "the machine has no address but loopback")
