//! SRT: a stream of another server, which we call, or which calls us.

use std::net::SocketAddr;
use std::time::Instant;

use crypto::Seed;
use wire::Datagrams;

use super::{Client, Media, Said};
use crate::auth::srt::SrtAddress;
use crate::protocol::Context;
use crate::protocol::srt::{Line, LineEvent};

/// The client.
#[derive(Debug)]
pub(super) struct Srt {
    address: SrtAddress,
    seed: Seed,
    /// Begins when the socket is there.
    line: Option<Box<Line>>,
}

impl Srt {
    pub(super) fn new(address: &SrtAddress, seed: Seed) -> Self {
        Self { address: address.clone(), seed, line: None }
    }
}

impl Client for Srt {
    fn begin(&mut self, ctx: &Context<'_>) {
        let line = Line::new(ctx.now.mono, &ctx.server.srt, &self.address, self.seed.clone());
        self.line = Some(Box::new(line));
    }

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        if let Some(line) = &mut self.line {
            line.handle_datagram(now, from, datagram);
        }
    }

    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> Option<SocketAddr> {
        self.line.as_mut()?.poll_datagrams(now, out)
    }

    fn waits(&self) -> bool {
        self.address.listens
    }

    fn handle_end(&mut self, now: Instant) {
        self.close(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(line) = &mut self.line {
            line.handle_timeout(now);
        }
    }

    fn poll(&mut self) -> Option<Said> {
        Some(match self.line.as_mut()?.poll_event()? {
            LineEvent::Connected { .. } => Said::Connected,
            LineEvent::Payload(payload) => Said::Media(Media::Payload(payload)),
            LineEvent::Lost => Said::Media(Media::Lost),
            LineEvent::Closed(reason) => Said::Ended(reason),
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.line.as_ref().and_then(|line| line.poll_timeout())
    }

    fn srt_stats(&self) -> Option<::srt::Stats> {
        self.line.as_ref().and_then(|line| line.stats())
    }

    fn close(&mut self, now: Instant) {
        if let Some(line) = &mut self.line {
            line.close(now);
        }
    }

    fn name(&self) -> &'static str {
        "srt-pull"
    }
}
