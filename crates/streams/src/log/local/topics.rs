//! Topics: each is a folder that is renamed into place, with a small file of
//! its partition count and settings that is replaced as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::files::{self, FileId};
use super::log_dir::{check_name, folders, LogDir};
use super::path_lock::{Held, PathLock};
use super::topic_config::TopicConfig;
use super::{errors, partitioner};
use crate::log::{ErrorKind, LogError, NewTopic, Partition, Result};
use crate::record::NewRecord;

const PARTITIONS_MAX: i32 = 10_000;

#[derive(Serialize, Deserialize)]
struct TopicMetadata {
    partitions: i32,
    settings: BTreeMap<String, String>,
}

/// A topic as it was read.
#[derive(Clone, Debug)]
pub(super) struct LocalTopic {
    pub name: Arc<str>,
    pub partitions: i32,
    pub settings: BTreeMap<String, String>,
    pub config: Arc<TopicConfig>,
    /// Changes with each change of the topic.
    pub identity: Option<FileId>,
}

impl LocalTopic {
    /// The partition that a record names or that its key belongs to; `None`
    /// for a record without either.
    pub fn partition_of(&self, record: &NewRecord<'_>) -> Result<Option<i32>> {
        match (record.partition, record.key) {
            (Some(number), _) => self.check_partition(number).map(|()| Some(number)),
            (None, Some(key)) => Ok(Some(partitioner::partition_of(key, self.partitions))),
            (None, None) => Ok(None),
        }
    }

    pub fn check_partition(&self, number: i32) -> Result<()> {
        if (0..self.partitions).contains(&number) {
            return Ok(());
        }
        Err(errors::unknown_partition(&self.name, number, self.partitions))
    }
}

/// The topic of this name, if it exists.
pub(super) fn find(dir: &LogDir, name: &str) -> Result<Option<LocalTopic>> {
    check_name(name)?;
    let path = dir.topic_metadata(name);
    let identity = files::file_id(&path);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(errors::io(&path, "reading", &error)),
    };
    let meta: TopicMetadata = serde_json::from_slice(&text).map_err(|error| {
        errors::corrupt(&path, 0, &format!("not a description of a topic: {error}"))
    })?;
    let config = Arc::new(TopicConfig::of(&dir.settings, &meta.settings)?);
    let TopicMetadata { partitions, settings } = meta;
    Ok(Some(LocalTopic { name: name.into(), partitions, settings, config, identity }))
}

/// The topic of this name, or the error that it does not exist.
pub(super) fn get(dir: &LogDir, name: &str) -> Result<LocalTopic> {
    find(dir, name)?.ok_or_else(|| errors::unknown_topic(name))
}

/// The topic of an existing partition.
pub(super) fn get_with(dir: &LogDir, partition: &Partition) -> Result<LocalTopic> {
    let topic = get(dir, &partition.topic)?;
    topic.check_partition(partition.number)?;
    Ok(topic)
}

/// The topic of this name, created with default settings if needed.
pub(super) fn get_or_create(dir: &LogDir, name: &str) -> Result<LocalTopic> {
    match find(dir, name)? {
        Some(topic) => Ok(topic),
        None => create_default(dir, name, None),
    }
}

/// Creates the declared topics that do not exist.
pub(super) fn create_declared(dir: &LogDir) -> Result<()> {
    dir.settings.topics.keys().try_for_each(|name| get_or_create(dir, name).map(drop))
}

/// Creates a deleted topic again. Unless the settings declare its partitions,
/// it gets as many as before, because records wait for them.
pub(super) fn recreate(dir: &LogDir, known: &LocalTopic) -> Result<LocalTopic> {
    create_default(dir, &known.name, Some(known.partitions))
}

fn create_default(dir: &LogDir, name: &str, partitions: Option<i32>) -> Result<LocalTopic> {
    let declared = dir.settings.topics.get(name);
    let new = NewTopic {
        name: name.into(),
        partitions: declared.and_then(|topic| topic.partitions).or(partitions),
        replication: None,
        settings: declared.map(|topic| topic.settings.clone()).unwrap_or_default(),
    };
    match create(dir, &new) {
        // Another process was faster.
        Err(error) if error.kind != ErrorKind::Invalid => return Err(error),
        _ => {}
    }
    get(dir, name)
}

pub(super) fn names(dir: &LogDir) -> Result<Vec<String>> {
    let mut names = folders(&dir.topics())?;
    names.retain(|name| check_name(name).is_ok());
    Ok(names)
}

pub(super) fn create(dir: &LogDir, new: &NewTopic) -> Result<()> {
    check_name(&new.name)?;
    let partitions = new.partitions.unwrap_or(dir.settings.partitions);
    check_partitions(&new.name, partitions)?;
    TopicConfig::of(&dir.settings, &new.settings)?;
    dir.create()?;
    let _held = lock(dir)?;
    if dir.topic(&new.name).exists() {
        return Err(errors::invalid(format!("topic {:?} exists already", new.name)));
    }
    // Prepared under a name that no topic may have.
    let aside = dir.topics().join(format!("~new-{}", files::unique_name()));
    let made = (|| {
        fs::create_dir(&aside)?;
        for number in 0..partitions {
            fs::create_dir(aside.join(number.to_string()))?;
        }
        let meta = TopicMetadata { partitions, settings: new.settings.clone() };
        files::replace(&aside.join("meta.json"), &encode(&meta), dir.settings.durable)?;
        fs::rename(&aside, dir.topic(&new.name))?;
        if dir.settings.durable {
            files::sync_folder(&dir.topics())?;
        }
        Ok(())
    })();
    made.map_err(|error| {
        let _ = fs::remove_dir_all(&aside);
        errors::io(&dir.topic(&new.name), "creating the topic", &error)
    })
}

/// Adds partitions to a topic.
pub(super) fn grow(dir: &LogDir, name: &str, total: i32) -> Result<()> {
    check_partitions(name, total)?;
    let _held = lock(dir)?;
    let topic = get(dir, name)?;
    if topic.partitions > total {
        return Err(errors::invalid(format!(
            "topic {name:?} has {} partitions, which cannot be reduced to {total}",
            topic.partitions
        )));
    }
    for number in topic.partitions..total {
        let path = dir.partition(name, number);
        fs::create_dir_all(&path)
            .map_err(|error| errors::io(&path, "creating the partition", &error))?;
    }
    write(dir, name, &TopicMetadata { partitions: total, settings: topic.settings })
}

/// Changes these settings and leaves the others.
pub(super) fn configure(
    dir: &LogDir,
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Result<()> {
    TopicConfig::of(&dir.settings, settings)?;
    let _held = lock(dir)?;
    let mut topic = get(dir, name)?;
    topic.settings.extend(settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    write(dir, name, &TopicMetadata { partitions: topic.partitions, settings: topic.settings })
}

/// Creates the removed folder of a partition again, by renaming, which wakes its readers.
pub(super) fn restore_partition(folder: &Path) -> Result<()> {
    let aside = files::with_suffix(folder, &format!("~new-{}", files::unique_name()));
    let made = fs::create_dir(&aside).and_then(|()| fs::rename(&aside, folder));
    match made {
        // Another process was faster.
        Err(_) if folder.is_dir() => {
            let _ = fs::remove_dir(&aside);
            Ok(())
        }
        made => made.map_err(|error| errors::io(folder, "creating the partition", &error)),
    }
}

pub(super) fn delete(dir: &LogDir, name: &str) -> Result<()> {
    let _held = lock(dir)?;
    get(dir, name)?;
    let aside = dir.topics().join(format!("~deleted-{}", files::unique_name()));
    fs::rename(dir.topic(name), &aside)
        .and_then(|()| fs::remove_dir_all(&aside))
        .map_err(|error| errors::io(&dir.topic(name), "deleting the topic", &error))
}

fn lock(dir: &LogDir) -> Result<Held> {
    PathLock::open(&dir.root.join("topics.lock"))?.acquire(dir.answer_timeout())
}

fn write(dir: &LogDir, name: &str, meta: &TopicMetadata) -> Result<()> {
    let path = dir.topic_metadata(name);
    files::replace(&path, &encode(meta), dir.settings.durable)
        .map_err(|error| errors::io(&path, "writing", &error))
}

fn encode(meta: &TopicMetadata) -> Vec<u8> {
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
