//! Tests of the limits, and that they cause no bias.

use super::super::{CollectionKind, Limits, Profile, RECENT_MAX};
use super::{about, name_all, ALIVE, DEAD, WIDE};

#[test]
fn thinning_keeps_the_totals() {
    let limits = Limits { samples_max: 2000, ..WIDE };
    let mut profile = Profile::new(limits);
    let mut objects = 0;
    // Two classes in turn: dropping every second sample would lose one of them.
    let mut allocate = |profile: &mut Profile, number: usize| {
        for _ in 0..number {
            objects += 1;
            let class = 70 + objects % 2;
            profile.sample(objects * 8, class, 1, 100, &[(class, 1)], 2.0);
        }
    };
    for _ in 0..10 {
        allocate(&mut profile, 6000);
        profile.after_mark(CollectionKind::Minor, |_| ALIVE);
        assert!(profile.followed() <= limits.samples_max);
    }
    name_all(&mut profile);
    let report = profile.report(about(0));
    assert!(report.sources[0].thinned >= 5, "{:?}", report.sources[0]);
    let total = report.total();
    assert_eq!(total.allocated.objects, 120_000.0);
    near(total.live.objects, 120_000.0);
    near(total.live.bytes, 12_000_000.0);
    for row in &report.rows {
        near(row.tally.live.objects, 60_000.0);
    }
    profile.after_mark(CollectionKind::Major, |object| if object % 32 == 0 { ALIVE } else { DEAD });
    let report = profile.report(about(0));
    near(report.total().freed.objects, 90_000.0);
    near(report.total().live.objects, 30_000.0);
}

/// Within a quarter, which is more than six standard deviations here.
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.25 * expected, "{found} is not near {expected}");
}

#[test]
fn follows_more_again_when_there_is_room() {
    let mut profile = Profile::new(Limits { samples_max: 100, ..WIDE });
    for object in 1..=1000 {
        profile.sample(object * 8, 70, 1, 40, &[(1, 1)], 1.0);
    }
    assert!(profile.report(about(0)).sources[0].keep_one_in > 1);
    for _ in 0..20 {
        profile.after_mark(CollectionKind::Minor, |_| DEAD);
    }
    let source = profile.report(about(0)).sources[0].clone();
    assert_eq!((source.keep_one_in, source.followed), (1, 0));
}

#[test]
fn stacks_without_room_share_one() {
    let limits = Limits { samples_max: 100_000, stacks_max: 50, depth_max: 4 };
    let mut profile = Profile::new(limits);
    for object in 1..=10_000_usize {
        // Ever new frames, as from code compiled at run time.
        profile.sample(object * 8, 70, 1, 40, &[(object, 1), (3, 1)], 1.0);
    }
    let tables_bytes = |profile: &Profile| profile.memory_bytes() - profile.live.memory_bytes();
    let before = tables_bytes(&profile);
    for object in 10_001..=20_000_usize {
        profile.sample(object * 8, object, 1, 40, &[(object, 1), (3, 1)], 1.0);
    }
    let grown = tables_bytes(&profile) - before;
    assert!(grown < 20_000, "{grown} bytes: only so many sites and classes had room");
    name_all(&mut profile);
    let report = profile.report(about(0));
    assert!(report.stacks.len() <= 51 && report.rows.len() <= 151, "{}", report.rows.len());
    assert_eq!(report.total().live.objects, 20_000.0);
    assert_eq!(report.sources[0].other, 20_000 - 38);
    let other = |label: &str| label == "(other)";
    let rows = report.rows.iter();
    let cut = rows.filter(|row| report.stack(row.stack).any(|(frame, _)| other(&frame.label)));
    assert_eq!(cut.map(|row| row.tally.samples).sum::<u64>(), 20_000 - 38);
}

#[test]
fn a_leak_that_begins_late_shows_its_line() {
    let limits = Limits { samples_max: 100_000, stacks_max: 40, depth_max: 50 };
    let mut profile = Profile::new(limits);
    let stack = |way: usize| (0..9).map(|depth| (10 + depth + way % 9, way as u32)).collect();
    let mut ways: Vec<Vec<(usize, u32)>> = (0..30).map(stack).collect();
    // The same innermost frames, called from a thousand places.
    ways.extend((0..1000).map(|caller| vec![(1, 0), (2, 77), (3, 5), (4, 6), (5, 7), (6, caller)]));
    for (object, way) in ways.iter().enumerate() {
        profile.sample(object * 8, 70, 5, 100, way, 1.0);
    }
    name_all(&mut profile);
    profile.relocate(|address| address + 1000);
    profile.sample(8_000_000, 1070, 5, 100, &[(1001, 0), (1002, 77), (1003, 5), (1004, 6)], 1.0);
    let report = profile.report(about(0));
    let stack = report.stack(report.rows[0].stack);
    let stack: Vec<String> = stack.map(|(frame, line)| format!("{}:{line}", frame.label)).collect();
    assert_eq!(stack, ["f1:0", "f2:77", "f3:5", "f4:6", "(other):0"]);
    assert_eq!(report.rows[0].tally.samples, 1001);
}

#[test]
fn deep_stacks_keep_the_innermost_frames() {
    let mut profile = Profile::new(Limits { depth_max: 3, ..WIDE });
    profile.sample(8, 70, 1, 40, &[(1, 1), (2, 2), (3, 3), (4, 4)], 1.0);
    name_all(&mut profile);
    let report = profile.report(about(0));
    let labels: Vec<&str> =
        report.stack(report.rows[0].stack).map(|(frame, _)| frame.label.as_str()).collect();
    assert_eq!(labels, ["f1", "f2", "f3"]);
    assert_eq!(report.sources[0].truncated, 1);
}

#[test]
fn the_last_collections_are_kept() {
    let mut profile = Profile::new(WIDE);
    for _ in 0..RECENT_MAX + 10 {
        profile.after_mark(CollectionKind::Minor, |_| DEAD);
    }
    profile.after_mark(CollectionKind::Major, |_| DEAD);
    let report = profile.report(about(3));
    assert_eq!(report.collections.len(), RECENT_MAX);
    let last = report.collections.last().unwrap();
    assert_eq!((last.number, last.kind, last.pid), (267, CollectionKind::Major, 1003));
    assert_eq!((report.sources[0].minor, report.sources[0].major), (266, 1));
}

#[test]
fn tiny_limits_are_raised_to_usable_ones() {
    let mut profile = Profile::new(Limits { samples_max: 0, stacks_max: 0, depth_max: 0 });
    for object in 1..1000 {
        profile.sample(object * 8, object, 1, 40, &[(object, 1), (1, 2), (2, 3)], 1.0);
    }
    profile.after_mark(CollectionKind::Minor, |_| DEAD);
    assert_eq!(profile.report(about(0)).total().allocated.objects, 999.0);
}
