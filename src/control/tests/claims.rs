//! Claims of ids that a directory answers late: an admission waits, goes on, or ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;
use crate::auth::access::Denial;

/// The calls that a directory got.
#[derive(Debug, Default)]
struct Told {
    asked: Vec<(Ticket, StreamKey)>,
    /// Claims that are neither answered with a no nor given back.
    open: BTreeMap<Ticket, StreamKey>,
}

/// A directory that answers when the test says so.
#[derive(Debug, Clone, Default)]
struct Directory(Arc<Mutex<Told>>);

impl Claims for Directory {
    fn claim(&mut self, ticket: Ticket, key: &StreamKey) -> Claim {
        if &*key.id == "elsewhere" {
            return Claim::Taken;
        }
        let mut told = self.0.lock().unwrap();
        told.asked.push((ticket, key.clone()));
        told.open.insert(ticket, key.clone());
        Claim::Asked
    }

    fn release(&mut self, ticket: Ticket) {
        self.0.lock().unwrap().open.remove(&ticket);
    }
}

impl Directory {
    /// The claim that was asked last, and how many were.
    fn last(&self) -> (Ticket, usize) {
        let told = self.0.lock().unwrap();
        (told.asked.last().unwrap().0, told.asked.len())
    }

    fn open(&self) -> usize {
        self.0.lock().unwrap().open.len()
    }
}

impl Rig {
    fn with_directory(app: &[(&str, &str)]) -> (Self, Directory) {
        let mut rig = Self::with(&[], app);
        let directory = Directory::default();
        rig.control.set_claims(Box::new(directory.clone()));
        (rig, directory)
    }

    /// Sends a publish request whose verdict comes later.
    fn begin(&mut self, id: &str) -> SessionRef {
        let request = self.request(id, 0);
        let session = request.session;
        self.mail(ToControl::Publish(request));
        session
    }

    fn claim_answer(&mut self, ticket: Ticket, granted: bool) {
        self.control.handle_claim(self.now, ticket, granted);
        self.drain();
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
    let (mut rig, directory) = Rig::with_directory(&[]);
    let session = rig.begin("s");
    assert_eq!(rig.late_verdict(session), None);
    assert!(rig.control.stream_of(&StreamKey::new("live", "s")).is_none(), "nothing is reserved");
    rig.run_for(Duration::from_secs(7));
    rig.claim_answer(directory.last().0, true);
    let stream = rig.late_verdict(session).unwrap().unwrap();
    assert_eq!(directory.open(), 1);
    // Within the grace the claim holds, and the publisher that returns need not ask.
    rig.gone(session, stream, Departure::Lost, 5);
    let again = rig.begin("s");
    assert_eq!(rig.late_verdict(again), Some(Ok(stream)));
    assert_eq!((directory.last().1, directory.open()), (1, 1));
    rig.gone(again, stream, Departure::Clean, 6);
    assert_eq!(directory.open(), 0);
}

#[test]
fn a_no_is_a_refusal_whether_it_comes_at_once_or_late() {
    let (mut rig, directory) = Rig::with_directory(&[]);
    let session = rig.begin("elsewhere");
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::InUse)));
    let session = rig.begin("s");
    rig.claim_answer(directory.last().0, false);
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::InUse)));
    assert_eq!(directory.open(), 0);
}

#[test]
fn a_directory_that_never_answers_is_not_waited_for_and_its_late_answer_is_nothing() {
    let (mut rig, directory) = Rig::with_directory(&[]);
    let session = rig.begin("s");
    rig.run_for(Duration::from_millis(7999));
    assert_eq!(rig.late_verdict(session), None);
    rig.run_for(Duration::from_millis(1));
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Resources)));
    assert_eq!(directory.open(), 0, "withdrawn");
    rig.claim_answer(directory.last().0, true);
    assert!(rig.late_verdict(session).is_none() && rig.control.registry.streams().is_empty());
}

#[test]
fn a_publisher_that_goes_while_its_claim_is_asked_leaves_nothing() {
    let (mut rig, directory) = Rig::with_directory(&[]);
    let session = rig.begin("s");
    rig.mail(ToControl::PublishAbandoned(session));
    assert_eq!(directory.open(), 0);
    rig.claim_answer(directory.last().0, true);
    assert!(rig.late_verdict(session).is_none() && rig.control.registry.streams().is_empty());
    assert_eq!(rig.control.access.admissions.len(), 0);
}

#[test]
fn what_changed_while_a_claim_was_asked_counts() {
    let (mut rig, directory) = Rig::with_directory(&[]);
    rig.create("s");
    // Of two that ask for one id, the first yes gets it; the other's claim goes back.
    let (one, two) = (rig.begin("s"), rig.begin("s"));
    let second = directory.last().0;
    rig.claim_answer(second, true);
    assert!(matches!(rig.late_verdict(two), Some(Ok(_))));
    let first = directory.0.lock().unwrap().asked[0].0;
    rig.claim_answer(first, true);
    assert_eq!(rig.late_verdict(one), Some(Err(Refusal::InUse)));
    assert_eq!(directory.open(), 1);
    // A drain ends what waits.
    let third = rig.begin("t");
    rig.control.drain(rig.now);
    rig.drain();
    assert_eq!(rig.late_verdict(third), Some(Err(Refusal::Draining)));
    assert_eq!(directory.open(), 0);
}

#[test]
fn nobody_is_asked_about_who_has_no_token_and_the_hook_is_asked_behind_the_claim() {
    let hook = ("webhookAuthenticateURL", "http://auth.example/may");
    let (mut rig, directory) = Rig::with_directory(&[hook, ("publishTokenControlEnabled", "true")]);
    let session = rig.begin("s");
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Denied(Denial::Token))));
    assert!(directory.0.lock().unwrap().asked.is_empty() && rig.hooks.is_empty());
    // With a claim, the receiver is asked; with its no, the claim goes back.
    let (mut rig, directory) = Rig::with_directory(&[hook]);
    let session = rig.begin("s");
    assert!(rig.hooks.is_empty());
    rig.run_for(Duration::from_secs(3));
    rig.claim_answer(directory.last().0, true);
    let asked = rig.hooks.pop().unwrap();
    assert_eq!(asked.timeout, Duration::from_secs(5), "what is left of the peer's patience");
    rig.done(asked.id, Outcome::Posted(Ok(403)));
    assert_eq!(rig.late_verdict(session), Some(Err(Refusal::Denied(Denial::Hook))));
    assert_eq!(directory.open(), 0);
}

#[test]
fn a_thousand_admissions_wait_and_no_more() {
    let (mut rig, directory) = Rig::with_directory(&[("ingestingStreamLimit", "-1")]);
    let sessions: Vec<_> = (0..1001).map(|n| rig.begin(&format!("s{n}"))).collect();
    assert_eq!(rig.late_verdict(sessions[1000]), Some(Err(Refusal::Resources)));
    assert_eq!((rig.control.access.admissions.len(), directory.open()), (1000, 1000));
    rig.mail(ToControl::PublishAbandoned(sessions[0]));
    let next = rig.begin("next");
    assert_eq!((rig.late_verdict(next), directory.open()), (None, 1000));
}
