//! Simulations of relayed data in both directions.

use std::time::Duration;

use crypto::Seed;
use ice::stun::{AttributeType, Class};
use turn::{Credentials, method};

use crate::world::*;

fn to_peer(world: &mut World) -> Vec<(String, Vec<u8>)> {
    let of = |out| match out {
        Out::ToPeer(_, peer, data) => (peer.to_string(), data),
        Out::ToClient(..) => panic!("{out:?}"),
    };
    std::mem::take(&mut world.out).into_iter().map(of).collect()
}

#[test]
fn v_08_data_goes_to_permitted_peers_and_back_as_indications() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    speaker.send(&mut world, MEDIA, b"before the permission");
    world.peer_sends(MEDIA, speaker.client, b"before the permission");
    assert_eq!(world.out, []);
    assert_eq!(speaker.permit(&mut world, MEDIA), None);
    speaker.send(&mut world, MEDIA, b"hello");
    assert_eq!(to_peer(&mut world), [(MEDIA.to_owned(), b"hello".to_vec())]);
    world.peer_sends(MEDIA, speaker.client, b"answer");
    let answer = world.answer();
    assert_eq!((answer.message().class(), answer.message().method()), (Class::Indication, method::DATA));
    assert_eq!((answer.address(PEER), answer.value(DATA)), (Some(address(MEDIA)), Some(b"answer".to_vec())));
    // A permission applies to an address; the destination must be a media port of this address.
    speaker.send(&mut world, "192.0.2.10:22", b"another port");
    world.peer_sends("192.0.2.10:22", speaker.client, b"another port");
    assert_eq!(world.out, []);
    world.pass(Duration::from_secs(300));
    speaker.send(&mut world, MEDIA, b"behind the permission");
    world.peer_sends(MEDIA, speaker.client, b"behind the permission");
    assert_eq!(world.out, []);
}

#[test]
fn v_08_channels_carry_data_with_four_bytes_more() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    speaker.send_channel(&mut world, 0x4000, b"before it is bound");
    assert_eq!(world.out, []);
    assert_eq!(speaker.bind(&mut world, 0x7ffe, PUBLIC), None, "as clients of RFC 5766 have it");
    assert_eq!(speaker.bind(&mut world, 0x4000, MEDIA), None);
    for data in [&b""[..], b"a", b"abcd", &[7; 1400]] {
        speaker.send_channel(&mut world, 0x4000, data);
        assert_eq!(to_peer(&mut world), [(MEDIA.to_owned(), data.to_vec())]);
        world.peer_sends(MEDIA, speaker.client, data);
        assert_eq!(world.answer().0, channel_data(0x4000, data));
    }
    // A channel lives longer than its permission, which must be renewed.
    world.pass(Duration::from_secs(301));
    speaker.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(world.out, []);
    assert_eq!(speaker.permit(&mut world, MEDIA), None);
    speaker.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(to_peer(&mut world).len(), 1);
    world.pass(Duration::from_secs(299));
    speaker.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(world.out, []);
    assert_eq!(speaker.bind(&mut world, 0x4001, MEDIA), Some(437), "the allocation is over, too");
}

#[test]
fn v_08_peers_behind_a_translator_have_the_address_that_the_client_knows() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    assert_eq!(speaker.permit(&mut world, PUBLIC), None);
    speaker.send(&mut world, PUBLIC, b"hello");
    assert_eq!(to_peer(&mut world), [(LOCAL.to_owned(), b"hello".to_vec())]);
    world.peer_sends(LOCAL, speaker.client, b"answer");
    assert_eq!(world.answer().address(PEER), Some(address(PUBLIC)));
    assert_eq!(speaker.permit(&mut world, LOCAL), Some(403), "the real address is nobody's business");
}

#[test]
fn v_08_two_public_addresses_of_one_port_are_told_apart_by_who_was_asked_last() {
    const OTHER: &str = "203.0.113.11:50000";
    let mut world = World::with(|config| {
        let peer = |told| turn::Peer { told: address(told), real: address(LOCAL) };
        config.peers = turn::Peers::new([peer(PUBLIC), peer(OTHER)]);
    });
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    assert_eq!((speaker.permit(&mut world, PUBLIC), speaker.permit(&mut world, OTHER)), (None, None));
    for told in [PUBLIC, OTHER, OTHER, PUBLIC] {
        speaker.send(&mut world, told, b"check");
        assert_eq!(to_peer(&mut world), [(LOCAL.to_owned(), b"check".to_vec())]);
        world.peer_sends(LOCAL, speaker.client, b"answer");
        assert_eq!(world.answer().address(PEER), Some(address(told)));
    }
}

#[test]
fn v_09_an_allocation_relays_so_much_a_second_each_way() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    assert_eq!(speaker.bind(&mut world, 0x4000, MEDIA), None);
    for second in 0..3 {
        for _ in 0..2000 {
            speaker.send_channel(&mut world, 0x4000, &[0; 1000]);
        }
        // In the first second, 1000 datagrams are the initial burst, and afterwards the configured rate.
        assert_eq!(to_peer(&mut world).len(), 1000, "{second}");
        for _ in 0..2000 {
            world.peer_sends(MEDIA, speaker.client, &[0; 1000]);
        }
        assert_eq!(std::mem::take(&mut world.out).len(), 1000, "{second}");
        world.pass(Duration::from_secs(1));
    }
    let stats = world.allocations.values().next().unwrap().1.stats();
    assert_eq!((stats.to_peers, stats.to_client, stats.dropped), (3_000_000, 3_000_000, 6000));
}

/// Checks a network with 50 % loss, on which a client that repeats its requests gets a single allocation and a channel.
#[test]
fn v_07_repetitions_over_a_lossy_network_make_one_allocation() {
    for seed in 0..50 {
        let mut random = Seed::from_number(seed).random();
        let mut world = World::new();
        let mut speaker = Speaker::new("198.51.100.1:5000", "u");
        let mut id = 0;
        let mut ask = |world: &mut World, speaker: &Speaker, method, attributes: &[_]| {
            id += 1;
            loop {
                let request = speaker.request_of(id, method, attributes);
                if random.chance(0.5) {
                    world.say(speaker.client, &request);
                }
                world.pass(Duration::from_millis(500));
                let answers = std::mem::take(&mut world.out);
                if let Some(Out::ToClient(_, bytes)) = answers.into_iter().find(|_| random.chance(0.5)) {
                    return Answer(bytes);
                }
            }
        };
        let challenge = ask(&mut world, &speaker, method::ALLOCATE, &[transport()]);
        speaker.nonce = challenge.text(AttributeType::NONCE);
        let relayed = ask(&mut world, &speaker, method::ALLOCATE, &[transport()]).address(RELAYED);
        assert_eq!(relayed, Some(address("127.0.0.1:40001")), "seed {seed}");
        assert_eq!(ask(&mut world, &speaker, method::REFRESH, &[]).code(), None, "seed {seed}");
        let end = ask(&mut world, &speaker, method::REFRESH, &[(LIFETIME, vec![0; 4])]);
        assert!(matches!(end.code(), None | Some(437)), "seed {seed}");
        assert!(world.endpoint.is_empty(), "seed {seed}");
    }
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut world = World::new();
        let mut all = Vec::new();
        for n in 0..5 {
            let mut speaker = Speaker::of(
                &format!("198.51.100.{n}:5000"),
                Credentials::ephemeral(SECRET, EPOCH + 1000, &format!("u{n}")),
            );
            speaker.greet(&mut world);
            all.push(speaker.ask(&mut world, method::ALLOCATE, &[transport()]).0);
            assert_eq!(speaker.permit(&mut world, MEDIA), None);
            world.peer_sends(MEDIA, speaker.client, b"data");
            all.push(world.answer().0);
        }
        all
    };
    assert_eq!(run(), run());
}
