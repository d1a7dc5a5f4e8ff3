//! Names of stages: unique in a plan, and unchanged by edits elsewhere in the script.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use millstream_contract::plan::{Operator, Plan};
use millstream_sql::Outcome;

const TABLES: &str = "
    CREATE TABLE asks (
        at TIMESTAMP(6), item BIGINT, cost INT, WATERMARK FOR at AS at - INTERVAL '1' SECOND
    ) WITH ('connector' = 'endless');
    CREATE TABLE one (a BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE other (a BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE third (a BIGINT, n BIGINT) WITH ('connector' = 'nowhere');";

/// A count by item, in windows of so many seconds.
fn counts(seconds: i64) -> String {
    format!(
        "SELECT window_start, window_end, item AS a, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE asks, DESCRIPTOR(at), INTERVAL '{seconds}' SECOND))
         GROUP BY window_start, window_end, item"
    )
}

fn plan(declarations: &str, inserts: &[&str]) -> Plan {
    let text =
        format!("{TABLES} {declarations} EXECUTE STATEMENT SET BEGIN {}; END", inserts.join(";"));
    match execute(&mut session(), &text) {
        Ok(Outcome::Insert(planned, _)) => {
            planned.plan.check().unwrap_or_else(|e| panic!("{e}: {:?}", planned.plan));
            planned.plan
        }
        Ok(other) => panic!("no insert: {other:?}"),
        Err(e) => panic!("{}", e.render()),
    }
}

/// By name: the window, the keys and the sides of a stage with state.
fn state(plan: &Plan) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for stage in &plan.stages {
        assert!(!stage.names.is_empty(), "{stage:?}");
        let about = match &stage.operator {
            Operator::Aggregate(of) => {
                let keys: Vec<&str> = of.keys.iter().map(|key| key.name.as_str()).collect();
                let calls: Vec<&str> = of.aggregates.iter().map(|of| of.name.as_str()).collect();
                format!("{:?} {keys:?} {calls:?}", of.window)
            }
            Operator::Join(join) => format!("{:?} {} keys", join.window, join.keys.len()),
            _ => continue,
        };
        for name in &stage.names {
            let before = state.insert(name.clone(), about.clone());
            assert_eq!(before, None, "two stages are called {name}");
        }
    }
    state
}

fn names(plan: &Plan) -> Vec<Vec<&str>> {
    let names = plan.stages.iter().map(|stage| stage.names.iter().map(String::as_str).collect());
    names.collect()
}

#[test]
fn a_stage_is_named_after_its_view_or_sink_and_the_kind_of_its_operator() {
    let view = format!("CREATE VIEW v AS {};", counts(10));
    let by_view = plan(&view, &["INSERT INTO one SELECT a, n FROM v"]);
    assert_eq!(names(&by_view), [["v.window"]]);
    let by_sink = plan("", &[&format!("INSERT INTO one SELECT a, n FROM ({})", counts(10))]);
    assert_eq!(names(&by_sink), [["one.window"]]);
    let by_subquery = plan("", &[&format!("INSERT INTO one SELECT a, n FROM ({}) x", counts(10))]);
    assert_eq!(names(&by_subquery), [["one.x.window"]]);
    let plain = plan("", &["INSERT INTO one SELECT item, cost FROM asks"]);
    assert_eq!(names(&plain), [["one.rows"]]);
    let join = plan(
        &view,
        &["INSERT INTO one WITH w AS (SELECT * FROM v WHERE n > 1)
           SELECT l.a, l.n FROM v AS l JOIN w ON l.a = w.a AND l.window_end = w.window_end"],
    );
    assert_eq!(names(&join), [["v.window"], ["one.join"]]);
}

#[test]
fn edits_elsewhere_leave_the_names_of_stages() {
    let views = format!("CREATE VIEW v AS {}; CREATE VIEW w AS {};", counts(10), counts(20));
    let more = format!("CREATE VIEW x AS {}; {views}", counts(5));
    let of = |seconds| format!("INSERT INTO other SELECT a, n FROM ({})", counts(seconds));
    let join = "INSERT INTO one SELECT v.a, x.n FROM v JOIN (
                    SELECT a, MAX(n) AS n, window_start, window_end FROM v
                    GROUP BY a, window_start, window_end
                ) x ON v.a = x.a AND v.window_end = x.window_end";
    let from_w = "INSERT INTO third SELECT a, n FROM w";
    let whole = state(&plan(&views, &[join, &of(30), from_w]));
    let expected = ["one.join", "one.x.window", "other.window", "v.window", "w.window"];
    assert_eq!(whole.keys().collect::<Vec<_>>(), expected);
    let scripts = [
        plan(&views, &[from_w, &of(30), join]),
        plan(&more, &[&of(30), join]),
        plan(&more, &["INSERT INTO third SELECT a, n FROM x", join, &of(30)]),
        plan(&views, &[from_w]),
        // A view and a subquery with its name, elsewhere.
        plan(&views, &[&format!("INSERT INTO third SELECT a, n FROM ({}) w", counts(7)), join]),
        // A rest of the statement that differs.
        plan(&views, &[&join.replace("v.a, x.n", "v.a, x.n + 1"), from_w]),
    ];
    for script in &scripts {
        let state = state(script);
        let kept = whole.iter().filter(|(name, _)| state.contains_key(*name));
        let kept: BTreeSet<_> = kept.collect();
        assert!(!kept.is_empty());
        for (name, about) in kept {
            assert_eq!(&state[name], about, "{name}");
        }
    }
    let kept = |script: &Plan| state(script).into_keys().collect::<Vec<_>>();
    assert_eq!(kept(&scripts[0]), expected);
    assert_eq!(kept(&scripts[1]), ["one.join", "one.x.window", "other.window", "v.window"]);
    assert_eq!(kept(&scripts[4]), ["one.join", "one.x.window", "third.w.window", "v.window"]);
}

/// Equal groupings of two statements are one stage, with the name that each statement gives. So
/// either statement can go.
#[test]
fn a_shared_stage_has_the_name_of_each_sink() {
    let into = |sink: &str| format!("INSERT INTO {sink} SELECT a, n FROM ({})", counts(10));
    let alone = plan("", &[&into("other")]);
    assert_eq!(names(&alone), [["other.window"]]);
    for inserts in [[&*into("one"), &into("other")], [&into("other"), &into("one")]] {
        let shared = plan("", &inserts);
        assert_eq!(names(&shared), [["one.window", "other.window"]]);
    }
    let rows = |sink: &str| format!("INSERT INTO {sink} SELECT item, cost FROM asks");
    let equal = plan("", &[&rows("one"), &rows("other")]);
    assert_eq!(names(&equal), [["one.rows", "other.rows"]]);
}

#[test]
fn only_equals_have_numbers() {
    let union = format!("{} UNION ALL {} UNION ALL {0}", counts(10), counts(20));
    let of = |sink: &str| format!("INSERT INTO {sink} SELECT a, n FROM ({union})");
    let both =
        plan("", &[&format!("INSERT INTO third SELECT a, n FROM ({})", counts(40)), &of("one")]);
    let all = state(&both);
    let expected = ["one.window", "one.window.2", "third.window"];
    assert_eq!(all.keys().collect::<Vec<_>>(), expected);
    assert_eq!(state(&plan("", &[&of("one")]))["one.window.2"], all["one.window.2"]);
}

/// A condition on the rank decides how much state there is. So the stage belongs to where the
/// condition stands.
#[test]
fn a_ranking_is_named_where_it_is_bounded() {
    let view = "CREATE VIEW ranked AS SELECT *, ROW_NUMBER() OVER (
                    PARTITION BY window_start, window_end, item ORDER BY cost
                ) AS rn FROM TABLE(TUMBLE(TABLE asks, DESCRIPTOR(at), INTERVAL '5' SECOND));";
    let best = |sink: &str, rows: i64| {
        format!("INSERT INTO {sink} SELECT item, rn FROM ranked WHERE rn <= {rows}")
    };
    let three = plan(view, &[&best("one", 3)]);
    assert_eq!(names(&three), [["one.ranked.window"]]);
    let both = plan(view, &[&best("other", 5), &best("one", 3)]);
    assert_eq!(names(&both), [["other.ranked.window"], ["one.ranked.window"]]);
}

#[test]
fn names_in_quotes_cannot_be_mistaken() {
    let views = format!("CREATE VIEW `a.b` AS {}; CREATE VIEW a AS {};", counts(10), counts(20));
    let of = |view: &str, sink: &str| format!("INSERT INTO {sink} SELECT a, n FROM {view}");
    let both = plan(&views, &[&of("`a.b`", "one"), &of("a", "other")]);
    assert_eq!(names(&both), [["\"a.b\".window"], ["a.window"]]);
}

/// Common work of several readers is a stage of its own, named after its readers.
#[test]
fn common_work_is_named_after_its_readers() {
    let rows = |sink: &str, more: &str| {
        format!("INSERT INTO {sink} SELECT item, cost FROM asks WHERE cost > 3 AND {more}")
    };
    let both = plan("", &[&rows("one", "item = 1"), &rows("other", "item = 2")]);
    assert_eq!(
        names(&both),
        [&["one.rows.input", "other.rows.input"][..], &["one.rows"], &["other.rows"]]
    );
}
