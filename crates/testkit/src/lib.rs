//! Tools of the tests and benchmarks.
