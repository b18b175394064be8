//! Follows the supervisor: passes its messages to the support thread, and ends this
//! process some time after the supervisor's end.

use std::sync::Arc;
use std::time::Duration;

use crate::process::channel::{ChannelMessage, SupervisorChannel};
use crate::process::events::{SupportEvent, SupportEvents};
use crate::{clock, log};

/// What a worker does with the connection to its supervisor.
pub struct SupervisorWatch {
    channel: Option<Arc<SupervisorChannel>>,
    orphan_exit: Duration,
    exit_at_ns: Option<u64>,
}

impl SupervisorWatch {
    /// `orphan_exit` is the time between the supervisor's end and the forced exit.
    /// Without a channel there is no supervisor.
    pub fn new(channel: Option<Arc<SupervisorChannel>>, orphan_exit: Duration) -> Self {
        Self { channel, orphan_exit, exit_at_ns: None }
    }

    /// The channel to poll, until the supervisor's end.
    pub fn channel(&self) -> Option<&SupervisorChannel> {
        self.channel.as_deref().filter(|_| self.exit_at_ns.is_none())
    }

    /// Reads what has arrived and posts it for the support thread.
    pub fn receive(&mut self, events: &SupportEvents) {
        let Some(channel) = self.channel() else { return };
        let received = channel.receive();
        if received.ping {
            events.post(SupportEvent::Ping);
        }
        for line in received.lines {
            events.post(match line {
                ChannelMessage::Recover(text) => SupportEvent::Recover(text),
                ChannelMessage::Order(text) => SupportEvent::Order(text),
            });
        }
        if received.lost > 0 {
            log::warn(
                "a message from the supervisor could not be read: the jobs of a worker that died are \
                 recovered when its lease ends",
            );
        }
        if received.end {
            self.exit_at_ns = Some(clock::now_ns() + self.orphan_exit.as_nanos() as u64);
            events.post(SupportEvent::Orphan);
        }
    }

    /// When the process is ended by force (ns of the clock); `None` with a supervisor.
    pub fn exit_at_ns(&self) -> Option<u64> {
        self.exit_at_ns
    }

    /// Ends the process if it has outlived its supervisor for too long.
    pub fn exit_if_due(&self, now_ns: u64) {
        if self.exit_at_ns.is_some_and(|at| now_ns >= at) {
            log::warn("the supervisor is gone and this worker did not finish in time: exiting");
            // SAFETY: ends the process at once, as intended.
            unsafe { libc::_exit(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_are_posted_until_the_supervisor_is_gone() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let channel = Arc::new(SupervisorChannel::new(ours.into()));
        let mut watch = SupervisorWatch::new(Some(channel), Duration::from_secs(9));
        let events = SupportEvents::default();
        theirs.write_all(b"pR{}\n").unwrap();
        watch.receive(&events);
        assert_eq!(events.poll(), Some(SupportEvent::Ping));
        assert_eq!(events.poll(), Some(SupportEvent::Recover("{}".into())));
        assert!(watch.channel().is_some() && watch.exit_at_ns().is_none());
        drop(theirs);
        watch.receive(&events);
        assert_eq!(events.poll(), Some(SupportEvent::Orphan));
        assert!(watch.channel().is_none() && watch.exit_at_ns().is_some());
        watch.exit_if_due(clock::now_ns());
    }
}
