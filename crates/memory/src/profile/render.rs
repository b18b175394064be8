//! Renders a report for people and for common profile viewers.

mod collapsed;
mod flame;
mod numbers;
mod pprof;
mod tables;
mod text;

use std::str::FromStr;

use super::{Frame, Report, SiteTotals};

/// Output formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// A line per stack, `root;...;leaf;[Class] weight`: input of flame graph
    /// tools.
    Collapsed,
    /// Gzipped protocol buffer for `pprof`.
    Pprof,
    /// Tables for a terminal.
    Text,
    /// A flame graph as a picture with a script, for a browser.
    Svg,
}

impl FromStr for ReportFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "collapsed" => Ok(Self::Collapsed),
            "pprof" => Ok(Self::Pprof),
            "text" => Ok(Self::Text),
            "svg" => Ok(Self::Svg),
            _ => Err(format!("no format {name:?}; choose one of pprof, collapsed, svg, text")),
        }
    }
}

/// The objects that a view shows and orders by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleType {
    /// Objects not known to be dead.
    #[default]
    Live,
    /// All allocated objects.
    Allocated,
    /// Objects freed by collections.
    Freed,
}

impl SampleType {
    /// All types.
    pub const ALL: [SampleType; 3] = [SampleType::Live, SampleType::Allocated, SampleType::Freed];

    /// Its name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            SampleType::Live => "live",
            SampleType::Allocated => "allocated",
            SampleType::Freed => "freed",
        }
    }

    fn of(self, tally: &SiteTotals, bytes: bool) -> f64 {
        match self {
            SampleType::Live => tally.live.of(bytes),
            SampleType::Allocated => tally.allocated.of(bytes),
            SampleType::Freed => tally.freed.of(bytes),
        }
    }
}

impl FromStr for SampleType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || format!("cannot order by {name:?}; choose one of live, allocated, freed");
        SampleType::ALL.into_iter().find(|by| by.name() == name).ok_or_else(unknown)
    }
}

/// Options of a view.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// The type shown, or shown first.
    pub by: SampleType,
    /// Shows bytes, else numbers of objects.
    pub bytes: bool,
    /// Title of the table.
    pub title: String,
    /// Bound of the lines of each table.
    pub lines_max: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { by: SampleType::Live, bytes: true, title: "Memory".into(), lines_max: 30 }
    }
}

impl Report {
    /// Renders the report.
    pub fn render(&self, format: ReportFormat, view: &RenderOptions) -> Vec<u8> {
        match format {
            ReportFormat::Collapsed => collapsed::render(self, view.by, view.bytes).into_bytes(),
            ReportFormat::Pprof => pprof::render(self, view),
            ReportFormat::Text => text::render(self, view).into_bytes(),
            ReportFormat::Svg => flame::render(self, view),
        }
    }
}

/// `label (path:line)`, or the label alone of a frame without a source file.
fn frame_text(frame: &Frame, line: u32) -> String {
    match (frame.path.is_empty(), line) {
        (true, _) => frame.label.clone(),
        (false, 0) => format!("{} ({})", frame.label, short(&frame.path)),
        (false, line) => format!("{} ({}:{line})", frame.label, short(&frame.path)),
    }
}

/// A path without the folders above a gem, which all gems share.
fn short(path: &str) -> &str {
    match path.rfind("/gems/") {
        Some(found) => &path[found + "/gems/".len()..],
        None => path,
    }
}
