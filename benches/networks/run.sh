#!/bin/bash
# Real Chromium behind bad networks, at millstream and other servers: docs/networks.md. Installs missing programs, builds the server
# and the relay, and measures; `make networks` runs it.
#   bash benches/networks/run.sh [--side viewer|publisher] [--only TEXT] [--servers TEXT] [--seeds N] [--table short|pairwise]
# If PROGRAM (the server) and RELAY (the bench udp_relay) are set in the environment, nothing is built. PROFILE is the profile to build with.
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
