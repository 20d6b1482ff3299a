//! Distinguishes losses caused by sending too much from losses of the path itself.
//!
//! Losses with a queue are caused by the queue. Large losses without a queue start a trial, in which less is
//! sent for a moment. If the losses then decrease, they were caused by sending too much; if not, they are the
//! path's own, and no reason to send less.

/// Number of packets over which a share of losses is measured.
const SPAN: u64 = 50;
/// Number of packets over which a trial is measured if the sender obeys the rate.
const TRIAL_SPAN: u64 = 60;
/// Number of packets over which a trial is measured if the sender exceeds the rate.
const TRIAL_SPAN_MAX: u64 = 240;
/// If the measured loss is below the estimate of the path's own loss, the estimate decreases by the difference divided
/// by this.
const OWN_FALLS: u16 = 4;
/// Maximum loss, in thousandths, that is attributed to the path itself without a trial if there is no queue.
const OWN_MAX: u16 = 100;

/// Maximum loss, in thousandths, that is attributed to the path itself after a trial.
const OWN_TRIED_MAX: u16 = 600;

/// A trial: the losses before it, the rate to return to, the rate at which packets arrived before it, and the
/// packets counted since its start.
#[derive(Debug, Clone, Copy)]
struct Trial {
    before: u16,
    rate: f64,
    carried: f64,
    /// First packet sent at the lower rate.
    from: u64,
    sent: u64,
    lost: u64,
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// The path loses packets regardless of the sending rate. Contains the rate before the trial.
    Path(f64),
    /// Losses decrease when less is sent. Contains the rate that the path carried while full, in bits per
    /// second.
    Congestion(f64),
}

/// Shares of packets lost recently, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    sent: u64,
    lost: u64,
    smoothed: u16,
    /// First packet counted since the last reaction.
    since: u64,
    recent: u16,
    /// Share that the path loses regardless of the sending rate.
    own: u16,
    trial: Option<Trial>,
}

impl Losses {
    /// Counts a packet that arrived or was lost.
    pub(super) fn packet(&mut self, number: u64, is_lost: bool) {
        let lost = u64::from(is_lost);
        (self.sent, self.lost) = (self.sent.saturating_add(1), self.lost.saturating_add(lost));
        if self.sent >= SPAN {
            let seen = share(self.lost, self.sent);
            (self.sent, self.lost) = (0, 0);
            self.reported(seen);
            if number >= self.since.saturating_add(SPAN) {
                self.recent = smooth(self.recent, seen);
                // The path's own loss is reduced gradually, because the share measured over few packets is
                // subject to chance.
                self.own = self.own.saturating_sub(self.own.saturating_sub(self.recent).div_ceil(OWN_FALLS));
            }
        }
        if let Some(trial) = self.trial.as_mut().filter(|trial| number >= trial.from) {
            (trial.sent, trial.lost) = (trial.sent.saturating_add(1), trial.lost.saturating_add(lost));
        }
    }

    /// Adds a share of losses measured by the receiver.
    pub(super) fn reported(&mut self, thousandths: u16) {
        self.smoothed = smooth(self.smoothed, thousandths);
    }

    /// Restarts measuring at this packet, because the losses of earlier packets do not reflect the current rate.
    pub(super) const fn begin(&mut self, from: u64) {
        (self.since, self.recent, self.trial) = (from, self.own, None);
    }

    /// Share of all packets lost.
    pub(super) const fn all(&self) -> u16 {
        self.smoothed
    }

    /// Share of packets lost since the last reaction.
    pub(super) const fn recent(&self) -> u16 {
        self.recent
    }

    /// Share of packets that the path loses regardless of the sending rate.
    pub(super) const fn own(&self) -> u16 {
        self.own
    }

    /// Returns the loss beyond the path's own and its expected variation.
    pub(super) fn excess(&self) -> u16 {
        self.recent.saturating_sub(self.own).saturating_sub(self.own / 2)
    }

    /// Records that there is no queue, so that small losses are the path's own.
    pub(super) fn without_queue(&mut self) {
        if self.recent <= OWN_MAX {
            self.own = self.recent;
        }
    }

    pub(super) const fn is_tried(&self) -> bool {
        self.trial.is_some()
    }

    /// Starts a trial with packet `from`. `rate` is the rate before the trial, and `carried` the rate at
    /// which packets arrived.
    pub(super) const fn begin_trial(&mut self, from: u64, rate: f64, carried: f64) {
        self.trial = Some(Trial { before: self.recent, rate, carried, from, sent: 0, lost: 0 });
    }

    /// Returns the outcome of a completed trial. If the sender did not reduce its rate in time, the losses
    /// count as congestion.
    pub(super) fn verdict(&mut self, obeys: bool) -> Option<Verdict> {
        let least = if obeys { TRIAL_SPAN } else { TRIAL_SPAN_MAX };
        let trial = self.trial.take_if(|trial| trial.sent >= least)?;
        let behind = share(trial.lost, trial.sent);
        if behind.saturating_mul(2) < trial.before || behind > OWN_TRIED_MAX || !obeys {
            return Some(Verdict::Congestion(trial.carried));
        }
        self.own = behind;
        self.recent = self.own;
        Some(Verdict::Path(trial.rate))
    }
}

/// Returns the mean of `known` and `seen`, rounded up if `seen` is not 0: a small loss does not vanish at
/// once, but eventually decays to 0.
const fn smooth(known: u16, seen: u16) -> u16 {
    known.saturating_add(seen).saturating_add(if seen > 0 { 1 } else { 0 }) / 2
}

fn share(lost: u64, sent: u64) -> u16 {
    u16::try_from(lost.saturating_mul(1000) / sent.max(1)).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts packets from `from` on; of each thousand, `thousandths` are lost, evenly distributed.
    fn run(losses: &mut Losses, from: u64, count: u64, thousandths: u64) {
        for n in from..from + count {
            losses.packet(n, n * thousandths / 1000 != (n + 1) * thousandths / 1000);
        }
    }

    #[test]
    fn losses_that_stay_are_the_path_s_own_and_those_that_fall_are_not() {
        for (before, behind, obeys, path) in [
            (350, 340, true, true),
            (350, 100, true, false),
            (150, 150, true, true),
            (150, 20, true, false),
            (350, 340, false, false),
            (1000, 1000, true, false),
        ] {
            let mut losses = Losses::default();
            run(&mut losses, 0, 400, before);
            assert!(losses.excess() > 100 && losses.own() == 0);
            losses.begin_trial(400, 2e6, 1e6);
            run(&mut losses, 400, 30, behind);
            assert_eq!(losses.verdict(obeys), None);
            run(&mut losses, 430, 210, behind);
            let expected = if path { Verdict::Path(2e6) } else { Verdict::Congestion(1e6) };
            assert_eq!(losses.verdict(obeys), Some(expected), "{before} {behind}");
            assert_eq!(losses.verdict(obeys), None);
            assert_eq!(losses.own() > 100, path, "{before} {behind}: {}", losses.own());
            assert!(!path || losses.excess() == 0, "{before} {behind}");
        }
    }

    #[test]
    fn the_path_s_own_loss_is_forgotten_when_it_is_gone() {
        let mut losses = Losses::default();
        run(&mut losses, 0, 400, 300);
        losses.begin_trial(400, 1.0, 1.0);
        run(&mut losses, 400, 100, 300);
        losses.verdict(true);
        assert!(losses.own() > 200 && losses.excess() == 0);
        run(&mut losses, 500, 2000, 0);
        assert_eq!((losses.own(), losses.all()), (0, 0));
        // Small losses without a queue are the path's own; large ones need a trial.
        run(&mut losses, 2500, 400, 50);
        losses.without_queue();
        assert!((30..=60).contains(&losses.own()) && losses.excess() == 0);
        run(&mut losses, 2900, 400, 400);
        losses.without_queue();
        assert!(losses.own() <= 60 && losses.excess() > 100);
        // Losses from before the start are ignored.
        losses.begin(3300);
        assert_eq!((losses.excess(), losses.recent()), (0, losses.own()));
        run(&mut losses, 3200, 99, 1000);
        assert_eq!(losses.excess(), 0);
    }
}
