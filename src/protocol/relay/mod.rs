//! The relay: streams from node to node, over one TLS connection for each stream and node.
//!
//! ```text
//! origin: ring ── RelayPackage, once for all nodes ──> Session ══ TLS ══> RelayPull ── the same units ──> ring: edge
//! ```
//!
//! The node that wants a copy connects ([`pull`]); the node that has the stream subscribes to it like a viewer
//! ([`session`]). Tracks, units and clocks are those of the origin, so that every node cuts the same segments. The
//! peers are authenticated as nodes of the cluster ([`Security::Nodes`]), and nothing else is checked. The state
//! machines of both sides are in the crate `relay`.

mod pull;
mod session;
mod settings;

use std::sync::Arc;

use ::relay::{UNIT_HEAD_BYTES, tracks_frame, unit_head};
use bytes::{Bytes, BytesMut};
use crypto::Seed;
use media::{Track, Tracks};

use super::FormatKind;
use super::first_bytes::FirstBytes;
use super::pull::{Client, Patience};
use super::row::{Addresses, Listener, LoadUse, Outbound, Protocol, Request, Scheme, Security};
use crate::auth::url::{Url, UrlError};
use crate::http::decode_path;
use crate::hub::{Chosen, Entry, Fit, Item, Package, Parts, Selection};
use crate::mail::{Target, Transport};
use crate::types::StreamKey;
use pull::RelayPull;
use session::RelaySession;
pub(super) use settings::{cluster_of, secret_of};

/// Default port of `relay` URLs.
const DEFAULT_PORT: u16 = 5000;

/// The relay's entry in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[Listener {
        name: "relay",
        security: Security::Nodes,
        manages: false,
        publishers: false,
        beside: None,
        first_bytes: FirstBytes::Own,
        listen: settings::listen,
        begin: |now, _, _| Box::new(RelaySession::new(now)),
    }],
    section: &settings::SECTION,
    formats: &[&FORMAT],
    schemes: &[Scheme {
        name: "relay",
        default_port: DEFAULT_PORT,
        pushes: false,
        pulls: false,
        copies: Some(target_at),
        takes_credentials: false,
        load: LoadUse::none("relay"),
        read: outbound,
    }],
    ..Protocol::NONE
};

/// Format of tracks and units for other nodes.
static FORMAT: FormatKind = FormatKind {
    name: "relay",
    counted_as: None,
    is_enabled: |_| true,
    selection: Selection::ALL,
    package: |_| Some(Box::new(RelayPackage::default())),
    is_given_up_by_close: true,
    is_for_nodes: true,
};

/// The request for a stream of another node.
#[derive(Debug, Clone)]
struct RelayUrl {
    key: StreamKey,
}

fn outbound(url: &Url<'_>, scheme: &Scheme) -> Result<Outbound, UrlError> {
    let (host, port) = url.host_and_port(scheme.default_port)?;
    let path = decode_path(url.path().as_bytes()).map_err(|_| UrlError::Name)?;
    let (app, id) = path.trim_start_matches('/').split_once('/').ok_or(UrlError::Name)?;
    if app.is_empty() || id.is_empty() {
        return Err(UrlError::Name);
    }
    let request = Box::new(RelayUrl { key: StreamKey::new(app, id) });
    Ok(Outbound { host, port, transport: Transport::NodeTls, request })
}

/// Makes the target of a stream at the node whose relay has this address.
fn target_at(host: &str, port: u16, key: &StreamKey) -> Target {
    let request: Box<dyn Request> = Box::new(RelayUrl { key: key.clone() });
    Target::new("relay", (host.to_owned(), port), Transport::NodeTls, Arc::new(request))
}

impl Request for RelayUrl {
    fn means(&self, port: u16, addresses: &Addresses, key: &StreamKey) -> bool {
        addresses.port("relay") == Some(port) && self.key == *key
    }

    fn pull(&self, _patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(RelayPull::new(self.key.clone())))
    }
}

/// Size of the memory blocks from which the heads of units are taken. One block lasts for some hundred units.
const SCRATCH_BYTES: usize = 8192;

/// Frames of one stream, shared by all nodes that want the same tracks.
#[derive(Debug, Default)]
struct RelayPackage {
    scratch: BytesMut,
    /// Epoch of the last unit's tracks.
    epoch: Option<u32>,
}

impl RelayPackage {
    fn head(&mut self, head: &[u8; UNIT_HEAD_BYTES]) -> Bytes {
        if self.scratch.capacity() < head.len() {
            self.scratch = BytesMut::with_capacity(SCRATCH_BYTES);
        }
        self.scratch.extend_from_slice(head);
        self.scratch.split().freeze()
    }
}

impl Package for RelayPackage {
    fn fit(&self, _track: &Track) -> Fit {
        Fit::Well
    }

    fn prelude(&mut self, chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::new([tracks_frame(chosen.all())])
    }

    /// If the tracks have changed, writes all of them before the unit, including unselected ones, because nodes must
    /// know every track.
    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        let Some(head) = unit_head(&entry.unit) else { return Item::default() };
        let head = self.head(&head);
        let Tracks { epoch, .. } = *entry.tracks;
        let is_news = self.epoch.replace(epoch).is_some_and(|before| before != epoch);
        let tracks = is_news.then(|| tracks_frame(&entry.tracks));
        Parts::new(tracks.into_iter().chain([head, entry.unit.payload.clone()])).into()
    }
}
