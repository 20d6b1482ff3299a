//! Tests of the whole server over loopback: real sockets, real clients, hostile peers, crashes.
//!
//! Names of tests contain the row ids of docs/robustness.md. Every test starts its own server on ports that the kernel
//! chooses, and ends it by its process id.

#![allow(unreachable_pub, missing_docs, reason = "a test binary has no outside")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test that meets the unexpected stops"
)]

mod support;

mod access;
mod audio;
mod bench_tool;
mod captions;
mod chaos;
mod clips;
mod cluster;
mod cluster_media;
mod codecs;
mod compression;
mod crash;
mod data_channels;
mod data_track;
mod differential;
mod documented;
mod draining;
mod dvr;
mod edges;
mod encryption;
mod examples;
mod files;
mod floods;
mod folders;
mod front;
mod harness;
mod hls;
mod hooks;
mod http2;
mod http_flv;
mod http_rows;
mod import;
mod ladders;
mod linear;
mod log;
mod management;
mod mpegts;
mod multitrack;
mod narrow;
mod nodes;
mod object_storage;
mod observe;
mod own_files;
mod packaging;
mod panel;
mod playback;
mod player;
mod previews;
mod process;
mod proxies;
mod publish_play;
mod publishers;
mod recording;
mod reference;
mod rest_tour;
mod restream;
mod room_recordings;
mod room_views;
mod rooms;
mod rtmp_rows;
mod rtsp;
mod schema;
mod sdks;
mod secrets;
mod shared_ports;
mod simulation;
mod sounds;
mod sources;
mod splices;
mod srt;
mod srt_interop;
mod srt_relay;
mod standby;
mod subscribed;
mod subtitles;
mod timed_metadata;
mod tls;
mod turn;
mod upgrades;
mod uploads;
mod web_socket;
mod webm;
mod webrtc;
mod webrtc_port;
mod webrtc_rows;
mod webrtc_tcp;
mod whip_clients;
