//! Simulations of every response, in tables.

use std::time::Duration;

use ice::stun::{AttributeType, Class};
use turn::{CloseReason, Credentials, Family, method};

use crate::world::*;

const EVEN_PORT: AttributeType = AttributeType(0x0018);
const DONT_FRAGMENT: AttributeType = AttributeType(0x001a);
const RESERVATION: AttributeType = AttributeType(0x0022);
const ADDITIONAL: AttributeType = AttributeType(0x8000);

#[test]
fn v_01_an_allocation_has_an_address_and_a_lifetime() {
    let mut world = World::new();
    let mut speaker = Speaker::new("198.51.100.1:5000", "u");
    speaker.greet(&mut world);
    let answer = speaker.ask(&mut world, method::ALLOCATE, &[transport(), (DONT_FRAGMENT, vec![])]);
    assert_eq!(answer.code(), None);
    assert_eq!(answer.address(RELAYED), Some(address("127.0.0.1:40001")));
    assert_eq!(answer.message().mapped_address(), Some(speaker.client.address));
    assert_eq!(answer.seconds(), 600);
}

#[test]
fn v_01_allocate_has_a_code_for_each_fault() {
    type Attributes = Vec<(AttributeType, Vec<u8>)>;
    let of = |more: &[(AttributeType, &[u8])]| -> Attributes {
        let more = more.iter().map(|(kind, value)| (*kind, value.to_vec()));
        std::iter::once(transport()).chain(more).collect()
    };
    let v6: &[u8] = &[2, 0, 0, 0];
    let rows: Vec<(&str, Attributes, Option<u16>)> = vec![
        ("no transport", vec![], Some(400)),
        ("a short transport", vec![(TRANSPORT, vec![17])], Some(400)),
        ("TCP", vec![(TRANSPORT, vec![6, 0, 0, 0])], Some(442)),
        ("an unknown attribute", of(&[(AttributeType(0x7001), &[1])]), Some(420)),
        ("an optional one", of(&[(AttributeType(0xf001), &[1])]), None),
        ("an even port", of(&[(EVEN_PORT, &[0])]), Some(508)),
        ("and the next one", of(&[(EVEN_PORT, &[0x80])]), Some(508)),
        ("a reservation", of(&[(RESERVATION, &[1; 8])]), Some(508)),
        ("both", of(&[(RESERVATION, &[1; 8]), (EVEN_PORT, &[0])]), Some(400)),
        ("a reservation and a family", of(&[(RESERVATION, &[1; 8]), (FAMILY, v6)]), Some(400)),
        ("a short reservation", of(&[(RESERVATION, &[1; 7])]), Some(400)),
        ("IPv6", of(&[(FAMILY, v6)]), None),
        ("no family", of(&[(FAMILY, &[3, 0, 0, 0])]), Some(440)),
        ("both families", of(&[(ADDITIONAL, v6)]), None),
        ("IPv4 as the additional one", of(&[(ADDITIONAL, &[1, 0, 0, 0])]), Some(400)),
        ("both ways to say it", of(&[(ADDITIONAL, v6), (FAMILY, v6)]), Some(400)),
        ("a lifetime of three bytes", of(&[(LIFETIME, &[0, 0, 1])]), Some(400)),
    ];
    for (what, attributes, code) in rows {
        let mut world = World::new();
        let mut speaker = Speaker::new("198.51.100.1:5000", "u");
        speaker.greet(&mut world);
        let answer = speaker.ask(&mut world, method::ALLOCATE, &attributes);
        assert_eq!(answer.code(), code, "{what}");
        assert!(answer.message().is_authentic(&speaker.key()), "{what}");
        assert_eq!(world.endpoint.is_empty(), code.is_some(), "{what}");
        if code == Some(420) {
            assert_eq!(answer.value(AttributeType::UNKNOWN_ATTRIBUTES).unwrap(), [0x70, 0x01]);
        }
        if what == "both families" {
            assert_eq!(answer.value(AttributeType(0x8001)).unwrap(), [2, 0, 4, 40]);
        }
    }
}

#[test]
fn v_01_lifetimes_are_between_ten_minutes_and_an_hour() {
    for (asked, granted) in [(None, 600), (Some(1), 600), (Some(900), 900), (Some(u32::MAX), 3600)] {
        let mut world = World::new();
        let mut speaker = Speaker::new("198.51.100.1:5000", "u");
        speaker.greet(&mut world);
        let lifetime = asked.map(|seconds: u32| (LIFETIME, seconds.to_be_bytes().to_vec()));
        let attributes: Vec<_> = std::iter::once(transport()).chain(lifetime.clone()).collect();
        assert_eq!(speaker.ask(&mut world, method::ALLOCATE, &attributes).seconds(), granted);
        let attributes: Vec<_> = lifetime.into_iter().collect();
        assert_eq!(speaker.ask(&mut world, method::REFRESH, &attributes).seconds(), granted);
        world.pass(Duration::from_secs(u64::from(granted) - 1));
        assert_eq!(world.closed, []);
        world.pass(Duration::from_secs(1));
        assert_eq!(world.closed, [CloseReason::Expired]);
        assert!(world.endpoint.is_empty());
    }
}

#[test]
fn v_04_who_has_no_credentials_or_wrong_ones_is_told_a_realm_and_a_nonce() {
    let mut world = World::new();
    let good = Speaker::new("198.51.100.1:5000", "u");
    let expired = Credentials::ephemeral(SECRET, EPOCH, "u");
    let forged = Credentials::ephemeral(b"another secret", EPOCH + 100, "u");
    let renamed = Credentials { username: format!("{}:v", EPOCH + 86_400), ..good.credentials.clone() };
    for (what, credentials, code) in [
        ("good", good.credentials, None),
        ("expired", expired, Some(401)),
        ("of another secret", forged, Some(401)),
        ("of another user", renamed, Some(401)),
        ("no time", Credentials { username: "u".to_owned(), password: "p".to_owned() }, Some(401)),
    ] {
        let mut speaker = Speaker::of("198.51.100.1:5000", credentials);
        speaker.greet(&mut world);
        let answer = speaker.ask(&mut world, method::ALLOCATE, &[transport()]);
        assert_eq!(answer.code(), code, "{what}");
        if code.is_some() {
            assert_eq!(answer.text(AttributeType::REALM).as_deref(), Some(REALM), "{what}");
            assert!(
                answer.value(AttributeType::NONCE).is_some() && !answer.message().has_integrity(),
                "{what}"
            );
        } else {
            let lifetime = (LIFETIME, vec![0; 4]);
            assert_eq!(speaker.ask(&mut world, method::REFRESH, &[lifetime]).code(), None);
        }
        assert!(world.endpoint.is_empty(), "{what}");
    }
}

#[test]
fn v_04_an_integrity_needs_a_user_a_realm_and_a_nonce() {
    let mut world = World::new();
    let mut speaker = Speaker::new("198.51.100.1:5000", "u");
    speaker.greet(&mut world);
    let kinds = [AttributeType::USERNAME, AttributeType::REALM, AttributeType::NONCE];
    let values = [
        speaker.credentials.username.clone().into_bytes(),
        REALM.as_bytes().to_vec(),
        speaker.nonce.clone().unwrap().into_bytes(),
    ];
    for missing in 0..kinds.len() {
        let mut request = Vec::new();
        let id = ice::stun::TransactionId([1; 12]);
        let mut writer =
            ice::stun::MessageWriter::of_method(&mut request, method::ALLOCATE, Class::Request, id);
        for (at, (kind, value)) in kinds.iter().zip(&values).enumerate() {
            if at != missing {
                writer = writer.attribute(*kind, value);
            }
        }
        writer.finish(&speaker.key());
        world.say(speaker.client, &request);
        assert_eq!(world.answer().code(), Some(400));
    }
}

#[test]
fn v_05_a_nonce_that_is_old_or_of_another_address_is_stale() {
    let mut world = World::new();
    let mut speaker = Speaker::new("198.51.100.1:5000", "u");
    speaker.greet(&mut world);
    let mut thief = Speaker { client: Speaker::new("198.51.100.2:5000", "u").client, ..speaker.clone() };
    let answer = thief.ask(&mut world, method::ALLOCATE, &[transport()]);
    assert_eq!((answer.code(), answer.text(AttributeType::REALM).as_deref()), (Some(438), Some(REALM)));
    thief.nonce = answer.text(AttributeType::NONCE);
    assert_eq!(thief.ask(&mut world, method::ALLOCATE, &[transport()]).code(), None);
    world.pass(Duration::from_secs(3600));
    let answer = speaker.ask(&mut world, method::ALLOCATE, &[transport()]);
    assert_eq!(answer.code(), Some(438));
    speaker.nonce = answer.text(AttributeType::NONCE);
    assert_eq!(speaker.ask(&mut world, method::ALLOCATE, &[transport()]).code(), None);
    // A nonce also expires while the client has an allocation.
    for _ in 0..8 {
        world.pass(Duration::from_secs(500));
        speaker.ask(&mut world, method::REFRESH, &[]);
    }
    assert_eq!(speaker.ask(&mut world, method::REFRESH, &[]).code(), Some(438));
}

#[test]
fn v_06_requests_of_an_allocation_have_a_code_for_each_fault() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    let channel = |number: u16| (CHANNEL_NUMBER, [number.to_be_bytes(), [0, 0]].concat());
    // Pauses between the rows, because only a limited number of refusals per second is answered.
    let mut check = |what: &str, method, attributes: &dyn Fn(&Speaker) -> Vec<_>, code| {
        let attributes = attributes(&speaker);
        assert_eq!(speaker.ask(&mut world, method, &attributes).code(), code, "{what}");
        world.pass(Duration::from_secs(1));
    };
    let (permission, bind) = (method::CREATE_PERMISSION, method::CHANNEL_BIND);
    check("another allocation", method::ALLOCATE, &|_| vec![transport()], Some(437));
    check("no peer", permission, &|_| vec![], Some(400));
    check("a cut peer", permission, &|_| vec![(PEER, vec![0, 1, 2])], Some(400));
    check("IPv6", permission, &|of| vec![of.peer(MEDIA_V6)], Some(443));
    check("a foreign peer", permission, &|of| vec![of.peer("198.51.100.9:1")], Some(403));
    check("one of two foreign", permission, &|of| vec![of.peer(MEDIA), of.peer("10.0.0.1:1")], Some(403));
    check("a media address", permission, &|of| vec![of.peer(MEDIA), of.peer(PUBLIC)], None);
    check("no number", bind, &|of| vec![of.peer(MEDIA)], Some(400));
    check("no peer of a channel", bind, &|_| vec![channel(0x4000)], Some(400));
    check("a low number", bind, &|of| vec![channel(0x3fff), of.peer(MEDIA)], Some(400));
    check("a high number", bind, &|of| vec![channel(0x7fff), of.peer(MEDIA)], Some(400));
    check("a channel of IPv6", bind, &|of| vec![channel(0x4000), of.peer(MEDIA_V6)], Some(443));
    check("a channel", bind, &|of| vec![channel(0x4000), of.peer(MEDIA)], None);
    check("the same again", bind, &|of| vec![channel(0x4000), of.peer(MEDIA)], None);
    check("another number for it", bind, &|of| vec![channel(0x4001), of.peer(MEDIA)], Some(400));
    check("another peer for it", bind, &|of| vec![channel(0x4000), of.peer(PUBLIC)], Some(400));
    check("another family", method::REFRESH, &|_| vec![family(Family::V6)], Some(443));
    check("the family", method::REFRESH, &|_| vec![family(Family::V4)], None);
    check("an unknown method", 0x00b, &|_| vec![], Some(400));
    check("an unknown attribute", method::REFRESH, &|_| vec![(AttributeType(0x7fff), vec![])], Some(420));
    check("a wrong lifetime", method::REFRESH, &|_| vec![(LIFETIME, vec![1])], Some(400));
}

#[test]
fn v_06_only_the_user_of_an_allocation_speaks_for_it() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    let other = Credentials::ephemeral(SECRET, EPOCH + 86_400, "v");
    let mut other = Speaker { credentials: other, ..speaker.clone() };
    assert_eq!(other.ask(&mut world, method::REFRESH, &[(LIFETIME, vec![0; 4])]).code(), Some(441));
    let wrong = Credentials { password: "wrong".to_owned(), ..speaker.credentials.clone() };
    let mut wrong = Speaker { credentials: wrong, ..speaker.clone() };
    assert_eq!(wrong.ask(&mut world, method::REFRESH, &[(LIFETIME, vec![0; 4])]).code(), Some(401));
    assert_eq!(world.allocations.len(), 1);
    // The client's own allocation continues after the credentials have expired.
    for _ in 0..200 {
        world.pass(Duration::from_secs(500));
        let answer = speaker.ask(&mut world, method::REFRESH, &[]);
        if answer.code() == Some(438) {
            speaker.nonce = answer.text(AttributeType::NONCE);
            assert_eq!(speaker.ask(&mut world, method::REFRESH, &[]).code(), None);
        }
    }
    assert_eq!((world.allocations.len(), world.closed.len()), (1, 0));
}

#[test]
fn v_07_a_request_that_is_sent_again_is_answered_again() {
    let mut world = World::new();
    let mut speaker = Speaker::new("198.51.100.1:5000", "u");
    speaker.greet(&mut world);
    let request = speaker.request_of(77, method::ALLOCATE, &[transport()]);
    world.say(speaker.client, &request);
    let first = world.answer();
    world.pass(Duration::from_secs(2));
    world.say(speaker.client, &request);
    let again = world.answer();
    assert_eq!((again.address(RELAYED), again.seconds()), (first.address(RELAYED), 598));
    assert_eq!(world.allocations.len(), 1);
    // A second request to end the allocation is answered with 437, which clients treat as success.
    let end = speaker.request(method::REFRESH, &[(LIFETIME, vec![0; 4])]);
    world.say(speaker.client, &end);
    assert_eq!(world.answer().seconds(), 0);
    assert_eq!(world.closed, [CloseReason::Client]);
    world.say(speaker.client, &end);
    assert_eq!(world.answer().code(), Some(437));
    assert!(world.endpoint.is_empty());
}

#[test]
fn a_server_without_sockets_says_so() {
    let mut world = World::new();
    world.has_sockets = false;
    let mut speaker = Speaker::new("198.51.100.1:5000", "u");
    speaker.greet(&mut world);
    assert_eq!(speaker.ask(&mut world, method::ALLOCATE, &[transport()]).code(), Some(508));
    assert_eq!(world.closed, [CloseReason::NoAddress]);
    assert!(world.endpoint.is_empty());
}

#[test]
fn anybody_may_ask_for_its_address() {
    let mut world = World::new();
    for at in ["198.51.100.1:5000", "[2001:db8:1::1]:5000"] {
        let speaker = Speaker::new(at, "u");
        let request = speaker.request_of(1, ice::stun::BINDING, &[]);
        world.say(speaker.client, &request);
        assert_eq!(world.answer().message().mapped_address(), Some(address(at)));
    }
    let speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    world.say(speaker.client, &speaker.request_of(200, ice::stun::BINDING, &[]));
    assert_eq!(world.answer().message().mapped_address(), Some(speaker.client.address));
}
