//! Tests of ROW, ARRAY and MAP.

use serde_json::json;

use super::random::value;
use super::*;

fn field(name: &str, of: DataType, nullable: bool) -> Field {
    Field::new(name, of, nullable)
}

fn list(of: DataType, nullable: bool) -> DataType {
    DataType::List(Arc::new(field("item", of, nullable)))
}

fn map(of: DataType, nullable: bool) -> DataType {
    let entry = vec![field("key", DataType::Utf8, false), field("value", of, nullable)];
    DataType::Map(Arc::new(field("entries", DataType::Struct(entry.into()), false)), false)
}

/// `user ROW<id BIGINT NOT NULL, name STRING, tags ARRAY<BIGINT NOT NULL>>`, `m MAP<STRING,
/// ROW<x DOUBLE NOT NULL>>`.
fn columns() -> SchemaRef {
    let user = vec![
        field("id", DataType::Int64, false),
        field("name", DataType::Utf8, true),
        field("tags", list(DataType::Int64, false), true),
    ];
    let point = vec![field("x", DataType::Float64, false)];
    schema(&[
        ("user", DataType::Struct(user.into()), true),
        ("m", map(DataType::Struct(point.into()), true), true),
    ])
}

#[test]
fn values_within_values_are_read() {
    let text = r#"{"user":{"id":1,"name":"a","tags":[1,2]},"m":{"p":{"x":1.5},"q":null}}
{"user":{"name":null,"ID":2},"m":{}}
{"user":null}
{"m":{"\u0041":{"x":2,"y":[{}]}},"user":{"tags":[ ],"id":3,"more":{"id":"x"}}}
"#;
    let (rows, _, _) = read(text, &columns(), false).unwrap();
    let found: Vec<_> =
        (0..4).map(|row| json!([value(rows.column(0), row), value(rows.column(1), row)])).collect();
    assert_eq!(
        json!(found),
        json!([
            [{"id": 1, "name": "a", "tags": [1, 2]}, {"p": {"x": 1.5}, "q": null}],
            [{"id": 2, "name": null, "tags": null}, {}],
            [null, null],
            [{"id": 3, "name": null, "tags": []}, {"A": {"x": 2.0}}],
        ])
    );
}

#[test]
fn what_does_not_fit_is_named_by_its_path() {
    for (line, expected) in [
        (r#"{"user":7}"#, ":2:9: expected "),
        (r#"{"user":[]}"#, "for column 'user', found []"),
        (r#"{"user":{"id":1.5}}"#, ":2:15: expected BIGINT for column 'user.id', found 1.5"),
        (r#"{"user":{"name":"x"}}"#, ":2:9: column 'user.id' is NOT NULL, found NULL"),
        (r#"{"user":{"id":null}}"#, ":2:15: column 'user.id' is NOT NULL, found NULL"),
        (
            r#"{"user":{"id":1,"tags":[1,2,"x"]}}"#,
            ":2:29: expected BIGINT for column 'user.tags[3]', found \"x\"",
        ),
        (r#"{"user":{"id":1,"tags":[null]}}"#, "column 'user.tags[1]' is NOT NULL"),
        (r#"{"user":{"id":1,"tags":{}}}"#, "for column 'user.tags', found {}"),
        (r#"{"m":{"p":{"x":"1"}}}"#, "expected DOUBLE for column 'm['p'].x', found \"1\""),
        (r#"{"m":{"p":{"x":1},"p":{"x":1}}}"#, ":2:19: the key 'p' is given twice"),
        (r#"{"user":{"id":1,"id":2}}"#, "the member 'id' is given twice"),
        (r#"{"user":{"Id":1,"ID":2}}"#, "'Id' and 'ID' differ only in case"),
        (r#"{"m":[]}"#, "for column 'm', found []"),
        (r#"{"m":{"p":{"x":1}}"#, "does not end on its line"),
    ] {
        let text = format!("{{}}\n{line}\n{{}}\n");
        let error = read(&text, &columns(), false).unwrap_err().to_string();
        assert!(error.starts_with("x.ndjson:2:") && error.contains(expected), "{line}: {error}");
        let (rows, left_out, _) = read(&text, &columns(), true).unwrap();
        assert_eq!((rows.num_rows(), left_out), (2, 1), "{line}");
    }
    // Of many keys, too.
    let keys: Vec<String> = (0..20).map(|n| format!("\"k{}\":null", n % 19)).collect();
    let text = format!("{{\"m\":{{{}}}}}", keys.join(","));
    let error = read(&text, &columns(), false).unwrap_err().to_string();
    assert!(error.contains("the key 'k0' is given twice"), "{error}");
}

#[test]
fn the_exact_member_of_a_row_is_meant() {
    let text = "{\"user\":{\"ID\":\"x\",\"id\":4,\"Id\":null}}\n";
    let (rows, _, _) = read(text, &columns(), false).unwrap();
    assert_eq!(value(rows.column(0), 0)["id"], json!(4));
}

#[test]
fn nesting_is_limited_where_it_is_read_too() {
    let mut nested = DataType::Int64;
    for _ in 0..200 {
        nested = list(nested, true);
    }
    let schema = schema(&[("a", nested, true)]);
    let text = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&text(127), &schema, false).is_ok());
    let error = read(&text(128), &schema, false).unwrap_err().to_string();
    assert!(error.contains("nested more than 128 deep"), "{error}");
}
