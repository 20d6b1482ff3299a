//! Statistics of a peer.

use ::webrtc::{Section, SectionId, SentStats};
use rtp::receive::ReceiveStats;
use sdp::MediaKind;
use serde_json::{Map, Value, json};
use smallvec::smallvec;

use super::info::TrackInfo;
use crate::stats::{Catalogue, Figures, Reception, Values};

/// The catalogue of the figures in `/metrics` (docs/metrics.md).
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
    /// Number of pictures for which a viewer's path had no room.
    left_out: u64,
    /// Jitter of the worst source in milliseconds.
    jitter_ms: u64,
    /// Identifies the peer during its life.
    id: u32,
    /// The video sent to the viewer.
    video: Option<Sent>,
    audio: Option<Sent>,
}

/// The packets of one kind sent to a viewer.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    stats: SentStats,
    bit_rate: u64,
    /// Rate in units per 1000 seconds.
    unit_rate: u64,
}

impl Sent {
    fn of(
        kind: &MediaKind,
        stats: &::webrtc::Stats,
        sections: &[Section],
        tracks: &[TrackInfo],
    ) -> Option<Self> {
        let section = sections.iter().find(|section| section.kind == *kind && section.direction.sends())?;
        let (_, sent) = stats.sent.iter().find(|(id, _)| *id == section.id)?;
        let track = tracks.iter().find(|track| track.is_video == (*kind == MediaKind::Video));
        let (bit_rate, unit_rate) = track.map_or((0, 0), |track| (track.bit_rate, track.unit_rate));
        Some(Self { stats: *sent, bit_rate, unit_rate })
    }

    /// Returns the milliseconds from one unit to the next.
    fn period_ms(&self) -> f64 {
        let rate = u32::try_from(self.unit_rate).unwrap_or(u32::MAX);
        if rate == 0 { 0.0 } else { 1_000_000.0 / f64::from(rate) }
    }

    /// Returns the recent packet rate, estimated from the recent bit rate and the mean packet size so far.
    fn packets_per_second(&self) -> u64 {
        let packets = self.stats.packets.saturating_mul(self.bit_rate / 8);
        packets.checked_div(self.stats.bytes).unwrap_or(0)
    }
}

impl RtcFigures {
    /// Creates the figures. `tracks` are the tracks that a viewer is sent.
    pub(super) fn of(
        stats: ::webrtc::Stats,
        sections: &[Section],
        tracks: &[TrackInfo],
        left_out: u64,
    ) -> Self {
        let ms = |(id, _, stats): &(SectionId, _, ReceiveStats)| {
            let section = sections.iter().find(|section| section.id == *id)?;
            let per_second = u64::from(section.formats.first()?.local.rtpmap.clock_rate);
            (u64::from(stats.jitter) * 1000).checked_div(per_second)
        };
        let jitter_ms = stats.received.iter().filter_map(ms).max().unwrap_or(0);
        let sent = |kind| Sent::of(&kind, &stats, sections, tracks);
        let (video, audio) = (sent(MediaKind::Video), sent(MediaKind::Audio));
        let id = sections.iter().find_map(|section| section.local_source).map_or(0, |source| source.ssrc);
        Self { stats, left_out, jitter_ms, id, video, audio }
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
            "picturesLeftOut": self.left_out,
            "remoteEstimateBits": self.stats.remote_estimate,
            "estimateBits": self.stats.estimate,
            "lossThousandths": self.stats.loss,
            "protectionProfile": profile,
        });
        if let Value::Object(members) = members { members } else { Map::new() }
    }

    fn client(&self, wall_ms: u64) -> Option<Map<String, Value>> {
        let [video, audio] = [self.video, self.audio].map(Option::unwrap_or_default);
        let video_sent = self.video.map(|sent| {
            json!({
                // FIR and PLI are counted together, as key frame requests.
                "videoFirCount": 0,
                "videoPliCount": sent.stats.key_frame_requests,
                "videoNackCount": sent.stats.nacked,
                "videoPacketsSent": sent.stats.packets,
                "videoBytesSent": sent.stats.bytes,
                // This server encodes no video.
                "videoFramesEncoded": 0,
                "videoPacketsSentPerSecond": sent.packets_per_second(),
                "videoBytesSentPerSecond": sent.bit_rate / 8,
                "videoFramesEncodedPerSecond": 0,
                "timeMs": wall_ms,
            })
        });
        let audio_sent = self.audio.map(|sent| {
            json!({
                "audioPacketsSent": sent.stats.packets,
                "audioBytesSent": sent.stats.bytes,
                "audioPacketsPerSecond": sent.packets_per_second(),
                "audioBytesSentPerSecond": sent.bit_rate / 8,
                "timeMs": wall_ms,
            })
        });
        let members = json!({
            "measuredBitrate": self.stats.estimate.or(self.stats.remote_estimate).unwrap_or(0),
            "sendBitrate": video.bit_rate.saturating_add(audio.bit_rate),
            "videoFrameSendPeriod": video.period_ms(),
            "audioFrameSendPeriod": audio.period_ms(),
            "clientId": self.id >> 1,
            "videoPacketCount": video.stats.packets,
            "audioPacketCount": audio.stats.packets,
            "videoSentStats": video_sent,
            "audioSentStats": audio_sent,
            "clientInfo": null,
        });
        if let Value::Object(members) = members { Some(members) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_catalogue_has_its_value() {
        let figures = RtcFigures::of(::webrtc::Stats::default(), &[], &[], 0);
        assert_eq!(figures.counts().len(), CATALOGUE.counters.len());
        assert_eq!(figures.gauges().len(), CATALOGUE.gauges.len());
        assert_eq!(figures.members().keys().next().map(String::as_str), Some("rttMicroseconds"));
    }
}
