//! Slice headers of x264 and x265, with their lengths as shown by ffmpeg's filter `trace_headers`.

use super::*;

/// Slices recorded from encoders. A line `h264 ARGUMENTS` or `h265 ARGUMENTS` begins a stream that
/// was encoded with these arguments of ffmpeg. `set HEX` is one of its parameter sets. `slice BITS
/// HEX` has the length of a slice header in bits, and the first 48 bytes of the slice.
const HEADERS: &str = include_str!("headers.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn headers_end_where_ffmpeg_says() {
    let mut headers = None;
    let (mut stream, mut slices) = ("", 0);
    for line in HEADERS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["h264", ..] => headers = Some(SliceHeaders(Sets::H264(h264::Sets::default()))),
            ["h265", ..] => headers = Some(SliceHeaders(Sets::H265(h265::Sets::default()))),
            ["set", hex] => headers.as_mut().unwrap().note(&bytes(hex)),
            ["slice", bits, hex] => {
                let (nal, wanted) = (bytes(hex), bits.parse::<usize>().unwrap().div_ceil(8));
                let headers = headers.as_ref().unwrap();
                assert!(headers.is_slice(&nal));
                let length = headers.length(&nal).unwrap_or_else(|| panic!("{stream}: {line}"));
                assert_eq!(unescape(&nal[..length]).len(), wanted, "{stream}: {line}");
                slices += 1;
                // For a truncated header, no length is returned. Arbitrary bytes cause no panic.
                for end in 0..length {
                    assert_eq!(headers.length(&nal[..end]), None, "{stream}: {line} cut at {end}");
                }
                for at in 0..length * 8 {
                    let mut other = nal.clone();
                    other[at / 8] ^= 1 << (at % 8);
                    let _ = headers.length(&other);
                }
            }
            _ => panic!("{line}"),
        }
        if line.starts_with('h') {
            stream = line;
        }
    }
    assert!(slices > 100, "{slices}");
}

#[test]
fn bytes_of_emulation_prevention_count() {
    assert_eq!(escaped_length(&[1, 0, 0, 3, 1, 9], 4), Some(5));
    assert_eq!(escaped_length(&[1, 0, 0, 3, 1, 9], 3), Some(3));
    assert_eq!(escaped_length(&[0, 0, 3, 0, 0, 3, 1], 5), Some(7));
    assert_eq!(escaped_length(&[1], 2), None);
    assert_eq!([1, 2, 3, 4, 5, 64, 65].map(bits_for), [0, 1, 2, 2, 3, 6, 7]);
}

/// Checks frame_num of the first stream, whose pictures are all referred to, and that fields have none.
#[test]
fn frame_num_counts_pictures() {
    let mut headers = SliceHeaders::h264();
    let lines = HEADERS.lines().skip(1).take_while(|line| !line.starts_with('h'));
    let mut numbers = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["set", hex] => headers.note(&bytes(hex)),
            ["slice", _, hex] => numbers.push(headers.frame_num(&bytes(hex)).unwrap()),
            _ => panic!("{line}"),
        }
    }
    let expected: Vec<_> = (0..numbers.len()).map(|n| (u32::try_from(n).unwrap() % 16, 4)).collect();
    assert_eq!(numbers[..6], expected[..6]);
    assert_eq!(SliceHeaders::h264().frame_num(&[0x41, 0x9a, 0x20]), None);
}
