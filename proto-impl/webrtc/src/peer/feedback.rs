//! RTCP: handles the peer's reports and feedback, and sends our own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rtp::bandwidth::FEEDBACK_SPAN_MAX;
use rtp::report::{ReportSchedule, round_trip_of_receiver};
use rtp::rtcp::{Compound, Dlrr, ExtendedReportBlock, Pli, ReportBlock, Rtcp};
use rtp::{NtpTime, Ssrc};

use super::{Peer, RTCP_MAX};
use crate::event::Event;
use crate::send::Sender;

/// Datagram size that every path can carry (RFC 791), used as the minimum size for feedback.
const DATAGRAM_BYTES_MIN: usize = 548;
/// Maximum number of report blocks in one report.
const BLOCKS_MAX: usize = 31;
/// Maximum number of packets reported by the transport-wide feedback of one datagram: more than a well-behaved
/// peer needs. A two-byte chunk may report thousands of packets.
const FEEDBACK_PACKETS_MAX: usize = 2 * FEEDBACK_SPAN_MAX;

/// State of our RTCP reports and feedback.
#[derive(Debug)]
pub(super) struct Reports {
    /// SSRC under which our feedback is sent: the SSRC of our first source, if we send media.
    pub(super) ssrc: Ssrc,
    /// True if the peer accepts feedback without a preceding report (RFC 5506).
    pub(super) reduced_size: bool,
    /// Schedule of reports; `None` before the session is connected.
    pub(super) schedule: Option<ReportSchedule>,
    /// RTCP packets waiting to be sent.
    pub(super) rtcp: VecDeque<Vec<u8>>,
    pub(super) round_trip: Option<Duration>,
    /// The peer's latest receiver reference time: the SSRC, the time, and its arrival.
    reference: Option<(Ssrc, NtpTime, Instant)>,
}

impl Reports {
    pub(super) const fn new(ssrc: Ssrc) -> Self {
        Self {
            ssrc,
            reduced_size: false,
            schedule: None,
            rtcp: VecDeque::new(),
            round_trip: None,
            reference: None,
        }
    }

    fn push(&mut self, compound: Compound) {
        if self.rtcp.len() >= RTCP_MAX {
            self.rtcp.pop_front();
        }
        self.rtcp.push_back(compound.into_bytes());
    }
}

/// Compound packets under construction: a part that does not fit into the last one begins another.
#[derive(Debug)]
struct Compounds {
    full: Vec<Compound>,
    last: Compound,
    empty: Compound,
}

impl Compounds {
    fn new(empty: Compound) -> Self {
        Self { full: Vec::new(), last: empty.clone(), empty }
    }

    /// Adds what `write` writes, which returns false if it does not fit. Returns false if it does not even fit into an
    /// empty packet.
    fn add(&mut self, write: impl Fn(&mut Compound) -> bool) -> bool {
        let mut longer = self.last.clone();
        if write(&mut longer) {
            self.last = longer;
            return true;
        }
        let mut next = self.empty.clone();
        let fits = write(&mut next);
        if fits {
            let full = std::mem::replace(&mut self.last, next);
            self.full.extend(Some(full).filter(|full| !full.is_empty()));
        }
        fits
    }

    fn finish(self) -> impl Iterator<Item = Compound> {
        self.full.into_iter().chain(Some(self.last).filter(|last| !last.is_empty()))
    }
}

/// Begins an empty compound packet with an empty report and our canonical name (RFC 3550 §6.1).
fn begin(out: &mut Compound, ours: Ssrc, cname: &str) {
    if out.is_empty() {
        out.receiver_reports(ours, &[]);
        out.source_description(ours, cname);
    }
}

impl Peer {
    pub(super) fn handle_rtcp(&mut self, now: Instant, compound: &[u8]) {
        let mut left = FEEDBACK_PACKETS_MAX;
        for part in rtp::rtcp::packets(compound) {
            if let Ok(Rtcp::TransportFeedback(feedback)) = &part {
                let Some(rest) = left.checked_sub(FEEDBACK_SPAN_MAX.min(feedback.count.into())) else {
                    self.stats.malformed += 1;
                    continue;
                };
                left = rest;
            }
            match part {
                Ok(part) => self.handle_part(now, &part),
                // The parts after a malformed one may still be valid.
                Err(_) => self.stats.malformed += 1,
            }
        }
    }

    fn handle_part(&mut self, now: Instant, part: &Rtcp<'_>) {
        match part {
            Rtcp::SenderReport(report) => {
                if let Some(reception) = &mut self.reception {
                    reception.handle_sender_report(now, report.ssrc, &report.info);
                }
                report.blocks().for_each(|block| self.handle_block(now, &block));
            }
            Rtcp::ReceiverReport(report) => report.blocks().for_each(|block| self.handle_block(now, &block)),
            Rtcp::Bye(bye) => {
                if let Some(reception) = &mut self.reception {
                    bye.ssrcs().for_each(|ssrc| reception.handle_bye(ssrc));
                }
            }
            Rtcp::Nack(nack) => {
                if let Some(sender) =
                    self.sending.senders.iter_mut().find(|sender| sender.ssrc() == nack.media)
                {
                    sender.handle_nack(nack.numbers());
                }
            }
            Rtcp::Pli(pli) => self.handle_key_frame_request(pli.media),
            Rtcp::Fir(fir) => fir.entries().for_each(|entry| self.handle_key_frame_request(entry.ssrc)),
            Rtcp::Remb(remb) => {
                self.stats.remote_estimate = Some(remb.bitrate);
                self.sending.handle_remb(now, remb);
                self.take_estimate(now);
            }
            Rtcp::TransportFeedback(feedback) => {
                self.sending.bandwidth.handle_feedback(now, feedback);
                self.take_estimate(now);
            }
            Rtcp::ExtendedReport(report) => {
                report.blocks().for_each(|block| self.handle_extended(now, report.sender, &block));
            }
            Rtcp::SourceDescription(_) | Rtcp::Other { .. } => {}
            _ => {}
        }
    }

    /// Handles an extended report: a receiver's reference time, or the answer to our own, from which the round
    /// trip is computed (RFC 3611 §4.4, §4.5).
    fn handle_extended(&mut self, now: Instant, sender: Ssrc, block: &ExtendedReportBlock<'_>) {
        match block {
            ExtendedReportBlock::ReferenceTime(time) => {
                self.reports.reference = Some((sender, *time, now));
            }
            ExtendedReportBlock::Delays(delays) => {
                let ours = delays.iter().find(|delay| delay.ssrc == self.reports.ssrc);
                let measured = ours.and_then(|answer| round_trip_of_receiver(self.anchor.at(now), &answer));
                if let Some(round_trip) = measured {
                    self.set_round_trip(round_trip);
                }
            }
            ExtendedReportBlock::Other(_) => {}
            _ => {}
        }
    }

    fn set_round_trip(&mut self, round_trip: Duration) {
        self.reports.round_trip = Some(round_trip);
        if let Some(reception) = &mut self.reception {
            reception.set_round_trip(round_trip);
        }
    }

    /// Applies the current estimate of the path's rate and loss.
    fn take_estimate(&mut self, now: Instant) {
        let (loss, is_congested) = (self.sending.bandwidth.loss(), self.sending.bandwidth.is_congested(now));
        (self.stats.estimate, self.stats.loss) = (self.sending.bandwidth.estimate(now), loss);
        // Losses from a full queue are not countered with redundancy, which would cause more loss.
        let mended = self.sending.bandwidth.path_loss();
        self.sending.senders.iter_mut().for_each(|sender| sender.set_loss(mended, is_congested));
    }

    fn handle_block(&mut self, now: Instant, block: &ReportBlock) {
        let ntp = self.anchor.at(now);
        if self.sending.rated() == Some(block.ssrc) {
            self.sending.bandwidth.handle_report(now, block.fraction_lost);
            self.take_estimate(now);
        }
        let measured = self.sending.senders.iter_mut().find_map(|sender| sender.handle_report(ntp, block));
        if let Some(round_trip) = measured {
            self.set_round_trip(round_trip);
        }
    }

    fn handle_key_frame_request(&mut self, ssrc: Ssrc) {
        if let Some(sender) = self.sending.senders.iter_mut().find(|sender| sender.ssrc() == ssrc) {
            sender.handle_key_frame_request();
        }
    }

    /// Sends urgent feedback: NACKs and key frame requests to the peer, events to the owner.
    pub(super) fn flush_feedback(&mut self, now: Instant) {
        for sender in &mut self.sending.senders {
            if sender.poll_key_frame_request(now) {
                self.events.push_back(Event::KeyFrameWanted { section: sender.section });
            }
        }
        if self.reports.schedule.is_none() {
            return;
        }
        let Some(reception) = &mut self.reception else { return };
        let requests = reception.poll_requests(now);
        let urgent = reception.is_rate_urgent(now).then(|| reception.rate_estimate(now, &[])).flatten();
        // Transport-wide feedback covers all sources, so any SSRC will do. Without a source, arrivals are
        // still reported.
        let any_source = reception.any_source().unwrap_or(Ssrc(0));
        let mut feedback = Vec::new();
        for (media, numbers) in &requests.nacks {
            let mut left = numbers.as_slice();
            while !left.is_empty() {
                let mut compound = self.start_feedback();
                let written = compound.nack(self.reports.ssrc, *media, left);
                left = left.get(written.max(1)..).unwrap_or_default();
                feedback.push(compound);
            }
        }
        for media in requests.key_frames {
            let mut compound = self.start_feedback();
            compound.pli(Pli { sender: self.reports.ssrc, media });
            feedback.push(compound);
        }
        for command in requests.commands {
            let mut compound = self.start_feedback();
            compound.fir(self.reports.ssrc, &[command]);
            feedback.push(compound);
        }
        if let Some((bits, rated)) = urgent {
            let mut compound = self.start_feedback();
            compound.remb(self.reports.ssrc, bits, &rated);
            feedback.push(compound);
        }
        // Each compound packet carries only one feedback part: if a second part did not fit, its arrival times would be
        // lost.
        while self.reception.as_ref().is_some_and(|reception| reception.has_arrivals(now)) {
            let mut compound = self.start_feedback();
            let arrivals = self.reception.as_mut().and_then(|reception| reception.arrivals());
            let told = arrivals.is_some_and(|arrivals| {
                arrivals.poll_feedback(now, self.reports.ssrc, any_source, &mut compound)
            });
            if !told {
                break;
            }
            feedback.push(compound);
        }
        for compound in feedback {
            self.reports.push(compound);
        }
    }

    /// Sends a report about all sources of both sides (RFC 3550 §6.4), and the bandwidth estimate if the
    /// publisher requests it.
    pub(super) fn report(&mut self, now: Instant) {
        let mut blocks = self.reception.as_mut().map(|reception| reception.report(now)).unwrap_or_default();
        blocks.truncate(BLOCKS_MAX);
        let infos: Vec<_> = self
            .sending
            .senders
            .iter()
            .filter_map(|sender| Some((sender.ssrc(), sender.report(now, &self.anchor)?)))
            .collect();
        let (ours, cname) = (self.reports.ssrc, &self.negotiation.cname);
        let mut report = Compounds::new(self.compound());
        let mut rest = blocks.as_slice();
        for (ssrc, info) in &infos {
            // Without room for the blocks, the report is sent alone.
            for blocks in [std::mem::take(&mut rest), &[]] {
                let part = |out: &mut Compound| {
                    out.sender_report(*ssrc, info, blocks) && out.source_description(*ssrc, cname)
                };
                if report.add(part) {
                    break;
                }
            }
        }
        if infos.is_empty() {
            report.add(|out| {
                out.receiver_reports(ours, rest);
                out.source_description(ours, cname);
                true
            });
        } else if infos.iter().all(|(ssrc, _)| *ssrc != ours) {
            report.add(|out| match out.is_empty() {
                true => {
                    begin(out, ours, cname);
                    true
                }
                false => out.source_description(ours, cname),
            });
        }
        let told = self.reception.as_mut().and_then(|reception| reception.rate_estimate(now, &blocks));
        if let Some((bits, rated)) = told {
            report.add(|out| {
                begin(out, ours, cname);
                out.remb(ours, bits, &rated)
            });
        }
        if infos.is_empty() {
            // A pure receiver sends no sender reports that the peer could answer, so it measures the round trip
            // with its own request.
            let time = self.anchor.at(now);
            report.add(|out| {
                begin(out, ours, cname);
                out.reference_time(ours, time)
            });
        } else if let Some((ssrc, reference, heard)) = self.reports.reference.take() {
            let answer = Dlrr::new(ssrc, reference, now.saturating_duration_since(heard));
            report.add(|out| {
                begin(out, ours, cname);
                out.delays(ours, &[answer])
            });
        }
        report.finish().for_each(|compound| self.reports.push(compound));
    }

    /// Sends BYE for our sources (RFC 3550 §6.6), so that pages end their tracks immediately instead of after a
    /// timeout.
    pub(super) fn leave(&mut self) {
        let sources: Vec<Ssrc> = self.sending.senders.iter().flat_map(Sender::sources).collect();
        if sources.is_empty() || self.transport.media_path().is_none() {
            return;
        }
        let (ours, cname) = (self.reports.ssrc, &self.negotiation.cname);
        let mut farewell = Compounds::new(self.compound());
        for part in sources.chunks(BLOCKS_MAX) {
            farewell.add(|out| {
                begin(out, ours, cname);
                out.bye(part)
            });
        }
        farewell.finish().for_each(|compound| self.transport.add_farewell(compound.into_bytes()));
    }

    /// Sends BYE for some of our sources while the session continues. Their SSRCs are never used again.
    pub(super) fn end_sources(&mut self, gone: &[Sender]) {
        let sources: Vec<Ssrc> = gone.iter().flat_map(Sender::sources).collect();
        if sources.contains(&self.reports.ssrc)
            && let Some(first) = self.sending.senders.first()
        {
            self.reports.ssrc = first.ssrc();
        }
        let Some(keys) = self.transport.outbound().filter(|_| !sources.is_empty()) else { return };
        sources.iter().for_each(|source| keys.end_source(source.value()));
        for part in sources.chunks(BLOCKS_MAX) {
            let mut compound = self.compound();
            begin(&mut compound, self.reports.ssrc, &self.negotiation.cname);
            compound.bye(part);
            self.reports.push(compound);
        }
    }

    fn compound(&self) -> Compound {
        let overhead = self.transport.profile().map_or(0, srtp::Profile::rtcp_overhead);
        Compound::new(self.config.datagram_bytes_max.max(DATAGRAM_BYTES_MIN).saturating_sub(overhead))
    }

    /// Starts a feedback packet: without a report if the peer accepts that (RFC 5506), otherwise after an empty
    /// report.
    fn start_feedback(&self) -> Compound {
        let mut compound = self.compound();
        if !self.reports.reduced_size {
            begin(&mut compound, self.reports.ssrc, &self.negotiation.cname);
        }
        compound
    }
}
