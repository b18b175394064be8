//! `Chaton::Native::Live`: the log of messages and the hub of event streams, as a Ruby object.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use chaton_live::{
    Admissions, Client, Hub, Message, Position, Refused, RequestDigest, Settings, Step,
    Subscription, Wish,
};
use chaton_web::{Exchange, FeedStep, Feeder, Resumed, Resumer};

use magnus::{function, method, prelude::*, Error, RArray, RModule, RString, Ruby, Value};

use crate::document_sections::parse;
use crate::error;
use crate::gvl::{check_interrupts, without_gvl_to_the_end};
use crate::handle::Handle;
use crate::web::engine::RbWeb;
use crate::web::request::Request;

/// The hub of this process.
#[magnus::wrap(class = "Chaton::Native::Live", free_immediately, size)]
pub struct RbLive(Handle<Arc<Hub>>);

/// A subscription as the web engine takes it.
struct SubscriptionFeeder(Subscription);

impl Feeder for SubscriptionFeeder {
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        drains: bool,
        out: &mut Vec<u8>,
    ) -> Poll<FeedStep> {
        self.0.poll_step(cx, drains, out).map(|step| match step {
            Step::Send(bytes) => FeedStep::Send(bytes),
            Step::End => FeedStep::End,
        })
    }
}

/// Lets clients come back without Ruby.
struct HubResumer {
    hub: Arc<Hub>,
    /// Of those who have to ask the application.
    admissions: Admissions,
}

impl Resumer for HubResumer {
    fn resume(&self, exchange: &Arc<Exchange>, id: &[u8]) -> Resumed {
        let head = exchange.head();
        // What another site may read is decided by headers that only the application knows (CORS).
        let is_plain = head.get(head.method) == b"GET" && head.header("origin").is_none();
        let subscription = match is_plain {
            true => self.hub.resume(id, client(exchange)),
            false => None,
        };
        match subscription {
            Some(Ok(subscription)) => {
                exchange.begin_events(Box::new(SubscriptionFeeder(subscription)));
                Resumed::Answered
            }
            Some(Err(refused)) => {
                refuse(Arc::clone(exchange), refused);
                Resumed::Answered
            }
            None => self.admissions.wait(Instant::now()).map_or(Resumed::Refused, Resumed::After),
        }
    }
}

/// Says which limit the client has reached.
fn refuse(exchange: Arc<Exchange>, refused: Refused) {
    match refused {
        Refused::TooManyOfClient => {
            exchange.refuse(429, "Your address has too many event streams (client_streams_max).");
        }
        Refused::TooMany => {
            exchange.refuse(503, "The server has too many event streams; try again.")
        }
    }
}

fn client(exchange: &Exchange) -> Client {
    Client { request: request_digest(exchange), address: exchange.client_ip() }
}

/// What the application may have decided by.
fn request_digest(exchange: &Exchange) -> RequestDigest {
    let head = exchange.head();
    let scheme: &[u8] = if exchange.is_https() { b"https" } else { b"http" };
    let of_client = ["host", "cookie", "authorization"];
    let headers = head.headers.iter().map(|(name, value)| (head.get(*name), head.get(*value)));
    let headers = headers
        .filter(|(name, _)| of_client.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes())));
    let parts = headers.flat_map(|(name, value)| [name, value]);
    RequestDigest::new([scheme, head.get(head.target)].into_iter().chain(parts))
}

impl RbLive {
    fn new(settings: String) -> Result<Self, Error> {
        let settings: Settings = parse("live", &settings)?;
        Ok(Self(Handle::new(Hub::new(settings).map_err(|e| error::embedded(&e))?)))
    }

    /// Adds a message to the log, without the GVL; false: there is one with its key. `begin` is the offset at which its
    /// text began; false: another text of this name has begun since.
    fn append(
        &self,
        name: String,
        data: RString,
        event: Option<String>,
        key: Option<String>,
        begin: Option<u64>,
    ) -> Result<bool, Error> {
        let hub = self.0.get()?;
        let data = data.to_string()?;
        let message = Message::new(&name, &data, event.as_deref(), key.as_deref());
        let message = message.map_err(error::argument)?;
        let added = run(|| match begin {
            Some(begin) => hub.append_piece(&message, begin),
            None => hub.append(&message),
        });
        Ok(added?.is_some())
    }

    /// Adds the event `reset`, with which a text begins; returns its offset.
    fn begin(&self, name: String) -> Result<Option<u64>, Error> {
        let hub = self.0.get()?;
        let message = Message::new(&name, "", Some("reset"), None).map_err(error::argument)?;
        run(|| hub.append_begin(&message))
    }

    /// The position behind the newest message.
    fn end(&self) -> Result<(u64, u64), Error> {
        let hub = self.0.get()?;
        let end = run(|| hub.end())?;
        Ok((end.epoch, end.offset))
    }

    /// The id of a page that was made at this position, or while the log had nothing; see [`Hub::page_id`].
    fn page_id(&self, names: RArray, at: Option<(u64, u64)>) -> Result<String, Error> {
        let hub = self.0.get()?;
        let names: Vec<String> = names.to_vec()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let at = at.map(|(epoch, offset)| Position { epoch, offset });
        let id = run(|| hub.page_id(&names, at))?;
        Ok(String::from_utf8_lossy(&id).into_owned())
    }

    /// Answers a request with the events of these names, behind its `Last-Event-ID` or that of its page; without either
    /// from now on, or with all that is kept. The last argument is `[page_id, history, max_age_s, refreshes]`, see
    /// [`Wish`]. False, and nothing is done, when the head is not of the common shape.
    fn stream(
        &self,
        request: &Request,
        status: Value,
        headers: Value,
        names: RArray,
        options: (Option<String>, bool, Option<f64>, bool),
    ) -> Result<bool, Error> {
        let hub = self.0.get()?;
        let names: Vec<String> = names.to_vec()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (page_id, history, max_age_s, refreshes) = options;
        let max_age = max_age_s.and_then(|age| Duration::try_from_secs_f64(age).ok());
        let exchange = request.open()?;
        let last_id = exchange.head().header("last-event-id");
        let last_id = last_id.or(page_id.as_deref().map(str::as_bytes));
        let wish = Wish { last_id, history, max_age, refreshes };
        match run(|| hub.subscribe(&names, &wish, client(&exchange)))? {
            Ok(subscription) => {
                request.begin_fed(status, headers, Box::new(SubscriptionFeeder(subscription)))
            }
            Err(refused) => {
                refuse(request.take()?, refused);
                Ok(true)
            }
        }
    }

    /// Ends all streams of a name, in all processes.
    fn disconnect(&self, name: String) -> Result<(), Error> {
        let hub = self.0.get()?;
        let mut wrong = None;
        run(|| match hub.disconnect(&name) {
            Ok(done) => done,
            Err(why) => {
                wrong = Some(why);
                Ok(())
            }
        })?;
        wrong.map_or(Ok(()), |why| Err(error::argument(why)))
    }

    /// Has clients that come back answered without Ruby, once the log can be read.
    fn attach(&self, web: &RbWeb) -> Result<(), Error> {
        let hub = self.0.get()?;
        if let Some(gauges) = web.gauges()? {
            hub.count_on(gauges);
        }
        let admissions = Admissions::new(Instant::now());
        web.set_resumer(Arc::new(HubResumer { hub: Arc::clone(hub), admissions }))?;
        run(|| hub.open())
    }

    fn stop(&self) -> Result<(), Error> {
        self.0.get()?.stop();
        Ok(())
    }
}

/// Runs a call of the log without the GVL. Ruby's interrupts are handled before it begins.
fn run<R>(work: impl FnOnce() -> chaton_live::Result<R>) -> Result<R, Error> {
    let mut work = Some(work);
    loop {
        match without_gvl_to_the_end(|| work.take().map(|work| work())).flatten() {
            Some(done) => return done.map_err(|e| error::embedded(&e)),
            None => check_interrupts()?,
        }
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Live", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbLive::new, 1))?;
    class.define_method("append", method!(RbLive::append, 5))?;
    class.define_method("begin", method!(RbLive::begin, 1))?;
    class.define_method("end", method!(RbLive::end, 0))?;
    class.define_method("page_id", method!(RbLive::page_id, 2))?;
    class.define_method("stream", method!(RbLive::stream, 5))?;
    class.define_method("disconnect", method!(RbLive::disconnect, 1))?;
    class.define_method("attach", method!(RbLive::attach, 1))?;
    class.define_method("stop", method!(RbLive::stop, 0))?;
    Ok(())
}
