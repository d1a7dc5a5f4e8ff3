//! Tests of metadata columns: what is read for them, what is written, and what is refused.

use arrow::datatypes::DataType;
use millstream_sql::Outcome;

use crate::common::*;

const TABLE: &str = "CREATE TABLE m (
    n BIGINT, path STRING NOT NULL METADATA, at BIGINT METADATA FROM 'offset' VIRTUAL,
    w TIMESTAMP_LTZ(6) METADATA FROM 'written' VIRTUAL COMMENT 'when', far AS at * 2 + n,
    ts AS TO_TIMESTAMP_SECONDS(at), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'file');
";

/// The names of the columns that a query reads.
fn read(query: &str) -> Vec<String> {
    let plan = graph(&format!("{TABLE}{query}"));
    let source = plan.source().unwrap();
    let schema = source.table.schema();
    let name = |column: &usize| schema.field(*column).name().clone();
    source.projection.iter().map(name).collect()
}

#[test]
fn what_a_query_does_not_use_is_not_read() {
    assert_eq!(read("SELECT n FROM m"), ["n"]);
    assert_eq!(read("SELECT COUNT(*) FROM m"), [""; 0]);
    assert_eq!(read("SELECT path, n FROM m"), ["n", "path"]);
    assert_eq!(read("SELECT far FROM m"), ["n", "at"]);
    let windows = "FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE))";
    let query =
        format!("SELECT window_start, COUNT(*) {windows} GROUP BY window_start, window_end");
    assert_eq!(read(&query), ["at"]);
}

#[test]
fn they_are_columns_like_others() {
    let query = plan(&format!("{TABLE}SELECT * FROM m"));
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()));
    let found = fields(&query.output);
    assert_eq!(found[1], ("path", &DataType::Utf8, false));
    assert_eq!(found[2], ("at", &DataType::Int64, true));
    assert_eq!((found[3].0, found[3].1.to_string()), ("w", micros.to_string()));
    assert_eq!(found.len(), 6);
}

#[test]
fn like_takes_them_or_not() {
    let like = |own: &str, options: &str, query: &str| {
        format!("{TABLE}CREATE TABLE l {own} LIKE m {options}; {query}")
    };
    let found = plan(&like("", "", "SELECT at, path FROM l"));
    assert_eq!(fields(&found.output).len(), 2);
    let own = "(at INT, w INT)";
    let all = "(EXCLUDING METADATA EXCLUDING GENERATED EXCLUDING WATERMARKS)";
    let found = plan(&like(own, all, "SELECT * FROM l"));
    let found: Vec<&str> = fields(&found.output).iter().map(|(name, ..)| *name).collect();
    assert_eq!(found, ["n", "at", "w"]);
    let own = "(path STRING METADATA VIRTUAL)";
    plan(&like(own, "(OVERWRITING METADATA)", "SELECT path FROM l"));
    let again = ["both tables have a column 'path'", "(OVERWRITING METADATA)"];
    refused(&like(own, "", "SELECT path FROM l"), &again);
    // A physical column is no metadata that could take its place.
    refused(&like("(path STRING)", "(OVERWRITING METADATA)", "SELECT path FROM l"), &again[..1]);
}

#[test]
fn an_insert_passes_over_those_that_are_virtual() {
    let create = "CREATE TABLE o (at BIGINT METADATA FROM 'offset' VIRTUAL, n BIGINT, m BIGINT)
        WITH ('connector' = 'file');";
    for insert in ["INSERT INTO o SELECT i64, 2", "INSERT INTO o (n, m) SELECT i64, 2"] {
        let outcome = execute(&mut session(), &format!("{create}{insert} FROM typed")).unwrap();
        let Outcome::Insert(planned, _) = outcome else { panic!("{outcome:?}") };
        let output = &planned.plan.stages.last().unwrap().output;
        let names: Vec<&str> = fields(output).iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, ["n", "m"]);
    }
    let refused = |insert: &str, parts: &[&str]| refused(&format!("{create}{insert}"), parts);
    refused(
        "INSERT INTO o SELECT i64, i64, i64 FROM typed",
        &["table 'o' takes 2 columns (n, m), the query gives 3"],
    );
    refused(
        "INSERT INTO o (at, n) SELECT i64, i64 FROM typed",
        &["'at' is a metadata column: nothing is written to it", "^^"],
    );
    refused(
        "CREATE TABLE p (at BIGINT METADATA FROM 'offset', n BIGINT) WITH ('connector' = 'file');
         INSERT INTO p SELECT i64, i64 FROM typed",
        &["nothing can be written to 'at' of table 'p'", "declare it VIRTUAL"],
    );
}

#[test]
fn an_insert_takes_values_for_those_that_the_connector_writes() {
    let create = "CREATE TABLE o (n BIGINT, at BIGINT METADATA FROM 'offset' VIRTUAL,
        w TIMESTAMP(3) METADATA FROM 'written', v TIMESTAMP(3) METADATA FROM 'written' VIRTUAL)
        WITH ('connector' = 'file');";
    for insert in [
        "INSERT INTO o SELECT i64, z FROM typed",
        "INSERT INTO o (w, n) SELECT z, i64 FROM typed",
        "INSERT INTO o (n) SELECT i64 FROM typed",
    ] {
        let outcome = execute(&mut session(), &format!("{create}{insert}")).unwrap();
        let Outcome::Insert(planned, _) = outcome else { panic!("{outcome:?}") };
        let output = &planned.plan.stages.last().unwrap().output;
        let names: Vec<&str> = fields(output).iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, ["n", "w"], "{insert}");
    }
    refused(
        &format!("{create}INSERT INTO o (n, v) SELECT i64, z FROM typed"),
        &["'v' is a metadata column: nothing is written to it"],
    );
    refused(
        &format!("{create}INSERT INTO o SELECT i64, s FROM typed"),
        &["column 'w' of table 'o' is TIMESTAMP(3), the query's 's' is STRING"],
    );
}

#[test]
fn what_there_is_not_is_refused_where_it_stands() {
    let create = |column: &str, connector: &str| {
        format!("CREATE TABLE t (n BIGINT, {column}) WITH ('connector' = '{connector}')")
    };
    refused(
        &create("at BIGINT METADATA FROM 'ofset'", "file"),
        &["the connector 'file' has no metadata 'ofset'", "did you mean FROM 'offset'?", "^^^^^^^"],
    );
    refused(
        &create("partition_of INT METADATA", "file"),
        &["'partition_of'", "it has 'path' (STRING), 'offset' (BIGINT), 'written' (TIMESTAMP(3))"],
    );
    refused(
        &create("path STRING METADATA", "fake"),
        &["the connector 'fake' has no metadata 'path'", "it has none: leave the column out"],
    );
    refused(
        &create("at INT METADATA FROM 'offset' VIRTUAL", "file"),
        &["the metadata 'offset' is BIGINT, and column 'at' is INT", "declare it BIGINT"],
    );
    refused(&create("at BIGINT METADATA FROM offset", "file"), &["expected a key in quotes"]);
    refused(&create("at BIGINT METADATA METADATA", "file"), &["found METADATA"]);
    refused(
        "CREATE TABLE t (n BIGINT, path STRING METADATA) PARTITIONED BY (path)
         WITH ('connector' = 'file')",
        &["'path' is a metadata column"],
    );
}
