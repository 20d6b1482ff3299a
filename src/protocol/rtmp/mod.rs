//! RTMP: publishers and players on port 1935, and pushes to other servers.
//!
//! [`RtmpSession`] puts the machine of the `rtmp` crate between a socket and the hub, [`super::tags`] turns its
//! messages into access units, [`RtmpPackage`] turns units into the chunks that all viewers share, and [`RtmpPush`] is the
//! client side.

mod egress;
mod push;
mod session;

use ::rtmp::FourCcs;
use media::Codec;

pub(super) use egress::FORMAT;
pub(super) use push::{PushAddress, RtmpPush};
pub(super) use session::RtmpSession;

/// What this server forwards, to tell peers.
pub(super) fn forwarded() -> FourCcs {
    Codec::ALL.into_iter().filter_map(Codec::four_cc).fold(FourCcs::NONE, FourCcs::with)
}
