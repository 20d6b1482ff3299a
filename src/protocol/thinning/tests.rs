//! A viewer behind a line of a fixed rate. Pictures that the line has not carried yet wait in a queue at the sender.

use bytes::Bytes;
use media::codec::{CodecConfig, h265, vp9};

use super::*;

/// Distance of pictures in milliseconds; then the mean bit rate of the stream in bits per second.
const PERIOD_MS: u64 = 40;
const RATE: u64 = 2_500_000;

/// The dependencies of pictures on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Each picture refers to the one before.
    Chain,
    /// No picture refers to any picture with an odd number.
    Free,
    /// H.265 with two sub-layers; the pictures of the upper one also refer to each other.
    Layers,
}

fn config(shape: Shape) -> CodecConfig {
    if shape == Shape::Layers {
        let record = include_bytes!("../../../fuzz/corpus/hevc_config/x265_320x180");
        CodecConfig::H265(h265::Config::read(Bytes::from_static(record)).unwrap())
    } else {
        CodecConfig::Vp9(
            vp9::Config::read(Bytes::from_static(&[1, 0, 0, 0, 0, 0x0b, 0x82, 2, 2, 2, 0, 0])).unwrap(),
        )
    }
}

/// Dependencies of the picture of this number in its GOP.
fn needs(shape: Shape, number: u64) -> Dependency {
    let upper = number % 2 == 1;
    let frame: &[u8] = match (shape, upper) {
        (Shape::Chain, _) => &[0x86, 0, 0x40, 0x92, 0],
        // VP9 with error resilience: an upper picture replaces no reference slot (`refresh_frame_flags` is 0), a
        // lower one slot 0.
        (Shape::Free, true) => &[0x87, 0x00, 0x02, 0x4b, 0x0c],
        (Shape::Free, false) => &[0x87, 0x01, 0x02, 0x4b, 0x0c],
        // NAL units of the types STSA_R and TRAIL_R.
        (Shape::Layers, true) => &[0, 0, 0, 3, 1 << 1, 2, 0x80],
        (Shape::Layers, false) => &[0, 0, 0, 3, 1 << 1, 1, 0x80],
    };
    Dependency::of(&config(shape), number == 0, frame)
}

/// A picture that has arrived. `number` is the time at which it was sampled, in units of 40 ms.
#[derive(Debug, Clone, Copy)]
struct Shown {
    number: u64,
    is_key: bool,
    at_ms: u64,
    late_ms: u64,
}

struct Line {
    thinning: Thinning,
    now: Instant,
    ms: u64,
    /// Bits that wait to be carried by the line.
    waiting: u64,
    /// Key frames that were asked for.
    asked: u64,
    shown: Vec<Shown>,
    sent_bits: u64,
    /// Bits that the line could have carried while nothing waited.
    idle_bits: u64,
    /// Sizes of key frames in multiples of another picture's size; key frames have the two sizes alternately.
    keys: [u64; 2],
}

impl Line {
    fn new() -> Self {
        Self {
            thinning: Thinning::default(),
            now: Instant::now(),
            ms: 0,
            waiting: 0,
            asked: 0,
            shown: Vec::new(),
            sent_bits: 0,
            idle_bits: 0,
            keys: [8, 8],
        }
    }

    /// Sends pictures over a line of this many bits per second. Every `gop` pictures there is a key frame, on
    /// average eight times as large as the others.
    fn run(&mut self, shape: Shape, gop: u64, pictures: u64, line: u64) {
        let other = RATE * PERIOD_MS / 1000 * gop / (gop + 7);
        for n in 0..pictures {
            let is_key = n % gop == 0;
            let key = self.keys[usize::try_from(n / gop % 2).unwrap()];
            let bits = if is_key { key * other } else { other };
            let load = Load {
                queued: Duration::from_micros(self.waiting * 1_000_000 / line),
                budget: Some(line),
                hint: None,
            };
            let at = self.now + Duration::from_millis(self.ms);
            let picture =
                Picture { needs: needs(shape, n % gop), is_key, bytes: usize::try_from(bits / 8).unwrap() };
            if is_key && Thinning::is_full(load) {
                // The waiting pictures are dropped, and therefore not shown. They are the ones that were sampled
                // last.
                let kept = self.ms;
                self.shown.retain(|shown| shown.at_ms <= kept);
                self.waiting = 0;
            }
            let load = Load { queued: Duration::from_micros(self.waiting * 1_000_000 / line), ..load };
            if self.thinning.passes(at, picture, load) {
                self.waiting += bits;
                self.sent_bits += bits;
                let late_ms = self.waiting * 1000 / line;
                self.shown.push(Shown { number: n, is_key, at_ms: self.ms + late_ms, late_ms });
            } else if self.thinning.needs_key(at, load) {
                self.asked += 1;
            }
            self.idle_bits += (line * PERIOD_MS / 1000).saturating_sub(self.waiting);
            self.waiting = self.waiting.saturating_sub(line * PERIOD_MS / 1000);
            self.ms += PERIOD_MS;
        }
    }

    /// Returns the longest distance and the longest delay, in milliseconds, of the pictures shown from `from_ms`
    /// on.
    fn worst(&self, from_ms: u64) -> (u64, u64) {
        let shown: Vec<&Shown> = self.shown.iter().filter(|shown| shown.at_ms >= from_ms).collect();
        let gap = shown.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms).max().unwrap_or(0);
        (gap, shown.iter().map(|shown| shown.late_ms).max().unwrap_or(0))
    }
}

fn key_ms(gop: u64, line: u64) -> u64 {
    let other = RATE * PERIOD_MS / 1000 * gop / (gop + 7);
    8 * other * 1000 / line
}

#[test]
fn a_line_that_carries_the_stream_gets_all_of_it() {
    for shape in [Shape::Chain, Shape::Free, Shape::Layers] {
        for percent in [105, 120, 400] {
            let mut line = Line::new();
            line.run(shape, 50, 1000, RATE * percent / 100);
            assert_eq!((line.shown.len(), line.thinning.left_out()), (1000, 0), "{shape:?} at {percent} %");
        }
    }
}

#[test]
fn a_path_of_which_nothing_is_known_gets_all_of_it() {
    let mut thinning = Thinning::default();
    let load = Load { queued: Duration::from_secs(9), budget: None, hint: None };
    for n in 0..100 {
        let picture = Picture { needs: needs(Shape::Chain, n), is_key: n == 0, bytes: 10_000 };
        assert!(!Thinning::is_full(load) && thinning.passes(Instant::now(), picture, load));
    }
}

#[test]
fn a_narrow_line_gets_the_beginning_of_each_gop_in_time() {
    for gop in [25, 50, 100, 250] {
        for percent in [90, 75, 60, 45] {
            let rate = RATE * percent / 100;
            let mut line = Line::new();
            line.run(Shape::Chain, gop, gop * 8, rate);
            let (gap, late) = line.worst(gop * PERIOD_MS);
            let key = key_ms(gop, rate);
            assert!(
                late <= 500 + key + PERIOD_MS,
                "GOP {gop} at {percent} %: {late} ms late, a key frame takes {key}"
            );
            let keys = line.shown.iter().filter(|shown| shown.is_key).count();
            assert_eq!(keys, 8, "GOP {gop} at {percent} %");
            // The line's capacity is used, as far as pictures may wait.
            let share = line.shown.len() * 100 / usize::try_from(gop * 8).unwrap();
            let in_time_ms = 500 * percent / (100 - percent);
            let may = (percent * 6 / 10).min(80 * in_time_ms / (gop * PERIOD_MS));
            assert!(
                share >= usize::try_from(may).unwrap(),
                "GOP {gop} at {percent} %: {share} % of pictures"
            );
            if gop <= 50 && percent == 60 {
                assert!(gap * 100 <= gop * PERIOD_MS * 45, "GOP {gop}: a freeze of {gap} ms");
            }
        }
    }
}

/// Checks key frames of different sizes: after a small one there is room for more pictures, and after a large one the
/// queue is short when the next one arrives.
#[test]
fn a_line_is_never_idle_and_never_late_whatever_the_key_frames_are() {
    for (keys, gop) in [([8, 8], 50), ([4, 12], 50), ([2, 14], 50), ([4, 12], 25), ([4, 12], 100)] {
        for percent in [75, 60] {
            let rate = RATE * percent / 100;
            let mut line = Line::new();
            line.keys = keys;
            line.run(Shape::Chain, gop, gop * 4, rate);
            line.idle_bits = 0;
            line.run(Shape::Chain, gop, gop * 8, rate);
            let idle = line.idle_bits * 100 / (rate * gop * 8 * PERIOD_MS / 1000);
            let (gap, late) = line.worst(gop * PERIOD_MS * 4);
            let name = format!("{keys:?} of {gop} at {percent} %: {idle} % idle, {gap} ms, {late} ms late");
            let key = key_ms(gop, rate) * keys[1] / 8;
            assert!(idle <= 2 || gop > 50, "{name}");
            assert!(late <= 500 + key + PERIOD_MS, "{name}, a key frame takes {key}");
            assert!(line.shown.iter().filter(|shown| shown.is_key).count() == 12, "{name}");
        }
    }
}

#[test]
fn pictures_that_none_needs_are_left_out_first_and_evenly() {
    // Pictures with even numbers must be sent, because others refer to them. The more of the line's rate they leave
    // free, the longer each trial of sending all pictures lasts.
    for (percent, odd_max) in [(60, 10), (70, 15), (80, 25)] {
        let rate = RATE * percent / 100;
        let mut line = Line::new();
        line.run(Shape::Free, 50, 1000, rate);
        let late_ones: Vec<&Shown> = line.shown.iter().filter(|shown| shown.number >= 100).collect();
        let odd = late_ones.iter().filter(|shown| shown.number % 2 == 1).count();
        assert!(late_ones.len() * 100 >= 900 * 49, "{percent} %: {} of 900", late_ones.len());
        assert!(odd * 100 <= 900 * odd_max, "{percent} %: {odd} of those that none needs");
        let steps: Vec<u64> = late_ones.windows(2).map(|pair| pair[1].number - pair[0].number).collect();
        let uneven: Vec<_> = steps.iter().zip(&late_ones).filter(|(step, _)| **step > 2).collect();
        assert!(uneven.is_empty(), "{percent} %: {uneven:?}");
    }
}

#[test]
fn upper_layers_go_before_the_base() {
    let rate = RATE * 65 / 100;
    let mut line = Line::new();
    line.run(Shape::Layers, 50, 1000, rate);
    let base = line.shown.iter().filter(|shown| shown.number % 2 == 0).count();
    assert!(base >= 480, "{base} of 500 pictures of the base");
}

#[test]
fn what_is_shown_can_always_be_decoded() {
    for shape in [Shape::Chain, Shape::Free, Shape::Layers] {
        let mut line = Line::new();
        for (n, percent) in [100, 30, 120, 60, 10, 200, 50].into_iter().enumerate() {
            let gop = [50, 25, 100][n % 3];
            line.run(shape, gop, gop * 4, RATE * percent / 100);
            let mut decoder = Received::default();
            let mut last = None;
            for shown in std::mem::take(&mut line.shown) {
                for between in last.map_or(0, |last: u64| last + 1)..shown.number {
                    decoder.left_out(needs(shape, between % gop));
                }
                let picture = needs(shape, shown.number % gop);
                assert!(decoder.can_decode(picture), "{shape:?} at {percent} %: {shown:?}");
                decoder.sent(picture);
                last = Some(shown.number);
            }
        }
    }
}

#[test]
fn behind_a_cut_all_pictures_are_tried_again_and_less_often_when_that_fails() {
    let mut line = Line::new();
    line.run(Shape::Free, 50, 250, RATE * 60 / 100);
    assert!(line.thinning.left_out() > 50);
    line.run(Shape::Free, 50, 250, RATE * 2);
    let before = line.thinning.left_out();
    line.run(Shape::Free, 50, 250, RATE * 2);
    assert_eq!(line.thinning.left_out(), before, "five seconds later it gets all");
    // The line carries more than the referenced pictures need, but less than all pictures need. Each trial of sending
    // all pictures costs some delay, so trials become rare.
    let mut line = Line::new();
    line.run(Shape::Free, 50, 2500, RATE * 80 / 100);
    let odd = |from: u64| line.shown.iter().filter(|one| one.number >= from && one.number % 2 == 1).count();
    assert!(odd(0) > odd(1250) * 2, "{} then {}", odd(0), odd(1250));
}

#[test]
fn a_picture_that_stands_has_a_key_frame_asked_for_less_and_less_often() {
    let mut line = Line::new();
    // A publisher that sends one key frame in a minute.
    line.run(Shape::Chain, 1500, 1500, RATE / 2);
    assert!((6..=9).contains(&line.asked), "{}", line.asked);
    let mut line = Line::new();
    line.run(Shape::Chain, 50, 1000, RATE * 60 / 100);
    assert_eq!(line.asked, 0, "one comes before it has waited");
}

/// Asks the thinning about single pictures, under loads that the test states.
struct Judge {
    thinning: Thinning,
    now: Instant,
}

impl Judge {
    /// Makes a judge that has sent one key frame, which takes 80 ms on a line of 1 Mb/s.
    fn new() -> Self {
        let mut judge = Self { thinning: Thinning::default(), now: Instant::now() };
        assert!(judge.picture(Shape::Free, 0, 10_000, Some(0)));
        judge
    }

    fn picture(&mut self, shape: Shape, number: u64, bytes: usize, queued_ms: Option<u64>) -> bool {
        let load = Load {
            queued: Duration::from_millis(queued_ms.unwrap_or(0)),
            budget: queued_ms.map(|_| 1_000_000),
            hint: None,
        };
        let picture = Picture { needs: needs(shape, number), is_key: number == 0, bytes };
        self.thinning.passes(self.now, picture, load)
    }

    /// Offers unreferenced pictures for this many milliseconds at this load. Returns true if the last one passed.
    fn free(&mut self, millis: u64, queued_ms: u64) -> bool {
        let mut passed = false;
        for _ in 0..millis / PERIOD_MS {
            self.now += Duration::from_millis(PERIOD_MS);
            passed = self.picture(Shape::Free, 1, 100, Some(queued_ms));
        }
        passed
    }

    fn asks(&mut self, millis: u64, queued_ms: u64) -> bool {
        self.now += Duration::from_millis(millis);
        let load = Load { queued: Duration::from_millis(queued_ms), budget: Some(1_000_000), hint: None };
        self.thinning.needs_key(self.now, load)
    }
}

#[test]
fn a_trial_that_fails_soon_doubles_the_time_until_the_next() {
    let mut judge = Judge::new();
    assert!(judge.free(400, 280) && !judge.free(400, 290), "200 ms beyond the key frame");
    assert!(!judge.free(10_000, 140), "a queue that is not short is not calm");
    assert!(!judge.free(2900, 100) && judge.free(200, 100), "three seconds of calm");
    assert!(!judge.free(400, 290), "and at once full again");
    assert!(!judge.free(5900, 100) && judge.free(200, 100), "six seconds");
    assert!(!judge.free(400, 290) && !judge.free(11_900, 100) && judge.free(200, 100), "twelve");
    // A trial that ends in a full queue only after a long time does not count as a failure.
    assert!(judge.free(8000, 100) && !judge.free(400, 290));
    assert!(!judge.free(2900, 100) && judge.free(200, 100));
    // A path that is no longer known to be narrow is tried immediately.
    assert!(!judge.free(400, 290));
    assert!(judge.picture(Shape::Free, 1, 100, None) && judge.free(40, 100));
}

#[test]
fn a_key_frame_counts_for_four_seconds_at_most_and_of_its_own_track() {
    let mut judge = Judge::new();
    judge.now += Duration::from_secs(20);
    assert!(judge.picture(Shape::Chain, 0, 10_000_000, Some(0)));
    assert!(judge.picture(Shape::Chain, 1, 100, Some(4400)));
    assert!(!judge.picture(Shape::Chain, 1, 100, Some(4600)));
    // The next key frame is due in a second. A picture is left out if the queue takes longer than until then and a
    // little more.
    judge.now += Duration::from_secs(19);
    assert!(!judge.picture(Shape::Chain, 1, 100, Some(1200)));
    // The queue may be longer by the time that the last key frame took. From the second key frame on, this allowance
    // falls to zero by the middle of the GOP.
    let mut judge = Judge::new();
    judge.now += Duration::from_secs(2);
    assert!(judge.picture(Shape::Free, 0, 50_000, Some(0)));
    judge.now += Duration::from_millis(500);
    assert!(judge.picture(Shape::Free, 1, 100, Some(390)) && !judge.picture(Shape::Free, 1, 100, Some(410)));
    let mut judge = Judge::new();
    judge.now += Duration::from_millis(40);
    judge.thinning.switch();
    assert!(judge.picture(Shape::Free, 0, 50_000, Some(0)));
    judge.now += Duration::from_millis(500);
    assert!(judge.picture(Shape::Free, 1, 100, Some(590)) && !judge.picture(Shape::Free, 1, 100, Some(610)));
}

#[test]
fn a_key_frame_is_asked_for_when_a_picture_stands_and_the_path_is_free() {
    let mut judge = Judge::new();
    assert!(!judge.free(400, 290) && !judge.asks(9000, 0), "others need no free picture");
    assert!(!judge.picture(Shape::Chain, 1, 100, Some(600)));
    assert!(!judge.asks(1900, 0) && !judge.asks(200, 60) && judge.asks(0, 50));
    assert!(!judge.asks(3900, 0) && judge.asks(200, 0), "twice as long");
    assert!(!judge.asks(7900, 0) && judge.asks(200, 0) && !judge.asks(7900, 0) && judge.asks(200, 0));
    assert!(judge.picture(Shape::Chain, 0, 100, Some(0)) && !judge.asks(31_000, 0));
    assert!(!judge.picture(Shape::Chain, 1, 100, Some(600)));
    assert!(!judge.asks(1900, 0) && judge.asks(200, 0), "it is forgiven");
}

/// Returns the rates at which a path is probed within this many milliseconds, with one picture every 40 ms. No
/// probe has a result.
fn probes(judge: &mut Judge, millis: u64, load: Load) -> Vec<u64> {
    let mut probes = Vec::new();
    for _ in 0..millis / PERIOD_MS {
        judge.now += Duration::from_millis(PERIOD_MS);
        judge.thinning.probe(judge.now, load, |bits| {
            probes.push(bits);
            true
        });
    }
    probes
}

#[test]
fn a_path_that_seems_to_be_wider_is_probed_while_pictures_wait() {
    let load = |queued_ms, budget, hint| Load { queued: Duration::from_millis(queued_ms), budget, hint };
    let (narrow, hint) = (Some(1_000_000), Some(3_000_000));
    let mut judge = Judge::new();
    assert!(probes(&mut judge, 60_000, load(100, narrow, hint)).is_empty(), "all is sent");
    assert!(probes(&mut judge, 60_000, load(300, narrow, None)).is_empty(), "no hint");
    assert!(probes(&mut judge, 60_000, load(300, None, hint)).is_empty(), "no limit is known");
    assert_eq!(probes(&mut judge, 40, load(300, narrow, hint)), [3_000_000], "at once");
    // Probes follow after 2, 4, 8 and 16 seconds, and then every 32 seconds.
    assert_eq!(probes(&mut judge, 29_000, load(300, narrow, hint)).len(), 3);
    assert_eq!(probes(&mut judge, 2_000, load(300, narrow, hint)).len(), 1);
    assert_eq!(probes(&mut judge, 29_000, load(300, narrow, hint)).len(), 0);
    assert_eq!(probes(&mut judge, 4_000, load(300, narrow, hint)).len(), 1);
    // A path that has turned out wider is tried again soon.
    assert_eq!(probes(&mut judge, 2_000, load(300, Some(1_300_000), hint)).len(), 1);
}

#[test]
fn a_probe_that_cannot_begin_is_tried_with_the_next_picture() {
    let load = Load { queued: Duration::from_millis(300), budget: Some(1_000_000), hint: Some(3_000_000) };
    let mut judge = Judge::new();
    for _ in 0..3 {
        let mut asked = false;
        judge.thinning.probe(judge.now, load, |_| {
            asked = true;
            false
        });
        assert!(asked);
    }
}

#[test]
fn an_idle_path_of_a_picture_that_stands_is_probed_with_twice_the_rate() {
    let load = Load { queued: Duration::ZERO, budget: Some(1_000_000), hint: None };
    let mut judge = Judge::new();
    assert!(probes(&mut judge, 5_000, load).is_empty(), "no picture was left out");
    assert!(!judge.picture(Shape::Chain, 1, 10_000_000, Some(0)));
    assert!(probes(&mut judge, 360, load).is_empty(), "not idle for long");
    assert_eq!(probes(&mut judge, 80, load), [2_000_000]);
    // A hint causes an immediate probe, without the wait between two probes of an idle path.
    assert_eq!(probes(&mut judge, 40, Load { hint: Some(3_000_000), ..load }), [3_000_000]);
}
