//! What librdkafka reports, as one error with a cause and a way out; the same
//! cause is told once until things go well again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::super::{ErrorKind, LogError, MemberEvent};
use super::address::Address;
use super::raw::{Code, Failure};

/// Which way out a code has.
pub fn kind(code: Code) -> ErrorKind {
    match code {
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState
        | Code::SSL
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::SecurityDisabled
        | Code::PolicyViolation
        | Code::UnsupportedFeature
        | Code::UnsupportedVersion
        | Code::InconsistentGroupProtocol
        | Code::NonEmptyGroup => ErrorKind::Refused,
        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId => ErrorKind::UnknownTopic,
        Code::QueueFull => ErrorKind::Full,
        Code::BadMessage | Code::BadCompression | Code::InvalidMessage => ErrorKind::Corrupt,
        Code::IllegalGeneration
        | Code::UnknownMemberId
        | Code::FencedInstanceId
        | Code::FencedMemberEpoch
        | Code::StaleMemberEpoch
        | Code::RebalanceInProgress
        | Code::AssignmentLost
        | Code::ProducerFenced
        | Code::InvalidProducerEpoch
        | Code::Fenced => ErrorKind::Fenced,
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidArgument
        | Code::InvalidTopic
        | Code::TopicAlreadyExists
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidReplicaAssignment
        | Code::InvalidConfig
        | Code::InvalidRequest
        | Code::InvalidTimestamp
        | Code::InvalidTransactionTimeout
        | Code::InvalidRecord
        | Code::OffsetMetadataTooLarge
        | Code::InvalidGroupId => ErrorKind::Invalid,
        _ => ErrorKind::Unreachable,
    }
}

/// What to do about an error of this kind that happened to `what`.
pub fn explain(what: &str, failure: &Failure) -> LogError {
    let kind = kind(failure.code);
    let text = &failure.text;
    let advice = match (kind, failure.code) {
        (_, Code::Authentication | Code::SaslAuthenticationFailed) => {
            "check username, password and mechanism"
        }
        (_, Code::UnsupportedSASLMechanism) => "check mechanism: the broker has another one",
        (_, Code::SSL) => "check tls_ca_file, and that the address is the TLS listener's",
        (_, Code::UnsupportedFeature | Code::UnsupportedVersion) => {
            "the broker is older than what is asked of it"
        }
        (_, Code::InconsistentGroupProtocol) => {
            "members of one group must use one protocol and strategy; stop the others first"
        }
        (_, Code::NonEmptyGroup) => "the group has members; stop them first",
        (ErrorKind::Refused, _) => "the user lacks the right; ask who looks after the cluster",
        (ErrorKind::UnknownTopic, _) => "create it (chaton streams apply) or correct the name",
        (_, Code::MessageSizeTooLarge | Code::MessageBatchTooLarge) => {
            "it is larger than message.max.bytes: send less, or raise that here and at the topic"
        }
        (
            _,
            Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::MessageTimedOut
            | Code::RequestTimedOut,
        ) => "check the address, and that the brokers run",
        _ => return LogError::new(kind, format!("{what}: {text}")),
    };
    LogError::new(kind, format!("{what}: {text}; {advice}"))
}

/// What was told already, and what went before.
pub struct Troubles {
    address: String,
    said: HashSet<(i32, String)>,
    /// Why the last connection broke.
    cause: Option<String>,
    /// None is connected, and the reason is being waited for.
    down: Option<Instant>,
    /// The broker does not take us, by this code.
    refused: Option<Code>,
}

/// So it looks from here when a listener expects another protocol.
const SILENT: &str = "connections are closed without a reason: the listener may want TLS \
                      (kafka+ssl://) or a username and password";

/// How long the reason for a lost connection is waited for.
const REASON_MAX: Duration = Duration::from_secs(1);

/// Causes remembered; then all are forgotten, and may be told again.
const SAID_MAX: usize = 256;

impl Troubles {
    /// None yet.
    pub fn new(address: &Address) -> Self {
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
    pub fn refused(&self) -> Option<Code> {
        self.refused
    }

    /// What to tell of this failure: nothing, when it was told before or is
    /// only the beginning of one.
    pub fn hear(&mut self, failure: &Failure) -> Option<MemberEvent> {
        let failure = match failure.code {
            // A connection that breaks is made again; it is trouble when none
            // is left.
            Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::NodeUpdate
                if !failure.fatal =>
            {
                self.cause = Some(failure.text.clone());
                return self.down.take().and_then(|_| self.say_down());
            }
            // Told already, with the reason.
            Code::AllBrokersDown if self.refused.is_some() => return None,
            Code::AllBrokersDown if self.cause.is_none() => {
                // The reason comes just behind.
                self.down = Some(Instant::now());
                return None;
            }
            Code::AllBrokersDown => return self.say_down(),
            Code::Authentication | Code::SSL => {
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
        self.say(&Failure::new(Code::AllBrokersDown, text))
    }

    /// That a question has no answer: nothing, when it is known why.
    pub fn unanswered(&mut self, failure: &Failure) -> Option<MemberEvent> {
        if kind(failure.code) == ErrorKind::Unreachable {
            return self.say(&Failure { code: Code::AllBrokersDown, ..failure.clone() });
        }
        self.say(failure)
    }

    fn say(&mut self, failure: &Failure) -> Option<MemberEvent> {
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
                Code::Authentication
                    | Code::SSL
                    | Code::UnsupportedFeature
                    | Code::UnsupportedVersion
                    | Code::UnsupportedSASLMechanism
                    | Code::InconsistentGroupProtocol
                    | Code::GroupAuthorizationFailed
            );
        Some(if hopeless { MemberEvent::Fatal(error) } else { MemberEvent::Trouble(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn troubles() -> Troubles {
        Troubles::new(&Address { brokers: "h:1".into(), tls: false })
    }

    #[test]
    fn a_broken_connection_is_told_when_none_is_left_and_once() {
        let mut troubles = troubles();
        let broken = Failure::new(Code::BrokerTransportFailure, "Connection refused");
        let down = Failure::new(Code::AllBrokersDown, "1/1 brokers are down");
        assert!(troubles.hear(&broken).is_none());
        let Some(MemberEvent::Trouble(error)) = troubles.hear(&down) else { panic!() };
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.message.contains("Connection refused"), "{error}");
        assert!(troubles.hear(&broken).is_none() && troubles.hear(&down).is_none());
        troubles.forget();
        assert!(troubles.hear(&down).is_none(), "the reason comes behind it");
        assert!(troubles.hear(&broken).is_some());
    }

    #[test]
    fn wrong_credentials_are_fatal_and_say_what_to_check() {
        let wrong = Failure::new(Code::Authentication, "Invalid username or password");
        let Some(MemberEvent::Fatal(error)) = troubles().hear(&wrong) else { panic!() };
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("check username"), "{error}");
    }

    #[test]
    fn each_unknown_topic_is_told() {
        let mut troubles = troubles();
        let one = Failure::new(Code::UnknownTopicOrPartition, "not available: a");
        let other = Failure::new(Code::UnknownTopicOrPartition, "not available: b");
        assert!(troubles.hear(&one).is_some() && troubles.hear(&other).is_some());
        assert!(troubles.hear(&one).is_none());
    }
}
