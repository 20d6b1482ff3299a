#!/bin/bash
# Chromium behind NATs and firewalls, in network namespaces: docs/firewalls.md. Needs root and nft. Installs missing programs,
# builds the server, and measures; `make firewalls` runs it.
#   bash benches/firewalls/run.sh [--only TEXT] [--joins N]
# If PROGRAM is set in the environment, it is the server's binary and nothing is built. PROFILE is the profile to build with.
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
