//! Finds a short run that fails as a long one does.

use std::time::{Duration, Instant};

use super::steps::Step;

/// Longest search.
const SEARCH: Duration = Duration::from_secs(60);

/// Leaves out steps while the rest still fails.
pub fn shrink(mut steps: Vec<Step>, fails: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let began = Instant::now();
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < steps.len() && began.elapsed() < SEARCH {
            let mut rest = steps.clone();
            rest.drain(at..(at + size).min(steps.len()));
            if fails(&rest) {
                steps = rest;
                shorter = true;
            } else {
                at += size;
            }
        }
        if size == 1 && !shorter || began.elapsed() >= SEARCH {
            break;
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
    steps
}
