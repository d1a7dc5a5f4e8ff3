//! `--ui`: a single page without outside resources, and its JSON.

use millstream::observe::{Reason, why};
use millstream_connect::http::message::Answer;
use serde_json::json;

use super::board::StatusBoard;

const PAGE: &str = include_str!("ui.html");

/// Answers a request for the page, or for what it shows.
pub(super) fn answer(board: &StatusBoard, path: &str) -> Answer {
    match path {
        "/" => Answer::document("text/html; charset=utf-8", PAGE.into()),
        "/report" => Answer::document("application/json", report(board)),
        "/healthz" => Answer::document("text/plain; charset=utf-8", "ok\n".into()),
        _ => Answer::new(404, "there is /, and /report"),
    }
}

/// State of the program, with reasons for missing rows.
fn report(board: &StatusBoard) -> String {
    let report = board.report();
    let reasons = match &report.snapshot {
        Some(snapshot) => why(snapshot),
        None => vec![Reason::ordinary(report.doing())],
    };
    json!({ "report": report, "why": reasons, "rates": board.rates() }).to_string()
}

#[cfg(test)]
mod tests {
    use millstream::observe::Snapshot;

    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = answer(&StatusBoard::new("-e"), "/");
        assert_eq!((page.status, page.content_type), (200, "text/html; charset=utf-8"));
        // The one address names a language of drawings, and is not looked up.
        assert_eq!(page.body.replace("http://www.w3.org/2000/svg", "").matches("://").count(), 0);
        assert!(!page.body.contains("innerHTML"), "texts of data must stay texts");
    }

    #[test]
    fn the_page_is_told_why() {
        let board = StatusBoard::new("-e");
        let described = |board: &StatusBoard| -> serde_json::Value {
            serde_json::from_str(&answer(board, "/report").body).unwrap()
        };
        let before = described(&board);
        assert!(before["why"][0]["what"].as_str().unwrap().starts_with("starting for "));
        board.runs(|| Snapshot { records: 9_007_199, ..Snapshot::default() });
        board.sample();
        let after = described(&board);
        assert_eq!(after["report"]["snapshot"]["records"], 9_007_199);
        assert_eq!(after["rates"]["samples"][0]["records"], 9_007_199);
        assert!(after["why"][0]["what"].is_string());
        assert_eq!(answer(&board, "/no").status, 404);
    }
}
