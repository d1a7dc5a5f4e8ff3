//! Results of `bench ingest`.

use serde::Serialize;
use serde_json::{Value, json};

use super::plan::{Ingest, QueryName, RECORD_BYTES, TransportName};
use crate::workload::exchange_name;
use crate::{peak_rss_bytes, provenance, round};

/// Shorter segments have a target for their median latency, in microseconds (paper, figure 10b).
const LATENCY_SEGMENT: usize = 128 << 10;
const LATENCY_US: f64 = 100.0;

/// Rates of the pair with the median ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    pub(crate) bytes_per_s: f64,
    pub(crate) limit_bytes_per_s: f64,
    /// Least, median and greatest ratio.
    pub(crate) ratios: [f64; 3],
}

/// Rates of pairs of runs: of the job, and of the limit.
pub(crate) fn median(pairs: &mut [(f64, f64)]) -> Option<Rates> {
    let ratio = |pair: &(f64, f64)| pair.0 / pair.1;
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let middle = pairs.get(pairs.len() / 2)?;
    let ratios = [ratio(pairs.first()?), ratio(middle), ratio(pairs.last()?)];
    Some(Rates { bytes_per_s: middle.0, limit_bytes_per_s: middle.1, ratios })
}

/// Latencies of batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    bytes_per_s: f64,
    batches: usize,
    /// Median, 99th percentile and greatest, in microseconds.
    us: [f64; 3],
}

impl Latency {
    /// Of these nanoseconds, at this rate.
    pub(crate) fn of(bytes_per_s: f64, mut nanos: Vec<i64>) -> Option<Latency> {
        nanos.sort_unstable();
        let at =
            |part: usize| nanos.get((nanos.len() * part / 100).min(nanos.len().saturating_sub(1)));
        let us = [*at(50)?, *at(99)?, *nanos.last()?].map(|ns| ns as f64 / 1e3);
        Some(Latency { bytes_per_s, batches: nanos.len(), us })
    }
}

/// Results for a length of segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BySegment {
    pub(crate) segment: usize,
    pub(crate) batch_rows: usize,
    pub(crate) records: u64,
    pub(crate) rates: Rates,
    pub(crate) latency: Option<Latency>,
    /// Whether all answers are right.
    pub(crate) ok: bool,
}

/// A target, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IngestTarget {
    text: &'static str,
    found: f64,
    met: bool,
}

impl IngestTarget {
    pub(crate) fn text(&self) -> String {
        let met = if self.met { "met" } else { "NOT MET" };
        format!("        {met}: {}: {}", self.text, self.found)
    }
}

pub(crate) const HEADING: &str = "segment      MB/s   limit MB/s  ratio (least to greatest)  \
                                  latency: median   99th    greatest";

impl BySegment {
    pub(crate) fn row(&self) -> String {
        let Rates { bytes_per_s, limit_bytes_per_s, ratios: [least, median, greatest] } =
            self.rates;
        let latency = self.latency.map_or(String::new(), |Latency { us, bytes_per_s, .. }| {
            let [median, most, greatest] = us;
            let rate = bytes_per_s / 1e6;
            format!("{median:>11.1} us {most:>8.1} us {greatest:>8.1} us  at {rate:.0} MB/s")
        });
        format!(
            "{:>7} {:>9.1} {:>12.1}  {median:.3} ({least:.3} to {greatest:.3}) {latency}",
            self.segment,
            bytes_per_s / 1e6,
            limit_bytes_per_s / 1e6,
        )
    }

    /// The targets of these segments. The rate has one with the query `pass` only.
    pub(crate) fn targets(&self, ingest: &Ingest) -> Vec<IngestTarget> {
        let (text, least) = match ingest.transport {
            TransportName::Shm => ("rate to that of bare channels, from 0.85", 0.85),
            TransportName::Tcp => ("rate to that of bare sockets, from 0.8", 0.8),
        };
        let ratio = self.rates.ratios[1];
        let rate = IngestTarget { text, found: round(ratio, 4), met: ratio >= least };
        let rate = Some(rate).filter(|_| ingest.query == QueryName::Pass);
        let is_short = self.segment < LATENCY_SEGMENT && ingest.transport == TransportName::Shm;
        let latency = self.latency.filter(|_| is_short).map(|Latency { us, .. }| IngestTarget {
            text: "median latency in microseconds with segments under 128 KiB, below 100",
            found: round(us[0], 1),
            met: us[0] < LATENCY_US,
        });
        rate.into_iter().chain(latency).collect()
    }

    fn json(&self, ingest: &Ingest) -> Value {
        let latency = self.latency.map(|Latency { bytes_per_s, batches, us }| {
            json!({"query": QueryName::Pass.name(),
                   "bytes_per_s": bytes_per_s.round(), "batches": batches,
                   "p50_us": round(us[0], 1), "p99_us": round(us[1], 1),
                   "max_us": round(us[2], 1)})
        });
        let Rates { bytes_per_s, limit_bytes_per_s, ratios } = self.rates;
        json!({
            "segment": self.segment,
            "batch_rows": self.batch_rows,
            "records": self.records,
            "mrec_per_s": self.mrec_per_s(),
            "bytes_per_s": bytes_per_s.round(),
            "limit_bytes_per_s": limit_bytes_per_s.round(),
            "ratio": round(ratios[1], 4),
            "ratio_min": round(ratios[0], 4),
            "ratio_max": round(ratios[2], 4),
            "latency": latency,
            "relations": self.targets(ingest),
        })
    }

    fn mrec_per_s(&self) -> f64 {
        round(self.rates.bytes_per_s / RECORD_BYTES as f64 / 1e6, 3)
    }
}

/// All results as one JSON object. With one length of segments, its rate is at the top, too.
pub(crate) fn object(ingest: &Ingest, results: &[BySegment]) -> Value {
    let mut object = json!({
        "bench": "ingest",
        "transport": ingest.transport.name(),
        "producers": ingest.producers,
        "segments": ingest.segments,
        "query": ingest.query.name(),
        "workers": ingest.settings.workers,
        "exchange": exchange_name(ingest.settings.exchange),
        "zipf": ingest.spec.zipf.map(|zipf| zipf.exponent()),
        "pairs": ingest.pairs,
        "limit": if ingest.transport.name() == "shm" { "channel" } else { "socket" },
        "cells": results.iter().map(|result| result.json(ingest)).collect::<Vec<_>>(),
        "ok": results.iter().all(|result| result.ok),
        "peak_rss_bytes": peak_rss_bytes(),
    });
    if let [result] = results {
        object["mrec_per_s"] = json!(result.mrec_per_s());
    }
    for (key, value) in provenance::fields() {
        object[key] = value;
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_with_the_median_ratio_is_reported() {
        let mut pairs = [(3.0, 1.0), (1.0, 1.0), (4.0, 2.0)];
        let rates = median(&mut pairs).unwrap();
        assert_eq!(rates.ratios, [1.0, 2.0, 3.0]);
        assert_eq!((rates.bytes_per_s, rates.limit_bytes_per_s), (4.0, 2.0));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn latencies_are_sorted_first() {
        let latency = Latency::of(1.0, (1..=200).rev().map(|ns| ns * 1000).collect()).unwrap();
        assert_eq!(latency.us, [101.0, 199.0, 200.0]);
        assert!(Latency::of(1.0, Vec::new()).is_none());
    }
}
