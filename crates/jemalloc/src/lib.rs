//! An empty crate, built for the static library that its dependency produces.
