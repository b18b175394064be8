//! `Native.render_profile`: merges reports of tracers and renders them in a format for viewers.

use chaton_memory::profile::{RenderOptions, Report, ReportFormat, SampleType};
use magnus::{function, prelude::*, Error, RArray, RModule, RString, Ruby};

/// `render_profile(reports, format, by, title)`: JSON of reports → the bytes of a file.
fn render(
    ruby: &Ruby,
    reports: RArray,
    format: String,
    by: String,
    title: String,
) -> Result<RString, Error> {
    let wrong = |message: String| Error::new(ruby.exception_arg_error(), message);
    let format: ReportFormat = format.parse().map_err(wrong)?;
    let by: SampleType = by.parse().map_err(wrong)?;
    let view = RenderOptions { by, title, ..RenderOptions::default() };
    let mut read = Vec::with_capacity(reports.len());
    for json in reports.to_vec::<String>()? {
        let report: Report = serde_json::from_str(&json)
            .map_err(|error| wrong(format!("a report cannot be read: {error}")))?;
        read.push(report);
    }
    Ok(ruby.str_from_slice(&Report::merge(read).render(format, &view)))
}

/// Defines the function.
pub fn define(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("render_profile", function!(render, 4))
}
