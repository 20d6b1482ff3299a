"""The chart of Helm against the schemas of Kubernetes, and what the compose file tells the server. No cluster and no engine is needed, or tried."""

import json
import re

from support import BINARY, ROOT, TOOLS, folder, need, run

CHART = ROOT / "packaging" / "helm" / "millstream"
KUBERNETES = "1.33.0"
VALUES = {
    "as it comes": "",
    "everything": """
workers: 4
webrtc: { candidates: 203.0.113.7 }
settings: { server.trusted_proxies: 10.0.0.0/8, app.hlsTime: 1 }
secretSettings: { srt.passphrase: { name: srt, key: passphrase } }
service: { annotations: { a/b: "c" }, loadBalancerIP: 203.0.113.7 }
ingress: { enabled: true, className: nginx, tlsSecret: tls, annotations: { a/b: "c" } }
persistence: { storageClass: fast }
imagePullSecrets: [{ name: pull }]
nodeSelector: { a: b }
tolerations: [{ key: a, operator: Exists }]
serviceAccountName: other
priorityClassName: high
""",
    "in the network of the node, without a claim": """
hostNetwork: true
udpService: { enabled: false }
service: { type: ClusterIP }
persistence: { enabled: false }
""",
    "with a claim that is there": "persistence: { existingClaim: mine }",
}


def rendered(values):
    with folder() as place:
        (place / "values.yaml").write_text(values or "{}\n")
        return run("helm", "template", "live", CHART, "--kube-version", KUBERNETES, "--values", place / "values.yaml")


def check_the_chart_is_what_kubernetes_takes():
    need("helm", "kubernetes-validate")
    run("helm", "lint", "--strict", CHART)
    for name, values in VALUES.items():
        with folder() as place:
            (place / "all.yaml").write_text(rendered(values))
            version = KUBERNETES.rsplit(".", 1)[0]
            told = run("kubernetes-validate", "--strict", "--kubernetes-version", version, place / "all.yaml")
            assert told.count("passed") >= 2, (name, told)
            (place / "bad.yaml").write_text((place / "all.yaml").read_text().replace("terminationGracePeriodSeconds: 30", "terminationGrace: x"))
            assert "terminationGrace" in run("kubernetes-validate", "--strict", place / "bad.yaml", check=False), name


def check_the_chart_tells_the_server_settings_that_it_knows():
    need("helm")
    text = rendered(VALUES["everything"])
    settings = re.findall(r"- --set\n\s+- \"?([^\"\n]+)", text)
    assert {"server.workers=4", "webrtc.candidates=203.0.113.7", "app.hlsTime=1"} <= set(settings), settings
    with folder() as place:
        (place / "passphrase").write_text("ten letters or more")
        settings = [setting.replace("/run/secrets/millstream/srt.passphrase", f"{place}/passphrase") for setting in settings]
        words = [word for setting in settings for word in ("--set", setting)]
        told = run(BINARY, "check-config", "--home", place / "home", *words)
        assert "server.workers" in told, told
    # The pause and the drain fit into the time that a pod is given.
    assert 'command: [sleep, "15"]' in text and "terminationGracePeriodSeconds: 30" in text


def check_the_compose_file_tells_the_server_settings_that_it_knows():
    need("python3")
    script = """
import json, sys, yaml
print(json.dumps(yaml.safe_load(open(sys.argv[1]))))
"""
    python = TOOLS / "venv" / "bin" / "python"
    need(python)
    compose = json.loads(run(python, "-c", script, ROOT / "packaging" / "compose.yaml"))
    services = compose["services"]
    environment = {name: value.replace("${PUBLIC_ADDRESS:-}", "203.0.113.7") for name, value in services["millstream"]["environment"].items()}
    with folder() as place:
        told = run(BINARY, "check-config", "--home", place / "home", env=environment)
        assert "203.0.113.7" in told and "172.16.0.0/12" in told, told
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            here = (ROOT / "packaging" / source).exists() if source.startswith(".") else source in compose["volumes"]
            assert here, volume
    exposed = re.search(r"^EXPOSE (.*)$", (ROOT / "packaging" / "Dockerfile").read_text(), re.MULTILINE)[1].split()
    published = [re.sub("^.*:", "", port) for port in services["millstream"]["ports"]]
    # Four workers have half of the ports that the image names for eight.
    assert {port.replace("50007", "50003") for port in exposed} == set(published), (exposed, published)
    with folder() as place:
        (place / "prometheus.yml").write_text(compose["configs"]["prometheus"]["content"])
        (place / "alerts.yml").write_text((ROOT / "packaging" / "prometheus" / "alerts.yml").read_text())
        need("promtool")
        run("promtool", "check", "config", place / "prometheus.yml")
