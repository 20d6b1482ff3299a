#!/bin/sh
# Builds servers that `fanout` compares and that no distribution packages, into target/peers:
#   sh benches/peers.sh srs zlmediakit mediamtx
#   sh benches/peers.sh srs-webrtc mediamtx             # for `make networks`
#   PATH=$PWD/target/peers:$PATH cargo bench --bench fanout -- --servers millstream,nginx,srs,srs-realtime,zlmediakit,floor
# Needs git, a C++ compiler, make; SRS: automake, patch, tclsh and OpenSSL's headers; ZLMediaKit: cmake and the same headers; MediaMTX: Go.
# Sources that already exist in target/peers/src are not fetched.
set -eu
cd "$(dirname "$0")/.."
peers=$PWD/target/peers
mkdir -p "$peers/src"

fetch() { # NAME REPOSITORY COMMIT
    [ -d "$peers/src/$1" ] && return
    git clone -q "https://github.com/$2" "$peers/src/$1"
    git -C "$peers/src/$1" checkout -q "$3"
    git -C "$peers/src/$1" submodule -q update --init
}

for peer in "$@"; do
    case $peer in
    srs)
        fetch srs ossrs/srs 101382afd
        # By default, SRS is built with a memory sanitizer, which would distort the comparison.
        (cd "$peers/src/srs/trunk" && ./configure --sanitizer=off --sys-ssl=on --rtc=off --srt=off --https=off \
            --gb28181=off --utest=off --jobs="$(nproc)" && make -j"$(nproc)" server)
        cp "$peers/src/srs/trunk/objs/srs" "$peers/"
        ;;
    srs-webrtc)
        fetch srs-webrtc ossrs/srs 101382afd
        (cd "$peers/src/srs-webrtc/trunk" && ./configure --sanitizer=off --sys-ssl=on --rtc=on --srt=off --https=off \
            --gb28181=off --utest=off --jobs="$(nproc)" && make -j"$(nproc)" server)
        cp "$peers/src/srs-webrtc/trunk/objs/srs" "$peers/srs-webrtc"
        ;;
    zlmediakit)
        fetch zlmediakit ZLMediaKit/ZLMediaKit daaa74a7
        mkdir -p "$peers/src/zlmediakit/build"
        (cd "$peers/src/zlmediakit/build" && cmake .. -DCMAKE_BUILD_TYPE=Release -DENABLE_WEBRTC=OFF -DENABLE_TESTS=OFF \
            -DENABLE_API=OFF -DENABLE_C_API=OFF -DENABLE_PLAYER=OFF -DENABLE_HLS=OFF -DENABLE_FFMPEG=OFF \
            -DENABLE_PYTHON=OFF && make -j"$(nproc)")
        find "$peers/src/zlmediakit/release" -name MediaServer -type f -exec cp {} "$peers/" \;
        ;;
    mediamtx)
        fetch mediamtx bluenviron/mediamtx 3e09466
        (cd "$peers/src/mediamtx" && go generate ./... && go build -o "$peers/mediamtx" .)
        ;;
    *)
        echo "no peer is called $peer" >&2
        exit 1
        ;;
    esac
done
