//! The server under random operations and faults, judged by a model: `docs/simulation.md`.
//!
//! A seed determines a run. The run draws the server (workers, settings, delays of its threads), then operations
//! of publishers, viewers and operators, and outside faults. It checks everything between two operations.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crypto::{Random, Seed};
use netsim::{MediaSource, Trace, ms, secs};

use super::records::Request;
use super::seeds;
use super::streams::{Expect, Publisher, Stream};
use super::viewers::Viewer;
use crate::support::world::{Chaos, Id, Over, World};

/// Maximum time that an RTSP description waits for the audio of a stream that has only just begun.
const RTSP: Duration = Duration::from_secs(3);
/// Time for which a stream waits for a lost publisher.
pub(super) const GRACE: Duration = ms(2000);
/// Lag of a viewer beyond which it skips to a newer key frame.
pub(super) const LAG: Duration = ms(3000);
/// Time for ICE and DTLS to connect: without losses, and with retransmissions, each of which waits twice as long
/// as the one before.
const WEBRTC: Duration = ms(1000);
const WEBRTC_REPAIR: Duration = ms(5000);
/// Number of operations in a run.
const OPERATIONS: u64 = 100;
/// Maximum pause of a thread where datagrams are lost, in milliseconds.
const PAUSE_MAX_LOSSY: u64 = 30;
/// Time after which silent connections have ended. HTTP keeps a silent connection for 75 s.
const SILENCE_MAX: Duration = secs(90);
/// Maximum duration of a drain.
const DRAIN_MAX: Duration = secs(20);

/// Seeds, and hashes of everything that their runs deliver. In these runs, nothing outside of the server (network, name
/// server, hook receivers) fails, so that few changes of the server change the hashes.
const RECORDED: [(u64, u64); 2] = [(3, 0xf869_6744_2efe_d5b4), (8, 0x0a9c_57e2_3523_cebd)];

/// A run: a world, its operations, and the model that judges it.
pub(super) struct Run {
    pub(super) world: World,
    /// Random numbers that choose the operations.
    pub(super) plan: Random,
    /// Time allowed for anything that takes a few messages.
    pub(super) slack: Duration,
    pub(super) chaos: Chaos,
    pub(super) streams: Vec<Stream>,
    pub(super) viewers: Vec<Viewer>,
    pub(super) requests: Vec<Request>,
    /// True if bytes of some peers are damaged.
    is_damaging: bool,
    /// Damaged peers that are present, and the number of all damaged viewers so far.
    pub(super) damaged: Vec<Id>,
    pub(super) damaged_viewers: i64,
    /// Operations so far, printed when the run fails.
    log: Vec<String>,
}

/// Draws the faults of a server and of its surroundings (network, name server, hook receivers); a quarter of the seeds
/// have none.
fn chaos(plan: &mut Random) -> Chaos {
    let kind = plan.below(4);
    if kind == 0 {
        return Chaos::NONE;
    }
    let pause_max = ms([0, 5, 30, 100][usize::try_from(plan.below(4)).unwrap()]);
    let faults = Chaos {
        shuffles: true,
        pauses: if pause_max.is_zero() { 0.0 } else { 0.01 },
        pause_max,
        disk_max: ms([0, 10, 60][usize::try_from(plan.below(3)).unwrap()]),
        ..Chaos::NONE
    };
    if kind < 3 {
        return faults;
    }
    // Lost packets are repaired in time only if no peer pauses for longer than SRT waits for them.
    let (datagrams_lost, datagrams_doubled) = if pause_max <= ms(5) { (0.02, 0.01) } else { (0.0, 0.0) };
    let lines = Chaos { datagrams_lost, datagrams_doubled, ..faults };
    Chaos { connects_fail: 0.3, names_fail: 0.2, names_silent: 0.1, posts_fail: 0.3, ..lines }
}

impl Run {
    pub(super) fn new(seed: u64) -> Self {
        let mut plan = Seed::from_number(seed).derive("plan", 0).random();
        let chaos = chaos(&mut plan);
        let is_damaging = Seed::from_number(seed).derive("damage", 0).random().chance(0.25);
        let workers = 1 + u16::try_from(plan.below(3)).unwrap();
        let grace = GRACE.as_millis().to_string();
        let lag = LAG.as_millis().to_string();
        let mut settings = vec![("publisherGraceMs", &*grace), ("maxLatencyMs", &*lag)];
        if plan.chance(0.3) {
            settings.push(("listenerHookURL", "http://hooks.example/told"));
        }
        let world = World::with_chaos(seed, workers, &settings, chaos);
        let began = world.instant();
        let streams = (0..1 + plan.below(3)).map(|index| Stream::new(began, index)).collect();
        let slack = ms(500) + chaos.pause_max * 10 + chaos.disk_max * 4;
        let log = vec![format!("{workers} workers, {chaos:?}, damage: {is_damaging}")];
        let (viewers, requests, damaged) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            world,
            plan,
            slack,
            chaos,
            streams,
            viewers,
            requests,
            is_damaging,
            damaged,
            damaged_viewers: 0,
            log,
        }
    }

    /// Runs all operations, and returns the final trace.
    fn live(mut self) -> Trace {
        self.world.run_for(ms(10));
        for _ in 0..OPERATIONS {
            self.operate();
            if self.is_damaging && self.plan.chance(0.2) {
                self.damage();
            }
            // Most operations follow each other quickly; now and then there is enough time for all effects to end.
            let most = if self.plan.chance(0.15) { 3000 } else { 300 };
            let time = ms(self.plan.below(most));
            self.wait(time);
        }
        if self.plan.chance(0.5) {
            self.empty();
        }
        self.drain();
        self.come_back();
        self.world.trace()
    }

    pub(super) fn note(&mut self, text: String) {
        let at = self.world.elapsed().as_millis();
        self.log.push(format!("{at:6} {text}"));
    }

    /// Fails the run, because the model found a mistake.
    pub(super) fn fail(&self, text: &str) -> ! {
        let at = self.world.elapsed().as_millis();
        panic!("{}\n{}\n{at:6} FAILED: {text}", self.world.trace(), self.log.join("\n"));
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.world.run_for(time);
        self.observe();
    }

    /// Makes the checks that follow every operation.
    pub(super) fn observe(&mut self) {
        self.observe_panics();
        self.observe_publishers();
        self.observe_rings();
        self.observe_answers();
        self.observe_viewers();
    }

    /// Fails the run if a session panicked. Only that session ends, but it is a mistake whatever its peer sent.
    fn observe_panics(&self) {
        let panics: u64 = self.world.workers().iter().map(|worker| worker.stats().panics).sum();
        if panics > 0 {
            self.fail(&format!("{panics} sessions panicked"));
        }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.plan.below(bound as u64)).unwrap()
    }

    pub(super) fn any_stream(&mut self) -> usize {
        self.below(self.streams.len())
    }

    // ---- operations

    fn operate(&mut self) {
        let stream = self.any_stream();
        match self.below(100) {
            0..=17 => self.publisher_comes(stream),
            18..=23 => self.publisher_goes(stream),
            24..=49 => self.viewer_comes(stream),
            50..=59 => self.viewer_goes(),
            60..=86 => self.call(stream),
            87..=89 => self.pull(stream),
            90..=92 if self.chaos.shuffles => self.pause_a_thread(),
            93..=95 if self.chaos.disk_max > Duration::ZERO => self.fail_store(),
            96..=97 => self.shift_wall(),
            98 if self.chaos.shuffles => self.crash(),
            _ => self.wait(ms(100)),
        }
    }

    fn publisher_comes(&mut self, index: usize) {
        let now = self.world.instant();
        // A second publisher of a live stream is rare.
        let expected = match self.streams[index].expect(now, self.slack) {
            Expect::Live(_) if self.plan.chance(0.7) => return,
            Expect::Live(_) => Some(false),
            Expect::Idle | Expect::Grace => Some(true),
            Expect::Unsure if self.plan.chance(0.5) => return,
            Expect::Unsure => None,
        };
        let over = [Over::Rtmp, Over::Rtmp, Over::Srt, Over::Rtsp, Over::WebRtc][self.below(5)];
        // Over WebRTC, pictures are sent in presentation order.
        let reorders = self.plan.chance(0.3) && over != Over::WebRtc;
        let number = self.streams[index].publishers.len() as u64 + 1;
        let source = MediaSource::new(&Seed::from_number(number))
            .numbered_from((index as u64) << 48 | number << 32)
            .fps([8, 15][self.below(2)])
            .gop(5 + self.plan.below(20))
            .sizes(300, if self.plan.chance(0.3) { 40 } else { 0 })
            .reordering(reorders);
        let id = self.streams[index].id.clone();
        let client = self.world.publish_over(over, "live", &id, source);
        self.note(format!("publisher {number} of {id} over {over:?}, expected: {expected:?}"));
        self.streams[index].publishers.push(Publisher::new(client, over, expected, reorders));
        self.streams[index].event(now, Some(number));
        if over == Over::WebRtc {
            let connected_by = now + self.connecting(over) + self.slack;
            self.streams[index].is_unsure_until(connected_by);
        }
        // Some publishers are cut off before the server answers them.
        if self.plan.chance(0.15) {
            let time = ms(self.plan.below(150));
            self.wait(time);
            self.note(format!("publisher {number} of {id} is cut off"));
            self.world.reset(client);
            self.streams[index].departs(&self.world, client, true, false, self.slack);
        }
    }

    fn publisher_goes(&mut self, index: usize) {
        let here = |publisher: &&Publisher| {
            let story = self.world.story(publisher.id);
            story.left.is_none() && story.closed.is_none()
        };
        let present: Vec<_> = self.streams[index].publishers.iter().filter(here).map(|p| p.id).collect();
        if present.is_empty() {
            return;
        }
        let client = present[self.below(present.len())];
        let how = self.below(10);
        let id = self.streams[index].id.clone();
        match how {
            0..=3 => self.world.close(client),
            4..=8 => self.world.reset(client),
            _ => self.world.go_dark(client),
        }
        self.note(format!(
            "a publisher of {id} goes ({})",
            ["closes", "is cut off", "is dark"][usize::from(how > 3) + usize::from(how > 8)]
        ));
        self.streams[index].departs(&self.world, client, how > 3, how > 8, self.slack);
    }

    fn viewer_comes(&mut self, stream: usize) {
        if self.viewers.iter().filter(|viewer| viewer.is_here(&self.world)).count() > 10 {
            return;
        }
        let app = if self.plan.chance(0.2) { "copies" } else { "live" };
        let over = [Over::Rtmp, Over::Rtsp, Over::Flv, Over::WsFlv, Over::Srt, Over::WebRtc][self.below(6)];
        let is_pulled = app == "copies" && self.streams[stream].pull.is_some() && self.plan.chance(0.7);
        let id = format!("{}{}", if is_pulled { "p" } else { "" }, self.streams[stream].id);
        let client = self.world.watch_over(over, app, &id);
        let is_slow = !over.is_datagrams() && self.plan.chance(0.15);
        if is_slow {
            let (rate, window) = (15_000 + self.plan.below(60_000), 2000 + self.below(8000));
            self.world.slow_down(client, rate, window);
        }
        let expect = self.streams[stream].expect(self.world.instant(), self.slack);
        let expect = if app == "live" { expect } else { Expect::Unsure };
        self.note(format!(
            "viewer {} of {app}/{id} over {over:?}, slow: {is_slow}, {expect:?}",
            self.viewers.len()
        ));
        self.viewers.push(Viewer::new(client, stream, over, app == "copies", is_slow, expect));
    }

    fn viewer_goes(&mut self) {
        let here = |(_, viewer): &(usize, &Viewer)| viewer.is_here(&self.world);
        let present: Vec<_> = self.viewers.iter().enumerate().filter(here).map(|(index, _)| index).collect();
        if present.is_empty() {
            return;
        }
        let index = present[self.below(present.len())];
        self.note(format!("viewer {index} goes"));
        let client = self.viewers[index].id;
        match self.below(8) {
            0..=3 => self.world.close(client),
            4..=6 => self.world.reset(client),
            _ => self.world.go_dark(client),
        }
    }

    fn pause_a_thread(&mut self) {
        let thread = self.below(self.world.workers().len() + 1);
        let most = self.slack.as_millis() as u64 / 3;
        // SRT could not repair lost datagrams if a thread paused for longer than its latency.
        let most = if self.chaos.datagrams_lost > 0.0 { most.min(PAUSE_MAX_LOSSY) } else { most };
        let time = ms(self.plan.below(most));
        self.note(format!("thread {thread} pauses for {time:?}"));
        self.world.pause(thread, time);
    }

    fn fail_store(&mut self) {
        let rebuilds = u32::try_from(self.below(2)).unwrap();
        self.note(format!("the next commit fails, and {rebuilds} rebuilds"));
        self.world.backstage().fail_store(1, rebuilds);
    }

    fn shift_wall(&mut self) {
        let by = i64::try_from(self.plan.below(20_000)).unwrap() - 10_000;
        self.note(format!("the clock is set by {by} ms"));
        self.world.shift_wall(by);
    }

    fn crash(&mut self) {
        self.observe();
        self.begin_anew("crash");
    }

    fn begin_anew(&mut self, why: &str) {
        self.note(why.to_owned());
        self.world.crash();
        let (now, slack) = (self.world.instant(), self.slack);
        self.streams.iter_mut().for_each(|stream| stream.crashed(now, slack));
        self.viewers.iter_mut().for_each(Viewer::crashed);
        self.forget_requests();
    }

    // ---- the end

    /// Ends all clients, and checks that nothing is left in tables or rings.
    fn empty(&mut self) {
        self.note("everybody goes".to_owned());
        self.end_pulls();
        self.end_damaged();
        for viewer in 0..self.viewers.len() {
            // Half of the viewers stay until the server ends them.
            if self.viewers[viewer].is_here(&self.world) && self.plan.chance(0.5) {
                self.world.close(self.viewers[viewer].id);
            }
        }
        for stream in 0..self.streams.len() {
            for index in 0..self.streams[stream].publishers.len() {
                let client = self.streams[stream].publishers[index].id;
                if !self.world.is_closed(client) && self.world.story(client).left.is_none() {
                    self.world.close(client);
                    self.streams[stream].departs(&self.world, client, false, false, self.slack);
                }
            }
        }
        let until = self.world.elapsed() + SILENCE_MAX;
        while self.world.connections() > 0 && self.world.elapsed() < until {
            self.wait(ms(500));
        }
        // The retries of hooks may hold resources for some more time.
        while !self.world.held().is_empty() && self.world.elapsed() < until {
            self.wait(ms(500));
        }
        if !self.world.held().is_empty() || self.world.retained_bytes() > 0 {
            let (held, bytes) = (self.world.held(), self.world.retained_bytes());
            let connections = self.world.connections_left();
            self.fail(&format!("left over: {held:?}, {bytes} bytes in rings, {connections:?}"));
        }
        self.check_all_records();
    }

    /// Ends all pulls, which would not end by themselves.
    fn end_pulls(&mut self) {
        for _ in 0..20 {
            self.wait(self.slack * 2);
            let pulled = self.streams.iter().position(|stream| stream.pull.is_some());
            match pulled {
                Some(stream) => self.end_pull(stream),
                None if self.is_answered() => return,
                None => {}
            }
        }
        self.fail("a pull could not be ended");
    }

    /// Drains the server: it says goodbye to every peer, then exits.
    fn drain(&mut self) {
        self.note("drain".to_owned());
        self.observe();
        let now = self.world.instant();
        let slack = self.slack;
        self.streams.iter_mut().for_each(|stream| stream.drained(now, slack));
        self.world.drain();
        let until = self.world.elapsed() + DRAIN_MAX;
        while !self.world.has_exited() {
            self.world.run_for(ms(100));
            if self.world.elapsed() > until {
                self.fail(&format!("the drain does not end: {:?}", self.world.held()));
            }
        }
        self.world.run_for(secs(1));
        for viewer in &self.viewers {
            // The server cannot say goodbye to a caller that is not connected yet.
            let is_known = self.world.is_ready(viewer.id) || !viewer.over.is_datagrams();
            if !viewer.is_slow && !viewer.is_done && is_known && viewer.is_here(&self.world) {
                self.fail(&format!("a viewer over {:?} was not told of the drain", viewer.over));
            }
        }
        // A process that exits need not free its tables, but it must keep no peer waiting.
        let is_kept = |name: &str| name.ends_with("connections") || name.ends_with(": streams");
        let left: Vec<_> = self.world.held().into_iter().filter(|(name, _)| is_kept(name)).collect();
        if !left.is_empty() {
            self.fail(&format!("left over after the drain: {left:?}"));
        }
    }

    /// Starts another server, which must find everything that was acknowledged.
    fn come_back(&mut self) {
        self.begin_anew("another server");
        self.wait(ms(100));
        self.check_all_records();
    }

    /// Compares the record of every stream with the model, once nothing is under way.
    fn check_all_records(&mut self) {
        self.wait(self.slack * 2);
        for stream in 0..self.streams.len() {
            self.read(stream);
        }
        self.wait(self.slack * 2);
    }

    /// Additional time to connect over a protocol, beyond a request and its answer.
    pub(super) fn connecting(&self, over: Over) -> Duration {
        match over {
            Over::WebRtc if self.chaos.datagrams_lost > 0.0 => WEBRTC_REPAIR,
            Over::WebRtc => WEBRTC,
            Over::Rtsp => RTSP,
            Over::Rtmp | Over::Flv | Over::WsFlv | Over::Srt | Over::RtspUdp => Duration::ZERO,
        }
    }

    pub(super) fn ago(&self, at: Instant) -> Duration {
        self.world.instant().saturating_duration_since(at)
    }
}

/// Checks that a run depends on its seed alone: not on addresses, the order of a hash map, or a clock of the
/// machine. DTLS keys do not depend on the seed, and must not affect the trace. The hash changes whenever the
/// server or its clients send something else. The test then prints the new hash: write it here once a second run
/// has printed the same.
#[test]
fn the_recorded_seeds_give_the_recorded_traces() {
    let traces = RECORDED.map(|(seed, _)| (seed, Run::new(seed).live().hash()));
    assert_eq!(traces, RECORDED, "in hexadecimal: {traces:x?}");
}

#[test]
fn whatever_happens_everybody_has_what_he_must_have() {
    let first: u64 = std::env::var("MILLSTREAM_FIRST_SEED").ok().and_then(|t| t.parse().ok()).unwrap_or(0);
    let count = seeds(200);
    let mut failed = Vec::new();
    for seed in first..first + count {
        // A run that fails prints its own log; the other runs continue.
        if catch_unwind(AssertUnwindSafe(|| Run::new(seed).live())).is_err() {
            failed.push(seed);
        }
    }
    println!("{count} seeds");
    assert!(failed.is_empty(), "seeds {failed:?} of {first}..{}", first + count);
}
