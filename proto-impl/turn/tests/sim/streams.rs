//! Tests of messages in byte streams.

use bytes::BytesMut;
use proptest::prelude::*;
use turn::stream::{MessageReader, write};
use turn::{Error, method};

use crate::world::*;

/// Reads all messages from the pieces.
fn read(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, Error> {
    let mut reader = MessageReader::accepted();
    let mut messages = Vec::new();
    for piece in pieces {
        let mut input = BytesMut::from(*piece);
        while let Some(message) = reader.next(&mut input)? {
            messages.push(message.to_vec());
        }
        assert!(input.is_empty());
    }
    Ok(messages)
}

fn begun(rest: &[u8]) -> Vec<u8> {
    let request = Speaker::new("198.51.100.1:5000", "u").request_of(1, method::ALLOCATE, &[transport()]);
    [&request, rest].concat()
}

#[test]
fn v_12_what_does_not_begin_with_a_request_is_refused_by_its_first_bytes() {
    for (bytes, error) in [
        (&b"GET / HTTP/1.1\r\n"[..], Error::FirstMessage),
        (&[0x16, 3, 1, 2], Error::FirstMessage),
        (&[0x40, 0, 0, 0], Error::FirstMessage),
        (&[1, 1, 0, 0], Error::FirstMessage),
        (&[0, 0x16, 0, 0], Error::FirstMessage),
        (&[0, 3, 0, 5], Error::NotTurn),
        (&[0, 3, 0xff, 0xfc], Error::TooLong { length: 65_552 }),
    ] {
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&[bytes]), Err(error), "{bytes:?}");
        assert_eq!(read(&single), Err(error), "{bytes:?}");
    }
}

#[test]
fn v_12_lengths_that_lie_end_the_stream_before_anything_is_held() {
    for (bytes, error) in [
        (&[0x40, 0, 0xff, 0xff][..], Error::TooLong { length: 65_539 }),
        (&[0x40, 0, 0x08, 0], Error::TooLong { length: 2052 }),
        (&[0, 9, 0x08, 0], Error::TooLong { length: 2068 }),
        (&[0, 9, 0, 2], Error::NotTurn),
        (&[0x80, 0, 0, 0], Error::NotTurn),
        (&[0x7f, 0xff, 0, 0], Error::NotTurn),
        (&[0xff], Error::NotTurn),
    ] {
        assert_eq!(read(&[&begun(bytes)]), Err(error), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn v_12_a_stream_means_the_same_however_it_is_cut(
        lengths in prop::collection::vec(0usize..1500, 1..12),
        cuts in prop::collection::vec(1usize..700, 1..60),
    ) {
        let mut messages = vec![begun(&[])];
        messages.extend(lengths.iter().map(|length| channel_data(0x4001, &vec![7; *length])));
        let mut stream = BytesMut::new();
        messages.iter().for_each(|message| write(message, &mut stream));
        prop_assert!(stream.len().is_multiple_of(4));
        let mut pieces = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        prop_assert_eq!(read(&pieces).unwrap(), messages);
    }
}
