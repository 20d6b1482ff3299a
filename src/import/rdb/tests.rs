use super::input::sum_of;
use super::*;

/// Written by Redis 7.0 (version 10): values of all types, one hash as a listpack, one hash as a table with compressed
/// strings, two databases.
const OF_REDIS_7: &[u8] = include_bytes!("../../../tests/fixtures/import/redis-7.rdb");
/// The same contents, written by Valkey (version 11).
const OF_VALKEY_8: &[u8] = include_bytes!("../../../tests/fixtures/import/valkey-8.rdb");

fn all(bytes: &[u8], wanted: &[&str]) -> (Vec<(Found, Vec<u8>)>, io::Result<()>) {
    let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
    let mut found = Vec::new();
    let done = values(bytes, &wanted, &mut |of, value| {
        found.push((of, value.to_vec()));
        true
    });
    (found, done)
}

/// Makes a file from this header, these parts, and an end with the checksum.
fn file(version: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = version.as_bytes().to_vec();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.push(op::END);
    let sum = sum_of(0, &bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Encodes a string with its length.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

#[test]
fn hashes_of_real_files_are_found_among_everything_else() {
    check_file(OF_REDIS_7);
    check_file(OF_VALKEY_8);
}

fn check_file(file: &[u8]) {
    let (found, done) = all(file, &["liveappBroadcasts", "liveappTokens", "nothing", "users"]);
    done.unwrap();
    let of = |wanted: usize, database: u64| -> Vec<&[u8]> {
        let is_of = |found: &Found| *found == Found { wanted, database };
        found.iter().filter(|(found, _)| is_of(found)).map(|(_, value)| value.as_slice()).collect()
    };
    let mut broadcasts = of(0, 0);
    broadcasts.sort_unstable_by_key(|value| value.len());
    assert_eq!(broadcasts[0], b"\x03{\"streamId\":\"s2\"\xfd");
    let long = [&b"\x03{\"streamId\":\"s1\",\"name\":\""[..], &[b'a'; 400], b"\"\xfd"].concat();
    assert_eq!(broadcasts[1..], [&long], "it is compressed");
    assert_eq!(of(0, 3), [b"{\"streamId\":\"s9\"}"]);
    assert_eq!(of(1, 0), [&b"\x03{\"tokenId\":\"t1\"\xfd"[..], b"7", b"-70000"]);
    assert_eq!(of(3, 0), [b"{\"email\":\"a@b\"}"]);
    assert_eq!(found.len(), 7);
    // Reading stops if no more values are wanted.
    let mut count = 0;
    let mut one = |_: Found, _: &[u8]| {
        count += 1;
        false
    };
    values(file, &["liveappTokens".to_owned()], &mut one).unwrap();
    assert_eq!(count, 1);
}

#[test]
fn c_19_a_file_that_is_cut_or_changed_is_a_fault() {
    for end in 0..OF_REDIS_7.len() {
        let (_, done) = all(&OF_REDIS_7[..end], &["users"]);
        assert!(done.is_err(), "cut at {end}");
    }
    for at in 9..OF_REDIS_7.len() {
        let mut bytes = OF_REDIS_7.to_vec();
        bytes[at] ^= 0x10;
        let (_, done) = all(&bytes, &["users"]);
        assert!(done.is_err(), "changed at {at}");
    }
    // A server may be configured to write no checksum.
    let mut bytes = OF_REDIS_7.to_vec();
    let end = bytes.len() - 8;
    bytes[end..].fill(0);
    all(&bytes, &["users"]).1.unwrap();
}

/// The forms of small hashes before Redis 7 (a ziplist) and since 7.4 (with an expiry for each field).
#[test]
fn hashes_are_read_in_the_forms_of_older_and_newer_servers() {
    let ziplist = [
        &[0; 10][..],
        b"\x00\x01a\x03\x02xy",
        // A length of 14 bits; the length of the previous entry takes five bytes.
        b"\x04\x01b\x03\x41\x00",
        &[b'z'; 256],
        b"\xfe\x03\x01\x00\x00\xf1\x02\xc0\x2e\xfb",
        b"\x04\xf2\x02\xd0\x15\xcd\x5b\x07",
        b"\x06\xfe\x80\x03\xf0\x70\x11\x01",
        b"\x05\xfd\x02\xe0\x00\x00\x00\x00\x00\x00\x00\x80\x0a\x80\x00\x00\x00\x01c\x07\x80\x00\x00\x00\x01d\xff",
    ]
    .concat();
    let mut long =
        vec![0x40 | u8::try_from(ziplist.len() >> 8).unwrap(), u8::try_from(ziplist.len() & 0xff).unwrap()];
    long.extend(&ziplist);
    let expiring =
        [&b"\0\0\0\0\0\0"[..], b"\x81a\x02\x82xy\x03\x00\x01", b"\x81b\x02\xc1\xf4\x02\x01\x01\xff"].concat();
    let bytes = file(
        "REDIS0012",
        &[
            &[op::AUX],
            &string(b"redis-ver"),
            &string(b"7.4.0"),
            &[op::SELECT, 0, op::RESIZE, 4, 1, kind::HASH_ZIPLIST],
            &string(b"h"),
            &long,
            &[op::EXPIRES_MS, 0, 0, 0, 0, 0, 0, 0, 0, op::IDLE, 1, op::FREQUENCY, 5, kind::HASH_LISTPACK_EX],
            &string(b"h"),
            &[0; 8],
            &string(&expiring),
            &[kind::HASH_METADATA],
            &string(b"h"),
            &[0; 8],
            b"\x02\x00\x01f\x02v1\x05\x01g\xc1\x39\x30",
            &[kind::MODULE_2],
            &string(b"m"),
            b"\x81\x00\x00\x00\x00\x00\x00\x00\x07\x02\x05\x05\x03abc\x04\0\0\0\0\0\0\0\0\x03\0\0\0\0\x00",
            &[kind::HASH],
            &string(b"h"),
            b"\x01\x01k\x02v2",
        ],
    );
    let (found, done) = all(&bytes, &["h"]);
    done.unwrap();
    let texts: Vec<String> = found.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect();
    let z = "z".repeat(256);
    assert_eq!(
        texts,
        [
            "xy",
            &z,
            "-1234",
            "123456789",
            "70000",
            "-9223372036854775808",
            "d",
            "xy",
            "500",
            "v1",
            "12345",
            "v2"
        ]
    );
}

/// The files are made from the constants in `rdb.h` of Valkey 9.0 and of Redis 8.6, because no server was available
/// that writes them.
#[test]
fn files_of_valkey_9_and_redis_8_6_are_read_by_their_own_numbers() {
    let parts: [&[u8]; 10] = [
        &[op::AUX],
        &string(b"valkey-ver"),
        &string(b"9.0.0"),
        &[op::KEY_METADATA_OR_SLOT_IMPORT],
        &string(&[b'j'; 40]),
        b"\x02\x00\x05\x07\x40\xff",
        &[op::SELECT, 0, op::SLOT_INFO, 1, 2, 3],
        b"\x16\x01x\x01\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x16\x01h\x02\x01f\x02v1\xff\xff\xff\xff\xff\xff\xff\xff\x01g\xc1\x39\x30\x00\x01\x02\x03\x04\x05\x06\x07",
        b"\x04\x01h\x01\x01k\x02v2",
    ];
    let texts = |bytes: &[u8]| {
        let (found, done) = all(bytes, &["h"]);
        done.unwrap();
        found.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&file("VALKEY080", &parts)), ["v1", "12345", "v2"]);

    // An entry of the stream, its ids, a group for which the entry is pending, and producers.
    let stream = |kind: u8| {
        let group =
            [&[0; 16 + 8][..], b"\x01", b"\x01", &string(b"me"), &[0; 16], b"\x01", &[0; 16]].concat();
        let producers = b"\x0a\x0b\x01\x01p\x02\x01a\x01\x02\x01b\x01\x03\x05\x06";
        let ids = [1; 8];
        [
            &[kind, 1, b's', 1][..],
            &string(&[0; 16]),
            &string(b"listpack"),
            &ids,
            b"\x01",
            &string(b"group"),
            b"\x01\x01\x01\x01",
            &group,
            producers,
        ]
        .concat()
    };
    let metadata = [&[op::KEY_METADATA_OR_SLOT_IMPORT, 1][..], b"spec", b"\x02\x07\x05\x03abc\x00"].concat();
    let parts: [&[u8]; 3] = [&metadata, b"\x04\x01h\x01\x01k\x02v1", &stream(kind::STREAM_4)];
    let bytes = file("REDIS0013", &[&parts.concat(), b"\x04\x01h\x01\x01k\x02v2"]);
    assert_eq!(texts(&bytes), ["v1", "v2"]);
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let bad: [(&[u8], &str); 12] = [
        (b"", "no RDB file"),
        (b"REDIS00x1", "no RDB file"),
        (b"VALKEY0x0", "no RDB file"),
        (b"REDIS0014", "version 14"),
        (b"REDIS0080", "version 80"),
        (b"VALKEY081", "version 81"),
        // Type 22, which only Valkey defines, in a file of Redis.
        (b"REDIS0013\x16\x01h\x00", "is no hash"),
        (b"REDIS0013\x16\x01x\x00", "kind 22"),
        // A list, an old form of a hash, a future kind, and a value longer than the file.
        (b"REDIS0010\x01\x01h\x01\x01a", "is no hash"),
        (b"REDIS0010\x09\x01h\x01\xff", "before 2.6"),
        (b"REDIS0010\x63\x01x", "kind 99"),
        (b"REDIS0010\x04\x01h\x01\x01k\x81\x00\x00\xff\xff\xff\xff\xff\xff", "longer"),
    ];
    for (bytes, reason) in bad {
        let error = all(bytes, &["h"]).1.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    // A short string that announces a large length is damaged.
    let huge =
        [b"REDIS0010\x04\x01h\x01\x01k\xc3\x02\x81\x00\x00\x00\xff\xff\xff\xff\xff", &b"\x00a"[..]].concat();
    assert!(all(&huge, &["h"]).1.is_err());
}

#[test]
fn strings_are_unpacked() {
    for (packed, whole) in [
        (&b"\x02abc"[..], &b"abc"[..]),
        // A copy that overlaps the output that it writes, and a long copy.
        (b"\x00a\x60\x00", b"aaaaaa"),
        (b"\x00a\xe0\x03\x00", b"aaaaaaaaaaaaa"),
        (b"", b""),
    ] {
        assert_eq!(packed::unpacked(packed, whole.len()).as_deref(), Some(whole), "{packed:?}");
        assert_eq!(packed::unpacked(packed, whole.len() + 1), None);
    }
    for packed in [&b"\x02ab"[..], b"\x20\x00", b"\x00a\x20\x01", b"\xe0", b"\x00a\x60\x00\x60\x00"] {
        assert_eq!(packed::unpacked(packed, 6), None, "{packed:?}");
    }
}

/// The content of a file is not trusted. Any bytes after the header, and a real file in which some bytes were changed,
/// cause an error at most.
#[test]
fn c_19_no_bytes_of_a_file_are_trusted() {
    let wanted = ["liveappBroadcasts", "liveappTokens", "users", "list", "stream", "\0"];
    proptest::proptest!(|(tail: Vec<u8>, kinds in proptest::collection::vec(0..30_u8, 0..6), body: Vec<u8>)| {
        let keys: Vec<u8> = kinds.iter().flat_map(|kind| [&[*kind, 1, 0][..], &body].concat()).collect();
        for version in [b"REDIS0013", b"VALKEY080"] {
            let _ = all(&[version, &tail[..]].concat(), &wanted);
            let _ = all(&[version, &keys[..]].concat(), &wanted);
        }
        let mut count = |_: &[u8]| true;
        let _ = (packed::ziplist(&body, &mut count), packed::listpack(&body, 2, &mut count), packed::unpacked(&body, 100));
    });
    proptest::proptest!(|(changes in proptest::collection::vec((9..OF_REDIS_7.len(), proptest::num::u8::ANY), 1..4))| {
        let mut bytes = OF_REDIS_7.to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let _ = all(&bytes, &wanted);
    });
}
