#!/bin/bash
# HLS viewers in comparison with nginx and the same files, blocking reloads of low latency, and recordings. Needs a release
# build, two cores, nginx, curl, taskset, and a total of 2 x VIEWERS file descriptors.
#   bash benches/hls.sh viewers [VIEWERS] [SECONDS] [ROUNDS]
#   bash benches/hls.sh storm [VIEWERS] [SECONDS] [PART_MS]
#   bash benches/hls.sh recordings [STREAMS] [SECONDS] [ROUNDS]
# Servers run on core 0, the load on core 1. The environment can set KBPS, PROGRAM and NICE (-15, as root, if other work runs on
# the machine).
set -eu
what=${1:-viewers}
count=${2:-}
seconds=${3:-15}
kbps=${KBPS:-2500}
program=${PROGRAM:-$(dirname "$0")/../target/release/millstream}
# Recordings need a real disk.
folder=$(mktemp -d "$([ "$what" = recordings ] && echo "${TMPDIR:-/tmp}" || echo /dev/shm)/hls.XXXXXX")
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap finish EXIT

# Starts the server with these settings; $server is its process.
serve() {
    local settings=(server.host=127.0.0.1 server.workers=1 server.cpu_limit=100 http.port=0 https.port=0 rtmp.port=0 rtmps.port=0
        rtsp.port=0 rtsps.port=0 server.srt_port=0 webrtc.port=0 webrtc.tcp=false "$@")
    taskset -c 0 nice -n "${NICE:-0}" "$program" --home "$folder/home" "${settings[@]/#/--set=}" >"$folder/ready" 2>"$folder/log" &
    server=$!
    pids+=("$server")
    until [ -s "$folder/ready" ]; do sleep 0.1; done
    http=$(address http)
    rtmp=$(address rtmp)
}
address() { sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/" "$folder/ready"; }

load=(taskset -c 1 nice -n "${NICE:-0}" "$program" bench)
publish() {
    "${load[@]}" publish --url "rtmp://$rtmp/live/s{n}" --bitrate "$kbps" --duration 3600 "$@" >"$folder/publish" 2>&1 &
    publisher=$!
    pids+=("$publisher")
}
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
# Prints the CPU seconds that a process and its worker have used so far.
cpu() { awk -v hertz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.3f", ($12 + $13) / hertz }' "/proc/$1/stat"; }
worker() {
    for task in /proc/"$1"/task/*; do
        case $(cat "$task/comm") in worker*) cut -d' ' -f1 "$task/schedstat" ;; esac
    done | awk '{ sum += $1 } END { printf "%.3f", sum / 1e9 }'
}
# Prints the sizes of writes to recordings, for two seconds.
write_sizes() {
    timeout 2 strace -f -y -e trace=write,pwrite64,writev,pwritev,fdatasync -o "$folder/calls" -p "$server" 2>"$folder/strace" || true
    grep '/vods\|recording\|mp4' "$folder/calls" | sed -n 's/.* \([a-z0-9]*\)([0-9]*<.*) *= \([0-9]*\).*/\1 \2/p' |
        awk '{ calls[$1]++; bytes[$1] += $2 } END { for (name in calls) printf "    %s: %d in 2 s, %d KB each\n", name, calls[name], bytes[name] / calls[name] / 1024 }'
}
# Prints a line of a report.
line() {
    python3 -c 'import json, sys
name, before, report = sys.argv[1], int(sys.argv[2]), json.load(open(sys.argv[3]))
short = lambda kind: " / ".join("%.1f" % report[kind][of] for of in ("p50", "p99", "max")) if report[kind] else "-"
server, units, connections = report["server"], report["units"], report["connections"]
print("%-10s %.2f CPU s, %.3f CPU-s/GB of %.2f Gb/s; load %.1f s; %d KB per viewer; %d units, %d lost; %d of %d ready, %d gone; "
      "playlist %s ms, video %s ms" % (name, server["cpu_s"], server["cpu_s_per_gb"] or 0, report["bits_per_second"] / 1e9, report["cpu_s"],
      (server["rss_bytes"] / 1024 - before) / connections["requested"], units["video"] + units["audio"], units["lost"],
      connections["ready"], connections["requested"], connections["lost"], short("playlist_ms"), short("latency_video_ms")))
if report["reasons"]: print("   ", report["reasons"][:3])' "$@"
}

# Starts nginx with the files of the stream s0, which are fetched as they appear: with sendfile, and without it on the next port.
# $nginx is its process.
mirror() {
    port=${NGINX_PORT:-18080}
    mkdir -p "$folder/files" "$folder/nginx"
    cat >"$folder/nginx.conf" <<NGINX
daemon off; master_process off; worker_processes 1; pid $folder/nginx/pid; error_log $folder/nginx/log;
worker_rlimit_nofile 20000;
events { worker_connections 15000; }
http {
    access_log off; sendfile on; tcp_nopush ${NOPUSH:-off}; keepalive_requests 1000000; keepalive_timeout 75;
    client_body_temp_path $folder/nginx/body; proxy_temp_path $folder/nginx/proxy; fastcgi_temp_path $folder/nginx/fastcgi;
    uwsgi_temp_path $folder/nginx/uwsgi; scgi_temp_path $folder/nginx/scgi;
    root $folder/files;
    server { listen 127.0.0.1:$port backlog=4096; }
    server { listen 127.0.0.1:$((port + 1)) backlog=4096; sendfile off; output_buffers 1 256k; }
}
NGINX
    taskset -c 0 nice -n "${NICE:-0}" nginx -c "$folder/nginx.conf" 2>"$folder/nginx/out" &
    nginx=$!
    pids+=("$nginx")
    (
        cd "$folder/files"
        while curl -sfo s0.new "http://$http/live/streams/s0.m3u8"; do
            for name in $(grep -v '^#' s0.new); do
                [ -e "$name" ] || { curl -sfo "$name.new" "http://$http/live/streams/$name" && mv "$name.new" "$name"; }
            done
            mv s0.new s0.m3u8
            for name in $(find . -name '*.ts' -mmin +2); do rm -f "$name"; done
            sleep 0.2
        done
    ) &
    pids+=("$!")
}

viewers() {
    count=${count:-5000}
    serve
    publish
    sleep 2
    mirror
    # The playlist is full by then, so that any growth of memory is caused by the viewers.
    sleep 36
    for round in $(seq "${ROUNDS:-3}"); do
        for name in $([ $((round % 2)) = 1 ] && echo millstream nginx copying || echo copying nginx millstream); do
            case $name in
            millstream) pid=$server url=http://$http/live/streams/s0.m3u8 ;;
            nginx) pid=$nginx url=http://127.0.0.1:$port/s0.m3u8 ;;
            copying) pid=$nginx url=http://127.0.0.1:$((port + 1))/s0.m3u8 ;;
            esac
            before=$(rss "$pid")
            "${load[@]}" play --url "$url" --count "$count" --rate 500 --warm-up "${WARM_UP:-8}" --duration "$seconds" --late 10000 \
                --connect-timeout 30 --server-pid "$pid" --json >"$folder/report" 2>"$folder/progress" || true
            line "$name" "$before" "$folder/report"
            sleep 3
        done
    done
}

storm() {
    count=${count:-5000}
    serve app.hlsEnableLowLatency=true "app.hls.part_ms=${1:-1000}"
    publish
    sleep 3
    url=http://$http/live/streams/ll-hls/s0/s0__video.m3u8
    curl -sfo "$folder/playlist" "$url"
    sleep 5
    before=$(rss "$server")
    "${load[@]}" play --url "$url" --count "$count" --rate 500 --warm-up 5 --duration "$seconds" --late 10000 \
        --connect-timeout 30 --server-pid "$server" --json >"$folder/report" 2>"$folder/progress" || true
    line storm "$before" "$folder/report"
}

# Prints a quantile of the forwarding latency in ms, from the buckets of two snapshots.
quantiles() {
    python3 -c 'import re, sys
def read(name):
    sums = {}
    for line in open(name):
        found = re.match(r"millstream_forwarding_seconds_bucket\{(.*)\} (\S+)", line)
        if found and "kind=\"video\"" in found[1]:
            bound = float(re.search(r"le=\"([^\"]*)\"", found[1])[1].replace("+Inf", "inf"))
            sums[bound] = sums.get(bound, 0) + float(found[2])
    return sums
before, after = read(sys.argv[1]), read(sys.argv[2])
counts = sorted((bound, after[bound] - before.get(bound, 0)) for bound in after)
total = counts[-1][1] if counts else 0
at = lambda part: next((bound * 1000 for bound, count in counts if count >= part * total), 0)
print("forwarding of %d video units: p50 <= %.2f, p99 <= %.2f, p99.9 <= %.2f ms" % (total, at(.5), at(.99), at(.999)))' "$@"
}

recordings() {
    count=${count:-100}
    serve app.hlsMuxingEnabled=false limits.publishers_per_address=10000
    publish --count "$count"
    sleep 5
    "${load[@]}" play --url "rtmp://$rtmp/live/s{n}" --count 20 --streams 20 --duration 3600 >"$folder/play" 2>&1 &
    pids+=("$!")
    sleep 3
    for round in $(seq "${ROUNDS:-3}"); do
        for record in false true; do
            for n in $(seq 0 $((count - 1))); do
                curl -s -o "$folder/answer" -X PUT "http://$http/live/rest/v2/broadcasts/s$n/recording/$record" || true
            done
            sleep 3
            curl -s "http://$http/metrics" >"$folder/metrics.0"
            cpu0=$(cpu "$server") worker0=$(worker "$server")
            io0=$(awk '/^(write_bytes|syscw|wchar)/ { printf "%s ", $2 }' "/proc/$server/io")
            sleep "$seconds"
            io1=$(awk '/^(write_bytes|syscw|wchar)/ { printf "%s ", $2 }' "/proc/$server/io")
            curl -s "http://$http/metrics" >"$folder/metrics.1"
            echo "recording $record: $(echo "$cpu0 $(cpu "$server") $worker0 $(worker "$server") $seconds $count" |
                awk '{ printf "%.2f CPU s, %.2f of them the worker, %.3f ms for a second of a stream", $2-$1, $4-$3, ($2-$1)*1000/$5/$6 }')," \
                "$(echo "$io0 $io1 $seconds" | awk '{ printf "%.1f MB/s to the disk", ($6-$3)/$7/1e6 }')," \
                "$(quantiles "$folder/metrics.0" "$folder/metrics.1")"
        done
    done
    write_sizes
}

case $what in
viewers) ROUNDS=${4:-3} viewers ;;
storm) storm "${4:-1000}" ;;
recordings) ROUNDS=${4:-3} recordings ;;
*) sed -n '2,7p' "$0" ;;
esac
