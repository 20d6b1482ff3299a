//! Statistics of a connection, under the names that libsrt uses.

use serde_json::{Map, Value, json};
use smallvec::smallvec;

use crate::stats::{Catalogue, Figures, Reception, Values};

/// The catalogue of the figures in `/metrics` (docs/metrics.md).
pub(super) static CATALOGUE: Catalogue = Catalogue {
    name: "srt",
    counted: ["packets", "Data packets of SRT", "Data packets of one SRT connection"],
    counters: &[
        "sent",
        "sent_again",
        "send_dropped",
        "received",
        "missed",
        "lost",
        "parity_sent",
        "rebuilt",
        "undecrypted",
    ],
    counters_of_each: 8,
    gauges: &[
        ("rtt_microseconds", "Round trip of an SRT connection"),
        ("flight_packets", "Data packets sent and not acknowledged"),
        ("bandwidth_bits", "What the path could carry in a second, as the receiver estimates it"),
        ("latency_milliseconds", "How long the receiver holds"),
    ],
};

/// The statistics of a connection at one moment.
#[derive(Debug)]
pub(super) struct SrtFigures(pub(super) ::srt::Stats);

impl Figures for SrtFigures {
    fn catalogue(&self) -> &'static Catalogue {
        &CATALOGUE
    }

    fn counts(&self) -> Values {
        let stats = &self.0;
        smallvec![
            stats.pkt_sent_unique,
            stats.pkt_retrans,
            stats.pkt_snd_drop,
            stats.pkt_recv_unique,
            stats.pkt_rcv_loss,
            stats.pkt_rcv_drop,
            stats.filter.pkt_snd_extra,
            stats.filter.pkt_rcv_supply,
            stats.pkt_rcv_undecrypt,
        ]
    }

    fn gauges(&self) -> Values {
        let stats = &self.0;
        smallvec![
            whole(stats.ms_rtt * 1000.0),
            u64::from(stats.pkt_flight_size),
            whole(stats.mbps_bandwidth * 1_000_000.0),
            u64::from(stats.ms_rcv_tsb_pd_delay.max(stats.ms_snd_tsb_pd_delay)),
        ]
    }

    fn reception(&self) -> Option<Reception> {
        let stats = &self.0;
        Some(Reception {
            expected: stats.pkt_recv_unique.saturating_add(stats.pkt_rcv_drop),
            lost: stats.pkt_rcv_loss,
            rtt_ms: whole(stats.ms_rtt.round()),
            jitter_ms: whole(stats.ms_rtt_var.round()),
        })
    }

    fn members(&self) -> Map<String, Value> {
        let stats = &self.0;
        let members = json!({
            "msRTT": stats.ms_rtt,
            "mbpsBandwidth": stats.mbps_bandwidth,
            "msRcvTsbPdDelay": stats.ms_rcv_tsb_pd_delay,
            "msSndTsbPdDelay": stats.ms_snd_tsb_pd_delay,
            "pktFlightSize": stats.pkt_flight_size,
            "pktSent": stats.pkt_sent,
            "pktSentUnique": stats.pkt_sent_unique,
            "pktRetrans": stats.pkt_retrans,
            "pktSndLoss": stats.pkt_snd_loss,
            "pktSndDrop": stats.pkt_snd_drop,
            "pktSndBuf": stats.pkt_snd_buf,
            "byteSndBuf": stats.byte_snd_buf,
            "msSndBuf": stats.ms_snd_buf,
            "pktRecv": stats.pkt_recv,
            "pktRecvUnique": stats.pkt_recv_unique,
            "pktRcvLoss": stats.pkt_rcv_loss,
            "pktRcvDrop": stats.pkt_rcv_drop,
            "pktRcvRetrans": stats.pkt_rcv_retrans,
            "pktRcvBelated": stats.pkt_rcv_belated,
            "pktRcvUndecrypt": stats.pkt_rcv_undecrypt,
            "pktSndFilterExtra": stats.filter.pkt_snd_extra,
            "pktRcvFilterExtra": stats.filter.pkt_rcv_extra,
            "pktRcvFilterSupply": stats.filter.pkt_rcv_supply,
            "pktRcvFilterLoss": stats.filter.pkt_rcv_loss,
            "pktRcvBuf": stats.pkt_rcv_buf,
            "byteRcvBuf": stats.byte_rcv_buf,
            "pktSentACK": stats.pkt_sent_ack,
            "pktRecvACK": stats.pkt_recv_ack,
            "pktSentNAK": stats.pkt_sent_nak,
            "pktRecvNAK": stats.pkt_recv_nak,
            "byteSent": stats.byte_sent,
            "byteSentUnique": stats.byte_sent_unique,
            "byteRetrans": stats.byte_retrans,
            "byteRecv": stats.byte_recv,
            "byteRecvUnique": stats.byte_recv_unique,
        });
        match members {
            Value::Object(members) => members,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        }
    }
}

/// Truncates a figure that is never negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` stops at the ends of u64")]
const fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_catalogue_has_its_value() {
        let stats =
            ::srt::Stats { ms_rtt: 1.5, pkt_rcv_undecrypt: 3, pkt_sent_unique: 2, ..Default::default() };
        let figures = SrtFigures(stats);
        let (counts, gauges) = (figures.counts(), figures.gauges());
        assert_eq!((counts.len(), gauges.len()), (CATALOGUE.counters.len(), CATALOGUE.gauges.len()));
        assert_eq!((counts.first(), counts.last(), gauges.first()), (Some(&2), Some(&3), Some(&1500)));
        let reception = figures.reception().unwrap();
        assert_eq!((reception.expected, reception.lost, reception.rtt_ms), (0, 0, 2));
        let members = figures.members();
        assert_eq!(members.keys().next().map(String::as_str), Some("msRTT"));
        assert_eq!((members.len(), &members["pktSentUnique"]), (35, &json!(2)));
    }
}
