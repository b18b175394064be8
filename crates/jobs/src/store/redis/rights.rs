//! The rights (ACL) that a user of Redis needs, and which of them it lacks.

use crate::store::traits::Result;
use crate::store::StoreError;
use chaton_redis::{Pipeline, RedisConnection, RespValue};

/// A key for each pattern.
const KEYS: [(&str, &str); 11] = [
    ("queues", "queues"),
    ("queue:*", "queue:x"),
    ("paused", "paused"),
    ("schedule", "schedule"),
    ("retry", "retry"),
    ("dead", "dead"),
    ("processes", "processes"),
    ("stat:*", "stat:processed"),
    ("it-*", "it-x"),
    ("chaton:*", "chaton:none"),
    ("*:*:*", "host:1:x"),
];

/// The commands, by the words that follow them.
const COMMANDS: [(&[&str], &str); 6] = [
    (&[], "ping time"),
    (
        &["chaton:none"],
        "del exists get hgetall hkeys hlen llen pttl rpop scard smembers srandmember unlink zcard zpopmin",
    ),
    (
        &["chaton:none", "1"],
        "expire hdel hexists hget hmget incrby lindex lpos lpush pexpire rpush sadd set sismember \
         srem zmscore zrem zscore",
    ),
    (
        &["chaton:none", "1", "1"],
        "hincrby hset hsetnx lrange lrem zadd zcount zrange zrangebyscore zremrangebyrank zremrangebyscore \
         zrevrange",
    ),
    (&["x", "0"], "evalsha"),
    (&["load", "return 1"], "script"),
];

/// Names the rights that the user lacks. The commands are sent after MULTI, and the connection is
/// closed instead of running them: the server checks the rights when it queues them.
///
/// # Errors
/// [`crate::store::StoreErrorKind::Refused`] with the rights, or why the server cannot be asked.
pub fn check(conn: &mut RedisConnection) -> Result<()> {
    let mut lacking = lacking_transaction(conn)?;
    if lacking.is_empty() {
        lacking = lacking_others(conn)?;
    }
    conn.close();
    if lacking.is_empty() {
        return Ok(());
    }
    let (user, rules) = (conn.address().user(), lacking.join(" "));
    Err(StoreError::refused(format!(
        "{}: the Redis user {user:?} lacks rights; give them by ACL SETUSER {user} {rules}",
        conn.address().shown
    )))
}

/// An empty transaction.
fn lacking_transaction(conn: &mut RedisConnection) -> Result<Vec<String>> {
    let mut pipeline = Pipeline::new();
    pipeline.command(&[b"MULTI"]).command(&[b"EXEC"]);
    let replies = conn.pipeline(&pipeline)?;
    let rules = ["+multi", "+exec"].into_iter().zip(&replies);
    Ok(rules.filter(|(_, reply)| denied(reply).is_some()).map(|(rule, _)| rule.into()).collect())
}

fn lacking_others(conn: &mut RedisConnection) -> Result<Vec<String>> {
    let mut pipeline = Pipeline::new();
    let mut rules = Vec::new();
    pipeline.command(&[b"MULTI"]);
    for (words, names) in COMMANDS {
        for name in names.split_whitespace() {
            pipeline.begin(1 + words.len()).word(name);
            words.iter().for_each(|word| {
                pipeline.word(word);
            });
            let subcommand = if name == "script" { "|load" } else { "" };
            rules.push((format!("+{name}{subcommand}"), false));
        }
    }
    for (pattern, key) in KEYS {
        pipeline.command(&[b"EXISTS", key.as_bytes()]);
        rules.push((format!("~{pattern}"), true));
    }
    let replies = conn.pipeline(&pipeline)?;
    let asked = rules.into_iter().zip(replies.iter().skip(1));
    // A command may be denied because of its key, which the keys' own rows find.
    let is_lacking = |((_, is_key), reply): &((String, bool), &RespValue)| {
        denied(reply).is_some_and(|error| error.contains("to run") != *is_key)
    };
    Ok(asked.filter(is_lacking).map(|((rule, _), _)| rule).collect())
}

fn denied(reply: &RespValue) -> Option<&str> {
    match reply {
        // The refusal of EXEC begins with EXECABORT.
        RespValue::Error(error) if error.contains("NOPERM") => Some(error),
        _ => None,
    }
}
