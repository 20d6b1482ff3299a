//! The permissions and channels of an allocation (RFC 8656 §9, §12).

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ice::stun::{ErrorCode, TransactionId};

use crate::limits::{CHANNEL_LIFETIME, CHANNELS_MAX, PERMISSION_LIFETIME, PERMISSIONS_MAX};

#[derive(Debug)]
struct Channel {
    number: u16,
    told: SocketAddr,
    real: SocketAddr,
    until: Instant,
}

/// Permissions and channels of an allocation.
#[derive(Debug, Default)]
pub(super) struct Routes {
    permissions: Vec<(IpAddr, Instant)>,
    channels: Vec<Channel>,
    /// For real addresses with several announced addresses: pairs of the real address and the announced
    /// address to which the client last sent.
    told: Vec<(SocketAddr, SocketAddr)>,
    indications: u64,
}

impl Routes {
    pub(super) fn is_permitted(&self, now: Instant, ip: IpAddr) -> bool {
        self.permissions.iter().any(|(of, until)| *of == ip && *until > now)
    }

    /// Installs or renews permissions for all of these addresses. Returns false and changes nothing if there
    /// would be too many.
    pub(super) fn permit(&mut self, now: Instant, ips: impl Iterator<Item = IpAddr> + Clone) -> bool {
        self.permissions.retain(|(_, until)| *until > now);
        let mut fresh: Vec<IpAddr> = ips.clone().filter(|ip| !self.is_permitted(now, *ip)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        if self.permissions.len().saturating_add(fresh.len()) > PERMISSIONS_MAX {
            return false;
        }
        let until = now + PERMISSION_LIFETIME;
        self.permissions.extend(fresh.into_iter().map(|ip| (ip, until)));
        for (ip, of) in &mut self.permissions {
            if ips.clone().any(|permitted| permitted == *ip) {
                *of = until;
            }
        }
        true
    }

    /// Binds a channel or renews its binding, which also permits the peer to send.
    pub(super) fn bind(
        &mut self,
        now: Instant,
        number: u16,
        (told, real): (SocketAddr, SocketAddr),
    ) -> Result<(), ErrorCode> {
        self.channels.retain(|channel| channel.until > now);
        let at = self.channels.iter().position(|channel| channel.number == number || channel.told == told);
        let known = at.and_then(|at| self.channels.get(at));
        if known.is_some_and(|channel| channel.number != number || channel.told != told) {
            return Err(ErrorCode::BAD_REQUEST);
        }
        let has_room = at.is_some() || self.channels.len() < CHANNELS_MAX;
        if !has_room || !self.permit(now, std::iter::once(told.ip())) {
            return Err(ErrorCode::INSUFFICIENT_CAPACITY);
        }
        let until = now + CHANNEL_LIFETIME;
        match at.and_then(|at| self.channels.get_mut(at)) {
            Some(channel) => channel.until = until,
            None => self.channels.push(Channel { number, told, real, until }),
        }
        Ok(())
    }

    /// Returns the announced and the real address of a channel's peer; `None` if the peer is not permitted.
    pub(super) fn peer_of(&self, now: Instant, number: u16) -> Option<(SocketAddr, SocketAddr)> {
        let channel = self.channels.iter().find(|channel| channel.number == number && channel.until > now)?;
        self.is_permitted(now, channel.told.ip()).then_some((channel.told, channel.real))
    }

    /// Records that the client has sent to the announced address `told` of the real address `real`.
    pub(super) fn sent(&mut self, told: SocketAddr, real: SocketAddr) {
        if told == real || self.told.first() == Some(&(real, told)) {
            return;
        }
        self.told.retain(|(of, _)| *of != real);
        self.told.truncate(PERMISSIONS_MAX.saturating_sub(1));
        self.told.insert(0, (real, told));
    }

    /// Returns the announced address and the channel for a datagram from the address `real`; `told` iterates
    /// over all its announced addresses. `None` if the peer is not permitted.
    pub(super) fn from(
        &self,
        now: Instant,
        real: SocketAddr,
        told: impl Iterator<Item = SocketAddr>,
    ) -> Option<(SocketAddr, Option<u16>)> {
        let last = self.told.iter().find(|(of, _)| *of == real).map(|(_, told)| *told);
        let told = last.into_iter().chain(told).find(|told| self.is_permitted(now, told.ip()))?;
        let channel = self.channels.iter().find(|channel| channel.told == told && channel.until > now);
        Some((told, channel.map(|channel| channel.number)))
    }

    /// Returns the transaction id of the next indication.
    pub(super) const fn indication_id(&mut self) -> TransactionId {
        self.indications = self.indications.wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = self.indications.to_be_bytes();
        TransactionId([0, 0, 0, 0, a, b, c, d, e, f, g, h])
    }
}
