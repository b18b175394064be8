//! The store on Redis.

use std::sync::Arc;
use std::time::Duration;

use super::scripts::Script;
use crate::store::options::StoreOptions;
use crate::store::traits::{Answer, Result};
use chaton_redis::{Pipeline, RedisConnection, RespValue};

/// One connection to the server.
pub struct RedisStore {
    /// The connection.
    pub conn: RedisConnection,
    /// The store's settings.
    pub options: Arc<StoreOptions>,
    /// The queue of the last push, if there were jobs in it already.
    pub filled: String,
}

impl RedisStore {
    pub(super) fn run(&mut self, pipeline: &Pipeline) -> Result<std::vec::IntoIter<RespValue>> {
        Ok(self.conn.run(pipeline)?.into_iter())
    }

    pub(super) fn one(&mut self, words: &[&[u8]]) -> Result<RespValue> {
        self.conn.one(words)
    }

    /// A command whose answer does not matter.
    pub(super) fn tell(&mut self, words: &[&[u8]]) -> Result<Answer> {
        self.one(words).map(|_| Answer::Done(()))
    }

    /// One call of a script.
    pub(super) fn call(&mut self, script: Script, args: &[&[u8]]) -> Result<RespValue> {
        let mut pipeline = Pipeline::new();
        self.conn.script(&mut pipeline, script, args.len())?;
        for arg in args {
            pipeline.word(arg);
        }
        Ok(self.run(&pipeline)?.next().unwrap_or(RespValue::Nil))
    }
}

/// Whole milliseconds, at least 1 and at most what Redis takes.
pub(super) fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::MAX / 4)
}
