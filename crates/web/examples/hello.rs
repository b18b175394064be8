//! The engine without Ruby: one plain thread answers every request with a
//! canned text, so that the cost of the engine can be measured alone.
//!
//! `cargo run --release -p chaton-web --example hello -- 9292`, then
//! `wrk -t1 -c100 -d3 http://127.0.0.1:9292/`. Prints counters when its input ends.

use std::collections::VecDeque;
use std::io::Read;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use chaton_web::{BodySize, Config, Engine, Exchange, Listener, ListenerKind, ResponseHead};

const BODY: &[u8] = b"Hello world\n";

/// A queue for one thread.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Arc<Exchange>>>,
    some: Condvar,
}

impl chaton_core::engine::Feed<Exchange> for Queue {
    fn submit(&self, exchange: Arc<Exchange>) -> Result<(), Arc<Exchange>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(exchange);
        Ok(())
    }

    fn flush(&self) {
        self.some.notify_one();
    }
}

impl Queue {
    fn take(&self) -> Arc<Exchange> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(exchange) = waiting.pop_front() {
                return exchange;
            }
            waiting = self.some.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port: u16 = std::env::args().nth(1).map_or(Ok(9292), |text| text.parse())?;
    let socket = TcpListener::bind(("127.0.0.1", port))?;
    let label = format!("tcp://{}", socket.local_addr()?);
    println!("serving {label}");
    let listener = Listener { fd: socket.into(), kind: ListenerKind::Tcp, label, tls: None };
    let queue = Arc::new(Queue::default());
    let engine = Engine::start(Config::for_tests(vec![listener]), queue.clone())?;
    std::thread::Builder::new().name("answers".to_owned()).spawn(move || loop {
        let exchange = queue.take();
        let context = exchange.response_context(None);
        let head = ResponseHead::new(exchange.take_buffer(), 200, &context).and_then(|mut head| {
            head.header(b"Content-Type", b"text/plain")?;
            head.finish(BodySize::Known(BODY.len() as u64))
        });
        if let Ok(mut head) = head {
            head.bytes.extend_from_slice(BODY);
            exchange.complete(head, None);
        }
    })?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:#?}", engine.stats());
    Ok(())
}
