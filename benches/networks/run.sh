#!/bin/bash
# Real viewers behind bad networks, at millstream and other servers: docs/networks.md. Installs what is missing, builds the server and
# the relay, and measures; `make networks` runs it.
#   bash benches/networks/run.sh [--side viewer|publisher] [--client chromium,firefox,pion,str0m] [--only TEXT] [--servers TEXT] [--seeds N] [--table short|pairwise]
# PROGRAM (the server) and RELAY (the bench udp_relay) are taken from the environment where both are set, PROFILE is what they are built by.
set -eu
cd "$(dirname "$0")"
root=$PWD/../..
python=$root/tests/.venv/bin/python
[ -x "$python" ] && command -v chromium >/dev/null || sh "$root/tests/install.sh"
sh install.sh
if [ -z "${PROGRAM:-}" ] || [ -z "${RELAY:-}" ]; then
    built=$(cd "$root" && cargo build --profile "${PROFILE:-release}" --locked --bin millstream --bench udp_relay --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    PROGRAM=$(grep '/millstream$' <<< "$built")
    RELAY=$(grep '/udp_relay-[0-9a-f]*$' <<< "$built")
fi
export PROGRAM RELAY PYTHONDONTWRITEBYTECODE=1
"$python" -m unittest -q -b check
exec "$python" networks.py "$@"
