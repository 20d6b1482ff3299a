//! Figures of a peer.

use ::webrtc::{Section, SectionId};
use rtp::receive::ReceiveStats;
use serde_json::{Map, Value, json};
use smallvec::smallvec;

use crate::stats::{Catalogue, Figures, Reception, Values};

/// The figures in `/metrics` (docs/metrics.md).
pub(super) static CATALOGUE: Catalogue = Catalogue {
    name: "webrtc",
    counted: ["packets", "RTP packets of WebRTC", "RTP packets of one WebRTC peer"],
    counters: &["received", "recovered", "lost", "nacked", "sent_again", "send_dropped"],
    counters_of_each: 6,
    gauges: &[
        ("rtt_microseconds", "Round trip of a WebRTC peer"),
        (
            "jitter_ticks",
            "Variance of the time between packets, in ticks of the clock of their source; the largest",
        ),
        ("remote_estimate_bits", "What the path could carry in a second, as the peer estimates it"),
        ("estimate_bits", "What the path to a viewer carries in a second, as far as it was tried"),
        ("loss_thousandths", "The share of packets to a viewer that is lost of late"),
    ],
};

/// The statistics of a peer at one moment.
#[derive(Debug)]
pub(super) struct RtcFigures {
    stats: ::webrtc::Stats,
    /// Of the worst source.
    jitter_ms: u64,
}

impl RtcFigures {
    pub(super) fn of(stats: ::webrtc::Stats, sections: &[Section]) -> Self {
        let ms = |(id, _, stats): &(SectionId, _, ReceiveStats)| {
            let section = sections.iter().find(|section| section.id == *id)?;
            let per_second = u64::from(section.formats.first()?.local.rtpmap.clock_rate);
            (u64::from(stats.jitter) * 1000).checked_div(per_second)
        };
        let jitter_ms = stats.received.iter().filter_map(ms).max().unwrap_or(0);
        Self { stats, jitter_ms }
    }

    fn received(&self, of: impl Fn(&ReceiveStats) -> u64) -> u64 {
        self.stats.received.iter().map(|(_, _, stats)| of(stats)).sum()
    }

    fn round_trip_us(&self) -> u64 {
        self.stats
            .round_trip
            .map_or(0, |round_trip| u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX))
    }

    fn jitter(&self) -> u64 {
        self.stats.received.iter().map(|(_, _, stats)| u64::from(stats.jitter)).max().unwrap_or(0)
    }

    fn resent(&self) -> u64 {
        self.stats.resent.iter().map(|(_, stats)| stats.resent).sum()
    }
}

impl Figures for RtcFigures {
    fn catalogue(&self) -> &'static Catalogue {
        &CATALOGUE
    }

    fn counts(&self) -> Values {
        smallvec![
            self.received(|stats| stats.packets),
            self.received(|stats| stats.recovered),
            self.received(|stats| stats.lost),
            self.received(|stats| stats.nacked),
            self.resent(),
            self.stats.skipped,
        ]
    }

    fn gauges(&self) -> Values {
        smallvec![
            self.round_trip_us(),
            self.jitter(),
            self.stats.remote_estimate.unwrap_or(0),
            self.stats.estimate.unwrap_or(0),
            self.stats.loss.into(),
        ]
    }

    fn reception(&self) -> Option<Reception> {
        let missing = self.received(|stats| stats.recovered.saturating_add(stats.lost));
        Some(Reception {
            expected: self.received(|stats| stats.packets).saturating_add(missing),
            lost: missing,
            rtt_ms: self.round_trip_us() / 1000,
            jitter_ms: self.jitter_ms,
        })
    }

    fn members(&self) -> Map<String, Value> {
        let profile = self.stats.profile.map(|profile| format!("{profile:?}"));
        let members = json!({
            "rttMicroseconds": self.round_trip_us(),
            "packetsReceived": self.received(|stats| stats.packets),
            "packetsRecovered": self.received(|stats| stats.recovered),
            "packetsLost": self.received(|stats| stats.lost),
            "packetsSentAgain": self.resent(),
            "packetsDropped": self.stats.skipped,
            "remoteEstimateBits": self.stats.remote_estimate,
            "estimateBits": self.stats.estimate,
            "lossThousandths": self.stats.loss,
            "protectionProfile": profile,
        });
        if let Value::Object(members) = members { members } else { Map::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_catalogue_has_its_value() {
        let figures = RtcFigures::of(::webrtc::Stats::default(), &[]);
        assert_eq!(figures.counts().len(), CATALOGUE.counters.len());
        assert_eq!(figures.gauges().len(), CATALOGUE.gauges.len());
        assert_eq!(figures.members().keys().next().map(String::as_str), Some("rttMicroseconds"));
    }
}
