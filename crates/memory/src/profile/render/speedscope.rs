//! JSON for speedscope: one "sampled" profile each for live, allocated and freed
//! objects (file-format-schema.json of speedscope).

use serde_json::{json, Value};

use super::super::Report;
use super::{RenderOptions, SampleType};

pub(super) fn render(report: &Report, view: &RenderOptions) -> Vec<u8> {
    // A frame is a line of code; the innermost frame is the allocated class.
    let mut frames: Vec<Value> = Vec::with_capacity(report.locations.len());
    for &(frame, line) in &report.locations {
        frames.push(match report.frames.get(frame as usize) {
            Some(frame) if frame.path.is_empty() => json!({ "name": frame.label }),
            Some(frame) if line == 0 => json!({ "name": frame.label, "file": frame.path }),
            Some(frame) => json!({ "name": frame.label, "file": frame.path, "line": line }),
            None => json!({ "name": "(unknown)" }),
        });
    }
    frames.extend(report.classes.iter().map(|class| json!({ "name": format!("[{class}]") })));
    let profiles: Vec<Value> =
        SampleType::ALL.iter().map(|by| profile(report, *by, view.bytes)).collect();
    let active = SampleType::ALL.iter().position(|by| *by == view.by);
    let document = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("chaton ", env!("CARGO_PKG_VERSION")),
        "name": view.title,
        "activeProfileIndex": active,
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    document.to_string().into_bytes()
}

fn profile(report: &Report, by: SampleType, bytes: bool) -> Value {
    let mut samples: Vec<Vec<u32>> = Vec::new();
    let mut weights: Vec<u64> = Vec::new();
    for row in &report.rows {
        let weight = by.of(&row.tally, bytes).round();
        if weight >= 1.0 {
            let stack = report.stacks.get(row.stack as usize).map_or(&[][..], Vec::as_slice);
            let mut sample: Vec<u32> = stack.iter().rev().copied().collect();
            sample.push(report.locations.len() as u32 + row.class);
            samples.push(sample);
            weights.push(weight as u64);
        }
    }
    json!({
        "type": "sampled",
        "name": by.name(),
        "unit": if bytes { "bytes" } else { "none" },
        "startValue": 0,
        "endValue": weights.iter().sum::<u64>(),
        "samples": samples,
        "weights": weights,
    })
}
