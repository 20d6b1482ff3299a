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
