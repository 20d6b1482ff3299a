#!/bin/sh
# Installs the servers that `make networks` compares, unless they are installed: Janus (Debian's package), LiveKit's server (a Go module,
# pinned by livekit/go.mod) and its client (pinned by package-lock.json). MediaMTX is built by benches/peers.sh, or found on the PATH.
# A server that cannot be installed is reported and not run.
set -u
cd "$(dirname "$0")"
# Go's own archive is unpacked into a folder that is not on the PATH.
PATH=$PATH:/usr/local/go/bin
peers=$PWD/../../target/peers
mkdir -p "$peers"

if [ "$(id -u)" = 0 ]; then as_root=; else as_root=sudo; fi
command -v janus >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends janus || echo "Janus cannot be installed" >&2
}
[ "$peers/janus_loopback.so" -nt janus_loopback.c ] || cc -shared -fPIC -o "$peers/janus_loopback.so" janus_loopback.c -ldl

is_current() { # FILE MARK
    [ "$(cat "$peers/$2" 2>/dev/null)" = "$(cksum < "$1")" ]
}
if ! is_current livekit/go.sum livekit.installed; then
    if (cd livekit && GOFLAGS=-mod=readonly go build -o "$peers/livekit-server" github.com/livekit/livekit-server/cmd/server); then
        cksum < livekit/go.sum > "$peers/livekit.installed"
    else
        echo "LiveKit's server cannot be built" >&2
    fi
fi
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --silent --ignore-scripts --no-audit --no-fund || echo "LiveKit's client cannot be installed" >&2
fi
exit 0
