//! A proxy on the loopback that adds a delay to every byte, each way, as a network would: it delays, and does not
//! slow. Usage: `delay TARGET_PORT MICROSECONDS`; it prints the port it listens on.
//!
//! One thread of a direction reads and notes when the bytes are due; another one writes them then, so that any amount
//! may be under way at once.
#![deny(missing_docs)]

use std::env;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes taken at once.
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

/// Copies one direction of a connection, later.
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
        // The end of the stream is delayed too; whoever is gone already does not mind.
        drop(to.shutdown(Shutdown::Write));
    });
}
