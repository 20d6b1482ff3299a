//! Fuzz targets. Each is a function that takes bytes, and panics if the code under test panics or an invariant
//! does not hold. `fuzz_targets/` passes the functions to libFuzzer; `tests/replay.rs` runs them on the corpora.
//!
//! Modules of the server that depend on no other module are compiled in by path. Code that needs the hub and a
//! worker is tested through a worker of the server's library.

#![forbid(unsafe_code)]

mod client_targets;
mod codecs;
mod control;
mod dtls_targets;
mod feedback_target;
mod hls_targets;
mod http2_target;
mod http_targets;
mod ice_targets;
mod ingest_targets;
mod management;
mod mp4_targets;
mod offer_target;
mod payload_targets;
mod picture_target;
mod pull;
mod relay_target;
mod rest;
mod room_target;
mod rtmp_targets;
mod rtp_targets;
mod rtsp_targets;
mod sctp_target;
mod sdp_targets;
mod segmenter_target;
mod server_target;
mod settings;
mod splits;
mod srt_hostile;
mod srt_targets;
mod store_target;
mod subtitle_target;
mod transcode_target;
mod ts_targets;
mod turn_target;
mod types;
mod webm_targets;
mod webrtc_targets;
mod ws_targets;

#[path = "../../src/auth/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses the rest")]
mod auth;
// The server's files below use the crate by this name.
use http1 as http;

#[path = "../../src/protocol/http_live/url.rs"]
#[allow(dead_code, reason = "the server uses the rest")]
mod live_url;
#[path = "../../src/config/properties.rs"]
#[allow(dead_code, unused_imports, reason = "the server uses the rest")]
mod properties_file;
#[path = "../../src/protocol/rtmp/url.rs"]
#[allow(dead_code, reason = "the server uses the rest")]
mod rtmp_url;
#[path = "../../src/protocol/srt/url.rs"]
#[allow(dead_code, reason = "the server uses the rest")]
mod srt_url;

pub use client_targets::http_client;
pub use codecs::{aac_config, amf0, av1_config, avc_config, enhanced_tags, flv_tag, hevc_config, vp9_config};
pub use dtls_targets::{dtls_handshake, dtls_record, x509_peer};
pub use feedback_target::rtp_feedback;
pub use hls_targets::{hls_client, m3u8};
pub use http_targets::{http_chunked, http_request};
pub use http2_target::http2;
pub use ice_targets::{ice_agent, stun};
pub use ingest_targets::{ingest_flv, ingest_ts};
pub use management::{form, jwt};
pub use mp4_targets::{mp4_index, mp4_read, mp4_write};
pub use offer_target::webrtc_offer;
pub use payload_targets::depack;
pub use picture_target::picture_message;
pub use relay_target::relay;
pub use rest::json_rest;
pub use room_target::room;
pub use rtmp_targets::{rtmp_chunk, rtmp_client, rtmp_handshake};
pub use rtp_targets::srtp_rtp_rtcp;
pub use rtsp_targets::{rtsp_client, rtsp_message, rtsp_server};
pub use sctp_target::sctp;
pub use sdp_targets::sdp;
pub use segmenter_target::segmenter;
pub use server_target::server;
pub use settings::{cidr, properties, url_outbound};
pub use srt_targets::{srt_conn, srt_handshake, srt_km, srt_packet};
pub use store_target::store_recover;
pub use subtitle_target::webvtt;
pub use transcode_target::transcode;
pub use ts_targets::{scte35, ts_demux};
pub use turn_target::turn;
pub use webm_targets::webm_index;
pub use webrtc_targets::webrtc_peer;
pub use ws_targets::{range_header, ws_frame, ws_stream};

/// The function of a target.
pub type Target = fn(&[u8]);

/// Every target by name; the name is that of its binary and of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("aac_config", aac_config),
    ("amf0", amf0),
    ("av1_config", av1_config),
    ("avc_config", avc_config),
    ("cidr", cidr),
    ("depack", depack),
    ("dtls_handshake", dtls_handshake),
    ("dtls_record", dtls_record),
    ("enhanced_tags", enhanced_tags),
    ("flv_tag", flv_tag),
    ("form", form),
    ("hevc_config", hevc_config),
    ("hls_client", hls_client),
    ("http2", http2),
    ("http_chunked", http_chunked),
    ("http_client", http_client),
    ("http_request", http_request),
    ("ice_agent", ice_agent),
    ("ingest_flv", ingest_flv),
    ("ingest_ts", ingest_ts),
    ("json_rest", json_rest),
    ("jwt", jwt),
    ("m3u8", m3u8),
    ("mp4_index", mp4_index),
    ("mp4_read", mp4_read),
    ("mp4_write", mp4_write),
    ("picture_message", picture_message),
    ("properties", properties),
    ("range_header", range_header),
    ("relay", relay),
    ("room", room),
    ("rtmp_chunk", rtmp_chunk),
    ("rtmp_client", rtmp_client),
    ("rtmp_handshake", rtmp_handshake),
    ("rtp_feedback", rtp_feedback),
    ("rtsp_client", rtsp_client),
    ("rtsp_message", rtsp_message),
    ("rtsp_server", rtsp_server),
    ("scte35", scte35),
    ("sctp", sctp),
    ("sdp", sdp),
    ("segmenter", segmenter),
    ("server", server),
    ("srt_conn", srt_conn),
    ("srt_handshake", srt_handshake),
    ("srt_km", srt_km),
    ("srt_packet", srt_packet),
    ("srtp_rtp_rtcp", srtp_rtp_rtcp),
    ("store_recover", store_recover),
    ("stun", stun),
    ("transcode", transcode),
    ("ts_demux", ts_demux),
    ("turn", turn),
    ("url_outbound", url_outbound),
    ("vp9_config", vp9_config),
    ("webm_index", webm_index),
    ("webrtc_offer", webrtc_offer),
    ("webrtc_peer", webrtc_peer),
    ("webvtt", webvtt),
    ("ws_frame", ws_frame),
    ("ws_stream", ws_stream),
    ("x509_peer", x509_peer),
];
