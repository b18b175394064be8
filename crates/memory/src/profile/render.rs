//! Writing a report out: for people, and for the tools they know.

mod collapsed;
mod flame;
mod html;
mod numbers;
mod pprof;
mod protobuf;
mod speedscope;
mod tables;
mod text;

use std::str::FromStr;

use super::{Frame, Report, Tally};

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line per stack, `root;...;leaf;[Class] weight`: input of flame graph
    /// tools.
    Collapsed,
    /// JSON for speedscope, with a profile each of what is live, allocated and
    /// freed.
    Speedscope,
    /// Gzipped protocol buffer for `pprof`.
    Pprof,
    /// Tables for a terminal.
    Text,
    /// One page with flame graphs and tables; needs nothing from elsewhere.
    Html,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "collapsed" => Ok(Self::Collapsed),
            "speedscope" => Ok(Self::Speedscope),
            "pprof" => Ok(Self::Pprof),
            "text" => Ok(Self::Text),
            "html" => Ok(Self::Html),
            _ => Err(format!(
                "no format {name:?}; choose one of pprof, speedscope, collapsed, html, text"
            )),
        }
    }
}

/// What is looked at, and by what is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// What is not known to be dead.
    #[default]
    Live,
    /// All that was allocated.
    Allocated,
    /// What collections freed.
    Freed,
}

impl By {
    /// All of them, in the order of their tabs.
    pub const ALL: [By; 3] = [By::Live, By::Allocated, By::Freed];

    /// Its name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            By::Live => "live",
            By::Allocated => "allocated",
            By::Freed => "freed",
        }
    }

    fn of(self, tally: &Tally, bytes: bool) -> f64 {
        match self {
            By::Live => tally.live.of(bytes),
            By::Allocated => tally.allocated.of(bytes),
            By::Freed => tally.freed.of(bytes),
        }
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || format!("cannot order by {name:?}; choose one of live, allocated, freed");
        By::ALL.into_iter().find(|by| by.name() == name).ok_or_else(unknown)
    }
}

/// How a report is to be shown.
#[derive(Clone, Debug)]
pub struct View {
    /// What is looked at first.
    pub by: By,
    /// Bytes, or else numbers of objects.
    pub bytes: bool,
    /// Title of the page or table.
    pub title: String,
    /// Most lines of each table.
    pub lines_max: usize,
}

impl Default for View {
    fn default() -> Self {
        Self { by: By::Live, bytes: true, title: "Memory".into(), lines_max: 30 }
    }
}

impl Report {
    /// This report in one of its forms.
    pub fn render(&self, format: Format, view: &View) -> Vec<u8> {
        match format {
            Format::Collapsed => collapsed::render(self, view.by, view.bytes).into_bytes(),
            Format::Speedscope => speedscope::render(self, view),
            Format::Pprof => pprof::render(self, view),
            Format::Text => text::render(self, view).into_bytes(),
            Format::Html => html::render(self, view).into_bytes(),
        }
    }
}

/// `label (path:line)`, or the label alone of what has no source.
fn frame_text(frame: &Frame, line: u32) -> String {
    match (frame.path.is_empty(), line) {
        (true, _) => frame.label.clone(),
        (false, 0) => format!("{} ({})", frame.label, short(&frame.path)),
        (false, line) => format!("{} ({}:{line})", frame.label, short(&frame.path)),
    }
}

/// A path without the folders above a gem, which are the same for all of them.
fn short(path: &str) -> &str {
    match path.rfind("/gems/") {
        Some(found) => &path[found + "/gems/".len()..],
        None => path,
    }
}
