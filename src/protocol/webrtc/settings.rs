//! Settings: `webrtc.*` of the server, and settings of applications that have their names from Ant Media Server.

use std::net::IpAddr;
use std::time::Duration;

use rtp::extension::PlayoutDelay;

use super::candidates::{CANDIDATES_MAX, Entry};
use super::codecs::Codecs;
use super::data::{DataSettings, Distribution};
use super::ice_servers::Outside;
use super::port::CONNECT_TIMEOUT;
use super::room::{Limits, SEATS_MAX};
use crate::config::group::WEBRTC;
use crate::config::{
    AppSettings, Error, Extensions, Key, Origin, Section, ServerSettings, Values, key, secret,
};
use crate::mail::SessionSettings;
use crate::protocol::row::Bind;
use crate::types::Lookup;

const SERVER: &[Key] = &[
    key(WEBRTC, "webrtc.enabled", "true", "WebRTC of the server", "Enables WebRTC publishers and viewers"),
    key(WEBRTC, "webrtc.port", "50000", "WebRTC port", "UDP port for WebRTC media; 0: any free one"),
    key(
        WEBRTC,
        "webrtc.port_per_worker",
        "false",
        "A port for each worker",
        "Each worker has its own port for WebRTC media, counted up from webrtc.port, instead of sharing one: no datagram is forwarded between workers",
    ),
    key(
        WEBRTC,
        "webrtc.tcp",
        "true",
        "Media over TCP",
        "WebRTC media also over TCP on the same port, for clients whose UDP is blocked",
    ),
    key(
        WEBRTC,
        "webrtc.playoutDelay",
        "",
        "Playout delay of browsers",
        "Playout delay requested from browsers, as MIN-MAX in milliseconds; empty: browsers choose",
    ),
    key(
        WEBRTC,
        "webrtc.candidates",
        "",
        "Public WebRTC addresses",
        "Addresses offered to WebRTC peers, separated by commas: ADDRESS, PRIVATE=PUBLIC behind a NAT, NAME, auto or auto=HOST:PORT (asks a STUN server), host (the addresses of the interfaces); empty: host",
    ),
    secret(
        WEBRTC,
        "webrtc.ice_servers",
        "",
        "STUN and TURN servers",
        "STUN and TURN servers announced to clients, separated by commas: URI, URI USER PASSWORD or URI secret=SECRET",
    ),
];

const ICE_SERVERS: &str = "webrtc.ice_servers";

/// Maximum delay in milliseconds that browsers can be asked to keep: the RTP header extension has 12 bits, in units of
/// 10 ms.
const PLAYOUT_DELAY_MS_MAX: u64 = 40_950;

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section = Section {
    server: SERVER,
    read_server: |values| Ok(Extensions::of(RtcSettings::read(values)?)),
    read_app: |values| Ok(Extensions::of(RtcAppSettings::read(values)?)),
    ..Section::NONE
};

/// The WebRTC settings of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RtcSettings {
    /// `webrtc.port`, unless `webrtc.enabled` is off.
    port: Option<u16>,
    /// `webrtc.port_per_worker`.
    port_per_worker: bool,
    /// `webrtc.tcp`.
    pub(super) tcp: bool,
    /// `server.host`.
    host: Option<IpAddr>,
    /// `webrtc.playoutDelay`.
    pub(super) playout_delay: Option<PlayoutDelay>,
    /// `webrtc.candidates`.
    pub(super) candidates: Vec<Entry>,
    /// `webrtc.ice_servers`.
    pub(super) ice_servers: Vec<Outside>,
}

static DEFAULTS: RtcSettings = RtcSettings {
    port: None,
    port_per_worker: false,
    tcp: false,
    host: None,
    playout_delay: None,
    candidates: Vec::new(),
    ice_servers: Vec::new(),
};

impl RtcSettings {
    /// Returns the WebRTC part of the session settings, or the defaults.
    pub(super) fn of(settings: &SessionSettings) -> &Self {
        settings.protocols.get().unwrap_or(&DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let list = values.text("webrtc.candidates").split(',').map(str::trim).filter(|text| !text.is_empty());
        let candidates: Option<Vec<Entry>> = list.map(Entry::read).collect();
        let candidates = candidates.ok_or_else(|| {
            let forms =
                "must be ADDRESS, OWN=PUBLIC, NAME, auto, auto=HOST:PORT or host, separated by commas";
            values.bad("webrtc.candidates", forms)
        })?;
        if candidates.len() > CANDIDATES_MAX {
            return Err(values.bad("webrtc.candidates", format!("must be {CANDIDATES_MAX} entries at most")));
        }
        let port = values.port("webrtc.port")?;
        Ok(Self {
            port: values.boolean("webrtc.enabled")?.then_some(port),
            port_per_worker: values.boolean("webrtc.port_per_worker")?,
            tcp: values.boolean("webrtc.tcp")?,
            host: values.host("server.host")?,
            playout_delay: playout_delay(values)?,
            candidates,
            ice_servers: Outside::read(values.text(ICE_SERVERS))
                .map_err(|why| values.bad(ICE_SERVERS, why))?,
        })
    }
}

/// Parses `MIN-MAX` in milliseconds; `None` if empty.
fn playout_delay(values: &Values) -> Result<Option<PlayoutDelay>, Error> {
    let name = "webrtc.playoutDelay";
    let text = values.text(name).trim();
    if text.is_empty() {
        return Ok(None);
    }
    let ms = |text: &str| text.trim().parse::<u64>().ok().filter(|ms| *ms <= PLAYOUT_DELAY_MS_MAX);
    let range = text.split_once('-').and_then(|(min, max)| Some((ms(min)?, ms(max)?)));
    let (min, max) = range
        .filter(|(min, max)| min <= max)
        .ok_or_else(|| values.bad(name, format!("must be MIN-MAX in ms, up to {PLAYOUT_DELAY_MS_MAX}")))?;
    Ok(Some(PlayoutDelay { min: Duration::from_millis(min), max: Duration::from_millis(max) }))
}

/// Returns the look-ups that the entries of `webrtc.candidates` require.
pub(super) fn lookups(server: &ServerSettings) -> Vec<Lookup> {
    let settings = server.protocols.get::<RtcSettings>().filter(|settings| settings.port.is_some());
    let entries = settings.into_iter().flat_map(|settings| &settings.candidates);
    entries
        .filter_map(|entry| if let Entry::LookUp(lookup) = entry { Some(lookup.clone()) } else { None })
        .collect()
}

/// Returns the address to which the media port is bound; if each worker has its own port, that of the first worker.
/// `None` if WebRTC is disabled.
pub(super) fn listen(server: &ServerSettings) -> Option<Bind> {
    let settings = server.protocols.get::<RtcSettings>()?;
    Some(Bind { host: settings.host, port: settings.port?, key: "webrtc.port" })
}

/// True if each worker has a port of its own.
pub(super) fn is_of_each_worker(server: &ServerSettings) -> bool {
    server.protocols.get::<RtcSettings>().is_some_and(|settings| settings.port_per_worker)
}

/// Returns the address of media over TCP, unless `webrtc.tcp` is off.
pub(super) fn listen_tcp(server: &ServerSettings) -> Option<Bind> {
    listen(server).filter(|_| server.protocols.get::<RtcSettings>().is_some_and(|settings| settings.tcp))
}

/// The WebRTC settings of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RtcAppSettings {
    /// `webRTCEnabled`.
    pub(super) enabled: bool,
    /// The codecs of video.
    pub(super) codecs: Codecs,
    /// `webRTCTcpCandidatesEnabled`, if the operator has set it. True allows media over TCP, provided that `webrtc.tcp`
    /// is on.
    pub(super) tcp: bool,
    /// `webRTCClientStartTimeoutMs`: time within which a client must connect.
    pub(super) connect_timeout: Duration,
    /// `stunServerURI`, announced to pages that ask.
    pub(super) stun: String,
    /// `turnServerUsername`.
    pub(super) turn_user: String,
    /// `turnServerCredential`.
    pub(super) turn_credential: String,
    /// Data channels.
    pub(super) data: DataSettings,
    /// `maxVideoTrackCount` and `maxAudioTrackCount`.
    pub(super) limits: Limits,
    /// `audioLevelThreshold`, if `sendAudioLevelToViewers` is on: the quietest level reported to viewers.
    pub(super) audio_levels: Option<u8>,
}

static APP_DEFAULTS: RtcAppSettings = RtcAppSettings {
    enabled: true,
    codecs: Codecs::ALL,
    tcp: true,
    connect_timeout: CONNECT_TIMEOUT,
    stun: String::new(),
    turn_user: String::new(),
    turn_credential: String::new(),
    data: DataSettings { enabled: true, distribution: Distribution::All },
    limits: Limits::NONE,
    audio_levels: None,
};

impl RtcAppSettings {
    pub(super) fn of(app: &AppSettings) -> &Self {
        app.protocols.get().unwrap_or(&APP_DEFAULTS)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let tcp = "webRTCTcpCandidatesEnabled";
        Ok(Self {
            enabled: values.boolean("webRTCEnabled")?,
            codecs: Codecs::read(values)?,
            connect_timeout: Duration::from_millis(values.number(
                "webRTCClientStartTimeoutMs",
                1000u64,
                120_000,
            )?),
            tcp: values.boolean(tcp)? || values.origin(tcp) == Origin::Default,
            stun: values.text("stunServerURI").trim().to_owned(),
            turn_user: values.text("turnServerUsername").to_owned(),
            turn_credential: values.text("turnServerCredential").to_owned(),
            data: data(values)?,
            limits: Limits {
                video: tracks(values, "maxVideoTrackCount")?,
                audio: tracks(values, "maxAudioTrackCount")?,
            },
            audio_levels: audio_levels(values)?,
        })
    }
}

/// Reads the maximum number of tracks of a kind sent to a viewer of a room, at most [`SEATS_MAX`]; -1 for all.
fn tracks(values: &Values, name: &str) -> Result<Option<usize>, Error> {
    match values.text(name).trim() {
        "-1" => Ok(None),
        _ => values
            .number(name, 0u32, 1_000_000)
            .map(|count| Some(usize::try_from(count).map_or(SEATS_MAX, |count| count.min(SEATS_MAX)))),
    }
}

fn audio_levels(values: &Values) -> Result<Option<u8>, Error> {
    let quietest = values.number("audioLevelThreshold", 0u8, 127)?;
    Ok(values.boolean("sendAudioLevelToViewers")?.then_some(quietest))
}

fn data(values: &Values) -> Result<DataSettings, Error> {
    let name = "dataChannelPlayerDistribution";
    let distribution = Distribution::read(values.text(name));
    Ok(DataSettings {
        enabled: values.boolean("dataChannelEnabled")?,
        distribution: distribution.ok_or_else(|| values.bad(name, "must be one of none, publisher, all"))?,
    })
}

/// True if an application enables WebRTC.
pub(super) fn is_enabled(app: &AppSettings) -> bool {
    RtcAppSettings::of(app).enabled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn c_03_candidates_are_addresses() {
        let server = |value| ServerSettings::of(schema(), &[("webrtc.candidates", value)]);
        let settings = server("203.0.113.7, 2001:db8::1").unwrap();
        let read = settings.protocols.get::<RtcSettings>().unwrap();
        let addresses = ["203.0.113.7", "2001:db8::1"].map(|ip| Entry::Address(ip.parse().unwrap()));
        assert_eq!(read.candidates, addresses);
        assert!(lookups(&settings).is_empty());
        let named = server("media.example.com, 10.0.0.5=203.0.113.7, auto=stun.example.com").unwrap();
        let seen = Lookup::Seen { server: "stun.example.com".to_owned(), port: 3478 };
        assert_eq!(lookups(&named), [Lookup::Name("media.example.com".to_owned()), seen]);
        assert_eq!(listen(&settings), Some(Bind { host: None, port: 50_000, key: "webrtc.port" }));
        for bad in ["not a name", "203.0.113.7:5000", &["192.0.2.1"; 17].join(",")] {
            assert!(server(bad).unwrap_err().to_string().starts_with("webrtc.candidates"), "{bad}");
        }
        let off = ServerSettings::of(schema(), &[("webrtc.enabled", "false")]).unwrap();
        assert_eq!((listen(&off), listen_tcp(&off)), (None, None));
        let off = [("webrtc.enabled", "false"), ("webrtc.candidates", "auto")];
        assert!(lookups(&ServerSettings::of(schema(), &off).unwrap()).is_empty(), "nobody needs it");
        assert!(listen_tcp(&settings).is_some());
        let udp_only = ServerSettings::of(schema(), &[("webrtc.tcp", "false")]).unwrap();
        assert!(listen(&udp_only).is_some() && listen_tcp(&udp_only).is_none());
    }

    #[test]
    fn c_03_a_playout_delay_is_a_range() {
        let read = |value| {
            let settings = ServerSettings::of(schema(), &[("webrtc.playoutDelay", value)])?;
            Ok::<_, Error>(settings.protocols.get::<RtcSettings>().unwrap().playout_delay)
        };
        let ms = Duration::from_millis;
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("0-0").unwrap(), Some(PlayoutDelay { min: ms(0), max: ms(0) }));
        assert_eq!(read(" 100 - 40950 ").unwrap(), Some(PlayoutDelay { min: ms(100), max: ms(40_950) }));
        for bad in ["100", "200-100", "0-40951", "a-b", "-1-5", "1-"] {
            assert!(read(bad).unwrap_err().to_string().starts_with("webrtc.playoutDelay"), "{bad}");
        }
    }

    #[test]
    fn c_03_messages_of_viewers_go_to_nobody_the_publisher_or_all() {
        let read = |value| {
            let app = AppSettings::of(schema(), "a", &[("dataChannelPlayerDistribution", value)])?;
            Ok::<_, Error>(RtcAppSettings::of(&app).data)
        };
        assert_eq!(read("none").unwrap(), DataSettings { enabled: true, distribution: Distribution::Nobody });
        assert_eq!(read("publisher").unwrap().distribution, Distribution::Publisher);
        assert!(read("viewers").unwrap_err().to_string().starts_with("dataChannelPlayerDistribution"));
        let off = AppSettings::of(schema(), "a", &[("dataChannelEnabled", "false")]).unwrap();
        assert!(!RtcAppSettings::of(&off).data.enabled);
    }

    #[test]
    fn c_03_a_viewer_of_a_room_has_so_many_seats_or_as_many_as_there_are_streams() {
        let read = |name, value| {
            let app = AppSettings::of(schema(), "a", &[(name, value)])?;
            Ok::<_, Error>(RtcAppSettings::of(&app).limits)
        };
        assert_eq!(read("maxVideoTrackCount", "-1").unwrap(), Limits::NONE);
        assert_eq!(read("maxVideoTrackCount", "4").unwrap(), Limits { video: Some(4), audio: None });
        assert_eq!(read("maxAudioTrackCount", "0").unwrap(), Limits { video: None, audio: Some(0) });
        // Installations of Ant Media Server have large numbers, so they are limited instead of refused.
        assert_eq!(read("maxAudioTrackCount", "500").unwrap().audio, Some(SEATS_MAX));
        for bad in ["-2", "many", ""] {
            assert!(
                read("maxVideoTrackCount", bad).unwrap_err().to_string().starts_with("maxVideoTrackCount")
            );
        }
    }

    #[test]
    fn c_03_viewers_are_told_of_levels_down_to_a_threshold() {
        let read = |on, threshold| {
            let keys = [("sendAudioLevelToViewers", on), ("audioLevelThreshold", threshold)];
            let app = AppSettings::of(schema(), "a", &keys)?;
            Ok::<_, Error>(RtcAppSettings::of(&app).audio_levels)
        };
        assert_eq!((read("false", "120").unwrap(), read("true", "60").unwrap()), (None, Some(60)));
        assert!(read("true", "128").unwrap_err().to_string().starts_with("audioLevelThreshold"));
    }

    #[test]
    fn an_application_may_have_none() {
        let app = |settings: &[_]| AppSettings::of(schema(), "a", settings).unwrap();
        assert!(is_enabled(&app(&[])) && !is_enabled(&app(&[("webRTCEnabled", "false")])));
    }
}
