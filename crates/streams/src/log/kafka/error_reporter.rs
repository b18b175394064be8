//! Turns librdkafka's many errors into one event per cause. The same cause is
//! reported once until something succeeds again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::broker_address::BrokerAddress;
use super::errors::{error_kind, explain};
use super::raw::{ErrorCode, KafkaError};
use crate::log::{ErrorKind, MemberEvent};

/// The errors that were reported, and their causes.
pub struct ErrorReporter {
    address: String,
    reported: HashSet<(i32, String)>,
    /// Why the last connection broke.
    cause: Option<String>,
    /// Since when no broker is connected without a known reason.
    down_since: Option<Instant>,
    /// The code with which the broker refused the connection.
    refused: Option<ErrorCode>,
}

/// The usual reason when a broker closes connections without an error.
const NO_REASON: &str = "connections are closed without a reason: the listener may want TLS \
                      (kafka+ssl://) or a username and password";

/// The longest wait for the reason of a lost connection.
const REASON_WAIT_MAX: Duration = Duration::from_secs(1);

/// With more causes than this, all are forgotten and may be reported again.
const REPORTED_MAX: usize = 256;

impl ErrorReporter {
    pub fn new(address: &BrokerAddress) -> Self {
        Self {
            address: address.url(),
            reported: HashSet::new(),
            cause: None,
            down_since: None,
            refused: None,
        }
    }

    /// Something succeeded, so that every cause is reported again.
    pub fn reset(&mut self) {
        self.refused = None;
        self.cause = None;
        self.down_since = None;
        if !self.reported.is_empty() {
            self.reported.clear();
        }
    }

    /// Why the last connection broke, as a half sentence.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// The code with which the broker refused the connection, if it did.
    pub fn refused(&self) -> Option<ErrorCode> {
        self.refused
    }

    /// The event for this error; `None` if its cause was reported before, or
    /// if the cause is not known yet.
    pub fn report(&mut self, error: &KafkaError) -> Option<MemberEvent> {
        let error = match error.code {
            // A lost connection is opened again; it is reported only when none is left.
            ErrorCode::BrokerTransportFailure
            | ErrorCode::Resolve
            | ErrorCode::OperationTimedOut
            | ErrorCode::NodeUpdate
                if !error.fatal =>
            {
                self.cause = Some(error.text.clone());
                return self.down_since.take().and_then(|_| self.report_down());
            }
            // The refusal was reported already.
            ErrorCode::AllBrokersDown if self.refused.is_some() => return None,
            ErrorCode::AllBrokersDown if self.cause.is_none() => {
                // The reason follows. Each attempt to connect again brings this error once more.
                self.down_since.get_or_insert_with(Instant::now);
                return None;
            }
            ErrorCode::AllBrokersDown => return self.report_down(),
            ErrorCode::Authentication | ErrorCode::SSL => {
                self.refuse(error);
                error
            }
            _ => error,
        };
        self.report_once(error)
    }

    /// A broker refuses this client. What is reported depends on the others; it is also the
    /// reason for which none is connected.
    pub fn refuse(&mut self, error: &KafkaError) {
        self.down_since = None;
        self.cause = Some(error.text.clone());
        self.refused = Some(error.code);
    }

    /// The event for a broker that refuses this client, when it is known whether another one
    /// accepts it.
    pub fn report_refusal(&mut self, error: &KafkaError, accepted: bool) -> Option<MemberEvent> {
        if !accepted {
            // Something may have succeeded since.
            return self.refused.and_then(|_| self.report_once(error));
        }
        self.refused = None;
        let is_new = self.reported.insert((error.code as i32, "one broker".into()));
        let text = format!("one broker refuses this client, others accept it: {}", error.text);
        let error = explain(&self.address, &KafkaError { text, ..error.clone() });
        is_new.then_some(MemberEvent::Error(error))
    }

    /// The event that no broker answers, if its reason has not come in time.
    pub fn report_overdue(&mut self) -> Option<MemberEvent> {
        let over = self.down_since.is_some_and(|since| since.elapsed() > REASON_WAIT_MAX);
        over.then(|| self.down_since = None).and_then(|()| self.report_down())
    }

    fn report_down(&mut self) -> Option<MemberEvent> {
        let cause = self.cause.as_deref().unwrap_or(NO_REASON);
        let text = format!("no broker answers ({cause})");
        self.report_once(&KafkaError::new(ErrorCode::AllBrokersDown, text))
    }

    /// The event for a request without an answer.
    pub fn report_unanswered(&mut self, error: &KafkaError) -> Option<MemberEvent> {
        if error_kind(error.code) == ErrorKind::Unreachable {
            return self
                .report_once(&KafkaError { code: ErrorCode::AllBrokersDown, ..error.clone() });
        }
        self.report_once(error)
    }

    fn report_once(&mut self, error: &KafkaError) -> Option<MemberEvent> {
        // A cause is a code, and the topic if the error names one.
        let about = match error_kind(error.code) {
            ErrorKind::UnknownTopic => error.text.clone(),
            _ => String::new(),
        };
        if self.reported.len() >= REPORTED_MAX {
            self.reported.clear();
        }
        if !self.reported.insert((error.code as i32, about)) {
            return None;
        }
        let explained = explain(&self.address, error);
        let is_fatal = error.fatal
            || matches!(
                error.code,
                ErrorCode::Authentication
                    | ErrorCode::SSL
                    | ErrorCode::UnsupportedFeature
                    | ErrorCode::UnsupportedVersion
                    | ErrorCode::UnsupportedSASLMechanism
                    | ErrorCode::InconsistentGroupProtocol
                    | ErrorCode::GroupAuthorizationFailed
            );
        Some(if is_fatal { MemberEvent::Fatal(explained) } else { MemberEvent::Error(explained) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> ErrorReporter {
        ErrorReporter::new(&BrokerAddress { brokers: "h:1".into(), tls: false })
    }

    #[test]
    fn a_lost_connection_is_reported_once_when_none_is_left() {
        let mut errors = reporter();
        let broken = KafkaError::new(ErrorCode::BrokerTransportFailure, "Connection refused");
        let down = KafkaError::new(ErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert!(errors.report(&broken).is_none());
        let Some(MemberEvent::Error(error)) = errors.report(&down) else { panic!() };
        assert_eq!(error.kind, ErrorKind::Unreachable);
        assert!(error.message.contains("Connection refused"), "{error}");
        assert!(errors.report(&broken).is_none() && errors.report(&down).is_none());
        errors.reset();
        assert!(errors.report(&down).is_none(), "the reason follows");
        assert!(errors.report(&broken).is_some());
    }

    #[test]
    fn wrong_credentials_are_fatal_and_say_what_to_check() {
        let wrong = KafkaError::new(ErrorCode::Authentication, "Invalid username or password");
        let Some(MemberEvent::Fatal(error)) = reporter().report(&wrong) else { panic!() };
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("check username"), "{error}");
    }

    #[test]
    fn closed_connections_are_reported_although_attempts_go_on() {
        let mut errors = reporter();
        let down = KafkaError::new(ErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert!(errors.report(&down).is_none() && errors.report_overdue().is_none());
        let since = errors.down_since.as_mut().unwrap();
        *since = since.checked_sub(2 * REASON_WAIT_MAX).unwrap();
        assert!(errors.report(&down).is_none(), "the next attempt has failed");
        let Some(MemberEvent::Error(error)) = errors.report_overdue() else { panic!() };
        assert!(error.message.contains("may want TLS"), "{error}");
    }

    #[test]
    fn one_broker_that_refuses_is_fatal_only_when_no_other_accepts() {
        let wrong = KafkaError::new(ErrorCode::Authentication, "Invalid username or password");
        let mut errors = reporter();
        errors.refuse(&wrong);
        let Some(MemberEvent::Error(error)) = errors.report_refusal(&wrong, true) else { panic!() };
        assert!(error.message.contains("others accept it"), "{error}");
        errors.refuse(&wrong);
        assert!(errors.report_refusal(&wrong, true).is_none(), "it was reported");
        errors.refuse(&wrong);
        errors.reset();
        assert!(errors.report_refusal(&wrong, false).is_none(), "something succeeded since");
        errors.refuse(&wrong);
        let event = errors.report_refusal(&wrong, false);
        assert!(matches!(event, Some(MemberEvent::Fatal(_))), "{event:?}");
    }

    #[test]
    fn a_refusal_is_the_reason_that_none_is_connected() {
        let mut errors = reporter();
        let down = KafkaError::new(ErrorCode::AllBrokersDown, "1/1 brokers are down");
        let wrong = KafkaError::new(ErrorCode::SSL, "certificate verify failed");
        assert!(errors.report(&down).is_none());
        let since = errors.down_since.as_mut().unwrap();
        *since = since.checked_sub(2 * REASON_WAIT_MAX).unwrap();
        errors.refuse(&wrong);
        assert!(errors.report_overdue().is_none() && errors.report(&down).is_none());
        let event = errors.report_refusal(&wrong, false);
        assert!(matches!(event, Some(MemberEvent::Fatal(_))), "{event:?}");
    }

    #[test]
    fn each_unknown_topic_is_reported() {
        let mut errors = reporter();
        let one = KafkaError::new(ErrorCode::UnknownTopicOrPartition, "not available: a");
        let other = KafkaError::new(ErrorCode::UnknownTopicOrPartition, "not available: b");
        assert!(errors.report(&one).is_some() && errors.report(&other).is_some());
        assert!(errors.report(&one).is_none());
    }
}
