"""The panel and WHIP sessions through nginx, HAProxy, Caddy and Traefik, at the root and in a folder; configurations are those of docs/proxies.md."""

import http.cookies
import json
import re
import urllib.parse

from support import Program, Server, example, folder, free_port, need, request, run, wait_for

SETTINGS = ["server.trusted_proxies=127.0.0.1", "server.allowed_dashboard_CIDR=0.0.0.0/0"]
# Of a browser, cut to what a server needs to answer.
OFFER = """v=0
o=- 1 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0
m=video 9 UDP/TLS/RTP/SAVPF 96
c=IN IP4 0.0.0.0
a=rtcp-mux
a=ice-ufrag:abcd
a=ice-pwd:abcdefghijklmnopqrstuvwx
a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF
a=setup:actpass
a=mid:0
a=sendonly
a=rtpmap:96 H264/90000
a=fmtp:96 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f
""".replace("\n", "\r\n")
PASSWORD = "5ebe2294ecd0e0f08eab7690d2a6ee69"


def whip(base):
    for tail, agent in [("u1", "x"), ("u2/", "x"), ("u3?a=b/c", "x"), ("u4", "Mozilla/5.0 (OBS-Studio/30.2.0)")]:
        endpoint = f"{base}/live/whip/{tail}"
        status, fields, text = request("POST", endpoint, OFFER, {"Content-Type": "application/sdp", "User-Agent": agent})
        assert status == 201, (endpoint, status, text)
        session = urllib.parse.urljoin(endpoint, fields["Location"])
        name = re.split("[/?]", tail)[0]
        assert session.startswith(f"{base}/live/whip/{name}/"), session
        status, _, text = request("DELETE", session, None, {"User-Agent": agent})
        assert status == 200, (session, status, text)


def panel(base):
    status, _, page = request("GET", f"{base}/")
    assert status == 200, (status, page)
    files = [name for name in page.decode().split('"') if name.endswith((".js", ".css"))]
    assert len(files) > 5, page
    for name in files:
        url = urllib.parse.urljoin(f"{base}/", name)
        assert request("GET", url)[0] == 200, url
    own = urllib.parse.urlsplit(base)
    as_json = {"Content-Type": "application/json", "Origin": f"{own.scheme}://{own.netloc}"}
    login = json.dumps({"email": "me@example.org", "password": PASSWORD})
    status, fields, text = request("POST", f"{base}/rest/v2/users/authenticate", login, as_json)
    assert status == 200 and json.loads(text)["success"], (status, text)
    assert fields["Set-Cookie"].endswith("; Secure"), fields["Set-Cookie"]
    cookie = http.cookies.SimpleCookie(fields["Set-Cookie"])
    as_json["Cookie"] = "; ".join(f"{name}={value.value}" for name, value in cookie.items())
    write = f"{base}/rest/v2/request?_path=live/rest/v2/broadcasts/create"
    for more, want in [({}, 200), ({"Origin": "https://evil.example"}, 403), ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "same-site"}, 403)]:
        status, _, text = request("POST", write, "{}", {**as_json, **more})
        assert status == want, (more, status, text)


def leads(url):
    try:
        return request("GET", url)[0] == 200
    except OSError:
        return False


def through(server, start):
    """Both through a proxy at the root, and in the folder /media."""
    user = {"email": "me@example.org", "password": PASSWORD}
    assert server.api("POST", "/rest/v2/users/initial", user)[1]["success"]
    for in_folder in [False, True]:
        with folder() as place:
            port = free_port()
            base = f"https://localhost:{port}" + ("/media" if in_folder else "")
            with start(server, place, port, in_folder) as proxy:
                try:
                    # The proxy listens before it has read its routes.
                    wait_for("the way through", lambda: leads(f"{base}/rest/v2/liveness"))
                    whip(base)
                    panel(base)
                except (AssertionError, OSError) as error:
                    raise AssertionError(f"{base}: {error}\n{proxy.log()[-2000:]}") from None


def caddy(server, place, port, in_folder):
    config = example("docs/proxies.md", "Caddy", 1 if in_folder else 0)
    assert config.startswith("media.example {\n") and "127.0.0.1:5080" in config
    files = f"tls {server.home}/conf/fullchain.pem {server.home}/conf/privkey.pem"
    config = config.replace("media.example {\n", f"https://localhost:{port} {{\n    {files}\n").replace("127.0.0.1:5080", server.http)
    (place / "Caddyfile").write_text("{\n    admin off\n    auto_https disable_redirects\n}\n" + config)
    return Program("caddy", "run", "--adapter", "caddyfile", "--config", place / "Caddyfile", port=port, env={"HOME": str(place)})


def traefik(server, place, port, in_folder):
    config = example("docs/proxies.md", "Traefik", 1 if in_folder else 0)
    assert "Host(`media.example`)" in config and "http://127.0.0.1:5080" in config and "tls: { certResolver: le }" in config
    config = config.replace("media.example", "localhost").replace("127.0.0.1:5080", server.http).replace("{ certResolver: le }", "{}")
    files = f"{{ certFile: {server.home}/conf/fullchain.pem, keyFile: {server.home}/conf/privkey.pem }}"
    (place / "dynamic.yml").write_text(f"{config}tls:\n  certificates: [{files}]\n")
    (place / "traefik.yml").write_text(
        f"entryPoints: {{ web: {{ address: '127.0.0.1:{port}' }} }}\nproviders: {{ file: {{ filename: {place}/dynamic.yml }} }}\n"
        "global: { checkNewVersion: false, sendAnonymousUsage: false }\n")
    return Program("traefik", f"--configFile={place}/traefik.yml", port=port)


def haproxy(server, place, port, in_folder):
    """In mode `http`; the folder is cut off by a rule of its own, which the page has, too."""
    config = example("docs/proxies.md", "HAProxy", 2 if in_folder else 1)
    assert "bind :443 ssl crt /etc/haproxy/media.example.pem" in config and "127.0.0.1:5080" in config
    both = (server.home / "conf" / "fullchain.pem").read_text() + (server.home / "conf" / "privkey.pem").read_text()
    (place / "both.pem").write_text(both)
    config = config.replace(":443 ssl crt /etc/haproxy/media.example.pem", f"127.0.0.1:{port} ssl crt {place}/both.pem")
    limits = "defaults\n    timeout connect 5s\n    timeout client 1m\n    timeout server 1m\n"
    (place / "haproxy.cfg").write_text(limits + config.replace("127.0.0.1:5080", server.http))
    return Program("haproxy", "-db", "-f", place / "haproxy.cfg", port=port)


def nginx(server, place, port, in_folder):
    config = example("docs/proxies.md", "nginx", 0)
    assert "listen 443 ssl;" in config and "proxy_pass http://127.0.0.1:5080;" in config
    config = re.sub(r"(ssl_certificate\w*) +\S+;", lambda found: f"{found[1]} {server.home}/conf/" + ("privkey.pem;" if "key" in found[1] else "fullchain.pem;"), config)
    if in_folder:
        # The comments of the page say what changes.
        config = re.sub(r"^( *)\S[^#\n]*#(?: in a folder:)? *((?:location|proxy_\w+) .*)$", r"\1\2", config, flags=re.MULTILINE)
        assert "location /media/ {" in config and "5080/;" in config and "X-Forwarded-Prefix /media;" in config, config
    config = config.replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:5080", server.http)
    folders = " ".join(f"{name}_temp_path {place}/{name};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (place / "nginx.conf").write_text(
        f"daemon off; user root; pid {place}/pid; error_log {place}/errors; events {{}}\nhttp {{ access_log off; {folders}\n{config}}}\n")
    return Program("nginx", "-e", "stderr", "-c", place / "nginx.conf", port=port)


def check_haproxy_with_the_panel_and_whip():
    need("haproxy")
    with Server(*SETTINGS) as server:
        through(server, haproxy)


def check_nginx_with_the_panel_and_whip():
    need("nginx")
    with Server(*SETTINGS) as server:
        through(server, nginx)


def check_caddy_with_the_panel_and_whip():
    need("caddy")
    with Server(*SETTINGS) as server:
        through(server, caddy)
    return [run("caddy", "version").split()[0]]


def check_traefik_with_the_panel_and_whip():
    need("traefik")
    with Server(*SETTINGS) as server:
        through(server, traefik)
    return [" ".join(run("traefik", "version").split()[:2])]
