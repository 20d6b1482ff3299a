//! Subscribers and their connections.

use crate::control::records::auxiliary::{Auxiliary, AuxiliaryRecords, Subscriber};
use serde::Serialize;

use super::Access;
use crate::control::cluster::Cluster;
use crate::control::context::Context;
use crate::types::StreamKey;

/// A subscriber as shown by the API; members are in Ant Media Server's order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::control) struct Shown<'a> {
    subscriber_id: &'a str,
    subscriber_name: Option<&'a str>,
    stream_id: &'a str,
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    connected: bool,
    current_concurrent_connections: usize,
    concurrent_connections_limit: i32,
    blocked_type: Option<&'a str>,
    blocked_until_unit_time_stamp_ms: i64,
    registered_node_ip: Option<&'a str>,
    avg_video_bitrate: i64,
    avg_audio_bitrate: i64,
    totp_expiry_period_seconds: u64,
}

impl Access {
    /// Returns the subscriber with the state of its connections.
    pub(in crate::control) fn shown_subscriber<'a>(
        &self,
        cx: &'a Context,
        cluster: &Cluster,
        key: &StreamKey,
        subscriber: &'a Subscriber,
    ) -> Shown<'a> {
        let id = &subscriber.subscriber_id;
        let here = self.presences.count(key, id);
        let connections = here.saturating_add(cluster.present_elsewhere(key, id));
        let app = cx.apps.get(&key.app);
        let period = app.map_or(0, |app| app.security.secrets.time_code_period);
        Shown {
            subscriber_id: &subscriber.subscriber_id,
            subscriber_name: subscriber.subscriber_name.as_deref(),
            stream_id: &subscriber.stream_id,
            kind: subscriber.kind.as_deref(),
            connected: connections > 0,
            current_concurrent_connections: connections,
            concurrent_connections_limit: subscriber.concurrent_connections_limit,
            blocked_type: subscriber.blocked_type.as_deref(),
            blocked_until_unit_time_stamp_ms: subscriber.blocked_until_unit_time_stamp_ms,
            registered_node_ip: (here > 0).then_some(cx.config.host_address.as_str()),
            avg_video_bitrate: 0,
            avg_audio_bitrate: 0,
            totp_expiry_period_seconds: subscriber.period().unwrap_or(period),
        }
    }
}

impl AuxiliaryRecords {
    /// Returns the subscriber of a stream, including pending changes.
    pub(in crate::control) fn subscriber(&self, key: &StreamKey, id: &str) -> Option<&Subscriber> {
        match self.pending(&Subscriber::key(&key.app, &key.id, id))? {
            Auxiliary::Subscriber(subscriber) => Some(subscriber),
            Auxiliary::Token(_) | Auxiliary::User(_) | Auxiliary::Vod(_) => None,
        }
    }
}
