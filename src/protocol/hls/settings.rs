//! Settings of an application: whether its streams are played as HLS, and how.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hls::playlist::Kind;
use hls::segmenter::{Rules, Scope, Sealing, Suffix};
use url::Url;

use super::captions::{self, Captions};
use super::dvr::DvrSettings;
use super::metadata::Metadata;
use super::subtitles::{self, Languages};
use crate::config::group::{DASH, HLS};
use crate::config::{AppSettings, Error, Extensions, Key, Origin, Section, Values, key};
use crate::mail::{StreamDetails, StreamEnd};

/// The file of an operator's key.
const KEY_FILE: &str = "hlsEncryptionKeyInfoFile";

const APP: &[Key] = &[
    key(HLS, "hlsMuxingEnabled", "true", "Offer HLS", "Streams can be played as HLS"),
    key(HLS, "hlsTime", "2", "HLS segment length", "Seconds of a segment"),
    key(HLS, "hlsListSize", "15", "Segments in a playlist", "Number of segments in a playlist"),
    key(
        HLS,
        "hlsSegmentFileSuffixFormat",
        "%09d",
        "Suffix of segment names",
        "Number after the stream's id in names of segments, in the format of printf",
    ),
    key(
        HLS,
        "hlsPlayListType",
        "",
        "Segments kept on disk",
        "Keeps all segments on disk: event (live viewers can go back to the beginning), vod (they cannot), or empty (none)",
    ),
    key(
        HLS,
        "deleteHLSFilesOnEnded",
        "true",
        "Delete HLS files at end",
        "Deletes the segments on disk when their stream ends",
    ),
    key(
        HLS,
        "hlsHttpEndpoint",
        "",
        "Push HLS to",
        "URL of a folder to which playlists and segments are sent with HTTP PUT; empty: none",
    ),
    key(
        HLS,
        "id3TagEnabled",
        "false",
        "ID3 tags in segments",
        "Segments of HLS and DASH contain timed metadata as ID3 tags, and the API accepts tags; a change applies to streams whose segments start after it",
    ),
    key(
        HLS,
        "hls.scte35",
        "true",
        "Splice information",
        "Playlists and segments of HLS and DASH contain a stream's splice information (SCTE 35); a change applies to streams whose segments start after it",
    ),
    key(
        HLS,
        captions::KEY,
        "auto",
        "Closed captions",
        "Captions within the video (CEA-608, CEA-708) that playlists and manifests declare: auto (those that are found), none, or channels with languages, such as CC1=en,CC3=es,SERVICE1=en; a change applies to streams whose segments start after it",
    ),
    key(
        HLS,
        subtitles::KEY,
        "",
        "Languages of subtitles",
        "Languages of subtitles in playlists and manifests, with their names, such as en:English,de:Deutsch; cues come from the API and from script data; a change applies to streams whose segments start after it; empty: none",
    ),
    key(HLS, "hlsSegmentType", "mpegts", "Format of segments", "Container of segments: mpegts or fmp4"),
    key(
        HLS,
        "hlsEnableLowLatency",
        "false",
        "Low-latency HLS",
        "Playlists announce parts of segments before the segments are complete",
    ),
    key(HLS, "hls.part_ms", "300", "Length of a part", "Milliseconds of a part in low-latency HLS"),
    key(
        HLS,
        "hls.endlist",
        "grace",
        "End of playlists",
        "When playlists and manifests end: with their stream (grace), only if the publisher ended the stream (clean), or never",
    ),
    key(
        HLS,
        "hls.begin",
        "request",
        "Start of segments",
        "When segments begin: at the first request (request) or at the start of the stream (stream)",
    ),
    key(
        HLS,
        "hls.group",
        "none",
        "Subtracks as renditions",
        "Subtracks of a main track: its renditions, from which players choose (renditions), or separate streams (none)",
    ),
    key(
        HLS,
        "hls.encryption",
        "none",
        "Encryption of segments",
        "Encrypts whole segments of HLS (aes-128), samples of HLS and DASH in fragmented MP4 (cbcs), or nothing (none); a change applies at once",
    ),
    key(
        HLS,
        "hls.key_segments",
        "0",
        "Segments that share a key",
        "Number of segments that share a key; 0: all segments of a stream",
    ),
    key(
        HLS,
        "hls.key_prefix",
        "",
        "Prefix of key names",
        "Prefix of key names in playlists, such as the URL of a folder on another server",
    ),
    key(
        HLS,
        KEY_FILE,
        "",
        "Encryption key file",
        "File in ffmpeg's format: URI of the key, path of the key and, optionally, its initialization vector; segments are encrypted with that key; a change applies at once",
    ),
    key(
        HLS,
        "dvr.window",
        "0",
        "Seconds to go back",
        "Seconds by which viewers of HLS, plain or with low latency, and of DASH can go back in a live stream, 10 to 86400; its segments stay on disk for that time; 0: only as far as the playlist",
    ),
    key(
        HLS,
        "dvr.max_bytes",
        "21474836480",
        "Disk space to go back",
        "Maximum bytes on disk of all streams in which viewers can go back; beyond, segments of ended streams are deleted first, then the oldest segments of the largest streams",
    ),
    key(DASH, "dashMuxingEnabled", "false", "Offer DASH", "Streams can be played as DASH"),
    key(
        DASH,
        "dashTargetLatency",
        "3.5",
        "Target latency of players",
        "Seconds behind the publisher at which players aim",
    ),
];

/// See [`crate::config::Section`].
pub(super) static SECTION: Section =
    Section { app: APP, read_app: |values| Ok(Extensions::of(HlsSettings::read(values)?)), ..Section::NONE };

/// Information in playlists beside the media.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// `program_date_time` of `hlsflags`: viewers see the dates in playlists.
    pub(super) dates: bool,
    /// `hls.captions`: the closed captions that are declared.
    pub(super) captions: Captions,
    /// `hls.subtitles`: the languages of subtitles.
    pub(super) languages: Languages,
}

/// The HLS settings of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HlsSettings {
    /// `hlsMuxingEnabled`.
    pub(super) enabled: bool,
    /// `hlsTime`, `hlsListSize`, `hls.part_ms` and `hlsSegmentFileSuffixFormat`; for DASH alone also
    /// `dashFragmentDuration`.
    pub(super) rules: Rules,
    /// `hlsPlayListType` or `dvr.window`: segments are kept on the disk.
    pub(super) kept: Option<Keep>,
    /// `deleteHLSFilesOnEnded`: the kept segments are removed after the stream has ended.
    pub(super) deleted_at_end: bool,
    /// `hlsHttpEndpoint`: segments are pushed to this URL.
    pub(super) pushed_to: Option<Arc<Url>>,
    /// `hlsSegmentType`: segments are fragmented MP4.
    pub(super) fragmented: bool,
    /// `hlsEnableLowLatency`.
    pub(super) low_latency: bool,
    /// `hls.endlist`: when playlists and manifests end.
    pub(super) ends: Ends,
    /// `hls.begin=stream`: segments are made before anybody asks.
    pub(super) begins_with_stream: bool,
    /// `dashMuxingEnabled`.
    pub(super) dash: bool,
    /// Encryption of segments.
    pub(super) sealing: Sealing,
    /// `hlsEncryptionKeyInfoFile`: the file with the key of segments.
    pub(super) key_file: Option<Arc<Path>>,
    /// Timed metadata.
    pub(super) metadata: Metadata,
    /// Information in playlists beside the media.
    pub(super) told: Told,
    /// Settings of DASH alone.
    pub(super) dash_own: DashSettings,
}

/// The segments that are kept on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// All of a stream, until it is over.
    All(Kind),
    /// The segments to which viewers can rewind.
    Newest(DvrSettings),
}

/// Condition under which playlists get their end tag (`EXT-X-ENDLIST`) and manifests are marked as ended.
/// Otherwise players keep polling, and continue when the stream is published again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// The stream was ended by its publisher or an operator.
    Clean,
    /// Any stream has ended, even if its publisher was lost and did not return.
    Grace,
    Never,
}

impl Ends {
    fn read(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "clean" => Some(Self::Clean),
            "grace" | "" => Some(Self::Grace),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// True if the playlists of a stream that ended in this way get their end tag.
    pub(super) const fn with(self, end: StreamEnd) -> bool {
        match (self, end) {
            // The stream continues at another node.
            (_, StreamEnd::Superseded)
            | (Self::Never, _)
            | (Self::Clean, StreamEnd::GraceOver | StreamEnd::Drain) => false,
            (
                Self::Clean,
                StreamEnd::Unpublished | StreamEnd::Stopped | StreamEnd::Unaccepted(_) | StreamEnd::Deleted,
            )
            | (Self::Grace, _) => true,
        }
    }
}

/// Settings of DASH alone. Where they are `None`, the setting of HLS applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DashSettings {
    /// `dashSegDuration` in milliseconds, for segments that HLS does not share.
    segment_ms: Option<i64>,
    /// `dashFragmentDuration` in milliseconds, for fragments of those segments.
    fragment_ms: Option<i64>,
    /// `dashWindowSize`: segments in the manifest.
    pub(super) window: Option<usize>,
    /// `dashExtraWindowSize`: segments that are kept after they have left the manifest.
    extra: usize,
    /// `dashTargetLatency` in milliseconds: the distance from the live edge that DASH players should keep.
    pub(super) latency_ms: u64,
}

/// Reads the encryption of segments (RFC 8216 §4.3.2.4): `hls.encryption`, `hls.key_segments`, `hls.key_prefix`.
fn sealing(values: &Values) -> Result<Sealing, Error> {
    let key = "hls.encryption";
    let is_given = !values.text(KEY_FILE).trim().is_empty();
    let scope = match values.text(key).trim().to_ascii_lowercase().as_str() {
        "none" | "" => is_given.then_some(Scope::Segments),
        "aes-128" => Some(Scope::Segments),
        "cbcs" => Some(Scope::Samples),
        _ => return Err(values.bad(key, "must be none, aes-128 or cbcs")),
    };
    let segments = values.number("hls.key_segments", 0u64, 1_000_000)?;
    if segments > 0 && scope == Some(Scope::Samples) {
        let why = "cannot be combined with hls.encryption=cbcs: the key of samples stands in the init segment of a stream's run";
        return Err(values.bad("hls.key_segments", why));
    }
    let prefix = values.text("hls.key_prefix").trim();
    if prefix.contains(|c: char| c.is_control() || c.is_whitespace() || c == '"') {
        return Err(values.bad("hls.key_prefix", "must be the beginning of a URI"));
    }
    Ok(Sealing {
        scope,
        is_given,
        segments: Some(segments).filter(|segments| *segments > 0),
        prefix: prefix.to_owned(),
    })
}

/// `hlsEncryptionKeyInfoFile`.
fn key_file(values: &Values) -> Result<Option<Arc<Path>>, Error> {
    let path = Path::new(values.text(KEY_FILE).trim());
    match path.is_absolute() {
        true => Ok(Some(path.into())),
        false if path.as_os_str().is_empty() => Ok(None),
        false => Err(values.bad(KEY_FILE, "must be an absolute path")),
    }
}

/// Refuses settings that would publish the stream unencrypted beside encrypted segments.
fn check_sealing(values: &Values, settings: &HlsSettings) -> Result<(), Error> {
    let Sealing { scope, is_given, .. } = &settings.sealing;
    let (is_whole, is_samples) = (*scope == Some(Scope::Segments), *scope == Some(Scope::Samples));
    let clear = "would be in the clear";
    // Our own keys are in memory only; stored beside the segments of a copy, they would protect nothing.
    let without =
        "is a copy without keys: they are in memory alone, unless hlsEncryptionKeyInfoFile has them";
    let others = [
        (is_whole && settings.low_latency, "hlsEnableLowLatency", clear),
        (is_whole && settings.dash, "dashMuxingEnabled", clear),
        (is_samples && settings.enabled && !settings.fragmented, "hlsSegmentType=mpegts", clear),
        (matches!(settings.kept, Some(Keep::All(_))) && !is_given, "hlsPlayListType", without),
        (settings.pushed_to.is_some() && !is_given, "hlsHttpEndpoint", without),
        (settings.dvr().is_some() && !is_given, "dvr.window", without),
    ];
    let key = if *is_given { KEY_FILE } else { "hls.encryption" };
    match others.iter().find(|(is_set, ..)| scope.is_some() && *is_set) {
        Some((_, other, why)) => {
            Err(values.bad(key, format!("cannot be combined with {other}, which {why}")))
        }
        None => Ok(()),
    }
}

impl DashSettings {
    fn read(values: &Values) -> Result<Self, Error> {
        let is_set = |key| values.origin(key) != Origin::Default;
        let own_ms = |key: &'static str, least: f64, why: &'static str| {
            let seconds = values.text(key).trim().parse::<f64>().ok();
            let seconds = seconds.filter(|seconds| (least..=60.0).contains(seconds));
            let seconds = seconds.ok_or_else(|| values.bad(key, why))?;
            let ms = i64::try_from(Duration::from_secs_f64(seconds).as_millis()).ok();
            Ok::<_, Error>(ms.filter(|_| is_set(key)))
        };
        let window = values.number("dashWindowSize", 3usize, 500)?;
        let latency = values.text("dashTargetLatency").trim().parse::<f64>();
        let latency = latency.ok().filter(|seconds| (0.1..=120.0).contains(seconds));
        let latency = latency.map(|seconds| Duration::from_secs_f64(seconds).as_millis());
        Ok(Self {
            segment_ms: own_ms("dashSegDuration", 0.5, "must be seconds, from 0.5 to 60")?,
            fragment_ms: own_ms("dashFragmentDuration", 0.1, "must be seconds, from 0.1 to 60")?,
            window: Some(window).filter(|_| is_set("dashWindowSize")),
            extra: values.number("dashExtraWindowSize", 0usize, 500)?,
            latency_ms: latency
                .and_then(|ms| u64::try_from(ms).ok())
                .ok_or_else(|| values.bad("dashTargetLatency", "must be seconds, from 0.1 to 120"))?,
        })
    }
}

static DEFAULTS: HlsSettings = HlsSettings {
    enabled: true,
    rules: Rules::DEFAULT,
    kept: None,
    deleted_at_end: true,
    pushed_to: None,
    fragmented: false,
    low_latency: false,
    ends: Ends::Grace,
    begins_with_stream: false,
    dash: false,
    dash_own: DashSettings { segment_ms: None, fragment_ms: None, window: None, extra: 5, latency_ms: 3500 },
    sealing: Sealing { scope: None, is_given: false, segments: None, prefix: String::new() },
    key_file: None,
    metadata: Metadata::DEFAULT,
    told: Told { dates: true, captions: Captions::Auto, languages: Languages::NONE },
};

impl HlsSettings {
    pub(super) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&DEFAULTS)
    }

    /// Returns how far viewers can rewind; `None` if they cannot.
    pub(super) const fn dvr(&self) -> Option<DvrSettings> {
        match self.kept {
            Some(Keep::Newest(settings)) => Some(settings),
            Some(Keep::All(_)) | None => None,
        }
    }

    /// True if multivariant playlists declare subtitles; then even a stream with a single rendition gets a
    /// multivariant playlist.
    pub(super) fn has_subtitles(app: &AppSettings) -> bool {
        !Self::of(app).told.languages.is_empty()
    }

    /// True if samples are encrypted: tracks that cannot be protected are left out.
    pub(super) fn protects_samples(&self) -> bool {
        self.sealing.scope == Some(Scope::Samples)
    }

    /// True if the new settings encrypt segments in another way, or with the key of another file.
    pub(super) fn are_sealed_otherwise(former: &AppSettings, new: &AppSettings) -> bool {
        let (former, new) = (Self::of(former), Self::of(new));
        former.sealing != new.sealing || former.key_file != new.key_file
    }

    /// True if segments are made before anybody asks for them.
    pub(super) fn begins_with_stream(app: &AppSettings, details: &StreamDetails) -> bool {
        let settings = Self::of_stream(app, details);
        settings.begins_with_stream || settings.kept.is_some() || settings.pushed_to.is_some()
    }

    /// Returns the settings of one stream, whose record may override some; unusable ones are ignored.
    pub(super) fn of_stream(app: &AppSettings, details: &StreamDetails) -> Self {
        let mut settings = Self::of(app).clone();
        for (key, value) in &details.overrides {
            match *key {
                "hlsTime" => {
                    let seconds = value.trim().parse().ok().filter(|seconds| (1..=60).contains(seconds));
                    settings.rules.segment_ms =
                        seconds.map_or(settings.rules.segment_ms, |seconds: i64| seconds * 1000);
                }
                "hlsListSize" => {
                    let size = value.trim().parse().ok().filter(|size| (3..=500).contains(size));
                    settings.rules.list_size = size.unwrap_or(settings.rules.list_size);
                }
                // Ignored: with `dvr.window`, the disk keeps only the newest segments, not the whole stream.
                "hlsPlayListType" if settings.dvr().is_some() => {}
                "hlsPlayListType" if settings.sealing.scope.is_none() || settings.sealing.is_given => {
                    settings.kept = kind(value).map(Keep::All);
                }
                _ => {}
            }
        }
        if details.writes_nothing {
            (settings.kept, settings.pushed_to) = (None, None);
        }
        settings
    }

    /// Returns the settings for segments of single tracks: low latency and DASH share them, or DASH alone has them.
    pub(super) fn of_single_tracks(mut self) -> Self {
        if self.enabled && self.low_latency {
            return self;
        }
        self.rules.segment_ms = self.dash_own.segment_ms.unwrap_or(self.rules.segment_ms);
        self.rules.fragment_ms = self.dash_own.fragment_ms;
        let kept = self.dash_own.window.map(|window| window.saturating_add(self.dash_own.extra));
        self.rules.list_size = kept.unwrap_or(self.rules.list_size);
        self
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let fragmented = match values.text("hlsSegmentType").trim().to_ascii_lowercase().as_str() {
            "mpegts" | "" => false,
            "fmp4" => true,
            _ => return Err(values.bad("hlsSegmentType", "must be mpegts or fmp4")),
        };
        // Only checked here: control uses this setting, because it knows main tracks.
        if !matches!(
            values.text("hls.group").trim().to_ascii_lowercase().as_str(),
            "none" | "renditions" | ""
        ) {
            return Err(values.bad("hls.group", "must be none or renditions"));
        }
        let settings = Self {
            enabled: values.boolean("hlsMuxingEnabled")?,
            rules: rules(values)?,
            kept: kept(values)?,
            deleted_at_end: values.boolean("deleteHLSFilesOnEnded")?,
            pushed_to: push_url(values)?,
            fragmented,
            low_latency: values.boolean("hlsEnableLowLatency")?,
            ends: ends(values)?,
            begins_with_stream: match values.text("hls.begin").trim().to_ascii_lowercase().as_str() {
                "request" | "" => false,
                "stream" => true,
                _ => return Err(values.bad("hls.begin", "must be stream or request")),
            },
            dash: values.boolean("dashMuxingEnabled")?,
            dash_own: DashSettings::read(values)?,
            sealing: sealing(values)?,
            key_file: key_file(values)?,
            metadata: Metadata::read(values)?,
            told: Told {
                dates: has_flag(values, "program_date_time"),
                captions: Captions::read(values)?,
                languages: Languages::read(values)?,
            },
        };
        check_sealing(values, &settings)?;
        let suffix = &settings.rules.suffix;
        if settings.dvr().is_some() && suffix.strip(&format!("x{}", suffix.of(1))).is_none() {
            let why = "wants hlsSegmentFileSuffixFormat with nine digits or more";
            return Err(values.bad("dvr.window", why));
        }
        Ok(settings)
    }
}

/// Reads `hlsPlayListType`, or `dvr.window` and `dvr.max_bytes`.
fn kept(values: &Values) -> Result<Option<Keep>, Error> {
    match (kind(values.text("hlsPlayListType")), DvrSettings::read(values)?) {
        (Some(_), Some(_)) => {
            Err(values.bad("dvr.window", "cannot be combined with hlsPlayListType, which keeps all segments"))
        }
        (kind, dvr) => Ok(dvr.map(Keep::Newest).or_else(|| kind.map(Keep::All))),
    }
}

/// True if `hlsflags` has a flag.
fn has_flag(values: &Values, flag: &str) -> bool {
    values.text("hlsflags").split('+').any(|one| one.trim() == flag)
}

/// Reads `hls.endlist`, or the flag of `hlsflags` that means `never`.
fn ends(values: &Values) -> Result<Ends, Error> {
    let ends = Ends::read(values.text("hls.endlist"))
        .ok_or_else(|| values.bad("hls.endlist", "must be clean, grace or never"))?;
    Ok(if has_flag(values, "omit_endlist") { Ends::Never } else { ends })
}

fn rules(values: &Values) -> Result<Rules, Error> {
    let suffix = "hlsSegmentFileSuffixFormat";
    Ok(Rules {
        segment_ms: values.number("hlsTime", 1i64, 60)? * 1000,
        list_size: values.number("hlsListSize", 3usize, 500)?,
        part_ms: values.number("hls.part_ms", 100i64, 2000)?,
        fragment_ms: None,
        suffix: Suffix::read(values.text(suffix)).ok_or_else(|| {
            values.bad(suffix, "must have one %d, perhaps with a width, and letters, digits, - and _")
        })?,
    })
}

/// Returns the URL of `hlsHttpEndpoint`.
fn push_url(values: &Values) -> Result<Option<Arc<Url>>, Error> {
    let key = "hlsHttpEndpoint";
    let text = values.text(key).trim();
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none()
    });
    url.map(|url| Some(Arc::new(url)))
        .ok_or_else(|| values.bad(key, "must be a URL of http or https without a login"))
}

/// Returns the kind of `hlsPlayListType`. Ant Media Server accepts any value and ignores unknown ones.
fn kind(text: &str) -> Option<Kind> {
    match text.trim().to_ascii_lowercase().as_str() {
        "event" => Some(Kind::Event),
        "vod" => Some(Kind::Vod),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn what_nobody_has_set_is_what_the_keys_default_to() {
        let app = AppSettings::of(schema(), "a", &[]).unwrap();
        assert_eq!(app.protocols.get::<HlsSettings>(), Some(&DEFAULTS));
    }

    #[test]
    fn each_setting_of_an_application_is_read() {
        let with = |key, value| {
            let app = AppSettings::of(schema(), "a", &[(key, value)]).unwrap();
            HlsSettings::of(&app).clone()
        };
        assert_eq!(with("hlsTime", "4").rules.segment_ms, 4000);
        assert_eq!(with("hlsListSize", "7").rules.list_size, 7);
        assert_eq!(with("hls.part_ms", "500").rules.part_ms, 500);
        let long = AppSettings::of(schema(), "a", &[("hlsTime", "60"), ("hls.part_ms", "200")]).unwrap();
        assert_eq!(long.notices(), ["hls.part_ms=200: parts have at least 255 ms, because of hlsTime=60"]);
        assert_eq!(with("dashTargetLatency", "1.5").dash_own.latency_ms, 1500);
        assert_eq!(with("hlsSegmentFileSuffixFormat", "%05d").rules.suffix.of(7), "00007");
    }

    #[test]
    fn dash_has_durations_of_its_own_where_it_is_alone() {
        let with = |settings: &[_]| {
            let app = AppSettings::of(schema(), "a", settings).unwrap();
            HlsSettings::of(&app).clone().of_single_tracks()
        };
        let plain = with(&[("hlsTime", "4"), ("hlsListSize", "8")]);
        assert_eq!((plain.rules.segment_ms, plain.rules.list_size, plain.dash_own.window), (4000, 8, None));
        assert_eq!(with(&[("dashSegDuration", "1.5")]).rules.segment_ms, 1500);
        let shared = with(&[("dashSegDuration", "1.5"), ("hlsEnableLowLatency", "true")]);
        assert_eq!(shared.rules.segment_ms, 2000, "low latency shares them");
        assert_eq!(
            (plain.rules.fragment_ms, with(&[("dashFragmentDuration", "0.5")]).rules.fragment_ms),
            (None, Some(500))
        );
        let shared = with(&[("dashFragmentDuration", "0.5"), ("hlsEnableLowLatency", "true")]);
        assert_eq!(shared.rules.fragment_ms, None, "low latency has parts");
        for (key, bad) in
            [("dashFragmentDuration", "0"), ("dashFragmentDuration", "x"), ("dashSegDuration", "0.1")]
        {
            let error = AppSettings::of(schema(), "a", &[(key, bad)]).unwrap_err().to_string();
            assert!(error.starts_with(key), "{error}");
        }
        let own = with(&[("dashWindowSize", "6"), ("dashExtraWindowSize", "2")]);
        assert_eq!((own.rules.list_size, own.dash_own.window), (8, Some(6)));
    }

    #[test]
    fn playlists_end_as_the_setting_has_it() {
        use StreamEnd::{Deleted, Drain, GraceOver, Stopped, Superseded, Unaccepted, Unpublished};
        let ends = [Unpublished, GraceOver, Stopped, Unaccepted("x"), Deleted, Drain, Superseded];
        for (value, are_over) in [
            ("grace", [true, true, true, true, true, true, false]),
            ("clean", [true, false, true, true, true, false, false]),
            ("never", [false; 7]),
        ] {
            let app = AppSettings::of(schema(), "a", &[("hls.endlist", value)]).unwrap();
            assert_eq!(ends.map(|end| HlsSettings::of(&app).ends.with(end)), are_over, "{value}");
        }
        let flags = ("hlsflags", "delete_segments+omit_endlist");
        let app = AppSettings::of(schema(), "a", &[flags]).unwrap();
        assert_eq!(HlsSettings::of(&app).ends, Ends::Never);
    }

    #[test]
    fn segments_are_made_before_a_request_where_the_application_has_it() {
        for (settings, kinds) in [
            (&[][..], vec![]),
            (&[("hls.begin", "stream")], vec!["hls"]),
            (
                &[("hls.begin", "stream"), ("hlsSegmentType", "fmp4"), ("dashMuxingEnabled", "true")],
                vec!["hls-fmp4", "cmaf"],
            ),
            (&[("hlsEnableLowLatency", "true"), ("hls.begin", "stream")], vec!["hls", "cmaf"]),
            (&[("hlsMuxingEnabled", "false"), ("hls.begin", "stream")], vec![]),
        ] {
            let app = AppSettings::of(schema(), "a", settings).unwrap();
            let details = StreamDetails::default();
            let begun = crate::protocol::sinks::begun_with_stream(&app, &details);
            assert_eq!(begun.map(|kind| kind.name).collect::<Vec<_>>(), kinds, "{settings:?}");
        }
    }

    #[test]
    fn nothing_is_given_out_in_the_clear_beside_encrypted_segments() {
        let sealed = ("hls.encryption", "AES-128");
        let of = |more: &[(&str, &str)]| AppSettings::of(schema(), "a", &[&[sealed], more].concat());
        let app = of(&[("hls.key_segments", "5"), ("hls.key_prefix", "https://k/")]).unwrap();
        let scope = Some(Scope::Segments);
        let sealing = Sealing { scope, is_given: false, segments: Some(5), prefix: "https://k/".to_owned() };
        assert_eq!(HlsSettings::of(&app).sealing, sealing);
        assert!(HlsSettings::of(&of(&[("hlsSegmentType", "fmp4")]).unwrap()).fragmented);
        for other in [
            ("hlsEnableLowLatency", "true"),
            ("dashMuxingEnabled", "true"),
            ("hlsPlayListType", "event"),
            ("hlsHttpEndpoint", "http://h/"),
            ("dvr.window", "60"),
        ] {
            let error = of(&[other]).unwrap_err().to_string();
            assert!(error.contains("hls.encryption") && error.contains(other.0), "{error}");
        }
        // Samples are encrypted only in fragmented MP4, and with a single key.
        let samples = [("hls.encryption", "cbcs"), ("hlsSegmentType", "fmp4")];
        let of_samples = |more: &[(&str, &str)]| AppSettings::of(schema(), "a", &[&samples, more].concat());
        of_samples(&[("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")]).unwrap();
        for other in [("hlsSegmentType", "mpegts"), ("hlsPlayListType", "vod"), ("hls.key_segments", "3")] {
            let error = of_samples(&[other]).unwrap_err().to_string();
            assert!(error.contains("hls.encryption") && error.contains(other.0), "{error}");
        }
        let dash = [samples[0], ("hlsMuxingEnabled", "false"), ("dashMuxingEnabled", "true")];
        AppSettings::of(schema(), "a", &dash).unwrap();
        let details = StreamDetails {
            overrides: vec![("hlsPlayListType", "vod".to_owned())],
            ..StreamDetails::default()
        };
        assert_eq!(HlsSettings::of_stream(&app, &details).kept, None);
        // If the key is kept elsewhere, segments may be on the disk.
        let file = (KEY_FILE, "/keys/hls.keyinfo");
        let app = AppSettings::of(schema(), "a", &[file]).unwrap();
        let sealing = Sealing { scope, is_given: true, ..Sealing::default() };
        let settings = HlsSettings::of(&app);
        assert_eq!((&settings.sealing, settings.key_file.as_deref()), (&sealing, Some(Path::new(file.1))));
        assert_eq!(HlsSettings::of_stream(&app, &details).kept, Some(Keep::All(Kind::Vod)));
        for fits in [("hlsPlayListType", "event"), ("hlsHttpEndpoint", "http://h/"), sealed] {
            AppSettings::of(schema(), "a", &[file, fits]).unwrap();
        }
        for other in [("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")] {
            let error = AppSettings::of(schema(), "a", &[file, other]).unwrap_err().to_string();
            assert!(error.contains(KEY_FILE) && error.contains(other.0), "{error}");
        }
    }

    #[test]
    fn all_segments_are_kept_or_the_newest() {
        let window = ("dvr.window", "600");
        let of = |more: &[(&str, &str)]| AppSettings::of(schema(), "a", &[&[window], more].concat());
        let app = of(&[]).unwrap();
        assert!(HlsSettings::of(&app).dvr().is_some());
        let overrides = vec![("hlsPlayListType", "vod".to_owned())];
        let details = StreamDetails { overrides, ..StreamDetails::default() };
        assert!(HlsSettings::of_stream(&app, &details).dvr().is_some());
        let of_other_process = StreamDetails { writes_nothing: true, ..details };
        assert_eq!(HlsSettings::of_stream(&app, &of_other_process).kept, None);
        for other in [("hlsPlayListType", "event"), ("hlsSegmentFileSuffixFormat", "%04d")] {
            let error = of(&[other]).unwrap_err().to_string();
            assert!(error.contains("dvr.window") && error.contains(other.0), "{error}");
        }
        of(&[("hlsEncryptionKeyInfoFile", "/keys/hls.keyinfo")]).unwrap();
    }

    #[test]
    fn c_03_bad_values_name_the_key() {
        for (key, value) in [
            ("hlsTime", "0"),
            ("hlsTime", "x"),
            ("hlsListSize", "2"),
            ("hlsSegmentFileSuffixFormat", "seg"),
            ("hlsSegmentType", "avi"),
            ("hlsHttpEndpoint", "ftp://h/"),
            ("hlsHttpEndpoint", "http://user@h/"),
            ("dashTargetLatency", "-1"),
            ("dashSegDuration", "0"),
            ("dashWindowSize", "x"),
            ("dashExtraWindowSize", "-1"),
            ("hls.endlist", "always"),
            ("hls.begin", "later"),
            ("hls.group", "rooms"),
            ("hls.encryption", "sample-aes"),
            ("hls.encryption", "cbcs"),
            ("hls.key_segments", "-1"),
            ("hlsEncryptionKeyInfoFile", "hls.keyinfo"),
            ("hls.key_prefix", "a b"),
            ("dvr.window", "9"),
            ("dvr.window", "86401"),
            ("dvr.max_bytes", "0"),
        ] {
            let error = AppSettings::of(schema(), "a", &[(key, value)]).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
