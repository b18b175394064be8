//! One assigned partition.

use super::ending::{Ending, Verdict};
use super::turn::Turn;
use crate::log::{self, ErrorKind, LogError, Partition};
use crate::record::OwnedRecord;

pub(super) struct Cell {
    partition: Partition,
    generation: u64,
    route: usize,
}

impl Cell {
    pub fn partition(&self) -> &Partition {
        &self.partition
    }
    pub fn generation(&self) -> u64 {
        self.generation
    }
    pub fn route(&self) -> usize {
        self.route
    }
    pub fn mark(&self, _turn: &Turn, _offset: i64, _alone: bool) {}
    pub fn end_offset(&self) -> Option<i64> {
        None
    }
    pub fn finish(&self, _turn: &Turn, _ending: Ending) -> Verdict {
        Verdict::Dropped
    }
    pub fn abandon(&self, _turn: &Turn) {}
    pub fn transact(
        &self,
        _turn: &Turn,
        _records: &[OwnedRecord],
        _through: Option<i64>,
    ) -> log::Result<()> {
        Err(LogError::new(ErrorKind::Refused, "not there yet"))
    }
}
