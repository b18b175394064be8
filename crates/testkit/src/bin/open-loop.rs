//! A load generator with a constant rate: `open-loop --help`.

use std::process::ExitCode;

use chaton_testkit::load_options::{LoadOptions, HELP};
use chaton_testkit::load_report::LoadReport;
use chaton_testkit::load_run::LoadRun;

fn main() -> ExitCode {
    let options = match LoadOptions::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("open-loop: {message}");
            return ExitCode::from(2);
        }
    };
    for plan in &options.plans {
        match LoadRun::run(plan) {
            Ok(report) if options.json => println!("{}", report.to_json()),
            Ok(report) => println!("{}", line(plan.rate, &report)),
            Err(error) => {
                eprintln!("open-loop: {} requests a second: {error}", plan.rate);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn line(rate: f64, report: &LoadReport) -> String {
    format!(
        "{rate:>9.1}/s  offered {}  answered {}  failed {}  late {}  p50 {:.2}  p99 {:.2}  p99.9 {:.2} ms",
        report.offered_count(),
        report.answered_count(),
        report.failed_count(),
        report.late_count(),
        report.latency_ms(0.5),
        report.latency_ms(0.99),
        report.latency_ms(0.999),
    )
}
