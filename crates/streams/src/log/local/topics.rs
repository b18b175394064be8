//! Topics: how many partitions, which settings. Each is a folder that appears
//! whole, with a small file in it that is replaced whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::failure;
use super::files::{self, Identity};
use super::lock::{FileLock, Held};
use super::place::{check_name, folders, Place};
use super::rules::Rules;
use crate::log::{ErrorKind, LogError, NewTopic, Result};

/// No topic has more.
const PARTITIONS_MAX: i32 = 10_000;

#[derive(Serialize, Deserialize)]
struct Meta {
    partitions: i32,
    settings: BTreeMap<String, String>,
}

/// A topic as it was when it was looked at.
#[derive(Clone, Debug)]
pub(super) struct LocalTopic {
    pub name: Arc<str>,
    pub partitions: i32,
    pub settings: BTreeMap<String, String>,
    pub rules: Arc<Rules>,
    /// Changes with each change of the topic.
    pub identity: Option<Identity>,
}

/// A topic; `None` when there is none of that name.
pub(super) fn find(place: &Place, name: &str) -> Result<Option<LocalTopic>> {
    check_name(name)?;
    let path = place.meta(name);
    let identity = files::identity(&path);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failure::of(&path, "reading", &error)),
    };
    let meta: Meta = serde_json::from_slice(&text).map_err(|error| {
        failure::corrupt(&path, 0, &format!("no description of a topic: {error}"))
    })?;
    let rules = Arc::new(Rules::of(&place.settings, &meta.settings)?);
    let Meta { partitions, settings } = meta;
    Ok(Some(LocalTopic { name: name.into(), partitions, settings, rules, identity }))
}

/// A topic that must be there.
pub(super) fn get(place: &Place, name: &str) -> Result<LocalTopic> {
    find(place, name)?.ok_or_else(|| failure::unknown_topic(name))
}

/// The topic, made with default settings when it is not there.
pub(super) fn get_or_make(place: &Place, name: &str) -> Result<LocalTopic> {
    match find(place, name)? {
        Some(topic) => Ok(topic),
        None => make(place, name, None),
    }
}

/// A topic that was there and is not any more, made as one by its first
/// record. Records wait that were given a partition of so many: unless it is
/// declared otherwise, it gets as many again.
pub(super) fn make_again(place: &Place, known: &LocalTopic) -> Result<LocalTopic> {
    make(place, &known.name, Some(known.partitions))
}

fn make(place: &Place, name: &str, partitions: Option<i32>) -> Result<LocalTopic> {
    let new = NewTopic {
        name: name.into(),
        partitions: place.settings.topics.get(name).copied().or(partitions),
        replication: None,
        settings: BTreeMap::new(),
    };
    match create(place, &new) {
        // Another one was faster.
        Err(error) if error.kind != ErrorKind::Invalid => return Err(error),
        _ => {}
    }
    get(place, name)
}

/// Names of all topics.
pub(super) fn names(place: &Place) -> Result<Vec<String>> {
    let mut names = folders(&place.topics())?;
    names.retain(|name| check_name(name).is_ok());
    Ok(names)
}

/// Makes a topic.
pub(super) fn create(place: &Place, new: &NewTopic) -> Result<()> {
    check_name(&new.name)?;
    let partitions = new.partitions.unwrap_or(place.settings.partitions);
    check_partitions(&new.name, partitions)?;
    Rules::of(&place.settings, &new.settings)?;
    place.make()?;
    let _held = lock(place)?;
    if place.topic(&new.name).exists() {
        return Err(failure::invalid(format!("topic {:?} is there already", new.name)));
    }
    // Made aside: a name that no topic may have.
    let aside = place.topics().join(format!("~new-{}", files::unique()));
    let made = (|| {
        fs::create_dir(&aside)?;
        for number in 0..partitions {
            fs::create_dir(aside.join(number.to_string()))?;
        }
        let meta = Meta { partitions, settings: new.settings.clone() };
        files::replace(&aside.join("meta.json"), &encode(&meta), place.settings.durable)?;
        fs::rename(&aside, place.topic(&new.name))?;
        if place.settings.durable {
            files::sync_folder(&place.topics())?;
        }
        Ok(())
    })();
    made.map_err(|error| {
        let _ = fs::remove_dir_all(&aside);
        failure::of(&place.topic(&new.name), "making the topic", &error)
    })
}

/// Gives a topic more partitions.
pub(super) fn grow(place: &Place, name: &str, total: i32) -> Result<()> {
    check_partitions(name, total)?;
    let _held = lock(place)?;
    let topic = get(place, name)?;
    if topic.partitions > total {
        return Err(failure::invalid(format!(
            "topic {name:?} has {} partitions, and none can be taken away to make {total}",
            topic.partitions
        )));
    }
    for number in topic.partitions..total {
        let path = place.partition(name, number);
        fs::create_dir_all(&path)
            .map_err(|error| failure::of(&path, "making the partition", &error))?;
    }
    write(place, name, &Meta { partitions: total, settings: topic.settings })
}

/// Sets settings; others stay.
pub(super) fn configure(
    place: &Place,
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Result<()> {
    Rules::of(&place.settings, settings)?;
    let _held = lock(place)?;
    let mut topic = get(place, name)?;
    topic.settings.extend(settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    write(place, name, &Meta { partitions: topic.partitions, settings: topic.settings })
}

/// Makes a partition's folder again that somebody has removed. By renaming:
/// who reads it hears of that.
pub(super) fn restore(folder: &Path) -> Result<()> {
    let aside = files::beside(folder, &format!("~new-{}", files::unique()));
    let made = fs::create_dir(&aside).and_then(|()| fs::rename(&aside, folder));
    match made {
        // Another one was faster.
        Err(_) if folder.is_dir() => {
            let _ = fs::remove_dir(&aside);
            Ok(())
        }
        made => made.map_err(|error| failure::of(folder, "making the partition", &error)),
    }
}

/// Deletes a topic.
pub(super) fn delete(place: &Place, name: &str) -> Result<()> {
    let _held = lock(place)?;
    get(place, name)?;
    let aside = place.topics().join(format!("~deleted-{}", files::unique()));
    fs::rename(place.topic(name), &aside)
        .and_then(|()| fs::remove_dir_all(&aside))
        .map_err(|error| failure::of(&place.topic(name), "deleting the topic", &error))
}

fn lock(place: &Place) -> Result<Held> {
    FileLock::open(&place.root.join("topics.lock"))?.acquire(place.patience())
}

fn write(place: &Place, name: &str, meta: &Meta) -> Result<()> {
    let path = place.meta(name);
    files::replace(&path, &encode(meta), place.settings.durable)
        .map_err(|error| failure::of(&path, "writing", &error))
}

fn encode(meta: &Meta) -> Vec<u8> {
    serde_json::to_vec_pretty(meta).unwrap_or_else(|_| unreachable!("plain maps and numbers"))
}

fn check_partitions(name: &str, count: i32) -> Result<()> {
    if (1..=PARTITIONS_MAX).contains(&count) {
        return Ok(());
    }
    Err(LogError::new(
        ErrorKind::Invalid,
        format!("topic {name:?} may have 1 to {PARTITIONS_MAX} partitions, not {count}"),
    ))
}
