//! Tests that decode the protocol buffer.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;

use super::super::{RenderOptions, Report, ReportFormat, SampleType};
use super::{hostile_report, small_report};

enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A decoded message: its fields by number, in order.
struct Message(BTreeMap<u64, Vec<Field>>);

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

impl Message {
    fn decode(mut bytes: &[u8]) -> Self {
        let mut fields: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag & 7 {
                0 => Field::Number(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(content.to_vec())
                }
                other => panic!("wire type {other} is not used in profiles"),
            };
            fields.entry(tag >> 3).or_default().push(field);
        }
        Self(fields)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &Field> {
        self.0.get(&field).into_iter().flatten()
    }

    fn number(&self, field: u64) -> u64 {
        self.all(field).next().map_or(0, |found| match found {
            Field::Number(number) => *number,
            Field::Bytes(_) => panic!("field {field} is no number"),
        })
    }

    fn bytes(&self, field: u64) -> Vec<&[u8]> {
        let mut contents = Vec::new();
        for found in self.all(field) {
            match found {
                Field::Bytes(bytes) => contents.push(bytes.as_slice()),
                Field::Number(_) => panic!("field {field} is a number"),
            }
        }
        contents
    }

    fn messages(&self, field: u64) -> Vec<Message> {
        self.bytes(field).into_iter().map(Message::decode).collect()
    }

    fn packed(&self, field: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for mut bytes in self.bytes(field) {
            while !bytes.is_empty() {
                numbers.push(varint(&mut bytes));
            }
        }
        numbers
    }
}

struct Sample {
    /// `label path:line`, innermost first.
    stack: Vec<String>,
    values: Vec<u64>,
    labels: BTreeMap<String, String>,
}

struct Decoded {
    profile: Message,
    strings: Vec<String>,
}

impl Decoded {
    fn of(report: &Report, view: &RenderOptions) -> Self {
        let mut bytes = Vec::new();
        let gzipped = report.render(ReportFormat::Pprof, view);
        GzDecoder::new(gzipped.as_slice()).read_to_end(&mut bytes).unwrap();
        let profile = Message::decode(&bytes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let strings = profile.bytes(6).into_iter().map(text).collect();
        Self { profile, strings }
    }

    fn text(&self, number: u64) -> &str {
        &self.strings[number as usize]
    }

    fn types(&self) -> Vec<(&str, &str)> {
        let types = self.profile.messages(1);
        types.iter().map(|one| (self.text(one.number(1)), self.text(one.number(2)))).collect()
    }

    /// Locations by id. Checks that ids are unique and references are valid.
    fn locations(&self) -> BTreeMap<u64, String> {
        let mut functions = BTreeMap::new();
        for function in self.profile.messages(5) {
            let name = self.text(function.number(2)).to_owned();
            let path = self.text(function.number(4)).to_owned();
            assert!(functions.insert(function.number(1), (name, path)).is_none());
        }
        let mapping = &self.profile.messages(3)[0];
        let mut locations = BTreeMap::new();
        for location in self.profile.messages(4) {
            assert_eq!(location.number(2), mapping.number(1));
            let line = &location.messages(4)[0];
            let (name, path) = &functions[&line.number(1)];
            let text = format!("{name} {path}:{}", line.number(2));
            assert!(locations.insert(location.number(1), text).is_none());
        }
        assert!(!locations.contains_key(&0) && !functions.contains_key(&0));
        locations
    }

    fn samples(&self) -> Vec<Sample> {
        let locations = self.locations();
        let decode = |sample: Message| Sample {
            stack: sample.packed(1).iter().map(|id| locations[id].clone()).collect(),
            values: sample.packed(2),
            labels: sample
                .messages(3)
                .iter()
                .map(|label| {
                    (self.text(label.number(1)).to_owned(), self.text(label.number(2)).to_owned())
                })
                .collect(),
        };
        self.profile.messages(2).into_iter().map(decode).collect()
    }
}

#[test]
fn the_profile_declares_its_sample_types() {
    let view = RenderOptions {
        by: SampleType::Freed,
        title: "a title".into(),
        ..RenderOptions::default()
    };
    let decoded = Decoded::of(&small_report(), &view);
    let types = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
        ("freed_objects", "count"),
        ("freed_space", "bytes"),
    ];
    assert_eq!(decoded.types(), types);
    assert_eq!(decoded.strings[0], "");
    assert_eq!(decoded.text(decoded.profile.number(14)), "freed_space");
    assert_eq!(decoded.profile.number(9), 1_700_000_000_000_000_000);
    assert_eq!(decoded.profile.number(10), 60_000_000_000);
    assert_eq!(decoded.profile.number(12), 64);
    assert_eq!(decoded.text(decoded.profile.packed(13)[0]), "a title");
}

#[test]
fn samples_carry_class_and_age() {
    let samples = Decoded::of(&small_report(), &RenderOptions::default()).samples();
    let find = |age: Option<&str>| {
        samples.iter().find(|s| s.labels.get("age").map(String::as_str) == age).unwrap()
    };
    assert_eq!(find(None).values, [20, 1400, 0, 0, 0, 0]);
    assert_eq!(find(Some("0")).values, [0, 0, 0, 0, 10, 400]);
    assert_eq!(find(Some("1")).values, [0, 0, 10, 1000, 0, 0]);
    for sample in &samples {
        assert_eq!(sample.stack, ["f1 /app/1.rb:11", "f2 /app/2.rb:22"]);
        assert_eq!(sample.labels["class"], "C7");
    }
}

#[test]
fn totals_are_those_of_the_report() {
    for report in [small_report(), hostile_report(), Report::default()] {
        let mut sums = [0.0; 6];
        for sample in Decoded::of(&report, &RenderOptions::default()).samples_or_none(&report) {
            sample.values.iter().zip(&mut sums).for_each(|(value, sum)| *sum += *value as f64);
        }
        let total = report.total();
        let (all, live, freed) = (total.allocated, total.live, total.freed);
        let expected =
            [all.objects, all.bytes, live.objects, live.bytes, freed.objects, freed.bytes];
        assert_eq!(sums, expected);
    }
}

impl Decoded {
    fn samples_or_none(&self, report: &Report) -> Vec<Sample> {
        let samples = self.samples();
        assert_eq!(samples.is_empty(), report.rows.is_empty());
        samples
    }
}
