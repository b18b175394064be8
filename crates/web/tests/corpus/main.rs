//! The parser over two tables of requests, hostile and valid: verdicts, the same
//! verdicts however the bytes are cut into reads, hyper's verdicts beside ours,
//! and mutations of all of them.

mod hyper_side;
mod mutations;
mod table;
mod verdict;
mod verdicts;
