//! Demand: which tracks somebody is sent, told to where the stream comes from.

use super::{Output, Worker};
use crate::mail::ToWorker;
use crate::types::StreamId;

impl Worker {
    /// Looks at which tracks of a stream somebody is sent, after a change of subscribers, selections or tracks.
    pub(super) fn settle_demand(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(wanted) = stream.wanted_anew() else { return };
        if stream.source != self.id && stream.mirrored_here {
            let mail = ToWorker::MirrorWants { stream: id, to: self.id, wanted };
            self.outputs.push_back(Output::Worker(stream.source, mail));
        }
    }
}
