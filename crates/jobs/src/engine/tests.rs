//! The engine's parts driven step by step, without its threads.

mod bench_of_nodes;
mod flaky;
mod interleavings;
mod single;
mod threads;
