use super::*;
use crate::Error;
use proptest::prelude::*;
use wire::{Reader, Writer};

fn bytes_of(value: &Value) -> Vec<u8> {
    let mut w = Writer::new();
    write(value, &mut w);
    w.take().to_vec()
}

fn parse(bytes: &[u8]) -> Result<Value, Error> {
    read(&mut Reader::new(bytes))
}

#[test]
fn scalars_have_the_markers_of_the_specification() {
    assert_eq!(bytes_of(&Value::Number(1.0)), [0, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes_of(&Value::Boolean(true)), [1, 1]);
    assert_eq!(bytes_of(&Value::string("live")), b"\x02\0\x04live");
    assert_eq!(bytes_of(&Value::Null), [5]);
    assert_eq!(bytes_of(&Value::object([("a", Value::Undefined)])), b"\x03\0\x01a\x06\0\0\x09");
    assert_eq!(bytes_of(&Value::StrictArray(vec![Value::Null])), [0x0a, 0, 0, 0, 1, 5]);
}

#[test]
fn a_long_string_changes_its_marker() {
    let long = Value::string("x".repeat(65_536));
    assert_eq!(bytes_of(&long).first(), Some(&0x0c));
    assert_eq!(parse(&bytes_of(&long)), Ok(long));
    let longest_short = Value::string("x".repeat(65_535));
    assert_eq!(bytes_of(&longest_short).first(), Some(&0x02));
}

#[test]
fn a_missing_end_marker_at_the_end_of_the_input_is_accepted() {
    let want = Value::EcmaArray(vec![("width".to_owned(), Value::Number(2.0))]);
    let whole = bytes_of(&want);
    assert_eq!(parse(&whole), Ok(want.clone()));
    assert_eq!(parse(&whole[..whole.len() - 3]), Ok(want.clone()));
    assert_eq!(parse(&whole[..whole.len() - 1]), Ok(want));
    assert!(parse(&whole[..whole.len() - 4]).is_err());
}

#[test]
fn an_empty_name_is_a_name_when_a_value_follows() {
    let odd = Value::Object(vec![(String::new(), Value::Null), ("b".to_owned(), Value::Null)]);
    assert_eq!(parse(&bytes_of(&odd)), Ok(odd));
}

#[test]
fn m_12_depth_over_32_is_an_error_at_any_depth_in_a_small_stack() {
    let run = || {
        for (opening, depth) in [(&b"\x03\0\x01a"[..], 64), (b"\x03\0\x01a", 65), (b"\x03\0\x01a", 100_000)] {
            assert!(matches!(parse(&opening.repeat(depth)), Err(Error::TooDeep { .. })));
        }
        let arrays = |n| [b"\x0a\0\0\0\x01".repeat(n), vec![5]].concat();
        assert!(parse(&arrays(32)).is_ok());
        assert_eq!(parse(&arrays(33)), Err(Error::TooDeep { at: 160 }));
        assert!(parse(&arrays(100_000)).is_err());
    };
    #[allow(clippy::disallowed_methods, reason = "the row asks for a thread with a small stack")]
    std::thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap().join().unwrap();
}

#[test]
fn m_12_announced_counts_and_lengths_never_allocate() {
    assert!(parse(b"\x0a\xff\xff\xff\xff\x05").is_err());
    assert_eq!(parse(b"\x08\xff\xff\xff\xff\0\0\x09"), Ok(Value::EcmaArray(vec![])));
    assert!(parse(b"\x0c\xff\xff\xff\xffabc").is_err());
    let crowd = [&b"\x0a\xff\xff\xff\xff"[..], &[5; 20_000]].concat();
    assert!(matches!(parse(&crowd), Err(Error::TooManyValues { .. })));
    assert!(matches!(read_all(&mut Reader::new(&[5; 20_000])), Err(Error::TooManyValues { .. })));
}

#[test]
fn m_12_references_amf3_and_unknown_markers_are_errors() {
    assert_eq!(parse(&[0x07, 0, 0]), Err(Error::UnknownMarker { marker: 0x07, at: 0 }));
    assert_eq!(parse(&[0x11, 0x01]), Err(Error::Amf3 { at: 0 }));
    for marker in [0x04, 0x09, 0x0e, 0x12, 0xff] {
        assert_eq!(parse(&[marker, 0, 0]), Err(Error::UnknownMarker { marker, at: 0 }));
    }
}

#[test]
fn members_are_found_by_name() {
    let value = Value::object([("app", Value::string("live")), ("n", Value::Number(3.0))]);
    assert_eq!(value.get("app").and_then(Value::as_str), Some("live"));
    assert_eq!(value.get("n").and_then(Value::as_number), Some(3.0));
    assert_eq!(value.get("none"), None);
    assert_eq!(Value::Null.get("app"), None);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<f64>().prop_filter("NaN is unequal to itself", |n| !n.is_nan()).prop_map(Value::Number),
        any::<bool>().prop_map(Value::Boolean),
        ".{0,20}".prop_map(Value::String),
        Just(Value::Null),
        Just(Value::Undefined),
        Just(Value::Unsupported),
        (-1e15..1e15f64, any::<i16>()).prop_map(|(unix_ms, zone)| Value::Date { unix_ms, zone }),
        ".{0,20}".prop_map(Value::XmlDocument),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let pairs = || prop::collection::vec((".{1,8}", inner.clone()), 0..6);
        prop_oneof![
            pairs().prop_map(Value::Object),
            pairs().prop_map(Value::EcmaArray),
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::StrictArray),
            (".{0,8}", pairs()).prop_map(|(class, pairs)| Value::TypedObject { class, pairs }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(values in prop::collection::vec(any_value(), 0..5)) {
        let mut w = Writer::new();
        write_all(&values, &mut w);
        let bytes = w.take();
        prop_assert_eq!(read_all(&mut Reader::new(&bytes)), Ok(values));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = read_all(&mut Reader::new(&bytes));
    }

    #[test]
    fn a_cut_message_never_panics(value in any_value(), cut in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&value);
        let _ = parse(&bytes[..cut.index(bytes.len())]);
    }
}
