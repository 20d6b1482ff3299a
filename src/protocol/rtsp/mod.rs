//! RTSP: publishers and viewers on port 5554, over the connection itself or with datagrams beside it.
//!
//! [`RtspSession`] puts the machine of the `rtsp` crate between a connection and the hub; packets of
//! publishers become access units in [`super::rtp_mapping`], [`package::RtspPackage`] cuts units into the packets that all
//! viewers share. [`pairs`] are the sockets of a session that has agreed on datagrams.

mod package;
mod pairs;
mod publisher;
mod request;
mod session;
mod settings;
mod viewer;

use super::row::{Listener, Protocol, Security};
use crate::types::Ingest;
use session::RtspSession;

/// The ingest of its streams.
const INGEST: Ingest = Ingest { publish_type: "RTSP", name: "rtsp" };

/// See [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[Listener {
        name: "rtsp",
        security: Security::Plain,
        manages: false,
        publishers: true,
        beside: None,
        listen: settings::listen,
        begin: |now, peer, seed| Box::new(RtspSession::new(now, peer, seed)),
    }],
    section: &settings::SECTION,
    formats: &[&package::FORMAT],
    ..Protocol::NONE
};
