//! The queries of Flink's suite, as the project's examples have them.

/// The table of events, and the views of persons, auctions and bids.
pub const TABLES: &str = include_str!("../../../../examples/nexmark/tables.sql");

macro_rules! example {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../examples/nexmark/", $name, ".sql")))
    };
}

/// The queries that run, by name: each inserts into a table, of the connector `blackhole`, or of
/// files (q10).
pub const QUERIES: [(&str, &str); 22] = [
    example!("q0"),
    example!("q1"),
    example!("q2"),
    example!("q3"),
    example!("q4"),
    example!("q5"),
    example!("q7"),
    example!("q8"),
    example!("q9"),
    example!("q10"),
    example!("q11"),
    example!("q12"),
    example!("q13"),
    example!("q14"),
    example!("q15"),
    example!("q16"),
    example!("q17"),
    example!("q18"),
    example!("q19"),
    example!("q20"),
    example!("q21"),
    example!("q22"),
];

/// The text of a query.
pub fn query(name: &str) -> Option<&'static str> {
    QUERIES.iter().find(|query| query.0 == name).map(|query| query.1)
}

/// The side table of q13, as a file name and its content: a value for each third key.
pub fn side_input() -> (&'static str, String) {
    let lines = (0..10_000).step_by(3).map(|key| format!("{key},value {key}\n"));
    ("side_input.csv", std::iter::once("key,value\n".to_string()).chain(lines).collect())
}
