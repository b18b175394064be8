//! What waits in the queue: a unit of any engine.

use std::sync::Arc;

use chaton_core::work::{Label, Shed, Work};
use chaton_web::Exchange;

/// Lane of the web engine.
pub const WEB_LANE: usize = 0;

/// One unit of work.
pub enum Unit {
    /// A request whose body is complete.
    Web(Arc<Exchange>, u32),
}

/// What stays in the list of what is running.
pub enum UnitLabel {
    /// A request.
    Web(Arc<Exchange>),
}

impl Work for Unit {
    type Label = UnitLabel;

    fn bytes(&self) -> usize {
        let Self::Web(exchange, _) = self;
        // A spooled body lies in a file and costs the queue nothing.
        let body = match exchange.body() {
            chaton_web::RequestBody::Memory(bytes) => bytes.len(),
            _ => 0,
        };
        exchange.head().bytes.len() + body
    }

    fn label(&self) -> UnitLabel {
        let Self::Web(exchange, _) = self;
        UnitLabel::Web(exchange.clone())
    }

    fn shed(self, _: Shed) {
        let Self::Web(exchange, retry_after_s) = self;
        exchange.shed(retry_after_s);
    }
}

impl Label for UnitLabel {
    fn describe(&self) -> String {
        let Self::Web(exchange) = self;
        exchange.describe()
    }

    fn id(&self) -> u64 {
        let Self::Web(exchange) = self;
        exchange.id()
    }
}
