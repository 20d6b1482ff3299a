//! Files that can be played (VoD): what was recorded, uploaded or imported.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::jobs::Finished;
use crate::store::{Key, Kind};

/// The duration of a file that does not tell.
const UNKNOWN: i64 = -2;

/// A file that can be played. Members in the reference's order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Vod {
    /// The name of the broadcast.
    pub(in crate::control) stream_name: Option<String>,
    /// The name of the file.
    pub(in crate::control) vod_name: Option<String>,
    /// The broadcast's id.
    pub(in crate::control) stream_id: Option<String>,
    /// The time at which it was complete, in Unix milliseconds.
    pub(in crate::control) creation_date: i64,
    /// The time at which its recording began, in Unix milliseconds.
    pub(in crate::control) start_time: i64,
    /// Milliseconds.
    pub(in crate::control) duration: i64,
    /// Bytes.
    pub(in crate::control) file_size: i64,
    /// The path below the application.
    pub(in crate::control) file_path: Option<String>,
    /// The id.
    pub(in crate::control) vod_id: Option<String>,
    /// [`Self::RECORDED`], [`Self::UPLOADED`] or [`Self::IMPORTED`].
    #[serde(rename = "type")]
    pub(in crate::control) kind: Option<String>,
    pub(in crate::control) preview_file_path: Option<String>,
    pub(in crate::control) process_status: Option<String>,
    pub(in crate::control) process_start_time: i64,
    pub(in crate::control) process_end_time: i64,
    pub(in crate::control) description: Option<String>,
    pub(in crate::control) metadata: Option<String>,
    pub(in crate::control) latitude: Option<String>,
    pub(in crate::control) longitude: Option<String>,
    pub(in crate::control) altitude: Option<String>,
    /// True if it is still being written, or was when the server ended. Nobody sees such a record.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::control) unfinished: bool,
    /// The node of a cluster that has the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::control) node: Option<Box<Place>>,
    /// The recording of a room that the file belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::control) room: Option<Box<Take>>,
    /// The object that it is in a storage; nobody sees it ([`Stored`]).
    #[serde(skip_serializing)]
    pub(in crate::control) kept: Option<Kept>,
}

/// A file's place in the recording of a room: one file or several for each participant, on one clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Take {
    /// The room's id.
    pub(in crate::control) id: String,
    /// The id of the recording.
    pub(in crate::control) recording: String,
    /// The wall clock at which the recording's clock was zero, in Unix milliseconds.
    pub(in crate::control) zero_time: i64,
    /// The arrival of the file's first unit on that clock, in milliseconds.
    pub(in crate::control) start: i64,
    /// The arrival of the file's first unit in Unix milliseconds.
    pub(in crate::control) start_time: i64,
}

/// The name of the node that has a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::control) struct Place(pub(in crate::control) String);

/// The object of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::control) enum Kept {
    /// To be uploaded under this name.
    Wanted { name: Box<str> },
    /// Uploaded, under this name.
    There { name: Box<str> },
}

/// A record with its hidden members.
#[derive(Serialize)]
struct Stored<'a> {
    #[serde(flatten)]
    vod: &'a Vod,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: &'a Option<Kept>,
}

impl Vod {
    /// The type of a recorded stream.
    pub(in crate::control) const RECORDED: &str = "streamVod";

    /// The type of a file that was uploaded.
    pub(in crate::control) const UPLOADED: &str = "uploadedVod";

    /// The type of a file of a folder that was imported. It is the folder's, and stays when its record goes.
    pub(in crate::control) const IMPORTED: &str = "userVod";

    /// The record with what its file says of itself. The reference has -2 for a file of which nobody knows how long it plays.
    pub(in crate::control) fn finished(self, Finished { bytes, duration_ms }: Finished) -> Self {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self { duration: duration_ms.map_or(UNKNOWN, number), file_size: number(bytes), ..self }
    }

    /// The stored form.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Stored { vod: self, kept: &self.kept })
    }

    /// The key in the store. Ids begin with the time, so those of an application are in the order in which they were made.
    pub(in crate::control) fn key(app: &Arc<str>, id: &str) -> Key {
        Key { kind: Kind::Vod, app: Arc::clone(app), id: id.into() }
    }

    /// The names of its file below the root of files.
    pub(in crate::control) fn path(&self, app: &str) -> Vec<String> {
        let names = self.file_path.as_deref().unwrap_or_default().split('/').map(str::to_owned);
        [app.to_owned()].into_iter().chain(names).collect()
    }

    /// True if a text in small letters is in one of the members that are searched.
    pub(in crate::control) fn matches(&self, text: &str) -> bool {
        let members = [
            &self.vod_id,
            &self.vod_name,
            &self.stream_id,
            &self.stream_name,
            &self.description,
            &self.metadata,
        ];
        members.into_iter().flatten().any(|member| member.to_lowercase().contains(text))
    }
}
