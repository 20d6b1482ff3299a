use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::limits::{ATTRIBUTES_MAX, STUN_BYTES_MAX};

const KEY: &[u8] = b"VOkJxbRl1RmTxUk/WvJxBt";
const ID: TransactionId =
    TransactionId([0xb7, 0xe7, 0xa7, 1, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae]);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Request of RFC 5769 §2.1.
fn request_vector() -> Vec<u8> {
    bytes(
        "00010058 2112a442 b7e7a701bc34d686fa87dfae 80220010 5354554e207465737420636c69656e74
         00240004 6e0001ff 80290008 932ff9b151263b36 00060009 6576746a3a68367659202020
         00080014 9aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a2 80280004 e57a3bcf",
    )
}

/// Responses of RFC 5769 §2.2 and §2.3.
fn answer_vectors() -> [(Vec<u8>, &'static str); 2] {
    [
        (
            bytes(
                "0101003c 2112a442 b7e7a701bc34d686fa87dfae 8022000b 7465737420766563746f7220
                 00200008 0001a147e112a643 00080014 2b91f599fd9e90c38c7489f92af9ba53f06be7d7
                 80280004 c07d4c96",
            ),
            "192.0.2.1:32853",
        ),
        (
            bytes(
                "01010048 2112a442 b7e7a701bc34d686fa87dfae 8022000b 7465737420766563746f7220
                 00200014 0002a1470113a9faa5d3f179bc25f4b5bed2b9d9
                 00080014 a382954e4be67bf11784c97c8292c275bfe3ed41 80280004 c8fb0b4c",
            ),
            "[2001:db8:1234:5678:11:2233:4455:6677]:32853",
        ),
    ]
}

#[test]
fn rfc_5769_sample_request() {
    let vector = request_vector();
    let message = Message::read(&vector).unwrap();
    assert_eq!((message.class(), message.method(), message.transaction_id()), (Class::Request, BINDING, ID));
    assert_eq!(message.username(), Some(&b"evtj:h6vY"[..]));
    assert_eq!(message.priority(), Some(0x6e00_01ff));
    assert_eq!(message.role(), Some(RoleAttribute::Controlled(0x932f_f9b1_5126_3b36)));
    assert!(message.has_fingerprint() && message.is_authentic(KEY) && !message.is_authentic(b"another"));
    assert!(message.unknown().is_empty() && !message.use_candidate());
    assert_eq!(username_fragment(&vector), Some(&b"evtj"[..]));
    let software = message.attributes().find(|a| a.kind == AttributeType::SOFTWARE).unwrap();
    assert_eq!(software.value, b"STUN test client");
}

#[test]
fn rfc_5769_sample_answers() {
    for (vector, address) in answer_vectors() {
        let message = Message::read(&vector).unwrap();
        assert_eq!(message.class(), Class::Success);
        assert_eq!(message.mapped_address(), Some(address.parse().unwrap()));
        assert!(message.is_authentic(KEY));
        assert_eq!(username_fragment(&vector), None);
    }
}

/// Makes a check with all the attributes that Chromium sends.
fn check(nominates: bool) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let length = MessageWriter::new(&mut out, Class::Request, ID)
        .username("local", "rem")
        .attribute(AttributeType::NETWORK_COST, &[0, 1, 0, 10])
        .role(RoleAttribute::Controlling(7))
        .use_candidate(nominates)
        .attribute(AttributeType::NOMINATION, &[0, 0, 0, 1])
        .priority(1_853_824_767)
        .finish(KEY);
    out.drain(..6);
    assert_eq!(out.len(), length);
    out
}

#[test]
fn what_is_written_is_read() {
    for nominates in [false, true] {
        let datagram = check(nominates);
        let message = Message::read(&datagram).unwrap();
        assert!(message.is_authentic(KEY) && message.has_fingerprint());
        assert_eq!(message.username(), Some(&b"local:rem"[..]));
        assert_eq!(message.role(), Some(RoleAttribute::Controlling(7)));
        assert_eq!((message.priority(), message.use_candidate()), (Some(1_853_824_767), nominates));
    }
    let mut out = Vec::new();
    let unknown = [AttributeType(0x0002), AttributeType(0x7fff)];
    MessageWriter::new(&mut out, Class::Error, ID)
        .error_code(ErrorCode::UNKNOWN_ATTRIBUTE)
        .unknown(unknown.into_iter())
        .finish(KEY);
    let message = Message::read(&out).unwrap();
    assert_eq!((message.class(), message.error_code()), (Class::Error, Some(ErrorCode(420))));
}

#[test]
fn a_mapped_ipv4_address_is_written_as_what_it_is() {
    let mut out = Vec::new();
    let address: SocketAddr = "[::ffff:192.0.2.1]:5".parse().unwrap();
    MessageWriter::new(&mut out, Class::Success, ID).mapped_address(address).finish(KEY);
    assert_eq!(Message::read(&out).unwrap().mapped_address(), Some("192.0.2.1:5".parse().unwrap()));
}

/// Builds a message of the type `kind` from raw attributes: type, length field, and value.
fn raw(kind: u16, attributes: &[(u16, usize, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, length, value) in attributes {
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(&u16::try_from(*length).unwrap().to_be_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut out = kind.to_be_bytes().to_vec();
    out.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&MAGIC_COOKIE.to_be_bytes());
    out.extend_from_slice(&ID.0);
    out.extend_from_slice(&body);
    out
}

#[test]
fn i_10_attributes_that_cannot_be() {
    let malformed = |kind: u16| Some(Error::Attribute(AttributeType(kind)));
    for kind in [0x0020, 0x0024, 0x0025, 0x0008, 0x0009, 0x8028, 0x8029, 0x802a] {
        for length in 0..=40 {
            for family in 0..4 {
                let mut value = vec![3; length];
                value.iter_mut().skip(1).take(1).for_each(|byte| *byte = family);
                let datagram = raw(0x0001, &[(kind, length, &value)]);
                let fits = match kind {
                    0x0020 => (length, family) == (8, 1) || (length, family) == (20, 2),
                    0x0024 => length == 4,
                    0x0025 => length == 0,
                    0x0008 => length == 20,
                    0x0009 => length >= 4,
                    0x8028 => false,
                    _ => length == 8,
                };
                let error = Message::read(&datagram).err();
                let wrong = (kind == 0x8028 && length == 4).then_some(Error::Fingerprint);
                let want = if fits { None } else { wrong.or_else(|| malformed(kind)) };
                assert_eq!(error, want, "{kind:#x} {length} {family}");
            }
        }
    }
}

#[test]
fn i_10_a_length_past_the_end() {
    for length in [5, 8, 100, 65_535] {
        let datagram = raw(0x0001, &[(0x8022, length, &[1, 2, 3, 4])]);
        assert!(matches!(Message::read(&datagram), Err(Error::Truncated(_))), "{length}");
        assert_eq!(username_fragment(&datagram), None);
    }
}

#[test]
fn i_10_attribute_counts_and_message_lengths_are_capped() {
    let many = |count| raw(0x0001, &vec![(0x8000, 0, &[][..]); count]);
    assert!(Message::read(&many(ATTRIBUTES_MAX)).is_ok());
    assert_eq!(Message::read(&many(ATTRIBUTES_MAX + 1)).err(), Some(Error::TooManyAttributes));
    assert_eq!(Message::read(&many(1000)).err(), Some(Error::TooLong { length: 4020 }));
    assert_eq!(username_fragment(&many(1000)), None);
    // The user name is not searched for beyond the maximum number of attributes.
    let mut late = vec![(0x8000, 0, &[][..]); ATTRIBUTES_MAX];
    late.push((0x0006, 4, b"a:bc"));
    assert_eq!(username_fragment(&raw(0x0001, &late)), None);
}

#[test]
fn i_10_all_lengths_from_0_to_600() {
    let long = raw(0x0001, &[(0x8022, 576, &[7; 576])]);
    assert!(long.len() == 600 && Message::read(&long).is_ok());
    for length in 0..600 {
        assert!(Message::read(&long[..length]).is_err(), "{length}");
        // Even with a matching length field, only multiples of four are messages.
        let mut fitting = vec![0; length];
        fitting.iter_mut().zip(&long).for_each(|(byte, of)| *byte = *of);
        if let Some(body) = length.checked_sub(HEADER_BYTES) {
            fitting[2..4].copy_from_slice(&u16::try_from(body).unwrap().to_be_bytes());
            if body >= 4 {
                let value = u16::try_from(body - 4).unwrap();
                fitting[22..24].copy_from_slice(&value.to_be_bytes());
            }
            assert_eq!(Message::read(&fitting).is_ok(), body % 4 == 0, "{length}");
        }
        assert!(Message::read(&vec![0; length]).is_err());
    }
    assert!(matches!(Message::read(&vec![0; STUN_BYTES_MAX + 1]), Err(Error::TooLong { .. })));
}

#[test]
fn i_10_what_stands_behind_the_integrity_does_not_count() {
    let mut out = Vec::new();
    MessageWriter::new(&mut out, Class::Request, ID).username("local", "rem").finish(KEY);
    out.truncate(out.len() - 8);
    // USE-CANDIDATE, an unknown attribute and a malformed PRIORITY, followed by a matching fingerprint.
    out.extend_from_slice(&bytes("00250000 00020000 00240000"));
    let body = u16::try_from(out.len() - HEADER_BYTES).unwrap();
    out[2..4].copy_from_slice(&body.to_be_bytes());
    let message = Message::read(&out).unwrap();
    assert!(message.is_authentic(KEY) && !message.use_candidate() && message.unknown().is_empty());
    let late = raw(0x0001, &[(0x0008, 20, &[0; 20]), (0x0006, 9, b"local:rem")]);
    assert_eq!(Message::read(&late).unwrap().username(), None);
    assert_eq!(username_fragment(&late), None);
}

#[test]
fn i_10_the_fingerprint_is_last() {
    let mut datagram = check(false);
    datagram.extend_from_slice(&[0x80, 0x22, 0, 0]);
    let body = u16::try_from(datagram.len() - HEADER_BYTES).unwrap();
    datagram[2..4].copy_from_slice(&body.to_be_bytes());
    // The checksum includes the length field in the header, so it is already wrong.
    assert!(Message::read(&datagram).is_err());
}

#[test]
fn i_10_the_first_of_a_kind_counts() {
    let twice =
        raw(0x0001, &[(0x0006, 3, b"a:b"), (0x0006, 3, b"c:d"), (0x0024, 4, &[1; 4]), (0x0024, 4, &[2; 4])]);
    let message = Message::read(&twice).unwrap();
    assert_eq!((message.username(), message.priority()), (Some(&b"a:b"[..]), Some(0x0101_0101)));
    assert_eq!(username_fragment(&twice), Some(&b"a"[..]));
}

#[test]
fn i_10_unknown_attributes_are_named_up_to_a_cap() {
    let unknown: Vec<(u16, usize, &[u8])> = (0x0050..0x0060).map(|kind| (kind, 0, &[][..])).collect();
    let datagram = raw(0x0001, &unknown);
    let message = Message::read(&datagram).unwrap();
    assert_eq!(
        message.unknown().iter().map(|kind| kind.0).collect::<Vec<_>>(),
        (0x0050..0x0058).collect::<Vec<u16>>()
    );
}

#[test]
fn classes_and_methods_of_all_types() {
    for kind in 0..=u16::MAX {
        let datagram = raw(kind, &[]);
        let Ok(message) = Message::read(&datagram) else {
            assert!(kind & 0xc000 != 0, "{kind:#x}");
            continue;
        };
        let bits = message.class().bits();
        assert!(kind & 0x0110 == bits && message.method() < 0x1000);
        assert_eq!(message.method() == BINDING, kind & !0x0110 == 1, "{kind:#x}");
        assert!(is_stun(&datagram) == (kind < 0x0400));
    }
}

#[test]
fn i_01_every_single_bit_flip_is_noticed() {
    let whole = check(true);
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // The FINGERPRINT or the format reveals the change. If the change removes the FINGERPRINT, MESSAGE-INTEGRITY
        // reveals it.
        let authentic = Message::read(&flipped).is_ok_and(|message| message.is_authentic(KEY));
        // A change in the last eight bytes may turn FINGERPRINT into an unknown attribute, which is ignored after
        // MESSAGE-INTEGRITY, so the message stays authentic.
        assert!(!authentic || bit / 8 >= whole.len() - 8, "bit {bit}");
    }
    for length in 0..whole.len() {
        assert!(Message::read(&whole[..length]).is_err());
    }
}

proptest! {
    #[test]
    fn any_message_reads_as_it_was_written(
        id in any::<[u8; 12]>(), key in prop::collection::vec(any::<u8>(), 0..80), other in any::<[u8; 9]>(),
        priority in any::<u32>(), tie_breaker in any::<u64>(), port in any::<u16>(), ip in any::<u128>(), v4 in any::<bool>(),
        software in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let ip: std::net::IpAddr = if v4 { std::net::Ipv4Addr::from((ip & 0xffff_ffff) as u32).into() } else { std::net::Ipv6Addr::from(ip).into() };
        let address = SocketAddr::new(ip.to_canonical(), port);
        let mut out = Vec::new();
        MessageWriter::new(&mut out, Class::Indication, TransactionId(id)).mapped_address(address).priority(priority)
            .attribute(AttributeType::SOFTWARE, &software).role(RoleAttribute::Controlled(tie_breaker)).finish(&key);
        let message = Message::read(&out).unwrap();
        prop_assert!(message.is_authentic(&key) && (key == other || !message.is_authentic(&other)));
        prop_assert_eq!((message.mapped_address(), message.priority()), (Some(address), Some(priority)));
        prop_assert_eq!((message.transaction_id(), message.role()), (TransactionId(id), Some(RoleAttribute::Controlled(tie_breaker))));
        prop_assert_eq!(message.attributes().count(), 6);
    }

    #[test]
    fn any_bytes_are_read_without_harm(mut datagram in prop::collection::vec(any::<u8>(), 0..200), stun in any::<bool>()) {
        if stun && datagram.len() >= HEADER_BYTES {
            let body = u16::try_from(datagram.len() - HEADER_BYTES).unwrap();
            datagram[..2].copy_from_slice(&[0, 1]);
            datagram[2..4].copy_from_slice(&body.to_be_bytes());
            datagram[4..8].copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        }
        if let Ok(message) = Message::read(&datagram) {
            prop_assert!(!message.is_authentic(KEY));
            prop_assert!(message.attributes().count() <= ATTRIBUTES_MAX);
        }
        let _ = username_fragment(&datagram);
    }
}
