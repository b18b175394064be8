//! Tests of the page, with names that need escaping.

use super::super::{RenderOptions, Report, ReportFormat, SampleType};
use super::{hostile_report, small_report};

fn page(report: &Report, title: &str) -> String {
    let view =
        RenderOptions { by: SampleType::Live, title: title.into(), ..RenderOptions::default() };
    String::from_utf8(report.render(ReportFormat::Html, &view)).unwrap()
}

/// The documents in the page's frames, as a browser reads the attribute.
fn graphs(page: &str) -> Vec<String> {
    let unescape = |text: &str| {
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        text.replace("&#39;", "'").replace("&amp;", "&")
    };
    let inner = |rest: &str| unescape(rest.split('\'').next().unwrap_or_default());
    page.split("srcdoc='").skip(1).map(inner).collect()
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn the_page_shows_graphs_tables_and_collections() {
    let page = page(&small_report(), "Shop");
    assert!(page.contains("<title>Shop</title>"));
    assert!(page.contains("/app/1.rb:11"));
    assert!(page.contains("Not watched"));
    assert!(page.contains("<td>minor</td>"));
    let graphs = graphs(&page);
    assert_eq!(graphs.len(), 3);
    for graph in &graphs {
        assert!(graph.contains("f1 (/app/1.rb:11)") && graph.contains("[C7]"), "{graph}");
        assert_eq!((count(graph, "<svg"), count(graph, "</svg>")), (2, 2), "one within another");
    }
}

#[test]
fn names_are_escaped() {
    let title = "</title><script>alert('t')</script>{{script}}";
    let page = page(&hostile_report(), title);
    assert_eq!(count(&page, "<script"), 1, "the page's own script only");
    assert_eq!(count(&page, "</script"), 1);
    assert_eq!(count(&page, "</title"), 1);
    assert!(!page.contains("alert('"), "single quotes are escaped everywhere");
    assert!(page.contains("{{script}}"), "what was put in is not filled in again");
    assert_eq!(count(&page, "// Tabs:"), 1);
    for graph in graphs(&page) {
        assert_eq!(count(&graph, "<script"), 2, "the graph's own scripts only");
        assert_eq!(count(&graph, "]]>"), count(&graph, "<![CDATA["));
        assert!(graph.contains("&lt;script&gt;alert"), "shown as text");
    }
}

#[test]
fn every_tag_is_closed() {
    let page = page(&hostile_report(), "t");
    for tag in ["table", "tbody", "tr", "td", "section", "div", "iframe", "details", "pre", "dl"] {
        let open = count(&page, &format!("<{tag}>")) + count(&page, &format!("<{tag} "));
        assert_eq!(open, count(&page, &format!("</{tag}>")), "{tag}");
    }
}

#[test]
fn the_page_fetches_nothing() {
    let page = page(&small_report(), "t");
    for graph in graphs(&page).iter().chain([&page]) {
        for way in [" src=", " href=", "@import", "url(h", "url(/"] {
            assert!(!graph.contains(way), "{way}");
        }
    }
    assert!(page.contains("default-src 'none'"));
}
