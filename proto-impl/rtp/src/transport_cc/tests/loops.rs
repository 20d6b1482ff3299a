//! Test of the feedback in a closed loop: an obedient sender (a simple model of draft-ietf-rmcat-gcc-02), and a line
//! that becomes slow, loses packets and loses feedback.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a model"
)]

use std::collections::{HashMap, VecDeque};

use crypto::{Random, Seed};

use super::super::*;
use crate::rtcp::{Rtcp, TransportFeedback, packets};

/// Maximum rate of the encoder in bits per second.
const MOST: f64 = 2_500_000.0;
const LATENCY_MS: u64 = 40;

/// Sender that follows arrival times.
struct Sender {
    /// Rate of the sender in bits per second.
    rate: f64,
    next: u16,
    sent: HashMap<u16, (u64, u64)>,
    /// Arrivals of the last half second: time and bytes.
    came: VecDeque<(i64, u64)>,
    base: Option<i64>,
    queue: i64,
    /// Rate at which the queue last grew.
    near: Option<f64>,
    /// Packets and losses since the last check of loss.
    told: (u64, u64),
    changed: u64,
}

impl Sender {
    fn handle_feedback(&mut self, now_ms: u64, feedback: &TransportFeedback<'_>) {
        let mut shortest: Option<i64> = None;
        for arrival in feedback.arrivals() {
            let Some(&(sent, bytes)) = self.sent.get(&arrival.number.value()) else { continue };
            self.told.0 += 1;
            let Some(at) = arrival.at_micros else {
                self.told.1 += 1;
                continue;
            };
            let transit = at - sent as i64;
            shortest = Some(shortest.map_or(transit, |least| least.min(transit)));
            self.came.push_back((at, bytes));
        }
        let (Some(transit), Some(&(newest, _))) = (shortest, self.came.back()) else { return };
        while self.came.pop_front_if(|(at, _)| *at < newest - 500_000).is_some() {}
        let delivered = self.came.iter().map(|(_, bytes)| bytes).sum::<u64>() as f64 * 16.0;
        let base = *self.base.insert(self.base.map_or(transit, |base| base.min(transit)));
        let (queue, before) = (transit - base, self.queue);
        self.queue = queue;
        let since = now_ms - self.changed;
        if queue > 30_000 && queue > before - 1000 && since >= 200 {
            self.rate = (0.85 * delivered).min(self.rate);
            (self.near, self.changed) = (Some(delivered), now_ms);
        } else if queue < 30_000 && since >= 500 {
            let (all, lost) = std::mem::take(&mut self.told);
            let loss = lost as f64 / all.max(1) as f64;
            let near = self.near.filter(|near| (0.8 * near..1.2 * near).contains(&self.rate));
            self.rate = match near {
                _ if loss > 0.1 => self.rate * (1.0 - loss / 2.0),
                _ if loss > 0.02 => self.rate,
                Some(_) => self.rate * 1.02,
                None => self.rate * 1.08,
            };
            self.rate = self.rate.min(MOST);
            self.changed = now_ms;
        }
    }
}

struct Loop {
    start: Instant,
    sender: Sender,
    recorder: ArrivalRecorder,
    /// Rate of the line in bits per second.
    line: u64,
    queue_ms: u64,
    /// Loss in each direction in thousandths.
    loss: u64,
    random: Random,
    now_ms: u64,
    free: u64,
    flying: VecDeque<(u64, u16)>,
    feedback: VecDeque<(u64, Vec<u8>)>,
}

impl Loop {
    fn new(seed: u64) -> Self {
        let start = netsim::Clock::new().now();
        let sender = Sender {
            rate: 1_000_000.0,
            next: 65_000,
            sent: HashMap::new(),
            came: VecDeque::new(),
            base: None,
            queue: 0,
            near: None,
            told: (0, 0),
            changed: 0,
        };
        Self {
            start,
            sender,
            recorder: ArrivalRecorder::new(start),
            line: 10_000_000,
            queue_ms: 500,
            loss: 0,
            random: Seed::from_number(seed).random(),
            now_ms: 0,
            free: 0,
            flying: VecDeque::new(),
            feedback: VecDeque::new(),
        }
    }

    /// Sends a frame in packets that are spread over its time and returns the number of bits.
    fn send(&mut self) -> u64 {
        let mut left = (self.sender.rate * 0.033 / 8.0) as u64;
        let bits = left * 8;
        while left > 0 {
            let bytes = left.min(1200);
            left -= bytes;
            let number = self.sender.next;
            self.sender.next = number.wrapping_add(1);
            self.sender.sent.insert(number, (self.now_ms * 1000, bytes));
            let free = self.free.max(self.now_ms * 1000);
            let is_full = free - self.now_ms * 1000 > self.queue_ms * 1000;
            if is_full || self.random.below(1000) < self.loss {
                continue;
            }
            self.free = free + bytes * 8_000_000 / self.line;
            self.flying.push_back((self.free + LATENCY_MS * 1000, number));
        }
        bits
    }

    /// Runs for a second and returns the number of sent bits and the queue at the end in ms.
    fn second(&mut self) -> (u64, u64) {
        let mut bits = 0;
        for _ in 0..1000 {
            if self.now_ms.is_multiple_of(33) {
                bits += self.send();
            }
            let micros = self.now_ms * 1000;
            while let Some((at, number)) = self.flying.pop_front_if(|(at, _)| *at <= micros) {
                self.recorder.handle_packet(self.start + Duration::from_micros(at), number);
            }
            let now = self.start + Duration::from_micros(micros);
            loop {
                let mut out = Compound::new(1200);
                if !self.recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut out) {
                    break;
                }
                if self.random.below(1000) >= self.loss {
                    self.feedback.push_back((self.now_ms + LATENCY_MS, out.into_bytes()));
                }
            }
            while let Some((_, bytes)) = self.feedback.pop_front_if(|(at, _)| *at <= self.now_ms) {
                for part in packets(&bytes) {
                    if let Ok(Rtcp::TransportFeedback(feedback)) = part {
                        self.sender.handle_feedback(self.now_ms, &feedback);
                    }
                }
            }
            self.now_ms += 1;
        }
        (bits, self.free.saturating_sub(self.now_ms * 1000) / 1000)
    }

    fn run(&mut self, seconds: usize) -> Vec<(u64, u64)> {
        (0..seconds).map(|_| self.second()).collect()
    }
}

/// Checks that from the fourth second on the sender sends no more than the line carries, and that it becomes fast again
/// with the line.
#[test]
fn a_sender_that_follows_arrival_times_settles_and_rises() {
    let mut failed = Vec::new();
    println!(
        "line kb/s, queue ms, loss | sent in 4..20 s, share of the line | longest queue | seconds to rise"
    );
    for line in [300_000, 600_000, 1_000_000, 1_800_000] {
        for (queue_ms, loss) in [(100, 0), (500, 0), (2000, 0), (500, 20), (500, 50)] {
            let mut path = Loop::new(1);
            path.loss = loss;
            path.run(30);
            let start = path.sender.rate;
            (path.line, path.queue_ms) = (line, queue_ms);
            let low = path.run(20);
            let mean = low[3..].iter().map(|(bits, _)| bits).sum::<u64>() / 17;
            let settled = mean * 100 / line;
            let queue = low[6..].iter().map(|(_, queue)| *queue).max().unwrap();
            path.line = 10_000_000;
            let high = path.run(40);
            let rises = high.iter().position(|(bits, _)| *bits as f64 > start * 0.8).unwrap_or(99);
            println!("{} {queue_ms} {loss} | {settled} % | {queue} ms | {rises} s", line / 1000);
            // A queue of two seconds takes its time to drain. While the path loses packets, the model of a
            // sender only holds its rate.
            let queue_most = if queue_ms > 500 { 1200 } else { 100 };
            let rises_late = loss == 0 && rises > 25;
            if !(75..=104).contains(&settled) || queue > queue_most || rises_late {
                failed.push((line, queue_ms, loss, settled, queue, rises));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
