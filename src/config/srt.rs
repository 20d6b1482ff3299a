//! Settings of SRT: `srt.*` of the server, `srt*` of an application.

use std::time::Duration;

use super::Error;
use super::values::{Origin, Values};
use crate::auth::access::Secret;
use crate::auth::srt::PASSPHRASE_BYTES;

/// Latencies that can be asked for travel in 16 bits of milliseconds (draft-sharabayko-srt-01 §3.2.1.1).
const LATENCY_MS_MAX: u64 = 65_535;

/// `srt.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SrtSettings {
    /// `srt.passphrase`.
    pub passphrase: Option<Secret>,
    /// `srt.pbkeylen`: bytes of the keys that we make.
    pub key_bytes: u8,
    /// `srt.latency_ms`.
    pub latency: Duration,
    /// `srt.latency_max_ms`.
    pub latency_max: Duration,
    /// `appIngestsSrtStreamsWithoutStreamId`; empty: they are refused.
    pub default_app: String,
}

pub(super) fn server(values: &Values) -> Result<SrtSettings, Error> {
    let millis = |key| values.number(key, 0u64, LATENCY_MS_MAX).map(Duration::from_millis);
    let key_bytes = match values.text("srt.pbkeylen") {
        "16" => 16,
        "24" => 24,
        "32" => 32,
        _ => return Err(values.bad("srt.pbkeylen", "must be 16, 24 or 32")),
    };
    Ok(SrtSettings {
        passphrase: passphrase(values, "srt.passphrase")?,
        key_bytes,
        latency: millis("srt.latency_ms")?,
        latency_max: millis("srt.latency_max_ms")?,
        default_app: values.text("appIngestsSrtStreamsWithoutStreamId").trim().to_owned(),
    })
}

/// The passphrase of a key, if there is one.
pub(super) fn passphrase(values: &Values, key: &'static str) -> Result<Option<Secret>, Error> {
    match values.text(key) {
        "" => Ok(None),
        text if PASSPHRASE_BYTES.contains(&text.len()) => values.secret(key, 1).map(Some),
        _ => Err(values.bad(key, "must have 10 to 80 characters, or none")),
    }
}

pub(super) fn latency_of_app(values: &Values) -> Result<Option<Duration>, Error> {
    let key = "srtReceiveLatencyInMs";
    let latency = values.number(key, 0u64, LATENCY_MS_MAX).map(Duration::from_millis)?;
    Ok((values.origin(key) != Origin::Default).then_some(latency))
}
