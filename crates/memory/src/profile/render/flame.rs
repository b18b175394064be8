//! A flame graph of one sample type, by inferno: a picture with a script in it, which searches and zooms.

use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Color};
use inferno::flamegraph::{from_lines, Direction, Options, Palette, TextTruncateDirection};

use super::super::Report;
use super::{collapsed, frame_text, RenderOptions, SampleType};
use rustc_hash::FxHashMap;

/// Narrower blocks (in percent of the width) are left out: they would be less than a pixel wide.
const WIDTH_MIN: f64 = 0.05;

/// An empty picture says so: inferno refuses to draw none.
pub(super) fn render(report: &Report, view: &RenderOptions) -> Vec<u8> {
    let lines = FlameTree::of(report, view.by, view.bytes).lines(report, WIDTH_MIN / 100.0);
    let lines =
        if lines.is_empty() { format!("nothing {} was sampled 1", view.by.name()) } else { lines };
    let mut options = Options::default();
    options.title = format!("{} {}", view.by.name(), if view.bytes { "bytes" } else { "objects" });
    options.count_name = if view.bytes { "bytes" } else { "objects" }.into();
    options.colors = Palette::Basic(match view.by {
        SampleType::Live => BasicPalette::Orange,
        SampleType::Allocated => BasicPalette::Yellow,
        SampleType::Freed => BasicPalette::Aqua,
    });
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    // The root on top, where a browser begins to show it.
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.name_type = String::new();
    options.deterministic = true;
    options.min_width = WIDTH_MIN;
    let mut svg = Vec::new();
    // Writing to memory cannot fail, and there is a line.
    let _ = from_lines(&mut options, lines.lines(), &mut svg);
    svg
}

/// The blocks of the graph. Those too narrow to be seen, which are most, are removed
/// before drawing.
struct FlameTree {
    nodes: Vec<FlameNode>,
}

#[derive(Default)]
struct FlameNode {
    parent: usize,
    /// Index of a location, or behind the locations, of a class.
    name: u32,
    weight: f64,
}

impl FlameTree {
    fn of(report: &Report, by: SampleType, bytes: bool) -> Self {
        let mut nodes = vec![FlameNode::default()];
        let mut index: FxHashMap<(usize, u32), usize> = FxHashMap::default();
        for row in &report.rows {
            let weight = by.of(&row.tally, bytes);
            if weight <= 0.0 {
                continue;
            }
            nodes[0].weight += weight;
            let stack = report.stacks.get(row.stack as usize).map_or(&[][..], Vec::as_slice);
            let class = report.locations.len() as u32 + row.class;
            let mut parent = 0;
            for &name in stack.iter().rev().chain([&class]) {
                parent = *index.entry((parent, name)).or_insert_with(|| {
                    nodes.push(FlameNode { parent, name, weight: 0.0 });
                    nodes.len() - 1
                });
                nodes[parent].weight += weight;
            }
        }
        Self { nodes }
    }

    /// Collapsed lines of the blocks at least as wide as the share; the weight of
    /// narrower ones is added to their parent.
    fn lines(&self, report: &Report, share: f64) -> String {
        let least = self.nodes[0].weight * share;
        let wide = |node: &FlameNode| node.weight >= least;
        let mut own: Vec<f64> = self.nodes.iter().map(|node| node.weight).collect();
        for node in self.nodes.iter().skip(1).filter(|node| wide(node)) {
            own[node.parent] -= node.weight;
        }
        // A parent comes before its children, so its text is there already.
        let mut texts = vec![String::new(); self.nodes.len()];
        let mut lines = String::new();
        for (number, node) in self.nodes.iter().enumerate().skip(1).filter(|(_, node)| wide(node)) {
            let mut text = texts[node.parent].clone();
            if !text.is_empty() {
                text.push(';');
            }
            collapsed::push(&mut text, &name(report, node.name));
            if own[number].round() >= 1.0 {
                lines += &format!("{text} {}\n", own[number].round() as u64);
            }
            texts[number] = text;
        }
        lines
    }
}

fn name(report: &Report, name: u32) -> String {
    match report.locations.get(name as usize) {
        Some(&(frame, line)) => {
            report.frames.get(frame as usize).map_or("(unknown)".into(), |f| frame_text(f, line))
        }
        None => format!("[{}]", report.class(name - report.locations.len() as u32)),
    }
}
