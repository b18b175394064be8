//! The metrics as OpenMetrics text.

use std::fmt;

use chaton_core::process::counters::BOUNDS_S;
use chaton_core::process::table::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{text, DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::{Metrics, Value};

/// The text's media type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    pub fn encode(self) -> String {
        let mut registry = Registry::with_prefix("chaton");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Nothing is written but memory, which does not fail.
        text::encode(&mut text, &registry).unwrap_or_default();
        text
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let unit = match family.unit {
                "seconds" => Some(&Unit::Seconds),
                "bytes" => Some(&Unit::Bytes),
                _ => None,
            };
            let mut all = encoder.encode_descriptor(family.name, family.help, unit, kind)?;
            for (labels, value) in &family.series {
                if labels.is_empty() {
                    encode(&mut all, family.kind, value)?;
                } else {
                    encode(&mut all.encode_family(labels)?, family.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match value {
        Value::Number(number) if kind == Kind::Counter => {
            encoder.encode_counter::<NoLabelSet, _, f64>(number, None)
        }
        Value::Number(number) => encoder.encode_gauge(number),
        Value::Times(times) => {
            let bounds = BOUNDS_S.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(times.buckets).collect();
            let sum_s = times.sum_ns as f64 / 1e9;
            encoder.encode_histogram::<NoLabelSet>(sum_s, times.count(), &buckets, None)
        }
    }
}
