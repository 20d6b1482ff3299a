//! Tests of records: encryption and decryption, the reconstruction of sequence numbers, and the limits on keys.

use netsim::Clock;

use super::*;

const DATA: ContentType = ContentType::APPLICATION_DATA;
const ALGORITHMS: [AeadAlgorithm; 3] =
    [AeadAlgorithm::Aes128Gcm, AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305];

fn keys(algorithm: AeadAlgorithm, seed: u8) -> Keys {
    let key = vec![seed; algorithm.key_bytes()];
    Keys::new(algorithm, &key, [seed; 12], &key).unwrap()
}

/// Creates records that read and write epoch 3.
fn both(algorithm: AeadAlgorithm) -> Records {
    let mut records = Records::new();
    records.add_write(3, keys(algorithm, 7));
    records.add_read(3, keys(algorithm, 7));
    records
}

fn seal(records: &mut Records, clear: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    records.write(records.write_epoch(), DATA, clear, &mut out).unwrap();
    out
}

/// Returns the epoch, sequence number and content of the first record, or the error of decrypting it. `None` if
/// the datagram contains no record.
#[allow(clippy::type_complexity, reason = "a record in parts, or why not, or none")]
fn open(
    records: &mut Records,
    now: Instant,
    datagram: &[u8],
) -> Option<Result<(u64, u64, Vec<u8>), NotOpened>> {
    let mut datagram = datagram.to_vec();
    let (opened, _) = records.take(now, &mut datagram)?;
    Some(opened.map(|opened| (opened.number.epoch, opened.number.sequence, opened.clear.to_vec())))
}

#[test]
fn what_is_sealed_is_opened_and_any_damage_is_noticed() {
    let now = Clock::new().now();
    for algorithm in ALGORITHMS {
        let mut records = both(algorithm);
        for clear in [&b""[..], b"payload"] {
            let record = seal(&mut records, clear);
            assert_eq!(record.len(), clear.len() + OVERHEAD_BYTES);
            for at in 0..record.len() {
                for bit in 0..8 {
                    let mut damaged = record.clone();
                    damaged[at] ^= 1 << bit;
                    let opened = open(&mut records, now, &damaged);
                    assert!(!matches!(opened, Some(Ok(_))), "{algorithm:?} {at} {bit}");
                }
            }
            for length in 0..record.len() {
                assert!(!matches!(open(&mut records, now, &record[..length]), Some(Ok(_))), "{length}");
            }
            let opened = open(&mut records, now, &record).unwrap().unwrap();
            assert_eq!((opened.0, &opened.2[..]), (3, clear));
            // The same record again is a replay.
            assert_eq!(open(&mut records, now, &record), Some(Err(NotOpened::Replayed)));
        }
    }
}

/// Checks that the number in the header is masked, so that it does not reveal the number of records.
#[test]
fn sequence_numbers_are_masked() {
    let mut records = both(AeadAlgorithm::Aes128Gcm);
    let shown: Vec<[u8; 2]> =
        (0..64).map(|_| seal(&mut records, b"same")).map(|record| [record[1], record[2]]).collect();
    let plain = (0..64u16).filter(|n| shown[usize::from(*n)] == n.to_be_bytes()).count();
    assert!(plain < 3, "{plain}");
}

/// Checks RFC 9147 §4.2.2: the reconstructed number is the one with these low bits that is closest to the next
/// number.
#[test]
fn numbers_are_reconstructed() {
    let mut read = ReadEpoch {
        epoch: 3,
        keys: keys(AeadAlgorithm::Aes128Gcm, 1),
        window: ReplayWindow::default(),
        forged: 0,
        expires: None,
    };
    for (next, low, bits, full) in [
        (0, 0, 8, 0),
        (0, 0x7f, 8, 0x7f),
        // No number is below 0, so the low bits belong to a number that is far ahead.
        (0, 0x80, 8, 0x80),
        (0, 0xff, 8, 0xff),
        (0x100, 0xff, 8, 0xff),
        (0x100, 0x00, 8, 0x100),
        (0x180, 0xff, 8, 0x1ff),
        (0x180, 0x00, 8, 0x100),
        (0x17f, 0x00, 8, 0x100),
        (0x181, 0x00, 8, 0x200),
        (0x1_0000, 0xffff, 16, 0xffff),
        (0xffff, 0x0000, 16, 0x1_0000),
        (0x12_8000, 0x0000, 16, 0x12_0000),
        (0x12_8001, 0x0000, 16, 0x13_0000),
    ] {
        read.window = ReplayWindow::default();
        if next > 0 {
            read.window.insert(next - 1);
        }
        assert_eq!(read.sequence(low, bits), full, "{next:x} {low:x}");
    }
}

/// Checks headers without a length and with eight bits of the sequence number, which peers may send.
#[test]
fn short_heads_are_read() {
    let now = Clock::new().now();
    for (long, with_length) in [(true, false), (false, true), (false, false)] {
        let mut records = both(AeadAlgorithm::Aes128Gcm);
        let keys = keys(AeadAlgorithm::Aes128Gcm, 7);
        for sequence in 0..300u64 {
            let mut body = [b"content", &[DATA.0][..]].concat();
            let mut head = vec![FORM | 3];
            let [.., a, b] = sequence.to_be_bytes();
            if long {
                head[0] |= HAS_LONG_SEQUENCE;
                head.push(a);
            }
            head.push(b);
            let at = head.len();
            if with_length {
                head[0] |= HAS_LENGTH;
                head.extend(u16::try_from(body.len() + 16).unwrap().to_be_bytes());
            }
            let tag = keys.aead.seal(keys.nonce(sequence), &head, &mut body);
            body.extend(tag);
            assert!(keys.mask(&body, &mut head[1..at]));
            let opened = open(&mut records, now, &[&head[..], &body].concat());
            assert_eq!(opened, Some(Ok((3, sequence, b"content".to_vec()))), "{long} {with_length}");
        }
    }
}

#[test]
fn padding_is_cut_off_and_a_record_of_nothing_else_has_no_type() {
    let now = Clock::new().now();
    let mut records = both(AeadAlgorithm::Aes128Gcm);
    let mut sequence = 0;
    let mut with = |inner: &[u8]| {
        let keys = keys(AeadAlgorithm::Aes128Gcm, 7);
        let mut body = inner.to_vec();
        let length = u16::try_from(body.len() + 16).unwrap().to_be_bytes();
        let mut head = [FORM | HAS_LONG_SEQUENCE | HAS_LENGTH | 3, 0, sequence, length[0], length[1]];
        let tag = keys.aead.seal(keys.nonce(sequence.into()), &head, &mut body);
        body.extend(tag);
        assert!(keys.mask(&body, &mut head[1..3]));
        sequence += 1;
        open(&mut records, now, &[&head[..], &body].concat()).unwrap().map(|(_, _, clear)| clear)
    };
    assert_eq!(with(&[1, 0, 2, 23, 0, 0, 0, 0]), Ok(vec![1, 0, 2]));
    assert_eq!(with(&[0; 20]), Err(NotOpened::Typeless));
    assert_eq!(with(&[]), Err(NotOpened::Typeless));
    let longest = [&vec![5; FRAGMENT_BYTES_MAX][..], &[23]].concat();
    assert_eq!(with(&longest).map(|clear| clear.len()), Ok(FRAGMENT_BYTES_MAX));
    assert_eq!(with(&[&longest[..], &[23]].concat()), Err(NotOpened::TooLong));
}

#[test]
fn d_12_nothing_in_the_clear_counts_once_there_are_keys() {
    let now = Clock::new().now();
    let (mut plain, mut keyed) = (Records::new(), Records::new());
    keyed.add_read(2, keys(AeadAlgorithm::Aes128Gcm, 7));
    let mut record = Vec::new();
    plain.write(0, DATA, b"anybody's", &mut record).unwrap();
    assert!(matches!(open(&mut plain, now, &record), Some(Ok((0, 0, _)))));
    assert_eq!(open(&mut keyed, now, &record), Some(Err(NotOpened::Epoch)));
    // A protected record with the header of older versions is refused.
    record[4] = 1;
    assert_eq!(open(&mut plain, now, &record), Some(Err(NotOpened::Epoch)));
    // No connection id was negotiated, so the rest of the datagram cannot be parsed.
    assert_eq!(open(&mut keyed, now, &[FORM | HAS_CONNECTION_ID | 2; 100]), None);
}

/// Checks records of unknown epochs, which only cost a search in a list of three.
#[test]
fn d_30_jumps_of_epochs_change_nothing() {
    let now = Clock::new().now();
    let mut records = Records::new();
    for epoch in 2..=4 {
        records.add_read(epoch, keys(AeadAlgorithm::Aes128Gcm, 7));
    }
    let held = records.held_bytes();
    for first in (0..=0xffu8).cycle().take(10_000) {
        assert!(!matches!(open(&mut records, now, &[&[first][..], &[9; 60]].concat()), Some(Ok(_))));
    }
    assert_eq!(records.held_bytes(), held);
    for epoch in 5..1000 {
        records.add_read(epoch, keys(AeadAlgorithm::Aes128Gcm, 7));
        assert!(records.read.len() <= READ_MAX);
    }
}

#[test]
fn old_keys_are_kept_for_what_comes_late_and_then_forgotten() {
    let mut clock = Clock::new();
    let mut records = both(AeadAlgorithm::Aes128Gcm);
    let (early, late, later) = (seal(&mut records, b"1"), seal(&mut records, b"2"), seal(&mut records, b"3"));
    records.add_write(4, keys(AeadAlgorithm::Aes128Gcm, 8));
    records.add_read(4, keys(AeadAlgorithm::Aes128Gcm, 8));
    clock.advance(LATE_MAX * 2);
    assert!(open(&mut records, clock.now(), &early).unwrap().is_ok(), "nothing of the next epoch came yet");
    let next = seal(&mut records, b"4");
    assert!(open(&mut records, clock.now(), &next).unwrap().is_ok());
    clock.advance(LATE_MAX - Duration::from_millis(1));
    assert!(open(&mut records, clock.now(), &late).unwrap().is_ok());
    clock.advance(Duration::from_millis(1));
    assert_eq!(open(&mut records, clock.now(), &later), Some(Err(NotOpened::Epoch)));
}

#[test]
fn d_12_keys_wear_out() {
    let now = Clock::new().now();
    let mut out = Vec::new();
    for (algorithm, most) in [
        (AeadAlgorithm::Aes128Gcm, SEALED_MAX_GCM),
        (AeadAlgorithm::Aes256Gcm, SEALED_MAX_GCM),
        (AeadAlgorithm::ChaCha20Poly1305, SEQUENCE_LAST),
    ] {
        let mut records = both(algorithm);
        for (next, wears) in [(0, false), (most / 2 - 1, false), (most / 2, true)] {
            records.skip_to(next);
            assert_eq!(records.are_wearing(), wears);
        }
        records.skip_to(most - 1);
        assert!(records.write(3, DATA, b"", &mut out).is_ok());
        assert_eq!(records.write(3, DATA, b"", &mut out), Err(Exhausted));
        assert_eq!(records.write(4, DATA, b"", &mut out), Err(Exhausted), "there are no such keys");

        records.read[0].forged = FORGED_MAX - 2;
        let junk = [&[FORM | HAS_LONG_SEQUENCE | 3][..], &[9; 40]].concat();
        assert_eq!(open(&mut records, now, &junk), Some(Err(NotOpened::Forged)));
        assert_eq!(open(&mut records, now, &junk), Some(Err(NotOpened::Worn)));
    }
    let mut records = Records::new();
    records.clear_next = SEQUENCE_LAST;
    assert_eq!(records.write(0, DATA, b"", &mut out), Err(Exhausted));
}
