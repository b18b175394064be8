//! Tests of merging reports.

use super::super::{CollectionKind, Profile, Report};
use super::{about, hostile_report, name_all, small_report, DEAD, WIDE};

#[test]
fn same_code_becomes_one_row() {
    let one = small_report();
    let mut two = small_report();
    two.sources[0].about.worker = Some(1);
    let merged = Report::merge(vec![two, one.clone()]);
    assert_eq!((merged.rows.len(), merged.stacks.len(), merged.classes.len()), (1, 1, 1));
    assert_eq!(merged.frames, one.frames);
    let (sum, single) = (merged.total(), one.total());
    assert_eq!(sum.live.bytes, 2.0 * single.live.bytes);
    assert_eq!(sum.freed_ages[0].bytes, 2.0 * single.freed_ages[0].bytes);
    assert_eq!(sum.samples, 4);
    let workers: Vec<_> = merged.sources.iter().map(|source| source.about.worker).collect();
    assert_eq!(workers, [Some(0), Some(1)]);
    assert_eq!(merged.collections.len(), 2);
}

#[test]
fn indices_of_each_report_are_translated() {
    let mut profile = Profile::new(WIDE);
    profile.sample(8, 9, 5, 500, &[(4, 44)], 1.0);
    profile.sample(16, 7, 5, 40, &[(1, 11), (2, 22)], 10.0);
    name_all(&mut profile);
    let merged = Report::merge(vec![small_report(), profile.report(about(1))]);
    let mut rows: Vec<(String, String, f64)> = merged
        .rows
        .iter()
        .map(|row| {
            let place = merged.stack(row.stack).map(|(f, line)| format!("{}:{line}", f.label));
            let stack = place.collect::<Vec<_>>().join(" ");
            (stack, merged.class(row.class).to_owned(), row.tally.live.bytes)
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let row = |stack: &str, class: &str, bytes| (stack.to_owned(), class.to_owned(), bytes);
    assert_eq!(rows, [row("f1:11 f2:22", "C7", 1400.0), row("f4:44", "C9", 500.0)]);
}

#[test]
fn equal_names_in_one_process_are_joined() {
    let mut profile = Profile::new(WIDE);
    profile.sample(8, 70, 1, 40, &[(1, 5)], 1.0);
    profile.sample(16, 71, 1, 40, &[(2, 5)], 1.0);
    for id in [1, 2] {
        profile.name_frame(id, super::Frame { label: "f".into(), path: "/a".into(), line: 1 });
    }
    profile.name_class(70, "Same".into());
    profile.name_class(71, "Same".into());
    let report = profile.report(about(0));
    assert_eq!((report.rows.len(), report.frames.len()), (1, 1));
    assert_eq!(report.rows[0].tally.samples, 2);
}

#[test]
fn json_round_trips() {
    for report in [small_report(), hostile_report(), Report::default()] {
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
    assert_eq!(Report::merge(Vec::new()), Report::default());
}

#[test]
fn json_has_the_documented_form() {
    let json = serde_json::to_value(small_report()).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["sources"][0]["pid"], 1000);
    assert_eq!(json["sources"][0]["every"], 64);
    assert_eq!(json["locations"], serde_json::json!([[0, 11], [1, 22]]));
    assert_eq!(json["rows"][0]["live"], serde_json::json!([10.0, 1000.0]));
    assert_eq!(json["rows"][0]["freed_ages"][0], serde_json::json!([10.0, 400.0]));
    assert_eq!(json["rows"][0]["promoted"], serde_json::json!([10.0, 1000.0]));
    assert_eq!(json["collections"][0]["kind"], "minor");
}

#[test]
fn a_damaged_report_is_merged_without_a_panic() {
    let mut report = small_report();
    report.rows[0].stack = 99;
    report.rows[0].class = 99;
    report.locations.push((77, 1));
    report.stacks.push(vec![2, 500]);
    let merged = Report::merge(vec![report]);
    assert_eq!(merged.total().live.bytes, 1000.0);
    assert_eq!(merged.class(merged.rows[0].class), "(unknown)");
}

#[test]
fn a_profile_without_samples_has_no_rows() {
    let mut profile = Profile::new(WIDE);
    profile.after_mark(CollectionKind::Minor, |_| DEAD);
    let report = profile.report(about(0));
    assert!(report.rows.is_empty() && report.stacks.is_empty() && report.frames.is_empty());
    assert_eq!(report.sources[0].minor, 1);
}
