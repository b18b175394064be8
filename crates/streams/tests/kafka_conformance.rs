//! What every log must do, on a real Kafka.

#![cfg(feature = "kafka")]

mod kafka_support;

use chaton_streams::conformance;

fn bench() -> kafka_support::KafkaBench {
    kafka_support::KafkaBench
}

conformance!(bench);
