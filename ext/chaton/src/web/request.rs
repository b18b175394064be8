//! `Chaton::Native::Request`: one HTTP request.
//!
//! It is also the request's `rack.hijack`. It responds once; if it is dropped without
//! a response, the client gets a 500.

use std::cell::{Cell, RefCell};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::Duration;

use chaton_web::content_coding::ContentCoding;
use chaton_web::head::Version;
use chaton_web::response_head::{BodySize, CompressionOffer, EncodedHead, ResponseFraming};
use chaton_web::{
    own_request_id, BodyPart, Capacity, ClientGone, Exchange, Feeder, FileAnswer, RequestBody,
};
use magnus::gc::Marker;
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{
    method, prelude::*, DataTypeFunctions, Error, RArray, RModule, RString, Ruby, TypedData, Value,
};
use rb_sys::VALUE;

use crate::gvl::{check_interrupts, without_gvl, without_gvl_to_the_end};
use crate::web::{
    env_builder::EnvBuilder, files, pinned_strings, response, streamed_body::RbStreamedBody,
};
use crate::{error, handle, traces};

/// Strings of this size and above are written without copying. Below, copying is
/// cheaper than pinning.
const PIN_BYTES_MIN: u64 = 32 * 1024;
/// Bodies of this size and above are compressed without the GVL.
const RELEASE_BYTES_MIN: usize = 8 * 1024;
/// Interval at which a blocked writer checks whether its client is still connected;
/// the engine's write timeout ends the wait.
const ROOM_WAIT: Duration = Duration::from_secs(60);

/// One request.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::Request", mark, free_immediately, size)]
pub struct Request {
    made_in: u32,
    env_builder: &'static EnvBuilder,
    /// Its number, for its id in the log.
    id: u64,
    exchange: RefCell<Option<Arc<Exchange>>>,
    env: Cell<VALUE>,
    /// The File of a spooled body, nil when there is none.
    input: Cell<VALUE>,
    /// After a hijack the application's response is ignored.
    hijacked: Cell<bool>,
}

// SAFETY: only used and dropped by threads that hold the GVL.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

impl DataTypeFunctions for Request {
    fn mark(&self, marker: &Marker) {
        // SAFETY: nil, or the Hash and the File that `env` made.
        unsafe {
            marker.mark(Value::from_raw(self.env.get()));
            marker.mark(Value::from_raw(self.input.get()));
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        if self.made_in == handle::generation() {
            exchange.abandon();
        } else {
            // In a forked child: the parent responds.
            std::mem::forget(exchange);
        }
    }
}

impl Request {
    /// The Ruby object of an exchange.
    pub fn wrap(ruby: &Ruby, env_builder: &'static EnvBuilder, exchange: Arc<Exchange>) -> Value {
        let request = Self {
            made_in: handle::generation(),
            env_builder,
            id: exchange.id(),
            exchange: RefCell::new(Some(exchange)),
            env: Cell::new(rb_sys::Qnil as VALUE),
            input: Cell::new(rb_sys::Qnil as VALUE),
            hijacked: Cell::new(false),
        };
        ruby.obj_wrap(request).as_value()
    }

    fn check_process(&self) -> Result<(), Error> {
        let ours = self.made_in == handle::generation();
        ours.then_some(()).ok_or_else(error::forked)
    }

    /// The request, unless it was answered.
    ///
    /// # Errors
    /// `Chaton::ClosedError`, and `Chaton::ForkedError` in a forked child.
    pub fn open(&self) -> Result<Arc<Exchange>, Error> {
        self.check_process()?;
        self.exchange.borrow().clone().ok_or_else(error::closed)
    }

    /// The head of the response; `None` when it is not of the common shape.
    fn head(
        &self,
        exchange: &Exchange,
        status: Value,
        headers: Value,
        size: BodySize,
        offer: Option<CompressionOffer>,
        file: Option<&FileAnswer>,
    ) -> Result<Option<EncodedHead>, Error> {
        let head = response::head(exchange, status, headers, size, offer, file)?;
        if head.is_some() {
            traces::responded(exchange, status, self.env.get());
        }
        Ok(head)
    }

    /// The exchange, which this object loses.
    ///
    /// # Errors
    /// When it has none any more, and `Chaton::ForkedError` in a forked child.
    pub fn take(&self) -> Result<Arc<Exchange>, Error> {
        self.check_process()?;
        self.exchange.take().ok_or_else(error::closed)
    }

    /// The Rack env, built by the first call.
    fn env(ruby: &Ruby, rb_self: magnus::typed_data::Obj<Self>) -> Result<Value, Error> {
        let made = rb_self.env.get();
        if made != rb_sys::Qnil as VALUE {
            // SAFETY: the Hash made before, kept alive by `mark`.
            return Ok(unsafe { Value::from_raw(made) });
        }
        let exchange = rb_self.open()?;
        let env = rb_self.env_builder.build(&exchange, rb_self.as_raw())?;
        rb_self.env.set(env);
        // SAFETY: the Hash just made.
        let env = unsafe { Value::from_raw(env) };
        if let Some(certificate) = exchange.tls().and_then(|tls| tls.certificate.as_ref()) {
            let certificate = ruby.str_from_slice(certificate);
            let _: Value = rb_self.funcall("put_client_certificate", (env, certificate))?;
        }
        if let RequestBody::Streamed(body) = exchange.body() {
            let input = RbStreamedBody::wrap(ruby, Arc::clone(body));
            let _: Value = env.funcall("store", ("rack.input", input))?;
            // The connection cannot be given away in the middle of the body.
            let _: Value = env.funcall("store", ("rack.hijack?", false))?;
        } else if let RequestBody::Spooled { file, .. } = exchange.body() {
            let copy = file.try_clone().map_err(|e| error::system("the request's body", &e))?;
            let class = ruby.class_object().const_get::<_, magnus::RClass>("File")?;
            let io: Value = class.funcall("for_fd", (copy.into_raw_fd(), "r+b"))?;
            rb_self.input.set(io.as_raw());
            let _: Value = io.funcall("rewind", ())?;
            let _: Value = env.funcall("store", ("rack.input", io))?;
        }
        Ok(env)
    }

    /// Sends a whole response. False, and nothing is done, when it is not of the common
    /// shape (see `response`).
    fn finish(
        ruby: &Ruby,
        rb_self: &Self,
        status: Value,
        headers: Value,
        body: Value,
    ) -> Result<bool, Error> {
        if rb_self.hijacked.get() {
            return Ok(false);
        }
        let Some(body) = RArray::from_value(body) else { return Ok(false) };
        let Some(total) = response::strings_len(ruby, body) else { return Ok(false) };
        let exchange = rb_self.open()?;
        let (size, offer) = (BodySize::Known(total), exchange.compression());
        let Some(head) = rb_self.head(&exchange, status, headers, size, offer, None)? else {
            return Ok(false);
        };
        drop(rb_self.exchange.take());
        let waits = total >= PIN_BYTES_MIN && exchange.is_short_of_memory();
        let waiting = waits.then(|| Arc::clone(&exchange));
        send_parts(exchange, head, body, total);
        if let Some(exchange) = waiting {
            without_gvl(|| exchange.wait_for_relief(), &|| exchange.interrupt());
        }
        Ok(true)
    }

    /// Sends a file, or what the request asks for of it. `descriptor` is that of a file that the server has opened for
    /// the application. False when the head or the file is not of the common kind.
    fn finish_file(
        ruby: &Ruby,
        rb_self: &Self,
        status: Value,
        headers: Value,
        path: RString,
        descriptor: Option<i32>,
    ) -> Result<bool, Error> {
        let exchange = rb_self.open()?;
        let Some((file, about)) = files::open(path, descriptor)? else { return Ok(false) };
        let Some(status) = magnus::Integer::from_value(status) else { return Ok(false) };
        let status = status.to_u16().unwrap_or(0);
        let mut answer = FileAnswer::new(status, &about, descriptor.is_some());
        let noted = response::each_line(headers, |name, value| {
            answer.note(name, value);
            Ok(())
        })?;
        if !noted {
            return Ok(false);
        }
        answer.select(exchange.head());
        let (offset, len) = (answer.range.start, answer.range.end - answer.range.start);
        // The kernel sends it as it is.
        let size = BodySize::Known(len);
        let status = ruby.integer_from_u64(answer.status.into()).as_value();
        let head = rb_self.head(&exchange, status, headers, size, None, Some(&answer))?;
        let Some(head) = head else { return Ok(false) };
        drop(rb_self.exchange.take());
        let tail = match head.framing {
            ResponseFraming::None => None,
            _ => Some(BodyPart::File { file, offset, len }),
        };
        exchange.complete(head, tail);
        Ok(true)
    }

    /// Sends the head of a streamed response. False as for `finish`.
    fn begin(&self, status: Value, headers: Value) -> Result<bool, Error> {
        let exchange = self.open()?;
        let (size, offer) = (BodySize::Unknown, exchange.compression());
        let Some(head) = self.head(&exchange, status, headers, size, offer, None)? else {
            return Ok(false);
        };
        if let Some(coding) = head.coding {
            exchange.encode_stream(coding);
        }
        exchange.begin(head);
        Ok(true)
    }

    /// Sends the head of a response whose body is fed, and closes this object. False as for `finish`.
    pub fn begin_fed(
        &self,
        status: Value,
        headers: Value,
        feeder: Box<dyn Feeder>,
    ) -> Result<bool, Error> {
        let exchange = self.open()?;
        let Some(head) = self.head(&exchange, status, headers, BodySize::Unknown, None, None)?
        else {
            return Ok(false);
        };
        exchange.begin_fed(head, feeder);
        drop(self.take()?);
        Ok(true)
    }

    /// The head of a partial hijack, which Ruby writes to the socket.
    fn hijack_head(
        ruby: &Ruby,
        rb_self: &Self,
        status: Value,
        headers: Value,
    ) -> Result<Option<RString>, Error> {
        let exchange = rb_self.open()?;
        let head = rb_self.head(&exchange, status, headers, BodySize::Hijack, None, None)?;
        Ok(head.map(|head| {
            exchange.announce(head.status);
            ruby.str_from_slice(&head.bytes)
        }))
    }

    /// Appends to a streamed body; waits without the GVL while memory and spool are full.
    fn write(&self, chunk: RString) -> Result<usize, Error> {
        let exchange = self.open()?;
        let len = chunk.len();
        let mut room = write(&exchange, chunk).map_err(|_| error::client_gone())?;
        while matches!(room, Capacity::Full) {
            let waited =
                without_gvl(|| exchange.wait_for_capacity(ROOM_WAIT), &|| exchange.interrupt());
            check_interrupts()?;
            if let Some(answer) = waited {
                room = answer.map_err(|_| error::client_gone())?;
            }
        }
        Ok(len)
    }

    /// Ends a streamed body; `complete` is false if it was aborted.
    fn end(&self, complete: bool) -> Result<(), Error> {
        self.take()?.end(complete);
        Ok(())
    }

    /// Sends an interim response (103) ahead of the final one. False as for `finish`.
    fn interim(&self, status: Value, headers: Value) -> Result<bool, Error> {
        let exchange = self.open()?;
        let head = response::head(&exchange, status, headers, BodySize::Empty, None, None)?;
        Ok(head.map(|head| exchange.interim(head)).is_some())
    }

    /// Takes over the connection: its descriptor, and the bytes read beyond the request.
    fn hijack(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        // Keep the exchange until the hijack has succeeded.
        let (fd, rest) = rb_self.open()?.hijack().map_err(|e| error::system("rack.hijack", &e))?;
        drop(rb_self.take()?);
        rb_self.hijacked.set(true);
        rb_self.input.set(rb_sys::Qnil as VALUE);
        let answer = ruby.ary_new_capa(2);
        answer.push(fd.into_raw_fd())?;
        answer.push(ruby.str_from_slice(&rest))?;
        Ok(answer)
    }

    /// Moves the exchange to a new request object and closes this one.
    fn detach(ruby: &Ruby, rb_self: &Self) -> Result<Value, Error> {
        let exchange = rb_self.take()?;
        rb_self.input.set(rb_sys::Qnil as VALUE);
        Ok(Self::wrap(ruby, rb_self.env_builder, exchange))
    }

    fn is_http2(&self) -> Result<bool, Error> {
        Ok(self.open()?.head().version == Version::Http2)
    }

    fn is_hijacked(&self) -> bool {
        self.hijacked.get()
    }

    fn is_open(&self) -> bool {
        self.exchange.borrow().is_some()
    }

    fn describe(&self) -> String {
        self.exchange.borrow().as_ref().map_or_else(String::new, |exchange| exchange.describe())
    }

    /// Leaves it out of counters and lists of running work.
    fn leave_out(&self) {
        if let Some(exchange) = self.exchange.borrow().as_ref() {
            exchange.leave_out();
        }
    }

    /// The client's `X-Request-Id` while it is open, else its own id.
    fn request_id(&self) -> String {
        let exchange = self.exchange.borrow();
        exchange.as_ref().map_or_else(|| own_request_id(self.id), |exchange| exchange.request_id())
    }

    /// The env if it is built, else nil.
    fn built_env(&self) -> Value {
        // SAFETY: nil, or the Hash kept alive by `mark`.
        unsafe { Value::from_raw(self.env.get()) }
    }

    fn listener(&self) -> Result<usize, Error> {
        Ok(self.open()?.listener())
    }

    /// Whether it was answered, and nothing is left to do after that.
    fn is_done(&self) -> bool {
        !self.is_open() && !self.has_after_reply()
    }

    /// Whether there is work after the reply: callables of the application, or a file
    /// to close.
    fn has_after_reply(&self) -> bool {
        let env = self.env.get();
        let nil = rb_sys::Qnil as VALUE;
        self.input.get() != nil || (env != nil && self.env_builder.has_after_reply(env))
    }

    /// The File of a spooled body, to be closed after the reply; nil if there is none or
    /// the application may still read it.
    fn input(&self) -> Value {
        // SAFETY: nil, or the File kept alive by `mark`.
        unsafe { Value::from_raw(self.input.get()) }
    }
}

fn send_parts(exchange: Arc<Exchange>, mut head: EncodedHead, body: RArray, total: u64) {
    if let Some(coding) = head.coding {
        return send_encoded(&exchange, head, coding, body);
    }
    let part = |index| body.entry::<Value>(index).ok().and_then(RString::from_value);
    let mut parts = (0..body.len() as isize).map_while(part);
    if head.framing == ResponseFraming::None {
        exchange.complete(head, None);
    } else if total < PIN_BYTES_MIN {
        for part in parts {
            // SAFETY: copied at once.
            head.bytes.extend_from_slice(unsafe { part.as_slice() });
        }
        exchange.complete(head, None);
    } else if body.len() == 1 {
        let tail = parts.next().map(|part| pinned_strings::pin(part.as_raw()));
        exchange.complete(head, tail.map(|pinned| BodyPart::Pinned(Box::new(pinned))));
    } else {
        exchange.begin(head);
        let sent = parts.all(|part| send_part(&exchange, part));
        exchange.end(sent);
    }
}

/// Encodes a whole body. The GVL is released meanwhile, unless that would cost more than it saves.
fn send_encoded(
    exchange: &Arc<Exchange>,
    mut head: EncodedHead,
    coding: ContentCoding,
    body: RArray,
) {
    let mut bytes = Vec::new();
    for index in 0..body.len() as isize {
        let Some(part) = body.entry::<Value>(index).ok().and_then(RString::from_value) else {
            break;
        };
        // SAFETY: copied at once.
        bytes.extend_from_slice(unsafe { part.as_slice() });
    }
    let encode = || exchange.encode(coding, &bytes);
    let released =
        if bytes.len() < RELEASE_BYTES_MIN { None } else { without_gvl_to_the_end(encode) };
    let encoded = released.unwrap_or_else(encode);
    head.set_length(encoded.len() as u64);
    let tail = Some(BodyPart::Bytes(encoded));
    Arc::clone(exchange).complete(head, tail);
}

/// Moves to the temporary file what is too much for memory. The Array may change meanwhile: the
/// announced length then cuts the body, or closes the connection behind it.
fn send_part(exchange: &Arc<Exchange>, part: RString) -> bool {
    let sent = write(exchange, part);
    if sent == Ok(Capacity::Full) {
        without_gvl(|| exchange.wait_for_capacity(Duration::ZERO), &|| exchange.interrupt());
    }
    sent.is_ok()
}

fn write(exchange: &Arc<Exchange>, part: RString) -> Result<Capacity, ClientGone> {
    if part.len() >= RELEASE_BYTES_MIN && exchange.is_encoding() {
        let pinned = pinned_strings::pin(part.as_raw());
        let write = || exchange.write(pinned.as_ref());
        return without_gvl_to_the_end(write).unwrap_or_else(write);
    }
    if part.len() as u64 >= PIN_BYTES_MIN {
        exchange.write_part(BodyPart::Pinned(Box::new(pinned_strings::pin(part.as_raw()))))
    } else {
        // SAFETY: copied before any Ruby code runs.
        exchange.write(unsafe { part.as_slice() })
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Request", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("env", method!(Request::env, 0))?;
    class.define_method("finish", method!(Request::finish, 3))?;
    class.define_method("finish_file", method!(Request::finish_file, 4))?;
    class.define_method("begin", method!(Request::begin, 2))?;
    class.define_method("hijack_head", method!(Request::hijack_head, 2))?;
    class.define_method("write", method!(Request::write, 1))?;
    class.define_method("end", method!(Request::end, 1))?;
    class.define_method("interim", method!(Request::interim, 2))?;
    class.define_method("hijack", method!(Request::hijack, 0))?;
    class.define_method("detach", method!(Request::detach, 0))?;
    class.define_method("http2?", method!(Request::is_http2, 0))?;
    class.define_method("hijacked?", method!(Request::is_hijacked, 0))?;
    class.define_method("open?", method!(Request::is_open, 0))?;
    class.define_method("done?", method!(Request::is_done, 0))?;
    class.define_method("describe", method!(Request::describe, 0))?;
    class.define_method("leave_out", method!(Request::leave_out, 0))?;
    class.define_method("request_id", method!(Request::request_id, 0))?;
    class.define_method("built_env", method!(Request::built_env, 0))?;
    class.define_method("listener", method!(Request::listener, 0))?;
    class.define_method("input", method!(Request::input, 0))?;
    class.define_method("after_reply?", method!(Request::has_after_reply, 0))?;
    Ok(())
}
