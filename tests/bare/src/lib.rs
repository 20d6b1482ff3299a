//! A user of the crates that need no `std`. The panic handler is the proof: where any crate below brings `std` in,
//! there are two, and the compiler refuses that.
#![no_std]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;
use core::panic::PanicInfo;

/// Ends in a loop, as nobody is there to be told.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Returns the payloads of all PES packets in a piece of a transport stream.
pub fn payloads(demuxer: &mut mpegts::Demuxer, mut input: &[u8]) -> Vec<wire::Bytes> {
    let mut found = Vec::new();
    while let Some(event) = demuxer.read(&mut input) {
        if let mpegts::Event::Pes(pes) = event {
            found.push(pes.payload);
        }
    }
    found
}

/// Returns whether a video message of FLV begins a stream.
pub fn is_key(body: &wire::Bytes) -> bool {
    flv::VideoTag::read(body).is_ok_and(|tag| tag.frame_type == flv::tag::FrameType::Key)
}

/// Returns a session description in the form in which it is sent.
pub fn tidy(description: &[u8]) -> Option<String> {
    sdp::Description::read(description).ok().map(|description| description.write())
}

/// Returns the codec of an H.264 configuration record.
pub fn codec(record: wire::Bytes) -> Option<media::Codec> {
    let config = media::codec::h264::Config::read(record).ok()?;
    Some(media::CodecConfig::H264(config).codec())
}

/// Returns the frames that a packet of H.264 completes, and the requests in a packet of RTCP.
pub fn received(
    depacketizer: &mut rtp::payload::Depacketizer,
    datagram: &[u8],
) -> (Vec<rtp::payload::Frame>, usize) {
    if rtp::is_rtcp(datagram) {
        return (Vec::new(), rtp::rtcp::packets(datagram).flatten().count());
    }
    if let Ok(packet) = rtp::Packet::read(datagram) {
        let (timestamp, marker) = (packet.header.timestamp, packet.header.marker);
        let part = rtp::payload::Part { timestamp, marker, gap: false, payload: packet.payload };
        // The depacketizer counts malformed payloads.
        depacketizer.handle_part(&part).ok();
    }
    (core::iter::from_fn(|| depacketizer.poll_frame()).collect(), 0)
}

/// Returns the samples in a piece of an MP4 file.
pub fn samples(reader: &mut fmp4::Reader, mut piece: &[u8]) -> Result<Vec<fmp4::Sample>, fmp4::Error> {
    let mut found = Vec::new();
    while let Some(event) = reader.read(&mut piece)? {
        if let fmp4::Event::Sample(sample) = event {
            found.push(sample);
        }
    }
    Ok(found)
}
