//! Stands between clients and the broker, and keeps back the end of one transaction.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::spawn;

/// `EndTxn` in Kafka's protocol.
const END_TXN: i16 = 26;

/// What happens to the next end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Held {
    Nothing,
    /// The broker does not get it.
    Request,
    /// The broker does it, but its connection answers nothing from then on.
    Answer,
}

struct State {
    next: Held,
    seen: usize,
    released: bool,
}

/// The proxy.
pub struct Proxy {
    pub port: u16,
    target: OnceLock<String>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Proxy {
    /// Listens; connections wait for [`Proxy::connect`].
    pub fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Mutex::new(State { next: Held::Nothing, seen: 0, released: false });
        let (target, changed) = (OnceLock::new(), Condvar::new());
        let proxy = Arc::new(Self { port, target, state, changed });
        let own = proxy.clone();
        spawn(move || listener.incoming().flatten().for_each(|client| own.serve(client)));
        proxy
    }

    /// Forwards to this address.
    pub fn connect(&self, target: String) {
        self.target.set(target).unwrap();
    }

    /// Holds the next end of a transaction.
    pub fn hold(&self, what: Held) {
        *self.state.lock().unwrap() = State { next: what, seen: 0, released: false };
    }

    /// Waits until an end of a transaction is held.
    pub fn wait_held(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.seen == 0).unwrap());
    }

    /// Lets held answers through.
    pub fn release(&self) {
        self.state.lock().unwrap().released = true;
        self.changed.notify_all();
    }

    fn serve(self: &Arc<Self>, client: TcpStream) {
        let Ok(broker) = TcpStream::connect(self.target.wait()) else { return };
        let held = Arc::new(Mutex::new(false));
        let (one, other) = (client.try_clone().unwrap(), broker.try_clone().unwrap());
        let (proxy, is_held) = (self.clone(), held.clone());
        spawn(move || proxy.forward_requests(one, other, &is_held));
        let proxy = self.clone();
        spawn(move || proxy.forward_answers(broker, client, &held));
    }

    fn forward_requests(&self, mut client: TcpStream, mut broker: TcpStream, held: &Mutex<bool>) {
        while let Some(frame) = frame(&mut client) {
            let is_end = i16::from_be_bytes([frame[4], frame[5]]) == END_TXN;
            let mut state = self.state.lock().unwrap();
            let what = if is_end {
                std::mem::replace(&mut state.next, Held::Nothing)
            } else {
                Held::Nothing
            };
            if what != Held::Nothing {
                state.seen += 1;
                *held.lock().unwrap() = what == Held::Answer;
                self.changed.notify_all();
            }
            drop(state);
            if what != Held::Request && broker.write_all(&frame).is_err() {
                break;
            }
        }
        let _ = broker.shutdown(Shutdown::Both);
    }

    fn forward_answers(&self, mut broker: TcpStream, mut client: TcpStream, held: &Mutex<bool>) {
        while let Some(frame) = frame(&mut broker) {
            if *held.lock().unwrap() {
                let state = self.state.lock().unwrap();
                drop(self.changed.wait_while(state, |state| !state.released).unwrap());
            }
            if client.write_all(&frame).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }
}

/// A request or an answer, with its length; `None` at the end of the connection.
fn frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    frame.resize(4 + length, 0);
    from.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}
