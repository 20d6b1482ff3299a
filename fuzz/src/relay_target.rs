//! The relay between nodes: the meaning of bytes does not depend on how they are cut, and an accepted stream can
//! be decoded.

use std::collections::BTreeMap;

use relay::{
    Call, CallClient, CallEvent, Client, ClientEvent, Error, Server, ServerEvent, tracks_frame, unit_head,
};
use wire::SendQueue;

use crate::http_targets::epoch;
use crate::splits::{head, pieces};

/// Maximum bytes that a server queues for a client that sends but does not read.
const QUEUED_MAX: usize = 32 * 1024;

/// Runs a client or a server, chosen by the highest bit of the first byte, with the bytes whole and in pieces.
pub fn relay(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let hello = b"MSRL\x01\x01c";
    // Puts a hello before the input, unless the input begins with one.
    let begun = if stream.starts_with(b"MSRL") { stream.to_vec() } else { [&hello[..], stream].concat() };
    let cut = pieces(seed & 0x7f, &begun);
    if seed & 0x80 == 0 {
        assert_eq!(client(&[&begun]), client(&cut), "the cuts changed the meaning");
        assert_eq!(call(&[&begun]), call(&cut), "the cuts changed the meaning");
    } else {
        assert_eq!(server(&[&begun]), server(&cut), "the cuts changed the meaning");
    }
}

fn client(pieces: &[&[u8]]) -> (Vec<ClientEvent>, Option<Error>) {
    let now = epoch();
    let mut client = Client::new(now, "c", ("live", "s"), &[]);
    let mut error = None;
    for piece in pieces {
        error = error.or(client.handle_bytes(now, piece).err());
    }
    let events: Vec<ClientEvent> = std::iter::from_fn(|| client.poll_event()).collect();
    let mut last = BTreeMap::new();
    for event in &events {
        let ClientEvent::Unit { unit, tracks } = event else { continue };
        let epoch = tracks.get(unit.track).map_or(0, |track| track.epoch);
        assert_eq!(unit.config_epoch, epoch, "a unit that its tracks do not decode");
        let before = last.insert(unit.track, unit.dts);
        assert!(before.is_none_or(|before| before <= unit.dts) && unit.dts <= unit.pts, "time went back");
        // Accepted messages can be forwarded as they are.
        let again = tracks_frame(tracks);
        assert!(unit_head(unit).is_some() && again.len() <= stream_max(), "it cannot be sent on");
    }
    ends_with(&events, &ClientEvent::Closed, error.is_some());
    assert!(client.poll_timeout().is_none() == events.contains(&ClientEvent::Closed));
    (events, error)
}

fn call(pieces: &[&[u8]]) -> (Vec<CallEvent>, Option<Error>) {
    let now = epoch();
    let asked = Call {
        method: "GET".to_owned(),
        path: "/live/rest/v2/version".to_owned(),
        query: Vec::new(),
        content_type: String::new(),
        body: Default::default(),
        user: String::new(),
        address: String::new(),
        sees_credentials: false,
    };
    let Some(mut client) = CallClient::new("c", &asked, now + relay::ANSWER_WITHIN) else {
        return (Vec::new(), None);
    };
    let mut error = None;
    for piece in pieces {
        error = error.or(client.handle_bytes(now, piece).err());
    }
    let events: Vec<CallEvent> = std::iter::from_fn(|| client.poll_event()).collect();
    assert!(events.len() <= 2, "a call is answered once");
    ends_with(&events, &CallEvent::Closed, error.is_some());
    (events, error)
}

fn server(pieces: &[&[u8]]) -> (Vec<ServerEvent>, Option<Error>) {
    let now = epoch();
    let mut server = Server::new(now, "c");
    let (mut error, mut events) = (None, Vec::new());
    for piece in pieces {
        error = error.or(server.handle_bytes(now, piece).err());
    }
    events.extend(std::iter::from_fn(|| server.poll_event()));
    let mut out = SendQueue::new();
    server.poll_transmit(&mut out);
    assert!(out.len() <= QUEUED_MAX, "{} bytes are queued", out.len());
    let is_request = |event: &&ServerEvent| matches!(event, ServerEvent::Play { .. } | ServerEvent::Call(_));
    assert!(events.iter().filter(is_request).count() <= 1, "one thing is asked for, once");
    ends_with(&events, &ServerEvent::Closed, error.is_some());
    (events, error)
}

/// Maximum size of a description of tracks: 16 tracks, each with records of 64 KiB.
const fn stream_max() -> usize {
    16 * 3 * 64 * 1024
}

fn ends_with<T: PartialEq>(events: &[T], closed: &T, failed: bool) {
    let ends = events.iter().filter(|event| *event == closed).count();
    assert!(ends <= 1 && (ends == 0 || events.last() == Some(closed)), "the end is last and once");
    assert!(!failed || ends == 1, "an error without an end");
}
