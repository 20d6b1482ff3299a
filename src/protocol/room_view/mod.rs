//! The view of a room: one stream made of a room's streams, for viewers over protocols that show one stream at a time.
//!
//! ```text
//! streams of the room ── units ──> RoomView: who is shown (cast), on one clock (output) ── units ──> stream of the room's name
//!                                  or everybody, each with tracks of its own (gallery)
//! ```
//!
//! Control begins a view when a viewer requests a room without media of its own, just as it fetches a copy of another
//! node's stream, and ends the view when nobody watches. The session watches the room ([`session`]), subscribes to
//! the streams to be shown, and publishes their units under the name of the room. Nothing is decoded: another stream is
//! shown from a key frame on. Viewers that list the room's streams themselves never see the view.

mod cast;
mod gallery;
mod one;
mod output;
mod session;
mod settings;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use media::Origin;

use super::row::{Addresses, Protocol, Request};
use super::{FormatKind, Session};
use crate::hub::{AsPublished, Fit, Selection};
use crate::mail::{Target, Transport};
use crate::types::StreamKey;
use session::RoomView;

/// The entry of room views in [`super::registry`].
pub(super) static PROTOCOL: Protocol =
    Protocol { section: &settings::SECTION, formats: &[&FORMAT], room_view: Some(target), ..Protocol::NONE };

/// Format of published units, for the view.
static FORMAT: FormatKind = FormatKind {
    name: "room",
    counted_as: None,
    is_enabled: |_| true,
    selection: Selection::DEFAULT,
    package: |_| Some(Box::new(AsPublished(|track| Fit::of(track.origin == Origin::Published)))),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// Makes the target of a room's view.
fn target(room: &StreamKey) -> Target {
    let request: Box<dyn Request> = Box::new(OwnRoom(room.clone()));
    let host = IpAddr::V4(Ipv4Addr::UNSPECIFIED).to_string();
    Target::new("room", (host, 0), Transport::File, Arc::new(request))
}

/// A room of this server.
#[derive(Debug)]
struct OwnRoom(StreamKey);

impl Request for OwnRoom {
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn session(&self) -> Option<Box<dyn Session>> {
        Some(Box::new(RoomView::new(self.0.clone())))
    }
}
