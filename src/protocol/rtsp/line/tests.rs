//! Packets of two sections on a path that loses half of them, according to its reports.

use rtp::rtcp::{Compound, ReportBlock};

use super::*;

const VIDEO: Ssrc = Ssrc(0x0a0b_0c0d);
const SOUND: Ssrc = Ssrc(0x0102_0304);

struct Rig {
    line: Line,
    start: Instant,
    now: Instant,
    /// The next sequence numbers of both sections, as all viewers share them.
    next: [u16; 2],
    /// Packets that have left: section, number, length.
    left: Vec<(usize, u16, usize)>,
}

impl Rig {
    fn new() -> Self {
        let now = Instant::now();
        Self { line: Line::new(now), start: now, now, next: [65_530, 7], left: Vec::new() }
    }

    /// Queues a unit of this many packets of a kilobyte each.
    fn unit(&mut self, section: usize, packets: u16) {
        for n in 1..=packets {
            let ssrc = [VIDEO, SOUND][section];
            let marker = if n == packets { MARKER } else { 0 };
            let number = self.next[section];
            self.next[section] = number.wrapping_add(1);
            let mut head = vec![0x80, 96 | marker];
            head.extend(number.to_be_bytes());
            head.extend([0; 4]);
            head.extend(ssrc.0.to_be_bytes());
            self.line.push(path_of(section, false), section == 1, (head.into(), Bytes::from(vec![0; 988])));
        }
    }

    /// Lets datagrams leave for this many milliseconds.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            loop {
                let mut out = Datagrams::new();
                let path = self.line.poll_datagrams(self.now, &mut out);
                if out.is_empty() {
                    break;
                }
                let (section, _) = track_of(path.unwrap()).unwrap();
                for datagram in out.iter() {
                    self.left.push((section, u16::from_be_bytes([datagram[2], datagram[3]]), datagram.len()));
                }
            }
        }
    }

    /// Sends pictures of 20 packets for ten seconds (4 Mb/s), of which the viewer reports half
    /// lost.
    fn narrow(&mut self) {
        for n in 1..=10u32 {
            for _ in 0..25 {
                self.unit(0, 20);
                self.run(40);
            }
            let block = ReportBlock {
                ssrc: VIDEO,
                fraction_lost: 128,
                cumulative_lost: i32::try_from(n * 250).unwrap(),
                highest_sequence: 65_529 + n * 500,
                jitter: 0,
                last_sender_report: 0,
                delay_since_report: 0,
            };
            let mut compound = Compound::new(1200);
            compound.receiver_reports(Ssrc(1), &[block]);
            if self.line.handle_rtcp(self.now, compound.as_bytes()) {
                self.left.clear();
                return;
            }
        }
        panic!("the path is narrow");
    }

    fn numbers(&self, section: usize) -> Vec<u16> {
        self.left.iter().filter(|left| left.0 == section).map(|left| left.1).collect()
    }
}

#[test]
fn a_narrow_line_has_its_pace_and_sound_overtakes_pictures() {
    let mut rig = Rig::new();
    rig.narrow();
    let limit = rig.line.limit().unwrap();
    assert!((1_600_000..2_000_000).contains(&limit), "{limit}");
    assert_eq!(rig.line.queued(), Duration::ZERO);
    rig.unit(0, 100);
    rig.unit(1, 1);
    assert!(rig.line.queued() > Duration::from_millis(400), "{:?}", rig.line.queued());
    rig.run(100);
    assert_eq!(rig.left[0].0, 1, "{:?}", rig.left);
    let bits: usize = rig.left.iter().map(|left| left.2 * 80).sum();
    assert!(bits < usize::try_from(limit).unwrap() * 108 / 100, "{bits} {limit}");
    assert!(rig.line.poll_timeout().unwrap() > rig.now);
    rig.run(500);
    assert_eq!((rig.numbers(0).len(), rig.numbers(1), rig.line.poll_timeout()), (100, vec![7], None));
}

#[test]
fn what_is_dropped_is_no_gap_and_what_has_begun_is_ended() {
    let mut rig = Rig::new();
    rig.narrow();
    let first = rig.next[0];
    (0..3).for_each(|_| rig.unit(0, 20));
    rig.run(20);
    let begun = rig.left.len();
    assert!((1..20).contains(&begun), "{begun}");
    assert_eq!(rig.line.drop_unbegun(0), 2);
    assert_eq!(rig.line.drop_unbegun(0), 0);
    rig.unit(0, 10);
    rig.run(500);
    let expected: Vec<u16> = (0..30).map(|n| first.wrapping_add(n)).collect();
    assert_eq!((rig.numbers(0), rig.line.waiting_bytes()), (expected, 0));
    // Another source has its own numbers.
    rig.next[0] = 9;
    rig.line.push(path_of(0, false), false, (vec![0x80; 12].into(), Bytes::new()));
    rig.run(10);
    assert_eq!(rig.numbers(0).last(), Some(&0x8080));
}

#[test]
fn sound_beyond_the_path_is_dropped_and_is_never_late() {
    let mut rig = Rig::new();
    rig.narrow();
    // The audio has four times the bit rate that the path carries.
    for _ in 0..200 {
        rig.unit(1, 10);
        rig.run(10);
        assert!(rig.line.queued() <= SOUND_WAITS_MAX + Duration::from_millis(10), "{:?}", rig.line.queued());
    }
    rig.run(1000);
    let numbers = rig.numbers(1);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "no gap");
    assert!((300..800).contains(&numbers.len()) && rig.line.waiting_bytes() == 0, "{}", numbers.len());
}

#[test]
fn sound_keeps_its_order_when_the_line_becomes_narrow() {
    let mut rig = Rig::new();
    rig.unit(0, 2);
    (0..3).for_each(|_| rig.unit(1, 1));
    let waits = std::mem::take(&mut rig.line.waiting);
    rig.narrow();
    rig.line.waiting = waits;
    rig.line.sound_in_order = 3;
    rig.unit(1, 2);
    rig.run(200);
    assert_eq!(rig.numbers(1), [7, 8, 9, 10, 11]);
    rig.unit(0, 50);
    rig.unit(1, 1);
    rig.run(20);
    assert_eq!(rig.numbers(1).len(), 6, "the next one overtakes");
    assert!(rig.now > rig.start);
}

#[test]
fn a_key_frame_is_spread_for_a_distant_viewer_alone() {
    let after_ms = |rig: &mut Rig, ms| {
        rig.run(ms);
        rig.left.iter().map(|left| left.2).sum::<usize>()
    };
    let mut near = Rig::new();
    near.unit(0, 70);
    assert_eq!(after_ms(&mut near, 5), 70_000);
    let mut far = Rig::new();
    far.line.spread_for_distance();
    // A picture leaves immediately, a key frame in 25 ms.
    far.unit(0, 15);
    assert_eq!(after_ms(&mut far, 1), 15_000);
    far.run(40);
    far.left.clear();
    far.unit(0, 70);
    let first = after_ms(&mut far, 1);
    assert!((FAR_BYTES..FAR_BYTES + 1000).contains(&first), "{first}");
    let half = after_ms(&mut far, 12);
    assert!((40_000..55_000).contains(&half), "{half}");
    assert_eq!(after_ms(&mut far, 12), 70_000);
    // A stream of 100 Mb/s is not held up.
    far.left.clear();
    (0..10).for_each(|_| {
        far.unit(0, 125);
        far.run(10);
    });
    assert!(far.left.len() > 1000, "{}", far.left.len());
    far.run(60);
    assert_eq!(far.left.len(), 1250);
}
