//! Applies changes that other nodes have made to records, as if they were committed here, but without calling hooks:
//! the node that made a change calls them.

use crate::control::Control;
use crate::control::broadcast::{Broadcast, status};
use crate::control::outgoing::Outgoing;
use crate::control::records::auxiliary::Auxiliary;
use crate::control::records::restored::{Restored, StoredRecord};
use crate::mail::StreamEnd;
use crate::store::{Key, Kind, Op};
use crate::types::{Now, StreamKey};

impl Control {
    /// Applies changes of other nodes. If this node has a commit of the same key in progress, the change is deferred,
    /// and applied only if the commit fails: in the directory's order the commit follows the change, and replaces it.
    pub(in crate::control) fn foreign(&mut self, now: Now, ops: Vec<Op>) {
        for op in self.records.writes.without_under_way(ops) {
            let (key, bytes) = match op {
                Op::Put(key, bytes) => (key, Some(bytes)),
                Op::Delete(key) => (key, None),
            };
            let record = match bytes.map(|bytes| Restored::decode(&[(key.clone(), bytes)])).transpose() {
                Ok(restored) => restored.and_then(|restored| restored.0.into_iter().next()),
                Err(error) => {
                    tracing::error!(%error, "record of another node skipped: it cannot be read");
                    continue;
                }
            };
            match (key.kind, record.map(|(_, record)| record)) {
                (Kind::Broadcast, Some(StoredRecord::Broadcast(record))) => {
                    self.foreign_put(now, StreamKey { app: key.app, id: key.id }, *record);
                }
                (Kind::Broadcast, _) => self.foreign_delete(now, &StreamKey { app: key.app, id: key.id }),
                (_, Some(StoredRecord::Auxiliary(record))) => self.foreign_auxiliary(now, key, Some(*record)),
                (_, _) => self.foreign_auxiliary(now, key, None),
            }
        }
        self.records.stage_again();
    }

    fn foreign_put(&mut self, now: Now, key: StreamKey, record: Broadcast) {
        let before = self.records.get(&key).cloned();
        // The record does not control a copy, which follows its origin.
        let is_copy = self.outbound.is_copy(&self.registry, &key);
        let runs = self.outbound.sources.is_running(&key) && !is_copy;
        let mut merged = record.clone();
        merged.updated = Some(now.mono);
        match &before {
            Some(live) if runs || (self.registry.is_live(&key) && !is_copy) => merged.keep_live(live),
            Some(_) | None => {}
        }
        let is_own = merged.encode() != record.encode();
        let main_before = self.records.main_track_of(&key);
        if !record.source_wanted && before.as_ref().is_some_and(|before| before.source_wanted) {
            self.outbound.sources.held_back.remove(&key);
        }
        let restarts = runs && before.is_some_and(|before| merged.is_fetched_otherwise(&before));
        self.records.insert(key.clone(), merged);
        self.claim_changed(now, &key);
        self.outgoing(now).reconcile_pushes(&key);
        self.files.recording_may_change(key.clone());
        self.registry.review_viewers(&mut self.cx, &self.records, &key);
        if runs && !record.source_wanted && record.status != status::CREATED {
            self.outgoing(now).stop_source(&key, StreamEnd::Stopped);
        } else if restarts {
            self.outgoing(now).restart_source(&key);
        }
        if is_own {
            self.records.writes.mark_dirty(now, key.clone());
        }
        self.outgoing(now).foreign_applied(&key, main_before);
    }

    fn foreign_delete(&mut self, now: Now, key: &StreamKey) {
        let main_before = self.records.main_track_of(key);
        // A copy is not ended here, because it ends with its origin's stream.
        if !self.outbound.is_copy(&self.registry, key)
            && !self.outgoing(now).stop_source(key, StreamEnd::Deleted)
            && let Some(stream) = self.registry.find(key)
        {
            self.registry.end(&mut self.cx, stream, StreamEnd::Deleted);
        }
        self.follow_ends(now);
        self.hooks.forget_idle(key);
        self.records.remove(key);
        self.outgoing(now).foreign_applied(key, main_before);
    }

    fn foreign_auxiliary(&mut self, now: Now, key: Key, record: Option<Auxiliary>) {
        let before = self.records.auxiliary.get(&key).cloned();
        match (key.kind, &before, &record) {
            (Kind::User, ..) => self.management.first_code = None,
            (Kind::Token, _, Some(_)) => self.walks.arm_sweep(now),
            (Kind::Vod, Some(Auxiliary::Vod(vod)), None) if self.registry.cluster.has_file(vod) => {
                let vod = vod.clone();
                self.files.remove_file(&mut self.cx, &self.records, now, &key.app, &vod);
            }
            (Kind::Broadcast | Kind::Token | Kind::Subscriber | Kind::Vod, ..) => {}
        }
        self.management.end_sessions_of(before.as_ref(), record.as_ref());
        let subscriber = match &record {
            Some(Auxiliary::Subscriber(subscriber)) => Some(subscriber.clone()),
            Some(Auxiliary::Token(_) | Auxiliary::User(_) | Auxiliary::Vod(_)) | None => None,
        };
        if self.registry.cluster.is_pair() {
            self.files.note_postponed(&key, record.as_ref());
        }
        self.records.auxiliary.apply(key.clone(), record);
        if let Some(subscriber) = subscriber {
            // A blocked subscriber is disconnected.
            let stream = StreamKey::new(&key.app, &subscriber.stream_id);
            self.access.drop_subscriber(
                &mut self.cx,
                &self.records,
                &mut self.registry,
                now,
                &stream,
                &subscriber.subscriber_id,
            );
        }
    }
}

impl Outgoing<'_> {
    fn foreign_applied(&mut self, key: &StreamKey, main_before: Option<StreamKey>) {
        self.registry.touched_mains.extend(main_before);
        self.registry.touched_mains.extend(self.records.main_track_of(key));
        self.outbound.note_auto_start(self.cx, self.records, key);
        self.outbound.note_planned(self.records, self.now, key);
    }
}

impl Broadcast {
    /// Keeps the members that a live stream of this node has set in the node's own record (`live`), and takes all
    /// others from the other node.
    fn keep_live(&mut self, live: &Self) {
        let other = std::mem::take(self);
        let mut endpoints = other.end_point_list.clone();
        for endpoint in endpoints.iter_mut().flatten() {
            let of_live = live.end_point_list.iter().flatten();
            if let Some(own) =
                of_live.into_iter().find(|own| own.endpoint_service_id == endpoint.endpoint_service_id)
            {
                endpoint.status.clone_from(&own.status);
            }
        }
        *self = Self {
            status: live.status.clone(),
            publish_type: live.publish_type.clone(),
            duration: live.duration,
            play_list_status: live.play_list_status.clone(),
            current_play_index: live.current_play_index,
            end_point_list: endpoints,
            speed: live.speed,
            origin_adress: live.origin_adress.clone(),
            origin_address: live.origin_address.clone(),
            rtmp_url: live.rtmp_url.clone(),
            pending_packet_size: live.pending_packet_size,
            hls_viewer_count: live.hls_viewer_count,
            dash_viewer_count: live.dash_viewer_count,
            webrtc_viewer_count: live.webrtc_viewer_count,
            rtmp_viewer_count: live.rtmp_viewer_count,
            anyone_watching: live.anyone_watching,
            start_time: live.start_time,
            received_bytes: live.received_bytes,
            bitrate: live.bitrate,
            width: live.width,
            height: live.height,
            encoder_queue_size: live.encoder_queue_size,
            packet_lost_ratio: live.packet_lost_ratio,
            packets_lost: live.packets_lost,
            jitter_ms: live.jitter_ms,
            rtt_ms: live.rtt_ms,
            user_agent: live.user_agent.clone(),
            remote_ip: live.remote_ip.clone(),
            absolute_start_time_ms: live.absolute_start_time_ms,
            update_time: live.update_time,
            updated: live.updated,
            ..other
        };
    }
}
