//! What every log must do, on a real Kafka, with each protocol of groups.

use chaton_streams::conformance;

mod classic {
    use super::conformance;

    fn fixture() -> crate::kafka_support::KafkaFixture {
        crate::kafka_support::KafkaFixture
    }

    conformance!(fixture);
}

mod newer {
    use std::sync::Arc;

    use chaton_streams::log::conformance::fixture::LogFixture;
    use chaton_streams::log::RecordLog;
    use chaton_streams::settings::{GroupSettings, LogSettings, Protocol};

    use super::conformance;
    use crate::kafka_support::KafkaFixture;

    struct ConsumerProtocolFixture;

    impl LogFixture for ConsumerProtocolFixture {
        fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn RecordLog> {
            KafkaFixture.open(change)
        }

        fn group(&self, name: &str, topics: &[&str]) -> GroupSettings {
            let protocol = Protocol::Consumer;
            GroupSettings { protocol, ..GroupSettings::for_tests(name, topics) }
        }
    }

    fn fixture() -> ConsumerProtocolFixture {
        ConsumerProtocolFixture
    }

    conformance!(fixture);
}
