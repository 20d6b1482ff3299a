"""hls.js, dash.js, and the browsers' own media elements, in Chromium and Firefox."""

import json
import os
import sys

import pages
import stage

sys.path.insert(0, f"{stage.ROOT}/tests/suite")
import headless  # noqa: E402: a page of a headless browser

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("node_modules/hls.js/dist/hls.min.js", "node_modules/dashjs/dist/modern/umd/dash.all.min.js", "page.js")
# Time limit of a page, longer than its playback.
headless.PATIENCE = 60


class Chromium(headless.Chromium):
    def version(self):
        return self.send("Browser.getVersion")["product"].replace("/", " ")


class Firefox(headless.Firefox):
    def start(self):
        with open(f"{self.profile}/user.js", "w") as out:
            out.write('user_pref("media.autoplay.default", 0);\n')
        return super().start()

    def version(self):
        return self.run("navigator.userAgent").split(" ")[-1].replace("/", " ")


class Tab:
    """A new browser for each page, so that no page affects the next one."""

    def __init__(self, browser):
        self.make = {"Chromium": Chromium, "Firefox": Firefox}[browser]

    def __call__(self, player, url, seconds, low):
        browser = self.make()
        try:
            browser.go(pages.serve("players", "width=640", SCRIPTS, HERE))
            return browser.run(f"play({json.dumps(player)}, {json.dumps(url)}, {seconds}, {json.dumps(low)})")
        finally:
            browser.close()


def version(name):
    browser = Tab(name).make()
    try:
        return browser.version()
    finally:
        browser.close()
