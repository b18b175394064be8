//! What every log must do, on a real Kafka, with each protocol of groups.

#![cfg(feature = "kafka")]

mod kafka_support;

use chaton_streams::conformance;

mod classic {
    use super::conformance;

    fn bench() -> crate::kafka_support::KafkaBench {
        crate::kafka_support::KafkaBench
    }

    conformance!(bench);
}

mod newer {
    use std::sync::Arc;

    use chaton_streams::log::conformance::bench::Bench;
    use chaton_streams::log::Log;
    use chaton_streams::settings::{GroupSettings, LogSettings, Protocol};

    use super::conformance;
    use crate::kafka_support::KafkaBench;

    struct Newer;

    impl Bench for Newer {
        fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn Log> {
            KafkaBench.open(change)
        }

        fn group(&self, name: &str, topics: &[&str]) -> GroupSettings {
            let protocol = Protocol::Consumer;
            GroupSettings { protocol, ..GroupSettings::new(name, topics) }
        }
    }

    fn bench() -> Newer {
        Newer
    }

    conformance!(bench);
}
