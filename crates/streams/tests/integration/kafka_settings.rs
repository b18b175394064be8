//! Wrong settings are reported when the log is opened.

use chaton_streams::log::{open, ErrorKind, LogError};
use chaton_streams::settings::{GroupSettings, LogSettings};

fn refused(change: impl FnOnce(&mut LogSettings)) -> LogError {
    let mut settings = LogSettings::for_tests("kafka://127.0.0.1:9");
    change(&mut settings);
    let error = open(&settings).err().expect("it is refused");
    assert_eq!(error.kind, ErrorKind::Refused);
    error
}

fn property(name: &str, value: &str) -> LogError {
    refused(|settings| {
        settings.properties.insert(name.into(), value.into());
    })
}

#[test]
fn an_unknown_property_is_reported_with_the_nearest_name() {
    let error = property("socket.keepalive.enabled", "true");
    assert!(error.message.contains("\"socket.keepalive.enable\""), "{error}");
    let error = refused(|settings| {
        settings.producer_properties.insert("lingerms".into(), "3".into());
    });
    assert!(error.message.contains("\"linger.ms\""), "{error}");
}

#[test]
fn a_wrong_value_is_reported_with_its_property() {
    let error = property("socket.keepalive.enable", "perhaps");
    assert!(error.message.contains("socket.keepalive.enable"), "{error}");
    assert!(error.message.contains("true or false"), "{error}");
    let error = refused(|settings| settings.compression = Some("zip".into()));
    assert!(error.message.contains("zip"), "{error}");
    let error = refused(|settings| {
        settings.username = Some("me".into());
        settings.password = Some("word".into());
        settings.mechanism = Some("PLAN".into());
    });
    assert!(error.message.contains("PLAN"), "{error}");
}

#[test]
fn reserved_properties_are_refused() {
    for name in ["enable.auto.commit", "group.id", "bootstrap.servers", "transactional.id"] {
        let error = property(name, "true");
        assert!(error.message.contains("cannot be set"), "{error}");
    }
    let log = open(&LogSettings::for_tests("kafka://127.0.0.1:9")).unwrap();
    let mut group = GroupSettings::for_tests("g", &["t"]);
    group.properties.insert("isolation.level".into(), "read_uncommitted".into());
    let event_fd = std::sync::Arc::new(chaton_core::event_fd::EventFd::new().unwrap());
    let error = log.member(&group, &event_fd).err().expect("it is refused");
    assert!(error.message.contains("read_committed"), "{error}");
}

#[test]
fn credentials_are_complete_and_never_shown() {
    let error = refused(|settings| settings.username = Some("me".into()));
    assert!(error.message.contains("go together"), "{error}");
    let mut settings = LogSettings::for_tests("kafka+ssl://a:1,b:2");
    settings.username = Some("me".into());
    settings.password = Some("word".into());
    assert_eq!(open(&settings).unwrap().address(), "kafka+ssl://a:1,b:2");
}

#[test]
fn contradicting_properties_are_reported_when_the_handle_opens() {
    let log = open(&LogSettings::for_tests("kafka://127.0.0.1:9")).unwrap();
    let mut group = GroupSettings::for_tests("g", &["t"]);
    group.protocol = chaton_streams::settings::Protocol::Consumer;
    group.properties.insert("partition.assignment.strategy".into(), "range".into());
    let event_fd = std::sync::Arc::new(chaton_core::event_fd::EventFd::new().unwrap());
    let error = log.member(&group, &event_fd).err().expect("it is refused");
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("partition.assignment.strategy"), "{error}");
}
