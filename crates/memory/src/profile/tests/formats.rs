//! Tests of the text formats.

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
fn a_flame_graph_shows_frames_and_survives_any_name() {
    let svg = render(&small_report(), ReportFormat::Svg, &view(SampleType::Freed, true));
    assert!(svg.contains("<svg") && svg.contains("freed bytes"));
    for name in ["f2 (/app/2.rb:22)", "f1 (/app/1.rb:11)", "[C7]"] {
        assert!(svg.contains(name), "{name} is not in the picture");
    }
    let svg = render(&hostile_report(), ReportFormat::Svg, &view(SampleType::Allocated, false));
    assert!(!svg.contains("<script>alert"), "a name became an element");
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
    assert!(render(&report, ReportFormat::Text, &view).contains("Nothing was sampled"));
    assert!(render(&report, ReportFormat::Svg, &view).contains("nothing live was sampled"));
}

#[test]
fn names_of_formats_are_parsed() {
    for (name, format) in [("pprof", ReportFormat::Pprof), ("svg", ReportFormat::Svg)] {
        assert_eq!(name.parse(), Ok(format));
    }
    assert!("pdf".parse::<ReportFormat>().unwrap_err().contains("pprof, collapsed"));
    assert_eq!("freed".parse(), Ok(SampleType::Freed));
    assert!("size".parse::<SampleType>().is_err());
}
