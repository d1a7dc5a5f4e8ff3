//! Tests of `FOR SYSTEM_TIME AS OF`: lookup joins and temporal joins, in plans, and what is
//! refused.

use crate::common::*;
use millstream_contract::plan::{Interval, Join, JoinKind, Lookup, Operator, Plan, Window};

const TABLES: &str = "
    CREATE TABLE orders (
        ts TIMESTAMP(3), id BIGINT NOT NULL, item INT, price DOUBLE, proc AS PROCTIME(),
        WATERMARK FOR ts AS ts
    ) WITH ('connector' = 'endless');
    CREATE TABLE plain (ts TIMESTAMP(3), id BIGINT, proc AS PROCTIME())
        WITH ('connector' = 'endless');
    CREATE TABLE instants (z TIMESTAMP_LTZ(3), id BIGINT, WATERMARK FOR z AS z)
        WITH ('connector' = 'endless');
    CREATE TABLE items (id INT, name STRING, cost DOUBLE, more STRING) WITH ('connector' = 'fake');
    CREATE TABLE rates (
        at TIMESTAMP(3), item BIGINT, kind STRING, rate DOUBLE, WATERMARK FOR at AS at,
        PRIMARY KEY (item) NOT ENFORCED
    ) WITH ('connector' = 'endless');
    CREATE TABLE pairs (
        at TIMESTAMP(3), a BIGINT, b STRING, WATERMARK FOR at AS at, PRIMARY KEY (a, b) NOT ENFORCED
    ) WITH ('connector' = 'endless');
    CREATE TABLE keyed (at TIMESTAMP(3), id BIGINT PRIMARY KEY NOT ENFORCED)
        WITH ('connector' = 'endless');
    CREATE TABLE more_rates WITH ('connector' = 'endless') LIKE rates (OVERWRITING OPTIONS);
    CREATE TABLE no_rates WITH ('connector' = 'endless') LIKE rates
        (EXCLUDING CONSTRAINTS OVERWRITING OPTIONS);
    CREATE VIEW counts AS SELECT item, COUNT(*) AS n FROM items GROUP BY item;
";

fn plan(text: &str) -> Plan {
    let plan = graph(&format!("{} {text}", TABLES.replace(COUNTS, "")));
    plan.check().unwrap_or_else(|e| panic!("{e}: {plan:?}"));
    plan
}

/// A view that is there for refusals alone.
const COUNTS: &str = "CREATE VIEW counts AS SELECT item, COUNT(*) AS n FROM items GROUP BY item;";

fn lookups(plan: &Plan) -> Vec<&Lookup> {
    let lookups = plan.stages.iter().filter_map(|stage| match &stage.operator {
        Operator::Lookup(lookup) => Some(&**lookup),
        _ => None,
    });
    lookups.collect()
}

fn joins(plan: &Plan) -> Vec<&Join> {
    let joins = plan.stages.iter().filter_map(|stage| match &stage.operator {
        Operator::Join(join) => Some(&**join),
        _ => None,
    });
    joins.collect()
}

#[test]
fn a_lookup_reads_what_it_needs_of_its_table() {
    let plan = plan(
        "SELECT o.id, name FROM orders AS o
         LEFT JOIN items FOR SYSTEM_TIME AS OF o.proc AS i ON o.item = i.id AND i.cost < o.price",
    );
    let [lookup] = lookups(&plan)[..] else { panic!("{plan:?}") };
    assert!(lookup.outer && lookup.filter.is_none() && lookup.condition.is_some());
    assert_eq!(lookup.side.projection, [0, 1, 2]);
    let names: Vec<&str> = lookup.pair.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["id", "item", "price", "id_2", "name", "cost"]);
    assert_eq!(lookup.output, [0, 4]);
    // The time is not asked for: it is always now.
    assert!(plan.sources[0].derived.is_empty());
    assert!(plan.sources[0].event_time.is_none());
}

/// Conditions on the side table alone are asked when it is read, where that changes nothing.
#[test]
fn conditions_on_the_side_table_are_asked_once() {
    let plan = plan(
        "SELECT o.id FROM (SELECT *, PROCTIME() AS p FROM orders) AS o
         JOIN items FOR SYSTEM_TIME AS OF o.p AS i ON o.item = i.id AND more = 'x' WHERE cost > 2",
    );
    let [lookup] = lookups(&plan)[..] else { panic!("{plan:?}") };
    assert!(!lookup.outer && lookup.condition.is_none());
    assert_eq!(lookup.filter.as_ref().unwrap().to_text(), "more = 'x' AND cost > 2.0");
    assert_eq!(lookup.columns.columns.len(), 1);
}

#[test]
fn equal_lookups_of_a_statement_set_are_one() {
    let insert = |name: &str, rows: &str| {
        format!(
            "CREATE TABLE {name} (id BIGINT, name STRING) WITH ('connector' = 'nowhere');
             INSERT INTO {name} SELECT o.id, i.name FROM orders AS o
             JOIN items FOR SYSTEM_TIME AS OF o.proc AS i ON o.item = i.id {rows};"
        )
    };
    let texts = [insert("a", ""), insert("b", "WHERE name <> 'x'"), insert("c", "AND o.id > 3")];
    let (tables, inserts): (Vec<_>, Vec<_>) =
        texts.iter().map(|text| text.split_once(';').unwrap()).unzip();
    let text = format!(
        "{TABLES} {}; EXECUTE STATEMENT SET BEGIN {} END",
        tables.join(";"),
        inserts.join("")
    )
    .replace(COUNTS, "");
    let planned = match execute(&mut session(), &text) {
        Ok(millstream_sql::Outcome::Insert(planned, _)) => planned,
        other => panic!("{other:?}"),
    };
    // A condition on the side table or the record makes it another one.
    assert_eq!(lookups(&planned.plan).len(), 3);
    let again = text.replace("WHERE name <> 'x'", "").replace("AND o.id > 3", "");
    match execute(&mut session(), &again) {
        Ok(millstream_sql::Outcome::Insert(planned, _)) => {
            assert_eq!(lookups(&planned.plan).len(), 1);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_temporal_join_asks_nothing_of_a_version_before_it_is_known_to_count() {
    for rates in ["rates", "more_rates"] {
        let plan = plan(&format!(
            "SELECT o.id, rate FROM orders AS o JOIN {rates} FOR SYSTEM_TIME AS OF o.ts AS r
             ON r.item = o.item AND kind = 'x' AND o.id > 3 WHERE rate > 1"
        ));
        let [join] = joins(&plan)[..] else { panic!("{plan:?}") };
        assert!(join.as_of && join.kind == JoinKind::Inner);
        assert_eq!(join.window, Some(Window::Interval(Interval::AS_OF)));
        assert_eq!(join.keys.len(), 1);
        let condition = join.condition.as_ref().unwrap().to_text();
        assert_eq!(condition, "kind = 'x' AND rate > 1.0");
        let inputs = &plan.stages[plan.outputs[0].stage].inputs;
        assert_eq!(inputs[0].filter.as_ref().map(Text::to_text), Some("id > 3".into()));
        assert!(inputs[1].filter.is_none());
        assert!(plan.sources.iter().all(|source| source.event_time.is_some()));
    }
}

trait Text {
    fn to_text(&self) -> String;
}

impl Text for millstream_contract::expr::Expr {
    fn to_text(&self) -> String {
        match self {
            millstream_contract::expr::Expr::Column(column) => format!("column {column}"),
            millstream_contract::expr::Expr::Computed(computed) => computed.to_string(),
        }
    }
}

/// Its message and help.
fn told(from: &str) -> (String, String) {
    let tables =
        TABLES.replace(COUNTS, &COUNTS.replace("item,", "id,").replace("BY item", "BY id"));
    let error = match execute(&mut session(), &format!("{tables} SELECT o.id FROM {from}")) {
        Ok(outcome) => panic!("was not refused: {from}\n{outcome:?}"),
        Err(error) => error,
    };
    assert!(error.span.is_some(), "{from}: {error}");
    assert!(!error.message.contains("internal"), "{from}: {error}");
    (error.message, error.help.unwrap_or_default())
}

fn check(from: &str, message: &str, help: &str) {
    let (said, helped) = told(from);
    assert_eq!(said, message, "{from}");
    assert!(helped.starts_with(help), "{from}: {helped}");
}

#[test]
fn what_does_not_run_is_refused_with_the_reason() {
    let of = |time: &str| format!("FOR SYSTEM_TIME AS OF {time} AS i");
    let no_time = "what stands behind FOR SYSTEM_TIME AS OF is no time of the left side's rows";
    let times = "it is a processing time of the left side, proc AS PROCTIME()";
    let now = of("o.proc");
    let then = of("o.ts");
    for (from, message, help) in [
        (format!("orders AS o JOIN items {} ON o.item = i.id", of("o.id")), no_time, times),
        (format!("orders AS o JOIN items {} ON o.item = i.id", of("NULL")), no_time, times),
        (format!("orders AS o JOIN items {} ON o.item = i.id", of("NOW()")), no_time, times),
        (
            format!("orders AS o JOIN items {} ON o.item = i.id", of("o.ts + INTERVAL '1' SECOND")),
            no_time,
            times,
        ),
        (
            format!("plain AS o JOIN rates {} ON o.id = i.item", of("o.ts")),
            no_time,
            "it is a processing time of the left side, proc AS PROCTIME() in its CREATE TABLE, for \
             what a table holds now; or the left side's event time, for what it held then; 'ts' is \
             not the event time of table 'plain'",
        ),
        (
            format!("orders AS o JOIN rates {} ON o.id = i.item", of("i.at")),
            "the time of FOR SYSTEM_TIME AS OF is one of the left side",
            times,
        ),
        (
            format!("orders AS o FULL JOIN items {now} ON o.item = i.id"),
            "the FULL JOIN of o and i does not run with FOR SYSTEM_TIME AS OF",
            "JOIN and LEFT JOIN do",
        ),
        (
            format!("orders AS o LEFT ANTI JOIN rates {then} ON o.item = i.item"),
            "the LEFT ANTI JOIN of o and i does not run with FOR SYSTEM_TIME AS OF",
            "JOIN and LEFT JOIN do",
        ),
        (
            format!("orders AS o JOIN items {now} USING (id)"),
            "the version of a table, other than in JOIN … ON, does not run here",
            "a row can be joined with the version of a table at its time:",
        ),
        (
            format!("orders AS o JOIN plain {now} ON o.item = i.id"),
            "table 'plain' never ends, and a lookup join reads it before all else",
            "look up in a table that ends: files, without 'follow'",
        ),
        (
            format!("orders AS o JOIN counts {now} ON o.item = i.id"),
            "the JOIN of o and i: what is looked up in is a table that ends, or a view of its rows",
            "write the result of a query to a file first",
        ),
        (
            format!(
                "(SELECT id FROM items UNION ALL SELECT id FROM items GROUP BY id) AS o
                 JOIN items {} ON o.id = i.id",
                of("PROCTIME()")
            ),
            "the JOIN of o and i for a UNION ALL of records of tables and of results of a GROUP BY \
             or a join does not run",
            "write it into each query of the UNION ALL",
        ),
    ] {
        check(&from, message, help);
    }
    let tables = TABLES.replace(COUNTS, "");
    let outside = "SELECT id FROM orders WHERE `$system_time`(ts)";
    let error = execute(&mut session(), &format!("{tables} {outside}")).unwrap_err();
    assert_eq!(error.message, "FOR SYSTEM_TIME AS OF stands behind a table that is joined");
}

#[test]
fn a_temporal_join_is_with_versions_that_keys_and_times_tell_apart() {
    let then = "FOR SYSTEM_TIME AS OF o.ts AS i";
    for (from, message, help) in [
        (
            format!("orders AS o JOIN items {then} ON o.item = i.id"),
            "the JOIN of o and i: table 'items' has no PRIMARY KEY, so its rows are no versions",
            "add PRIMARY KEY (column) NOT ENFORCED to CREATE TABLE items",
        ),
        (
            format!("orders AS o JOIN no_rates {then} ON o.item = i.item"),
            "the JOIN of o and i: table 'no_rates' has no PRIMARY KEY, so its rows are no versions",
            "add PRIMARY KEY (column) NOT ENFORCED to CREATE TABLE no_rates",
        ),
        (
            format!("orders AS o JOIN keyed {then} ON o.id = i.id"),
            "the JOIN of o and i: table 'keyed' has no watermark, so its versions have no time",
            "add WATERMARK FOR … AS … to CREATE TABLE keyed",
        ),
        (
            format!("orders AS o LEFT JOIN rates {then} ON o.price = i.rate"),
            "the LEFT JOIN of o and i does not say which version it is of: ON compares 'item' of the \
             PRIMARY KEY of 'rates' with nothing",
            "add t.… = item to ON, for each row of t",
        ),
        // Not every BIGINT is another DOUBLE.
        (
            format!("orders AS o JOIN rates {then} ON o.price = i.item"),
            "the JOIN of o and i: ON compares 'item' of the PRIMARY KEY of 'rates' as DOUBLE, in which \
             two values of BIGINT may be one",
            "bring the other side to the key's type: CAST(… AS BIGINT) = item",
        ),
        (
            format!("orders AS o JOIN pairs {then} ON o.item = i.a"),
            "the JOIN of o and i does not say which version it is of: ON compares 'b' of the PRIMARY \
             KEY of 'pairs' with nothing",
            "add t.… = b to ON, for each row of t",
        ),
        (
            format!("instants AS o JOIN rates {} ON o.id = i.item", then.replace("o.ts", "o.z")),
            "the JOIN of o and i compares an instant, TIMESTAMP_LTZ, with a local time, TIMESTAMP: \
             the event times of both sides are of one kind",
            "declare both alike in CREATE TABLE",
        ),
    ] {
        check(&from, message, help);
    }
}

#[test]
fn a_primary_key_names_columns_and_says_that_it_is_not_checked() {
    let create =
        |elements: &str| format!("CREATE TABLE t ({elements}) WITH ('connector' = 'fake')");
    for (elements, message, help) in [
        ("a INT, PRIMARY KEY (b) NOT ENFORCED", "there is no column 'b' for the PRIMARY KEY", ""),
        (
            "a INT, PRIMARY KEY (a)",
            "a PRIMARY KEY is not checked here, and must say so",
            "write NOT ENFORCED behind it",
        ),
        (
            "a INT PRIMARY KEY, b INT",
            "a PRIMARY KEY is not checked here, and must say so",
            "write NOT ENFORCED behind it",
        ),
        (
            "a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED",
            "a table has one PRIMARY KEY at most",
            "leave one of them out",
        ),
        (
            "a INT, UNIQUE (a)",
            "constraints other than PRIMARY KEY do not run here",
            "leave this line out",
        ),
    ] {
        let error = execute(&mut session(), &create(elements)).unwrap_err();
        assert_eq!(error.message, message, "{elements}");
        assert!(error.help.unwrap_or_default().starts_with(help), "{elements}");
        assert!(error.span.is_some(), "{elements}");
    }
    for elements in [
        "a INT, PRIMARY KEY (a) NOT ENFORCED",
        "a INT NOT NULL PRIMARY KEY NOT ENFORCED, b STRING",
        "a INT, b INT, CONSTRAINT ab PRIMARY KEY (a, b) NOT ENFORCED",
        "`primary` INT, `constraint` INT",
    ] {
        execute(&mut session(), &create(elements)).unwrap_or_else(|e| panic!("{elements}: {e}"));
    }
}
