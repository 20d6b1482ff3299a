//! The members of a record that count and limit viewers. Ant Media Server has a count and a limit for each of the ways
//! of watching that it knows. Viewers that watch in any other way count as connected.

use serde::Serialize;

use super::broadcast::Broadcast;

/// A count of viewers, and its limit.
struct ViewerCount {
    /// Name under which a format or sink counts its viewers.
    name: &'static str,
    /// True if these viewers poll, which means that they watch by separate requests.
    is_polled: bool,
    count: fn(&mut Broadcast) -> &mut i32,
    shown: fn(&Broadcast) -> i32,
    /// Returns the limit; negative if there is none.
    limit: fn(&Broadcast) -> i32,
}

static COUNTS: [ViewerCount; 3] = [
    ViewerCount {
        name: "hls",
        is_polled: true,
        count: |record| &mut record.hls_viewer_count,
        shown: |record| record.hls_viewer_count,
        limit: |record| record.hls_viewer_limit,
    },
    ViewerCount {
        name: "dash",
        is_polled: true,
        count: |record| &mut record.dash_viewer_count,
        shown: |record| record.dash_viewer_count,
        limit: |record| record.dash_viewer_limit,
    },
    ViewerCount {
        name: "webrtc",
        is_polled: false,
        count: |record| &mut record.webrtc_viewer_count,
        shown: |record| record.webrtc_viewer_count,
        limit: |record| record.webrtc_viewer_limit,
    },
];

impl Broadcast {
    /// Sets the counts of viewers. `connected` is the count of all formats without a count of their own; `counted`
    /// returns the count of any other format, by its name. Returns whether any count has changed.
    pub(super) fn count_viewers(&mut self, connected: i32, counted: impl Fn(&'static str) -> i32) -> bool {
        let mut has_changed = std::mem::replace(&mut self.rtmp_viewer_count, connected) != connected;
        for one in &COUNTS {
            let now = counted(one.name);
            has_changed |= std::mem::replace((one.count)(self), now) != now;
        }
        self.recount();
        has_changed
    }

    /// Returns the number of viewers that the record counts under `name`.
    pub(super) fn viewers_counted(&self, name: &str) -> u32 {
        let one = COUNTS.iter().find(|one| one.name == name);
        one.map_or(0, |one| u32::try_from((one.shown)(self)).unwrap_or(0))
    }

    /// Sets all counts of viewers to zero. Returns whether any count was not zero.
    pub(super) fn forget_viewers(&mut self) -> bool {
        let mut were = std::mem::take(&mut self.rtmp_viewer_count) != 0;
        for one in &COUNTS {
            were |= std::mem::take((one.count)(self)) != 0;
        }
        self.recount();
        were
    }

    /// Sets the counts of polling viewers to zero, and keeps those of viewers with a connection.
    pub(super) fn forget_polling_viewers(&mut self) {
        for one in COUNTS.iter().filter(|one| one.is_polled) {
            *(one.count)(self) = 0;
        }
        self.recount();
    }

    /// Returns the limit of the viewers that the record counts under `name`, if there is a limit.
    pub(super) fn viewer_limit(&self, name: &str) -> Option<u32> {
        let one = COUNTS.iter().find(|one| one.name == name)?;
        u32::try_from((one.limit)(self)).ok()
    }

    /// True if polling viewers are limited.
    pub(super) fn limits_polled(&self) -> bool {
        COUNTS.iter().any(|one| one.is_polled && (one.limit)(self) >= 0)
    }
}

/// Viewers in answers of the API; -1 if not available.
#[derive(Debug, Serialize)]
pub(super) struct Viewers {
    #[serde(rename = "totalRTMPWatchersCount")]
    connected: i64,
    #[serde(rename = "totalHLSWatchersCount")]
    hls: i64,
    #[serde(rename = "totalWebRTCWatchersCount")]
    webrtc: i64,
    #[serde(rename = "totalDASHWatchersCount")]
    dash: i64,
    #[serde(rename = "activeLiveStreamCount", skip_serializing_if = "Option::is_none")]
    live: Option<usize>,
}

impl Viewers {
    /// Counts of an unknown stream.
    pub(super) const UNKNOWN: Self = Self { connected: -1, hls: -1, webrtc: -1, dash: -1, live: None };

    /// Returns the viewer counts of one stream.
    pub(super) fn of(record: &Broadcast, is_live: bool) -> Self {
        Self {
            connected: if is_live { i64::from(record.rtmp_viewer_count) } else { -1 },
            hls: i64::from(record.hls_viewer_count),
            webrtc: i64::from(record.webrtc_viewer_count),
            dash: i64::from(record.dash_viewer_count),
            live: None,
        }
    }

    /// Returns the totals of an application with `live` streams. As in Ant Media Server, these totals do not count
    /// viewers.
    pub(super) const fn of_all(live: usize) -> Self {
        Self { connected: -1, hls: 0, webrtc: 0, dash: 0, live: Some(live) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_limits_and_names_belong_together() {
        let mut record = Broadcast::default();
        record.count_viewers(1, |name| match name {
            "hls" => 2,
            "dash" => 3,
            "webrtc" => 4,
            other => panic!("{other}"),
        });
        let counts = |record: &Broadcast| {
            let polled = (record.hls_viewer_count, record.dash_viewer_count);
            (record.rtmp_viewer_count, polled, record.webrtc_viewer_count, record.anyone_watching)
        };
        assert_eq!(counts(&record), (1, (2, 3), 4, true));
        record.forget_polling_viewers();
        assert_eq!(counts(&record), (1, (0, 0), 4, true), "connections stay counted");
        assert!(record.forget_viewers() && !record.forget_viewers());
        assert_eq!(counts(&record), (0, (0, 0), 0, false));
        (record.hls_viewer_limit, record.dash_viewer_limit, record.webrtc_viewer_limit) = (-1, -1, 0);
        assert!(!record.limits_polled());
        assert_eq!(
            ["hls", "dash", "webrtc", "srt"].map(|name| record.viewer_limit(name)),
            [None, None, Some(0), None]
        );
        record.dash_viewer_limit = 7;
        assert_eq!((record.limits_polled(), record.viewer_limit("dash")), (true, Some(7)));
    }
}
