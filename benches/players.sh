#!/bin/bash
# Players of HLS and DASH by codec and format, and readers of recordings: docs/hls.md, docs/recording.md. Needs a release build, the programs of
# tests/install.sh, npm, and, for the first command, VLC.
#   bash benches/players.sh [--streams TEXT] [--forms TEXT] [--players TEXT] [--seconds N]
#   bash benches/players.sh ladders [--forms TEXT] [--players TEXT] [--ladders TEXT] [--seconds N]
#   bash benches/players.sh encrypted [--forms TEXT] [--players TEXT] [--seconds N]
#   bash benches/players.sh metadata [--forms TEXT] [--players TEXT] [--seconds N]
#   bash benches/players.sh window [--players TEXT] [--seconds N]
#   bash benches/players.sh samples
# PROGRAM in the environment names the server's binary.
set -eu
cd "$(dirname "$0")/players"
python=../../tests/.venv/bin/python
[ -x $python ] || { echo "run tests/install.sh first" >&2; exit 1; }
[ -e node_modules/.package-lock.json ] && [ ! package-lock.json -nt node_modules/.package-lock.json ] ||
    npm ci --silent --ignore-scripts --no-audit --no-fund
export PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = samples ]; then
    exec $python samples.py
elif [ "${1:-}" = ladders ]; then
    shift
    exec $python ladders.py "$@"
elif [ "${1:-}" = encrypted ] || [ "${1:-}" = metadata ] || [ "${1:-}" = window ]; then
    mode=$1
    shift
    exec $python "$mode.py" "$@"
fi
missing=
for program in chromium firefox-esr ffmpeg gst-launch-1.0 vlc setpriv; do
    command -v $program >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] || { echo "missing:$missing" >&2; exit 1; }
exec $python players.py "$@"
