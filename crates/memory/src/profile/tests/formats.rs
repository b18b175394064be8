//! Tests of the text formats.

use serde_json::Value;

use super::super::{RenderOptions, Report, ReportFormat, SampleType};
use super::{hostile_report, small_report};

fn render(report: &Report, format: ReportFormat, view: &RenderOptions) -> String {
    String::from_utf8(report.render(format, view)).unwrap()
}

fn view(by: SampleType, bytes: bool) -> RenderOptions {
    RenderOptions { by, bytes, ..RenderOptions::default() }
}

#[test]
fn collapsed_goes_from_the_root_to_the_class() {
    let report = small_report();
    let line = |by, bytes| render(&report, ReportFormat::Collapsed, &view(by, bytes));
    let stack = "f2 (/app/2.rb:22);f1 (/app/1.rb:11);[C7]";
    assert_eq!(line(SampleType::Live, true), format!("{stack} 1000\n"));
    assert_eq!(line(SampleType::Freed, true), format!("{stack} 400\n"));
    assert_eq!(line(SampleType::Allocated, false), format!("{stack} 20\n"));
}

#[test]
fn collapsed_lines_stay_whole_with_any_name() {
    let report = hostile_report();
    let text = render(&report, ReportFormat::Collapsed, &view(SampleType::Allocated, false));
    let mut sum = 0;
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        assert_eq!(stack.split(';').count(), 3, "{line}");
        assert!(!stack.starts_with('#') && stack.ends_with(']'), "{line}");
        sum += weight.parse::<u64>().unwrap();
    }
    assert_eq!(sum, 24);
}

#[test]
fn speedscope_has_three_profiles_that_add_up() {
    for (report, by) in [(small_report(), SampleType::Freed), (hostile_report(), SampleType::Live)]
    {
        let json = render(&report, ReportFormat::Speedscope, &view(by, true));
        let file: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
        let frames = file["shared"]["frames"].as_array().unwrap();
        assert!(frames.iter().all(|frame| frame["name"].is_string()));
        let active = file["activeProfileIndex"].as_u64().unwrap() as usize;
        assert_eq!(file["profiles"][active]["name"], by.name());
        let total = report.total();
        let sums = [total.live.bytes, total.allocated.bytes, total.freed.bytes];
        for (profile, sum) in file["profiles"].as_array().unwrap().iter().zip(sums) {
            assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"bytes".into()));
            let samples = profile["samples"].as_array().unwrap();
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            let weight: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!(weight as f64, sum);
            assert_eq!(profile["endValue"], weight);
            let numbers = samples.iter().flat_map(|sample| sample.as_array().unwrap());
            let frame = |number: &Value| (number.as_u64().unwrap() as usize) < frames.len();
            assert!(numbers.into_iter().all(frame));
        }
    }
}

#[test]
fn speedscope_stacks_start_at_the_root() {
    let json = render(&small_report(), ReportFormat::Speedscope, &RenderOptions::default());
    let file: Value = serde_json::from_str(&json).unwrap();
    let sample = file["profiles"][0]["samples"][0].as_array().unwrap();
    let frame = |number: &Value| &file["shared"]["frames"][number.as_u64().unwrap() as usize];
    let names: Vec<&Value> = sample.iter().map(|number| &frame(number)["name"]).collect();
    assert_eq!(names, ["f2", "f1", "[C7]"]);
    assert_eq!(
        (&frame(&sample[1])["file"], &frame(&sample[1])["line"]),
        (&"/app/1.rb".into(), &11.into())
    );
}

#[test]
fn text_shows_the_line_first() {
    let text = render(&small_report(), ReportFormat::Text, &RenderOptions::default());
    let line = text.lines().find(|line| line.contains("/app/1.rb:11")).unwrap();
    for part in ["1000 B", "1.4 KiB", "400 B", "50 %", "C7 /app/1.rb:11 f1"] {
        let shown = line.contains(part) || part == "1000 B" && line.contains("1.0 KiB");
        assert!(shown, "{part} is not in {line}");
    }
    assert!(text.contains("worker 0, pid 1000, Ruby 3.1.2"), "{text}");
    assert!(text.contains("collections"), "{text}");
}

#[test]
fn text_has_no_control_characters() {
    let text = render(&hostile_report(), ReportFormat::Text, &RenderOptions::default());
    assert!(!text.contains('\u{1b}') && !text.contains('\0'));
}

#[test]
fn text_has_at_most_the_lines_asked_for() {
    let report = hostile_report();
    let short = RenderOptions { lines_max: 2, ..RenderOptions::default() };
    let text = render(&report, ReportFormat::Text, &short);
    assert!(text.contains("(6 lines more)"), "{text}");
}

#[test]
fn an_empty_report_renders_in_every_format() {
    let report = Report::default();
    let view = RenderOptions::default();
    assert_eq!(render(&report, ReportFormat::Collapsed, &view), "");
    let file: Value =
        serde_json::from_str(&render(&report, ReportFormat::Speedscope, &view)).unwrap();
    assert_eq!(file["profiles"].as_array().unwrap().len(), 3);
    assert!(render(&report, ReportFormat::Text, &view).contains("Nothing was sampled"));
    assert!(render(&report, ReportFormat::Html, &view).contains("Nothing live was sampled"));
}

#[test]
fn names_of_formats_are_parsed() {
    for (name, format) in [("pprof", ReportFormat::Pprof), ("html", ReportFormat::Html)] {
        assert_eq!(name.parse(), Ok(format));
    }
    assert!("pdf".parse::<ReportFormat>().unwrap_err().contains("pprof, speedscope"));
    assert_eq!("freed".parse(), Ok(SampleType::Freed));
    assert!("size".parse::<SampleType>().is_err());
}
