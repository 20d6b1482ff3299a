//! Rooms, against a model: the participants of a room, and which of them the viewers of its single stream see,
//! while participants join, leave, are cut off and return, and speak. A seed determines a run.

use std::collections::BTreeSet;

use crypto::{Random, Seed};
use netsim::{MediaSource, ms, secs};
use serde_json::Value;

use super::seeds;
use crate::support::world::Over;
use crate::support::{SimId, World};

const PARTICIPANTS: usize = 4;
/// Audio levels of a participant that speaks and of one that has stopped, in -dBov.
const LEVELS: [u8; 2] = [30, 127];
/// Maximum number of viewers.
const VIEWERS_MAX: usize = 5;

/// The state of a participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Gone,
    Here(SimId),
    /// The participant was cut off, and may still return.
    Lost(SimId),
}

/// A room and its model.
struct Life {
    seed: u64,
    world: World,
    plan: Random,
    states: [State; PARTICIPANTS],
    /// The participants in the room, in the order in which they joined.
    order: Vec<usize>,
    /// The participant that viewers see; `None` while nobody watches.
    shown: Option<usize>,
    speaks: Option<usize>,
    viewers: Vec<SimId>,
    lives: u64,
    done: Vec<String>,
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            world: World::new(seed, 3, &[]),
            plan: Seed::from_number(seed).derive("rooms", 0).random(),
            states: [State::Gone; PARTICIPANTS],
            order: Vec::new(),
            shown: None,
            speaks: None,
            viewers: Vec::new(),
            lives: 0,
            done: Vec::new(),
        }
    }

    fn note(&mut self, what: String) {
        self.done.push(format!("{:?} {what}", self.world.elapsed()));
    }

    /// Fails, and prints all operations so far.
    fn fail(&self, what: &str) -> ! {
        panic!("seed {}: {what}\n{}", self.seed, self.done.join("\n"));
    }

    fn publish(&mut self, at: usize, source: MediaSource) {
        let client = self.world.publish("live", &format!("p{at}?mainTrack=room"), source);
        self.world.run_until("a participant", secs(5), |world| world.is_ready(client));
        self.states[at] = State::Here(client);
    }

    fn come(&mut self, at: usize) {
        self.note(format!("p{at} comes"));
        self.lives += 1;
        let source = MediaSource::new(&Seed::from_number(self.lives))
            .numbered_from((at as u64) << 48 | self.lives << 32)
            .fps(15)
            .gop(5 + self.plan.below(10))
            .sizes(300, 40);
        self.publish(at, source);
        self.order.push(at);
    }

    fn leave(&mut self, at: usize, client: SimId) {
        self.note(format!("p{at} leaves"));
        self.world.close(client);
        self.is_gone(at);
    }

    fn is_gone(&mut self, at: usize) {
        self.states[at] = State::Gone;
        self.order.retain(|one| *one != at);
        self.speaks.take_if(|one| *one == at);
        if self.shown == Some(at) {
            self.shown = self.speaks.or_else(|| self.order.first().copied());
        }
    }

    /// Makes a participant speak, and the former speaker stop. If the participant already speaks, it stops.
    fn speak(&mut self, at: usize) {
        let before = self.speaks.take();
        if let Some(before) = before {
            self.note(format!("p{before} stops speaking"));
            self.world.speak("live", &format!("p{before}"), LEVELS[1]);
        }
        if before != Some(at) {
            self.note(format!("p{at} speaks"));
            self.world.speak("live", &format!("p{at}"), LEVELS[0]);
            self.speaks = Some(at);
            self.shown = self.shown.map(|_| at);
            // The former speaker must be quiet for a second, and the next key frame follows within another second.
            self.world.run_for(secs(2));
        }
    }

    fn lose(&mut self, at: usize, client: SimId) {
        self.note(format!("p{at} is cut off"));
        self.world.reset(client);
        self.states[at] = State::Lost(client);
    }

    /// Makes a participant that was cut off return in time, or lets its grace period end.
    fn resolve(&mut self, at: usize, client: SimId) {
        if self.plan.chance(0.5) {
            self.note(format!("p{at} returns"));
            let source = self.world.source_of(client);
            self.publish(at, source);
        } else {
            self.note(format!("p{at} does not return"));
            self.world.run_for(secs(7));
            self.is_gone(at);
        }
    }

    fn watch(&mut self) {
        // RTMP is left out, because its player gives up after four seconds without a publisher.
        let over = [Over::Flv, Over::WsFlv, Over::Rtsp][usize::try_from(self.plan.below(3)).unwrap()];
        self.note(format!("a viewer over {over:?}"));
        let viewer = self.world.watch_over(over, "live", "room");
        if self.order.is_empty() {
            self.world.run_until("the refusal", secs(5), |world| world.is_closed(viewer));
            return;
        }
        self.viewers.push(viewer);
        if self.shown.is_none() {
            self.shown = self.speaks.or_else(|| self.order.first().copied());
        }
    }

    fn step(&mut self) {
        // A participant stays cut off for one step only, because the grace period lasts two steps.
        let lost = self.states.iter().position(|state| matches!(state, State::Lost(_)));
        let any = usize::try_from(self.plan.below(PARTICIPANTS as u64)).unwrap();
        let at = lost.unwrap_or(any);
        match (self.plan.below(6), self.states[at]) {
            (_, State::Lost(client)) => self.resolve(at, client),
            (0, _) if self.viewers.len() < VIEWERS_MAX => self.watch(),
            (_, State::Gone) => self.come(at),
            (0 | 1, State::Here(client)) => self.leave(at, client),
            (2 | 3, State::Here(_)) => self.speak(at),
            (_, State::Here(client)) => self.lose(at, client),
        }
        self.world.run_for(ms(2500));
    }

    fn judge(&mut self) {
        let asked = self.world.request("GET /live/rest/v2/broadcasts/room/active-subtracks/0/50", "");
        self.world.run_until("the list", secs(2), |world| world.answer(asked).is_some());
        let answer = self.world.answer(asked).unwrap();
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let list: Value = serde_json::from_str(body).unwrap_or_default();
        let ids = list.as_array().into_iter().flatten().filter_map(|one| one["streamId"].as_str());
        let there: BTreeSet<String> = ids.map(str::to_owned).collect();
        let wanted: BTreeSet<String> = self.order.iter().map(|at| format!("p{at}")).collect();
        if there != wanted {
            self.fail(&format!("{there:?} are in the room, and not {wanted:?}"));
        }
        if self.order.is_empty() {
            let left: Vec<_> = self.viewers.iter().filter(|one| !self.world.is_closed(**one)).collect();
            if !left.is_empty() {
                self.fail("viewers of an empty room are not told");
            }
            self.viewers.clear();
            self.shown = None;
        }
        (0..self.viewers.len()).for_each(|at| self.judge_viewer(at));
    }

    /// Judges the units that a viewer was sent in the last second.
    fn judge_viewer(&self, at: usize) {
        let viewer = self.viewers[at];
        if self.world.is_closed(viewer) {
            self.fail(&format!("viewer {at} was dropped: {:?}", self.world.story(viewer)));
        }
        let since = self.world.instant() - ms(1000);
        let all = self.world.got(viewer);
        let newest = all.iter().filter(|got| got.at >= since);
        let sources: BTreeSet<usize> = newest
            .map(|got| got.seen.unwrap_or_else(|_| self.fail("a damaged unit")))
            .map(|seen| usize::try_from(seen.counter >> 48).unwrap())
            .collect();
        let is_here = |at: &usize| matches!(self.states[*at], State::Here(_));
        let wanted: BTreeSet<usize> = self.shown.into_iter().filter(is_here).collect();
        if sources != wanted {
            self.fail(&format!("viewer {at} is shown {sources:?}, and not {wanted:?}"));
        }
        // After a switch to another stream, or to a new publisher of the same stream, the first picture is a key frame.
        let mut before = None;
        for seen in all.iter().filter_map(|got| got.seen.ok()).filter(|seen| seen.is_video) {
            let life = seen.counter >> 32;
            if before.replace(life) != Some(life) && !seen.key_frame {
                self.fail(&format!("viewer {at} is shown another stream without a key frame"));
            }
        }
    }

    fn end(mut self) {
        for at in 0..PARTICIPANTS {
            if let State::Here(client) | State::Lost(client) = self.states[at] {
                self.world.close(client);
            }
        }
        self.world.run_until("all connections to end", secs(30), |world| world.connections() == 0);
        if self.world.retained_bytes() != 0 {
            self.fail("rings outlive the room");
        }
    }
}

#[test]
fn who_is_in_a_room_and_who_is_shown_over_many_seeds() {
    let seeds = seeds(10);
    for seed in 0..seeds {
        let mut life = Life::new(seed);
        life.come(0);
        life.watch();
        for _ in 0..25 {
            life.step();
            life.judge();
        }
        life.end();
    }
    println!("{seeds} seeds");
}
