//! clients concurrently create, update, delete, publish and read the same broadcasts. There must be an order of
//! these calls that explains all answers, in which each call takes effect at one moment between its request and its
//! answer.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use crypto::Seed;
use serde_json::json;

use crate::support::{Api, RtmpPeer, Server};

const IDS: usize = 8;
const CLIENTS: usize = 4;
/// Number of calls of a client. The set of all calls about one id must fit into the bits of a u64.
const CALLS: usize = 15;

/// A client's call and its answer.
#[derive(Debug, Clone, PartialEq)]
enum Call {
    Create(String, bool),
    Update(String, bool),
    Delete(bool),
    Read(Option<String>),
    /// Publishes for a moment; true if the server accepted it, which requires a record. A refusal says nothing about
    /// the record, because another encoder may be publishing.
    Publish(bool),
}

#[derive(Debug)]
struct Done {
    call: Call,
    from: Instant,
    to: Instant,
}

fn call(server: (&Api, SocketAddr), id: &str, kind: u64, name: String) -> Call {
    let (api, rtmp) = server;
    let path = format!("/live/rest/v2/broadcasts/{id}");
    match kind {
        0 | 1 => {
            let body = json!({ "streamId": id, "name": name });
            Call::Create(name, api.post("/live/rest/v2/broadcasts/create", &body.to_string()).status == 200)
        }
        2..=4 => {
            let done = api.put(&path, &json!({ "name": name }).to_string()).json()["success"] == true;
            Call::Update(name, done)
        }
        5 => Call::Delete(api.delete(&path).json()["success"] == true),
        6 => match RtmpPeer::publish(rtmp, "live", id) {
            // The publish takes effect when it is accepted, which is before its end.
            Ok(publisher) => {
                publisher.close();
                Call::Publish(true)
            }
            Err(_) => Call::Publish(false),
        },
        _ => {
            let reply = api.get(&path);
            Call::Read((reply.status == 200).then(|| reply.json()["name"].as_str().unwrap().to_owned()))
        }
    }
}

/// Returns the record's name after a call. `None` if the answer contradicts the record before the call.
fn step(call: &Call, name: &Option<String>) -> Option<Option<String>> {
    match call {
        Call::Create(new, true) if name.is_none() => Some(Some(new.clone())),
        Call::Create(_, false) if name.is_some() => Some(name.clone()),
        Call::Update(new, true) if name.is_some() => Some(Some(new.clone())),
        Call::Update(_, false) | Call::Delete(false) if name.is_none() => Some(None),
        Call::Delete(true) if name.is_some() => Some(None),
        Call::Read(seen) if seen == name => Some(name.clone()),
        Call::Publish(true) if name.is_some() => Some(name.clone()),
        Call::Publish(false) => Some(name.clone()),
        _ => None,
    }
}

/// True if some order of the calls explains the answers (the search of Wing and Gong, which remembers failed states).
fn explained(
    history: &[Done],
    done: u64,
    name: &Option<String>,
    failed: &mut HashSet<(u64, Option<String>)>,
) -> bool {
    if done.count_ones() as usize == history.len() {
        return true;
    }
    if failed.contains(&(done, name.clone())) {
        return false;
    }
    let open = |at: &usize| done & (1 << at) == 0;
    let first_end = (0..history.len()).filter(open).map(|at| history[at].to).min().unwrap();
    let next = (0..history.len()).filter(open).filter(|at| history[*at].from <= first_end);
    for at in next {
        if let Some(after) = step(&history[at].call, name)
            && explained(history, done | 1 << at, &after, failed)
        {
            return true;
        }
    }
    failed.insert((done, name.clone()));
    false
}

#[test]
fn r_14_racing_changes_have_an_order_that_explains_every_answer() {
    let server = Server::start(&["app.acceptOnlyStreamsInDataStore=true"]);
    let clients: Vec<_> = (0..IDS * CLIENTS)
        .map(|client| {
            let (api, rtmp) = (server.api(), server.rtmp);
            thread::spawn(move || {
                let mut random = Seed::from_number(14).derive("client", client as u64).random();
                let id = format!("s{}", client % IDS);
                let calls = (0..CALLS).map(|n| {
                    let from = Instant::now();
                    let call = call((&api, rtmp), &id, random.below(9), format!("{client}-{n}"));
                    Done { call, from, to: Instant::now() }
                });
                calls.collect::<Vec<_>>()
            })
        })
        .collect();
    let mut histories: Vec<Vec<Done>> = (0..IDS).map(|_| Vec::new()).collect();
    for (client, thread) in clients.into_iter().enumerate() {
        histories[client % IDS].extend(thread.join().unwrap());
    }
    let mut published = 0;
    for mut history in histories {
        history.sort_by_key(|done| done.from);
        let raced = history.windows(2).any(|pair| pair[1].from < pair[0].to);
        assert!(raced, "nothing raced");
        published += history.iter().filter(|done| done.call == Call::Publish(true)).count();
        assert!(explained(&history, 0, &None, &mut HashSet::new()), "{history:#?}");
    }
    assert!(published > 5, "{published} publishers were let in");
}

#[test]
fn the_search_finds_fault_with_answers_that_no_order_explains() {
    let at = |ms| Instant::now() + std::time::Duration::from_millis(ms);
    let now = [at(0), at(10), at(20), at(30)];
    let done = |call, from: usize, to: usize| Done { call, from: now[from], to: now[to] };
    let history = [
        done(Call::Create("a".into(), true), 0, 1),
        done(Call::Delete(true), 1, 2),
        done(Call::Read(Some("a".into())), 3, 3),
    ];
    assert!(!explained(&history, 0, &None, &mut HashSet::new()), "a deleted record came back");
    assert!(explained(&history[..2], 0, &None, &mut HashSet::new()));
}
