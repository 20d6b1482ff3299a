//! Redirects to another node of the cluster that has the requested stream or file (docs/cluster.md).

use super::Files;
use super::cluster::Cluster;
use super::live::Registry;
use super::records::Records;
use super::records::auxiliary::Vod;
use crate::directory::Node;
use crate::http::Response;
use crate::mail::Sought;

/// Returns the answer to a session that asks for the location of a stream or file: 307 with the node's address, or
/// 204 if the location is this node or unknown.
pub(super) fn locate(registry: &Registry, records: &Records, files: &Files, sought: &Sought) -> Response {
    let cluster = &registry.cluster;
    let node = match sought {
        // A node with a copy makes the picture itself.
        Sought::Picture(key) if registry.is_live(key) => None,
        // A draining node admits no viewers, so its stream is copied to this node instead.
        Sought::Stream(key) | Sought::Picture(key) => {
            cluster.elsewhere(key).filter(|node| !node.profile.is_draining)
        }
        Sought::File { app, path } => node_of_file(
            cluster,
            records.auxiliary.of_file(app, path).and_then(|key| files.vod_of(records, key)),
        ),
    };
    match node.map(Node::address).filter(|address| !address.is_empty()) {
        Some(address) => Response::empty(307).header("Location", address),
        None => Response::empty(204),
    }
}

/// Returns the other live node that has a file; `None` if this node has the file.
fn node_of_file<'a>(cluster: &'a Cluster, vod: Option<&Vod>) -> Option<&'a Node> {
    let vod = vod.filter(|vod| !cluster.has_file(vod))?;
    let place = vod.node.as_deref()?;
    cluster.nodes().find(|node| node.is_alive && node.id.as_str() == place.0)
}
