//! Data channels (RFC 8831 §6, RFC 8832).

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;

use super::{Association, Phase};
use crate::config::{LABEL_BYTES_MAX, Role};
use crate::dcep::{self, kind_of, number_of, ppid};
use crate::event::{ChannelId, Event, Kind, OpenError, Opened, Options, SendError};
use crate::inbound::{self, charge};
use crate::outbound::{Limit, Outgoing};
use crate::stats::{count, figure};

/// Number of usable streams: stream 65535 does not exist (RFC 8832 §6).
const STREAMS_MAX: u16 = 65_535;

/// State of one direction of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Open,
    /// The stream's reset has been requested, or will be.
    Closing,
    Reset,
}

/// A data channel.
#[derive(Debug)]
pub(super) struct Channel {
    options: Options,
    /// True if we opened the channel and the peer has not acknowledged it. Until then, messages are sent in
    /// order (RFC 8832 §6).
    opening: bool,
    /// True if the peer has asked to open the channel, and was answered.
    asked: bool,
    pub(super) outgoing: Side,
    pub(super) incoming: Side,
}

impl Channel {
    const fn new(options: Options, is_ours: bool) -> Self {
        Self { options, opening: is_ours, asked: !is_ours, outgoing: Side::Open, incoming: Side::Open }
    }
}

/// The data channels, by stream number.
#[derive(Debug, Default)]
pub(super) struct Channels {
    open: BTreeMap<u16, Channel>,
}

impl Channels {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn get_mut(&mut self, stream: u16) -> Option<&mut Channel> {
        self.open.get_mut(&stream)
    }

    pub(super) fn streams(&self) -> Vec<u16> {
        self.open.keys().copied().collect()
    }
}

impl Association {
    /// Opens a channel. Messages may be sent immediately. [`Event::Accepted`] follows.
    ///
    /// # Errors
    ///
    /// The reason as an [`OpenError`].
    pub fn open(
        &mut self,
        now: Instant,
        label: &str,
        protocol: &str,
        options: Options,
    ) -> Result<ChannelId, OpenError> {
        if self.phase > Phase::Established {
            return Err(OpenError::Closed);
        }
        if label.len().max(protocol.len()) > LABEL_BYTES_MAX {
            return Err(OpenError::LabelTooLong);
        }
        let message = dcep::Message::Open { options, label: label.to_owned(), protocol: protocol.to_owned() };
        let payload = Bytes::from(message.write());
        if charge(payload.len()) > self.room() {
            self.events.wants_room = true;
            return Err(OpenError::Full);
        }
        let stream = self.free_stream().ok_or(OpenError::TooMany)?;
        self.channels.open.insert(stream, Channel::new(options, true));
        self.push_dcep(stream, payload);
        self.settle(now);
        Ok(ChannelId(stream))
    }

    /// Returns a free stream. Even stream numbers belong to the DTLS client (RFC 8832 §6).
    fn free_stream(&self) -> Option<u16> {
        if self.channels.len() >= self.config.channels_max {
            return None;
        }
        let first = match self.role {
            Role::Client => 0,
            Role::Server => 1,
        };
        let end = self.session.as_ref().map_or(STREAMS_MAX, |session| session.agreed.streams);
        let is_free = |stream: &u16| !self.channels.open.contains_key(stream) && !self.resets.has(*stream);
        (first..end).step_by(2).find(is_free)
    }

    /// Drops channels opened before the handshake on streams that the peer does not support.
    pub(super) fn drop_channels_beyond(&mut self) {
        let end = self.session.as_ref().map_or(STREAMS_MAX, |session| session.agreed.streams);
        for stream in self.channels.open.split_off(&end).into_keys() {
            self.queues.reset(stream);
            self.events.push(Event::ChannelClosed(ChannelId(stream)));
        }
    }

    fn push_dcep(&mut self, stream: u16, payload: Bytes) {
        let message = Outgoing { ppid: ppid::DCEP, unordered: false, limit: Limit::Never, payload };
        self.queues.push(stream, message);
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// The reason as a [`SendError`]. After [`SendError::Full`], [`Event::Writable`] follows.
    pub fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        kind: Kind,
        payload: Bytes,
    ) -> Result<(), SendError> {
        let found = self.channels.open.get(&channel.0).filter(|found| found.outgoing == Side::Open);
        let found =
            found.filter(|_| self.phase <= Phase::Established).ok_or(SendError::NoChannel(channel))?;
        let (length, most) = (payload.len(), self.remote.message_bytes_max);
        if most > 0 && figure(length) > most {
            return Err(SendError::TooLong { length, most });
        }
        let buffered = self.buffered();
        if buffered > 0 && buffered.saturating_add(charge(length)) > self.config.send_buffer_bytes {
            self.events.wants_room = true;
            return Err(SendError::Full);
        }
        let unordered = found.options.unordered && !found.opening;
        let limit = Limit::new(now, found.options.reliability);
        let is_empty = payload.is_empty();
        let payload = if is_empty { Bytes::from_static(&[0]) } else { payload };
        let number = number_of(kind, is_empty);
        self.queues.push(channel.0, Outgoing { ppid: number, unordered, limit, payload });
        count(&mut self.stats.messages.sent, 1);
        count(&mut self.stats.bytes.sent, figure(length));
        Ok(())
    }

    /// Closes a channel once everything sent on it has been acknowledged. [`Event::ChannelClosed`] follows.
    pub fn close_channel(&mut self, now: Instant, channel: ChannelId) {
        let found = self.channels.get_mut(channel.0).filter(|found| found.outgoing == Side::Open);
        if let Some(found) = found {
            found.outgoing = Side::Closing;
            self.resets.want(channel.0);
            self.settle(now);
        }
    }

    /// Removes a channel if it is closed in both directions.
    pub(super) fn finish_channel(&mut self, stream: u16) {
        let is_over = self
            .channels
            .open
            .get(&stream)
            .is_some_and(|channel| (channel.outgoing, channel.incoming) == (Side::Reset, Side::Reset));
        if is_over {
            self.channels.open.remove(&stream);
            self.events.push(Event::ChannelClosed(ChannelId(stream)));
        }
    }

    /// Handles a complete message; messages are passed in delivery order.
    pub(super) fn handle_message(&mut self, now: Instant, message: inbound::Message) {
        let stream = message.stream;
        if message.ppid == ppid::DCEP {
            return self.handle_dcep(now, stream, &message.payload);
        }
        let channel = self.channels.open.get_mut(&stream).filter(|channel| channel.incoming != Side::Reset);
        let (Some(channel), Some((kind, is_empty))) = (channel, kind_of(message.ppid)) else {
            return count(&mut self.stats.refused, 1);
        };
        // A message implies the acknowledgement of the channel (RFC 8832 §6).
        channel.opening = false;
        let payload = if is_empty { Bytes::new() } else { message.payload };
        count(&mut self.stats.messages.received, 1);
        count(&mut self.stats.bytes.received, figure(payload.len()));
        self.events.push(Event::Message { channel: ChannelId(stream), kind, payload });
    }

    fn handle_dcep(&mut self, now: Instant, stream: u16, payload: &[u8]) {
        let has_room = self.channels.len() < self.config.channels_max && !self.resets.has(stream);
        let known = self.channels.open.get_mut(&stream);
        match (dcep::Message::read(payload), known) {
            (Some(dcep::Message::Ack), Some(channel)) => {
                if std::mem::replace(&mut channel.opening, false) {
                    self.events.push(Event::Accepted(ChannelId(stream)));
                }
            }
            (Some(dcep::Message::Open { options, label, protocol }), None) if has_room => {
                self.channels.open.insert(stream, Channel::new(options, false));
                self.push_dcep(stream, Bytes::from(dcep::Message::Ack.write()));
                let opened = Opened { channel: ChannelId(stream), label, protocol, options };
                self.events.push(Event::Opened(Box::new(opened)));
            }
            // Both sides have opened the same stream, because the peer takes the other role's stream numbers, as
            // werift does as DTLS client. The peer waits for an acknowledgement of its own request.
            (Some(dcep::Message::Open { .. }), Some(channel)) if !channel.asked => {
                channel.asked = true;
                let was_opening = std::mem::replace(&mut channel.opening, false);
                self.push_dcep(stream, Bytes::from(dcep::Message::Ack.write()));
                if was_opening {
                    self.events.push(Event::Accepted(ChannelId(stream)));
                }
            }
            // The request exceeds the limit of channels, or the message is malformed: the stream is reset, which
            // closes the channel at the peer.
            (Some(dcep::Message::Open { .. }) | None, None) => {
                count(&mut self.stats.refused, 1);
                self.resets.want(stream);
                self.request_resets(now);
            }
            (Some(dcep::Message::Ack), None) | (Some(dcep::Message::Open { .. }) | None, Some(_)) => {
                count(&mut self.stats.refused, 1);
            }
        }
    }
}
