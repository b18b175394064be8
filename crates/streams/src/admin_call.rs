//! What [`AdminClient`] can do, asked for and answered as JSON: looking after topics
//! is rare, and one call is less to keep apart than ten.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::log::{AdminClient, Commit, ErrorKind, LogError, NewTopic, Result};

/// A call, named by its field `do`.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Call {
    Topics,
    Topic {
        name: String,
    },
    Create {
        name: String,
        partitions: Option<i32>,
        replication: Option<i32>,
        #[serde(default)]
        settings: BTreeMap<String, String>,
    },
    Grow {
        name: String,
        partitions: i32,
    },
    Configure {
        name: String,
        settings: BTreeMap<String, String>,
    },
    Delete {
        name: String,
    },
    Groups,
    Committed {
        group: String,
    },
    SetCommitted {
        group: String,
        commits: Vec<Given>,
    },
}

/// A commit as a caller writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    topic: String,
    partition: i32,
    offset: i64,
    #[serde(default)]
    metadata: String,
}

/// Carries out a call: `{"do":"topics"}` and the like; see the `Call`s above.
/// What is answered are [`crate::log`]'s own types, `null` for a topic that is
/// not there and for calls that only do something.
///
/// # Errors
/// `Invalid` for a call that is none; otherwise as the admin's own.
pub fn answer(admin: &mut dyn AdminClient, call: &str) -> Result<String> {
    let call = serde_json::from_str(call)
        .map_err(|e| LogError::new(ErrorKind::Invalid, format!("the call {call}: {e}")))?;
    Ok(carry_out(admin, call)?.to_string())
}

fn carry_out(admin: &mut dyn AdminClient, call: Call) -> Result<Value> {
    match call {
        Call::Topics => Ok(json!(admin.topics()?)),
        Call::Topic { name } => Ok(json!(admin.topic(&name)?)),
        Call::Create { name, partitions, replication, settings } => {
            admin.create(&NewTopic { name, partitions, replication, settings })?;
            Ok(Value::Null)
        }
        Call::Grow { name, partitions } => {
            admin.grow(&name, partitions)?;
            Ok(Value::Null)
        }
        Call::Configure { name, settings } => {
            admin.configure(&name, &settings)?;
            Ok(Value::Null)
        }
        Call::Delete { name } => {
            admin.delete(&name)?;
            Ok(Value::Null)
        }
        Call::Groups => Ok(json!(admin.groups()?)),
        Call::Committed { group } => Ok(json!(admin.committed(&group)?)),
        Call::SetCommitted { group, commits } => {
            let commits: Vec<_> = commits.into_iter().map(Commit::from).collect();
            admin.set_committed(&group, &commits)?;
            Ok(Value::Null)
        }
    }
}

impl From<Given> for Commit {
    fn from(given: Given) -> Self {
        let Given { topic, partition, offset, metadata } = given;
        Self { topic, partition, offset, metadata }
    }
}
