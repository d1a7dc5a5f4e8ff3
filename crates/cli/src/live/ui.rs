//! `--ui`: a single page without outside resources, and its JSON.

use millstream::observe::{Reason, why};
use millstream_connect::http::message::Answer;
use serde_json::json;

use super::desk::Desk;

const PAGE: &str = include_str!("ui.html");

/// Answers a request for the page, or for what it shows.
pub(super) fn answer(desk: &Desk, path: &str) -> Answer {
    match path {
        "/" => Answer::document("text/html; charset=utf-8", PAGE.into()),
        "/report" => Answer::document("application/json", report(desk)),
        "/healthz" => Answer::document("text/plain; charset=utf-8", "ok\n".into()),
        _ => Answer::new(404, "there is /, and /report"),
    }
}

/// State of the program, with reasons for missing rows.
fn report(desk: &Desk) -> String {
    let report = desk.report();
    let reasons = match &report.snapshot {
        Some(snapshot) => why(snapshot),
        None => vec![Reason::ordinary(report.doing())],
    };
    json!({ "report": report, "why": reasons, "rates": desk.rates() }).to_string()
}

#[cfg(test)]
mod tests {
    use millstream::observe::Snapshot;

    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = answer(&Desk::new("-e"), "/");
        assert_eq!((page.status, page.content_type), (200, "text/html; charset=utf-8"));
        // The one address names a language of drawings, and is not looked up.
        assert_eq!(page.body.replace("http://www.w3.org/2000/svg", "").matches("://").count(), 0);
        assert!(!page.body.contains("innerHTML"), "texts of data must stay texts");
    }

    #[test]
    fn the_page_is_told_why() {
        let desk = Desk::new("-e");
        let told = |desk: &Desk| -> serde_json::Value {
            serde_json::from_str(&answer(desk, "/report").body).unwrap()
        };
        let before = told(&desk);
        assert!(before["why"][0]["what"].as_str().unwrap().starts_with("starting for "));
        desk.runs(|| Snapshot { records: 9_007_199, ..Snapshot::default() });
        desk.sample();
        let told = told(&desk);
        assert_eq!(told["report"]["snapshot"]["records"], 9_007_199);
        assert_eq!(told["rates"]["samples"][0]["records"], 9_007_199);
        assert!(told["why"][0]["what"].is_string());
        assert_eq!(answer(&desk, "/no").status, 404);
    }
}
