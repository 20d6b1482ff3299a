//! Sessions at a shared port, made because other sessions request them.

use std::collections::BTreeSet;

use super::super::conn::CHILDREN_MAX;
use super::*;
use crate::mail::Message;
use crate::protocol::{Binding, Claim, FamilyEvent, PathChange, PathNews, SessionsOnRequest, Wanted};

/// A port that counts the sessions that it has made and does not have to forget yet.
#[derive(Debug, Clone, Default)]
struct Counting(Arc<Mutex<BTreeSet<ConnId>>>);

impl Demux for Counting {
    fn route(&mut self, _: &Context<'_>, _: Remote, _: &[u8], _: &mut Vec<u8>) -> Route {
        Route::Drop
    }

    fn begin(&mut self, _: &Context<'_>, _: ConnId, _: SocketAddr, _: Seed) -> Option<Box<dyn Session>> {
        None
    }

    fn forget(&mut self, conn: ConnId) {
        self.0.lock().unwrap().remove(&conn);
    }

    fn sessions(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn on_request(&mut self) -> Option<&mut dyn SessionsOnRequest> {
        Some(self)
    }
}

impl SessionsOnRequest for Counting {
    fn bound(&mut self, _: Binding<'_>) {}

    fn create(&mut self, _: &Context<'_>, conn: ConnId, _: Wanted, _: Seed) -> Option<Box<dyn Session>> {
        assert!(self.0.lock().unwrap().insert(conn), "an id that is in use");
        Some(Box::new(Actor::default()))
    }

    fn claim(&mut self, _: Now, _: ConnId, _: &Claim) {}

    fn answer_for_past(&mut self, _: Now, _: ConnId, _: &Message) -> Option<Message> {
        None
    }

    fn hear(&mut self, _: &PathNews) {}

    fn poll_change(&mut self) -> Option<PathChange> {
        None
    }
}

fn spawn(port: &'static str, child: u16) -> Event {
    Event::Family(FamilyEvent::SpawnAt { child: Handle(child), port, what: Box::new(()), outlives: false })
}

#[test]
fn w_15_a_session_that_is_not_kept_is_not_counted_by_its_port() {
    let mut rig = Rig::new();
    let port = Counting::default();
    let (of, demux) = rig.worker.ports.list.first_mut().unwrap();
    let name = of.name;
    *demux = Box::new(port.clone());
    let (parent, actor) = rig.connect();
    let spawned = |actor: &Actor| {
        let replies = actor.replies();
        replies.iter().filter(|reply| reply.contains("session: Some")).count()
    };
    for n in 0..2 * CHILDREN_MAX {
        rig.say(parent, &actor, [spawn(name, u16::try_from(n).unwrap())]);
    }
    assert_eq!((spawned(&actor), port.sessions()), (CHILDREN_MAX, CHILDREN_MAX));
    let children = port.0.lock().unwrap().clone();
    children.into_iter().for_each(|child| rig.worker.remove(child, "left", false));
    assert_eq!(port.sessions(), 0);
    // A server that drains makes no sessions.
    let (parent, actor) = rig.connect();
    rig.worker.turn.draining = true;
    rig.say(parent, &actor, [spawn(name, 0)]);
    assert_eq!((spawned(&actor), port.sessions()), (0, 0));
}
