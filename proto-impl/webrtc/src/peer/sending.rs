//! The sending side of a session: its senders, the pacing of packets, the budget for video, and the backlog
//! that waits for the pacer.

use std::time::{Duration, Instant};

use rtp::bandwidth::BandwidthEstimator;
use rtp::history::{LoggedUnit, PacketLog};
use rtp::rtcp::Remb;
use rtp::{NtpAnchor, Ssrc};
use srtp::Outbound;
use wire::Datagrams;

use crate::negotiate::SectionId;
use crate::pacer::Pacer;
use crate::probe::Prober;
use crate::send::{Outflow, Purpose, Road, Sender};
use crate::stats::Stats;

/// Part of the estimate available to video, audio and retransmissions, in thousandths. The rest covers IP and
/// UDP headers (28 of about 1200 bytes), RTCP, and errors of the estimate.
const USABLE: u64 = 950;

/// Video queued by [`Peer::send`](super::Peer::send) and not yet sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// Payload bytes that are waiting.
    pub bytes: u64,
    /// Time until all these bytes have left at the current pace: the delay of a picture queued now.
    pub time: Duration,
}

/// Minimum rate of video, in bits per second, in addition to a quarter of the audio's rate. Only video can show whether
/// the path carries more: audio is never paced, and its packets may lack the sequence numbers that feedback needs.
const TRICKLE: u64 = 30_000;

/// Senders, and the bandwidth estimate of the path to the peer.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) senders: Vec<Sender>,
    pub(super) pacer: Pacer,
    pub(super) bandwidth: BandwidthEstimator,
    prober: Prober,
    outflow: Outflow,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            senders: Vec::new(),
            pacer: Pacer::new(),
            bandwidth: BandwidthEstimator::new(),
            prober: Prober::default(),
            outflow: Outflow::default(),
        }
    }
}

impl Sending {
    /// Returns the sender of a section.
    pub(super) fn of(&mut self, section: SectionId) -> Option<&mut Sender> {
        self.senders.iter_mut().find(|sender| sender.section == section)
    }

    /// Returns the source whose reported losses count as those of the path: the video that was sent last, because video
    /// has more packets than audio; without video, the first.
    pub(super) fn rated(&self) -> Option<Ssrc> {
        let video = self.senders.iter().rev().filter(|sender| sender.is_video());
        video.max_by_key(|sender| sender.newest()).or_else(|| self.senders.first()).map(Sender::ssrc)
    }

    /// Handles the receiver's estimate (draft-alvestrand-rmcat-remb-03), which covers only the sources that
    /// it lists. aiortc lists and measures only the video sources, so the rate of audio is added.
    pub(super) fn handle_remb(&mut self, now: Instant, remb: &Remb<'_>) {
        let is_audio = |ssrc| self.senders.iter().any(|sender| !sender.is_video() && sender.ssrc() == ssrc);
        let beside = if remb.ssrcs().any(is_audio) { 0 } else { self.outflow.bits(now, Purpose::Audio) };
        self.bandwidth.handle_remb(now, remb.bitrate.saturating_add(beside));
    }

    /// Queues a unit; see [`super::Peer::send`].
    pub(super) fn send(&mut self, section: SectionId, unit: &LoggedUnit, sampled: Instant) -> bool {
        let Some(sender) = self.senders.iter_mut().find(|sender| sender.section == section) else {
            return false;
        };
        self.pacer.queued(sampled, unit.bytes);
        sender.send(unit, sampled);
        true
    }

    /// Starts a probe if possible; see [`super::Peer::probe`].
    pub(super) fn probe(&mut self, now: Instant, bits: u64) -> bool {
        let can = self.bandwidth.numbers_packets()
            && (!self.bandwidth.is_congested(now) || self.bandwidth.hint().is_some())
            && self.senders.iter().any(Sender::can_pad);
        let begins = can && self.prober.begin(now, bits);
        if begins {
            self.bandwidth.begin_probe();
        }
        begins
    }

    /// Fills `out` with datagrams, no faster than `pace` bits per second.
    pub(super) fn fill<'l>(
        &mut self,
        now: Instant,
        pace: Option<u64>,
        keys: &mut Outbound,
        anchor: &NtpAnchor,
        log: &impl Fn(SectionId) -> Option<&'l PacketLog>,
        out: &mut Datagrams,
    ) {
        self.pacer.set_limit(pace);
        self.pacer.set_probe(self.prober.bits());
        self.pacer.set_pairs(self.bandwidth.reads_pairs());
        let Self { senders, pacer, bandwidth, prober, outflow } = self;
        let mut road = Road { keys, pacer, bandwidth, prober, outflow, anchor, out };
        fill(now, senders, log, &mut road);
    }

    /// Handles an expired deadline.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        // Ends an expired pause. Draining the senders would also end it, but needs the log of their track: after the
        // track is gone, the expired deadline would remain.
        self.pacer.may_send(now);
        let Self { senders, bandwidth, .. } = self;
        senders.iter_mut().for_each(|sender| sender.handle_timeout(now, bandwidth));
    }

    /// True if nothing waits to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.prober.poll_timeout().is_none() && !self.senders.iter().any(Sender::has_waiting)
    }

    /// Returns the next deadline of a sender, the pacer or a probe.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let paused = self.pacer.poll_timeout();
        let senders = self.senders.iter().filter_map(|sender| sender.poll_timeout(paused)).min();
        let waits = self.senders.iter().any(|sender| sender.is_video() && sender.has_waiting());
        let pacer = paused.filter(|_| waits);
        [senders, pacer, self.prober.poll_timeout()].into_iter().flatten().min()
    }

    /// Adds the counters of the senders.
    pub(super) fn fill_stats(&self, stats: &mut Stats) {
        if self.senders.is_empty() {
            return;
        }
        let resent = |sender: &Sender| (sender.section, sender.resend_stats());
        stats.sent = self.senders.iter().map(|sender| (sender.section, sender.sent)).collect();
        stats.resent = self.senders.iter().map(resent).collect();
        stats.skipped = self.senders.iter().map(|sender| sender.skipped).sum();
    }

    /// Frees everything that the session does not need after it has ended.
    pub(super) fn end(&mut self) {
        self.bandwidth = BandwidthEstimator::new();
        self.prober = Prober::default();
        self.senders.clear();
    }

    /// Returns the maximum rate for the pacer, in bits per second; `None` without a limit.
    pub(super) fn pace(&self, now: Instant) -> Option<u64> {
        let audio = self.outflow.bits(now, Purpose::Audio);
        let least = audio.saturating_add(audio / 4).saturating_add(TRICKLE);
        self.bandwidth.pace(now).map(|pace| pace.max(least))
    }

    /// Returns the budget of video; see [`super::Peer::video_budget`].
    pub(super) fn video_budget(&self, now: Instant) -> Option<u64> {
        let total = self.bandwidth.target(now)?;
        let others = [Purpose::Audio, Purpose::Repair].map(|purpose| self.outflow.bits(now, purpose));
        let usable = u128::from(total).saturating_mul(USABLE.into()) / 1000;
        let video = u64::try_from(usable).unwrap_or(u64::MAX).saturating_sub(others.iter().sum());
        Some(video.max(TRICKLE))
    }

    /// Returns the waiting video; see [`super::Peer::queued`].
    pub(super) fn queued(&self, now: Instant) -> Queued {
        let video = self.senders.iter().filter(|sender| sender.is_video());
        let bytes = video.map(Sender::waiting_bytes).fold(0, u64::saturating_add);
        Queued { bytes, time: self.pacer.time_for(now, bytes) }
    }
}

/// Maximum bytes of waiting video if audio is to be sent after the video. With more video, audio is sent first, so that
/// it does not wait for several sends.
const BEFORE_AUDIO_MAX: u64 = 32 << 10;

/// True if audio is sent after the video, as the shorter last datagram of the video's send, instead of in a send of its
/// own. This requires that the video leaves now and that its next packet is at least as long as the audio's.
fn follows<'l>(senders: &[Sender], log: &impl Fn(SectionId) -> Option<&'l PacketLog>, pacer: &Pacer) -> bool {
    let next = |is_video| {
        let those = senders.iter().filter(move |sender| sender.is_video() == is_video);
        those.filter_map(|sender| sender.next_bytes(log(sender.section)?)).next()
    };
    let video = senders.iter().filter(|sender| sender.is_video());
    let waits = video.map(Sender::waiting_bytes).fold(0, u64::saturating_add);
    let fits = pacer.is_free() && waits <= BEFORE_AUDIO_MAX;
    fits && next(true).is_some_and(|video| next(false).is_some_and(|audio| audio <= video))
}

/// Fills a run of datagrams. Audio is small and must not wait for video, so it is sent first, unless it can follow the
/// video in the same send.
fn fill<'l>(
    now: Instant,
    senders: &mut [Sender],
    log: &impl Fn(SectionId) -> Option<&'l PacketLog>,
    road: &mut Road<'_>,
) {
    let first = follows(senders, log, road.pacer);
    for video in [first, !first] {
        for sender in senders.iter_mut().filter(|sender| sender.is_video() == video) {
            let Some(log) = log(sender.section) else {
                sender.forget_repairs();
                continue;
            };
            if sender.has_waiting() && !sender.fill(now, log, road) {
                return;
            }
        }
    }
    let (due, padded, mut has_room) = (road.prober.due(now), road.out.len(), true);
    // Any video with recent packets serves as padding, while others are paused or have no track.
    for sender in senders.iter_mut().filter(|sender| due > 0 && sender.can_pad()) {
        let Some(log) = log(sender.section) else { continue };
        has_room = sender.pad(now, due, log, road);
        if !has_room || road.out.len() > padded {
            break;
        }
    }
    // Gives up the probe if padding is due but none could be sent, as after a pause, when there are no recent packets
    // to repeat.
    let is_vain = due > 0 && has_room && road.out.len() == padded;
    if is_vain {
        road.prober.give_up();
    }
    if is_vain || road.prober.ends(now) {
        road.bandwidth.end_probe();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rtp::rtcp::{Compound, Rtcp, packets};

    use super::*;
    use crate::negotiate::{Section, SectionFormat, SourcePair, offered_formats};

    fn sender(id: u8, kind: sdp::MediaKind) -> Sender {
        let local = offered_formats(media::Codec::Vp8, 96).remove(0);
        let section = Section {
            id: SectionId(id),
            mid: id.to_string(),
            kind,
            direction: sdp::Direction::SendOnly,
            formats: vec![SectionFormat { remote: local.clone(), local, rtx: None, red: None }],
            extensions: rtp::extension::ExtensionMap::new(),
            reduced_size: true,
            msid: None,
            layers: Vec::new(),
            remote_sources: Vec::new(),
            local_source: Some(SourcePair { ssrc: id.into(), rtx: None }),
        };
        let seed = crypto::Seed::from_number(1);
        let identity = dtls::Identity::self_signed(&seed).unwrap();
        let config = crate::Config::new(crate::IceMode::Full(Arc::default()), Arc::new(identity));
        Sender::new(&section, &config, &mut seed.random()).unwrap()
    }

    #[test]
    fn the_loss_is_that_of_the_video_that_is_sent() {
        let now = netsim::Clock::new().now();
        let mut sending = Sending::default();
        assert_eq!(sending.rated(), None);
        sending.senders.push(sender(1, sdp::MediaKind::Audio));
        assert_eq!(sending.rated(), Some(Ssrc(1)));
        sending.senders.extend([2, 3].map(|id| sender(id, sdp::MediaKind::Video)));
        assert_eq!(sending.rated(), Some(Ssrc(2)));
        let packet = PacketLog::new().next_id();
        let unit = LoggedUnit { packets: packet..packet.next(), timestamp: 0, bytes: 100 };
        for (ms, id, rated) in [(0, 3, 3), (1, 1, 3), (2, 2, 2), (3, 3, 3)] {
            assert!(sending.send(SectionId(id), &unit, now + Duration::from_millis(ms)));
            assert_eq!(sending.rated(), Some(Ssrc(rated)), "{ms}");
        }
    }

    #[test]
    fn an_estimate_of_the_video_alone_leaves_the_audio_beside_it() {
        let start = netsim::Clock::new().now();
        let mut sending = Sending::default();
        let mut now = start;
        for _ in 0..150 {
            sending.outflow.add(now, Purpose::Audio, 160);
            now += Duration::from_millis(20);
        }
        let mut out = Compound::new(1200);
        out.remb(Ssrc(1), 60_000, &[Ssrc(2)]);
        let Some(Ok(Rtcp::Remb(remb))) = packets(out.as_bytes()).next() else { panic!("an estimate") };
        sending.handle_remb(now, &remb);
        let estimate = sending.bandwidth.estimate(now).unwrap();
        assert!((120_000..128_000).contains(&estimate), "{estimate}");
        // Some video is sent even at a tiny estimate, so that the receiver has something to measure.
        let mut out = Compound::new(1200);
        out.remb(Ssrc(1), 2_000, &[Ssrc(2)]);
        let Some(Ok(Rtcp::Remb(remb))) = packets(out.as_bytes()).next() else { panic!("an estimate") };
        sending.handle_remb(now, &remb);
        assert_eq!(sending.video_budget(now), Some(TRICKLE));
    }
}
