//! Tests of connections to a hostile peer.

use crypto::AgreementGroup;
use wire::Reader;

use super::*;
use crate::handshake::{
    CertificateMessage, ClientHello, ExtensionType, FragmentHead, MessageType, ServerHello, Signed, UseSrtp,
};
use crate::put;
use crate::record::{RecordHead, VERSION_1_0};
use crate::suite::group_number;

/// Reads the messages of an unencrypted flight in a single datagram: type, sequence number, body.
fn messages(datagrams: &[Vec<u8>]) -> Vec<(MessageType, u16, Vec<u8>)> {
    let mut all = Vec::new();
    for datagram in datagrams {
        let mut r = Reader::new(datagram);
        while !r.is_empty() {
            let head = RecordHead::read(&mut r).unwrap();
            let mut body = r.sub(head.length).unwrap();
            if head.kind == ContentType::HANDSHAKE && head.epoch == 0 {
                let head = FragmentHead::read(&mut body).unwrap();
                assert_eq!(head.length, head.fragment);
                all.push((head.kind, head.sequence, body.rest().to_vec()));
            }
        }
    }
    all
}

fn record(kind: ContentType, epoch: u16, sequence: u64, clear: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    RecordHead { kind, version: VERSION_1_2, epoch, sequence, length: clear.len() }.write(&mut out);
    out.extend_from_slice(clear);
    out
}

fn fragment(head: &FragmentHead, bytes: &[u8]) -> Vec<u8> {
    let mut clear = Vec::new();
    head.write(&mut clear);
    clear.extend_from_slice(bytes);
    record(ContentType::HANDSHAKE, 0, 0, &clear)
}

fn message(kind: MessageType, sequence: u16, body: &[u8]) -> Vec<u8> {
    fragment(&FragmentHead { kind, length: body.len(), sequence, offset: 0, fragment: body.len() }, body)
}

/// Returns a server's answer to a modified hello.
fn server_on(change: impl FnOnce(&mut ClientHello<'_>)) -> Result<Vec<(MessageType, u16, Vec<u8>)>, Failure> {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = messages(&sent(&mut ends.client, now)).remove(0).2;
    let mut hello = ClientHello::read(&hello).unwrap();
    change(&mut hello);
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, 0, &body));
    let answer = sent(&mut ends.server, now);
    match ends.server.poll_event() {
        None => Ok(messages(&answer)),
        Some(Event::Closed(CloseReason::Failed(failure))) => {
            // Only the alert is sent.
            assert_eq!(answer.concat()[HEAD_BYTES..], [2, failure.alert().0]);
            Err(failure)
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the failure of a client that received a server's modified first message.
fn client_on(change: impl FnOnce(&mut ServerHello<'_>)) -> Option<Failure> {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    let hello = messages(&sent(&mut ends.server, now)).remove(0).2;
    let mut hello = ServerHello::read(&hello).unwrap();
    change(&mut hello);
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.client.handle_datagram(now, &mut message(MessageType::SERVER_HELLO, 0, &body));
    ends.client.poll_event().map(|event| match event {
        Event::Closed(CloseReason::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    })
}

fn drop_extension(list: &mut Vec<(ExtensionType, std::borrow::Cow<'_, [u8]>)>, kind: ExtensionType) {
    list.retain(|(known, _)| *known != kind);
}

fn numbers16(numbers: &[u16]) -> Vec<u8> {
    let mut body = Vec::new();
    put::vec16(&mut body, &put::numbers(numbers.iter().copied()));
    body
}

#[test]
fn d_15_what_a_server_refuses() {
    use ExtensionType as E;
    type Change = fn(&mut ClientHello<'_>);
    let replace = |kind: E, body: Vec<u8>| {
        move |hello: &mut ClientHello<'_>| {
            drop_extension(&mut hello.extensions.list, kind);
            hello.extensions.push(kind, body);
        }
    };
    let simple: [(Change, Failure); 8] = [
        (|hello| hello.version = VERSION_1_0, Failure::Version),
        (|hello| hello.version = 0xffff, Failure::Version),
        (|hello| hello.suites = vec![0xc009, 0xc014, 0x002f, 0x1301], Failure::NoCommonSuite),
        (|hello| hello.suites = vec![0xc02f, 0xcca8], Failure::NoCommonSuite),
        (|hello| hello.compressions = &[1], Failure::Illegal("compression methods without null")),
        (
            |hello| drop_extension(&mut hello.extensions.list, E::EXTENDED_MASTER_SECRET),
            Failure::NoExtendedMasterSecret,
        ),
        (|hello| drop_extension(&mut hello.extensions.list, E::USE_SRTP), Failure::NoCommonSrtpProfile),
        (
            |hello| drop_extension(&mut hello.extensions.list, E::SIGNATURE_ALGORITHMS),
            Failure::NoCommonSignature,
        ),
    ];
    for (change, failure) in simple {
        assert_eq!(server_on(change), Err(failure));
    }
    let srtp = |profiles: &[u16]| UseSrtp { profiles: profiles.to_vec(), mki: &[] }.write();
    for (kind, body, failure) in [
        (E::USE_SRTP, srtp(&[2, 5, 6]), Failure::NoCommonSrtpProfile),
        (E::USE_SRTP, vec![0, 0, 0], Failure::Malformed),
        (E::SUPPORTED_GROUPS, numbers16(&[24, 25, 0x11ec]), Failure::NoCommonGroup),
        (E::SIGNATURE_ALGORITHMS, numbers16(&[0x0203, 0x0201, 0x0804]), Failure::NoCommonSignature),
        (E::EC_POINT_FORMATS, vec![1, 1], Failure::Illegal("no uncompressed points")),
        (E::RENEGOTIATION_INFO, vec![12; 13], Failure::Renegotiation),
        (E::EXTENDED_MASTER_SECRET, vec![0], Failure::Malformed),
        // The client supports only DTLS 1.3, or only DTLS 1.0.
        (E::SUPPORTED_VERSIONS, vec![2, 0xfe, 0xfc], Failure::Version),
        (E::SUPPORTED_VERSIONS, vec![2, 0xfe, 0xff], Failure::Version),
    ] {
        assert_eq!(server_on(replace(kind, body)), Err(failure), "{kind:?}");
    }
}

#[test]
fn d_15_what_a_server_takes() {
    use ExtensionType as E;
    let taken = |change: &dyn Fn(&mut ClientHello<'_>)| {
        let answer = server_on(|hello| change(hello)).unwrap();
        let kinds: Vec<u8> = answer.iter().map(|(kind, ..)| kind.0).collect();
        assert_eq!(kinds, [2, 11, 12, 13, 14]);
        answer[0].2.clone()
    };
    let set = |hello: &mut ClientHello<'_>, kind: E, body: Vec<u8>| {
        drop_extension(&mut hello.extensions.list, kind);
        hello.extensions.push(kind, body);
    };
    // A master key identifier is answered with an empty identifier.
    let answer = taken(&|hello| {
        set(hello, E::USE_SRTP, UseSrtp { profiles: vec![0x99, 1], mki: b"key" }.write());
    });
    let answer = ServerHello::read(&answer).unwrap();
    let srtp = UseSrtp::read(answer.extensions.find(E::USE_SRTP).unwrap()).unwrap();
    assert_eq!((srtp.profiles, srtp.mki), (vec![1], &[][..]));

    // A hello like Chromium's: it also offers DTLS 1.3, an unknown group, other suites, and various
    // extensions.
    let answer = taken(&|hello| {
        hello.suites = vec![0x1301, 0x1302, 0x1303, 0xcca9, 0xc02f, 0xc02b, 0xc009, 0x00ff];
        set(hello, E::SUPPORTED_VERSIONS, vec![4, 0xfe, 0xfc, 0xfe, 0xfd]);
        set(hello, E::SUPPORTED_GROUPS, numbers16(&[0x11ec, 29, 23, 24]));
        set(hello, E(51), vec![0; 1300]);
        set(hello, E(16), vec![0, 9, 8, b'c', b'-', b'w', b'e', b'b', b'r', b't', b'c']);
        drop_extension(&mut hello.extensions.list, E::RENEGOTIATION_INFO);
    });
    let answer = ServerHello::read(&answer).unwrap();
    assert_eq!(answer.suite, 0xc02b);
    assert_eq!(answer.extensions.check_renegotiation(), Ok(true));
    assert!(!answer.random.ends_with(b"DOWNGRD\x01"));

    // A version above DTLS 1.3 is unknown, so it is ignored.
    taken(&|hello| hello.version = 0xfe00);
    taken(&|hello| hello.version = 0xfdff);

    // If no groups are listed, any may be used; P-256 is always supported.
    let answer = server_on(|hello| drop_extension(&mut hello.extensions.list, E::SUPPORTED_GROUPS)).unwrap();
    assert_eq!(answer[2].2[..3], [3, 0, 23]);
}

#[test]
fn d_15_what_a_client_refuses() {
    use ExtensionType as E;
    let check = |change: &dyn Fn(&mut ServerHello<'_>), failure| {
        assert_eq!(client_on(|hello| change(hello)), Some(failure));
    };
    let set = |hello: &mut ServerHello<'_>, kind: E, body: Vec<u8>| {
        drop_extension(&mut hello.extensions.list, kind);
        hello.extensions.push(kind, body);
    };
    check(&|hello| hello.version = VERSION_1_0, Failure::Version);
    check(&|hello| hello.version = 0xfefc, Failure::Version);
    check(&|hello| hello.suite = 0xc009, Failure::Illegal("a suite not offered"));
    check(&|hello| hello.compression = 1, Failure::Illegal("a compression not offered"));
    let without = |kind| move |hello: &mut ServerHello<'_>| drop_extension(&mut hello.extensions.list, kind);
    check(&without(E::EXTENDED_MASTER_SECRET), Failure::NoExtendedMasterSecret);
    check(&without(E::USE_SRTP), Failure::NoCommonSrtpProfile);
    check(&|hello| set(hello, E(16), vec![]), Failure::UnsupportedExtension(16));
    check(&|hello| set(hello, E::SUPPORTED_VERSIONS, vec![0xfe, 0xfc]), Failure::UnsupportedExtension(43));
    check(&|hello| set(hello, E::RENEGOTIATION_INFO, vec![1, 7]), Failure::Renegotiation);
    let srtp = |profiles: &[u16], mki| UseSrtp { profiles: profiles.to_vec(), mki }.write();
    check(&|hello| set(hello, E::USE_SRTP, srtp(&[2], &[])), Failure::Illegal("an SRTP profile not offered"));
    check(&|hello| set(hello, E::USE_SRTP, srtp(&[7, 1], &[])), Failure::Malformed);
    let mki = Failure::Illegal("a master key identifier not offered");
    check(&|hello| set(hello, E::USE_SRTP, srtp(&[7], b"k")), mki);
    assert_eq!(client_on(|_| {}), None);
}

/// Returns the failure of a server that received a client flight with modified messages.
fn server_on_flight(change: impl Fn(MessageType, &mut Vec<u8>)) -> Option<Failure> {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    let flight = sent(&mut ends.server, now);
    deliver(&mut ends.client, now, &flight);
    for (kind, sequence, mut body) in messages(&sent(&mut ends.client, now)) {
        change(kind, &mut body);
        let head = |fragment| FragmentHead { kind, length: body.len(), sequence, offset: 0, fragment };
        // Of a very long body, only the first fragment is sent.
        let first = body.len().min(10_100);
        ends.server.handle_datagram(now, &mut fragment(&head(first), &body[..first]));
    }
    match ends.server.poll_event() {
        None => None,
        Some(Event::Closed(CloseReason::Failed(failure))) => Some(failure),
        other => panic!("{other:?}"),
    }
}

#[test]
fn d_13_points_that_are_none() {
    let exchange = MessageType::CLIENT_KEY_EXCHANGE;
    let with = |public: &[u8]| {
        let body = crate::handshake::write_public_value(public);
        server_on_flight(move |kind, old| {
            if kind == exchange {
                old.clone_from(&body);
            }
        })
    };
    // Invalid public values (RFC 7748 §6.1): zero, one, p - 1, p, p + 1, and two points of order eight.
    let of_order_8 = |text: &str| -> Vec<u8> {
        (0..64).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let p = |last: u8| [&[last][..], &[0xff; 30], &[0x7f]].concat();
    for public in [
        vec![0; 32],
        [&[1][..], &[0; 31]].concat(),
        p(0xec),
        p(0xed),
        p(0xee),
        of_order_8("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        of_order_8("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
        vec![9; 31],
        vec![9; 33],
        vec![4; 65],
    ] {
        assert_eq!(with(&public), Some(Failure::PublicValue), "{public:?}");
    }
    assert_eq!(
        server_on_flight(|kind, body| if kind == exchange {
            body.clear()
        }),
        Some(Failure::Malformed)
    );

    // P-256: a point off the curve, the point at infinity, a compressed point. (`crypto` runs Wycheproof's
    // cases.)
    let mut random = Seed::from_number(1).random();
    let key = crypto::AgreementKey::new(AgreementGroup::P256, &mut random).unwrap();
    assert_eq!(group_number(AgreementGroup::P256), 23);
    let good = key.public();
    let mut off = good.clone();
    off[64] ^= 1;
    let compressed = [&[2][..], &good[1..33]].concat();
    for public in [off, vec![0], [&[4][..], &[0; 64]].concat(), compressed, [&[6][..], &good[1..]].concat()] {
        assert_eq!(key.agree(&public, |_| ()), Err(crypto::NotAgreed), "{public:?}");
    }
}

#[test]
fn d_13_signatures_and_certificates_that_are_none() {
    let verify = MessageType::CERTIFICATE_VERIFY;
    let signed = |scheme, signature: &[u8]| {
        let mut body = Vec::new();
        Signed { scheme, signature }.write(&mut body);
        body
    };
    let zero: &[u8] = &[0x30, 6, 2, 1, 0, 2, 1, 0];
    let illegal = Failure::Illegal;
    for (body, failure) in [
        (signed(0x0403, zero), Failure::Signature),
        (signed(0x0403, &[]), Failure::Signature),
        (signed(0x0403, &[0xff; 70]), Failure::Signature),
        (signed(0x0503, zero), Failure::Signature),
        (signed(0x0203, zero), illegal("a signature scheme not offered")),
        (signed(0x0804, zero), illegal("a signature scheme of another kind of key")),
        (vec![4, 3, 0], Failure::Malformed),
    ] {
        let failed = server_on_flight(|kind, old| {
            if kind == verify {
                old.clone_from(&body)
            }
        });
        assert_eq!(failed, Some(failure), "{body:?}");
    }
    let certificate = |leaf: Option<&[u8]>| {
        let mut body = Vec::new();
        CertificateMessage { leaf }.write(&mut body);
        server_on_flight(move |kind, old| {
            if kind == MessageType::CERTIFICATE {
                old.clone_from(&body);
            }
        })
    };
    assert_eq!(certificate(None), Some(Failure::NoCertificate));
    assert_eq!(certificate(Some(b"junk")), Some(Failure::Fingerprint));
    assert_eq!(certificate(Some(&[0x30; 10_000])), Some(Failure::CertificateMalformed));
    // A message of 64 KiB is refused at its first fragment.
    assert_eq!(certificate(Some(&[0x30; 0xffff - 100])), Some(Failure::TooLarge));
    // Messages in the wrong order, and messages that were not requested.
    let skipped = server_on_flight(|kind, body| {
        if kind == MessageType::CERTIFICATE {
            body.clear();
        }
    });
    assert_eq!(skipped, Some(Failure::Malformed));
}

#[test]
fn d_12_data_in_the_clear_is_never_data() {
    let data = record(ContentType::APPLICATION_DATA, 0, 0, b"data");
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    deliver(&mut ends.server, now, std::slice::from_ref(&data));
    ends.run();
    for end in [&mut ends.client, &mut ends.server] {
        deliver(end, now, std::slice::from_ref(&data));
        assert!(matches!(end.poll_event(), Some(Event::Connected(_))));
        assert_eq!(end.poll_event(), None);
    }
    assert_eq!(ends.server.stats().dropped_early, 2);
}

#[test]
fn d_12_an_early_change_cipher_spec_changes_nothing() {
    let mut early = record(ContentType::CHANGE_CIPHER_SPEC, 0, 9, &[1]);
    for before in 0..4 {
        let mut ends = Ends::new(config(1), config(2)).start();
        let now = ends.clock.now();
        for step in 0..4 {
            if step == before {
                ends.client.handle_datagram(now, &mut early);
                ends.server.handle_datagram(now, &mut early);
                let count = ends.client.stats().dropped_early + ends.server.stats().dropped_early;
                // After two steps, the client has sent everything, and waits for the server.
                assert_eq!(count, 2 - u64::from(before >= 2) - u64::from(before >= 4), "{before}");
            }
            let (from, to) = if step % 2 == 0 {
                (&mut ends.client, &mut ends.server)
            } else {
                (&mut ends.server, &mut ends.client)
            };
            let datagrams = sent(from, now);
            deliver(to, now, &datagrams);
        }
        assert!(ends.client.is_connected() && ends.server.is_connected(), "{before}");
    }
}

#[test]
fn d_12_finished_of_another_transcript_or_in_the_clear() {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    let flight = sent(&mut ends.server, now);
    deliver(&mut ends.client, now, &flight);
    let flight = sent(&mut ends.client, now);
    // The flight without its Finished, then a Finished that is not encrypted, which anyone can send.
    let protected = 13 + 12 + 12 + 24;
    let clear = &flight[0][..flight[0].len() - protected - 14];
    deliver(&mut ends.server, now, &[clear.to_vec()]);
    deliver(&mut ends.server, now, &[message(MessageType::FINISHED, 4, &[0; 12])]);
    assert_eq!(reason(&mut ends.server), CloseReason::Failed(Failure::Unexpected(MessageType::FINISHED)));

    // If the certificate request was modified in transit, the client has another transcript.
    let mut ends = Ends::new(config(1), config(2)).start();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    for (kind, sequence, mut body) in messages(&sent(&mut ends.server, now)) {
        if kind == MessageType::CERTIFICATE_REQUEST {
            body[2] = 2;
        }
        ends.client.handle_datagram(now, &mut message(kind, sequence, &body));
    }
    let flight = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &flight);
    assert_eq!(reason(&mut ends.server), CloseReason::Failed(Failure::Signature));
}

/// Checks a Finished with the right keys but wrong content: shorter, longer, different.
#[test]
fn d_12_finished_that_does_not_fit() {
    type Change = fn(&mut Vec<u8>);
    let changes: [Change; 4] =
        [|body| body[11] ^= 1, |body| body[0] ^= 0x80, |body| body.push(0), Vec::clear];
    for change in changes {
        for of_client in [true, false] {
            let mut ends = Ends::new(config(1), config(2)).start();
            let now = ends.clock.now();
            for step in 0.. {
                let (from, to) = if step % 2 == 0 {
                    (&mut ends.client, &mut ends.server)
                } else {
                    (&mut ends.server, &mut ends.client)
                };
                let last = step == if of_client { 2 } else { 3 };
                match &mut from.phase {
                    Phase::Handshaking(handshaking) if last => {
                        handshaking.exchange.flight.change_last(change)
                    }
                    Phase::Connected(established) if last => established.flight.change_last(change),
                    _ => {}
                }
                let datagrams = sent(from, now);
                deliver(to, now, &datagrams);
                if last {
                    assert_eq!(reason(to), CloseReason::Failed(Failure::Finished));
                    let alert = sent(to, now);
                    assert_eq!(alert.len(), 1);
                    break;
                }
            }
        }
    }
}

#[test]
fn d_12_a_replayed_record_is_dropped() {
    let (mut ends, ..) = Ends::connected(config(1), config(2));
    let now = ends.clock.now();
    ends.client.send(b"once").unwrap();
    let data = sent(&mut ends.client, now);
    for _ in 0..5 {
        deliver(&mut ends.server, now, &data);
    }
    assert_eq!(ends.server.poll_event(), Some(Event::Data("once".into())));
    assert_eq!(ends.server.poll_event(), None);
    assert_eq!(ends.server.stats().dropped_replayed, 4);
}

#[test]
fn d_12_used_up_sequence_numbers_end_the_session() {
    let (mut ends, ..) = Ends::connected(config(1), config(2));
    ends.client.records.skip_to((1 << 48) - 2);
    ends.client.send(b"the last").unwrap();
    ends.client.send(b"one too many").unwrap();
    ends.run();
    assert_eq!(ends.server.poll_event(), Some(Event::Data("the last".into())));
    assert_eq!(reason(&mut ends.client), CloseReason::Exhausted);
    assert_eq!(ends.client.send(b"x"), Err(Error::NotConnected));
}

#[test]
fn d_18_what_is_forged_in_the_clear_is_ignored_once_keys_are_on() {
    let (mut ends, ..) = Ends::connected(config(1), config(2));
    let now = ends.clock.now();
    let mut count = 0;
    for end in [&mut ends.client, &mut ends.server] {
        for sequence in 0..10_000 {
            for alert in [[2, 40], [1, 0], [2, 0], [1, 90]] {
                end.handle_datagram(now, &mut record(ContentType::ALERT, 0, sequence, &alert));
                count += 1;
            }
        }
        let hello = message(MessageType::CLIENT_HELLO, 0, &[0; 50]);
        deliver(end, now, &[hello, message(MessageType::FINISHED, 7, &[0; 12])]);
        assert_eq!(end.poll_event(), None);
        assert_eq!(sent(end, now).len(), 0);
        // A record with the right epoch, but not encrypted with the key.
        end.handle_datagram(now, &mut record(ContentType::ALERT, 1, 77, &[2; 26]));
        assert_eq!((end.stats().dropped_forged, end.stats().dropped_early), (1, count + 2));
        count = 0;
    }
    ends.client.send(b"still here").unwrap();
    ends.run();
    assert_eq!(ends.server.poll_event(), Some(Event::Data("still here".into())));
}

#[test]
fn d_18_close_notify_is_sent_and_answered() {
    let (mut ends, ..) = Ends::connected(config(1), config(2));
    ends.client.send(b"last words").unwrap();
    ends.client.close(ends.clock.now());
    ends.client.close(ends.clock.now());
    ends.run();
    assert_eq!(reason(&mut ends.client), CloseReason::Local);
    assert_eq!(ends.server.poll_event(), Some(Event::Data("last words".into())));
    assert_eq!(reason(&mut ends.server), CloseReason::Peer);
    assert!(ends.client.is_over() && ends.server.is_over());
    assert!(ends.client.held_bytes() < 1024);

    // During the handshake, an alert is accepted.
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    ends.client.handle_datagram(now, &mut record(ContentType::ALERT, 0, 0, &[1, 90]));
    assert_eq!(ends.client.stats().ignored_alerts, 1);
    ends.client.handle_datagram(now, &mut record(ContentType::ALERT, 0, 0, &[2, 40]));
    assert_eq!(reason(&mut ends.client), CloseReason::Alert(AlertDescription::HANDSHAKE_FAILURE));
}

#[test]
fn d_10_hostile_fragments_leave_the_handshake_alone() {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    for sequence in 0..=10_000u16 {
        let head = |length, offset, fragment| FragmentHead {
            kind: MessageType::CERTIFICATE,
            length,
            sequence,
            offset,
            fragment,
        };
        for (head, bytes) in [
            (head(5, 0, 0), &[][..]),
            (head(5, 3, 4), &[0; 4]),
            (head(0xff_ffff, 0xff_fffe, 2), &[0; 2]),
            (head(0, 0, 0xff_ffff), &[0; 4]),
        ] {
            // The first message is the real hello; a fragment that contradicts it would be fatal.
            if sequence > 0 {
                ends.server.handle_datagram(now, &mut fragment(&head, bytes));
            }
        }
        assert!(ends.server.held_bytes() < 80 * 1024);
    }
    ends.run();
    assert!(ends.client.is_connected() && ends.server.is_connected());
}

/// Checks a handshake in which everything has its maximum size at the same time.
#[test]
fn d_10_a_handshake_holds_80_kib_at_most() {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = messages(&sent(&mut ends.client, now)).remove(0).2;
    let mut hello = ClientHello::read(&hello).unwrap();
    hello.extensions.push(ExtensionType(21), vec![0; 12_000]);
    let mut body = Vec::new();
    hello.write(&mut body);
    ends.server.handle_datagram(now, &mut message(MessageType::CLIENT_HELLO, 0, &body));
    // A long chain after the right certificate, and then the other messages, all incomplete.
    let mut list = Vec::new();
    put::vec24(&mut list, identity(1).certificate());
    put::vec24(&mut list, &[0; 13_000]);
    let mut body = Vec::new();
    put::vec24(&mut body, &list);
    ends.server.handle_datagram(now, &mut message(MessageType::CERTIFICATE, 1, &body));
    assert_eq!(ends.server.poll_event(), None);
    for (sequence, length) in [(2, 16 * 1024), (3, 16 * 1024), (4, 8 * 1024), (5, 16 * 1024), (6, 1)] {
        let kind = MessageType::CLIENT_KEY_EXCHANGE;
        let head = FragmentHead { kind, length, sequence, offset: 0, fragment: 1 };
        ends.server.handle_datagram(now, &mut fragment(&head, &[0]));
    }
    let held = ends.server.held_bytes();
    assert!((70 * 1024..=80 * 1024).contains(&held), "{held}");
    assert_eq!(ends.server.stats().dropped_ahead, 2);
}

#[test]
fn d_15_nothing_is_renegotiated() {
    let (mut ends, ..) = Ends::connected(config(1), config(2));
    let mut clear = Vec::new();
    FragmentHead { kind: MessageType::CLIENT_HELLO, length: 1, sequence: 9, offset: 0, fragment: 1 }
        .write(&mut clear);
    clear.push(0);
    for _ in 0..3 {
        ends.client.push_record(ContentType::HANDSHAKE, &clear);
        ends.server.push_record(ContentType::HANDSHAKE, &[0; 12]);
    }
    ends.run();
    // Each side refuses renegotiation with a single warning, however often it is requested.
    assert_eq!((ends.client.stats().ignored_alerts, ends.server.stats().ignored_alerts), (1, 1));
    assert!(ends.client.is_connected() && ends.server.is_connected());
}

#[test]
fn queues_have_an_end() {
    let (mut ends, ..) = Ends::connected(config(1), config(2));
    let most = ends.client.payload_max();
    assert_eq!(ends.client.send(&vec![0; most + 1]), Err(Error::TooLong { length: most + 1, most }));
    for _ in 0..OUT_MAX {
        ends.client.send(&vec![0; most]).unwrap();
    }
    assert_eq!(ends.client.send(b"x"), Err(Error::Full));
    ends.run();
    for _ in 0..OUT_MAX {
        ends.client.send(b"x").unwrap();
    }
    ends.run();
    assert_eq!(ends.server.stats().dropped_data, 64);
    assert_eq!(std::iter::from_fn(|| ends.server.poll_event()).count(), EVENTS_MAX);
}
