//! Many jobs at once.

use super::stepped_engine::{config, factory, push, SteppedEngine};

#[test]
fn the_first_jobs_of_a_burst_do_not_wait_for_the_others() {
    let factory = factory("burst");
    let mut store = factory.store();
    (0..1000).for_each(|number| push(&mut *store, "low", &number.to_string(), "", None));
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    // So many would start within the prefetch time.
    engine.state.hand.write().service_ns = 5_000.0;
    engine.fetch();
    assert_eq!(engine.feed.jobs.lock().len(), 64, "the first claim is a small one");
    engine.fetch();
    assert!(engine.feed.jobs.lock().len() >= 128, "the next one waits for no job to start");
}
