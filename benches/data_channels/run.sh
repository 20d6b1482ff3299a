#!/bin/sh
# Data channels with aiortc, werift, libdatachannel and pion (docs/webrtc-interop.md):
#   sh benches/data_channels/run.sh            # all stacks
#   sh benches/data_channels/run.sh pion       # one of them
# Needs node, npm, Go and tests/install.sh. Installs into target/data_channels.
set -eu
cd "$(dirname "$0")/../.."
place=$PWD/target/data_channels
mkdir -p "$place"
[ -n "${MILLSTREAM:-}" ] || cargo build --locked
cp benches/data_channels/package.json benches/data_channels/package-lock.json benches/data_channels/client.mjs "$place/"
npm --prefix "$place" ci --silent
(cd benches/data_channels/pion && go build -o "$place/pion" .)
tests/.venv/bin/python3 benches/data_channels/run.py "${MILLSTREAM:-target/debug/millstream}" "$place/pion" "$place/client.mjs" "$@"
