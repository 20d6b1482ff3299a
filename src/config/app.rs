//! Settings of one application.

use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::recording::{self, RecordingSettings};
use super::security::{self, HookSettings, SecuritySettings};
use super::values::{Origin, Values};
use super::vod::{self, VodSettings};
use super::{Extensions, Level, Schema};
use crate::auth::CidrList;

/// Settings of the reactions to the loss of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossSettings {
    /// `publisherGraceMs`: how long a stream waits for a lost publisher.
    pub publisher_grace: Duration,
    /// `standbyAfterMs`: silence of a publisher after which its standby takes over.
    pub standby_after: Duration,
}

/// The parsed settings of an application. Shared as `Arc`; a change makes a new object with a higher epoch, while
/// sessions that already exist keep the object with which they began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppSettings {
    /// Name of the application, and of its folder below `webapps`.
    pub name: Arc<str>,
    /// Number of changes of these settings since the server was started.
    pub epoch: u64,
    /// Reactions to the loss of a publisher.
    pub loss: LossSettings,
    /// `maxLatencyMs`: a viewer that lags by more than this jumps to the newest key frame.
    pub max_latency: Duration,
    /// `coalesceMs`: how long an audio unit may wait for the next video unit; zero: never.
    pub coalesce: Duration,
    /// `mergeWriteMs`: how long units are gathered for one write; zero: never.
    pub merge_write: Duration,
    /// `gopCache`: new viewers start at the newest key frame.
    pub gop_cache: bool,
    /// `httpFlvEnabled`.
    pub http_flv_enabled: bool,
    /// Settings of the protocols.
    pub protocols: Extensions,
    /// `acceptOnlyStreamsInDataStore`: a publisher needs a record.
    pub accept_only_streams_in_data_store: bool,
    /// `allowedPublisherCIDR`; empty: everybody.
    pub allowed_publisher_cidr: CidrList,
    /// `ipFilterEnabled`: apply `remote_allowed_cidr` to the REST API.
    pub ip_filter_enabled: bool,
    /// `remoteAllowedCIDR`; empty: nobody.
    pub remote_allowed_cidr: CidrList,
    /// Limits on concurrent use.
    pub limits: AppLimits,
    /// Settings of recording.
    pub recording: RecordingSettings,
    /// Settings of uploaded files and of storage for playable files.
    pub vod: VodSettings,
    /// Settings of hooks.
    pub hooks: HookSettings,
    /// `endpointRepublishLimit`, if set by the operator and not negative.
    pub endpoint_republish_limit: Option<u32>,
    /// Consecutive failed attempts before the hook `endpointFailed`; `None`: never.
    pub endpoint_failed_after: Option<u32>,
    /// `startStreamFetcherAutomatically`: stream sources are pulled as soon as the server starts.
    pub start_sources: bool,
    /// `restartStreamFetcherPeriod`: interval at which a pull is restarted; `None`: never.
    pub restart_sources: Option<Duration>,
    /// Rules for publishing, playing and use of the API.
    pub security: SecuritySettings,
    /// Every key with its value as text, including the settings parsed above.
    pub values: Values,
}

/// Limits on concurrent use of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppLimits {
    /// `ingestingStreamLimit`: maximum number of live streams; `None`: unlimited.
    pub streams: Option<u32>,
    /// `webRTCViewerLimit`: maximum number of viewers of a format, for formats such as WebRTC whose viewers are counted
    /// separately; `None`: unlimited.
    pub viewers: Option<u32>,
    /// Limits on accepted streams.
    pub accept: AcceptLimits,
}

/// Maximum values of a published stream; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptLimits {
    /// `maxResolutionAccept`: height of pictures, in pixels.
    pub height: Option<u32>,
    /// `maxFpsAccept`: frames per second.
    pub fps: Option<u32>,
    /// `maxBitrateAccept`: bits per second.
    pub bitrate: Option<u32>,
}

impl AppSettings {
    /// Parses the values.
    ///
    /// # Errors
    /// The first value that does not fit its key.
    pub fn from_values(name: &str, epoch: u64, values: Values) -> Result<Self, Error> {
        let millis = |key, max| values.number(key, 0u64, max).map(Duration::from_millis);
        let accept = |key, max| values.number(key, 0u32, max).map(|most| Some(most).filter(|most| *most > 0));
        let accept = AcceptLimits {
            height: accept("maxResolutionAccept", 100_000)?,
            fps: accept("maxFpsAccept", 100_000)?,
            bitrate: accept("maxBitrateAccept", 2_000_000_000)?,
        };
        let limit = values.number("ingestingStreamLimit", -1i64, 1_000_000)?;
        let viewers = values.number("webRTCViewerLimit", -1i64, 1_000_000)?;
        let republish = values.number("endpointRepublishLimit", -1_000_000i64, 1_000_000)?;
        let explicit = values.origin("endpointRepublishLimit") != Origin::Default;
        let restart = values.number("restartStreamFetcherPeriod", 0u64, 31_536_000)?;
        Ok(Self {
            name: name.into(),
            epoch,
            loss: LossSettings {
                publisher_grace: millis("publisherGraceMs", 3_600_000)?,
                standby_after: values.number("standbyAfterMs", 100u64, 60_000).map(Duration::from_millis)?,
            },
            max_latency: millis("maxLatencyMs", 600_000)?,
            coalesce: millis("coalesceMs", 10_000)?,
            merge_write: millis("mergeWriteMs", 10_000)?,
            gop_cache: values.boolean("gopCache")?,
            http_flv_enabled: values.boolean("httpFlvEnabled")?,
            protocols: values.extensions()?,
            accept_only_streams_in_data_store: values.boolean("acceptOnlyStreamsInDataStore")?,
            allowed_publisher_cidr: values.rules("allowedPublisherCIDR")?,
            ip_filter_enabled: values.boolean("ipFilterEnabled")?,
            remote_allowed_cidr: values.rules("remoteAllowedCIDR")?,
            limits: AppLimits {
                streams: u32::try_from(limit).ok(),
                viewers: u32::try_from(viewers).ok(),
                accept,
            },
            recording: recording::recording(&values)?,
            vod: vod::vod(&values)?,
            hooks: security::hooks(&values)?,
            endpoint_republish_limit: u32::try_from(republish).ok().filter(|_| explicit),
            endpoint_failed_after: u32::try_from(republish).ok(),
            start_sources: values.boolean("startStreamFetcherAutomatically")?,
            restart_sources: (restart > 0).then(|| Duration::from_secs(restart)),
            security: security::security(&values)?,
            values,
        })
    }

    /// Returns the defaults; for tests and simulations.
    ///
    /// # Errors
    /// Never happens with the current table; a test checks the defaults.
    pub fn defaults(name: &str) -> Result<Self, Error> {
        Self::with(name, &[])
    }

    /// Returns the defaults with some keys changed; for tests and simulations.
    ///
    /// # Errors
    /// The first value that does not fit its key.
    pub fn with(name: &str, settings: &[(&str, &str)]) -> Result<Self, Error> {
        Self::of(Default::default(), name, settings)
    }

    /// Like [`Self::with`], including the keys of protocols.
    ///
    /// # Errors
    /// The first value that does not fit its key.
    pub fn of(schema: &'static Schema, name: &str, settings: &[(&str, &str)]) -> Result<Self, Error> {
        let mut values = Values::new(schema, Level::App, "defaults");
        for (key, value) in settings {
            values.set(key, (*value).to_owned(), Origin::Set);
        }
        Self::from_values(name, 0, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_documents() {
        let app = AppSettings::defaults("live").unwrap();
        assert_eq!(app.loss.publisher_grace, Duration::from_secs(5));
        assert_eq!(app.coalesce, Duration::from_millis(40));
        assert!(app.gop_cache && app.ip_filter_enabled);
        assert!(app.allowed_publisher_cidr.is_empty());
        assert!(app.remote_allowed_cidr.contains("::1".parse().unwrap()));
        assert_eq!((app.limits.streams, app.endpoint_republish_limit), (None, None));
        assert_eq!((app.start_sources, app.restart_sources), (false, None));
    }

    #[test]
    fn an_explicit_republish_limit_counts_even_with_the_defaults_value() {
        let limit =
            |v| AppSettings::with("a", &[("endpointRepublishLimit", v)]).unwrap().endpoint_republish_limit;
        assert_eq!((limit("3"), limit("-1")), (Some(3), None));
    }

    #[test]
    fn security_switches_are_seen() {
        let with = |key, value| AppSettings::with("a", &[(key, value)]).unwrap().security;
        assert!(with("webhookAuthenticateURL", "http://h/").publish.any());
        assert!(with("playTokenControlEnabled", "true").play.any());
        assert_eq!(with("timeTokenPeriod", "30").secrets.time_code_period, 30);
        let secret = "0123456789abcdef0123456789abcdef";
        let signed = AppSettings::with("a", &[("webhookSecret", secret)]).unwrap().hooks;
        assert_eq!(signed.secret.reveal(), secret);
        let plain = AppSettings::defaults("a").unwrap().security;
        assert!(!plain.publish.any() && !plain.play.any() && plain.rest_jwt.is_none());
    }

    #[test]
    fn r_06_signed_tokens_need_a_secret_of_32_characters() {
        for (switch, key) in [
            ("jwtControlEnabled", "jwtSecretKey"),
            ("publishJwtControlEnabled", "jwtStreamSecretKey"),
            ("playJwtControlEnabled", "jwtStreamSecretKey"),
        ] {
            for secret in ["", "0123456789abcdef0123456789abcde"] {
                let error =
                    AppSettings::with("a", &[(switch, "true"), (key, secret)]).unwrap_err().to_string();
                assert!(error.starts_with(key) && !error.contains("0123"), "{error}");
            }
            let settings = [(switch, "true"), (key, "0123456789abcdef0123456789abcdef")];
            assert!(AppSettings::with("a", &settings).is_ok());
            // A feature that is off does not validate its settings.
            assert!(AppSettings::with("a", &[(key, "short")]).is_ok());
        }
    }

    #[test]
    fn a_check_that_cannot_be_done_is_refused() {
        for settings in [
            &[("hashControlPlayEnabled", "true")][..],
            &[
                ("jwtControlEnabled", "true"),
                ("jwtSecretKey", "0123456789abcdef0123456789abcdef"),
                ("jwksURL", "x"),
            ],
            &[("webhookPlayAuthUrl", "file:///etc/passwd")],
            &[("listenerHookURL", "hook.example")],
            &[("contentSecurityPolicyHeaderValue", "a\nb")],
        ] {
            assert!(AppSettings::with("a", settings).is_err(), "{settings:?}");
        }
    }

    #[test]
    fn c_03_bad_values_name_the_key() {
        for (key, value) in [
            ("remoteAllowedCIDR", "1.2.3"),
            ("allowedPublisherCIDR", "10.0.0.0/33"),
            ("gopCache", "yes"),
            ("publisherGraceMs", "-1"),
            ("coalesceMs", "99999999999999999999"),
            ("ingestingStreamLimit", "1e3"),
            ("ipFilterEnabled", ""),
        ] {
            let error = AppSettings::with("a", &[(key, value)]).unwrap_err().to_string();
            assert!(error.starts_with(key) && !error.contains('\n'), "{error}");
        }
    }
}
