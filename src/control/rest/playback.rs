//! Operations on a running source: the position in a file, and the item of a playlist (docs/rest.md).

use std::time::Duration;

use super::call::{Call, Reply};
use crate::control::answer::Outcome;
use crate::control::outgoing::Outgoing;
use crate::control::playlists::is_playlist;
use crate::http::Response;

fn refused(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(200))
}

/// `PUT /broadcasts/{id}/seek-time/{ms}`: continues a playing file at the position `ms`.
pub(super) fn seek(mut outgoing: Outgoing<'_>, call: &Call<'_>) -> Reply {
    let [id, ms, ..] = call.params;
    let Ok(ms) = ms.parse::<i64>() else { return Reply::Now(Response::error(404, "Not Found")) };
    let time = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    if outgoing.seek(&call.key(), time) {
        return Reply::Now(Outcome::success().response(200));
    }
    refused(&format!(
        "Not active stream source found with this id: {id} make sure you give the id of a running stream source"
    ))
}

/// `POST /playlists/{id}/next`: switches to another item before the current one ends.
pub(super) fn next_item(mut outgoing: Outgoing<'_>, call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    let index: Option<i32> = match call.number("index") {
        Ok(index) => index,
        Err(refusal) => return refusal,
    };
    let key = call.key();
    let Some(record) = outgoing.records.get(&key) else {
        return refused("There is no playlist found. Please check Stream id again");
    };
    if !is_playlist(record) {
        return refused("This broadcast type is not playlist. This method is only available for playlists");
    }
    let items = record.play_list_item_list.as_ref().map_or(0, Vec::len);
    // A negative index means the next item.
    let index = index.and_then(|index| usize::try_from(index).ok());
    if index.is_some_and(|index| index >= items) {
        return refused("Index is out of the list. Please specify the correct index");
    }
    if !outgoing.outbound.sources.is_running(&key) {
        return refused(&format!("No active playlist for id:{id}. Start the playlist first"));
    }
    outgoing.leap(&key, index);
    Reply::Now(Outcome::success().data_id(id).response(200))
}
