//! The jobs engine and its stores on real servers, a module for each subject.

mod limits;
mod postgres_faults;
mod postgres_outbox;
mod postgres_server;
mod postgres_tree;
mod redis_engine;
mod redis_failover;
mod redis_faults;
mod redis_format;
mod redis_idle_processes;
mod redis_push_buffer;
mod redis_restore;
mod redis_rights;
mod redis_rules;
mod redis_sentinel;
mod redis_server;
mod redis_tls;
mod redis_watch;
