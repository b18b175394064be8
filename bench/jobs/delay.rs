//! A proxy on the loopback that adds a network's latency in each direction, without limiting the bandwidth.
//! Usage: `delay TARGET_PORT MICROSECONDS`; it prints the port it listens on.
//!
//! In each direction one thread reads and notes when the bytes are due, and another thread writes them when they are due,
//! so that any number of bytes may be in flight.
#![deny(missing_docs)]

use std::env;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of one read.
const CHUNK_BYTES: usize = 256 * 1024;

fn main() {
    let numbers: Vec<u64> =
        env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let [port, delay_us] = numbers[..] else { panic!("usage: delay TARGET_PORT MICROSECONDS") };
    let target = ("127.0.0.1", u16::try_from(port).expect("a port"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    println!("{}", listener.local_addr().expect("an address").port());
    for client in listener.incoming() {
        let client = client.expect("a connection");
        let server = TcpStream::connect(target).expect("the target");
        for (from, to) in [(&client, &server), (&server, &client)] {
            to.set_nodelay(true).expect("no delay but ours");
            carry(from.try_clone().expect("a handle"), to.try_clone().expect("a handle"), delay_us);
        }
    }
}

/// Copies one direction of a connection with the delay.
fn carry(mut from: TcpStream, mut to: TcpStream, delay_us: u64) {
    let delay = Duration::from_micros(delay_us);
    let (sender, under_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in under_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // The end of the stream is delayed too. The error of a closed connection is of no interest.
        drop(to.shutdown(Shutdown::Write));
    });
}
