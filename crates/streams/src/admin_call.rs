//! The calls of [`AdminClient`] as JSON. They are rare, so that one function at the boundary to
//! Ruby serves all of them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::log::{AdminClient, Commit, ErrorKind, LogError, NewTopic, Result};

/// A call, named by its field `do`.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum AdminCall {
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
        commits: Vec<Commit>,
    },
}

/// Runs a call such as `{"do":"topics"}`. Returns types of [`crate::log`] as JSON; `null` for an
/// unknown topic and for calls without a result.
///
/// # Errors
/// `Invalid` for an unknown call; otherwise the error of the log.
pub fn answer(admin: &mut dyn AdminClient, call: &str) -> Result<String> {
    let call = serde_json::from_str(call)
        .map_err(|e| LogError::new(ErrorKind::Invalid, format!("the call {call}: {e}")))?;
    Ok(run(admin, call)?.to_string())
}

fn run(admin: &mut dyn AdminClient, call: AdminCall) -> Result<Value> {
    match call {
        AdminCall::Topics => Ok(json!(admin.topics()?)),
        AdminCall::Topic { name } => Ok(json!(admin.topic(&name)?)),
        AdminCall::Create { name, partitions, replication, settings } => {
            admin.create(&NewTopic { name, partitions, replication, settings })?;
            Ok(Value::Null)
        }
        AdminCall::Grow { name, partitions } => {
            admin.grow(&name, partitions)?;
            Ok(Value::Null)
        }
        AdminCall::Configure { name, settings } => {
            admin.configure(&name, &settings)?;
            Ok(Value::Null)
        }
        AdminCall::Delete { name } => {
            admin.delete(&name)?;
            Ok(Value::Null)
        }
        AdminCall::Groups => Ok(json!(admin.groups()?)),
        AdminCall::Committed { group } => Ok(json!(admin.committed(&group)?)),
        AdminCall::SetCommitted { group, commits } => {
            admin.set_committed(&group, &commits)?;
            Ok(Value::Null)
        }
    }
}
