//! A strict player: it follows the playlists and the manifest of a stream while the stream is live, fetches everything
//! that they name, and notes each rule that is broken.

mod list;
mod manifest;
mod media;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use netsim::{ms, secs};

use self::list::List;
use self::manifest::Manifest;
pub use self::media::Unit;
use super::STREAM;
use crate::support::World;
use crate::support::world::Id;

/// An answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        let head = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let status = bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        match (head, status) {
            (Some(head), Some(status)) => Self { status, body: bytes[head + 4..].to_vec() },
            _ => Self { status: 0, body: bytes.to_vec() },
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Rules that the server may break because of the publisher.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leniency {
    /// True if the clocks have faults, so that media may be missing, late or timed unevenly.
    pub has_faults: bool,
}

/// Facts about the units of the publishers.
#[derive(Debug, Default)]
pub struct Sent {
    /// Numbers of the key frames.
    pub keys: BTreeSet<u64>,
}

/// Everything that the player has fetched, and the rules that were broken.
#[derive(Debug, Default)]
pub struct Notes {
    /// Digests of all files by path: a name never has two contents.
    digests: BTreeMap<String, (u64, usize)>,
    pub broken: Vec<String>,
    pub fetched: usize,
}

impl Notes {
    pub fn broken(&mut self, rule: impl Into<String>) {
        let rule = rule.into();
        if self.broken.len() < BROKEN_MAX && !self.broken.contains(&rule) {
            self.broken.push(rule);
        }
    }

    fn check(&mut self, holds: bool, rule: impl FnOnce() -> String) {
        if !holds {
            self.broken(rule());
        }
    }
}

/// Maximum number of broken rules that are noted.
const BROKEN_MAX: usize = 20;

/// A request for a playlist or a manifest that is repeated as soon as it was answered. The first one may wait for
/// several segments.
#[derive(Debug)]
struct Poll {
    path: String,
    id: Option<Id>,
}

impl Poll {
    const fn new(path: String) -> Self {
        Self { path, id: None }
    }

    /// Returns the answer if there is one, and sends the next request.
    fn answer(&mut self, world: &mut World) -> Option<String> {
        let answer = match self.id {
            Some(id) => Some(Answer::of(world.answer_bytes(id)?)),
            None => None,
        };
        self.id = Some(world.request(&format!("GET /live/streams/{}", self.path), ""));
        answer.filter(|answer| answer.status == 200).map(|answer| answer.text())
    }
}

/// Sends a request and waits for the answer.
pub fn get(world: &mut World, path: &str) -> Answer {
    let id = world.request(&format!("GET /live/streams/{path}"), "");
    world.run_until("an answer", secs(40), |world| world.answer_bytes(id).is_some());
    Answer::of(world.answer_bytes(id).unwrap())
}

/// Fetches a file that a playlist or a manifest names.
pub fn file(world: &mut World, notes: &mut Notes, path: &str) -> Option<Vec<u8>> {
    let answer = get(world, path);
    notes.fetched += 1;
    if answer.status != 200 {
        notes.broken(format!("{path} is named and has the status {}", answer.status));
        return None;
    }
    let mut hasher = DefaultHasher::new();
    answer.body.hash(&mut hasher);
    let digest = (hasher.finish(), answer.body.len());
    let first = *notes.digests.entry(path.to_owned()).or_insert(digest);
    notes.check(first == digest, || format!("{path} has two contents: {first:?}, {digest:?}"));
    Some(answer.body)
}

/// A request for a playlist that the server holds until it has a part.
#[derive(Debug)]
struct Reload {
    id: Id,
    list: usize,
    segment: u64,
    part: u64,
}

/// The player.
#[derive(Debug)]
pub struct Player {
    lists: Vec<(Poll, List)>,
    manifest: Option<(Poll, Manifest)>,
    reload: Option<Reload>,
    pub sent: Sent,
    pub notes: Notes,
    pub leniency: Leniency,
}

impl Player {
    /// Creates a player that always reads the HLS playlist, and also the low-latency playlists and the DASH manifest if
    /// the application has them.
    pub fn new(has_low_latency: bool, has_manifest: bool) -> Self {
        let mut names = vec![format!("{STREAM}.m3u8")];
        if has_low_latency {
            names.extend(["video", "audio"].map(|kind| format!("ll-hls/{STREAM}/{STREAM}__{kind}.m3u8")));
        }
        let manifest = has_manifest.then(|| format!("{STREAM}/{STREAM}.mpd"));
        Self {
            lists: names.into_iter().map(|name| (Poll::new(name.clone()), List::new(name))).collect(),
            manifest: manifest.map(|name| (Poll::new(name.clone()), Manifest::new(name))),
            reload: None,
            sent: Sent::default(),
            notes: Notes::default(),
            leniency: Leniency::default(),
        }
    }

    /// Notes that a publisher begins.
    pub fn publisher_began(&mut self) {
        self.lists.iter_mut().for_each(|(_, list)| list.publisher_began());
    }

    /// Reads everything that has been answered, and requests it again.
    pub fn look(&mut self, world: &mut World) {
        self.look_at_reload(world);
        for (poll, list) in &mut self.lists {
            let Some(text) = poll.answer(world) else { continue };
            list.read(&text, &mut self.notes);
            list.fetch(world, &self.sent, self.leniency, &mut self.notes);
        }
        if let Some((poll, manifest)) = &mut self.manifest
            && let Some(text) = poll.answer(world)
        {
            manifest.read(&text, self.leniency, &mut self.notes);
            manifest.fetch(world, &mut self.notes);
        }
    }

    /// Fetches a segment again that has left its playlist a moment ago.
    pub fn look_back(&mut self, world: &mut World) {
        for (_, list) in &mut self.lists {
            list.look_back(world, &mut self.notes);
        }
    }

    /// Handles the answer to a reload that the server held, and requests the next one.
    fn look_at_reload(&mut self, world: &mut World) {
        if let Some(reload) = &self.reload {
            let Some(bytes) = world.answer_bytes(reload.id) else { return };
            let answer = Answer::of(bytes);
            if answer.status == 200 {
                self.lists[reload.list].1.check_reload(
                    &answer.text(),
                    reload.segment,
                    reload.part,
                    &mut self.notes,
                );
            }
            self.reload = None;
        }
        let at = 1 + usize::try_from(world.random().below(2)).unwrap();
        let Some((segment, part)) = self.lists.get(at).and_then(|(_, list)| list.next_part()) else { return };
        let skip = if world.random().chance(0.5) { "&_HLS_skip=YES" } else { "" };
        let name = &self.lists[at].1.name;
        let request = format!("GET /live/streams/{name}?_HLS_msn={segment}&_HLS_part={part}{skip}");
        let id = world.request(&request, "");
        self.reload = Some(Reload { id, list: at, segment, part });
    }

    /// Lets time pass, and reads new answers now and then.
    pub fn watch(&mut self, world: &mut World, time_ms: u64) {
        let end = world.instant() + ms(time_ms);
        while world.instant() < end {
            let pause = 150 + world.random().below(500);
            world.run_for(ms(pause));
            self.look(world);
            if world.random().chance(0.1) {
                self.look_back(world);
            }
        }
    }

    /// True if the playlist of all tracks has ended; `None` if there was none since the last publisher began.
    pub fn has_ended(&self) -> Option<bool> {
        self.lists.first().and_then(|(_, list)| list.has_ended())
    }

    /// Checks that no unit between the first and the last of a publisher is missing or was sent twice.
    pub fn check_whole(&mut self, sent: &[Unit]) {
        for (_, list) in &self.lists {
            list.check_whole(sent, &mut self.notes);
        }
    }
}
