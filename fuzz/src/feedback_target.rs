//! Feedback about sent packets: a bandwidth estimate from arbitrary reports of a receiver.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rtp::bandwidth::BandwidthEstimator;
use rtp::rtcp::{Rtcp, packets};

/// Size of each sent packet in bytes.
const PACKET: usize = 1200;
/// Limits of an estimate, in bits per second.
const BITS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000_000;
/// Maximum memory of an estimator: four bytes for each of 4096 packets, in a vector that doubles, and its own
/// state.
const HELD_MAX: usize = (4096 * 2 * 4) + (4 << 10);

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Runs an estimator. The input is a list of steps: a wait in units of 4 ms; the number of packets to send (plus
/// 64: a probe begins; plus 128: it ends); the number of bytes of feedback; the feedback.
pub fn rtp_feedback(data: &[u8]) {
    let mut now = epoch();
    let mut estimator = BandwidthEstimator::new();
    estimator.number_packets(now);
    let mut rest = data;
    while let [wait, sends, length, behind @ ..] = rest {
        now += Duration::from_millis(u64::from(*wait) * 4);
        if sends & 64 != 0 {
            estimator.begin_probe();
        }
        for _ in 0..sends % 64 {
            assert!(estimator.packet_sent(now, PACKET).is_some());
        }
        if sends & 128 != 0 {
            estimator.end_probe();
        }
        let (told, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        for part in packets(told).flatten() {
            match part {
                Rtcp::TransportFeedback(feedback) => estimator.handle_feedback(now, &feedback),
                Rtcp::Remb(remb) => estimator.handle_remb(now, remb.bitrate),
                Rtcp::ReceiverReport(report) => {
                    report.blocks().for_each(|block| estimator.handle_report(now, block.fraction_lost));
                }
                _ => {}
            }
        }
        for bits in
            [estimator.estimate(now), estimator.target(now), estimator.pace(now)].into_iter().flatten()
        {
            assert!(BITS.contains(&bits), "{bits}");
        }
        assert!(estimator.loss() <= 1000 && estimator.path_loss() <= 1000);
        assert!(estimator.held_bytes() <= HELD_MAX, "{}", estimator.held_bytes());
    }
}
