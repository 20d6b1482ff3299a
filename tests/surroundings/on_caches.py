"""Counts the HLS that Varnish and nginx keep for 20 viewers; configurations are those of docs/proxies.md."""

import collections
import threading
import time
import urllib.parse

from support import Program, Server, connect, example, folder, free_port, need, request, wait_for

VIEWERS = 20
SECONDS = 20
PROXIED = ["server.trusted_proxies=127.0.0.1", "server.allowed_dashboard_CIDR=0.0.0.0/0"]
# In front of the server, and what its playlists say; the caches' answers tell what they had.
SETTINGS = [("as it comes", []), ("`hls.playlistCacheControl=max-age=1`", ["app.hls.playlistCacheControl=max-age=1"])]


class Viewer(threading.Thread):
    """A player: the playlist twice in a segment's time, and each segment once."""

    def __init__(self, url, number, until):
        super().__init__()
        self.url, self.number, self.until = url, number, until
        self.seen, self.faults = collections.Counter(), []

    def get(self, kind, url):
        status, fields, body = request("GET", url, None, {"User-Agent": f"viewer-{self.number}"}, self.connection)
        had = fields.get("X-Cache", "none").upper()
        self.seen[kind, had in ("HIT", "STALE", "UPDATING")] += 1
        if status != 200:
            self.faults.append(f"{status} {url}")
        return body.decode("latin-1")

    def run(self):
        self.connection = connect(self.url)
        known = None
        try:
            while time.monotonic() < self.until:
                text = self.get("playlist", self.url)
                lines = [line for line in text.splitlines() if line and not line.startswith("#")]
                if lines and ".m3u8" in lines[0]:
                    self.url = urllib.parse.urljoin(self.url, lines[0])
                    continue
                # A new viewer begins near the live edge.
                fresh = lines[-3:] if known is None else [line for line in lines if line not in known]
                known = set(lines)
                for line in fresh:
                    self.get("segment", urllib.parse.urljoin(self.url, line))
                time.sleep(0.5)
        except OSError as error:
            self.faults.append(repr(error))
        self.connection.close()


def rates(base):
    until = time.monotonic() + SECONDS
    viewers = [Viewer(f"{base}/live/streams/a.m3u8", number, until) for number in range(VIEWERS)]
    for viewer in viewers:
        viewer.start()
        time.sleep(0.05)
    for viewer in viewers:
        viewer.join()
    faults = [fault for viewer in viewers for fault in viewer.faults]
    assert not faults, faults[:5]
    seen = sum((viewer.seen for viewer in viewers), collections.Counter())
    def rate(kind):
        had, had_not = seen[kind, True], seen[kind, False]
        assert had + had_not > VIEWERS * SECONDS / 2, seen
        return 100 * had / (had + had_not)
    return rate("playlist"), rate("segment")


def varnish(server, place, port):
    config = example("docs/proxies.md", "Varnish")
    host, own = server.http.rsplit(":", 1)
    assert '.host = "127.0.0.1"; .port = "5080";' in config
    config = config.replace('.host = "127.0.0.1"; .port = "5080";', f'.host = "{host}"; .port = "{own}";')
    config += 'sub vcl_deliver { if (obj.hits > 0) { set resp.http.X-Cache = "HIT"; } else { set resp.http.X-Cache = "MISS"; } }\n'
    (place / "media.vcl").write_text(config)
    return Program("varnishd", "-F", "-a", f"127.0.0.1:{port}", "-f", place / "media.vcl", "-n", place / "varnish", "-s", "malloc,128m", port=port)


def nginx(server, place, port):
    config = example("docs/proxies.md", "nginx as a cache")
    assert "listen 80;" in config and config.count("127.0.0.1:5080") == 2 and "/var/cache/nginx/media" in config
    config = config.replace("listen 80;", f"listen 127.0.0.1:{port};").replace("127.0.0.1:5080", server.http)
    config = config.replace("/var/cache/nginx/media", f"{place}/cache")
    folders = " ".join(f"{name}_temp_path {place}/{name};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (place / "nginx.conf").write_text(
        f"daemon off; user root; pid {place}/pid; error_log {place}/errors; events {{}}\nhttp {{ access_log off; {folders}\n{config}}}\n")
    return Program("nginx", "-e", "stderr", "-c", place / "nginx.conf", port=port)


def table(name, start):
    rows = []
    for label, settings in SETTINGS:
        with folder() as place, Server("app.hlsTime=1", *PROXIED, *settings) as server, server.publish("a"):
            place.chmod(0o755)
            port = free_port()
            base = f"http://127.0.0.1:{port}"
            with start(server, place, port) as cache:
                wait_for("the playlist", lambda: request("GET", f"http://{server.http}/live/streams/a.m3u8")[0] == 200)
                try:
                    playlists, segments = rates(base)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{cache.log()[-2000:]}") from None
                # The panel and the API pass it all the same.
                answer = request("GET", f"{base}/rest/v2/liveness")
                assert answer[0] == 200, (answer[0], answer[2])
        # Each segment is fetched by one viewer of twenty; a second one may be under way at the same time.
        assert segments > 85, (name, label, segments)
        rows.append(f"| {name} | {label} | {playlists:.0f} % | {segments:.0f} % |")
        if settings:
            assert playlists > 60, (name, playlists)
    return rows


def check_varnish_with_twenty_viewers_of_hls():
    need("varnishd", "cc")
    return table("Varnish", varnish)


def check_nginx_with_twenty_viewers_of_hls():
    need("nginx")
    return table("nginx", nginx)
