//! Tests of a profile against a simple model, and of its report in every format.

mod bounds;
mod formats;
mod gvl_times;
mod model;
mod pprof;
mod report_merge;

use super::{Frame, Limits, ObjectState, Profile, Report, SourceInfo};

/// Limits that are never reached.
const WIDE: Limits = Limits { samples_max: 100_000, stacks_max: 10_000, depth_max: 100 };

/// A live, unchanged object.
const ALIVE: ObjectState = ObjectState { alive: true, old: false, bytes: 0, class: 0 };
/// A dead object.
const DEAD: ObjectState = ObjectState { alive: false, ..ALIVE };

fn about(worker: u32) -> SourceInfo {
    SourceInfo {
        pid: 1000 + worker,
        worker: Some(worker),
        ruby: "3.1.2".into(),
        started_unix_s: 1_700_000_000.0,
        seconds: 60.0,
        every: 64,
        duty: 0.05,
        ..SourceInfo::default()
    }
}

/// Names every frame and class after its address.
fn name_all(profile: &mut Profile) {
    for id in profile.unnamed_frames() {
        let frame = Frame { label: format!("f{id}"), path: format!("/app/{id}.rb"), line: 1 };
        profile.name_frame(id, frame);
    }
    for id in profile.unnamed_classes() {
        profile.name_class(id, format!("C{id}"));
    }
}

/// Two objects of one stack (`f1` at line 11, called by `f2` at 22): a string
/// of 100 bytes that lived through one collection, and one of 40 bytes that did not.
fn small_report() -> Report {
    let mut profile = Profile::new(WIDE);
    profile.sample(0x100, 7, 5, 100, &[(1, 11), (2, 22)], 10.0);
    profile.sample(0x200, 7, 5, 40, &[(1, 11), (2, 22)], 10.0);
    profile.after_mark(super::CollectionKind::Minor, |object| match object {
        0x100 => ObjectState { old: true, ..ALIVE },
        _ => DEAD,
    });
    name_all(&mut profile);
    profile.report(about(0))
}

/// A report with names that are special in some format.
fn hostile_report() -> Report {
    let names = [
        "<script>alert('1')</script>",
        "\"quoted\" 'quoted' &amp; & \\",
        "]]></script><!-- -->",
        "a;b 12 34",
        "# comment",
        "line\nfeed\u{1b}[31m\0",
        "{{title}} {{script}}",
        "",
    ];
    let mut profile = Profile::new(WIDE);
    for (number, name) in names.iter().enumerate() {
        let id = number + 1;
        let stack = [(id, id as u32), (id % names.len() + 1, 5)];
        profile.sample(id * 64, id, 1, 64, &stack, 3.0);
        let frame = Frame { label: (*name).into(), path: format!("/{name}.rb"), line: 1 };
        profile.name_frame(id, frame);
        profile.name_class(id, (*name).into());
    }
    profile
        .after_mark(super::CollectionKind::Major, |object| if object == 64 { DEAD } else { ALIVE });
    let mut waits = super::gvl_times::GvlTimes::new(10);
    names.iter().for_each(|name| waits.record(name, 5, 6, 11));
    let note = Some(names[0].into());
    profile.report(SourceInfo { gvl: Some(waits.waits()), note, ruby: names[2].into(), ..about(0) })
}
