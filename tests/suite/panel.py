"""The panel in a real browser, Chromium or Firefox.

panel.py BROWSER TASK URL [MORE]: does a task as somebody at the screen would, and says `ok`, or what was seen instead. The tasks are
the functions whose names begin with `task_`.
"""

import base64
import hashlib
import http.server
import json
import os
import re
import socketserver
import sys
import threading
import time
import urllib.request

from headless import EMAIL, PASSWORD, SIZES, Chromium, Firefox

PLACES = {
    "overview": ("#/overview", "Live streams"),
    "broadcasts": ("#/app/live", "New broadcast"),
    "broadcast": ("#/broadcast/live/stage", "Publish to"),
    "recordings": ("#/recordings/live", "Upload a file"),
    "settings": ("#/settings/live", "hlsListSize"),
    "server": ("#/server", "serverName"),
    "users": ("#/users", "admin@example.com"),
    "log": ("#/log", "listening"),
}
# Beside the panel's.
OTHER_PLACES = {
    "reference": ("reference.html", "Panel"),
    "publish": ("live/index.html?id=first", "Camera"),
    "play": ("live/play.html?id=stage&mute=true&autoplay=true", "Live."),
}


def first_user(browser, url):
    browser.go(url)
    browser.text("Create the first user")
    browser.fill("email", EMAIL)
    browser.fill("password", PASSWORD)
    browser.fill("again", PASSWORD)
    browser.click("Create the first user")
    browser.text("Live streams")


def make_broadcast(browser, url, app, name, stream_id):
    browser.go(f"{url}#/app/{app}")
    browser.click("New broadcast")
    browser.fill("name", name)
    browser.fill("id", stream_id)
    browser.click("New broadcast")
    browser.text("Publish to")


def task_first(browser, url):
    """The first user is made, logs out, is refused with a wrong password, and comes back."""
    first_user(browser, url)
    browser.click("Log out")
    browser.fill("email", EMAIL)
    browser.fill("password", "wrong wrong")
    browser.click("Log in")
    browser.text("Wrong e-mail or password.")
    browser.fill("password", PASSWORD)
    browser.click("Log in")
    browser.text("Live streams")


def task_broadcast(browser, url):
    """A broadcast is made, given an endpoint, loses it, and is deleted."""
    first_user(browser, url)
    make_broadcast(browser, url, "live", "My stream", "panel1")
    browser.text("No endpoints.")
    browser.fill("url", "rtmp://127.0.0.1:9/app/key")
    browser.click("Add endpoint")
    browser.gone("No endpoints.")
    browser.text("rtmp://127.0.0.1:9/app/key")
    browser.click("Remove rtmp://127.0.0.1:9/app/key")
    browser.click("Delete")
    browser.text("No endpoints.")
    browser.click("QR code: WHEP")
    browser.text("Close")
    assert browser.run("document.querySelector('dialog path').getAttribute('d').length") > 2000
    browser.click("Close")
    browser.gone("Close")
    browser.fill("subscriber", "viewer7")
    browser.click("Add subscriber")
    browser.click("Block viewer7")
    browser.text("blocked until")
    browser.click("Delete subscriber viewer7")
    browser.text("No subscribers.")
    browser.fill("name", "Another name")
    browser.click("Save")
    browser.text("Saved")
    browser.text("Another name")
    browser.click("Delete")
    browser.click("Delete broadcast")
    browser.text("No broadcasts yet.")


def task_recordings(browser, url, film):
    """A file is uploaded, found, played, and deleted; a broadcast is told to be recorded."""
    first_user(browser, url)
    make_broadcast(browser, url, "live", "Stage", "stage")
    browser.click("Start recording")
    browser.text("Stop recording")
    browser.go(f"{url}#/app/live")
    browser.click("Recordings")
    browser.text("No recordings yet.")

    def pick(name):
        with open(film, "rb") as file:
            content = base64.b64encode(file.read()).decode()
        browser.run(f"""(() => {{
            const bytes = Uint8Array.from(atob("{content}"), (c) => c.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], {json.dumps(name)}));
            const input = document.getElementById("upload");
            input.files = files.files;
            input.dispatchEvent(new Event("change", {{ bubbles: true }}));
            return true;
        }})()""")

    pick("notes.txt")
    browser.text("Accepted files")
    for name in ("my film.mp4", "<img src=x onerror='globalThis.ran=1'>.mp4"):
        pick(name)
        browser.text(f"“{name}” was uploaded.")
        browser.wait("its row", lambda: browser.run(f"[...document.querySelectorAll('tbody button.link')].some((e) => e.innerText === {json.dumps(name)})"))
    assert not browser.run("Boolean(globalThis.ran)"), "it ran"
    browser.run("""(() => {
        const field = document.querySelector("input[type=search]");
        field.value = "my fi";
        field.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")
    browser.gone("<img")
    browser.click("my film.mp4", "document.querySelector('tbody')")
    # Nobody has touched the page: sound would not be let play.
    browser.wait("the player", lambda: browser.run("""(() => {
        const video = document.querySelector("video");
        if (video) video.muted = true;
        video?.play();
        return Boolean(video);
    })()"""))
    browser.wait("pictures", lambda: browser.run("document.querySelector('video').currentTime > 0.5"))
    browser.click("Close")
    browser.click("Delete my film.mp4")
    browser.click("Delete 1")
    browser.text("Nothing found.")
    browser.run("""(() => {
        const field = document.querySelector("input[type=search]");
        field.value = "";
        field.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")
    browser.wait("the other", lambda: browser.run("document.querySelectorAll('tbody tr').length") == 1)
    browser.run("document.querySelector('thead input').click()")
    browser.click("Delete 1", "document.querySelector('.tools')")
    browser.click("Delete 1")
    browser.text("No recordings yet.")


def task_settings(browser, url):
    """A setting is found, changed, saved, and still there when the page is loaded anew."""
    first_user(browser, url)
    browser.go(f"{url}#/settings/live")
    browser.text("hlsListSize")
    browser.text("Segments in a playlist")
    unnamed = browser.run("[...document.querySelectorAll('.setting label')].filter((one) => !/^[A-Z].* /.test(one.querySelector('span').textContent)).map((one) => one.textContent)")
    assert unnamed == [], f"without a name for people: {unnamed}"
    # Settings without effect are there, and not open.
    browser.text("Ant Media Server settings without effect here")
    assert not browser.run("document.querySelector('details.foreign').open")
    assert browser.run("document.querySelector('details.foreign #setting-webRTCFrameRate') !== null")
    assert browser.run("document.querySelector('details.foreign #setting-hlsListSize') === null")
    browser.run("""(() => {
        const field = document.getElementById("setting-hlsListSize");
        field.value = "7";
        field.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")
    browser.text("1 change")
    browser.click("Save")
    browser.text("Saved")
    browser.go(url)
    browser.go(f"{url}#/settings/live")
    browser.wait("the value", lambda: browser.run("document.getElementById('setting-hlsListSize')?.value") == "7")
    browser.go(f"{url}#/server")
    browser.text("Certificate valid until")


def task_users(browser, url):
    """A user is added and deleted; the log is shown."""
    first_user(browser, url)
    browser.go(f"{url}#/users")
    browser.click("Add user")
    browser.fill("email", "reader@example.com")
    browser.fill("password", "another horse")
    browser.fill("role", "READ_ONLY")
    browser.click("Add user")
    browser.text("reader@example.com")
    browser.text("Reader")
    # An administrator changes the role, and gives a new password.
    row = "[...document.querySelectorAll('tr')].find((row) => row.innerText.includes('reader@'))"
    browser.click("Edit", row)
    browser.fill("role0", "")
    browser.click("Save")
    browser.text("Keep access to at least one application")
    browser.fill("place", "live")
    browser.fill("role", "USER")
    browser.fill("fresh", "a third horse")
    browser.click("Save")
    browser.wait("the new role", lambda: browser.run(f"{row}.innerText.includes('live') && {row}.innerText.includes('User')"))
    assert not browser.run(f"{row}.innerText.includes('All applications')")
    body = {"email": "reader@example.com", "password": hashlib.md5(b"a third horse").hexdigest()}
    asked = urllib.request.Request(f"{url}rest/v2/users/authenticate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert json.load(urllib.request.urlopen(asked))["success"]
    browser.click("Delete", row)
    browser.click("Delete user")
    browser.gone("reader@example.com")
    browser.go(f"{url}#/log")
    browser.text("user saved")


def shown(browser):
    """The controls of the page that write, as far as they are shown."""
    return browser.run("""[...document.querySelectorAll(".writes, .manages")].filter((one) => one.offsetParent)
        .map((one) => one.innerText || one.getAttribute("aria-label"))""")


def task_readers(browser, url):
    """A user who may only read sees no control that writes; a user of broadcasts sees none of settings and users."""
    first_user(browser, url)
    make_broadcast(browser, url, "live", "Stage", "stage")
    places = ["broadcasts", "broadcast", "recordings", "settings", "server", "users", "overview"]
    for place in ("broadcasts", "broadcast", "recordings", "users", "overview"):
        browser.go(f"{url}{PLACES[place][0]}")
        browser.text(PLACES[place][1])
        assert shown(browser), f"{place}: an administrator may write"
    for role in ("READ_ONLY", "USER"):
        browser.go(f"{url}#/users")
        browser.click("Add user")
        browser.fill("email", f"{role.lower()}@example.com")
        browser.fill("password", "another horse")
        browser.fill("role", role)
        browser.click("Add user")
        browser.text(f"{role.lower()}@example.com")
    for role, writes in (("READ_ONLY", ()), ("USER", ("broadcasts", "broadcast", "recordings"))):
        browser.click("Log out")
        browser.fill("email", f"{role.lower()}@example.com")
        browser.fill("password", "another horse")
        browser.click("Log in")
        for place in places:
            browser.go(f"{url}{PLACES[place][0]}")
            browser.text({"broadcast": "Play from", "broadcasts": "Stage", "recordings": "No recordings yet."}.get(place, PLACES[place][1]))
            assert bool(shown(browser)) == (place in writes), f"{role}, {place}: {shown(browser)}"
        browser.go(f"{url}#/settings/live")
        browser.text("hlsListSize")
        assert browser.run("[...document.querySelectorAll('.setting input')].every((one) => one.disabled || one.readOnly)"), "settings change"


def task_user_pages(browser, url):
    """Users on several pages of a list, which the server ends by its bytes: all of them are reached."""
    first_user(browser, url)
    browser.run("""(() => {
      const usual = window.fetch;
      window.fetch = (to, init) => {
        const asked = new URL(to, location.href);
        if (!asked.pathname.endsWith("/rest/v2/user-list")) return usual(to, init);
        const [offset, size, all] = [Number(asked.searchParams.get("offset")), 40, 100];
        const users = [...Array(all).keys()].map((n) => ({ email: `user${n}@example.com`, scope: "system", userType: "USER" }));
        const headers = offset + size < all ? { "Next-Offset": String(offset + size) } : {};
        return Promise.resolve(new Response(JSON.stringify(users.slice(offset, offset + size)), { headers }));
      };
      location.hash = "#/users";
    })()""")
    for first, last in [(0, 39), (40, 79), (80, 99)]:
        browser.text(f"{first + 1}\u2013{last + 1}")
        browser.text(f"user{first}@example.com")
        browser.text(f"user{last}@example.com")
        browser.gone(f"user{last + 1}@example.com")
        if last < 99:
            browser.click("Next")
    assert browser.run("[...document.querySelectorAll('nav.pages button')].map((one) => one.disabled)") == [False, True]
    browser.click("Previous")
    browser.text("user40@example.com")


def task_session(browser, url):
    """A session that ends in mid-work: nothing typed is lost, and the call is made after the login."""
    first_user(browser, url)
    make_broadcast(browser, url, "live", "", "kept")
    browser.fill("url", "rtmp://127.0.0.1:9/app/typed")
    # The session ends at the server, as it does when nothing was done for long.
    browser.run("fetch('/rest/v2/users/logout', { method: 'DELETE', headers: { 'Content-Type': 'application/json' } })")
    browser.text("Your session has expired.")
    browser.fill("email", EMAIL)
    browser.fill("password", PASSWORD)
    browser.click("Log in")
    browser.gone("Your session has expired.")
    browser.click("Add endpoint")
    browser.text("rtmp://127.0.0.1:9/app/typed")


def task_hostile(browser, url, marker):
    """Names with markup are text: nothing of them runs, no element comes of them."""
    first_user(browser, url)
    browser.go(f"{url}#/app/live")
    browser.text(marker)
    browser.click(marker)
    browser.text("Publish to")
    browser.text(marker)
    time.sleep(1)
    assert not browser.run("Boolean(globalThis.ran)"), "it ran"
    assert browser.run("document.querySelectorAll('main img, main script, main iframe, main svg[onload]').length") == 0


def task_foreign(browser, url):
    """A page of another origin, open beside the panel: it writes nothing, reads nothing, and cannot frame the panel."""
    first_user(browser, url)
    with socketserver.TCPServer(("127.0.0.1", 0), ForeignPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.go(f"http://127.0.0.1:{server.server_address[1]}/")
        read = browser.run(f"attack({json.dumps(url)})")
        browser.run(f"frame({json.dumps(url)})")
        frames = lambda: browser.send("Page.getFrameTree")["frameTree"].get("childFrames", [])
        browser.wait("the error in the frame", lambda: [f for f in frames() if f["frame"]["url"].startswith("chrome-error:")])
        server.shutdown()
    assert read == [], f"it could read {read}"
    # The browser's message about it is not an error of the panel.
    assert any("frame-ancestors" in text for text in browser.told), browser.told
    browser.told.clear()
    browser.go(url)
    browser.text("Live streams")
    assert browser.run("fetch('/rest/v2/applications').then((answer) => answer.json())") == {"applications": ["LiveApp", "live"]}
    assert len(browser.run("fetch('/rest/v2/user-list').then((answer) => answer.json())")) == 1
    assert browser.run("fetch('/live/rest/v2/broadcasts/count').then((answer) => answer.json())") == {"number": 0}


class ForeignPage(http.server.BaseHTTPRequestHandler):
    """A foreign page that the operator was lured to. Its requests need no preflight, and carry the panel's cookie."""
    PAGE = b"""<!doctype html><title>elsewhere</title><script>
    async function attack(to) {
      const user = JSON.stringify({ email: "evil@example.com", password: "0".repeat(32), scope: "system", userType: "ADMIN" });
      const post = (path, body) => fetch(to + path, { method: "POST", mode: "no-cors", credentials: "include", body });
      await post("rest/v2/applications/evil");
      await post("rest/v2/users", user);
      await post("live/rest/v2/broadcasts/create", '{"streamId":"evil"}');
      await post("rest/v2/request?_path=live/rest/v2/broadcasts/create", '{"streamId":"evil"}');
      const read = [];
      for (const path of ["rest/v2/user-list", "rest/v2/applications", "rest/v2/live"]) {
        await fetch(to + path, { credentials: "include" }).then((answer) => answer.text()).then((text) => read.push(text), () => {});
      }
      return read;
    }
    function frame(of) {
      document.body.append(Object.assign(document.createElement("iframe"), { src: of }));
    }
    </script><body>"""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.PAGE)))
        self.end_headers()
        self.wfile.write(self.PAGE)

    def log_message(self, *args):
        pass


def task_restart(browser, url, pause, go_on):
    """The server goes and comes back under an open panel."""
    first_user(browser, url)
    open(pause, "w").close()
    browser.text("The server is not responding.")
    open(go_on, "w").close()
    browser.gone("The server is not responding.")
    # Sessions are in memory: somebody logs in again, where he was.
    browser.text("Your session has expired.")
    browser.fill("email", EMAIL)
    browser.fill("password", PASSWORD)
    browser.click("Log in")
    browser.gone("Your session has expired.")
    browser.text("Live streams")


def task_axe(browser, url):
    """No page has what axe calls serious or critical."""
    import axe_core_python

    rules = open(os.path.join(os.path.dirname(axe_core_python.__file__), "axe.min.js")).read()
    found = []

    def look(page):
        browser.run(rules)
        result = browser.run("axe.run(document, { resultTypes: ['violations'] })")
        bad = [one for one in result["violations"] if one["impact"] in ("serious", "critical")]
        found.extend(f"{page}: {one['id']}: {node['html'][:200]}" for one in bad for node in one["nodes"][:3])

    browser.go(url)
    browser.text("Create the first user")
    look("first user")
    first_user(browser, url)
    make_broadcast(browser, url, "live", "Stage", "stage")
    for size in SIZES:
        for dark in (False, True):
            browser.size(size, dark)
            for name, (place, wanted) in PLACES.items():
                browser.go(url + place)
                browser.text(wanted)
                look(f"{name} {size} {'dark' if dark else 'light'}")
    browser.go(f"{url}#/app/live")
    browser.click("New broadcast")
    look("new broadcast")
    assert not found, "\n".join(found)
    # The rules see what is wrong.
    browser.run("document.querySelector('main').append(document.createElement('button'))")
    look("a button without a name")
    assert found, "axe finds nothing"


def task_keyboard(browser, url):
    """The first user, a broadcast and its end without a mouse: everything is reached by Tab and shows that it has the focus."""
    named = """((one) => one === document.body ? ""
        : one.getAttribute("aria-label") ?? (one.labels?.[0] ?? one).innerText.trim())(document.activeElement)"""
    seen = """((one) => { const style = getComputedStyle(one); return style.outlineStyle !== "none" || style.boxShadow !== "none"; })(document.activeElement)"""

    def reach(wanted):
        """Tab, until that has the focus."""
        passed = []
        for _ in range(60):
            name = browser.run(named)
            if name.startswith(wanted):
                return
            passed.append(name)
            browser.press("Tab")
            assert browser.run("document.activeElement === document.body") or browser.run(seen), f"{browser.run(named)!r} does not show its focus"
        raise AssertionError(f"{wanted} is not reached: {passed[:20]}")

    browser.go(url)
    browser.text("Create the first user")
    for field, text in [("E-mail", EMAIL), ("Password", PASSWORD), ("Password again", PASSWORD)]:
        reach(field)
        browser.type(text)
    browser.press("Enter")
    browser.text("Live streams")
    reach("live")
    browser.press("Enter")
    browser.text("New broadcast")
    # A dialog that is left gives the focus back.
    reach("New broadcast")
    browser.press("Enter")
    browser.wait("the dialog", lambda: browser.run("document.querySelector('dialog')?.contains(document.activeElement) ?? false"))
    browser.press("Escape")
    browser.wait("its end", lambda: not browser.run("Boolean(document.querySelector('dialog'))"))
    browser.wait("the focus", lambda: browser.run(named) == "New broadcast")
    browser.press("Enter")
    reach("Name")
    browser.type("By keys")
    browser.press("Enter")
    browser.text("Publish to")
    reach("Delete")
    browser.press("Enter")
    browser.text("Delete broadcast")
    reach("Delete broadcast")
    browser.press("Enter")
    browser.gone("By keys")


def choose(browser, label, value):
    """Chooses a value of a list above a table."""
    browser.run(f"""(() => {{
        const field = [...document.querySelectorAll(".tools label")].find((one) => one.innerText.startsWith({json.dumps(label)})).querySelector("select");
        field.value = {json.dumps(value)};
        field.dispatchEvent(new Event("change", {{ bubbles: true }}));
    }})()""")


def task_many(browser, url, count):
    """Pages, the search and the order of many broadcasts."""
    first_user(browser, url)
    browser.go(f"{url}#/app/live")
    browser.text(f"1–50 of {count}")
    browser.click("Next")
    browser.text(f"51–100 of {count}")
    # A filter is the server's: it reaches every broadcast.
    choose(browser, "Status", "created")
    browser.text(f"1–50 of {count}")
    choose(browser, "Status", "broadcasting")
    browser.text("Nothing found.")
    choose(browser, "Status", "")
    browser.text(f"1–50 of {count}")
    browser.run("""(() => {
        const field = document.querySelector("input[type=search]");
        field.value = "number 777";
        field.dispatchEvent(new Event("input", { bubbles: true }));
    })()""")
    browser.text("Number 7770")
    browser.gone(f"of {count}")
    assert browser.run("document.querySelectorAll('tbody tr').length") == 11


def task_reference(browser, url):
    """The API's document is shown, and what is tried there is done, with the panel's login."""
    first_user(browser, url)
    browser.go(f"{url}reference.html")
    browser.run("""(globalThis.deep = (within, wanted) => {
        for (const one of within.querySelectorAll("*")) {
            if (one.matches(wanted) && one.offsetParent) return one;
            const found = one.shadowRoot && deep(one.shadowRoot, wanted);
            if (found) return found;
        }
        return null;
    }) && 1""")

    def try_it(wanted, method, path, **values):
        """The answer to the operation is good, and has this text."""
        place = re.sub(r"[{}]", "-", f"{method}-{path}")
        browser.wait("the viewer", lambda: browser.run("Boolean(deep(document, '.nav-bar-path'))"))
        browser.run(f"document.querySelector('rapi-doc').scrollToPath({json.dumps(place)}) && 1")
        for name, value in values.items():
            browser.wait(name, lambda: browser.run(f"""(() => {{
                const field = deep(document, "[data-pname={name}]");
                if (field) field.value = {json.dumps(value)};
                return Boolean(field);
            }})()"""))
        browser.wait("to try it", lambda: browser.run("(() => { const one = deep(document, '[part~=btn-try]'); one?.click(); return Boolean(one); })()"))
        answer = "deep(document, '.response-message')?.closest('.request-panel').innerText ?? ''"
        browser.wait(wanted, lambda: ":200" in browser.run(answer) and wanted in browser.run(answer))

    try_it('"success": true', "post", "/rest/v2/applications/{app}", app="shop")
    try_it('"shop"', "get", "/rest/v2/applications")
    # An application asks for the caller's address; by the panel's way, the login counts.
    try_it('"number": 0', "get", "/{app}/rest/v2/broadcasts/count", app="shop")
    asked = browser.run("performance.getEntriesByType('resource').map((one) => one.name)")
    assert any("/rest/v2/request?_path=shop%2Frest%2Fv2%2Fbroadcasts%2Fcount" in one for one in asked), asked


def task_newcomer(browser, url):
    """From the first page to a stream that is live, watched and forwarded, by the panel alone."""
    began = time.monotonic()
    first_user(browser, url)
    browser.text("First steps")
    browser.click("Send a test stream")
    browser.text("This page is sending the test stream live/test.")
    # The stream plays by itself on its page.
    player = "document.querySelector('.preview iframe')?.contentDocument?.getElementById('player')"
    browser.wait("the player", lambda: browser.run(f"{player}?.state?.state ?? null") == "playing")
    browser.wait("pictures", lambda: browser.run(f"{player}.video.getVideoPlaybackQuality().totalVideoFrames > 5"))
    # The page knows the server's ports a moment after it is there.
    target = browser.wait("the address with its port", lambda: browser.run(
        "[...document.querySelectorAll('code')].map((e) => e.innerText).find((e) => /^rtmp:\\/\\/[^/]+:\\d+\\//.test(e))"))
    browser.fill("url", target.replace("/live/test", "/LiveApp/copy"))
    browser.click("Add endpoint")
    browser.text("/LiveApp/copy")
    browser.wait("the stream and its copy", lambda: browser.run(
        "document.querySelectorAll('.badge[data-status=broadcasting]').length") == 2)
    print(f"{time.monotonic() - began:.1f} s from the first page to a stream that is watched and forwarded", file=sys.stderr)
    browser.click("End test stream")
    browser.gone("This page is sending the test stream")


def task_recorded(browser, url):
    """An application that records all of its streams: the page says so, and ends it; so does the list of what is recorded."""
    first_user(browser, url)
    browser.go(f"{url}#/broadcast/live/cam")
    browser.click("Stop recording")
    browser.text("Start recording")
    browser.click("Start recording")
    browser.text("Stop recording")
    browser.go(f"{url}#/recordings/live")
    browser.text("Recording now")
    browser.click("Stop recording cam")
    browser.gone("Recording now")
    # The file is there, and the page says how much there is.
    browser.wait("the files", lambda: browser.run("document.querySelectorAll('tbody tr').length") >= 1)
    browser.wait("the sum", lambda: browser.run("/\\d+ .*\\d [KMG]?B/.test(document.querySelector('.head').innerText)"))


def task_viewers(browser, url, peer):
    """Viewers are listed, and can be disconnected."""
    first_user(browser, url)
    browser.go(f"{url}#/broadcast/live/cam")
    browser.wait("the viewer", lambda: browser.run("document.querySelectorAll('#viewers .list li').length") == 1)
    browser.text("HTTP-FLV · for")
    browser.click(f"Disconnect {peer}")
    browser.text("The viewer is disconnected.")
    browser.text("Nobody is watching at the moment.")


def task_polled(browser, url, peer):
    """A viewer of HLS, who has no connection, is listed like others, and can be disconnected."""
    first_user(browser, url)
    browser.go(f"{url}#/broadcast/live/cam")
    browser.text("HLS · for")
    browser.click(f"Disconnect {peer}")
    browser.text("The viewer is disconnected.")
    browser.text("Nobody is watching at the moment.")


def task_list(browser, url):
    """The list of broadcasts tells what comes and how well, and is filtered."""
    first_user(browser, url)
    make_broadcast(browser, url, "live", "Not live", "idle")
    browser.go(f"{url}#/app/live")
    for wanted in ("RTMP · H.264, AAC", "640 × 360", "good", "Not live"):
        browser.text(wanted)

    choose(browser, "Status", "broadcasting")
    browser.gone("Not live")
    browser.text("cam")
    choose(browser, "Protocol", "SRT")
    browser.text("Nothing found.")
    choose(browser, "Protocol", "RTMP")
    browser.text("640 × 360")
    # Figures go back to before the page was opened: the server has them by the minute.
    browser.go(f"{url}#/log")
    browser.text("stream started")
    choose(browser, "Stream", "live/cam")
    browser.gone("listening")
    choose(browser, "Level", "ERROR")
    browser.text("No lines match.")


def task_files(browser, url):
    """Broadcasts and settings go into files, and come out of them."""
    first_user(browser, url)
    make_broadcast(browser, url, "live", "Kept", "kept")
    browser.run("""(() => {
        globalThis.files = [];
        URL.createObjectURL = (blob) => { blob.text().then((text) => files.push(text)); return "#"; };
        HTMLAnchorElement.prototype.click = () => {};
    })()""")
    browser.run("(location.hash = '#/app/live') && 1")
    browser.text("Import")
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText.trim() === 'Export').click()")
    browser.wait("the file", lambda: browser.run("files.length") == 1)
    made = json.loads(browser.run("files[0]"))
    assert [(one["streamId"], one["name"]) for one in made] == [("kept", "Kept")], made
    assert "status" not in made[0] and "rtmpURL" not in made[0], made

    def pick(text):
        browser.run(f"""(() => {{
            const files = new DataTransfer();
            files.items.add(new File([{json.dumps(text)}], "file.json"));
            const input = document.querySelector("input[type=file]");
            input.files = files.files;
            input.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()""")

    pick(json.dumps([*made, {**made[0], "streamId": "another", "name": "Another"}]))
    browser.text("1 created, 1 already existed")
    browser.text("Another")
    # These do not fit into one call, nor into one page of the list, and differ from the defaults in all members.
    given = {
        "listenerHookURL": "http://198.51.100.1/hook", "virtual": True, "subtracksLimit": 3, "ipAddr": "198.51.100.2", "seekTimeInMs": 5,
        "standbyEnabled": True, "publish": False, "publicStream": False, "is360": True,
        "encoderSettingsList": [{"height": 240, "videoBitrate": 300000, "audioBitrate": 64000, "forceEncode": True}],
        "hlsParameters": {"hlsListSize": "7"}, "metaData": "m" * 20000,
    }
    many = [{**given, "streamId": f"many{n:03}", "type": "liveStream"} for n in range(150)]
    pick(json.dumps(many))
    browser.text("150 created")
    browser.run("files.length = 0, [...document.querySelectorAll('button')].find((one) => one.innerText.trim() === 'Export').click()")
    browser.wait("the file", lambda: browser.run("files.length") == 1)
    back = {one["streamId"]: one for one in json.loads(browser.run("files[0]"))}
    assert len(back) == 152, len(back)
    for name, value in given.items():
        seen = back["many149"].get(name)
        fits = isinstance(value, (dict, list)) and seen or seen == value
        assert fits, (name, value, seen)
    pick("{}")
    browser.text("This file is not a list of broadcasts.")
    browser.run("(location.hash = '#/settings/live') && 1")
    browser.text("hlsListSize")
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText.trim() === 'Export').click()")
    browser.wait("the file", lambda: browser.run("files.length") == 2)
    settings = json.loads(browser.run("files[1]"))
    assert "hlsListSize" in settings and "jwtSecretKey" not in settings, settings
    pick(json.dumps({**settings, "hlsListSize": "9", "unknown": 1}))
    browser.text("1 change from the file; nothing is saved yet.")
    browser.click("Save")
    browser.text("Saved")
    assert browser.run("document.getElementById('setting-hlsListSize').value") == "9"


def task_load(browser, url):
    """Measures the time until the panel is there over 10 Mb/s with a round trip of 50 ms, and its bytes. Not a test."""
    browser.log_in(url)
    rate = 10_000_000 / 8
    browser.send("Network.emulateNetworkConditions", offline=False, latency=50, downloadThroughput=rate, uploadThroughput=rate)
    for way, disabled in (("first", True), ("again", False)):
        browser.send("Network.setCacheDisabled", cacheDisabled=disabled)
        browser.send("Page.navigate", url="about:blank")
        browser.send("Page.navigate", url=url)
        browser.wait("the figures", lambda: browser.run("document.querySelectorAll('.figure .value').length") == 5)
        ms, files, size = browser.run("""[performance.now(), performance.getEntriesByType("resource").length,
            performance.getEntriesByType("resource").reduce((sum, one) => sum + one.transferSize, 0)]""")
        print(f"{way}: {ms:.0f} ms, {files} files, {size / 1000:.0f} kB", file=sys.stderr)


def task_cost(browser, url, pid, stream, seconds="20"):
    """Measures the cost of watching for the server, in parts of a core: its processor time with a page open and without, in turn. Not a test."""
    def used():
        """Seconds of all threads."""
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measured(place):
        browser.go(place)
        time.sleep(3)
        began, before = time.monotonic(), used()
        time.sleep(float(seconds))
        return (used() - before) / (time.monotonic() - began) * 100

    browser.log_in(url)
    for place in ("#/overview", "#/app/live", f"#/broadcast/live/{stream}"):
        pairs = [(measured("about:blank"), measured(url + place)) for _ in range(3)]
        differences = ", ".join(f"{watched - alone:+.2f}" for alone, watched in pairs)
        print(f"{place}: {differences} % of a core, of {pairs[0][0]:.1f} % without", file=sys.stderr)


def task_pictures(browser, url, folder):
    """Every page, light and dark, on a desk and on a phone, into a folder. Not a test."""
    browser.log_in(url)
    for size in SIZES:
        for dark in (False, True):
            browser.size(size, dark)
            for name, (place, wanted) in (PLACES | OTHER_PLACES).items():
                browser.go(url + place)
                browser.text(wanted)
                time.sleep(12 if name in ("overview", "broadcast") else 3)
                browser.picture(f"{folder}/{name}-{size}-{'dark' if dark else 'light'}.png")


def main():
    program, task, url, *more = sys.argv[1:]
    browser = {"chromium": Chromium, "firefox": Firefox}[program]()
    try:
        globals()[f"task_{task}"](browser, url, *more)
        assert not browser.told, f"the page reports: {browser.told}"
    finally:
        browser.close()
    print("ok")


if __name__ == "__main__":
    main()
