#!/bin/sh
# Installs what `make networks` compares with, only what is missing: Janus (Debian's), LiveKit's server (a Go module, pinned by
# livekit/go.mod) and its client (pinned by package-lock.json); and builds the viewers that are no browsers, pion's and str0m's. MediaMTX
# is built by benches/peers.sh, or taken from the path. What cannot be had is not run, and said.
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
newest=$(ls -t pion/* "$peers/viewer-pion" 2>/dev/null | head -n 1)
if [ "$newest" != "$peers/viewer-pion" ]; then
    (cd pion && GOFLAGS=-mod=readonly go test . && GOFLAGS=-mod=readonly go build -o "$peers/viewer-pion" .) || echo "pion's viewer cannot be built" >&2
fi
newest=$(ls -t str0m/Cargo.* str0m/src/* "$peers/viewer-str0m" 2>/dev/null | head -n 1)
if [ "$newest" != "$peers/viewer-str0m" ]; then
    if cargo build -q --release --locked --manifest-path str0m/Cargo.toml --target-dir ../../target/str0m; then
        cp ../../target/str0m/release/millstream-networks-str0m "$peers/viewer-str0m"
    else
        echo "str0m's viewer cannot be built" >&2
    fi
fi
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --silent --ignore-scripts --no-audit --no-fund || echo "LiveKit's client cannot be installed" >&2
fi
exit 0
