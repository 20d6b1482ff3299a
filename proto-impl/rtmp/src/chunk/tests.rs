use super::*;
use crate::{Config, Error, Limit, Violation};
use bytes::BytesMut;
use crypto::{Random, Seed};
use proptest::prelude::*;

fn reader() -> Reader {
    let mut reader = Reader::new((&Config::default()).into());
    reader.grant(true);
    reader
}

fn head(chunk_stream: u32, timestamp: u32) -> MessageHead {
    MessageHead { chunk_stream, timestamp, kind: 9, message_stream: 1 }
}

/// Makes the chunks of a message. Each chunk includes its header.
fn chunks(head: &MessageHead, payload: &[u8], chunk_size: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let payload = Bytes::copy_from_slice(payload);
    write_message(&mut BytesMut::new(), head, &[], &payload, chunk_size, &mut out);
    out.chunks(2).map(<[Bytes]>::concat).collect()
}

fn written(head: &MessageHead, payload: &[u8], chunk_size: usize) -> Vec<u8> {
    chunks(head, payload, chunk_size).concat()
}

fn message(head: &MessageHead, payload: &[u8]) -> Message {
    Message {
        chunk_stream: head.chunk_stream,
        timestamp: head.timestamp,
        kind: head.kind,
        message_stream: head.message_stream,
        payload: Bytes::copy_from_slice(payload),
    }
}

/// Reads all messages in `bytes`, fed in pieces of `cut` bytes.
fn read_cut(reader: &mut Reader, bytes: &[u8], cut: usize) -> Result<Vec<Message>, Error> {
    let mut messages = Vec::new();
    for mut piece in bytes.chunks(cut) {
        while let Some(message) = reader.read(&mut piece)? {
            messages.push(message);
        }
        assert!(piece.is_empty());
    }
    Ok(messages)
}

fn read(bytes: &[u8]) -> Result<Vec<Message>, Error> {
    read_cut(&mut reader(), bytes, usize::MAX)
}

fn violation(result: Result<Vec<Message>, Error>) -> Option<Violation> {
    if let Err(Error::Violation { violation, .. }) = result { Some(violation) } else { None }
}

fn limit(result: Result<Vec<Message>, Error>) -> Option<Limit> {
    if let Err(Error::Limit { limit, .. }) = result { Some(limit) } else { None }
}

/// Returns the times and payload lengths of messages.
fn times(messages: &[Message]) -> Vec<(u32, usize)> {
    messages.iter().map(|message| (message.timestamp, message.payload.len())).collect()
}

#[test]
fn a_message_is_written_as_the_specification_draws_it() {
    let got = written(
        &MessageHead { chunk_stream: 3, timestamp: 0x01_0203, kind: 20, message_stream: 1 },
        b"abcde",
        3,
    );
    assert_eq!(got, b"\x03\x01\x02\x03\0\0\x05\x14\x01\0\0\0abc\xc3de");
    let extended = written(&head(6, 0x0100_0000), b"abcd", 2);
    assert_eq!(extended, b"\x06\xff\xff\xff\0\0\x04\x09\x01\0\0\0\x01\0\0\0ab\xc6\x01\0\0\0cd");
    assert_eq!(written(&head(64, 0), b"", 2)[..3], [0, 0, 0]);
    assert_eq!(written(&head(319, 0), b"", 2)[..2], [0, 255]);
    assert_eq!(written(&head(320, 0), b"", 2)[..3], [1, 0, 1]);
    assert_eq!(written(&head(65_599, 0), b"", 2)[..3], [1, 255, 255]);
}

#[test]
fn the_prefix_rides_in_the_header_and_the_payload_is_not_copied() {
    let payload = Bytes::from(vec![7; 10]);
    let mut out = Vec::new();
    write_message(&mut BytesMut::new(), &head(6, 0), b"\x17\x01\0\0\0", &payload, 8, &mut out);
    assert_eq!(out.iter().map(Bytes::len).collect::<Vec<_>>(), [17, 3, 1, 7]);
    assert_eq!(out[1].as_ptr(), payload.as_ptr());
    let want = [&b"\x17\x01\0\0\0"[..], &payload].concat();
    let mut reader = reader();
    reader.set_chunk_size(8).unwrap();
    assert_eq!(read_cut(&mut reader, &out.concat(), 99), Ok(vec![message(&head(6, 0), &want)]));
}

#[test]
fn a_finished_message_has_no_spare_memory() {
    let payload = vec![5; 100_000];
    let mut reader = reader();
    let bytes = written(&head(6, 0), &payload, 128);
    let got = read_cut(&mut reader, &bytes, 1400).unwrap();
    assert_eq!(got, [message(&head(6, 0), &payload)]);
    assert_eq!(reader.pending_bytes(), 0);
    assert_eq!(Vec::from(got.into_iter().next().unwrap().payload).capacity(), 100_000);
}

#[test]
fn small_frames_that_came_whole_share_a_block_and_others_have_buffers_of_their_own() {
    let frames = |lengths: &[usize]| -> Vec<u8> {
        lengths.iter().flat_map(|length| written(&head(6, 0), &vec![5; *length], 128)).collect()
    };
    let is_behind = |pair: &[Message]| {
        pair[0].payload.as_ptr_range().end == pair[1].payload.as_ptr() && pair[0].payload != pair[1].payload
    };
    let mut reader = reader();
    let bytes = frames(&[300, 4096, 5, 7]);
    let got = read_cut(&mut reader, &bytes, bytes.len()).unwrap();
    assert!(got.windows(2).all(is_behind), "one behind the other");
    assert_eq!(got.iter().map(|message| message.payload.len()).collect::<Vec<_>>(), [300, 4096, 5, 7]);
    // When a block is full, the next message is in a new block. Messages that were already read do
    // not change.
    let bytes = frames(&[4000; 20]);
    let more = read_cut(&mut reader, &bytes, bytes.len()).unwrap();
    assert!(
        more.windows(2).filter(|pair| pair[0].payload.as_ptr_range().end == pair[1].payload.as_ptr()).count()
            == 17
    );
    assert!(got.iter().chain(&more).all(|message| message.payload.iter().all(|byte| *byte == 5)));
    assert_eq!(reader.pending_bytes(), 0);
    // A message gets a buffer of its own, of exactly its length, if it is too long for a block or if it has not arrived
    // completely.
    for (length, cut) in [(4097, 1 << 20), (1000, 500)] {
        let bytes = frames(&[length; 2]);
        let got = read_cut(&mut reader, &bytes, cut).unwrap();
        let lengths = got.into_iter().map(|message| Vec::from(message.payload).capacity());
        assert_eq!(lengths.collect::<Vec<_>>(), [length; 2], "exactly its own");
    }
    // Before a publish is granted, blocks are not used.
    let mut ungranted = Reader::new((&Config::default()).into());
    let bytes = frames(&[300, 5]);
    assert!(!read_cut(&mut ungranted, &bytes, bytes.len()).unwrap().windows(2).any(is_behind));
}

#[test]
fn shorter_headers_inherit_what_they_leave_out() {
    let mut bytes = written(&head(6, 1000), b"ab", 128);
    bytes.extend(b"\x46\0\0\x28\0\0\x03\x09xyz"); // type 1: 40 ms, length 3
    bytes.extend(b"\x86\0\0\x0auvw"); // type 2: 10 ms
    bytes.extend(b"\xc6rst"); // type 3: again 10 ms
    assert_eq!(times(&read(&bytes).unwrap()), [(1000, 2), (1040, 3), (1050, 3), (1060, 3)]);
    // §5.3.1.2.4: after a header of type 0, a type 3 header adds the absolute time once more, as a
    // delta.
    let bytes = [written(&head(6, 40), b"ab", 128), b"\xc6cd".to_vec()].concat();
    assert_eq!(times(&read(&bytes).unwrap()), [(40, 2), (80, 2)]);
}

#[test]
fn m_03_one_byte_segments_give_the_same_messages() {
    let bytes = [
        written(&head(6, 0xffff_fff0), &[1; 1000], 128),
        written(&head(700, 5), &[2; 300], 128),
        written(&head(4, 7), &[], 128),
    ]
    .concat();
    let whole = read(&bytes).unwrap();
    assert_eq!(whole.len(), 3);
    for cut in 1..60 {
        assert_eq!(read_cut(&mut reader(), &bytes, cut).unwrap(), whole, "cut {cut}");
    }
}

#[test]
fn m_04_set_chunk_size_0_and_bit_31_close() {
    let mut reader = reader();
    for size in [0, 0x8000_0000, 0x8000_0001, u32::MAX] {
        let got = reader.set_chunk_size(size).map(|()| Vec::new());
        assert_eq!(violation(got), Some(Violation::ChunkSize(size)));
    }
}

#[test]
fn m_04_the_largest_chunk_size_is_clamped_and_never_allocated() {
    let mut reader = reader();
    reader.set_chunk_size(0x7fff_ffff).unwrap();
    let bytes = written(&head(6, 0), &vec![1; 8 << 20], 0xff_ffff);
    let mut input = &bytes[..100];
    assert_eq!(reader.read(&mut input), Ok(None));
    assert!(reader.pending_bytes() < 200);
}

#[test]
fn m_04_chunk_size_1_works() {
    let mut reader = reader();
    reader.set_chunk_size(1).unwrap();
    let payload = vec![3; 10_000];
    let bytes = written(&head(6, 0), &payload, 1);
    assert_eq!(read_cut(&mut reader, &bytes, 1000).unwrap(), [message(&head(6, 0), &payload)]);
}

#[test]
fn m_05_announced_lengths_cost_nothing_and_chunk_streams_are_limited() {
    let start = |chunk_stream: u32, length: u32| {
        let mut bytes = written(&head(chunk_stream, 0), b"", 128);
        let at = bytes.len() - 8;
        bytes[at..at + 3].copy_from_slice(&length.to_be_bytes()[1..]);
        bytes.push(0xaa);
        // The chunk ends here: with chunk size 1, it consists of a header and one byte. The message is still incomplete
        // when a chunk of another chunk stream follows.
        bytes
    };
    let mut reader = reader();
    reader.set_chunk_size(1).unwrap();
    for chunk_stream in 2..66 {
        assert_eq!(read_cut(&mut reader, &start(chunk_stream, 8 << 20), 99), Ok(vec![]));
    }
    assert!(reader.pending_bytes() <= 64, "{}", reader.pending_bytes());
    assert_eq!(limit(read_cut(&mut reader, &start(66, 8 << 20), 99)), Some(Limit::ChunkStreams));
    let longest = start(2, 0xff_ffff);
    assert_eq!(limit(read(&longest)), Some(Limit::MessageBytes { bytes: 0xff_ffff, kind: 9 }));
}

#[test]
fn m_05_pending_bytes_are_limited_before_and_after_the_grant() {
    let mut reader = Reader::new((&Config::default()).into());
    reader.set_chunk_size(1 << 20).unwrap();
    let bytes = written(&head(6, 0), &vec![1; 100_000], 1 << 20);
    assert_eq!(limit(read_cut(&mut reader, &bytes, 4096)), Some(Limit::PendingBytes));
    assert!(reader.pending_bytes() <= 128 << 10);

    let mut reader = self::reader();
    let half = |chunk_stream| chunks(&head(chunk_stream, 0), &vec![1; 8 << 20], 4 << 20).remove(0);
    reader.set_chunk_size(4 << 20).unwrap();
    let mut result = Ok(vec![]);
    for chunk_stream in 4..8 {
        result = result.and_then(|_| read_cut(&mut reader, &half(chunk_stream), 65_536));
    }
    assert_eq!(limit(result), Some(Limit::PendingBytes));
    assert!(reader.pending_bytes() <= 20 << 20);
}

#[test]
fn a_command_is_limited_more_than_media() {
    let command = MessageHead { chunk_stream: 3, timestamp: 0, kind: 20, message_stream: 0 };
    let bytes = written(&command, &[0; 65_537], 128);
    assert_eq!(limit(read(&bytes)), Some(Limit::MessageBytes { bytes: 65_537, kind: 20 }));
    assert!(read(&written(&command, &[0; 65_536], 128)).is_ok());
}

#[test]
fn m_06_a_chunk_stream_begins_with_a_full_header() {
    for (format, rest) in [(1u8, &b"\0\0\0\0\0\x01\x09x"[..]), (2, b"\0\0\0x"), (3, b"x")] {
        let bytes = [&[(format << 6) | 6], rest].concat();
        assert_eq!(violation(read(&bytes)), Some(Violation::FirstHeader { chunk_stream: 6, format }));
    }
    // The exception is librtmp, whose control stream (chunk stream 2) begins with a header of type 1.
    let ping = b"\x42\0\0\0\0\0\x06\x04\0\x07\0\0\0\x01";
    assert_eq!(times(&read(ping).unwrap()), [(0, 6)]);
    assert!(read(b"\x82\0\0\0x").is_err());
}

#[test]
fn m_06_a_length_that_changes_inside_a_message_closes() {
    let begun = chunks(&head(6, 0), &[1; 300], 128).remove(0);
    let same = [begun.clone(), written(&head(6, 0), &[1; 300], 128)].concat();
    assert_eq!(violation(read(&same)), None);
    let other = [begun, written(&head(6, 0), &[1; 301], 128)].concat();
    assert_eq!(violation(read(&other)), Some(Violation::LengthChanged { from: 300, to: 301 }));
}

#[test]
fn m_06_every_form_of_a_chunk_stream_id_is_read() {
    for chunk_stream in [2, 63, 64, 319, 320, 65_599] {
        let bytes = written(&head(chunk_stream, 9), b"abc", 2);
        let mut reader = reader();
        reader.set_chunk_size(2).unwrap();
        assert_eq!(read_cut(&mut reader, &bytes, 1), Ok(vec![message(&head(chunk_stream, 9), b"abc")]));
    }
    // The two-byte form and the three-byte form of an id mean the same chunk stream.
    let bytes = [&b"\0\x06\0\0\0\0\0\x03\x09\x01\0\0\0ab"[..], b"\xc1\x06\0c"].concat();
    let mut reader = reader();
    reader.set_chunk_size(2).unwrap();
    assert_eq!(read_cut(&mut reader, &bytes, 1), Ok(vec![message(&head(70, 0), b"abc")]));
}

#[test]
fn m_06_abort_drops_the_unfinished_message_and_ignores_unknown_ids() {
    let mut reader = reader();
    let begun = chunks(&head(6, 0), &[1; 300], 128).remove(0);
    assert_eq!(read_cut(&mut reader, &begun, 50), Ok(vec![]));
    reader.abort(77);
    assert!(reader.pending_bytes() > 0);
    reader.abort(6);
    assert_eq!(reader.pending_bytes(), 0);
    let next = written(&head(6, 5), b"new", 128);
    assert_eq!(read_cut(&mut reader, &next, 50), Ok(vec![message(&head(6, 5), b"new")]));
}

#[test]
fn m_07_extended_timestamps_repeated_or_not_or_wrong_in_type_3() {
    for timestamp in [0xff_ffff, 0x0100_0000, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let payload: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let repeated = written(&head(6, timestamp), &payload, 128);
        let header = repeated[..16].to_vec();
        let mut absent = header;
        for (index, piece) in payload.chunks(128).enumerate() {
            if index > 0 {
                absent.push(0xc6);
            }
            absent.extend(piece);
        }
        let next = written(&head(4, 1), b"next", 128);
        let want = [message(&head(6, timestamp), &payload), message(&head(4, 1), b"next")];
        for bytes in [repeated, absent] {
            let bytes = [bytes, next.clone()].concat();
            for cut in [1, 2, 3, 5, 17, 129, 4096] {
                assert_eq!(read_cut(&mut reader(), &bytes, cut).unwrap(), want, "{timestamp:x} cut {cut}");
            }
        }
    }
}

/// Checks message data that begins with the same bytes as the extended timestamp. The reader first takes these bytes
/// for a repeated timestamp, and must then read them again as data.
#[test]
fn m_07_data_that_resembles_the_timestamp_is_given_back() {
    let timestamp = 0x0102_0307;
    for resembling in 1..4 {
        for behind in 0..4 {
            let tail = [&[1, 2, 3][..resembling], &vec![0xee; behind][..]].concat();
            let payload = [vec![9; 128], tail.clone()].concat();
            let mut bytes = written(&head(6, timestamp), &payload, 128)[..16 + 128].to_vec();
            bytes.push(0xc6);
            bytes.extend(&tail);
            bytes.extend(written(&head(4, 1), b"next", 128));
            let want = [message(&head(6, timestamp), &payload), message(&head(4, 1), b"next")];
            for cut in 1..20 {
                let got = read_cut(&mut reader(), &bytes, cut).unwrap();
                assert_eq!(got, want, "{resembling} {behind} cut {cut}");
            }
        }
    }
}

#[test]
fn m_07_times_wrap_and_jump_back() {
    let mut bytes = written(&head(6, 0xffff_fff0), b"ab", 128);
    bytes.extend(b"\x86\0\0\x28cd"); // + 40 ms: over 2^32
    bytes.extend(b"\xc6ef");
    bytes.extend(written(&head(6, 3), b"gh", 128));
    bytes.extend(b"\x86\xff\xff\xff\x80\0\0\0ij"); // + 2^31
    let got = read_cut(&mut reader(), &bytes, 1).unwrap();
    let times: Vec<u32> = got.iter().map(|message| message.timestamp).collect();
    assert_eq!(times, [0xffff_fff0, 0x18, 0x40, 3, 0x8000_0003]);
}

#[test]
fn m_24_random_interleaving_gives_the_same_messages_per_chunk_stream() {
    for seed in 0..50 {
        let mut random = Seed::from_number(seed).random();
        let lanes: Vec<Vec<(MessageHead, Vec<u8>)>> = (3..7u32).map(|id| lane(id, &mut random)).collect();
        let mut queues: Vec<Vec<Vec<u8>>> = lanes
            .iter()
            .map(|lane| lane.iter().flat_map(|(head, payload)| chunks(head, payload, 128)).collect())
            .collect();
        let mut bytes = Vec::new();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let pick = usize::try_from(random.below(4)).unwrap();
            if !queues[pick].is_empty() {
                bytes.extend(queues[pick].remove(0));
            }
        }
        let got = read_cut(&mut reader(), &bytes, 1 + usize::try_from(random.below(2000)).unwrap()).unwrap();
        for (lane, id) in lanes.iter().zip(3..) {
            let want: Vec<Message> = lane.iter().map(|(head, payload)| message(head, payload)).collect();
            let of_lane: Vec<Message> = got.iter().filter(|m| m.chunk_stream == id).cloned().collect();
            assert_eq!(of_lane, want, "seed {seed}");
        }
    }
}

fn lane(id: u32, random: &mut Random) -> Vec<(MessageHead, Vec<u8>)> {
    let start = u32::try_from(random.below(1 << 32)).unwrap();
    (0..10)
        .map(|index| {
            let mut payload = vec![0; usize::try_from(random.below(1000)).unwrap()];
            random.fill(&mut payload);
            (head(id, start.wrapping_add(index * 40)), payload)
        })
        .collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        messages in prop::collection::vec((2u32..65_600, any::<u32>(), prop::collection::vec(any::<u8>(), 0..700)), 0..8),
        chunk_size in 1u32..900,
        cut in 1usize..900,
    ) {
        let mut reader = reader();
        reader.set_chunk_size(chunk_size).unwrap();
        let chunk_size = usize::try_from(chunk_size).unwrap();
        let bytes: Vec<u8> = messages.iter().flat_map(|(id, time, payload)| written(&head(*id, *time), payload, chunk_size)).collect();
        let want: Vec<Message> = messages.iter().map(|(id, time, payload)| message(&head(*id, *time), payload)).collect();
        prop_assert_eq!(read_cut(&mut reader, &bytes, cut), Ok(want));
    }

    #[test]
    fn random_bytes_never_panic_and_never_hold_more_than_they_are(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 1usize..300) {
        let mut reader = reader();
        let _ = read_cut(&mut reader, &bytes, cut);
        prop_assert!(reader.pending_bytes() <= 2 * bytes.len());
    }
}
