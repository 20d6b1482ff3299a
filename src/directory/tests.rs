//! Tests of the directory with a real Redis server. Each test starts and ends a server.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of news")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;

use super::*;
use crate::store::{Key, Kind, Op, Store};
use crate::tests::TempFolder;

/// A Redis server on a free port, with its own folder.
struct Redis {
    folder: TempFolder,
    port: u16,
    child: Option<Child>,
}

impl Redis {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut redis = Self { folder: TempFolder::new(), port, child: None };
        redis.begin();
        redis
    }

    fn begin(&mut self) {
        let folder: PathBuf = self.folder.join("");
        let port = self.port.to_string();
        let options = [
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ];
        let mut server = Command::new("redis-server");
        server.args(options).arg("--dir").arg(&folder).stdout(Stdio::null());
        self.child = Some(server.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        while Link::connect(&self.address()).and_then(|mut link| link.wait(0)).is_err() {
            assert!(Instant::now() < end, "redis-server does not answer");
            std::thread::yield_now();
        }
    }

    /// Kills the server, with the effect of a power cut.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.join("appendonlydir")).unwrap();
        self.begin();
    }

    fn address(&self) -> Address {
        Address::new(&format!("redis://127.0.0.1:{}", self.port), "test").unwrap()
    }

    fn node(&self, name: &str) -> Peer {
        let mut shared = Shared::open(self.address(), NodeId::new(name).unwrap(), LEASE).unwrap();
        let records = shared.load().unwrap().into_iter().collect();
        let mut peer =
            Peer { shared, records, claims: BTreeMap::new(), present: Vec::new(), others: Vec::new() };
        peer.hear();
        peer
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A node: its connection to the directory, and its records in the form in which control holds them.
struct Peer {
    shared: Shared,
    records: BTreeMap<Key, Bytes>,
    claims: BTreeMap<StreamKey, Holder>,
    present: Vec<Presence>,
    others: Vec<News>,
}

impl Peer {
    fn apply(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::Put(key, value) => drop(self.records.insert(key, value)),
                Op::Delete(key) => drop(self.records.remove(&key)),
            }
        }
    }

    fn hear(&mut self) {
        while let Some(news) = self.shared.poll_news() {
            match news {
                News::Foreign(ops) => self.apply(ops),
                News::Claim { key, holder: Some(holder) } => drop(self.claims.insert(key, holder)),
                News::Claim { key, holder: None } => drop(self.claims.remove(&key)),
                News::Claims(all) => self.claims = all.into_iter().collect(),
                News::Presences(all) => self.present = all,
                News::Present(one) => {
                    let is_same = |other: &Presence| {
                        (&other.node, &other.subscribed.subscriber) == (&one.node, &one.subscribed.subscriber)
                    };
                    self.present.retain(|other| !is_same(other));
                    self.present.extend(Some(one).filter(|one| one.subscribed.count > 0));
                }
                other => self.others.push(other),
            }
        }
    }

    fn commit(&mut self, ops: Vec<Op>) -> bool {
        let is_done = self.shared.commit(&ops).is_ok();
        if !self.shared.take_is_ahead() {
            self.hear();
        }
        if is_done {
            self.apply(ops);
        }
        self.hear();
        is_done
    }

    fn read_on(&mut self) {
        self.shared.read_on();
        self.hear();
    }

    fn sign(&self, lease: Duration) -> Census {
        let mut link = Link::connect(self.shared.address()).unwrap();
        link.renew(self.shared.own(), lease, &Profile::default()).unwrap()
    }

    fn ask(&mut self, request: Request) {
        self.shared.handle_request(request);
        self.hear();
    }

    /// Claims an id, and returns the answer.
    fn claim(&mut self, id: &str) -> ClaimAnswer {
        self.ask(Request::Claim { ticket: 1, key: StreamKey::new("live", id) });
        match self.others.pop() {
            Some(News::Answer { answer, .. }) => answer,
            other => panic!("no answer but {other:?}"),
        }
    }
}

fn put(app: &str, id: &str, value: &str) -> Op {
    Op::Put(Key::new(Kind::Broadcast, app, id), Bytes::copy_from_slice(value.as_bytes()))
}

const LEASE: Duration = Duration::from_secs(600);

#[test]
fn nodes_that_commit_in_any_order_end_with_what_the_directory_has() {
    let redis = Redis::start();
    let mut nodes = ["a", "b", "c"].map(|name| redis.node(name));
    let mut random = Seed::from_number(7).random();
    for round in 0..600u64 {
        let node = &mut nodes[usize::try_from(random.below(3)).unwrap()];
        match random.below(4) {
            0 => node.read_on(),
            1 => assert!(node.commit(vec![Op::Delete(Key::new(
                Kind::ALL[usize::try_from(random.below(5)).unwrap()],
                "live",
                &random.below(9).to_string(),
            ))])),
            _ => {
                let ops = (0..=random.below(4)).map(|_| {
                    let kind = Kind::ALL[usize::try_from(random.below(5)).unwrap()];
                    let key = Key::new(kind, "live", &random.below(9).to_string());
                    Op::Put(key, format!("{round} {}\n\0", random.below(1000)).into())
                });
                assert!(node.commit(ops.collect()));
            }
        }
    }
    nodes.iter_mut().for_each(Peer::read_on);
    let there = redis.node("d").records;
    for node in &nodes {
        assert_eq!(node.records, there);
        assert!(node.others.is_empty(), "{:?}", node.others);
    }
    assert!(!there.is_empty());
}

#[test]
fn n_24_connections_of_subscribers_are_known_at_every_node_and_those_of_an_earlier_process_are_forgotten() {
    let redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    let told = |count: u32| {
        let (key, subscriber) = (StreamKey::new("live", "s"), "al\nice/ä".to_owned());
        Subscribed { key, subscriber, count }
    };
    a.ask(Request::Present(told(2)));
    b.ask(Request::Present(told(1)));
    a.ask(Request::Present(told(3)));
    a.read_on();
    b.read_on();
    let own = a.shared.own().clone();
    let of_a = Presence { node: own.node.clone(), incarnation: own.incarnation, subscribed: told(3) };
    for node in [&a, &b, &redis.node("c")] {
        assert!(node.present.len() == 2 && node.present.contains(&of_a), "{:?}", node.present);
    }
    b.ask(Request::Present(told(0)));
    a.read_on();
    assert_eq!(a.present, [of_a]);
    // The node restarts.
    let again = redis.node("a");
    Link::connect(&redis.address()).unwrap().forget_presences(again.shared.own()).unwrap();
    assert_eq!(redis.node("c").present, []);
    // Node `a` is deleted from the list. Node `aa`, whose name ends with the same letter, must stay.
    let mut other = redis.node("aa");
    for node in [&mut a, &mut other] {
        node.ask(Request::Present(told(1)));
    }
    a.sign(Duration::ZERO);
    b.ask(Request::Forget(own.node));
    let left = redis.node("c").present;
    assert!(left.len() == 1 && left[0].node.as_str() == "aa", "{left:?}");
}

#[test]
fn n_22_an_id_goes_from_node_to_node_at_once_and_only_by_the_claim_in_force() {
    let redis = Redis::start();
    let (mut a, mut b, mut c) = (redis.node("a"), redis.node("b"), redis.node("c"));
    let key = StreamKey::new("live", "s");
    a.sign(LEASE);
    b.sign(LEASE);
    let ClaimAnswer::Granted(token) = a.claim("s") else { panic!() };
    let to = (b.shared.own().node.clone(), b.shared.own().incarnation);
    let give = |token: u64, (node, incarnation): (&NodeId, u64)| Request::HandOver {
        key: key.clone(),
        token,
        to: (node.clone(), incarnation),
    };
    // A handover has no effect if it is to a dead node, to another process of a node, or by a claim that
    // is not valid.
    let dead = (c.shared.own().node.clone(), c.shared.own().incarnation);
    a.ask(give(token, (&dead.0, dead.1)));
    a.ask(give(token, (&to.0, to.1 + 1)));
    a.ask(give(token + 1, (&to.0, to.1)));
    assert_eq!(a.claims[&key].node, a.shared.own().node);
    a.ask(give(token, (&to.0, to.1)));
    for node in [&mut a, &mut b, &mut c] {
        node.read_on();
        let Holder { token: now, incarnation, node } = &node.claims[&key];
        assert!(*now > token && (node, *incarnation) == (&to.0, to.1));
    }
    // The claim belongs to the new holder, so the former holder can neither hand it over nor release it.
    assert!(matches!(a.claim("s"), ClaimAnswer::Taken(_)));
    a.ask(give(token, (&to.0, to.1)));
    a.ask(Request::Release { key: key.clone(), token });
    assert_eq!(a.claims[&key].node, to.0);
    assert!(matches!(b.claim("s"), ClaimAnswer::Granted(_)));
    let gone = give(1, (&to.0, to.1));
    b.ask(Request::Release { key: key.clone(), token: b.claims[&key].token });
    b.ask(gone);
    b.read_on();
    assert!(!b.claims.contains_key(&key));
}

/// A change of another node that directly follows a change of this node must not be discarded as older.
#[test]
fn b_20_nodes_that_commit_at_the_same_time_end_with_what_the_directory_has() {
    let redis = Redis::start();
    let together = Arc::new(Barrier::new(3));
    let threads = ["a", "b", "c"].map(|name| {
        let (mut node, together) = (redis.node(name), Arc::clone(&together));
        std::thread::spawn(move || {
            let round = |number: u32| {
                together.wait();
                assert!(node.commit(vec![put("live", "k", &format!("{name} {number}"))]));
                together.wait();
                node.read_on();
                node.records.clone()
            };
            (0..200).map(round).collect::<Vec<_>>()
        })
    });
    let [a, b, c] = threads.map(|thread| thread.join().unwrap());
    assert!(a == b && b == c);
    assert_eq!(a.last(), Some(&redis.node("d").records));
}

#[test]
fn a_reader_that_has_missed_trimmed_changes_reads_everything_anew() {
    let redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    assert!(b.commit(vec![put("live", "gone", "1"), put("live", "same", "1")]));
    a.read_on();
    assert!(b.commit(vec![Op::Delete(Key::new(Kind::Broadcast, "live", "gone")), put("live", "new", "2")]));
    let mut trim = Command::new("redis-cli");
    trim.args(["-p", &redis.port.to_string(), "XTRIM", "{test}:changes", "MAXLEN", "0"]);
    assert!(trim.stdout(Stdio::null()).status().unwrap().success());
    a.read_on();
    assert_eq!(a.records, b.records);
    assert!(b.commit(vec![put("live", "later", "3")]));
    a.read_on();
    assert_eq!((a.records.len(), &a.records), (3, &b.records));
}

#[test]
fn acknowledged_records_survive_the_death_of_the_directory_and_nothing_else_is_told() {
    let mut redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    let mut acknowledged = 0u32;
    for life in 0..3 {
        for n in 0..20 {
            let ops =
                vec![put("live", &format!("{life}-{n}"), "x"), put("other", &format!("{life}-{n}"), "y")];
            acknowledged += u32::from(a.commit(ops));
        }
        redis.kill();
        assert!(!a.commit(vec![put("live", "never", "x")]));
        assert!(a.claim("s") == ClaimAnswer::Away && a.others.pop() == Some(News::Contact(false)));
        redis.begin();
        assert!(a.shared.rebuild(&[]).is_ok());
        a.hear();
        assert_eq!(a.others.pop(), Some(News::Contact(true)));
        b.read_on();
        b.read_on();
        assert_eq!(b.records, a.records);
    }
    assert_eq!((acknowledged, a.records.len()), (60, 120));
    assert!(!b.others.contains(&News::Lost));
}

#[test]
fn a_directory_that_comes_back_empty_gets_what_the_nodes_have() {
    let mut redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    a.sign(LEASE);
    assert!(a.commit(vec![put("live", "s", "1"), put("live", "t", "2")]));
    b.read_on();
    let token = match a.claim("s") {
        ClaimAnswer::Granted(token) => token,
        other => panic!("{other:?}"),
    };
    let before = a.records.clone();
    redis.empty();
    for node in [&mut a, &mut b] {
        node.read_on();
        node.read_on();
        assert!(node.others.contains(&News::Lost), "{:?}", node.others);
        assert_eq!(node.records, before, "nothing that is missing counts as removed");
    }
    // Node b only knows that the directory is empty. It writes before any record is restored.
    assert!(b.commit(vec![put("live", "t", "newer")]));
    let all: Vec<_> = a.records.clone().into_iter().collect();
    a.ask(Request::Refill(all));
    let all: Vec<_> = before.into_iter().collect();
    b.ask(Request::Refill(all));
    a.read_on();
    assert_eq!((&a.records, &redis.node("c").records), (&b.records, &b.records));
    assert_eq!(a.records[&Key::new(Kind::Broadcast, "live", "t")], "newer");
    // Claims are asserted again with their tokens, and new tokens are larger.
    a.sign(LEASE);
    let key = StreamKey::new("live", "s");
    a.ask(Request::Keep { key: key.clone(), token });
    b.read_on();
    assert_eq!((b.claims[&key].token, &b.claims), (token, &a.claims));
    assert!(matches!(b.claim("other"), ClaimAnswer::Granted(newer) if newer > token));
    a.others.clear();
    a.read_on();
    assert!(!a.others.contains(&News::Lost));
}

#[test]
fn a_loss_is_told_once_and_again_after_a_broken_connection() {
    let mut redis = Redis::start();
    let mut a = redis.node("a");
    assert!(a.commit(vec![put("live", "s", "1"), put("live", "t", "2")]));
    redis.empty();
    let losses = |a: &Peer| a.others.iter().filter(|news| **news == News::Lost).count();
    a.read_on();
    a.read_on();
    for id in ["s", "t", "u"] {
        a.ask(Request::Keep { key: StreamKey::new("live", id), token: 1 });
    }
    assert_eq!((losses(&a), a.claims.len()), (1, 3));
    // The request to restore the records gets lost.
    redis.kill();
    a.read_on();
    redis.begin();
    a.read_on();
    a.read_on();
    assert_eq!(losses(&a), 2);
    let all: Vec<_> = a.records.clone().into_iter().collect();
    a.ask(Request::Refill(all));
    a.read_on();
    assert_eq!((losses(&a), redis.node("b").records.len()), (2, 2));
}

#[test]
fn a_claim_asserted_over_that_of_a_node_that_is_gone_gets_a_larger_token() {
    let redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    let key = StreamKey::new("live", "s");
    let granted = |answer| match answer {
        ClaimAnswer::Granted(token) => token,
        other => panic!("{other:?}"),
    };
    a.sign(LEASE);
    let first = granted(a.claim("s"));
    // Each node in turn is gone for a while, and the other gets the id.
    a.sign(Duration::ZERO);
    let second = granted(b.claim("s"));
    a.sign(LEASE);
    a.ask(Request::Keep { key: key.clone(), token: first });
    b.read_on();
    let third = b.claims[&key].clone();
    assert!(third.node.as_str() == "a" && third.token > second && second > first, "{third:?}");
    a.sign(Duration::ZERO);
    b.sign(LEASE);
    let fourth = granted(b.claim("s"));
    a.sign(LEASE);
    a.ask(Request::Keep { key: key.clone(), token: third.token });
    a.read_on();
    assert_eq!((a.claims[&key].node.as_str(), a.claims[&key].token), ("b", fourth), "b is alive");
}

#[test]
fn an_older_process_of_a_node_does_not_take_an_id_from_the_newer_one() {
    let redis = Redis::start();
    let (mut older, mut newer) = (redis.node("a"), redis.node("a"));
    assert!(matches!(older.claim("t"), ClaimAnswer::Granted(_)));
    newer.sign(LEASE);
    for id in ["s", "s", "t"] {
        assert!(matches!(newer.claim(id), ClaimAnswer::Granted(_)), "{id}");
    }
    for id in ["s", "t"] {
        assert_eq!(older.claim(id), ClaimAnswer::Taken(NodeId::new("a").unwrap()));
    }
    // The claim of the older process was ended, and is not asserted again.
    older.ask(Request::Keep { key: StreamKey::new("live", "u"), token: 90 });
    newer.read_on();
    assert!(!newer.claims.contains_key(&StreamKey::new("live", "u")), "{:?}", newer.claims);
    newer.ask(Request::Keep { key: StreamKey::new("live", "v"), token: 91 });
    newer.read_on();
    assert!(newer.claims.contains_key(&StreamKey::new("live", "v")));
}

#[test]
fn claims_whose_leases_ran_out_while_the_directory_was_away_are_respected_for_one_lease() {
    let mut redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    b.sign(LEASE);
    a.sign(Duration::from_millis(1));
    assert!(matches!(a.claim("s"), ClaimAnswer::Granted(_)));
    redis.kill();
    b.read_on();
    redis.begin();
    b.read_on();
    assert!(b.sign(LEASE).nodes.iter().any(|node| node.id.as_str() == "a" && !node.is_alive));
    b.others.clear();
    assert_eq!(b.claim("s"), ClaimAnswer::Taken(NodeId::new("a").unwrap()));
    // The claims of the node's earlier process are void, because the node has a new process.
    let again = redis.node("a");
    again.sign(LEASE);
    assert!(matches!(b.claim("s"), ClaimAnswer::Granted(_)));
}

#[test]
fn a_replica_that_a_sentinel_promotes_is_found() {
    let mut master = Redis::start();
    let replica = Redis::start();
    let command = |port: u16, words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port.to_string()]).args(words);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let rights = "on >S3cret ~{test}:* +@connection +@hash +@string +@stream +@scripting +time +select +role";
    for port in [master.port, replica.port] {
        let words: Vec<&str> = ["acl", "setuser", "node"].into_iter().chain(rights.split(' ')).collect();
        assert_eq!(command(port, &words).trim(), "OK");
    }
    command(replica.port, &["replicaof", "127.0.0.1", &master.port.to_string()]);
    let folder = TempFolder::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
        folder.display(),
        master.port
    );
    std::fs::write(folder.join("sentinel.conf"), settings).unwrap();
    let mut server = Command::new("redis-server");
    let child =
        server.arg(folder.join("sentinel.conf")).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
    let _sentinel = Redis { folder: TempFolder::new(), port, child: Some(child) };
    let wait = |what: &str, is_there: &mut dyn FnMut() -> bool| {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_there() {
            assert!(Instant::now() < end, "waited for {what}");
            std::thread::yield_now();
        }
    };
    wait("the sentinel to know the replica", &mut || {
        command(port, &["sentinel", "replicas", "main"]).contains(&replica.port.to_string())
            && command(replica.port, &["info", "replication"]).contains("master_link_status:up")
    });
    // One of the two sentinels is unreachable.
    let url = format!("redis+sentinel://node:S3cret@127.0.0.1:1,127.0.0.1:{port}/main");
    let address = Address::new(&url, "test").unwrap();
    let shared = Shared::open(address, NodeId::new("a").unwrap(), LEASE).unwrap();
    let mut a = Peer {
        shared,
        records: BTreeMap::new(),
        claims: BTreeMap::new(),
        present: Vec::new(),
        others: Vec::new(),
    };
    assert!(a.commit(vec![put("live", "s", "1")]));
    wait("the record at the replica", &mut || {
        command(replica.port, &["hget", "{test}:broadcasts", "live/s"]).trim() == "1"
    });
    master.kill();
    assert!(!a.commit(vec![put("live", "lost", "1")]));
    wait("the replica to be the master", &mut || {
        a.read_on();
        a.commit(vec![put("live", "t", "2")])
    });
    assert_eq!(replica.node("b").records, a.records);
    assert_eq!((a.records.len(), a.others.contains(&News::Lost)), (2, false));
}

#[test]
fn a_token_is_used_up_by_one_node() {
    let redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    let key = Key::new(Kind::Token, "live", "s/secret");
    assert!(a.commit(vec![Op::Put(key.clone(), Bytes::from_static(b"{}"))]));
    b.read_on();
    assert!(b.records.contains_key(&key));
    for (node, is_burnt) in [(&mut b, true), (&mut a, false)] {
        node.ask(Request::Burn { ticket: 7, key: key.clone() });
        assert_eq!(node.others, [News::Burnt { ticket: 7, is_burnt }]);
    }
    a.read_on();
    assert!(!a.records.contains_key(&key) && redis.node("c").records.is_empty());
}

/// The node `b` is dead, and the directory's clock has been set back by an hour since its last renewal.
#[test]
fn a_lease_of_a_clock_that_was_set_back_keeps_no_node_alive() {
    let redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    a.sign(LEASE);
    b.sign(LEASE);
    let ClaimAnswer::Granted(token) = b.claim("s") else { panic!("not granted") };
    let is_alive = |a: &Peer| a.sign(LEASE).nodes.iter().any(|node| node.id.as_str() == "b" && node.is_alive);
    assert!(is_alive(&a));
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", redis.port)).unwrap();
    let mut raw = client.get_connection().unwrap();
    let lease: String = redis::cmd("HGET").arg("{test}:leases").arg("b").query(&mut raw).unwrap();
    let [incarnation, until, length] = lease.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let until = until.parse::<u64>().unwrap() + 3_600_000;
    let later = format!("{incarnation} {until} {length}");
    redis::cmd("HSET").arg("{test}:leases").arg("b").arg(later).exec(&mut raw).unwrap();
    assert!(!is_alive(&a));
    let key = StreamKey::new("live", "s");
    a.read_on();
    assert!(a.claims.contains_key(&key));
    a.ask(Request::Bury { key: key.clone(), token });
    a.read_on();
    assert!(!a.claims.contains_key(&key));
}

#[test]
fn an_id_is_one_node_s_while_its_lease_holds() {
    let redis = Redis::start();
    let (mut a, mut b) = (redis.node("a"), redis.node("b"));
    a.sign(LEASE);
    b.sign(LEASE);
    let ClaimAnswer::Granted(first) = a.claim("s") else { panic!("not granted") };
    assert_eq!(b.claim("s"), ClaimAnswer::Taken(NodeId::new("a").unwrap()));
    // The same process claims the id again. Its former token is no longer valid.
    let ClaimAnswer::Granted(second) = a.claim("s") else { panic!("not granted") };
    let key = StreamKey::new("live", "s");
    a.ask(Request::Release { key: key.clone(), token: first });
    assert_eq!(b.claim("s"), ClaimAnswer::Taken(NodeId::new("a").unwrap()));
    a.ask(Request::Release { key: key.clone(), token: second });
    let ClaimAnswer::Granted(third) = b.claim("s") else { panic!("not granted") };
    assert!(first < second && second < third);
    // The node has a new process. The claims of its earlier process are void, and that process is no
    // longer the newest.
    let again = redis.node("b");
    assert!(again.sign(LEASE).is_newest && !b.sign(LEASE).is_newest);
    assert!(matches!(a.claim("s"), ClaimAnswer::Granted(_)));
    a.read_on();
    assert_eq!(a.claims[&key].node.as_str(), "a");
    // One node leaves, and the lease of another expires.
    a.shared.close();
    let mut c = redis.node("c");
    c.sign(Duration::from_millis(1));
    let ClaimAnswer::Granted(token) = c.claim("s") else { panic!("not granted") };
    while again.sign(LEASE).nodes.iter().any(|node| node.id.as_str() == "c" && node.is_alive) {}
    let mut again = again;
    assert!(matches!(again.claim("s"), ClaimAnswer::Granted(newer) if newer > token));
    c.sign(LEASE);
    c.ask(Request::Keep { key: key.clone(), token });
    c.read_on();
    assert_eq!(c.claims[&key].node.as_str(), "b", "the larger token stays");
    // A claim made without the directory counts as the newest.
    c.ask(Request::Keep { key: key.clone(), token: 0 });
    assert_eq!(c.claims[&key].node.as_str(), "c");
}
