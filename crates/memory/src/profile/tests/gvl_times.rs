//! Tests of the times of the global lock.

use super::super::gvl_times::{wait_class, GvlReport, GvlTimes, WAIT_CLASSES};
use super::super::{Profile, Report};
use super::{about, WIDE};

#[test]
fn each_wait_class_is_twice_as_wide_as_the_previous_one() {
    let cases = [(0, 0), (999, 0), (1000, 1), (1999, 1), (2000, 2), (4000, 3), (u64::MAX, 23)];
    for (ns, class) in cases {
        assert_eq!(wait_class(ns), class, "{ns} ns");
    }
}

#[test]
fn times_add_up_by_label() {
    let mut table = GvlTimes::new(10);
    (0..100).for_each(|_| table.record("GET /a", 500, 2_000, 10_000));
    table.record("GET /a", 3_000_000, 2_000, 4_000_000);
    table.record("Job", 0, 1, 1);
    let waits = table.waits();
    let unit = &waits.units[0];
    assert_eq!((unit.label.as_str(), unit.count), ("GET /a", 101));
    assert_eq!(unit.waiting_ns, 100 * 500 + 3_000_000);
    assert_eq!(unit.holding_ns, 101 * 2_000);
    assert_eq!(unit.total_ns, 100 * 10_000 + 4_000_000);
    assert_eq!(unit.waits.iter().sum::<u64>(), 101);
    assert_eq!(unit.wait_bound_ns(0.5), 1000);
    assert_eq!(unit.wait_bound_ns(0.001), 4_096_000);
    assert_eq!(waits.units[1].label, "Job");
}

#[test]
fn labels_are_bounded() {
    let mut table = GvlTimes::new(3);
    (0..100).for_each(|number| table.record(&format!("GET /{number}"), 1, 1, 2));
    table.record("GET /1", 1, 1, 2);
    let waits = table.waits();
    assert_eq!(waits.units.len(), 4);
    let count = |label: &str| waits.units.iter().find(|unit| unit.label == label).unwrap().count;
    assert_eq!((count("(other)"), count("GET /1")), (97, 2));
}

#[test]
fn times_of_workers_are_added_up() {
    let report = |label: &str, times: usize| {
        let mut table = GvlTimes::new(10);
        (0..times).for_each(|_| table.record(label, 1_500, 10, 2_000));
        let gvl = Some(table.waits());
        Profile::new(WIDE).report(super::SourceInfo { gvl, ..about(0) })
    };
    let merged = Report::merge(vec![report("a", 2), report("b", 9), report("a", 3)]);
    let GvlReport { units } = merged.gvl.clone().unwrap();
    let counts: Vec<(&str, u64)> = units.iter().map(|u| (u.label.as_str(), u.count)).collect();
    assert_eq!(counts, [("b", 9), ("a", 5)]);
    assert_eq!(units[1].waits[1], 5);
    assert_eq!(units[0].waits.len(), WAIT_CLASSES);
    let text =
        String::from_utf8(merged.render(super::super::ReportFormat::Text, &Default::default()));
    assert!(text.unwrap().contains("global lock"));
}
