#!/bin/sh
# The API under 64 connections of wrk, beside a live stream with 100 viewers. Needs wrk, curl, python3 and a release build.
#   sh benches/rest.sh [SECONDS]
set -eu
seconds=${1:-8}
program=$(dirname "$0")/../target/release/millstream
folder=$(mktemp -d)
"$program" --home "$folder/home" --set server.host=127.0.0.1 --set server.workers=1 --set http.port=0 --set https.port=0 \
    --set rtmp.port=0 --set rtmps.port=0 --set server.srt_port=0 --set server.cpu_limit=100 >"$folder/ready" 2>"$folder/log" &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true; rm -rf "$folder"' EXIT
until [ -s "$folder/ready" ]; do sleep 0.1; done
address() { sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/" "$folder/ready"; }
api=http://$(address http)/live/rest/v2/broadcasts
rtmp=rtmp://$(address rtmp)/live/stream
"$program" bench publish --url "$rtmp" --duration 600 >"$folder/publish" 2>&1 &
publisher=$!
trap 'kill $server $publisher 2>/dev/null; wait $server 2>/dev/null || true; rm -rf "$folder"' EXIT
for n in $(seq 100); do
    curl -s -o "$folder/made" -X POST -H 'Content-Type: application/json' -d "{\"streamId\":\"s$n\"}" "$api/create"
done
sleep 2

# Prints the CPU seconds that workers and control have used so far.
cpu() {
    for task in /proc/$server/task/*; do
        case $(cat "$task/comm") in worker* | control) cut -d' ' -f1 "$task/schedstat" ;; esac
    done | awk '{ s += $1 } END { printf "%.3f\n", s / 1e9 }'
}

# Runs viewers and, at the same time, the command in the remaining arguments. Prints the reports of both.
beside() {
    what=$1
    shift
    "$program" bench play --url "$rtmp" --count 100 --duration "$seconds" --json >"$folder/play" 2>/dev/null &
    viewers=$!
    sleep 3
    before=$(cpu)
    "$@" >"$folder/out" 2>&1
    after=$(cpu)
    wait $viewers || true
    answers=$(awk '/requests in/ { print $1 }' "$folder/out")
    echo "$what: $(grep -E 'Requests/sec|99%' "$folder/out" | tr -s ' ' | tr '\n' ';')" \
        "CPU $(echo "$after $before" | awk '{ printf "%.2f s", $1 - $2 }')" \
        "$(echo "${answers:-0} $after $before" | awk '{ if ($1 > 0) printf "= %d answers per CPU second, viewers included", $1 / ($2 - $3) }')"
    python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))
print("   100 viewers:", report["connections"]["lost"], "gone,", report["units"]["lost"], "units lost, latency",
      {name: round(value, 2) for name, value in report["latency_video_ms"].items() if value is not None})' "$folder/play"
}

span=$((seconds - 4))
cat >"$folder/create.lua" <<'LUA'
local thread, count = 0, 0
function setup(t) t:set("id", thread); thread = thread + 1 end
function request()
    count = count + 1
    local body = string.format('{"streamId":"w%d-%d"}', id, count)
    return wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, body)
end
LUA
beside "quiet" sleep "$span"
beside "GET one" wrk -t1 -c64 -d"${span}s" --latency "$api/s7"
beside "GET 50" wrk -t1 -c64 -d"${span}s" --latency "$api/list/0/50"
beside "create" wrk -t1 -c64 -d"${span}s" --latency -s "$folder/create.lua" "$api/create"
