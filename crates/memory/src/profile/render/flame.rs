//! One flame graph as a page of its own, for a frame of the report's page.
//!
//! The graph's script finds its parts by their ids, so two graphs cannot share
//! a document. It also keeps its state in the address, which a document
//! without one refuses: that call is made to do nothing.

use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Color};
use inferno::flamegraph::{from_lines, Options, Palette};

use super::super::Report;
use super::{collapsed, By, View};

/// Narrower blocks (in percent of the width) are left out: they would be less
/// than a pixel.
const WIDTH_MIN: f64 = 0.05;

const HEAD: &str = include_str!("flame.html");

/// The document, or nothing if there is nothing to draw.
pub(super) fn render(report: &Report, by: By, view: &View) -> Option<String> {
    let lines = collapsed::render(report, by, view.bytes);
    let mut options = Options::default();
    options.title = format!("{} {}", by.name(), if view.bytes { "bytes" } else { "objects" });
    options.count_name = if view.bytes { "bytes" } else { "objects" }.into();
    options.colors = Palette::Basic(match by {
        By::Live => BasicPalette::Mem,
        By::Allocated => BasicPalette::Hot,
        By::Freed => BasicPalette::Blue,
    });
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options.name_type = String::new();
    options.deterministic = true;
    options.min_width = WIDTH_MIN;
    let mut svg = Vec::new();
    from_lines(&mut options, lines.lines(), &mut svg).ok()?;
    let svg = String::from_utf8(svg).ok()?;
    // The declaration before it belongs to a file, not into a page.
    let start = svg.find("<svg")?;
    Some(format!("{HEAD}{}", &svg[start..]))
}
