//! The heads of video and audio bodies (FLV 10.1 §E.4.2, §E.4.3), the same in files and in RTMP messages.
//!
//! Read so far: AVC (codec id 7) and AAC (format 10). Every other legacy id and every enhanced-RTMP FourCC is an
//! error that names it, for the caller to drop the frame or refuse the stream.

mod audio;
mod video;

pub use audio::{AAC, AudioPacket, AudioTag};
pub use video::{AVC, FrameType, VideoPacket, VideoTag};

#[cfg(test)]
mod tests;
