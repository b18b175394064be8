//! Values of partitions, in little room: with ten thousand topics they are most of what a member keeps, and most of what
//! the stored state of its group says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::log::Partition;

/// For each topic the values of its partitions, which are few and have the numbers from 0 on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, Vec<Option<T>>>")]
pub(super) struct ByPartition<T>(BTreeMap<Arc<str>, Vec<Option<T>>>);

impl<T> From<BTreeMap<String, Vec<Option<T>>>> for ByPartition<T> {
    fn from(all: BTreeMap<String, Vec<Option<T>>>) -> Self {
        Self(all.into_iter().map(|(topic, values)| (topic.into(), values)).collect())
    }
}

impl<T: Serialize> Serialize for ByPartition<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(topic, values)| (&**topic, values)))
    }
}

impl<T> Default for ByPartition<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByPartition<T> {
    /// The value of a partition.
    pub fn get(&self, topic: &str, number: i32) -> Option<&T> {
        self.0.get(topic)?.get(number as usize)?.as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, topic: &str, number: i32) -> Option<&mut T> {
        self.0.get_mut(topic)?.get_mut(number as usize)?.as_mut()
    }

    /// Sets the value of a partition.
    pub fn insert(&mut self, Partition { topic, number }: &Partition, value: T) {
        let values = self.0.entry(topic.clone()).or_default();
        let at = *number as usize;
        if values.len() <= at {
            values.resize_with(at + 1, || None);
        }
        values[at] = Some(value);
    }

    /// Removes the values that are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, i32, &T) -> bool) {
        self.0.retain(|topic, values| {
            for (value, number) in values.iter_mut().zip(0..) {
                value.take_if(|value| !keep(topic, number, value));
            }
            let left = values.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            values.truncate(left);
            left > 0
        });
    }

    /// All, sorted by topic and number.
    pub fn iter(&self) -> impl Iterator<Item = (Partition, &T)> {
        self.0.iter().flat_map(|(topic, values)| {
            values.iter().zip(0..).filter_map(|(value, number)| {
                Some((Partition { topic: topic.clone(), number }, value.as_ref()?))
            })
        })
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Partition, &mut T)> {
        self.0.iter_mut().flat_map(|(topic, values)| {
            values.iter_mut().zip(0..).filter_map(|(value, number)| {
                Some((Partition { topic: topic.clone(), number }, value.as_mut()?))
            })
        })
    }
}
