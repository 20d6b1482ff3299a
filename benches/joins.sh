#!/bin/bash
# A thousand viewers join a stream within a second, beside a hundred that already play: the effect on these, and the wait of the new ones.
#   bash benches/joins.sh target/release/millstream [FILE.flv]      (needs taskset and two cores; FILE: its GOP, else 2 s at 2.5 Mb/s)
set -u
BIN=$(realpath "$1"); CLIP="--bitrate 2500"; [ $# -gt 1 ] && CLIP="--file $(realpath "$2")"
D=$(mktemp -d); cd "$D" || exit 1
port() { python3 -c 'import socket;s=socket.socket();s.bind(("127.0.0.1",0));print(s.getsockname()[1])'; }
RTMP=$(port); HTTP=$(port); URL=rtmp://127.0.0.1:$RTMP/live/s
# The joining clients share a core with the measured ones at a lower priority, because only the delay by the server is of interest.
bench() { taskset -c 1 nice -n "${GIVES_WAY:-${NICE:-0}}" "$BIN" bench "$@" 2>/dev/null; }
resident() { grep VmRSS /proc/$SERVER/status; }
taskset -c 0 nice -n "${NICE:-0}" "$BIN" --home "$D/home" --set http.port=$HTTP --set rtmp.port=$RTMP --set srt.enabled=false \
    --set server.workers=1 > server.out 2>&1 & SERVER=$!
sleep 1.5
# shellcheck disable=SC2086
bench publish --url $URL $CLIP --duration 60 > publish.out & PUBLISHER=$!
sleep 13
echo "-- 100 viewers alone"
bench play --url $URL --count 100 --duration 6 | grep -E "^(units|lost|video)"; resident
echo "-- and while 1000 join"
(sleep 4; GIVES_WAY=$((${NICE:-0} + 15)) bench play --url $URL --count 1000 --rate 1000 --warm-up 0 --duration 2 | grep -E "^(connections|first|lost)" > joins.out) & JOINS=$!
(for _ in $(seq 40); do sleep 0.2; resident; done | sort -k2 -n | tail -1 > resident.out) & WATCH=$!
bench play --url $URL --count 100 --duration 8 | grep -E "^(units|lost|video)"
wait $JOINS $WATCH
echo "-- the 1000, and the largest resident memory"; cat joins.out resident.out
kill $PUBLISHER $SERVER; wait $PUBLISHER $SERVER 2>/dev/null; rm -rf "$D"
