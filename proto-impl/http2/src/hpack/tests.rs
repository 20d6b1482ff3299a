//! Tests with the vectors of RFC 7541, Appendix C, and with properties.

use bytes::Bytes;
use proptest::prelude::*;
use wire::Reader;

use super::decoder::integer;
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let text = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(text).collect()
}

fn decode(decoder: &mut Decoder, hex: &str) -> Vec<(String, String)> {
    let list = decoder.decode(&bytes(hex), (100, 16 * 1024), usize::MAX).unwrap();
    assert!(!list.is_over);
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    list.fields.iter().map(|field| (text(&field.name), text(&field.value))).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn c_1_integers() {
    for (hex, prefix, value) in [("0a", 5, 10), ("1f9a0a", 5, 1337), ("2a", 8, 42)] {
        assert_eq!(integer(&mut Reader::new(&bytes(hex)), prefix), Ok(value), "{hex}");
    }
    for hex in ["", "1f", "1f80", "1fffffffffff0f"] {
        assert!(integer(&mut Reader::new(&bytes(hex)), 5).is_err(), "{hex}");
    }
}

#[test]
fn c_2_single_fields() {
    for (hex, field, table) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            ("custom-key", "custom-header"),
            55,
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", (":path", "/sample/path"), 0),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", ("password", "secret"), 0),
        ("82", (":method", "GET"), 0),
    ] {
        let mut decoder = Decoder::default();
        assert_eq!(decode(&mut decoder, hex), pairs(&[field]));
        assert_eq!(decoder.listing().0, table);
    }
}

const REQUESTS: [&[(&str, &str)]; 3] = [
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

#[test]
fn c_3_and_c_4_requests() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        for (block, (fields, size)) in blocks.iter().zip(REQUESTS.iter().zip([57, 110, 164])) {
            assert_eq!(decode(&mut decoder, block), pairs(fields));
            assert_eq!(decoder.listing().0, size);
        }
        let newest = decoder.listing().1;
        assert_eq!(newest.first(), Some(&("custom-key".to_owned(), "custom-value".to_owned())));
    }
    let mut encoder = Encoder::default();
    for (block, fields) in huffman.iter().zip(REQUESTS) {
        let fields: Vec<Field> = fields.iter().map(|(name, value)| Field::new(*name, *value)).collect();
        assert_eq!(encoder.encode(&fields), bytes(block));
    }
}

#[test]
fn c_5_and_c_6_responses_with_eviction() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let date = "Mon, 21 Oct 2013 20:13:21 GMT";
    let first = [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", date),
        ("location", "https://www.example.com"),
    ];
    let mut second = first;
    second[0].1 = "307";
    let third = [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::with_table(256);
        let wanted: [(&[(&str, &str)], usize); 3] = [(&first, 222), (&second, 222), (&third, 215)];
        for (block, (fields, size)) in blocks.iter().zip(wanted) {
            assert_eq!(decode(&mut decoder, block), pairs(fields));
            assert_eq!(decoder.listing().0, size);
        }
        assert_eq!(decoder.listing().1.len(), 3);
    }
}

#[test]
fn blocks_that_break_the_rules_are_refused() {
    for (hex, why) in [
        ("80", "index 0"),
        ("be", "an index behind the table"),
        ("ffffffffff7f", "a huge index"),
        ("400a 6375", "a name cut off"),
        ("0082 ffff 00", "a name of padding alone"),
        ("823f e11f", "a size update behind a field"),
        ("3fe2 1f", "a size over the limit"),
        ("2020 20", "three size updates"),
        ("40", "nothing behind the first byte"),
        ("7f", "an index cut off"),
    ] {
        let outcome = Decoder::default().decode(&bytes(hex), (10, 1000), 10_000);
        assert!(outcome.is_err(), "{why}: {outcome:?}");
    }
    let two_updates = Decoder::default().decode(&bytes("20 3fe11f 82"), (10, 1000), 10_000);
    assert_eq!(two_updates.unwrap().fields.len(), 1);
}

#[test]
fn a_bomb_keeps_the_limit_and_is_given_up() {
    // An entry of 3 000 bytes, and then one byte for each further copy of the entry.
    let mut bomb = vec![0x40, 0x01, b'x', 0x7f, 0xb9, 0x16];
    bomb.extend([b'a'; 3000]);
    let count = 1000;
    bomb.extend(vec![0xbe; count]);
    let list = Decoder::default().decode(&bomb, (100, 16 * 1024), usize::MAX).unwrap();
    assert!(list.is_over && list.fields.len() == 5 && list.bytes == 3033 * (count + 1), "{}", list.bytes);
    assert!(Decoder::default().decode(&bomb, (100, 16 * 1024), 64 * 1024).is_err());
}

#[test]
fn the_peers_smaller_table_is_obeyed_and_told() {
    let field = [Field::new("name", "value")];
    let mut encoder = Encoder::default();
    encoder.encode(&field);
    encoder.resize(0);
    encoder.resize(100);
    let block = encoder.encode(&field);
    assert!(block.starts_with(&[0x20, 0x3f, 69]), "{block:02x?}");
    let mut decoder = Decoder::default();
    assert_eq!(decoder.decode(&block, (9, 999), 999).unwrap().fields, field);
    let again = encoder.encode(&field);
    assert_eq!(again, [0xbe], "the new table has it");
    encoder.resize(1 << 30);
    assert_eq!(encoder.encode(&field), [0x3f, 0xe1, 0x1f, 0xbe]);
}

#[test]
fn secrets_enter_no_table() {
    let secret = [Field::new("set-cookie", "a=b"), Field::new("etag", "\"1\"")];
    let mut encoder = Encoder::default();
    let block = encoder.encode(&secret);
    assert_eq!(block, encoder.encode(&secret));
    assert_eq!(block[0] & 0xf0, 0x10, "never indexed");
}

fn fields() -> impl Strategy<Value = Vec<Field>> {
    let text = || {
        prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "[a-z-]{0,20}".prop_map(String::into_bytes)]
    };
    prop::collection::vec((text(), text()).prop_map(|(name, value)| Field::new(name, value)), 0..12)
}

proptest! {
    #[test]
    fn blocks_come_back(blocks in prop::collection::vec((fields(), 0usize..5000), 1..6)) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for (fields, size) in blocks {
            let block = encoder.encode(&fields);
            let list = decoder.decode(&block, (100, 1 << 20), 1 << 20).unwrap();
            prop_assert_eq!(list.fields, fields);
            encoder.resize(size);
        }
    }

    #[test]
    fn no_bytes_panic(block in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::default();
        if let Ok(list) = decoder.decode(&block, (5, 200), 4000) {
            prop_assert!(list.fields.len() <= 5 && list.bytes <= 4000);
        }
        prop_assert!(decoder.listing().0 <= TABLE_BYTES);
    }
}
