//! A gzipped `profile.proto`, as `pprof` reads it (field numbers: proto/
//! profile.proto of google/pprof).
//!
//! Allocated objects are in one sample per stack and class; live and freed ones in
//! one per age, with the label `age`.

use std::collections::HashMap;
use std::io::Write;

use flate2::write::GzEncoder;
use flate2::Compression;
use prost::Message;

use super::super::{ObjectTotals, Report, SiteRow, AGES, AGE_NAMES};
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

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
}

/// Strings without duplicates, referred to by number; number 0 is the empty one.
struct StringTable {
    list: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl StringTable {
    fn new() -> Self {
        Self { list: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }

    fn number(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = self.list.len() as i64;
        self.list.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }
}

pub(super) fn render(report: &Report, view: &RenderOptions) -> Vec<u8> {
    let mut strings = StringTable::new();
    let mut value_type =
        |(name, unit)| ValueType { r#type: strings.number(name), unit: strings.number(unit) };
    let sample_type = TYPES.into_iter().map(&mut value_type).collect();
    let period_type = Some(value_type(("objects", "count")));
    let abouts = || report.sources.iter().map(|source| &source.about);
    let started_s = abouts().map(|about| about.started_unix_s).fold(f64::INFINITY, f64::min);
    let seconds = abouts().map(|about| about.seconds).fold(0.0, f64::max);
    let mut profile = Profile {
        sample_type,
        // Functions, files and lines are known, so pprof need not read a binary.
        mapping: vec![Mapping {
            id: 1,
            filename: strings.number("ruby"),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
        }],
        location: report.locations.iter().zip(1..).map(location).collect(),
        time_nanos: if started_s.is_finite() { (started_s.max(0.0) * 1e9) as i64 } else { 0 },
        duration_nanos: (seconds.max(0.0) * 1e9) as i64,
        period_type,
        period: abouts().map(|about| i64::from(about.every)).max().unwrap_or(0),
        default_sample_type: strings.number(default_type(view)),
        ..Profile::default()
    };
    for row in &report.rows {
        samples(&mut profile.sample, report, row, &mut strings);
    }
    for (number, frame) in report.frames.iter().enumerate() {
        let name = strings.number(&frame.label);
        profile.function.push(Function {
            id: number as u64 + 1,
            name,
            system_name: name,
            filename: strings.number(&frame.path),
            start_line: i64::from(frame.line),
        });
    }
    profile.comment = std::iter::once(view.title.as_str())
        .chain(abouts().filter_map(|about| about.note.as_deref()))
        .map(|comment| strings.number(comment))
        .collect();
    profile.string_table = strings.list;
    gzip(&profile.encode_to_vec())
}

/// Ids start at 1.
fn location(((frame, line), id): (&(u32, u32), u64)) -> Location {
    let line = Line { function_id: u64::from(*frame) + 1, line: i64::from(*line) };
    Location { id, mapping_id: 1, line: vec![line] }
}

fn samples(list: &mut Vec<Sample>, report: &Report, row: &SiteRow, strings: &mut StringTable) {
    let stack = report.stacks.get(row.stack as usize).map_or(&[][..], Vec::as_slice);
    let location_id: Vec<u64> = stack.iter().map(|location| u64::from(*location) + 1).collect();
    let class =
        Label { key: strings.number("class"), str: strings.number(report.class(row.class)) };
    let tally = &row.tally;
    let none = ObjectTotals::default();
    if let Some(value) = values(tally.allocated, none, none) {
        let label = vec![class.clone()];
        list.push(Sample { location_id: location_id.clone(), value, label });
    }
    for (bucket, name) in AGE_NAMES.iter().enumerate().take(AGES) {
        if let Some(value) = values(none, tally.live_ages[bucket], tally.freed_ages[bucket]) {
            let age = Label { key: strings.number("age"), str: strings.number(name) };
            let label = vec![class.clone(), age];
            list.push(Sample { location_id: location_id.clone(), value, label });
        }
    }
}

fn values(allocated: ObjectTotals, live: ObjectTotals, freed: ObjectTotals) -> Option<Vec<i64>> {
    let whole = |value: f64| value.round().max(0.0) as i64;
    let totals = [allocated, live, freed];
    let values = totals.iter().flat_map(|total| [whole(total.objects), whole(total.bytes)]);
    let values: Vec<i64> = values.collect();
    values.iter().any(|value| *value > 0).then_some(values)
}

fn default_type(view: &RenderOptions) -> &'static str {
    match (view.by, view.bytes) {
        (SampleType::Live, true) => "inuse_space",
        (SampleType::Live, false) => "inuse_objects",
        (SampleType::Allocated, true) => "alloc_space",
        (SampleType::Allocated, false) => "alloc_objects",
        (SampleType::Freed, true) => "freed_space",
        (SampleType::Freed, false) => "freed_objects",
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
