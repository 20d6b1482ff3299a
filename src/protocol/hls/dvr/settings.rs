//! Settings of an application for rewinding live streams.

use std::time::Duration;

use crate::config::{Error, Values};

/// Seconds of the longest window: a day.
const WINDOW_MAX: u64 = 86_400;
/// The shortest window that is of use, in seconds.
const WINDOW_MIN: u64 = 10;
/// Minimum value of `dvr.max_bytes`.
const BYTES_MIN: u64 = 1 << 20;
/// After the end of the stream, files are kept for the window and this additional time.
const SPARE: Duration = Duration::from_secs(120);

/// Settings for rewinding live streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::protocol::hls) struct DvrSettings {
    /// `dvr.window`.
    pub(super) window: Duration,
    /// `dvr.max_bytes`: the total of all streams of the application.
    pub(super) max_bytes: u64,
}

impl DvrSettings {
    /// Reads the settings; `None` if viewers cannot rewind.
    pub(in crate::protocol::hls) fn read(values: &Values) -> Result<Option<Self>, Error> {
        let (window_key, bytes_key) = ("dvr.window", "dvr.max_bytes");
        let window = values.number(window_key, 0u64, WINDOW_MAX)?;
        let max_bytes = values.number(bytes_key, BYTES_MIN, u64::MAX)?;
        if (1..WINDOW_MIN).contains(&window) {
            return Err(values.bad(window_key, "must be 0, or 10 to 86400 seconds"));
        }
        Ok((window > 0).then_some(Self { window: Duration::from_secs(window), max_bytes }))
    }

    /// Returns the time for which files stay after the last segment was added.
    pub(super) const fn keep(&self) -> Duration {
        self.window.saturating_add(SPARE)
    }
}
