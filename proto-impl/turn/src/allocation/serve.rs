//! Handles requests of a client with an allocation.

use std::net::SocketAddr;
use std::time::Instant;

use ice::stun::{BINDING, Class, ErrorCode};

use super::{Allocation, CloseReason, Destination, seconds};
use crate::attribute::{CHANNELS, Family, LIFETIME, method};
use crate::endpoint::lifetime;
use crate::request::Request;
use crate::respond::{begin, is_challenge, refuse};

impl Allocation {
    pub(super) fn serve(&mut self, now: Instant, relayed: SocketAddr, request: &Request<'_>) {
        if request.is_request(BINDING) {
            // Clients send Binding requests to keep NAT bindings alive.
            if self.may_answer(now) {
                let client = self.owner.client.address;
                self.answer(|out| {
                    begin(out, request, Class::Success).mapped_address(client).finish_open();
                });
            }
            return;
        }
        let (client, owner) = (self.owner.client.address, &self.owner);
        let known = Some((&*owner.user, owner.key));
        let outcome = match request.authenticate(now, client, (&self.config, &owner.nonces), known) {
            Err(code) => {
                self.stats.refused = self.stats.refused.saturating_add(1);
                if self.may_answer(now) {
                    let nonce = self.owner.nonces.make(self.config.unix(now), client);
                    let realm = self.config.realm.clone();
                    let challenge = is_challenge(code).then_some((realm.as_str(), nonce));
                    self.answer(|out| refuse(out, request, code, None, challenge));
                }
                return;
            }
            Ok(_) if !request.unknown.is_empty() => Err(ErrorCode::UNKNOWN_ATTRIBUTE),
            Ok(_) if request.is_malformed => Err(ErrorCode::BAD_REQUEST),
            Ok(_) => match request.message.method() {
                method::ALLOCATE => self.allocate(now, relayed, request),
                method::REFRESH => self.refresh(now, request),
                method::CREATE_PERMISSION => self.create_permission(now, request),
                method::CHANNEL_BIND => self.bind_channel(now, request),
                _ => Err(ErrorCode::BAD_REQUEST),
            },
        };
        if let Err(code) = outcome {
            self.stats.refused = self.stats.refused.saturating_add(1);
            let key = self.owner.key;
            if self.may_answer(now) {
                self.answer(|out| refuse(out, request, code, Some(key), None));
            }
        }
    }

    fn answer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::with_capacity(128);
        write(&mut out);
        self.queue(Destination::Client, out);
    }

    /// Sends a success answer without attributes.
    fn succeed(&mut self, request: &Request<'_>) {
        let key = self.owner.key;
        self.answer(|out| {
            begin(out, request, Class::Success).finish(&key);
        });
    }

    /// Handles Allocate: a repeated request gets the same answer again, any other is refused (RFC 8656 §7.2).
    fn allocate(
        &mut self,
        now: Instant,
        relayed: SocketAddr,
        request: &Request<'_>,
    ) -> Result<(), ErrorCode> {
        if request.message.transaction_id() != self.asked.id {
            return Err(ErrorCode::ALLOCATION_MISMATCH);
        }
        self.answer_allocate(relayed, self.until.saturating_duration_since(now));
        Ok(())
    }

    /// Handles Refresh (RFC 8656 §8.2).
    fn refresh(&mut self, now: Instant, request: &Request<'_>) -> Result<(), ErrorCode> {
        if request.family.is_some_and(|family| family != Some(self.family)) {
            return Err(ErrorCode::FAMILY_MISMATCH);
        }
        let granted = match request.lifetime {
            Some(0) => None,
            asked => Some(lifetime(asked)),
        };
        let told = granted.map_or(0, seconds);
        let key = self.owner.key;
        self.answer(|out| {
            begin(out, request, Class::Success).attribute(LIFETIME, &told.to_be_bytes()).finish(&key);
        });
        match granted {
            Some(granted) => self.until = now + granted,
            None => self.end(CloseReason::Client),
        }
        Ok(())
    }

    /// Handles CreatePermission: either all of its addresses are permitted, or none (RFC 8656 §10.2).
    fn create_permission(&mut self, now: Instant, request: &Request<'_>) -> Result<(), ErrorCode> {
        if request.peers.is_empty() {
            return Err(ErrorCode::BAD_REQUEST);
        }
        for peer in &request.peers {
            self.check_family(*peer)?;
            if !self.config.peers.allows(peer.ip()) {
                return Err(ErrorCode::FORBIDDEN);
            }
        }
        let ips = request.peers.iter().map(SocketAddr::ip);
        if !self.routes.permit(now, ips) {
            return Err(ErrorCode::INSUFFICIENT_CAPACITY);
        }
        self.succeed(request);
        Ok(())
    }

    /// Handles ChannelBind (RFC 8656 §12.2).
    fn bind_channel(&mut self, now: Instant, request: &Request<'_>) -> Result<(), ErrorCode> {
        let (Some(channel), Some(peer)) = (request.channel, request.peers.first().copied()) else {
            return Err(ErrorCode::BAD_REQUEST);
        };
        if !CHANNELS.contains(&channel) {
            return Err(ErrorCode::BAD_REQUEST);
        }
        self.check_family(peer)?;
        let real = self.config.peers.real(peer).ok_or(ErrorCode::FORBIDDEN)?;
        self.routes.bind(now, channel, (peer, real))?;
        self.succeed(request);
        Ok(())
    }

    fn check_family(&self, peer: SocketAddr) -> Result<(), ErrorCode> {
        if Family::of(peer) == self.family { Ok(()) } else { Err(ErrorCode::FAMILY_MISMATCH) }
    }
}
