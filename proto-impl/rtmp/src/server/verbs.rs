//! The owner's decisions. A decision is ignored if no matching request is pending: the connection may have ended in the
//! meantime.

use std::time::Instant;

use flv::amf0::Value;

use super::{Phase, Server, State};
use crate::four_cc::Ability;
use crate::{CloseReason, MediaMessage, PlayTracks, Rejection, Timer, command};

impl Server {
    /// Accepts the pending `connect`.
    pub fn accept_connect(&mut self, now: Instant) {
        let Phase::ConnectPending { transaction, app, negotiates } = &mut self.phase else { return };
        let (transaction, app, negotiates) = (*transaction, std::mem::take(app), *negotiates);
        self.phase = Phase::Connected { app };
        self.link.announce();
        self.link.stream_begin(0);
        let version = self.config.server_version.as_str();
        let mut properties = vec![
            ("fmsVer".to_owned(), Value::string(version)),
            ("capabilities".to_owned(), Value::Number(31.0)),
            ("mode".to_owned(), Value::Number(1.0)),
        ];
        if negotiates {
            self.config.four_ccs.write(Ability::FORWARD, &mut properties);
        }
        // The server uses AMF0, even with a peer that offers AMF3.
        let information = Value::object([
            ("level", Value::string("status")),
            ("code", Value::string("NetConnection.Connect.Success")),
            ("description", Value::string("Connection succeeded.")),
            ("objectEncoding", Value::Number(0.0)),
            ("data", Value::EcmaArray(vec![("version".to_owned(), Value::string("3,0,1,123"))])),
        ]);
        self.link.send_command("_result", transaction, &[Value::Object(properties), information]);
        self.resume(now);
    }

    /// Refuses the pending `connect` and ends the connection.
    pub fn reject_connect(&mut self, _now: Instant, code: &str, description: &str) {
        let Phase::ConnectPending { transaction, .. } = &self.phase else { return };
        let transaction = *transaction;
        self.refuse_connect(transaction, code, description);
    }

    /// Accepts the pending `publish` of this message stream.
    pub fn accept_publish(&mut self, now: Instant, message_stream: u32) {
        let Some(state) = self.streams.state_mut(message_stream) else { return };
        let State::PublishPending { name } = state else { return };
        let name = std::mem::take(name);
        let details = Value::string(name.as_str());
        *state = State::Publishing { name };
        self.link.stream_begin(message_stream);
        let information = Value::object([
            ("level", Value::string("status")),
            ("code", Value::string("NetStream.Publish.Start")),
            ("description", Value::string("Start publishing")),
            ("details", details),
            ("clientid", Value::string("millstream")),
        ]);
        self.link.send_stream_command(message_stream, "onStatus", 0.0, &[Value::Null, information]);
        self.timers.set(Timer::Publisher, now, self.config.first_media_timeout);
        self.rearm(now);
        self.resume(now);
    }

    /// Refuses the pending `publish` of this message stream.
    pub fn reject_publish(&mut self, now: Instant, message_stream: u32, rejection: Rejection) {
        if matches!(self.streams.state(message_stream), Some(State::PublishPending { .. })) {
            self.reject(now, message_stream, &rejection);
        }
    }

    /// Accepts the pending `play` of this message stream. The owner may then write media after the queued
    /// output.
    pub fn accept_play(&mut self, now: Instant, message_stream: u32, tracks: PlayTracks) {
        let Some(state) = self.streams.state_mut(message_stream) else { return };
        let State::PlayPending { name, reset } = state else { return };
        let (name, reset) = (std::mem::take(name), *reset);
        *state = State::Playing { name, wanted: PlayTracks { audio: true, video: true } };
        self.link.stream_begin(message_stream);
        if reset {
            let code = "NetStream.Play.Reset";
            self.link.send_status(message_stream, "status", code, "Playing and resetting stream.");
        }
        self.link.send_status(message_stream, "status", "NetStream.Play.Start", "Started playing stream.");
        let access =
            [Value::string("|RtmpSampleAccess"), Value::Boolean(tracks.audio), Value::Boolean(tracks.video)];
        self.link.send_data(message_stream, &access);
        // Sent as a command, like MediaMTX does. If it were a data message, as FMS sent it, ffmpeg would take it for a
        // third stream.
        let code = "NetStream.Data.Start";
        self.link.send_status(message_stream, "status", code, "Started playing stream.");
        self.see_player(now);
        self.rearm(now);
        self.resume(now);
    }

    /// Refuses the pending `play` of this message stream. The code for a stream that is not live is
    /// `NetStream.Play.StreamNotFound`.
    pub fn reject_play(&mut self, now: Instant, message_stream: u32, rejection: Rejection) {
        if matches!(self.streams.state(message_stream), Some(State::PlayPending { .. })) {
            self.reject(now, message_stream, &rejection);
        }
    }

    /// Ends a current publish. The status has the level `error`, because encoders ignore all other levels.
    pub fn end_publish(&mut self, now: Instant, message_stream: u32, rejection: Rejection) {
        if matches!(self.streams.state(message_stream), Some(State::Publishing { .. })) {
            self.reject(now, message_stream, &rejection);
        }
    }

    /// Ends a current play because the stream is over.
    pub fn end_play(&mut self, now: Instant, message_stream: u32) {
        if !matches!(self.streams.state(message_stream), Some(State::Playing { .. })) {
            return;
        }
        self.streams.take(message_stream);
        self.link.stream_eof(message_stream);
        let code = "NetStream.Play.UnpublishNotify";
        self.link.send_status(message_stream, "status", code, "Stream is now unpublished.");
        self.link.send_status(message_stream, "status", "NetStream.Play.Stop", "Stopped playing stream.");
        self.rearm(now);
    }

    /// Sends one media message to a player. Meant for messages such as metadata. The owner makes the chunks of audio
    /// and video once for all viewers and writes them to the sockets itself.
    pub fn send(&mut self, now: Instant, message: &MediaMessage) {
        if matches!(self.streams.state(message.message_stream), Some(State::Playing { .. })) {
            self.link.send_media(message);
            self.see_player(now);
        }
    }

    /// Records that the owner has written bytes to the player. The first bytes after a ping have no effect: the ping
    /// would be sent to a player that is gone, too.
    pub fn media_progress(&mut self, now: Instant) {
        if !std::mem::take(&mut self.sends_ping) {
            self.see_player(now);
        }
    }

    /// Records that the player is there.
    pub(super) fn see_player(&mut self, now: Instant) {
        if self.streams.has_player() {
            self.player_seen = now;
            self.timers.set(Timer::Player, now, self.config.player_idle_timeout / 2);
        }
    }

    /// Records that the owner could not read a media message. The message counts as an unknown one; too many of them
    /// end the connection.
    pub fn bad_media(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Closed)
            && let Err(error) = self.link.count_bad(now)
        {
            self.fail(&error);
        }
    }

    /// Ends the connection.
    pub fn close(&mut self, _now: Instant, reason: CloseReason) {
        self.finish(reason);
    }

    /// Sends `_error` to `connect` and ends the connection.
    pub(super) fn refuse_connect(&mut self, transaction: f64, code: &str, description: &str) {
        let information = command::information("error", code, description);
        self.link.send_command("_error", transaction, &[Value::Null, information]);
        self.finish(CloseReason::Rejected);
    }

    /// Makes a message stream idle and sends an error status about it. Ends the connection if `rejection.close` is set.
    pub(super) fn reject(&mut self, now: Instant, message_stream: u32, rejection: &Rejection) {
        self.streams.take(message_stream);
        self.link.send_status(message_stream, "error", &rejection.code, &rejection.description);
        if rejection.close {
            self.finish(CloseReason::Rejected);
        } else {
            self.rearm(now);
            self.resume(now);
        }
    }
}
