//! Tests of API calls and of viewer counts.

use super::*;
use crate::{ANSWER_WITHIN, Answer, CALL_BYTES_MAX, Call, CallClient, CallEvent, Viewers};

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn call(body: Vec<u8>) -> Call {
    Call {
        method: "PUT".into(),
        path: "/live/rest/v2/broadcasts/zwölf".into(),
        query: pairs(&[("on", "true"), ("empty", "")]),
        content_type: "application/json".into(),
        body: body.into(),
        user: "a@b".into(),
        address: "10.0.0.1".into(),
        sees_credentials: true,
    }
}

fn answer(bytes: usize) -> Answer {
    Answer { status: 200, fields: pairs(&[("Content-Type", "text/plain")]), body: vec![7; bytes].into() }
}

/// Delivers data in pieces until neither side sends any more. Returns the errors of client and
/// server.
fn run(client: &mut CallClient, server: &mut Server, piece: usize) -> [Option<Error>; 2] {
    let (now, mut errors) = (begin(), [None, None]);
    loop {
        let (mut up, mut down) = (SendQueue::new(), SendQueue::new());
        client.poll_transmit(&mut up);
        server.poll_transmit(&mut down);
        if up.is_empty() && down.is_empty() {
            return errors;
        }
        for bytes in up.take_all().chunks(piece) {
            let error = server.handle_bytes(now, bytes).err();
            errors[1] = errors[1].take().or(error);
        }
        for bytes in down.take_all().chunks(piece) {
            let error = client.handle_bytes(now, bytes).err();
            errors[0] = errors[0].take().or(error);
        }
    }
}

fn client_events(client: &mut CallClient) -> Vec<CallEvent> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

fn server_events(server: &mut Server) -> Vec<ServerEvent> {
    std::iter::from_fn(|| server.poll_event()).collect()
}

#[test]
fn a_call_and_its_answer_come_as_they_are_with_any_cut() {
    for piece in [1, 5, 100, 1 << 20] {
        for body in [0, 1, 70_000] {
            let asked = call(vec![3; body]);
            let mut client = CallClient::new("c", &asked, begin() + ANSWER_WITHIN).unwrap();
            let mut server = Server::new(begin(), "c");
            assert_eq!(run(&mut client, &mut server, piece), [None, None]);
            assert_eq!(server_events(&mut server), [ServerEvent::Call(asked)]);
            server.answer(&answer(body));
            assert_eq!(run(&mut client, &mut server, piece), [None, None]);
            assert_eq!(client_events(&mut client), [CallEvent::Answered(answer(body)), CallEvent::Closed]);
            assert_eq!(server_events(&mut server), [ServerEvent::Closed]);
            assert_eq!((client.poll_timeout(), server.poll_timeout()), (None, None));
        }
    }
}

#[test]
fn calls_and_answers_have_caps_and_ends() {
    let large = call(vec![0; CALL_BYTES_MAX as usize]);
    assert!(CallClient::new("c", &large, begin() + ANSWER_WITHIN).is_none());
    let long = Call { path: "x".repeat(70_000), ..call(Vec::new()) };
    assert!(CallClient::new("c", &long, begin() + ANSWER_WITHIN).is_none());
    let many = Call { query: vec![(String::new(), String::new()); 300], ..call(Vec::new()) };
    assert!(CallClient::new("c", &many, begin() + ANSWER_WITHIN).is_none());
    // The answer does not fit in a frame: the call was performed, but its result cannot be
    // returned.
    let mut client = CallClient::new("c", &call(Vec::new()), begin() + ANSWER_WITHIN).unwrap();
    let mut server = Server::new(begin(), "c");
    run(&mut client, &mut server, 4096);
    server.answer(&answer(BODY_BYTES_MAX as usize));
    run(&mut client, &mut server, 4096);
    let failed = Answer { status: 500, fields: Vec::new(), body: Bytes::new() };
    assert_eq!(client_events(&mut client), [CallEvent::Answered(failed), CallEvent::Closed]);
    // Without an answer in time, the call fails.
    let mut client = CallClient::new("c", &call(Vec::new()), begin() + ANSWER_WITHIN).unwrap();
    let until = client.poll_timeout().unwrap();
    assert_eq!(client.handle_timeout(until - Duration::from_millis(1)), Ok(()));
    assert_eq!(client.handle_timeout(until), Err(Error::Silent));
    assert_eq!(client_events(&mut client), [CallEvent::Closed]);
    assert_eq!(client.handle_timeout(until), Ok(()));
}

#[test]
fn another_cluster_and_a_second_request_are_refused() {
    let mut client = CallClient::new("one", &call(Vec::new()), begin() + ANSWER_WITHIN).unwrap();
    let mut server = Server::new(begin(), "two");
    assert_eq!(run(&mut client, &mut server, 4096), [Some(Error::Cluster), Some(Error::Cluster)]);
    assert_eq!(client_events(&mut client), [CallEvent::Closed]);
    let frame = call(Vec::new()).frame().unwrap();
    let mut server = Server::new(begin(), "c");
    let twice = [&b"MSRL\x01\x01c"[..], &frame, &frame].concat();
    assert_eq!(server.handle_bytes(begin(), &twice), Err(Error::Invalid("second request")));
}

#[test]
fn viewers_of_a_copy_are_told() {
    let told = Viewers { connected: 3, counted: vec![("hls".into(), 4), ("webrtc".into(), 5)] };
    let mut pair = Pair::new(["c", "c"], 3);
    pair.client.tell_viewers(&told);
    assert_eq!(pair.run(), (Ok(()), Ok(())));
    assert_eq!(pair.server_events(), [asked(), ServerEvent::Viewers(told)]);
    // Only the first sixteen protocols are sent.
    let many = Viewers { connected: 0, counted: vec![("way".into(), 1); 20] };
    pair.client.tell_viewers(&many);
    assert_eq!(pair.run(), (Ok(()), Ok(())));
    let [ServerEvent::Viewers(heard)] = &pair.server_events()[..] else { panic!("nothing was told") };
    assert_eq!(heard.counted.len(), 16);
}

proptest! {
    #[test]
    fn cut_bodies_are_refused_and_never_panic(cut in 0..120usize, bytes: Vec<u8>) {
        for frame in [call(Vec::new()).frame().unwrap(), answer(0).frame().unwrap()] {
            let body = frame.slice(HEAD_BYTES..);
            let short = body.slice(..cut.min(body.len() - 1));
            let is_call = frame[0] == kind::CALL;
            let is_refused = if is_call { Call::read(&short).is_err() } else { Answer::read(&short).is_err() };
            prop_assert!(is_refused);
        }
        let bytes = Bytes::from(bytes);
        let _ = Call::read(&bytes);
        let _ = Answer::read(&bytes);
        let _ = Viewers::read(&mut wire::Reader::new(&bytes));
    }
}
