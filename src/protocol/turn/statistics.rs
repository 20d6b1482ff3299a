//! Statistics of an allocation.

use serde_json::{Map, Value, json};
use smallvec::smallvec;

use crate::stats::{Catalogue, Figures, Values};

/// The catalogue of the figures in `/metrics` (docs/metrics.md).
pub(super) static CATALOGUE: Catalogue = Catalogue {
    name: "turn",
    counted: ["events", "What TURN allocations did", "What one TURN allocation did"],
    counters: &["bytes_to_peers", "bytes_to_clients", "forbidden", "dropped", "refused"],
    // Figures of single connections are listed by stream, and an allocation belongs to no stream.
    counters_of_each: 0,
    gauges: &[],
};

/// The statistics of an allocation at one moment.
#[derive(Debug)]
pub(super) struct TurnFigures(pub(super) turn::Stats);

impl Figures for TurnFigures {
    fn catalogue(&self) -> &'static Catalogue {
        &CATALOGUE
    }

    fn counts(&self) -> Values {
        let turn::Stats { to_peers, to_client, forbidden, dropped, refused } = self.0;
        smallvec![to_peers, to_client, forbidden, dropped, refused]
    }

    fn gauges(&self) -> Values {
        smallvec![]
    }

    fn members(&self) -> Map<String, Value> {
        let named = CATALOGUE.counters.iter().zip(self.counts());
        named.map(|(name, count)| ((*name).to_owned(), json!(count))).collect()
    }
}
