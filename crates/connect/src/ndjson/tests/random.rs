//! Records drawn at random, and mutated ones.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use serde_json::{Value, json};

use super::*;
use crate::random::Random;

/// A record as `serde_json` has it, with what its columns must be.
#[derive(Debug, Clone)]
struct Record {
    number: Option<i64>,
    text: Option<String>,
    double: Option<f64>,
    list: Option<Vec<Option<i64>>>,
    row: Option<(bool, Option<String>)>,
    map: Option<BTreeMap<String, Option<i64>>>,
    /// Where members are left out instead of `null`, in which order they come, and blanks.
    layout: u64,
}

fn record() -> impl Strategy<Value = Record> {
    let double = prop_oneof![
        any::<f64>().prop_filter("JSON has no others", |d| d.is_finite()),
        (any::<i32>(), 0..6).prop_map(|(n, scale)| f64::from(n) / 10f64.powi(scale)),
    ];
    let number = prop_oneof![any::<i64>(), -1000..1000i64];
    (
        option::of(number),
        option::of(any::<String>()),
        option::of(double),
        option::of(vec(any::<Option<i64>>(), 0..4)),
        any::<Option<(bool, Option<String>)>>(),
        option::of(btree_map(any::<String>(), any::<Option<i64>>(), 0..12)),
        any::<u64>(),
    )
        .prop_map(|(number, text, double, list, row, map, layout)| Record {
            number,
            text,
            double,
            list,
            row,
            map,
            layout,
        })
}

impl Record {
    /// The values of the columns.
    fn values(&self) -> Vec<(&'static str, Value)> {
        let row = self.row.as_ref().map(|(ok, name)| json!({"ok": ok, "name": name}));
        vec![
            ("number", json!(self.number)),
            ("text", json!(self.text)),
            ("double", json!(self.double)),
            ("list", json!(self.list)),
            ("row", json!(row)),
            ("map", json!(self.map)),
        ]
    }

    /// A line, as somebody may write it.
    fn write(&self, out: &mut String) {
        let mut random = Random::new(self.layout);
        let mut members: Vec<String> = Vec::new();
        let plain = random.below(2) == 0;
        for (name, value) in self.values() {
            if value.is_null() && random.below(2) == 0 {
                continue;
            }
            let mut blank = || [" ", "\t", "", "\r"][random.below(4) as usize];
            members.push(match plain {
                true => format!("\"{name}\":{value}"),
                false => format!("{}\"{name}\"{}:{}{value}{}", blank(), blank(), blank(), blank()),
            });
        }
        if random.below(3) == 0 {
            let strange = r#""x\"\u0041":{"number":[1e999,"\ud800",{"":[[],{}]}],"text":-0.5E-7}"#;
            members.insert(random.below(members.len() as u64 + 1) as usize, strange.into());
        }
        if random.below(3) == 0 {
            let turn = random.below(members.len() as u64 + 1) as usize;
            members.rotate_left(turn);
        }
        *out += &format!("{{{}}}\n", members.join(","));
    }
}

/// The same members in any text of JSON.
fn columns() -> SchemaRef {
    let field = |name: &str, of: DataType, nullable| Field::new(name, of, nullable);
    let row = vec![field("ok", DataType::Boolean, false), field("name", DataType::Utf8, true)];
    let entry = vec![field("key", DataType::Utf8, false), field("value", DataType::Int64, true)];
    let entries = Arc::new(field("entries", DataType::Struct(entry.into()), false));
    schema(&[
        ("number", DataType::Int64, true),
        ("text", DataType::Utf8, true),
        ("double", DataType::Float64, true),
        ("list", DataType::List(Arc::new(field("item", DataType::Int64, true))), true),
        ("row", DataType::Struct(row.into()), true),
        ("map", DataType::Map(entries, false), true),
    ])
}

/// A value of a column, as JSON.
pub(super) fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Value::Array((0..items.len()).map(|item| value(&items, item)).collect())
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let members = fields.iter().zip(columns);
            Value::Object(members.map(|(f, c)| (f.name().clone(), value(c, row))).collect())
        }
        DataType::Map(_, _) => {
            let entries = array.as_map().value(row);
            let key = |entry| entries.column(0).as_string::<i32>().value(entry).to_string();
            let pairs = (0..entries.len()).map(|e| (key(e), value(entries.column(1), e)));
            Value::Object(pairs.collect())
        }
        other => panic!("{other}"),
    }
}

proptest! {
    /// What `serde_json` writes is read as it was, whatever the order of members and the blanks.
    #[test]
    fn what_serde_json_writes_is_read_back(
        records in vec(record(), 0..30),
        some_bytes in 1..500usize,
    ) {
        let mut text = String::new();
        records.iter().for_each(|record| record.write(&mut text));
        for chunk_bytes in [1, some_bytes, 1 << 20] {
            let (rows, left_out, _) =
                read_in(text.as_bytes(), &columns(), false, chunk_bytes).unwrap();
            prop_assert_eq!((rows.num_rows(), left_out), (records.len(), 0));
            for (at, record) in records.iter().enumerate() {
                for (column, (name, expected)) in rows.columns().iter().zip(record.values()) {
                    prop_assert_eq!(value(column, at), expected, "{} of {}", name, at);
                }
            }
        }
    }
}

/// Values, and what looks like some.
const VALUES: [&str; 85] = [
    "0",
    "1",
    "-1",
    "01",
    "-01",
    "+1",
    "1.",
    ".5",
    "1.5",
    "-1.5",
    "1e5",
    "1E+5",
    "1e",
    "1e+",
    "1.e5",
    "--1",
    "-",
    "0x1",
    "1_0",
    "12345678",
    "123456789",
    "1234567890123456",
    "12345678901234567",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "0.1",
    "0.30000000000000004",
    "123456789.123456789",
    "1e-400",
    "4.9e-324",
    "1.7976931348623157e308",
    "9007199254740993",
    "0.000000000000000000000001",
    "true",
    "false",
    "null",
    "tru",
    "True",
    "nul",
    "falsey",
    "NaN",
    "\"\"",
    "\"a\"",
    "\"a",
    "\"a\\\"b\"",
    "\"\\\\\"",
    "\"\\/\"",
    "\"\\b\\f\\n\\r\\t\"",
    "\"\\x\"",
    "\"\\u0041\"",
    "\"\\u004\"",
    "\"\\uD83D\\uDE00\"",
    "\"\\uD83D\"",
    "\"\\uDE00\"",
    "\"\\uD83D\\u0041\"",
    "\"\\u+041\"",
    "\"a\tb\"",
    "\"a\u{1}b\"",
    "\"a\u{7f}b\"",
    "\"\u{1f600}\"",
    "\"12345678\\\"\"",
    "\"1234567\u{e9}\"",
    "\"\\",
    "[]",
    "[1]",
    "[1,]",
    "[,1]",
    "[1,2",
    "[1 2]",
    "{}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "[}",
    "{]",
    "[[[]]]",
    "{\"a\":{\"b\":[]}}",
    "1 2",
    "\"a\"b",
];

/// What `serde_json` takes is taken, and is the same; else nothing is.
#[test]
fn values_are_read_as_serde_json_reads_them() {
    let number = schema(&[("v", DataType::Int64, true)]);
    let double = schema(&[("v", DataType::Float64, true)]);
    let text = schema(&[("v", DataType::Utf8, true)]);
    let unread = schema(&[("w", DataType::Int64, true)]);
    for value in VALUES {
        let line = format!("{{\"v\":{value}}}\n");
        let parsed = serde_json::from_str::<BTreeMap<String, Value>>(&line).ok();
        let parsed = parsed.map(|object| object["v"].clone());
        let one = |schema: &SchemaRef| read(&line, schema, false).ok().map(|(rows, _, _)| rows);
        // `Value` refuses lone halves of characters and large exponents; nobody reads them here.
        let open = value.contains("\\u");
        assert!(open || one(&unread).is_some() == parsed.is_some(), "{value}");
        let whole = one(&number).map(|rows| random::value(rows.column(0), 0));
        let is_whole = |value: &&Value| value.is_i64() || value.is_null();
        assert_eq!(whole, parsed.as_ref().filter(is_whole).cloned(), "{value}");
        let real = one(&double).map(|rows| {
            let column = rows.column(0).as_primitive::<Float64Type>();
            column.is_valid(0).then(|| column.value(0).to_bits())
        });
        let expected = match &parsed {
            Some(Value::Null) => Some(None),
            Some(Value::Number(_)) => Some(Some(value.parse::<f64>().unwrap().to_bits())),
            _ => None,
        };
        assert_eq!(real, expected, "{value}");
        let string = one(&text).map(|rows| random::value(rows.column(0), 0));
        let is_text = |value: &&Value| value.is_string() || value.is_null();
        assert_eq!(string, parsed.as_ref().filter(is_text).cloned(), "{value}");
    }
}
