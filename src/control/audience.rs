//! Viewers across nodes (docs/cluster.md). A node with a copy reports its number of viewers to the node from which it
//! fetches, when the number changes and at most once a second. The origin's record thus counts all viewers, and every
//! node has that record. When a node is lost, its viewers are no longer counted, because its connection ends.

use relay::Viewers;

use super::access::Access;
use super::live::{Live, Registry};
use super::records::Records;
use super::sources::Sources;
use crate::mail::ToWorker;
use crate::types::{StreamId, StreamKey, WorkerId};

impl Live {
    /// Returns the viewers at this node and at nodes that copy from it.
    fn audience(&self) -> Viewers {
        let mut all = Viewers::default();
        for counts in self.viewers() {
            all.connected = all.connected.saturating_add(counts.connected);
            counts.leased.iter().for_each(|(name, viewers)| all.count(name, *viewers));
            all.add(&counts.elsewhere);
        }
        all
    }
}

/// Returns the mail to the worker that fetches a copy, if the copy's number of viewers differs from the number last
/// reported to the origin.
pub(super) fn news(
    registry: &Registry,
    sources: &mut Sources,
    stream: StreamId,
) -> Option<(WorkerId, ToWorker)> {
    let live = registry.get(&stream)?;
    let id = sources.by_key.get(&live.key).copied()?;
    let copying = sources.by_id.get_mut(&id)?.copying.as_mut()?;
    let viewers = live.audience();
    if copying.told.as_ref() == Some(&viewers) {
        return None;
    }
    copying.told = Some(viewers.clone());
    Some((live.source().worker, ToWorker::Audience { pull: id, viewers }))
}

impl Access {
    /// Number of viewers of a stream at other nodes that the record counts under `name` (for example `hls`), for the
    /// record's limits. At the origin, this is the number that nodes with copies have reported. At other nodes, it is
    /// the number in the record minus the number that this node has reported.
    pub(super) fn viewers_elsewhere(
        &self,
        records: &Records,
        registry: &Registry,
        key: &StreamKey,
        name: &str,
    ) -> u32 {
        let live = registry.find(key).and_then(|stream| registry.get(&stream));
        if live.is_some_and(|live| !live.is_copy()) {
            let told = live.into_iter().flat_map(Live::viewers).map(|counts| counts.elsewhere.counted(name));
            return told.fold(0, u32::saturating_add);
        }
        if registry.cluster.elsewhere(key).is_none() {
            return 0;
        }
        let all = records.get(key).map_or(0, |record| record.viewers_counted(name));
        let own = live.map_or(0, |live| live.audience().counted(name));
        all.saturating_sub(own)
    }
}
