#!/bin/bash
# Times to notice that the source of a pulled stream is lost, and to resume when it is back.
#   bash benches/pull_times.sh target/release/millstream      (needs ffmpeg, curl, python3)
set -u
BIN=$(realpath "$1"); D=$(mktemp -d); cd $D
port() { python3 -c 'import socket;s=socket.socket();s.bind(("127.0.0.1",0));print(s.getsockname()[1])'; }
UR=$(port); UH=$(port); SR=$(port); SH=$(port)
serve() { # name rtmp http
  $BIN serve --home $D/$1 --set server.host=127.0.0.1 --set rtmp.port=$2 --set http.port=$3 --set https.port=0 --set rtmps.port=0 --set server.srt_port=0 >$D/$1.out 2>/dev/null &
}
now() { date +%s%3N; }
st() { curl -s -m 2 http://127.0.0.1:$SH/live/rest/v2/broadcasts/$1 | sed 's/.*"status":"\([a-z_]*\)".*/\1/'; }
await() { # id regex -> ms since $T
  while ! st $1 | grep -qE "^($2)$"; do sleep 0.02; done; echo $(( $(now) - T )); }
pub() { ffmpeg -hide_banner -loglevel error -nostdin -re -f lavfi -i testsrc2=size=640x360:rate=30 -f lavfi -i sine -c:v libx264 -preset ultrafast -g 30 -pix_fmt yuv420p -c:a aac -f flv rtmp://127.0.0.1:$UR/live/origin >/dev/null 2>&1 & PUB=$!; }
serve up $UR $UH; UP=$!; serve down $SR $SH; DOWN=$!; sleep 1; pub; sleep 2
for x in "rtmp rtmp://127.0.0.1:$UR/live/origin" "flv http://127.0.0.1:$UH/live/origin.flv"; do set -- $x
 curl -s -X POST -H 'Content-Type: application/json' -d "{\"streamId\":\"$1\",\"type\":\"streamSource\",\"streamUrl\":\"$2\"}" "http://127.0.0.1:$SH/live/rest/v2/broadcasts/create?autoStart=true" >/dev/null; done
T=$(now); echo "start rtmp $(await rtmp broadcasting) ms, flv $(await flv broadcasting) ms"
V=(); for id in rtmp flv; do ffmpeg -hide_banner -loglevel error -nostdin -i rtmp://127.0.0.1:$SR/live/$id -c copy -f null - >/dev/null 2>&1 & V+=($!)
 ffmpeg -hide_banner -loglevel error -nostdin -i http://127.0.0.1:$SH/live/$id.flv -c copy -f null - >/dev/null 2>&1 & V+=($!); done
sleep 4
alive() { local n=0; for p in ${V[@]}; do kill -0 $p 2>/dev/null && n=$((n+1)); done; echo "$n of ${#V[@]} viewers"; }
for out in 3 10 40; do
 T=$(now); kill -9 $UP; kill $PUB 2>/dev/null; echo "kill -9, away $out s: noticed rtmp $(await rtmp 'finished|preparing') ms, flv $(await flv 'finished|preparing') ms"
 sleep $out; serve up $UR $UH; UP=$!; sleep 0.5; pub; sleep 1; T=$(now)
 echo "  back: resumed rtmp $(await rtmp broadcasting) ms, flv $(await flv broadcasting) ms after the stream was back; $(alive)"; sleep 4
done
for out in 5 20; do
 T=$(now); kill -STOP $UP; echo "SIGSTOP for $out s: noticed rtmp $(await rtmp 'finished|preparing') ms, flv $(await flv 'finished|preparing') ms"
 sleep $out; T=$(now); kill -CONT $UP; echo "  SIGCONT: resumed rtmp $(await rtmp broadcasting) ms, flv $(await flv broadcasting) ms; $(alive)"; sleep 4
done
curl -s http://127.0.0.1:$SH/metrics | grep pulls
kill ${V[@]} $PUB 2>/dev/null; kill $DOWN $UP; wait 2>/dev/null; grep -c "session ended" $D/down/log/millstream.log; grep "pull failed" $D/down/log/millstream.log | head -60 | cut -c1-220; rm -rf $D
