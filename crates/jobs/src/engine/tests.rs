//! The engine's parts driven step by step, without its threads.

mod burst;
mod flaky_store;
mod interleavings;
mod model;
mod single;
mod stepped_engine;
mod threads;
mod unseen_deaths;
