//! A test that every query of the project's SQL suite can be planned.

use crate::common::*;
use millstream_sql::{Outcome, parse_script};

#[test]
fn every_query_of_the_suite_is_planned() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/sql");
    let mut queries = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|e| e != "sql") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut planner = empty_session();
        let name = path.display().to_string();
        for statement in parse_script(&text, &name).unwrap_or_else(|e| panic!("{}", e.render())) {
            match planner.execute(&statement) {
                Ok(Outcome::Query(_) | Outcome::Insert(..)) => queries += 1,
                Ok(_) => {}
                // A file in FROM: the connectors of this session are doubles.
                Err(e) if e.message.contains("no connector here reads files") => {}
                Err(e) => panic!("{}", e.render()),
            }
        }
    }
    assert!(queries > 30, "{queries} queries");
}
