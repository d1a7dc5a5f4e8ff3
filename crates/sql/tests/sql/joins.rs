//! Tests of joins: their plans, what is refused, and what EXPLAIN says.

use crate::common::*;
use millstream_sql::Outcome;

const TABLES: &str = "
    CREATE TABLE orders (
        ts TIMESTAMP(3), id BIGINT NOT NULL, item INT, price DOUBLE, note STRING,
        WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
    ) WITH ('connector' = 'endless');
    CREATE TABLE ships (
        at TIMESTAMP(6), order_id INT, item INT NOT NULL, price DOUBLE, via STRING,
        WATERMARK FOR at AS at
    ) WITH ('connector' = 'endless');
    CREATE TABLE past (at TIMESTAMP(3), id BIGINT, name STRING, WATERMARK FOR at AS at)
        WITH ('connector' = 'fake');
    CREATE TABLE names (id INT NOT NULL, name STRING, tags ARRAY<STRING>)
        WITH ('connector' = 'fake');
    CREATE TABLE kept (t TIMESTAMP(3), id BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE kept_too (t TIMESTAMP(3), id BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE VIEW o AS SELECT *
        FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND));
    CREATE VIEW s AS SELECT *
        FROM TABLE(TUMBLE(TABLE ships, DESCRIPTOR(at), INTERVAL '10' SECOND));
    CREATE VIEW oh AS SELECT * FROM TABLE(
        HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
    CREATE VIEW sh AS SELECT * FROM TABLE(
        HOP(TABLE ships, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
    CREATE VIEW sn AS SELECT window_start, window_end, window_time, order_id, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE ships, DESCRIPTOR(at), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, window_time, order_id;
    CREATE VIEW ses AS SELECT window_start, window_end, window_time, id, COUNT(*) AS n
        FROM TABLE(SESSION(TABLE orders PARTITION BY id, DESCRIPTOR(ts), INTERVAL '5' SECOND))
        GROUP BY window_start, window_end, window_time, id;
    CREATE VIEW shes AS SELECT window_start, window_end, order_id, COUNT(*) AS n
        FROM TABLE(SESSION(TABLE ships PARTITION BY order_id, DESCRIPTOR(at), INTERVAL '5' SECOND))
        GROUP BY window_start, window_end, order_id;";

#[test]
fn show() {
    let Ok(file) = std::env::var("JOINS_FILE") else { return };
    for text in std::fs::read_to_string(file).unwrap().split(";;") {
        println!("{text}");
        match execute(&mut session(), &format!("{TABLES} EXPLAIN {text}")) {
            Ok(Outcome::Explain(planned)) => {
                planned.plan.check().unwrap();
                let text = &planned.explain;
                println!("{}\n", &text[text.find("\nsource").unwrap_or(0)..])
            }
            Ok(other) => println!("{other:?}"),
            Err(e) => println!("{}\n", e.render()),
        }
    }
}
