//! The directory of a server that is being upgraded (docs/upgrade.md): two processes of one machine, of which the one
//! with the store keeps the claims of both. A state machine.
//!
//! 1. Both processes send requests, as to the directory of a cluster. The answers, and all changes of claims, are
//!    polled as news; each process gets its news in order.
//! 2. The keeper reports commits, so that each process learns of the other's changes.
//! 3. When the other process has ended, the keeper's control ends the claims that are left ([`Request::Bury`]).

use std::collections::{BTreeMap, VecDeque};

use super::{ClaimAnswer, Holder, News, Node, Process, Profile, Request};
use crate::store::{Key, Op};
use crate::types::StreamKey;

/// Side of the socket between the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that has the store.
    Keeper,
    /// The other process.
    Guest,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Keeper, Self::Guest];

    const fn other(self) -> Self {
        match self {
            Self::Keeper => Self::Guest,
            Self::Guest => Self::Keeper,
        }
    }
}

/// The directory; see the module.
#[derive(Debug)]
pub struct Desk {
    keeper: Node,
    /// The other process, while there is one.
    guest: Option<Node>,
    claims: BTreeMap<StreamKey, Holder>,
    /// The largest token so far.
    token: u64,
    news: VecDeque<(Side, News)>,
}

impl Desk {
    /// Makes the directory of one process, with the claims that are held already.
    #[must_use]
    pub fn new(keeper: Node, claims: BTreeMap<StreamKey, Holder>) -> Self {
        let token = claims.values().map(|holder| holder.token).max().unwrap_or(0);
        Self { keeper, guest: None, claims, token, news: VecDeque::new() }
    }

    /// Adds the other process.
    #[must_use]
    pub fn with_guest(mut self, guest: Node) -> Self {
        self.guest = Some(guest);
        self
    }

    /// The claims of both processes.
    #[must_use]
    pub const fn claims(&self) -> &BTreeMap<StreamKey, Holder> {
        &self.claims
    }

    /// The processes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        [&self.keeper].into_iter().chain(&self.guest)
    }

    /// Adds claims that were made before there was a directory.
    pub fn add_claims(&mut self, claims: impl IntoIterator<Item = (StreamKey, Holder)>) {
        for (key, holder) in claims {
            self.token = self.token.max(holder.token);
            self.claims.entry(key).or_insert(holder);
        }
    }

    /// Handles the end of the other process.
    pub fn guest_left(&mut self) {
        if self.guest.take().is_some() {
            self.tell_nodes();
        }
    }

    /// Handles a request of either process. [`Request::Burn`] is refused here: the owner of the store handles it
    /// before, and reports the result with [`Self::burnt`].
    pub fn handle_request(&mut self, side: Side, request: Request) {
        match request {
            Request::Claim { ticket, key } => self.claim(side, ticket, key),
            Request::Keep { key, token } => self.keep(side, key, token),
            Request::Release { key, token } | Request::Bury { key, token } => {
                if self.has(&key, token) {
                    self.set(key, None);
                } else if !self.claims.contains_key(&key) {
                    // The claim was made at a process that has ended, and this directory does not have it. Report the
                    // id as free.
                    self.tell(side, News::Claim { key, holder: None });
                }
            }
            Request::HandOver { key, token, to: (node, incarnation) } => {
                let is_there = self.nodes().any(|one| one.id == node && one.incarnation == incarnation);
                if is_there && self.has(&key, token) {
                    let token = self.next_token();
                    self.set(key, Some(Holder { token, incarnation, node }));
                }
            }
            Request::Draining(is_draining) => {
                if let Some(node) = self.node_mut(side) {
                    node.profile.is_draining = is_draining;
                }
                self.tell_nodes();
            }
            Request::Present(subscribed) => {
                let Some(Node { id, incarnation, .. }) = self.node(side).cloned() else { return };
                let presence = super::Presence { node: id, incarnation, subscribed };
                self.tell_both(&News::Present(presence));
            }
            Request::Burn { ticket, .. } => self.tell(side, News::Burnt { ticket, is_burnt: false }),
            Request::Load { .. } | Request::Refill(_) | Request::Forget(_) | Request::Paired(_) => {}
        }
    }

    /// Reports a process's commit to the other process.
    pub fn committed(&mut self, side: Side, ops: &[Op]) {
        if !ops.is_empty() {
            self.tell(side.other(), News::Foreign(ops.to_vec()));
        }
    }

    /// Reports whether a process's request has used up a token.
    pub fn burnt(&mut self, side: Side, ticket: u64, key: Key, is_burnt: bool) {
        if is_burnt {
            self.committed(side, &[Op::Delete(key)]);
        }
        self.tell(side, News::Burnt { ticket, is_burnt });
    }

    /// Reports the list of processes to both of them.
    pub fn tell_nodes(&mut self) {
        let nodes: Vec<Node> = self.nodes().cloned().collect();
        self.tell_both(&News::Nodes(nodes));
    }

    /// Returns the next news, and the process that gets it.
    pub fn poll_news(&mut self) -> Option<(Side, News)> {
        self.news.pop_front()
    }

    fn node(&self, side: Side) -> Option<&Node> {
        match side {
            Side::Keeper => Some(&self.keeper),
            Side::Guest => self.guest.as_ref(),
        }
    }

    const fn node_mut(&mut self, side: Side) -> Option<&mut Node> {
        match side {
            Side::Keeper => Some(&mut self.keeper),
            Side::Guest => self.guest.as_mut(),
        }
    }

    fn has(&self, key: &StreamKey, token: u64) -> bool {
        self.claims.get(key).is_some_and(|holder| holder.token == token)
    }

    const fn next_token(&mut self) -> u64 {
        self.token = self.token.saturating_add(1);
        self.token
    }

    /// Grants an id, unless the other process has it.
    fn claim(&mut self, side: Side, ticket: u64, key: StreamKey) {
        let is_of =
            |node: &Node, holder: &Holder| (&node.id, node.incarnation) == (&holder.node, holder.incarnation);
        let other = self.node(side.other());
        let taken = other.filter(|other| self.claims.get(&key).is_some_and(|holder| is_of(other, holder)));
        let answer = match taken {
            Some(other) => ClaimAnswer::Taken(other.id.clone()),
            None => {
                let Some(Node { id, incarnation, .. }) = self.node(side).cloned() else { return };
                let token = self.next_token();
                self.set(key.clone(), Some(Holder { token, incarnation, node: id }));
                ClaimAnswer::Granted(token)
            }
        };
        self.tell(side, News::Answer { ticket, key, answer });
    }

    /// Asserts a claim. Of two claims of an id, the one with the larger token is valid.
    fn keep(&mut self, side: Side, key: StreamKey, token: u64) {
        if self.claims.get(&key).is_some_and(|holder| token > 0 && holder.token > token) {
            let holder = self.claims.get(&key).cloned();
            return self.tell(side, News::Claim { key, holder });
        }
        let Some(Node { id, incarnation, .. }) = self.node(side).cloned() else { return };
        let token = if token == 0 { self.next_token() } else { token };
        self.token = self.token.max(token);
        self.set(key, Some(Holder { token, incarnation, node: id }));
    }

    fn set(&mut self, key: StreamKey, holder: Option<Holder>) {
        match &holder {
            Some(holder) => drop(self.claims.insert(key.clone(), holder.clone())),
            None => drop(self.claims.remove(&key)),
        }
        self.tell_both(&News::Claim { key, holder });
    }

    fn tell_both(&mut self, news: &News) {
        Side::BOTH.into_iter().for_each(|side| self.tell(side, news.clone()));
    }

    fn tell(&mut self, side: Side, news: News) {
        if self.node(side).is_some() {
            self.news.push_back((side, news));
        }
    }
}

impl Node {
    /// Makes a live node with a relay at this address; empty if the address is not known.
    #[must_use]
    pub fn of(process: Process, relay: &str) -> Self {
        let Process { node, incarnation } = process;
        let profile = Profile { relay: relay.into(), ..Profile::default() };
        Self { id: node, incarnation, is_alive: true, profile, silent_ms: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeId;

    fn process(name: &str, incarnation: u64) -> Process {
        Process { node: NodeId::new(name).unwrap(), incarnation }
    }

    fn key(id: &str) -> StreamKey {
        StreamKey::new("live", id)
    }

    fn desk() -> Desk {
        let old = Holder { token: 7, incarnation: 1, node: NodeId::new("old").unwrap() };
        let claims = BTreeMap::from([(key("s"), old)]);
        Desk::new(Node::of(process("new", 2), "127.0.0.1:2"), claims)
            .with_guest(Node::of(process("old", 1), "127.0.0.1:1"))
    }

    fn news(desk: &mut Desk) -> Vec<(Side, News)> {
        std::iter::from_fn(|| desk.poll_news()).collect()
    }

    /// Asks for an id. Returns the answer.
    fn claim(desk: &mut Desk, side: Side, id: &str) -> ClaimAnswer {
        desk.handle_request(side, Request::Claim { ticket: 3, key: key(id) });
        let told = news(desk);
        let Some((to, News::Answer { ticket: 3, answer, .. })) = told.last().cloned() else {
            panic!("{told:?}")
        };
        assert_eq!(to, side);
        answer
    }

    #[test]
    fn an_id_of_the_other_process_is_taken_until_it_is_released() {
        let mut desk = desk();
        let taken = ClaimAnswer::Taken(NodeId::new("old").unwrap());
        assert_eq!(claim(&mut desk, Side::Keeper, "s"), taken);
        assert_eq!(claim(&mut desk, Side::Guest, "s"), ClaimAnswer::Granted(8), "its own");
        desk.handle_request(Side::Guest, Request::Release { key: key("s"), token: 7 });
        assert_eq!(news(&mut desk), [], "that token is no longer valid");
        desk.handle_request(Side::Guest, Request::Release { key: key("s"), token: 8 });
        let free = News::Claim { key: key("s"), holder: None };
        assert_eq!(news(&mut desk), [(Side::Keeper, free.clone()), (Side::Guest, free)]);
        assert_eq!(claim(&mut desk, Side::Keeper, "s"), ClaimAnswer::Granted(9));
    }

    #[test]
    fn a_source_is_handed_over_to_a_process_that_is_there() {
        let mut desk = desk();
        let hand = |token, name: &str, incarnation| {
            let to = (NodeId::new(name).unwrap(), incarnation);
            Request::HandOver { key: key("s"), token, to }
        };
        for refused in [hand(6, "new", 2), hand(7, "new", 3), hand(7, "gone", 2)] {
            desk.handle_request(Side::Guest, refused);
        }
        assert_eq!(news(&mut desk), []);
        desk.handle_request(Side::Guest, hand(7, "new", 2));
        let holder = Some(Holder { token: 8, incarnation: 2, node: NodeId::new("new").unwrap() });
        let moved = News::Claim { key: key("s"), holder };
        assert_eq!(news(&mut desk), [(Side::Keeper, moved.clone()), (Side::Guest, moved)]);
    }

    #[test]
    fn the_claims_of_a_process_that_has_ended_are_free_and_it_hears_nothing() {
        let mut desk = desk();
        desk.guest_left();
        let told = news(&mut desk);
        let [(Side::Keeper, News::Nodes(nodes))] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(nodes.len(), 1);
        assert_eq!(claim(&mut desk, Side::Keeper, "s"), ClaimAnswer::Granted(8));
        desk.committed(Side::Keeper, &[Op::Delete(key("s").into())]);
        desk.guest_left();
        assert_eq!(news(&mut desk), []);
    }

    #[test]
    fn a_claim_that_only_an_earlier_directory_knew_is_reported_as_free() {
        let mut desk = desk();
        desk.handle_request(Side::Keeper, Request::Bury { key: key("lost"), token: 4 });
        assert_eq!(news(&mut desk), [(Side::Keeper, News::Claim { key: key("lost"), holder: None })]);
        desk.handle_request(Side::Keeper, Request::Bury { key: key("s"), token: 4 });
        assert_eq!(news(&mut desk), [], "another claim is valid");
    }

    #[test]
    fn each_process_learns_of_the_others_commits() {
        let mut desk = desk();
        let ops = [Op::Delete(key("s").into())];
        for (side, other) in [(Side::Keeper, Side::Guest), (Side::Guest, Side::Keeper)] {
            desk.committed(side, &ops);
            assert_eq!(news(&mut desk), [(other, News::Foreign(ops.to_vec()))]);
        }
        desk.committed(Side::Guest, &[]);
        desk.burnt(Side::Guest, 4, key("t").into(), false);
        assert_eq!(news(&mut desk), [(Side::Guest, News::Burnt { ticket: 4, is_burnt: false })]);
    }

    #[test]
    fn the_claim_with_the_largest_token_wins() {
        let mut desk = desk();
        desk.handle_request(Side::Keeper, Request::Keep { key: key("s"), token: 3 });
        assert_eq!(desk.claims()[&key("s")].token, 7);
        desk.handle_request(Side::Keeper, Request::Keep { key: key("s"), token: 0 });
        assert_eq!((desk.claims()[&key("s")].token, &*desk.claims()[&key("s")].node.to_string()), (8, "new"));
    }
}
