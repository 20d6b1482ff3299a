#!/bin/sh
# Installs what the tests run besides Rust: Debian packages, only those that are missing, and a newer ffmpeg than
# Debian's into the target folder.
set -eu
cd "$(dirname "$0")/.."

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
need ffmpeg ffmpeg
need nginx nginx
need strace strace
need prlimit util-linux
need unshare util-linux
need setpriv util-linux
need timeout coreutils
need gst-launch-1.0 gstreamer1.0-tools
[ -e /usr/lib/nginx/modules/ngx_rtmp_module.so ] || missing="$missing libnginx-mod-rtmp"
for element in rtmp2sink:plugins-bad flvmux:plugins-good h264parse:plugins-bad clocksync:plugins-base avdec_h264:libav; do
    gst-inspect-1.0 "${element%%:*}" >/dev/null 2>&1 || missing="$missing gstreamer1.0-${element#*:}"
done
python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"

if [ -n "$missing" ]; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "installing:$missing"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing
fi

# ffmpeg 9, which speaks Enhanced RTMP v2: the wheel holds a static binary. tests/suite/support/programs.rs looks here.
ffmpeg9="${CARGO_TARGET_DIR:-target}/programs/ffmpeg9"
if ! ls "$ffmpeg9"/imageio_ffmpeg/binaries/ffmpeg-* >/dev/null 2>&1; then
    python3 -m pip install --quiet --no-deps --target "$ffmpeg9" imageio-ffmpeg==0.8.1
    chmod +x "$ffmpeg9"/imageio_ffmpeg/binaries/ffmpeg-*
fi
