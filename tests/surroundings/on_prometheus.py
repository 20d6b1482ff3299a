"""Prometheus, its rules, and the dashboard of Grafana, on a server with streams and viewers."""

import json
import re
import urllib.parse

from support import BINARY, ROOT, Program, Server, folder, free_port, need, request, run, wait_for

PROMETHEUS = ROOT / "packaging" / "prometheus"
DASHBOARD = ROOT / "packaging" / "grafana" / "millstream.json"


def check_rules_and_their_tests():
    need("promtool")
    run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    run("promtool", "test", "rules", "alerts_test.yml", cwd=PROMETHEUS)


def check_the_dashboard_has_grafanas_schema():
    need("dashboard")
    run("dashboard", DASHBOARD)
    # The reader reads: each of these is refused.
    text = DASHBOARD.read_text()
    with folder() as place:
        for change in [('"schemaVersion": 39', '"schemaVersion": "x"'), ('"refresh": "30s"', '"refresh": 30'), ('"gridPos"', '"gridPlace"')]:
            assert change[0] in text, change
            (place / "bad.json").write_text(text.replace(*change))
            told = run("dashboard", place / "bad.json", check=False)
            assert told.strip(), change


def queries():
    """Title and query of each target of the dashboard, as Grafana would ask with all servers chosen."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "30s").replace("$job", "millstream").replace("$instance", ".*")
            assert "$" not in expression, expression
            yield panel["title"], expression


class Prometheus:
    def __init__(self, server, place):
        self.port = free_port()
        config = (PROMETHEUS / "prometheus.yml").read_text()
        assert "127.0.0.1:5080" in config and config.count(": 15s") == 2
        (place / "prometheus.yml").write_text(config.replace("127.0.0.1:5080", server.http).replace(": 15s", ": 1s"))
        (place / "alerts.yml").write_text((PROMETHEUS / "alerts.yml").read_text())
        self.program = Program(
            "prometheus", f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data",
            f"--web.listen-address=127.0.0.1:{self.port}", port=self.port)

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        status, _, text = request("GET", url)
        answer = json.loads(text or "{}")
        return answer["data"] if status == 200 else {"error": f"{status} {text}"}

    def values(self, expression):
        """The values of a query that are numbers."""
        data = self.ask("query", query=expression)
        assert "error" not in data, (expression, data)
        return [row["value"][1] for row in data["result"] if row["value"][1] != "NaN"]


def check_every_query_has_data_and_alerts_work():
    need("prometheus")
    with folder() as place, Server("server.workers=2") as server:
        url = f"rtmp://{server.ready['rtmp']}/live/a"
        srt = f"srt://{server.ready['srt']}?streamid=#!::h=live,r=s,m=publish"
        prometheus = Prometheus(server, place)
        try:
            with prometheus.program, server.publish("a"), \
                    Program(BINARY, "bench", "play", "--url", url, "--count", 3, "--duration", 600), \
                    Program(BINARY, "bench", "publish", "--url", srt, "--duration", 600):
                connection = f"http://{server.http}/live/streams/a.m3u8"
                wait_for("the playlist", lambda: request("GET", connection)[0] == 200)
                asked = list(queries())
                missing = {}

                def all_have_data():
                    missing.clear()
                    missing.update({expression: title for title, expression in asked if not prometheus.values(expression)})
                    return not missing

                try:
                    wait_for("data for each query", all_have_data, 90)
                except AssertionError:
                    raise AssertionError(f"no data: {missing}") from None

                assert prometheus.values("0 < millstream_disk_usable_bytes <= millstream_disk_bytes")
                # Each series that an alert asks for is there, and Prometheus evaluates each rule without an error.
                alerts = (PROMETHEUS / "alerts.yml").read_text()
                selectors = set(re.findall(r"(?:millstream_\w+|up)\{[^}]*\}", " ".join(alerts.split())))
                assert len(selectors) > 20, selectors
                for selector in selectors:
                    assert prometheus.values(f"count({selector})"), selector
                rules = prometheus.ask("rules")["groups"][0]["rules"]
                assert len(rules) == alerts.count("- alert:")
                wait_for("the rules", lambda: all(rule["health"] == "ok" for rule in prometheus.ask("rules")["groups"][0]["rules"]))
                # Alerts of the machine are left out: a compilation beside this fills its disk and its processors.
                firing = prometheus.values('ALERTS{alertname!~"MillstreamMemory|MillstreamWorkerBusy|MillstreamDisk.*"}')
                assert not firing, prometheus.ask("query", query="ALERTS")
                server.process.terminate()
                wait_for("the alert of a server that is gone", lambda: prometheus.values('ALERTS{alertname="MillstreamDown"}'))
        finally:
            prometheus.program.end()
    return [f"{len(asked)} queries of the dashboard and {len(selectors)} series of {len(rules)} alerts have data"]
