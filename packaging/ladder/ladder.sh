#!/bin/sh
# Plays a stream, and publishes renditions of it back as its subtracks. README.md beside it says how.
#
#   ladder.sh ID
set -eu

id=${1:?the id of a stream}
server=${SERVER:-rtmp://127.0.0.1/live}
renditions=${RENDITIONS:-720:2500k 360:800k}
query=${QUERY:+&$QUERY}
play=${QUERY:+?$QUERY}

set --
if [ "${SOURCE:-}" = copy ]; then
    set -- -map 0:v:0 -map 0:a:0? -c copy -f flv "$server/${id}_source?mainTrack=$id$query"
fi
for rendition in $renditions; do
    height=${rendition%%:*}
    rate=${rendition#*:}
    set -- "$@" -map 0:v:0 -map 0:a:0? -c:a copy \
        -vf "scale=-2:$height" -c:v libx264 -preset veryfast -tune zerolatency -bf 0 -pix_fmt yuv420p \
        -b:v "$rate" -maxrate "$rate" -bufsize "$rate" \
        -force_key_frames 'expr:gte(t,n_forced*2)' -sc_threshold 0 \
        -f flv "$server/${id}_$height?mainTrack=$id$query"
done
exec ffmpeg -hide_banner -loglevel "${LOGLEVEL:-warning}" -nostdin -rw_timeout 15000000 \
    -i "$server/$id$play" "$@"
