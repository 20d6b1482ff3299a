//! Keeps the names of files that a playlist no longer lists, until players no longer fetch the files.

use std::collections::VecDeque;
use std::time::Duration;

use crate::playlist::Segment;

/// Names of files that the playlist no longer lists. The files stay available for the duration of their segment plus
/// that of the longest playlist that listed it (RFC 8216 §6.2.2), measured in media received.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The names, each with the value of `passed` from which on its file is no longer needed.
    names: VecDeque<(Duration, String)>,
    /// Names that the playlist has stopped listing since the last [`Left::take_new`].
    new: Vec<String>,
    /// Total duration of all segments so far.
    passed: Duration,
    /// Duration of the longest playlist so far.
    longest: Duration,
}

impl Left {
    /// Adds a name that the playlist no longer lists; it belongs to a segment of this duration.
    pub(super) fn add(&mut self, name: String, length: Duration) {
        let until = self.passed.saturating_add(length).saturating_add(self.longest);
        self.new.push(name.clone());
        self.names.push_back((until, name));
    }

    /// Counts the duration of a new segment.
    pub(super) fn note_segment(&mut self, length: Duration) {
        self.passed = self.passed.saturating_add(length);
    }

    /// Notes the segments that the playlist lists now.
    pub(super) fn note_listed(&mut self, segments: &[Segment]) {
        let listed = segments.iter().map(|segment| segment.duration).sum();
        self.longest = self.longest.max(listed);
    }

    /// Takes the names of files that players no longer fetch.
    pub(super) fn take_gone(&mut self) -> Vec<String> {
        let stays = |(until, _): &(Duration, String)| *until > self.passed;
        let gone = self.names.iter().position(stays).unwrap_or(self.names.len());
        self.names.drain(..gone).map(|(_, name)| name).collect()
    }

    /// Takes the names that the playlist has stopped listing since the last call.
    pub(super) fn take_new(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}
