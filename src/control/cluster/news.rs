//! News of the directory, and their effects on this node.

use std::time::Instant;

use super::pair::{have_records, share_records};
use super::{Changes, Cluster, Location, Unclaimed};
use crate::control::Control;
use crate::control::admission::Ticket;
use crate::control::outgoing::Outgoing;
use crate::directory::{News, Request, Side};
use crate::mail::StreamEnd;
use crate::types::{Now, StreamKey};

impl Control {
    /// Handles news of the directory.
    pub fn handle_directory(&mut self, now: Now, news: News) {
        self.cx.audit.note_time(now.mono);
        let mut changes = Changes::default();
        let cluster = &mut self.registry.cluster;
        match news {
            News::Foreign(ops) => self.foreign(now, ops),
            News::Claim { key, holder } => {
                cluster.claim_told(key, holder, &mut changes);
                // The next requests to end claims are usually sent when the list of nodes arrives. The directory of a
                // pair of processes sends this list only when it changes, so the requests are sent now.
                if !changes.buried.is_empty() && cluster.has_buried_all() {
                    cluster.bury(now.mono);
                }
            }
            News::Claims(all) => cluster.claims_told(all, &mut changes),
            News::Present(presence) => cluster.present_told(presence),
            News::Presences(all) => cluster.presences_told(all),
            News::Nodes(all) => {
                cluster.nodes_told(now.mono, all, &mut changes);
                cluster.bury(now.mono);
                if cluster.have_relays_changed() {
                    self.outgoing(now).follow_relays();
                }
                self.end_orphans(now);
                let cluster = &mut self.registry.cluster;
                if cluster.is_pair() && !cluster.has_other() {
                    self.cx.set_side(None);
                    have_records(&mut self.records, now);
                    self.files.finish_postponed(&mut self.cx, &self.records, now);
                }
            }
            News::Answer { ticket, key, answer } => {
                self.handle_claim(now, Ticket::of(ticket), &key, &answer);
            }
            News::Burnt { ticket, is_burnt } => self.handle_burnt(now, Ticket::of(ticket), is_burnt),
            News::Contact(is_there) => cluster.note_contact(now.mono, is_there),
            News::ClockSet => cluster.note_clock_set(now.mono),
            News::Lost => cluster.ask(Request::Refill(self.records.encoded())),
            News::Pair(process) => {
                let unclaimed = Unclaimed::of(&self.registry, &self.outbound, &self.access);
                self.registry.cluster.pair(process, unclaimed);
                self.access.tell_all_present();
                self.cx.set_side(Some(Side::Guest));
                share_records(&mut self.records, now);
            }
        }
        for key in &changes.lost {
            self.supersede(now, key);
        }
        for key in &changes.moved {
            self.claim_changed(now, key);
        }
        for (key, giver) in &changes.given {
            self.outgoing(now).take_given(key, giver.as_ref());
        }
        for key in &changes.buried {
            self.outgoing(now).clear_up(key);
        }
        self.end_turn(now);
    }

    /// Handles the news that another live node now holds an id, or no longer holds it.
    pub(in crate::control) fn claim_changed(&mut self, now: Now, key: &StreamKey) {
        if let Some(Location { node, host, port }) = self.registry.cluster.location(key) {
            tracing::debug!(%key, %node, host, port, "stream is live at another node");
        }
        let is_elsewhere = self.registry.cluster.elsewhere(key).is_some();
        if !self.registry.is_live(key) || self.outbound.is_copy(&self.registry, key) {
            self.records.note_elsewhere(now, key, is_elsewhere);
        }
        if !is_elsewhere {
            self.outbound.id_freed(now, key);
        }
        self.follow_claim(now, key);
    }

    /// Yields an id to another node with a newer claim: closes the publisher here, and leaves the record to the other
    /// node. If a source of this node had the id, the other node now runs the source. When the id is free again, this
    /// node runs the source again, unless this node is draining.
    fn supersede(&mut self, now: Now, key: &StreamKey) {
        let was_source = self.outbound.forget_given(&mut self.cx, &mut self.registry.cluster, key);
        let is_source = self.outbound.sources.is_running(key);
        if (is_source || !self.become_copy(now, key))
            && !self.outgoing(now).stop_source(key, StreamEnd::Superseded)
            && let Some(stream) = self.registry.find(key)
        {
            self.registry.end(&mut self.cx, stream, StreamEnd::Superseded);
        }
        let is_wanted = self.records.get(key).is_some_and(|record| record.source_wanted);
        if was_source && is_wanted && self.cx.leaving.is_none() {
            self.outbound.hold_back(now, key, self.registry.cluster.elsewhere(key).is_some());
        }
    }
}

impl Outgoing<'_> {
    /// Cleans up an id that a gone node held: marks the stream as ended, and starts its source here. If the stream is a
    /// copy, its viewers stay.
    pub(super) fn clear_up(&mut self, key: &StreamKey) {
        let is_copy = self.outbound.is_copy(self.registry, key);
        if is_copy || !self.registry.is_live(key) {
            // The record of a room, or of another main track, changes with the end of a subtrack.
            self.registry.touched_mains.extend(self.records.main_track_of(key));
            self.records.terminated(self.now, key.clone());
            self.take_source(key);
        }
    }
}

impl Cluster {
    /// Notes and logs whether the directory is reachable.
    fn note_contact(&mut self, now: Instant, is_there: bool) {
        match (self.is_away, is_there) {
            (false, false) => {
                tracing::error!("directory unreachable; live streams continue without it")
            }
            (true, true) => tracing::info!("directory reachable again"),
            (false, true) | (true, false) => {}
        }
        self.contact(now, is_there);
    }

    /// Notes that the directory's clock was set. For the duration of a lease, no node counts as gone.
    fn note_clock_set(&mut self, now: Instant) {
        tracing::warn!("clock of the directory was set; nodes get the time of a lease to renew theirs");
        self.settle(now);
    }
}
