//! Workers that share a listening socket leave connections to the freer one.

use chaton_core::engine::Engine as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{echo, eventually, listener, Client, Server};
use chaton_core::process::scoreboard::Scoreboard;
use chaton_web::Config;

/// Two engines on one socket, as two workers have after a fork.
fn pair(scoreboard: &Arc<Scoreboard>, set: impl Fn(&mut Config)) -> [Server; 2] {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    [0, 1].map(|slot| {
        let mut server = Server::with(
            |config| {
                config.listeners = vec![listener(socket.try_clone().unwrap())];
                config.scoreboard = Some(Arc::clone(scoreboard));
                config.slot = slot;
                set(config);
            },
            echo,
        );
        server.at = socket.local_addr().unwrap();
        assert_eq!(scoreboard.slot(slot).accepting.load(SeqCst), 1, "a started engine accepts");
        assert_eq!(scoreboard.slot(slot).pid.load(SeqCst), std::process::id());
        server
    })
}

#[test]
fn a_hogged_worker_leaves_connections_to_its_sibling() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let servers = pair(&scoreboard, |config| config.accept_defer = Duration::from_secs(10));
    scoreboard.slot(0).hogged.store(1, SeqCst);
    let clients: Vec<Client> = (0..30)
        .map(|_| {
            let mut client = Client::connect(servers[0].at);
            assert_eq!(client.get("/").reply().status, 200);
            client
        })
        .collect();
    assert_eq!(servers[0].engine.stats().accepted_total, 0);
    assert_eq!(scoreboard.slot(1).connections.load(SeqCst), 30);
    assert_eq!(scoreboard.slot(1).requests_total.load(SeqCst), 30);
    drop(clients);
}

/// Clients that stay connected would all be on the worker that was free for a moment.
#[test]
fn a_worker_that_is_hogged_for_a_moment_gets_its_share_of_many_connections() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let servers = pair(&scoreboard, |config| config.accept_defer = Duration::from_secs(10));
    scoreboard.slot(0).hogged.store(1, SeqCst);
    let mut clients: Vec<Client> = (0..30).map(|_| Client::connect(servers[0].at)).collect();
    eventually("all are accepted", || {
        (0..2).map(|slot| scoreboard.slot(slot).connections.load(SeqCst)).sum::<u32>() == 30
    });
    let hogged = scoreboard.slot(0).connections.load(SeqCst);
    assert!((10..=20).contains(&hogged), "{hogged}");
    for client in &mut clients {
        assert_eq!(client.get("/").reply().status, 200);
    }
}

#[test]
fn connections_are_spread() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let servers = pair(&scoreboard, |_| {});
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..60 {
        let mut client = Client::connect(servers[0].at);
        assert_eq!(client.get("/").reply().status, 200);
        clients.push(client);
    }
    for slot in 0..2 {
        let connections = scoreboard.slot(slot).connections.load(SeqCst);
        assert!((20..=40).contains(&connections), "worker {slot} has {connections} of 60");
    }
}

#[test]
fn a_sibling_that_does_not_take_them_is_not_waited_for_long() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let [server, sibling] = pair(&scoreboard, |_| {});
    sibling.engine.stop();
    // It looks free but is stuck: accepting, and nothing happens.
    scoreboard.slot(1).accepting.store(1, SeqCst);
    scoreboard.slot(0).hogged.store(1, SeqCst);
    let start = Instant::now();
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(server.at)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").reply().status, 200);
    }
    assert!(start.elapsed() >= Duration::from_millis(50), "the sibling had its time");
    assert_eq!(server.engine.stats().accepted_total, 50);
}

#[test]
fn a_paused_worker_takes_nothing() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let servers = pair(&scoreboard, |_| {});
    servers[0].engine.pause_accept();
    assert_eq!(scoreboard.slot(0).accepting.load(SeqCst), 0);
    for _ in 0..20 {
        assert_eq!(Client::connect(servers[0].at).get("/").reply().status, 200);
    }
    assert_eq!(servers[0].engine.stats().accepted_total, 0);
}

#[test]
fn a_socket_that_the_supervisor_shuts_down_accepts_nothing_more() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = Server::with(
        |config| {
            config.listeners = vec![listener(socket.try_clone().unwrap())];
            config.scoreboard = Some(Arc::clone(&scoreboard));
        },
        echo,
    );
    server.at = socket.local_addr().unwrap();
    let mut client = server.connect();
    assert_eq!(client.get("/").reply().status, 200);
    // SAFETY: the descriptor is open during the call.
    assert_eq!(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) }, 0);
    assert!(TcpStream::connect(server.at).is_err());
    eventually("accepting ends", || scoreboard.slot(0).accepting.load(SeqCst) == 0);
    assert_eq!(client.get("/").reply().status, 200);
    assert!(server.threads.warnings.lock().unwrap().is_empty());
}

/// Alerts for failed requests must not go off because clients give up.
#[test]
fn a_request_whose_client_has_left_is_no_error_of_the_server() {
    let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
    let server = Server::with(
        |config| config.scoreboard = Some(Arc::clone(&scoreboard)),
        |exchange| eventually("it is not to be run", || !exchange.may_begin()),
    );
    let mut client = server.connect();
    client.get("/");
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.reply().status, 503);
    let requests = &scoreboard.counters(0).requests;
    eventually("it is counted", || requests.responses_4xx.load(SeqCst) == 1);
    assert_eq!(requests.responses_5xx.load(SeqCst), 0);
}
