//! Commands of the peer: NetConnection and NetStream commands (§7.2.1, §7.2.2) and the Flash Media Server ones that
//! encoders send around them.

use std::time::Instant;

use flv::amf0::Value;

use super::{Phase, Server, State};
use crate::chunk::Message;
use crate::command::{Command, text};
use crate::four_cc::{self, Ability, FourCcs};
use crate::{
    ConnectRequest, Error, Event, PlayRequest, PublishMode, PublishRequest, Violation, command, key, message,
};

/// Entries of `via` that are looked at; a stream that passed more nodes is refused long before.
const VIA_MAX: usize = 64;

impl Server {
    pub(super) fn handle_command(&mut self, now: Instant, message: &Message) -> Result<(), Error> {
        self.link.count_command(now)?;
        let body = message::amf0_part(message.kind, &message.payload);
        let command = Command::read(&body).map_err(|error| self.link.fault(error))?;
        tracing::trace!(name = command.name.get(..32).unwrap_or(&command.name), "command");
        match &self.phase {
            Phase::Unconnected if command.name == "connect" => {
                self.connect(&command);
                Ok(())
            }
            Phase::Unconnected => Err(self.link.fault(Violation::NotConnected)),
            Phase::Connected { app } => {
                let app = app.clone();
                self.handle_connected(&app, message.message_stream, &command)
            }
            Phase::Handshake(_) | Phase::ConnectPending { .. } | Phase::Closed => Ok(()),
        }
    }

    /// A flat list of names; ids of message streams are those of the message, except for `deleteStream`.
    fn handle_connected(&mut self, app: &str, message_stream: u32, command: &Command) -> Result<(), Error> {
        match command.name.as_str() {
            "createStream" => self.create_stream(command),
            "releaseStream" | "_checkbw" | "initStream" => self.reply(command, Value::Undefined),
            "getStreamLength" => self.reply(command, Value::Number(0.0)),
            "FCPublish" => self.reply_fc(command, "onFCPublish", "NetStream.Publish.Start"),
            "FCSubscribe" => self.reply_fc(command, "onFCSubscribe", "NetStream.Play.Start"),
            "FCUnpublish" => self.fc_unpublish(command),
            "publish" => self.publish(app, message_stream, command),
            "play" => self.play(app, message_stream, command, command.argument(0)),
            "play2" => {
                let name = command.argument(0).get("streamName").unwrap_or(&Value::Null);
                self.play(app, message_stream, command, name)
            }
            "pause" | "pauseRaw" => self.pause(message_stream, command),
            "receiveAudio" => self.receive(message_stream, command, true),
            "receiveVideo" => self.receive(message_stream, command, false),
            "seek" => self.seek(message_stream),
            "closeStream" => self.close_stream(message_stream),
            "deleteStream" => self.delete_stream(message_stream, command),
            // Results of what we never asked for, bandwidth checks, statistics of old players.
            _ => self.link.count_bad(),
        }
    }

    /// Turns `connect` into a request. Without an application there is nothing to ask the owner about.
    fn connect(&mut self, command: &Command) {
        let object = command.object();
        let connect_app = text(object, "app");
        let Ok(app) = key::parse_app(connect_app) else {
            let code = "NetConnection.Connect.InvalidApp";
            self.refuse_connect(command.transaction, code, "No scope on this server.");
            return;
        };
        let (path, query) = connect_app.split_once('?').unwrap_or((connect_app, ""));
        let via = object.get("via").and_then(Value::as_array).unwrap_or_default();
        let via = via.iter().take(VIA_MAX).filter_map(Value::as_str).map(str::to_owned).collect();
        let request = ConnectRequest {
            app: app.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            tc_url: text(object, "tcUrl").to_owned(),
            flash_ver: text(object, "flashVer").to_owned(),
            via,
            object_encoding: object.get("objectEncoding").and_then(Value::as_number).unwrap_or(0.0),
            four_ccs: FourCcs::read(object, Ability::DECODE),
            multitrack: four_cc::takes_multitrack(object),
        };
        self.phase = Phase::ConnectPending {
            transaction: command.transaction,
            app: path.to_owned(),
            negotiates: request.four_ccs.is_some(),
        };
        self.events.push_back(Event::Connect(request));
    }

    fn create_stream(&mut self, command: &Command) -> Result<(), Error> {
        if let Some(id) = self.streams.create() {
            let values = [Value::Null, Value::Number(f64::from(id))];
            self.link.send_command("_result", command.transaction, &values);
            return Ok(());
        }
        let information = command::information("error", "NetConnection.Call.Failed", "Too many streams.");
        self.link.send_command("_error", command.transaction, &[Value::Null, information]);
        self.link.count_bad()
    }

    /// `_result`, unless the transaction is 0: GStreamer waits for nothing then.
    fn reply(&mut self, command: &Command, value: Value) -> Result<(), Error> {
        if command.wants_reply() {
            self.link.send_command("_result", command.transaction, &[Value::Null, value]);
        }
        Ok(())
    }

    /// The Flash Media Live Encoder and its descendants wait for the notification, not for the result.
    fn reply_fc(&mut self, command: &Command, notification: &str, code: &str) -> Result<(), Error> {
        self.reply(command, Value::Undefined)?;
        let description = command.argument(0).as_str().unwrap_or_default();
        let information = command::information("status", code, description);
        self.link.send_command(notification, 0.0, &[Value::Null, information]);
        Ok(())
    }

    /// Ends the publish of that name.
    fn fc_unpublish(&mut self, command: &Command) -> Result<(), Error> {
        self.reply(command, Value::Undefined)?;
        let name = command.argument(0).as_str();
        if let Some(id) = name.and_then(|name| self.streams.publisher_named(name)) {
            self.stop(id);
        }
        Ok(())
    }

    fn publish(&mut self, app: &str, message_stream: u32, command: &Command) -> Result<(), Error> {
        if !self.require_idle(message_stream, "NetStream.Publish.BadName")? {
            return Ok(());
        }
        let name = command.argument(0).as_str().unwrap_or_default();
        let target = match key::parse(app, name) {
            Ok(target) => target,
            Err(error) => {
                self.reject_and_close(message_stream, &error.rejection("publish", message_stream));
                return Ok(());
            }
        };
        let mode = match command.argument(1).as_str() {
            Some("record") => PublishMode::Record,
            Some("append") => PublishMode::Append,
            Some(_) | None => PublishMode::Live,
        };
        self.ask(message_stream, State::PublishPending { name: name.to_owned() });
        self.events.push_back(Event::Publish(PublishRequest { message_stream, target, mode }));
        Ok(())
    }

    fn play(&mut self, app: &str, message_stream: u32, command: &Command, name: &Value) -> Result<(), Error> {
        if !self.require_idle(message_stream, "NetStream.Play.Failed")? {
            return Ok(());
        }
        let name = name.as_str().unwrap_or_default();
        let target = match key::parse(app, name) {
            Ok(target) => target,
            Err(error) => {
                self.reject_and_close(message_stream, &error.rejection("play", message_stream));
                return Ok(());
            }
        };
        // Reset is a boolean, or a number in old players; it is the default.
        let reset = command.argument(3);
        let reset = reset.as_bool().or_else(|| reset.as_number().map(|n| n != 0.0)).unwrap_or(true);
        let start = command.argument(1).as_number().unwrap_or(-2.0);
        let duration = command.argument(2).as_number().unwrap_or(-1.0);
        self.ask(message_stream, State::PlayPending { name: name.to_owned(), reset });
        let request = PlayRequest { message_stream, target, start, duration, reset };
        self.events.push_back(Event::Play(request));
        Ok(())
    }

    /// A live stream can be paused only by not being sent; the owner decides where it goes on.
    fn pause(&mut self, message_stream: u32, command: &Command) -> Result<(), Error> {
        if !matches!(self.streams.state(message_stream), Some(State::Playing { .. })) {
            return self.link.count_bad();
        }
        let paused = command.argument(0).as_bool().unwrap_or(true);
        let (code, description) = if paused {
            ("NetStream.Pause.Notify", "Paused stream.")
        } else {
            ("NetStream.Unpause.Notify", "Unpaused stream.")
        };
        self.link.send_status(message_stream, "status", code, description);
        self.events.push_back(Event::PlayPaused { message_stream, paused });
        Ok(())
    }

    fn receive(&mut self, message_stream: u32, command: &Command, of_audio: bool) -> Result<(), Error> {
        let Some(State::Playing { wanted, .. }) = self.streams.state_mut(message_stream) else {
            return self.link.count_bad();
        };
        let wants = command.argument(0).as_bool().unwrap_or(true);
        if of_audio {
            wanted.audio = wants;
        } else {
            wanted.video = wants;
        }
        let (audio, video) = (wanted.audio, wanted.video);
        self.events.push_back(Event::ReceiveMedia { message_stream, audio, video });
        Ok(())
    }

    /// A live stream has no other place to go to. The level is `status`: ffplay would stop at an error.
    fn seek(&mut self, message_stream: u32) -> Result<(), Error> {
        if !matches!(self.streams.state(message_stream), Some(State::Playing { .. })) {
            return self.link.count_bad();
        }
        let description = "The stream is live.";
        self.link.send_status(message_stream, "status", "NetStream.Seek.Failed", description);
        Ok(())
    }

    fn close_stream(&mut self, message_stream: u32) -> Result<(), Error> {
        if self.streams.state(message_stream).is_none() {
            return self.link.count_bad();
        }
        self.stop(message_stream);
        Ok(())
    }

    /// The argument is the id. GStreamer sends the stream's name instead, after its FCUnpublish has ended the
    /// publish: a name that nothing has is no mistake.
    fn delete_stream(&mut self, message_stream: u32, command: &Command) -> Result<(), Error> {
        let argument = command.argument(0);
        let id = match (argument.as_number(), argument.as_str()) {
            (Some(number), _) => self.stream_of(number),
            (None, Some(name)) => match self.streams.named(name) {
                None if self.streams.state(message_stream).is_none() => return Ok(()),
                named => named.or(Some(message_stream)),
            },
            (None, None) => Some(message_stream),
        };
        let known = id.filter(|id| self.streams.state(*id).is_some());
        let Some(id) = known else {
            let description = "No such stream.";
            self.link.send_status(message_stream, "error", "NetStream.Failed", description);
            return self.link.count_bad();
        };
        self.stop(id);
        self.streams.delete(id);
        Ok(())
    }

    /// The created stream whose id is that number.
    fn stream_of(&self, number: f64) -> Option<u32> {
        (1..=self.config.message_streams_max)
            .find(|id| f64::from(*id).to_bits() == number.to_bits() && self.streams.state(*id).is_some())
    }

    /// Ends the publish or play of the stream, as the peer asks.
    fn stop(&mut self, message_stream: u32) {
        match self.streams.take(message_stream) {
            Some(State::Publishing { .. }) => {
                let code = "NetStream.Unpublish.Success";
                self.link.send_status(message_stream, "status", code, "Stream is now unpublished.");
                self.events.push_back(Event::PublishEnded { message_stream, clean: true });
            }
            Some(State::Playing { .. }) => {
                let code = "NetStream.Play.Stop";
                self.link.send_status(message_stream, "status", code, "Stopped playing stream.");
                self.events.push_back(Event::PlayEnded { message_stream });
            }
            // A pending request stops the reading, so no command can meet it.
            Some(State::Idle | State::PublishPending { .. } | State::PlayPending { .. }) | None => {}
        }
    }

    /// Whether the stream exists and does nothing. If not, the peer gets an error status, and what lives there
    /// goes on.
    fn require_idle(&mut self, message_stream: u32, code: &str) -> Result<bool, Error> {
        let (code, description) = match self.streams.state(message_stream) {
            Some(State::Idle) => return Ok(true),
            Some(_) => (code, "The stream is in use."),
            None => ("NetStream.Failed", "No such stream."),
        };
        self.link.send_status(message_stream, "error", code, description);
        self.link.count_bad()?;
        Ok(false)
    }

    fn ask(&mut self, message_stream: u32, request: State) {
        if let Some(state) = self.streams.state_mut(message_stream) {
            *state = request;
        }
    }

    fn reject_and_close(&mut self, message_stream: u32, rejection: &crate::Rejection) {
        self.link.send_status(message_stream, "error", &rejection.code, &rejection.description);
        self.finish(crate::CloseReason::Rejected);
    }
}
