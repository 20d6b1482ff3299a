//! Keys of protocols that this build lacks: the settings files have them, and a bad value is an error already.

use super::row::Protocol;
use crate::config::{Extensions, Key, Section, Values, key};

const RTSP: &[Key] = &[key("rtsp.port", "5554", "RTSP port")];
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
