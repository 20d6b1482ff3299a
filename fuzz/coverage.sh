#!/bin/sh
# Prints which lines of the code under test are run by the committed inputs of a target and their mutations: coverage.sh [TARGET...]
# A row for each: lines that there are, lines that were run, their share. Needs rustup's component llvm-tools.
# FUZZ_MUTATIONS as for the replay.
set -eu
cd "$(dirname "$0")"
tools=$(ls -d "$(rustc --print sysroot)"/lib/rustlib/*/bin | head -1)
[ -x "$tools/llvm-cov" ] || { echo "rustup component add llvm-tools"; exit 2; }
folder="${COVERAGE_DIR:-../target/coverage}"
mkdir -p "$folder"
# Programs that run while it is built (build scripts, macros) would leave profiles beside the sources.
replay=$(LLVM_PROFILE_FILE=/dev/null RUSTFLAGS="-C instrument-coverage" cargo test --no-run --locked --test replay --target-dir "$folder" 2>&1 |
    sed -n 's/.*(\(.*replay-[0-9a-f]*\)).*/\1/p')

# The sources that a target is there for; machines that tests run besides are not in them.
sources() {
    case $1 in
        amf0) echo flv/src/amf0 ;;
        flv_tag | enhanced_tags) echo flv/src/tag flv/src/file.rs flv/src/data.rs ;;
        avc_config) echo media/src/codec/h264 media/src/nal.rs ;;
        hevc_config) echo media/src/codec/h265 ;;
        av1_config) echo media/src/codec/av1 ;;
        aac_config) echo media/src/codec/aac ;;
        vp9_config) echo media/src/codec/vp9 media/src/codec/opus media/src/codec/flac ;;
        rtmp_chunk) echo rtmp/src/chunk rtmp/src/server rtmp/src/message.rs rtmp/src/command.rs ;;
        rtmp_client) echo rtmp/src/client ;;
        rtmp_handshake) echo rtmp/src/handshake ;;
        rtsp_message) echo rtsp/src/message.rs rtsp/src/reader.rs rtsp/src/reader rtsp/src/transport.rs rtsp/src/uri.rs ;;
        rtsp_server) echo rtsp/src/server ;;
        rtsp_client) echo rtsp/src/client ;;
        srt_packet) echo srt/src/packet.rs ;;
        srt_handshake) echo srt/src/handshake.rs srt/src/endpoint.rs srt/src/cookie.rs ;;
        srt_km) echo srt/src/km.rs srt/src/cipher.rs ;;
        srt_conn) echo srt/src/arq srt/src/connection srt/src/pacing.rs ;;
        sctp) echo sctp/src ;;
        picture_message) echo picture/src ;;
        sdp) echo sdp/src ;;
        stun) echo ice/src/stun ice/src/tcp.rs ;;
        ice_agent) echo ice/src/agent ice/src/lite ice/src/respond.rs ;;
        depack) echo rtp/src/payload ;;
        srtp_rtp_rtcp) echo srtp/src rtp/src/header.rs rtp/src/rtcp rtp/src/extension ;;
        dtls_record | dtls_handshake) echo dtls/src/record.rs dtls/src/handshake dtls/src/connection dtls/src/reassembly.rs ;;
        x509_peer) echo dtls/src/der.rs dtls/src/certificate.rs ;;
        webrtc_peer) echo webrtc/src ;;
        transcode) echo transcode/src ;;
        ts_demux) echo mpegts/src ;;
        scte35) echo media/src/scte35.rs ;;
        webvtt) echo media/src/subtitles.rs ;;
        mp4_index | mp4_read) echo fmp4/src/reader fmp4/src/boxes.rs ;;
        mp4_write) echo fmp4/src/writer ;;
        webm_index) echo webm/src ;;
        m3u8) echo hls/src/playlist ;;
        hls_client) echo hls/src/client ;;
        http_request | http_chunked) echo http1/src ;;
        http2) echo http2/src ;;
        relay) echo relay/src ;;
        http_client) echo http1/src/client ^src/protocol/http_live/pull ^src/protocol/http_live/url ;;
        ingest_flv) echo ^src/protocol/flv_mapping ^src/protocol/pull ;;
        ingest_ts) echo ^src/protocol/ts/ingest ^src/protocol/pull ;;
        webrtc_offer) echo ^src/protocol/webrtc/whip ^src/protocol/webrtc/negotiation ^src/protocol/webrtc/signalling webrtc/src/negotiate webrtc/src/peer/setup ;;
        ws_frame | ws_stream) echo http1/src/websocket ;;
        segmenter) echo hls/src/segmenter ^src/protocol/hls ;;
        server) echo ^src/worker ^src/hub ^src/control ;;
        store_recover) echo ^src/store ;;
        *) echo ;;
    esac
}

[ $# -gt 0 ] || set -- $(ls fuzz_targets | sed 's/\.rs$//')
printf '| target | lines | run | share |\n|---|---|---|---|\n'
for target in "$@"; do
    pattern=$(sources "$target" | tr ' ' '|')
    [ -n "$pattern" ] || continue
    rm -f "$folder"/one-*.profraw
    FUZZ_TARGET=$target LLVM_PROFILE_FILE="$folder/one-%p.profraw" \
        "$replay" --exact mutated_inputs_do_no_harm > /dev/null 2>&1 || echo "$target failed"
    "$tools/llvm-profdata" merge -sparse "$folder"/one-*.profraw -o "$folder/one.profdata"
    "$tools/llvm-cov" report "$replay" -instr-profile "$folder/one.profdata" \
        -ignore-filename-regex '(tests?\.rs|/tests/|testing|/registry/|/rustc/)' 2> /dev/null |
        awk -v target="$target" -v pattern="($pattern)" '
            # Of a module that the targets have a copy of, the copy.
            $1 ~ pattern && (!($1 in of) || $9 < not_run[$1]) { of[$1] = $8; not_run[$1] = $9 }
            END { for (file in of) { lines += of[file]; missed += not_run[file] }
                printf "| `%s` | %d | %d | %.0f %% |\n", target, lines, lines - missed, 100 * (lines - missed) / lines }'
done
