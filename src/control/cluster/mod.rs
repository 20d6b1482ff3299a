//! The cluster as known to this node: the other nodes, and the node that publishes each id (docs/cluster.md). A state
//! machine: its input is the directory's news, its output is requests to the directory. A single server grants every
//! claim itself.
//!
//! Claims of this node go through `asked -> held -> released`. Each is identified by the ticket of the admission or
//! source that made it. A claim granted while the directory was unreachable has token 0 until the directory is back.

mod foreign;
mod handover;
mod news;
mod orphans;
mod pair;
mod present;
mod regions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::orphans::Orphans;
pub(in crate::control) use self::pair::Unclaimed;
use self::present::Present;
use super::admission::Ticket;
use super::records::auxiliary::Vod;
use crate::config::WithoutDirectory;
use crate::directory::{ClaimAnswer, Holder, Node, Request};
use crate::store::Key;
use crate::types::{NodeId, PullId, StreamId, StreamKey};

/// Maximum number of claims of gone nodes that the directory is asked to end at a time.
const BURIED_AT_ONCE: usize = 1000;

/// The membership of this node in a cluster, and the cluster's state at the start.
#[derive(Debug, Clone)]
pub struct Membership {
    /// The name of this node.
    pub node: NodeId,
    /// Number of this run of the node's process.
    pub incarnation: u64,
    /// Time without renewal after which a node counts as gone.
    pub lease: Duration,
    /// Treatment of publishers while the directory is unreachable.
    pub without_directory: WithoutDirectory,
    /// The nodes at the start.
    pub nodes: Vec<Node>,
    /// The claims at the start.
    pub claims: BTreeMap<StreamKey, Holder>,
    /// True if the only other node is an older process of this server, from which this one takes over.
    pub is_pair: bool,
}

impl Membership {
    /// True if another live node may hold a stream without a claim: while a lost publisher may still return to a
    /// stream, the stream's claim is released.
    pub(in crate::control) fn may_wait_elsewhere(&self, key: &StreamKey) -> bool {
        let is_other = |node: &Node| node.is_alive && node.id != self.node;
        !self.claims.contains_key(key) && self.nodes.iter().any(is_other)
    }

    /// True if another live node holds the id.
    pub(in crate::control) fn has_elsewhere(&self, key: &StreamKey) -> bool {
        let Some(holder) = self.claims.get(key) else { return false };
        let is_it = |node: &Node| node.id == holder.node && node.incarnation == holder.incarnation;
        holder.node != self.node && self.nodes.iter().any(|node| node.is_alive && is_it(node))
    }
}

/// The immediate result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control) enum Claim {
    /// The id may be published by this node.
    Granted,
    /// The directory was asked; its answer follows.
    Asked,
    /// The directory is unreachable, and publishers are refused while this is so.
    Refused,
}

/// The node that has a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The node.
    pub node: NodeId,
    /// The host of the node's relay.
    pub host: String,
    /// The port of the node's relay.
    pub port: u16,
}

impl Location {
    /// Returns the relay of a node; `None` if the node has none.
    fn of(node: &Node) -> Option<Self> {
        let (host, port) = node.profile.relay.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { node: node.id.clone(), host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// A claim held by this node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    key: StreamKey,
    /// Fencing token of the claim; 0 if the directory does not know of the claim yet.
    token: u64,
}

#[derive(Debug)]
struct Own {
    node: NodeId,
    incarnation: u64,
    lease: Duration,
    without_directory: WithoutDirectory,
    is_pair: bool,
    /// The live relays of this node's region, as of the last call of [`Cluster::have_relays_changed`].
    relays: Vec<regions::Relay>,
    orphans: Orphans,
}

impl Own {
    fn new(
        node: NodeId,
        incarnation: u64,
        lease: Duration,
        without_directory: WithoutDirectory,
        is_pair: bool,
    ) -> Self {
        let (relays, orphans) = (Vec::new(), Orphans::new());
        Self { node, incarnation, lease, without_directory, is_pair, relays, orphans }
    }
}

/// The state of the cluster as known to this node.
#[derive(Debug, Default)]
pub(in crate::control) struct Cluster {
    own: Option<Own>,
    nodes: BTreeMap<NodeId, Node>,
    /// The claims of all nodes, as the directory has them.
    claims: BTreeMap<StreamKey, Holder>,
    asked: BTreeMap<Ticket, StreamKey>,
    held: BTreeMap<Ticket, Held>,
    /// Tickets of live streams. When a stream ends, its ticket is used to release the claim.
    of_streams: BTreeMap<StreamId, Ticket>,
    /// Tickets of sources.
    of_sources: BTreeMap<PullId, Ticket>,
    /// Number of tickets issued.
    numbers: u64,
    /// Tickets that have asked for an id or hold it, by id.
    tickets: BTreeMap<StreamKey, BTreeSet<Ticket>>,
    /// Ids whose holders are gone, and whose claims the directory was asked to end, with the time of the request. An id
    /// is removed when the directory reports the claim's end, or a new claim.
    buried: BTreeMap<StreamKey, Instant>,
    /// Connections of subscribers.
    present: Present,
    is_away: bool,
    /// While the directory was unreachable, or when its clock was set, leases of other nodes may have expired. They may
    /// still be renewed until this time.
    settles_until: Option<Instant>,
    /// Time at which the list of nodes last arrived.
    census: Option<Instant>,
    requests: VecDeque<Request>,
}

/// Effects of the directory's news on this node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::control) struct Changes {
    /// Ids whose location has changed.
    pub(in crate::control) moved: BTreeSet<StreamKey>,
    /// Ids of this node that another node has claimed with a larger token.
    pub(in crate::control) lost: Vec<StreamKey>,
    /// Ids of gone nodes whose claims were ended at this node's request.
    pub(in crate::control) buried: Vec<StreamKey>,
    /// Ids that another node has handed to this one, each with its previous holder.
    pub(in crate::control) given: Vec<(StreamKey, Option<Holder>)>,
}

impl Cluster {
    /// Makes the state at the start.
    pub(in crate::control) fn new(membership: Option<Membership>) -> Self {
        let Some(Membership { node, incarnation, lease, without_directory, nodes, claims, is_pair }) =
            membership
        else {
            return Self::default();
        };
        Self {
            own: Some(Own::new(node, incarnation, lease, without_directory, is_pair)),
            nodes: nodes.into_iter().map(|node| (node.id.clone(), node)).collect(),
            claims,
            ..Self::default()
        }
    }

    /// True if the records are shared with other nodes.
    pub(in crate::control) const fn is_shared(&self) -> bool {
        self.own.is_some()
    }

    /// True if a file is on this node. A file without a recorded node is assumed to be on every node.
    pub(in crate::control) fn has_file(&self, vod: &Vod) -> bool {
        match (&self.own, &vod.node) {
            (Some(own), Some(place)) => own.node.as_str() == place.0,
            (None, _) | (_, None) => true,
        }
    }

    /// Returns all nodes known to the directory, including this node, sorted by name.
    pub(in crate::control) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Returns the other live node that holds an id.
    pub(in crate::control) fn elsewhere(&self, key: &StreamKey) -> Option<&Node> {
        self.node_of(self.claims.get(key)?)
    }

    /// Returns the keys of those streams of the application that other live nodes hold.
    pub(in crate::control) fn live_elsewhere(&self, app: &Arc<str>) -> impl Iterator<Item = &StreamKey> {
        let first = StreamKey { app: Arc::clone(app), id: "".into() };
        let of_app = self.claims.range(first..).take_while(move |(key, _)| key.app == *app);
        of_app.filter(|(_, holder)| self.node_of(holder).is_some()).map(|(key, _)| key)
    }

    /// Returns the relay of the other live node that holds an id; `None` also if that node has no relay.
    pub(in crate::control) fn location(&self, key: &StreamKey) -> Option<Location> {
        Location::of(self.elsewhere(key)?)
    }

    /// Returns the node that holds a claim, if it is alive and not this node.
    fn node_of(&self, holder: &Holder) -> Option<&Node> {
        let is_own = |node: &&Node| self.own.as_ref().is_some_and(|own| own.node == node.id);
        let node = self.nodes.get(&holder.node).filter(|node| !is_own(node))?;
        (node.is_alive && node.incarnation == holder.incarnation).then_some(node)
    }

    fn is_own(&self, holder: &Holder) -> bool {
        self.own.as_ref().is_some_and(|own| own.node == holder.node && own.incarnation == holder.incarnation)
    }

    /// Returns a new ticket.
    pub(in crate::control) fn new_ticket(&mut self) -> Ticket {
        self.numbers = self.numbers.saturating_add(1);
        Ticket::of(self.numbers)
    }

    /// Claims the id of a source. Returns true if the source may begin now; otherwise the directory's answer follows.
    pub(in crate::control) fn claim_source(&mut self, key: &StreamKey, pull: PullId) -> bool {
        if !self.is_shared() {
            return true;
        }
        let ticket = self.new_ticket();
        self.of_sources.insert(pull, ticket);
        self.claim(ticket, key) == Claim::Granted
    }

    /// Returns the source for which a claim was made.
    pub(in crate::control) fn source_of(&self, ticket: Ticket) -> Option<PullId> {
        self.of_sources.iter().find(|(_, asked)| **asked == ticket).map(|(pull, _)| *pull)
    }

    /// Releases the claim of a source that has ended.
    pub(in crate::control) fn release_source(&mut self, pull: PullId) {
        if let Some(ticket) = self.of_sources.remove(&pull) {
            self.release(ticket);
        }
    }

    /// Notes that a live stream uses the claim of this ticket, so that the claim is released when the stream ends.
    pub(in crate::control) fn hold(&mut self, stream: StreamId, ticket: Ticket) {
        if let Some(before) = self.of_streams.insert(stream, ticket) {
            self.release(before);
        }
    }

    /// Releases the claim of a stream that has ended.
    pub(in crate::control) fn release_stream(&mut self, stream: StreamId) {
        if let Some(ticket) = self.of_streams.remove(&stream) {
            self.release(ticket);
        }
    }

    /// True if a live stream of this node has a claim.
    pub(in crate::control) fn has_claim(&self, stream: StreamId) -> bool {
        self.of_streams.contains_key(&stream)
    }

    /// Claims an id for the ticket's admission or source. The claim is tentative during an admission, and held while
    /// the stream lives.
    pub(in crate::control) fn claim(&mut self, ticket: Ticket, key: &StreamKey) -> Claim {
        let Some(own) = &self.own else { return Claim::Granted };
        if !self.is_away {
            self.asked.insert(ticket, key.clone());
            self.tickets.entry(key.clone()).or_default().insert(ticket);
            self.requests.push_back(Request::Claim { ticket: ticket.number(), key: key.clone() });
            return Claim::Asked;
        }
        match own.without_directory {
            WithoutDirectory::Accept => {
                self.held.insert(ticket, Held { key: key.clone(), token: 0 });
                self.tickets.entry(key.clone()).or_default().insert(ticket);
                Claim::Granted
            }
            WithoutDirectory::Refuse => Claim::Refused,
        }
    }

    /// True if no new publisher is admitted because the directory is unreachable.
    pub(in crate::control) fn refuses(&self) -> bool {
        let refuse = |own: &Own| own.without_directory == WithoutDirectory::Refuse;
        self.is_away && self.own.as_ref().is_some_and(refuse)
    }

    /// Releases a claim, or withdraws a pending claim. Does nothing if the ticket has no claim.
    pub(in crate::control) fn release(&mut self, ticket: Ticket) {
        // If a withdrawn claim is granted later, the grant is given back then.
        if let Some(key) = self.asked.remove(&ticket) {
            self.forget(ticket, &key);
        }
        if let Some(Held { key, token }) = self.held.remove(&ticket) {
            self.forget(ticket, &key);
            if !self.is_claimed_here(&key) {
                self.requests.push_back(Request::Release { key, token });
            }
        }
    }

    /// True if a ticket of this node has the id, or has asked for it.
    pub(in crate::control) fn is_claimed_here(&self, key: &StreamKey) -> bool {
        self.tickets.contains_key(key)
    }

    fn forget(&mut self, ticket: Ticket, key: &StreamKey) {
        if let Some(tickets) = self.tickets.get_mut(key) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.tickets.remove(key);
            }
        }
    }

    /// Handles the directory's answer to a claim. Returns the result, or `None` if nobody waits for it any more.
    pub(in crate::control) fn answered(
        &mut self,
        ticket: Ticket,
        key: &StreamKey,
        answer: &ClaimAnswer,
    ) -> Option<Result<(), Claim>> {
        let Some(key) = self.asked.remove(&ticket) else {
            if let ClaimAnswer::Granted(token) = *answer
                && !self.is_claimed_here(key)
            {
                self.requests.push_back(Request::Release { key: key.clone(), token });
            }
            return None;
        };
        match *answer {
            ClaimAnswer::Granted(token) => {
                self.held.insert(ticket, Held { key, token });
                Some(Ok(()))
            }
            ClaimAnswer::Taken(_) => {
                self.forget(ticket, &key);
                Some(Err(Claim::Asked))
            }
            ClaimAnswer::Away => {
                self.forget(ticket, &key);
                self.is_away = true;
                match self.claim(ticket, &key) {
                    Claim::Granted => Some(Ok(())),
                    refused @ (Claim::Asked | Claim::Refused) => Some(Err(refused)),
                }
            }
        }
    }

    /// Notes whether the directory can be reached. When it can be reached again, all held claims are reported to it.
    pub(in crate::control) fn contact(&mut self, now: Instant, is_there: bool) {
        if self.is_away && is_there {
            self.settle(now);
            let keep = |held: &Held| Request::Keep { key: held.key.clone(), token: held.token };
            let mut held: Vec<&Held> = self.held.values().collect();
            held.sort_by(|a, b| (&a.key, b.token).cmp(&(&b.key, a.token)));
            held.dedup_by(|later, first| later.key == first.key);
            self.requests.extend(held.into_iter().map(keep));
        }
        self.is_away = !is_there;
    }

    /// Gives the other nodes the time of a lease to renew their leases, in which none counts as gone.
    fn settle(&mut self, now: Instant) {
        self.settles_until = self.shared_lease().and_then(|lease| now.checked_add(lease));
    }

    /// Sets the valid claim of an id, as reported by the directory.
    pub(in crate::control) fn claim_told(
        &mut self,
        key: StreamKey,
        holder: Option<Holder>,
        changes: &mut Changes,
    ) {
        let before = self.elsewhere(&key).map(|node| node.id.clone());
        match holder {
            Some(holder) if self.is_own(&holder) => {
                self.note_claimed(&key);
                self.buried.remove(&key);
                for ticket in self.tickets.get(&key).into_iter().flatten() {
                    if let Some(held) = self.held.get_mut(ticket) {
                        held.token = held.token.max(holder.token);
                    }
                }
                let giver = self.claims.insert(key.clone(), holder);
                if !self.is_claimed_here(&key) {
                    changes.given.push((key.clone(), giver));
                }
            }
            Some(holder) => {
                self.note_claimed(&key);
                // A held claim without a token is newer than any reported claim; the token has just not arrived yet.
                let mut tickets = self.tickets.get(&key).into_iter().flatten();
                let is_older = |held: &Held| (1..holder.token).contains(&held.token);
                if tickets.any(|ticket| self.held.get(ticket).is_some_and(is_older)) {
                    changes.lost.push(key.clone());
                }
                // If the directory reports the same claim again, it has not yet ended the claim as requested, so the
                // request stands.
                if self.claims.insert(key.clone(), holder.clone()).is_none_or(|before| before != holder) {
                    self.buried.remove(&key);
                }
            }
            None => {
                self.claims.remove(&key);
                let held = self.tickets.get(&key).into_iter().flatten();
                let tokens = held.filter_map(|ticket| self.held.get(ticket)).map(|held| held.token);
                // The directory has lost a claim of this node, or another node has ended it, so this node asserts its
                // claim again.
                if let Some(token) = tokens.max().filter(|token| *token > 0) {
                    self.requests.push_back(Request::Keep { key: key.clone(), token });
                }
                if self.buried.remove(&key).is_some() {
                    changes.buried.push(key.clone());
                }
            }
        }
        if before != self.elsewhere(&key).map(|node| node.id.clone()) {
            changes.moved.insert(key);
        }
    }

    fn note_claimed(&mut self, key: &StreamKey) {
        if let Some(own) = &mut self.own {
            own.orphans.note_claim(key);
        }
    }

    /// Sets all claims, as reported by the directory. An id without a claim is free.
    pub(in crate::control) fn claims_told(&mut self, all: Vec<(StreamKey, Holder)>, changes: &mut Changes) {
        let told: BTreeSet<StreamKey> = all.iter().map(|(key, _)| key.clone()).collect();
        let over = self.claims.keys().filter(|key| !told.contains(*key)).cloned();
        for key in over.collect::<Vec<_>>() {
            self.claim_told(key, None, changes);
        }
        for (key, holder) in all {
            self.claim_told(key, Some(holder), changes);
        }
    }

    /// Lease of the nodes of a cluster; `None` for the two processes of an upgrade, which notice each other's end.
    fn shared_lease(&self) -> Option<Duration> {
        self.own.as_ref().filter(|own| !own.is_pair).map(|own| own.lease)
    }

    /// Sets all nodes known to the directory.
    pub(in crate::control) fn nodes_told(&mut self, now: Instant, mut all: Vec<Node>, changes: &mut Changes) {
        self.settles_until.take_if(|until| *until <= now);
        // The list of nodes arrives several times in one lease. If it was late, the directory may have answered nobody
        // meanwhile, so that the other nodes could not renew their leases either. (The directory of a pair of processes
        // sends the list only when it changes.)
        let before = self.census.replace(now);
        if let Some(lease) = self.shared_lease()
            && before.is_some_and(|before| now.saturating_duration_since(before) > lease / 2)
        {
            self.settles_until = now.checked_add(lease);
        }
        if self.is_away || self.settles_until.is_some() {
            for node in &mut all {
                let before = self.nodes.get(&node.id);
                let is_same = |before: &Node| before.is_alive && before.incarnation == node.incarnation;
                node.is_alive |= before.is_some_and(is_same);
            }
        }
        let life = |node: &Node| (node.is_alive, node.incarnation);
        let before: BTreeMap<NodeId, _> =
            self.nodes.values().map(|node| (node.id.clone(), life(node))).collect();
        let relays: BTreeMap<NodeId, _> =
            self.nodes.values().map(|node| (node.id.clone(), node.profile.relay.clone())).collect();
        self.nodes = all.into_iter().map(|node| (node.id.clone(), node)).collect();
        if self.shared_lease().is_some() {
            self.nodes.values().for_each(|node| note_life(before.get(&node.id).copied(), node));
        }
        let is_same = |id: &NodeId| {
            before.get(id).copied() == self.nodes.get(id).map(life)
                && relays.get(id) == self.nodes.get(id).map(|node| &node.profile.relay)
        };
        let changed: BTreeSet<&NodeId> =
            before.keys().chain(self.nodes.keys()).filter(|id| !is_same(id)).collect();
        if !changed.is_empty() {
            let of_changed = self.claims.iter().filter(|(_, holder)| changed.contains(&holder.node));
            changes.moved.extend(of_changed.map(|(key, _)| key.clone()));
            self.present.forget_earlier(&self.nodes);
            if let Some(own) = &mut self.own {
                own.orphans.note_change();
            }
        }
    }

    /// Asks the directory to end the claims of gone nodes. Only one node asks: the first by name of the live nodes that
    /// are not draining or, if all are draining, of all live nodes. The directory decides, because a claim may belong
    /// to a node that is newer than the list of nodes. At most [`BURIED_AT_ONCE`] requests are without an answer at a
    /// time, because commits wait behind them; a request without an answer for a lease is repeated.
    pub(in crate::control) fn bury(&mut self, now: Instant) {
        let lease = self.own.as_ref().map_or(Duration::ZERO, |own| own.lease);
        let is_awaited = |at: &Instant| now.saturating_duration_since(*at) < lease;
        let room = BURIED_AT_ONCE.saturating_sub(self.buried.values().filter(|at| is_awaited(at)).count());
        let mut gone = self.abandoned();
        gone.retain(|(key, _)| !self.buried.get(key).is_some_and(is_awaited));
        for (key, token) in gone.into_iter().take(room) {
            self.buried.insert(key.clone(), now);
            self.requests.push_back(Request::Bury { key, token });
        }
    }

    /// True if all requests to end claims are answered.
    pub(in crate::control) fn has_buried_all(&self) -> bool {
        self.buried.is_empty()
    }

    /// True if this node cleans up after nodes that are gone.
    fn is_cleaner(&self) -> bool {
        let is_sure = !self.is_away && self.settles_until.is_none();
        let mut alive = self.nodes.values().filter(|node| node.is_alive);
        let first = alive.clone().find(|node| !node.profile.is_draining).or_else(|| alive.next());
        let own = self.own.as_ref().filter(|_| is_sure);
        own.is_some_and(|own| first.is_some_and(|first| first.id == own.node))
    }

    fn abandoned(&self) -> Vec<(StreamKey, u64)> {
        if !self.is_cleaner() {
            return Vec::new();
        }
        let is_gone = |holder: &Holder| !self.is_own(holder) && self.node_of(holder).is_none();
        let gone = self.claims.iter().filter(|(_, holder)| is_gone(holder));
        gone.map(|(key, holder)| (key.clone(), holder.token)).collect()
    }

    /// Asks the directory to use up a one-time token, which succeeds only for the first node that asks. Returns false
    /// if the directory is unreachable, so that the token cannot be used up.
    pub(in crate::control) fn burn(&mut self, ticket: Ticket, key: &Key) -> bool {
        if !self.is_away {
            self.requests.push_back(Request::Burn { ticket: ticket.number(), key: key.clone() });
        }
        !self.is_away
    }

    /// Sends the directory a request whose answer arrives as news.
    pub(in crate::control) fn ask(&mut self, request: Request) {
        if self.own.is_some() {
            self.requests.push_back(request);
        }
    }

    /// Reports this node's load in percent, for the list of nodes.
    pub(in crate::control) fn note_load(&mut self, cpu: u8, memory: u8) {
        self.ask(Request::Load { cpu, memory });
    }

    /// Returns the next request to the directory.
    pub(in crate::control) fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Number of claims asked for or held.
    #[cfg(test)]
    pub(in crate::control) fn open(&self) -> usize {
        self.asked.len() + self.held.len()
    }

    /// True if no claim is asked for or held.
    #[cfg(test)]
    pub(in crate::control) fn is_idle(&self) -> bool {
        self.open() == 0
    }

    /// Number of entries in all tables that belong to streams of this node.
    pub(in crate::control) fn held(&self) -> usize {
        let claims = self.tickets.len() + self.asked.len() + self.held.len();
        claims + self.of_streams.len() + self.of_sources.len() + self.requests.len() + self.present.told.len()
    }
}

/// Logs that another node is lost, or back. `before` is its life in the list before: whether it was alive, and its
/// incarnation.
fn note_life(before: Option<(bool, u64)>, node: &Node) {
    let (id, silent_ms) = (node.id.as_str(), node.silent_ms);
    match (before, node.is_alive) {
        // At its shutdown a node removes its lease, and with it its incarnation.
        (Some((true, _)), false) if node.incarnation == 0 => tracing::info!(node = id, "node shut down"),
        (Some((true, _)), false) => tracing::warn!(node = id, silent_ms, "node lost: its lease has expired"),
        (Some((false, _)), true) => tracing::info!(node = id, "node is back"),
        (Some((true, incarnation)), true) if incarnation != node.incarnation => {
            tracing::info!(node = id, "node has restarted");
        }
        (Some(_) | None, _) => {}
    }
}
