//! Counts allocations by network, by user, and in total. Memory use is proportional to the number of
//! allocations.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::allowance::network;
use crate::config::Caps;

/// The limit that another allocation would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The limit of the network or of the user.
    Own,
    /// The total limit.
    Total,
}

/// Network and user for which an allocation is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    network: Option<IpAddr>,
    user: Box<[u8]>,
}

impl Holder {
    /// Creates the holder under which allocations of a user at this address are counted. Loopback addresses
    /// are not counted by network.
    pub(crate) fn new(ip: IpAddr, user: &[u8]) -> Self {
        Self { network: (!ip.is_loopback()).then(|| network(ip)), user: user.into() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    networks: HashMap<IpAddr, u32>,
    users: HashMap<Box<[u8]>, u32>,
    total: u32,
}

impl Quotas {
    /// Checks that another allocation would be within the limits.
    pub(crate) fn check(&self, holder: &Holder, caps: Caps) -> Result<(), Full> {
        let of_network = holder.network.and_then(|network| self.networks.get(&network).copied()).unwrap_or(0);
        let of_user = self.users.get(&holder.user).copied().unwrap_or(0);
        if of_network >= caps.of_network || of_user >= caps.of_user {
            return Err(Full::Own);
        }
        if self.total >= caps.in_total { Err(Full::Total) } else { Ok(()) }
    }

    pub(crate) fn add(&mut self, holder: &Holder) {
        if let Some(network) = holder.network {
            *self.networks.entry(network).or_default() += 1;
        }
        *self.users.entry(holder.user.clone()).or_default() += 1;
        self.total = self.total.saturating_add(1);
    }

    pub(crate) fn subtract(&mut self, holder: &Holder) {
        if let Some(network) = holder.network
            && let Some(count) = self.networks.get_mut(&network)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
        if let Some(count) = self.users.get_mut(&holder.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.users.remove(&holder.user);
            }
        }
        self.total = self.total.saturating_sub(1);
    }

    /// True if nothing is counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.users.is_empty() && self.total == 0
    }
}
