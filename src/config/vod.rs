//! The part of an application's settings that says what may be uploaded, and where files that can be played are kept besides.

use super::Error;
use super::values::Values;

/// Files that can be played.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VodSettings {
    /// `upload.max_bytes`: the most bytes of an uploaded file.
    pub upload_bytes_max: u64,
}

/// Reads them.
pub(super) fn vod(values: &Values) -> Result<VodSettings, Error> {
    Ok(VodSettings { upload_bytes_max: values.number("upload.max_bytes", 0u64, 1 << 50)? })
}
