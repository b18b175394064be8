//! What a member of a group takes that has very many partitions: this is a program of its own, because it counts what it
//! allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_streams::log::{self, MemberEvent, NewTopic};
use chaton_streams::settings::{GroupSettings, LogSettings};

/// Topics of four partitions.
const TOPICS: usize = 2_000;
/// The most bytes that it may have allocated at once, for each partition: 40,000 take 16 MB.
const MOST_BYTES: usize = 400;
/// And those that it may keep.
const KEPT_BYTES: usize = 200;
/// A bound for what never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that are allocated, and the most that were.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_member_takes_little_for_each_partition() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = LogSettings::for_tests(&format!("log://{}", folder.path().display()));
    settings.durable = false;
    let log = log::open(&settings).unwrap();
    let names: Vec<String> = (0..TOPICS).map(|n| format!("topic_{n}")).collect();
    let mut admin = log.admin().unwrap();
    for name in &names {
        let (name, settings) = (name.clone(), [].into());
        admin.create(&NewTopic { name, partitions: Some(4), replication: None, settings }).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let group = GroupSettings::for_tests("g", &names);
    let before = ALLOCATED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let bell = Arc::new(EventFd::new().unwrap());
    let mut member = log.member(&group, &bell).unwrap();
    let began = Instant::now();
    let (mut assigned, mut events) = (0, Vec::new());
    while assigned < 4 * TOPICS {
        assert!(began.elapsed() < PATIENCE, "{assigned} partitions are assigned");
        member.poll(&mut events);
        for event in events.drain(..) {
            if let MemberEvent::Assigned(all) = event {
                assigned += all.len();
            }
        }
        member.wait(Duration::from_millis(10));
    }
    drop(events);
    let each = |bytes: &AtomicUsize| (bytes.load(Ordering::Relaxed) - before) / (4 * TOPICS);
    let (most, kept) = (each(&MOST), each(&ALLOCATED));
    println!("{most} bytes at once for a partition, {kept} kept");
    assert!(most <= MOST_BYTES, "{most} bytes at once for a partition");
    assert!(kept <= KEPT_BYTES, "{kept} bytes kept for a partition");
}
