//! Headers of video and audio bodies, which are the same in files and in RTMP messages: legacy headers (FLV 10.1
//! §E.4.2, §E.4.3), and those of Enhanced RTMP v1 and v2.
//!
//! Supported: H.264, HEVC (also with codec id 12 of old encoders), AV1, VP9, VP8; AAC, MP3, G.711, Opus, AC-3, E-AC-3,
//! FLAC. Any other id or FourCC causes an error that contains it, so that the caller can drop the frame or refuse the
//! stream. [`AudioBody`] and [`VideoBody`] read all tracks of a body; [`AudioTag`] and [`VideoTag`] read only the
//! default track (0). A multitrack body is always written with a single track. Modifiers are read but never written.

mod audio;
mod enhanced;
mod video;

pub use audio::{AAC, AudioBody, AudioPacket, AudioTag};
pub use enhanced::TrackPacket;
pub use video::{AVC, EnhancedHead, FrameType, HEVC, VideoBody, VideoPacket, VideoTag};

#[cfg(test)]
mod tests;
