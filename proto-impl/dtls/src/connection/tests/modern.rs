//! Tests of DTLS 1.3 and of the selection of a version.

use wire::Reader;

use super::*;
use crate::handshake::{
    ClientHello, ExtensionType, FragmentHead, KeyShare, MessageType, ServerHello, read_key_shares,
};
use crate::put;
use crate::record::RecordHead;

fn speaks(number: usize, versions: Versions) -> Config {
    Config { versions, ..config(number) }
}

#[test]
fn both_ends_connect_by_the_newest_version_that_they_have() {
    use Versions::{Both, Only12, Only13};
    for (client, server, is_13) in [
        (Both, Both, true),
        (Only13, Both, true),
        (Both, Only13, true),
        (Only13, Only13, true),
        (Both, Only12, false),
        (Only12, Both, false),
        (Only12, Only12, false),
    ] {
        for (a, b) in [(1, 2), (0, 2), (1, 0)] {
            let (mut ends, one, other) = Ends::connected(speaks(a, client), speaks(b, server));
            assert_eq!(CipherSuite::V13.contains(&one.suite), is_13, "{client:?} {server:?}");
            assert_eq!((one.suite, &one.srtp), (other.suite, &other.srtp));
            assert_eq!(one.srtp.unwrap().0, SrtpProfile::AeadAes128Gcm);
            assert_eq!(&one.peer_sha256.unwrap()[..], identity(b).fingerprint().digest());
            assert_eq!(&other.peer_sha256.unwrap()[..], identity(a).fingerprint().digest());
            let export = |end: &Connection, context| {
                let mut out = [0; 40];
                end.export("EXPERIMENTAL label", context, &mut out).unwrap();
                out
            };
            assert_eq!(export(&ends.client, None), export(&ends.server, None));
            assert_ne!(export(&ends.client, None), export(&ends.server, Some(b"context")));
            ends.client.send(b"question").unwrap();
            ends.server.send(b"answer").unwrap();
            ends.run();
            assert_eq!(ends.client.poll_event(), Some(Event::Data("answer".into())));
            assert_eq!(ends.server.poll_event(), Some(Event::Data("question".into())));
            // Everything was acknowledged, and nothing is pending.
            assert_eq!((ends.client.poll_timeout(), ends.server.poll_timeout()), (None, None));
            ends.client.close(ends.clock.now());
            ends.run();
            assert_eq!(reason(&mut ends.client), CloseReason::Local);
            assert_eq!(reason(&mut ends.server), CloseReason::Peer);
        }
    }
}

/// Returns the session of an end.
fn session(end: &mut Connection) -> &mut v13::Session {
    match &mut end.phase {
        Phase::Modern(session) => session,
        other => panic!("{other:?}"),
    }
}

fn connected() -> Ends {
    Ends::connected(speaks(1, Versions::Only13), speaks(2, Versions::Only13)).0
}

/// Reads the unencrypted messages in a datagram: type, sequence, body.
fn messages(datagram: &[u8]) -> Vec<(MessageType, u16, Vec<u8>)> {
    let mut r = Reader::new(datagram);
    let head = RecordHead::read(&mut r).unwrap();
    let mut r = r.sub(head.length).unwrap();
    let mut all = Vec::new();
    while !r.is_empty() {
        let head = FragmentHead::read(&mut r).unwrap();
        all.push((head.kind, head.sequence, r.take(head.fragment).unwrap().to_vec()));
    }
    all
}

fn message(kind: MessageType, sequence: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut clear = Vec::new();
    FragmentHead { kind, length, sequence, offset: 0, fragment: length }.write(&mut clear);
    clear.extend_from_slice(body);
    let mut out = Vec::new();
    let head = RecordHead {
        kind: ContentType::HANDSHAKE,
        version: VERSION_1_2,
        epoch: 0,
        sequence: 9,
        length: clear.len(),
    };
    head.write(&mut out);
    out.extend_from_slice(&clear);
    out
}

type Answer = (Option<Failure>, Vec<Vec<u8>>);

fn failure(end: &mut Connection, now: Instant) -> Answer {
    let sent = sent(end, now);
    match end.poll_event() {
        None => (None, sent),
        Some(Event::Closed(CloseReason::Failed(failure))) => (Some(failure), sent),
        other => panic!("{other:?}"),
    }
}

/// Returns a server's answer to a modified hello.
fn server_on(versions: Versions, change: impl FnOnce(&mut ClientHello<'_>)) -> Answer {
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, versions)).start();
    let now = ends.clock.now();
    let hello = messages(&sent(&mut ends.client, now)[0]).remove(0).2;
    let mut hello = ClientHello::read(&hello).unwrap();
    change(&mut hello);
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, 0, &body));
    failure(&mut ends.server, now)
}

/// Returns a client's answer to the modified hello of a server with these versions.
fn client_on(versions: Versions, change: impl FnOnce(&mut ServerHello<'_>)) -> Answer {
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, versions)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    let hello = messages(&sent(&mut ends.server, now)[0]).remove(0).2;
    let mut hello = ServerHello::read(&hello).unwrap();
    change(&mut hello);
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.client.handle_datagram(now, &mut message(MessageType::SERVER_HELLO, 0, &body));
    failure(&mut ends.client, now)
}

fn shares(groups: &[(u16, usize)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (group, bytes) in groups {
        KeyShare { group: *group, public: &vec![4; *bytes] }.write(&mut list);
    }
    let mut body = Vec::new();
    put::vec16(&mut body, &list);
    body
}

fn many_shares() -> Vec<u8> {
    let groups: Vec<(u16, usize)> = (1000..3000).map(|group| (group, 1)).collect();
    shares(&groups)
}

#[test]
fn d_19_what_a_server_refuses() {
    use ExtensionType as E;
    type Change = fn(&mut ClientHello<'_>);
    let asked: [(Change, Option<Failure>); 18] = [
        (|_| {}, None),
        (|hello| hello.extensions.set(E::SUPPORTED_VERSIONS, vec![2, 0xfe, 0xff]), Some(Failure::Version)),
        (
            |hello| hello.extensions.set(E::SUPPORTED_VERSIONS, vec![3, 0xfe, 0xfc, 0]),
            Some(Failure::Malformed),
        ),
        (|hello| hello.cookie = b"old", Some(Failure::Illegal("a cookie of DTLS 1.2"))),
        (|hello| hello.compressions = &[0, 1], Some(Failure::Illegal("compression methods beside null"))),
        (|hello| hello.suites = vec![0xc02b, 0x1304], Some(Failure::NoCommonSuite)),
        (|hello| drop_extension(hello, E::SIGNATURE_ALGORITHMS), Some(Failure::MissingExtension(13))),
        (|hello| drop_extension(hello, E::SUPPORTED_GROUPS), Some(Failure::MissingExtension(10))),
        (|hello| drop_extension(hello, E::KEY_SHARE), Some(Failure::MissingExtension(51))),
        (|hello| drop_extension(hello, E::USE_SRTP), Some(Failure::NoCommonSrtpProfile)),
        (
            |hello| hello.extensions.set(E::SIGNATURE_ALGORITHMS, vec![0, 2, 4, 1]),
            Some(Failure::NoCommonSignature),
        ),
        (|hello| hello.extensions.set(E::SUPPORTED_GROUPS, vec![0, 2, 0, 24]), Some(Failure::NoCommonGroup)),
        (
            |hello| hello.extensions.set(E::KEY_SHARE, shares(&[(29, 32), (29, 32)])),
            Some(Failure::Illegal("two shares of one group")),
        ),
        (|hello| hello.extensions.set(E::KEY_SHARE, shares(&[(29, 31)])), Some(Failure::PublicValue)),
        (|hello| hello.extensions.set(E::KEY_SHARE, vec![0, 6, 0, 29, 0, 2, 0]), Some(Failure::Malformed)),
        (|hello| hello.extensions.set(E::KEY_SHARE, many_shares()), Some(Failure::TooLarge)),
        // Unknown groups, and a session to resume, are ignored.
        (|hello| hello.extensions.set(E::KEY_SHARE, shares(&[(0x11ec, 1216), (29, 32)])), None),
        (|hello| hello.session_id = &[7; 32], None),
    ];
    for (number, (change, refused)) in asked.into_iter().enumerate() {
        let (failure, sent) = server_on(Versions::Both, change);
        assert_eq!(failure, refused, "{number}");
        match failure {
            // Only an unencrypted alert is sent.
            Some(failure) => assert_eq!(sent.concat()[HEAD_BYTES..], [2, failure.alert().0]),
            None => {
                let (kind, sequence, body) = messages(&sent[0]).remove(0);
                let hello = ServerHello::read(&body).unwrap();
                assert_eq!((kind, sequence, hello.suite), (MessageType::SERVER_HELLO, 0, 0x1301));
                assert_eq!((hello.session_id, hello.version), (&[][..], VERSION_1_2));
            }
        }
    }
    assert_eq!(
        server_on(Versions::Only13, |hello| drop_extension(hello, E::SUPPORTED_VERSIONS)).0,
        Some(Failure::Version)
    );
}

fn drop_extension(hello: &mut ClientHello<'_>, kind: ExtensionType) {
    hello.extensions.list.retain(|(known, _)| *known != kind);
}

#[test]
fn d_19_what_a_client_refuses() {
    use ExtensionType as E;
    type Change = fn(&mut ServerHello<'_>);
    let answered: [(Change, Failure); 11] = [
        (|hello| hello.version = 0xfefc, Failure::Version),
        (|hello| hello.session_id = &[1], Failure::Illegal("a session not offered")),
        (|hello| hello.compression = 1, Failure::Illegal("a compression not offered")),
        (|hello| hello.suite = 0xc02b, Failure::Illegal("a suite not offered")),
        (
            |hello| hello.extensions.set(E::SUPPORTED_VERSIONS, vec![0xfe, 0xfd]),
            Failure::Illegal("a version not offered"),
        ),
        (
            |hello| hello.extensions.set(E::SUPPORTED_VERSIONS, vec![0xfe]),
            Failure::Illegal("a version not offered"),
        ),
        (|hello| hello.extensions.set(E::USE_SRTP, vec![0, 2, 0, 7, 0]), Failure::UnsupportedExtension(14)),
        (|hello| hello.extensions.list.truncate(1), Failure::MissingExtension(51)),
        (
            |hello| hello.extensions.set(E::KEY_SHARE, vec![0, 23, 0, 1, 4]),
            Failure::Illegal("a group without a share"),
        ),
        (|hello| hello.extensions.set(E::KEY_SHARE, vec![0, 29, 0, 1, 4]), Failure::PublicValue),
        (|hello| hello.extensions.set(E::KEY_SHARE, vec![0, 29, 0, 0]), Failure::Malformed),
    ];
    for (number, (change, refused)) in answered.into_iter().enumerate() {
        let (failure, sent) = client_on(Versions::Both, change);
        assert_eq!(failure, Some(refused), "{number}");
        assert_eq!(sent.concat()[HEAD_BYTES..], [2, refused.alert().0]);
    }
}

/// Checks RFC 8446 §4.1.3: a server that supports DTLS 1.3 marks its random value if the client offered only
/// 1.2, and a client that offered 1.3 aborts when it sees the mark.
#[test]
fn d_31_nobody_talks_two_ends_down() {
    let (failure, sent) =
        server_on(Versions::Both, |hello| drop_extension(hello, ExtensionType::SUPPORTED_VERSIONS));
    assert_eq!(failure, None);
    let hello = messages(&sent[0]).remove(0).2;
    assert!(ServerHello::read(&hello).unwrap().random.ends_with(b"DOWNGRD\x01"));

    let refused = Failure::Illegal("a server that was talked down to DTLS 1.2");
    for end in [b"DOWNGRD\x01", b"DOWNGRD\x00"] {
        let (failure, _) = client_on(Versions::Only12, |hello| {
            *hello.random.last_chunk_mut().unwrap() = *end;
        });
        assert_eq!(failure, Some(refused));
    }
    assert_eq!(client_on(Versions::Only12, |hello| hello.random[31] ^= 1).0, None);

    // An attacker on the path removes the offer of 1.3: neither end connects.
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both)).start();
    let now = ends.clock.now();
    let hello = messages(&self::sent(&mut ends.client, now)[0]).remove(0).2;
    let mut hello = ClientHello::read(&hello).unwrap();
    drop_extension(&mut hello, ExtensionType::SUPPORTED_VERSIONS);
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, 0, &body));
    assert_eq!(ends.reasons(), (CloseReason::Failed(refused), CloseReason::Alert(refused.alert())));
}

/// Checks that a server without a usable key share requests a second hello once, and that a repeated request is
/// an error.
#[test]
fn d_28_a_second_hello_is_asked_for_once() {
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both)).start();
    let now = ends.clock.now();
    let first = messages(&sent(&mut ends.client, now)[0]).remove(0).2;
    let mut hello = ClientHello::read(&first).unwrap();
    let random = hello.random;
    hello.extensions.set(ExtensionType::KEY_SHARE, shares(&[]));
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, 0, &body));
    let retry = messages(&sent(&mut ends.server, now)[0]).remove(0).2;
    let request = ServerHello::read(&retry).unwrap();
    assert_eq!(request.extensions.find(ExtensionType::KEY_SHARE), Some(&[0, 29][..]));

    // The client has already sent that share, so a second hello would be the same.
    ends.client.handle_datagram(now, &mut message(MessageType::SERVER_HELLO, 0, &retry));
    let refused = Failure::Illegal("a group not offered, or with a share already");
    assert_eq!(failure(&mut ends.client, now).0, Some(refused));

    // Without the requested share, the handshake fails; no third hello is requested.
    ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, 1, &body));
    assert_eq!(failure(&mut ends.server, now).0, Some(Failure::Illegal("not the share that was asked for")));

    // If another group is requested, the client creates a key for it once, with the same random value.
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both)).start();
    sent(&mut ends.client, now);
    let mut request = request;
    request.extensions.set(ExtensionType::KEY_SHARE, vec![0, 23]);
    request.extensions.set(ExtensionType::COOKIE, vec![0, 3, 7, 7, 7]);
    let mut retry = Vec::new();
    request.write(&mut retry);
    ends.client.handle_datagram(now, &mut message(MessageType::SERVER_HELLO, 0, &retry));
    let (kind, sequence, second) = messages(&sent(&mut ends.client, now)[0]).remove(0);
    let second = ClientHello::read(&second).unwrap();
    assert_eq!((kind, sequence, second.random), (MessageType::CLIENT_HELLO, 1, random));
    assert_eq!(second.extensions.find(ExtensionType::COOKIE), Some(&[0, 3, 7, 7, 7][..]));
    let share = read_key_shares(second.extensions.find(ExtensionType::KEY_SHARE).unwrap()).unwrap();
    assert_eq!((share.len(), share[0].group, share[0].public.len()), (1, 23, 65));
    ends.client.handle_datagram(now, &mut message(MessageType::SERVER_HELLO, 1, &retry));
    assert_eq!(failure(&mut ends.client, now).0, Some(Failure::Unexpected(MessageType::SERVER_HELLO)));
}

#[test]
fn d_30_a_flood_of_key_updates_is_followed_with_bounded_state() {
    let mut ends = connected();
    let held = (ends.client.held_bytes(), ends.server.held_bytes());
    for round in 0..2000 {
        ends.client.update_keys(ends.clock.now());
        ends.run();
        ends.clock.advance(ms(50));
        for end in [&mut ends.client, &mut ends.server] {
            end.handle_timeout(ends.clock.now());
        }
        ends.run();
        ends.client.send(b"question").unwrap();
        ends.server.send(b"answer").unwrap();
        ends.run();
        assert_eq!(ends.client.poll_event(), Some(Event::Data("answer".into())), "{round}");
        assert_eq!(ends.server.poll_event(), Some(Event::Data("question".into())), "{round}");
    }
    for (end, held) in [(&ends.client, held.0), (&ends.server, held.1)] {
        assert!(end.held_bytes() < held + 1024, "{}", end.held_bytes());
        assert_eq!(end.poll_timeout(), None);
    }
    assert_eq!(session(&mut ends.client).write_epoch(), 2003);
}

/// Checks that half-used keys are updated automatically while data flows.
#[test]
fn d_12_keys_are_changed_before_they_wear_out() {
    let mut ends = connected();
    session(&mut ends.client).skip_to(1 << 23);
    session(&mut ends.server).expect(1 << 23);
    for round in 0..3 {
        ends.client.send(b"question").unwrap();
        ends.run();
        assert_eq!(ends.server.poll_event(), Some(Event::Data("question".into())));
        ends.clock.advance(ms(50));
        ends.server.handle_timeout(ends.clock.now());
        ends.run();
        assert_eq!(session(&mut ends.client).write_epoch(), 4, "{round}");
    }
}

/// Checks that forged records do not affect a session.
#[test]
fn d_18_what_is_forged_is_ignored_once_keys_are_on() {
    let mut ends = connected();
    let now = ends.clock.now();
    for end in [&mut ends.client, &mut ends.server] {
        for (kind, clear) in
            [(20, &[1][..]), (21, &[2, 40]), (21, &[1, 0]), (22, &[0; 12]), (23, b"data"), (26, &[0, 0])]
        {
            let mut record = Vec::new();
            let kind = ContentType(kind);
            RecordHead { kind, version: VERSION_1_2, epoch: 0, sequence: 99, length: clear.len() }
                .write(&mut record);
            record.extend_from_slice(clear);
            end.handle_datagram(now, &mut record);
        }
        for epoch in 0..4 {
            end.handle_datagram(now, &mut [&[0x2c | epoch, 0, 9, 0, 30][..], &[9; 30]].concat());
        }
        assert_eq!((end.poll_event(), sent(end, now)), (None, vec![]));
        assert!(end.is_connected());
    }
}

/// Checks that a session needs little memory, and that a handshake needs no more than with DTLS 1.2 and ends in time.
#[test]
fn a_session_of_13_holds_little() {
    let mut ends = connected();
    for end in [&mut ends.client, &mut ends.server] {
        assert!(end.held_bytes() < 2048, "{}", end.held_bytes());
        assert_eq!(end.poll_timeout(), None);
        let most = end.payload_max();
        assert_eq!(end.send(&vec![0; most + 1]), Err(Error::TooLong { length: most + 1, most }));
        end.send(&vec![0; most]).unwrap();
        assert_eq!(sent(end, ends.clock.now()).iter().map(Vec::len).max(), Some(1200));
    }
}

/// Checks the loss of the client's last flight. The client repeats it until it is acknowledged, or gives up.
#[test]
fn d_11_a_client_that_is_never_acknowledged_gives_up() {
    let mut ends = Ends::new(speaks(1, Versions::Only13), speaks(2, Versions::Only13)).start();
    let hello = sent(&mut ends.client, ends.clock.now());
    deliver(&mut ends.server, ends.clock.now(), &hello);
    let flight = sent(&mut ends.server, ends.clock.now());
    deliver(&mut ends.client, ends.clock.now(), &flight);
    assert!(matches!(ends.client.poll_event(), Some(Event::Connected(_))));
    let mut repeats = 0;
    while let Some(at) = ends.client.poll_timeout() {
        ends.clock.advance_to(at);
        ends.client.handle_timeout(at);
        repeats += usize::from(!sent(&mut ends.client, at).is_empty());
    }
    assert_eq!((repeats, ends.clock.elapsed()), (7, secs(10)));
    assert_eq!(reason(&mut ends.client), CloseReason::Timeout);
}

/// Checks a certificate that is missing or differs from the announced one.
#[test]
fn d_02_the_certificate_must_be_the_announced_one_in_13() {
    for client_checks in [false, true] {
        for (prints, failure) in
            [(vec![identity(0).fingerprint()], Failure::Fingerprint), (vec![], Failure::NoFingerprint)]
        {
            let mut ends = Ends::new(speaks(1, Versions::Only13), speaks(2, Versions::Only13));
            let checks = if client_checks { &mut ends.client } else { &mut ends.server };
            checks.set_remote_fingerprints(ends.clock.now(), prints);
            let mut ends = ends.start();
            ends.run();
            if client_checks {
                assert_eq!(reason(&mut ends.client), CloseReason::Failed(failure));
                assert_eq!(reason(&mut ends.server), CloseReason::Alert(failure.alert()));
            } else {
                // The client is already connected when the server refuses its certificate.
                assert!(matches!(ends.client.poll_event(), Some(Event::Connected(_))));
                assert_eq!(reason(&mut ends.client), CloseReason::Alert(failure.alert()));
                assert_eq!(reason(&mut ends.server), CloseReason::Failed(failure));
            }
        }
    }
    let nobody = Config { identity: None, ..speaks(1, Versions::Only13) };
    let mut ends = Ends::new(nobody, speaks(2, Versions::Only13)).start();
    ends.run();
    assert_eq!(reason(&mut ends.server), CloseReason::Failed(Failure::CertificateRequired));
    // A server that requests no certificate does not know its peer.
    let open = |number| Config { check: PeerCheck::Nobody, ..speaks(number, Versions::Only13) };
    let (_, a, b) = Ends::connected(open(1), open(2));
    assert!(a.peer_sha256.is_some() && b.peer_sha256.is_none());
}

/// Checks that either side checks the peer's certificate only when its fingerprint has been
/// announced.
#[test]
fn d_02_the_certificate_waits_for_its_announcement_in_13() {
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both));
    ends.client = Connection::client(Arc::new(speaks(1, Versions::Both)), Seed::from_number(1));
    ends.server = Connection::server(Arc::new(speaks(2, Versions::Both)), Seed::from_number(2));
    let mut ends = ends.start();
    ends.run();
    let now = ends.clock.now();
    assert!(!ends.client.is_connected());
    ends.client.set_remote_fingerprints(now, vec![identity(2).fingerprint()]);
    ends.run();
    assert!(ends.client.is_connected() && !ends.server.is_connected());
    ends.server.set_remote_fingerprints(now, vec![identity(1).fingerprint()]);
    ends.run();
    assert!(ends.server.is_connected());
}

/// Returns the close reason of a client after a server flight with a modified message.
fn client_on_flight(kind: MessageType, change: impl FnOnce(&mut Vec<u8>)) -> CloseReason {
    let mut ends = Ends::new(speaks(1, Versions::Only13), speaks(2, Versions::Only13)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    session(&mut ends.server).change(kind, change);
    ends.run();
    let reason = reason(&mut ends.client);
    let CloseReason::Failed(failure) = reason else { return reason };
    assert_eq!(self::reason(&mut ends.server), CloseReason::Alert(failure.alert()));
    reason
}

/// Checks a wrong Finished, a wrong signature, and misplaced extensions.
#[test]
fn d_13_proofs_that_are_none_in_13() {
    use MessageType as M;
    let spoil = |body: &mut Vec<u8>| *body.last_mut().unwrap() ^= 1;
    let other_scheme = |body: &mut Vec<u8>| body[..2].copy_from_slice(&[4, 1]);
    let failed = CloseReason::Failed;
    assert_eq!(client_on_flight(M::FINISHED, spoil), failed(Failure::Finished));
    assert_eq!(client_on_flight(M::CERTIFICATE_VERIFY, spoil), failed(Failure::Signature));
    let refused = Failure::Illegal("a signature scheme not offered");
    assert_eq!(client_on_flight(M::CERTIFICATE_VERIFY, other_scheme), failed(refused));
    let with = |extension: u8| move |body: &mut Vec<u8>| *body = vec![0, 4, 0, extension, 0, 0];
    let refused = Failure::UnsupportedExtension(99);
    assert_eq!(client_on_flight(M::ENCRYPTED_EXTENSIONS, with(99)), failed(refused));
    let refused = Failure::Illegal("an extension of another message");
    assert_eq!(client_on_flight(M::ENCRYPTED_EXTENSIONS, with(13)), failed(refused));
}

/// Checks the second hello, which must equal the first except for the requested changes.
#[test]
fn d_28_a_second_hello_is_the_first_but_for_what_was_asked() {
    for (change, refused) in [
        ((|_| {}) as fn(&mut ClientHello<'_>), None),
        (|hello| hello.suites = vec![0x1302], Some(Failure::Illegal("another hello than before"))),
        (
            |hello| hello.extensions.set(ExtensionType::KEY_SHARE, shares(&[(29, 32), (23, 65)])),
            Some(Failure::Illegal("not the share that was asked for")),
        ),
    ] {
        let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both)).start();
        let now = ends.clock.now();
        let first = messages(&sent(&mut ends.client, now)[0]).remove(0).2;
        let mut hello = ClientHello::read(&first).unwrap();
        let share = hello.extensions.find(ExtensionType::KEY_SHARE).unwrap().to_vec();
        let mut say = |hello: &ClientHello<'_>, sequence| {
            let mut body = Vec::new();
            hello.write(&mut body);
            ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, sequence, &body));
            failure(&mut ends.server, now).0
        };
        hello.extensions.set(ExtensionType::KEY_SHARE, shares(&[]));
        assert_eq!(say(&hello, 0), None);
        hello.extensions.set(ExtensionType::KEY_SHARE, share);
        change(&mut hello);
        assert_eq!(say(&hello, 1), refused);
    }
}

/// Checks unencrypted fragments of later messages. They are dropped once there are keys, and do no harm.
#[test]
fn d_10_junk_ahead_in_the_clear_leaves_the_handshake_alone() {
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both)).start();
    let now = ends.clock.now();
    for sequence in 1..8 {
        for end in [&mut ends.client, &mut ends.server] {
            end.handle_datagram(now, &mut message(MessageType::ENCRYPTED_EXTENSIONS, sequence, &[0, 0]));
        }
    }
    ends.run();
    assert!(ends.client.is_connected() && ends.server.is_connected());
}

/// Runs until the client is connected and its last flight has arrived, but the client does not know that yet.
fn before_the_acknowledgement() -> Ends {
    let mut ends = Ends::new(speaks(1, Versions::Only13), speaks(2, Versions::Only13)).start();
    let now = ends.clock.now();
    for _ in 0..2 {
        let datagrams = sent(&mut ends.client, now);
        deliver(&mut ends.server, now, &datagrams);
        let datagrams = sent(&mut ends.server, now);
        if !ends.server.is_connected() {
            deliver(&mut ends.client, now, &datagrams);
        }
    }
    assert!(matches!(ends.server.poll_event(), Some(Event::Connected(_))));
    ends
}

fn update(sequence: u16) -> Vec<u8> {
    let mut clear = Vec::new();
    let kind = MessageType::KEY_UPDATE;
    FragmentHead { kind, length: 1, sequence, offset: 0, fragment: 1 }.write(&mut clear);
    clear.push(0);
    clear
}

/// Checks that data with handshake keys is dropped, and that new messages must use the latest keys.
#[test]
fn d_12_old_keys_are_for_what_is_repeated_only() {
    let now = Clock::new().now();
    let mut ends = before_the_acknowledgement();
    let mut data = session(&mut ends.client).forge(2, ContentType::APPLICATION_DATA, b"data");
    ends.server.handle_datagram(now, &mut data);
    assert_eq!((ends.server.poll_event(), ends.server.stats().dropped_early), (None, 1));
    let mut record = session(&mut ends.client).forge(2, ContentType::HANDSHAKE, &update(4));
    ends.server.handle_datagram(now, &mut record);
    let refused = Failure::Unexpected(MessageType::KEY_UPDATE);
    assert_eq!(reason(&mut ends.server), CloseReason::Failed(refused));

    // A message that follows the key update, but uses the keys that the update replaces.
    let mut ends = before_the_acknowledgement();
    for sequence in [5, 4] {
        let mut record = session(&mut ends.client).forge(3, ContentType::HANDSHAKE, &update(sequence));
        ends.server.handle_datagram(now, &mut record);
    }
    assert_eq!(reason(&mut ends.server), CloseReason::Failed(refused));
}

/// Checks that a part of the next flight confirms the previous one, which is then not repeated, and that the
/// part is acknowledged.
#[test]
fn d_11_a_part_of_an_answer_stops_the_flight_before_it() {
    let small = Config { mtu: 150, ..speaks(1, Versions::Only13) };
    let mut ends = Ends::new(small, speaks(2, Versions::Only13)).start();
    let hello = sent(&mut ends.client, ends.clock.now());
    deliver(&mut ends.server, ends.clock.now(), &hello);
    let flight = sent(&mut ends.server, ends.clock.now());
    deliver(&mut ends.client, ends.clock.now(), &flight);
    let answer = sent(&mut ends.client, ends.clock.now());
    assert!(answer.len() > 2);
    deliver(&mut ends.server, ends.clock.now(), &answer[..1]);
    ends.clock.advance(secs(5));
    ends.server.handle_timeout(ends.clock.now());
    assert_eq!(ends.server.stats().retransmits, 0);
    assert_eq!(sent(&mut ends.server, ends.clock.now()).len(), 1, "the acknowledgement");
    deliver(&mut ends.server, ends.clock.now(), &answer[1..]);
    ends.run();
    assert!(ends.server.is_connected());
}

/// Checks that the suite in a request for a second hello is also used for the handshake.
#[test]
fn d_28_a_server_does_not_change_its_mind() {
    let mut ends = Ends::new(speaks(1, Versions::Both), speaks(2, Versions::Both)).start();
    let now = ends.clock.now();
    sent(&mut ends.client, now);
    let mut say = |hello: Vec<u8>, sequence| {
        ends.client.handle_datagram(now, &mut message(MessageType::SERVER_HELLO, sequence, &hello));
        failure(&mut ends.client, now).0
    };
    let retry = v13::write_retry(CipherSuite::Aes128Gcm, Some(23), &[]);
    assert_eq!(say(retry.clone(), 0), None);
    let mut hello = ServerHello::read(&retry).unwrap();
    (hello.random, hello.suite) = ([7; 32], CipherSuite::Aes256Gcm.number());
    let mut share = Vec::new();
    KeyShare { group: 23, public: &[4; 65] }.write(&mut share);
    hello.extensions.set(ExtensionType::KEY_SHARE, share);
    let mut body = Vec::new();
    hello.write(&mut body);
    assert_eq!(say(body, 1), Some(Failure::Illegal("another suite than before")));
}
