//! Prints the contents of datagrams, which are read from standard input as lines of hexadecimal digits:
//!
//! ```text
//! echo 80e01234010203040000000a65 | cargo run -p millstream-rtp --example inspect
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::io::BufRead;

use rtp::extension::Elements;
use rtp::rtcp::{Rtcp, packets};
use rtp::{Packet, is_rtcp};

fn main() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let digits: Vec<u32> = line?.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let (pairs, _) = digits.as_chunks::<2>();
        let datagram: Vec<u8> =
            pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low)).collect::<Result<_, _>>()?;
        if is_rtcp(&datagram) {
            packets(&datagram).for_each(show_part);
        } else {
            show_packet(&datagram);
        }
    }
    Ok(())
}

fn show_packet(datagram: &[u8]) {
    match Packet::read(datagram) {
        Ok(packet) => {
            let header = packet.header;
            println!(
                "RTP {} {:?} ts {} ssrc {}{}, {} bytes of payload, {} of padding",
                header.payload_type,
                header.sequence_number,
                header.timestamp,
                header.ssrc,
                if header.marker { ", marked" } else { "" },
                packet.payload.len(),
                packet.padding
            );
            for (id, value) in header.extension.into_iter().flat_map(Elements::of) {
                println!("    extension {id}: {value:02x?}");
            }
        }
        Err(error) => println!("RTP: {error}"),
    }
}

fn show_part(part: Result<Rtcp<'_>, rtp::Error>) {
    match part {
        Ok(Rtcp::Nack(nack)) => {
            println!("RTCP NACK of {}: {:?}", nack.media, nack.numbers().collect::<Vec<_>>());
        }
        Ok(Rtcp::TransportFeedback(feedback)) => {
            println!("RTCP transport feedback {}", feedback.feedback_count);
            for arrival in feedback.arrivals() {
                println!("    {:?} at {:?} us", arrival.number, arrival.at_micros);
            }
        }
        Ok(part) => println!("RTCP {part:?}"),
        Err(error) => println!("RTCP: {error}"),
    }
}
