//! An HLS player on a path with less capacity than the stream needs. The server cannot leave out parts of a segment, so
//! the player falls behind, and jumps to the live edge when its next segment has left the playlist. It must get each
//! segment completely that it starts to fetch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hls::Playlist;
use hls::playlist::MediaPlaylist;
use millstream::protocol::load::{ClientDatagrams, ClientStream, LoadEvent, LoadPlayer};
use netsim::{MediaSource, secs};
use wire::SendQueue;

use super::{FPS, GOP, PICTURE, path};
use crate::support::world::{Over, World};

/// Length of a transport packet.
const PACKET_BYTES: usize = 188;
/// Number of segments in the playlist. The player may fall behind by this many segments.
const LISTED: u64 = 8;
const SEGMENT: Duration = secs(2);
const WATCHED: Duration = secs(120);

/// A segment that a player has fetched.
#[derive(Debug, Clone, Copy)]
struct Fetched {
    number: u64,
    /// Time at which the segment was complete.
    at: Instant,
    /// Number of the newest segment at the time of the request.
    newest: u64,
}

/// Progress of a player.
#[derive(Debug, Default)]
struct Log {
    fetched: Vec<Fetched>,
    /// Errors found in answers.
    wrong: Vec<String>,
    /// Number of times that the next segment had left the playlist.
    jumps: u64,
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Playlist,
    Segment { number: u64, newest: u64 },
}

/// Fetches the playlist and the next segment in turns over one connection, as players do (RFC 8216 §6.3).
#[derive(Debug)]
struct Player {
    log: Arc<Mutex<Log>>,
    asked: Option<Asked>,
    /// Time of the next request for the playlist, while there is no segment to fetch.
    due: Option<Instant>,
    next: Option<u64>,
    answer: Vec<u8>,
    out: SendQueue,
    events: VecDeque<LoadEvent>,
}

impl Player {
    fn new(log: Arc<Mutex<Log>>) -> Self {
        let mut player = Self {
            log,
            asked: None,
            due: None,
            next: None,
            answer: Vec::new(),
            out: SendQueue::new(),
            events: VecDeque::from([LoadEvent::Ready]),
        };
        player.ask("one.m3u8", Asked::Playlist);
        player
    }

    fn ask(&mut self, name: &str, asked: Asked) {
        let text = format!("GET /live/streams/{name} HTTP/1.1\r\nHost: 127.0.0.1:5080\r\n\r\n");
        self.out.push(Bytes::from(text));
        (self.asked, self.due) = (Some(asked), None);
    }

    /// Takes a complete answer: true if it succeeded, and its body.
    fn take(&mut self) -> Option<(bool, Vec<u8>)> {
        let head = self.answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&self.answer[..head]).to_ascii_lowercase();
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse::<usize>();
        let end = head + length.unwrap();
        if self.answer.len() < end {
            return None;
        }
        let rest = self.answer.split_off(end);
        let body = std::mem::replace(&mut self.answer, rest).split_off(head);
        Some((text.starts_with("http/1.1 200 "), body))
    }

    fn answered(&mut self, now: Instant, is_ok: bool, body: &[u8]) {
        let Some(asked) = self.asked.take() else { return };
        if !is_ok {
            self.log.lock().unwrap().wrong.push(format!("{asked:?} is refused"));
        }
        match asked {
            Asked::Playlist if is_ok => match Playlist::read(body) {
                Ok(Playlist::Media(list)) => self.follow(now, &list),
                other => panic!("{other:?}"),
            },
            Asked::Playlist => self.due = Some(now + SEGMENT),
            Asked::Segment { number, newest } => {
                let is_whole = body.len().is_multiple_of(PACKET_BYTES) && body.first() == Some(&0x47);
                let mut log = self.log.lock().unwrap();
                log.fetched.push(Fetched { number, at: now, newest });
                if is_ok && !is_whole {
                    log.wrong.push(format!("segment {number} has {} bytes", body.len()));
                }
                drop(log);
                self.ask("one.m3u8", Asked::Playlist);
            }
        }
    }

    /// Requests the next segment of a playlist; if there is none yet, requests the playlist again later.
    fn follow(&mut self, now: Instant, list: &MediaPlaylist) {
        let end = list.media_sequence + list.segments.len() as u64;
        let edge = end.saturating_sub(3).max(list.media_sequence);
        let wanted = self.next.unwrap_or(edge);
        let number = if wanted < list.media_sequence { edge } else { wanted };
        if number != wanted {
            self.log.lock().unwrap().jumps += 1;
        }
        let index = usize::try_from(number - list.media_sequence).unwrap();
        match list.segments.get(index) {
            Some(segment) => {
                self.next = Some(number + 1);
                self.ask(&segment.uri, Asked::Segment { number, newest: end - 1 });
            }
            None => (self.next, self.due) = (Some(number), Some(now + SEGMENT / 2)),
        }
    }
}

impl ClientStream for Player {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        self.answer.extend_from_slice(bytes);
        while let Some((is_ok, body)) = self.take() {
            self.answered(now, is_ok, &body);
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.append(&mut self.out);
    }
}

impl LoadPlayer for Player {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }

    fn handle_end(&mut self, _now: Instant) {
        self.events.push_back(LoadEvent::Closed("the server closed the connection".to_owned()));
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.ask("one.m3u8", Asked::Playlist);
        }
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn close(&mut self, _now: Instant) {}
}

/// Runs a player on a path with this percentage of the stream's rate. Returns its log, and the time since its last
/// segment.
fn watch(percent: u64) -> (Log, Duration) {
    let listed = LISTED.to_string();
    let mut world = World::new(1, 1, &[("hlsListSize", &listed)]);
    let source = MediaSource::new(&crypto::Seed::from_number(1)).fps(FPS).gop(GOP).sizes(PICTURE, 170);
    let publisher = world.publish("live", "one", source);
    world.run_until("the publisher", secs(5), |world| world.is_ready(publisher));
    let log = Arc::<Mutex<Log>>::default();
    let viewer = world.watch_by(Over::Flv, Box::new(Player::new(Arc::clone(&log))));
    world.narrow(viewer, path(percent));
    world.run_until("the first segment", secs(40), |_| !log.lock().unwrap().fetched.is_empty());
    let began = world.instant();
    world.run_for(WATCHED);
    assert!(!world.is_closed(viewer), "{percent} %: {:?}", world.rejection(viewer));
    let log = std::mem::take(&mut *log.lock().unwrap());
    let last = log.fetched.last().unwrap().at;
    (log, began + WATCHED - last)
}

#[test]
fn players_of_segments_fall_behind_by_the_playlist_and_jump() {
    // Columns: rate of the path in percent; minimum of segments fetched in percent; true if the player must keep up.
    for (percent, fetched_min, keeps_up) in [(130, 97, true), (60, 45, false), (30, 20, false)] {
        let (log, idle) = watch(percent);
        let of = usize::try_from(WATCHED.as_secs() / SEGMENT.as_secs()).unwrap();
        let lag = log.fetched.iter().map(|one| one.newest - one.number).max().unwrap();
        println!(
            "{percent} %: {} of {of} segments, {} jumps, up to {lag} behind",
            log.fetched.len(),
            log.jumps
        );
        assert_eq!(log.wrong, [""; 0], "{percent} %");
        assert!(log.fetched.windows(2).all(|two| two[0].number < two[1].number), "{percent} %: {log:?}");
        assert!(log.fetched.len() * 100 >= of * fetched_min, "{percent} %: {} of {of}", log.fetched.len());
        // The player is not stuck: its next segment is being transferred.
        assert!(
            idle < SEGMENT * 100 / u32::try_from(percent.min(100)).unwrap() * 2,
            "{percent} %: {idle:?} idle"
        );
        assert!(lag < LISTED, "{percent} %: {lag} behind");
        assert_eq!(log.jumps == 0, keeps_up, "{percent} %: {} jumps", log.jumps);
        assert!(log.jumps <= log.fetched.len() as u64 / 2, "{percent} %: jumps all the time");
    }
}
