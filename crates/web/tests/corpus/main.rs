//! The parser over two tables of requests, hostile and valid: outcomes, the same outcomes however
//! the bytes are cut into reads, hyper's outcomes beside ours, and mutations of all of them.

mod hyper_peer;
mod mutations;
mod outcome;
mod outcomes;
mod table;
