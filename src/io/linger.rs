//! Connections that are closed but not gone: what waits is sent, what the peer still says is read away. Closing a
//! socket with unread bytes makes the kernel reset it, and the peer would lose the goodbye.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::budget::Place;
use super::tls::Transport;

/// How long a connection lingers.
const LINGER: Duration = Duration::from_secs(1);
/// How often lingering connections are looked at.
const PERIOD: Duration = Duration::from_millis(20);
/// Lingering connections; more are closed at once.
const CONNECTIONS_MAX: usize = 1024;

#[derive(Debug)]
struct Lingering {
    transport: Transport,
    until: Instant,
    /// Our side is closed.
    shut: bool,
    _place: Option<Place>,
}

impl Lingering {
    /// Closes our side once all is sent. False when the connection is broken.
    fn shut(&mut self) -> bool {
        if self.shut {
            return true;
        }
        match self.transport.flush() {
            Ok(true) => {
                self.shut = true;
                self.transport.stream().shutdown(Shutdown::Write).is_ok()
            }
            Ok(false) => true,
            Err(_) => false,
        }
    }
}

/// All of a worker.
#[derive(Debug)]
pub(super) struct Lingerers {
    connections: VecDeque<Lingering>,
    due: Instant,
}

impl Lingerers {
    pub(super) const fn new(now: Instant) -> Self {
        Self { connections: VecDeque::new(), due: now }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// When they are to be looked at next.
    pub(super) fn period(&self) -> Option<Duration> {
        (!self.connections.is_empty()).then_some(PERIOD)
    }

    /// Takes a connection over. `ended`: the peer has closed its side, and nothing of it is left to read.
    pub(super) fn add(&mut self, now: Instant, mut transport: Transport, place: Option<Place>, ended: bool) {
        transport.begin_close();
        let mut lingering = Lingering { transport, until: now + LINGER, shut: false, _place: place };
        let whole = lingering.shut();
        if whole && !(ended && lingering.shut) && self.connections.len() < CONNECTIONS_MAX {
            self.connections.push_back(lingering);
        }
    }

    /// Sends on, reads away, forgets.
    pub(super) fn turn(&mut self, now: Instant, buffer: &mut [u8]) {
        if self.connections.is_empty() || now < self.due {
            return;
        }
        self.due = now + PERIOD;
        self.connections.retain_mut(|lingering| {
            now < lingering.until
                && lingering.shut()
                && match lingering.transport.stream_mut().read(buffer) {
                    // Its side is over; ours may not be.
                    Ok(0) => !lingering.shut,
                    Ok(_) => true,
                    Err(error) => {
                        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
                    }
                }
        });
    }
}
