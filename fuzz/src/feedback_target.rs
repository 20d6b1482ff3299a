//! Feedback about packets that were sent: a bandwidth estimate of whatever a receiver tells.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rtp::bandwidth::BandwidthEstimator;
use rtp::rtcp::{Rtcp, packets};

/// Bytes of a packet that is sent.
const PACKET: usize = 1200;
/// Bounds of an estimate, in bits per second.
const BITS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000_000;
/// Memory of an estimator at most: four bytes for each of 4096 packets, in a vector that doubles, and its own state.
const HELD_MAX: usize = (4096 * 2 * 4) + (4 << 10);

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Portions: how long to wait in steps of 4 ms, how many packets leave (64 more: a probe begins; 128: it ends), how
/// many bytes of feedback follow, and these as they come.
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
