//! A fuzz target: any text at all, given to a session that has tables.

use std::path::PathBuf;

use millstream_contract::error::{Error, Result};
use millstream_contract::sink::Sink;
use millstream_contract::table::{Connectors, OpenOptions, Split, Table, TableOptions};

use crate::plan::planner::Planner;
use crate::syntax::prelude::*;
use crate::syntax::{script::parse_script, stack::PANICKED};

/// Parses and plans `text`; returns how many statements were executed without an error.
///
/// # Panics
///
/// If planning panicked, or an error cannot be rendered: that is a bug.
#[doc(hidden)]
pub fn fuzz_sql(text: &str) -> usize {
    let mut planner = Planner::new(Arc::new(Empty), PathBuf::from("."));
    let mut executed = 0;
    let tables = "CREATE TABLE t (ts TIMESTAMP(3), k BIGINT, v DOUBLE, s STRING, d DECIMAL(9, 2),
                  b BOOLEAN, day AS CAST(ts AS DATE), WATERMARK FOR ts AS ts)
                  WITH ('connector' = '');
                  CREATE VIEW w AS SELECT ts, k + 1 AS k, UPPER(s) AS s FROM t WHERE v > 0;";
    for text in [tables, text] {
        let statements = match parse_script(text, "fuzz.sql") {
            Ok(statements) => statements,
            Err(error) => {
                check(&error);
                continue;
            }
        };
        for statement in statements {
            match planner.execute(&statement) {
                Ok(_) => executed += 1,
                Err(error) => check(&error),
            }
        }
    }
    executed
}

fn check(error: &crate::syntax::error::SqlError) {
    let panicked = error.kind == ErrorKind::Internal && error.message.contains(PANICKED);
    assert!(!panicked, "{error}");
    assert!(!error.render().is_empty());
}

/// Tables without records.
#[derive(Debug)]
struct Empty;

#[derive(Debug)]
struct EmptyTable(SchemaRef);

impl Connectors for Empty {
    fn table(&self, options: &TableOptions) -> Result<Arc<dyn Table>> {
        Ok(Arc::new(EmptyTable(options.schema.clone())))
    }

    fn sink(&self, options: &TableOptions) -> Result<Arc<dyn Sink>> {
        Err(Error::Option {
            table: options.name.clone(),
            option: "connector".into(),
            message: "is no sink".into(),
            help: String::new(),
        })
    }
}

impl Table for EmptyTable {
    fn schema(&self) -> SchemaRef {
        self.0.clone()
    }

    fn bounded(&self) -> bool {
        true
    }

    fn open(&self, _: &[usize], _: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        Ok(vec![])
    }

    fn describe(&self, _: &[usize]) -> String {
        "empty".into()
    }
}
