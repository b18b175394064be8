//! `kafka://host:port,host:port`, and `kafka+ssl://…` for TLS.

use super::super::{ErrorKind, LogError, Result};

/// Where the brokers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// `host:port,host:port`.
    pub brokers: String,
    /// Whether they are spoken to by TLS.
    pub tls: bool,
}

/// Where brokers listen that are named without a port.
const PORT: u16 = 9092;

impl BrokerAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// `Refused`, saying what is wrong with it.
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

    /// For people.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "kafka+ssl" } else { "kafka" }, self.brokers)
    }
}

/// One broker, with its port.
fn broker(text: &str) -> std::result::Result<String, &'static str> {
    // The colons of an IPv6 address stand in brackets.
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
    fn several_brokers_some_without_a_port() {
        let address = BrokerAddress::parse("kafka+ssl://a:1,b, [::1]:9/").unwrap();
        assert_eq!(address.brokers, "a:1,b:9092,[::1]:9");
        assert_eq!(address.url(), "kafka+ssl://a:1,b:9092,[::1]:9");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
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
