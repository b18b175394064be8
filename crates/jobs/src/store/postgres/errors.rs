//! What failed, and what that means for the caller.

use tokio_postgres::error::SqlState;
use tokio_postgres::Error;

use crate::store::{StoreError, StoreErrorKind};

/// Result of a statement, and of what consists of statements.
pub(super) type Result<T> = std::result::Result<T, Failure>;

/// What a call was doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// Waiting for a connection of the pool.
    Pool,
    /// Making a connection.
    Connect,
    /// Inside a transaction, which the server undoes.
    Statement,
    /// Committing: it may have happened.
    InDoubt,
}

/// Why a call has failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server or the connection.
    Server(Box<Error>, Phase),
    /// No answer in time.
    Late(Phase),
    /// Something else.
    Store(StoreError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(error, Phase::Connect)
    }
}

impl Failure {
    pub fn of(error: Error, phase: Phase) -> Self {
        Self::Server(Box::new(error), phase)
    }

    /// The server has not the prepared statement that the connection has made, or has it already.
    pub fn is_of_a_bouncer(&self) -> bool {
        let Self::Server(error, _) = self else { return false };
        matches!(
            error.code(),
            Some(&SqlState::UNDEFINED_PSTATEMENT | &SqlState::DUPLICATE_PSTATEMENT)
        )
    }

    /// Another transaction was preferred, or it has to be made without a prepared statement.
    pub fn wants_another_try(&self) -> bool {
        let Self::Server(error, _) = self else { return false };
        if self.is_of_a_bouncer() {
            return true;
        }
        matches!(
            error.code(),
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
        )
    }

    /// Another session has held a lock for longer than `lock_timeout`.
    pub fn is_late_lock(&self) -> bool {
        matches!(self, Self::Server(error, _) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// What else is on the connection is not known any more.
    pub fn loses_connection(&self) -> bool {
        match self {
            Self::Server(error, _) => error.as_db_error().is_none() || error.is_closed(),
            Self::Late(_) => true,
            Self::Store(_) => false,
        }
    }

    /// The error of the store's call.
    pub fn into_error(self, shown: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Late(phase) => {
                let what = match phase {
                    Phase::Pool => "all connections of this process are busy",
                    Phase::Connect => "no connection in time (5 s)",
                    Phase::Statement | Phase::InDoubt => "no answer in time (answer_timeout_s)",
                };
                let mut error = StoreError::unavailable(format!("store {shown}: {what}"));
                error.in_doubt = phase == Phase::InDoubt;
                error
            }
            Self::Server(error, phase) => server_error(&error, phase, shown),
        }
    }
}

const CERTIFICATE_ADVICE: &str =
    "; name the file of the authority that signed it by sslrootcert or tls_ca_file, or write \
     tls_verify false";

/// Retrying does not help then.
fn is_bad_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let error = error.and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidCertificate(_)))
}

fn server_error(error: &Error, phase: Phase, shown: &str) -> StoreError {
    let Some(reply) = error.as_db_error() else {
        let source = std::error::Error::source(error);
        let why = source.map_or(String::new(), |e| format!(": {e}"));
        if source.is_some_and(is_bad_certificate) {
            return StoreError::refused(format!("store {shown}: {error}{why}{CERTIFICATE_ADVICE}"));
        }
        let mut made = StoreError::unavailable(format!("store {shown}: {error}{why}"));
        made.in_doubt = phase == Phase::InDoubt;
        return made;
    };
    let (kind, advice) = meaning(reply.code().code());
    let mut made = StoreError::new(kind, format!("store {shown}: {}{advice}", reply.message()));
    // The server was shut down while it was answering.
    made.in_doubt = phase == Phase::InDoubt && reply.code().code().starts_with("57P");
    made
}

/// The kind of an error by its code, and what to do.
fn meaning(code: &str) -> (StoreErrorKind, &'static str) {
    match code {
        "53100" => (StoreErrorKind::Full, "; make room on the disk of the database"),
        "53200" => (StoreErrorKind::Full, "; the server has no memory left"),
        "53300" => (
            StoreErrorKind::Unavailable,
            "; raise max_connections, or put a bouncer before the server",
        ),
        "55P03" | "57014" => (StoreErrorKind::Busy, "; another session holds a lock for too long"),
        "25006" => (StoreErrorKind::Unavailable, "; this server is a standby"),
        "42501" => (StoreErrorKind::Refused, "; `chaton check` lists the rights that are needed"),
        "3F000" | "42P01" | "42703" => {
            (StoreErrorKind::Refused, "; make the tables with `chaton jobs migrate`")
        }
        "XX001" | "XX002" => (StoreErrorKind::Corrupt, "; the database is damaged: restore it"),
        _ => match &code[..2.min(code.len())] {
            "08" | "53" | "57" | "58" | "40" => (StoreErrorKind::Unavailable, ""),
            "28" | "3D" => (StoreErrorKind::Refused, "; correct the address in `store`"),
            _ => (StoreErrorKind::Refused, ""),
        },
    }
}
