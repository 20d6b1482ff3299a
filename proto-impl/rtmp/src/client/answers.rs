//! The client's commands, and the handling of the server's answers.

use std::time::Instant;

use flv::amf0::Value;

use super::{Client, ClientEvent, Phase, Role, transaction};
use crate::chunk::Message;
use crate::command::{Command, text};
use crate::four_cc::{Ability, FourCcs, takes_multitrack};
use crate::{CloseReason, Error, message};

/// Maximum length of a rejection reason passed on to the owner, because the owner may store and display it.
const REASON_CHARS_MAX: usize = 512;

impl Client {
    pub(super) fn send_connect(&mut self) {
        let config = &self.config;
        let mut object = vec![("app".to_owned(), Value::string(config.app.as_str()))];
        if self.role == Role::Publish {
            object.push(("type".to_owned(), Value::string("nonprivate")));
        }
        object.push(("flashVer".to_owned(), Value::string(config.flash_ver.as_str())));
        object.push(("tcUrl".to_owned(), Value::string(config.tc_url.as_str())));
        if self.role == Role::Play {
            // Properties that Flash Player sent; some servers demand them of players.
            object.push(("fpad".to_owned(), Value::Boolean(false)));
            object.push(("capabilities".to_owned(), Value::Number(15.0)));
            object.push(("audioCodecs".to_owned(), Value::Number(4071.0)));
            object.push(("videoCodecs".to_owned(), Value::Number(252.0)));
            object.push(("videoFunction".to_owned(), Value::Number(1.0)));
        }
        if !config.via.is_empty() {
            let via = config.via.iter().map(|node| Value::string(node.as_str())).collect();
            object.push(("via".to_owned(), Value::StrictArray(via)));
        }
        if !config.four_ccs.is_empty() {
            let ability = match self.role {
                Role::Publish => Ability::ENCODE,
                Role::Play => Ability::DECODE,
            };
            config.four_ccs.write(ability, &mut object);
        }
        self.link.send_command("connect", transaction::CONNECT, &[Value::Object(object)]);
    }

    pub(super) fn handle_command(&mut self, now: Instant, message: &Message) -> Result<(), Error> {
        self.link.count_command(now)?;
        let body = message::amf0_part(message.kind, &message.payload);
        let command = Command::read(&body).map_err(|error| self.link.fault(error))?;
        match command.name.as_str() {
            "_result" => self.handle_result(&command),
            "_error" => self.handle_error(&command),
            "onStatus" => self.handle_status(now, command.argument(0)),
            "close" => self.finish(CloseReason::PeerClosed),
            // Bandwidth checks and notifications that need no answer.
            "onBWDone" | "onFCPublish" | "onFCUnpublish" | "onFCSubscribe" | "_onbwcheck" | "_onbwdone" => {}
            _ => return self.link.count_bad(now),
        }
        Ok(())
    }

    fn handle_result(&mut self, command: &Command) {
        let is = |transaction: f64| command.transaction.to_bits() == transaction.to_bits();
        match self.phase {
            Phase::Connecting if is(transaction::CONNECT) => {
                self.four_ccs = answered_four_ccs(command);
                self.multitrack = [command.object(), command.argument(0)].into_iter().any(takes_multitrack);
                self.send_create_stream();
            }
            Phase::Creating if is(transaction::CREATE_STREAM) => match stream_id(command.argument(0)) {
                Some(id) => self.send_request(id),
                None => self.rejected("NetConnection.Call.Failed", "The stream id is no id."),
            },
            Phase::Handshake(_)
            | Phase::Connecting
            | Phase::Creating
            | Phase::Requesting { .. }
            | Phase::Ready { .. }
            | Phase::Closed => {}
        }
    }

    /// Handles `_error`. Errors of `releaseStream` and `FCPublish` are ignored, because many servers do not support
    /// these commands.
    fn handle_error(&mut self, command: &Command) {
        let is = |transaction: f64| command.transaction.to_bits() == transaction.to_bits();
        if is(transaction::RELEASE_STREAM) || is(transaction::FC_PUBLISH) {
            return;
        }
        let information = command.argument(0);
        self.rejected(text(information, "code"), text(information, "description"));
    }

    fn handle_status(&mut self, now: Instant, information: &Value) {
        let code = text(information, "code");
        if text(information, "level") == "error" {
            self.rejected(code, text(information, "description"));
            return;
        }
        match (self.role, code) {
            (Role::Publish, "NetStream.Publish.Start") => {
                self.ready(now);
            }
            (Role::Play, "NetStream.Play.Start") => {
                self.ready(now);
            }
            // The stream is over. In a pull, the publisher has ended it; in a push, the server has ended it.
            (
                Role::Play,
                "NetStream.Play.UnpublishNotify" | "NetStream.Play.Stop" | "NetStream.Play.Complete",
            )
            | (Role::Publish, "NetStream.Unpublish.Success") => {
                self.finish(CloseReason::PeerClosed);
            }
            _ => {}
        }
    }

    fn send_create_stream(&mut self) {
        self.link.announce_window();
        self.link.announce_chunk_size();
        if self.role == Role::Publish {
            let name = Value::string(self.config.stream.as_str());
            let values = [Value::Null, name];
            self.link.send_command("releaseStream", transaction::RELEASE_STREAM, &values);
            self.link.send_command("FCPublish", transaction::FC_PUBLISH, &values);
        }
        self.link.send_command("createStream", transaction::CREATE_STREAM, &[Value::Null]);
        self.phase = Phase::Creating;
    }

    fn send_request(&mut self, message_stream: u32) {
        let name = Value::string(self.config.stream.as_str());
        match self.role {
            Role::Publish => {
                let values = [Value::Null, name, Value::string("live")];
                self.link.send_stream_command(message_stream, "publish", transaction::REQUEST, &values);
            }
            Role::Play => {
                // In ffmpeg and librtmp, -2000 (milliseconds) means "live if there is a live stream, otherwise
                // recorded".
                let values = [Value::Null, name, Value::Number(-2000.0)];
                self.link.send_stream_command(message_stream, "play", transaction::REQUEST, &values);
                self.link.set_buffer_length(message_stream);
                self.link.reader.grant(true);
            }
        }
        self.phase = Phase::Requesting { message_stream };
    }

    fn rejected(&mut self, code: &str, description: &str) {
        let cut = |text: &str| text.chars().take(REASON_CHARS_MAX).collect::<String>();
        if !matches!(self.phase, Phase::Closed) {
            let (code, description) = (cut(code), cut(description));
            self.events.push_back(ClientEvent::Rejected { code, description });
            self.finish(CloseReason::Rejected);
        }
    }
}

/// Returns the FourCCs that a server accepts. They are in the properties of its answer; some servers put them into the
/// information object instead.
fn answered_four_ccs(command: &Command) -> Option<FourCcs> {
    let takes = Ability::DECODE.or(Ability::FORWARD);
    FourCcs::read(command.object(), takes).or_else(|| FourCcs::read(command.argument(0), takes))
}

/// Reads a message stream id: a whole number that fits a header.
fn stream_id(value: &Value) -> Option<u32> {
    let number = value.as_number()?;
    let whole = (0.0..=f64::from(u32::MAX)).contains(&number) && number.fract() == 0.0;
    #[allow(clippy::cast_possible_truncation, reason = "whole and in range")]
    whole.then_some(number as u32)
}
