//! Data channels of a session: an SCTP association over the session's DTLS connection. Allocated only if
//! negotiated.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use sctp::{Association, ChannelId, Kind, OpenError, Options, Role, SendError};

use super::Peer;
use crate::event::Event;
use crate::transport::Transport;

/// Maximum number of packets passed to DTLS in one drain. DTLS has buffers for more.
const PACKETS_PER_DRAIN: usize = 32;
/// Maximum overhead of a DTLS record, in bytes: header, nonce and tag.
const RECORD_BYTES: usize = 13 + 8 + 16;

/// Data channels of a session, described in the module.
#[derive(Debug)]
pub(super) struct Data {
    association: Association,
    /// True if the association may have packets to send.
    is_active: bool,
    packet: Vec<u8>,
}

impl Data {
    pub(super) fn new(
        now: Instant,
        config: &Arc<sctp::Config>,
        dtls_bytes: usize,
        is_client: bool,
        remote: sctp::Remote,
        seed: &Seed,
    ) -> Self {
        // A DTLS record must fit into one datagram.
        let most = dtls_bytes.saturating_sub(RECORD_BYTES) & !3;
        let packet_bytes_max = config.packet_bytes_max.min(most);
        let config = if packet_bytes_max < config.packet_bytes_max {
            Arc::new(sctp::Config { packet_bytes_max, ..sctp::Config::clone(config) })
        } else {
            Arc::clone(config)
        };
        let role = if is_client { Role::Client } else { Role::Server };
        let association = Association::new(now, config, role, remote, &seed.derive("data", 0));
        Self { association, is_active: false, packet: Vec::new() }
    }

    /// Starts the association once DTLS is connected.
    pub(super) fn connect(&mut self, now: Instant) {
        self.is_active = true;
        self.association.connect(now);
    }

    pub(super) fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        self.is_active = true;
        self.association.handle_datagram(now, packet);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.association.poll_timeout().is_some_and(|at| at <= now) {
            self.is_active = true;
            self.association.handle_timeout(now);
        }
    }

    /// Moves packets from the association to DTLS.
    pub(super) fn pump(&mut self, now: Instant, transport: &mut Transport) {
        if !self.is_active || !transport.takes_data() {
            return;
        }
        for _ in 0..PACKETS_PER_DRAIN {
            if !self.association.poll_transmit(now, &mut self.packet) {
                self.is_active = false;
                self.packet = Vec::new();
                return;
            }
            transport.send_data(&self.packet);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = self.association.poll_event()?;
        // Taking a message frees room, so the association may announce a larger window to the peer.
        self.is_active = true;
        Some(match event {
            sctp::Event::Connected => Event::DataConnected,
            sctp::Event::Opened(opened) => Event::ChannelOpened(opened),
            sctp::Event::Accepted(channel) => Event::ChannelAccepted(channel),
            sctp::Event::Message { channel, kind, payload } => Event::Message { channel, kind, payload },
            sctp::Event::ChannelClosed(channel) => Event::ChannelClosed(channel),
            sctp::Event::Writable => Event::DataWritable,
            sctp::Event::Closed(reason) => Event::DataClosed(reason),
            _ => return self.poll_event(),
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.association.poll_timeout()
    }

    /// True if nothing needs to be sent until there is new input.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_active
    }

    pub(super) fn held_bytes(&self) -> usize {
        let (sent, received) = self.association.stats().buffered;
        [size_of::<Self>(), self.packet.capacity(), sent, received].into_iter().fold(0, usize::saturating_add)
    }
}

impl Peer {
    /// True if data channels were negotiated.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Opens a data channel. Messages may be sent immediately, even before the session is
    /// connected.
    ///
    /// # Errors
    ///
    /// Errors of [`sctp::Association::open`]; [`OpenError::Closed`] if no data channels were negotiated.
    pub fn open_channel(
        &mut self,
        now: Instant,
        label: &str,
        protocol: &str,
        options: Options,
    ) -> Result<ChannelId, OpenError> {
        let data = self.data.as_mut().ok_or(OpenError::Closed)?;
        data.is_active = true;
        data.association.open(now, label, protocol, options)
    }

    /// Sends a message on a data channel.
    ///
    /// # Errors
    ///
    /// Errors of [`sctp::Association::send`]. After [`SendError::Full`], [`Event::DataWritable`] follows when there is
    /// room.
    pub fn send_data(
        &mut self,
        now: Instant,
        channel: ChannelId,
        kind: Kind,
        payload: Bytes,
    ) -> Result<(), SendError> {
        let data = self.data.as_mut().ok_or(SendError::NoChannel(channel))?;
        data.is_active = true;
        data.association.send(now, channel, kind, payload)
    }

    /// Closes a data channel once everything sent on it has been received.
    pub fn close_channel(&mut self, now: Instant, channel: ChannelId) {
        if let Some(data) = &mut self.data {
            data.is_active = true;
            data.association.close_channel(now, channel);
        }
    }

    /// Returns the number of bytes that [`Peer::send_data`] accepts before its queue is full.
    #[must_use]
    pub fn data_room(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.association.room())
    }

    /// Returns the figures of the data channels; `None` without data channels.
    #[must_use]
    pub fn data_stats(&self) -> Option<sctp::Stats> {
        Some(self.data.as_ref()?.association.stats())
    }

    /// Creates the data channels once they are negotiated. Later descriptions do not change them.
    pub(super) fn begin_data(&mut self, now: Instant, remote: Option<sctp::Remote>, is_client: bool) {
        let Some(remote) = remote.filter(|_| self.data.is_none()) else { return };
        let mut data = Data::new(now, &self.config.sctp, self.config.dtls.mtu, is_client, remote, &self.seed);
        if self.transport.takes_data() {
            data.connect(now);
        }
        self.data = Some(Box::new(data));
    }

    /// Passes packets received by DTLS to the association.
    pub(super) fn take_packets(&mut self, now: Instant) {
        while let Some(packet) = self.transport.take_data() {
            if let Some(data) = &mut self.data {
                data.handle_packet(now, &packet);
            }
        }
    }

    /// Ends the data channels with the session; received events can still be polled.
    pub(super) fn end_data(&mut self) {
        if let Some(mut data) = self.data.take() {
            self.events.extend(std::iter::from_fn(|| data.poll_event()));
        }
    }
}
