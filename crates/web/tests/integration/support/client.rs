//! A client over a plain socket.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::PATIENCE;

/// A response as read from the socket.
#[derive(Debug)]
pub struct ClientResponse {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl ClientResponse {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection.
pub struct Client {
    pub socket: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(at: SocketAddr) -> Self {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.socket.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends a GET for `target`.
    pub fn get(&mut self, target: &str) -> &mut Self {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    pub fn end_sending(&mut self) -> &mut Self {
        self.socket.shutdown(Shutdown::Write).unwrap();
        self
    }

    /// Reads once; false at the end of the connection.
    fn fill(&mut self) -> bool {
        let mut part = [0; 65_536];
        let len = self.socket.read(&mut part).unwrap();
        self.buffer.extend_from_slice(&part[..len]);
        len > 0
    }

    fn take_line(&mut self) -> String {
        self.take_until(b"\r\n")
    }

    fn take_until(&mut self, mark: &[u8]) -> String {
        loop {
            let found = self.buffer.windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                let rest = self.buffer.split_off(at + mark.len());
                let taken = std::mem::replace(&mut self.buffer, rest);
                return String::from_utf8(taken[..at].to_vec()).unwrap();
            }
            assert!(self.fill(), "ended before {mark:?}: {:?}", self.buffer);
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len {
            assert!(self.fill(), "ended after {} of {len} bytes", self.buffer.len());
        }
        let rest = self.buffer.split_off(len);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads one response, interim ones included.
    pub fn reply(&mut self) -> ClientResponse {
        self.reply_to(false)
    }

    /// Reads the response to a HEAD.
    pub fn reply_to_head(&mut self) -> ClientResponse {
        self.reply_to(true)
    }

    fn reply_to(&mut self, is_head: bool) -> ClientResponse {
        let head = self.take_until(b"\r\n\r\n");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = ClientResponse { status, head, body: Vec::new() };
        let bodyless = is_head || status < 200 || status == 204 || status == 304;
        if bodyless {
            return reply;
        }
        reply.body = if let Some(len) = reply.header("content-length") {
            let len = len.parse().unwrap();
            self.take(len)
        } else if reply.header("transfer-encoding") == Some("chunked") {
            self.take_chunks()
        } else {
            self.rest()
        };
        reply
    }

    fn take_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let len = usize::from_str_radix(&self.take_line(), 16).unwrap();
            body.extend(self.take(len));
            assert_eq!(self.take_line(), "");
            if len == 0 {
                return body;
            }
        }
    }

    /// Reads to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    /// Whether the connection ends without another byte.
    pub fn is_ended(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Exactly `len` bytes as they come.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.take(len)
    }
}
