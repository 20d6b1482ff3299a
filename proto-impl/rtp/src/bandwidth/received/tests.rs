//! Tests of the requested rate, alone and in a closed loop with a model of an obedient sender.

use std::collections::VecDeque;

use super::*;

/// Handles a second of packets at `bits` bits per second.
fn second(rate: &mut ReceivedRate, now: &mut Instant, bits: u64) {
    for _ in 0..100 {
        rate.handle_packet(*now, usize::try_from(bits / 800).unwrap());
        *now += Duration::from_millis(10);
    }
}

#[test]
fn it_grows_with_what_comes_and_shrinks_with_losses() {
    let mut now = netsim::Clock::new().now();
    let mut rate = ReceivedRate::new(now, 20_000_000);
    assert_eq!(rate.report(now, 0), 2_000_000);
    let mut told = 0;
    for _ in 0..14 {
        second(&mut rate, &mut now, told.clamp(1_000_000, 8_000_000));
        told = rate.report(now, 0);
    }
    assert!((16_400_000..=16_500_000).contains(&told), "twice what comes, and half a megabit: {told}");
    second(&mut rate, &mut now, 8_000_000);
    assert_eq!(rate.report(now, 50), told, "a little is lost: it stays");
    second(&mut rate, &mut now, 4_000_000);
    second(&mut rate, &mut now, 4_000_000);
    let less = rate.report(now, 400);
    assert!((3_000_000..4_000_000).contains(&less), "{less}");
    for _ in 0..20 {
        second(&mut rate, &mut now, 20_000_000);
        told = rate.report(now, 0);
    }
    assert_eq!(told, 20_000_000);
}

/// Closed loop of a line with a queue and a sender that follows the requested rate, up to 2.5 Mb/s.
struct Loop {
    start: Instant,
    rate: ReceivedRate,
    queue_delay: QueueDelay,
    /// Rate of the line in bits per second.
    line: u64,
    queue_ms: u64,
    loss: u64,
    random: crypto::Random,
    now_ms: u64,
    /// Time from which on the line is idle, in microseconds.
    free: u64,
    /// Packets in flight: arrival, timestamp, bytes.
    flying: VecDeque<(u64, u32, usize)>,
    /// Last rate that the sender has received.
    heard: u64,
    telling: VecDeque<(u64, u64)>,
    sent: u64,
    lost: u64,
}

/// Measurements over one second of a run.
#[derive(Debug, Clone, Copy)]
struct Second {
    sent_bits: u64,
    /// Queue at the end of the second in ms.
    queue_ms: u64,
}

const MOST: u64 = 2_500_000;
const LATENCY_MS: u64 = 40;

impl Loop {
    fn new(seed: u64, line: u64) -> Self {
        let start = netsim::Clock::new().now();
        Self {
            start,
            rate: ReceivedRate::new(start, 20_000_000),
            queue_delay: QueueDelay::new(start, 90_000),
            line,
            queue_ms: 500,
            loss: 0,
            random: crypto::Seed::from_number(seed).random(),
            now_ms: 0,
            free: 0,
            flying: VecDeque::new(),
            heard: 1_000_000,
            telling: VecDeque::new(),
            sent: 0,
            lost: 0,
        }
    }

    /// Sends a frame in packets, called every 33 ms. A key frame of five times the size is sent every 3 s.
    fn send(&mut self) -> u64 {
        let frame = self.now_ms / 33;
        let mut left = self.heard.min(MOST) * 33 / 1000 / 8;
        left = if frame.is_multiple_of(90) { left * 5 } else { left * 85 / 88 };
        let bits = left * 8;
        while left > 0 {
            let bytes = left.min(1200);
            left -= bytes;
            self.sent += 1;
            let free = self.free.max(self.now_ms * 1000);
            let is_full = free - self.now_ms * 1000 > self.queue_ms * 1000;
            if is_full || self.random.below(1000) < self.loss {
                self.lost += 1;
                continue;
            }
            self.free = free + bytes * 8_000_000 / self.line;
            let timestamp = u32::try_from(frame * 33 * 90).unwrap();
            self.flying.push_back((self.free / 1000 + LATENCY_MS, timestamp, bytes.try_into().unwrap()));
        }
        bits
    }

    fn second(&mut self) -> Second {
        let mut sent_bits = 0;
        for _ in 0..1000 {
            if self.now_ms.is_multiple_of(33) {
                sent_bits += self.send();
            }
            while let Some((at, timestamp, bytes)) = self.flying.pop_front_if(|(at, ..)| *at <= self.now_ms) {
                let now = self.start + Duration::from_millis(at);
                self.rate.handle_packet(now, bytes);
                if let Some(queue) = self.queue_delay.handle_packet(now, timestamp) {
                    self.rate.handle_queue(queue);
                }
            }
            while let Some((_, bits)) = self.telling.pop_front_if(|(at, _)| *at <= self.now_ms) {
                self.heard = bits;
            }
            let now = self.start + Duration::from_millis(self.now_ms);
            if self.now_ms % 1000 == 500 || self.rate.is_urgent(now) {
                let loss = (self.lost * 1000).checked_div(self.sent).unwrap_or(0);
                (self.sent, self.lost) = (0, 0);
                let told = self.rate.report(now, u16::try_from(loss).unwrap());
                self.telling.push_back((self.now_ms + LATENCY_MS, told));
            }
            self.now_ms += 1;
        }
        Second { sent_bits, queue_ms: self.free.saturating_sub(self.now_ms * 1000) / 1000 }
    }

    fn run(&mut self, seconds: usize) -> Vec<Second> {
        (0..seconds).map(|_| self.second()).collect()
    }
}

fn mean(seconds: &[Second]) -> u64 {
    seconds.iter().map(|second| second.sent_bits).sum::<u64>() / seconds.len() as u64
}

/// Checks a line whose rate drops for a while: from the fourth second on, the line carries all data sent, and
/// after the drop the rate rises again.
#[test]
fn a_sender_settles_at_what_passes_and_rises_again() {
    let mut failed = Vec::new();
    println!(
        "line kb/s, queue ms | sent in 4..20 s, share of the line | longest queue from 7 s on | seconds to rise"
    );
    for line in [300_000, 600_000, 1_000_000, 1_800_000] {
        for queue_ms in [20, 100, 500, 2000] {
            let mut path = Loop::new(1, 10_000_000);
            path.run(10);
            (path.line, path.queue_ms) = (line, queue_ms);
            let low = path.run(20);
            let settled = mean(&low[3..]) * 100 / line;
            let queue = low[6..].iter().map(|second| second.queue_ms).max().unwrap();
            path.line = 10_000_000;
            let high = path.run(25);
            let rises = high.iter().position(|second| second.sent_bits > MOST * 8 / 10).unwrap_or(99);
            println!("{} {queue_ms} | {settled} % | {queue} ms | {rises} s", line / 1000);
            if !(55..=103).contains(&settled) || queue > 450 || rises > 20 {
                failed.push((line, queue_ms, settled, queue, rises));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Checks that loss unrelated to the rate does not stop a sender.
#[test]
fn loss_of_the_path_does_not_starve_a_sender() {
    for loss in [0, 20, 50, 100, 150, 300] {
        for seed in 0..3 {
            let mut path = Loop::new(seed, 10_000_000);
            path.loss = loss;
            let all = path.run(40);
            let share = mean(&all[20..]) * 100 / MOST;
            println!("{loss}/1000 lost: {share} % of the most");
            assert!(share >= 60, "{loss} {seed}: {all:#?}");
        }
    }
}

/// Checks that a queue filled by the traffic of others does not stop the sender.
#[test]
fn a_queue_of_others_does_not_starve_a_sender() {
    let mut path = Loop::new(1, 10_000_000);
    path.run(10);
    let (mut told, mut now) = (MOST, path.now_ms);
    for _ in 0..30 {
        for _ in 0..30 {
            now += 33;
            let at = path.start + Duration::from_millis(now);
            path.rate.handle_packet(at, usize::try_from(told.min(MOST) * 33 / 8000).unwrap());
            path.rate.handle_queue(Duration::from_millis(150));
        }
        told = path.rate.report(path.start + Duration::from_millis(now), 0);
    }
    assert!(told >= 1_000_000, "{told}");
}

#[test]
fn the_queue_is_seen_at_the_first_packet_of_each_frame() {
    let start = netsim::Clock::new().now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut delay = QueueDelay::new(start, 90_000);
    let mut seen = Vec::new();
    // Frames every 33 ms, in four packets over 20 ms; frames 5 to 7 are 80 ms late.
    for frame in 0..10u64 {
        let late = if (5..8).contains(&frame) { 80 } else { 0 };
        for packet in 0..4 {
            let timestamp = u32::MAX.wrapping_add(u32::try_from(frame * 33 * 90).unwrap());
            let queue = delay.handle_packet(at(100 + frame * 33 + late + packet * 5), timestamp);
            seen.extend(queue.map(|queue| queue.as_millis()));
        }
        // A repeated packet, of an earlier frame.
        assert_eq!(delay.handle_packet(at(130 + frame * 33 + late), u32::MAX.wrapping_sub(3000)), None);
    }
    assert_eq!(seen, [0, 0, 0, 0, 0, 80, 80, 80, 0, 0]);
    // The path is longer from now on: after two windows, the delay counts as that of the path.
    let mut longer = Vec::new();
    for second in 1..70u64 {
        let timestamp = u32::MAX.wrapping_add(u32::try_from(second * 90_000).unwrap());
        longer.extend(delay.handle_packet(at(200 + second * 1000), timestamp));
    }
    let first = longer[0].as_millis();
    assert!((90..=100).contains(&first) && longer[68].is_zero(), "{longer:?}");
    // A jump of the sender's clock is not a queue.
    let leap = delay.handle_packet(at(90_000), u32::MAX.wrapping_add(70 * 90_000));
    assert_eq!(leap.map(|queue| queue.as_millis()), Some(0));
}
