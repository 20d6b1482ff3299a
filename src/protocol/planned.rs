//! Keys of protocols that this build lacks: the settings files have them, and a bad value is an error already.

use super::row::Protocol;
use crate::config::{Extensions, Key, Section, Values, key};

const RTSP: &[Key] = &[key("rtsp.port", "5554", "RTSP port")];
const WEBRTC: &[Key] = &[
    key("webrtc.port", "50000", "First UDP and TCP port of WebRTC media, one per worker"),
    key("webrtc.candidates", "", "Public addresses offered to WebRTC peers; empty: those of the interfaces"),
];

/// See [`super::registry`].
pub(super) static RTSP_PROTOCOL: Protocol = Protocol {
    section: &Section {
        server: RTSP,
        read_server: |values: &Values| values.port("rtsp.port").map(|_| Extensions::default()),
        ..Section::NONE
    },
    absent: &["rtsp"],
    ..Protocol::NONE
};

/// See [`super::registry`].
pub(super) static WEBRTC_PROTOCOL: Protocol = Protocol {
    section: &Section {
        server: WEBRTC,
        read_server: |values: &Values| values.port("webrtc.port").map(|_| Extensions::default()),
        ..Section::NONE
    },
    absent: &["webrtc"],
    ..Protocol::NONE
};
