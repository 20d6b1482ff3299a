//! Operations on a running source: the position in a file, and the item of a playlist (docs/rest.md).

use std::time::Duration;

use super::call::{Call, Reply};
use crate::control::Outbound;
use crate::control::answer::Outcome;
use crate::control::context::Context;
use crate::control::live::Registry;
use crate::control::playlists::is_playlist;
use crate::control::records::Records;
use crate::control::{Control, Now};
use crate::http::Response;

/// The parts of control that these handlers use.
pub(super) struct Playback<'a> {
    pub(super) cx: &'a mut Context,
    pub(super) records: &'a mut Records,
    pub(super) registry: &'a mut Registry,
    pub(super) outbound: &'a mut Outbound,
}

impl Control {
    /// Borrows the parts that these handlers use.
    pub(super) const fn playback(&mut self) -> Playback<'_> {
        Playback {
            cx: &mut self.cx,
            records: &mut self.records,
            registry: &mut self.registry,
            outbound: &mut self.outbound,
        }
    }
}

fn refused(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(200))
}

/// `PUT /broadcasts/{id}/seek-time/{ms}`: continues a playing file at that time.
pub(super) fn seek(playback: Playback<'_>, at: Now, call: &Call<'_>) -> Reply {
    let Playback { cx, records, registry, outbound } = playback;
    let [id, ms, ..] = call.params;
    let Ok(ms) = ms.parse::<i64>() else { return Reply::Now(Response::error(404, "Not Found")) };
    let time = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    if outbound.seek(cx, records, registry, at, &call.key(), time) {
        return Reply::Now(Outcome::success().response(200));
    }
    refused(&format!(
        "Not active stream source found with this id: {id} make sure you give the id of a running stream source"
    ))
}

/// `POST /playlists/{id}/next`: switches to another item before the current one ends.
pub(super) fn next_item(playback: Playback<'_>, at: Now, call: &Call<'_>) -> Reply {
    let Playback { cx, records, registry, outbound } = playback;
    let [id, ..] = call.params;
    let index: Option<i32> = match call.number("index") {
        Ok(index) => index,
        Err(refusal) => return refusal,
    };
    let key = call.key();
    let Some(record) = records.get(&key) else {
        return refused("There is no playlist found. Please check Stream id again");
    };
    if !is_playlist(record) {
        return refused("This broadcast type is not playlist. This method is only available for playlists");
    }
    let items = record.play_list_item_list.as_ref().map_or(0, Vec::len);
    // A negative one is the next.
    let index = index.and_then(|index| usize::try_from(index).ok());
    if index.is_some_and(|index| index >= items) {
        return refused("Index is out of the list. Please specify the correct index");
    }
    if !outbound.sources.is_running(&key) {
        return refused(&format!("No active playlist for id:{id}. Start the playlist first"));
    }
    outbound.leap(cx, records, registry, at, &key, index);
    Reply::Now(Outcome::success().data_id(id).response(200))
}
