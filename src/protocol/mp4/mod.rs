//! Recordings as MP4: the sink that writes a live stream into files (docs/recording.md).
//!
//! ```text
//! units ── fragments ──> FileAppend, FileSync (x.mp4.tmp_extension) ── the end ──> control has it finished (x.mp4)
//! ```

mod fragments;
pub(super) mod sink;
