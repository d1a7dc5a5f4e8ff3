//! Tests of columns of the types ROW, ARRAY, MAP and BYTES: how they are declared, what is computed
//! of them, and what is refused.

use std::sync::Arc;

use arrow::array::builder::{Int32Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use millstream_sql::{Outcome, sql_type_name};

use crate::common::*;

const TABLE: &str = "CREATE TABLE n (
    id INT,
    r ROW<a INT, `b c` STRING, s ROW<x INT>>,
    l INT ARRAY,
    o ARRAY<ROW<name STRING, qty INT>>,
    m MAP<STRING, INT>,
    y BYTES
) WITH ('connector' = 'fake');";

fn declared(column: &str) -> Result<DataType, String> {
    let text = format!("CREATE TABLE t (c {column}) WITH ('connector' = 'fake'); SELECT c FROM t;");
    match execute(&mut empty_session(), &text) {
        Ok(Outcome::Query(planned)) => {
            Ok(planned.plan.stages[0].output.field(0).data_type().clone())
        }
        Ok(other) => panic!("{other:?}"),
        Err(e) => Err(e.render()),
    }
}

fn row(fields: &[(&str, DataType, bool)]) -> DataType {
    let field =
        |(name, of, nullable): &(&str, DataType, bool)| Field::new(*name, of.clone(), *nullable);
    DataType::Struct(fields.iter().map(field).collect())
}

fn list(of: DataType, nullable: bool) -> DataType {
    DataType::List(Arc::new(Field::new("item", of, nullable)))
}

fn map(key: DataType, value: DataType) -> DataType {
    let entry = row(&[("key", key, false), ("value", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", entry, false)), false)
}

#[test]
fn types_are_read_and_written_alike() {
    use DataType::{Binary, Int32, Utf8};
    let plain = row(&[("a", Int32, true), ("b", Utf8, false)]);
    let cases: Vec<(&str, DataType, &str)> = vec![
        ("BYTES", Binary, "BYTES"),
        ("VARBINARY(10)", Binary, "BYTES"),
        ("ROW<a INT, b STRING NOT NULL>", plain.clone(), "ROW<a INT, b STRING NOT NULL>"),
        ("ROW(a INT, b STRING NOT NULL)", plain.clone(), "ROW<a INT, b STRING NOT NULL>"),
        (
            "row<a INT NULL 'how many', b STRING NOT NULL 'who'> NOT NULL",
            plain.clone(),
            "ROW<a INT, b STRING NOT NULL>",
        ),
        ("ARRAY<INT>", list(Int32, true), "ARRAY<INT>"),
        ("ARRAY<INT NOT NULL> NOT NULL", list(Int32, false), "ARRAY<INT NOT NULL>"),
        ("INT ARRAY", list(Int32, true), "ARRAY<INT>"),
        ("INT ARRAY ARRAY", list(list(Int32, true), true), "ARRAY<ARRAY<INT>>"),
        ("MAP<STRING, INT>", map(Utf8, Int32), "MAP<STRING, INT>"),
        (
            "MAP<STRING NOT NULL, ARRAY<ARRAY<INT>>>",
            map(Utf8, list(list(Int32, true), true)),
            "MAP<STRING, ARRAY<ARRAY<INT>>>",
        ),
        (
            "ARRAY<ROW<a INT, b STRING NOT NULL>>",
            list(plain, true),
            "ARRAY<ROW<a INT, b STRING NOT NULL>>",
        ),
        (
            "ROW<`b c` ROW<x DECIMAL(10, 2)>>",
            row(&[("b c", row(&[("x", DataType::Decimal128(10, 2), true)]), true)]),
            "ROW<`b c` ROW<x DECIMAL(10, 2)>>",
        ),
        (
            "ROW<m MAP<INT, ROW<x ARRAY<INT>>>>",
            row(&[("m", map(Int32, row(&[("x", list(Int32, true), true)])), true)]),
            "ROW<m MAP<INT, ROW<x ARRAY<INT>>>>",
        ),
    ];
    for (written, expected, name) in cases {
        let found = declared(written).unwrap_or_else(|e| panic!("{written}: {e}"));
        assert_eq!(found, expected, "{written}");
        assert_eq!(sql_type_name(&found), name, "{written}");
        assert_eq!(declared(name), Ok(expected), "{name} is read as what it names");
    }
}

#[test]
fn wrong_types_are_refused() {
    let deep = |n: usize| format!("{}INT{}", "ARRAY<".repeat(n), ">".repeat(n));
    assert!(declared(&deep(15)).is_ok());
    let (deeper, postfix) = (deep(40), format!("INT{}", " ARRAY".repeat(16)));
    let cases: Vec<(&str, &str)> = vec![
        ("MULTISET<INT>", "MULTISET does not run here"),
        ("INT MULTISET", "MULTISET does not run here"),
        ("ROW<>", "ROW does not say of what"),
        ("ROW< >", "a ROW needs a field"),
        ("ROW<a INT, a INT>", "two fields 'a'"),
        ("ROW<a INT", "expected >"),
        ("ROW(a INT>", "expected )"),
        ("ARRAY", "ARRAY does not say of what"),
        ("ARRAY<INT>>", ">>"),
        ("ROW<a>", "expected a data type name"),
        ("ARRAY<ITN>", "did you mean INT?"),
        ("MAP<INT>", "expected"),
        ("MAP<ARRAY<INT>, INT>", "keys of a MAP"),
        ("ARRY<INT>", "did you mean ARRAY?"),
        ("STRUCT<a INT>", "is called ROW"),
        (&deeper, "more than 16 types"),
        (&postfix, "more than 16 types"),
    ];
    for (written, part) in cases {
        let error = declared(written).expect_err(written);
        assert!(error.to_lowercase().contains(&part.to_lowercase()), "{written}: {error}");
        assert!(error.contains("-->"), "{written}: {error}");
    }
}

/// Three rows; the second is all NULL, and beneath its NULLs there are values.
fn rows() -> RecordBatch {
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let ints = |values: [Option<i32>; 3]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
    let inner: Fields = vec![Field::new("x", DataType::Int32, true)].into();
    let inner = StructArray::new(inner, vec![ints([Some(5), Some(6), None])], None);
    let row: Fields = vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b c", DataType::Utf8, true),
        Field::new("s", inner.data_type().clone(), true),
    ]
    .into();
    let text = StringArray::from(vec!["p", "q", "r"]);
    let columns = vec![ints([Some(1), Some(2), Some(3)]), Arc::new(text), Arc::new(inner)];
    let row = StructArray::new(row, columns, nulls());
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(10), None, Some(30)]);
    lists.append_null();
    lists.append_value([]);
    let item: Fields =
        vec![Field::new("name", DataType::Utf8, true), Field::new("qty", DataType::Int32, true)]
            .into();
    let items = StructArray::new(
        item.clone(),
        vec![Arc::new(StringArray::from(vec!["u", "v", "w"])), ints([Some(7), Some(8), Some(9)])],
        None,
    );
    let field = Arc::new(Field::new("item", DataType::Struct(item), true));
    let orders =
        ListArray::new(field, OffsetBuffer::from_lengths([2, 1, 0]), Arc::new(items), nulls());
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    let mut maps = MapBuilder::new(Some(names), StringBuilder::new(), Int32Builder::new());
    for entries in [&[("k", 1), ("l", 2), ("k", 3)][..], &[("k", 4)], &[]] {
        for (key, value) in entries {
            maps.keys().append_value(key);
            maps.values().append_value(*value);
        }
        maps.append(entries.len() != 1).unwrap();
    }
    let bytes = BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None, Some(b"")]);
    let columns: Vec<ArrayRef> = vec![
        ints([Some(1), Some(2), Some(3)]),
        Arc::new(row),
        Arc::new(lists.finish()),
        Arc::new(orders),
        Arc::new(maps.finish()),
        Arc::new(bytes),
    ];
    let names = ["id", "r", "l", "o", "m", "y"];
    let fields =
        names.iter().zip(&columns).map(|(n, c)| Field::new(*n, c.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn run(text: &str) -> Result<RecordBatch, String> {
    let query = match execute(&mut empty_session(), &format!("{TABLE}{text}")) {
        Ok(Outcome::Query(planned) | Outcome::Insert(planned, _)) => Query::new(&planned.plan),
        Ok(other) => panic!("{other:?}"),
        Err(e) => return Err(e.render()),
    };
    let batch = rows().project(&query.projection).unwrap();
    assert_eq!(batch.schema(), query.input);
    query.run(batch).map_err(|e| e.to_string())
}

#[track_caller]
fn gives(expr: &str, expected: [&str; 3]) {
    let batch =
        run(&format!("SELECT {expr} AS v FROM n")).unwrap_or_else(|e| panic!("{expr}: {e}"));
    assert_eq!(shown(&batch), expected, "{expr}");
}

#[test]
fn fields_of_rows() {
    gives("r.a", ["1", "NULL", "3"]);
    gives("n.r.a + 1", ["2", "NULL", "4"]);
    gives("r.`b c`", ["p", "NULL", "r"]);
    gives("r.s.x", ["5", "NULL", "NULL"]);
    gives("(r.s).x", ["5", "NULL", "NULL"]);
    gives("(r).a", ["1", "NULL", "3"]);
    gives("r IS NULL", ["false", "true", "false"]);
    gives("r.s.x IS NULL", ["false", "true", "true"]);
    gives("UPPER(r.`b c`)", ["P", "NULL", "R"]);
    gives("CASE WHEN r.a > 1 THEN r.a ELSE 0 END", ["0", "0", "3"]);
    gives("(CASE WHEN id <> 1 THEN r.s END).x", ["NULL", "NULL", "NULL"]);
    gives("(CASE WHEN id < 3 THEN r.s END).x", ["5", "NULL", "NULL"]);
}

#[test]
fn elements_of_arrays() {
    gives("l[1]", ["10", "NULL", "NULL"]);
    gives("l[2]", ["NULL", "NULL", "NULL"]);
    gives("l[id + 2]", ["30", "NULL", "NULL"]);
    gives("l[0]", ["NULL", "NULL", "NULL"]);
    gives("l[-1]", ["NULL", "NULL", "NULL"]);
    gives("l[4]", ["NULL", "NULL", "NULL"]);
    gives("n.l[3]", ["30", "NULL", "NULL"]);
    gives("o[2].name", ["v", "NULL", "NULL"]);
    gives("n.o[1].qty * 2", ["14", "NULL", "NULL"]);
    gives("CARDINALITY(l)", ["3", "NULL", "0"]);
    gives("CARDINALITY(o)", ["2", "NULL", "0"]);
    gives("l IS NOT NULL", ["true", "false", "true"]);
    gives("ELEMENT(ARRAY[id])", ["1", "2", "3"]);
    gives("ARRAY[id, 7][2]", ["7", "7", "7"]);
    gives("CARDINALITY(ARRAY[1, 2.5, NULL])", ["3", "3", "3"]);
    let failed = run("SELECT ELEMENT(l) FROM n").expect_err("three elements");
    assert!(failed.contains("3 elements") && failed.contains("ELEMENT(l)"), "{failed}");
}

#[test]
fn values_of_maps() {
    gives("m['k']", ["3", "NULL", "NULL"]);
    gives("m['l']", ["2", "NULL", "NULL"]);
    gives("m['x']", ["NULL", "NULL", "NULL"]);
    gives("m[r.`b c`]", ["NULL", "NULL", "NULL"]);
    gives("m[CASE WHEN id = 1 THEN 'l' END]", ["2", "NULL", "NULL"]);
    gives("CARDINALITY(m)", ["3", "NULL", "0"]);
    gives("m IS NULL", ["false", "true", "false"]);
}

#[test]
fn maps_are_made_of_keys_and_values() {
    gives("MAP['a', id, 'b', 7]['a']", ["1", "2", "3"]);
    gives("MAP['a', id, 'a', 7]['a']", ["7", "7", "7"]);
    gives("CARDINALITY(MAP['a', id, 'a', 7])", ["1", "1", "1"]);
    // Of the same keys, the last counts: 2 is a key twice where id is 2.
    gives("MAP[id, 'x', 2, 'y'][2]", ["y", "y", "y"]);
    gives("MAP[2, 'y', id, 'x'][2]", ["y", "x", "y"]);
    gives("CARDINALITY(MAP[id, 'x', 2, 'y'])", ["2", "1", "2"]);
    gives("MAP['k', ARRAY[id, 0]]['k'][1]", ["1", "2", "3"]);
    gives("MAP['k', r]['k'].a", ["1", "NULL", "3"]);
    gives("MAP['a', MAP['b', id]]['a']['b']", ["1", "2", "3"]);
    let batch = run("SELECT MAP['a', id] FROM n").unwrap();
    let column = batch.schema().field(0).clone();
    assert_eq!(sql_type_name(column.data_type()), "MAP<STRING, INT>");
    let failed = run("SELECT MAP[r.`b c`, 1] FROM n").expect_err("a key that is NULL");
    assert!(failed.contains("a key of a MAP is NULL"), "{failed}");
    // A column of that name is a column.
    let text = "CREATE VIEW v AS SELECT m AS `map` FROM n; SELECT map['l'] FROM v";
    assert_eq!(shown(&run(text).unwrap()), ["2", "NULL", "NULL"]);
    refused_of_n("SELECT MAP[] FROM n", &["made of keys and values", "MAP['a', 1, 'b', 2]"]);
    refused_of_n("SELECT MAP[1, 2, 3] FROM n", &["the last key has no value", "^^^"]);
    refused_of_n("SELECT MAP[ARRAY[1], 2] FROM n", &["cannot be ARRAY<BIGINT>"]);
    refused_of_n("SELECT MAP[NULL, 2] FROM n", &["cannot be NULL"]);
    refused_of_n("SELECT MAP[1, l, 2, r] FROM n", &["cannot be values of one MAP"]);
}

#[test]
fn nested_columns_pass_through_filters_views_and_unions() {
    let batch = run("SELECT l FROM n WHERE r.a = 1").unwrap();
    assert_eq!(shown(&batch), ["[10, , 30]"]);
    let text = "CREATE VIEW v AS SELECT r.s AS inner_row, o FROM n WHERE id < 3;
                SELECT inner_row.x FROM v WHERE o[1].qty = 7";
    let batch = run(text).unwrap();
    assert_eq!(shown(&batch), ["5"]);
    assert_eq!(batch.schema().field(0).name(), "x");
    let batch = run("SELECT q.a FROM (SELECT r.a, r.s FROM n) AS q WHERE q.s.x = 5").unwrap();
    assert_eq!(shown(&batch), ["1"]);
    let batch = run("SELECT ROW(id, r.a) AS p FROM n LIMIT 1").unwrap();
    assert_eq!(
        sql_type_name(batch.schema().field(0).data_type()),
        "ROW<`EXPR$0` INT, `EXPR$1` INT>"
    );
    let session = || {
        let mut session = empty_session();
        execute(&mut session, TABLE).unwrap();
        session
    };
    for text in [
        "SELECT r.a, COUNT(*), COUNT(l), COUNT(r), MAX(r.s.x) FROM n GROUP BY r.a",
        "SELECT n.r.a FROM n GROUP BY n.r.a HAVING n.r.a > 1",
        "SELECT r.a, r.s.x FROM n GROUP BY r.a, r.s.x",
        "SELECT l, r FROM n UNION ALL SELECT l, r FROM n",
        "SELECT r FROM n ORDER BY r.a",
        "SELECT r.a FROM n ORDER BY r.a",
        "SELECT DISTINCT r.a FROM n",
    ] {
        execute(&mut session(), text).unwrap_or_else(|e| panic!("{text}: {}", e.render()));
    }
}

#[track_caller]
fn refused_of_n(text: &str, parts: &[&str]) {
    refused(&format!("{TABLE}{text}"), parts);
}

#[test]
fn mistakes_are_shown_where_they_stand() {
    refused_of_n("SELECT r.aa FROM n", &["no field 'aa'", "did you mean 'a'?", "^^^^"]);
    refused_of_n("SELECT n.r.s.y FROM n", &["no field 'y'", "its fields are x", "^^^^^^^"]);
    refused_of_n("SELECT r.A FROM n", &["no field 'A'", "did you mean 'a'?"]);
    refused_of_n("SELECT id FROM n WHERE r.zzzz = 1", &["its fields are a, b c, s", "^^^^^^"]);
    refused_of_n("SELECT id.x FROM n", &["no 'x' in a value of type INT", "only a ROW"]);
    refused_of_n("SELECT o.name FROM n", &["no 'name'", "ARRAY<ROW", "array[1].field"]);
    refused_of_n("SELECT m.k FROM n", &["no 'k'", "map['k']"]);
    refused_of_n("SELECT id[1] FROM n", &["INT has no elements", "^^"]);
    refused_of_n("SELECT l['x'] FROM n", &["by its number, not by STRING"]);
    refused_of_n("SELECT m[1] FROM n", &["keys of this MAP are STRING, not BIGINT"]);
    refused_of_n("SELECT r['a'] FROM n", &["told by its name", "row.field"]);
    refused_of_n("SELECT l[1:2] FROM n", &["part of an array"]);
    refused_of_n("SELECT CARDINALITY(id) FROM n", &["CARDINALITY of INT", "^^"]);
    refused_of_n("SELECT ELEMENT(m) FROM n", &["ELEMENT of MAP<STRING, INT>"]);
    refused_of_n("SELECT ARRAY[1, l] FROM n", &["one ARRAY"]);
    refused_of_n("SELECT ARRAY[] FROM n", &["ARRAY without elements", "^^"]);
    refused_of_n("SELECT x.a FROM n", &["no table 'x' here"]);
    refused_of_n("SELECT r.a.b FROM n", &["no 'b' in a value of type INT"]);
}

/// The columns of what is inserted, over [`rows`].
fn inserted(sink: &str, select: &str) -> Result<RecordBatch, String> {
    let sink = format!("CREATE TABLE sink ({sink}) WITH ('connector' = 'nowhere');");
    run(&format!("{sink} INSERT INTO sink {select}"))
}

#[test]
fn fields_are_inserted_by_their_position() {
    let columns = "r ROW<x BIGINT, y ARRAY<DOUBLE>>, m MAP<STRING, ROW<z DECIMAL(10, 2)>>";
    let batch = inserted(columns, "SELECT ROW(id, l), MAP['k', ROW(id)] FROM n").unwrap();
    let types: Vec<String> =
        batch.schema().fields().iter().map(|field| sql_type_name(field.data_type())).collect();
    assert_eq!(types, ["ROW<x BIGINT, y ARRAY<DOUBLE>>", "MAP<STRING, ROW<z DECIMAL(10, 2)>>"]);
    assert_eq!(shown(&batch)[0], "{x: 1, y: [10.0, , 30.0]}");
    assert_eq!(
        shown(&batch.project(&[1]).unwrap()),
        ["{k: {z: 1.00}}", "{k: {z: 2.00}}", "{k: {z: 3.00}}"]
    );
    let batch = inserted("l ARRAY<BIGINT>, r ROW<a INT>", "SELECT l, NULL FROM n").unwrap();
    assert_eq!(shown(&batch), ["[10, , 30]", "NULL", "[]"]);
    assert_eq!(shown(&batch.project(&[1]).unwrap()), ["NULL"; 3]);
    for (sink, select) in [
        ("r ROW<a INT>", "SELECT ROW(1, 2) FROM n"),
        ("r ROW<a INT NOT NULL>", "SELECT ROW(id) FROM n"),
        ("l ARRAY<STRING>", "SELECT l FROM n"),
        ("l STRING", "SELECT l FROM n"),
        ("m MAP<INT, INT>", "SELECT m FROM n"),
    ] {
        let error = inserted(sink, select).expect_err(select);
        assert!(error.contains("of table 'sink' is ") && error.contains("the query's"), "{error}");
    }
}

#[test]
fn values_are_not_compared_or_cast_as_a_whole() {
    let no = "there is no comparison of ARRAY<";
    for condition in ["l = l", "l <> ARRAY[1]", "l < l", "l IS DISTINCT FROM l", "l IN (l)"] {
        let text = format!("SELECT id FROM n WHERE {condition}");
        refused_of_n(&text, &[no, "compare what it is made of"]);
    }
    refused_of_n("SELECT id FROM n WHERE l BETWEEN l AND l", &[no]);
    refused_of_n("SELECT CASE l WHEN l THEN 1 END FROM n", &[no]);
    refused_of_n("SELECT NULLIF(l, l) FROM n", &[no]);
    refused_of_n("SELECT id FROM n WHERE r = r", &["there is no comparison of ROW<"]);
    refused_of_n("SELECT id FROM n WHERE m = m", &["there is no comparison of MAP<STRING, INT>"]);
    refused_of_n("SELECT CAST(l AS STRING) FROM n", &["there is no CAST of ARRAY<INT> to STRING"]);
    refused_of_n("SELECT CONCAT('a', m) FROM n", &["joins texts, not STRING and MAP<STRING, INT>"]);
    refused_of_n("SELECT l || l FROM n", &["|| joins texts, not ARRAY<INT>"]);
    refused_of_n("SELECT id FROM n WHERE l = 1", &["ARRAY<INT>"]);
    refused_of_n("SELECT UPPER(l) FROM n", &["UPPER"]);
    refused_of_n("SELECT -l FROM n", &["numbers and intervals"]);
    refused_of_n("SELECT l + 1 FROM n", &["ARRAY<INT>"]);
}

#[test]
fn values_made_of_others_are_not_grouped_by() {
    refused_of_n("SELECT r, COUNT(*) FROM n GROUP BY r", &["cannot be grouped by", "ROW<a INT"]);
    refused_of_n("SELECT DISTINCT l FROM n", &["cannot be grouped by", "ARRAY<INT>"]);
    refused_of_n("SELECT MAX(l) FROM n", &["no MAX of ARRAY<INT>", "^^^"]);
    refused_of_n("SELECT MIN(r) FROM n", &["no MIN of ROW<"]);
    refused_of_n("SELECT SUM(m) FROM n", &["no SUM of MAP<STRING, INT>"]);
    refused_of_n("SELECT id FROM n ORDER BY l", &["ordered by", "ARRAY<INT>", "^"]);
    refused_of_n("SELECT l FROM n ORDER BY 1", &["ordered by", "ARRAY<INT>"]);
    refused_of_n("SELECT l FROM n UNION SELECT l FROM n", &["cannot be grouped by", "UNION"]);
    refused_of_n("SELECT id FROM n WHERE r", &["BOOLEAN"]);
}

#[test]
fn casts_to_types_made_of_others_are_refused_with_what_to_write() {
    for (cast, marked) in [
        ("CAST(l AS ARRAY<BIGINT>)", "ARRAY<BIGINT>"),
        ("CAST(r AS ROW<a BIGINT, b STRING>)", "ROW<a BIGINT, b STRING>"),
        ("CAST(r AS ROW(a BIGINT))", "ROW(a BIGINT)"),
        ("TRY_CAST(m AS map<STRING, ARRAY<INT>>)", "map<STRING, ARRAY<INT>>"),
        ("CAST(l AS BIGINT ARRAY)", "BIGINT ARRAY"),
        ("CAST(l AS BIGINT[])", "BIGINT[]"),
        ("CAST(CAST(l AS ARRAY<INT>) AS STRING)", "ARRAY<INT>"),
        ("cast((SELECT id AS x FROM n) AS ROW)", "ROW"),
    ] {
        let marks = format!(" {}\n", "^".repeat(marked.len()));
        refused_of_n(
            &format!("SELECT {cast} FROM n"),
            &["a CAST to ROW, ARRAY or MAP does not run", "cast what it is made of", &marks],
        );
    }
    // What only looks like one.
    graph(&format!(
        "{TABLE}SELECT CAST(id AS STRING) AS `ROW`, CAST(r.a AS BIGINT), \
         ARRAY[CAST(id AS BIGINT)] FROM n"
    ));
}
