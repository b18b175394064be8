//! A gzipped `profile.proto`, as `pprof` reads it (field numbers: proto/
//! profile.proto of google/pprof).
//!
//! Allocated objects are in one sample per stack and class; live and freed ones in
//! one per age, with the label `age`.

use std::collections::HashMap;
use std::io::Write;

use flate2::write::GzEncoder;
use flate2::Compression;

use super::super::{ObjectTotals, Report, SiteRow, AGES, AGE_NAMES};
use super::protobuf::ProtobufMessage;
use super::{RenderOptions, SampleType};

/// Sample types, in the order of the values of each sample.
const TYPES: [(&str, &str); 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("freed_objects", "count"),
    ("freed_space", "bytes"),
];

/// Strings without duplicates, referred to by number; number 0 is the empty one.
struct StringTable {
    list: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl StringTable {
    fn new() -> Self {
        Self { list: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = self.list.len() as u64;
        self.list.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }
}

pub(super) fn render(report: &Report, view: &RenderOptions) -> Vec<u8> {
    let mut strings = StringTable::new();
    let mut profile = ProtobufMessage::default();
    for (name, unit) in TYPES {
        let mut value_type = ProtobufMessage::default();
        value_type.number(1, strings.number(name)).number(2, strings.number(unit));
        profile.message(1, &value_type);
    }
    for row in &report.rows {
        samples(&mut profile, report, row, &mut strings);
    }
    code(&mut profile, report, &mut strings);
    head(&mut profile, report, view, &mut strings);
    for text in &strings.list {
        profile.bytes(6, text.as_bytes());
    }
    gzip(&profile.into_bytes())
}

fn samples(
    profile: &mut ProtobufMessage,
    report: &Report,
    row: &SiteRow,
    strings: &mut StringTable,
) {
    let stack = report.stacks.get(row.stack as usize).map_or(&[][..], Vec::as_slice);
    let locations: Vec<u64> = stack.iter().map(|location| u64::from(*location) + 1).collect();
    let class = (strings.number("class"), strings.number(report.class(row.class)));
    let tally = &row.tally;
    let none = ObjectTotals::default();
    if let Some(values) = values(tally.allocated, none, none) {
        sample(profile, &locations, &values, &[class]);
    }
    for (bucket, name) in AGE_NAMES.iter().enumerate().take(AGES) {
        if let Some(values) = values(none, tally.live_ages[bucket], tally.freed_ages[bucket]) {
            let age = (strings.number("age"), strings.number(name));
            sample(profile, &locations, &values, &[class, age]);
        }
    }
}

fn values(allocated: ObjectTotals, live: ObjectTotals, freed: ObjectTotals) -> Option<[u64; 6]> {
    let whole = |value: f64| value.round().max(0.0) as u64;
    let values = [
        whole(allocated.objects),
        whole(allocated.bytes),
        whole(live.objects),
        whole(live.bytes),
        whole(freed.objects),
        whole(freed.bytes),
    ];
    values.iter().any(|value| *value > 0).then_some(values)
}

fn sample(profile: &mut ProtobufMessage, locations: &[u64], values: &[u64], labels: &[(u64, u64)]) {
    let mut message = ProtobufMessage::default();
    message.packed(1, locations).packed(2, values);
    for (key, text) in labels {
        let mut label = ProtobufMessage::default();
        label.number(1, *key).number(2, *text);
        message.message(3, &label);
    }
    profile.message(2, &message);
}

/// Mapping, locations and functions. Ids start at 1.
fn code(profile: &mut ProtobufMessage, report: &Report, strings: &mut StringTable) {
    let mut mapping = ProtobufMessage::default();
    mapping.number(1, 1).number(5, strings.number("ruby"));
    // Functions, files and lines are known, so pprof need not read a binary.
    mapping.number(7, 1).number(8, 1).number(9, 1);
    profile.message(3, &mapping);
    for (number, (frame, line)) in report.locations.iter().enumerate() {
        let mut code_line = ProtobufMessage::default();
        code_line.number(1, u64::from(*frame) + 1).number(2, u64::from(*line));
        let mut location = ProtobufMessage::default();
        location.number(1, number as u64 + 1).number(2, 1).message(4, &code_line);
        profile.message(4, &location);
    }
    for (number, frame) in report.frames.iter().enumerate() {
        let mut function = ProtobufMessage::default();
        let name = strings.number(&frame.label);
        function.number(1, number as u64 + 1).number(2, name).number(3, name);
        function.number(4, strings.number(&frame.path)).number(5, u64::from(frame.line));
        profile.message(5, &function);
    }
}

fn head(
    profile: &mut ProtobufMessage,
    report: &Report,
    view: &RenderOptions,
    strings: &mut StringTable,
) {
    let abouts = || report.sources.iter().map(|source| &source.about);
    let started = abouts().map(|about| about.started_unix_s).fold(f64::INFINITY, f64::min);
    let seconds = abouts().map(|about| about.seconds).fold(0.0, f64::max);
    if started.is_finite() {
        profile.number(9, (started.max(0.0) * 1e9) as u64);
    }
    profile.number(10, (seconds.max(0.0) * 1e9) as u64);
    let mut period_type = ProtobufMessage::default();
    period_type.number(1, strings.number("objects")).number(2, strings.number("count"));
    profile.message(11, &period_type);
    profile.number(12, abouts().map(|about| u64::from(about.every)).max().unwrap_or(0));
    let comments: Vec<u64> = std::iter::once(view.title.as_str())
        .chain(abouts().filter_map(|about| about.note.as_deref()))
        .map(|comment| strings.number(comment))
        .collect();
    profile.packed(13, &comments);
    let default = match (view.by, view.bytes) {
        (SampleType::Live, true) => "inuse_space",
        (SampleType::Live, false) => "inuse_objects",
        (SampleType::Allocated, true) => "alloc_space",
        (SampleType::Allocated, false) => "alloc_objects",
        (SampleType::Freed, true) => "freed_space",
        (SampleType::Freed, false) => "freed_objects",
    };
    profile.number(14, strings.number(default));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
