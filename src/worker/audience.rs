//! Viewers of the copies that other nodes make of this worker's streams, as reported by those nodes.

use relay::Viewers;

use super::conns::Conns;
use super::streams::Live;
use crate::hub::Stream;
use crate::types::{ConnId, Handle, StreamId};

/// Records the number of viewers that a node has reported for its copy of a stream.
pub(super) fn note(conns: &mut Conns, id: ConnId, subscription: Handle, viewers: Viewers) {
    let conn = conns.get_mut(id);
    if let Some(playing) = conn.and_then(|conn| conn.subscription_mut(subscription)?.playing_mut())
        && playing.format.kind().is_for_nodes
    {
        playing.audience = Some(Box::new(viewers));
    }
}

/// Returns the streams that have viewers at other nodes, each with these viewers.
pub(super) fn audiences(conns: &Conns, live: &Live) -> Vec<(StreamId, Viewers)> {
    let of_stream = |stream: &Stream| {
        let mut all = Viewers::default();
        for one in &stream.subscribers {
            let subscription = conns.get(one.conn).and_then(|conn| conn.subscription(one.handle));
            let audience = subscription.and_then(|one| one.playing()?.audience.as_deref());
            audience.into_iter().for_each(|audience| all.add(audience));
        }
        (all != Viewers::default()).then_some((stream.id, all))
    };
    live.streams.values().filter_map(of_stream).collect()
}
