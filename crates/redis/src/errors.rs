//! Errors of the connection and the server as [`StoreError`]s.

use std::io;

use crate::address::{Endpoint, RedisAddress};
use crate::error::{StoreError, StoreErrorKind};

/// The server could not be reached, or the handshake failed.
pub fn unreachable(address: &RedisAddress, error: &io::Error) -> StoreError {
    let shown = &address.shown;
    match error.kind() {
        // A certificate or a file of authorities: retrying does not help.
        io::ErrorKind::InvalidInput => StoreError::refused(format!("{shown}: {error}")),
        io::ErrorKind::InvalidData => StoreError::refused(format!(
            "{shown}: {error}; is it a Redis server, and encrypted only if the address says rediss://?"
        )),
        io::ErrorKind::TimedOut => StoreError::unavailable(format!(
            "{shown}: no connection within {} s; is the server running and reachable?",
            address.connect_timeout.as_secs_f64()
        )),
        _ => StoreError::unavailable(format!(
            "{shown}: cannot connect ({error}); is the server running?"
        )),
    }
}

/// A sentinel could not be reached.
pub fn sentinel_unreachable(
    address: &RedisAddress,
    sentinel: &Endpoint,
    error: &io::Error,
) -> StoreError {
    let line = format!("{}: sentinel {sentinel}: {error}", address.shown);
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => StoreError::refused(line),
        _ => StoreError::unavailable(line),
    }
}

/// A sentinel refused a command.
pub fn sentinel_refused(address: &RedisAddress, sentinel: &Endpoint, error: &str) -> StoreError {
    let line = format!("{}: sentinel {sentinel}: {error}", address.shown);
    if has_code(error, "NOAUTH") || has_code(error, "WRONGPASS") || has_code(error, "NOPERM") {
        return StoreError::refused(format!(
            "{line}; check sentinel_username and sentinel_password of the store"
        ));
    }
    if error.contains("unknown command") {
        return StoreError::refused(format!("{line}; is it a sentinel, and not the Redis server?"));
    }
    StoreError::unavailable(line)
}

/// A sentinel does not know the name.
pub fn unknown_primary(address: &RedisAddress, sentinel: &Endpoint, name: &str) -> StoreError {
    StoreError::refused(format!(
        "{}: sentinel {sentinel} knows no primary {name:?}; the address names it as the sentinels' \
         line \"sentinel monitor\" does",
        address.shown
    ))
}

/// The connection failed while in use.
pub fn broken(address: &RedisAddress, error: &io::Error) -> StoreError {
    let shown = &address.shown;
    match error.kind() {
        io::ErrorKind::TimedOut => StoreError::unavailable(format!(
            "{shown}: no answer within {} s; the server is stopped, busy or too far away",
            address.answer_timeout.as_secs_f64()
        )),
        io::ErrorKind::InvalidData => {
            StoreError::new(StoreErrorKind::Corrupt, format!("{shown}: {error}"))
        }
        io::ErrorKind::ConnectionAborted => {
            StoreError::unavailable(format!("{shown}: another server became the primary"))
        }
        io::ErrorKind::UnexpectedEof => StoreError::unavailable(format!(
            "{shown}: the server closed the connection; it was stopped, or a client was killed"
        )),
        _ => StoreError::unavailable(format!("{shown}: the connection broke ({error})")),
    }
}

/// The server refused HELLO.
pub fn hello(address: &RedisAddress, error: &str) -> StoreError {
    if error.contains("unknown command") || error.starts_with("NOPROTO") {
        return StoreError::refused(format!(
            "{}: the server does not speak RESP3 ({error}); Redis 6.2 or newer, or Valkey, \
             is needed, with no proxy that speaks less before it",
            address.shown
        ));
    }
    server(address, error)
}

/// The server is a replica.
pub fn replica(address: &RedisAddress) -> StoreError {
    StoreError::unavailable(format!(
        "{}: the server is a replica and takes no writes; waiting for the primary at this address",
        address.shown
    ))
}

/// Whether the error says that the server cannot be used now, though its connection works.
pub fn is_unusable(error: &str) -> bool {
    let codes = ["READONLY", "LOADING", "MASTERDOWN"];
    codes.iter().any(|code| has_code(error, code)) || lacks_replicas(error)
}

/// Whether a primary refuses writes for want of replicas (`min-replicas-to-write`). One that was replaced
/// lacks them, too, until a sentinel makes it a replica, ten seconds later.
pub fn lacks_replicas(error: &str) -> bool {
    has_code(error, "NOREPLICAS")
}

/// Whether the error has this code. Before Redis 7 the error of a script, and always that of EXEC,
/// has its cause in the text.
fn has_code(error: &str, code: &str) -> bool {
    error.split(' ').next() == Some(code)
        || error.contains(&format!("-{code} "))
        || error.contains(&format!("because of: {code} "))
}

/// An error reply of the server.
pub fn server(address: &RedisAddress, error: &str) -> StoreError {
    let shown = &address.shown;
    let is = |code: &str| has_code(error, code);
    if is("OOM") || error.contains("OOM command not allowed") {
        return StoreError::new(
            StoreErrorKind::Full,
            format!("{shown}: out of memory (maxmemory); what is there can be taken out, but nothing added"),
        );
    }
    if is("WRONGPASS") || is("NOAUTH") || error.contains("AUTH <password> called") {
        return StoreError::refused(format!(
            "{shown}: user {:?} was not let in; check username and password of the store",
            address.user()
        ));
    }
    if is("NOPERM") {
        return StoreError::refused(format!(
            "{shown}: user {:?} may not do this: {error}; allow it by ACL SETUSER",
            address.user()
        ));
    }
    if is("LOADING") || is("MASTERDOWN") || is("CLUSTERDOWN") || is("TRYAGAIN") {
        return StoreError::unavailable(format!("{shown}: not ready: {error}"));
    }
    if error.contains("max number of clients") {
        return StoreError::unavailable(format!(
            "{shown}: too many clients; raise its maxclients or run fewer processes"
        ));
    }
    if is("READONLY") {
        return replica(address);
    }
    if is("MISCONF") || is("NOREPLICAS") {
        return StoreError::unavailable(format!("{shown}: writes are stopped: {error}"));
    }
    if is("BUSY") {
        return StoreError::new(
            StoreErrorKind::Busy,
            format!("{shown}: somebody's script or function runs for too long: {error}"),
        );
    }
    if is("WRONGTYPE") {
        return StoreError::new(
            StoreErrorKind::Corrupt,
            format!("{shown}: a key holds something of another program: {error}"),
        );
    }
    StoreError::refused(format!("{shown}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressOptions;

    #[test]
    fn sorts_the_errors_of_servers() {
        let address = RedisAddress::read(AddressOptions::at("redis://bob:hush@h/0")).unwrap();
        for (error, kind) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", StoreErrorKind::Full),
            ("OOM allow-oom flag is not set on the script", StoreErrorKind::Full),
            // Redis 6.2, from within a script.
            ("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", StoreErrorKind::Full),
            ("WRONGPASS invalid username-password pair or user is disabled.", StoreErrorKind::Refused),
            ("NOAUTH HELLO must be called with the client already authenticated", StoreErrorKind::Refused),
            ("NOPERM this user has no permissions to run the 'evalsha' command", StoreErrorKind::Refused),
            ("LOADING Redis is loading the dataset in memory", StoreErrorKind::Unavailable),
            ("MASTERDOWN Transport with MASTER is down", StoreErrorKind::Unavailable),
            ("READONLY You can't write against a read only replica.", StoreErrorKind::Unavailable),
            ("ERR max number of clients reached", StoreErrorKind::Unavailable),
            ("BUSY Redis is busy running a script.", StoreErrorKind::Busy),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", StoreErrorKind::Corrupt),
            ("ERR unknown command", StoreErrorKind::Refused),
        ] {
            let found = server(&address, error);
            assert_eq!(found.kind, kind, "{error}");
            assert!(found.message.contains("h/0") && !found.message.contains("hush"), "{found}");
        }
        assert!(hello(&address, "NOPROTO unsupported").message.contains("RESP3"));
    }
}
