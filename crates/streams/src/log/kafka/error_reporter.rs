//! What librdkafka reports, as one error with a cause and a way out; the same
//! cause is told once until things go well again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::super::{ErrorKind, LogError, MemberEvent};
use super::broker_address::BrokerAddress;
use super::raw::{ErrorCode, KafkaError};

/// Which way out a code has.
pub fn kind(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::Authentication
        | ErrorCode::SaslAuthenticationFailed
        | ErrorCode::UnsupportedSASLMechanism
        | ErrorCode::IllegalSASLState
        | ErrorCode::SSL
        | ErrorCode::TopicAuthorizationFailed
        | ErrorCode::GroupAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::SecurityDisabled
        | ErrorCode::PolicyViolation
        | ErrorCode::UnsupportedFeature
        | ErrorCode::UnsupportedVersion
        | ErrorCode::InconsistentGroupProtocol
        | ErrorCode::NonEmptyGroup => ErrorKind::Refused,
        ErrorCode::UnknownTopic
        | ErrorCode::UnknownPartition
        | ErrorCode::UnknownTopicOrPartition
        | ErrorCode::UnknownTopicId => ErrorKind::UnknownTopic,
        ErrorCode::QueueFull => ErrorKind::Full,
        ErrorCode::BadMessage | ErrorCode::BadCompression | ErrorCode::InvalidMessage => {
            ErrorKind::Corrupt
        }
        ErrorCode::IllegalGeneration
        | ErrorCode::UnknownMemberId
        | ErrorCode::FencedInstanceId
        | ErrorCode::FencedMemberEpoch
        | ErrorCode::StaleMemberEpoch
        | ErrorCode::RebalanceInProgress
        | ErrorCode::AssignmentLost
        | ErrorCode::ProducerFenced
        | ErrorCode::InvalidProducerEpoch
        | ErrorCode::Fenced => ErrorKind::Fenced,
        ErrorCode::MessageSizeTooLarge
        | ErrorCode::MessageBatchTooLarge
        | ErrorCode::InvalidArgument
        | ErrorCode::InvalidTopic
        | ErrorCode::TopicAlreadyExists
        | ErrorCode::InvalidPartitions
        | ErrorCode::InvalidReplicationFactor
        | ErrorCode::InvalidReplicaAssignment
        | ErrorCode::InvalidConfig
        | ErrorCode::InvalidRequest
        | ErrorCode::InvalidTimestamp
        | ErrorCode::InvalidTransactionTimeout
        | ErrorCode::InvalidRecord
        | ErrorCode::OffsetMetadataTooLarge
        | ErrorCode::InvalidGroupId => ErrorKind::Invalid,
        _ => ErrorKind::Unreachable,
    }
}

/// What to do about an error of this kind that happened to `what`.
pub fn explain(what: &str, failure: &KafkaError) -> LogError {
    let kind = kind(failure.code);
    let text = &failure.text;
    let advice = match (kind, failure.code) {
        (_, ErrorCode::Authentication | ErrorCode::SaslAuthenticationFailed) => {
            "check username, password and mechanism"
        }
        (_, ErrorCode::UnsupportedSASLMechanism) => "check mechanism: the broker has another one",
        (_, ErrorCode::SSL) => "check tls_ca_file, and that the address is the TLS listener's",
        (_, ErrorCode::UnsupportedFeature | ErrorCode::UnsupportedVersion) => {
            "the broker is older than what is asked of it"
        }
        (_, ErrorCode::InconsistentGroupProtocol) => {
            "members of one group must use one protocol and strategy; stop the others first"
        }
        (_, ErrorCode::NonEmptyGroup) => "the group has members; stop them first",
        (ErrorKind::Refused, _) => "the user lacks the right; ask who looks after the cluster",
        (ErrorKind::UnknownTopic, _) => "create it (chaton streams apply) or correct the name",
        (_, ErrorCode::MessageSizeTooLarge | ErrorCode::MessageBatchTooLarge) => {
            "it is larger than message.max.bytes: send less, or raise that here and at the topic"
        }
        (
            _,
            ErrorCode::AllBrokersDown
            | ErrorCode::BrokerTransportFailure
            | ErrorCode::Resolve
            | ErrorCode::OperationTimedOut
            | ErrorCode::MessageTimedOut
            | ErrorCode::RequestTimedOut,
        ) => "check the address, and that the brokers run",
        _ => return LogError::new(kind, format!("{what}: {text}")),
    };
    LogError::new(kind, format!("{what}: {text}; {advice}"))
}

/// What was told already, and what went before.
pub struct ErrorReporter {
    address: String,
    said: HashSet<(i32, String)>,
    /// Why the last connection broke.
    cause: Option<String>,
    /// None is connected, and the reason is being waited for.
    down: Option<Instant>,
    /// The broker does not take us, by this code.
    refused: Option<ErrorCode>,
}

/// So it looks from here when a listener expects another protocol.
const SILENT: &str = "connections are closed without a reason: the listener may want TLS \
                      (kafka+ssl://) or a username and password";

/// How long the reason for a lost connection is waited for.
const REASON_MAX: Duration = Duration::from_secs(1);

/// Causes remembered; then all are forgotten, and may be told again.
const SAID_MAX: usize = 256;

impl ErrorReporter {
    /// None yet.
    pub fn new(address: &BrokerAddress) -> Self {
        Self {
            address: address.url(),
            said: HashSet::new(),
            cause: None,
            down: None,
            refused: None,
        }
    }

    /// Things go well: whatever comes is news.
    pub fn forget(&mut self) {
        self.refused = None;
        self.cause = None;
        self.down = None;
        if !self.said.is_empty() {
            self.said.clear();
        }
    }

    /// Why the last connection broke, as a half sentence.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Why the broker does not take us, if it said so last.
    pub fn refused(&self) -> Option<ErrorCode> {
        self.refused
    }

    /// What to tell of this failure: nothing, when it was told before or is
    /// only the beginning of one.
    pub fn hear(&mut self, failure: &KafkaError) -> Option<MemberEvent> {
        let failure = match failure.code {
            // A connection that breaks is made again; it is trouble when none
            // is left.
            ErrorCode::BrokerTransportFailure
            | ErrorCode::Resolve
            | ErrorCode::OperationTimedOut
            | ErrorCode::NodeUpdate
                if !failure.fatal =>
            {
                self.cause = Some(failure.text.clone());
                return self.down.take().and_then(|_| self.say_down());
            }
            // Told already, with the reason.
            ErrorCode::AllBrokersDown if self.refused.is_some() => return None,
            ErrorCode::AllBrokersDown if self.cause.is_none() => {
                // The reason comes just behind.
                self.down = Some(Instant::now());
                return None;
            }
            ErrorCode::AllBrokersDown => return self.say_down(),
            ErrorCode::Authentication | ErrorCode::SSL => {
                self.cause = Some(failure.text.clone());
                self.refused = Some(failure.code);
                failure
            }
            _ => failure,
        };
        self.say(failure)
    }

    /// That no broker answers, if the reason for that has not come in time.
    pub fn overdue(&mut self) -> Option<MemberEvent> {
        let over = self.down.is_some_and(|since| since.elapsed() > REASON_MAX);
        over.then(|| self.down = None).and_then(|()| self.say_down())
    }

    fn say_down(&mut self) -> Option<MemberEvent> {
        let cause = self.cause.as_deref().unwrap_or(SILENT);
        let text = format!("no broker answers ({cause})");
        self.say(&KafkaError::new(ErrorCode::AllBrokersDown, text))
    }

    /// That a question has no answer: nothing, when it is known why.
    pub fn unanswered(&mut self, failure: &KafkaError) -> Option<MemberEvent> {
        if kind(failure.code) == ErrorKind::Unreachable {
            return self.say(&KafkaError { code: ErrorCode::AllBrokersDown, ..failure.clone() });
        }
        self.say(failure)
    }

    fn say(&mut self, failure: &KafkaError) -> Option<MemberEvent> {
        // One cause is one code, and its topic where it names one.
        let about = match kind(failure.code) {
            ErrorKind::UnknownTopic => failure.text.clone(),
            _ => String::new(),
        };
        if self.said.len() >= SAID_MAX {
            self.said.clear();
        }
        if !self.said.insert((failure.code as i32, about)) {
            return None;
        }
        let error = explain(&self.address, failure);
        let hopeless = failure.fatal
            || matches!(
                failure.code,
                ErrorCode::Authentication
                    | ErrorCode::SSL
                    | ErrorCode::UnsupportedFeature
                    | ErrorCode::UnsupportedVersion
                    | ErrorCode::UnsupportedSASLMechanism
                    | ErrorCode::InconsistentGroupProtocol
                    | ErrorCode::GroupAuthorizationFailed
            );
        Some(if hopeless { MemberEvent::Fatal(error) } else { MemberEvent::Error(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors() -> ErrorReporter {
        ErrorReporter::new(&BrokerAddress { brokers: "h:1".into(), tls: false })
    }

    #[test]
    fn a_broken_connection_is_told_when_none_is_left_and_once() {
        let mut errors = errors();
        let broken = KafkaError::new(ErrorCode::BrokerTransportFailure, "Connection refused");
        let down = KafkaError::new(ErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert!(errors.hear(&broken).is_none());
        let Some(MemberEvent::Error(error)) = errors.hear(&down) else { panic!() };
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.message.contains("Connection refused"), "{error}");
        assert!(errors.hear(&broken).is_none() && errors.hear(&down).is_none());
        errors.forget();
        assert!(errors.hear(&down).is_none(), "the reason comes behind it");
        assert!(errors.hear(&broken).is_some());
    }

    #[test]
    fn wrong_credentials_are_fatal_and_say_what_to_check() {
        let wrong = KafkaError::new(ErrorCode::Authentication, "Invalid username or password");
        let Some(MemberEvent::Fatal(error)) = errors().hear(&wrong) else { panic!() };
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("check username"), "{error}");
    }

    #[test]
    fn each_unknown_topic_is_told() {
        let mut errors = errors();
        let one = KafkaError::new(ErrorCode::UnknownTopicOrPartition, "not available: a");
        let other = KafkaError::new(ErrorCode::UnknownTopicOrPartition, "not available: b");
        assert!(errors.hear(&one).is_some() && errors.hear(&other).is_some());
        assert!(errors.hear(&one).is_none());
    }
}
