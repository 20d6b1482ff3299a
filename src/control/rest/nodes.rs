//! The nodes of a cluster, as the management API shows them.

use serde_json::json;

use super::call::{Reply, RootCall};
use super::lists::page_of;
use crate::control::Now;
use crate::control::access::Access;
use crate::control::answer::{Outcome, json as object};
use crate::directory::{Node, Request};
use crate::http::Response;
use crate::types::NodeId;

/// `GET /cluster-mode-status`.
pub(super) fn status(access: &Access) -> Reply {
    let is_cluster = access.cluster.is_shared();
    let outcome = if is_cluster { Outcome::success() } else { Outcome::failure("") };
    Reply::Now(outcome.response(200))
}

/// The reference's answer without a cluster.
fn no_cluster() -> Reply {
    Reply::Now(Response::error(500, "Not in cluster mode"))
}

/// `GET /cluster/node-count`.
pub(super) fn count(access: &Access) -> Reply {
    let cluster = &access.cluster;
    if !cluster.is_shared() {
        return no_cluster();
    }
    Reply::Now(object(200, &json!({ "number": cluster.nodes().count() })))
}

/// `GET /cluster/nodes/{offset}/{size}`.
pub(super) fn list(access: &Access, now: Now, call: &RootCall<'_>) -> Reply {
    let cluster = &access.cluster;
    if !cluster.is_shared() {
        return no_cluster();
    }
    let [offset, size, ..] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let nodes: Vec<_> = cluster.nodes().skip(offset).take(size).map(|node| shown(now, node)).collect();
    Reply::Now(object(200, &json!(nodes)))
}

/// A node as the reference shows it, and some members of ours.
fn shown(now: Now, node: &Node) -> serde_json::Value {
    json!({
        "id": node.id.as_str(),
        "ip": &*node.profile.http,
        "lastUpdateTime": now.wall_ms.saturating_sub(node.silent_ms),
        "memory": format!("{}%", node.profile.memory_percent),
        "cpu": format!("{}%", node.profile.cpu_percent),
        "dbQueryAveargeTimeMs": 0,
        "status": if node.is_alive { "alive" } else { "dead" },
        "region": &*node.profile.region,
        "relay": &*node.profile.relay,
        "address": node.address(),
    })
}

/// `DELETE /cluster/node/{id}`: forgets a node that is gone.
pub(super) fn delete(access: &mut Access, call: &RootCall<'_>) -> Reply {
    let cluster = &mut access.cluster;
    if !cluster.is_shared() {
        return no_cluster();
    }
    let [id, ..] = call.params;
    let node = NodeId::new(id).and_then(|id| cluster.nodes().find(|node| node.id == id).cloned());
    let outcome = match node {
        None => Outcome::failure("There is no such node"),
        Some(node) if node.is_alive => Outcome::failure("The node is alive"),
        Some(node) => {
            cluster.ask(Request::Forget(node.id));
            Outcome::success()
        }
    };
    Reply::Now(outcome.response(200))
}
