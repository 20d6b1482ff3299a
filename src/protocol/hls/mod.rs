//! HLS: live streams as segments and playlists, and streams of other servers, pulled segment by segment.
//!
//! [`sink`] publishes a stream as MPEG-TS, [`cmaf`] as fragmented MP4, and [`ladder`] publishes all renditions of a
//! stream together. In each of the three, the `hls` crate's segmenters cut the stream, and the session in [`live`]
//! publishes the files and playlists. `http` answers requests from memory, and from the disk if viewers may rewind
//! ([`dvr`]). [`HlsPull`] performs the requests of the `hls` crate's client, one at a time, over a connection that is
//! kept while requests are for the same server; [`units::Units`] makes access units of the segments. [`viewer`] plays
//! for the load generator.

mod captions;
mod cmaf;
mod copies;
mod copy;
#[cfg(test)]
mod copy_tests;
mod dvr;
mod fetch;
mod follow;
mod key_file;
mod ladder;
mod live;
mod metadata;
mod publishing;
mod pull;
mod settings;
mod silence;
mod sink;
mod sounds;
mod subtitles;
mod tailor;
mod units;
mod viewer;
#[cfg(test)]
mod waiting_tests;

use std::time::Instant;

use ::hls::segmenter::{Arrival, Dates, Start, Timed, Window};
use crypto::Seed;

use super::player::LoadPlayer;
use super::pull::{Client, Patience};
use super::row::{Addresses, LoadUse, Outbound, Protocol, Request, Scheme};
use crate::auth::url::{Url, UrlError};
use crate::config::AppSettings;
use crate::hub::Entry;
use crate::jobs::ArchiveWork;
use crate::mail::{Progress, Transport};
use crate::types::{Calendar, Now, StreamKey};
use pull::HlsPull;
use viewer::Viewer;

/// The ending of the names of playlists.
const ENDING: &str = ".m3u8";
/// The query that, appended to a playlist's name, requests its delta update (RFC 8216bis §6.2.5.1).
const DELTA: &str = "?_HLS_skip=YES";
/// Number of digits that the Unix time in milliseconds has had since 2001.
const UNIX_MS_DIGITS: usize = 13;
/// The name of the protocol, under which its viewers are counted.
const NAME: &str = "hls";
/// The protocol under which viewers of the manifest are counted.
const DASH: &str = "dash";

/// The use of a playlist's URL by the load generator.
const LOAD: LoadUse = LoadUse { ending: Some(ENDING), ..LoadUse::plays(NAME) };
/// The use of a playlist's URL whose path has the segment `ll-hls` (low latency). Only the protocol's name differs from
/// [`LOAD`], because the playlist itself says whether it offers low latency.
const LOAD_LOW: LoadUse = LoadUse { protocol: "ll-hls", segment: Some("ll-hls"), ..LOAD };

/// Makes a scheme for the load generator; with `pulls`, stream sources may have it too.
const fn scheme(name: &'static str, default_port: u16, pulls: bool, load: LoadUse) -> Scheme {
    Scheme {
        name,
        default_port,
        pushes: false,
        pulls,
        copies: None,
        takes_credentials: false,
        load,
        read: outbound,
    }
}

/// See [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    section: &settings::SECTION,
    formats: &[&sink::FORMAT, &cmaf::FORMAT],
    sinks: &[&ladder::KIND, &ladder::APART, &sink::KIND, &cmaf::TOGETHER, &cmaf::APART],
    schemes: &[
        scheme("http", 80, true, LOAD),
        scheme("https", 443, true, LOAD),
        scheme("http", 80, false, LOAD_LOW),
        scheme("https", 443, false, LOAD_LOW),
    ],
    ..Protocol::NONE
};

/// True for the name of a file in the folder of low latency, which has a playlist for each track.
fn is_apart(name: &str) -> bool {
    name.strip_prefix(cmaf::FOLDER).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the stream of a playlist with this name. The playlist may be in a folder, but not in the one of low latency.
fn stream_of(name: &str) -> Option<&str> {
    let path = name.strip_suffix(ENDING).filter(|_| !is_apart(name))?;
    let id = path.rsplit_once('/').map_or(path, |(_, id)| id);
    (!id.is_empty()).then_some(id)
}

/// Returns the stream to which a segment or an initialization section with this name belongs.
fn file_of<'n>(app: &AppSettings, name: &'n str) -> Option<&'n str> {
    // Files of single tracks have names of the same form, but belong to another sink.
    let name = Some(name).filter(|name| !is_apart(name))?;
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let (stem, ending) = file.rsplit_once('.')?;
    let id = match ending {
        "ts" | "m4s" => settings::HlsSettings::of(app).rules.suffix.strip(stem)?,
        // `{id}_{ms}_init`, `{id}_{ms}_{epoch}_init`
        "mp4" => {
            let (id, epoch_or_ms) = stem.strip_suffix("_init")?.rsplit_once('_')?;
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let is_ms = epoch_or_ms.len() >= UNIX_MS_DIGITS;
            let (id, ms) = if is_ms { (id, epoch_or_ms) } else { id.rsplit_once('_')? };
            Some(id).filter(|_| is_number(epoch_or_ms) && is_number(ms) && ms.len() >= UNIX_MS_DIGITS)?
        }
        _ => return None,
    };
    (!id.is_empty()).then_some(id)
}

/// Returns the path on the disk of a segment or an initialization section; `None` if viewers cannot rewind.
fn kept_at(app: &str, settings: &AppSettings, name: &str) -> Option<Vec<String>> {
    settings::HlsSettings::of(settings).dvr()?;
    Some(dvr::path_of(app, name, file_of(settings, name)?))
}

/// Returns the work that removes the segments of an ended stream that are kept on the disk for rewinding.
fn forgets(app: &str, settings: &AppSettings, stem: &str) -> Option<ArchiveWork> {
    settings::HlsSettings::of(settings).dvr()?;
    Some(dvr::clearing(app, stem))
}

/// Returns the segment number and the discontinuity number with which a stream that begins now starts.
const fn start(now: Now) -> Start {
    Start::at_unix_ms(now.wall_ms)
}

/// Returns a unit with its date, for a segmenter.
const fn timed(entry: &Entry, date_ms: i64) -> Timed<'_> {
    Timed { unit: &entry.unit, dts_ms: entry.dts_ms, date_ms }
}

/// Returns a unit's arrival, from which its date follows.
const fn arrival(entry: &Entry) -> Arrival {
    Arrival { at: entry.received, wall_ms: entry.wall_ms, dts_ms: entry.dts_ms }
}

/// Returns the peak and the average bit rate as declared in multivariant playlists. They are rounded up, so that the
/// playlist does not change with each segment; the average never exceeds the peak (RFC 8216 §4.3.4.2).
const fn declared_bits(peak: u64, average: u64) -> (u64, u64) {
    let (peak, average) = (peak.next_multiple_of(250_000), average.next_multiple_of(100_000));
    (peak, if average < peak { average } else { peak })
}

/// Returns the calendar that gives the date of an arrival of the stream's media; `None` before the first unit.
fn calendar(dates: &Dates) -> Option<Calendar> {
    dates.reading().map(|(mono, wall_ms)| Calendar::new(Now { mono, wall_ms }))
}

/// Returns the progress of a playlist without parts.
const fn progress(window: &Window) -> Progress {
    if window.playlist().ended { Progress::ENDED } else { Progress { segment: window.number(), part: 0 } }
}

fn outbound(url: &Url<'_>, scheme: &Scheme) -> Result<Outbound, UrlError> {
    let transport = if scheme.name == "https" { Transport::Tls } else { Transport::Tcp };
    let (host, port) = url.host_and_port(scheme.default_port)?;
    if !url.path().to_ascii_lowercase().ends_with(ENDING) {
        return Err(UrlError::Unsupported("the URL of a playlist ends with .m3u8"));
    }
    let text = format!("{}://{}{}", url.scheme, url.authority, url.tail);
    Ok(Outbound { host, port, transport, request: Box::new(Playlist(text)) })
}

/// The URL of a playlist.
#[derive(Debug)]
struct Playlist(String);

impl Request for Playlist {
    /// Returns false: the outbound policy forbids pulls from the server's own HTTP ports.
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn pull(&self, patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(HlsPull::new(self.0.clone(), patience)))
    }

    fn play(&self, now: Instant, _patience: Patience, _seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        Some(Box::new(Viewer::new(&self.0, now)?))
    }
}
