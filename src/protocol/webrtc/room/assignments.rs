//! Messages to a room's page by data channel, in the form that the SDK's pages read: which tracks the page is sent, and
//! which participants speak.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use media::TrackKind;
use serde_json::{Value, json};

use super::seated::label;
use super::{Room, SILENCE};
use crate::types::Handle;

/// Minimum time between two lists of speakers; pages drop speakers that were not listed for a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// The streams that speak, and the time at which their list was last sent to the page.
#[derive(Debug, Default)]
pub(super) struct Loud {
    speakers: BTreeSet<Handle>,
    /// Former speakers that the page still shows as speaking.
    ended: BTreeSet<Handle>,
    is_due: bool,
    said: Option<Instant>,
}

impl Loud {
    pub(super) fn note(&mut self, stream: Handle, level: u8) {
        self.is_due = true;
        if level < SILENCE {
            self.speakers.insert(stream);
            self.ended.remove(&stream);
        } else if self.speakers.remove(&stream) {
            self.ended.insert(stream);
        }
    }

    pub(super) fn forget(&mut self, stream: Handle) {
        self.is_due |= self.speakers.contains(&stream);
        self.speakers.remove(&stream);
        self.ended.remove(&stream);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.said.filter(|_| self.is_due)?.checked_add(INTERVAL)
    }
}

impl Room {
    /// Returns the list of videos being sent, as the SDK's pages expect it. The label of a video is that of its seat;
    /// without seats, that of the stream.
    pub(in crate::protocol::webrtc) fn assignments(&self, room: &str) -> String {
        let id = |stream: Option<Handle>| {
            stream.and_then(|stream| self.members.get(&stream)).map_or("", |member| &member.id)
        };
        let shown: Vec<Value> = match self.seats.holders(TrackKind::Video) {
            Some(holders) => {
                let seat = |(seat, holder)| json!({"videoLabel": label(TrackKind::Video, seat), "trackId": id(holder)});
                holders.enumerate().map(seat).collect()
            }
            None => {
                let shown = self.members.values().enumerate().zip(self.members.keys()).filter(
                    |((at, member), handle)| {
                        let has_video = member.viewer.as_ref().is_some_and(|viewer| viewer.video().is_some());
                        let is_seated = self.seats.seats(TrackKind::Video, **handle);
                        has_video && member.wants.0 && is_seated.unwrap_or_else(|| self.window.contains(at))
                    },
                );
                shown
                    .map(|((_, member), _)| json!({"videoLabel": &*member.id, "trackId": &*member.id}))
                    .collect()
            }
        };
        json!({"eventType": "VIDEO_TRACK_ASSIGNMENT_LIST", "streamId": room, "payload": shown}).to_string()
    }

    /// Returns the list of videos if it differs from the one last sent.
    pub(in crate::protocol::webrtc) fn poll_assignments(&mut self, room: &str) -> Option<String> {
        let assignments = self.assignments(room);
        (assignments != self.said).then(|| self.said.clone_from(&assignments))?;
        Some(assignments)
    }

    /// Returns the list of audio tracks with their loudness, when due. If there are seats, the list has all of them;
    /// otherwise it has the streams that speak, and those that have just stopped. Old pages read `assignments`, others
    /// `payload`.
    pub(in crate::protocol::webrtc) fn poll_speakers(&mut self, now: Instant, room: &str) -> Option<String> {
        let is_early = self.loud.poll_timeout().is_some_and(|at| at > now);
        if !self.loud.is_due || is_early {
            return None;
        }
        (self.loud.is_due, self.loud.said) = (false, Some(now));
        let told = |label: String, stream: Option<Handle>| {
            let member = stream.and_then(|stream| self.members.get(&stream));
            let level = member.map_or(SILENCE, |member| member.level);
            let id = member.map_or("", |member| &*member.id);
            json!({"audioLabel": label, "trackId": id, "audioLevel": loudness(level)})
        };
        let list: Vec<Value> = match self.seats.holders(TrackKind::Audio) {
            Some(holders) => holders
                .enumerate()
                .map(|(seat, holder)| told(label(TrackKind::Audio, seat), holder))
                .collect(),
            None => {
                let id = |stream: &Handle| Some(self.members.get(stream)?.id.to_string());
                let streams = self.loud.speakers.iter().chain(&self.loud.ended);
                streams.filter_map(|stream| Some(told(id(stream)?, Some(*stream)))).collect()
            }
        };
        self.loud.ended.clear();
        let said = json!({"eventType": "AUDIO_TRACK_ASSIGNMENT", "streamId": room, "payload": list, "assignments": list});
        Some(said.to_string())
    }
}

/// Converts a level to the loudness that pages read: 0 for silence, above 150 for speech, larger is louder.
const fn loudness(level: u8) -> u8 {
    SILENCE.saturating_sub(level).saturating_mul(2)
}
