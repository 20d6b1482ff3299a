#!/bin/sh
# Installs what the tests run besides Rust, only what is missing: Debian packages, and Python packages into tests/.venv.
# No right is needed if nothing is missing.
set -eu
cd "$(dirname "$0")"
# Debian has nginx in a folder that only root's path names, and Go's own archive is unpacked into one that no path names.
PATH=$PATH:/usr/sbin:/sbin:/usr/local/go/bin
# A judge of HTTP/2 is made from its source; go.sum pins what it is made of.
h2spec=$(cksum < h2spec/go.sum)
has_h2spec() { [ "$(cat .venv/h2spec 2>/dev/null)" = "$h2spec" ]; }

missing=
need() { # PROGRAM PACKAGE...
    program=$1
    shift
    command -v "$program" >/dev/null 2>&1 || missing="$missing $*"
}

need cc gcc libc6-dev
need g++ g++
need curl curl
need openssl openssl
need gnutls-serv gnutls-bin
need stdbuf coreutils
need ffmpeg ffmpeg
need nginx nginx
need haproxy haproxy
need redis-server redis-server
need redis-cli redis-tools
need strace strace
need ip iproute2
need prlimit util-linux
need unshare util-linux
need setpriv util-linux
need timeout coreutils
need faketime faketime
need node nodejs
need chromium chromium
need firefox-esr firefox-esr
has_h2spec || need go golang-go
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
need srt-live-transmit srt-tools
need gst-launch-1.0 gstreamer1.0-tools
/usr/bin/python3 -c 'import gi; gi.require_version("GstWebRTC", "1.0")' 2>/dev/null || missing="$missing python3-gi gir1.2-gst-plugins-bad-1.0"
[ -e /usr/lib/nginx/modules/ngx_rtmp_module.so ] || missing="$missing libnginx-mod-rtmp"
[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing="$missing libnginx-mod-stream"
for element in rtmp2sink:plugins-bad flvmux:plugins-good h264parse:plugins-bad clocksync:plugins-base avdec_h264:libav \
    srtsink:plugins-bad srtsrc:plugins-bad mpegtsmux:plugins-bad tsdemux:plugins-bad hlsdemux:plugins-bad souphttpsrc:plugins-good \
    webrtcbin:plugins-bad openh264enc:plugins-bad nicesrc:nice opusenc:plugins-base rtpopuspay:plugins-good; do
    gst-inspect-1.0 "${element%%:*}" >/dev/null 2>&1 || missing="$missing gstreamer1.0-${element#*:}"
done
if [ -n "$missing" ]; then
    as_root=
    if [ "$(id -u)" != 0 ]; then
        as_root=sudo
        if ! command -v sudo >/dev/null 2>&1; then
            echo "missing, and there is no sudo; as root: apt-get install$missing" >&2
            exit 1
        fi
    fi
    echo "installing:$missing"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
fi

# Second opinions on HTTP and WebSocket; ffmpeg 9, which speaks Enhanced RTMP v2 (the wheel holds a static binary);
# requests made from the OpenAPI document; a WebRTC stack that is not ours; rules of accessibility; an S3 server.
python_packages="h11==0.16.0 websockets==15.0.1 imageio-ffmpeg==0.8.1 schemathesis==4.32.5 aiortc==1.16.0 axe-core-python==0.1.0 moto[server,s3]==5.2.1"
if [ "$(cat .venv/installed 2>/dev/null)" != "$python_packages" ]; then
    echo "installing into tests/.venv: $python_packages"
    python3 -m venv .venv
    # shellcheck disable=SC2086
    .venv/bin/pip install -q --disable-pip-version-check $python_packages
    chmod +x .venv/lib/python3*/site-packages/imageio_ffmpeg/binaries/ffmpeg-*
    echo "$python_packages" > .venv/installed
fi

if ! has_h2spec; then
    echo "installing into tests/.venv: h2spec"
    (cd h2spec && GOFLAGS=-mod=readonly go build -o ../.venv/bin/h2spec github.com/summerwind/h2spec/cmd/h2spec)
    echo "$h2spec" > .venv/h2spec
fi
