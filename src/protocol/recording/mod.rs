//! Recordings: the sink that writes a live stream into files (docs/recording.md), MP4 or WebM.
//!
//! ```text
//! units ── fragments (of a container) ──> FileAppend, FileSync (x.mp4.tmp_extension) ── the end ──> control has it finished (x.mp4)
//! ```

mod clip;
mod clip_source;
mod container;
mod fragments;
mod mp4;
mod sink;
mod webm;

use super::row::Protocol;
pub use container::Container;

/// The entry of recordings in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol =
    Protocol { sinks: &[&sink::MP4, &sink::WEBM, &clip::KIND], ..Protocol::NONE };
