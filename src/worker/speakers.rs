//! The speakers of main tracks, determined by the loudness of their streams. Viewers of each room are notified at a
//! bounded rate.
//!
//! A stream begins to speak when its level reaches [`SPEAKS`], and stops when it is quieter than [`RESTS`]. At most
//! [`SPEAKERS_MAX`] streams of a room speak at a time, and at most one begins per [`BEGINS`]. A louder stream
//! replaces the quietest speaker. Viewers are notified when a speaker begins, every [`REPEAT`] while it speaks, and
//! when it stops: at most 32 times a second, whatever the number of streams in the room. A stream of unknown
//! loudness never speaks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::Output;
use super::conns::Conns;
use super::streams::Live;
use super::turn::Turn;
use crate::mail::ToWorker;
use crate::protocol::SubtrackNews;
use crate::types::{ConnId, Handle, StreamId, StreamKey};

/// Quietest level in -dBov at which a stream begins to speak. Larger numbers are quieter.
const SPEAKS: u8 = 50;
/// Quietest level in -dBov at which a stream that speaks continues to speak.
const RESTS: u8 = 60;
/// Maximum number of simultaneous speakers of a room.
const SPEAKERS_MAX: usize = 6;
/// Minimum difference in dB by which a new speaker must be louder than the speaker that it replaces.
const LOUDER: u8 = 6;
/// Interval of reports about a speaker that continues to speak.
const REPEAT: Duration = Duration::from_millis(500);
/// Minimum time between the moments at which two streams of a room begin to speak.
const BEGINS: Duration = Duration::from_millis(100);
/// The level of silence, in -dBov.
const SILENCE: u8 = 127;

/// A stream that speaks.
#[derive(Debug, Clone, Copy)]
struct Speaker {
    stream: StreamId,
    level: u8,
    told: Instant,
}

/// News for the viewers of a room: streams with their levels. [`SILENCE`] means that the stream has stopped
/// speaking.
type News = SmallVec<[(StreamId, u8); 2]>;

/// The speakers of a room.
#[derive(Debug, Default)]
struct Board {
    speakers: Vec<Speaker>,
    /// Time at which the newest speaker began.
    began: Option<Instant>,
}

/// The speakers of all rooms.
#[derive(Debug, Default)]
pub(super) struct Speakers {
    rooms: BTreeMap<StreamKey, Board>,
}

impl Speakers {
    /// Processes the loudness of a stream of a room. Returns the news for the room's viewers.
    fn note(&mut self, now: Instant, room: &StreamKey, stream: StreamId, level: u8) -> News {
        self.rooms.entry(room.clone()).or_default().note(now, stream, level)
    }

    /// Forgets a stream that has left a room.
    pub(super) fn forget(&mut self, room: &StreamKey, stream: StreamId) {
        if let Some(board) = self.rooms.get_mut(room) {
            board.speakers.retain(|speaker| speaker.stream != stream);
        }
    }

    /// Forgets a room that has no streams left.
    pub(super) fn close(&mut self, room: &StreamKey) {
        self.rooms.remove(room);
    }

    /// Returns the speakers of a room.
    fn of(&self, room: &StreamKey) -> News {
        let speakers = self.rooms.get(room).into_iter().flat_map(|board| &board.speakers);
        speakers.map(|speaker| (speaker.stream, speaker.level)).collect()
    }
}

impl Board {
    fn note(&mut self, now: Instant, stream: StreamId, level: u8) -> News {
        let mut news = News::new();
        let Some(at) = self.speakers.iter().position(|speaker| speaker.stream == stream) else {
            self.begin(now, stream, level, &mut news);
            return news;
        };
        if level > RESTS {
            self.speakers.swap_remove(at);
            news.push((stream, SILENCE));
        } else if let Some(speaker) = self.speakers.get_mut(at) {
            speaker.level = level;
            if now.saturating_duration_since(speaker.told) >= REPEAT {
                speaker.told = now;
                news.push((stream, level));
            }
        }
        news
    }

    fn begin(&mut self, now: Instant, stream: StreamId, level: u8, news: &mut News) {
        let is_early = self.began.is_some_and(|at| now.saturating_duration_since(at) < BEGINS);
        if level > SPEAKS || is_early {
            return;
        }
        if self.speakers.len() >= SPEAKERS_MAX {
            let speakers = self.speakers.iter().enumerate();
            let quietest = speakers.max_by_key(|(_, speaker)| speaker.level);
            let is_louder = |speaker: &Speaker| level.saturating_add(LOUDER) <= speaker.level;
            let Some((at, _)) = quietest.filter(|(_, speaker)| is_louder(speaker)) else { return };
            let former = self.speakers.swap_remove(at);
            news.push((former.stream, SILENCE));
        }
        self.began = Some(now);
        self.speakers.push(Speaker { stream, level, told: now });
        news.push((stream, level));
    }
}

impl Live {
    /// Returns the speakers of a room with their levels, for a new viewer.
    pub(super) fn speakers_of(&self, room: &StreamKey) -> Vec<(StreamKey, u8)> {
        let speakers = self.speakers.of(room).into_iter();
        let key = |(stream, level)| Some((self.streams.get(&stream)?.key.clone(), level));
        speakers.filter_map(key).collect()
    }

    /// Processes the loudness that a publisher of this worker reported, and sends it to all other workers.
    pub(super) fn note_loudness(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        id: ConnId,
        publication: Handle,
        level: u8,
    ) {
        let stream = conns.get(id).and_then(|conn| conn.publication(publication)?.stream);
        let Some(stream) = stream.filter(|stream| self.room_of(*stream).is_some()) else { return };
        self.hear_loudness(turn, conns, stream, level);
        turn.agenda.outputs.push_back(Output::Others(ToWorker::Loudness { stream, level }));
    }

    /// Processes the loudness of a stream, and notifies the viewers of its room.
    pub(super) fn hear_loudness(&mut self, turn: &mut Turn, conns: &mut Conns, stream: StreamId, level: u8) {
        let Some(room) = self.room_of(stream) else { return };
        let news = self.speakers.note(turn.now.mono, &room, stream, level);
        for (stream, level) in news {
            if let Some(key) = self.streams.get(&stream).map(|stream| stream.key.clone()) {
                self.tell_room(turn, conns, &room, SubtrackNews::Loudness { key: &key, level });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> StreamKey {
        StreamKey::new("live", "room")
    }

    #[test]
    fn a_stream_speaks_until_it_is_quiet_and_is_told_now_and_then() {
        let (start, mut speakers) = (Instant::now(), Speakers::default());
        let mut told = Vec::new();
        for (ms, level) in
            [(0, 51), (250, 50), (500, 40), (750, 40), (1000, 60), (1250, 61), (1500, 55), (1750, 127)]
        {
            let now = start + Duration::from_millis(ms);
            told.extend(
                speakers.note(now, &room(), StreamId(1), level).into_iter().map(|(_, level)| (ms, level)),
            );
        }
        assert_eq!(told, [(250, 50), (750, 40), (1250, SILENCE)]);
        assert!(speakers.of(&room()).is_empty());
    }

    #[test]
    fn the_loudest_speak_when_all_do() {
        let (mut now, mut speakers) = (Instant::now(), Speakers::default());
        for n in 0..50 {
            speakers.note(now, &room(), StreamId(n), 40);
            now += BEGINS;
        }
        assert_eq!(speakers.of(&room()).len(), SPEAKERS_MAX);
        assert!(speakers.note(now, &room(), StreamId(99), 35).is_empty());
        let news = speakers.note(now, &room(), StreamId(99), 34);
        assert_eq!((news.len(), news[0].1, news[1]), (2, SILENCE, (StreamId(99), 34)));
        assert_eq!(speakers.of(&room()).len(), SPEAKERS_MAX);
        (0..100).for_each(|n| speakers.forget(&room(), StreamId(n)));
        assert!(speakers.of(&room()).is_empty());
        speakers.close(&room());
        assert!(speakers.rooms.is_empty());
    }

    /// Fifty participants shout at the same time for a minute. Each of them reports its loudness four times a
    /// second.
    #[test]
    fn a_room_costs_its_viewers_a_bounded_number_of_messages() {
        let (start, mut speakers) = (Instant::now(), Speakers::default());
        let mut random = crypto::Seed::from_number(5).random();
        let mut count = 0;
        for ms in (0..60_000).step_by(250) {
            let now = start + Duration::from_millis(ms);
            for n in 0..50 {
                let [level, ..] = random.u64().to_be_bytes();
                count += speakers.note(now, &room(), StreamId(n), 20 + level % 50).len();
            }
        }
        assert!(count > 60 * 10 && count <= 60 * 32, "{count}");
    }
}
