//! An SRT connection on a socket of its own, as caller or as listener.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::srt::{CloseReason, Config, Connection, Endpoint, Route, SocketId};
use bytes::Bytes;
use crypto::Seed;
use wire::Datagrams;

use super::settings::SrtSettings;
use super::url::SrtAddress;

/// Minimum pause between trials of callers' passphrases, each of which costs up to a millisecond. A caller that comes
/// too early is ignored, and calls again.
const TRIAL_PAUSE: Duration = Duration::from_millis(10);

/// Maximum number of queued replies to callers. A caller without a reply calls again.
const REPLIES_MAX: usize = 16;

/// An event of an [`OutboundConnection`].
#[derive(Debug)]
pub(crate) enum OutboundEvent {
    /// The handshake is complete.
    Connected {
        /// Maximum message size in bytes.
        payload_bytes: usize,
    },
    /// A message, delivered at its time.
    Payload(Bytes),
    /// Messages before the next one were lost.
    Lost,
    /// The connection has ended, for this reason.
    Closed(String),
}

#[derive(Debug)]
enum Stage {
    /// Waits for a caller.
    Waiting {
        endpoint: Box<Endpoint<()>>,
        /// Replies to callers, with their destinations.
        replies: VecDeque<(SocketAddr, Vec<u8>)>,
        /// Time before which no caller is tried.
        trial_at: Instant,
    },
    /// The handshake has begun, in either role.
    Open {
        connection: Box<Connection>,
        /// The address of the caller.
        peer: Option<SocketAddr>,
    },
    Over,
}

/// An SRT connection on a socket of its own.
#[derive(Debug)]
pub(crate) struct OutboundConnection {
    config: Arc<Config>,
    id: SocketId,
    seed: Seed,
    stage: Stage,
}

impl OutboundConnection {
    /// Calls the peer immediately or waits for a caller, as the address says.
    pub(crate) fn new(now: Instant, server: &SrtSettings, address: &SrtAddress, seed: Seed) -> Self {
        let config = super::config_of_address(server, address);
        // On its own socket, any id but zero is unique.
        let id =
            SocketId(1 | u32::try_from(seed.derive("socket id", 0).random().below(1 << 30)).unwrap_or(0));
        let stage = if address.listens {
            let endpoint = Box::new(Endpoint::new(now, &seed.derive("cookies", 0)));
            Stage::Waiting { endpoint, replies: VecDeque::new(), trial_at: now }
        } else {
            let config = Arc::clone(&config);
            let connection = Box::new(Connection::caller(now, config, id, &address.stream_id, &seed));
            Stage::Open { connection, peer: None }
        };
        Self { config, id, seed, stage }
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        match &mut self.stage {
            Stage::Waiting { endpoint, replies, trial_at } => {
                let mut reply = Vec::new();
                match endpoint.route(now, from, datagram, &mut reply) {
                    Route::New(incoming) if now >= *trial_at => {
                        *trial_at = now + TRIAL_PAUSE;
                        let caller = incoming.as_ref().clone();
                        let mut connection = Connection::incoming(now, caller, self.id, &self.seed);
                        match connection.unlock(&self.config) {
                            Ok(()) => {
                                connection.accept(now, Arc::clone(&self.config));
                                let connection = Box::new(connection);
                                self.stage = Stage::Open { connection, peer: Some(from) };
                                return;
                            }
                            // This caller does not know the passphrase, so the peer is still awaited.
                            Err(reason) => {
                                tracing::debug!(%from, %reason, "refused a caller");
                                incoming.reject(now, reason, &mut reply);
                            }
                        }
                    }
                    Route::New(_) | Route::Reply | Route::Session(()) | Route::Drop(_) => {}
                }
                if !reply.is_empty() && replies.len() < REPLIES_MAX {
                    replies.push_back((from, reply));
                }
            }
            Stage::Open { connection, peer } => {
                // A socket that calls is connected, so the system has checked the address.
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

    pub(crate) fn poll_event(&mut self) -> Option<OutboundEvent> {
        let Stage::Open { connection, .. } = &mut self.stage else { return None };
        match connection.poll_event()? {
            ::srt::Event::Connected(agreed) => {
                Some(OutboundEvent::Connected { payload_bytes: agreed.payload_max })
            }
            ::srt::Event::Payload(payload) => Some(OutboundEvent::Payload(payload)),
            ::srt::Event::Skipped(_) => Some(OutboundEvent::Lost),
            ::srt::Event::Closed(reason) => Some(OutboundEvent::Closed(super::words(reason))),
        }
    }

    pub(crate) fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> Option<SocketAddr> {
        match &mut self.stage {
            Stage::Waiting { replies, .. } => {
                let (to, reply) = replies.pop_front()?;
                out.push(&reply, &[]);
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

    /// True if there is room for another unit to send.
    pub(crate) fn has_send_room(&self) -> bool {
        matches!(&self.stage, Stage::Open { connection, .. } if super::has_room(connection))
    }

    pub(crate) fn send(&mut self, now: Instant, payload: Bytes) {
        if let Stage::Open { connection, .. } = &mut self.stage {
            super::send(connection, now, payload);
        }
    }

    /// Returns the statistics, once there is a connection.
    pub(crate) fn stats(&self) -> Option<::srt::Stats> {
        match &self.stage {
            Stage::Open { connection, .. } => Some(connection.stats()),
            Stage::Waiting { .. } | Stage::Over => None,
        }
    }

    /// Closes the connection. A listener without a caller just ends.
    pub(crate) fn close(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Open { connection, .. } => connection.close(now, CloseReason::Local),
            Stage::Waiting { .. } => self.stage = Stage::Over,
            Stage::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ::srt::{Event, Passphrase, RejectReason};

    use super::*;
    use crate::auth::access::Secret;

    /// Lets a caller call from this port until neither side sends any more. Returns the caller's events.
    fn call(connection: &mut OutboundConnection, now: Instant, port: u16, passphrase: &str) -> Vec<Event> {
        let from = SocketAddr::from(([192, 0, 2, 1], port));
        let passphrase = Some(Passphrase::new(passphrase).unwrap());
        let config = Arc::new(Config { passphrase, ..Config::default() });
        let mut caller = Connection::caller(now, config, SocketId(7), "", &Seed::from_number(port.into()));
        let mut out = Datagrams::new();
        while caller.poll_transmit(now, &mut out) {
            (0..out.len()).for_each(|n| connection.handle_datagram(now, from, out.get(n)));
            // Datagrams that follow immediately do not discard the answer.
            connection.handle_datagram(now, ([192, 0, 2, 2], 9).into(), b"noise");
            let mut answers = Datagrams::new();
            if connection.poll_datagrams(now, &mut answers) == Some(from) {
                (0..answers.len()).for_each(|n| caller.handle_datagram(now, answers.get(n)));
            }
            out.clear();
        }
        std::iter::from_fn(|| caller.poll_event()).collect()
    }

    #[test]
    fn a_caller_without_the_passphrase_is_refused_and_the_peer_still_waited_for() {
        let now = Instant::now();
        let passphrase = Some(Secret::new("the right one"));
        let address = SrtAddress { listens: true, passphrase, ..SrtAddress::default() };
        let mut connection =
            OutboundConnection::new(now, &SrtSettings::default(), &address, Seed::from_number(1));
        let refused = Event::Closed(CloseReason::Rejected(RejectReason::BADSECRET));
        for n in 0..3u16 {
            let at = now + TRIAL_PAUSE * n.into();
            assert_eq!(call(&mut connection, at, 1000 + n, "the wrong one"), std::slice::from_ref(&refused));
            assert!(connection.poll_event().is_none());
        }
        // Callers are tried one at a time: a caller that calls too early is ignored, and may call again later.
        let at = now + TRIAL_PAUSE * 3;
        assert_eq!(call(&mut connection, at - Duration::from_millis(1), 2000, "the wrong one"), []);
        let events = call(&mut connection, at, 3000, "the right one");
        assert!(matches!(events[..], [Event::Connected(_)]), "{events:?}");
        assert!(matches!(connection.poll_event(), Some(OutboundEvent::Connected { .. })));
    }
}
