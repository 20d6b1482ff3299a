//! Claims of ids in a cluster: an admission waits for the directory, then continues or ends; newer claims win.

use super::*;
use crate::auth::access::Denial;
use crate::config::WithoutDirectory;
use crate::directory::{ClaimAnswer, Holder, News, Node, Profile, Request as Asked};
use crate::store::Kind;
use crate::types::NodeId;

pub(super) fn node(name: &str, incarnation: u64, is_alive: bool) -> Node {
    let profile = Profile { relay: format!("{name}.example:7000").into(), ..Profile::default() };
    Node { id: NodeId::new(name).unwrap(), incarnation, is_alive, profile, silent_ms: 0 }
}

pub(super) fn holder(name: &str, incarnation: u64, token: u64) -> Holder {
    Holder { node: NodeId::new(name).unwrap(), incarnation, token }
}

/// Membership of the node `b` in a cluster of `b` and `c`.
pub(super) fn membership(without_directory: WithoutDirectory) -> Membership {
    Membership {
        node: NodeId::new("b").unwrap(),
        incarnation: 1,
        lease: Duration::from_secs(5),
        without_directory,
        nodes: vec![node("b", 1, true), node("c", 1, true)],
        claims: Default::default(),
        is_pair: false,
    }
}

impl Rig {
    pub(super) fn in_cluster(app: &[(&str, &str)], without: WithoutDirectory) -> Self {
        Self::start(ControlConfig { cluster: Some(membership(without)), ..config(&[], app) }, Memory::new())
    }

    pub(super) fn with_directory(app: &[(&str, &str)]) -> Self {
        Self::in_cluster(app, WithoutDirectory::Accept)
    }

    pub(super) fn tell_news(&mut self, news: News) {
        self.control.handle_directory(self.now, news);
        self.drain();
    }

    /// Returns the requested claims, in order.
    pub(super) fn asked_claims(&self) -> Vec<(u64, StreamKey)> {
        let of = |asked: &Asked| match asked {
            Asked::Claim { ticket, key } => Some((*ticket, key.clone())),
            _ => None,
        };
        self.asked.iter().filter_map(of).collect()
    }

    /// Returns the last requested claim, and the number of requests.
    pub(super) fn last_claim(&self) -> (u64, usize) {
        let all = self.asked_claims();
        (all.last().unwrap().0, all.len())
    }

    /// Counts claims that were neither refused nor released.
    pub(super) fn open_claims(&self) -> usize {
        let cluster = &self.control.registry.cluster;
        assert_eq!(cluster.is_idle(), cluster.held() == 0, "no table keeps what is over");
        cluster.open()
    }

    /// Returns the tokens of the claims that the directory was asked to end.
    fn burials(&mut self) -> Vec<u64> {
        let of = |asked: Asked| match asked {
            Asked::Bury { token, .. } => Some(token),
            _ => None,
        };
        std::mem::take(&mut self.asked).into_iter().filter_map(of).collect()
    }

    /// Asserts that the node `c`, whose lease has expired, keeps the id for another lease.
    fn takes_time(&mut self, key: &StreamKey) {
        let dead = || News::Nodes(vec![node("b", 1, true), node("c", 1, false)]);
        for _ in 0..5 {
            self.tell_news(dead());
            assert!(self.control.registry.cluster.location(key).is_some() && self.burials().is_empty());
            self.run_for(Duration::from_secs(1));
        }
        self.tell_news(dead());
        assert_eq!((self.control.registry.cluster.location(key), self.burials()), (None, vec![7]));
    }

    fn releases(&self) -> Vec<u64> {
        let of = |asked: &Asked| match asked {
            Asked::Release { token, .. } => Some(*token),
            _ => None,
        };
        self.asked.iter().filter_map(of).collect()
    }

    /// Sends a publish request whose verdict comes later.
    fn begin(&mut self, id: &str) -> SessionRef {
        let request = self.request(id, 0);
        let session = request.session;
        self.mail(ToControl::Publish(request));
        session
    }

    /// Answers a claim. A granted claim gets a token that is ten times its ticket.
    pub(super) fn claim_answer(&mut self, ticket: u64, granted: bool) {
        let key = self.asked_claims().into_iter().find(|(asked, _)| *asked == ticket).unwrap().1;
        let answer = if granted {
            ClaimAnswer::Granted(ticket * 10)
        } else {
            ClaimAnswer::Taken(node("c", 1, true).id)
        };
        self.tell_news(News::Answer { ticket, key, answer });
    }

    /// Publishes with a granted claim.
    pub(super) fn publish_claimed(&mut self, id: &str) -> (SessionRef, StreamId) {
        let session = self.begin(id);
        let ticket = self.last_claim().0;
        self.claim_answer(ticket, true);
        let stream = self.late_verdict(session).unwrap().unwrap();
        (session, stream)
    }

    fn late_verdict(&mut self, session: SessionRef) -> Option<Result<StreamId, Refusal>> {
        let is_it = |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::Verdict { conn, .. } if *conn == session.conn);
        let at = self.posted.iter().position(is_it)?;
        let (_, ToWorker::Verdict { verdict, .. }) = self.posted.remove(at) else { return None };
        Some(verdict.map(|grant| grant.stream))
    }
}

#[test]
fn a_late_yes_begins_the_stream_and_its_end_gives_the_id_back() {
    let mut rig = Rig::with_directory(&[]);
    let session = rig.begin("s");
    assert_eq!(rig.late_verdict(session), None);
    assert!(rig.control.registry.find(&StreamKey::new("live", "s")).is_none(), "nothing is reserved");
    rig.run_for(Duration::from_secs(7));
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, true);
    let stream = rig.late_verdict(session).unwrap().unwrap();
    assert_eq!(rig.open_claims(), 1);
    // Within the grace period the publisher may return here or at another node: the first to ask gets the id.
    rig.gone(session, stream, Departure::Lost, 5);
    assert_eq!(rig.open_claims(), 0);
    let again = rig.begin("s");
    assert_eq!(rig.late_verdict(again), None);
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, true);
    assert_eq!(rig.late_verdict(again), Some(Ok(stream)));
    assert_eq!(rig.open_claims(), 1);
    rig.gone(again, stream, Departure::Clean, 6);
    assert_eq!(rig.open_claims(), 0);
}

#[test]
fn a_no_is_a_refusal() {
    let mut rig = Rig::with_directory(&[]);
    let session = rig.begin("s");
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, false);
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::InUse)));
    assert_eq!(rig.open_claims(), 0);
}

#[test]
fn a_directory_that_never_answers_is_not_waited_for_and_its_late_answer_is_nothing() {
    let mut rig = Rig::with_directory(&[]);
    let session = rig.begin("s");
    rig.run_for(Duration::from_millis(7999));
    assert_eq!(rig.late_verdict(session), None);
    rig.run_for(Duration::from_millis(1));
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Resources)));
    assert_eq!(rig.open_claims(), 0, "withdrawn");
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, true);
    assert!(rig.late_verdict(session).is_none() && rig.control.registry.streams().is_empty());
    assert_eq!(rig.releases(), [ticket * 10], "and is given back");
}

#[test]
fn a_publisher_that_goes_while_its_claim_is_asked_leaves_nothing() {
    let mut rig = Rig::with_directory(&[]);
    let session = rig.begin("s");
    rig.mail(ToControl::PublishAbandoned(session));
    assert_eq!(rig.open_claims(), 0);
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, true);
    assert!(rig.late_verdict(session).is_none() && rig.control.registry.streams().is_empty());
    assert_eq!(rig.control.access.admissions.len(), 0);
}

#[test]
fn what_changed_while_a_claim_was_asked_counts() {
    let mut rig = Rig::with_directory(&[]);
    rig.create("s");
    // Of two requests for one id, the one whose claim is granted first gets the id; the claim of the other is
    // released.
    let (one, two) = (rig.begin("s"), rig.begin("s"));
    let second = rig.last_claim().0;
    rig.claim_answer(second, true);
    assert!(matches!(rig.late_verdict(two), Some(Ok(_))));
    let first = rig.asked_claims()[0].0;
    rig.claim_answer(first, true);
    assert_eq!(rig.late_verdict(one), Some(Err(Refusal::InUse)));
    assert_eq!(rig.open_claims(), 1);
    // The start of the server's shutdown ends waiting admissions.
    let third = rig.begin("t");
    rig.control.drain(rig.now);
    rig.drain();
    assert_eq!(rig.late_verdict(third), Some(Err(Refusal::Draining)));
    assert_eq!(rig.open_claims(), 0);
}

#[test]
fn nobody_is_asked_about_who_has_no_token_and_the_id_is_claimed_behind_the_hook() {
    let hook = ("webhookAuthenticateURL", "http://auth.example/may");
    let mut rig = Rig::with_directory(&[hook, ("publishTokenControlEnabled", "true")]);
    let session = rig.begin("s");
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Denied(Denial::Token))));
    assert!(rig.asked_claims().is_empty() && rig.hooks.is_empty());
    // The id is claimed only when the receiver has allowed the publisher: a claim ends the grace period of the stream
    // at another node.
    let mut rig = Rig::with_directory(&[hook]);
    for status in [403, 200] {
        let session = rig.begin("s");
        rig.run_for(Duration::from_secs(3));
        let asked = rig.hooks.pop().unwrap();
        assert!(rig.asked_claims().is_empty() && rig.open_claims() == 0);
        rig.done(asked.id, Outcome::Posted(Ok(status)));
        if status == 403 {
            assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Denied(Denial::Hook))));
            assert!(rig.asked_claims().is_empty());
            continue;
        }
        let ticket = rig.last_claim().0;
        rig.run_for(Duration::from_secs(4));
        rig.claim_answer(ticket, true);
        assert!(matches!(rig.late_verdict(session), Some(Ok(_))));
    }
}

/// The viewers of another node, where the publisher was before, follow the claim here before the stream begins.
#[test]
fn viewers_wait_for_a_stream_whose_publisher_has_the_claim_and_is_not_admitted_yet() {
    let mut rig = Rig::with_directory(&[("publishTokenControlEnabled", "true")]);
    let key = StreamKey::new("live", "s");
    let token = r#"{"tokenId":"one","streamId":"s","type":"publish","expireDate":9999999999}"#;
    let token = store::Op::Put(store::Key::new(Kind::Token, "live", "s/one"), token.into());
    rig.tell_news(News::Foreign(vec![token]));
    let refusals = |rig: &mut Rig| {
        rig.take();
        rig.mail(ToControl::Wanted { key: key.clone(), via: Vec::new() });
        rig.take().iter().filter(|(_, mail)| matches!(mail, ToWorker::NotComing(_))).count()
    };
    assert_eq!(refusals(&mut rig), usize::from(WORKERS));
    let mut request = rig.request("s", 0);
    request.params = vec![("token".to_owned(), "one".to_owned())];
    rig.mail(ToControl::Publish(request));
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, true);
    // The directory has not answered yet whether it has used up the token.
    assert_eq!(refusals(&mut rig), 0);
    rig.tell_news(News::Burnt { ticket, is_burnt: false });
    assert_eq!(refusals(&mut rig), usize::from(WORKERS));
}

#[test]
fn a_thousand_admissions_wait_and_no_more() {
    let mut rig = Rig::with_directory(&[("ingestingStreamLimit", "-1")]);
    let sessions: Vec<_> = (0..1001).map(|n| rig.begin(&format!("s{n}"))).collect();
    assert_eq!(rig.late_verdict(sessions[1000]), Some(Err(Refusal::Resources)));
    assert_eq!((rig.control.access.admissions.len(), rig.open_claims()), (1000, 1000));
    rig.mail(ToControl::PublishAbandoned(sessions[0]));
    let next = rig.begin("next");
    assert_eq!((rig.late_verdict(next), rig.open_claims()), (None, 1000));
}

#[test]
fn a_newer_claim_of_another_node_closes_the_publisher_here_and_leaves_the_record_to_it() {
    let mut rig = Rig::with_directory(&[]);
    rig.create("s");
    let (_, stream) = rig.publish_claimed("s");
    let token = rig.last_claim().0 * 10;
    let key = StreamKey::new("live", "s");
    // A claim of another node is ignored if it is older than that of this node.
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, token - 1)) });
    assert_eq!(rig.control.registry.find(&key), Some(stream));
    rig.take();
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, token + 1)) });
    let closed = |mail: &ToWorker| matches!(mail, ToWorker::Replaced { stream: of, .. } if *of == stream);
    assert_eq!(rig.take().iter().filter(|(_, mail)| closed(mail)).count(), 1);
    // The viewers stay, and get the other node's stream.
    assert!(rig.control.outbound.is_copy(&rig.control.registry, &key));
    assert_eq!((rig.control.registry.find(&key), rig.open_claims()), (Some(stream), 0));
    // A publisher that arrives here now needs a new claim.
    let again = rig.begin("s");
    assert_eq!(rig.late_verdict(again), None);
    let ticket = rig.last_claim().0;
    rig.claim_answer(ticket, false);
    assert_eq!(rig.late_verdict(again), Some(Err(Refusal::InUse)));
    let record = rig.control.records.get(&key).unwrap();
    assert_eq!(record.effective_status(rig.now), "broadcasting", "it is, at the other node");
    let location = rig.control.registry.cluster.location(&key).unwrap();
    assert_eq!((location.node.as_str(), &*location.host, location.port), ("c", "c.example", 7000));
    rig.run_for(Duration::from_secs(60));
    assert_eq!(rig.control.records.get(&key).unwrap().effective_status(rig.now), "broadcasting");
    assert_eq!(rig.control.registry.find(&key), None, "nothing came from there");
}

/// A node dies, and its lease expires before its publisher has reached another node.
#[test]
fn viewers_of_a_copy_wait_a_while_for_some_node_to_have_its_stream() {
    let mut rig = Rig::with_directory(&[]);
    rig.publish_claimed("s");
    let token = rig.last_claim().0 * 10;
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, token + 1)) });
    rig.tell_news(News::Claim { key: key.clone(), holder: None });
    assert!(rig.control.registry.cluster.location(&key).is_none());
    let asked = rig.resolves.pop().unwrap();
    rig.done(asked.id, Outcome::Resolved(Err("no such host".to_owned())));
    assert!(rig.control.outbound.is_copy(&rig.control.registry, &key));
    rig.run_for(Duration::from_secs(12));
    assert_eq!(rig.control.registry.find(&key), None);
}

#[test]
fn without_a_relay_a_stream_that_another_node_has_ends_here() {
    let mut rig = Rig::with_directory(&[]);
    let (_, stream) = rig.publish_claimed("s");
    let token = rig.last_claim().0 * 10;
    let key = StreamKey::new("live", "s");
    let silent = Node { profile: Profile::default(), ..node("c", 1, true) };
    rig.tell_news(News::Nodes(vec![node("b", 1, true), silent]));
    rig.take();
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, token + 1)) });
    let ended = |mail: &ToWorker| matches!(mail, ToWorker::StreamDown { stream: of, end: StreamEnd::Superseded } if *of == stream);
    assert_eq!(rig.take().iter().filter(|(_, mail)| ended(mail)).count(), usize::from(WORKERS));
    assert_eq!((rig.control.registry.find(&key), rig.open_claims()), (None, 0));
}

#[test]
fn while_the_directory_is_away_publishers_are_let_in_and_claimed_afterwards_or_refused() {
    let mut rig = Rig::in_cluster(&[], WithoutDirectory::Refuse);
    rig.tell_news(News::Contact(false));
    let session = rig.begin("s");
    let refused =
        |verdict| matches!(verdict, Some(Err(Refusal::NotAllowed(why))) if str::contains(why, "directory"));
    assert!(refused(rig.late_verdict(session)) && rig.asked_claims().is_empty());
    // The directory becomes unreachable while a claim is pending.
    rig.tell_news(News::Contact(true));
    let session = rig.begin("s");
    let (ticket, key) = rig.asked_claims().pop().unwrap();
    rig.tell_news(News::Answer { ticket, key, answer: ClaimAnswer::Away });
    assert!(refused(rig.late_verdict(session)));

    let mut rig = Rig::in_cluster(&[], WithoutDirectory::Accept);
    rig.publish_claimed("before");
    let token = rig.last_claim().0 * 10;
    rig.tell_news(News::Contact(false));
    let session = rig.begin("s");
    assert!(matches!(rig.late_verdict(session), Some(Ok(_))));
    rig.asked.clear();
    rig.tell_news(News::Contact(true));
    let keep = |id, token| Asked::Keep { key: StreamKey::new("live", id), token };
    assert_eq!(rig.asked, [keep("before", token), keep("s", 0)]);
    // This node has claimed `s` but does not know the claim's token yet. A claim of another node that is reported
    // before the token (51) is older, so it is ignored; one that is reported after it is newer.
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 50)) });
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("b", 1, 51)) });
    assert!(rig.control.registry.is_live(&key) && !rig.control.outbound.is_copy(&rig.control.registry, &key));
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 52)) });
    assert!(rig.control.outbound.is_copy(&rig.control.registry, &key));
}

#[test]
fn the_first_of_the_live_nodes_clears_up_behind_one_that_is_gone() {
    let mut rig = Rig::with_directory(&[]);
    for id in ["s", "t"] {
        rig.create(id);
        let key = StreamKey::new("live", id);
        rig.tell_news(News::Claim { key, holder: Some(holder("c", 1, 7)) });
    }
    let key = StreamKey::new("live", "s");
    let live = Broadcast { status: "broadcasting".into(), ..rig.control.records.get(&key).unwrap().clone() };
    rig.tell_news(News::Foreign(vec![store::Op::Put(key.clone().into(), live.encode())]));
    assert!(rig.control.registry.cluster.location(&key).is_some());
    let status = |rig: &Rig| rig.control.records.get(&key).unwrap().status.clone();
    // Node `c` is dead. The first live node by name ends its claims; that is `a`, so this node (`b`) does nothing.
    rig.tell_news(News::Nodes(vec![node("a", 1, true), node("b", 1, true), node("c", 1, false)]));
    assert_eq!((status(&rig).as_str(), rig.burials()), ("broadcasting", Vec::new()));
    assert_eq!(rig.control.registry.cluster.location(&key), None);
    // Now this node is the first. `c` has restarted, and has thereby given up its claims.
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 2, true)]));
    // The list of nodes may be older than the claims of `c`, so they are not ended before the directory confirms it.
    assert_eq!((status(&rig).as_str(), rig.burials()), ("broadcasting", vec![7, 7]));
    for id in ["s", "t"] {
        rig.tell_news(News::Claim { key: StreamKey::new("live", id), holder: None });
    }
    assert_eq!(status(&rig), "terminated_unexpectedly");
    let other = rig.control.records.get(&StreamKey::new("live", "t")).unwrap();
    assert_eq!(other.status, "created");
}

#[test]
fn leases_that_ran_out_while_the_directory_was_away_are_given_time() {
    let mut rig = Rig::with_directory(&[]);
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
    rig.tell_news(News::Contact(false));
    rig.run_for(Duration::from_secs(60));
    rig.tell_news(News::Contact(true));
    rig.takes_time(&key);
}

#[test]
fn leases_that_seem_to_have_run_out_because_the_directory_s_clock_was_set_are_given_time() {
    let mut rig = Rig::with_directory(&[]);
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, true)]));
    rig.tell_news(News::ClockSet);
    rig.takes_time(&key);
}

/// A directory that hangs breaks no connection. The first node that it answers again must not end the claims of the
/// other nodes, which could not renew their leases either.
#[test]
fn leases_that_ran_out_while_the_directory_answered_nobody_are_given_time() {
    let mut rig = Rig::with_directory(&[]);
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
    for _ in 0..3 {
        rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, true)]));
        rig.run_for(Duration::from_secs(1));
    }
    rig.run_for(Duration::from_secs(2));
    rig.takes_time(&key);
}

#[test]
fn a_thousand_claims_of_a_gone_node_are_ended_at_a_time() {
    let mut rig = Rig::with_directory(&[]);
    let claims =
        |from: u64| (from..1500).map(|n| (StreamKey::new("live", &format!("{n:04}")), holder("c", 1, n + 1)));
    rig.tell_news(News::Claims(claims(0).collect()));
    let dead = || News::Nodes(vec![node("b", 1, true), node("c", 1, false)]);
    rig.tell_news(dead());
    assert_eq!(rig.burials(), (1..=1000).collect::<Vec<_>>());
    // The directory has ended some of these claims when the list of nodes arrives again.
    rig.tell_news(News::Claims(claims(600).collect()));
    rig.tell_news(dead());
    assert_eq!(rig.burials(), (1001..=1500).collect::<Vec<_>>(), "the others are awaited");
    // Requests without an answer are repeated after a lease, and not before.
    for _ in 0..4 {
        rig.run_for(Duration::from_secs(1));
        rig.tell_news(dead());
        assert_eq!(rig.burials(), [0; 0]);
    }
    rig.run_for(Duration::from_secs(1));
    rig.tell_news(dead());
    assert_eq!(rig.burials(), (601..=1500).collect::<Vec<_>>());
    // A claim that a node has made since is not ended.
    let key = StreamKey::new("live", "0700");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("b", 1, 9000)) });
    rig.tell_news(News::Claim { key: key.clone(), holder: None });
    assert!(rig.control.registry.cluster.location(&key).is_none());
}

#[test]
fn the_directory_of_a_pair_tells_nodes_rarely_and_a_gone_process_has_no_claims() {
    let membership = Membership { is_pair: true, ..membership(WithoutDirectory::Accept) };
    let mut rig = Rig::start(ControlConfig { cluster: Some(membership), ..config(&[], &[]) }, Memory::new());
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
    for (is_alive, ended) in [(true, vec![]), (false, vec![7])] {
        rig.run_for(Duration::from_secs(10));
        rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, is_alive)]));
        assert_eq!(rig.burials(), ended);
    }
    // The dead node has more claims than this node may ask to end at a time. The other claims follow when the first
    // requests are answered.
    let keys = || (0..1500).map(|n| StreamKey::new("live", &format!("{n:04}")));
    rig.tell_news(News::Claim { key, holder: None });
    rig.tell_news(News::Claims(keys().map(|key| (key, holder("c", 1, 8))).collect()));
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, false)]));
    assert_eq!(rig.burials().len(), 1000);
    keys().take(1000).for_each(|key| rig.tell_news(News::Claim { key, holder: None }));
    assert_eq!(rig.burials().len(), 500);
}

#[test]
fn a_claim_that_the_directory_has_lost_is_asserted_while_its_stream_lives() {
    let mut rig = Rig::with_directory(&[]);
    let (session, stream) = rig.publish_claimed("s");
    let token = rig.last_claim().0 * 10;
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("b", 1, token)) });
    rig.asked.clear();
    rig.tell_news(News::Claims(Vec::new()));
    assert_eq!(rig.asked, [Asked::Keep { key: key.clone(), token }]);
    rig.gone(session, stream, Departure::Clean, 5);
    rig.asked.clear();
    rig.tell_news(News::Claim { key, holder: None });
    assert!(!rig.asked.iter().any(|asked| matches!(asked, Asked::Keep { .. })));
}

#[test]
fn the_relay_of_a_node_may_have_an_ipv6_address() {
    let mut rig = Rig::with_directory(&[]);
    let mut there = node("c", 1, true);
    there.profile.relay = "[2001:db8::1]:7000".into();
    rig.tell_news(News::Nodes(vec![node("b", 1, true), there]));
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
    let location = rig.control.registry.cluster.location(&key).unwrap();
    assert_eq!((&*location.host, location.port), ("2001:db8::1", 7000));
    rig.take();
    rig.mail(ToControl::Wanted { key, via: Vec::new() });
    let asked = rig.take().into_iter().find_map(|(_, mail)| match mail {
        ToWorker::StartPull(order) => Some(order.address.to_string()),
        _ => None,
    });
    assert_eq!(asked.as_deref(), Some("[2001:db8::1]:7000"));
}

#[test]
fn a_token_is_used_up_in_the_directory_before_its_peer_is_let_in() {
    let mut rig = Rig::with_directory(&[("publishTokenControlEnabled", "true")]);
    let key = StreamKey::new("live", "s");
    let token = |id: &str| {
        let json = format!(r#"{{"tokenId":"{id}","streamId":"s","type":"publish","expireDate":9999999999}}"#);
        store::Op::Put(store::Key::new(Kind::Token, "live", &format!("s/{id}")), json.into())
    };
    rig.tell_news(News::Foreign(vec![token("one"), token("two")]));
    let burns = |rig: &mut Rig| -> Vec<u64> {
        let of = |asked: Asked| match asked {
            Asked::Burn { ticket, .. } => Some(ticket),
            _ => None,
        };
        std::mem::take(&mut rig.asked).into_iter().filter_map(of).collect()
    };
    let ask = |rig: &mut Rig, token: &str| {
        let mut request = rig.request("s", 0);
        request.params = vec![("token".to_owned(), token.to_owned())];
        let session = request.session;
        rig.mail(ToControl::Publish(request));
        let ticket = rig.last_claim().0;
        rig.claim_answer(ticket, true);
        session
    };
    // Another node has used up the token first.
    let session = ask(&mut rig, "one");
    assert_eq!(rig.late_verdict(session), None);
    let [ticket] = burns(&mut rig)[..] else { panic!("not asked") };
    rig.tell_news(News::Burnt { ticket, is_burnt: false });
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Denied(Denial::Token))));
    assert_eq!(rig.open_claims(), 0);
    let session = ask(&mut rig, "two");
    let [ticket] = burns(&mut rig)[..] else { panic!("not asked") };
    rig.tell_news(News::Burnt { ticket, is_burnt: true });
    assert!(matches!(rig.late_verdict(session), Some(Ok(_))) && rig.control.registry.is_live(&key));
    let left = rig.control.records.auxiliary.count(Kind::Token, &"live".into());
    assert_eq!(left, 1, "the used one is gone");
    // Without the directory no token can be used up.
    rig.tell_news(News::Contact(false));
    let mut request = rig.request("t", 0);
    let other = r#"{"tokenId":"x","streamId":"t","type":"publish","expireDate":9999999999}"#;
    let other = store::Op::Put(store::Key::new(Kind::Token, "live", "t/x"), other.into());
    rig.tell_news(News::Foreign(vec![other]));
    request.params = vec![("token".to_owned(), "x".to_owned())];
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Denied(Denial::Token))));
}

#[test]
fn a_claim_in_the_name_of_this_node_that_nobody_here_has_is_given_back() {
    let mut rig = Rig::with_directory(&[]);
    let (session, _) = rig.publish_claimed("s");
    let token = rig.last_claim().0 * 10;
    let key = StreamKey::new("live", "s");
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("b", 1, token)) });
    assert!(rig.releases().is_empty());
    let stream = rig.control.registry.find(&key).unwrap();
    rig.gone(session, stream, Departure::Clean, 5);
    assert_eq!(rig.releases(), [token]);
    rig.tell_news(News::Claims(vec![(key, holder("b", 1, token))]));
    assert_eq!(rig.releases(), [token, token]);
}

#[test]
fn a_node_that_starts_leaves_alone_what_a_live_node_has_and_puts_right_what_none_has() {
    let record = |zombi| Broadcast { status: "broadcasting".into(), zombi, ..Broadcast::default() };
    let ids = [
        ("theirs", false),
        ("their-stray", true),
        ("nobody-s", false),
        ("nobody-s-stray", true),
        ("waiting", false),
        ("waiting-stray", true),
    ];
    let mut store = Memory::new();
    let put =
        |(id, zombi): (&str, bool)| store::Op::Put(StreamKey::new("live", id).into(), record(zombi).encode());
    store.commit(&ids.map(put)).unwrap();
    let mut membership = membership(WithoutDirectory::Accept);
    for (id, ..) in &ids[..2] {
        membership.claims.insert(StreamKey::new("live", id), holder("c", 1, 5));
    }
    // Claims that an earlier process of this node, and an earlier process of the other node, have left.
    membership.claims.insert(StreamKey::new("live", "nobody-s"), holder("b", 0, 2));
    membership.claims.insert(StreamKey::new("live", "nobody-s-stray"), holder("c", 0, 3));
    // A publisher of the other node may still return to these streams within the grace period, in which a stream has no
    // claim.
    let mut rig = Rig::start(ControlConfig { cluster: Some(membership), ..config(&[], &[]) }, store);
    let status_of = |rig: &Rig, id| {
        let record = rig.control.records.get(&StreamKey::new("live", id));
        record.map(|record| record.effective_status(rig.now).to_owned())
    };
    for id in ["waiting", "waiting-stray"] {
        assert_eq!(status_of(&rig, id).as_deref(), Some("broadcasting"), "{id}");
    }
    rig.run_for(Duration::from_secs(30));
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, true)]));
    rig.run_for(Duration::from_secs(30));
    let status = |id| status_of(&rig, id);
    assert_eq!(status("waiting").as_deref(), Some("terminated_unexpectedly"));
    assert_eq!(status("theirs").as_deref(), Some("broadcasting"));
    assert_eq!(status("their-stray").as_deref(), Some("broadcasting"));
    assert_eq!((status("nobody-s").as_deref(), status("nobody-s-stray")), (Some("finished"), None));
    let stored: Vec<String> = rig.store.load().unwrap().iter().map(|(key, _)| key.id.to_string()).collect();
    assert_eq!(stored, ["nobody-s", "their-stray", "theirs", "waiting", "waiting-stray"]);
    assert_eq!(rig.burials().len(), 2);
}

#[test]
fn a_stream_whose_node_dies_while_it_waits_for_the_publisher_ends() {
    // (somebody claims the id meanwhile, the stream ends after some time)
    for (is_claimed, ends) in [(false, true), (true, false)] {
        let mut rig = Rig::with_directory(&[]);
        rig.create("s");
        let key = StreamKey::new("live", "s");
        rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
        "broadcasting".clone_into(&mut rig.control.records.get_mut(&key).unwrap().status);
        // The publisher is lost, and then the node.
        rig.tell_news(News::Claim { key: key.clone(), holder: None });
        let census = || News::Nodes(vec![node("b", 1, true), node("c", 1, false)]);
        let status = |rig: &Rig| rig.control.records.get(&key).unwrap().status.clone();
        let steps = |rig: &mut Rig, count: u32| {
            for _ in 0..count {
                rig.tell_news(census());
                rig.run_for(Duration::from_secs(1));
            }
        };
        // The publisher may be expected at another node, for `publisherGraceMs`.
        steps(&mut rig, 14);
        assert_eq!(status(&rig), "broadcasting");
        if is_claimed {
            rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("b", 2, 8)) });
            rig.tell_news(News::Claim { key: key.clone(), holder: None });
        }
        steps(&mut rig, 3);
        assert_eq!(status(&rig) == "terminated_unexpectedly", ends);
    }
}

#[test]
fn a_room_follows_the_end_of_its_streams_at_a_dead_node() {
    let mut rig = Rig::with_directory(&[]);
    rig.create("room");
    let body = r#"{"streamId":"s","mainTrackStreamId":"room"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/create", body).0, 200);
    let [room, key] = ["room", "s"].map(|id| StreamKey::new("live", id));
    rig.tell_news(News::Claim { key: key.clone(), holder: Some(holder("c", 1, 7)) });
    for of in [&room, &key] {
        let record = rig.control.records.get_mut(of).unwrap();
        "broadcasting".clone_into(&mut record.status);
        record.is_virtual = of == &room;
    }
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, false)]));
    assert_eq!(rig.burials(), [7]);
    rig.tell_news(News::Claim { key: key.clone(), holder: None });
    let status = |of: &StreamKey| rig.control.records.get(of).unwrap().status.clone();
    assert_eq!((&*status(&key), &*status(&room)), ("terminated_unexpectedly", "finished"));
}
