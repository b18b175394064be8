//! The report as one self-contained page.

use super::super::{Report, SiteTotals, TotalsByAge, AGE_NAMES};
use super::numbers::{bytes, clock, count, percent, time};
use super::{flame, tables, RenderOptions, SampleType};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

pub(super) fn render(report: &Report, view: &RenderOptions) -> String {
    fill(PAGE, |name| match name {
        "title" => escape(&view.title),
        "style" => STYLE.into(),
        "script" => SCRIPT.into(),
        "sources" => list(&tables::sources(report)),
        "total" => total(report),
        "graphs" => graphs(report, view),
        "lines" => lines(report, view),
        "stacks" => stacks(report, view),
        "classes" => classes(report, view),
        "ages" => ages(report),
        "collections" => collections(report),
        "gvl" => gvl(report),
        _ => String::new(),
    })
}

/// Replaces each `{{name}}` of the template; replacements are not searched again.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page += before;
        page += &value(name);
        rest = after;
    }
    page + rest
}

/// Text for an element or a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect()
}

fn total(report: &Report) -> String {
    let total = report.total();
    let parts = [
        ("live", bytes(total.live.bytes), total.live.objects),
        ("longlife", bytes(total.old.bytes), total.old.objects),
        ("allocated", bytes(total.allocated.bytes), total.allocated.objects),
        ("freed", bytes(total.freed.bytes), total.freed.objects),
    ];
    let part = |(name, size, objects): &(&str, String, f64)| {
        let objects = count(*objects);
        format!("<div><dt>{name}</dt><dd>{size}<small>{objects} objects</small></dd></div>\n")
    };
    parts.iter().map(part).collect()
}

/// Tabs and frames. The frames not shown first are loaded when they are, since
/// a hidden graph has no width to fit into.
fn graphs(report: &Report, view: &RenderOptions) -> String {
    let mut tabs = String::new();
    let mut panes = String::new();
    for by in SampleType::ALL {
        let name = by.name();
        let shown = by == view.by;
        tabs += &format!(
            "<button type=\"button\" role=\"tab\" data-pane=\"{name}\" aria-selected=\"{shown}\">{name}</button>\n"
        );
        let hidden = if shown { "" } else { " hidden" };
        let source = if shown { "srcdoc" } else { "data-srcdoc" };
        panes += &match flame::render(report, by, view) {
            Some(graph) => format!(
                "<div class=\"pane\" id=\"pane-{name}\"{hidden}><iframe title=\"{name}\" \
                 {source}='{}'></iframe></div>\n",
                // A graph is full of double quotes; within single ones they may stay.
                escape(&graph).replace("&quot;", "\"")
            ),
            None => format!(
                "<div class=\"pane\" id=\"pane-{name}\"{hidden}><p>Nothing {name} was sampled.</p></div>\n"
            ),
        };
    }
    format!("<div class=\"tabs\" role=\"tablist\">{tabs}</div>\n{panes}")
}

/// A site with the number it is sorted by.
fn number(text: &str, value: f64) -> String {
    format!("<td class=\"n\" data-value=\"{value}\">{}</td>", escape(text))
}

fn share(share: Option<f64>) -> String {
    number(&percent(share), share.unwrap_or(-1.0))
}

fn columns(tally: &SiteTotals) -> String {
    let age = tally.median_age();
    let position = AGE_NAMES.iter().position(|name| Some(*name) == age);
    [
        number(&bytes(tally.live.bytes), tally.live.bytes),
        number(&count(tally.live.objects), tally.live.objects),
        number(&bytes(tally.allocated.bytes), tally.allocated.bytes),
        number(&count(tally.allocated.objects), tally.allocated.objects),
        number(&bytes(tally.freed.bytes), tally.freed.bytes),
        share(tally.survival()),
        share(tally.died_young()),
        number(age.unwrap_or("–"), position.map_or(-1.0, |position| position as f64)),
        number(&bytes(tally.promoted.bytes), tally.promoted.bytes),
        number(&bytes(tally.old.bytes), tally.old.bytes),
        number(&count(tally.samples as f64), tally.samples as f64),
    ]
    .concat()
}

fn lines(report: &Report, view: &RenderOptions) -> String {
    let lines = tables::lines(report, view.by, view.bytes);
    let row = |line: &tables::TableLine| {
        format!(
            "<tr>{}<td>{}</td><td><code>{}</code> {}</td></tr>\n",
            columns(&line.tally),
            escape(&line.class),
            escape(&line.place),
            if line.label == line.place { String::new() } else { escape(&line.label) }
        )
    };
    lines.iter().take(view.lines_max).map(row).collect()
}

fn stacks(report: &Report, view: &RenderOptions) -> String {
    let row = |stack: &tables::StackLine| {
        let innermost = stack.frames.first().map_or("(no frame)", String::as_str);
        let frames: String =
            stack.frames.iter().map(|frame| format!("{}\n", escape(frame))).collect();
        format!(
            "<tr>{}<td>{}</td><td><details><summary>{}</summary><pre>{frames}</pre></details></td></tr>\n",
            columns(&stack.tally),
            escape(&stack.class),
            escape(innermost)
        )
    };
    tables::stacks(report, view.by, view.bytes, view.lines_max).iter().map(row).collect()
}

fn classes(report: &Report, view: &RenderOptions) -> String {
    let classes = tables::classes(report, view.by, view.bytes);
    let row = |(class, tally): &(String, SiteTotals)| {
        format!("<tr>{}<td>{}</td></tr>\n", columns(tally), escape(class))
    };
    classes.iter().take(view.lines_max).map(row).collect()
}

fn ages(report: &Report) -> String {
    let total = report.total();
    let most = |ages: &TotalsByAge| ages.iter().map(|age| age.bytes).fold(1.0, f64::max);
    let most = most(&total.live_ages).max(most(&total.freed_ages));
    let bar = |value: f64, class: &str| {
        let width = (100.0 * value.max(0.0) / most).min(100.0);
        format!("<td class=\"b\"><i class=\"{class}\" style=\"width:{width:.1}%\"></i></td>")
    };
    let mut rows = String::new();
    for (bucket, name) in AGE_NAMES.iter().enumerate() {
        let (live, freed) = (total.live_ages[bucket], total.freed_ages[bucket]);
        rows += &format!(
            "<tr><td class=\"n\">{name}</td>{}{}{}{}</tr>\n",
            number(&bytes(live.bytes), live.bytes),
            bar(live.bytes, "live"),
            number(&bytes(freed.bytes), freed.bytes),
            bar(freed.bytes, "freed")
        );
    }
    rows
}

fn collections(report: &Report) -> String {
    let mut rows = String::new();
    for one in report.collections.iter().rev() {
        let kind = format!("{:?}", one.kind).to_lowercase();
        rows += &format!(
            "<tr>{}<td class=\"n\">{}</td><td>{kind}</td>",
            number(&clock(one.unix_s), one.unix_s),
            one.pid
        );
        for amount in
            [one.allocated, one.freed, one.freed_old, one.surviving, one.promoted, one.old]
        {
            rows += &number(&bytes(amount.bytes), amount.bytes);
        }
        rows += &number(&count(one.followed as f64), one.followed as f64);
        rows += "</tr>\n";
    }
    rows
}

fn gvl(report: &Report) -> String {
    let Some(waits) = &report.gvl else {
        return "<p>Not watched: it takes Ruby 3.2 or newer.</p>".into();
    };
    let mut rows = String::new();
    for unit in &waits.units {
        let waiting = unit.waiting_ns as f64;
        let of_total = (unit.total_ns > 0).then(|| waiting / unit.total_ns as f64);
        rows += "<tr>";
        rows += &number(&count(unit.count as f64), unit.count as f64);
        for ns in [unit.waiting_ns, unit.holding_ns, unit.total_ns, unit.wait_bound_ns(0.01)] {
            rows += &number(&time(ns as f64), ns as f64);
        }
        rows += &format!("{}<td>{}</td></tr>\n", share(of_total), escape(&unit.label));
    }
    format!(
        "<table><thead><tr><th>units</th><th>waiting</th><th>holding</th><th>total</th>\
         <th>p99 wait below</th><th>waiting share</th><th>kind of unit</th></tr></thead>\
         <tbody>{rows}</tbody></table>"
    )
}
