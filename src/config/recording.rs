//! Settings of an application for recording: which streams, where, and how long recordings are kept.

use std::time::Duration;

use super::Error;
use super::values::Values;

/// The settings for recording streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingSettings {
    /// `mp4MuxingEnabled`: record every stream as MP4, unless its broadcast says otherwise.
    pub always: bool,
    /// `webMMuxingEnabled`: record every stream as WebM, unless its broadcast says otherwise.
    pub always_webm: bool,
    /// `addDateTimeToMp4FileName`.
    pub dated: bool,
    /// Text from `fileNameFormat` that follows the id in file names; empty: none.
    pub text: String,
    /// `subFolder`: like [`Self::folder`], for playlists and segments of live streams.
    pub shared_folder: String,
    /// `recordingSubfolder`, else `subFolder`: folders below `streams`, with `%m` for the main track and `%s` for the
    /// stream.
    pub folder: String,
    /// `record.max_streams`: maximum number of streams recorded at the same time.
    pub streams_max: Option<usize>,
    /// `record.max_duration`: maximum duration of a file, in milliseconds.
    pub file_ms_max: Option<u64>,
    /// `record.max_file_bytes`: maximum size of a file.
    pub file_bytes_max: Option<u64>,
    /// `record.max_age`: age after which recordings are removed.
    pub age_max: Option<Duration>,
    /// `record.max_bytes`: maximum size of all recordings; beyond it the oldest are removed.
    pub bytes_max: Option<u64>,
}

/// Parses the text between the braces of `fileNameFormat`. Names of streams that are not transcoded
/// contain neither resolution nor bit rate: as in Ant Media Server, only the names of
/// renditions contain them.
fn file_text(values: &Values) -> Result<String, Error> {
    let key = "fileNameFormat";
    let text = values.text(key).split_once('{').map_or("", |(_, rest)| rest);
    let text = text.split_once('}').map_or(text, |(text, _)| text).trim();
    let is_plain = text.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) && text.len() <= 60;
    if is_plain {
        Ok(text.to_owned())
    } else {
        Err(values.bad(key, "must have letters, digits, - _ . in its braces"))
    }
}

/// Parses the settings. 0 means no limit.
pub(super) fn recording(values: &Values) -> Result<RecordingSettings, Error> {
    let limit = |key, max| values.number(key, 0u64, max).map(|value| Some(value).filter(|value| *value > 0));
    let [own, shared] = ["recordingSubfolder", "subFolder"].map(|key| values.text(key).trim());
    Ok(RecordingSettings {
        always: values.boolean("mp4MuxingEnabled")?,
        always_webm: values.boolean("webMMuxingEnabled")?,
        text: file_text(values)?,
        dated: values.boolean("addDateTimeToMp4FileName")?,
        folder: if own.is_empty() || own == "null" { shared } else { own }.to_owned(),
        shared_folder: shared.to_owned(),
        streams_max: limit("record.max_streams", 1_000_000)?.and_then(|value| usize::try_from(value).ok()),
        file_ms_max: limit("record.max_duration", 86_400)?.map(|seconds| seconds.saturating_mul(1000)),
        file_bytes_max: limit("record.max_file_bytes", 1 << 50)?,
        age_max: limit("record.max_age", 1 << 32)?.map(Duration::from_secs),
        bytes_max: limit("record.max_bytes", 1 << 60)?,
    })
}
