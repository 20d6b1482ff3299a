//! A connection on a socket of its own: we call, or wait to be called.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ::srt::{CloseReason, Config, Connection, Endpoint, Route, SocketId};
use bytes::Bytes;
use crypto::Seed;
use wire::Datagrams;

use crate::auth::srt::SrtAddress;
use crate::config::SrtSettings;

/// What a [`Line`] has.
#[derive(Debug)]
pub(crate) enum LineEvent {
    /// The peers know each other.
    Connected {
        /// Bytes of the largest message.
        payload_bytes: usize,
    },
    /// A message, at its time.
    Payload(Bytes),
    /// Messages are missing before the next.
    Lost,
    /// The end, with the reason.
    Closed(String),
}

#[derive(Debug)]
enum Stage {
    /// Waits to be called.
    Waiting {
        endpoint: Box<Endpoint<()>>,
        reply: Vec<u8>,
        reply_to: Option<SocketAddr>,
    },
    /// Calls, or was called.
    Open {
        connection: Box<Connection>,
        /// Who called.
        peer: Option<SocketAddr>,
    },
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Line {
    config: Arc<Config>,
    id: SocketId,
    seed: Seed,
    stage: Stage,
}

impl Line {
    /// Calls at once, or waits, as the address says.
    pub(crate) fn new(now: Instant, server: &SrtSettings, address: &SrtAddress, seed: Seed) -> Self {
        let passphrase = address.passphrase.as_ref();
        let config = super::config(server, address.latency, passphrase, address.key_bytes);
        // On a socket of its own any id but zero is unique.
        let id =
            SocketId(1 | u32::try_from(seed.derive("socket id", 0).random().below(1 << 30)).unwrap_or(0));
        let stage = if address.listens {
            let endpoint = Box::new(Endpoint::new(now, &seed.derive("cookies", 0)));
            Stage::Waiting { endpoint, reply: Vec::new(), reply_to: None }
        } else {
            let config = Arc::clone(&config);
            let connection = Box::new(Connection::caller(now, config, id, &address.stream_id, &seed));
            Stage::Open { connection, peer: None }
        };
        Self { config, id, seed, stage }
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        match &mut self.stage {
            Stage::Waiting { endpoint, reply, reply_to } => {
                reply.clear();
                match endpoint.route(now, from, datagram, reply) {
                    Route::Reply => *reply_to = Some(from),
                    Route::New(incoming) => {
                        let mut connection = Connection::incoming(now, *incoming, self.id, &self.seed);
                        match connection.unlock(&self.config) {
                            Ok(()) => connection.accept(now, Arc::clone(&self.config)),
                            Err(reason) => connection.reject(now, reason),
                        }
                        self.stage = Stage::Open { connection: Box::new(connection), peer: Some(from) };
                    }
                    Route::Session(()) | Route::Drop(_) => {}
                }
            }
            Stage::Open { connection, peer } => {
                // A socket that calls is connected: the system has looked at the address.
                if peer.is_none_or(|peer| peer == from) {
                    connection.handle_datagram(now, datagram);
                }
            }
            Stage::Over => {}
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Stage::Open { connection, .. } = &mut self.stage {
            connection.handle_timeout(now);
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<LineEvent> {
        let Stage::Open { connection, .. } = &mut self.stage else { return None };
        match connection.poll_event()? {
            ::srt::Event::Connected(agreed) => {
                Some(LineEvent::Connected { payload_bytes: agreed.payload_max })
            }
            ::srt::Event::Payload(payload) => Some(LineEvent::Payload(payload)),
            ::srt::Event::Skipped(_) => Some(LineEvent::Lost),
            ::srt::Event::Closed(reason) => Some(LineEvent::Closed(super::words(reason))),
        }
    }

    pub(crate) fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> Option<SocketAddr> {
        match &mut self.stage {
            Stage::Waiting { reply, reply_to, .. } => {
                let to = reply_to.take()?;
                out.push(reply, &[]);
                Some(to)
            }
            Stage::Open { connection, peer } => {
                connection.poll_transmit(now, out);
                *peer
            }
            Stage::Over => None,
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Open { connection, .. } => connection.poll_timeout(),
            Stage::Waiting { .. } | Stage::Over => None,
        }
    }

    /// Room for what is to be sent.
    pub(crate) fn has_send_room(&self) -> bool {
        matches!(&self.stage, Stage::Open { connection, .. } if super::has_room(connection))
    }

    pub(crate) fn send(&mut self, now: Instant, payload: Bytes) {
        if let Stage::Open { connection, .. } = &mut self.stage {
            super::send(connection, now, payload);
        }
    }

    /// Figures, once somebody is there.
    pub(crate) fn stats(&self) -> Option<::srt::Stats> {
        match &self.stage {
            Stage::Open { connection, .. } => Some(connection.stats()),
            Stage::Waiting { .. } | Stage::Over => None,
        }
    }

    /// Says goodbye. What waits for a caller just ends.
    pub(crate) fn close(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Open { connection, .. } => connection.close(now, CloseReason::Local),
            Stage::Waiting { .. } => self.stage = Stage::Over,
            Stage::Over => {}
        }
    }
}
