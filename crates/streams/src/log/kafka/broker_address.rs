//! `kafka://host:port,host:port`, and `kafka+ssl://…` for TLS.

use crate::log::{ErrorKind, LogError, Result};

/// The brokers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// `host:port,host:port`.
    pub brokers: String,
    /// Whether connections use TLS.
    pub tls: bool,
}

/// The default port.
const PORT: u16 = 9092;

impl BrokerAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// `Refused`, with the reason.
    pub fn parse(address: &str) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("broker {address:?}: {why}; write kafka://host:port,host:port");
            LogError::new(ErrorKind::Refused, message)
        };
        let (rest, tls) = match address.strip_prefix("kafka+ssl://") {
            Some(rest) => (rest, true),
            None => (address.strip_prefix("kafka://").unwrap_or_default(), false),
        };
        if rest.contains('@') {
            let message = "broker: a user's name and password do not belong into the address; \
                           set username and password";
            return Err(LogError::new(ErrorKind::Refused, message));
        }
        let mut brokers = Vec::new();
        for one in rest.trim_end_matches('/').split(',') {
            brokers.push(broker(one.trim()).map_err(refused)?);
        }
        Ok(Self { brokers: brokers.join(","), tls })
    }

    /// The address as it is shown to people.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "kafka+ssl" } else { "kafka" }, self.brokers)
    }
}

/// One `host:port`, with the default port filled in.
fn broker(text: &str) -> std::result::Result<String, &'static str> {
    // The colons of an IPv6 address are in brackets.
    let after_host = text.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match text[after_host..].rfind(':') {
        Some(colon) => (&text[..after_host + colon], &text[after_host + colon + 1..]),
        None => (text, ""),
    };
    if host.is_empty() {
        return Err("a host is missing");
    }
    if host.contains(['/', ' ']) {
        return Err("a host has no path and no blanks");
    }
    if text.len() == host.len() {
        return Ok(format!("{host}:{PORT}"));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(format!("{host}:{port}")),
        _ => Err("a port is a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_port_is_filled_in() {
        let address = BrokerAddress::parse("kafka+ssl://a:1,b, [::1]:9/").unwrap();
        assert_eq!(address.brokers, "a:1,b:9092,[::1]:9");
        assert_eq!(address.url(), "kafka+ssl://a:1,b:9092,[::1]:9");
    }

    #[test]
    fn a_wrong_address_is_refused_with_the_reason() {
        for (text, why) in [
            ("kafka://", "host is missing"),
            ("kafka://a:b", "number"),
            ("kafka://a:0", "number"),
            ("kafka://a,,b", "host is missing"),
            ("kafka://a/topic", "no path"),
            ("kafka://me:word@a", "username"),
        ] {
            let error = BrokerAddress::parse(text).unwrap_err();
            assert!(error.message.contains(why), "{text}: {error}");
            assert!(!error.message.contains("word@"), "{error}");
        }
    }
}
