//! The PROXY protocol at the beginning of a connection.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::config::ProxyBind;
use crate::connection_registry::IdleMark;
use crate::proxy_protocol::{self, NoProxyHeader, ProxyHeader};
use crate::server_state::ServerState;

use super::client_socket::ClientSocket;
use super::timer::Timer;

/// Reads the header that precedes everything else. What is behind the header stays in the socket. `remote` is `None` for a
/// Unix socket, which counts as 127.0.0.1.
///
/// # Errors
/// When the peer may send no header, or there is none in time: then nobody knows who the client is.
pub(super) async fn read(
    shared: &Arc<ServerState>,
    socket: &mut ClientSocket,
    bind: &ProxyBind,
    remote: Option<IpAddr>,
) -> Result<ProxyHeader, NoProxyHeader> {
    let remote = remote.unwrap_or(Ipv4Addr::LOCALHOST.into());
    if bind.sources.as_ref().is_some_and(|some| !some.iter().any(|one| one.contains(remote))) {
        if !shared.refused_proxy_source.swap(true, Relaxed) {
            chaton_core::log::warn(&format!(
                "closed a connection of {remote}, which proxy_protocol of its bind does not list; add the address if it \
                 is a balancer of yours. Further ones are closed without this line",
            ));
        }
        return Err(NoProxyHeader);
    }
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    // By which a drain wakes it.
    let idle = Arc::<IdleMark>::default();
    let key = shared.registry.insert(waker, Some(&idle));
    shared.idles(&idle);
    let (since, mut seen) = (Instant::now(), 0);
    let header = poll_fn(|cx| poll(shared, socket, cx, since, &mut seen, &idle)).await;
    shared.registry.remove(key);
    socket.set_deadline(None);
    // Checks that only connect send nothing.
    if header.is_err() && seen > 0 && !shared.lacked_proxy_header.swap(true, Relaxed) {
        chaton_core::log::warn(
            "closed a connection that did not begin with a header of the PROXY protocol, as its bind demands; let the \
             balancer send one, or remove proxy_protocol. Further ones are closed without this line",
        );
    }
    header
}

fn poll(
    shared: &ServerState,
    socket: &mut ClientSocket,
    cx: &mut Context,
    since: Instant,
    seen: &mut usize,
    idle: &IdleMark,
) -> Poll<Result<ProxyHeader, NoProxyHeader>> {
    let mut bytes = [0; proxy_protocol::BYTES_MAX];
    loop {
        match socket.poll_peek(cx, &mut bytes, *seen) {
            Poll::Ready(Ok(len)) if len > 0 => {
                *seen = len;
                idle.set_busy();
            }
            Poll::Ready(_) => return Poll::Ready(Err(NoProxyHeader)),
            Poll::Pending if idle.must_close() => return Poll::Ready(Err(NoProxyHeader)),
            Poll::Pending => {
                let timeouts = &shared.config.timeouts;
                let time = match shared.exchanges.is_draining() {
                    true => timeouts.header.min(timeouts.drain_idle),
                    false => timeouts.header,
                };
                socket.set_deadline(Some(since + time));
                let is_late = socket.poll_expired(cx);
                return if is_late { Poll::Ready(Err(NoProxyHeader)) } else { Poll::Pending };
            }
        }
        match proxy_protocol::parse(&bytes[..*seen]) {
            Ok(None) => {}
            Ok(Some(header)) => {
                let skipped = socket.skip(&mut bytes[..header.len]);
                return Poll::Ready(skipped.map(|()| header).map_err(|_| NoProxyHeader));
            }
            Err(none) => return Poll::Ready(Err(none)),
        }
    }
}
