//! Commands of the peer: those of NetConnection and NetStream (§7.2.1, §7.2.2), and those of Flash Media Server that
//! encoders send in addition.

use std::time::Instant;

use flv::amf0::Value;

use super::{Phase, Server, State};
use crate::chunk::Message;
use crate::command::{Command, text};
use crate::four_cc::{self, Ability, FourCcs};
use crate::{
    ConnectRequest, Error, Event, PlayRequest, PublishMode, PublishRequest, Verb, Violation, command, key,
    message,
};

/// Maximum number of entries of `via` that are read. A stream that has passed more nodes is refused long before this.
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
                self.handle_connected(now, &app, message.message_stream, &command)
            }
            Phase::Handshake(_) | Phase::ConnectPending { .. } | Phase::Closed => Ok(()),
        }
    }

    /// Handles a command after `connect`. It applies to the message stream on which it arrived, except for
    /// `deleteStream`.
    fn handle_connected(
        &mut self,
        now: Instant,
        app: &str,
        message_stream: u32,
        command: &Command,
    ) -> Result<(), Error> {
        match command.name.as_str() {
            "createStream" => self.create_stream(now, command),
            "releaseStream" | "_checkbw" | "initStream" => self.reply(command, Value::Undefined),
            "getStreamLength" => self.reply(command, Value::Number(0.0)),
            "FCPublish" => self.reply_fc(command, "onFCPublish", "NetStream.Publish.Start"),
            "FCSubscribe" => self.reply_fc(command, "onFCSubscribe", "NetStream.Play.Start"),
            "FCUnpublish" => self.fc_unpublish(command),
            "publish" => self.publish(now, app, message_stream, command),
            "play" => self.play(now, app, message_stream, command, command.argument(0)),
            "play2" => {
                let name = command.argument(0).get("streamName").unwrap_or(&Value::Null);
                self.play(now, app, message_stream, command, name)
            }
            "pause" | "pauseRaw" => self.pause(now, message_stream, command),
            "receiveAudio" => self.receive(now, message_stream, command, true),
            "receiveVideo" => self.receive(now, message_stream, command, false),
            "seek" => self.seek(now, message_stream),
            "closeStream" => self.close_stream(now, message_stream),
            "deleteStream" => self.delete_stream(now, message_stream, command),
            // All other commands count as bad messages: answers to commands that were never sent, bandwidth checks, and
            // statistics of old players.
            _ => self.link.count_bad(now),
        }
    }

    /// Turns `connect` into a request to the owner.
    fn connect(&mut self, command: &Command) {
        let object = command.object();
        let connect_app = text(object, "app");
        let (path, query) = connect_app.split_once('?').unwrap_or((connect_app, ""));
        let via = object.get("via").and_then(Value::as_array).unwrap_or_default();
        let via = via.iter().take(VIA_MAX).filter_map(Value::as_str).map(str::to_owned).collect();
        let request = ConnectRequest {
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

    fn create_stream(&mut self, now: Instant, command: &Command) -> Result<(), Error> {
        if let Some(id) = self.streams.create() {
            let values = [Value::Null, Value::Number(f64::from(id))];
            self.link.send_command("_result", command.transaction, &values);
            return Ok(());
        }
        let information = command::information("error", "NetConnection.Call.Failed", "Too many streams.");
        self.link.send_command("_error", command.transaction, &[Value::Null, information]);
        self.link.count_bad(now)
    }

    /// Sends `_result`. If the transaction id is 0, sends nothing: GStreamer then expects no reply.
    fn reply(&mut self, command: &Command, value: Value) -> Result<(), Error> {
        if command.wants_reply() {
            self.link.send_command("_result", command.transaction, &[Value::Null, value]);
        }
        Ok(())
    }

    /// Sends `_result` and a notification. The Flash Media Live Encoder and programs derived from it wait for the
    /// notification.
    fn reply_fc(&mut self, command: &Command, notification: &str, code: &str) -> Result<(), Error> {
        self.reply(command, Value::Undefined)?;
        let description = command.argument(0).as_str().unwrap_or_default();
        let information = command::information("status", code, description);
        self.link.send_command(notification, 0.0, &[Value::Null, information]);
        Ok(())
    }

    /// Ends the publish of the stream that the command names.
    fn fc_unpublish(&mut self, command: &Command) -> Result<(), Error> {
        self.reply(command, Value::Undefined)?;
        let name = command.argument(0).as_str();
        if let Some(id) = name.and_then(|name| self.streams.publisher_named(name)) {
            self.stop(id);
        }
        Ok(())
    }

    fn publish(
        &mut self,
        now: Instant,
        app: &str,
        message_stream: u32,
        command: &Command,
    ) -> Result<(), Error> {
        let name = command.argument(0).as_str().unwrap_or_default();
        if !self.is_free(now, Verb::Publish, (app, name), message_stream)? {
            return Ok(());
        }
        let mode = match command.argument(1).as_str() {
            Some("record") => PublishMode::Record,
            Some("append") => PublishMode::Append,
            Some(_) | None => PublishMode::Live,
        };
        self.ask(message_stream, State::PublishPending { name: name.to_owned() });
        let (app, name) = (app.to_owned(), name.to_owned());
        self.events.push_back(Event::Publish(PublishRequest { message_stream, app, name, mode }));
        Ok(())
    }

    fn play(
        &mut self,
        now: Instant,
        app: &str,
        message_stream: u32,
        command: &Command,
        name: &Value,
    ) -> Result<(), Error> {
        let name = name.as_str().unwrap_or_default();
        if !self.is_free(now, Verb::Play, (app, name), message_stream)? {
            return Ok(());
        }
        // The reset argument is a boolean, or a number if the player is old. If it is missing, reset is assumed to be
        // true.
        let reset = command.argument(3);
        let reset = reset.as_bool().or_else(|| reset.as_number().map(|n| n != 0.0)).unwrap_or(true);
        let start = command.argument(1).as_number().unwrap_or(-2.0);
        let duration = command.argument(2).as_number().unwrap_or(-1.0);
        self.ask(message_stream, State::PlayPending { name: name.to_owned(), reset });
        let (app, name) = (app.to_owned(), name.to_owned());
        let request = PlayRequest { message_stream, app, name, start, duration, reset };
        self.events.push_back(Event::Play(request));
        Ok(())
    }

    /// Pauses or resumes a player. The owner has to stop sending, and decides where to resume.
    fn pause(&mut self, now: Instant, message_stream: u32, command: &Command) -> Result<(), Error> {
        if !matches!(self.streams.state(message_stream), Some(State::Playing { .. })) {
            return self.link.count_bad(now);
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

    fn receive(
        &mut self,
        now: Instant,
        message_stream: u32,
        command: &Command,
        of_audio: bool,
    ) -> Result<(), Error> {
        let Some(State::Playing { wanted, .. }) = self.streams.state_mut(message_stream) else {
            return self.link.count_bad(now);
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

    /// Answers a seek, which is impossible in a live stream. The level of the status is not `error`, because ffplay
    /// would stop at an error.
    fn seek(&mut self, now: Instant, message_stream: u32) -> Result<(), Error> {
        if !matches!(self.streams.state(message_stream), Some(State::Playing { .. })) {
            return self.link.count_bad(now);
        }
        let description = "The stream is live.";
        self.link.send_status(message_stream, "status", "NetStream.Seek.Failed", description);
        Ok(())
    }

    fn close_stream(&mut self, now: Instant, message_stream: u32) -> Result<(), Error> {
        if self.streams.state(message_stream).is_none() {
            return self.link.count_bad(now);
        }
        self.stop(message_stream);
        Ok(())
    }

    /// Deletes the message stream in the argument. GStreamer sends the stream's name instead of an id, after
    /// its FCUnpublish has ended the publish; an unknown name is not an error.
    fn delete_stream(&mut self, now: Instant, message_stream: u32, command: &Command) -> Result<(), Error> {
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
            return self.link.count_bad(now);
        };
        self.stop(id);
        self.streams.delete(id);
        Ok(())
    }

    /// Returns the existing message stream with this id.
    fn stream_of(&self, number: f64) -> Option<u32> {
        (1..=self.config.message_streams_max)
            .find(|id| f64::from(*id).to_bits() == number.to_bits() && self.streams.state(*id).is_some())
    }

    /// Ends the publish or play of a message stream at the peer's request.
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
            // There is nothing to stop. (While a request waits for the owner's decision, no input is processed, so no
            // command reaches this point.)
            Some(State::Idle | State::PublishPending { .. } | State::PlayPending { .. }) | None => {}
        }
    }

    /// True if the message stream for a publish or play exists and is idle. Otherwise the peer gets an error status;
    /// if the message stream already publishes or plays, it continues to do so.
    fn is_free(
        &mut self,
        now: Instant,
        verb: Verb,
        (app, name): (&str, &str),
        message_stream: u32,
    ) -> Result<bool, Error> {
        let busy = match (self.streams.state(message_stream), verb) {
            (Some(State::Idle), _) => None,
            (Some(_), Verb::Play) => Some(("NetStream.Play.Failed", "The stream is in use.")),
            (Some(_), Verb::Publish | Verb::Connect) => {
                Some(("NetStream.Publish.BadName", "The stream is in use."))
            }
            (None, _) => Some(("NetStream.Failed", "No such stream.")),
        };
        if let Some((code, description)) = busy {
            self.refused(verb, key::without_credentials(app, name), description);
            self.link.send_status(message_stream, "error", code, description);
            self.link.count_bad(now)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Informs the owner of a request that the server has refused without asking the owner.
    fn refused(&mut self, verb: Verb, key: String, reason: &'static str) {
        self.events.push_back(Event::Refused { verb, key, reason });
    }

    fn ask(&mut self, message_stream: u32, request: State) {
        if let Some(state) = self.streams.state_mut(message_stream) {
            *state = request;
        }
    }
}
