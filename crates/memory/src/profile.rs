//! Which code allocated what, and what became of it.
