//! The nodes of a cluster, as the management API shows them.

use serde_json::json;

use super::call::{Reply, RootCall};
use super::lists::page_of;
use crate::control::Now;
use crate::control::answer::{Outcome, json as object};
use crate::control::cluster::Cluster;
use crate::directory::{Node, Request};
use crate::http::Response;
use crate::types::NodeId;

/// `GET /cluster-mode-status`.
pub(super) fn status(cluster: &Cluster) -> Reply {
    let is_cluster = cluster.is_clustered();
    let outcome = if is_cluster { Outcome::success() } else { Outcome::failure("") };
    Reply::Now(outcome.response(200))
}

/// Makes the answer that Ant Media Server gives if it is not in a cluster.
fn no_cluster() -> Reply {
    Reply::Now(Response::error(500, "Not in cluster mode"))
}

/// `GET /cluster/node-count`.
pub(super) fn count(cluster: &Cluster) -> Reply {
    if !cluster.is_clustered() {
        return no_cluster();
    }
    Reply::Now(object(200, &json!({ "number": cluster.nodes().count() })))
}

/// `GET /cluster/nodes/{offset}/{size}`.
pub(super) fn list(cluster: &Cluster, now: Now, call: &RootCall<'_>) -> Reply {
    if !cluster.is_clustered() {
        return no_cluster();
    }
    let [offset, size, ..] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let nodes: Vec<_> = cluster.nodes().skip(offset).take(size).map(|node| shown(now, node)).collect();
    Reply::Now(object(200, &json!(nodes)))
}

/// Shows a node as Ant Media Server does, with some members of our own.
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
        "tier": if node.profile.is_regional_relay { "relay" } else { "node" },
        "relay": &*node.profile.relay,
        "address": node.address(),
        "draining": node.profile.is_draining,
    })
}

/// `DELETE /cluster/node/{id}`: forgets a node that has left.
pub(super) fn delete(cluster: &mut Cluster, call: &RootCall<'_>) -> Reply {
    if !cluster.is_clustered() {
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
