#!/bin/bash
# Chromium behind translators of addresses and firewalls, in network namespaces: docs/firewalls.md. Needs root and nft; installs what is
# missing, builds the server, and measures; `make firewalls` runs it.
#   bash benches/firewalls/run.sh [--only TEXT] [--joins N]
# PROGRAM (the server) is taken from the environment where it is set, PROFILE is what it is built by.
set -eu
cd "$(dirname "$0")"
root=$PWD/../..
python=$root/tests/.venv/bin/python
[ -x "$python" ] && command -v chromium >/dev/null || sh "$root/tests/install.sh"
command -v nft >/dev/null || { apt-get update -qq; apt-get install -y -qq nftables; }
if [ -z "${PROGRAM:-}" ]; then
    PROGRAM=$(cd "$root" && cargo build --profile "${PROFILE:-release}" --locked --bin millstream --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\/millstream\)".*/\1/p')
fi
export PROGRAM PYTHONDONTWRITEBYTECODE=1
exec "$python" firewalls.py "$@"
