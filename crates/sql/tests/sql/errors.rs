//! Tests of refusals: each says what is refused, where, and what to write instead.

use millstream_sql::{ErrorKind, Outcome, parse_script};

use crate::common::*;

const FROM: &str = "FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '2' SECOND))";

#[test]
fn the_place_is_underlined() {
    let text = format!(
        "\nSELECT window_start,\n       job_idd, AVG(cpu_request) AS cpu\n{FROM}\nGROUP BY 1, 2"
    );
    assert_eq!(
        error(&text),
        "error: there is no column 'job_idd' in table 'task_events'
  --> query.sql:3:8
   |
 3 |        job_idd, AVG(cpu_request) AS cpu
   |        ^^^^^^^
  help: did you mean 'job_id'?"
    );
}

#[test]
fn unknown_names() {
    refused("SELECT * FROM task_event", &["no table 'task_event'", "'task_events'?", "^^^^^^^^^^"]);
    refused("SELECT Job_Id FROM task_events", &["no column 'Job_Id'", "did you mean 'job_id'?"]);
    refused("SELECT UPER(user_name) FROM task_events", &["no function 'UPER'", "UPPER?", "^^^^"]);
    refused("SELECT t.x FROM task_events", &["no table 't' here"]);
    refused("DROP TABLE bid", &["no table 'bid'", "did you mean 'bids'?"]);
    refused("DROP VIEW bids", &["'bids' is no view", "DROP TABLE bids"]);
    refused("SELECT s AS a, b AS a FROM typed", &["same name", "AS"]);
    refused("SELECT db.x FROM db.bids", &["database"]);
    refused("INSERT INTO sink (whom, n) SELECT 'a', 1 FROM typed", &["no column 'whom'"]);
    refused(
        "SELECT 1 FROM TABLE(TUMBEL(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
        &["TUMBEL", "TUMBLE?"],
    );
}

#[test]
fn syntax() {
    refused("SELEC 1", &["did you mean SELECT?", "^^^^^"]);
    refused("SELECT user_name FROM typed WERE b", &["found"]);
    refused("SELECT (1 FROM typed", &["expected", "FROM", "^^^^"]);
    refused("SELECT 1 FROM", &["expected", "end of the statement"]);
    refused("SELECT 'open FROM typed", &["string"]);
    refused("SET workers", &["SET 'key' = 'value'"]);
    refused("CREATE TABLE t (a BIGINT b INT)", &["expected", "b"]);
    refused("CREATE TABLE t (a BIGINT)", &["WITH ('connector' ="]);
    refused("SELECT b FROM typed SELECT b FROM typed", &["separated by ;"]);
    refused(
        "SELECT t < TIME '12:30:00.5' AS b FROM (VALUES (TIME '12:30:00')) AS times (t)",
        &["TIME(0) cannot be compared with TIME(3)", "CAST(x AS TIME(3))", "^^^"],
    );
    refused("SELECT CASE WHEN b, b THEN 1 END FROM typed", &["found ,", "WHEN a OR b", "^"]);
    refused(
        "SELECT TIMESTAMP '2024-01-31 12:30:00.1234567890' AS t FROM typed",
        &["10 digits after its seconds", "a TIMESTAMP has 9 at most", "^^^"],
    );
}

#[test]
fn what_cannot_run_as_a_stream_says_what_does() {
    refused(
        "SELECT auction, COUNT(*) FROM bids GROUP BY auction",
        &["'bids' never ends", "TUMBLE(TABLE bids, DESCRIPTOR(ts)", "^^^^^^^"],
    );
    refused("SELECT * FROM bids ORDER BY price", &["ORDER BY", "never ends", "leave it out"]);
    refused(
        "SELECT * FROM bids JOIN typed ON TRUE",
        &["the JOIN of bids and typed keeps", "table 'bids'", "FOR SYSTEM_TIME"],
    );
    refused(
        "SELECT * FROM bids, bids AS b",
        &["the JOIN of bids and b has no windows", "'bids' never ends"],
    );
    refused("SELECT price FROM bids INTERSECT SELECT i64 FROM typed", &["INTERSECT", "UNION ALL"]);
    refused("SELECT i64 FROM typed EXCEPT SELECT i32 FROM typed", &["EXCEPT", "MAX(a) = 1"]);
    refused("SELECT SUM(price) OVER (PARTITION BY auction) FROM bids", &["OVER", "TUMBLE"]);
    refused("SELECT * FROM bids WHERE auction IN (SELECT i64 FROM typed)", &["IN keeps the rows"]);
    refused("SELECT * FROM bids WHERE EXISTS (SELECT 1 FROM typed)", &["EXISTS keeps the rows"]);
    refused("SELECT (SELECT 1 FROM typed) FROM bids", &["subquery"]);
    refused(
        "SELECT b, COUNT(DISTINCT auction) FROM bids, typed GROUP BY b",
        &["the JOIN of bids and typed keeps the rows of both sides"],
    );
    refused(
        "SELECT COUNT(DISTINCT auction) FROM bids",
        &["'bids' never ends", "TUMBLE(TABLE bids, DESCRIPTOR(ts)"],
    );
    refused(
        "SELECT auction, COUNT(*)
             FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY ROLLUP (window_start, window_end, auction)",
        &["the window must be in every grouping set", "ROLLUP (…)"],
    );
    refused(
        "SELECT auction, SUM(n) FROM (SELECT auction, COUNT(*) AS n
             FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY window_start, window_end, auction) GROUP BY auction",
        &["'bids' never ends", "over all of its windows", "window_start and window_end"],
    );
    refused("SELECT * FROM (SELECT * FROM bids LIMIT 3) WHERE price > 1", &["LIMIT"]);
    refused("SELECT * FROM bids FOR SYSTEM_TIME AS OF ts", &["FOR SYSTEM_TIME"]);
    refused("SELECT * FROM bids TABLESAMPLE (10 PERCENT)", &["TABLESAMPLE"]);
    refused("SELECT * FROM bids QUALIFY price > 1", &["QUALIFY"]);
    refused("SELECT * FROM bids FETCH FIRST 3 ROWS ONLY", &["FETCH", "LIMIT"]);
    refused("SELECT i", &["FROM"]);
    refused("VALUES (1), (a)", &["a"]);
    refused("VALUES (1), (2, 3)", &["VALUES"]);
    refused("VALUES (1 / 0)", &["division by zero"]);
    refused("DELETE FROM bids", &["DELETE"]);
    refused("UPDATE bids SET price = 1", &["UPDATE"]);
    refused("SELECT /*+ OPTIONS('a' = 'b') */ * FROM bids", &["hints"]);
    refused("WITH RECURSIVE r AS (SELECT 1 FROM bids) SELECT * FROM r", &["RECURSIVE"]);
    refused("SELECT RANDOM() FROM bids", &["RANDOM", "same results"]);
    refused("SELECT PROCTIME() FROM bids", &["PROCTIME()", "CREATE TABLE"]);
    refused(
        "SELECT CURRENT_WATERMARK(time_s) AS w FROM task_events",
        &["CURRENT_WATERMARK takes the event time"],
    );
    refused(
        "SELECT window_start, CURRENT_WATERMARK(window_start) AS w
         FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '2' SECOND))
         GROUP BY window_start, window_end",
        &["CURRENT_WATERMARK(ts) is known of a table's records only"],
    );
    refused("SELECT DISTINCT ON (price) price FROM bids", &["DISTINCT ON"]);
    refused("SHOW JOBS", &["SHOW JOBS does not run here", "SHOW TABLES, SHOW VIEWS"]);
    refused("SHOW TABELS", &["did you mean SHOW TABLES?"]);
}

#[test]
fn rankings_and_collections_that_do_not_run_say_what_does() {
    const RANKED: &str = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, \
                          window_end ORDER BY price) AS rn
                          FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE)))";
    refused(RANKED, &["ROW_NUMBER needs a condition that bounds it", "WHERE rn <= 10"]);
    refused(&format!("{RANKED} WHERE rn > 3"), &["needs a condition", "WHERE rn <= 10"]);
    refused(&format!("{RANKED} WHERE rn < 2000000"), &["keeps up to 1000000 rows"]);
    let unordered = RANKED.replace("ORDER BY price", "");
    refused(&format!("{unordered} WHERE rn = 1"), &["ROW_NUMBER needs ORDER BY"]);
    let by_key = RANKED.replace("window_start, window_end", "auction");
    refused(
        &format!("{by_key} WHERE rn = 1"),
        &["rows of one window", "PARTITION BY window_start", "rank the table without its windows"],
    );
    let whole = "SELECT * FROM (SELECT *, RANK() OVER (PARTITION BY auction ORDER BY price) AS r
                 FROM bids) WHERE r = 1";
    refused(
        whole,
        &[
            "table 'bids' never ends, so a rank of RANK without a window",
            "PARTITION BY window_start",
        ],
    );
    let framed = RANKED.replace("ORDER BY price", "ORDER BY price ROWS 1 PRECEDING");
    refused(&format!("{framed} WHERE rn = 1"), &["takes no ROWS or RANGE"]);
    refused("SELECT LAG(price) OVER (ORDER BY ts) FROM bids", &["LAG with OVER", "ROW_NUMBER"]);
    refused("SELECT ROW_NUMBER() FROM bids", &["ROW_NUMBER needs OVER", "WHERE rn <= 10"]);
    refused("SELECT MIN_BY(i64) FROM typed", &["MIN_BY takes 2 arguments, not 1", "MIN_BY(x, y)"]);
    refused(
        "SELECT LISTAGG(i64) FROM typed",
        &["no LISTAGG of BIGINT", "joins strings: LISTAGG(CAST(x AS STRING)"],
    );
    refused("SELECT APPROX_PERCENTILE(i64, 95) FROM typed", &["from 0 to 1", "x, 0.95"]);
    refused(
        "SELECT APPROX_PERCENTILE(b, 0.5) FROM typed",
        &["no APPROX_PERCENTILE of BOOLEAN", "of numbers"],
    );
    refused("SELECT APPROX_TOP_K(i64) FROM typed", &["2 arguments, not 1", "APPROX_TOP_K(x, 10)"]);
    for most in ["0", "-1", "1001", "i64"] {
        refused(
            &format!("SELECT APPROX_TOP_K(b, {most}) FROM typed"),
            &["from 1 to 1000", "x, 10"],
        );
    }
    refused(
        "SELECT APPROX_TOP_K(i64, 0.5) FROM typed",
        &["no APPROX_TOP_K of BIGINT, D", "from 1 to 1000: APPROX_TOP_K(x, 10)"],
    );
    refused("SELECT APPROX_TOP_K(DISTINCT i64, 3) FROM typed", &["DISTINCT inside APPROX_TOP_K"]);
    refused("SELECT ARRAY_AGG(i64 ORDER BY i64) FROM typed", &["ORDER BY inside ARRAY_AGG"]);
    let row = "does not go with values of type ROW";
    refused(
        "SELECT ARRAY_AGG(DISTINCT ROW(i64, i8)) FROM typed",
        &["DISTINCT inside ARRAY_AGG", row],
    );
    refused("SELECT LAST_VALUE(DISTINCT i64) FROM typed", &["DISTINCT inside LAST_VALUE"]);
}

#[test]
fn windows() {
    refused(
        &format!("SELECT job_id, COUNT(*) {FROM} GROUP BY job_id"),
        &["does not group by it", "GROUP BY window_start, window_end, …"],
    );
    let window = |table: &str, time: &str, size: &str| {
        format!(
            "SELECT window_start, COUNT(*)
             FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), {size}))
             GROUP BY window_start"
        )
    };
    let second = "INTERVAL '1' SECOND";
    refused(&window("typed", "t6", second), &["no watermark", "WATERMARK FOR t6 AS t6 - INTERVAL"]);
    refused(&window("bids", "dateTime", second), &["not the event time", "DESCRIPTOR(ts)"]);
    refused(&window("bids", "datetime", second), &["no column 'datetime'", "'dateTime'"]);
    refused(&window("bids", "ts", "INTERVAL '0' SECOND"), &["must be positive"]);
    refused(&window("bids", "ts", "INTERVAL '1' MONTH"), &["months"]);
    refused(&window("bids", "ts", "10"), &["interval"]);
    refused(&window("bids", "ts", "INTERVAL '0.0001' SECOND"), &["milliseconds"]);
}

#[test]
fn types_that_do_not_go_together() {
    refused("SELECT SUM(s) FROM typed", &["no SUM of STRING"]);
    refused("SELECT s + 1 FROM typed WHERE s + dt > 1", &["STRING"]);
    refused("SELECT b FROM typed WHERE i64", &["BOOLEAN"]);
    refused(
        "CREATE TABLE t (a GEOMETRY) WITH ('connector' = 'fake')",
        &["GEOMETRY", "DECIMAL(p, s)"],
    );
    refused("CREATE TABLE t (a MULTISET<INT>) WITH ('connector' = 'fake')", &["MULTISET"]);
    refused("SELECT CAST(b AS UUID) FROM typed", &["UUID"]);
    refused("CREATE TABLE t (a DECIMAL(40, 2)) WITH ('connector' = 'fake')", &["DECIMAL(40, 2)"]);
    refused(
        "INSERT INTO sink SELECT s, f64 FROM typed",
        &["column 'n'", "is BIGINT", "CAST(f64 AS BIGINT)"],
    );
    refused("INSERT INTO sink SELECT s FROM typed", &["takes 2 columns", "gives 1"]);
}

#[test]
fn tables() {
    let create = |body: &str| format!("CREATE TABLE t ({body}) WITH ('connector' = 'fake')");
    refused(&create("a BIGINT, a INT"), &["two columns 'a'"]);
    refused(&create("a BIGINT, UNIQUE (a)"), &["PRIMARY KEY", "leave this line out"]);
    refused(
        &create("a BIGINT, WATERMARK FOR a AS a"),
        &["not a timestamp", "to_timestamp_seconds(a)"],
    );
    refused(&create("ts TIMESTAMP(3), WATERMARK FOR tz AS tz"), &["no column 'tz'", "'ts'"]);
    refused(&create("ts TIMESTAMP(3), WATERMARK FOR ts AS 5"), &["must be a timestamp"]);
    refused(&create("a BIGINT, b AS aa + 1"), &["no column 'aa'", "did you mean 'a'?"]);
    refused(&create("a BIGINT, b AS SUM(a)"), &["aggregate"]);
    refused("CREATE TABLE bids (a BIGINT) WITH ('connector' = 'fake')", &["exists already"]);
    refused("CREATE TABLE t (a INT) WITH ('connector' = 'fake', 'connector' = 'x')", &["twice"]);
    refused(
        "CREATE TABLE t (a INT) WITH ('connector' = 'fke');\nSELECT * FROM t",
        &["no connector 'fke'", "query.sql:1:44", "did you mean 'fake'?"],
    );
    refused("SET 'memroy' = '1GB'", &["memroy", "did you mean 'memory'?"]);
    refused("SELECT * FROM sink", &["connector"]);
    refused("INSERT INTO typed SELECT * FROM typed", &["connector"]);
}

#[test]
fn deep_nesting_ends_in_an_error() {
    let brackets = format!("SELECT {}1{} FROM typed", "(".repeat(5000), ")".repeat(5000));
    refused(&brackets, &["nested too deeply"]);
    let calls = format!("SELECT {}1{} FROM typed", "ABS(".repeat(5000), ")".repeat(5000));
    refused(&calls, &["nested too deeply"]);
    let chain = format!("SELECT {}1 FROM typed", "1 + ".repeat(20_000));
    refused(&chain, &["nested too deeply"]);
    for levels in [257, 300, 5000] {
        let (open, close) = ("CASE WHEN b THEN ".repeat(levels), " END".repeat(levels));
        refused(&format!("SELECT {open}1{close} FROM typed"), &["nested too deeply"]);
    }
    let nots = format!("SELECT {} b FROM typed", "NOT ".repeat(5000));
    refused(&nots, &["query.sql:1:"]);
    let mut doubling = String::from("CREATE VIEW v0 AS SELECT i64 AS a FROM typed;");
    for i in 1..40 {
        doubling.push_str(&format!("CREATE VIEW v{i} AS SELECT a + a AS a FROM v{};", i - 1));
    }
    refused(&doubling, &["parts"]);
}

#[test]
fn long_but_reasonable_statements_run() {
    let chain = format!("SELECT {}i64 FROM typed", "i64 + ".repeat(300));
    plan(&chain);
    let ors = (0..900).map(|i| format!("i64 = {i}")).collect::<Vec<_>>().join(" OR ");
    let query = plan(&format!("SELECT i64 FROM typed WHERE {ors}"));
    // Evaluated on an ordinary stack.
    let evaluated =
        query.filter.unwrap().evaluate(&arrow::array::RecordBatch::new_empty(query.input));
    assert!(evaluated.is_ok());
}

#[test]
fn statements_keep_their_text_and_place() {
    let statements = parse_script("SET a = 1;\n\n SELECT 'é;' -- ;\n FROM t ; ;", "s").unwrap();
    let texts: Vec<String> = statements.iter().map(|s| s.text()).collect();
    assert_eq!(texts, ["SET a = 1", "SELECT 'é;' -- ;\n FROM t"]);
    assert!(!statements[0].is_query() && statements[1].is_query());
}

#[test]
fn settings_reach_the_planner() {
    let mut planner = session();
    execute(
        &mut planner,
        "SET 'batch.rows' = '17'; SET fragment.mode = pass-through; SET allowed_lateness = '5 s'",
    )
    .unwrap();
    assert_eq!(planner.settings().batch_rows, 17);
    assert_eq!(planner.settings().allowed_lateness_us, 5_000_000);
    let error = execute(&mut planner, "SET workers = many").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Setting);
    assert!(matches!(
        execute(&mut planner, "SET workers = 2"),
        Ok(Outcome::Set { key }) if key == "workers"
    ));
}

#[test]
fn no_message_shows_a_syntax_tree() {
    for (text, parts) in [
        ("s RLIKE 'a'", ["RLIKE does not run here", "REGEXP_LIKE(text, pattern)"]),
        ("s NOT RLIKE 'a'", ["RLIKE does not run here", "REGEXP_LIKE(text, pattern)"]),
        ("s REGEXP 'a'", ["REGEXP does not run here", "REGEXP_LIKE(text, pattern)"]),
        ("s IS NORMALIZED", ["IS NORMALIZED does not run here", "leave it out"]),
        ("CONVERT(i64, INT)", ["CONVERT does not run here", "CAST(x AS INT)"]),
        ("SUBSTRING(s)", ["SUBSTRING needs a start", "SUBSTRING(x, 2)"]),
    ] {
        refused(&format!("SELECT {text} AS x FROM typed"), &parts);
    }
}

const COUNTS: &str = "CREATE VIEW counts AS
    SELECT window_time AS t, auction, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, auction;";

#[test]
fn unions_that_do_not_fit() {
    // Number and types of columns, with the query at fault.
    refused(
        "SELECT auction, price FROM bids
         UNION ALL SELECT i32, i64 FROM typed
         UNION ALL SELECT i8 FROM typed",
        &[
            "query 3 of the UNION gives 1 column (i8), the first gives 2 columns (auction, price)",
            "query.sql:3:27",
            "NULL for what is missing",
        ],
    );
    refused(
        "WITH w AS (SELECT * FROM typed) SELECT auction FROM bids UNION ALL SELECT * FROM w",
        &["query 2 of the UNION gives 18 columns (b, i8, i16, i32, i64, u8, u64, f32, …)"],
    );
    refused(
        "SELECT auction, price FROM bids UNION ALL SELECT i32, s AS text FROM typed",
        &[
            "column 2 of the UNION, 'price', is BIGINT in query 1 and STRING in query 2 ('text')",
            "CAST(text AS BIGINT)",
            "query.sql:1:55",
        ],
    );
    refused(
        "SELECT NULL AS x FROM typed UNION ALL SELECT i32 FROM typed UNION ALL SELECT s FROM typed",
        &["'x', is INT in query 2 and STRING in query 3 ('s')", "query.sql:1:78"],
    );
    for (one, other) in [("dt", "t6"), ("t6", "z"), ("s", "y"), ("b", "i8"), ("tm", "t0")] {
        let text = format!("SELECT {one} FROM typed UNION SELECT {other} FROM typed");
        refused(&text, &["column 1 of the UNION", &format!("('{other}')")]);
    }
    refused("SELECT i8 FROM typed UNION ALL BY NAME SELECT i8 FROM typed", &["BY NAME"]);
}

#[test]
fn parts_of_unions() {
    refused(
        "SELECT price FROM bids UNION ALL (SELECT i64 FROM typed LIMIT 3)",
        &["a LIMIT within a query of a UNION ALL", "put it at the end", "query.sql:1:63"],
    );
    refused(
        "(SELECT i64 FROM typed ORDER BY i64) UNION ALL SELECT price FROM bids LIMIT 2",
        &["an ORDER BY within a query of a UNION ALL"],
    );
    let records = "SELECT t, n FROM counts UNION ALL SELECT ts, price FROM bids";
    refused(
        &format!("{COUNTS} {records}"),
        &["records and results of windows", "EXECUTE STATEMENT SET", "^^^^^"],
    );
    refused(
        "SELECT auction, price FROM bids UNION ALL SELECT i64, COUNT(*) FROM typed GROUP BY i64",
        &["table 'bids' never ends", "which come last"],
    );
    refused(
        "SELECT price FROM bids UNION SELECT i64 FROM typed",
        &["table 'bids' never ends, so a UNION", "write UNION ALL", "^^^^^"],
    );
    refused("SELECT price FROM bids UNION ALL SELECT i64 FROM typed ORDER BY 1", &["'bids' never"]);
    refused(
        "SELECT COUNT(*) FROM (SELECT i64 FROM typed UNION ALL SELECT price FROM bids)",
        &["table 'bids' never ends"],
    );
}

#[test]
fn event_times_of_unions() {
    let window = |from: &str, time: &str| {
        format!(
            "{COUNTS} SELECT COUNT(*) FROM TABLE(TUMBLE(({from}), DESCRIPTOR({time}), INTERVAL \
             '1' MINUTE)) GROUP BY window_start, window_end"
        )
    };
    for (from, parts) in [
        (
            "SELECT ts FROM bids UNION ALL SELECT dateTime FROM bids",
            ["query 2 of the UNION ALL: 'ts' is not the event time of table 'bids'", "select 'ts'"],
        ),
        (
            "SELECT ts FROM bids UNION ALL SELECT t6 FROM typed",
            ["query 2 of the UNION ALL: table 'typed' has no watermark", "CREATE TABLE typed"],
        ),
        (
            "SELECT ts FROM bids UNION ALL SELECT ts + INTERVAL '1' SECOND FROM bids",
            ["query 2 of the UNION ALL: 'ts' is not the event time", "select 'ts' there"],
        ),
        (
            "SELECT ts FROM bids UNION ALL SELECT t - INTERVAL '1' SECOND FROM counts",
            ["query 2 of the UNION ALL: 'ts' is not the event time of a window's", "window_time"],
        ),
        (
            "SELECT ts FROM bids UNION ALL SELECT MAX(t6) FROM typed GROUP BY b",
            ["query 2 of the UNION ALL: what a GROUP BY without a window gives", "window_time"],
        ),
        (
            "SELECT ts + INTERVAL '1' SECOND AS ts FROM (SELECT ts FROM bids UNION ALL SELECT ts \
             FROM bids)",
            ["'ts' is computed of what the UNION ALL gives", "name the column that each"],
        ),
    ] {
        refused(&window(from, "ts"), &parts);
    }
}

// tidy: long function: a table of mistakes
#[test]
fn statement_sets() {
    let set = |inserts: &str| format!("EXECUTE STATEMENT SET BEGIN\n{inserts}\nEND");
    let one = "INSERT INTO sink SELECT s, i64 FROM typed;";
    refused(&set(&format!("{one} SELECT s FROM typed;")), &["needs an INSERT INTO", "'print'"]);
    refused(&set(&format!("{one} SET workers = 2;")), &["INSERT statements only", "found SET"]);
    refused(&set(""), &["without an INSERT", "INSERT INTO …; END"]);
    refused(&format!("EXECUTE STATEMENT SET BEGIN {one}"), &["has no END", "^^^^^"]);
    refused(&set(one.trim_end_matches(';')), &["expected ; before the END", "query.sql:3:1"]);
    refused(
        &set("INSERT INTO sink SELECT s, CASE WHEN b THEN 1 END FROM typed"),
        &["expected ; before the END"],
    );
    refused(&format!("{} SELECT 1", set(one)), &["expected ; after END, found SELECT"]);
    refused(&format!("EXECUTE STATEMENT SET {one} END"), &["expected BEGIN"]);
    refused(&format!("EXPLAIN STATEMENT SET {one} END"), &["expected BEGIN after STATEMENT SET"]);
    for (wrong, meant) in [
        ("EXECUTE STATMENT SET BEGIN", "did you mean STATEMENT?"),
        ("EXECUTE STATEMENT SETT BEGIN", "did you mean SET?"),
        ("BEGIN STATEMNT SET;", "did you mean STATEMENT?"),
        ("EXPLAIN STATEMENT ST BEGIN", "did you mean SET?"),
    ] {
        refused(&format!("{wrong} {one} END"), &[meant]);
    }
    refused(
        &set("INSERT INTO sink SELECT s, i64 FROM typed INSERT INTO sink SELECT s, 1 FROM typed;"),
        &["; is missing before INSERT", "query.sql:2:43"],
    );
    refused(&set(&format!("{one} DROP TABLE sink;")), &["write END; before it"]);
    refused("SELECT s FROM typed UNION ALLL SELECT s FROM typed", &["did you mean UNION ALL?"]);
    refused(
        &set("INSERT INTO sink SELECT 'a', 1 INSERT INTO sink SELECT 'b', 2;"),
        &["; is missing before INSERT", "query.sql:2:32"],
    );
    refused(&format!("STATEMENT SET BEGIN {one} END"), &["expected EXECUTE"]);
    refused(&format!("BEGIN STATEMENT SET {one} END"), &["expected ; after BEGIN STATEMENT SET"]);
    refused("END", &["no statement set has begun"]);
    refused("EXECUTE sink", &["EXECUTE does not run here", "EXECUTE STATEMENT SET"]);
    refused(
        &set(&format!("{one} INSERT INTO sink SELECT s, 1 FROM typed;")),
        &["two INSERTs of the statement set write to 'sink'", "UNION ALL", "query.sql:2:56"],
    );
    let files = "CREATE TABLE a (s STRING) WITH ('connector' = 'nowhere', 'path' = 'out');
        CREATE TABLE b (s STRING) WITH ('connector' = 'nowhere', 'path' = 'file://./out/');";
    refused(
        &format!(
            "{files} {}",
            set("INSERT INTO a SELECT s FROM typed; INSERT INTO b SELECT s FROM typed;")
        ),
        &["write to one path: that of 'a' and 'b'"],
    );
    let here = std::env::current_dir().expect("a working directory");
    let paths = [
        ("out".to_string(), here.join("out").display().to_string()),
        ("out".to_string(), "nothing_here/../out".to_string()),
        ("src/new".to_string(), "tests/../src/new".to_string()),
    ];
    for (one, other) in paths {
        let files = files.replacen("'out'", &format!("'{one}'"), 1);
        let files = files.replace("file://./out/", &other);
        let inserts = "INSERT INTO a SELECT s FROM typed; INSERT INTO b SELECT s FROM typed;";
        refused(&format!("{files} {}", set(inserts)), &["write to one path: that of 'a' and 'b'"]);
    }
    let printed = "CREATE TABLE a (s STRING) WITH ('connector' = 'print');
        CREATE TABLE b (s STRING) WITH ('connector' = 'file', 'path' = '/dev/stdout');";
    let inserts = "INSERT INTO a SELECT s FROM typed; INSERT INTO b SELECT s FROM typed;";
    refused(
        &format!("{printed} {}", set(inserts)),
        &["print on stdout, those into 'a' and 'b'", "to a file"],
    );
    // A mistake inside has its place, and its column its table.
    refused(
        &set(&format!("{one}\nINSERT INTO nosink SELECT s, 1 FROM typed;")),
        &["there is no table 'nosink'", "query.sql:3:13"],
    );
    refused(
        &set("INSERT INTO sink SELECT s, pries FROM typed;"),
        &["no column 'pries'", "query.sql:2:28"],
    );
    refused(
        &set("INSERT INTO sink SELECT user_name, 1 FROM task_events;\n\
             INSERT INTO sink SELECT MAX('x'), COUNT(*) FROM bids GROUP BY auction;"),
        &["two INSERTs"],
    );
    let other = "CREATE TABLE other (who STRING, n BIGINT) WITH ('connector' = 'nowhere');";
    refused(
        &format!(
            "{other} {}",
            set(&format!(
                "{one}\nINSERT INTO other SELECT MAX('x'), COUNT(*) FROM bids GROUP BY auction;"
            ))
        ),
        &["table 'bids' never ends", "query.sql:3:64"],
    );
}

#[test]
fn what_stands_behind_a_query_without_end_would_never_run() {
    let refuse = |text: &str| {
        let mut planner = session().rehearsal();
        let error = execute(&mut planner, text).expect_err(text);
        error.render()
    };
    let endless = "INSERT INTO sink SELECT 'a', price FROM bids;";
    let text = refuse(&format!("{endless}\nINSERT INTO sink SELECT 'b', price FROM bids"));
    for part in [
        "this statement would never run: the INSERT on line 1 reads a table that never ends",
        "query.sql:2:1",
        "EXECUTE STATEMENT SET BEGIN",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = refuse(&format!("SELECT price FROM bids; {endless}"));
    assert!(text.contains("the query on line 1") && text.contains("give it a LIMIT"), "{text}");
    let runs = |text: &str| {
        let mut planner = session().rehearsal();
        execute(&mut planner, text).unwrap_or_else(|e| panic!("{}", e.render()));
    };
    // A LIMIT is an end, and so is the last place.
    runs(&format!("INSERT INTO sink SELECT 'b', price FROM bids LIMIT 3; {endless}"));
    runs(&format!("SELECT i64 FROM typed; {endless} CREATE VIEW v AS SELECT * FROM bids"));
    // Whoever runs statements one by one knows that the one before has ended.
    execute(&mut session(), &format!("{endless} {endless}")).expect("each runs");
}
