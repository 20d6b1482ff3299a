//! Prints the samples of a file, one per line: track, dts, pts, size, and K for key frames.
//!
//! ```text
//! cargo run -p millstream-fmp4 --example packets -- file.mp4
//! ```
//!
//! If the index of a file is at its end, the example reads it first, as a client would by an HTTP
//! range request.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use fmp4::{Event, Limits, Reader, Sample};

/// Number of bytes per read, as a socket might return.
const BLOCK_BYTES: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: packets FILE")?;
    let mut file = BufReader::new(File::open(path)?);
    let mut reader = Reader::new(Limits::default());
    match read_on(&mut reader, &mut file) {
        Err(error) => match error.downcast_ref() {
            Some(fmp4::Error::MediaBeforeIndex { index_at }) => {
                file.seek(SeekFrom::Start(*index_at))?;
                let mut moov = Vec::new();
                file.read_to_end(&mut moov)?;
                reader = Reader::with_moov(&moov, Limits::default())?;
                if let Some(offset) = reader.next_offset() {
                    file.seek(SeekFrom::Start(offset))?;
                }
                read_on(&mut reader, &mut file)
            }
            _ => Err(error),
        },
        done => done,
    }
}

fn read_on(reader: &mut Reader, file: &mut impl Read) -> Result<(), Box<dyn Error>> {
    let mut block = vec![0; BLOCK_BYTES];
    while reader.next_offset().is_some() {
        let length = file.read(&mut block)?;
        if length == 0 {
            break;
        }
        let mut input = block.get(..length).unwrap_or_default();
        while let Some(event) = reader.read(&mut input)? {
            show(&event);
        }
    }
    Ok(reader.finish()?)
}

fn show(event: &Event) {
    match event {
        Event::Tracks { tracks, others } => {
            for track in tracks {
                let (codec, ticks) = (track.config.codec(), track.timescale.ticks());
                println!(
                    "# track {}: {codec}, timescale {ticks}, shift {}, language {:?}, size {:?}, {} bit/s",
                    track.id, track.shift, track.language, track.size, track.bit_rate
                );
            }
            for kind in others {
                println!("# not read: {kind}");
            }
        }
        Event::Sample(Sample { track, dts, pts, key_frame, payload, duration: _ }) => {
            println!("{track},{pts},{dts},{},{}", payload.len(), if *key_frame { "K" } else { "_" });
        }
    }
}
