//! Settings of an application for permissions and hooks.

use std::time::Duration;

use super::Error;
use super::values::Values;
use super::visibility::Visibility;
use crate::auth::access::{Checks, Secret, Secrets, Trust};
use crate::auth::{HookUrl, jwt};

/// Shortest interval of the status hook, in milliseconds. Figures are not updated more often.
const STATUS_PERIOD_MIN: u64 = 500;

/// The settings for sending hooks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookSettings {
    /// `listenerHookURL`; `None` when empty.
    pub url: Option<HookUrl>,
    /// `dataChannelWebHookURL`: the receiver of messages from data channels; `None` if empty.
    pub data_url: Option<HookUrl>,
    /// `webhookContentType`: whether to send a form instead of JSON.
    pub form: bool,
    /// `webhookSecret`: signs every hook and every admission request.
    pub secret: Secret,
    /// `webhookRetryCount`.
    pub retries: u32,
    /// `webhookRetryDelay`.
    pub retry_delay: Duration,
    /// `webhookStreamStatusUpdatePeriodMs`; `None`: off.
    pub status_period: Option<Duration>,
}

/// Rules for publishing, playing and use of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecuritySettings {
    /// Checks of publishers.
    pub publish: Checks,
    /// Checks of viewers.
    pub play: Checks,
    /// Secrets of the checks.
    pub secrets: Secrets,
    /// Key material for tokens of the REST API (`jwtControlEnabled`): the key set at `jwksURL`, or else `jwtSecretKey`.
    pub rest_jwt: Option<Trust>,
    /// `contentSecurityPolicyHeaderValue`; `None` when empty.
    pub content_security_policy: Option<String>,
    /// `participantVisibilityMatrix`: the roles that each role sees in rooms.
    pub visibility: Visibility,
    /// `writeSubscriberEventsToDatastore`: connection events of subscribers are stored.
    pub subscriber_events: bool,
    /// `writeStatsToDatastore`: viewer counts are stored in records.
    pub viewer_counts: bool,
}

/// Parses the settings of hooks.
pub(super) fn hooks(values: &Values) -> Result<HookSettings, Error> {
    let content_type = values.text("webhookContentType");
    let essence = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    // Anything but a form is JSON, as in Ant Media Server.
    let form = essence == "application/x-www-form-urlencoded";
    let period = values.number("webhookStreamStatusUpdatePeriodMs", -1i64, 86_400_000)?;
    let period = u64::try_from(period).ok().filter(|period| *period > 0);
    let delay = values.number("webhookRetryAttemptDelay", 0u64, 3_600_000)?;
    Ok(HookSettings {
        url: hook(values, "listenerHookURL")?,
        data_url: hook(values, "dataChannelWebHookURL")?,
        form,
        secret: webhook_secret(values)?,
        retries: values.number("webhookRetryCount", 0u32, 100)?,
        retry_delay: Duration::from_millis(delay),
        status_period: period.map(|period| Duration::from_millis(period.max(STATUS_PERIOD_MIN))),
    })
}

fn webhook_secret(values: &Values) -> Result<Secret, Error> {
    match values.text("webhookSecret") {
        "" => Ok(Secret::default()),
        _ => long_secret(values, "webhookSecret"),
    }
}

/// Parses the checks. A check that cannot be done as described is an error: a switch must not protect less than its
/// name says.
pub(super) fn security(values: &Values) -> Result<SecuritySettings, Error> {
    let publish = Checks {
        token: values.boolean("publishTokenControlEnabled")?,
        jwt: values.boolean("publishJwtControlEnabled")?,
        time_code: values.boolean("enableTimeTokenForPublish")?,
        hash: values.boolean("hashControlPublishEnabled")?,
        publish_key: values.boolean("publishKeyRequired")?,
        hook: hook(values, "webhookAuthenticateURL")?,
    };
    let play = Checks {
        token: values.boolean("playTokenControlEnabled")?,
        jwt: values.boolean("playJwtControlEnabled")?,
        time_code: values.boolean("enableTimeTokenForPlay")?,
        hash: values.boolean("hashControlPlayEnabled")?,
        publish_key: false,
        hook: hook(values, "webhookPlayAuthUrl")?,
    };
    let keys = hook(values, "jwksURL")?;
    if (publish.jwt || play.jwt) && (keys.is_none() || !values.text("jwtStreamSecretKey").is_empty()) {
        long_secret(values, "jwtStreamSecretKey")?;
    }
    if (publish.hash || play.hash) && values.text("tokenHashSecret").is_empty() {
        return Err(values.bad("tokenHashSecret", "must be set for the hash control"));
    }
    let secret = |key| Secret::new(values.text(key));
    let secrets = Secrets {
        jwt: secret("jwtStreamSecretKey"),
        keys: keys.filter(|_| publish.jwt || play.jwt),
        hash: secret("tokenHashSecret"),
        time_code_publish: secret("timeTokenSecretForPublish"),
        time_code_play: secret("timeTokenSecretForPlay"),
        time_code_period: values.number("timeTokenPeriod", 1u64, 86_400)?,
        time_code_separators: values.boolean("timeTokenSeparators")?,
        time_code_stored_only: values.boolean("timeTokenStoredSubscribersOnly")?,
    };
    Ok(SecuritySettings {
        publish,
        play,
        secrets,
        rest_jwt: rest_jwt(values)?,
        content_security_policy: policy(values)?,
        visibility: Visibility::read(values)?,
        subscriber_events: values.boolean("writeSubscriberEventsToDatastore")?,
        viewer_counts: values.boolean("writeStatsToDatastore")?,
    })
}

fn rest_jwt(values: &Values) -> Result<Option<Trust>, Error> {
    if !values.boolean("jwtControlEnabled")? {
        return Ok(None);
    }
    match hook(values, "jwksURL")? {
        Some(url) => Ok(Some(Trust::Keys(url))),
        None => long_secret(values, "jwtSecretKey").map(|secret| Some(Trust::Secret(secret))),
    }
}

/// Parses a secret that is long enough for signed tokens (docs/robustness.md R-06).
fn long_secret(values: &Values, key: &str) -> Result<Secret, Error> {
    let text = values.text(key);
    if text.len() < jwt::SECRET_BYTES_MIN {
        return Err(values.bad(key, "must have at least 32 characters"));
    }
    Ok(Secret::new(text))
}

fn hook(values: &Values, key: &str) -> Result<Option<HookUrl>, Error> {
    match values.text(key).trim() {
        "" => Ok(None),
        text => HookUrl::parse(text).map(Some).map_err(|error| values.bad(key, error.to_string())),
    }
}

fn policy(values: &Values) -> Result<Option<String>, Error> {
    let key = "contentSecurityPolicyHeaderValue";
    let text = values.text(key).trim();
    if text.chars().any(|c| c.is_control() && c != '\t') || text.len() > 4096 {
        return Err(values.bad(key, "must be one line of at most 4096 bytes"));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
