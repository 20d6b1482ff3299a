//! Simulations of attackers, who can neither relay to other addresses, nor use up memory, nor reflect traffic.

use std::time::Duration;

use ice::stun::AttributeType;
use turn::{Client, DropReason, method};

use crate::world::*;

#[test]
fn v_03_nothing_but_media_ports_of_this_server_is_reached() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    for peer in [
        "127.0.0.1:50000",
        "127.0.0.1:5080",
        "0.0.0.0:50000",
        "10.0.0.1:50000",
        "192.168.1.1:80",
        "169.254.169.254:80",
        "198.51.100.1:5000",
        "8.8.8.8:53",
        "224.0.0.1:50000",
        "255.255.255.255:50000",
        "192.0.2.11:50000",
    ] {
        assert_eq!(speaker.permit(&mut world, peer), Some(403), "{peer}");
        assert_eq!(speaker.bind(&mut world, 0x4000, peer), Some(403), "{peer}");
        speaker.send(&mut world, peer, b"x");
        speaker.send_channel(&mut world, 0x4000, b"x");
        assert_eq!(world.out, [], "{peer}");
        world.pass(Duration::from_secs(1));
    }
    // A port of the media address that is not a media port: a permission applies to the address, but a channel
    // is refused.
    assert_eq!(speaker.permit(&mut world, "192.0.2.10:1"), None);
    assert_eq!(speaker.bind(&mut world, 0x4000, "192.0.2.10:1"), Some(403));
    speaker.send(&mut world, "192.0.2.10:1", b"x");
    assert_eq!(world.out, []);
    // No other peer can reach the client, whatever the client has permitted.
    for peer in ["198.51.100.77:50000", "192.0.2.10:1", "127.0.0.1:50000", "127.0.0.1:9"] {
        world.peer_sends(peer, speaker.client, b"x");
        assert_eq!(world.out, [], "{peer}");
    }
    let stats = world.allocations.values().next().unwrap().1.stats();
    assert_eq!((stats.to_peers, stats.to_client), (0, 0));
    assert!(stats.forbidden >= 16);
}

#[test]
fn v_02_a_flood_without_credentials_leaves_nothing_and_is_hardly_answered() {
    let mut world = World::new();
    let speaker = Speaker::new("198.51.100.1:5000", "u");
    let request = speaker.request_of(1, method::ALLOCATE, &[transport()]);
    for _ in 0..10 {
        for port in 1000..11_000 {
            let client = Client { address: ([198, 51, 100, 1], port).into(), ..speaker.client };
            world.say(client, &request);
        }
        world.pass(Duration::from_secs(1));
    }
    // The endpoint has sent a burst of answers, and then a few per second.
    assert_eq!(world.out.len(), 100 + 9 * 20);
    assert!(world.dropped.iter().all(|why| *why == DropReason::TooMany));
    assert!(world.endpoint.is_empty());
    let Out::ToClient(_, answer) = &world.out[0] else { panic!() };
    assert!(answer.len() <= 120, "{} bytes", answer.len());
    // Another network is answered as before.
    world.out.clear();
    Speaker::allocated(&mut world, "198.51.100.2:5000", "u");
    assert_eq!(world.endpoint.stats().unanswered, 100_000 - 280);
}

#[test]
fn v_02_an_answer_to_a_stranger_has_120_bytes_at_most() {
    let mut world = World::with(|config| config.realm = "r".repeat(32));
    for at in ["198.51.100.1:5000", "[2001:db8:1::1]:5000"] {
        let speaker = Speaker::new(at, "u");
        for (method, attributes) in [
            (method::ALLOCATE, &[transport()][..]),
            (method::REFRESH, &[]),
            (ice::stun::BINDING, &[]),
            (0xfff, &[]),
        ] {
            world.say(speaker.client, &speaker.request_of(1, method, attributes));
            let answer = world.answer();
            assert!(answer.0.len() <= 120, "{} bytes", answer.0.len());
        }
    }
}

#[test]
fn v_02_forged_sources_are_answered_so_often_in_total() {
    let mut world = World::new();
    let speaker = Speaker::new("198.51.100.1:5000", "u");
    let request = speaker.request_of(1, ice::stun::BINDING, &[]);
    for n in 0..50_000u32 {
        let [a, b, c, d] = (0x0a00_0000 + n).to_be_bytes();
        world.say(Client { address: ([a, b, c, d], 53).into(), ..speaker.client }, &request);
    }
    assert_eq!(world.out.len(), 2000);
    assert!(world.endpoint.is_empty());
}

#[test]
fn v_10_allocations_are_capped_by_network_user_and_in_total() {
    let mut world = World::new();
    let mut ask = |at: String, user: String| {
        let mut speaker = Speaker::new(&at, &user);
        speaker.greet(&mut world);
        let code = speaker.ask(&mut world, method::ALLOCATE, &[transport()]).code();
        (code, speaker)
    };
    // One user gets four allocations, even from many addresses.
    for n in 0..6 {
        let (code, _) = ask(format!("198.51.100.{n}:5000"), "one".to_owned());
        assert_eq!(code, (n >= 4).then_some(486), "{n}");
    }
    // One IPv6 network gets eight allocations, even for many users.
    let mut holders = Vec::new();
    for n in 0..10 {
        let (code, speaker) = ask(format!("[2001:db8::{n:x}]:5000"), format!("user{n}"));
        assert_eq!(code, (n >= 8).then_some(486), "{n}");
        holders.push(speaker);
    }
    // All clients together get twenty allocations.
    for n in 0..10 {
        let (code, _) = ask(format!("203.0.113.{n}:5000"), format!("other{n}"));
        assert_eq!(code, (n >= 8).then_some(508), "{n}");
    }
    // When an allocation ends, its place is free for any client.
    let end = [(LIFETIME, vec![0; 4])];
    assert_eq!(holders[0].ask(&mut world, method::REFRESH, &end).code(), None);
    let mut late = holders.pop().unwrap();
    assert_eq!(late.ask(&mut world, method::ALLOCATE, &[transport()]).code(), None);
    assert_eq!(world.endpoint.len(), 20);
    assert_eq!(world.endpoint.stats().full, 6);
    world.pass(Duration::from_secs(600));
    assert!(world.endpoint.is_empty(), "and expiry leaves nothing");
}

#[test]
fn v_10_permissions_and_channels_are_capped() {
    let peers = |n: u32| {
        let at = |n: u32| {
            let [_, _, c, d] = n.to_be_bytes();
            std::net::SocketAddr::from(([192, 0, c, d], 50_000))
        };
        turn::Peers::new((0..n).map(|n| turn::Peer { told: at(n), real: at(n) }))
    };
    let mut world = World::with(|config| config.peers = peers(200));
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    let mut granted = 0;
    for n in 0..64u16 {
        let peer = format!("192.0.0.{n}:50000");
        granted += usize::from(speaker.bind(&mut world, 0x4000 + n, &peer).is_none());
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(granted, turn::limits::CHANNELS_MAX);
    assert_eq!(speaker.permit(&mut world, "192.0.0.100:50000"), Some(508));
    assert_eq!(speaker.permit(&mut world, "192.0.0.1:50000"), None, "one that there is");
    let many: Vec<_> = (0..17).map(|_| speaker.peer("192.0.0.1:50000")).collect();
    assert_eq!(speaker.ask(&mut world, method::CREATE_PERMISSION, &many).code(), Some(400));
    world.pass(Duration::from_secs(310));
    assert_eq!(speaker.permit(&mut world, "192.0.0.100:50000"), None, "those are over");
}

#[test]
fn v_11_lying_lengths_and_garbage_change_nothing() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    assert_eq!(speaker.bind(&mut world, 0x4000, MEDIA), None);
    for bytes in [
        &[][..],
        &[0x40],
        &[0x40, 0],
        &[0x40, 0, 0],
        &[0x40, 0, 0, 1],
        &[0x40, 0, 0xff, 0xff, 1, 2, 3],
        &[0x50, 0, 0, 0],
        &[0x80; 100],
        &[0x16, 0xfe, 0xfd],
        &[0; 20],
    ] {
        world.say(speaker.client, bytes);
        assert_eq!(world.out, [], "{bytes:?}");
    }
    // Padding after the data is not relayed.
    world.say(speaker.client, &[0x40, 0, 0, 1, b'x', 0, 0, 0]);
    assert_eq!(world.out, [Out::ToPeer(speaker.client.address, address(MEDIA), b"x".to_vec())]);
    world.out.clear();
    // A request to end the allocation has no effect if any of its bytes is changed.
    let request = speaker.request_of(99, method::REFRESH, &[(LIFETIME, vec![0; 4])]);
    for at in 0..request.len() - 8 {
        let mut changed = request.clone();
        changed[at] ^= 1;
        let sealed = changed.len() - 8;
        let sum = fingerprint(&changed[..sealed]);
        changed[sealed + 4..].copy_from_slice(&sum);
        world.say(speaker.client, &changed);
        world.pass(Duration::from_millis(100));
    }
    assert_eq!((world.allocations.len(), world.closed.len()), (1, 0));
}

/// Computes the FINGERPRINT of a message with these bytes.
fn fingerprint(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
        }
    }
    (!crc ^ 0x5354_554e).to_be_bytes()
}

#[test]
fn v_02_a_forger_at_a_clients_address_has_few_answers_sent_there() {
    let mut world = World::new();
    let mut speaker = Speaker::allocated(&mut world, "198.51.100.1:5000", "u");
    let forged = Speaker { nonce: None, ..speaker.clone() };
    for second in 0..3 {
        for _ in 0..1000 {
            world.say(speaker.client, &forged.request_of(200, method::REFRESH, &[]));
            world.say(speaker.client, &forged.request_of(201, ice::stun::BINDING, &[]));
        }
        assert_eq!(std::mem::take(&mut world.out).len(), 10, "{second}");
        world.pass(Duration::from_secs(1));
    }
    for _ in 0..1000 {
        world.say(speaker.client, &forged.request_of(200, method::REFRESH, &[]));
    }
    world.out.clear();
    assert_eq!(speaker.ask(&mut world, method::REFRESH, &[]).code(), None, "the client itself is answered");
}

#[test]
fn v_11_what_names_no_request_is_not_answered() {
    let mut world = World::new();
    let speaker = Speaker::new("198.51.100.1:5000", "u");
    speaker.send(&mut world, MEDIA, b"x");
    speaker.send_channel(&mut world, 0x4000, b"x");
    world.say(speaker.client, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!((world.out.len(), world.dropped.len()), (0, 3));
    let long = vec![(AttributeType(0xf000), vec![0; 3000])];
    world.say(speaker.client, &speaker.request_of(1, method::ALLOCATE, &long));
    assert_eq!((world.out.len(), world.dropped.len()), (0, 4));
}
