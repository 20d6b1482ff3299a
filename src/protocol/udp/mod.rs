//! MPEG-TS in plain datagrams, as sent by encoders and headends: a stream source that is received at an address of this
//! machine or a multicast group. There is no connection and no authentication: the first sender is the source, until it
//! falls silent.

mod pull;
mod url;

use crypto::Seed;

use super::pull::{Client, Patience};
use super::row::{Addresses, LoadUse, Outbound, Protocol, Request, Scheme};
use crate::mail::Transport;
use crate::types::StreamKey;
use pull::UdpPull;
use url::UdpUrl;

/// The entry of plain UDP in [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    schemes: &[Scheme {
        name: "udp",
        default_port: 1234,
        pushes: false,
        pulls: true,
        copies: None,
        takes_credentials: true,
        load: LoadUse::none("udp"),
        read: |url, scheme| {
            let UdpUrl { host, port } = UdpUrl::read(url, scheme.default_port)?;
            Ok(Outbound { host, port, transport: Transport::UdpListener, request: Box::new(Packets) })
        },
    }],
    ..Protocol::NONE
};

/// A request for all packets sent to the address.
#[derive(Debug)]
struct Packets;

impl Request for Packets {
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        // This server sends no plain MPEG-TS over UDP, so the URL cannot mean one of its own streams.
        false
    }

    fn pull(&self, _patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(UdpPull::default()))
    }
}
