"""Headless browsers, Chromium and Firefox: one page each, and what a person does to it."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from websockets.sync.client import connect

PATIENCE = 75.0
SIZES = {"desk": (1360, 900, False), "phone": (320, 720, True)}
# Of the panel's user.
EMAIL, PASSWORD = "admin@example.com", "correct horse"


class Browser:
    """A page of a headless browser with a profile of its own, and the actions of a person on it."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="millstream-panel-")
        self.number = 0
        self.told = []
        self.socket = None
        self.process = self.start()
        # No pings: a browser on a busy machine may answer them late. Each step has a limit of its own.
        self.socket = connect(self.wait("the browser", self.address), max_size=None, ping_interval=None)
        self.begin()

    def send(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv(timeout=60))
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer}")
                return answer["result"]
            self.hear(answer)

    def wait(self, what, look):
        end = time.monotonic() + PATIENCE
        while True:
            found = look()
            if found:
                return found
            if time.monotonic() > end:
                seen = self.run("document.body.innerText") if self.socket else ""
                raise AssertionError(f"{what} did not come; the page says: {seen[:2000]}")
            time.sleep(0.05)

    def go(self, url):
        self.navigate(url)
        self.wait("the page", lambda: self.run("document.readyState") == "complete")

    def text(self, wanted):
        return self.wait(repr(wanted), lambda: self.run(f"document.body.innerText.includes({json.dumps(wanted)})"))

    def gone(self, text):
        self.wait(f"the end of {text!r}", lambda: not self.run(f"document.body.innerText.includes({json.dumps(text)})"))

    def fill(self, name, value):
        """Types into the field of that name, in the dialog if there is one."""
        self.wait(name, lambda: self.run(f"""(() => {{
            const field = (document.querySelector("dialog") ?? document).querySelector(`[name={json.dumps(name)[1:-1]}]`);
            if (!field) return false;
            const kind = field instanceof HTMLTextAreaElement ? HTMLTextAreaElement : field instanceof HTMLSelectElement ? HTMLSelectElement : HTMLInputElement;
            Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(field, {json.dumps(value)});
            field.dispatchEvent(new Event("input", {{ bubbles: true }}));
            field.dispatchEvent(new Event("change", {{ bubbles: true }}));
            return true;
        }})()"""))

    def click(self, text, within="document.querySelector('dialog') ?? document"):
        """Presses the button, link or choice with that text or label."""
        self.wait(text, lambda: self.run(f"""(() => {{
            const wanted = {json.dumps(text)};
            const all = [...({within}).querySelectorAll("button, a, label, option")];
            const one = all.find((e) => e.innerText.trim() === wanted || e.getAttribute("aria-label") === wanted)
                ?? all.find((e) => e.innerText.trim().startsWith(wanted));
            if (!one || one.disabled) return false;
            one.click();
            return true;
        }})()"""))

    def log_in(self, url):
        self.go(url)
        self.wait("a form", lambda: self.run("Boolean(document.querySelector('input[name=password]'))"))
        self.fill("email", EMAIL)
        self.fill("password", PASSWORD)
        self.click("Log in")
        self.text("Live streams")

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Chromium(Browser):
    """Over its DevTools protocol."""

    def start(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio", "--no-first-run",
                   "--disable-dev-shm-usage", "--ignore-certificate-errors", "--autoplay-policy=no-user-gesture-required",
                   "--remote-debugging-port=0", f"--user-data-dir={self.profile}", "about:blank"]
        return subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def port(self):
        path = os.path.join(self.profile, "DevToolsActivePort")
        return open(path).readline().strip() if os.path.exists(path) else None

    def address(self):
        port = self.port()
        if not port:
            return None
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        return next((page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"), None)

    def begin(self):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def hear(self, event):
        """Keeps what went wrong in the page: exceptions, and what the policy held back."""
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.told.append(details.get("exception", {}).get("description", details["text"]))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["source"] in ("security", "javascript"):
            self.told.append(event["params"]["entry"]["text"])

    def run(self, script):
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def navigate(self, url):
        self.send("Page.navigate", url=url)

    def press(self, key):
        """A key of the keyboard."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}[key]
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def type(self, text):
        """Text into the field that has the focus."""
        self.send("Input.insertText", text=text)

    def size(self, name, dark):
        width, height, mobile = SIZES[name]
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        picture = self.send("Page.captureScreenshot", format="png")
        with open(path, "wb") as out:
            out.write(base64.b64decode(picture["data"]))


class Tab(Chromium):
    """A further page of a Chromium."""

    def __init__(self, browser):
        self.number, self.told = 0, []
        new = urllib.request.Request(f"http://127.0.0.1:{browser.port()}/json/new?about:blank", method="PUT")
        self.socket = connect(json.load(urllib.request.urlopen(new))["webSocketDebuggerUrl"], max_size=None, ping_interval=None)
        self.begin()


class Firefox(Browser):
    """Over WebDriver BiDi."""

    def start(self):
        program = shutil.which("firefox-esr") or shutil.which("firefox") or "firefox"
        self.words = open(os.path.join(self.profile, "words"), "w+")
        options = ["--headless", "--no-remote", "--profile", self.profile, "--remote-debugging-port=0", "about:blank"]
        return subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=self.words)

    def address(self):
        with open(self.words.name) as words:
            found = re.search(r"WebDriver BiDi listening on (ws://\S+)\n", words.read())
        return f"{found[1]}/session" if found else None

    def begin(self):
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])
        self.page = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def hear(self, event):
        entry = event.get("params", {})
        if event.get("method") == "log.entryAdded" and (entry["type"], entry["level"]) == ("javascript", "error"):
            self.told.append(entry["text"])

    def run(self, script):
        whole = f"Promise.resolve({script}).then((value) => JSON.stringify(value ?? null))"
        result = self.send("script.evaluate", expression=whole, target={"context": self.page}, awaitPromise=True)
        if result["type"] != "success":
            raise AssertionError(result["exceptionDetails"]["text"])
        return json.loads(result["result"]["value"])

    def navigate(self, url):
        self.send("browsingContext.navigate", context=self.page, url=url, wait="complete")


def alone(task):
    """Runs a task in a new Chromium, with the arguments of the program, and prints that it has succeeded."""
    browser = Chromium()
    try:
        task(browser, *sys.argv[1:])
    finally:
        browser.close()
    print("ok")
