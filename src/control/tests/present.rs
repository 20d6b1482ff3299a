//! Connections of subscribers across nodes.

use super::claims::node;
use super::*;
use crate::auth::access::Denial;
use crate::directory::{News, Presence, Process, Request as Asked, Subscribed};
use crate::mail::NoSubscription;
use crate::types::NodeId;

fn subscribed(count: u32) -> Subscribed {
    Subscribed { key: StreamKey::new("live", "s"), subscriber: "alice".to_owned(), count }
}

fn at(name: &str, incarnation: u64, count: u32) -> Presence {
    Presence { node: NodeId::new(name).unwrap(), incarnation, subscribed: subscribed(count) }
}

impl Rig {
    /// Returns the numbers of connections reported to the directory since this function was last
    /// called.
    fn told_present(&mut self) -> Vec<u32> {
        let of = |asked: Asked| match asked {
            Asked::Present(one) if one == subscribed(one.count) => Some(one.count),
            _ => None,
        };
        std::mem::take(&mut self.asked).into_iter().filter_map(of).collect()
    }

    fn alice_plays(&mut self) -> Result<SessionRef, Denial> {
        let request = self.play_request("s", &[("subscriberId", "alice")]);
        let session = request.session;
        match self.ask_play(request).unwrap() {
            Ok(()) => Ok(session),
            Err(NoSubscription::Denied(denial)) => Err(denial),
            other => panic!("{other:?}"),
        }
    }

    fn register_alice(&mut self) {
        let body = r#"{"subscriberId":"alice","concurrentConnectionsLimit":2}"#;
        assert_eq!(self.post("/live/rest/v2/broadcasts/s/subscribers", body).0, 200);
        self.asked.clear();
    }

    fn current(&mut self) -> String {
        let list = self.get("/live/rest/v2/broadcasts/s/subscribers/list/0/10").1;
        let behind = list.split(r#""currentConcurrentConnections":"#).nth(1).unwrap();
        behind.split(',').next().unwrap().to_owned()
    }
}

#[test]
fn n_24_connections_of_a_subscriber_are_limited_over_live_nodes() {
    let mut rig = Rig::with_directory(&[]);
    rig.publish_claimed("s");
    rig.register_alice();
    let first = rig.alice_plays().unwrap();
    assert_eq!(rig.told_present(), [1]);
    rig.tell_news(News::Present(at("c", 1, 1)));
    assert_eq!(rig.alice_plays(), Err(Denial::Connections));
    assert_eq!(rig.current(), "2");
    // Connections of an unknown process, of a node that is gone, or with a count of zero do not count.
    for news in [
        News::Present(at("c", 9, 1)),
        News::Present(at("c", 1, 0)),
        News::Presences(vec![at("unknown", 1, 5), at("b", 1, 1)]),
    ] {
        rig.tell_news(news);
        let second = rig.alice_plays().unwrap();
        rig.mail(ToControl::PlayEnded(second));
        assert_eq!(rig.told_present(), [2, 1]);
    }
    rig.tell_news(News::Present(at("c", 1, 5)));
    assert_eq!(rig.alice_plays(), Err(Denial::Connections));
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, false)]));
    assert!(rig.alice_plays().is_ok());
    assert_eq!(rig.told_present(), [2]);
    rig.mail(ToControl::PlayEnded(first));
    assert_eq!(rig.told_present(), [1]);
}

#[test]
fn n_24_a_directory_that_was_away_is_told_again_what_it_has_not_heard() {
    let mut rig = Rig::with_directory(&[]);
    rig.publish_claimed("s");
    rig.register_alice();
    let first = rig.alice_plays().unwrap();
    rig.asked.clear();
    rig.tell_news(News::Presences(vec![at("b", 1, 1)]));
    assert!(rig.told_present().is_empty());
    for news in [vec![], vec![at("b", 1, 4)], vec![at("b", 0, 1)]] {
        rig.tell_news(News::Presences(news));
        assert_eq!(rig.told_present(), [1]);
    }
    rig.mail(ToControl::PlayEnded(first));
    assert_eq!(rig.told_present(), [0]);
    rig.tell_news(News::Presences(vec![at("b", 1, 1)]));
    assert_eq!(rig.told_present(), [0], "its end was not heard");
}

#[test]
fn n_24_a_name_that_no_record_has_costs_the_directory_nothing() {
    let mut rig = Rig::with_directory(&[]);
    rig.publish_claimed("s");
    rig.asked.clear();
    let session = rig.alice_plays().unwrap();
    rig.mail(ToControl::PlayEnded(session));
    assert!(rig.told_present().is_empty());
    rig.register_alice();
    rig.alice_plays().unwrap();
    assert_eq!(rig.told_present(), [1]);
}

#[test]
fn a_server_alone_tells_nobody_of_its_subscribers() {
    let mut rig = Rig::new();
    rig.publish("s", 0);
    rig.alice_plays().unwrap();
    assert!(rig.told_present().is_empty());
}

#[test]
fn n_24_connections_at_an_earlier_process_of_a_node_are_forgotten() {
    let mut rig = Rig::with_directory(&[]);
    rig.tell_news(News::Present(at("c", 1, 1)));
    let known = |rig: &Rig| rig.control.registry.cluster.present_elsewhere(&subscribed(1).key, "alice");
    assert_eq!(known(&rig), 1);
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 2, true)]));
    // Even if the node returned to its former incarnation, the connections from that time stay
    // forgotten.
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, true)]));
    assert_eq!(known(&rig), 0);
}

#[test]
fn n_24_each_process_that_takes_over_is_told_of_the_connections_before() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.register_alice();
    rig.alice_plays().unwrap();
    assert!(rig.told_present().is_empty(), "there is nobody to tell");
    let own = Process { node: NodeId::new("old").unwrap(), incarnation: 1 };
    for _ in 0..2 {
        rig.tell_news(News::Pair(own.clone()));
        let paired = rig.asked.iter().position(|asked| matches!(asked, Asked::Paired(_)));
        assert_eq!(paired, Some(0), "the new process has to be there to be told");
        assert_eq!(rig.told_present(), [1]);
    }
}
