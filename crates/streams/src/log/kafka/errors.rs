//! Errors of librdkafka as errors of the log, with advice.

use super::raw::{ErrorCode, KafkaError};
use crate::log::{ErrorKind, LogError};

/// The kind of error of a code.
pub fn error_kind(code: ErrorCode) -> ErrorKind {
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

/// The error that happened to `what`, with advice.
pub fn explain(what: &str, error: &KafkaError) -> LogError {
    let kind = error_kind(error.code);
    let text = &error.text;
    let advice = match (kind, error.code) {
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
