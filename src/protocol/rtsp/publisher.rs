//! A publisher: its packets become units, and it is sent receiver reports.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::mail::{Departure, Grant};
use crate::protocol::rtp_mapping::{Depackager, Source};
use crate::protocol::usable::{Fault, Usable};
use crate::protocol::{Event, PublicationEvent};
use crate::types::Handle;

/// Maximum time from the grant to the first packet.
const FIRST_WITHIN: Duration = Duration::from_secs(20);
/// Maximum time between two packets.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Interval of receiver reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The reason why a publisher is ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) reason: &'static str,
    pub(super) departure: Departure,
}

/// The state of a publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    ingest: Depackager,
    usable: Usable,
    sections: usize,
    /// Time by which the next packet must arrive.
    silent_at: Instant,
    report_at: Instant,
    /// Receiver reports to send, by section.
    reports: Vec<(usize, Bytes)>,
}

impl Publisher {
    pub(super) fn new(now: Instant, grant: &Grant, sources: Vec<Option<Source>>) -> Self {
        Self {
            sections: sources.len(),
            ingest: Depackager::new(now, grant, sources),
            usable: Usable::default(),
            silent_at: super::viewer::after(now, FIRST_WITHIN),
            report_at: super::viewer::after(now, REPORT_INTERVAL),
            reports: Vec::new(),
        }
    }

    /// Handles a packet of a section. Returns true if it is a media packet of a described source.
    pub(super) fn packet(&mut self, now: Instant, section: usize, is_rtcp: bool, packet: &[u8]) -> bool {
        if is_rtcp {
            self.ingest.handle_rtcp(now, section, packet);
            return false;
        }
        let is_taken = self.ingest.handle_rtp(now, section, packet);
        if is_taken {
            self.silent_at = super::viewer::after(now, SILENCE_MAX);
        }
        is_taken
    }

    /// Emits the units that are ready. Returns the reason if the publisher must be ended.
    pub(super) fn poll(&mut self, now: Instant, events: &mut impl Extend<Event>) -> Option<End> {
        let publication = Handle::ONLY;
        while let Some((unit, tracks)) = self.ingest.poll_unit() {
            events.extend([Event::Publication(publication, PublicationEvent::Unit { unit, tracks })]);
        }
        while let Some(news) = self.ingest.take_clock_news() {
            events.extend([Event::Publication(publication, PublicationEvent::Clock(news))]);
        }
        let units = self.ingest.take_dropped();
        if units > 0 {
            events.extend([Event::Publication(publication, PublicationEvent::UnitsDropped(units))]);
        }
        if self.silent_at <= now {
            return Some(End { reason: "no packets", departure: Departure::Lost });
        }
        let fault = self.usable.check(now, self.ingest.supply())?;
        let (Fault::Unusable(reason) | Fault::NoVideo(reason)) = fault;
        events.extend([Event::Publication(publication, PublicationEvent::Fault(reason))]);
        matches!(fault, Fault::Unusable(_)).then_some(End { reason, departure: Departure::Failed })
    }

    /// Handles deadlines that have passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.ingest.handle_timeout(now);
        if self.report_at <= now {
            self.report_at = super::viewer::after(now, REPORT_INTERVAL);
            self.reports = (0..self.sections)
                .filter_map(|section| Some((section, Bytes::from(self.ingest.report(now, section)?))))
                .collect();
        }
    }

    /// Passes each report to `send`, which sends it and returns true if its section is interleaved. The other reports
    /// remain.
    pub(super) fn take_reports(&mut self, mut send: impl FnMut(usize, Bytes) -> bool) {
        self.reports.retain(|(section, report)| !send(*section, report.clone()));
    }

    /// Takes the next report to send as a datagram: one of a section for which `is_datagram` returns true.
    pub(super) fn poll_report(&mut self, is_datagram: impl Fn(usize) -> bool) -> Option<(usize, Bytes)> {
        let at = self.reports.iter().position(|(section, _)| is_datagram(*section))?;
        Some(self.reports.swap_remove(at))
    }

    /// Returns the next deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let usable = self.usable.deadline(self.ingest.supply());
        [self.ingest.poll_timeout(), usable, Some(self.silent_at), Some(self.report_at)]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests;
