//! Tests of descriptors: vectors built by hand from the syntax, the structures of A.6, and hostile input.

use proptest::prelude::*;

use super::*;

/// Makes a template of a text like `-SR`: one character for each decode target (table A.4).
fn template(spatial: u8, temporal: u8, indications: &str, references: &[u8], chains: &[u8]) -> Template {
    let indications = indications.chars().map(|one| match one {
        '-' => Indication::NotPresent,
        'D' => Indication::Discardable,
        'S' => Indication::Switch,
        _ => Indication::Required,
    });
    Template {
        spatial,
        temporal,
        indications: indications.collect(),
        references: references.to_vec(),
        chains: chains.to_vec(),
    }
}

/// L2T2_KEY: the upper spatial layer refers to the lower one in key frames alone. Decode targets: the upper layer with
/// both temporal layers and with one, then the same of the lower layer.
fn key_svc() -> Structure {
    let templates = vec![
        template(0, 0, "SSSS", &[], &[0, 0]),
        template(0, 0, "--SS", &[4], &[4, 3]),
        template(0, 1, "--D-", &[2], &[2, 1]),
        template(1, 0, "SS--", &[1], &[1, 1]),
        template(1, 0, "SS--", &[4], &[1, 4]),
        template(1, 1, "D---", &[2], &[3, 2]),
    ];
    Structure::new(60, templates, vec![1, 1, 0, 0], vec![(320, 180), (640, 360)]).unwrap()
}

fn key() -> Descriptor {
    let structure = Some(Box::new(key_svc()));
    Descriptor { first: true, template_id: 60, frame_number: 100, structure, ..Descriptor::default() }
}

fn written(descriptor: &Descriptor) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(descriptor.write(&mut out));
    out
}

#[test]
fn a_short_descriptor_stands_as_in_the_syntax() {
    let descriptor = Descriptor {
        first: true,
        last: false,
        template_id: 5,
        frame_number: 0x1234,
        ..Descriptor::default()
    };
    assert_eq!(written(&descriptor), [0x85, 0x12, 0x34]);
    assert_eq!(Descriptor::read(&[0x85, 0x12, 0x34], None), Ok(descriptor));
}

/// A structure of one spatial and one temporal layer, written bit by bit from the syntax: a key frame and what follows it.
#[test]
fn a_structure_stands_as_in_the_syntax() {
    let bits = concat!(
        "11000000",
        "0000000000000001", // first, last, template 0, frame 1
        "10000",            // a structure follows
        "000000",
        "00000", // ids from 0 on, one decode target
        "00",
        "11", // a second template of the same layer, no more
        "10",
        "10", // both are points to switch at
        "0",
        "1",
        "0000",
        "0", // the first refers to none, the second to the frame before
        "1", // one chain: ns(2)
        // The chain protects the target: ns(1) has no bits.
        "0000",
        "0001", // distances in the chain
        "1",
        "0000001001111111",
        "0000000101100111", // 640 x 360
    );
    let mut bytes = Vec::new();
    let mut writer = BitWriter::new(&mut bytes);
    bits.chars().for_each(|bit| writer.put(u32::from(bit == '1'), 1));
    let structure = Structure::new(
        0,
        vec![template(0, 0, "S", &[], &[0]), template(0, 0, "S", &[1], &[1])],
        vec![0],
        vec![(640, 360)],
    );
    let wanted = Descriptor {
        first: true,
        last: true,
        frame_number: 1,
        structure: Some(Box::new(structure.unwrap())),
        ..Descriptor::default()
    };
    assert_eq!(Descriptor::read(&bytes, None), Ok(wanted.clone()));
    assert_eq!(written(&wanted), bytes);
}

/// Bytes of a text of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Descriptors that Chrome wrote for L3T3: the key picture's lowest layer with the structure, then other frames.
#[test]
fn the_structure_of_chrome_is_read_to_its_last_bit() {
    let value = hex(concat!(
        "c1017280081485214eafffaaaa863cf0430c10c302afc0aaa0063c00430010c002a000a80006000040001d954926e082b04a0941b8",
        "20ac1282503157f974000ca864330e222222eca8655304224230eca877530077004200ef008601df010d"
    ));
    let descriptor = Descriptor::read(&value, None).unwrap();
    let structure = descriptor.structure.as_deref().unwrap();
    assert_eq!(structure.protected_by(), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(structure.sizes(), [(120, 67), (240, 135), (480, 270)]);
    assert_eq!((structure.chains(), structure.decode_targets()), (3, 9));
    assert_eq!(written(&descriptor), value, "no bit is left over");

    let mut state = Dependencies::new();
    let mut layer =
        |value: &[u8]| state.handle(value).map(|layer| (layer.spatial, layer.needed_by, layer.sent));
    assert_eq!(layer(&value), Ok((0, 0b111, 0b111)));
    let later = ["86017340fc", "46017340fc", "c3017540fc"].map(|text| layer(&hex(text)));
    assert!(later.iter().all(Result::is_ok), "{later:?}");
}

#[test]
fn numbers_below_a_bound_read_what_they_write() {
    for n in 1..40 {
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        (0..n).for_each(|value| writer.put_below(value, n));
        let mut reader = BitReader::new(&bytes);
        assert!((0..n).all(|value| bits::below(&mut reader, n) == Ok(value)), "{n}");
        assert!(reader.remaining() < 8);
    }
}

#[test]
fn a_frame_tells_which_layers_need_it() {
    let mut state = Dependencies::new();
    let layer = |template_id, frame_number| {
        written(&Descriptor { first: true, template_id, frame_number, ..Descriptor::default() })
    };
    assert!(state.handle(&layer(60, 100)).is_err(), "before the structure");
    let mut needed = |value: &[u8]| {
        let FrameLayer { spatial, temporal, needed_by, sent, .. } = state.handle(value).unwrap();
        (spatial, temporal, needed_by, sent)
    };
    assert_eq!(needed(&written(&key())), (0, 0, 0b11, 0b11));
    // Ids wrap around after 63: 60, 61, 62, 63, 0, 1.
    assert_eq!(needed(&layer(63, 101)), (1, 0, 0b10, 0b11));
    assert_eq!(needed(&layer(62, 102)), (0, 1, 0b01, 0b11));
    assert_eq!(needed(&layer(1, 103)), (1, 1, 0b10, 0b11));
    // The upper layer ends: only the targets of the lower one are sent.
    let ended = Descriptor { active: Some((0b1100, 4)), template_id: 61, ..Descriptor::default() };
    assert_eq!(needed(&written(&ended)), (0, 0, 0b01, 0b01));
    assert_eq!(needed(&layer(61, 105)), (0, 0, 0b01, 0b01), "until another structure");
    // Then the upper temporal layers end, too.
    let slow = Descriptor { active: Some((0b1010, 4)), template_id: 62, ..Descriptor::default() };
    assert_eq!(needed(&written(&slow)), (0, 1, 0, 0b11));
    let own = [Indication::Switch; 4].to_vec();
    let switch = Descriptor { indications: Some(own), template_id: 61, ..Descriptor::default() };
    assert_eq!(needed(&written(&switch)), (0, 0, 0b11, 0b11), "the frame's own indications");
    assert!(state.handle(&layer(2, 106)).is_err(), "an id beyond the templates");
    assert!(state.handle(&layer(1, 107)).is_ok(), "after a malformed one");
}

#[test]
fn own_values_read_what_they_write() {
    let structure = key_svc();
    let own = Descriptor {
        first: true,
        last: true,
        template_id: 61,
        frame_number: 65_535,
        structure: None,
        active: Some((0b0110, 4)),
        indications: Some(vec![Indication::Required; 4]),
        references: Some(vec![1, 16, 17, 256, 257, 4096]),
        chains: Some(vec![0, 255]),
    };
    assert_eq!(Descriptor::read(&written(&own), Some(&structure)), Ok(own.clone()));
    assert!(Descriptor::read(&written(&own), None).is_err());
    let with_all = Descriptor { structure: Some(Box::new(structure)), template_id: 60, ..own };
    let bytes = written(&with_all);
    assert_eq!(Descriptor::read(&bytes, None), Ok(with_all));
    // Every cut is an error, or the short form.
    for end in 0..bytes.len() {
        assert_eq!(Descriptor::read(&bytes[..end], None).is_ok(), end == SHORT_BYTES, "cut at {end}");
    }
}

#[test]
fn structures_beyond_the_format_are_not_made() {
    let make = |templates: Vec<Template>, protected_by: &[u8], sizes: &[(u32, u32)]| {
        Structure::new(0, templates, protected_by.to_vec(), sizes.to_vec())
    };
    let one = || template(0, 0, "S", &[], &[]);
    assert!(make(vec![one()], &[], &[(1, 65_536)]).is_some());
    assert!(make(vec![one(); TEMPLATES_MAX], &[], &[]).is_some());
    for (what, templates, protected_by, sizes) in [
        ("no template", vec![], &[][..], &[][..]),
        ("too many", vec![one(); TEMPLATES_MAX + 1], &[], &[]),
        ("the first is not of the lowest layer", vec![template(1, 0, "S", &[], &[])], &[], &[]),
        ("a layer is skipped", vec![one(), template(0, 2, "S", &[], &[])], &[], &[]),
        ("other targets", vec![one(), template(0, 0, "SS", &[], &[])], &[], &[]),
        ("no targets", vec![template(0, 0, "", &[], &[])], &[], &[]),
        ("more chains than targets", vec![template(0, 0, "S", &[], &[0, 0])], &[0], &[]),
        ("an unknown chain", vec![template(0, 0, "S", &[], &[0])], &[1], &[]),
        ("unprotected", vec![template(0, 0, "S", &[], &[0])], &[], &[]),
        ("a distant chain", vec![template(0, 0, "S", &[], &[16])], &[0], &[]),
        ("refers to itself", vec![template(0, 0, "S", &[0], &[])], &[], &[]),
        ("an empty picture", vec![one()], &[], &[(0, 1)]),
        ("a size too many", vec![one()], &[], &[(1, 1), (2, 2)]),
    ] {
        assert_eq!(make(templates, protected_by, sizes), None, "{what}");
    }
    // The longest structure that is valid does not fit an extension.
    let long = make(vec![template(0, 0, &"R".repeat(32), &[1; 40], &[]); TEMPLATES_MAX], &[], &[]);
    let mut out = vec![7];
    let descriptor = Descriptor { structure: long.map(Box::new), ..Descriptor::default() };
    assert!(descriptor.structure.is_some() && !descriptor.write(&mut out));
    assert_eq!(out, [7]);
}

#[test]
fn endless_templates_and_layers_are_refused() {
    let with_layers = |layers: &str| {
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        writer.put(0, 24);
        writer.put(0b10000, 5);
        writer.put(0, 11);
        layers.chars().for_each(|one| writer.put(one.to_digit(4).unwrap(), 2));
        bytes.resize(BYTES_MAX, 0);
        Descriptor::read(&bytes, None)
    };
    for (layers, is_layers) in
        [("0".repeat(200), true), ("1".repeat(8), true), ("2".repeat(4), true), ("3".into(), false)]
    {
        let refused = with_layers(&layers) == Err(Error::Malformed("dependency templates"));
        assert_eq!(refused, is_layers, "{layers}");
    }
}

proptest! {
    #[test]
    fn any_value_is_read_and_what_is_read_is_written(
        first in prop::collection::vec(any::<u8>(), 0..60),
        second in prop::collection::vec(any::<u8>(), 0..40),
        begins in any::<bool>(),
    ) {
        let mut state = Dependencies::new();
        if begins {
            state.handle(&written(&key())).unwrap();
        }
        for value in [&first, &second] {
            let read = Descriptor::read(value, state.structure.as_deref());
            if let Ok(descriptor) = &read {
                let again = written(descriptor);
                let known = state.structure.as_deref();
                prop_assert_eq!(Descriptor::read(&again, known), Ok(descriptor.clone()));
            }
            let handled = state.handle(value);
            prop_assert!(read.is_ok() || handled.is_err());
            if let Ok(frame) = handled {
                prop_assert!(usize::from(frame.spatial) < SPATIAL_LAYERS_MAX);
                prop_assert_eq!(frame.needed_by & !frame.sent, 0);
            }
        }
    }
}
