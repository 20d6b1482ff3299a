//! Playable files (VoD): recorded, uploaded or imported.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::S3Settings;
use crate::jobs::Finished;
use crate::store::{Key, Kind};

/// Value of `duration` if the duration of a file is unknown.
const UNKNOWN: i64 = -2;

/// A playable file. Members are in Ant Media Server's order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Vod {
    /// Name of the broadcast.
    pub(in crate::control) stream_name: Option<String>,
    /// Name of the file.
    pub(in crate::control) vod_name: Option<String>,
    /// Id of the broadcast.
    pub(in crate::control) stream_id: Option<String>,
    /// Time at which the file was complete, in Unix milliseconds.
    pub(in crate::control) creation_date: i64,
    /// Time at which the recording began, in Unix milliseconds.
    pub(in crate::control) start_time: i64,
    /// Duration in milliseconds; -2 if unknown.
    pub(in crate::control) duration: i64,
    /// Size in bytes.
    pub(in crate::control) file_size: i64,
    /// Path below the application.
    pub(in crate::control) file_path: Option<String>,
    /// Id of the file.
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
    /// True while the file is being written. Stays true if the server ends before the file is complete. The API hides
    /// such records.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::control) unfinished: bool,
    /// The node of a cluster that has the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::control) node: Option<Box<Place>>,
    /// Place in the recording of a room, if the file belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::control) room: Option<Box<Take>>,
    /// The file's object in object storage; hidden from the API ([`Stored`]).
    #[serde(skip_serializing)]
    pub(in crate::control) kept: Option<Kept>,
}

/// A file's place in the recording of a room, which has one or more files per participant, all on one clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Take {
    /// Id of the room.
    pub(in crate::control) id: String,
    /// Id of the room's recording.
    pub(in crate::control) recording: String,
    /// Wall-clock time at which the recording's clock was zero, in Unix milliseconds.
    pub(in crate::control) zero_time: i64,
    /// Arrival of the file's first unit on the recording's clock, in milliseconds.
    pub(in crate::control) start: i64,
    /// Arrival of the file's first unit, in Unix milliseconds.
    pub(in crate::control) start_time: i64,
}

/// The name of the node that has a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::control) struct Place(pub(in crate::control) String);

/// The state of a file's object in object storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::control) enum Kept {
    /// To be uploaded under this name.
    Wanted { name: Box<str> },
    /// Uploaded.
    There(Box<Uploaded>),
}

/// An object that was uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::control) struct Uploaded {
    pub(in crate::control) name: Box<str>,
    /// The storage. `None` if an earlier version of this server uploaded the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::control) store: Option<Store>,
}

impl Kept {
    /// Returns the object's name.
    pub(in crate::control) fn name(&self) -> &str {
        match self {
            Self::Wanted { name } => name,
            Self::There(uploaded) => &uploaded.name,
        }
    }
}

/// An object storage: the place in which names of objects are unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::control) struct Store {
    pub(in crate::control) endpoint: String,
    pub(in crate::control) bucket: String,
}

impl Store {
    /// Returns the storage that an application's settings name.
    pub(in crate::control) fn of(settings: &S3Settings) -> Self {
        Self { endpoint: settings.endpoint.to_string(), bucket: settings.bucket.clone() }
    }
}

/// The stored form of a record, which includes the members hidden from the API.
#[derive(Serialize)]
struct Stored<'a> {
    #[serde(flatten)]
    vod: &'a Vod,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: &'a Option<Kept>,
}

impl Vod {
    /// Type of a recorded stream.
    pub(in crate::control) const RECORDED: &str = "streamVod";

    /// Type of an uploaded file.
    pub(in crate::control) const UPLOADED: &str = "uploadedVod";

    /// Type of a file in an imported folder. The file belongs to the folder, and stays when its record is removed.
    pub(in crate::control) const IMPORTED: &str = "userVod";

    /// Returns the record with the size and duration of its completed file. As in Ant Media Server, an unknown duration
    /// is -2.
    pub(in crate::control) fn finished(self, Finished { bytes, duration_ms }: Finished) -> Self {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self { duration: duration_ms.map_or(UNKNOWN, number), file_size: number(bytes), ..self }
    }

    /// Returns the stored form.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Stored { vod: self, kept: &self.kept })
    }

    /// Returns the key in the store. Ids begin with the time, so an application's keys are in order of creation.
    pub(in crate::control) fn key(app: &Arc<str>, id: &str) -> Key {
        Key { kind: Kind::Vod, app: Arc::clone(app), id: id.into() }
    }

    /// Returns the path of the file below the root of files, as a list of names.
    pub(in crate::control) fn path(&self, app: &str) -> Vec<String> {
        let names = self.file_path.as_deref().unwrap_or_default().split('/').map(str::to_owned);
        [app.to_owned()].into_iter().chain(names).collect()
    }

    /// True if one of the searched members contains the text, which must be in lower case.
    pub(in crate::control) fn matches(&self, text: &str) -> bool {
        self.searched().into_iter().flatten().any(|member| member.to_lowercase().contains(text))
    }

    /// Returns the members that a search examines.
    pub(in crate::control) const fn searched(&self) -> [&Option<String>; 6] {
        [&self.vod_id, &self.vod_name, &self.stream_id, &self.stream_name, &self.description, &self.metadata]
    }
}
