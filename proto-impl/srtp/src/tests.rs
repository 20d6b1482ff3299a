//! Tests of both directions together: round trips, and the rows of docs/robustness.md.

use proptest::prelude::*;
use rtp::{Header, Packet, PayloadType, SequenceNumber, Ssrc};
use wire::Datagrams;

use crate::{Error, Inbound, MasterKey, OWN_SOURCES_MAX, Outbound, Profile, SOURCES_MAX};

const PROFILES: [Profile; 3] = [Profile::Aes128CmHmacSha1_80, Profile::AeadAes128Gcm, Profile::AeadAes256Gcm];

fn contexts(profile: Profile) -> (Outbound, Inbound) {
    let material: Vec<u8> = (0..profile.keying_bytes()).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
    let (client, _) = MasterKey::of_dtls(profile, &material).unwrap();
    (Outbound::new(&client).unwrap(), Inbound::new(&client).unwrap())
}

fn header(ssrc: u32, number: u16) -> Header<'static> {
    Header {
        marker: false,
        payload_type: PayloadType::new(96).unwrap(),
        sequence_number: SequenceNumber(number),
        timestamp: 90_000,
        ssrc: Ssrc(ssrc),
        csrcs: rtp::Csrcs::default(),
        extension: None,
    }
}

fn clear(ssrc: u32, number: u16) -> Vec<u8> {
    let mut out = Vec::new();
    Packet { header: header(ssrc, number), payload: b"a payload", padding: 0 }.write(&mut out);
    out
}

fn protected(outbound: &mut Outbound, ssrc: u32, number: u16) -> Vec<u8> {
    let mut packet = clear(ssrc, number);
    outbound.protect(&mut packet).unwrap();
    packet
}

fn opened(inbound: &mut Inbound, packet: &[u8]) -> Result<Vec<u8>, Error> {
    let mut packet = packet.to_vec();
    let length = inbound.unprotect(&mut packet)?;
    packet.truncate(length);
    Ok(packet)
}

fn rtcp(ssrc: u32) -> Vec<u8> {
    [&[0x80, 201, 0, 1][..], &ssrc.to_be_bytes(), &[0x81, 206, 0, 2], &[9; 8]].concat()
}

/// Compares a shared payload, encrypted for each viewer, with the same packet protected individually.
#[test]
fn a_shared_payload_is_sealed_for_each_viewer() {
    for profile in PROFILES {
        let (mut alone, mut inbound) = contexts(profile);
        let (mut shared, _) = contexts(profile);
        let (mut parts, _) = contexts(profile);
        let mut out = Datagrams::new();
        let mut apart = Datagrams::new();
        for number in [65_534, 65_535, 0, 1] {
            out.clear();
            apart.clear();
            let header = header(7, number);
            shared.seal(&header, b"a payload", &mut out).unwrap();
            parts.seal_parts(&header, &[b"a", b" payl", b"oad"], &mut apart).unwrap();
            let wanted = protected(&mut alone, 7, number);
            assert_eq!((out.get(0), apart.get(0)), (&wanted[..], &wanted[..]));
            assert_eq!(shared.sealed_length(&header, 9), wanted.len());
            assert_eq!(opened(&mut inbound, out.get(0)), Ok(clear(7, number)));
        }
        assert_eq!(shared.seal(&header(7, 1), b"", &mut out), Err(Error::Reused));
        assert_eq!(shared.seal(&header(7, 0x8001), b"", &mut out), Err(Error::Reused));
    }
}

#[test]
fn an_index_is_used_once_and_ends() {
    for profile in PROFILES {
        let (mut outbound, _) = contexts(profile);
        outbound.set_position(7, (1 << 48) - 2, 0x7fff_ffff);
        protected(&mut outbound, 7, 0xffff);
        assert_eq!(outbound.protect(&mut clear(7, 0)), Err(Error::KeyExhausted));
        outbound.protect_rtcp(&mut rtcp(7)).unwrap();
        assert_eq!(outbound.protect_rtcp(&mut rtcp(7)), Err(Error::KeyExhausted));
        assert_eq!(outbound.protect(&mut vec![0x80; 11]), Err(Error::Malformed));
        assert_eq!(outbound.protect_rtcp(&mut vec![0x80; 7]), Err(Error::Malformed));
    }
}

/// Checks that keys for the other direction or for another profile decrypt nothing.
#[test]
fn keys_are_of_one_direction_and_one_profile() {
    let material = |profile: Profile| vec![3; profile.keying_bytes()];
    for profile in PROFILES {
        let mut bytes = material(profile);
        bytes[0] = 1;
        let (client, server) = MasterKey::of_dtls(profile, &bytes).unwrap();
        let packet = protected(&mut Outbound::new(&client).unwrap(), 7, 1);
        assert_eq!(opened(&mut Inbound::new(&server).unwrap(), &packet), Err(Error::NotAuthentic));
        for other in PROFILES.into_iter().filter(|&other| other != profile) {
            let (client, _) = MasterKey::of_dtls(other, &material(other)).unwrap();
            assert!(opened(&mut Inbound::new(&client).unwrap(), &packet).is_err());
        }
    }
}

/// Checks every length up to 1600 with every first byte of RTP, for RTP and RTCP.
#[test]
fn x_01_no_length_and_no_first_byte_panics() {
    let mut noise = vec![0; 1600];
    crypto::Seed::from_number(1).random().fill(&mut noise);
    // A plausible extension length lets some of the longer packets reach the tag.
    noise[14..16].copy_from_slice(&[0, 3]);
    let mut buffer = vec![0; 1600];
    for profile in PROFILES {
        let (_, mut inbound) = contexts(profile);
        for length in 0..=1600 {
            for first in 128..=191 {
                for second in [96, 200] {
                    let packet = &mut buffer[..length];
                    packet.copy_from_slice(&noise[..length]);
                    for (to, from) in packet.iter_mut().zip([first, second]) {
                        *to = from;
                    }
                    assert!(inbound.unprotect(packet).is_err());
                    packet.copy_from_slice(&noise[..length]);
                    for (to, from) in packet.iter_mut().zip([first, second]) {
                        *to = from;
                    }
                    assert!(inbound.unprotect_rtcp(packet).is_err());
                }
            }
        }
        assert_eq!(inbound.state(), "[] []");
    }
}

/// Checks extreme headers: 15 contributors, an extension past the end, padding of 255.
#[test]
fn x_01_heads_that_lie_behind_a_good_tag() {
    for profile in PROFILES {
        let (mut outbound, mut inbound) = contexts(profile);
        let mut padded = clear(7, 1);
        padded[0] |= 0x20;
        *padded.last_mut().unwrap() = 255;
        outbound.protect(&mut padded).unwrap();
        let back = opened(&mut inbound, &padded).unwrap();
        assert_eq!(Packet::read(&back), Err(rtp::Error::Padding(255)));

        let mut full = clear(7, 2);
        full[0] |= 0x0f;
        full.extend_from_slice(&[5; 60]);
        outbound.protect(&mut full).unwrap();
        assert_eq!(Packet::read(&opened(&mut inbound, &full).unwrap()).unwrap().header.csrcs.len(), 15);

        let mut past = clear(7, 3);
        past[0] |= 0x10;
        past[14..16].copy_from_slice(&[0xff; 2]);
        assert_eq!(outbound.protect(&mut past.clone()), Err(Error::Malformed));
        assert_eq!(opened(&mut inbound, &past), Err(Error::Malformed));
        // The tag must not be read as the extension.
        let mut tagless = clear(7, 4);
        tagless[0] |= 0x10;
        tagless[14..16].copy_from_slice(&[0, 1]);
        tagless.truncate(20);
        assert_eq!(opened(&mut inbound, &tagless), Err(Error::Malformed));
    }
}

/// Checks a flipped bit at any position, and a zeroed tag: there is no output, and only a counter changes.
#[test]
fn x_02_a_forged_packet_changes_no_state() {
    for profile in PROFILES {
        let (mut outbound, mut inbound) = contexts(profile);
        let (good, next) = (protected(&mut outbound, 7, 1), protected(&mut outbound, 7, 2));
        let (mut control, mut control_next) = (rtcp(7), rtcp(7));
        outbound.protect_rtcp(&mut control).unwrap();
        outbound.protect_rtcp(&mut control_next).unwrap();
        for known in [false, true] {
            if known {
                opened(&mut inbound, &good).unwrap();
                inbound.unprotect_rtcp(&mut control.clone()).unwrap();
            }
            let (before, counted) = (inbound.state(), inbound.stats());
            for bit in 0..next.len() * 8 {
                let mut forged = next.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert!(inbound.unprotect(&mut forged).is_err(), "bit {bit}");
            }
            for bit in 0..control_next.len() * 8 {
                let mut forged = control_next.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert!(inbound.unprotect_rtcp(&mut forged).is_err(), "bit {bit}");
            }
            let mut zero = next.clone();
            let body = zero.len() - profile.rtp_overhead();
            zero[body..].fill(0);
            assert_eq!(inbound.unprotect(&mut zero), Err(Error::NotAuthentic));
            assert_eq!(inbound.state(), before);
            assert_eq!((inbound.stats().rtp, inbound.stats().rtcp), (counted.rtp, counted.rtcp));
        }
        assert_eq!(opened(&mut inbound, &next), Ok(clear(7, 2)));
        assert_eq!(inbound.unprotect_rtcp(&mut control_next), Ok(rtcp(7).len()));
    }
}

#[test]
fn x_03_each_packet_is_let_through_once() {
    for profile in PROFILES {
        let (mut outbound, mut inbound) = contexts(profile);
        let packets: Vec<Vec<u8>> = (0..2000).map(|number| protected(&mut outbound, 7, number)).collect();
        assert!(opened(&mut inbound, &packets[1000]).is_ok());
        for (number, expected) in [
            (1000, Err(Error::Replayed)),
            (1000 - 63, Ok(())),
            (1000 - 64, Ok(())),
            (1000 - 128, Ok(())),
            (1000 - 64, Err(Error::Replayed)),
            (1999, Ok(())),
            // A peer without RTX repeats a packet with its own number.
            (1999 - 1023, Ok(())),
            (1999 - 1024, Err(Error::Replayed)),
            (1001, Ok(())),
            (1000, Err(Error::Replayed)),
            (1998, Ok(())),
            (1999, Err(Error::Replayed)),
        ] {
            assert_eq!(opened(&mut inbound, &packets[number]).map(|_| ()), expected, "{number}");
        }
        assert_eq!((inbound.stats().rtp, inbound.stats().replayed), (8, 5));
    }
}

/// Checks the rollover counter after an outage of more than half a cycle, across a wrap, around a wrap, and
/// with the end of the first cycle lost.
#[test]
fn x_04_rounds_are_found_again() {
    for profile in PROFILES {
        // Number of the last packet before the outage, and number of lost packets.
        for (last, lost) in [
            (60_000u64, 10_000u64),
            (60_000, 40_000),
            (1000, 65_536),
            (1000, 65_000),
            (40_000, 65_536),
            (65_535, 40_000),
            (30_000, 90_000),
        ] {
            let (mut outbound, mut inbound) = contexts(profile);
            let low = |index: u64| u16::try_from(index % 65_536).unwrap();
            outbound.set_position(7, last - 1, 0);
            let before = protected(&mut outbound, 7, low(last));
            opened(&mut inbound, &before).unwrap();
            outbound.set_position(7, last + lost, 0);
            let first = (1..=800u64)
                .find(|ahead| {
                    let packet = protected(&mut outbound, 7, low(last + lost + ahead));
                    opened(&mut inbound, &packet).is_ok()
                })
                .unwrap();
            // At a rate that loses a whole cycle within the 30 s of consent, 513 packets take well below a
            // second.
            assert!(first <= 513, "{last} and {lost} lost: {first}");
            let packet = protected(&mut outbound, 7, low(last + lost + first + 1));
            assert!(opened(&mut inbound, &packet).is_ok());
            assert!(opened(&mut inbound, &before).is_err());
        }
    }
}

#[test]
fn x_04_packets_change_places_around_the_wrap_and_come_late() {
    for profile in PROFILES {
        let (mut outbound, mut inbound) = contexts(profile);
        let numbers: Vec<u16> = (0..40u16).map(|n| 65_516u16.wrapping_add(n)).collect();
        let packets: Vec<Vec<u8>> =
            numbers.iter().map(|&number| protected(&mut outbound, 7, number)).collect();
        // In each group of four, the packets arrive in reverse order, so 0 arrives before 65535.
        for group in packets.chunks(4) {
            for packet in group.iter().rev() {
                assert!(opened(&mut inbound, packet).is_ok());
            }
        }
        // A receiver that joins after the wrap.
        let (_, mut late) = contexts(profile);
        assert!(opened(&mut late, &packets[30]).is_ok());
        assert!(opened(&mut late, &packets[18]).is_ok());
        assert!(opened(&mut late, &packets[31]).is_ok());
    }
}

#[test]
fn x_05_rtcp_in_the_clear_and_replayed_is_refused() {
    for profile in PROFILES {
        let (mut outbound, mut inbound) = contexts(profile);
        let mut packet = rtcp(7);
        outbound.protect_rtcp(&mut packet).unwrap();
        let flag = match profile {
            Profile::Aes128CmHmacSha1_80 => packet.len() - 14,
            Profile::AeadAes128Gcm | Profile::AeadAes256Gcm => packet.len() - 4,
        };
        assert_eq!(packet[flag..flag + 4], [0x80, 0, 0, 0]);
        let mut bare = packet.clone();
        bare[flag] &= 0x7f;
        assert_eq!(inbound.unprotect_rtcp(&mut bare), Err(Error::NotEncrypted));
        // An unencrypted packet with a valid tag is refused as well (RFC 7714 §17.3).
        let mut packets: Vec<Vec<u8>> = (0..200).map(|_| rtcp(7)).collect();
        packets.iter_mut().for_each(|packet| outbound.protect_rtcp(packet).unwrap());
        let mut open = |packet: &[u8]| inbound.unprotect_rtcp(&mut packet.to_vec());
        assert_eq!(open(&packets[199]), Ok(20));
        assert_eq!(open(&packets[199]), Err(Error::Replayed));
        assert_eq!(open(&packets[199 - 127]), Ok(20));
        assert_eq!((open(&packets[199 - 128]), open(&packet)), (Err(Error::Replayed), Err(Error::Replayed)));
        outbound.set_position(7, 0, 0x7fff_ffff);
        let mut last = rtcp(7);
        outbound.protect_rtcp(&mut last).unwrap();
        assert_eq!((open(&last), open(&last)), (Ok(20), Err(Error::Replayed)));
        assert_eq!(
            (open(&[]), open(&[0x80; 21]), open(&[0; 60])),
            (Err(Error::Malformed), Err(Error::Malformed), Err(Error::Malformed))
        );
    }
}

/// Checks RFC 7714 §17.3: a packet that is authentic but not encrypted.
#[test]
fn x_05_a_tag_alone_is_not_enough() {
    let (_, mut inbound) = contexts(Profile::AeadAes128Gcm);
    let mut packet = crate::testing::hex(
        "81c8000d4d6172734e5450314e545032525450200000042a0000e9304c756e61deadbeefdeadbeefdeadbeefdeadbeefdeadbeef\
         841dd9683dd78ec92ae58790125f62b3000005d4",
    );
    assert_eq!(inbound.unprotect_rtcp(&mut packet), Err(Error::NotEncrypted));
}

#[test]
fn x_07_a_hostile_publisher_has_no_more_than_32_sources() {
    for profile in PROFILES {
        let material = vec![5; profile.keying_bytes()];
        let (client, _) = MasterKey::of_dtls(profile, &material).unwrap();
        let mut inbound = Inbound::new(&client).unwrap();
        for ssrc in 0..10_000 {
            // Our own context does not hold more sources either, so the hostile sender uses one context per
            // source.
            let mut outbound = Outbound::new(&client).unwrap();
            let mut control = rtcp(ssrc);
            outbound.protect_rtcp(&mut control).unwrap();
            let (rtp, rtcp) = (
                opened(&mut inbound, &protected(&mut outbound, ssrc, 9)),
                inbound.unprotect_rtcp(&mut control),
            );
            let fits = (ssrc as usize) < SOURCES_MAX;
            assert_eq!((rtp.is_ok(), rtcp.is_ok()), (fits, fits), "{ssrc}");
        }
        assert_eq!(inbound.stats().too_many_sources, 2 * (10_000 - 32));
        let mut outbound = Outbound::new(&client).unwrap();
        let sent = (0..10_000).filter(|&ssrc| outbound.protect(&mut clear(ssrc, 1)).is_ok()).count();
        assert_eq!(sent, OWN_SOURCES_MAX);
    }
}

#[test]
fn a_source_of_ours_that_ended_is_not_sent_from_again() {
    for profile in PROFILES {
        let material = vec![5; profile.keying_bytes()];
        let (client, _) = MasterKey::of_dtls(profile, &material).unwrap();
        let mut outbound = Outbound::new(&client).unwrap();
        for ssrc in 1..=40 {
            outbound.protect(&mut clear(ssrc, 1)).unwrap();
            outbound.end_source(ssrc);
        }
        for ssrc in 1..=40 {
            assert_eq!(outbound.protect(&mut clear(ssrc, 2)), Err(Error::Reused), "{ssrc}");
        }
        assert_eq!(outbound.protect(&mut clear(41, 1)), Ok(()));
    }
}

proptest! {
    #[test]
    fn what_is_protected_is_opened(
        profile in prop::sample::select(PROFILES.to_vec()),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        extension in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        leaps in prop::collection::vec(1u16..2000, 1..60),
    ) {
        let (mut outbound, mut inbound) = contexts(profile);
        let mut number = 65_000u16;
        for leap in leaps {
            number = number.wrapping_add(leap);
            let block = extension.as_ref().map(|bytes| rtp::ExtensionBlock { profile: 0xbede, bytes });
            let packet = Packet { header: Header { extension: block, ..header(7, number) }, payload: &payload, padding: 0 };
            let mut clear = Vec::new();
            packet.write(&mut clear);
            let mut sealed = clear.clone();
            outbound.protect(&mut sealed).unwrap();
            prop_assert_eq!(sealed.len(), outbound.sealed_length(&packet.header, payload.len()));
            prop_assert_eq!(opened(&mut inbound, &sealed), Ok(clear));
            let mut control = [&rtcp(7)[..], &payload].concat();
            outbound.protect_rtcp(&mut control).unwrap();
            let length = inbound.unprotect_rtcp(&mut control).unwrap();
            prop_assert_eq!(&control[20..length], &payload[..]);
        }
    }
}

#[test]
fn a_padded_packet_is_what_a_reader_expects() {
    for profile in PROFILES {
        let (mut keys, mut peer) = contexts(profile);
        for (number, padding) in (0..).zip([0, 1, 2, 255]) {
            let (header, mut out) = (header(7, number), Datagrams::new());
            keys.seal_padded(&header, (b"payload", padding), &mut out).unwrap();
            let mut bytes = out.get(0).to_vec();
            assert_eq!(bytes.len(), keys.sealed_length(&header, 7) + usize::from(padding));
            let length = peer.unprotect(&mut bytes).unwrap();
            let packet = Packet::read(&bytes[..length]).unwrap();
            assert_eq!(packet, Packet { header, payload: b"payload", padding });
        }
    }
}
