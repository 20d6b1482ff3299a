//! Requests that belong to another node of the cluster: the address that their clients are sent to (docs/cluster.md).

use std::sync::Arc;

use super::Control;
use crate::directory::Node;
use crate::http::Response;
use crate::mail::Sought;

/// The answer to a session that asks where something is: 307 with the node's address, or 204 when it is here or nowhere.
pub(super) fn locate(control: &Control, sought: &Sought) -> Response {
    let node = match sought {
        Sought::Stream(key) => control.access.cluster.elsewhere(key),
        Sought::File { app, path } => node_of_file(control, app, path),
    };
    match node.map(Node::address).filter(|address| !address.is_empty()) {
        Some(address) => Response::empty(307).header("Location", address),
        None => Response::empty(204),
    }
}

/// The live other node that has a file of an application.
fn node_of_file<'a>(control: &'a Control, app: &Arc<str>, path: &str) -> Option<&'a Node> {
    let vod = control.vod_of(control.records.auxiliary.of_file(app, path)?)?;
    if control.access.cluster.has_file(vod) {
        return None;
    }
    let place = vod.node.as_deref()?;
    control.access.cluster.nodes().find(|node| node.is_alive && node.id.as_str() == place.0)
}
