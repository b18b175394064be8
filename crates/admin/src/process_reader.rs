//! Reads the memory of the server's processes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use chaton_core::clock::now_ns;
use chaton_memory::readings::{resident, ProcessMemory, ROOT};

use crate::metrics::ProcessFigures;
use crate::tree::TreeReport;

/// Exact figures are kept this long: the kernel walks over all pages of a process to make them.
const EXACT_KEPT_NS: u64 = 15_000_000_000;
/// Exact figures that are read in one scrape at most, so that it stays short.
const EXACT_READS_MAX: usize = 2;

/// Resident memory is read each time, the exact figures of a few processes in turn.
#[derive(Default)]
pub(crate) struct ProcessReader {
    /// By process id: when they were read (ns), and the figures, unless the kernel has none.
    exact: HashMap<u32, (u64, Option<ProcessMemory>)>,
}

impl ProcessReader {
    /// The figures of the processes that exist, by name.
    pub fn read(&mut self, report: &TreeReport) -> Vec<ProcessFigures> {
        // In an application that mounts the page, this is a worker.
        let known =
            |pid| report.pid == pid || report.workers.iter().any(|one| one.pid == Some(pid));
        let own = Some(std::process::id()).filter(|pid| !known(*pid));
        let mut processes = vec![("main".to_owned(), report.pid)];
        processes.extend(own.map(|pid| ("admin".to_owned(), pid)));
        processes.extend(report.preloaders.iter().map(|pid| ("preloader".to_owned(), *pid)));
        let workers = report.workers.iter();
        processes
            .extend(workers.filter_map(|one| Some((format!("worker {}", one.worker), one.pid?))));
        self.exact.retain(|pid, _| processes.iter().any(|(_, other)| other == pid));
        self.refresh(&processes);
        let root = Path::new(ROOT);
        let figures = processes.into_iter().filter_map(|(name, pid)| {
            let exact = self.exact.get(&pid).and_then(|(_, memory)| memory.as_ref());
            Some(ProcessFigures {
                name,
                resident: resident(root, pid)?,
                proportional: exact.map(|memory| memory.pss),
                private: exact.map(|memory| memory.private),
            })
        });
        sums(figures)
    }

    /// Reads those whose figures are missing or oldest.
    fn refresh(&mut self, processes: &[(String, u32)]) {
        let now_ns = now_ns();
        let read_at = |pid: &u32| self.exact.get(pid).map_or(0, |(at_ns, _)| *at_ns);
        let mut old: Vec<_> = processes
            .iter()
            .map(|(_, pid)| (read_at(pid), *pid))
            .filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) >= EXACT_KEPT_NS || *at_ns == 0)
            .collect();
        old.sort_unstable();
        for (_, pid) in old.into_iter().take(EXACT_READS_MAX) {
            self.exact.insert(pid, (now_ns, ProcessMemory::read(Path::new(ROOT), pid)));
        }
    }
}

/// A worker that is replaced and its successor have the same name, as have two preloaders, and are added up. A sum of exact
/// figures is missing until all of them have been read.
fn sums(figures: impl Iterator<Item = ProcessFigures>) -> Vec<ProcessFigures> {
    let mut sums = BTreeMap::<String, ProcessFigures>::new();
    for one in figures {
        if let Some(sum) = sums.get_mut(&one.name) {
            sum.resident += one.resident;
            sum.proportional = sum.proportional.zip(one.proportional).map(|(a, b)| a + b);
            sum.private = sum.private.zip(one.private).map(|(a, b)| a + b);
        } else {
            sums.insert(one.name.clone(), one);
        }
    }
    sums.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_name_are_added_up() {
        let figures = |name: &str, resident, proportional, private| ProcessFigures {
            name: name.to_owned(),
            resident,
            proportional,
            private,
        };
        let sums = sums(
            [
                figures("worker 0", 10, Some(5), Some(3)),
                figures("worker 1", 7, Some(6), None),
                figures("worker 0", 20, None, Some(4)),
            ]
            .into_iter(),
        );
        let shown: Vec<_> = sums
            .iter()
            .map(|one| (one.name.as_str(), one.resident, one.proportional, one.private))
            .collect();
        assert_eq!(shown, [("worker 0", 30, None, Some(7)), ("worker 1", 7, Some(6), None)]);
    }
}
