//! A client of HTTP/2.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::RecvStream;
use http::{Request, Response};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::support::{Server, PATIENCE};

/// A connection; it goes on only while something of it is awaited.
pub struct Client {
    pub runtime: Runtime,
    pub requests: SendRequest<Bytes>,
    pub connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub fn connect(server: &Server) -> Self {
        Self::with(server, &Builder::new())
    }

    pub fn with(server: &Server, builder: &Builder) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (requests, connection) = runtime.block_on(async {
            let socket = TcpStream::connect(server.at).await.unwrap();
            let (requests, connection): (_, Connection<_, Bytes>) =
                builder.handshake(socket).await.unwrap();
            (requests, tokio::spawn(connection))
        });
        Self { runtime, requests, connection }
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await }).unwrap()
    }

    /// Goes on until `condition` holds.
    pub fn until(&self, condition: impl Fn() -> bool) {
        self.wait(async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    /// Begins a request with a body.
    pub fn send(&self, request: Request<()>, body: &[u8]) -> ResponseFuture {
        let mut requests = self.wait(self.requests.clone().ready()).unwrap();
        let (response, mut stream) = requests.send_request(request, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true).unwrap();
        }
        response
    }

    pub fn get(&self, path: &str) -> ResponseFuture {
        self.send(get(path), b"")
    }

    /// Status and body of a response.
    pub fn reply(&self, response: ResponseFuture) -> Result<(u16, Vec<u8>), h2::Error> {
        self.wait(async {
            let response = response.await?;
            let status = response.status().as_u16();
            Ok((status, read(response).await?))
        })
    }

    pub fn text(&self, response: ResponseFuture) -> (u16, String) {
        let (status, body) = self.reply(response).unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    /// Waits for the end of the connection; an error, unless that was announced.
    pub fn end(mut self) -> Option<h2::Error> {
        drop(self.requests);
        let ended = self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, pin!(&mut self.connection)).await });
        ended.expect("the connection ends").unwrap().err()
    }
}

pub async fn read(response: Response<RecvStream>) -> Result<Vec<u8>, h2::Error> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        bytes.extend_from_slice(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    Ok(bytes)
}

pub fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.test{path}")).body(()).unwrap()
}

pub fn post(path: &str) -> Request<()> {
    Request::post(format!("http://a.test{path}")).body(()).unwrap()
}
