#!/bin/bash
# Takes the pictures of docs/panel: a server at the default ports, which must be free, a few streams, and Chromium. Needs the programs of
# tests/install.sh. Look at each picture before it is committed.
#   bash benches/panel.sh [FOLDER]
# PROGRAM in the environment names the server's binary.
set -eu
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-docs/panel}")
program=${PROGRAM:-target/release/millstream}
home=$(mktemp -d)
: >"$home/output"
started=()
finish() {
    kill "${started[@]}" 2>/dev/null || true
    wait
    rm -rf "$home"
}
trap finish EXIT

begin() {
    "$@" </dev/null >>"$home/output" 2>&1 &
    started+=($!)
}

call() {
    curl -sf -X "$1" -H 'Content-Type: application/json' ${3:+-d "$3"} "http://127.0.0.1:5080/$2" >>"$home/output"
}

publish() {
    begin ffmpeg -v warning -re -f lavfi -i "$1=size=640x360:rate=25" -f lavfi -i sine=frequency=330 -c:v libx264 -preset veryfast \
        -tune zerolatency -g 50 -b:v 1200k -pix_fmt yuv420p -c:a aac -f "$2" "$3"
}

watch() {
    begin ffmpeg -v warning -i "$1" -c copy -f null -
}

begin "$program" --home "$home/home" --set server.name=live.example.org
until grep -q '"ready"' "$home/output"; do
    kill -0 "${started[0]}" || { cat "$home/output" >&2; exit 1; }
    sleep 0.2
done
call POST rest/v2/users/initial "{\"email\":\"admin@example.com\",\"password\":\"$(printf 'correct horse' | md5sum | cut -d' ' -f1)\"}"
api=live/rest/v2/broadcasts
call POST $api/create '{"streamId":"stage","name":"Main stage"}'
call POST $api/create '{"streamId":"backstage","name":"Backstage"}'
call POST $api/create '{"streamId":"evening","name":"Evening show"}'
call POST $api/create '{"streamId":"films","name":"Films of the week","type":"playlist","playListItemList":[{"streamUrl":"streams/film.mp4","type":"VoD"}]}'
call POST $api/create '{"streamId":"gate","name":"Camera at the gate","type":"streamSource","streamUrl":"rtsp://camera.example/main"}'
publish testsrc2 flv rtmp://127.0.0.1/live/stage
publish smptehdbars mpegts 'srt://127.0.0.1:4200?streamid=live/backstage'
sleep 4
# Two finished recordings, and one that goes on.
for name in Rehearsal Soundcheck; do
    call PUT "$api/stage/recording/true?fileName=$name"
    sleep 4
    call PUT $api/stage/recording/false
done
call PUT $api/stage/recording/true
call POST $api/stage/rtmp-endpoint '{"rtmpUrl":"rtmp://127.0.0.1/LiveApp/copy"}'
watch http://127.0.0.1:5080/live/stage.flv
watch rtmp://127.0.0.1/live/stage
watch 'srt://127.0.0.1:4200?streamid=#!::r=live/stage,m=request'
watch rtsp://127.0.0.1:5554/live/stage
# The graphs need some history.
sleep 60
mkdir -p "$folder"
tests/.venv/bin/python tests/suite/panel.py chromium pictures http://127.0.0.1:5080/ "$folder"
