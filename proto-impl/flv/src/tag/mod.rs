//! The heads of video and audio bodies, the same in files and in RTMP messages: the legacy ones (FLV 10.1 §E.4.2,
//! §E.4.3) and those of Enhanced RTMP v1 and v2.
//!
//! Read and written: H.264, HEVC (also as the codec id 12 of old encoders), AV1, VP9, VP8; AAC, MP3, G.711, Opus,
//! AC-3, E-AC-3, FLAC. Every other id and FourCC is an error that names it, for the caller to drop the frame or refuse
//! the stream. Of a body with several tracks the default one (0) is read, the others are named; such bodies and
//! modifiers are not written.

mod audio;
mod enhanced;
mod video;

pub use audio::{AAC, AudioBody, AudioPacket, AudioTag};
pub use enhanced::TrackPacket;
pub use video::{AVC, EnhancedHead, FrameType, HEVC, VideoBody, VideoPacket, VideoTag};

#[cfg(test)]
mod tests;
