//! Refusals and ends of sessions, and their log lines, each with stream, protocol, peer and reason.

use std::borrow::Cow;
use std::time::Instant;

use super::conn::{Conn, Purpose};
use super::conns::Conns;
use crate::mail::{NoSubscription, Refusal};
use crate::protocol::{RefusedRequest, Verb};
use crate::types::{ConnId, StreamKey};

impl Conns {
    /// Records the server's reason for ending a session's stream. The session itself knows only that it has to end.
    pub(super) fn blame(&mut self, id: ConnId, cause: impl Into<Cow<'static, str>>) {
        if let Some(conn) = self.get_mut(id) {
            conn.figures.cause = Some(cause.into());
        }
    }

    /// Clears the recorded reason of an earlier refusal, because the session's latest request was granted.
    pub(super) fn forgive(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.figures.cause = None;
        }
    }

    /// Logs that a publisher was refused, by control or because this worker lacks room.
    pub(super) fn publish_refused(&mut self, id: ConnId, refusal: &Refusal) {
        let key = self.get(id).and_then(|conn| conn.figures.key.as_ref()).map(ToString::to_string);
        self.refused(id, Verb::Publish, None, &key.unwrap_or_default(), refusal.reason().into());
    }

    /// Logs that a viewer was refused, by control or by this worker.
    pub(super) fn play_refused(&mut self, id: ConnId, key: &StreamKey, why: &NoSubscription) {
        self.refused(id, Verb::Play, None, &key.to_string(), why.reason().into());
    }

    /// Logs that control refused a viewer that watches by separate requests.
    pub(super) fn pass_refused(
        &mut self,
        id: ConnId,
        protocol: &'static str,
        key: &StreamKey,
        why: &NoSubscription,
    ) {
        self.refused(id, Verb::Play, Some(protocol), &key.to_string(), why.reason().into());
    }

    /// Logs that a session refused a request by itself.
    pub(super) fn request_refused(&mut self, id: ConnId, request: RefusedRequest) {
        let RefusedRequest { verb, key, reason } = request;
        self.refused(id, verb, None, &key, reason);
    }

    /// Logs a refusal. `protocol` is the protocol that the peer requested, if that is not the session's protocol.
    fn refused(
        &mut self,
        id: ConnId,
        verb: Verb,
        protocol: Option<&'static str>,
        key: &str,
        reason: Cow<'static, str>,
    ) {
        let Some(conn) = self.get_mut(id) else { return };
        let protocol = protocol.unwrap_or_else(|| conn.session.about().protocol);
        let (peer, reason) = (conn.client(), &*reason);
        // Control logs the failures of pushes, pulls and recordings itself.
        if matches!(conn.purpose, Purpose::Peer) {
            match verb {
                Verb::Connect => tracing::info!(%key, protocol, %peer, reason, "peer refused"),
                Verb::Publish => tracing::info!(%key, protocol, %peer, reason, "publisher refused"),
                Verb::Play => tracing::info!(%key, protocol, %peer, reason, "viewer refused"),
            }
        }
        conn.figures.cause = Some(format!("refused: {reason}").into());
    }
}

/// Logs the end of a session in one line: at level info if the session carried media, and at level debug otherwise. The
/// API may have thousands of sessions a second.
pub(super) fn log_end(conn: &Conn, reason: &str, now: Instant) {
    let figures = &conn.figures;
    let protocol = figures.protocol;
    let reason = figures.cause.as_deref().unwrap_or(reason);
    // A session inside the server has no peer.
    let peer = Some(conn.client()).filter(|peer| !peer.ip().is_unspecified());
    let peer = peer.map(tracing::field::display);
    let seconds = now.saturating_duration_since(figures.began).as_secs();
    let (bytes_in, bytes_out) = (figures.bytes_in, figures.bytes_out);
    let (jumps, skipped) = (figures.jumps, figures.skipped);
    let key = figures.key.as_ref().map(tracing::field::display);
    // Attempts that never got a stream are logged at level debug only; control logs a summary of them.
    let is_attempt = matches!(conn.purpose, Purpose::Push { .. } | Purpose::Pull { .. }) && key.is_none();
    if figures.is_media && !is_attempt {
        tracing::info!(
            protocol,
            key,
            peer,
            reason,
            seconds,
            bytes_in,
            bytes_out,
            jumps,
            skipped,
            "session ended"
        );
    } else {
        tracing::debug!(protocol, peer, reason, seconds, bytes_in, bytes_out, "session ended");
    }
}
